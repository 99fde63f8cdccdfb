"""UnifyThreadBinding: within a kernel, loops bound to the same thread are one.

for tx in T.thread_binding(32, "threadIdx.x"):           for tx in T.thread_binding(32, "threadIdx.x"):
    for ty in T.thread_binding(32, "threadIdx.x"):  ->       A[tx, tx] = ...
        A[tx, ty] = ...
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.expr import PrimExpr, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ...runtime.error import WellFormedError
from ..function import PrimFunc
from ..stmt import For, Stmt
from .pass_base import PrimFuncPass


class UnifyThreadBinding(PrimFuncPass):
    """Merges nested loops that are bound to the same thread.

    Raises `WellFormedError` where the extents of such loops differ within a kernel.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Unify()(func.body))


class _Unify(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.analyzer = Analyzer()
        self.enclosing: dict[str, For] = {}
        self.launched: dict[str, PrimExpr] = {}
        """The extents of the kernel's threads so far."""
        self.values: dict[Var, Any] = {}

    def visit_Var(self, var: Var) -> Any:
        return self.values.get(var, var)

    def visit_For(self, loop: For) -> Stmt:
        if loop.thread_binding is None or loop.thread_binding.thread_tag.startswith("vthread"):
            return self.generic_visit(loop)
        tag = loop.thread_binding.thread_tag
        extent = self.launched.setdefault(tag, loop.extent)
        if not self.analyzer.can_prove_equal(extent, loop.extent):
            raise WellFormedError(f"one kernel launches {tag} with {extent} and with {loop.extent} threads")
        outer = self.enclosing.get(tag)
        if outer is not None:
            self.values[loop.loop_var] = outer.loop_var.astype(loop.loop_var.dtype)
            return self.visit(loop.body)
        self.enclosing[tag] = loop
        new = self.generic_visit(loop)
        del self.enclosing[tag]
        if not self.enclosing:
            self.launched = {}
        return new
