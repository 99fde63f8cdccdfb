"""What is asked about this installation, and modules of Python functions for tests; published names.

oneir.support.describe()   # for a report of a defect; `oneir doctor` also looks whether all works
"""

from __future__ import annotations

import json
import platform
import sys
import textwrap
from collections.abc import Callable
from types import TracebackType
from typing import Any

from .runtime import Device, Module
from .runtime.error import TypeMismatch, UnknownFunction
from .runtime.library import link
from .target import llvm_version_major
from .version import __version__

_KINDS = ("cuda", "hexagon", "metal", "opencl", "rocm", "vulkan", "webgpu")


def libinfo() -> dict[str, str]:
    """What programs run on here: "ON" or "OFF" for each kind of device, and for LLVM, with its major version."""
    version = llvm_version_major(allow_none=True)
    found = {f"USE_{kind.upper()}": "ON" if Device(kind).exist else "OFF" for kind in _KINDS}
    return found | {"USE_LLVM": "OFF" if version is None else "ON", "LLVM_VERSION": str(version or "NOT FOUND")}


def describe() -> None:
    """Prints the versions of OneIR, Python and the system, and `libinfo`."""
    lines = [
        f"OneIR version  = {__version__}",
        f"Python version = {platform.python_version()} ({sys.maxsize.bit_length() + 1} bit)",
        f"System         = {platform.platform()}",
    ]
    print("Environment", textwrap.indent("\n".join(lines), "  "), sep="\n")
    print("Options", textwrap.indent(json.dumps(libinfo(), indent=2, sort_keys=True), "  "), sep="\n")


class FrontendTestModule(Module):
    """A module whose functions are Python's: `module["f"] = function`, or `add_function`.

    Calling it calls the function `entry_name`; without one, the only function or "main".
    """

    def __init__(self, entry_name: str | None = None):
        super().__init__(lambda: link(what="a module of Python functions"), {})
        self._entry_name = entry_name
        self._members: dict[str, Callable[..., Any]] = {}

    def add_function(self, name: str, func: Callable[..., Any]) -> None:
        """Gives the module a function, in the place of one of that name. Raises `TypeMismatch` for no function."""
        if not callable(func):
            raise TypeMismatch(f"expected a function as {name!r}, found {type(func).__name__}")
        self._members[name] = func

    __setitem__ = add_function

    @property
    def names(self) -> list[str]:
        """The names of all functions."""
        return list(self._members)

    @property
    def entry_name(self) -> str:
        """The name of the function that calling the module calls."""
        return self._entry_name or (self.names[0] if len(self._members) == 1 else "main")

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """The function of that name. Raises `UnknownFunction` if there is none."""
        if name not in self._members:
            raise UnknownFunction(f"the module has no function {name!r}; it has {', '.join(self.names) or 'none'}")
        return self._members[name]

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a function of that name."""
        return name in self._members

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def is_compilation_exportable(self) -> bool:
        """False: functions of Python are in no library."""
        return False

    def __repr__(self) -> str:
        return f"FrontendTestModule({', '.join(self.names)})"


def tvm_wrap_excepthook(
    exception_hook: Callable[[type[BaseException], BaseException, TracebackType | None], Any],
) -> Callable[[type[BaseException], BaseException, TracebackType | None], None]:
    """A `sys.excepthook` that calls another one, and then ends the processes that `multiprocessing` has started.

    So a program that an error ends does not wait for them:
    `sys.excepthook = tvm_wrap_excepthook(sys.excepthook)`.
    """

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        exception_hook(kind, error, trace)
        multiprocessing = sys.modules.get("multiprocessing")  # who has not imported it has started none
        if multiprocessing is not None:
            for process in multiprocessing.active_children():
                process.terminate()

    return hook
