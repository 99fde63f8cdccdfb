"""Graphs from source to numbers: native code, bytecode and NumPy agree, and mistakes are refused with a message."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from typing import Any

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.runtime.error import (
    InvalidValue,
    NotRegistered,
    OneIRError,
    ShapeMismatch,
    TypeMismatch,
    WellFormedError,
)
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T

CPU = oneir.cpu()


def machine(mod: Any, **options: Any) -> relax.VirtualMachine:
    return relax.VirtualMachine(relax.build(mod, **options), CPU)


def values(result: Any) -> Any:
    """The arrays of a result."""
    if isinstance(result, tuple) and not isinstance(result, oneir.runtime.ShapeTuple):
        return tuple(map(values, result))
    return result.numpy() if isinstance(result, oneir.runtime.Tensor) else result


def compare(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert isinstance(found, tuple) and len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            compare(f, e)
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    else:
        assert found == expected


def check(vm: relax.VirtualMachine, args: list[Any], expected: Any, *, native: bool = True) -> None:
    """Native code and bytecode give what NumPy gives."""
    assert ("main" in vm.executable.natives) == native
    compare(values(vm["main"](*args)), expected)
    compare(values(vm.interpret("main", *args)), expected)


rng = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype("float32")


@I.ir_module
class Perceptron:
    @R.function
    def main(
        x: R.Tensor(("n", 16), "float32"),
        w: R.Tensor((32, 16), "float32"),
        b: R.Tensor((32,), "float32"),
        v: R.Tensor((32, 4), "float32"),
    ) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            wt = R.permute_dims(w)
            a = R.matmul(x, wt)
            c = R.add(a, b)
            d = R.nn.relu(c)
            e = R.matmul(d, v)
            gv = R.nn.softmax(e)
            R.output(gv)
        return gv


WEIGHTS = {"w": floats(32, 16), "b": floats(32), "v": floats(32, 4)}


def perceptron(x: np.ndarray) -> np.ndarray:
    e = np.maximum(x @ WEIGHTS["w"].T + WEIGHTS["b"], 0) @ WEIGHTS["v"]
    e = np.exp(e - e.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def dynamic() -> relax.VirtualMachine:
    return machine(Perceptron, params=WEIGHTS)


def test_one_executable_serves_every_batch(dynamic) -> None:
    for n in (1, 2, 3, 7, 8, 16, 31, 64, 5):
        x = floats(n, 16)
        check(dynamic, [x], perceptron(x))


def test_a_static_batch() -> None:
    static = relax.transform.BindSymbolicVars({"n": 3})(Perceptron)
    x = floats(3, 16)
    check(machine(static), [x, *WEIGHTS.values()], perceptron(x))
    assert machine(static, params=WEIGHTS).executable.natives["main"].spec.plan is None


@I.ir_module
class Results:
    """Results of every kind: computed, an argument, a constant, nested, one tensor twice."""

    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")) -> R.Tuple(
        R.Tensor((2, 3), "float32"),
        R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((2,), "int32")),
        R.Tensor((2,), "float32"),
        R.Tensor((2, 3), "float32"),
    ):
        with R.dataflow():
            a = R.add(x, y)
            b = R.sum(a, axis=1)
            R.output(a, b)
        return (a, (x, R.const([7, 8], "int32")), b, a)


def test_results_that_are_arguments_constants_or_the_same() -> None:
    x, y = floats(2, 3), floats(2, 3)
    expected = (x + y, (x, np.array([7, 8], "int32")), (x + y).sum(1), x + y)
    check(machine(Results), [x, y], expected)


def test_a_result_is_memory_of_the_callers() -> None:
    vm = machine(Results)
    x, y = floats(2, 3), floats(2, 3)
    first = vm["main"](x, y)
    kept = first[0].numpy().copy()
    vm["main"](x + 1, y)
    np.testing.assert_array_equal(first[0].numpy(), kept)


def test_a_function_that_only_returns_its_argument_or_a_constant() -> None:
    @I.ir_module
    class Identity:
        @R.function
        def main(x: R.Tensor(("n",), "int64")) -> R.Tensor(("n",), "int64"):
            return x

        @R.function
        def constant() -> R.Tensor((2,), "float32"):
            return R.const([1, 2], "float32")

    vm = machine(Identity)
    x = np.arange(3)
    compare(values(vm["main"](x)), x)
    compare(values(vm.interpret("main", x)), x)
    compare(values(vm["constant"]()), np.array([1, 2], "float32"))
    compare(values(vm.interpret("constant")), np.array([1, 2], "float32"))


@I.ir_module
class Tuples:
    @R.function
    def main(
        t: R.Tuple(R.Tensor((4,), "float32"), R.Tuple(R.Tensor((4,), "float32"), R.Shape([2, 2]))),
    ) -> R.Tuple(R.Tuple(R.Tensor((2, 2), "float32")), R.Tensor((4,), "float32")):
        with R.dataflow():
            a = t[0]
            u = t[1]
            b = u[0]
            c = R.multiply(a, b)
            d = R.reshape(c, (2, 2))
            R.output(c, d)
        return ((d,), c)


def test_tuples_of_tuples_go_in_and_out() -> None:
    a, b = floats(4), floats(4)
    expected = (((a * b).reshape(2, 2),), a * b)
    check(machine(Tuples), [(a, (b, oneir.runtime.ShapeTuple([2, 2])))], expected, native=False)


@I.ir_module
class Views:
    @R.function
    def main(x: R.Tensor(("n", 6), "float32"), w: R.Tensor((3, 3), "float32")) -> R.Tensor(("n * 6",), "float32"):
        n = T.int64()
        with R.dataflow():
            a = R.nn.softmax(x)
            b = R.reshape(a, (n * 2, 3))
            c = R.matmul(b, w)
            d = R.matmul(c, w)
            gv = R.reshape(d, (n * 6,))
            R.output(gv)
        return gv


def test_reshapes_are_views() -> None:
    vm = machine(Views)
    assert "vm.builtin.reshape" in vm.executable.as_text()
    w = floats(3, 3)
    for n in (1, 4):
        x = floats(n, 6)
        e = np.exp(x - x.max(1, keepdims=True))
        check(vm, [x, w], ((e / e.sum(1, keepdims=True)).reshape(-1, 3) @ w @ w).reshape(-1))


def check_either(vm: relax.VirtualMachine, args: list[Any], expected: Any) -> None:
    check(vm, args, expected, native="main" in vm.executable.natives)


def test_numbers_and_shapes_are_arguments() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(number: R.Prim(value="k"), x: R.Tensor((1,), "float32"), s: R.Shape(["a", "b"])) -> R.Tuple(
            R.Tensor(("k", 2), "float32"), R.Tensor(("a", "b"), "float32")
        ):
            k, a, b = T.int64(), T.int64(), T.int64()
            with R.dataflow():
                y = R.broadcast_to(x, (k, 2))
                z = R.broadcast_to(x, (a, b))
                R.output(y, z)
            return (y, z)

    x = floats(1)
    expected = (np.broadcast_to(x, (5, 2)).copy(), np.broadcast_to(x, (2, 3)).copy())
    check(machine(Module), [5, x, oneir.runtime.ShapeTuple([2, 3])], expected, native=False)


def test_a_number_alone_keeps_the_function_native() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(number: R.Prim(value="k"), x: R.Tensor((1,), "float32")) -> R.Tensor(("k", 2), "float32"):
            k = T.int64()
            return R.broadcast_to(x, (k, 2))

    x = floats(1)
    vm = machine(Module)
    for k in (0, 1, 5):
        check(vm, [k, x], np.broadcast_to(x, (k, 2)).copy())


@I.ir_module
class Cast:
    @R.function
    def main(x: R.Tensor(ndim=2, dtype="float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(ndim=2, dtype="float32"):
        n, m = T.int64(), T.int64()
        a = R.match_cast(x, R.Tensor((m, n), "float32"))
        with R.dataflow():
            gv = R.add(a, y)
            R.output(gv)
        return gv


def test_match_cast_gives_extents_and_checks_them() -> None:
    vm = machine(Cast)
    x, y = floats(3, 4), floats(4)
    check_either(vm, [x, y], x + y)
    for call in (vm["main"], lambda *args: vm.interpret("main", *args)):
        with pytest.raises(OneIRError, match=r"match_cast of `a`"):
            call(x, floats(3))


@I.ir_module
class Control:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        if c:
            a = R.exp(x)
            y = R.add(a, x)
        else:
            b = R.multiply(x, x)
            y = R.negative(b)
        return y

    @R.function
    def factorial(n: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        cls = Control
        cond = R.less(n, R.const(2, "int64"))
        if cond:
            y = R.const(1, "int64")
        else:
            m = R.subtract(n, R.const(1, "int64"))
            r = cls.factorial(m)
            y = R.multiply(n, r)
        return y


def test_branches_and_recursion() -> None:
    vm = machine(Control)
    x = floats(5)
    check(vm, [np.array(True), x], np.exp(x) + x)
    check(vm, [np.array(False), x], -x * x)
    assert vm["factorial"](np.array(20)).numpy() == 2432902008176640000
    assert vm["factorial"](np.array(1000)).shape == ()  # deeper than Python's stack


def test_closures_and_local_functions() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            @R.function
            def inner(z: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
                s = R.add(z, x)
                return s

            a = inner(y)
            b = inner(a)
            return b

    x, y = floats(3), floats(3)
    lifted = relax.transform.LambdaLift()(Module)
    check_either(machine(lifted), [x, y], y + x + x)
    check_either(machine(Module), [x, y], y + x + x)


@oneir.register_func("test.build.pair")
def pair(x: Any) -> Any:
    return oneir.runtime.tensor(x.numpy() + 1), oneir.runtime.tensor(x.numpy() * 2)


@oneir.register_func("test.build.fill")
def fill(x: Any, k: int, out: Any) -> None:
    out.copyfrom(x.numpy() * k)


def test_functions_of_the_runtime_return_objects_or_write_outputs() -> None:
    @I.ir_module
    class Objects:
        @R.function(pure=False)
        def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            t = R.call_packed(
                "test.build.pair", x, sinfo_args=R.Tuple(R.Tensor((3,), "float32"), R.Tensor((3,), "float32"))
            )
            a = t[0]
            b = t[1]
            return R.add(a, b)

    @I.ir_module
    class Outputs:
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            with R.dataflow():
                a = R.call_dps_packed("test.build.fill", (x, R.prim_value(3)), out_sinfo=R.Tensor((n,), "float32"))
                gv = R.add(a, x)
                R.output(gv)
            return gv

    x = floats(3)
    check(machine(Objects), [x], x + 1 + x * 2, native=False)
    check(machine(Outputs), [x], x * 3 + x)


def test_calls_in_place_write_their_arguments() -> None:
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def bump(x: T.Buffer((T.int64(4),), "float32")):
            for i in range(T.int64(4)):
                with T.block("bump"):
                    v = T.axis.spatial(T.int64(4), i)
                    x[v] = x[v] + T.float32(1)

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            with R.dataflow():
                a = R.exp(x)
                b = R.call_tir_inplace(cls.bump, (a,), inplace_indices=[0], out_sinfo=R.Tensor((4,), "float32"))
                gv = R.multiply(b, b)
                R.output(gv)
            return gv

    x = floats(4)
    kept = x.copy()
    check(machine(Module), [x], (np.exp(x) + 1) ** 2)
    np.testing.assert_array_equal(x, kept)


def test_empty_tensors() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32")) -> R.Tuple(R.Tensor(("n", 3), "float32"), R.Tensor((3,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.sum(a, axis=0)
                R.output(a, b)
            return (a, b)

    vm = machine(Module)
    for n in (0, 2):
        x = floats(n, 3)
        result = values(vm["main"](x))
        compare(result[0], np.exp(x))
        assert result[1].shape == (3,)
    compare(values(vm["main"](floats(0, 3)))[0], np.zeros((0, 3), "float32"))


def test_inputs_of_other_layouts_and_libraries(dynamic) -> None:
    import torch

    x = floats(4, 16)
    expected = perceptron(x)
    readonly = x.copy()
    readonly.setflags(write=False)
    wide = np.zeros((4, 32), "float32")
    wide[:, ::2] = x
    for given in (readonly, torch.from_numpy(x), oneir.runtime.tensor(x)):
        check(dynamic, [given], expected)
    for given in (np.asfortranarray(x), wide[:, ::2], torch.from_numpy(x.T.copy()).T):
        for call in both(dynamic):
            with pytest.raises(ShapeMismatch, match=r"`x` of `main`: expected a contiguous tensor .*copy it with"):
                call(given)


def test_many_threads_call_one_machine(dynamic) -> None:
    inputs = [floats(n % 9 + 1, 16) for n in range(24)]
    expected = [perceptron(x) for x in inputs]
    found: list[Any] = [None] * len(inputs)

    def work(start: int) -> None:
        for i in range(start, len(inputs), 8):
            for _ in range(5):
                found[i] = dynamic["main"](inputs[i]).numpy()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for f, e in zip(found, expected, strict=True):
        compare(f, e)


def test_many_machines_share_one_executable(dynamic) -> None:
    x = floats(2, 16)
    for _ in range(3):
        check(relax.VirtualMachine(dynamic.executable, CPU), [x], perceptron(x))


def test_constants_can_be_replaced() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                gv = R.multiply(x, w)
                R.output(gv)
            return gv

    vm = machine(Module, params={"w": np.array([2, 3], "float32")})
    x = floats(2)
    check(vm, [x], x * np.array([2, 3], "float32"))
    vm.executable.set_constant("w", np.array([5, 7], "float32"))
    check(vm, [x], x * np.array([5, 7], "float32"))
    with pytest.raises(ShapeMismatch, match=r"constant 'w': expected shape \(2,\), found \(3,\)"):
        vm.executable.set_constant("w", np.zeros(3, "float32"))
    with pytest.raises(TypeMismatch, match="constant 'w': expected dtype float32, found float64"):
        vm.executable.set_constant("w", np.zeros(2))


def test_a_library_needs_only_the_runtime(dynamic, tmp_path) -> None:
    path = dynamic.executable.export_library(tmp_path / "model.so")
    x = floats(3, 16)
    np.save(tmp_path / "x.npy", x)
    program = f"""
        import sys, types
        import numpy as np
        package = types.ModuleType("oneir")
        package.__path__ = {list(oneir.__path__)!r}
        sys.modules["oneir"] = package
        import oneir.runtime as runtime
        ex = runtime.load_module({path!r})
        vm = runtime.vm.VirtualMachine(ex, runtime.cpu())
        x = np.load({str(tmp_path / "x.npy")!r})
        np.save({str(tmp_path / "y.npy")!r}, vm["main"](x).numpy())
        np.save({str(tmp_path / "z.npy")!r}, vm.interpret("main", x).numpy())
        compiler = {{"oneir.relax", "oneir.codegen", "oneir.driver", "oneir.script", "oneir.te"}}
        assert not compiler & set(sys.modules), compiler & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
    compare(np.load(tmp_path / "y.npy"), perceptron(x))
    compare(np.load(tmp_path / "z.npy"), perceptron(x))


# -- mistakes --


def both(vm: relax.VirtualMachine) -> list[Any]:
    return [vm["main"], lambda *args: vm.interpret("main", *args)]


def test_wrong_arguments_are_named(dynamic) -> None:
    for call in both(dynamic):
        with pytest.raises(OneIRError, match=r"`x`.*expected .*16.*found .*15"):
            call(floats(2, 15))
        with pytest.raises(OneIRError, match=r"`x`.*expected .*2.*found .*3"):
            call(floats(2, 16, 1))
        with pytest.raises(OneIRError, match=r"`x`.*expected .*float32.*found .*float64"):
            call(np.zeros((2, 16)))
        with pytest.raises(TypeMismatch, match=r"`main` expects 1 arguments?.*found 0"):
            call()
        with pytest.raises(TypeMismatch, match=r"`main` expects 1 arguments?.*found 2"):
            call(floats(2, 16), floats(2, 16))
        with pytest.raises(TypeMismatch, match=r"`x`.*expected .*found .*(str|a text)"):
            call("x")


def test_extents_that_disagree_are_named() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            return R.add(x, y)

    vm = machine(Module)
    for call in both(vm):
        with pytest.raises(OneIRError, match=r"`y`.*expected .*3.*found .*4"):
            call(floats(3), floats(4))
    x, y = floats(3), floats(3)
    check(vm, [x, y], x + y)


def test_an_unknown_function_of_the_runtime_is_named() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            with R.dataflow():
                gv = R.call_dps_packed("env.nowhere", (x,), out_sinfo=R.Tensor((3,), "float32"))
                R.output(gv)
            return gv

    with pytest.raises(NotRegistered, match=r"'env.nowhere', which is neither .* register it with @register_func"):
        machine(Module)


def test_names_that_clash_are_refused() -> None:
    first = Results["main"]
    mod = oneir.IRModule({"a": first.with_attr("global_symbol", "same"), "b": first.with_attr("global_symbol", "same")})
    with pytest.raises(OneIRError, match="same"):
        relax.build(mod)


def test_a_module_that_is_not_well_formed_is_refused_with_the_variable() -> None:
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    stray = relax.Var("stray", relax.TensorStructInfo((3,), "float32"))
    func = relax.Function([x], stray, attrs={"global_symbol": "main"})
    with pytest.raises(WellFormedError, match="`stray`"):
        relax.build(oneir.IRModule({"main": func}))


def test_a_damaged_library_is_refused(dynamic, tmp_path) -> None:
    path = tmp_path / "model.so"
    dynamic.executable.export_library(path)
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], content[:-5], content[:-40] + bytes(40), b"", b"nonsense"):
        path.write_bytes(damaged)
        with pytest.raises(OneIRError):
            oneir.runtime.load_module(str(path))


def test_an_argument_of_loops_with_another_shape_is_named() -> None:
    source = """
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def copy(x: T.Buffer((T.int64(4),), "float32"), y: T.Buffer((T.int64(4),), "float32")):
            for i in range(T.int64(4)):
                with T.block("copy"):
                    v = T.axis.spatial(T.int64(4), i)
                    y[v] = x[v]

        @R.function
        def main(a: R.Tensor((3,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            b = R.call_tir(cls.copy, (a,), out_sinfo=R.Tensor((4,), "float32"))
            return b
    """
    with pytest.raises(OneIRError, match=r"argument 0 \(`x`\) of `copy`: expected .*\[4\].*found R.Tensor\(\(3,\)"):
        relax.build(oneir.script.from_source(textwrap.dedent(source)))


@pytest.mark.parametrize(
    ("args", "kind", "message"),
    [
        ((3,), TypeMismatch, "build expects an IRModule or a relax Function, found int"),
        ((Results, None, None, "fastest"), NotRegistered, "no pipeline 'fastest' is registered; there are default"),
        ((Results, None, {"q": np.zeros(1)}), NotRegistered, "no parameter `q`; it has x, y"),
        ((Results, None, None, "default", "default", "slow"), InvalidValue, 'exec_mode is "bytecode" or "compiled"'),
    ],
)
def test_wrong_arguments_of_build(args, kind, message) -> None:
    with pytest.raises(kind, match=message):
        relax.build(*args)
