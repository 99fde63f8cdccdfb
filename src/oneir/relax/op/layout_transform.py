"""Tensors in other layouts in memory, as index maps describe them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import te
from ...ir.expr import IntImm, PrimExpr, Range, as_expr, const
from ...ir.visitor import Mapper
from ...runtime.error import TypeMismatch
from ...tir.buffer import Buffer
from ...tir.function import PrimFunc
from ...tir.index_map import IndexMap
from ...tir.op import if_then_else
from ...tir.stmt import BufferRegion, BufferStore
from ..emit_te import gen_call_tir_inputs
from ..expr import Call, Expr, PrimValue
from ..operator_facts import OpPattern
from ..struct_info import VOID, StructInfo, TensorStructInfo
from .arguments import integer
from .base import call_tir
from .inference import fail, tensor_argument
from .manipulate import of_shape, unknown_shape
from .op_attrs import LayoutTransformAttrs
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


@operator("relax.layout_transform", pattern=OpPattern.INJECTIVE, attrs=LayoutTransformAttrs)
def layout_transform(
    x: Expr,
    index_map: Callable[..., Any] | IndexMap,
    pad_value: Any = None,
    axis_separators: Any = None,
    input_axis_separators: Any = None,
) -> Call:
    """The tensor whose element at `index_map(i, j, ...)` is x[i, j, ...].

    Elements to which none is mapped are `pad_value`, or anything if none is given. The axis separators are those of
    the buffers of the result and of `x`: the dimensions between two of them are one in memory.
    """
    made = index_map if isinstance(index_map, IndexMap) else IndexMap.from_func(index_map, index_dtype="int64")
    if pad_value is not None and not isinstance(pad_value, PrimValue):
        dtype = x.struct_info.dtype
        pad_value = PrimValue(as_expr(pad_value) if isinstance(pad_value, PrimExpr) else const(pad_value, dtype))
    return layout_transform.call(
        x,
        index_map=made,
        pad_value=pad_value,
        axis_separators=_positions(axis_separators),
        input_axis_separators=_positions(input_axis_separators),
    )


def _positions(separators: Any) -> list[int]:
    return [integer(s) for s in separators or ()]


layout_transform.follow_precision()


@layout_transform.struct_info
def _layout_transform_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, index_map, pad = tensor_argument(call, 0), call.attrs["index_map"], call.attrs["pad_value"]
    if pad is not None and info.dtype not in (VOID, pad.value.dtype):
        raise fail(call, f"pad_value must be of the tensor's {info.dtype}, found {pad.value.dtype}", TypeMismatch)
    count = len(index_map.initial_indices)
    if info.ndim not in (-1, count):
        raise fail(call, f"the index map takes {count} indices, the tensor has {info.ndim} dimensions")
    if info.extents is None:
        return unknown_shape(info, len(index_map.final_indices))
    return of_shape(info, index_map.map_shape(info.extents))


@layout_transform.reference
def _layout_transform_reference(x: np.ndarray, index_map: IndexMap, pad_value: Any, **separators: Any) -> np.ndarray:
    moved = index_map.map_tensor(x).numpy()
    if pad_value is None:
        return moved
    filled = index_map.map_tensor(np.ones(x.shape, bool)).numpy()
    return np.where(filled, moved, np.asarray(pad_value.value.value, x.dtype))


class _InLayout(Mapper):
    """Puts other buffers in the places of a function's; of one of them, accesses are by mapped indices."""

    def __init__(self, buffers: dict[Buffer, Buffer], moved: Buffer, index_map: IndexMap | None):
        super().__init__()
        self.buffers, self.moved, self.index_map = buffers, moved, index_map

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)

    def visit_BufferStore(self, store: BufferStore) -> Any:
        if store.buffer is not self.moved or self.index_map is None:
            return self.generic_visit(store)
        indices = self.index_map.map_indices(store.indices)
        return BufferStore(self.buffers[self.moved], self.visit(store.value), indices)

    def visit_BufferRegion(self, region: BufferRegion) -> Any:
        if region.buffer is not self.moved or self.index_map is None:
            return self.generic_visit(region)
        indices = self.index_map.map_indices([r.min for r in region.region])
        return BufferRegion(self.buffers[self.moved], [Range.from_min_extent(i, 1) for i in indices])


@layout_transform.legalize_as
def _legalize_layout_transform(builder: BlockBuilder, call: Call) -> Expr:
    x, index_map, pad = call.args[0], call.attrs["index_map"], call.attrs["pad_value"]
    extents = tensor_argument(call, 0).extents
    if extents is None:
        raise fail(call, f"the shape of `{x}` is not known: {x.struct_info}; cast it with match_cast")
    _, padded = index_map.non_surjective_inverse(extents)
    exact = isinstance(padded, IntImm) and not padded.value
    separators = (call.attrs["input_axis_separators"], call.attrs["axis_separators"])
    name = f"te_layout_transform{'' if exact else '_with_pad'}{'_axis_separator' if separators[1] else ''}"
    shape = index_map.map_shape(extents)

    def copied(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *i: data(*i), name=name)

    def with_padding(data: te.Tensor) -> te.Tensor:
        inner, outside = index_map.non_surjective_inverse(data.shape)
        filling = const(0, data.dtype) if pad is None else pad.value
        where = IndexMap(inner.initial_indices, [outside])

        def element(*i: Any) -> PrimExpr:
            return if_then_else(where.map_indices(i)[0], filling, data(*inner.map_indices(i)))

        return te.compute(index_map.map_shape(data.shape), element, name=name)

    func, values, _, tir_vars = gen_call_tir_inputs(copied if exact else with_padding, x)
    func = _with_layout(func, index_map if exact else None, separators)
    result = TensorStructInfo(shape, x.struct_info.dtype)
    return call_tir(builder.add_func(func, name), values, result, tir_vars)


def _with_layout(func: PrimFunc, index_map: IndexMap | None, separators: tuple[Any, Any]) -> PrimFunc:
    """The function of one input and one output with its output in the layout of a map, and axis separators."""
    source, target = (func.buffer_map[p] for p in func.params[:2])
    shape = target.shape if index_map is None else index_map.map_shape(target.shape)
    buffers = {
        source: source.replace(axis_separators=separators[0]),
        target: target.replace(shape=shape, axis_separators=separators[1]),
    }
    body = _InLayout(buffers, target, index_map)(func.body)
    buffer_map = {p: buffers.get(b, b) for p, b in func.buffer_map.items()}
    return func.replace(body=body, buffer_map=buffer_map)
