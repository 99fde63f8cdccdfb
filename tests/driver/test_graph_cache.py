"""Compiled graphs on disk: found again only where nothing has changed, whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oneir
from oneir import cpu, relax, topi
from oneir.codegen.llvm import LLVM
from oneir.driver import graph, graph_cache
from oneir.ir import IRModule, Op, structural_equal
from oneir.ir.instrument import PassTimingInstrument
from oneir.ir.transform import PassContext
from oneir.relax.frontend import nn
from oneir.relax.pipeline import generic_stages
from oneir.runtime import object_cache, pool, tensor
from oneir.runtime.error import CompileError, ShapeMismatch
from oneir.script import relax as R
from oneir.target import Target

X = np.linspace(-1, 1, 8 * 16, dtype="float32").reshape(8, 16)
WEIGHT = np.linspace(-0.5, 0.75, 16 * 16, dtype="float32").reshape(16, 16)


class Layer(nn.Module):
    """The product with a matrix; the relu of it, unless it is linear."""

    def __init__(self, linear: bool):
        self.layer, self.linear = nn.Linear(16, 16, bias=False), linear

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        y = self.layer(x)
        return y if self.linear else nn.relu(y)


def model(weight: np.ndarray = WEIGHT, linear: bool = False) -> IRModule:
    """The layer, its weight bound."""
    mod, params = Layer(linear).export_tvm({"forward": {"x": nn.spec.Tensor((8, 16), "float32")}})
    return relax.transform.BindParams("forward", {params[0][0]: tensor(weight)})(mod)


def result(executable: Any) -> np.ndarray:
    return relax.VirtualMachine(executable, cpu())["forward"](X).numpy()


def expected(weight: np.ndarray = WEIGHT, linear: bool = False) -> np.ndarray:
    y = X @ weight.T
    return y if linear else np.maximum(y, 0)


@pytest.fixture
def lowered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[IRModule]:
    """The modules that graph passes were run on; what is compiled is kept in a directory of the test's own."""
    modules: list[IRModule] = []
    lower_graph = graph.lower_graph

    def count(mod: IRModule, *options: Any) -> IRModule:
        modules.append(mod)
        return lower_graph(mod, *options)

    monkeypatch.setattr(graph, "lower_graph", count)
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path / "cache"))
    return modules


def entry(mod: IRModule, target: str = "llvm") -> Path:
    """The file of a compiled module."""
    key = graph_cache.key_of(mod, {}, Target(target))
    path = object_cache.find(key) if key else None
    assert path is not None
    return path


def test_an_equal_model_runs_no_pass(lowered: list[IRModule]) -> None:
    relax.build(model())
    executable = relax.build(model())
    assert len(lowered) == 1
    np.testing.assert_allclose(result(executable), expected(), rtol=1e-5, atol=1e-6)


def test_what_is_found_is_what_was_compiled(lowered: list[IRModule], tmp_path: Path) -> None:
    first, second = relax.build(model()), relax.build(model())
    assert len(lowered) == 1
    assert (first.as_text(), first.stats()) == (second.as_text(), second.stats())
    assert first.library is not None and second.library is not None
    assert first.library.names == second.library.names
    # Texts and public forms are made from the loops of the entry.
    assert first.library.inspect_source("ll-unoptimized") == second.library.inspect_source("ll-unoptimized")
    second.export_library(tmp_path / "model.bin")
    with pytest.raises(ShapeMismatch, match=r"argument 0 `x` of `forward`: expected shape \(8, 16\), found \(2, 16\)"):
        relax.VirtualMachine(second, cpu())["forward"](X[:2])


def test_a_changed_weight_is_another_model(lowered: list[IRModule]) -> None:
    relax.build(model())
    changed = WEIGHT.copy()
    changed[15, 15] = np.nextafter(changed[15, 15], np.float32(2))
    executable = relax.build(model(changed))
    assert len(lowered) == 2
    (constant,) = (c for c in executable.program.constants if hasattr(c, "shape"))
    assert changed[15, 15] in constant.numpy()
    # Memory that is written after it was compiled is seen as well.
    weight = tensor(WEIGHT)
    mod, params = Layer(True).export_tvm({"forward": {"x": nn.spec.Tensor((8, 16), "float32")}})
    mod = relax.transform.BindParams("forward", {params[0][0]: weight})(mod)
    relax.build(mod)
    weight[0, 0] = 3.0
    np.testing.assert_allclose(result(relax.build(mod)), expected(weight.numpy(), True), rtol=1e-5, atol=1e-6)


def test_another_graph_over_the_same_weights_is_another_model(lowered: list[IRModule]) -> None:
    for linear in (False, True):
        executable = relax.build(model(linear=linear))
        np.testing.assert_allclose(result(executable), expected(linear=linear), rtol=1e-5, atol=1e-6)
    assert len(lowered) == 2


def test_parameters_that_are_bound_while_building_count(lowered: list[IRModule]) -> None:
    mod, params = Layer(True).export_tvm({"forward": {"x": nn.spec.Tensor((8, 16), "float32")}})
    main = IRModule({"main": mod["forward"].with_attr("global_symbol", "main")})
    for weight in (WEIGHT, -WEIGHT, WEIGHT):
        executable = relax.build(main, params={params[0][0]: weight})
        y = relax.VirtualMachine(executable, cpu())["main"](X).numpy()
        np.testing.assert_allclose(y, X @ weight.T, rtol=1e-5, atol=1e-6)
    assert len(lowered) == 2


def test_names_of_arguments_count(lowered: list[IRModule]) -> None:
    @R.function
    def first(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        return R.add(x, x)

    @R.function
    def second(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        return R.add(y, y)

    first, second = (func.with_attr("global_symbol", "main") for func in (first, second))
    assert structural_equal(first, second)
    for func, name in ((first, "x"), (second, "y")):
        machine = relax.VirtualMachine(relax.build(IRModule({"main": func})), cpu())
        with pytest.raises(ShapeMismatch, match=f"argument 0 `{name}` of `main`"):
            machine["main"](X)
    assert len(lowered) == 2


def test_targets_options_and_threads_count(lowered: list[IRModule], monkeypatch: pytest.MonkeyPatch) -> None:
    relax.build(model())
    relax.build(model(), "llvm -opt-level=1")
    with PassContext(config={"tir.disable_vectorize": True}):
        relax.build(model())
    with PassContext(opt_level=1):
        relax.build(model())
    monkeypatch.setattr(pool, "_size", pool.num_threads() + 1)
    relax.build(model())
    assert len(lowered) == 5
    monkeypatch.undo()


def test_facts_of_operators_count(lowered: list[IRModule]) -> None:
    relu = Op.get("relax.nn.relu")
    pattern, legalize = relu.attrs["TOpPattern"], relu.attrs["FLegalize"]
    relax.build(model())
    try:
        relu.attrs["TOpPattern"] = 8
        relax.build(model())
        assert len(lowered) == 2
        relu.attrs["TOpPattern"] = pattern
        # A user's own code has no digest.
        relu.attrs["FLegalize"] = lambda builder, call: call.args[0]
        assert graph_cache.key_of(model(), {}, Target("llvm")) is None
        np.testing.assert_allclose(result(relax.build(model())), expected(linear=True), rtol=1e-5, atol=1e-6)
    finally:
        relu.attrs["TOpPattern"], relu.attrs["FLegalize"] = pattern, legalize
    relax.build(model())
    assert len(lowered) == 3


def test_operators_of_users_count_where_they_are(lowered: list[IRModule]) -> None:
    op = Op.register("test.graph_cache.triple", FPurity=True)
    op.attrs["FInferStructInfo"] = lambda call, builder: call.args[0].struct_info
    op.attrs["FLegalize"] = lambda builder, call: builder.call_te(lambda x: topi.multiply(x, 3.0), call.args[0])
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((8, 16), "float32"))
    with bb.function("forward", [x]):
        bb.emit_func_output(bb.emit(relax.Call(op, [x])))
    assert graph_cache.key_of(bb.get(), {}, Target("llvm")) is None
    for _ in range(2):
        np.testing.assert_allclose(result(relax.build(bb.get())), 3 * X, rtol=1e-6)
        np.testing.assert_allclose(result(relax.build(model())), expected(), rtol=1e-5, atol=1e-6)
    assert len(lowered) == 3


def test_passes_of_the_back_end_count(lowered: list[IRModule], monkeypatch: pytest.MonkeyPatch) -> None:
    def with_layouts(passes: list[Any]) -> None:
        monkeypatch.setattr(LLVM, "graph_passes", lambda self, target: {**generic_stages(target), "layouts": passes})

    keys = [graph_cache.key_of(model(), {}, Target("llvm"))]
    for passes in ([], [relax.transform.FuseOps(0)], [relax.transform.FuseOps(1)]):
        with_layouts(passes)
        keys.append(graph_cache.key_of(model(), {}, Target("llvm")))
    assert None not in keys and len(set(keys)) == 4
    with_layouts([oneir.transform.module_pass(lambda mod, ctx: mod, name="mine")])
    assert graph_cache.key_of(model(), {}, Target("llvm")) is None


def test_whoever_watches_passes_sees_them(lowered: list[IRModule]) -> None:
    relax.build(model())
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        relax.build(model())
    assert len(lowered) == 2 and "FuseOps" in timing.render()
    relax.build(model(), relax_pipeline=relax.get_pipeline("default"))
    assert len(lowered) == 3


def test_nothing_is_kept_where_the_cache_is_off(lowered: list[IRModule], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEIR_CACHE_DIR", "")
    for _ in range(2):
        relax.build(model())
    assert len(lowered) == 2


@pytest.mark.parametrize("at", [0, 0.3, 0.6, 0.9, 1])
def test_a_damaged_file_is_a_miss(at: float, lowered: list[IRModule]) -> None:
    """One bit anywhere: the loops, the program, the weights or the footer."""
    relax.build(model())
    path = entry(model())
    content = bytearray(path.read_bytes())
    assert content.count(0) < len(content)
    place = int(at * (len(content) - 1))
    # Zeros between the parts are padding.
    place = next(i for i in (*range(place, len(content)), *range(place, 0, -1)) if content[i])
    content[place] ^= 1
    path.write_bytes(content)
    np.testing.assert_allclose(result(relax.build(model())), expected(), rtol=1e-5, atol=1e-6)
    assert len(lowered) == 2
    relax.build(model())
    assert len(lowered) == 2


@pytest.mark.parametrize("content", [b"", b"some other file", b"\0" * 5000])
def test_a_file_of_something_else_is_a_miss(content: bytes, lowered: list[IRModule]) -> None:
    relax.build(model())
    path = entry(model())
    path.write_bytes(content)
    relax.build(model())
    assert len(lowered) == 2 and path.read_bytes() != content


def test_a_file_cut_short_is_a_miss(lowered: list[IRModule]) -> None:
    relax.build(model())
    path = entry(model())
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    np.testing.assert_allclose(result(relax.build(model())), expected(), rtol=1e-5, atol=1e-6)
    assert len(lowered) == 2


@pytest.fixture
def weights_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has weights of any size written into files of their own."""
    monkeypatch.setattr(graph_cache, "_FEW_BYTES", 1)


def weights_of(mod: IRModule) -> Path:
    """The file of a compiled module's weights."""
    path = entry(mod)
    return path.with_name(f"{path.name}-weights")


@pytest.mark.usefixtures("weights_apart")
def test_weights_of_their_own_file_are_found_with_the_entry(lowered: list[IRModule]) -> None:
    relax.build(model())
    assert weights_of(model()).stat().st_size == WEIGHT.nbytes  # packed: 16 rows of a vector
    np.testing.assert_allclose(result(relax.build(model())), expected(), rtol=1e-5, atol=1e-6)
    assert len(lowered) == 1


@pytest.mark.usefixtures("weights_apart")
@pytest.mark.parametrize("change", ["damaged", "cut short", "removed", "another model's"])
def test_weights_that_are_not_those_of_the_entry_are_a_miss(change: str, lowered: list[IRModule]) -> None:
    relax.build(model())
    path = weights_of(model())
    content = bytearray(path.read_bytes())
    match change:
        case "damaged":
            content[100] ^= 1
            path.write_bytes(content)
        case "cut short":
            path.write_bytes(content[:-1])
        case "removed":
            path.unlink()
        case _:
            relax.build(model(WEIGHT * 2))
            weights_of(model(WEIGHT * 2)).replace(path)
    count = len(lowered)
    np.testing.assert_allclose(result(relax.build(model())), expected(), rtol=1e-5, atol=1e-6)
    assert len(lowered) == count + 1
    relax.build(model())
    assert len(lowered) == count + 1


@pytest.mark.usefixtures("weights_apart")
def test_what_cannot_be_compiled_leaves_no_weights(
    lowered: list[IRModule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LLVM, text: str, target: Target) -> bytes:
        raise CompileError("no code for this one")

    monkeypatch.setattr(LLVM, "compile", refuse)
    with pytest.raises(CompileError, match="no code for this one"):
        relax.build(model())
    assert not list((tmp_path / "cache").glob("*-weights"))


def test_an_executable_outlives_its_entry(lowered: list[IRModule]) -> None:
    relax.build(model())
    executable = relax.build(model())
    path = entry(model())
    path.unlink()
    np.testing.assert_allclose(result(executable), expected(), rtol=1e-5, atol=1e-6)
    relax.build(model())
    assert len(lowered) == 2 and path.exists()


def test_large_models_are_not_kept(lowered: list[IRModule], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "MAX_BYTES", 4000)
    for _ in range(2):
        relax.build(model())
    assert len(lowered) == 2


def test_a_graph_without_loops_is_kept(lowered: list[IRModule]) -> None:
    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        return R.call_packed("vm.builtin.copy", x, sinfo_args=[R.Tensor((2,), "float32")])

    for _ in range(2):
        machine = relax.VirtualMachine(relax.build(IRModule({"main": main})), cpu())
        assert machine["main"](np.array([1, 2], "float32")).numpy().tolist() == [1, 2]
    assert len(lowered) == 1


PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import oneir.driver.graph
import numpy as np
from test_graph_cache import expected, model, relax, result
passes = 0
original = oneir.driver.graph.lower_graph
def lower_graph(*arguments):
    global passes
    passes += 1
    return original(*arguments)
oneir.driver.graph.lower_graph = lower_graph
for i in range(4):
    linear = i % 2 == 0
    np.testing.assert_allclose(result(relax.build(model(linear=linear))), expected(linear=linear), rtol=1e-5, atol=1e-6)
print(passes)
"""


def test_processes_share_entries_and_may_write_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM.format(folder=str(Path(__file__).parent))]
    environment = {**os.environ, "ONEIR_CACHE_DIR": str(tmp_path)}
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        assert int(process.communicate(timeout=240)[0]) <= 2
        assert process.returncode == 0
    third = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert third.stdout.strip() == "0"
    assert not list(tmp_path.glob(".writing-*"))
