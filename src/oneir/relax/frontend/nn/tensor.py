"""Symbolic tensors, parameters, objects and effects: the values that the methods of modules compute with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.expr import FloatImm, IntImm
from ....ir.expr import Var as TirVar
from ....runtime.device import Device, device
from ....runtime.error import InvalidValue, ShapeMismatch, TypeMismatch
from ....runtime.hook import Hook
from ....runtime.tensor import Tensor as RuntimeTensor
from ....runtime.tensor import from_dlpack
from ...block_builder import BlockBuilder
from ...expr import DataflowVar, Expr, TupleGetItem, Var, const
from ...expr import Tuple as GraphTuple
from ...struct_info import ObjectStructInfo, TensorStructInfo, TupleStructInfo

operator: Hook[..., Any] = Hook("operator", "oneir.relax.frontend.nn.op")
"""Calls the operator of `nn.op` whose name is the first argument: methods of tensors are such calls."""

_default_dtype = "float32"


def get_default_dtype() -> str:
    """The dtype of parameters that are made without one."""
    return _default_dtype


def set_default_dtype(dtype: str) -> None:
    """Sets the dtype of parameters that are made without one."""
    global _default_dtype
    _default_dtype = dtype


class Tensor:
    """A symbolic tensor: a graph expression whose shape and dtype are known.

    Python's operators and the usual methods call the operators of `nn.op`; a number takes the dtype of the tensor.
    """

    def __init__(self, *, _expr: Expr):
        info = _expr.struct_info
        if not isinstance(info, TensorStructInfo) or info.extents is None:
            raise TypeMismatch(f"expected a tensor of known shape, found `{_expr}` with struct info {info}")
        self._expr = _expr

    @staticmethod
    def from_const(data: Any) -> Tensor:
        """A constant from an array, a list or a number."""
        return Tensor(_expr=const(data))

    @staticmethod
    def from_scalar(data: int | float, dtype: str) -> Tensor:
        """A number as a constant without dimensions."""
        return Tensor(_expr=const(data, dtype))

    @staticmethod
    def from_struct_info(struct_info: TensorStructInfo, name: str = "tensor") -> Tensor:
        """A variable of the given struct info."""
        return Tensor(_expr=Var(name, struct_info))

    @staticmethod
    def placeholder(shape: Sequence[Any], dtype: str, name: str = "tensor") -> Tensor:
        """A variable of the given shape; texts in the shape name new symbolic variables."""
        extents = [TirVar(e, "int64") if isinstance(e, str) else e for e in shape]
        return Tensor.from_struct_info(TensorStructInfo(extents, dtype), name)

    @property
    def _info(self) -> TensorStructInfo:
        info = self._expr.struct_info
        assert isinstance(info, TensorStructInfo)
        return info

    @property
    def shape(self) -> list[Any]:
        """The extents: integers, and expressions where they are symbolic."""
        return [e.value if isinstance(e, IntImm) else e for e in self._info.extents or ()]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._info.ndim

    @property
    def dtype(self) -> str:
        """The dtype."""
        return self._info.dtype

    def __repr__(self) -> str:
        return f'Tensor({self.shape}, "{self.dtype}")'

    # -- operators --

    def _operand(self, other: Any) -> Any:
        if isinstance(other, (FloatImm, IntImm)):
            other = other.value
        return Tensor.from_scalar(other, self.dtype) if isinstance(other, (int, float)) else other

    def __add__(self, other: Any) -> Tensor:
        return operator("add", self, self._operand(other))

    def __radd__(self, other: Any) -> Tensor:
        return operator("add", self, self._operand(other))

    def __sub__(self, other: Any) -> Tensor:
        return operator("subtract", self, self._operand(other))

    def __rsub__(self, other: Any) -> Tensor:
        return operator("subtract", self._operand(other), self)

    def __mul__(self, other: Any) -> Tensor:
        return operator("multiply", self, self._operand(other))

    def __rmul__(self, other: Any) -> Tensor:
        return operator("multiply", self, self._operand(other))

    def __truediv__(self, other: Any) -> Tensor:
        return operator("divide", self, self._operand(other))

    def __rtruediv__(self, other: Any) -> Tensor:
        return operator("divide", self._operand(other), self)

    def __lt__(self, other: Any) -> Tensor:
        return operator("less", self, self._operand(other))

    def __le__(self, other: Any) -> Tensor:
        return operator("less_equal", self, self._operand(other))

    def __gt__(self, other: Any) -> Tensor:
        return operator("greater", self, self._operand(other))

    def __ge__(self, other: Any) -> Tensor:
        return operator("greater_equal", self, self._operand(other))

    def astype(self, dtype: str) -> Tensor:
        """The tensor in another dtype."""
        return operator("astype", self, dtype)

    def maximum(self, other: Any) -> Tensor:
        """The larger of both, elementwise."""
        return operator("maximum", self, self._operand(other))

    def minimum(self, other: Any) -> Tensor:
        """The smaller of both, elementwise."""
        return operator("minimum", self, self._operand(other))

    def reshape(self, *shape: Any) -> Tensor:
        """The elements in another shape."""
        return operator("reshape", self, _flat(shape))

    def permute_dims(self, *axes: Any) -> Tensor:
        """The tensor with its dimensions in another order; in reverse if none is given."""
        return operator("permute_dims", self, axes=_flat(axes) or None)

    def repeat(self, repeats: int, axis: int | None = None) -> Tensor:
        """Each element, several times."""
        return operator("repeat", self, repeats, axis)


class Parameter(Tensor):
    """A weight of a module. Its value, `data`, may be set before or after the export, or never.

    `attrs` is for whatever a user wants to remember of the parameter.
    """

    def __init__(self, shape: Sequence[Any], dtype: str | None = None):
        super().__init__(_expr=Tensor.placeholder(shape, dtype or get_default_dtype(), "param")._expr)
        self._data: RuntimeTensor | None = None
        self.attrs: OrderedDict[str, Any] = OrderedDict()

    @property
    def data(self) -> RuntimeTensor | None:
        """The value, or None."""
        return self._data

    @data.setter
    def data(self, data: Any) -> None:
        """Sets the value: an array or tensor of any library that speaks DLPack, whose memory is shared, or None."""
        if data is None:
            self._data = None
            return
        value = share(data)
        if value.shape != tuple(self.shape):
            raise ShapeMismatch(f"Shape mismatch: expected {tuple(self.shape)}, got {value.shape}")
        if value.dtype != self.dtype:
            raise TypeMismatchOfParameter(f"Dtype mismatch: expected {self.dtype}, got {value.dtype}")
        self._data = value

    def to(self, dtype: str | None = None) -> None:
        """Changes the dtype of a parameter that has no value yet."""
        if dtype is None:
            return
        if self._data is not None:
            raise InvalidValue(
                f"the dtype of a parameter that has a value cannot be changed (to {dtype}): convert the value, or call "
                "`to` before the weights are loaded"
            )
        self._expr = Tensor.placeholder(self.shape, dtype, "param")._expr


class TypeMismatchOfParameter(TypeMismatch, ValueError):
    """A value of another dtype than the parameter's."""


def share(data: Any) -> RuntimeTensor:
    """A runtime tensor over the memory of an array or tensor of any library."""
    if isinstance(data, RuntimeTensor):
        return data
    if not isinstance(data, np.ndarray) and not hasattr(data, "__dlpack__"):
        raise TypeMismatch(f"expected an array or a tensor, found {data!r} of type {type(data).__name__}")
    # PyTorch does not export tensors that require gradients.
    detach = getattr(data, "detach", None)
    return from_dlpack(data if detach is None else detach())


class Object:
    """A value that is no tensor, such as a cache."""

    def __init__(self, *, _expr: Expr, _name: str):
        expr = _expr if isinstance(_expr, Var) else current_builder().emit(_expr, _name)
        if not isinstance(expr.struct_info, ObjectStructInfo):
            raise TypeMismatch(f"expected an object, found `{expr}` with struct info {expr.struct_info}")
        self._expr: Expr = expr


class Effect:
    """Something with a state that methods take and give back: what is printed, a cache that grows."""

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        """Emits what makes the first state."""
        raise NotImplementedError

    def create(self, name_hint: str) -> list[Var]:
        """The parameters through which a method takes the state."""
        raise NotImplementedError

    def set_state(self, state_vars: list[Var]) -> None:
        """Sets the variables that hold the state now."""
        raise NotImplementedError

    def finalize(self) -> list[Var]:
        """The variables that hold the state when a method ends."""
        raise NotImplementedError

    def to(self, dtype: str | None = None) -> None:
        """Changes the dtype of the state, where it has one."""


def current_builder() -> BlockBuilder:
    """The builder of the program that is being exported."""
    builder = BlockBuilder.current()
    if builder is None:
        raise InvalidValue(
            "operators of nn run while a module is exported: call module.export_tvm(spec), or use them inside of "
            "`with BlockBuilder().function(name)`"
        )
    return builder


def wrap_nested(expr: Expr, name: str) -> Any:
    """Emits an expression and wraps its variable: a `Tensor`, or a tuple of them."""
    builder = current_builder()
    if not isinstance(expr, DataflowVar):
        expr = builder.emit(expr, name)
    info = expr.struct_info
    if isinstance(info, TensorStructInfo):
        return Tensor(_expr=expr)
    if isinstance(info, TupleStructInfo):
        return tuple(wrap_nested(TupleGetItem(expr, i), f"{name}.{i}") for i in range(len(info.fields)))
    if isinstance(info, ObjectStructInfo):
        return Object(_expr=expr, _name=name)
    raise TypeMismatch(f"expected a tensor or a tuple of tensors, found `{expr}` with struct info {info}")


def unwrapped(result: Any) -> Expr:
    """What a method returned as an expression."""
    if isinstance(result, (Tensor, Object)):
        return result._expr
    if isinstance(result, (tuple, list)):
        return GraphTuple([unwrapped(r) for r in result])
    raise TypeMismatch(
        f"a method returns tensors, objects, or tuples and lists of these, found {result!r} of type "
        f"{type(result).__name__}"
    )


def _flat(values: tuple[Any, ...]) -> list[Any]:
    """Arguments given one by one or as one list."""
    if len(values) == 1 and isinstance(values[0], (list, tuple)):
        return list(values[0])
    return [v for v in values if v is not None]


def as_device(value: str | Device) -> Device:
    """A device from its text, such as "cpu" or "cuda:1"."""
    return value if isinstance(value, Device) else device(value)
