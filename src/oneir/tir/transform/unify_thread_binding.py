"""UnifyThreadBinding: a kernel has one loop for each of its threads, around everything.

for i in T.thread_binding(8, "blockIdx.x"):               for blockIdx_x in T.thread_binding(8, "blockIdx.x"):
    for j in T.thread_binding(32, "threadIdx.x"):             for threadIdx_x in T.thread_binding(32, "threadIdx.x"):
        B[i, j] = A[i, j]                            ->           B[blockIdx_x, threadIdx_x] = ...
    for k in T.thread_binding(32, "threadIdx.x"):                 C[blockIdx_x, threadIdx_x] = ...
        C[i, k] = B[i, k]
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.expr import Range, Var, const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ...runtime.error import WellFormedError
from ..expr import IterVar
from ..function import PrimFunc
from ..stmt import AttrStmt, For, ForKind, Stmt
from .pass_base import PrimFuncPass


class UnifyThreadBinding(PrimFuncPass):
    """Makes one loop of all that are bound to the same thread of a kernel, in the place of its outermost one.

    Annotations stay, on a loop of one iteration.
    Raises `WellFormedError` where the extents of such loops differ within a kernel.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Unify()(func.body))


class _Unify(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.analyzer = Analyzer()
        self.threads: dict[str, tuple[Var, Range]] = {}
        """The threads of this kernel so far, by their tags; none outside of kernels."""
        self.values: dict[Var, Any] = {}

    def visit_Var(self, var: Var) -> Any:
        return self.values.get(var, var)

    def visit_For(self, loop: For) -> Stmt:
        if loop.thread_binding is None:
            return self.generic_visit(loop)
        domain = Range.from_min_extent(self.visit(loop.min), self.visit(loop.extent))
        body = self.thread(loop.thread_binding.thread_tag, loop.loop_var, domain, loop.body)
        if not loop.annotations:
            return body
        var = Var("var", loop.loop_var.dtype)
        zero, one = const(0, var.dtype), const(1, var.dtype)
        return For(var, zero, one, ForKind.SERIAL, body, annotations=loop.annotations)

    def visit_AttrStmt(self, node: AttrStmt) -> Stmt:
        if node.attr_key not in ("thread_extent", "virtual_thread") or not isinstance(node.node, IterVar):
            return self.generic_visit(node)
        domain = Range.from_min_extent(const(0, node.value.dtype), self.visit(node.value))
        return self.thread(node.node.thread_tag, node.node.var, domain, node.body)

    def thread(self, tag: str, var: Var, domain: Range, body: Stmt) -> Stmt:
        """The body of a loop bound to a thread, which waits to be launched."""
        launches = not self.threads
        known = self.threads.setdefault(tag, (Var(tag, domain.extent.dtype), domain))
        extent = known[1].extent
        if not self.analyzer.can_prove_equal(extent, domain.extent):
            raise WellFormedError(f"one kernel launches {tag} with {extent} and with {domain.extent} threads")
        self.values[var] = known[0].astype(var.dtype)
        new = self.visit(body)
        if launches:
            new, self.threads = self.launched(new), {}
        return new

    def launched(self, body: Stmt) -> Stmt:
        """The loops over the threads of a kernel around its body."""
        for tag, (var, domain) in reversed(self.threads.items()):
            binding = IterVar(None, Var("", var.dtype), IterVar.ThreadIndex, tag)
            body = For(var, domain.min, domain.extent, ForKind.THREAD_BINDING, body, binding)
        return body
