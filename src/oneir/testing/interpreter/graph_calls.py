"""Graph operators that are more than functions of values: calls, memory, closures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...relax import expr as r
from ...relax.struct_info import TupleStructInfo
from ...runtime.device import cpu
from ...runtime.dtype import numpy_dtype
from ...runtime.object import ShapeTuple
from ...runtime.registry import get_global_func
from ...runtime.tensor import Tensor, wrap_array
from ...runtime.vm.storage import Allocator
from .graph_values import UNWRITTEN, Killed, allocate, described, is_tuple
from .memory import Violation

if TYPE_CHECKING:
    from .graph import Frame, Graph

Handler = Callable[["Graph", "Frame", r.Call], Any]


# -- loops --


def _inputs(graph: Graph, frame: Frame, expr: Any) -> list[Any]:
    value = graph.value(frame, expr)
    if not is_tuple(value):
        raise Violation(f"expected a tuple of arguments, found {described(value)}")
    return list(value)


def _numbers(graph: Graph, frame: Frame, call: r.Call) -> list[int]:
    return list(graph.value(frame, call.args[2])) if len(call.args) > 2 else []


def _packed_result(outputs: Sequence[Any], call: r.Call) -> Any:
    return tuple(outputs) if isinstance(call.sinfo_args[0], TupleStructInfo) else outputs[0]


def _call_tir(graph: Graph, frame: Frame, call: r.Call) -> Any:
    inputs = [_read_only(v) for v in _inputs(graph, frame, call.args[1])]
    outputs = graph.outputs(frame, call.sinfo_args[0])
    positions = range(len(inputs), len(inputs) + len(outputs))
    kernel = graph.kernel(frame, call.args[0])
    graph.run_kernel(kernel, [*inputs, *outputs, *_numbers(graph, frame, call)], positions)
    return _packed_result(outputs, call)


def _read_only(value: Any) -> Any:
    """A tensor that loops may not write."""
    if not isinstance(value, Tensor):
        return value
    view = value._view().view()
    view.flags.writeable = False
    return wrap_array(view)


def _call_tir_inplace(graph: Graph, frame: Frame, call: r.Call) -> Any:
    inputs = _inputs(graph, frame, call.args[1])
    indices = [int(i) for i in call.attrs["inplace_indices"]]
    fresh = graph.outputs(frame, call.sinfo_args[0])
    results = [new if i < 0 else inputs[i] for i, new in zip(indices, fresh, strict=True)]
    written = [result for i, result in zip(indices, results, strict=True) if i < 0]
    changed = {id(inputs[i]) for i in indices if i >= 0}
    args = [v if id(v) in changed else _read_only(v) for v in inputs]
    positions = range(len(inputs), len(inputs) + len(written))
    graph.run_kernel(graph.kernel(frame, call.args[0]), [*args, *written, *_numbers(graph, frame, call)], positions)
    return _packed_result(results, call)


def _call_tir_dyn(graph: Graph, frame: Frame, call: r.Call) -> Any:
    *tensors, shape = _inputs(graph, frame, call.args[1])
    graph.run_kernel(graph.kernel(frame, call.args[0]), [*tensors, *shape])


# -- functions of the runtime --


def _call_dps_packed(graph: Graph, frame: Frame, call: r.Call) -> Any:
    inputs, outputs = _inputs(graph, frame, call.args[1]), graph.outputs(frame, call.sinfo_args[0])
    graph.invoke(graph.value(frame, call.args[0]), [*inputs, *outputs], None)
    return _packed_result(outputs, call)


def _call_packed(graph: Graph, frame: Frame, call: r.Call) -> Any:
    callee, *args = [graph.value(frame, a) for a in call.args]
    return graph.invoke(callee, args, call.struct_info_)


def _call_builtin_with_ctx(graph: Graph, frame: Frame, call: r.Call) -> Any:
    callee = graph.value(frame, call.args[0])
    return graph.invoke(callee, [Machine(), *_inputs(graph, frame, call.args[1])], call.struct_info_)


def _call_py_func(graph: Graph, frame: Frame, call: r.Call) -> Any:
    function = get_global_func("vm.builtin.get_py_func")(graph.value(frame, call.args[0]))
    return graph.invoke(function, _inputs(graph, frame, call.args[1]), call.struct_info_)


def _runtime(name: str) -> Handler:
    """An operator that is a function of the runtime."""

    def handler(graph: Graph, frame: Frame, call: r.Call) -> Any:
        args = [graph.value(frame, a) for a in call.args]
        return graph.invoke(get_global_func(name), args, call.struct_info_)

    return handler


class Machine:
    """What functions of the virtual machine need of it: memory of the host."""

    def __init__(self) -> None:
        self.host_allocator = Allocator(cpu(), pooled=False)

    def allocator(self, device_index: int) -> Any:
        """The allocator of a device: all devices are the host."""
        return self.host_allocator


# -- functions as values --


def _make_closure(graph: Graph, frame: Frame, call: r.Call) -> Any:
    function = graph.value(frame, call.args[0])
    if not hasattr(function, "capture"):
        raise Violation(f"a closure is made of a function of the program, found {described(function)}")
    return function.capture(_inputs(graph, frame, call.args[1]))


def _invoke_closure(graph: Graph, frame: Frame, call: r.Call) -> Any:
    return graph.invoke(graph.value(frame, call.args[0]), _inputs(graph, frame, call.args[1]), call.struct_info_)


# -- memory --


class Storage:
    """Bytes that tensors lie in."""

    def __init__(self, nbytes: int):
        self.bytes = np.full(nbytes, UNWRITTEN, np.uint8)

    def tensor(self, offset: int, shape: Sequence[int], dtype: str) -> Tensor:
        """A tensor whose elements begin at the byte `offset`."""
        element = numpy_dtype(dtype)
        end = offset + int(np.prod(shape, dtype=np.int64)) * element.itemsize
        if offset < 0 or end > len(self.bytes):
            raise Violation(
                f"a tensor of shape {tuple(shape)} and dtype {dtype} at byte {offset} ends at byte {end}; "
                f"the storage has {len(self.bytes)}"
            )
        return wrap_array(self.bytes[offset:end].view(element).reshape(shape))


def _alloc_tensor(graph: Graph, frame: Frame, call: r.Call) -> Any:
    shape, dtype = (graph.value(frame, a) for a in call.args[:2])
    return allocate(shape, dtype)


def _alloc_storage(graph: Graph, frame: Frame, call: r.Call) -> Any:
    values = [graph.value(frame, a) for a in call.args]
    # The dtype is the third argument of one operator and the fourth of the other.
    dtype = values[3 if call.op.name == "relax.memory.alloc_storage" else 2]
    count = int(np.prod(values[0], dtype=np.int64))
    if count < 0:
        raise Violation(f"a storage of the size {tuple(values[0])} cannot be made")
    return Storage(count * numpy_dtype(dtype).itemsize)


def _tensor_in_storage(graph: Graph, frame: Frame, call: r.Call) -> Any:
    storage, offset, shape, dtype = (graph.value(frame, a) for a in call.args[:4])
    if isinstance(storage, Storage):
        return storage.tensor(offset, shape, dtype)
    return storage.alloc_tensor(offset, tuple(shape), dtype)


def _kill(graph: Graph, frame: Frame, call: r.Call) -> Any:
    """The variable is not used any more. Tensors keep the storage that they lie in."""
    graph.value(frame, call.args[0])
    if isinstance(call.args[0], r.Var):
        frame.values[call.args[0]] = Killed()


# -- values --


def _shape_of(graph: Graph, frame: Frame, call: r.Call) -> Any:
    return ShapeTuple(graph.value(frame, call.args[0]).shape)


def _first(graph: Graph, frame: Frame, call: r.Call) -> Any:
    return graph.value(frame, call.args[0])


CALLS: dict[str, Handler] = {
    "relax.call_tir": _call_tir,
    "relax.call_tir_with_grad": _call_tir,
    "relax.call_tir_inplace": _call_tir_inplace,
    "relax.vm.call_tir_dyn": _call_tir_dyn,
    "relax.call_dps_packed": _call_dps_packed,
    "relax.call_pure_packed": _call_packed,
    "relax.call_inplace_packed": _call_packed,
    "relax.call_builtin_with_ctx": _call_builtin_with_ctx,
    "relax.call_py_func": _call_py_func,
    "relax.print": _runtime("relax.run.print"),
    "relax.assert_op": _runtime("relax.run.assert_op"),
    "relax.tensor_to_shape": _runtime("vm.builtin.tensor_to_shape"),
    "relax.shape_to_tensor": _runtime("relax.run.shape_to_tensor"),
    "relax.make_closure": _make_closure,
    "relax.invoke_closure": _invoke_closure,
    "relax.invoke_pure_closure": _invoke_closure,
    "relax.builtin.alloc_tensor": _alloc_tensor,
    "relax.memory.alloc_storage": _alloc_storage,
    "relax.vm.alloc_storage": _alloc_storage,
    "relax.memory.alloc_tensor": _tensor_in_storage,
    "relax.vm.alloc_tensor": _tensor_in_storage,
    "relax.memory.kill_storage": _kill,
    "relax.memory.kill_tensor": _kill,
    "relax.vm.kill_object": _kill,
    "relax.shape_of": _shape_of,
    "relax.null_value": lambda graph, frame, call: None,
    "relax.to_vdevice": _first,
    "relax.hint_on_device": _first,
}
