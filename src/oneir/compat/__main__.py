"""`python -m oneir.compat script.py [arguments]`: runs a script for which `tvm` means `oneir`.

It does so in the Python processes that the script starts, too: they find the folder `names` in PYTHONPATH,
or in the path that `multiprocessing` hands on.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from . import install


def main() -> None:
    """Runs the script named by the first argument as `__main__`; `-m package.module` runs a module."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m oneir.compat (script.py | -m module) [arguments]")
        raise SystemExit(0 if arguments else 2)
    install()
    names = str(Path(__file__).parent / "names")
    sys.path.append(names)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [names, os.environ.get("PYTHONPATH")]))
    if arguments[0] == "-m":
        if len(arguments) < 2:
            raise SystemExit("python -m oneir.compat: -m needs the name of a module")
        sys.argv = arguments[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    script = Path(arguments[0])
    if not script.is_file():
        raise SystemExit(f"python -m oneir.compat: there is no file {script}")
    sys.argv = arguments
    sys.path.insert(0, str(script.resolve().parent))
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
