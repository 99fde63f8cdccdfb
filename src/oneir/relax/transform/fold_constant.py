"""FoldConstant: what is computed from constants alone is computed while compiling.

Operators of dataflow blocks are evaluated by their NumPy reference; calls of PrimFuncs are compiled and run, wherever
they stand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.container import same_objects
from ...ir.expr import FloatImm, GlobalVar, IntImm, PrimExpr
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Visitor
from ...runtime.dtype import numpy_dtype
from ...runtime.object import ShapeTuple
from ...runtime.tensor import Tensor, compact, empty, tensor, wrap_array
from ...target import codegen
from ...target.cpu import resolve
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.stmt import AttrStmt, For
from ..analysis import remove_all_unused
from ..expr import (
    Call,
    Constant,
    DataTypeImm,
    Expr,
    Function,
    PrimValue,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from ..expr_functor import PyExprMutator
from ..operator_facts import FPurity, FReference, FSimplify, NeedsWorkers
from ..struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from .pass_base import FunctionPass

CACHE_LINE = 64
"""Bytes to which constants are aligned, so that loads of vectors cross no line."""

LARGEST_CREATED = 1024
"""The most elements of a tensor made from nothing, such as zeros: more would only make the program larger."""


class FoldConstant(FunctionPass):
    """Replaces calls whose arguments are all constant by their values, and simplifies those that some decide."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        new = _Folder(mod).visit_expr(func)
        return func if new is func else remove_all_unused(new)


class _Folder(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.mod = mod

    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or not FPurity.of(call.op):
            return call
        if call.op.name == "relax.call_tir":
            return self.call_tir(call) or call
        call = self.with_bound(call, ShapeExpr)
        reference = FReference.of(call.op)
        if reference is None or NeedsWorkers.of(call.op):
            return call
        if not self.builder_.current_block_is_dataflow() or not _is_static(call.struct_info):
            return call
        args = [self.value(a) for a in call.args]
        if any(a is None for a in args):
            return self.simplified(call)
        created = all(isinstance(a, ShapeTuple) or not isinstance(a, (np.ndarray, tuple)) for a in args)
        if created and _too_large(call.struct_info):
            return call
        result = reference(*args, **call.attrs.values_by_name)
        return as_constant(result, call.struct_info)

    def simplified(self, call: Call) -> Expr:
        """What the call is by those of its arguments that are constant."""
        rule = FSimplify.of(call.op)
        if rule is None:
            return call
        known = self.with_bound(call, Constant)
        new = rule(self.builder_, known)
        return call if new is known else self.builder_.normalize(new)

    def with_bound(self, call: Call, kind: type[Expr]) -> Call:
        """The call with values of a kind, shapes or constants, in place of variables that are bound to such."""
        args = []
        for a in call.args:
            bound = self.lookup_binding(a) if isinstance(a, Var) else None
            args.append(bound if isinstance(bound, kind) else a)
        if same_objects(args, call.args):
            return call
        normalized = self.builder_.normalize(call.replace(args=args))
        assert isinstance(normalized, Call)
        return normalized

    def value(self, expr: Expr) -> Any:
        """The NumPy value of an argument; None where it is not known."""
        if isinstance(expr, Var):
            bound = self.lookup_binding(expr)
            return self.value(bound) if isinstance(bound, (Constant, Tuple, ShapeExpr)) else None
        if isinstance(expr, Constant):
            return np.asarray(expr.data)
        if isinstance(expr, (StringImm, DataTypeImm)):
            return expr.value
        if isinstance(expr, PrimValue):
            return expr.value.value if isinstance(expr.value, (IntImm, FloatImm)) else None
        if isinstance(expr, ShapeExpr):
            extents = _numbers(expr.values)
            return None if extents is None else ShapeTuple(extents)
        if isinstance(expr, Tuple):
            fields = tuple(self.value(f) for f in expr.fields)
            return None if any(f is None for f in fields) else fields
        return None

    def call_tir(self, call: Call) -> Expr | None:
        """The constants that a kernel computes; None where it cannot be run now."""
        callee, args, *symbolic = call.args
        infos = _tensors(call.struct_info)
        if symbolic or not isinstance(callee, GlobalVar) or not isinstance(args, Tuple) or not infos:
            return None
        func = self.mod.functions.get(callee)
        tensors = [self.constant(a) for a in args.fields]
        shapes = [_numbers(i.extents) for i in infos]
        if not isinstance(func, PrimFunc) or any(t is None for t in tensors) or None in shapes:
            return None
        if _launches_threads(func):  # it was written for a device
            return None
        if not tensors and _too_large(call.struct_info):
            return None
        outputs = [empty(s, i.dtype) for s, i in zip(shapes, infos, strict=True) if s is not None]
        codegen.build(func.with_attr("global_symbol", "main"), _runnable_here())["main"](*tensors, *outputs)
        constants = [Constant(o) for o in outputs]
        return Tuple(constants) if isinstance(call.struct_info, TupleStructInfo) else constants[0]

    def constant(self, expr: Expr) -> Tensor | None:
        bound = self.lookup_binding(expr) if isinstance(expr, Var) else expr
        return compact(bound.data) if isinstance(bound, Constant) else None

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Expr:
        item = super().visit_tuple_getitem_(op)
        if isinstance(item, TupleGetItem) and isinstance(item.tuple_value, Var):
            bound = self.lookup_binding(item.tuple_value)
            if isinstance(bound, Tuple) and isinstance(bound.fields[item.index], Constant):
                return bound.fields[item.index]
        return item

    def visit_var_(self, op: Var) -> Expr:
        var = super().visit_var_(op)
        bound = self.lookup_binding(var) if isinstance(var, Var) else None
        return bound if isinstance(bound, Constant) else var


class _Threads(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def visit_For(self, loop: For) -> None:
        self.found |= loop.thread_binding is not None
        self.generic_visit(loop)

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        self.found |= node.attr_key == "thread_extent"
        self.generic_visit(node)


def _launches_threads(func: PrimFunc) -> bool:
    """Whether a kernel's loops are bound to threads, or its threads are launched by hand."""
    threads = _Threads()
    threads(func.body)
    return threads.found


def _runnable_here() -> Target | None:
    """The current target, if its code runs here; for devices, and for other processors, this machine's."""
    target = Target.current(allow_none=True)
    here = Target("llvm")
    return target if target is None or (target.kind is here.kind and resolve(target) == resolve(here)) else here


def _tensors(info: StructInfo) -> list[TensorStructInfo]:
    fields = info.fields if isinstance(info, TupleStructInfo) else [info]
    return [f for f in fields if isinstance(f, TensorStructInfo)]


def _numbers(extents: Sequence[PrimExpr] | None) -> tuple[int, ...] | None:
    """Extents as numbers; None where one is symbolic or nothing is known of them."""
    if extents is None:
        return None
    known = tuple(e.value for e in extents if isinstance(e, IntImm))
    return known if len(known) == len(extents) else None


def _is_static(info: StructInfo) -> bool:
    """Whether it is a tensor or a tuple of tensors, all extents numbers; or a shape."""
    if isinstance(info, TupleStructInfo):
        return all(map(_is_static, info.fields))
    if isinstance(info, TensorStructInfo):
        return _numbers(info.extents) is not None
    return isinstance(info, ShapeStructInfo)


def _too_large(info: StructInfo) -> bool:
    return sum(math.prod(_numbers(i.extents) or ()) for i in _tensors(info)) > LARGEST_CREATED


def as_constant(value: Any, info: StructInfo) -> Expr:
    """What a reference gave, as a shape or as constants of the dtypes that the call was said to give."""
    if isinstance(info, TupleStructInfo):
        return Tuple([as_constant(v, f) for v, f in zip(value, info.fields, strict=True)])
    if isinstance(info, ShapeStructInfo):
        return ShapeExpr(value)
    assert isinstance(info, TensorStructInfo)
    array = np.asarray(value)
    if str(array.dtype) != info.dtype:
        array = array.astype(numpy_dtype(info.dtype))
    # What a reference gives is often the argument itself, seen with another shape or with its axes in another order.
    # Weights are large: they are copied once, when it is known how they shall lie in memory.
    in_order = array.transpose(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
    shared = in_order.flags.c_contiguous and array.__array_interface__["data"][0] % CACHE_LINE == 0
    return Constant(wrap_array(array) if shared else tensor(array))
