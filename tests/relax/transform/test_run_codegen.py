"""RunCodegen: what a compiler gets, what becomes of the calls, and that the built program runs its functions.

The compiler of these tests computes with NumPy, operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from oneir import IRModule, cpu, relax
from oneir.ir.structural import assert_structural_equal
from oneir.ir.transform import Sequential
from oneir.relax.dpl import is_const, is_op, wildcard
from oneir.relax.transform import FuseOpsByPattern, MergeCompositeFunctions, RunCodegen
from oneir.runtime import register_func, remove_global_func, tensor
from oneir.runtime.error import InvalidValue, NotRegistered, OneIRError, TypeMismatch, UnsupportedError
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T


class NumPyModule:
    """Functions by name, each of which writes its result into its last argument."""

    def __init__(self, functions: dict[str, Callable[..., Any]]):
        self.functions = functions
        self.calls: list[str] = []

    def implements_function(self, name: str) -> bool:
        return name in self.functions

    def get_function(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> None:
            self.calls.append(name)
            *inputs, output = [np.from_dlpack(a) for a in args]
            output[...] = self.functions[name](*inputs)

        return call


OPERATORS = {"relax.matmul": np.matmul, "relax.add": np.add, "relax.multiply": np.multiply, "relax.tanh": np.tanh}


def evaluate(func: relax.Function, args: tuple[np.ndarray, ...]) -> Any:
    """What a function computes, with the operators above."""
    known: dict[Any, Any] = dict(zip(func.params, args, strict=True))

    def value(expr: Any) -> Any:
        if isinstance(expr, relax.Constant):
            return expr.data.numpy()
        if isinstance(expr, relax.Call):
            values = [value(a) for a in expr.args]
            callee = known.get(expr.op)
            return evaluate(callee, tuple(values)) if callee is not None else OPERATORS[expr.op.name](*values)
        return expr if isinstance(expr, relax.Function) else known[expr]

    for block in func.body.blocks:
        for binding in block.bindings:
            known[binding.var] = value(binding.value)
    return value(func.body.body)


@pytest.fixture
def compiled() -> Iterator[list[Any]]:
    """Registers the compiler; has what it was given, and what it made."""
    seen: list[Any] = []

    @register_func("relax.ext.numpy")
    def compile_all(functions: Any, options: Any, constant_names: Any) -> list[NumPyModule]:
        def of(func: relax.Function) -> Callable[..., Any]:
            return lambda *args: evaluate(func, args)

        module = NumPyModule({func.attrs["global_symbol"]: of(func) for func in functions})
        seen.append((functions, options, constant_names, module))
        return [module]

    yield seen
    remove_global_func("relax.ext.numpy")


@I.ir_module
class Model:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32"), b: R.Tensor((4,), "float32")
    ) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, b)
            lv2 = R.abs(lv1)
            lv3 = R.multiply(lv2, R.const(2.0, "float32"))
            gv = R.tanh(lv3)
            R.output(gv)
        return gv


PATTERNS: list[Any] = [
    ("numpy.linear", is_op("relax.add")(is_op("relax.matmul")(wildcard(), wildcard()), wildcard())),
    ("numpy.scaled_tanh", is_op("relax.tanh")(is_op("relax.multiply")(wildcard(), is_const()))),
]
PARTITION = FuseOpsByPattern(PATTERNS, annotate_codegen=True)


def reference(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.tanh(2 * np.abs(x @ w + b))


def test_calls_become_calls_of_symbols(compiled: list[Any]) -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32"), b: R.Tensor((4,), "float32")
        ) -> R.Tensor(("n", 4), "float32"):
            n = T.int64()
            with R.dataflow():
                lv = R.call_dps_packed(
                    "fused_relax_matmul_relax_add_numpy", (x, w, b), out_sinfo=R.Tensor((n, 4), "float32")
                )
                lv1 = R.abs(lv)
                gv = R.call_dps_packed(
                    "fused_relax_multiply_relax_tanh_numpy", (lv1,), out_sinfo=R.Tensor((n, 4), "float32")
                )
                R.output(gv)
            return gv

    after = RunCodegen({"numpy": {"level": 3}, "other": {}})(PARTITION(Model))
    functions, options, constant_names, module = compiled[0]
    assert_structural_equal(after["main"], Expected["main"])
    assert list(after.functions) == [after.get_global_var("main")]
    assert options == {"level": 3}
    assert sorted(f.attrs["global_symbol"] for f in functions) == sorted(module.functions)
    assert list(after.attrs["external_mods"]) == [module]
    name = "fused_relax_multiply_relax_tanh_numpy_numpy_const_0"
    assert list(constant_names.values()) == [name] and list(after.attrs["const_name_to_constant"]) == [name]
    assert after.attrs["const_name_to_constant"][name].numpy() == 2


def test_the_built_program_calls_what_was_compiled(compiled: list[Any]) -> None:
    mod = RunCodegen()(PARTITION(Model))
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), cpu())
    rng = np.random.default_rng(0)
    w, b = rng.random((4, 4), np.float32), rng.random(4, np.float32)
    for rows in (3, 1):
        x = rng.random((rows, 4), np.float32) - 0.5
        found = vm["main"](tensor(x), tensor(w), tensor(b)).numpy()
        np.testing.assert_allclose(found, reference(x, w, b), rtol=1e-5)
    assert len(compiled[0][3].calls) == 4


def test_merged_functions_and_a_pipeline_of_ones_own(compiled: list[Any]) -> None:
    tanh = ("numpy.tanh", is_op("relax.tanh")(is_op("relax.multiply")(wildcard(), is_const())))
    steps = [FuseOpsByPattern([tanh, *PATTERNS]), MergeCompositeFunctions(), RunCodegen()]
    pipeline = Sequential([*steps, relax.get_pipeline("default")])
    ex = relax.build(Model, "llvm", relax_pipeline=pipeline)
    x, w, b = (np.random.default_rng(1).random(s, np.float32) for s in ((2, 4), (4, 4), (4,)))
    found = relax.VirtualMachine(ex, cpu())["main"](tensor(x), tensor(w), tensor(b)).numpy()
    np.testing.assert_allclose(found, reference(x, w, b), rtol=1e-5)
    assert ex.implements_function("fused_relax_matmul_relax_add1_numpy", query_imports=True)
    assert not ex.implements_function("fused_relax_matmul_relax_add1_numpy")
    with pytest.raises(UnsupportedError, match=r"calls functions of imported modules.*: NumPyModule"):
        ex.export_library("model.so")


def test_results_that_are_tuples(compiled: list[Any]) -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                lv = R.multiply(x, R.const(2.0, "float32"))
                lv1 = R.tanh(lv)
                gv = R.subtract(lv1, lv)
                R.output(gv)
            return gv

    after = RunCodegen()(PARTITION(Before))
    call = after["main"].body.blocks[0].bindings[0].value
    assert call.op.name == "relax.call_dps_packed" and len(call.struct_info.fields) == 2


def test_what_was_compiled_before_stays(compiled: list[Any]) -> None:
    once = RunCodegen()(PARTITION(Model))
    assert RunCodegen()(once) is once
    assert len(compiled) == 1
    more = PARTITION(once.clone())
    more["other"] = relax.copy_with_new_vars(Model["main"]).with_attr("global_symbol", "other")
    twice = RunCodegen(entry_functions=["main"])(PARTITION(more))
    assert [m is compiled[i][3] for i, m in enumerate(twice.attrs["external_mods"])] == [True, True]


def test_what_private_functions_call_is_compiled_too(compiled: list[Any]) -> None:
    @I.ir_module
    class Before:
        @R.function
        def fused(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "numpy"})
            y = R.tanh(x)
            return y

        @R.function(private=True)
        def inner(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            y = cls.fused(x)
            return y

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            y = cls.fused(x)
            z = cls.inner(y)
            return z

    after = RunCodegen()(Before)
    assert sorted(v.name_hint for v in after.functions) == ["inner", "main"]
    vm = relax.VirtualMachine(relax.build(after, "llvm"), cpu())
    x = np.linspace(-1, 1, 4, dtype="float32")
    np.testing.assert_allclose(vm["main"](tensor(x)).numpy(), np.tanh(np.tanh(x)), rtol=1e-5)
    assert compiled[0][3].calls == ["fused", "fused"]


def test_a_module_with_nothing_to_compile_stays_as_it_is() -> None:
    assert RunCodegen()(Model) is Model


def test_an_unknown_compiler_is_named() -> None:
    with pytest.raises(
        NotRegistered, match=r"there is no compiler 'numpy': nothing is registered as 'relax.ext.numpy'"
    ):
        RunCodegen()(PARTITION(Model))


def test_a_compiler_must_return_modules() -> None:
    @register_func("relax.ext.numpy")
    def compile_all(functions: Any, options: Any, constant_names: Any) -> int:
        return 3

    try:
        with pytest.raises(TypeMismatch, match=r"relax.ext.numpy must return a list of runtime modules.*found 3"):
            RunCodegen()(PARTITION(Model))
    finally:
        remove_global_func("relax.ext.numpy")


def test_an_entry_function_must_be_there_and_have_a_symbol(compiled: list[Any]) -> None:
    with pytest.raises(OneIRError, match="nowhere"):
        RunCodegen(entry_functions=["nowhere"])(Model)
    mod = PARTITION(Model)
    functions: dict[Any, Any] = {v: f.without_attr("global_symbol") for v, f in mod.functions.items()}
    with pytest.raises(InvalidValue, match="is for the compiler 'numpy', but has no `global_symbol`"):
        RunCodegen(entry_functions=["main"])(IRModule(functions))
