"""The name `tvm` in processes that a program under `python -m oneir.compat` starts."""

from oneir.compat import install

install()  # puts the package that is meant in this one's place
