"""Measuring whole models: against other compilers and libraries, and kernel by kernel against the machine's limits.

`oneir bench model.pt2` is the way in. Each contestant runs in a process of its own (`contestant.py`), which `worker.py`
starts and asks; `compare.py` lets them take turns. `kernels.py` tells where OneIR's time goes, and `roofline.py` how
much of what the machine can do that is. Language models are measured by tokens
(`language_model.py`). `table.py` prints all of it.
"""
