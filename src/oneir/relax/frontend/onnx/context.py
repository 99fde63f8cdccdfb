"""The importer as converters see it: it emits or folds expressions, and knows the elements of shape tensors.

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
from ....runtime.error import UnsupportedError
from ....runtime.object import ShapeTuple
from ....runtime.tensor import wrap_array
from ... import op
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
from ..importer import ModelImporter
from .dtypes import FLOAT4, Symbols
from .objects import Kind, runtime_value

LARGEST_FOLDED = 1 << 16
"""The most elements that are computed while importing. More are left to FoldConstant, so that importing stays quick."""


class Context(ModelImporter):
    """Builds the function, and knows what is known of its values while importing."""

    static_advice = "; give shape_dict extents without symbols"

    def __init__(self) -> None:
        super().__init__()
        self.symbols = Symbols()
        self.opset = 0
        self.num_outputs = 0
        """How many outputs the node that is converted has."""
        self.known: dict[Expr, np.ndarray] = {}
        """Integers, and whole numbers, of tensors that are not constant, as arrays of expressions."""
        self.parameters: dict[Var, np.ndarray] = {}
        """Weights that are parameters, and their values."""
        self.used_as_constants: set[Var] = set()
        self.may_fail = False
        """Whether the program asserts what it cannot check before it runs, or has branches that end in an error."""
        self.objects: dict[Expr, Kind] = {}
        """What is known of values that are no tensors of numbers."""

    # -- expressions --

    def emit(self, expr: Expr) -> Expr:
        """Gives an expression a variable; calls of small constants are folded into constants."""
        folded = self._folded(expr)
        return folded if isinstance(folded, Constant) or _constants(folded) else self.block_builder.emit(folded)

    def _folded(self, expr: Expr) -> Expr:
        """The expression with calls of small constants replaced by their values."""
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
        expr = self.block_builder.normalize(expr)
        assert isinstance(expr, Call)
        if not _is_small(expr.struct_info) or sum(v.size for v in values if isinstance(v, np.ndarray)) > LARGEST_FOLDED:
            return expr
        return as_constant(reference(*values, **expr.attrs.values_by_name), expr.struct_info)

    def constant(self, values: Any, dtype: str | None = None) -> Constant:
        """A constant tensor: an array shares its memory."""
        if dtype is None and isinstance(values, np.ndarray):
            return Constant(wrap_array(np.ascontiguousarray(values).reshape(values.shape)))
        return const(np.asarray(values), dtype)

    # -- what is known of tensors --

    def info(self, x: Any) -> TensorStructInfo:
        """The struct info of a tensor of numbers. Raises `UnsupportedError` for anything else."""
        if isinstance(x, Expr) and x in self.objects:
            raise UnsupportedError(f"expected a tensor of numbers, found {self.objects[x]}")
        return super().info(x)

    def axis(self, axis: int, ndim: int) -> int:
        """An axis counted from the front. Raises `UnsupportedError` if it is out of range."""
        if not -ndim <= axis < ndim:
            raise UnsupportedError(f"expected an axis of a tensor of {ndim} dimensions, found {axis}")
        return axis + ndim if axis < 0 else axis

    def is_one(self, extent: Any) -> bool:
        """Whether an extent is 1."""
        return isinstance(extent, int) and extent == 1

    def cast(self, x: Expr, dtype: str) -> Expr:
        """The tensor in a dtype; itself if it has it. Floats of 4 bits are cast by the runtime, not by kernels."""
        own = self.dtype(x)
        if own != dtype and FLOAT4 in (own, dtype) and self.array(x) is None:
            return runtime_value(self, "vm.builtin.cast", [x, dtype], TensorStructInfo(self.shape(x), dtype))
        return super().cast(x, dtype)

    # -- elements --

    def array(self, x: Any) -> np.ndarray | None:
        """The elements of a constant; None for anything else."""
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
        """Notes the elements of a tensor that is not a constant."""
        if not isinstance(x, Constant):
            self.known[x] = elements
        return x

    def of_elements(self, elements: Any, dtype: str) -> Expr:
        """A tensor of integers and expressions: of an array or list of them, or of one."""
        elements = np.asarray(elements, dtype=object)
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
            raise UnsupportedError(f"{what} must be known while compiling; make it an initializer of the model")
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
            self.block_builder.match_cast(values, ShapeStructInfo(variables))
            found = self.known[x] = np.array(variables, dtype=object).reshape(shape)
        return found.reshape(-1).tolist()

    def fields(self, value: Expr) -> list[Expr]:
        """The fields of a tuple."""
        value = self.emit(value)
        if isinstance(value, Tuple):
            return list(value.fields)
        info = value.struct_info
        assert isinstance(info, TupleStructInfo)
        return [self.emit(TupleGetItem(value, i)) for i in range(len(info.fields))]

    # -- what is asserted of shapes when the program runs --

    def asserted(self, x: Expr, extents: Sequence[Any]) -> Expr:
        """The tensor with extents that a match_cast asserts when the program runs; itself if it has them."""
        if all(map(self.same, self.shape(x), extents)):
            return x
        return self.block_builder.match_cast(x, TensorStructInfo(list(extents), self.dtype(x)))

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


def _literal(expr: Expr) -> Any:
    """The value of a constant argument; None for others."""
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
    """Whether the number of elements of a result is known, and small."""
    if isinstance(info, TupleStructInfo):
        return all(map(_is_small, info.fields))
    if not isinstance(info, TensorStructInfo) or info.extents is None:
        return False
    extents = [e.value for e in info.extents if isinstance(e, IntImm)]
    return len(extents) == len(info.extents) and math.prod(extents) <= LARGEST_FOLDED
