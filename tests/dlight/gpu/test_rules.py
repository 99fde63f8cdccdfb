"""The default schedules for GPUs: the interpreter, which finds races, gets the numbers of the plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from oneir import te, tir, topi
from oneir.dlight import ApplyDefaultSchedule
from oneir.dlight.gpu import Fallback, GeneralReduction, Reduction, Transpose
from oneir.ir import IRModule
from oneir.runtime.error import InvalidValue
from oneir.target import Target
from oneir.testing import interpret

TARGETS = ["cuda", "metal"]


def made(build, *shapes, dtype: str = "float32") -> tir.PrimFunc:
    inputs = [te.placeholder(shape, dtype, name=f"A{i}") for i, shape in enumerate(shapes)]
    return te.create_prim_func([*inputs, build(*inputs)])


def results(func: tir.PrimFunc) -> np.ndarray:
    rng = np.random.default_rng(7)
    arrays = []
    for param in func.params:
        buffer = func.buffer_map[param]
        shape = [d.value for d in buffer.shape if isinstance(d, tir.IntImm)]
        arrays.append(rng.uniform(0.5, 1.5, shape).astype(str(buffer.dtype)))
    interpret(func, *arrays, outputs=[len(arrays) - 1])
    return arrays[-1]


def bound(func: tir.PrimFunc) -> dict[str, set[int]]:
    """The axes of threads, and the extents of the loops on them."""
    found: dict[str, set[int]] = {}

    def visit(node) -> None:
        if isinstance(node, tir.For) and node.thread_binding is not None:
            assert isinstance(node.extent, tir.IntImm)
            found.setdefault(node.thread_binding.thread_tag, set()).add(node.extent.value)

    tir.stmt_functor.post_order_visit(func.body, visit)
    return found


def scopes(func: tir.PrimFunc) -> set[str]:
    assert isinstance(func.body, tir.BlockRealize)
    return {buffer.scope() for buffer in func.body.block.alloc_buffers}


def check(rule, func: tir.PrimFunc, target: str) -> tir.PrimFunc:
    schedule = rule.apply(func, Target(target), False)
    assert schedule is not None
    new = schedule.mod["main"]
    np.testing.assert_allclose(results(new), results(func), rtol=1e-5)
    threads = bound(new)
    assert {"blockIdx.x", "threadIdx.x"} <= threads.keys()
    assert all(len(extents) == 1 for extents in threads.values()), "loops on one axis differ in extent"
    return new


FALLBACK = {
    "elementwise": (lambda a: topi.exp(topi.add(a, a)), (5, 7)),
    "a scalar": (lambda a: topi.sum(a), (5, 7)),
    "rows": (lambda a: topi.sum(a, axis=1), (5, 7)),
    "a product": (lambda a, b: topi.matmul(a, b), (4, 6), (6, 5)),
    "unit axes": (lambda a: topi.exp(a), (1, 9, 1)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FALLBACK)
def test_fallback(name, target):
    check(Fallback(), made(*FALLBACK[name]), target)


def test_fallback_inlines():
    new = check(Fallback(), made(*FALLBACK["elementwise"]), "cuda")
    schedule = tir.Schedule(new)
    assert len(schedule.get_child_blocks(schedule.get_block("root"))) == 1


REDUCTIONS = {
    "rows": (lambda a: topi.sum(a, axis=1), (6, 40)),
    "columns": (lambda a: topi.sum(a, axis=0), (20, 32)),
    "columns that 16 does not divide": (lambda a: topi.sum(a, axis=0), (20, 9)),
    "a computed argument": (lambda a: topi.sum(topi.exp(a), axis=1), (6, 40)),
    "more threads than rows": (lambda a: topi.sum(a, axis=0), (5, 32)),
    "a mean that is subtracted": (lambda a: topi.subtract(a, topi.sum(a, axis=1, keepdims=True)), (6, 40)),
    "all": (lambda a: topi.sum(a), (6, 7)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name, target):
    check(Reduction(), made(*REDUCTIONS[name]), target)


@pytest.mark.parametrize("axis", [0, 1])
def test_what_follows_elementwise_is_computed_with_the_sum(axis):
    func = made(lambda a: topi.sqrt(topi.sum(a, axis=axis)), (32, 64))
    sch = Reduction().apply(func, Target("cuda"), False)
    assert sch is not None
    first = sch.get(sch.get_loops(sch.get_block("A0_red"))[0])
    assert sch.get(sch.get_loops(sch.get_block("compute"))[0]) is first
    assert first.thread_binding.thread_tag == "blockIdx.x"
    # Threads sum their parts by a collective, whose result each of them holds.
    assert scopes(sch.mod["main"]) == {"local"}


GENERAL = {
    "softmax": (lambda a: topi.nn.softmax(a, axis=-1), (5, 33)),
    "softmax of several rows": (lambda a: topi.nn.softmax(a, axis=-1), (2, 3, 33)),
    "layer norm": (lambda a, g, b: topi.nn.layer_norm(a, g, b, axis=[1]), (5, 33), (33,), (33,)),
    "rms norm": (lambda a, g: topi.nn.rms_norm(a, g, axis=[1]), (5, 33), (33,)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", GENERAL)
def test_general_reduction(name, target):
    new = check(GeneralReduction(), made(*GENERAL[name]), target)
    assert bound(new)["threadIdx.x"] == {256 if target == "cuda" else 64}


@pytest.mark.parametrize("shape", [(16, 32), (19, 37)])
@pytest.mark.parametrize("target", TARGETS)
def test_transpose(target, shape):
    new = check(Transpose(), made(topi.transpose, shape), target)
    assert "shared" in scopes(new)


def test_transpose_of_what_is_computed():
    check(Transpose(), made(lambda a: topi.transpose(topi.exp(a)), (16, 32)), "cuda")


REFUSED = {
    "elementwise code is no reduction": (Reduction(), FALLBACK["elementwise"]),
    "softmax is several reductions": (Reduction(), GENERAL["softmax"]),
    "a maximum is no sum": (Reduction(), (lambda a: topi.max(a, axis=1), (6, 40))),
    "elementwise code has no rows": (GeneralReduction(), FALLBACK["elementwise"]),
    "a sum transposes nothing": (Transpose(), FALLBACK["rows"]),
    "a cube has three axes": (Transpose(), (lambda a: topi.transpose(a, [2, 0, 1]), (3, 4, 5))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_rule_is_not_for(name):
    rule, case = REFUSED[name]
    assert rule.apply(made(*case), Target("cuda"), False) is None


@pytest.mark.parametrize("rule", [Fallback(), Reduction(), GeneralReduction(), Transpose()])
def test_processors_are_left_alone(rule):
    assert rule.apply(made(*FALLBACK["rows"]), Target("llvm"), False) is None


def test_rules_are_tried_in_order():
    mod = IRModule({"main": made(*REDUCTIONS["rows"])})
    with Target("cuda"):
        new = ApplyDefaultSchedule(Transpose(), Reduction(), Fallback())(mod)
        again = ApplyDefaultSchedule(Fallback())(new)
    assert new["main"].attrs["tir.is_scheduled"] and again is new
    assert "A0_red_rf" in new.script()


def test_no_target():
    with pytest.raises(InvalidValue, match="no target for `main`"):
        ApplyDefaultSchedule(Fallback())(IRModule({"main": made(*REDUCTIONS["rows"])}))
