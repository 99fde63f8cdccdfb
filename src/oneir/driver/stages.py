"""The stages of a compilation, in order, and a module at each of them.

    import  ->  graph  ->  kernels  ->  schedules  ->  lowering  ->  code  ->  program

    stages(Target("llvm"))                       # the list, with what each is
    Stages(mod, Target("llvm")).module("fused")  # the module after a stage

`build` and `compile` run the same passes in the same order; which passes those are, the back end of the target says
(`codegen/backend.py`). A stage that runs passes runs them as a `Sequential` of its name, so instruments see where
stages begin and end. What may stand in a module after a stage is written in `driver/specs.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..codegen.backend import backend_of
from ..codegen.program.bytecode import emit_bytecode
from ..codegen.units import with_declarations
from ..dlight import ApplyDefaultSchedule
from ..ir.module import IRModule
from ..ir.transform import Pass, Sequential
from ..relax import transform
from ..relax.analysis.well_formed import verify_well_formed
from ..relax.expr import Function
from ..relax.pipeline import graph_passes_of
from ..runtime.error import NotRegistered, UnsupportedError
from ..runtime.vm.program import as_text
from ..target.target import Target
from ..tir.pipeline import DefaultTIRPipeline
from .build import KernelSources, as_target
from .kernels import kernels_of


@dataclass(frozen=True)
class Stage:
    """One step of a compilation: its name, the phase that it belongs to, and a description of the module after it."""

    name: str
    phase: str
    what: str
    passes: Sequence[Pass] = ()
    """The passes that run in it."""
    is_text: bool = False
    """Whether its result is text rather than a module."""


_GRAPH = {
    "dispatched": "operators that a library, or a kernel written for the target, computes are calls of it",
    "legalized": "operators are kernels (TensorIR), weights and shapes worked out as far as they are known",
    "fused": "kernels that work on each other's results are one",
    "layouts": "weights and values lie in memory as the kernels want them",
    "lowered": "values are memory, which kernels read and write",
    "planned": "all memory is one arena; calls of the runtime",
}


def stages(target: Target, mod: IRModule | None = None) -> list[Stage]:
    """All stages of a compilation for a target, in order; `mod` is what is compiled, if that is known."""
    backend = backend_of(target)
    graph, exact = graph_passes_of(mod or IRModule(), target), backend.numeric_passes(target)
    lowering = backend.lowering_passes(target)
    return [
        Stage("imported", "import", "the model as it was imported or written: operators"),
        *(Stage(name, "graph", what, graph[name]) for name, what in _GRAPH.items()),
        Stage("kernels", "kernels", "all kernels, and the graphs as host functions that call them"),
        Stage("exact", "schedules", "kernels whose sums and extremes keep their digits", exact),
        Stage("scheduled", "schedules", "kernels with their schedules: tiles, vectors, threads", [_schedule(target)]),
        Stage("tir", "lowering", "kernels lowered to flat loops, as code is written from", lowering),
        *(Stage(name, "code", what, is_text=True) for name, what in backend.formats.items()),
        Stage("program", "program", "the program of the virtual machine: its instructions", is_text=True),
    ]


def stage_pass(target: Target, name: str) -> Pass:
    """The passes of a stage as one pass, for a stage that runs passes."""
    return Sequential(next(stage.passes for stage in stages(target) if stage.name == name), name=name)


def schedule_passes(target: Target) -> Pass:
    """The passes of the stages `exact` and `scheduled`, for the kernels of graphs that nobody has scheduled."""
    exact = Sequential(backend_of(target).numeric_passes(target), name="exact")
    return Sequential([exact, Sequential([_schedule(target)], name="scheduled")], name="schedules")


def _schedule(target: Target) -> Pass:
    return ApplyDefaultSchedule(*backend_of(target).schedule_rules(target))


class Stages:
    """A module after each stage of compilation for a target, computed once, when it is first asked for.

    `step` is called with the name of each stage before it runs.
    """

    def __init__(self, module: IRModule, target: str | Target, step: Callable[[str], None] = lambda name: None):
        self.target, self.step = as_target(target), step
        self.is_graph = any(isinstance(f, Function) for f in module.functions.values())
        self.stages = {stage.name: stage for stage in stages(self.target, module)}
        self.found = {"imported": module}

    def module(self, name: str) -> IRModule:
        """The module after a stage whose result is a module.

        Raises `UnsupportedError` for a stage of graphs where there is no graph function.
        """
        if name not in self.found:
            self.found[name] = self._made(self.stages[name])
        return self.found[name]

    def _made(self, stage: Stage) -> IRModule:
        names = list(self.stages)
        if stage.phase == "graph":
            self._check_graph(stage.name)
        if stage.name == "kernels":
            return self._kernels()
        if stage.phase == "schedules" and not self.is_graph:
            # Nobody but its author schedules a module that has no graph.
            return self.module("kernels")
        module = self.module(names[names.index(stage.name) - 1])
        if stage.name == "dispatched":
            module = transform.resolve_outputs(module)
            verify_well_formed(module)
        self.step(stage.name)
        with self.target:
            if stage.name == "tir":
                return DefaultTIRPipeline()(module)
            return Sequential(stage.passes, name=stage.name)(module)

    def _check_graph(self, name: str) -> None:
        if not self.is_graph:
            raise UnsupportedError(
                f"the module has no graph, only loops, which go from imported through tir to code; {name} is for graphs"
            )

    def _kernels(self) -> IRModule:
        if not self.is_graph:
            return self.found["imported"]
        kernels = kernels_of(self.module("planned"), self.target)
        if kernels is None:
            raise UnsupportedError("the graph needs no kernels: it is calls of the runtime only; show its program")
        return kernels

    def text(self, name: str, function: str | None = None) -> str:
        """The text of a stage, or of one function after it. Raises `NotRegistered` if there is no such function."""
        if name == "program":
            return self._program(function)
        if not self.stages[name].is_text:
            module = self.module(name)
            return (module if function is None else only(module, function, name)).script()
        kernels = self.module("kernels")
        if function is not None:
            kernels = only(kernels, function, name)
        self.step(name)
        schedule = schedule_passes(self.target) if self.is_graph else None
        return KernelSources(kernels, self.target, "default", schedule)(name)

    def _program(self, function: str | None) -> str:
        if function is not None:
            raise UnsupportedError("the program is shown as a whole; --function is for the other stages")
        self._check_graph("program")
        module = self.module("planned")
        self.step("program")
        return as_text(emit_bytecode(module, self.target.get_target_device_type()).program())

    def names(self, name: str) -> list[str]:
        """The names of the functions after a stage."""
        if name == "program":
            name = "planned"
        module = self.module("kernels") if self.stages[name].is_text else self.module(name)
        return [var.name_hint for var in module.get_global_vars()]


_DIRECT = "__direct"


def only(module: IRModule, name: str, stage: str) -> IRModule:
    """The module of one function, and the declarations of what it calls.

    It is a module, since only a module knows the names of private functions. Of a kernel that a host function calls
    directly, it is the direct form. Raises `NotRegistered` if there is no such function.
    """
    by_name = {var.name_hint: var for var in module.get_global_vars()}
    var = by_name.get(name + _DIRECT, by_name.get(name))
    if var is None:
        known = _names_text(name, [other.removesuffix(_DIRECT) for other in by_name])
        raise NotRegistered(f"after the stage {stage} there is no function {name!r}; {known}")
    return IRModule(with_declarations({var: module.functions[var]}, module))


def _names_text(name: str, names: list[str]) -> str:
    """The end of a message: the names that exist, or of many those that are similar."""
    if len(names) <= _MANY:
        return f"there are {', '.join(names)}"
    alike = difflib.get_close_matches(name, names, n=5)
    return f"--names lists the {len(names)} that there are" + (f"; did you mean {', '.join(alike)}?" if alike else "")


_MANY = 20
