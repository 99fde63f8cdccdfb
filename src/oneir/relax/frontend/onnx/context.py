"""What converters ask: expressions emitted or computed at once, shapes, and integers that shapes are made of.

Some tensors of a model are there for the shapes of others. Where such a tensor is a constant, what is computed from it
is computed here. Where its elements are known as expressions (the extents of an input, say), `known` holds them next to
the variable of the tensor. Where nothing is known before the model runs, its elements become symbolic variables, which
a match_cast binds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.expr import FloatImm, IntImm, PrimExpr
from ....ir.op import Op
from ....runtime.object import ShapeTuple
from ....runtime.tensor import wrap_array
from ... import op
from ...block_builder import BlockBuilder
from ...expr import (
    Call,
    Constant,
    DataTypeImm,
    Expr,
    PrimValue,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    const,
)
from ...operator_facts import FPurity, FReference
from ...struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ...transform.fold_constant import as_constant
from .dtypes import Symbols
from .registry import NotConstant, Refused

LARGEST_FOLDED = 1 << 16
"""The most elements that are computed while importing. More are left to FoldConstant, so that importing stays quick."""


class Context:
    """The function that is being built."""

    def __init__(self) -> None:
        self.builder = BlockBuilder()
        self.symbols = Symbols()
        self.opset = 0
        self.num_outputs = 0
        """How many outputs the node that is converted has."""
        self.known: dict[Expr, np.ndarray] = {}
        """Integers, and whole numbers, of tensors that are not constant, as arrays of expressions."""
        self.parameters: dict[Var, np.ndarray] = {}
        """Weights that are parameters, and their values."""
        self.used_as_constants: set[Var] = set()

    # -- expressions --

    def emit(self, expr: Expr) -> Expr:
        """Gives an expression a variable; what follows from small constants is a constant instead."""
        folded = self._folded(expr)
        return folded if isinstance(folded, Constant) or _constants(folded) else self.builder.emit(folded)

    def _folded(self, expr: Expr) -> Expr:
        """The expression with calls of constants replaced by their values."""
        if isinstance(expr, Tuple):
            fields = [self._folded(f) for f in expr.fields]
            return expr if all(a is b for a, b in zip(fields, expr.fields, strict=True)) else Tuple(fields)
        if not isinstance(expr, Call) or not isinstance(expr.op, Op):
            return expr
        args = [self._folded(a) for a in expr.args]
        if any(a is not b for a, b in zip(args, expr.args, strict=True)):
            expr = Call(expr.op, args, expr.attrs, expr.sinfo_args)
        reference = FReference.of(expr.op)
        if reference is None or not FPurity.of(expr.op):
            return expr
        values = [_literal(a) for a in args]
        if any(v is None for v in values):
            return expr
        expr = self.builder.normalize(expr)
        assert isinstance(expr, Call)
        if not _is_small(expr.struct_info) or sum(v.size for v in values if isinstance(v, np.ndarray)) > LARGEST_FOLDED:
            return expr
        return as_constant(reference(*values, **expr.attrs.values_by_name), expr.struct_info)

    def te(self, function: Any, *args: Any, name: str = "") -> Expr:
        """Emits what a function of tensor expressions computes."""
        return self.builder.emit_te(function, *args, primfunc_name_hint=name or None)

    def constant(self, values: Any, dtype: str | None = None) -> Constant:
        """A constant tensor: an array shares its memory."""
        if dtype is None and isinstance(values, np.ndarray):
            return Constant(wrap_array(np.ascontiguousarray(values).reshape(values.shape)))
        return const(np.asarray(values), dtype)

    def like(self, value: Any, x: Expr) -> Constant:
        """A number in the dtype of a tensor."""
        return const(value, self.dtype(x))

    # -- what is known of tensors --

    def info(self, x: Any) -> TensorStructInfo:
        """What is known of a tensor."""
        if not isinstance(x, Expr):
            raise Refused(f"expected a tensor, found {'a sequence' if isinstance(x, list) else 'nothing'}")
        if x.struct_info_ is None:
            x = self.builder.normalize(x)
        if not isinstance(x.struct_info, TensorStructInfo):
            raise Refused(f"expected a tensor, found {x.struct_info}")
        return x.struct_info

    def shape(self, x: Expr) -> list[Any]:
        """The extents of a tensor: integers, and expressions where they are symbolic."""
        info = self.info(x)
        if info.extents is None:
            raise Refused(f"the shape of `{x}` is not known")
        return [e.value if isinstance(e, IntImm) else e for e in info.extents]

    def static_shape(self, x: Expr, what: str) -> list[int]:
        """The extents of a tensor, which must be known."""
        return [self.static(e, what) for e in self.shape(x)]

    def static(self, value: Any, what: str) -> int:
        """An integer that must be known."""
        if isinstance(value, IntImm):
            value = value.value
        if not isinstance(value, (int, np.integer)):
            raise NotConstant(
                f"{what} must be known while compiling, found `{value}`; give shape_dict extents without symbols"
            )
        return int(value)

    def dtype(self, x: Expr) -> str:
        """The dtype of a tensor."""
        return self.info(x).dtype

    def ndim(self, x: Expr) -> int:
        """The number of dimensions of a tensor."""
        return self.info(x).ndim

    def axis(self, axis: int, ndim: int) -> int:
        """An axis counted from the front; refused where there is none."""
        if not -ndim <= axis < ndim:
            raise Refused(f"expected an axis of a tensor of {ndim} dimensions, found {axis}")
        return axis + ndim if axis < 0 else axis

    def is_one(self, extent: Any) -> bool:
        """Whether an extent is 1."""
        return isinstance(extent, int) and extent == 1

    def same(self, a: Any, b: Any) -> bool:
        """Whether two extents are the same, for all values of symbols."""
        return a == b if isinstance(a, int) and isinstance(b, int) else self.builder.analyzer.can_prove_equal(a, b)

    # -- elements --

    def array(self, x: Any) -> np.ndarray | None:
        """The elements of a constant; None of anything else."""
        if isinstance(x, Constant):
            return x.data.numpy()
        if isinstance(x, Var) and x in self.parameters:
            self.used_as_constants.add(x)
            return self.parameters[x]
        return None

    def elements(self, x: Expr) -> np.ndarray | None:
        """The elements of a tensor of integers, as far as they are known as integers or expressions; None if not."""
        found = self.array(x)
        if found is not None:
            return np.array(found.tolist(), dtype=object) if found.dtype.kind in "iub" else None
        return self.known.get(x)

    def whole(self, x: Expr) -> np.ndarray | None:
        """As `elements`, also of floating-point numbers, if they are all whole."""
        values = self.array(x)
        if values is None or values.dtype.kind != "f":
            return self.elements(x)
        if not np.isfinite(values).all() or (values != np.rint(values)).any():
            return None
        return np.array([int(v) for v in values.reshape(-1)], dtype=object).reshape(values.shape)

    def remember(self, x: Expr, elements: np.ndarray) -> Expr:
        """Notes what the elements of a tensor are; constants speak for themselves."""
        if not isinstance(x, Constant):
            self.known[x] = elements
        return x

    def of_elements(self, elements: np.ndarray, dtype: str) -> Expr:
        """A tensor of integers and expressions."""
        values = [e.value if isinstance(e, IntImm) else e for e in elements.reshape(-1).tolist()]
        if not any(isinstance(v, PrimExpr) for v in values):
            return const(np.array(values, dtype=object).reshape(elements.shape), dtype)
        flat = op.shape_to_tensor(ShapeExpr(values))
        shaped = flat if elements.ndim == 1 else op.reshape(flat, list(elements.shape))
        tensor = self.emit(shaped if dtype == "int64" else op.astype(shaped, dtype))
        return self.remember(tensor, np.array(values, dtype=object).reshape(elements.shape))

    def constant_array(self, x: Expr, what: str) -> np.ndarray:
        """The elements of a tensor that must be constant."""
        found = self.array(x)
        if found is None:
            raise NotConstant(f"{what} must be known while compiling; make it an initializer of the model")
        return found

    def constant_ints(self, x: Expr, what: str) -> list[int]:
        """The elements of an integer tensor that must be constant, in one list."""
        found = self.elements(x)
        if found is not None and all(isinstance(e, int) for e in found.reshape(-1).tolist()):
            return found.reshape(-1).tolist()
        return [int(e) for e in self.constant_array(x, what).reshape(-1).tolist()]

    def extents(self, x: Expr, what: str) -> list[Any]:
        """The elements of a tensor of integers that are not negative, in one list: they are to be extents.

        Those that are known only when the model runs become symbolic variables.
        """
        found = self.elements(x)
        if found is None:
            shape = self.static_shape(x, f"how many elements {what} has")
            count = math.prod(shape)
            if not count:
                return []
            flat = self.emit(op.reshape(op.astype(x, "int64"), [count]))
            values = self.emit(op.tensor_to_shape(flat))
            variables = [self.symbols.fresh_extent() for _ in range(count)]
            self.builder.match_cast(values, ShapeStructInfo(variables))
            found = self.known[x] = np.array(variables, dtype=object).reshape(shape)
        return found.reshape(-1).tolist()

    def fields(self, value: Expr, count: int | None = None) -> list[Expr]:
        """The fields of a tuple."""
        value = self.emit(value)
        if isinstance(value, Tuple):
            return list(value.fields)
        info = value.struct_info
        assert isinstance(info, TupleStructInfo)
        return [self.emit(TupleGetItem(value, i)) for i in range(len(info.fields))]

    # -- what is not known of shapes, but follows from their use --

    def asserted(self, x: Expr, extents: Sequence[Any]) -> Expr:
        """The tensor with extents that it must have, which is checked when the program runs; itself if it has them."""
        if all(map(self.same, self.shape(x), extents)):
            return x
        return self.builder.match_cast(x, TensorStructInfo(list(extents), self.dtype(x)))

    def broadcastable(self, *tensors: Expr) -> list[Expr]:
        """Tensors whose extents are the same or 1, as broadcasting needs it.

        Of two extents of which nothing is known, it is asserted that they are the same: neither is taken to be 1.
        """
        shapes = [self.shape(x) for x in tensors]
        ndim = max(map(len, shapes))
        chosen: list[Any] = []
        for i in range(-ndim, 0):
            here = [s[i] for s in shapes if len(s) >= -i and not self.is_one(s[i])]
            known = next((e for e in here if isinstance(e, int)), here[0] if here else 1)
            chosen.append(known)
        wanted = [
            [e if self.is_one(e) or isinstance(e, int) else c for e, c in zip(s, chosen[ndim - len(s) :], strict=True)]
            for s in shapes
        ]
        return [self.asserted(x, w) for x, w in zip(tensors, wanted, strict=True)]

    # -- small compositions that many converters use --

    def cast(self, x: Expr, dtype: str) -> Expr:
        """The tensor in a dtype; itself if it has it."""
        return x if self.dtype(x) == dtype else self.emit(op.astype(x, dtype))

    def reshaped(self, x: Expr, extents: Sequence[Any]) -> Expr:
        """The tensor in another shape; itself if it has it."""
        old = self.shape(x)
        if len(old) == len(extents) and all(map(self.same, old, extents)):
            return x
        return self.emit(op.reshape(x, ShapeExpr(list(extents))))

    def along(self, vector: Expr, axis: int, ndim: int) -> Expr:
        """A vector as a tensor of more dimensions, which runs along one of them."""
        shape: list[Any] = [1] * ndim
        shape[axis] = self.shape(vector)[0]
        return self.reshaped(vector, shape)

    def broadcast(self, x: Expr, extents: Sequence[Any]) -> Expr:
        """The tensor repeated to a shape."""
        old = self.shape(x)
        if len(old) == len(extents) and all(map(self.same, old, extents)):
            return x
        return self.emit(op.broadcast_to(x, ShapeExpr(list(extents))))


def _literal(expr: Expr) -> Any:
    """The value of an argument that says it itself; None of others."""
    if isinstance(expr, Constant):
        return expr.data.numpy()
    if isinstance(expr, (StringImm, DataTypeImm)):
        return expr.value
    if isinstance(expr, PrimValue):
        return expr.value.value if isinstance(expr.value, (IntImm, FloatImm)) else None
    if isinstance(expr, ShapeExpr):
        values = [e.value for e in expr.values if isinstance(e, IntImm)]
        return ShapeTuple(values) if len(values) == len(expr.values) else None
    if isinstance(expr, Tuple):
        fields = tuple([_literal(f) for f in expr.fields])
        return None if any(f is None for f in fields) else fields
    return None


def _constants(expr: Expr) -> bool:
    return isinstance(expr, Tuple) and all(isinstance(f, Constant) for f in expr.fields)


def _is_small(info: StructInfo) -> bool:
    """Whether a result has few elements, of which the number is known."""
    if isinstance(info, TupleStructInfo):
        return all(map(_is_small, info.fields))
    if not isinstance(info, TensorStructInfo) or info.extents is None:
        return False
    extents = [e.value for e in info.extents if isinstance(e, IntImm)]
    return len(extents) == len(info.extents) and math.prod(extents) <= LARGEST_FOLDED
