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
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import numpy as np

from ...ir.dtype import DataType
from ...ir.expr import const
from ...ir.op import Op
from ...runtime.error import TypeMismatch
from ..expr import Call, Constant, Expr, OpAttrs, TAttrs, as_graph_expr
from ..operator_facts import (
    CallRewrite,
    FBoundIndices,
    FFastMath,
    FGradient,
    FInferDistributedStructInfo,
    FInferMixedPrecision,
    FInferStructInfo,
    FLegalize,
    FPurity,
    FReference,
    FRelaxInferLayout,
    FSimplify,
    GradientRule,
    MixedPrecisionPolicy,
    OpPattern,
    Selects,
    StructInfoRule,
    TMixedPrecisionPolicy,
    TOpPattern,
)
from ..struct_info import TensorStructInfo

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder
    from .infer_layout import LayoutRule

P = ParamSpec("P")
R = TypeVar("R")


class Operator(Generic[P, R]):
    """A registered operator. Called, it makes a call; its methods state its facts, each once.

    Facts live on `self.op`; `relax/operator_facts.py` lists them.
    """

    def __init__(
        self, name: str, function: Callable[P, R], pure: bool, pattern: OpPattern | None, attrs: type[OpAttrs]
    ):
        self.function = function
        self.op = Op.register(name, description=(function.__doc__ or "").strip())
        FPurity.set(self.op, pure)
        TAttrs.set(self.op, attrs)
        if pattern is not None:
            TOpPattern.set(self.op, int(pattern))
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
        FInferStructInfo.set(self.op, rule)
        return rule

    def distributed_struct_info(self, rule: StructInfoRule) -> StructInfoRule:
        """Registers what a call on distributed tensors gives, where that does not follow from the operator's kernel."""
        FInferDistributedStructInfo.set(self.op, rule)
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

        FReference.set(self.op, computed)
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

        The kernel made from it is called `hint`, by default as the function. With `inline_scalars`, constants without
        dimensions become numbers in the kernel, as long as one tensor remains. `check` raises an error for a call that
        has no kernel.
        """
        name = hint or te_function.__name__

        def legalize(builder: BlockBuilder, call: Call) -> Expr:
            if check is not None:
                check(call)
            args = with_inlined_scalars(call.args) if inline_scalars else call.args
            return builder.call_te(te_function, *args, *call.attrs.values(), primfunc_name_hint=name)

        self.legalize_as(legalize)

    def legalize_as(self, rule: CallRewrite) -> CallRewrite:
        """Registers how a call is rewritten."""
        FLegalize.set(self.op, rule)
        return rule

    def simplify(self, rule: CallRewrite) -> CallRewrite:
        """Decorator: states what a call is by those of its arguments that are constant."""
        FSimplify.set(self.op, rule)
        return rule

    def bound_indices(self, rule: CallRewrite) -> CallRewrite:
        """Registers how a call gets indices that lie inside of the tensor that they index."""
        FBoundIndices.set(self.op, rule)
        return rule

    def fast_math(self, te_function: Callable[..., Any]) -> None:
        """Registers a tensor expression that computes a call faster and less exactly: `te_function(*args, *attrs)`."""

        def fast(builder: BlockBuilder, call: Call) -> Expr:
            return builder.call_te(te_function, *call.args, *call.attrs.values())

        FFastMath.set(self.op, fast)

    def infer_layout(self, rule: LayoutRule) -> LayoutRule:
        """Registers what layouts a call takes and gives: a rule of `infer_layout.py`."""
        FRelaxInferLayout.set(self.op, rule)
        return rule

    def compute_in_short_floats(self, rule: Callable[[Call, str], Call]) -> Callable[[Call, str], Call]:
        """Registers that a call takes float16 where that is wanted, and sums in another dtype: `rule(call, dtype)`."""
        TMixedPrecisionPolicy.set(self.op, MixedPrecisionPolicy.ALWAYS)
        FInferMixedPrecision.set(self.op, rule)
        return rule

    def selects(self) -> None:
        """Registers that each element of the result is one of the first argument's, or the largest of some."""
        Selects.set(self.op, True)

    def follow_precision(self) -> None:
        """Registers that a call is computed in float16 if all of its arguments are."""
        TMixedPrecisionPolicy.set(self.op, MixedPrecisionPolicy.FOLLOW)

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
    name: str, *, pure: bool = True, pattern: OpPattern | None = None, attrs: type[OpAttrs] = OpAttrs
) -> Callable[[Callable[P, R]], Operator[P, R]]:
    """Registers a function as the operator of that name.

    `pure`: a call has no side effect. `attrs`: the class of its calls' attributes.
    """

    def register(function: Callable[P, R]) -> Operator[P, R]:
        return Operator(name, function, pure, pattern, attrs)

    return register


def register_gradient(op_name: str, fgradient: GradientRule | None = None, level: int = 10) -> Any:
    """Registers the gradient of an operator by its name, `rule(orig_var, orig_call, output_grad, builder)`; a decorator
    if no rule is given. Of several, the one of the highest level stays. Raises `OneIRError` for an unknown operator.
    """

    def register(rule: GradientRule) -> GradientRule:
        FGradient.set(Op.get(op_name), rule, level)
        return rule

    return register if fgradient is None else register(fgradient)
