"""Tensors of tensor expressions, and the operations that make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir import operators as ops
from ..ir.container import EMPTY, Array
from ..ir.dtype import DataType
from ..ir.expr import EqualOp, ExprOp, PrimExpr, as_expr
from ..ir.node import Node, as_array, attr, binder, child
from ..ir.visitor import post_order_visit
from ..runtime.error import InvalidValue, TypeMismatch
from ..runtime.hook import Hook
from ..runtime.object import ObjectConvertible
from ..tir.buffer import Buffer, DataProducer
from ..tir.expr import IterVar, ProducerLoad, expr_array
from ..tir.stmt import Stmt

tensor_operator: Hook[[str, Any, Any], Any] = Hook("tensor_operator", "oneir.topi")
"""What Python's operator of a name ("add", "subtract", "multiply", "divide") makes of tensors, element by element."""


class TensorSlice(ExprOp, ObjectConvertible):
    """A tensor with some indices given; an expression once all are, by its operators or by further indexing."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: Any):
        self.tensor = tensor
        self.indices = indices if isinstance(indices, tuple) else (indices,)

    def __getitem__(self, indices: Any) -> TensorSlice:
        return TensorSlice(self.tensor, self.indices + (indices if isinstance(indices, tuple) else (indices,)))

    def __prim_expr__(self) -> PrimExpr:
        return self.tensor(*self.indices)

    asobject = __prim_expr__

    @property
    def dtype(self) -> DataType:
        """The element's dtype."""
        return self.tensor.dtype


class Tensor(ExprOp, DataProducer, shared=True):
    """The `value_index`-th output of an operation.

    `A[i, j]` and `A(i, j)` are its elements. Indices below zero count from the end.
    """

    shape: Array[PrimExpr] = child(converter=expr_array)
    dtype: DataType = attr(converter=DataType)
    op: Operation = child()
    value_index: int = 0

    def __call__(self, *indices: Any) -> ProducerLoad:
        items = [i.var if isinstance(i, IterVar) else as_expr(i) for i in indices]
        if len(items) != len(self.shape):
            raise TypeMismatch(f"tensor `{self.name}` has {len(self.shape)} dimensions, found {len(items)} indices")
        return ProducerLoad(self, [_from_end(i, d) for i, d in zip(items, self.shape, strict=True)])

    def __getitem__(self, indices: Any) -> TensorSlice:
        return TensorSlice(self, indices)

    def __prim_expr__(self) -> PrimExpr:
        if self.shape:
            raise TypeMismatch(f"tensor `{self.name}` has {len(self.shape)} dimensions; index it to get a value")
        return self()

    def __add__(self, other: Any) -> Any:
        return self._operate("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._operate("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._operate("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._operate("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._operate("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._operate("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._operate("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._operate("divide", other, self)

    def _operate(self, name: str, lhs: Any, rhs: Any) -> Any:
        """A tensor over all elements; of scalars, which are expressions, an expression."""
        elementwise = any(isinstance(side, Tensor) and side.shape for side in (lhs, rhs))
        return tensor_operator(name, lhs, rhs) if elementwise else _SCALAR_OPERATORS[name](lhs, rhs)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Tensor):
            same = self.op is other.op and self.value_index == other.value_index
            return same if self.shape or other.shape or same else EqualOp(self, other)
        return False if self.shape else EqualOp(self, other)

    def __ne__(self, other: object) -> Any:
        result = self.__eq__(other)
        return not result if isinstance(result, bool) else ops.not_equal(self, other)

    def __hash__(self) -> int:
        return (id(self.op) >> 4) + self.value_index

    def __str__(self) -> str:
        return f"Tensor(shape={list(self.shape)}, op.name={self.op.name})"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def axis(self) -> Array[IterVar]:
        """The iteration variables of the dimensions."""
        return getattr(self.op, "axis", Array())

    @property
    def name(self) -> str:
        """The name of the operation; with the output's number when there are several."""
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}.v{self.value_index}"


_SCALAR_OPERATORS = {"add": ops.add, "subtract": ops.subtract, "multiply": ops.multiply, "divide": ops.divide}


def _from_end(index: PrimExpr, extent: PrimExpr) -> PrimExpr:
    value = getattr(index, "value", None)
    if isinstance(value, int) and value < 0:
        return ops.add(extent, index)
    return index


class Operation(Node, shared=True):
    """Base of what makes tensors."""

    name: str
    tag: str = ""
    attrs: Mapping[str, Any] = attr(default=EMPTY)

    def output(self, index: int) -> Tensor:
        """The tensor of one output."""
        raise NotImplementedError

    @property
    def num_outputs(self) -> int:
        """How many tensors it makes."""
        return 1

    @property
    def input_tensors(self) -> Array[Tensor]:
        """The tensors that it reads, each once, in the order of reading."""
        return Array()

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.num_outputs:
            raise InvalidValue(f"`{self.name}` has {self.num_outputs} outputs, found index {index}")
        return index


class PlaceholderOp(Operation):
    """A tensor given from outside."""

    shape: Array[PrimExpr] = child(default=(), converter=expr_array)
    dtype: DataType = attr(default="float32", converter=DataType)

    def output(self, index: int) -> Tensor:
        return Tensor(self.shape, self.dtype, self, self._checked(index))


class BaseComputeOp(Operation):
    """Base of operations over iteration variables."""

    axis: Array[IterVar] = binder(default=(), converter=as_array)
    reduce_axis: Array[IterVar] = binder(default=(), converter=as_array)

    @property
    def shape(self) -> Array[PrimExpr]:
        """The extents of the iteration variables."""
        return Array(iv.dom.extent for iv in self.axis if iv.dom is not None)


class ComputeOp(BaseComputeOp):
    """One expression, or a tuple of them, for each element."""

    body: Array[PrimExpr] = child(default=(), converter=expr_array)

    @property
    def num_outputs(self) -> int:
        return len(self.body)

    def output(self, index: int) -> Tensor:
        return Tensor(self.shape, self.body[self._checked(index)].dtype, self, index)

    @property
    def input_tensors(self) -> Array[Tensor]:
        found: dict[Tensor, None] = {}

        def note(node: Any) -> None:
            if isinstance(node, ProducerLoad):
                found.setdefault(node.producer)

        for value in self.body:
            post_order_visit(value, note)
        return Array(found)


class ScanOp(Operation):
    """A recurrence along the first dimension: `update` computes a state from earlier ones, `init` the first."""

    scan_axis: IterVar = binder(default=None)
    init: Array[Tensor] = child(default=(), converter=as_array)
    update: Array[Tensor] = child(default=(), converter=as_array)
    state_placeholder: Array[Tensor] = child(default=(), converter=as_array)
    inputs: Array[Tensor] = child(default=(), converter=as_array)

    @property
    def num_outputs(self) -> int:
        return len(self.update)

    def output(self, index: int) -> Tensor:
        state = self.state_placeholder[self._checked(index)]
        return Tensor(state.shape, state.dtype, self, index)

    @property
    def input_tensors(self) -> Array[Tensor]:
        return Array(dict.fromkeys([*self.init, *self.update, *self.inputs]))


class ExternOp(Operation):
    """A statement over buffers, written by hand or a call into a library."""

    inputs: Array[Tensor] = child(default=(), converter=as_array)
    input_placeholders: Array[Buffer] = child(default=(), converter=as_array)
    output_placeholders: Array[Buffer] = child(default=(), converter=as_array)
    body: Stmt | None = child(default=None)

    @property
    def num_outputs(self) -> int:
        return len(self.output_placeholders)

    def output(self, index: int) -> Tensor:
        buffer = self.output_placeholders[self._checked(index)]
        return Tensor(buffer.shape, buffer.dtype, self, index)

    @property
    def input_tensors(self) -> Array[Tensor]:
        return self.inputs
