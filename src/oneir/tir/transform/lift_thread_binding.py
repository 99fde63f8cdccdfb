"""LiftThreadBinding: several loops in a loop that are bound to the same thread become one loop around them all.

for k in range(8):                                 for k in range(8):
    for tx in T.thread_binding(4, "threadIdx.x"):      for tx in T.thread_binding(4, "threadIdx.x"):
        A[tx] = ...                            ->          A[tx] = ...
    for ty in T.thread_binding(4, "threadIdx.x"):          B[tx] = ...
        B[ty] = ...
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ..function import PrimFunc
from ..stmt import For, Stmt
from .pass_base import PrimFuncPass


class LiftThreadBinding(PrimFuncPass):
    """Makes one loop of several that are bound to the same thread, inside of the innermost loop that contains them."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        threads = _Threads()
        threads(func.body)
        analyzer = Analyzer()
        lifted: dict[int, list[For]] = {}
        replaced: dict[Var, Var] = {}
        for thread in threads.threads.values():
            first = thread.loops[0]
            same = all(analyzer.can_prove_equal(loop.extent, first.extent) for loop in thread.loops)
            # Loops of other threads may be lifted themselves.
            outer = [loop for loop in thread.enclosing if loop.thread_binding is None or _is_block(loop)]
            if len(thread.loops) < 2 or not outer or not same:
                continue
            target = outer[-1]
            lifted.setdefault(id(target), []).append(first)
            shared = first.loop_var.copy_with_name(first.loop_var.name)
            replaced.update((loop.loop_var, shared) for loop in thread.loops)
        return func.with_body(_Lift(lifted, replaced)(func.body)) if lifted else func


@dataclass
class _Thread:
    """The loops bound to one thread, and the loops around all of them, from the outside in."""

    enclosing: list[For]
    loops: list[For] = field(default_factory=list[For])


class _Threads(Visitor):
    """Collects loops bound to threads, for each kernel: a loop that is bound to a block."""

    def __init__(self) -> None:
        super().__init__()
        self.path: list[For] = []
        self.kernel: For | None = None
        self.threads: dict[tuple[int, str], _Thread] = {}

    def visit_For(self, loop: For) -> None:
        tag = "" if loop.thread_binding is None else loop.thread_binding.thread_tag
        kernel = self.kernel
        if _is_block(loop):
            self.kernel = loop
        elif tag.startswith("threadIdx"):
            thread = self.threads.setdefault((id(kernel), tag), _Thread(list(self.path)))
            common = 0
            while common < min(len(thread.enclosing), len(self.path)) and thread.enclosing[common] is self.path[common]:
                common += 1
            thread.enclosing = thread.enclosing[:common]
            thread.loops.append(loop)
        self.path.append(loop)
        self.visit(loop.body)
        self.path.pop()
        self.kernel = kernel


def _is_block(loop: For) -> bool:
    return loop.thread_binding is not None and loop.thread_binding.thread_tag.startswith("blockIdx")


class _Lift(Mapper):
    def __init__(self, lifted: dict[int, list[For]], replaced: dict[Var, Var]):
        super().__init__()
        self.lifted, self.replaced = lifted, replaced

    def visit_Var(self, var: Var) -> Any:
        return ops.cast(var.dtype, self.replaced.get(var, var))

    def visit_For(self, loop: For) -> Stmt:
        if loop.loop_var in self.replaced:
            return self.visit(loop.body)
        new: Any = self.generic_visit(loop)
        for first in reversed(self.lifted.get(id(loop), [])):
            var = self.replaced[first.loop_var]
            new = new.replace(body=first.replace(loop_var=var, body=new.body))
        return new
