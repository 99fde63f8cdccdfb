"""FoldConstant: what is computed from constants alone is computed while compiling.

Operators are evaluated by their NumPy reference; calls of loops are compiled and run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.expr import GlobalVar, IntImm
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import Pass
from ...runtime.tensor import Tensor, empty, tensor
from ...target import codegen
from ...tir.function import PrimFunc
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
from ..struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from .pass_base import graph_pass

LARGEST_CREATED = 1024
"""The most elements of a tensor made from nothing, such as zeros: more would only make the program larger."""


def FoldConstant() -> Pass:
    """A pass that replaces calls whose arguments are all constant by their values."""
    return graph_pass(_fold, "FoldConstant")


def _fold(func: Function, mod: IRModule) -> Function:
    new = _Folder(mod).visit_expr(func)
    return func if new is func else remove_all_unused(new)


class _Folder(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.mod = mod

    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op) or not call.op.attrs.get("FPurity"):
            return call
        extents = _static_shapes(call.struct_info)
        if extents is None:
            return call
        if call.op.name == "relax.call_tir":
            return self.call_tir(call, extents) or call
        reference = call.op.attrs.get("FReference")
        if reference is None:
            return call
        args = [self.value(a) for a in call.args]
        if any(a is None for a in args):
            return call
        if not any(isinstance(a, (np.ndarray, tuple)) for a in args) and _too_large(extents):
            return call
        result = reference(*args, **call.attrs.values_by_name)
        return as_constant(result, call.struct_info)

    def value(self, expr: Expr) -> Any:
        """The NumPy value of an argument; None where it is not known."""
        if isinstance(expr, Var):
            bound = self.lookup_binding(expr)
            return self.value(bound) if isinstance(bound, (Constant, Tuple, ShapeExpr)) else None
        if isinstance(expr, Constant):
            return expr.data.numpy()
        if isinstance(expr, (StringImm, DataTypeImm)):
            return expr.value
        if isinstance(expr, PrimValue):
            return expr.value.value if isinstance(expr.value, IntImm) else None
        if isinstance(expr, ShapeExpr):
            known = all(isinstance(v, IntImm) for v in expr.values)
            return tuple(int(v) for v in expr.values) if known else None  # type: ignore
        if isinstance(expr, Tuple):
            fields = tuple(self.value(f) for f in expr.fields)
            return None if any(f is None for f in fields) else fields
        return None

    def call_tir(self, call: Call, extents: list[tuple[int, ...]]) -> Expr | None:
        """The constants that loops compute; None where they cannot be run now."""
        callee, args, *symbolic = call.args
        if symbolic or not isinstance(callee, GlobalVar) or not isinstance(args, Tuple):
            return None
        func = self.mod.functions.get(callee)
        tensors = [self.constant(a) for a in args.fields]
        if not isinstance(func, PrimFunc) or any(t is None for t in tensors):
            return None
        if not tensors and _too_large(extents):
            return None
        outputs = [empty(s, i.dtype) for s, i in zip(extents, _tensors(call.struct_info), strict=True)]
        codegen.builder()(func.with_attr("global_symbol", "main"))["main"](*tensors, *outputs)
        constants = [Constant(o) for o in outputs]
        return Tuple(constants) if isinstance(call.struct_info, TupleStructInfo) else constants[0]

    def constant(self, expr: Expr) -> Tensor | None:
        bound = self.lookup_binding(expr) if isinstance(expr, Var) else expr
        return bound.data if isinstance(bound, Constant) else None

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


def _tensors(info: StructInfo) -> list[TensorStructInfo]:
    fields = info.fields if isinstance(info, TupleStructInfo) else [info]
    return [f for f in fields if isinstance(f, TensorStructInfo)]


def _static_shapes(info: StructInfo) -> list[tuple[int, ...]] | None:
    """The shapes of a tensor or a tuple of tensors, where all extents are numbers."""
    shapes = []
    for field in info.fields if isinstance(info, TupleStructInfo) else [info]:
        if not isinstance(field, TensorStructInfo) or field.extents is None:
            return None
        if not all(isinstance(e, IntImm) for e in field.extents):
            return None
        shapes.append(tuple(e.value for e in field.extents if isinstance(e, IntImm)))
    return shapes


def _too_large(shapes: list[tuple[int, ...]]) -> bool:
    return sum(map(math.prod, shapes)) > LARGEST_CREATED


def as_constant(value: Any, info: StructInfo) -> Expr:
    """What a reference gave, as constants of the dtypes that the call was said to give."""
    if isinstance(info, TupleStructInfo):
        return Tuple([as_constant(v, f) for v, f in zip(value, info.fields, strict=True)])
    assert isinstance(info, TensorStructInfo)
    array = np.asarray(value)
    if str(array.dtype) != info.dtype:
        from ...runtime.dtype import numpy_dtype

        array = array.astype(numpy_dtype(info.dtype))
    return Constant(tensor(np.ascontiguousarray(array).reshape(array.shape)))
