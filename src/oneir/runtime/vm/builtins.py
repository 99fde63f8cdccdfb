"""The packed functions that bytecode calls besides kernels: for shapes, storage, tuples, closures and checks.

They have the names and arguments that lowered graphs use. A function that checks takes as its last argument the
beginning of its message: which function, which parameter, how it was declared.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import Device
from ..dtype import dlpack_dtype, numpy_dtype
from ..error import (
    AssertionFailure,
    ExecutionError,
    InvalidValue,
    NotRegistered,
    OneIRError,
    ShapeMismatch,
    TypeMismatch,
)
from ..object import ShapeTuple
from ..registry import get_global_func, register_func
from ..tensor import Tensor, tensor
from .storage import Storage

if TYPE_CHECKING:
    from .machine import VirtualMachine


class MatchShapeCode(enum.IntEnum):
    """What `vm.builtin.match_shape` does with an extent."""

    ASSERT_EQUAL_TO_IMM = 0
    STORE_TO_HEAP = 1
    NO_OP = 2
    ASSERT_EQUAL_TO_LOAD = 3


class MakeShapeCode(enum.IntEnum):
    """Where `vm.builtin.make_shape` takes an extent from."""

    USE_IMM = 0
    LOAD_SHAPE = 1


def _noun(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _fail(kind: type[OneIRError], context: str | None, message: str) -> OneIRError:
    return kind(f"{context.rstrip()} {message}" if context else message)


# Shapes --------------------------------------------------------------------------------------------------------------


@register_func("vm.builtin.alloc_shape_heap")
def alloc_shape_heap(vm: VirtualMachine, size: int) -> Tensor:
    """A shape heap: int64 memory for the values of `size` symbolic variables."""
    return vm.host_allocator.alloc(8 * size).alloc_tensor(0, (size,), "int64")


def _load(heap: Tensor | None, index: int) -> int:
    return int(_slot(heap, index)[0])


def _slot(heap: Tensor | None, index: int) -> np.ndarray:
    if heap is None or not 0 <= index < heap.size:
        found = "none" if heap is None else f"one of {heap.size} values"
        raise InvalidValue(f"the program refers to value {index} of a shape heap, and has {found}")
    return np.asarray(heap)[index : index + 1]


def _match(found: int, heap: Tensor | None, code: int, operand: int, what: str, context: str | None) -> None:
    if code == MatchShapeCode.STORE_TO_HEAP:
        _slot(heap, operand)[0] = found
    elif code in (MatchShapeCode.ASSERT_EQUAL_TO_IMM, MatchShapeCode.ASSERT_EQUAL_TO_LOAD):
        loaded = code == MatchShapeCode.ASSERT_EQUAL_TO_LOAD
        expected = _load(heap, operand) if loaded else operand
        if found != expected:
            why = "mismatch to a previous populated value" if loaded else "mismatch to specified constant"
            raise _fail(ExecutionError, context, f"match_cast error, {what} {why}: expected {expected}, found {found}")
    elif code != MatchShapeCode.NO_OP:
        raise InvalidValue(f"{code} is no code of what to do with an extent")


@register_func("vm.builtin.match_shape")
def match_shape(value: object, heap: Tensor | None, size: int, *codes: Any) -> None:
    """Compares the extents of a tensor or shape, or stores them in the shape heap.

    For each extent come a `MatchShapeCode` and its operand; the context of messages is the last argument.
    """
    shape = value.shape if isinstance(value, Tensor) else value
    context = codes[2 * size] if len(codes) > 2 * size else None
    if not isinstance(shape, tuple):
        raise _fail(TypeMismatch, context, f"match_cast expects a tensor or a shape, found {_noun(value)}")
    if len(shape) != size:
        raise _fail(
            ExecutionError, context, f"match_cast shape size mismatch: expected {size} extents, found {len(shape)}"
        )
    for axis, found in enumerate(shape):
        _match(found, heap, codes[2 * axis], codes[2 * axis + 1], f"shape[{axis}]", context)


@register_func("vm.builtin.match_prim_value")
def match_prim_value(value: int, heap: Tensor | None, code: int, operand: int, err_ctx: str | None = None) -> None:
    """Compares an integer, or stores it in the shape heap."""
    _match(int(value), heap, code, operand, "PrimExpr", err_ctx)


@register_func("vm.builtin.make_prim_value")
def make_prim_value(heap: Tensor | None, code: int, operand: int) -> int:
    """An integer: the operand, or the value of that slot of the shape heap."""
    if code == MakeShapeCode.USE_IMM:
        return operand
    if code == MakeShapeCode.LOAD_SHAPE:
        return _load(heap, operand)
    raise InvalidValue(f"{code} is no code of where an extent comes from")


@register_func("vm.builtin.make_shape")
def make_shape(heap: Tensor | None, size: int, *codes: int) -> ShapeTuple:
    """A shape. For each extent come a `MakeShapeCode` and its operand."""
    return ShapeTuple([make_prim_value(heap, codes[2 * axis], codes[2 * axis + 1]) for axis in range(size)])


@register_func("vm.builtin.shape_of")
def shape_of(value: object) -> ShapeTuple:
    """The shape of a tensor."""
    if not isinstance(value, Tensor):
        raise TypeMismatch(f"vm.builtin.shape_of expects a Tensor, found {_noun(value)}")
    return ShapeTuple(value.shape)


@register_func("vm.builtin.tensor_to_shape")
def tensor_to_shape(value: Tensor) -> ShapeTuple:
    """The values of a tensor of integers with one dimension, as a shape."""
    if value.ndim != 1 or not value.dtype.startswith("int"):
        raise TypeMismatch(
            "vm.builtin.tensor_to_shape expects a tensor of integers with one dimension, "
            f"found {value.dtype}{list(value.shape)}"
        )
    return ShapeTuple(value.numpy().tolist())


@register_func("relax.run.shape_to_tensor")
def shape_to_tensor(shape: ShapeTuple) -> Tensor:
    """The extents of a shape as a tensor of int64."""
    return tensor(np.array(shape, "int64"))


# Checks of arguments and results -------------------------------------------------------------------------------------


@register_func("vm.builtin.check_tensor_info")
def check_tensor_info(value: object, ndim: int, *rest: str | None) -> None:
    """Checks that a value is a tensor, of `ndim` dimensions unless that is -1, and of a dtype unless that is empty."""
    *dtypes, context = rest
    if not isinstance(value, Tensor):
        raise _fail(TypeMismatch, context, f"expect a Tensor but get {_noun(value)}")
    if ndim not in (-1, value.ndim):
        raise _fail(ShapeMismatch, context, f"expect Tensor with ndim {ndim} but get {value.ndim}")
    for dtype in dtypes:
        if dtype not in ("void", "", value.dtype):
            raise _fail(InvalidValue, context, f"expect Tensor with dtype {dtype} but get {value.dtype}")


@register_func("vm.builtin.check_shape_info")
def check_shape_info(value: object, ndim: int, err_ctx: str | None = None) -> None:
    """Checks that a value is a shape, of `ndim` extents unless that is -1."""
    if not isinstance(value, ShapeTuple):
        raise _fail(TypeMismatch, err_ctx, f"expect a Shape but get {_noun(value)}; make one with ShapeTuple(...)")
    if ndim not in (-1, len(value)):
        raise _fail(ShapeMismatch, err_ctx, f"expect Shape with ndim {ndim} but get {len(value)}")


_NUMBERS: dict[str, tuple[type, ...]] = {"int": (int,), "uint": (int,), "bool": (int,), "float": (int, float)}


@register_func("vm.builtin.check_prim_value_info")
def check_prim_value_info(value: object, dtype: str, err_ctx: str | None = None) -> None:
    """Checks that a value is a number that a dtype can represent."""
    kinds = next((kinds for prefix, kinds in _NUMBERS.items() if dtype.startswith(prefix)), ())
    if not isinstance(value, kinds):
        raise _fail(TypeMismatch, err_ctx, f"expected dtype {dtype}, but received {_noun(value)}")


@register_func("vm.builtin.check_tuple_info")
def check_tuple_info(value: object, size: int, err_ctx: str | None = None) -> None:
    """Checks that a value is a tuple of `size` fields."""
    if not isinstance(value, (tuple, list)) or isinstance(value, ShapeTuple):
        raise _fail(TypeMismatch, err_ctx, f"expect a Tuple but get {_noun(value)}")
    if len(value) != size:
        raise _fail(
            InvalidValue,
            err_ctx,
            f"expect a Tuple with {size} elements, but get a Tuple with {len(value)} elements.",
        )


@register_func("vm.builtin.check_func_info")
def check_func_info(value: object, err_ctx: str | None = None) -> None:
    """Checks that a value is a function."""
    if not callable(value):
        raise _fail(TypeMismatch, err_ctx, f"expect a Function but get {_noun(value)}")


# Memory --------------------------------------------------------------------------------------------------------------


@register_func("vm.builtin.alloc_storage")
def alloc_storage(
    vm: VirtualMachine, shape: tuple[int, ...], device_index: int, dtype: str, mem_scope: str = "global"
) -> Storage:
    """Memory for `shape` items of a dtype, on a device of the machine; -1 is the host."""
    if any(extent < 0 for extent in shape):
        raise ShapeMismatch(f"vm.builtin.alloc_storage: expected a size that is not negative, found {tuple(shape)}")
    return vm.allocator(device_index).alloc(math.prod(shape) * numpy_dtype(dtype).itemsize, mem_scope)


@register_func("vm.builtin.alloc_tensor")
def alloc_tensor(
    storage: Storage, offset: int, shape: tuple[int, ...], dtype: str, mem_scope: str = "global"
) -> Tensor:
    """A tensor in a storage, which must be large enough."""
    return storage.alloc_tensor(offset, tuple(shape), str(dtype))


@register_func("vm.builtin.null_value")
def null_value() -> None:
    """None. Storing it in a register releases the register's value."""


@register_func("vm.builtin.copy")
def copy(value: object) -> Any:
    """The value itself, for a copy from one register to another."""
    return value


@register_func("vm.builtin.reshape")
def reshape(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same memory with another shape."""
    if not isinstance(value, Tensor):
        raise TypeMismatch(f"vm.builtin.reshape expects a Tensor, found {_noun(value)}")
    if math.prod(shape) != value.size:
        raise ShapeMismatch(f"vm.builtin.reshape: a tensor of shape {value.shape} cannot have the shape {tuple(shape)}")
    return value._create_view(tuple(shape))


@register_func("runtime.TVMTensorCreateView")
def create_view(value: Tensor, shape: tuple[int, ...], dtype: str, relative_byte_offset: int) -> Tensor:
    """The same memory, from an offset on, with another shape and dtype."""
    return value._create_view(tuple(shape), str(dtype), relative_byte_offset)


def _inspects(name: str, number: Callable[[Tensor], int]) -> None:
    """Registers a function of a tensor that gives a number."""

    def inspect(value: object) -> int:
        if not isinstance(value, Tensor):
            raise TypeMismatch(f"vm.builtin.tensor_{name} expects a Tensor, found {_noun(value)}")
        return number(value)

    register_func(f"vm.builtin.tensor_{name}", inspect)


def _inspects_axis(name: str, numbers: Callable[[Tensor], Sequence[int]]) -> None:
    """Registers a function of a tensor and an axis that gives a number."""

    def inspect(value: object, axis: int) -> int:
        if not isinstance(value, Tensor):
            raise TypeMismatch(f"vm.builtin.tensor_{name} expects a Tensor, found {_noun(value)}")
        if not 0 <= axis < value.ndim:
            raise InvalidValue(f"vm.builtin.tensor_{name}: found axis {axis} of a tensor of {value.ndim} dimensions")
        return numbers(value)[axis]

    register_func(f"vm.builtin.tensor_{name}", inspect)


_inspects("dtype_code", lambda value: dlpack_dtype(str(value.dtype))[0])
_inspects("dtype_bits", lambda value: dlpack_dtype(str(value.dtype))[1])
_inspects("dtype_lanes", lambda value: dlpack_dtype(str(value.dtype))[2])
_inspects("ndim", lambda value: value.ndim)
_inspects("byte_offset", lambda value: value.byte_offset)
_inspects("elem_offset", lambda value: value.byte_offset // numpy_dtype(str(value.dtype)).itemsize)
_inspects_axis("shape_i", lambda value: value.shape)
_inspects_axis("stride_i", lambda value: value.strides)


@register_func("vm.builtin.ensure_zero_offset")
def ensure_zero_offset(value: Tensor) -> Tensor:
    """The same tensor with a byte offset of 0, for functions that ignore it."""
    offset = value._record.byte_offset
    if not offset:
        return value
    if offset % Storage.ALIGNMENT:
        return value.copyto(value.device)
    return Tensor(
        value.address,
        value.shape,
        value.dtype,
        owner=value,
        device=value.device,
        strides=value.strides,
        read_only=not value.writable,
    )


@register_func("vm.builtin.to_device")
def to_device(value: Tensor, device_type: int, device_id: int, mem_scope: str = "global") -> Tensor:
    """The tensor on a device; itself where it is there already."""
    where = Device(device_type, device_id)
    return value if value.device == where else value.copyto(where, mem_scope)


@register_func("vm.builtin.copy_to")
def copy_to(value: Tensor, target: Tensor) -> None:
    """Copies a tensor to another of its shape and dtype, on whatever devices they are."""
    value.copyto(target)


COPY_BYTES = "vm.builtin.copy_bytes"
"""The function that native graphs call to copy between devices: two addresses, each with its device, and a size."""


@register_func(COPY_BYTES)
def copy_bytes(
    target: int, target_type: int, target_id: int, source: int, source_type: int, source_id: int, nbytes: int
) -> None:
    """Copies `nbytes` bytes from an address on one device to an address on another."""
    if nbytes:
        source_memory = Tensor(source or 0, (nbytes,), "uint8", owner=None, device=Device(source_type, source_id))
        target_memory = Tensor(target or 0, (nbytes,), "uint8", owner=None, device=Device(target_type, target_id))
        source_memory.copyto(target_memory)


@register_func("vm.builtin.cast")
def cast(value: Tensor, dtype: str) -> Tensor:
    """The elements in a dtype that kernels do not compute with, or of one, in memory of its own."""
    return tensor(value.numpy().astype(numpy_dtype(dtype)))


# Tuples and conditions -----------------------------------------------------------------------------------------------


@register_func("vm.builtin.make_tuple")
def make_tuple(*fields: object) -> tuple[object, ...]:
    """A tuple."""
    return fields


@register_func("vm.builtin.tuple_getitem")
def tuple_getitem(value: Any, index: int) -> Any:
    """A field of a tuple."""
    if not 0 <= index < len(value):
        raise InvalidValue(f"vm.builtin.tuple_getitem: a tuple of {len(value)} fields has no field {index}")
    return value[index]


@register_func("vm.builtin.tuple_reset_item")
def tuple_reset_item(value: object, index: int) -> None:
    """Sets a field of a tuple argument to None, so that its memory can be used again."""
    if not isinstance(value, list):
        raise TypeMismatch("vm.builtin.tuple_reset_item: only tuples that are arguments of the program can be changed")
    value[index] = None


@register_func("vm.builtin.read_if_cond")
def read_if_cond(condition: object) -> bool:
    """A number, or the value of a tensor that holds one, as a truth value."""
    if isinstance(condition, int):
        return bool(condition)
    if isinstance(condition, Tensor) and condition.size == 1 and "float" not in condition.dtype:
        return bool(condition.numpy().item())
    raise TypeMismatch(f"a condition must be a bool, an integer or a tensor of one, found {condition!r:.80}")


# Functions as values -------------------------------------------------------------------------------------------------


@register_func("vm.builtin.make_closure")
def make_closure(function: Any, *captured: object) -> Any:
    """The function with its last arguments given."""
    if not hasattr(function, "capture"):
        raise TypeMismatch(f"vm.builtin.make_closure expects a function of the program, found {_noun(function)}")
    return function.capture(captured)


@register_func("vm.builtin.invoke_closure")
def invoke_closure(vm: VirtualMachine, closure: Callable[..., Any], *args: object) -> Any:
    """What a closure, or any function, returns."""
    if not callable(closure):
        raise TypeMismatch(f"vm.builtin.invoke_closure expects a closure or a function, found {_noun(closure)}")
    return closure(*args)


@register_func("vm.builtin.call_tir_dyn")
def call_tir_dyn(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a kernel with tensors, and with the extents of the last argument, a shape, as integers."""
    return function(*args[:-1], *args[-1])


@register_func("vm.builtin.invoke_debug_func")
def invoke_debug_func(io_effect: None, name: str, line: str, *args: object) -> None:
    """Calls a registered function with the line that it was called on, and values."""
    if io_effect is not None:
        raise InvalidValue("IOEffect is expected to be lowered to None.")
    function = get_global_func(name, allow_missing=True)
    if function is None:
        raise NotRegistered(f'{name} is not found. Use the decorator `@register_global_func("{name}")` to register it.')
    function(line, *args)


@register_func("vm.builtin.debug_print")
def debug_print(line: str, value: Tensor) -> None:
    """Prints a tensor; a function for `invoke_debug_func`."""
    print(f"{line}: shape = {value.shape}, dtype = {value.dtype}, data =\n{value}")


_py_functions: dict[str, Callable[..., Any]] = {}


@register_func("vm.builtin.register_py_func")
def register_py_func(name: str, function: Callable[..., Any]) -> None:
    """Makes a Python function of a module known to its programs."""
    _py_functions[name] = function


@register_func("vm.builtin.get_py_func")
def get_py_func(name: str) -> Callable[..., Any]:
    """The Python function of that name; `NotRegistered` if there is none."""
    if name not in _py_functions:
        raise NotRegistered(f"Python function {name!r} not found in registry")
    return _py_functions[name]


@register_func("vm.builtin.clear_py_func_registry")
def clear_py_func_registry() -> None:
    """Forgets all Python functions."""
    _py_functions.clear()


@register_func("vm.builtin.call_py_func")
def call_py_func(call: tuple[str, tuple[object, ...]]) -> Any:
    """Calls a Python function: its name, and its arguments."""
    name, args = call
    return get_py_func(name)(*args)


# What operators of graphs do at run time -----------------------------------------------------------------------------


def render(value: object) -> str:
    """A value as `relax.run.print` shows it."""
    if isinstance(value, (tuple, list)) and not isinstance(value, ShapeTuple):
        return f"({', '.join(map(render, value))})"
    return str(value)


def _formatted(format_str: str, values: tuple[object, ...], separator: str) -> str:
    texts = [render(value) for value in values]
    return format_str.format(*texts) if format_str else separator.join(texts)


@register_func("relax.run.print")
def run_print(format_str: str, *values: object) -> None:
    """Prints values, into the places of a format string unless that is empty."""
    print(_formatted(format_str, values, " "))


@register_func("relax.run.assert_op")
def run_assert(condition: object, format_str: str = "", *values: object) -> None:
    """Raises `AssertionFailure` with a message made of values, unless the condition holds."""
    if not isinstance(format_str, str):
        raise InvalidValue(f"The format string argument to assert must be a string, given {_noun(format_str)}")
    if isinstance(condition, Tensor):
        if condition.dtype != "bool":
            raise InvalidValue(f"The condition must be a bool scalar, but given a {condition.dtype} tensor")
        if condition.shape:
            raise InvalidValue(f"The condition must be a scalar, but it has a shape of {condition.shape}")
    elif not isinstance(condition, int):
        raise InvalidValue(
            f"The condition for relax assert must be a bool, int, or Tensor, but received a {_noun(condition)}."
        )
    if not read_if_cond(condition):
        raise AssertionFailure(_formatted(format_str, values, ", ") or "Assertion Failed")


@register_func("relax.run.nonzero")
def run_nonzero(x: Tensor) -> Tensor:
    """The indices of the elements that are not zero, a row for each dimension, as int64."""
    return tensor(np.stack(np.atleast_1d(x.numpy()).nonzero()).astype("int64"))


@register_func("relax.run.unique")
def run_unique(
    x: Tensor,
    is_sorted: int,
    return_index: int,
    return_inverse: int,
    return_counts: int,
    axis: int | None = None,
) -> Any:
    """The unique values of a tensor, or slices along `axis`: sorted, or in the order of their first occurrence.

    With further results asked for, a tuple: the values, the index of the first occurrence of each, the inverse (for
    each input the index of its value), and the counts, all int64.
    """
    array = x.numpy()
    # NumPy does not know which values of other dtypes are NaN.
    comparable = array.astype(np.float32) if array.dtype.kind == "V" else array
    values, index, inverse, counts = np.unique(
        comparable, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    values = values.astype(array.dtype)
    inverse = inverse.reshape(-1)
    if not is_sorted:
        order = np.argsort(index)
        rank = np.argsort(order)
        values = np.take(values, order, 0 if axis is None else axis)
        index, inverse, counts = index[order], rank[inverse], counts[order]
    extras = ((index, return_index), (inverse, return_inverse), (counts, return_counts))
    results = [tensor(values), *(tensor(extra.astype("int64")) for extra, wanted in extras if wanted)]
    return tuple(results) if len(results) > 1 else results[0]
