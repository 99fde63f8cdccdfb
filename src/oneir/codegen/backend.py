"""Back ends: all that differs between kinds of targets stands in one object for each.

    class LLVM(Backend):
        kind = "llvm"
        ...

    register_backend(LLVM())
    backend_of(Target("llvm -mcpu=znver3")).schedule_rules(target)

The driver runs the stages of a compilation (`driver/stages.py`) and knows no back end by name: what each stage runs, it
asks the back end of the target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

from ..dlight.base import ScheduleRule
from ..ir.module import IRModule
from ..ir.transform import Pass
from ..relax import pipeline as graph_pipeline
from ..runtime.error import InvalidValue, UnsupportedError
from ..runtime.module import DeferredFunctions, Module, Sources
from ..runtime.signature import Signature
from ..target.target import Target
from ..tir import pipeline as tir_pipeline


class Backend(ABC):
    """One kind of target: its passes and schedules, and how its code is written, compiled and loaded."""

    kind: ClassVar[str]
    """The kind of target: what `Target.kind.name` is."""

    formats: ClassVar[Mapping[str, str]]
    """The formats in which code can be shown, with a description each; the stages of the phase `code`, in order."""

    calls_kernels: ClassVar[bool] = True
    """Whether graphs become host functions, which launch their kernels without Python; else they are bytecode."""

    compiles_late: ClassVar[bool] = False
    """Whether code is compiled when it is first called or exported, since its text is of use by itself."""

    # -- passes --

    def graph_passes(self, target: Target) -> dict[str, list[Pass]]:
        """The passes over graphs, by stage: dispatched, legalized, fused, layouts, lowered, planned."""
        return graph_pipeline.generic_stages(target)

    def numeric_passes(self, target: Target) -> list[Pass]:
        """The passes that change kernels of operators where their published loops lose digits (stage `exact`)."""
        return []

    @abstractmethod
    def schedule_rules(self, target: Target) -> Sequence[ScheduleRule]:
        """The rules of default schedules, in the order in which they are tried (stage `scheduled`)."""

    @abstractmethod
    def lowering_passes(self, target: Target) -> list[Pass]:
        """The passes that lower scheduled kernels to the form that `write` takes (stage `tir`)."""

    # -- code --

    @abstractmethod
    def write(self, mod: IRModule) -> str:
        """The code of a lowered module as text, which `compile` takes."""

    @abstractmethod
    def compile(self, text: str, target: Target) -> bytes:
        """Object code, which `load` takes and caches and files keep. Raises `CompileError` if it cannot be compiled."""

    def compilers(self, count: int) -> AbstractContextManager[Sequence[Callable[[str, Target], bytes]]]:
        """`compile`, and at most `count - 1` more of its kind, each of which one thread may call at a time."""
        return nullcontext([self.compile])

    @abstractmethod
    def show(self, text: str, target: Target, fmt: str) -> str:
        """The text of `write` in one of the `formats`; "" is the first. Raises `InvalidValue` for any other."""

    def text_of(self, mod: IRModule, target: Target, fmt: str) -> str:
        """The code of a lowered module in one of the `formats`. Raises `InvalidValue` for any other."""
        return self.show(self.write(mod), target, fmt)

    def facts(self, target: Target) -> list[str]:
        """Further parts of cache keys: what code depends on besides its module, passes and the text of the target."""
        return []

    # -- programs --

    def load(
        self,
        objects: Sequence[bytes],
        signatures: dict[str, Signature],
        sources: Sources | None = None,
        deferred: DeferredFunctions | None = None,
    ) -> Module:
        """A runtime module of object code, which may be linked as late as a function is asked for.

        `signatures` are those of its public functions, by name. `sources(fmt)` is the text of the code in a format.
        `deferred` are further functions, compiled when one of them is asked for.
        """
        return Module.from_objects(objects, signatures, sources, deferred)


_backends: dict[str, Backend] = {}


def register_backend(backend: Backend) -> Backend:
    """Makes a back end known, for targets of its kind, and returns the one that is known from then on.

    Raises `InvalidValue` if the kind has a back end of another class.
    """
    known = _backends.setdefault(backend.kind, backend)
    if type(known) is not type(backend):
        raise InvalidValue(f'targets of the kind "{backend.kind}" have a back end already: {type(known).__name__}')
    return known


def backend_of(target: Target) -> Backend:
    """The back end for a target. Raises `UnsupportedError` if its kind has none."""
    backend = _backends.get(target.kind.name)
    if backend is None:
        kinds = ", ".join(f'"{kind}"' for kind in sorted(_backends))
        raise UnsupportedError(f'code for the target "{target.kind.name}" cannot be generated; there are {kinds}')
    return backend


def _backend_or_host(target: str | Mapping[str, object] | Target | None) -> tuple[Backend, Target]:
    """The back end for a target, and the target; None is the current target or, outside of any, this machine."""
    if target is None:
        target = Target.current(allow_none=True) or "llvm"
    target = target if isinstance(target, Target) else Target(target)
    return backend_of(target), target


@graph_pipeline.graph_passes.provide
def _graph_passes(target: str | Mapping[str, object] | Target | None) -> dict[str, list[Pass]]:
    backend, target = _backend_or_host(target)
    return backend.graph_passes(target)


@tir_pipeline.lowering_passes.provide
def _lowering_passes(target: str | Mapping[str, object] | Target | None) -> list[Pass]:
    backend, target = _backend_or_host(target)
    return backend.lowering_passes(target)
