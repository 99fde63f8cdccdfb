"""Random graphs whose meaning is defined for every input.

A graph is a sequence of operators over its parameters, constants and one another's results. Shapes fit by construction;
extents are numbers or symbolic. Computed floats are neither compared nor turned into integers, so that all ways of
running a graph may differ by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import oneir
from oneir import relax, tir
from oneir.ir.expr import IntImm, PrimExpr
from oneir.relax import op
from oneir.testing.random_values import extent_value

EXTENTS = (1, 2, 3, 5)
SMOOTH = (op.tanh, op.sigmoid, op.sin, op.cos, op.erf, op.nn.silu, op.nn.gelu)
SIMPLE = (op.negative, op.abs, op.nn.relu)
MOVES = ("permute", "flatten", "regroup", "expand", "squeeze", "broadcast", "concat", "split", "take", "slice", "flip")
STEPS = st.sampled_from((1, 2, 4, 6, 9))
FLOATS = ("smooth", "exp", "binary", "divide", "where", "matmul", "softmax", "reduce", "normalize", "scan", "image")


@dataclass
class Graph:
    """A module with the function `main`, and arguments for it."""

    mod: oneir.IRModule
    inputs: list[np.ndarray]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{x.dtype}{list(x.shape)}" for x in self.inputs)
        return f"inputs: {shapes}\n{self.mod.script(show_meta=True)}"


@dataclass
class Value:
    """A value of the graph; `exact` if every way of running the graph gives the same elements."""

    expr: Any
    exact: bool

    @property
    def info(self) -> Any:
        return self.expr.struct_info

    @property
    def shape(self) -> list[PrimExpr]:
        return list(self.info.extents)

    @property
    def ndim(self) -> int:
        return self.info.ndim

    @property
    def is_float(self) -> bool:
        return self.info.dtype == "float32"

    def static(self, axis: int) -> int | None:
        extent = self.shape[axis]
        return extent.value if isinstance(extent, IntImm) else None


class Drawing:
    """What is drawn so far."""

    def __init__(self, draw: Callable[[Any], Any]):
        self.draw = draw
        self.builder = relax.BlockBuilder()
        self.n = tir.Var("n", "int64")
        self.symbols: dict[Any, PrimExpr] = {}
        if draw(st.booleans()):
            self.symbols[self.n] = IntImm("int64", draw(st.sampled_from((1, 2, 4, 7))))
        self.rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
        self.values: list[Value] = []

    # -- leaves --

    def extent(self) -> Any:
        return self.draw(st.sampled_from((*EXTENTS, self.n) if self.symbols else EXTENTS))

    def shape(self) -> list[Any]:
        return [self.extent() for _ in range(self.draw(st.integers(1, 3)))]

    def concrete(self, shape: Sequence[Any]) -> tuple[int, ...]:
        return tuple(e if isinstance(e, int) else extent_value(e, self.symbols, "the graph") for e in shape)

    def array(self, shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
        if dtype == "float32":
            return np.asarray(self.rng.standard_normal(shape)).astype(dtype)
        return np.asarray(self.rng.integers(-9, 10, shape)).astype(dtype)

    def parameters(self) -> tuple[list[relax.Var], list[np.ndarray]]:
        shapes: list[Any] = [self.shape() for _ in range(self.draw(st.integers(1, 3)))]
        if self.symbols:
            shapes[0] = [self.n, *shapes[0][1:]]
        if self.draw(st.booleans()):
            shapes.append([self.draw(st.integers(1, 2)), self.draw(st.integers(1, 3)), 5, 6])
        params, inputs = [], []
        for i, shape in enumerate(shapes):
            dtype = self.draw(st.sampled_from(("float32", "float32", "int32")))
            params.append(relax.Var(f"x{i}", relax.TensorStructInfo(shape, dtype)))
            inputs.append(self.array(self.concrete(shape), dtype))
            self.values.append(Value(params[-1], True))
        return params, inputs

    def constant(self, shape: Sequence[int], dtype: str = "float32") -> Value:
        return Value(relax.const(self.array(shape, dtype)), True)

    # -- choosing --

    def pick(self, wanted: Callable[[Value], bool] = lambda v: True) -> Value | None:
        found = [v for v in self.values if wanted(v)]
        # The last ones first, so that graphs are deep and shrink to short ones.
        return self.draw(st.sampled_from(found[::-1])) if found else None

    def emit(self, expr: Any, *operands: Value, exact: bool = False) -> Value:
        value = Value(self.builder.emit(expr), exact and all(o.exact for o in operands))
        self.values.append(value)
        return value

    def partner(self, x: Value) -> Value:
        """A value that broadcasts with another one."""

        def fits(y: Value) -> bool:
            pairs = zip(x.shape[::-1], y.shape[::-1], strict=False)
            return y.info.dtype == x.info.dtype and all(_same(a, b) or 1 in (_int(a), _int(b)) for a, b in pairs)

        found = self.pick(fits) if self.draw(st.booleans()) else None
        if found is None:
            last = x.static(-1) if x.ndim else None
            found = self.constant([last or 1], str(x.info.dtype))
        return found

    # -- operators --

    def step(self) -> None:
        kind = self.draw(st.sampled_from(("float", "move", "float", "move", "integer")))
        x = self.pick((lambda v: v.is_float) if kind == "float" else (lambda v: not v.is_float or kind == "move"))
        if x is None:
            return
        made = len(self.values)
        if kind == "integer":
            self.integer(x)
        else:
            name = self.draw(st.sampled_from(FLOATS if kind == "float" else MOVES))
            getattr(self, f"do_{name}")(x)
        if len(self.values) == made:
            self.emit(op.negative(x.expr), x, exact=True)

    def axis(self, x: Value, wanted: Callable[[int], bool] = lambda i: True) -> int | None:
        axes = [i for i in range(x.ndim) if wanted(i)]
        return self.draw(st.sampled_from(axes)) if axes else None

    def integer(self, x: Value) -> None:
        f = self.draw(
            st.sampled_from((op.add, op.subtract, op.multiply, op.maximum, op.minimum, op.floor_divide, op.floor_mod))
        )
        if self.draw(st.booleans()):
            self.emit(op.astype(x.expr, "float32"), x, exact=True)
        else:
            y = self.partner(x)
            self.emit(f(x.expr, y.expr), x, y, exact=True)

    def do_smooth(self, x: Value) -> None:
        exact = self.draw(st.booleans())
        self.emit(self.draw(st.sampled_from(SIMPLE if exact else SMOOTH))(x.expr), x, exact=exact)

    def do_exp(self, x: Value) -> None:
        self.emit(op.exp(self.builder.emit(op.clip(x.expr, -3.0, 3.0))), x)

    def do_binary(self, x: Value) -> None:
        y = self.partner(x)
        f = self.draw(st.sampled_from((op.add, op.subtract, op.multiply, op.maximum, op.minimum)))
        self.emit(f(x.expr, y.expr) if self.draw(st.booleans()) else f(y.expr, x.expr), x, y)

    def do_divide(self, x: Value) -> None:
        y = self.partner(x)
        below = self.builder.emit(op.add(op.abs(y.expr), relax.const(1, "float32")))
        self.emit(op.divide(x.expr, below), x, y)

    def do_where(self, x: Value) -> None:
        c = self.pick(lambda v: v.exact and v.is_float and len(v.shape) <= x.ndim)
        if c is None or not all(_same(a, b) for a, b in zip(x.shape[::-1], c.shape[::-1], strict=False)):
            return
        y = self.partner(x)
        condition = self.builder.emit(op.greater(c.expr, relax.const(0, "float32")))
        self.emit(op.where(condition, x.expr, y.expr), x, y, c, exact=True)

    def do_matmul(self, x: Value) -> None:
        inner = x.static(-1)
        if inner is None:
            return
        if self.draw(st.booleans()):
            w = self.builder.emit(op.permute_dims(self.constant([self.draw(st.sampled_from(EXTENTS)), inner]).expr))
            self.emit(op.matmul(x.expr, w), x)
            return
        y = self.pick(lambda v: v.is_float and v.ndim == 2 and v.static(0) == inner)
        y = y or self.constant([inner, self.draw(st.sampled_from(EXTENTS))])
        self.emit(op.matmul(x.expr, y.expr), x, y)

    def do_softmax(self, x: Value) -> None:
        f = self.draw(st.sampled_from((op.nn.softmax, op.nn.log_softmax)))
        self.emit(f(x.expr, axis=self.axis(x)), x) if x.ndim else None

    def do_reduce(self, x: Value) -> None:
        f = self.draw(st.sampled_from((op.sum, op.mean, op.max, op.min)))
        axes = [i for i in range(x.ndim) if self.draw(st.booleans())]
        keepdims = self.draw(st.booleans())
        if axes and (len(axes) < x.ndim or keepdims):
            self.emit(f(x.expr, axes, keepdims), x)

    def do_normalize(self, x: Value) -> None:
        # A layer norm takes the square of the mean from the mean of the squares: how much that cancels, no reference knows.
        extent = x.static(-1) if x.ndim else None
        if extent is not None:
            self.emit(op.nn.rms_norm(x.expr, self.constant([extent]).expr, axes=[-1]), x)

    def do_scan(self, x: Value) -> None:
        if x.ndim:
            self.emit(op.cumsum(x.expr, self.axis(x)), x)

    def do_image(self, x: Value) -> None:
        image = self.pick(lambda v: v.is_float and v.ndim == 4 and (v.static(2) or 0) >= 3 and (v.static(3) or 0) >= 3)
        channels = image.static(1) if image is not None else None
        if image is None or channels is None:
            return
        kind = self.draw(st.sampled_from(("conv", "max", "mean")))
        strides, padding = self.draw(st.sampled_from((1, 2))), self.draw(st.sampled_from((0, 1)))
        if kind == "conv":
            weight = self.constant([self.draw(st.integers(1, 3)), channels, 3, 3])
            self.emit(op.nn.conv2d(image.expr, weight.expr, strides=strides, padding=padding), image)
        else:
            f = op.nn.max_pool2d if kind == "max" else op.nn.avg_pool2d
            self.emit(f(image.expr, pool_size=(2, 2), strides=strides, padding=padding), image)

    def do_permute(self, x: Value) -> None:
        self.emit(op.permute_dims(x.expr, self.draw(st.permutations(range(x.ndim)))), x, exact=True)

    def do_flatten(self, x: Value) -> None:
        size: Any = 1
        for extent in x.shape:
            size = extent * size
        self.emit(op.reshape(x.expr, [size]), x, exact=True)

    def do_regroup(self, x: Value) -> None:
        if x.ndim >= 2:
            first, second, *rest = x.shape
            self.emit(op.reshape(x.expr, [first * second, *rest]), x, exact=True)
        elif x.ndim == 1 and (x.static(0) or 1) % 2 == 0:
            self.emit(op.reshape(x.expr, [2, -1]), x, exact=True)

    def do_expand(self, x: Value) -> None:
        if x.ndim < 4:
            self.emit(op.expand_dims(x.expr, self.draw(st.integers(0, x.ndim))), x, exact=True)

    def do_squeeze(self, x: Value) -> None:
        axis = self.axis(x, lambda i: x.static(i) == 1)
        if axis is not None and x.ndim > 1:
            self.emit(op.squeeze(x.expr, [axis]), x, exact=True)

    def do_broadcast(self, x: Value) -> None:
        if x.ndim < 3:
            shape = [self.extent() if _int(e) == 1 else e for e in x.shape]
            self.emit(op.broadcast_to(x.expr, [self.extent(), *shape]), x, exact=True)

    def do_concat(self, x: Value) -> None:
        axis = self.axis(x)

        def fits(y: Value) -> bool:
            pairs = enumerate(zip(x.shape, y.shape, strict=False))
            return y.ndim == x.ndim and y.info.dtype == x.info.dtype and all(i == axis or _same(*p) for i, p in pairs)

        y = self.pick(fits)
        if axis is not None and y is not None:
            self.emit(op.concat([x.expr, y.expr], axis), x, y, exact=True)

    def do_split(self, x: Value) -> None:
        axis = self.axis(x, lambda i: (x.static(i) or 1) > 1)
        if axis is None:
            return
        extent = x.static(axis)
        at: Any = 2 if extent == 2 else [self.draw(st.integers(1, (extent or 2) - 1))]
        parts = self.builder.emit(op.split(x.expr, at, axis))
        for i in range(2):
            self.emit(relax.TupleGetItem(parts, i), x, exact=True)

    def do_take(self, x: Value) -> None:
        axis = self.axis(x, lambda i: x.static(i) is not None)
        if axis is not None:
            indices = self.rng.integers(0, x.static(axis), self.draw(st.sampled_from(EXTENTS)))
            self.emit(op.take(x.expr, relax.const(indices.astype("int32")), axis), x, exact=True)

    def do_slice(self, x: Value) -> None:
        axis = self.axis(x, lambda i: (x.static(i) or 1) > 1)
        if axis is None:
            return
        begin, step = self.draw(st.integers(0, 1)), self.draw(st.integers(1, 2))
        self.emit(op.strided_slice(x.expr, [axis], [begin], [x.static(axis)], [step]), x, exact=True)

    def do_flip(self, x: Value) -> None:
        axis = self.axis(x)
        if axis is not None:
            self.emit(op.flip(x.expr, axis), x, exact=True)


def _int(extent: PrimExpr) -> int | None:
    return extent.value if isinstance(extent, IntImm) else None


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    return oneir.ir.structural_equal(a, b)


@st.composite
def graphs(draw: Callable[[Any], Any]) -> Graph:
    """Random graphs with their arguments."""
    drawing = Drawing(draw)
    builder = drawing.builder
    params, inputs = drawing.parameters()
    drawing.values.append(drawing.constant([draw(st.sampled_from(EXTENTS))]))
    with builder.function("main", params):
        for _ in range(draw(st.integers(1, 2))):
            start = len(drawing.values)
            if draw(st.integers(0, 3)):
                with builder.dataflow():
                    for _ in range(draw(STEPS)):
                        drawing.step()
                    made = drawing.values[start:]
                    del drawing.values[start:]
                    kept = [made[-1], draw(st.sampled_from(made))] if made else []
                    for value in {id(v): v for v in kept}.values():
                        drawing.values.append(Value(builder.emit_output(value.expr), value.exact))
            else:
                for _ in range(draw(STEPS)):
                    drawing.step()
        results = [drawing.values[-1], *(drawing.pick() for _ in range(draw(st.integers(0, 2))))]
        exprs = [value.expr for value in results if value is not None]
        builder.emit_func_output(exprs[0] if len(exprs) == 1 else relax.Tuple(exprs))
    return Graph(builder.get(), inputs)
