"""ToMixedPrecision: products and convolutions of float32 take float16, and what follows them where nothing forbids it.

    with R.dataflow():                        with R.dataflow():
        a = R.matmul(x, w)                        x_1 = R.astype(x, dtype="float16")
        b = R.nn.relu(a)                          w_1 = R.astype(w, dtype="float16")
        R.output(b)                    ->         lv = R.matmul(x_1, w_1, out_dtype="float32")
                                                  a = R.astype(lv, dtype="float16")
                                                  lv1 = R.nn.relu(a)
                                                  b = R.astype(lv1, dtype="float32")
                                                  R.output(b)

What an operator computes in is its fact `TMixedPrecisionPolicy`: ALWAYS float16, with sums of `out_dtype`
(`FInferMixedPrecision` makes that call); FOLLOW: float16 if all of its arguments are; NEVER. A tensor that is only used
where float16 is always taken is kept in float16; what leaves a dataflow block has the dtype that it had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.container import same_objects
from ...ir.dtype import DataType
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...ir.visitor import deep_recursion
from ...runtime.error import InvalidValue
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..expr_functor import PyExprMutator, PyExprVisitor
from ..op.datatype import astype, wrap_param
from ..operator_facts import FInferMixedPrecision, MixedPrecisionPolicy, TMixedPrecisionPolicy
from ..struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from .pass_base import FunctionPass

SHORT, LONG = "float16", "float32"
LARGEST_SHORT = 65504
"""The largest finite number of float16."""

NestedDtype = Any
"""The dtype of each tensor of a value: a text, or a tuple of these for a tuple; "" where nothing is required."""


class ToMixedPrecision(FunctionPass):
    """Computes in half precision (float16), with sums of `out_dtype` where an operator has any.

    The parameters named by `fp16_input_names` are float16 afterwards. Raises `InvalidValue` for an `out_dtype` that is
    no dtype of floats.
    """

    out_dtype: str = "float32"
    fp16_input_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not DataType(self.out_dtype).is_float:
            raise InvalidValue(f"ToMixedPrecision: out_dtype is that of sums of floats, found {self.out_dtype!r}")
        object.__setattr__(self, "fp16_input_names", tuple(self.fp16_input_names or ()))

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        needs = _Needs()
        with deep_recursion:
            needs.visit_expr(func)
        return _Rewriter(needs.dtypes, self.out_dtype, frozenset(self.fp16_input_names or ())).visit_expr(func)


def _policy(call: Call) -> MixedPrecisionPolicy | None:
    """In what a call is to be computed; None for one of no operator."""
    if not isinstance(call.op, Op):
        return None
    policy = TMixedPrecisionPolicy.of(call.op)
    return MixedPrecisionPolicy.NEVER if policy is None else policy


def _is_tensors(info: StructInfo | None) -> bool:
    """Whether a value is a tensor, or a tuple of such values."""
    if isinstance(info, TupleStructInfo):
        return all(map(_is_tensors, info.fields))
    return isinstance(info, TensorStructInfo)


def _dtypes(info: StructInfo, dtype: str | None = None) -> NestedDtype:
    """The dtypes of the tensors of a value, or `dtype` for each."""
    if isinstance(info, TupleStructInfo):
        return tuple([_dtypes(f, dtype) for f in info.fields])
    if not isinstance(info, TensorStructInfo):
        return None
    return str(info.dtype) if dtype is None else dtype


def _differs(info: StructInfo, dtypes: NestedDtype) -> bool:
    """Whether some float of a value has another dtype than is required."""
    if isinstance(info, TupleStructInfo):
        return any(map(_differs, info.fields, dtypes))
    return isinstance(info, TensorStructInfo) and bool(dtypes) and str(info.dtype) in {SHORT, LONG} - {dtypes}


def _stricter(a: NestedDtype, b: NestedDtype) -> NestedDtype:
    """What two uses require together: float32 where one of them does."""
    if isinstance(a, tuple):
        return tuple([_stricter(x, y) for x, y in zip(a, b, strict=True)])
    if not a or not b:
        return a or b
    return a if a == LONG else b


class _Needs(PyExprVisitor):
    """Finds, from the last use to the first, which tensors are used only where float16 is always taken."""

    def __init__(self) -> None:
        self.dtypes: dict[Var, NestedDtype] = {}

    def need(self, expr: Expr, dtypes: NestedDtype) -> None:
        if isinstance(expr, Tuple):
            for field, dtype in zip(expr.fields, dtypes, strict=True):
                self.need(field, dtype)
        elif isinstance(expr, Var):
            known = self.dtypes.get(expr)
            self.dtypes[expr] = dtypes if known is None else _stricter(known, dtypes)

    def visit_var_(self, op: Var) -> None:
        if _is_tensors(op.struct_info_):
            self.need(op, _dtypes(op.struct_info, LONG))

    visit_dataflow_var_ = visit_var_

    def visit_var_binding_(self, binding: VarBinding) -> None:
        var, value = binding.var, binding.value
        policy = _policy(value) if isinstance(value, Call) else None
        if isinstance(value, Call) and policy is not None:
            wanted = SHORT if policy == MixedPrecisionPolicy.ALWAYS else LONG
            for arg in value.args:
                if _is_tensors(arg.struct_info_):
                    self.need(arg, _dtypes(arg.struct_info, wanted))
        elif isinstance(value, Tuple) and _is_tensors(value.struct_info_):
            self.need(value, self.dtypes.get(var, _dtypes(value.struct_info, "")))
        elif isinstance(value, TupleGetItem) and _is_tensors(value.tuple_value.struct_info_):
            fields = list(_dtypes(value.tuple_value.struct_info, ""))
            fields[value.index] = self.dtypes.get(var, fields[value.index])
            self.need(value.tuple_value, tuple(fields))
        else:
            super().visit_var_binding_(binding)

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        self.visit_expr(op.body)
        for block in reversed(op.blocks):
            self.visit_binding_block(block)

    def visit_binding_block_(self, block: BindingBlock) -> None:
        """Outside of dataflow blocks nothing is changed, so nothing is required."""

    def visit_dataflow_block_(self, block: DataflowBlock) -> None:
        for binding in reversed(block.bindings):
            self.visit_binding(binding)

    def visit_if_(self, op: If) -> None:
        self.visit_expr(op.true_branch)
        self.visit_expr(op.false_branch)
        self.visit_expr(op.cond)


def _fits(expr: Expr) -> bool:
    """Whether a value is float16, or a constant whose numbers float16 can hold."""
    info = expr.struct_info
    if not _is_tensors(info) or (isinstance(info, TensorStructInfo) and info.dtype == SHORT):
        return True
    if isinstance(expr, Tuple):
        return all(map(_fits, expr.fields))
    if not isinstance(expr, Constant):
        return False
    values = expr.data.numpy()
    return values.dtype.kind in "if" and not (np.abs(values.astype("float64")) > LARGEST_SHORT).any()


class _Rewriter(PyExprMutator):
    def __init__(self, needs: dict[Var, NestedDtype], out_dtype: str, inputs: frozenset[str]):
        self.needs, self.out_dtype, self.inputs = needs, out_dtype, inputs
        self.params: Sequence[Var] = ()

    # -- dtypes of values --

    def _cast(self, expr: Expr, dtypes: NestedDtype) -> Expr:
        """The value with the floats among its tensors in the given dtypes."""
        info = expr.struct_info
        if not _differs(info, dtypes):
            return expr
        if isinstance(info, TupleStructInfo):
            if isinstance(expr, Tuple):
                fields: list[Expr] = list(expr.fields)
            else:
                expr = self.builder_.normalize_argument(expr)
                fields = [TupleGetItem(expr, i) for i in range(len(info.fields))]
            return Tuple([self._cast(f, d) for f, d in zip(fields, dtypes, strict=True)])
        known = TensorStructInfo(info.shape, dtypes, info.vdevice, info.ndim)
        return astype(expr, dtypes).set_struct_info(known)

    def _now(self, expr: Expr) -> Expr:
        """An argument in terms of what its variables have become, in whatever dtype that is."""
        if isinstance(expr, Tuple):
            fields = [self._now(f) for f in expr.fields]
            return expr if same_objects(fields, expr.fields) else Tuple(fields)
        return self._variables.get(expr, expr) if isinstance(expr, Var) else expr

    def _shorten(self, var: Var) -> None:
        """Keeps a variable in float16 from here on, if its uses allow that."""
        needed = self.needs.get(var)
        if needed is None:
            return
        now = self._variables.get(var, var)
        short = self._cast(now, _shorter(_dtypes(now.struct_info), needed))
        if short is not now:
            self.set_var_remap(var, self.builder_.emit(short))

    # -- the walk --

    def visit_function_(self, op: Function) -> Expr:
        self.params = op.params
        return super().visit_function_(op)

    def visit_var_def_(self, var: Var) -> Var:
        info = var.struct_info_
        if var.name in self.inputs and isinstance(info, TensorStructInfo) and var in self.params:
            var = self.with_struct_info(var, TensorStructInfo(info.shape, SHORT, info.vdevice, info.ndim))
            return var
        return super().visit_var_def_(var)

    def visit_var_(self, op: Var) -> Expr:
        now = super().visit_var_(op)
        if now is op or not self.builder_.current_block_is_dataflow() or not _is_tensors(op.struct_info_):
            return now
        return self._cast(now, _dtypes(op.struct_info))

    def visit_with_new_scope(self, expr: Expr, params: Sequence[Var] = ()) -> Expr:
        for old, new in zip(self.params, params, strict=False):
            if old is not new:
                self.set_var_remap(old, new)
        return super().visit_with_new_scope(expr, params)

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        self.builder_.begin_dataflow_block()
        outside = {p: self._variables.get(p, p) for p in self.params}
        for param in self.params:
            self._shorten(param)
        new = self._bindings(block)
        for param, var in outside.items():
            self.set_var_remap(param, var)
        return new

    def visit_binding(self, binding: Binding) -> None:
        super().visit_binding(binding)
        if isinstance(binding.var, DataflowVar):
            self._shorten(binding.var)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value, var = binding.value, binding.var
        if not self.builder_.current_block_is_dataflow() or not isinstance(value, (Call, Tuple, TupleGetItem)):
            return super().visit_var_binding_(binding)
        if isinstance(value, Call):
            policy = _policy(value)
            if policy is None:
                return super().visit_var_binding_(binding)
            return self.reemit_binding(binding, self._call(value, policy, var))
        if isinstance(value, Tuple):
            new = self._now(value)
        else:
            source = self._now(value.tuple_value)
            new = value if source is value.tuple_value else TupleGetItem(source, value.index, span=value.span)
        if not isinstance(var, DataflowVar) and _is_tensors(var.struct_info_):
            new = self._cast(self.builder_.normalize(new), _dtypes(var.struct_info))
        return self.reemit_binding(binding, new)

    def _call(self, call: Call, policy: MixedPrecisionPolicy, var: Var) -> Expr:
        """What becomes of a call of an operator whose result is bound to `var`."""
        if call.op is wrap_param.op:
            return call.args[0]
        args = [self._now(a) for a in call.args]
        if policy == MixedPrecisionPolicy.NEVER:
            return self._with_args(call, args, None)
        if policy == MixedPrecisionPolicy.ALWAYS:
            rule, dtype = FInferMixedPrecision.of(call.op), SHORT
            call = call if rule is None else rule(call, self.out_dtype)
        else:
            dtype = SHORT if all(map(_fits, args)) else LONG
        new = self.builder_.normalize(self._with_args(call, args, dtype))
        if not _is_tensors(new.struct_info):
            return new
        if not isinstance(var, DataflowVar):
            return self._cast(new, _dtypes(var.struct_info))
        return self._cast(new, _dtypes(new.struct_info, SHORT)) if policy == MixedPrecisionPolicy.ALWAYS else new

    def _with_args(self, call: Call, args: list[Expr], dtype: str | None) -> Call:
        """The call with other arguments, in a dtype; None: in that of the arguments that it had."""
        cast = [
            self._cast(now, _dtypes(old.struct_info, dtype)) if _is_tensors(old.struct_info_) else now
            for now, old in zip(args, call.args, strict=True)
        ]
        if same_objects(cast, call.args):
            return call
        return Call(call.op, cast, call.attrs, call.sinfo_args, call.span)


def _shorter(have: NestedDtype, needed: NestedDtype) -> NestedDtype:
    """float16 where no more is needed."""
    if isinstance(have, tuple):
        return tuple([_shorter(h, n) for h, n in zip(have, needed, strict=True)])
    return SHORT if needed == SHORT else have
