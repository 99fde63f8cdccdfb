"""PyTorch's dtypes, and what dtype a result has whose operands differ."""

from __future__ import annotations

from typing import Any

from ....ir.expr import IntImm, PrimExpr
from ....runtime.error import UnsupportedError
from ... import op
from ...expr import Expr, ShapeExpr, const
from ...struct_info import TensorStructInfo

_NAMES = {
    "torch.float32": "float32",
    "torch.float64": "float64",
    "torch.float16": "float16",
    "torch.bfloat16": "bfloat16",
    "torch.int8": "int8",
    "torch.int16": "int16",
    "torch.int32": "int32",
    "torch.int64": "int64",
    "torch.uint8": "uint8",
    "torch.uint16": "uint16",
    "torch.uint32": "uint32",
    "torch.uint64": "uint64",
    "torch.bool": "bool",
    "torch.float8_e4m3fn": "float8_e4m3fn",
    "torch.float8_e5m2": "float8_e5m2",
}
_ALIASES = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32"}


def dtype_name(dtype: Any) -> str:
    """Our name of a PyTorch dtype, or of a text such as "float" or "float32"."""
    text = str(dtype).lower()
    text = _ALIASES.get(text, text)
    name = _NAMES.get(text if text.startswith("torch.") else f"torch.{text}")
    if name is None:
        raise UnsupportedError(
            f"tensors of dtype {dtype} cannot be imported; convert the model to one of {', '.join(_NAMES.values())}"
        )
    return name


def torch_dtype(name: str) -> Any:
    """PyTorch's dtype of our name."""
    import torch

    return getattr(torch, name)


def default_float() -> str:
    """The dtype of floats that are made without one."""
    import torch

    return dtype_name(torch.get_default_dtype())


def is_float(dtype: str) -> bool:
    """Whether a dtype is one of floats."""
    return "float" in dtype


def _rank(dtype: str) -> int:
    return 2 if is_float(dtype) else 0 if dtype == "bool" else 1


def _joined(dtypes: list[str]) -> str:
    import torch

    result = torch_dtype(dtypes[0])
    for dtype in dtypes[1:]:
        result = torch.promote_types(result, torch_dtype(dtype))
    return dtype_name(result)


def result_dtype(*values: Any) -> str:
    """The dtype of an elementwise result, by PyTorch's rules.

    Tensors without dimensions count only where their kind (bool, integer, float) is above that of the others, numbers
    where theirs is above that of all tensors.
    """
    groups: list[list[str]] = [[], [], []]
    for value in values:
        if isinstance(value, Expr):
            info = value.struct_info
            assert isinstance(info, TensorStructInfo)
            groups[0 if info.ndim != 0 else 1].append(info.dtype)
        elif isinstance(value, bool):
            groups[2].append("bool")
        else:
            groups[2].append("int64" if isinstance(value, (int, PrimExpr)) else default_float())
    result: str | None = None
    for group in groups:
        if group:
            joined = _joined(group)
            if result is None or _rank(joined) > _rank(result):
                result = joined
    assert result is not None
    return result


def cast(x: Expr, dtype: str) -> Expr:
    """The tensor in a dtype; itself if it has it."""
    info = x.struct_info
    assert isinstance(info, TensorStructInfo)
    return x if info.dtype == dtype else op.astype(x, dtype)


def as_operand(value: Any, dtype: str) -> Expr:
    """A tensor, a number or a symbolic integer as a tensor of a dtype."""
    if isinstance(value, Expr):
        return cast(value, dtype)
    if isinstance(value, IntImm):
        value = value.value
    if isinstance(value, PrimExpr):
        scalar = op.reshape(op.shape_to_tensor(ShapeExpr([value])), ShapeExpr([]))
        return op.astype(scalar, dtype) if dtype != "int64" else scalar
    return const(value, dtype)


def as_fill(value: Any, dtype: str) -> Expr:
    """What a tensor is filled with, which is cast to its dtype: a number in Python's dtype where that is exact."""
    if isinstance(value, bool):
        return const(value, "bool")
    if isinstance(value, int) and -(1 << 31) <= value < 1 << 31:
        return const(value, "int32")
    if isinstance(value, float) and dtype != "float64":
        return const(value, "float32")
    return as_operand(value, dtype)


def unified(*values: Any, at_least_float: bool = False) -> list[Expr]:
    """Operands of an elementwise operator, brought to the dtype of its result."""
    dtype = result_dtype(*values)
    if at_least_float and not is_float(dtype):
        dtype = default_float()
    return [as_operand(v, dtype) for v in values]
