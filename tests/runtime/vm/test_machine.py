"""Running programs: calls, arguments and their mistakes, closures, depth, steps, instruments, threads, native forms."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import oneir
from oneir.runtime import ShapeTuple, Tensor, cpu, register_func, tensor
from oneir.runtime.error import (
    DeviceError,
    ExecutionError,
    InvalidValue,
    NotRegistered,
    ShapeMismatch,
    TypeMismatch,
    UnsupportedError,
)
from oneir.runtime.signature import Param, Signature
from oneir.runtime.vm import (
    ExecBuilder,
    Executable,
    Note,
    VirtualMachine,
    VMFuncKind,
    VMInstrumentReturnKind,
)
from oneir.runtime.vm import interpreter as interpreter_module
from oneir.script import tir as T


@register_func("tests.machine.add", override=True)
def add(a, b):
    return tensor(a.numpy() + b.numpy())


@register_func("tests.machine.mul", override=True)
def mul(a, b):
    return tensor(a.numpy() * b.numpy())


register_func("tests.machine.add_scalar", lambda a, b: a + b, override=True)
register_func("tests.machine.identity", lambda a: a, override=True)

ONES, TWOS = np.ones(4, "float32"), np.full(4, 2, "float32")


def machine(ib: ExecBuilder, **options) -> VirtualMachine:
    return VirtualMachine(ib.get(), cpu(), **options)


def binary(name: str = "tests.machine.add", signature: Signature | None = None) -> ExecBuilder:
    ib = ExecBuilder()
    with ib.function("main", num_inputs=2, param_names=["x", "w"], signature=signature):
        ib.emit_call(name, args=[ib.r(0), ib.r(1)], dst=ib.r(2), note=Note("relax.add", "model.py:7"))
        ib.emit_ret(ib.r(2))
    return ib


# -- control --


def test_calls_and_immediates():
    ib = ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_call("tests.machine.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_call("tests.machine.mul", args=[ib.r(2), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    with ib.function("less", num_inputs=1):
        ib.emit_call("tests.machine.add_scalar", args=[ib.imm(-3), ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    with ib.function("nothing"):
        ib.emit_ret(ib.void_arg())
    vm = machine(ib)
    np.testing.assert_array_equal(vm["main"](ONES, TWOS).numpy(), [6] * 4)
    assert vm["less"](1) == -2 and vm["less"](2.5) == -0.5
    assert vm["nothing"]() is None
    assert vm.interpret("less", 10) == 7


@pytest.mark.parametrize(("condition", "expected"), [(0, 2.0), (1, 3.0), (np.array(False), 2.0), (np.array(5), 3.0)])
def test_if_and_goto(condition, expected):
    ib = ExecBuilder()
    with ib.function("main", num_inputs=3):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call("tests.machine.add", args=[ib.r(1), ib.r(2)], dst=ib.r(3))
        ib.emit_goto(2)
        ib.emit_call("tests.machine.mul", args=[ib.r(1), ib.r(2)], dst=ib.r(3))
        ib.emit_ret(ib.r(3))
    np.testing.assert_array_equal(machine(ib)["main"](condition, ONES, TWOS).numpy(), [expected] * 4)


def test_a_loop_counts_down():
    ib = ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call("tests.machine.identity", args=[ib.imm(0)], dst=ib.r(1))
        ib.emit_if(ib.r(0), 4)
        ib.emit_call("tests.machine.add_scalar", args=[ib.r(1), ib.r(0)], dst=ib.r(1))
        ib.emit_call("tests.machine.add_scalar", args=[ib.r(0), ib.imm(-1)], dst=ib.r(0))
        ib.emit_goto(-3)
        ib.emit_ret(ib.r(1))
    assert machine(ib)["main"](100) == 5050


def test_closures():
    ib = ExecBuilder()
    with ib.function("lifted", num_inputs=4):
        ib.emit_call("tests.machine.add", args=[ib.r(0), ib.r(1)], dst=ib.r(4))
        ib.emit_call("tests.machine.mul", args=[ib.r(2), ib.r(3)], dst=ib.r(5))
        ib.emit_call("tests.machine.add", args=[ib.r(4), ib.r(5)], dst=ib.r(6))
        ib.emit_ret(ib.r(6))
    with ib.function("make", num_inputs=2):
        ib.emit_call("vm.builtin.make_closure", args=[ib.f("lifted"), ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    with ib.function("main", num_inputs=4):
        ib.emit_call("make", args=[ib.r(0), ib.r(1)], dst=ib.r(4))
        ib.emit_call("vm.builtin.invoke_closure", args=[ib.vm_state(), ib.r(4), ib.r(2), ib.r(3)], dst=ib.r(5))
        ib.emit_ret(ib.r(5))
    with ib.function("packed", num_inputs=2):
        ib.emit_call("tests.machine.add", args=[ib.r(0), ib.r(1)])
        ib.emit_call(
            "vm.builtin.invoke_closure", args=[ib.vm_state(), ib.f("tests.machine.mul"), ib.r(0), ib.r(1)], dst=ib.r(2)
        )
        ib.emit_ret(ib.r(2))
    vm = machine(ib)
    values = [np.full(2, v, "float32") for v in (3, 5, 7, 11)]
    closure = vm["make"](*values[:2])
    assert closure.func_name == "lifted"
    # What was captured comes last: (7 + 11) + 3 * 5.
    np.testing.assert_array_equal(vm.invoke_closure(closure, *values[2:]).numpy(), [33, 33])
    np.testing.assert_array_equal(closure(*map(tensor, values[2:])).numpy(), [33, 33])
    np.testing.assert_array_equal(vm["main"](*values).numpy(), [33, 33])
    np.testing.assert_array_equal(vm["packed"](*values[:2]).numpy(), [15, 15])
    with pytest.raises(TypeMismatch, match=r"`lifted` expects 4 arguments .*, found 3"):
        vm.invoke_closure(closure, values[0])
    with pytest.raises(TypeMismatch, match="expected a closure or a function, found int"):
        vm.invoke_closure(3)


def recursive(through_closure: bool) -> ExecBuilder:
    """main(n): 0 for n == 0, else main(n - 1) + 1."""
    ib = ExecBuilder()
    ib.declare_function("main", VMFuncKind.VM_FUNC)
    with ib.function("main", num_inputs=1):
        ib.emit_if(ib.r(0), 5)
        ib.emit_call("tests.machine.add_scalar", args=[ib.r(0), ib.imm(-1)], dst=ib.r(1))
        if through_closure:
            ib.emit_call("vm.builtin.invoke_closure", args=[ib.vm_state(), ib.f("main"), ib.r(1)], dst=ib.r(2))
        else:
            ib.emit_call("main", args=[ib.r(1)], dst=ib.r(2))
        ib.emit_call("tests.machine.add_scalar", args=[ib.r(2), ib.imm(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
        ib.emit_ret(ib.r(0))
    return ib


@pytest.mark.parametrize("through_closure", [False, True])
def test_recursion_is_deeper_than_that_of_python(through_closure):
    depth = 10 * sys.getrecursionlimit()
    assert machine(recursive(through_closure))["main"](depth) == depth


def test_recursion_without_end_is_an_error(monkeypatch):
    monkeypatch.setattr(interpreter_module, "MAX_DEPTH", 100)
    vm = machine(recursive(False))
    with pytest.raises(ExecutionError, match="call one another more than 100 deep"):
        vm["main"](-1)
    assert vm["main"](100) == 100


def test_an_error_says_where_and_leaves_the_machine_whole():
    vm = machine(binary())
    with pytest.raises(ValueError, match="broadcast") as caught:
        vm["main"](ONES, np.ones(3, "float32"))
    assert caught.value.__notes__ == [
        "in instruction 0 of VM function `main`, a call of `tests.machine.add`, relax.add, model.py:7"
    ]
    np.testing.assert_array_equal(vm["main"](ONES, ONES).numpy(), TWOS)


# -- arguments and results --


def test_arguments_of_all_kinds():
    ib = ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call("tests.machine.identity", args=[ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    main = machine(ib)["main"]
    owned = tensor(ONES)
    assert main(owned) is owned
    for shared in (ONES, torch.ones(4)):
        result = main(shared)
        assert isinstance(result, Tensor) and np.shares_memory(np.asarray(result), np.asarray(shared))
    assert main(ShapeTuple((2, 3))) == (2, 3) and isinstance(main(ShapeTuple((2, 3))), ShapeTuple)
    assert main(np.float32(1.5)) == 1.5 and type(main(np.int8(2))) is int
    assert main("text") == "text" and main(None) is None and main(cpu(3)).device_id == 3
    nested = main([ONES, (TWOS, 3)])
    assert isinstance(nested, tuple) and isinstance(nested[1], tuple)
    np.testing.assert_array_equal(nested[1][0].numpy(), TWOS)
    with pytest.raises(TypeMismatch, match=r"argument 0 `arg0` of `main`: expected a tensor or array, .* found set"):
        main({1})
    with pytest.raises(TypeMismatch, match=r"argument 0 `arg0` of `main`: .* found object"):
        main([object()])


FACTS = Signature(
    "main", (Param("x", dtype="float32", shape=("n", 4, None)), Param("w", dtype="float32", shape=("n * 2",)))
)


@pytest.mark.parametrize(
    ("args", "kind", "message"),
    [
        ((np.ones((2, 4, 9), "float32"),), TypeMismatch, "`main` expects 2 arguments, found 1: missing `w`"),
        ((0, 0, 0), TypeMismatch, "`main` expects 2 arguments, found 3"),
        (
            (np.ones((2, 4, 9)), np.ones(4, "float32")),
            TypeMismatch,
            "argument 0 `x` of `main`: expected dtype float32, found float64",
        ),
        (
            (np.ones(4, "float32"), np.ones(4, "float32")),
            ShapeMismatch,
            r"argument 0 `x` of `main`: expected 3 dimensions, shape \(n, 4, \?\), found 1, shape \(4,\)",
        ),
        (
            (np.ones((2, 5, 9), "float32"), np.ones(4, "float32")),
            ShapeMismatch,
            r"argument 0 `x` of `main`: expected shape \(n, 4, \?\) with n = 2, found \(2, 5, 9\)",
        ),
        (
            (np.ones((2, 4, 9), "float32"), np.ones(3, "float32")),
            ShapeMismatch,
            r"argument 1 `w` of `main`: expected shape \(n \* 2,\) with n = 2, found \(3,\)",
        ),
        ((1, np.ones(4, "float32")), TypeMismatch, "argument 0 `x` of `main`: expected a tensor, found int"),
    ],
)
def test_what_is_known_of_parameters_is_checked(args, kind, message):
    vm = machine(binary(signature=FACTS))
    with pytest.raises(kind, match=message):
        vm["main"](*args)


def test_arguments_that_fit_what_is_known():
    register_func("tests.machine.first", lambda x, w: x, override=True)
    vm = machine(binary("tests.machine.first", FACTS))
    assert vm["main"](np.ones((2, 4, 9), "float32"), np.ones(4, "float32")).shape == (2, 4, 9)
    assert vm["main"](np.ones((0, 4, 0), "float32"), np.ones(0, "float32")).shape == (0, 4, 0)


def test_functions_that_are_missing():
    ib = binary("tests.machine.nowhere")
    with pytest.raises(NotRegistered, match=r"the program calls 'tests.machine.nowhere', which is neither"):
        machine(ib)
    vm = machine(binary())
    with pytest.raises(NotRegistered, match="the program has no function 'other'; it has main"):
        vm["other"]
    with pytest.raises(NotRegistered, match="has no function 'other'"):
        vm.set_input("other", 1)


def test_machines_of_other_things_are_refused():
    ex = binary().get()
    with pytest.raises(TypeMismatch, match=r"expected an Executable, .* found str"):
        VirtualMachine("model.so", cpu())
    with pytest.raises(DeviceError, match="no machine can run on cpu:1: the processor is cpu:0"):
        VirtualMachine(ex, cpu(1))
    with pytest.raises(TypeMismatch, match="expected a Device or a list of them, found 'cpu'"):
        VirtualMachine(ex, ["cpu"])
    with pytest.raises(InvalidValue, match="memory_cfg must be 'naive' or 'pooled', found 'fast'"):
        VirtualMachine(ex, cpu(), memory_cfg="fast")
    with pytest.raises(TypeMismatch, match="memory_cfg is expected to be a string or a dictionary"):
        VirtualMachine(ex, cpu(), memory_cfg=3)
    assert VirtualMachine(ex, [cpu()], memory_cfg={cpu(): "naive"}).devices == [cpu()]


# -- kernels --


@T.prim_func
def scale(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    T.func_attr({"global_symbol": "scale"})
    for i in range(4):
        B[i] = A[i] * T.float32(10)


def with_kernel() -> ExecBuilder:
    ib = ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call(
            "vm.builtin.alloc_storage",
            args=[ib.vm_state(), (16,), ib.imm(0), oneir.DataType("uint8"), "global"],
            dst=ib.r(1),
        )
        ib.emit_call("vm.builtin.alloc_tensor", args=[ib.r(1), ib.imm(0), (4,), oneir.DataType("float32")], dst=ib.r(2))
        ib.emit_call("scale", args=[ib.r(0), ib.r(2)])
        ib.emit_ret(ib.r(2))
    return ib


def test_kernels_of_the_library_come_before_registered_functions():
    def wrong(*args):
        raise AssertionError

    register_func("scale", wrong, override=True)
    ex = Executable(with_kernel().program(), oneir.build(scale))
    try:
        vm = VirtualMachine(ex, cpu())
        np.testing.assert_array_equal(vm["main"](TWOS).numpy(), [20] * 4)
        out = np.zeros(4, "float32")
        ex["scale"](ONES, out)
        np.testing.assert_array_equal(out, [10] * 4)
        with pytest.raises(NotRegistered, match=r'call it through a machine: VirtualMachine\(ex, cpu\(\)\)\["main"\]'):
            ex["main"]
        assert ex.jit() is ex and ex.mod is ex and vm.module is vm
    finally:
        oneir.runtime.remove_global_func("scale")


def test_many_threads_share_a_machine():
    vm = VirtualMachine(Executable(with_kernel().program(), oneir.build(scale)), cpu())

    def call(value: int) -> bool:
        return all((vm["main"](np.full(4, value, "float32")).numpy() == 10 * value).all() for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(16)))


# -- constants --


def test_constants_are_replaced_in_all_machines():
    ib = ExecBuilder()
    weight = ib.convert_constant(ONES, "weight")
    with ib.function("main", num_inputs=1):
        ib.emit_call("tests.machine.add", args=[ib.r(0), weight], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    ex = ib.get()
    machines = [VirtualMachine(ex, cpu()) for _ in range(2)]
    mains = [vm["main"] for vm in machines]
    assert all((main(ONES).numpy() == 2).all() for main in mains)
    ex.set_constant("weight", TWOS)
    assert all((main(ONES).numpy() == 3).all() for main in mains)
    ex.set_constant(0, torch.full((8,), 4.0)[::2])
    assert all((main(ONES).numpy() == 5).all() for main in mains)
    assert ex.constant("weight").is_contiguous()
    with pytest.raises(TypeMismatch, match="constant 'weight': expected dtype float32, found float64"):
        ex.set_constant("weight", np.ones(4))
    with pytest.raises(ShapeMismatch, match=r"constant 0: expected shape \(4,\), found \(2,\)"):
        ex.set_constant(0, np.ones(2, "float32"))
    with pytest.raises(NotRegistered, match="there is no constant named 'bias'; there are weight"):
        ex.set_constant("bias", ONES)
    with pytest.raises(InvalidValue, match="there is no constant 1, only 1"):
        ex.set_constant(1, ONES)


def test_only_tensors_are_replaced():
    ib = ExecBuilder()
    ib.convert_constant("text")
    with pytest.raises(InvalidValue, match="constant 0 is 'text'; only tensors can be replaced"):
        ib.get().set_constant(0, ONES)


# -- calls in steps --


def test_stateful_calls():
    vm = machine(binary())
    with pytest.raises(InvalidValue, match="No inputs set for stateful call of 'main'; use `set_input` first"):
        vm.invoke_stateful("main")
    with pytest.raises(InvalidValue, match="No output saved for call of 'main'"):
        vm.get_outputs("main")
    mine = ONES.copy()
    vm.set_input("main", mine, w=TWOS)
    mine[:] = 100
    vm.invoke_stateful("main")
    np.testing.assert_array_equal(vm.get_outputs("main").numpy(), [3] * 4)
    vm["set_input"]("main", TWOS, TWOS)
    vm["invoke_stateful"]("main")
    np.testing.assert_array_equal(vm["get_outputs"]("main").numpy(), [4] * 4)


def test_named_arguments():
    vm = machine(binary())
    vm.set_input("main", ONES, x=TWOS)
    vm.invoke_stateful("main")
    with pytest.raises(TypeMismatch, match="`main` expects 2 arguments, found 1: missing `w`"):
        vm.set_input("main", x=ONES)
    with pytest.raises(TypeMismatch, match="`main` expects 2 arguments, found 3"):
        vm.set_input("main", ONES, ONES, w=ONES)
    with pytest.warns(UserWarning, match='Keyword argument "bias" is unused in main'):
        vm.set_input("main", ONES, ONES, bias=ONES)


def test_numbers_become_tensors_where_a_parameter_is_one():
    register_func("tests.machine.second", lambda x, w: w, override=True)
    facts = Signature("main", (Param("x", kind="int"), Param("w", dtype="int32", shape=())))
    vm = machine(binary("tests.machine.second", facts))
    vm.set_input("main", 3, 4)
    vm.invoke_stateful("main")
    result = vm.get_outputs("main")
    assert result.dtype == "int32" and result.shape == () and result.numpy() == 4


def test_saved_functions():
    vm = machine(binary())
    vm.save_function("main", "saved", ONES, TWOS)
    np.testing.assert_array_equal(vm["saved"]().numpy(), [3] * 4)
    vm.save_function("main", "saved", w=ONES, x=ONES, include_return=False)
    assert vm["saved"]() is None
    with pytest.raises(InvalidValue, match="'main' is a function of the program; save under another name"):
        vm.save_function("main", "main", ONES, TWOS)


def test_time_evaluator_counts_its_calls():
    calls = []
    register_func("tests.machine.note", lambda a, b: calls.append(1), override=True)
    vm = machine(binary("tests.machine.note"))
    result = vm.time_evaluator("main", cpu(), number=3, repeat=2)(1, 2)
    assert len(calls) == 7 and len(result.results) == 2
    vm.set_input("main", 1, 2)
    vm.time_evaluator("invoke_stateful", cpu(), number=1)("main")
    assert len(calls) == 9
    with pytest.raises(InvalidValue, match="must be at least 1, found 0"):
        vm.time_evaluator("main", cpu(), number=0)


# -- instruments --


def test_an_instrument_sees_calls_and_may_skip_them():
    ib = ExecBuilder()
    with ib.function("inner", num_inputs=1):
        ib.emit_call("tests.machine.add", args=[ib.r(0), ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    with ib.function("main", num_inputs=1):
        ib.emit_call("inner", args=[ib.r(0)], dst=ib.r(1))
        ib.emit_call("tests.machine.mul", args=[ib.r(1), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    vm = machine(ib)
    seen = []

    def instrument(func, name, before_run, ret_value, *args):
        assert callable(func)
        seen.append((name, before_run, None if ret_value is None else float(ret_value.numpy()[0]), len(args)))
        return VMInstrumentReturnKind.SKIP_RUN if name == "tests.machine.mul" else VMInstrumentReturnKind.NO_OP

    vm.set_instrument(instrument)
    assert vm["main"](TWOS) is None
    assert seen == [
        ("inner", True, None, 1),
        ("tests.machine.add", True, None, 2),
        ("tests.machine.add", False, 4.0, 2),
        ("inner", False, 4.0, 1),
        ("tests.machine.mul", True, None, 2),
    ]
    vm.set_instrument(None)
    assert vm["main"](TWOS).numpy()[0] == 16 and len(seen) == 5
    with pytest.raises(TypeMismatch, match="expected a function as the instrument, found int"):
        vm.set_instrument(3)


def test_an_instrument_by_name_and_its_errors():
    class Stop(Exception):
        pass

    def instrument(*args):
        raise Stop

    register_func("tests.machine.make_instrument", lambda: instrument, override=True)
    vm = machine(binary())
    vm.set_instrument("tests.machine.make_instrument")
    with pytest.raises(Stop):
        vm["main"](ONES, ONES)


# -- native forms --


class Native:
    """Stands for a compiled function: adds a constant to its argument."""

    def __init__(self):
        self.bound, self.calls, self.constants = 0, 0, {}

    def bind(self, machine):
        self.bound += 1
        self.constants[0] = machine.constant(0)

        def native(x):
            self.calls += 1
            return tensor(np.asarray(x) + self.constants[0].numpy())

        return native

    def set_constant(self, index, value):
        self.constants[index] = value


@pytest.fixture
def native_machine():
    ib = ExecBuilder()
    weight = ib.convert_constant(ONES, "weight")
    with ib.function("main", num_inputs=1):
        ib.emit_call("tests.machine.add", args=[ib.r(0), weight], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    native = Native()
    ex = Executable(ib.program(), natives={"main": native})
    return ex, native, VirtualMachine(ex, cpu())


def test_a_native_form_is_what_a_machine_returns(native_machine):
    ex, native, vm = native_machine
    main = vm["main"]
    assert vm["main"] is main and native.bound == 1
    assert main.__qualname__.endswith("bind.<locals>.native")  # nothing is wrapped around it
    assert (main(TWOS).numpy() == 3).all() and native.calls == 1
    vm.set_input("main", TWOS)
    vm.invoke_stateful("main")
    vm.save_function("main", "saved", TWOS)
    assert (vm["saved"]().numpy() == vm.get_outputs("main").numpy()).all() and native.calls == 3
    ex.set_constant("weight", TWOS)
    assert (main(TWOS).numpy() == 4).all()


def test_when_bytecode_is_executed_instead(native_machine):
    ex, native, vm = native_machine
    assert (vm.interpret("main", TWOS).numpy() == 3).all()
    assert (VirtualMachine(ex, cpu(), profile=True)["main"](TWOS).numpy() == 3).all()
    assert [call["Name"] for call in vm.profile("main", TWOS).calls] == ["tests.machine.add"]
    names = []
    vm.set_instrument(lambda func, name, *rest: names.append(name))
    assert (vm["main"](TWOS).numpy() == 3).all() and names == ["tests.machine.add"] * 2
    assert native.calls == 0
    vm.set_instrument(None)
    vm["main"](TWOS)
    assert native.calls == 1


def test_threads_bind_a_native_form_once(native_machine):
    _, native, vm = native_machine
    barrier = threading.Barrier(8)

    def look_up(_: int):
        barrier.wait()
        return vm["main"]

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(look_up, range(8)))) == 1
    assert native.bound == 1


def test_executables_are_pickled_and_copied_as_their_files():
    def identity() -> Executable:
        builder = ExecBuilder()
        with builder.function("main", num_inputs=1):
            builder.emit_ret(builder.r(0))
        return builder.get()

    x = np.arange(3.0)
    for again in (pickle.loads(pickle.dumps(identity())), copy.deepcopy(identity())):
        np.testing.assert_array_equal(VirtualMachine(again, cpu())["main"](x).numpy(), x)
        with pytest.raises(UnsupportedError, match="cannot be pickled or copied: pickle its executable"):
            copy.deepcopy(VirtualMachine(again, cpu()))
