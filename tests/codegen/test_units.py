"""What of a graph is compiled, how often and when, counted by the modules that LLVM gets."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from oneir import cpu, relax
from oneir.codegen.units import DECLARED, SHARED, merged, split
from oneir.dlight import ApplyDefaultSchedule, ScheduleRule
from oneir.dlight.cpu import Contraction, Spatial
from oneir.driver.build import as_module, as_target, compile_units
from oneir.ir import IRModule, structural_equal
from oneir.ir.transform import Pass
from oneir.relax.frontend import nn
from oneir.runtime import llvm, load_module, tensor
from oneir.runtime.error import CompileError, OneIRError, ShapeMismatch
from oneir.script import ir as I
from oneir.script import tir as T

rng = np.random.default_rng(3)


class Layers(nn.Module):
    """Products with square matrices; all layers have one kernel."""

    def __init__(self, count: int):
        self.layers = nn.ModuleList([nn.Linear(16, 16, bias=False) for _ in range(count)])

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def model(count: int) -> tuple[IRModule, list[np.ndarray]]:
    mod, params = Layers(count).export_tvm({"forward": {"x": nn.spec.Tensor((8, 16), "float32")}})
    weights = [rng.standard_normal((16, 16), dtype="float32") / 4 for _ in params]
    bound = {name: tensor(w) for (name, _), w in zip(params, weights, strict=True)}
    return relax.transform.BindParams("forward", bound)(mod), weights


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that LLVM gets."""
    texts: list[str] = []
    compile_ir = llvm.compile_ir

    def count(text: str, **options: Any) -> bytes:
        if options["name"] == "module":  # and not the entry from Python
            texts.append(text)
        return compile_ir(text, **options)

    monkeypatch.setattr(llvm, "compile_ir", count)
    monkeypatch.setenv("ONEIR_CACHE_DIR", "")
    return texts


def test_equal_layers_are_one_kernel_and_public_forms_wait(compiled: list[str]) -> None:
    mod, weights = model(4)
    ex = relax.build(mod)
    assert len(compiled) == 2  # the kernel and the native graph function
    assert sum(text.count("define hidden") for text in compiled) == 1
    x = rng.standard_normal((8, 16), dtype="float32")
    vm = relax.VirtualMachine(ex, cpu())
    expected = x
    for w in weights:
        expected = expected @ w.T
    np.testing.assert_allclose(vm["forward"](tensor(x)).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert len(compiled) == 2
    (kernel,) = [name for name in ex.library.names if name != "forward"]
    with pytest.raises(OneIRError, match="expects 3 arguments, found 0"):
        ex[kernel]()
    assert len(compiled) == 3
    np.testing.assert_allclose(vm["forward"](tensor(x)).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_checks_of_public_forms_are_compiled_as_they_stand_and_hold(compiled: list[str]) -> None:
    ex = relax.build(model(2)[0])
    (kernel,) = [name for name in ex.library.names if name != "forward"]
    x, w = (rng.standard_normal(shape, dtype="float32") for shape in ((8, 16), (1, 16, 16)))
    result = np.zeros((8, 16), "float32")
    ex[kernel](x, w, result)
    np.testing.assert_allclose(result, x @ w[0], rtol=1e-4, atol=1e-5)
    unoptimized = [re.findall(r"@__oneir_(\w+)\(.* optnone ", text) for text in compiled]
    assert unoptimized == [[], ["forward"], [kernel]]
    with pytest.raises(ShapeMismatch, match=rf"argument 2 .* of `{kernel}`: expected .*8, 16.* found .*7, 16"):
        ex[kernel](x, w, result[1:])


def live_between_blocks(text: str, name: str) -> int:
    """How many registers are live, at most, where a block of a function ends, from which blocks only lead forwards."""
    body = text.split(f"@{name}(")[1].split("\n}")[0]
    blocks = re.split(r"\n\w+:\n", body)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, block in enumerate(blocks[1:]):
        for register in re.findall(r"%v\d+", block):
            first.setdefault(register, number)
            last[register] = number
    return max(sum(first[r] <= number < last[r] for r in first) for number in range(len(blocks)))


def test_checks_of_many_arguments_keep_few_values_in_registers(compiled: list[str]) -> None:
    for layers in (4, 24):
        relax.build(model(layers)[0])
    few, many = (live_between_blocks(text, "__oneir_forward") for text in compiled if "@__oneir_forward(" in text)
    assert few == many < 4


@pytest.mark.parametrize("file", ["model.so", "model.tar"])
def test_files_hold_the_public_forms_too(file: str, tmp_path, compiled: list[str]) -> None:
    ex = relax.build(model(2)[0])
    assert len(compiled) == 2
    loaded = load_module(ex.export_library(tmp_path / file))
    assert sorted(loaded.library.names) == sorted(ex.library.names)
    x = tensor(rng.standard_normal((8, 16), dtype="float32"))
    expected = relax.VirtualMachine(ex, cpu())["forward"](x).numpy()
    vm = relax.VirtualMachine(loaded, cpu())
    np.testing.assert_array_equal(vm["forward"](x).numpy(), expected)
    names = []
    vm.set_instrument(lambda func, name, before, ret, *args: names.append(name))
    np.testing.assert_array_equal(vm["forward"](x).numpy(), expected)  # by the machine, from public forms
    assert any("matmul" in name for name in names)


def test_a_changed_model_compiles_only_what_is_new(tmp_path, monkeypatch, compiled: list[str]) -> None:
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path))
    relax.build(model(2)[0])
    assert len(compiled) == 2
    relax.build(model(2)[0])
    assert len(compiled) == 2
    relax.build(model(3)[0])
    assert len(compiled) == 3  # the graph's function alone


@T.prim_func
def doubled(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32")):
    for i, j in T.grid(64, 64):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)


def objects(schedule: Pass | None) -> list[bytes]:
    return compile_units(as_module(doubled), as_target("llvm"), "default", schedule)


def test_code_is_kept_for_one_schedule_alone(tmp_path, monkeypatch, compiled: list[str]) -> None:
    # Spatial vectorizes the loops, Contraction is for other functions and leaves them as they are.
    without_cache = [objects(ApplyDefaultSchedule(Spatial())), objects(ApplyDefaultSchedule(Contraction()))]
    assert without_cache[0] != without_cache[1]
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path))
    compiled.clear()
    for _ in range(2):
        assert objects(ApplyDefaultSchedule(Spatial())) == without_cache[0]
        assert objects(ApplyDefaultSchedule(Contraction())) == without_cache[1]
        assert len(compiled) == 2


def test_code_of_a_schedule_that_has_no_key_is_not_kept(tmp_path, monkeypatch, compiled: list[str]) -> None:
    def rule(result: Any) -> ScheduleRule:
        return ScheduleRule.from_callable("Rule")(lambda func, target, tunable: result)

    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path))
    scheduled = Spatial().apply(doubled, as_target("llvm"))
    assert objects(ApplyDefaultSchedule(rule(scheduled))) != objects(ApplyDefaultSchedule(rule(None)))
    assert len(compiled) == 2 and not any(tmp_path.iterdir())


def test_what_llvm_refuses_is_the_error_of_building(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str, **options: Any) -> bytes:
        raise CompileError("LLVM rejects the IR of module, line 3: expected type")

    monkeypatch.setattr(llvm, "compile_ir", refuse)
    monkeypatch.setenv("ONEIR_CACHE_DIR", "")
    with pytest.raises(CompileError, match="line 3: expected type"):
        relax.build(model(2)[0])


@I.ir_module
class Calls:
    @T.prim_func(private=True)
    def twice(a: T.Buffer((4,), "float32")):
        T.func_attr({"tir.is_shared": True})
        for i in range(4):
            a[i] = a[i] * T.float32(2)

    @T.prim_func
    def main(a: T.Buffer((4,), "float32")):
        T.func_attr({"global_symbol": "main"})
        T.evaluate(Calls.twice(a.data))


def test_a_shared_function_is_a_unit_that_its_callers_declare() -> None:
    first, second = split(Calls)
    assert [v.name_hint for v in first.functions] == ["twice"]
    declared = second["twice"]
    assert DECLARED in declared.attrs and SHARED in declared.attrs
    assert structural_equal(second["main"], Calls["main"])
    assert structural_equal(merged([second, first])["twice"], Calls["twice"])
    assert split(IRModule({"main": Calls["twice"].without_attr(SHARED)}))[0]["main"] is not None
