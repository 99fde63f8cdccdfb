"""Calls that NumPy references do not cover: selection, control flow, addresses, external functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir import expr as e
from ...ir.dtype import DataType
from ...ir.op import Op
from ...runtime.registry import get_global_func
from ...runtime.tensor import Tensor
from ...tir.expr import BufferLoad
from .layout import VSCALE, lane_count, row_major
from .memory import Memory, Pointer, Violation, storage_dtype

if TYPE_CHECKING:
    from .expressions import Evaluator


class Return(Exception):
    """Leaves the function with a value."""

    def __init__(self, value: Any):
        self.value = value


class ThreadReturn(Exception):
    """Ends one thread of a kernel."""


class Break(Exception):
    """Leaves the innermost loop."""


class Continue(Exception):
    """Goes on with the next iteration of the innermost loop."""


def _raising(make: Callable[[], Exception]) -> Callable[[Evaluator, e.Call], Any]:
    def control(run: Evaluator, call: e.Call) -> Any:
        raise make()

    return control


def _ret(run: Evaluator, call: e.Call) -> Any:
    raise Return(run.plain(call.args[0]) if call.args else None)


def _if_then_else(run: Evaluator, call: e.Call) -> Any:
    condition = run.value(call.args[0])
    if call.args[0].dtype.is_scalar:
        return run.value(call.args[1] if run.arithmetic.plain(condition) else call.args[2])
    return run.arithmetic.select(condition, run.value(call.args[1]), run.value(call.args[2]))


def _first(run: Evaluator, call: e.Call) -> Any:
    return run.value(call.args[0])


def _nothing(run: Evaluator, call: e.Call) -> Any:
    return None


def _undef(run: Evaluator, call: e.Call) -> Any:
    return run.arithmetic.constant(call.dtype, 0)


def _assume(run: Evaluator, call: e.Call) -> Any:
    if not np.all(run.plain(call.args[0])):
        raise Violation(f"a condition that the program assumes does not hold: {call.args[0]}")


def _vscale(run: Evaluator, call: e.Call) -> Any:
    return np.int32(VSCALE)


def _reinterpret(run: Evaluator, call: e.Call) -> Any:
    value = run.value(call.args[0])
    if call.dtype.is_handle or call.args[0].dtype.is_handle:
        return value
    wanted = storage_dtype(call.dtype.element)
    value = np.atleast_1d(run.arithmetic.plain(value)).view(wanted)
    return value[0] if call.dtype.is_scalar else value


# -- lanes --


def _half(run: Evaluator, call: e.Call) -> Any:
    vector = run.value(call.args[-1])
    count = call.args[-1].dtype.lanes
    lanes = range(count // 2) if call.op.name.endswith("low") else range(count // 2, count)
    return run.arithmetic.shuffle([vector], lanes)


def _combine(run: Evaluator, call: e.Call) -> Any:
    return run.arithmetic.shuffle([run.value(a) for a in call.args[-2:]], range(call.dtype.lanes))


def _lane_mask(run: Evaluator, call: e.Call) -> Any:
    base, limit = run.integer(call.args[0]), run.integer(call.args[1])
    return np.arange(lane_count(call.dtype)) + base < limit


def _zero(run: Evaluator, call: e.Call) -> Any:
    return np.int32(0)


# -- addresses --


def _address_of(run: Evaluator, call: e.Call) -> Any:
    load = call.args[0]
    if not isinstance(load, BufferLoad):
        raise Violation(f"address_of expects an element of a buffer, found {load}")
    layout, pointer = run.layout(load.buffer), run.pointer(load.buffer)
    indices = [int(np.atleast_1d(run.plain(i))[0]) for i in load.indices]
    index = layout.offset + sum(i * s for i, s in zip(indices, layout.strides, strict=True))
    return Pointer(pointer.memory, pointer.offset + index * layout.itemsize * layout.lanes, load.buffer.dtype.element)


def _access_ptr(run: Evaluator, call: e.Call) -> Any:
    kind, data, offset = call.args[:3]
    pointer = run.value(data)
    if not isinstance(pointer, Pointer):
        raise Violation("tvm_access_ptr of a null pointer")
    memory = run.private_memory(pointer.memory) if run.coordinates else pointer.memory
    size = storage_dtype(kind.dtype.element).itemsize * kind.dtype.lanes
    return Pointer(memory, pointer.offset + run.integer(offset) * size, kind.dtype.element)


def _add_byte_offset(run: Evaluator, call: e.Call) -> Any:
    pointer = run.value(call.args[0])
    return Pointer(pointer.memory, pointer.offset + run.integer(call.args[1]), pointer.dtype)


def _isnullptr(run: Evaluator, call: e.Call) -> Any:
    return np.bool_(run.value(call.args[0]) is None)


def _dma_copy(run: Evaluator, call: e.Call) -> Any:
    """The copy is made at once: a program must not depend on when it is."""
    count = run.integer(call.args[3])
    target, source = (run.value(a) for a in call.args[1:3])
    byte = DataType("uint8")
    Pointer(target.memory, target.offset, byte).array(count=count)[:] = Pointer(
        source.memory, source.offset, byte
    ).array(count=count)
    return np.int32(0)


def _alloc_workspace(run: Evaluator, call: e.Call) -> Any:
    return Pointer(Memory.allocate(run.integer(call.args[2]), "workspace", "global", run.check), 0, None)


# -- functions outside of the program --


def _argument(run: Evaluator, node: Any) -> Any:
    """An argument as a Python function gets it: numbers, text, arrays for pointers."""
    value = run.plain(node)
    if isinstance(value, Pointer):
        dtype = value.dtype
        if dtype is None and isinstance(node, e.Var):
            dtype = getattr(getattr(node.type_annotation, "element_type", None), "dtype", None)
        return value.array(dtype)
    return value.item() if isinstance(value, np.generic) and value.dtype.isbuiltin == 1 else value


def _result(run: Evaluator, call: e.Call, result: Any) -> Any:
    if call.dtype in ("void", "handle"):
        return result
    return run.arithmetic.constant(call.dtype, 0 if result is None else result)


def _extern(run: Evaluator, call: e.Call) -> Any:
    """A C function: the Python function registered under its name, or the reference of the operator of that name."""
    name = run.plain(call.args[0])
    function = get_global_func(name, allow_missing=True)
    args = call.args[1:]
    if function is not None:
        return _result(run, call, function(*(_argument(run, a) for a in args)))
    reference = _reference_of(name)
    if reference is None:
        raise Violation(
            f"no function is registered as {name!r}; register a Python reference with register_func({name!r})"
        )
    return run.arithmetic.apply(reference, call.dtype.element, [run.value(a) for a in args])


def _reference_of(name: str) -> Callable[..., Any] | None:
    for candidate in (name, name.removesuffix("f")):
        if f"tir.{candidate}" in Op.list_op_names():
            return Op.get(f"tir.{candidate}").get_attr("reference")
    return None


def _llvm(run: Evaluator, call: e.Call) -> Any:
    parts = run.plain(call.args[0]).split(".")
    reference = _reference_of(parts[1]) if len(parts) > 1 else None
    if reference is None:
        raise Violation(f"the LLVM intrinsic {'.'.join(parts)} has no reference that the interpreter could run")
    return run.arithmetic.apply(reference, call.dtype.element, [run.value(a) for a in call.args[1:]])


def _packed(run: Evaluator, call: e.Call) -> Any:
    """A registered function; a function of the module by its symbol."""
    name = run.plain(call.args[0])
    args = [_argument(run, a) for a in call.args[1:]]
    return _result(run, call, get_global_func(name)(*args))


def _trace(run: Evaluator, call: e.Call) -> Any:
    """A registered function that sees values go by; None leaves the last of them as it is."""
    args = [_argument(run, a) for a in call.args[1:]]
    returned = get_global_func(run.plain(call.args[0]))(*args)
    return _result(run, call, args[-1] if returned is None else returned)


def _make_shape(run: Evaluator, call: e.Call) -> tuple[int, ...]:
    return tuple(run.integer(a) for a in call.args)


def _make_array(run: Evaluator, call: e.Call) -> Any:
    """A tensor over the memory of a buffer."""
    data, shape, strides, _, element, offset = call.args
    pointer, extents = run.value(data), run.value(shape)
    dtype: DataType = element.dtype
    steps = run.value(strides) if isinstance(strides, e.Call) else row_major(extents)
    start = pointer.offset + run.integer(offset) * storage_dtype(dtype.element).itemsize
    count = 1 + sum((d - 1) * s for d, s in zip(extents, steps, strict=True)) if 0 not in extents else 0
    items = Pointer(pointer.memory, start, dtype).array(count=count)
    address = items.__array_interface__["data"][0]
    return Tensor(address, extents, str(dtype), owner=items, strides=tuple(steps))


CALLS: dict[str, Callable[[Any, e.Call], Any]] = {
    "tir.ret": _ret,
    "tir.thread_return": _raising(ThreadReturn),
    "tir.break_loop": _raising(Break),
    "tir.continue_loop": _raising(Continue),
    "tir.if_then_else": _if_then_else,
    "tir.likely": _first,
    "tir.tvm_thread_invariant": _first,
    "tir.undef": _undef,
    "tir.assume": _assume,
    "tir.vscale": _vscale,
    "tir.prefetch": _nothing,
    "tir.type_annotation": _nothing,
    "tir.reinterpret": _reinterpret,
    "tir.vectorlow": _half,
    "tir.vectorhigh": _half,
    "tir.vectorcombine": _combine,
    "tir.get_active_lane_mask": _lane_mask,
    "tir.address_of": _address_of,
    "tir.tvm_access_ptr": _access_ptr,
    "tir.handle_add_byte_offset": _add_byte_offset,
    "tir.isnullptr": _isnullptr,
    "tir.dma_copy": _dma_copy,
    "tir.dma_wait": _zero,
    "tir.dma_start_group": _zero,
    "tir.dma_end_group": _zero,
    "tir.TVMBackendAllocWorkspace": _alloc_workspace,
    "tir.TVMBackendFreeWorkspace": _zero,
    "tir.call_extern": _extern,
    "tir.call_pure_extern": _extern,
    "tir.call_llvm_intrin": _llvm,
    "tir.call_llvm_pure_intrin": _llvm,
    "tir.tvm_call_packed": _packed,
    "tir.tvm_call_cpacked": _packed,
    "tir.tvm_call_trace_packed": _trace,
    "tir.tvm_stack_make_shape": _make_shape,
    "tir.tvm_stack_make_array": _make_array,
}
