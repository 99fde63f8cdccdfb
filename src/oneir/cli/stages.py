"""The stages of compilation: a module at each, and the text of it, made by the passes that compiling runs."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from ..codegen.program.bytecode import emit_bytecode
from ..codegen.units import with_declarations
from ..driver.build import Sources, as_target, lower
from ..driver.graph import default_schedule, loops_of
from ..ir.module import IRModule
from ..relax import transform
from ..relax.analysis.well_formed import verify_well_formed
from ..relax.expr import Function
from ..relax.pipeline import default_stages
from ..runtime.error import NotRegistered, UnsupportedError
from ..runtime.vm.program import as_text
from ..target.target import Target

STAGES = {
    "imported": "the model as it was imported or written: operators",
    "legalized": "operators are loops (TensorIR), weights and shapes worked out as far as they are known",
    "fused": "loops that work on each other's results are one kernel",
    "layouts": "weights and values lie in memory as the kernels want them",
    "lowered": "values are memory, which kernels read and write",
    "planned": "all memory is one arena; calls of the runtime",
    "program": "the program of the virtual machine: its instructions",
    "scheduled": "kernels with their schedules: tiles, vectors, threads",
    "tir": "kernels lowered to flat loops, as code is generated from",
    "llvm": "optimized LLVM IR of the kernels",
    "asm": "their machine code",
}
"""The stages in their order, and what a module is then."""

TEXTS = ("program", "llvm", "asm")
"""The stages that are texts and no modules."""

_GRAPH_STAGES = ("legalized", "fused", "layouts", "lowered", "planned")
_DIRECT = "__direct"


class Stages:
    """A module at the stages of compilation for a target; each is made once, when it is first asked for.

    `step` is told what is being done.
    """

    def __init__(self, module: IRModule, target: str | Target, step: Callable[[str], None] = lambda name: None):
        self.target, self.step = as_target(target), step
        self.is_graph = any(isinstance(f, Function) for f in module.functions.values())
        self.found = {"imported": module}

    def module(self, stage: str) -> IRModule:
        """The module after the passes up to a stage that is no text."""
        if stage not in self.found:
            self.found[stage] = self._made(stage)
        return self.found[stage]

    def _made(self, stage: str) -> IRModule:
        if stage in _GRAPH_STAGES:
            return self._graph(stage)
        if stage == "tir":
            module = self.module("scheduled")
            self.step(stage)
            return lower(module, self.target)
        assert stage == "scheduled"
        if not self.is_graph:
            # Nobody but its author schedules a module that has no graph.
            return self.module("imported")
        loops = self._loops()
        self.step(stage)
        with self.target:
            return default_schedule()(loops)

    def _graph(self, stage: str) -> IRModule:
        """The module after the passes of the graph, up to one of their stages."""
        self._check_graph(stage)
        place = _GRAPH_STAGES.index(stage)
        if place:
            module = self.module(_GRAPH_STAGES[place - 1])
        else:
            module = transform.resolve_outputs(self.found["imported"])
            verify_well_formed(module)
        self.step(stage)
        passes = dict(default_stages(self.target))[stage]
        with self.target:
            for one in passes:
                module = one(module)
        return module

    def _check_graph(self, stage: str) -> None:
        if not self.is_graph:
            raise UnsupportedError(
                f"the module has no graph, only loops, which go from imported through tir to asm; {stage} is for graphs"
            )

    def _loops(self) -> IRModule:
        if not self.is_graph:
            return self.found["imported"]
        loops = loops_of(self.module("planned"))
        if loops is None:
            raise UnsupportedError("the graph needs no loops: it is calls of the runtime only; show its program")
        return loops

    def text(self, stage: str, function: str | None = None) -> str:
        """The text of a stage, or of one function at it; `NotRegistered` where there is none of that name."""
        if stage == "program":
            return self._program(function)
        if stage not in TEXTS:
            module = self.module(stage)
            return (module if function is None else only(module, function, stage)).script()
        loops = self._loops()
        if function is not None:
            loops = only(loops, function, stage)
        self.step(stage)
        schedule = default_schedule() if self.is_graph else None
        return Sources(loops, self.target, "default", schedule)("ll" if stage == "llvm" else "asm")

    def _program(self, function: str | None) -> str:
        if function is not None:
            raise UnsupportedError("the program is shown as a whole; --function is for the other stages")
        self._check_graph("program")
        module = self.module("planned")
        self.step("program")
        return as_text(emit_bytecode(module).program())

    def names(self, stage: str) -> list[str]:
        """The names of the functions at a stage."""
        if stage == "program":
            stage = "planned"
        module = self._loops() if stage in TEXTS else self.module(stage)
        return [var.name_hint for var in module.get_global_vars()]


def only(module: IRModule, name: str, stage: str) -> IRModule:
    """The module of one function, and the declarations that it needs.

    It stays a module, since only a module knows the names of functions that are private. Of a kernel that a program
    calls directly, that form is shown.
    """
    by_name = {var.name_hint: var for var in module.get_global_vars()}
    var = by_name.get(name + _DIRECT, by_name.get(name))
    if var is None:
        known = _names_text(name, [other.removesuffix(_DIRECT) for other in by_name])
        raise NotRegistered(f"after the stage {stage} there is no function {name!r}; {known}")
    return IRModule(with_declarations({var: module.functions[var]}, module))


def _names_text(name: str, names: list[str]) -> str:
    """What there is, as the end of a message; of many names, those that are alike."""
    if len(names) <= _MANY:
        return f"there are {', '.join(names)}"
    alike = difflib.get_close_matches(name, names, n=5)
    return f"--names lists the {len(names)} that there are" + (f"; did you mean {', '.join(alike)}?" if alike else "")


_MANY = 20
