"""Buffers of a script: `T.Buffer((128, 128), "float32")` as a value and as the annotation of a parameter."""

from __future__ import annotations

from typing import Any

from ...ir.expr import ExprOp, Var
from ...runtime.error import TypeMismatch
from ...tir.buffer import Buffer
from ...tir.buffer import decl_buffer as make_tir_buffer
from ...tir.expr import expr_array
from .dtypes import dtype_name


def make_buffer(
    shape: Any,
    dtype: Any = "float32",
    data: Var | None = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 0,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Any = None,
) -> Buffer:
    """A buffer without a name; strides may be given by the names of new variables."""
    if isinstance(shape, str):
        raise TypeMismatch(f"the shape of a buffer is a list or tuple of extents, found {shape!r}")
    shape = expr_array(shape)
    index = shape[0].dtype if shape else "int32"
    strides = [Var(s, index) if isinstance(s, str) else s for s in strides or ()]
    return make_tir_buffer(
        shape,
        dtype_name(dtype),
        "",
        data,
        strides,
        elem_offset,
        scope,
        align,
        offset_factor,
        buffer_type,
        axis_separators,
    )


class BufferMember:
    """`T.Buffer`: called or, as older scripts write it, indexed with shape and dtype."""

    def __call__(
        self,
        shape: Any,
        dtype: Any = "float32",
        data: Var | None = None,
        strides: Any = None,
        elem_offset: Any = None,
        scope: str = "global",
        align: int = 0,
        offset_factor: int = 0,
        buffer_type: str = "",
        axis_separators: Any = None,
    ) -> Buffer:
        return make_buffer(
            shape, dtype, data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators
        )

    def __getitem__(self, keys: Any) -> Buffer:
        if isinstance(keys, tuple) and len(keys) > 1 and not isinstance(keys[1], (int, ExprOp)):
            return self(*keys)
        return self(keys)

    def __repr__(self) -> str:
        return "T.Buffer"


buffer = BufferMember()
