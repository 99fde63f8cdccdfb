"""Whether a program keeps the rules of TensorIR.

Each variable is defined once, before and around its uses; memory is used where it exists; indices are integers; a block
uses its own variables and not the loops around it; calls fit the functions called.
"""

from __future__ import annotations

from typing import Any

from ...ir.diagnostics import render
from ...ir.expr import Call, GlobalVar, PrimExpr, Var
from ...ir.module import IRModule
from ...ir.op import Op
from ...runtime.error import TypeMismatch, WellFormedError
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..stmt import AttrStmt, Block, BlockRealize, BufferRealize, BufferRegion, BufferStore, For, Stmt
from .scopes import ScopedVisitor


class _Verifier(ScopedVisitor):
    """Raises at the first rule that is broken."""

    def __init__(self, name: str, functions: dict[GlobalVar, Any] | None):
        super().__init__()
        self.name, self.functions = name, functions
        self.defined: dict[Var, Any] = {}
        self.past: set[Var] = set()
        self.loops: dict[Var, int] = {}
        self.depth = self.barrier = 0
        """How many blocks are around, and how many around the innermost one that has variables of its own."""
        self.block: Block | None = None
        self.stmt: Any = None

    def fail(self, message: str) -> WellFormedError:
        """The error, with the statement that it is about."""
        span = getattr(self.stmt, "span", None)
        if span is not None:
            error = WellFormedError(f"in `{self.name}`: " + render(span, message).removeprefix("error: "))
            error.span = span
            return error
        lines = str(self.stmt).strip().splitlines() if isinstance(self.stmt, Stmt) else []
        quoted = "".join(f"\n    {line}" for line in lines[:6])
        return WellFormedError(f"in `{self.name}`: {message}{quoted}")

    def visit(self, node: Any) -> None:
        if isinstance(node, Stmt) and not isinstance(node, (Block, BlockRealize)):
            outer, self.stmt = self.stmt, node
            super().visit(node)
            self.stmt = outer
        else:
            super().visit(node)

    # -- variables --

    def enter(self, var: Var, node: Any) -> None:
        if var in self.defined:
            raise self.fail(f"`{var.name}` is defined again where it is defined already; use another variable")
        if var in self.past and not isinstance(node, AttrStmt):
            raise self.fail(f"`{var.name}` is defined in two places; use two variables")
        self.defined[var] = node
        if isinstance(node, For):
            self.loops[var] = self.depth

    def leave(self, var: Var) -> None:
        del self.defined[var]
        self.past.add(var)

    def is_known(self, var: Var) -> bool:
        return var in self.defined

    def use(self, var: Var) -> None:
        if var not in self.defined:
            where = "after the end of its scope" if var in self.past else "but never defined"
            raise self.fail(f"`{var.name}` is used {where}")
        level = self.loops.get(var)
        if level is not None and level < self.barrier and self.block is not None:
            raise self.fail(
                f"the loop variable `{var.name}` is used inside of block `{self.block.name_hint}`, "
                f"which has variables of its own; bind one to it, as in T.axis.spatial(extent, {var.name})"
            )

    def visit_thread(self, node: AttrStmt, var: Var) -> None:
        if var in self.defined:
            self.visit(node.body)
        else:
            super().visit_thread(node, var)

    # -- statements --

    def visit_For(self, loop: For) -> None:
        dtype = loop.loop_var.dtype
        if not (dtype.is_int and dtype.is_scalar):
            raise self.fail(f"the loop variable `{loop.loop_var.name}` is {dtype}; expected an integer")
        super().visit_For(loop)

    def visit_BufferRealize(self, node: BufferRealize) -> None:
        """Memory that is there already, a parameter's, may be realized too."""
        if not self.is_known(node.buffer.data):
            return super().visit_BufferRealize(node)
        for part in (*node.bounds, node.condition, node.body):
            self.visit(part)

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        block = realize.block
        if len(realize.iter_values) != len(block.iter_vars):
            raise self.fail(
                f"block `{block.name_hint}` has {len(block.iter_vars)} variables "
                f"and {len(realize.iter_values)} values bound to them"
            )
        for iter_var, value in zip(block.iter_vars, realize.iter_values, strict=True):
            self._integer(value, f"the value bound to `{iter_var.var.name}` of block `{block.name_hint}`")
        super().visit_BlockRealize(realize)

    def visit_Block(self, block: Block) -> None:
        outer = self.depth, self.barrier, self.block
        self.depth += 1
        if block.iter_vars:
            self.barrier, self.block = self.depth, block
        super().visit_Block(block)
        self.depth, self.barrier, self.block = outer

    def visit_IterVar(self, node: IterVar) -> None:
        # How far a block's variable goes may follow a loop around the block.
        barrier, self.barrier = self.barrier, 0
        super().visit_IterVar(node)
        self.barrier = barrier

    # -- accesses --

    def _integer(self, expr: PrimExpr, what: str) -> None:
        if not expr.dtype.is_int:
            raise self.fail(f"{what} is `{expr}` of dtype {expr.dtype}; expected an integer")

    def visit_BufferRegion(self, region: BufferRegion) -> None:
        if len(region.region) != len(region.buffer.shape):
            raise self.fail(
                f"the region {region} has {len(region.region)} dimensions, "
                f"but buffer `{region.buffer.name}` has {len(region.buffer.shape)}"
            )
        super().visit_BufferRegion(region)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        for index in load.indices:
            self._integer(index, f"an index of `{load.buffer.name}`")
        super().visit_BufferLoad(load)

    def visit_BufferStore(self, store: BufferStore) -> None:
        for index in store.indices:
            self._integer(index, f"an index of `{store.buffer.name}`")
        super().visit_BufferStore(store)

    def visit_Call(self, call: Call) -> None:
        if isinstance(call.op, GlobalVar) and self.functions is not None:
            callee = self.functions.get(call.op)
            if callee is None:
                raise self.fail(f"`{call.op.name_hint}` is called, but the module has no such function")
            if len(callee.params) != len(call.args):
                raise self.fail(
                    f"`{call.op.name_hint}` takes {len(callee.params)} arguments, found {len(call.args)}: {call}"
                )
        if isinstance(call.op, Op) and call.op.name == "tir.tvm_thread_allreduce":
            # The threads that reduce are named by their loops, whatever blocks stand between.
            for arg in call.args:
                if arg not in self.loops or arg not in self.defined:
                    self.visit(arg)
            return
        self.generic_visit(call)


def verify_well_formed(obj: PrimFunc | IRModule, assert_mode: bool = True) -> bool:
    """Whether a function, or each TensorIR function of a module, keeps the rules.

    With `assert_mode` a broken rule is a `WellFormedError` that names it and quotes the statement.
    """
    match obj:
        case PrimFunc():
            pairs: list[tuple[str, Any, Any]] = [(obj.attrs.get("global_symbol", "main"), obj, None)]
        case IRModule():
            functions = dict(obj.functions)
            pairs = [(v.name_hint, f, functions) for v, f in functions.items() if isinstance(f, PrimFunc)]
        case _:
            raise TypeMismatch(f"expected a PrimFunc or an IRModule, found {type(obj).__name__}")
    try:
        for name, func, functions in pairs:
            _Verifier(name, functions)(func)
    except WellFormedError:
        if assert_mode:
            raise
        return False
    return True
