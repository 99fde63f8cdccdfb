"""CombineContextCall: a context of a thread is evaluated once in each thread.

for i in T.parallel(8):                              for i in T.parallel(8):
    use(tvm_thread_context(workspace()))      ->         ctx_cache_ = workspace()
    use(tvm_thread_context(workspace()))                 use(ctx_cache_)
                                                         use(ctx_cache_)
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import Call, CallEffectKind, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ..function import PrimFunc
from ..op import register
from ..stmt import AttrStmt, For, ForKind, LetStmt, Stmt
from .pass_base import PrimFuncPass

_CONTEXT = register("tvm_thread_context", CallEffectKind.ReadState, num_inputs=1)


class CombineContextCall(PrimFuncPass):
    """Evaluates the argument of `tvm_thread_context` once in each thread, in a variable that all its uses share."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Combine().thread(func.body))


class _Combine(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Any, Var]] = []

    def thread(self, body: Stmt) -> Stmt:
        """A body that one thread runs, with let bindings for the contexts that it uses."""
        outer, self.asked = self.asked, []
        body = self.visit(body)
        for value, var in reversed(self.asked):
            body = LetStmt(var, value, body)
        self.asked = outer
        return body

    def visit_For(self, loop: For) -> For:
        if loop.kind is not ForKind.PARALLEL:
            return self.generic_visit(loop)
        return loop.replace(min=self.visit(loop.min), extent=self.visit(loop.extent), body=self.thread(loop.body))

    def visit_AttrStmt(self, node: AttrStmt) -> AttrStmt:
        if node.attr_key not in ("thread_extent", "compute_scope"):
            return self.generic_visit(node)
        return node.replace(value=self.visit(node.value), body=self.thread(node.body))

    def visit_Call(self, call: Call) -> Any:
        if call.op is not _CONTEXT:
            return self.generic_visit(call)
        (wanted,) = call.args
        for value, var in self.asked:
            if ops.same_expr(value, wanted):
                return var
        var = Var("ctx_cache_", wanted.dtype)
        self.asked.append((wanted, var))
        return var
