"""Memory planning: no two tensors that are alive at once share bytes, and the arena is hardly larger than it must be."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneir import relax
from oneir.ir.expr import IntImm
from oneir.relax import transform
from oneir.relax.analysis import estimate_memory_usage, free_vars, plan_memory
from oneir.relax.analysis.memory_plan import ALLOC_TENSOR
from oneir.relax.analysis.variables import used_vars
from oneir.relax.pipeline import finalize_passes
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T

SIZES = (1, 16, 24, 100, 1000, 4096)


def random_graph(rng: np.random.Generator, steps: int):
    """Vectors of random lengths, each made by adding up an earlier one's pieces or joining two earlier ones."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((int(rng.choice(SIZES)),), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            values = [x]
            for _ in range(steps):
                value = values[int(rng.integers(max(0, len(values) - 5), len(values)))]
                kind = rng.integers(3)
                if kind == 0:
                    value = builder.emit(relax.op.exp(value))
                elif kind == 1:
                    other = values[int(rng.integers(max(0, len(values) - 5), len(values)))]
                    value = builder.emit(relax.op.concat((value, other)))
                else:
                    size = int(rng.choice(SIZES))
                    total = builder.emit(relax.op.sum(value, keepdims=True))
                    value = builder.emit(relax.op.broadcast_to(total, (size,)))
                if int(value.struct_info.shape[0]) > 20000:
                    value = builder.emit(relax.op.sum(value, keepdims=True))
                values.append(value)
            output = builder.emit_output(relax.op.sum(values[-1]))
        builder.emit_func_output(output)
    return builder.get()


def with_allocations(mod):
    for step in (
        transform.LegalizeOps(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
    ):
        mod = step(mod)
    return mod


def lives(func):
    """For each allocated tensor: its bytes, rounded to 64, and the first and last binding that names it; by brute force."""
    bindings = [b for block in func.body.blocks for b in block.bindings]
    result = {}
    for start, binding in enumerate(bindings):
        if getattr(binding.value, "op", None) is not ALLOC_TENSOR:
            continue
        names, end = {binding.var}, start
        for index in range(start + 1, len(bindings)):
            if set(used_vars(bindings[index])) & names:
                end = index
                if isinstance(bindings[index].value, relax.Var):
                    names.add(bindings[index].var)
        if names & set(free_vars(func.body.body)):
            continue
        count = int(np.prod([int(e) for e in binding.var.struct_info.shape], dtype=np.int64))
        result[binding.var] = (-(-4 * count // 64) * 64, start, end)
    return result


def most_alive(tensors) -> int:
    last = max((end for _, _, end in tensors.values()), default=0)
    return max((sum(s for s, a, b in tensors.values() if a <= i <= b) for i in range(last + 1)), default=0)


@given(st.integers(0, 1 << 30), st.integers(1, 30))
def test_places_of_tensors_alive_at_once_do_not_overlap(seed, steps):
    mod = with_allocations(random_graph(np.random.default_rng(seed), steps))
    plan, tensors = plan_memory(mod["main"], mod), lives(mod["main"])
    planned = [t for part in plan.parts for t in part.tensors]
    assert {t.var for t in planned} == set(tensors)
    for t in planned:
        assert (t.size, t.start, t.end) == tensors[t.var]
        assert t.offset % 64 == 0
        for other in planned:
            if other is not t and t.start <= other.end and other.start <= t.end:
                assert t.offset + t.size <= other.offset or other.offset + other.size <= t.offset
    assert int(plan.peak) == most_alive(tensors)


def test_the_arena_is_close_to_the_largest_set_of_tensors_alive_at_once():
    ratios = []
    for seed in range(10):
        mod = with_allocations(random_graph(np.random.default_rng(seed), 40))
        ratios.append(int(plan_memory(mod["main"], mod).size) / most_alive(lives(mod["main"])))
    assert statistics.median(ratios) <= 1.1


@I.ir_module
class Batch:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        n = T.int64()
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(a)
            c = R.exp(b)
            d = R.exp(c)
            R.output(d)
        return d


def test_symbolic_sizes_are_planned_in_units_of_their_factor():
    mod = with_allocations(Batch)
    plan = plan_memory(mod["main"], mod)
    (part,) = plan.parts
    (n,) = [e for e in mod["main"].params[0].struct_info.shape if not isinstance(e, IntImm)]
    assert part.factor is n
    # 8 float32 for each of the batch are 32 bytes, of which 64 are taken; a and c share their place.
    assert [t.offset for t in part.tensors] == [0, 64, 0]
    assert len(plan.kept) == 1


def test_an_upper_bound_makes_the_plan_static():
    mod = with_allocations(Batch)
    func = mod["main"].with_attr("tir_var_upper_bound", {"n": 64})
    assert int(plan_memory(func, mod).size) == 2 * 64 * 8 * 4


def test_the_plan_prints_as_a_table():
    mod = with_allocations(Batch)
    text = str(plan_memory(mod["main"], mod))
    assert "arena: n * T.int64(128) bytes" in text
    assert "own memory: it is returned" in text


def test_the_estimate_names_functions_and_sizes():
    text = estimate_memory_usage(Batch)
    assert "- Function main:" in text
    assert "3 of symbolic size" not in text and "4 of symbolic size" in text


def test_what_is_returned_keeps_its_own_memory():
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(a)
            R.output(a, b)
        return (a, b)

    import oneir

    mod = with_allocations(oneir.IRModule.from_expr(main))
    plan = plan_memory(mod["main"], mod)
    assert not plan.parts
    assert len(plan.kept) == 2


@pytest.mark.parametrize("seed", range(3))
def test_planned_programs_compute_what_unplanned_ones_do(seed):
    import oneir

    mod = random_graph(np.random.default_rng(seed), 12)
    x = np.random.default_rng(seed).random(int(mod["main"].params[0].struct_info.shape[0]), "float32") * 0.01
    device = oneir.cpu()
    planned = relax.VirtualMachine(relax.build(mod), device)["main"](x).numpy()
    without_planning = oneir.transform.Sequential([with_allocations, *finalize_passes(None)[1:]])
    unplanned = relax.VirtualMachine(relax.build(mod, relax_pipeline=without_planning), device)
    np.testing.assert_allclose(planned, unplanned["main"](x).numpy(), rtol=1e-4)


def test_sizes_that_a_cast_binds_on_the_way_are_no_part_of_the_arena():
    import oneir

    @I.ir_module
    class Program:
        @R.function
        def main(x: R.Tensor((4,), "float32"), shape: R.Tensor((2,), "int64")) -> R.Tensor((4,), "float32"):
            n = T.int64()
            m = T.int64()
            with R.dataflow():
                values: R.Shape(ndim=2) = R.tensor_to_shape(shape)
                extents: R.Shape([n, m]) = R.match_cast(values, R.Shape([n, m]))
                a: R.Tensor((n, m), "float32") = R.add(R.zeros(R.shape([n, m]), "float32"), R.const(1.0, "float32"))
                b: R.Tensor((), "float32") = R.sum(R.cumsum(a, axis=0))
                c: R.Tensor((4,), "float32") = R.add(x, b)
                R.output(c)
            return c

    machine = relax.VirtualMachine(oneir.compile(Program, "llvm"), oneir.cpu())
    for rows, columns in ((2, 3), (3, 0)):
        found = machine["main"](np.ones(4, "float32"), np.array([rows, columns])).numpy()
        np.testing.assert_array_equal(found, 1 + np.ones((rows, columns)).cumsum(0).sum() * np.ones(4))
