"""Python's operators and the usual methods over `nn.Tensor`; each calls the operator of that name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....ir.expr import FloatImm, IntImm

if TYPE_CHECKING:
    from .core import Tensor


def _apply(name: str, *args: Any, **kwargs: Any) -> Any:
    from . import op

    return getattr(op, name)(*args, **kwargs)


class TensorOperators:
    """Mixed into `Tensor`. A number takes the dtype of the tensor that it meets."""

    if TYPE_CHECKING:

        @property
        def dtype(self) -> str: ...

    def _operand(self, other: Any) -> Any:
        from .core import Tensor

        if isinstance(other, (FloatImm, IntImm)):
            other = other.value
        return Tensor.from_scalar(other, self.dtype) if isinstance(other, (int, float)) else other

    def __add__(self, other: Any) -> Tensor:
        return _apply("add", self, self._operand(other))

    def __radd__(self, other: Any) -> Tensor:
        return _apply("add", self, self._operand(other))

    def __sub__(self, other: Any) -> Tensor:
        return _apply("subtract", self, self._operand(other))

    def __rsub__(self, other: Any) -> Tensor:
        return _apply("subtract", self._operand(other), self)

    def __mul__(self, other: Any) -> Tensor:
        return _apply("multiply", self, self._operand(other))

    def __rmul__(self, other: Any) -> Tensor:
        return _apply("multiply", self, self._operand(other))

    def __truediv__(self, other: Any) -> Tensor:
        return _apply("divide", self, self._operand(other))

    def __rtruediv__(self, other: Any) -> Tensor:
        return _apply("divide", self._operand(other), self)

    def __lt__(self, other: Any) -> Tensor:
        return _apply("less", self, self._operand(other))

    def __le__(self, other: Any) -> Tensor:
        return _apply("less_equal", self, self._operand(other))

    def __gt__(self, other: Any) -> Tensor:
        return _apply("greater", self, self._operand(other))

    def __ge__(self, other: Any) -> Tensor:
        return _apply("greater_equal", self, self._operand(other))

    def astype(self, dtype: str) -> Tensor:
        """The tensor in another dtype."""
        return _apply("astype", self, dtype)

    def maximum(self, other: Any) -> Tensor:
        """The larger of both, elementwise."""
        return _apply("maximum", self, self._operand(other))

    def minimum(self, other: Any) -> Tensor:
        """The smaller of both, elementwise."""
        return _apply("minimum", self, self._operand(other))

    def reshape(self, *shape: Any) -> Tensor:
        """The elements in another shape."""
        return _apply("reshape", self, _flat(shape))

    def permute_dims(self, *axes: Any) -> Tensor:
        """The tensor with its dimensions in another order; in reverse if none is given."""
        return _apply("permute_dims", self, axes=_flat(axes) or None)

    def repeat(self, repeats: int, axis: int | None = None) -> Tensor:
        """Each element, several times."""
        return _apply("repeat", self, repeats, axis)


def _flat(values: tuple[Any, ...]) -> list[Any]:
    """Arguments given one by one or as one list."""
    if len(values) == 1 and isinstance(values[0], (list, tuple)):
        return list(values[0])
    return [v for v in values if v is not None]
