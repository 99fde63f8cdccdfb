"""FuseAttention: attention that is written out becomes one operator, which never has all of its scores in memory.

    scores = R.multiply(R.matmul(q, R.permute_dims(k, [0, 1, 3, 2])), R.const(0.125))
    y = R.matmul(R.nn.softmax(R.add(scores, bias), -1), v)
->
    y = R.permute_dims(R.nn.attention(R.permute_dims(q, [0, 2, 1, 3]), ..., bias, scale=0.125), [0, 2, 1, 3])

A replacement of NaNs after the softmax (of queries that see no key) makes `R.nn.safe_attention`. Factors of queries and
keys count as scale, as exporters of models to ONNX write it.

The operator has the dimension of heads after that of rows, as the surrounding layers compute them. Models swap the two
before products of matrices and back after them, so the transpositions that come with the operator mostly cancel the
model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...arith import Analyzer
from ...ir.expr import as_int
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..analysis import remove_all_unused, udchain
from ..expr import BindingBlock, Call, Constant, DataflowBlock, DataflowVar, Expr, Function, Var, VarBinding, const
from ..expr_functor import PyExprMutator
from ..op.binary import add, divide, multiply
from ..op.linear_algebra import matmul
from ..op.manipulate import expand_dims, permute_dims, reshape, squeeze
from ..op.nn.activation import softmax
from ..op.nn.attention import attention, safe_attention
from ..op.registry import Operator
from ..op.search import where
from ..op.unary import isnan
from ..struct_info import TensorStructInfo
from .pass_base import FunctionPass


class FuseAttention(FunctionPass):
    """Makes softmax(q @ kᵀ · scale + bias) @ v, of three or four dimensions, one `R.nn.attention`.

    The scale is one or several constants, of the product, of its factors or of the sum with the bias, and tensors of a
    number for each head. What is added may be several tensors, and `R.where` with -inf. Scores that are used elsewhere
    too, and those that a bias gives more heads or batches, stay as they are.
    """

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        if func.attrs.get("Primitive"):
            return func
        new = _Fuser().visit_expr(func)
        return func if new is func else remove_all_unused(new)


@dataclass
class _Step:
    """A call of add or where, which is applied to scores."""

    call: Call
    argument: Expr
    """What it is called with other than the scores."""
    scale: float
    """What its result is multiplied with after it."""


@dataclass
class _Scores:
    """softmax's argument: a product times `scale`, to which `steps` are applied, with those factors of it inside."""

    product: Call
    query: Expr
    key: Expr
    """The factors of the product, without what `scale` has of theirs."""
    scale: float
    factors: list[Expr]
    """Further factors of the product, with a number for each head."""
    steps: list[_Step]
    """First comes the one that is applied first."""
    safe: bool
    """Whether weights that are NaN are replaced by 0."""


class _Fuser(PyExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Var, Expr] = {}
        self.users: Mapping[Var, Sequence[Var]] = {}
        self.fused: dict[Var, Expr] = {}
        """For variables of the original program: attention's result, heads after rows."""
        self.analyzer = Analyzer()

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        self.values = {b.var: b.value for b in block.bindings if isinstance(b, VarBinding)}
        self.users = udchain(block) if any(_call(v, softmax) for v in self.values.values()) else {}
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        scores = self._scores(binding.value) if self.users else None
        if scores is None or not isinstance(binding.value, Call):
            return super().visit_var_binding_(binding)
        heads_last = self._attention(scores, binding.value.args[1])
        if _info(scores.product).ndim == 4:
            self.fused[binding.var] = heads_last
            return self.reemit_binding(binding, permute_dims(heads_last, [0, 2, 1, 3]))
        return self.reemit_binding(binding, squeeze(heads_last, [2]))

    def visit_call_(self, op: Call) -> Expr:
        # The model's transposition of what attention was transposed to.
        data = op.args[0] if op.op is permute_dims.op else None
        heads_last = self.fused.get(data) if isinstance(data, Var) else None
        if heads_last is None:
            return super().visit_call_(op)
        return _transpose(heads_last, [[0, 2, 1, 3][axis] for axis in _axes(op)])

    def _scores(self, value: Expr) -> _Scores | None:
        """What is below softmax in a product that attention ends with."""
        result = _call(value, matmul)
        if result is None:
            return None
        weights, safe = self._single(result.args[0], softmax), False
        if weights is None:
            weights, safe = self._without_nan(result.args[0]), True
        if weights is None or weights.attrs["axis"] not in (-1, _info(weights).ndim - 1):
            return None
        steps: list[_Step] = []
        below, scale = self._unscaled(weights.args[0])
        while (step := self._single(below, add, where)) is not None:
            position = self._position_of_scores(step)
            # A negative factor would make infinity of -inf.
            if position is None or (step.op is where.op and scale <= 0):
                return None
            steps.insert(0, _Step(step, step.args[0 if step.op is where.op else 1 - position], scale))
            below, factor = self._unscaled(step.args[position])
            scale *= factor
        factors: list[Expr] = []
        while (step := self._single(below, multiply)) is not None:
            position = next((i for i in (0, 1) if self._is_of_heads(step.args[i])), None)
            if position is None:
                return None
            factors.append(step.args[position])
            below, factor = self._unscaled(step.args[1 - position])
            scale *= factor
        product = self._single(below, matmul)
        if product is None or not self._fits(product, [step.argument for step in steps], weights, result):
            return None
        (query, of_query), (key, of_key) = (self._unscaled(factor) for factor in product.args)
        return _Scores(product, query, key, scale * of_query * of_key, factors, steps, safe)

    def _is_of_heads(self, expr: Expr) -> bool:
        """Whether an expression, other than scores, has at most one number for each head and batch."""
        info = expr.struct_info
        known = isinstance(info, TensorStructInfo) and info.extents is not None and info.ndim >= 2
        return known and all(as_int(e) == 1 for e in (info.extents or ())[-2:]) and not self._has_product(expr)

    def _unscaled(self, expr: Expr) -> tuple[Expr, float]:
        """What constants multiply or divide in one or several steps, and their product."""
        scale = 1.0
        while (step := self._single(expr, multiply, divide)) is not None:
            first, second = (_number(argument) for argument in step.args)
            if second is not None:
                scale, expr = scale * second if step.op is multiply.op else scale / second, step.args[0]
            elif first is not None and step.op is multiply.op:
                scale, expr = scale * first, step.args[1]
            else:
                break
        return expr, scale

    def _without_nan(self, expr: Expr) -> Call | None:
        """The softmax whose NaNs are replaced by 0: `where(isnan(x), 0, x)`."""
        choice = self._single(expr, where)
        question = None if choice is None else self._single(choice.args[0], isnan)
        if choice is None or question is None or _number(choice.args[1]) != 0:
            return None
        weights = choice.args[2]
        if question.args[0] is not weights or not isinstance(weights, DataflowVar) or len(self.users[weights]) != 2:
            return None
        return _call(self.values.get(weights), softmax)

    def _single(self, expr: Expr, *operators: Operator) -> Call | None:
        """The call of one of the operators that a variable which is used once stands for."""
        if not isinstance(expr, DataflowVar) or len(self.users.get(expr, ())) != 1:
            return None
        return _call(self.values.get(expr), *operators)

    def _position_of_scores(self, call: Call) -> int | None:
        """Which argument of a sum or a choice the scores are: the one that a product of matrices is below."""
        if call.op is where.op:
            return next((3 - i for i in (1, 2) if _number(call.args[i]) == -np.inf), None)
        return next((i for i in (0, 1) if self._has_product(call.args[i])), None)

    def _has_product(self, expr: Expr) -> bool:
        step = self._single(expr, matmul, add, where, multiply, divide)
        return step is not None and (step.op is matmul.op or any(map(self._has_product, step.args)))

    def _fits(self, product: Call, added: list[Expr], weights: Call, result: Call) -> bool:
        """Whether the products have as many batches and heads as their factors, and as the weights."""
        infos = [_info(e) for e in (*product.args, weights, result.args[1], result, *added)]
        shapes = [i.extents for i in infos]
        if infos[0].ndim not in (3, 4) or any(shape is None for shape in shapes):
            return False
        query, key, scores, value, _, *others = [list(shape or ()) for shape in shapes]
        if any(i.dtype != infos[0].dtype for i in infos[:5]):
            return False
        if not all(self._equal(shape[:-2], query[:-2]) for shape in (key, scores, value)):
            return False
        if not self._equal(scores[-2:], [query[-2], key[-1]]):
            return False
        # What is added has all keys in one of its parts at least, so that the bias made of them does.
        return not others or any(shape and self._equal(shape[-1:], scores[-1:]) for shape in others)

    def _equal(self, a: Sequence, b: Sequence) -> bool:
        return len(a) == len(b) and all(self.analyzer.can_prove_equal(x, y) for x, y in zip(a, b, strict=True))

    def _attention(self, scores: _Scores, value: Expr) -> Expr:
        """Emits the operator; its result has dimensions batch, row, head and width."""
        bias: Expr | None = None
        for step in scores.steps:
            call, argument = step.call, self.visit_expr(step.argument)
            if call.op is where.op:
                dtype = _info(scores.product).dtype
                sides = [const(-np.inf, dtype), const(0.0, dtype) if bias is None else bias]
                masked_first = _number(call.args[1]) == -np.inf
                bias = self.builder_.emit(where(argument, *(sides if masked_first else sides[::-1])))
            else:
                if step.scale != 1:
                    factor = const(step.scale, _info(argument).dtype)
                    argument = self.builder_.emit(multiply(argument, factor))
                bias = argument if bias is None else self.builder_.emit(add(bias, argument))
        rank = _info(scores.product).ndim
        query = scores.query
        for factor in scores.factors:
            query = self.builder_.emit(multiply(self.visit_expr(query), self.visit_expr(factor)))
        query = self._heads_last(query, list(range(rank)))
        key = self._heads_last(scores.key, [*range(rank - 2), rank - 1, rank - 2])
        value = self._heads_last(value, list(range(rank)))
        bias = None if bias is None else self._of_four_dimensions(bias, rank)
        compute = safe_attention if scores.safe else attention
        return self.builder_.emit(compute(query, key, value, bias, scale=scores.scale))

    def _heads_last(self, expr: Expr, axes: list[int]) -> Expr:
        """The tensor transposed by `axes`, a matrix for each head or batch, and then with heads after rows."""
        if len(axes) == 4:
            axes = [axes[0], axes[2], axes[1], axes[3]]
        while (inner := self._transposition(expr)) is not None:
            inner_axes, expr = inner
            axes = [inner_axes[axis] for axis in axes]
        transposed = self._emit(_transpose(self.visit_expr(expr), axes))
        return transposed if len(axes) == 4 else self.builder_.emit(expand_dims(transposed, [2]))

    def _transposition(self, expr: Expr) -> tuple[list[int], Expr] | None:
        """The axes of a transposition, and what it transposes; leading dimensions may be one in between."""
        call = _call(self.values.get(expr), permute_dims, reshape) if isinstance(expr, Var) else None
        if call is None or call.op is permute_dims.op:
            return None if call is None else (_axes(call), call.args[0])
        inner, merging = self._single(call.args[0], permute_dims), None
        if inner is not None and _axes(inner)[0] == 0:
            merging = self._single(inner.args[0], reshape)
        if inner is None or merging is None:
            return None
        source, merged, out = (list(_info(e).extents or ()) for e in (merging.args[0], merging, call))
        leading = len(source) - len(merged) + 1
        axes = [*range(leading), *[axis + leading - 1 for axis in _axes(inner)[1:]]]
        if leading < 1 or not self._equal(source[leading:], merged[1:]):
            return None
        return (axes, merging.args[0]) if self._equal(out, [source[axis] for axis in axes]) else None

    def _of_four_dimensions(self, bias: Expr, rank: int) -> Expr:
        missing = rank - _info(bias).ndim
        if missing:
            bias = self.builder_.emit(expand_dims(bias, list(range(missing))))
        return bias if rank == 4 else self.builder_.emit(expand_dims(bias, [1]))

    def _emit(self, expr: Expr) -> Expr:
        return self.builder_.emit(expr) if isinstance(expr, Call) else expr


def _call(expr: Expr | None, *operators: Operator) -> Call | None:
    """The expression if it calls one of the operators."""
    return expr if isinstance(expr, Call) and any(expr.op is o.op for o in operators) else None


def _info(expr: Expr) -> TensorStructInfo:
    assert isinstance(expr.struct_info, TensorStructInfo)
    return expr.struct_info


def _axes(call: Call) -> list[int]:
    """The axes of a transposition, all at least 0."""
    rank, axes = _info(call.args[0]).ndim, call.attrs["axes"]
    return list(reversed(range(rank))) if axes is None else [int(axis) % rank for axis in axes]


def _transpose(expr: Expr, axes: list[int]) -> Expr:
    return expr if axes == sorted(axes) else permute_dims(expr, axes)


def _number(expr: Expr) -> float | None:
    """The number that a constant of no dimensions is."""
    return float(expr.data.numpy()) if isinstance(expr, Constant) and _info(expr).ndim == 0 else None
