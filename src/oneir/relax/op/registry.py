"""How an operator is registered: once, with all that is known of it, where its family lives.

    @operator("relax.nn.relu", pattern=OpPattern.ELEMENTWISE)
    def relu(data: Expr) -> Call:
        \"\"\"max(data, 0), elementwise; NaN stays NaN.\"\"\"
        return relu.call(data)

    relu.struct_info(same_as_input)
    relu.reference(lambda data: np.maximum(data, 0))
    relu.legalize(topi.nn.relu)

The function is what users call; it brings its arguments into the form that the call holds. Expressions are arguments;
everything else is an attribute, by name, in the order in which it prints. Passes look facts up and name no operators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from ...ir.dtype import DataType
from ...ir.expr import const
from ...ir.op import Op
from ...runtime.error import TypeMismatch
from ..expr import Call, Constant, Expr, as_graph_expr
from ..struct_info import StructInfo, TensorStructInfo

P = ParamSpec("P")
R = TypeVar("R")

StructInfoRule = Callable[[Call, Any], StructInfo]
"""What a call gives, from what is known of its arguments: `rule(call, builder)`."""
Legalization = Callable[[Any, Call], Expr]
"""The call in terms of `call_tir` and other operators: `legalize(builder, call)`; the call itself where it stays."""


class OpPattern(IntEnum):
    """How an operator's output elements depend on its inputs' elements; decides what may be fused."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_EWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


class MixedPrecisionPolicy(IntEnum):
    """In what a call is computed where float16 is wanted: in float16 itself, in that if its arguments are, or never."""

    ALWAYS = 0
    FOLLOW = 1
    NEVER = 2


class Operator(Generic[P, R]):
    """A registered operator. Called, it makes a call; its methods register what is known of it, each once.

    Facts live on `self.op`, under the names that passes ask for: "FInferStructInfo", "FLegalize", "FPurity",
    "FReference", "FGradient", "FFastMath", "TOpPattern"; "FDataDependent" where the shape of the result depends on
    elements, so that the operator is legalized without it; "RequiresArgumentShapes", False where those of the arguments
    are not needed; "ViewsArgument" where the result may lie in the first argument's memory, "MayReturnArgument" where
    it may be any argument, "SupportsInplace" where it may be written into one of its shape; "FRelaxInferLayout" for
    other layouts; "TMixedPrecisionPolicy" and "FInferMixedPrecision" for float16; "Commutative" where patterns match
    the arguments in either order.
    """

    def __init__(self, name: str, function: Callable[P, R], pure: bool, pattern: OpPattern | None):
        self.function = function
        self.op = Op.register(name, description=(function.__doc__ or "").strip(), FPurity=pure)
        if pattern is not None:
            self.op.set_attr("TOpPattern", int(pattern))
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return self.function(*args, **kwargs)
        except TypeMismatch as error:
            # What brings arguments into their form does not know for which operator.
            if str(error).startswith("relax."):
                raise
            raise TypeMismatch(f"{self.op.name}: {error}") from None

    def call(self, *args: Any, **attrs: Any) -> Call:
        """The call of the operator. An argument that is None is left out: it must be the last ones."""
        values: list[Expr] = []
        for position, value in enumerate(args):
            if value is None:
                if any(later is not None for later in args[position:]):
                    raise TypeMismatch(f"{self.op.name}: argument {position} is missing but a later one is given")
                break
            try:
                values.append(as_graph_expr(value))
            except TypeMismatch as error:
                raise TypeMismatch(f"{self.op.name}, argument {position}: {error}") from None
        return Call(self.op, values, attrs)

    def struct_info(self, rule: StructInfoRule) -> StructInfoRule:
        """Registers what a call gives."""
        self.op.set_attr("FInferStructInfo", rule)
        return rule

    def reference(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Registers what the operator computes, over NumPy arrays: `function(*args, **attrs)`.

        Tuples are tuples of arrays, shapes tuples of integers.
        """

        @functools.wraps(function)
        def computed(*args: Any, **attrs: Any) -> Any:
            # Infinities and NaNs are results like others, of which NumPy need not warn.
            with np.errstate(all="ignore"):
                return function(*args, **attrs)

        self.op.set_attr("FReference", computed)
        return function

    def legalize(
        self,
        te_function: Callable[..., Any],
        hint: str | None = None,
        *,
        inline_scalars: bool = False,
        check: Callable[[Call], None] | None = None,
    ) -> None:
        """Registers the tensor expression that computes a call: `te_function(*args, *attrs)`.

        The loops made from it are called `hint`, the function's own name unless said otherwise. With `inline_scalars`,
        constants without dimensions become numbers in the loops, as long as one tensor remains. `check` raises an error
        for a call of which no loops can be made.
        """
        name = hint or te_function.__name__

        def legalize(builder: Any, call: Call) -> Expr:
            if check is not None:
                check(call)
            args = with_inlined_scalars(call.args) if inline_scalars else call.args
            return builder.call_te(te_function, *args, *call.attrs.values(), primfunc_name_hint=name)

        self.legalize_as(legalize)

    def legalize_as(self, rule: Legalization) -> Legalization:
        """Registers how a call is rewritten."""
        self.op.set_attr("FLegalize", rule)
        return rule

    def fast_math(self, te_function: Callable[..., Any]) -> None:
        """Registers a tensor expression that computes a call faster and less exactly: `te_function(*args, *attrs)`."""

        def fast(builder: Any, call: Call) -> Expr:
            return builder.call_te(te_function, *call.args, *call.attrs.values())

        self.op.set_attr("FFastMath", fast)

    def gradient(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Registers the gradients with respect to the arguments: `rule(orig_var, orig_call, output_grad, builder)`."""
        self.op.set_attr("FGradient", rule)
        return rule

    def infer_layout(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Registers what layouts a call takes and gives: a rule of `infer_layout.py`."""
        self.op.set_attr("FRelaxInferLayout", rule)
        return rule

    def compute_in_short_floats(self, rule: Callable[[Call, str], Call]) -> Callable[[Call, str], Call]:
        """Registers that a call takes float16 where that is wanted, and sums in another dtype: `rule(call, dtype)`."""
        self.op.set_attr("TMixedPrecisionPolicy", MixedPrecisionPolicy.ALWAYS)
        self.op.set_attr("FInferMixedPrecision", rule)
        return rule

    def follow_precision(self) -> None:
        """Registers that a call is computed in float16 if all of its arguments are."""
        self.op.set_attr("TMixedPrecisionPolicy", MixedPrecisionPolicy.FOLLOW)

    def __repr__(self) -> str:
        return f"<operator {self.op.name}>"


def with_out_dtype(call: Call, dtype: str) -> Call:
    """The call with `dtype` as its attribute `out_dtype`."""
    return Call(call.op, call.args, {**call.attrs, "out_dtype": DataType(dtype)}, call.sinfo_args, call.span)


def inlined(expr: Expr) -> Any:
    """A constant without dimensions as a number of its dtype; anything else unchanged."""
    if isinstance(expr, Constant) and not expr.data.shape:
        return const(expr.data.numpy().item(), expr.data.dtype)
    return expr


def with_inlined_scalars(args: Sequence[Expr]) -> list[Any]:
    """Arguments with the constants without dimensions as numbers, from the last on; one tensor remains."""
    values: list[Any] = list(args)
    tensors = sum(isinstance(a.struct_info, TensorStructInfo) for a in args)
    for i in reversed(range(len(values))):
        number = inlined(values[i])
        if tensors > 1 and number is not values[i]:
            values[i] = number
            tensors -= 1
    return values


def operator(
    name: str, *, pure: bool = True, pattern: OpPattern | None = None
) -> Callable[[Callable[P, R]], Operator[P, R]]:
    """Registers a function as the operator of that name. `pure`: a call has no side effect."""

    def register(function: Callable[P, R]) -> Operator[P, R]:
        return Operator(name, function, pure, pattern)

    return register


def register_gradient(op_name: str, fgradient: Callable[..., Any] | None = None, level: int = 10) -> Any:
    """Registers the gradient of an operator by its name, `rule(orig_var, orig_call, output_grad, builder)`; a decorator
    if no rule is given. Of several, the one of the highest level stays.
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        Op.get(op_name).set_attr("FGradient", rule, level)
        return rule

    return register if fgradient is None else register(fgradient)
