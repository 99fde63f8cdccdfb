"""The facts of graph operators: what passes, analyses and printers look up on an operator, instead of its name.

    FLegalize.set(exp.op, rule)      # stated where the operator is declared, by the methods of `op/registry.py`
    rule = FLegalize.of(call.op)     # looked up where it is used; None where nothing is stated

Each lives in `Op.attrs` under the key given here, which is published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ..ir.op import Fact
from .expr import Call, Expr, Var
from .struct_info import StructInfo

if TYPE_CHECKING:
    from .block_builder import BlockBuilder
    from .op.infer_layout import LayoutRule


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


StructInfoRule = Callable[[Call, "BlockBuilder"], StructInfo]
"""The struct info of a call's result, from that of its arguments."""
CallRewrite = Callable[["BlockBuilder", Call], Expr]
"""What a call becomes; the call itself where it stays. The rule may emit bindings before it."""
Decomposition = Callable[[Call, "BlockBuilder"], Expr]
"""What a call becomes; the call itself where it stays. The rule may emit bindings before it."""
GradientRule = Callable[[Var, Call, Var, "BlockBuilder"], Sequence[Expr]]
"""The gradients with respect to the arguments: `rule(orig_var, orig_call, output_grad, builder)`."""

FInferStructInfo: Fact[StructInfoRule] = Fact("FInferStructInfo")
"""The struct info of a call's result."""
FInferDistributedStructInfo: Fact[StructInfoRule] = Fact("dist.FInferStructInfo")
"""The struct info of a call's result on distributed tensors, where that does not follow from its kernel."""
FPurity: Fact[bool] = Fact("FPurity")
"""Whether a call has no side effect."""
FReference: Fact[Callable[..., Any]] = Fact("FReference")
"""The result over NumPy arrays, `function(*args, **attrs)`: constants are folded with it, tests compare with it."""
TOpPattern: Fact[int] = Fact("TOpPattern")
"""The `OpPattern`."""

FLegalize: Fact[CallRewrite] = Fact("FLegalize")
"""The call as a `call_tir` of a kernel, or in terms of other operators."""
FNormalize: Fact[CallRewrite] = Fact("FNormalize")
"""A call in a form beyond leaves as arguments; the call itself where it is normal. Scripts stay as they are."""
FFastMath: Fact[CallRewrite] = Fact("FFastMath")
"""The call computed faster and less exactly."""
FDecompose: Fact[Decomposition] = Fact("FDecompose")
"""The call in terms of simpler operators, as it behaves in inference."""
FDecomposeForTraining: Fact[Decomposition] = Fact("FDecomposeForTraining")
"""The call in terms of simpler operators, as it behaves in training."""
FLowerBuiltin: Fact[CallRewrite] = Fact("FLowerBuiltin")
"""The call as one of a function of the runtime."""
FSimplify: Fact[CallRewrite] = Fact("FSimplify")
"""What the call is by its constant arguments, though not all are constant: a choice by a condition that always holds is
its second argument; the call itself where they do not matter. Its arguments are constants where they are bound to such.
"""
FBoundIndices: Fact[CallRewrite] = Fact("FBoundIndices")
"""The call with indices that lie inside of the tensor that they index, whatever data they are."""
FImpureForm: Fact[Callable[[Call], Call]] = Fact("FImpureForm")
"""The same call without the promise that it is pure, once nothing depends on that any more."""
FGradient: Fact[GradientRule] = Fact("FGradient")
"""The gradients with respect to the arguments."""

FDataDependent: Fact[bool] = Fact("FDataDependent")
"""Whether the shape of the result depends on elements, so that the call is legalized without it."""
RequiresArgumentShapes: Fact[bool] = Fact("RequiresArgumentShapes")
"""False where a call is legalized although shapes of arguments are not known."""

TAllocator: Fact[bool] = Fact("TAllocator")
"""Whether each call gives new memory, so that equal calls are not one."""
NeedsWorkers: Fact[bool] = Fact("NeedsWorkers")
"""Whether a call depends on other workers' arguments, too: it is not computed while compiling."""
ViewsArgument: Fact[bool] = Fact("ViewsArgument")
"""Whether the result may lie in the memory of the first argument."""
MayReturnArgument: Fact[bool] = Fact("MayReturnArgument")
"""Whether the result may be any argument but the first, the function that is called."""
Selects: Fact[bool] = Fact("Selects")
"""Whether each element of the result is one of the first argument's, or the largest of some: increasing functions of
elements can be computed before or after."""
SupportsInplace: Fact[bool] = Fact("SupportsInplace")
"""Whether the result may be written into an argument of its shape and dtype."""

FRelaxInferLayout: Fact[LayoutRule] = Fact("FRelaxInferLayout")
"""The layouts that a call takes and gives."""
TMixedPrecisionPolicy: Fact[MixedPrecisionPolicy] = Fact("TMixedPrecisionPolicy")
"""In what a call is computed where float16 is wanted; NEVER where nothing is stated."""
FInferMixedPrecision: Fact[Callable[[Call, str], Call]] = Fact("FInferMixedPrecision")
"""The call on float16 with its sums in another dtype, `rule(call, dtype)`: for those that are ALWAYS computed in it."""
Commutative: Fact[bool] = Fact("Commutative")
"""Whether patterns match the two arguments in either order."""
ScriptArguments: Fact[Sequence[str]] = Fact("script_arguments")
"""The names that TVMScript writes arguments with, where they are written by name."""
