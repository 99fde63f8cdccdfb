"""The functions that bytecode calls: what they give, and the messages of those that check."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from oneir.runtime import ShapeTuple, cpu, get_global_func, register_func, tensor
from oneir.runtime.error import (
    AssertionFailure,
    DeviceError,
    ExecutionError,
    InvalidValue,
    NotRegistered,
    ShapeMismatch,
    TypeMismatch,
)
from oneir.runtime.vm import ExecBuilder, Storage, VirtualMachine
from oneir.runtime.vm.storage import Allocator

CONTEXT = "ErrorContext(fn=main, loc=param[0], param=x) "


def builtin(name: str):
    return get_global_func(f"vm.builtin.{name}")


def run(name: str):
    return get_global_func(f"relax.run.{name}")


@pytest.fixture
def vm():
    return VirtualMachine(ExecBuilder().get(), cpu())


@pytest.fixture
def heap(vm):
    return builtin("alloc_shape_heap")(vm, 3)


# -- shapes --


def test_shapes_are_matched_and_made(heap):
    assert heap.dtype == "int64" and heap.shape == (3,)
    match, make = builtin("match_shape"), builtin("make_shape")
    # Store 5 at 1, expect 4, take anything; then compare with what was stored.
    match(tensor(np.zeros((5, 4, 7))), heap, 3, 1, 1, 0, 4, 2, 0, CONTEXT)
    match(ShapeTuple((5,)), heap, 1, 3, 1, CONTEXT)
    match(ShapeTuple((2, 3)), None, 2, 0, 2, 0, 3, None)
    shape = make(heap, 3, 0, 9, 1, 1, 0, 2)
    assert shape == (9, 5, 2) and isinstance(shape, ShapeTuple)
    assert make(None, 0) == ()
    builtin("match_prim_value")(11, heap, 1, 2, CONTEXT)
    builtin("match_prim_value")(11, heap, 3, 2, CONTEXT)
    assert builtin("make_prim_value")(heap, 1, 2) == 11 and builtin("make_prim_value")(heap, 0, -7) == -7


@pytest.mark.parametrize(
    ("value", "codes", "kind", "message"),
    [
        (ShapeTuple((2, 3)), (1, 0, 0), ExecutionError, "shape size mismatch: expected 1 extents, found 2"),
        (
            ShapeTuple((2,)),
            (1, 0, 3),
            ExecutionError,
            r"shape\[0\] mismatch to specified constant: expected 3, found 2",
        ),
        (ShapeTuple((2,)), (1, 3, 0), ExecutionError, "mismatch to a previous populated value: expected 8, found 2"),
        (3, (1, 0, 3), TypeMismatch, "match_cast expects a tensor or a shape, found int"),
    ],
)
def test_shapes_that_do_not_match(heap, value, codes, kind, message):
    builtin("match_prim_value")(8, heap, 1, 0)
    with pytest.raises(kind, match=rf"ErrorContext\(fn=main, loc=param\[0\], param=x\) .*{message}"):
        builtin("match_shape")(value, heap, *codes, CONTEXT)


def test_codes_and_places_that_do_not_exist(heap):
    with pytest.raises(InvalidValue, match="9 is no code of what to do with an extent"):
        builtin("match_shape")(ShapeTuple((2,)), heap, 1, 9, 0, CONTEXT)
    with pytest.raises(InvalidValue, match="2 is no code of where an extent comes from"):
        builtin("make_shape")(heap, 1, 2, 0)
    for place in (3, -1):
        with pytest.raises(InvalidValue, match=f"refers to value {place} of a shape heap, and has one of 3 values"):
            builtin("make_shape")(heap, 1, 1, place)
    with pytest.raises(InvalidValue, match="and has none"):
        builtin("match_shape")(ShapeTuple((2,)), None, 1, 1, 0, CONTEXT)


def test_shapes_and_tensors():
    assert builtin("shape_of")(tensor(np.zeros((2, 0)))) == (2, 0)
    assert builtin("tensor_to_shape")(tensor(np.array([3, 4], "int32"))) == (3, 4)
    back = run("shape_to_tensor")(ShapeTuple((3, 4)))
    assert back.dtype == "int64" and back.numpy().tolist() == [3, 4]
    assert run("shape_to_tensor")(ShapeTuple()).shape == (0,)
    with pytest.raises(TypeMismatch, match="shape_of expects a Tensor, found tuple"):
        builtin("shape_of")((1, 2))
    with pytest.raises(TypeMismatch, match=r"integers with one dimension, found float64\[2\]"):
        builtin("tensor_to_shape")(tensor(np.zeros(2)))


# -- checks --


def test_checks_of_what_fits():
    value = tensor(np.zeros((2, 3), "float32"))
    builtin("check_tensor_info")(value, 2, "float32", CONTEXT)
    builtin("check_tensor_info")(value, -1, CONTEXT)
    builtin("check_tensor_info")(value, 2, "", CONTEXT)
    builtin("check_shape_info")(ShapeTuple((1, 2)), 2, CONTEXT)
    builtin("check_shape_info")(ShapeTuple((1, 2)), -1, CONTEXT)
    builtin("check_tuple_info")((1, 2), 2, CONTEXT)
    builtin("check_tuple_info")([1, 2], 2, None)
    builtin("check_func_info")(print, CONTEXT)
    for number, dtype in [(1, "int32"), (True, "bool"), (1, "uint8"), (1.5, "float16"), (1, "float64")]:
        builtin("check_prim_value_info")(number, dtype, CONTEXT)


@pytest.mark.parametrize(
    ("name", "args", "kind", "message"),
    [
        ("check_tensor_info", ([], 2), TypeMismatch, "expect a Tensor but get list"),
        ("check_tensor_info", (np.zeros(3), 2), ShapeMismatch, "expect Tensor with ndim 2 but get 1"),
        ("check_tensor_info", (np.zeros(3), 1, "int32"), InvalidValue, "dtype int32 but get float64"),
        ("check_shape_info", ((1, 2), 2), TypeMismatch, "expect a Shape but get tuple"),
        ("check_shape_info", (ShapeTuple((1, 2)), 3), ShapeMismatch, "expect Shape with ndim 3 but get 2"),
        ("check_tuple_info", (ShapeTuple((1, 2)), 2), TypeMismatch, "expect a Tuple but get ShapeTuple"),
        ("check_tuple_info", ((1, 2), 3), InvalidValue, "with 3 elements, but get a Tuple with 2 elements"),
        ("check_func_info", (3,), TypeMismatch, "expect a Function but get int"),
        ("check_prim_value_info", (1.5, "int64"), TypeMismatch, "expected dtype int64, but received float"),
        ("check_prim_value_info", (np.zeros(()), "float32"), TypeMismatch, "but received Tensor"),
        ("check_prim_value_info", (1, "handle"), TypeMismatch, "expected dtype handle"),
    ],
)
def test_checks_that_refuse(name, args, kind, message):
    args = [tensor(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
    with pytest.raises(kind, match=rf"^ErrorContext\(fn=main, loc=param\[0\], param=x\) .*{message}"):
        builtin(name)(*args, CONTEXT)


# -- memory --


@pytest.mark.parametrize("memory_cfg", ["pooled", "naive"])
def test_tensors_are_cut_from_storage(memory_cfg):
    vm = VirtualMachine(ExecBuilder().get(), cpu(), memory_cfg)
    storage = builtin("alloc_storage")(vm, ShapeTuple((24,)), 0, "float32", "global")
    assert isinstance(storage, Storage) and storage.nbytes == 96 and storage.device == cpu()
    first = builtin("alloc_tensor")(storage, 0, ShapeTuple((4, 4)), "float32")
    second = builtin("alloc_tensor")(storage, 64, ShapeTuple((4,)), "float64")
    assert second.address - first.address == 64 and first.address % 64 == 0
    first[:], second[:] = 1, 2
    assert first.numpy().sum() == 16 and second.numpy().sum() == 8
    assert builtin("alloc_tensor")(storage, 96, ShapeTuple((0, 5)), "int8").size == 0
    host = builtin("alloc_storage")(vm, (16,), -1, "uint8")
    assert host.nbytes == 16


@pytest.mark.parametrize(
    ("offset", "shape", "dtype"),
    [(0, (25,), "float32"), (92, (2,), "float32"), (-4, (1,), "float32"), (2, (1,), "float32"), (0, (-1,), "int8")],
)
def test_tensors_that_do_not_fit(vm, offset, shape, dtype):
    storage = builtin("alloc_storage")(vm, (96,), 0, "uint8", "global")
    with pytest.raises(ShapeMismatch, match=rf"dtype {dtype} at byte {offset} does not fit in a storage of 96 bytes"):
        builtin("alloc_tensor")(storage, offset, ShapeTuple(shape), dtype)


def test_storage_that_cannot_be(vm):
    with pytest.raises(DeviceError, match="the machine has 1 devices, and no device 1"):
        builtin("alloc_storage")(vm, (1,), 1, "uint8", "global")
    with pytest.raises(ShapeMismatch, match="a size that is not negative"):
        builtin("alloc_storage")(vm, (-1,), 0, "uint8", "global")
    with pytest.raises(DeviceError, match="no memory of the scope 'texture'"):
        builtin("alloc_storage")(vm, (1,), 0, "uint8", "texture")


def test_a_pool_uses_blocks_again_and_keeps_no_more_than_were_in_use():
    allocator = Allocator(cpu(), pooled=True)
    kept = allocator.alloc(5000).alloc_tensor(0, (5000,), "uint8")
    kept[:] = 7
    address = kept.address
    other = allocator.alloc(5000)
    assert other.alloc_tensor(0, (1,), "uint8").address != address and (kept.numpy() == 7).all()
    del kept
    gc.collect()
    again = allocator.alloc(8192).alloc_tensor(0, (8192,), "uint8")
    assert again.address == address  # 5000 and 8192 bytes are two pages
    del again, other
    for size in range(1, 40):
        allocator.alloc(4096 * size)
    assert allocator._kept <= allocator._most_used == 4096 * 39


def test_views():
    value = tensor(np.arange(12, dtype="float32").reshape(3, 4))
    reshaped = builtin("reshape")(value, ShapeTuple((2, 6)))
    assert reshaped.address == value.address and reshaped.numpy().tolist() == np.arange(12).reshape(2, 6).tolist()
    view = get_global_func("runtime.TVMTensorCreateView")(value, ShapeTuple((2,)), "int32", 8)
    assert view.numpy().tolist() == np.array([2, 3], "float32").view("int32").tolist()
    whole = builtin("ensure_zero_offset")(view)
    assert whole._record.byte_offset == 0 and whole.numpy().tolist() == view.numpy().tolist()
    assert builtin("ensure_zero_offset")(value) is value
    big = tensor(np.arange(64, dtype="float32"))
    aligned = builtin("ensure_zero_offset")(get_global_func("runtime.TVMTensorCreateView")(big, (4,), "float32", 64))
    assert aligned._record.byte_offset == 0 and aligned.address == big.address + 64
    assert builtin("to_device")(value, 1, 0, "global") is value
    assert builtin("copy")(value) is value and builtin("null_value")() is None
    with pytest.raises(ShapeMismatch, match=r"a tensor of shape \(3, 4\) cannot have the shape \(5,\)"):
        builtin("reshape")(value, ShapeTuple((5,)))
    with pytest.raises(TypeMismatch, match="reshape expects a Tensor, found int"):
        builtin("reshape")(3, ShapeTuple((5,)))
    with pytest.raises(ShapeMismatch, match="i_byte < 56, but the Tensor being viewed only contains 48 bytes"):
        get_global_func("runtime.TVMTensorCreateView")(value, ShapeTuple((12,)), "float32", 8)
    with pytest.raises(DeviceError, match="cuda:0"):
        builtin("to_device")(value, 2, 0)


# -- tuples, conditions, functions --


def test_tuples():
    fields = builtin("make_tuple")(1, (2, 3))
    assert fields == (1, (2, 3)) and builtin("tuple_getitem")(fields, 1) == (2, 3)
    for index in (2, -1):
        with pytest.raises(InvalidValue, match=f"a tuple of 2 fields has no field {index}"):
            builtin("tuple_getitem")(fields, index)


def test_a_field_of_an_argument_is_dropped():
    ib = ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call("vm.builtin.tuple_getitem", [ib.r(0), ib.imm(1)], ib.r(1))
        ib.emit_call("vm.builtin.tuple_reset_item", [ib.r(0), ib.imm(1)])
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.r(1)], ib.r(2))
        ib.emit_ret(ib.r(2))
    mine = [1, 2]
    assert VirtualMachine(ib.get(), cpu())["main"](mine) == ((1, None), 2)
    assert mine == [1, 2]
    with pytest.raises(TypeMismatch, match="only tuples that are arguments"):
        builtin("tuple_reset_item")((1, 2), 0)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "int64"])
def test_conditions(dtype):
    assert builtin("read_if_cond")(tensor(np.array(1, dtype))) is True
    assert builtin("read_if_cond")(tensor(np.array(0, dtype))) is False
    assert builtin("read_if_cond")(-1) is True


@pytest.mark.parametrize("value", [np.array(1.0), np.array([1, 2]), "yes", None])
def test_what_is_no_condition(value):
    with pytest.raises(TypeMismatch, match="a condition must be a bool, an integer or a tensor of one"):
        builtin("read_if_cond")(tensor(value) if isinstance(value, np.ndarray) else value)


def test_functions_as_values(vm):
    seen = []
    builtin("call_tir_dyn")(lambda *args: seen.append(args), "a", "b", ShapeTuple((3, 4)))
    assert seen == [("a", "b", 3, 4)]
    assert builtin("invoke_closure")(vm, max, 3, 4) == 4
    with pytest.raises(TypeMismatch, match="make_closure expects a function of the program, found int"):
        builtin("make_closure")(3)
    with pytest.raises(TypeMismatch, match="invoke_closure expects a closure or a function, found int"):
        builtin("invoke_closure")(vm, 3)


def test_debug_functions(capsys):
    builtin("invoke_debug_func")(None, "vm.builtin.debug_print", "model.py:3", tensor(np.ones(2, "float32")))
    assert capsys.readouterr().out == "model.py:3: shape = (2,), dtype = float32, data =\n[1. 1.]\n"
    with pytest.raises(NotRegistered, match=r"test.no.such is not found. Use the decorator"):
        builtin("invoke_debug_func")(None, "test.no.such", "model.py:3")
    with pytest.raises(InvalidValue, match="IOEffect is expected to be lowered to None"):
        builtin("invoke_debug_func")(3, "vm.builtin.debug_print", "model.py:3")


def test_python_functions():
    builtin("register_py_func")("test.double", lambda x: 2 * x)
    assert builtin("call_py_func")(("test.double", (21,))) == 42
    assert builtin("get_py_func")("test.double")(2) == 4
    builtin("clear_py_func_registry")()
    with pytest.raises(NotRegistered, match=r"'test.double' not found"):
        builtin("call_py_func")(("test.double", (21,)))


# -- operators --


def test_print(capsys):
    one = tensor(np.array([1, 2]))
    run("print")("", one, (one, 3), ShapeTuple((4, 5)))
    run("print")("x = {}, y = {}", 1, one)
    assert capsys.readouterr().out == "[1 2] ([1 2], 3) (4, 5)\nx = 1, y = [1 2]\n"


def test_assert():
    check = run("assert_op")
    for condition in (True, 1, tensor(np.array(True))):
        check(condition, "never {}", 1)
    for args, message in [(("",), "Assertion Failed"), (("", 1, 2), "1, 2"), (("x is {}", 1), "x is 1")]:
        with pytest.raises(AssertionFailure, match=f"(?m)^{message}$"):
            check(tensor(np.array(False)), *args)
    for condition, message in [
        (tensor(np.array(1)), "must be a bool scalar, but given a int64 tensor"),
        (tensor(np.array([True])), r"must be a scalar, but it has a shape of \(1,\)"),
        ("yes", "must be a bool, int, or Tensor, but received a str"),
    ]:
        with pytest.raises(InvalidValue, match=message):
            check(condition, "")
    with pytest.raises(InvalidValue, match="The format string argument to assert must be a string"):
        check(True, 3)


def test_unique():
    values = np.array([[3, 1, 3], [7, 1, 2]])
    unique = run("unique")
    assert unique(tensor(values), 1, 0, 0, 0).numpy().tolist() == [1, 2, 3, 7]
    # In the order of first appearance, with indices into the flat input.
    found, index, inverse, counts = unique(tensor(values), 0, 1, 1, 1)
    assert found.numpy().tolist() == [3, 1, 7, 2]
    assert index.numpy().tolist() == [0, 1, 3, 5]
    assert found.numpy()[inverse.numpy()].reshape(2, 3).tolist() == values.tolist()
    assert counts.numpy().tolist() == [2, 2, 1, 1] and counts.dtype == "int64"
    columns, places = unique(tensor(np.array([[2, 1, 2], [0, 5, 0]])), 1, 0, 1, 0, 1)
    assert columns.numpy().tolist() == [[1, 2], [5, 0]] and places.numpy().tolist() == [1, 0, 1]


def test_a_program_of_symbolic_shapes():
    """main(x: (n, 4), y: (n,)) -> the shape (n * 2, 4), with n * 2 computed by a function on the heap."""

    @register_func("test.builtins.double", override=True)
    def double(heap):
        heap[1] = heap.numpy()[0] * 2

    ib = ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_call("vm.builtin.alloc_shape_heap", [ib.vm_state(), ib.imm(2)], ib.r(2))
        for register, codes in [(0, [1, 0, 0, 4]), (1, [3, 0])]:
            context = f"param[{register}]"
            numbers = [ib.imm(code) for code in (len(codes) // 2, *codes)]
            ib.emit_call("vm.builtin.match_shape", [ib.r(register), ib.r(2), *numbers, context])
        ib.emit_call("test.builtins.double", [ib.r(2)])
        codes = [ib.imm(code) for code in (2, 1, 1, 0, 4)]
        ib.emit_call("vm.builtin.make_shape", [ib.r(2), *codes], ib.r(3))
        ib.emit_ret(ib.r(3))
    main = VirtualMachine(ib.get(), cpu())["main"]
    assert main(np.zeros((3, 4)), np.zeros(3)) == (6, 4)
    with pytest.raises(ExecutionError, match=r"param\[0\] match_cast error, shape\[1\] mismatch"):
        main(np.zeros((3, 5)), np.zeros(3))
    with pytest.raises(ExecutionError, match=r"param\[1\] .* populated value: expected 3, found 2"):
        main(np.zeros((3, 4)), np.zeros(2))
