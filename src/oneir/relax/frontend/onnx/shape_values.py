"""Nodes that compute with extents are evaluated on expressions, so that shapes stay known while importing.

A node whose inputs are such integers (`Shape`, then `Gather`, `Mul`, `Concat`) is computed here, element by element;
one that needs more than is known is left to its converter. Exporters also write extents as floating-point numbers, to
scale them or to count up to them: these are followed as long as they are whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....ir import operators
from ....ir.expr import IntImm, PrimExpr
from ...expr import Constant, Expr
from .context import Context
from .dtypes import dtype_name, is_float

_LARGEST = 256
"""The most elements that are kept as expressions: shapes are short."""

Elements = np.ndarray
Rule = Callable[..., Any]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers how nodes compute elements: `rule(g, *arrays, **attributes)`; None where they are not known."""

    def register(function: Rule) -> Rule:
        for name in names:
            _RULES[name] = function
        return function

    return register


def evaluated(g: Context, name: str, inputs: Sequence[Any], attributes: dict[str, Any]) -> Sequence[Expr] | None:
    """The outputs of a node of symbolic integers; None if it is not one, or if not all that it needs is known."""
    rule = _RULES.get(name)
    if rule is None or not any(isinstance(x, Expr) and x in g.known for x in inputs):
        return None
    arrays: list[Elements | None] = []
    for x in inputs:
        if x is None:
            arrays.append(None)
            continue
        if not isinstance(x, Expr) or (isinstance(x, Constant) and math.prod(x.data.shape) > _LARGEST):
            return None
        elements = g.whole(x)
        if elements is None:
            return None
        arrays.append(elements)
    if name == "Div":
        attributes = {"whole": not is_float(g.dtype(inputs[0]))}
    try:
        found = rule(g, *arrays, **attributes)
    except (TypeError, ValueError, IndexError):
        return None  # The converter says what is wrong with the node.
    if found is None:
        return None
    results = found if isinstance(found, tuple) else (found,)
    if sum(r.size for r in results) > _LARGEST:
        return None
    dtype = _result_dtype(g, name, inputs, attributes)
    return [g.of_elements(np.asarray(r, dtype=object), dtype) for r in results]


def _result_dtype(g: Context, name: str, inputs: Sequence[Any], attributes: dict[str, Any]) -> str:
    if name == "Cast":
        return dtype_name(attributes["to"])
    if name in _COMPARISONS or name == "Not":
        return "bool"
    return g.dtype(inputs[1] if name in ("Where", "CastLike") else inputs[0])


def _each(function: Callable[..., Any]) -> Callable[..., Elements]:
    """A function of elements as one of arrays, broadcast."""

    def applied(*arrays: Elements) -> Elements:
        spread = np.broadcast_arrays(*arrays)
        result = np.empty(spread[0].shape, dtype=object)
        for index in np.ndindex(*result.shape):
            result[index] = function(*[a[index] for a in spread])
        return result

    return applied


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, IntImm) else value


def _register_arithmetic(name: str, function: Callable[[Any, Any], Any]) -> None:
    def computed(a: Any, b: Any) -> Any:
        return _plain(function(a, b)) if isinstance(a, PrimExpr) or isinstance(b, PrimExpr) else function(a, b)

    @_rule(name)
    def rule(g: Context, a: Elements, b: Elements) -> Elements:
        return _each(computed)(a, b)


for _name, _function in (
    ("Add", lambda a, b: a + b),
    ("Sub", lambda a, b: a - b),
    ("Mul", lambda a, b: a * b),
):
    _register_arithmetic(_name, _function)


def _nonnegative(g: Context, value: Any) -> bool:
    return value >= 0 if isinstance(value, int) else g.block_builder.analyzer.can_prove_greater_equal(value, 0)


@_rule("Div")
def _div(g: Context, a: Elements, b: Elements, *, whole: bool = True) -> Elements:
    """Truncated towards zero; of floating-point numbers, known where the quotient is whole."""

    def divided(x: Any, y: Any) -> Any:
        if not whole and not _divides(g, x, y):
            raise ValueError("not whole")
        if isinstance(x, int) and isinstance(y, int):
            return int(math.copysign(1, x) * math.copysign(1, y)) * (abs(x) // abs(y)) if y else 0
        rounded = operators.floordiv if _nonnegative(g, x) and _nonnegative(g, y) else operators.truncdiv
        return _plain(g.block_builder.analyzer.simplify(rounded(x, y)))

    return _each(divided)(a, b)


def _divides(g: Context, x: Any, y: Any) -> bool:
    if not isinstance(y, int) or y <= 0:
        return False
    return x % y == 0 if isinstance(x, int) else g.block_builder.analyzer.can_prove_equal(operators.floormod(x, y), 0)


@_rule("Mod")
def _mod(g: Context, a: Elements, b: Elements, *, fmod: int = 0) -> Elements | None:
    """With the sign of the divisor."""
    return None if fmod else _each(lambda x, y: _plain(operators.floormod(x, y)))(a, b)


def _register_choice(name: str, python: Callable[..., Any], symbolic: Callable[..., Any]) -> None:
    def chosen(a: Any, b: Any) -> Any:
        return python(a, b) if isinstance(a, int) and isinstance(b, int) else _plain(symbolic(a, b))

    @_rule(name)
    def rule(g: Context, first: Elements, *rest: Elements) -> Elements:
        for other in rest:
            first = _each(chosen)(first, other)
        return _each(lambda e: _plain(g.block_builder.analyzer.simplify(e)) if isinstance(e, PrimExpr) else e)(first)


_register_choice("Max", max, operators.maximum)
_register_choice("Min", min, operators.minimum)


@_rule("Neg")
def _neg(g: Context, x: Elements) -> Elements:
    return _each(lambda e: _plain(-e))(x)


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Equal": operators.equal,
    "Less": operators.less,
    "LessOrEqual": operators.less_equal,
    "Greater": operators.greater,
    "GreaterOrEqual": operators.greater_equal,
}


def _register_comparison(name: str, function: Callable[[Any, Any], Any]) -> None:
    @_rule(name)
    def rule(g: Context, a: Elements, b: Elements) -> Elements | None:
        def decided(x: Any, y: Any) -> Any:
            condition = function(x, y)
            if isinstance(condition, (bool, int)):
                return int(condition)
            if isinstance(condition, IntImm):
                return int(condition.value)
            if g.block_builder.analyzer.can_prove(condition):
                return 1
            if g.block_builder.analyzer.can_prove(operators.logical_not(condition)):
                return 0
            raise ValueError("known only when the model runs")

        return _each(decided)(a, b)


for _name, _function in _COMPARISONS.items():
    _register_comparison(_name, _function)


@_rule("Where")
def _where(g: Context, condition: Elements, a: Elements, b: Elements) -> Elements | None:
    if any(isinstance(c, PrimExpr) for c in condition.reshape(-1).tolist()):
        return None
    return _each(lambda c, x, y: x if c else y)(condition, a, b)


@_rule("Identity", "CastLike", "Floor", "Ceil", "Round")
def _identity(g: Context, x: Elements, like: Elements | None = None) -> Elements:
    return x


@_rule("Cast")
def _cast(g: Context, x: Elements, *, to: int, saturate: int = 1, round_mode: str = "up") -> Elements | None:
    return x if dtype_name(to) in ("int64", "int32", "float32", "float64") else None


@_rule("Concat")
def _concat(g: Context, *arrays: Elements, axis: int) -> Elements:
    return np.concatenate(arrays, axis)


@_rule("Gather")
def _gather(g: Context, x: Elements, indices: Elements, *, axis: int = 0) -> Elements:
    return np.asarray(np.take(x, indices.astype(np.int64), axis), dtype=object)


@_rule("Slice")
def _slice(
    g: Context,
    x: Elements,
    starts: Elements | None = None,
    ends: Elements | None = None,
    axes: Elements | None = None,
    steps: Elements | None = None,
    **attributes: Any,
) -> Elements | None:
    if starts is None or ends is None or attributes:
        return None
    dims = range(len(starts)) if axes is None else axes.tolist()
    strides = [1] * len(starts) if steps is None else steps.tolist()
    index: list[Any] = [slice(None)] * x.ndim
    for dim, start, end, step in zip(dims, starts.tolist(), ends.tolist(), strides, strict=True):
        index[dim] = slice(start, None if step < 0 and end < -x.shape[dim] else end, step)
    return x[tuple(index)]


@_rule("Squeeze")
def _squeeze(g: Context, x: Elements, axes: Any = None) -> Elements:
    return np.squeeze(x, None if axes is None else tuple(int(a) for a in axes))


@_rule("Unsqueeze")
def _unsqueeze(g: Context, x: Elements, axes: Any = None) -> Elements:
    return np.expand_dims(x, tuple(int(a) for a in axes))


@_rule("Reshape")
def _reshape(g: Context, x: Elements, shape: Any, *, allowzero: int = 0) -> Elements:
    target = [int(e) for e in shape]
    return x.reshape([x.shape[i] if e == 0 and not allowzero else e for i, e in enumerate(target)])


@_rule("Transpose")
def _transpose(g: Context, x: Elements, *, perm: Sequence[int] | None = None) -> Elements:
    return x.transpose(perm)


def _register_reduction(name: str, combine: Callable[[Any, Any], Any]) -> None:
    @_rule(name)
    def rule(
        g: Context, x: Elements, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Elements | None:
        """Of a vector, which shapes are."""
        if x.ndim > 1 or not x.size or (axes is None and noop_with_empty_axes):
            return None
        total = x.reshape(-1)[0]
        for element in x.reshape(-1)[1:].tolist():
            total = combine(total, element)
        result = np.empty([1] if keepdims else [], dtype=object)
        result[...] = _plain(total)
        return result


for _name, _combine in (("ReduceProd", lambda a, b: a * b), ("ReduceSum", lambda a, b: a + b)):
    _register_reduction(_name, _combine)


@_rule("Split")
def _split(g: Context, x: Elements, split: Any = None, *, axis: int = 0, num_outputs: int | None = None) -> Any:
    if split is None:
        return None
    return tuple(np.split(x, np.cumsum(split.astype(np.int64))[:-1].tolist(), axis))


@_rule("Expand")
def _expand(g: Context, x: Elements, shape: Any) -> Elements:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(e) for e in shape)))


@_rule("Tile")
def _tile(g: Context, x: Elements, repeats: Any) -> Elements:
    return np.tile(x, [int(e) for e in repeats])


@_rule("Range")
def _range(g: Context, start: Elements, limit: Elements, delta: Elements) -> Elements | None:
    values = [e[()] for e in (start, limit, delta)]
    return np.array(range(*values), dtype=object) if all(isinstance(v, int) for v in values) else None
