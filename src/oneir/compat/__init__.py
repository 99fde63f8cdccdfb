"""Scripts written for TVM, run by OneIR: `import tvm` gives the modules of `oneir`, one module object for each name,
and `import tvm_ffi` what such scripts use of that package.

    import oneir.compat
    oneir.compat.install()
    import tvm
    from tvm.script import tir as T

Or, without a change to the script: `python -m oneir.compat script.py`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from ..runtime.error import OneIRError


class CompatError(OneIRError, ImportError):
    """The name `tvm` cannot be taken over.

    Something imported a package of this name already. Call `oneir.compat.install()` before the first `import tvm`, in a
    program of its own: docs/tutorials/from-tvm.md.
    """


# Modules whose names a larger one of ours has.
_MERGED = {
    "dlight.base.utils": "dlight.base.sizes",
    "driver.build_module": "driver",
    "runtime._tensor": "runtime.tensor",
    "runtime.ndarray": "nd",
    "tir.analysis.analysis": "tir.analysis",
    "tir.transform.transform": "tir.transform",
}


_NAMES = ("tvm", "tvm_ffi")


def _own_name(name: str) -> str:
    """The module of ours that a module of `tvm` or `tvm_ffi` stands for."""
    root, _, rest = name.partition(".")
    if root == "tvm_ffi":
        return f"oneir.compat.ffi.{rest}".removesuffix(".")
    below = name.removeprefix("tvm").removeprefix(".")
    own = f"oneir.{_MERGED.get(below, below)}".removesuffix(".")
    package, _, last = own.rpartition(".")
    held = getattr(sys.modules.get(package), last, None)
    # A package may have, under the published name, a module that stands elsewhere.
    return held.__name__ if isinstance(held, ModuleType) and held.__name__.startswith("oneir.") else own


class _Loader(importlib.abc.Loader):
    """Gives the module of the other name, already executed."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(_own_name(spec.name))
        # What the import system sets on a new module must not replace what the module has.
        self.kept = (module.__spec__, module.__loader__, module.__package__)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__, module.__loader__, module.__package__ = self.kept


class _Finder(importlib.abc.MetaPathFinder):
    """Finds some of `tvm` and `tvm_ffi`, and what is below them."""

    def __init__(self, names: Sequence[str]):
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self.names:
            return None
        name = _own_name(fullname)
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise ModuleNotFoundError(f"OneIR has no module {name}, which {fullname} stands for", name=fullname)
        return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=True)


def install() -> None:
    """Makes `tvm` mean `oneir`, and `tvm_ffi` `oneir.compat.ffi`, in this process; does nothing when they do already.

    Raises `CompatError` when another `tvm` or `tvm_ffi` is imported (those in the folder `names` call this function).
    """
    ours = {name: importlib.import_module(_own_name(name)) for name in _NAMES}
    for name, module in ours.items():
        existing = sys.modules.get(name)
        where = getattr(existing, "__file__", None) or "an unknown place"
        if existing not in (None, module) and Path(__file__).parent / "names" not in Path(where).parents:
            raise CompatError(
                f"`{name}` is imported already, from {where}; call oneir.compat.install() before that import"
            )
    if not any(isinstance(finder, _Finder) and finder.names == _NAMES for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(_NAMES))
    sys.modules.update(ours)


def provide_ffi() -> None:
    """Lets `import tvm_ffi` find `oneir.compat.ffi` in a process that has no such package. `oneir.testing` does so, for
    the tests that import it beside `tvm`.
    """
    if importlib.util.find_spec("tvm_ffi") is None:
        sys.meta_path.insert(0, _Finder(("tvm_ffi",)))
