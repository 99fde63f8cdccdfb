"""The default schedules for GPUs of what is no product of matrices."""

from __future__ import annotations

import pytest
from check_rule import bound, check, made, scopes

from oneir import te, tir, topi
from oneir.dlight import ApplyDefaultSchedule
from oneir.dlight.analysis.recomputation import MOST_NODES
from oneir.dlight.gpu import Fallback, GeneralReduction, Reduction, RMSNorm, Transpose
from oneir.ir import IRModule, assert_structural_equal
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.target import Target

TARGETS = ["cuda", "metal"]


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


def test_rows_that_are_symbolic():
    n, m = te.var("n"), te.var("m")
    check(Reduction(), made(lambda a: topi.sum(a, axis=1), (n, m)), "cuda", n=3, m=37)
    check(Reduction(), made(lambda a: topi.sum(a, axis=0), (n, m)), "cuda", n=19, m=3)
    check(Fallback(), made(topi.exp, (n, m)), "metal", n=3, m=5)


@T.prim_func
def unpacked_columns(A: T.Buffer((4, 24), "uint32"), B: T.Buffer((32,), "float32")):
    """Sums of rows of a matrix of which each element holds the numbers of eight rows."""
    for i, k in T.grid(32, 24):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + T.Cast("float32", A[vi // 8, vk] & T.uint32(15)) * T.Cast("float32", vi % 8)


def test_what_is_unpacked_from_one_element_stays_together():
    schedule = tir.Schedule(check(Reduction(), unpacked_columns, "cuda"))
    # The blocks of threads, one group of each, the threads that sum, and the rows unpacked from one element.
    loops = [schedule.get(loop) for loop in schedule.get_loops(schedule.get_block("B"))]
    assert [str(loop.extent) for loop in loops] == ["4", "1", "16", "8"]


@T.prim_func
def sums(A: T.Buffer((3, 5), "float32"), B: T.Buffer((3,), "float32")):
    for i, k in T.grid(3, 5):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def sums_by_threads(A: T.Buffer((3, 5), "float32"), B: T.Buffer((3,), "float32")):
    B_rf = T.alloc_buffer((4, 3), scope="local")
    for i in T.thread_binding(3, thread="blockIdx.x"):
        for k_1 in T.thread_binding(
            4, thread="threadIdx.x", annotations={"pragma_auto_unroll_max_step": 256, "pragma_unroll_explicit": 1}
        ):
            with T.block("B_rf_init"):
                vk_1, v0 = T.axis.remap("SS", [k_1, i])
                T.reads()
                T.writes(B_rf[vk_1, v0])
                B_rf[vk_1, v0] = T.float32(0)
            for k_0, u in T.grid(2, 1):
                with T.block("B_rf_update"):
                    vk_1, v0, vk_0 = T.axis.remap("SSR", [k_1, i, k_0])
                    T.where(k_0 * 4 + k_1 < 5)
                    T.reads(B_rf[vk_1, v0], A[v0, vk_0 * 4 + vk_1])
                    T.writes(B_rf[vk_1, v0])
                    B_rf[vk_1, v0] = B_rf[vk_1, v0] + A[v0, vk_0 * 4 + vk_1]
        for ax1 in range(1):
            for ax0 in T.thread_binding(4, thread="threadIdx.x"):
                with T.block("B"):
                    vk_1, v0 = T.axis.remap("RS", [ax0, i])
                    T.reads(B_rf[vk_1, v0])
                    T.writes(B[v0])
                    with T.init():
                        B[v0] = T.float32(0)
                    B[v0] = B[v0] + B_rf[vk_1, v0]


def test_sums_before_and_after():
    assert_structural_equal(check(Reduction(), sums, "cuda"), sums_by_threads.with_attr("global_symbol", "sums"))


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


def rms(shape, dtype="float32"):
    """RMS norm in the steps that models have: squares, their sum, the inverse root, the product."""
    a = te.placeholder(shape, dtype, name="A")
    w = te.placeholder(shape[-1:], dtype, name="W")
    k = te.reduce_axis((0, shape[-1]), "k")
    wide = te.compute(shape, lambda *i: a(*i).astype("float32"), name="wide")
    square = te.compute(shape, lambda *i: wide(*i) * wide(*i), name="square")
    total = te.compute(shape[:-1], lambda *i: te.sum(square(*i, k), axis=k), name="total")
    root = te.compute(shape[:-1], lambda *i: tir.rsqrt(total(*i) / 512.0 + 1e-5), name="inverse")
    norm = te.compute(shape, lambda *i: root(*i[:-1]) * wide(*i) * w(i[-1]).astype("float32"), name="norm")
    return te.create_prim_func([a, w, te.compute(shape, lambda *i: norm(*i).astype(dtype), name="out")])


@pytest.mark.parametrize("shape", [(2, 512), (1, 2, 512)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rms_norm(shape, dtype):
    new = check(RMSNorm(), rms(shape, dtype), "metal", rtol=1e-5 if dtype == "float32" else 1e-3)
    assert bound(new) == {"blockIdx.x": {2}, "threadIdx.x": {64}}
    # Rows are in registers, and the inverse roots, which all threads of a row read, in shared memory.
    assert scopes(new) == {"local", "shared"}


def test_norms_of_symbolic_extents():
    n, m, known = te.var("n", "int64"), te.var("m", "int64"), tir.const(512, "int64")
    check(RMSNorm(), rms((n, known)), "metal", n=2)
    check(GeneralReduction(), made(lambda a: topi.nn.softmax(a, axis=-1), (n, m)), "metal", n=2, m=70)
    check(Transpose(), made(topi.transpose, (n, m)), "cuda", n=9, m=17)


def test_a_result_without_axes():
    new = GeneralReduction().apply(made(lambda a: topi.sqrt(topi.sum(a)), (5, 7)), Target("cuda"), False)
    assert new is not None and bound(new.mod["main"]) == {"blockIdx.x": {1}, "threadIdx.x": {1}}


def test_transpose_of_what_is_computed():
    check(Transpose(), made(lambda a: topi.transpose(topi.exp(a)), (16, 32)), "cuda")


REFUSED = {
    "elementwise code is no reduction": (Reduction(), FALLBACK["elementwise"]),
    "softmax is several reductions": (Reduction(), GENERAL["softmax"]),
    "a maximum is no sum": (Reduction(), (lambda a: topi.max(a, axis=1), (6, 40))),
    "elementwise code has no rows": (GeneralReduction(), FALLBACK["elementwise"]),
    "a sum transposes nothing": (Transpose(), FALLBACK["rows"]),
    "a row sum is no norm": (RMSNorm(), FALLBACK["rows"]),
    "a norm with a mean has other steps": (RMSNorm(), GENERAL["layer norm"]),
    "a cube has three axes": (Transpose(), (lambda a: topi.transpose(a, [2, 0, 1]), (3, 4, 5))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_rule_is_not_for(name):
    rule, case = REFUSED[name]
    assert rule.apply(made(*case), Target("cuda"), False) is None


@pytest.mark.parametrize("rule", [Fallback(), Reduction(), GeneralReduction(), Transpose(), RMSNorm()])
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


def nodes_of(func: tir.PrimFunc) -> int:
    found: list[object] = []
    tir.stmt_functor.post_order_visit(func.body, found.append)
    return len(found)


@pytest.mark.parametrize("ends", ["in its elements", "in sums of rows"])
def test_what_is_read_at_several_places_is_not_computed_at_each(ends):
    """A chain in which each link reads the one before twice: written out, it would double with every link."""
    links = 12

    def chain(a):
        for _ in range(links):
            before = a
            a = te.compute(a.shape, lambda i, j, x=before: te.sin(x[i, (j + 1) % 6]) + x[i, j], name="link")
        return a if ends == "in its elements" else topi.sum(a, axis=1)

    assert nodes_of(check(Fallback(), made(chain, (3, 6)), "cuda", rtol=1e-4)) < 500 * links


def test_what_doubles_at_one_place_is_not_written_out_either():
    links = 20

    def chain(a):
        for _ in range(links):
            a = topi.subtract(a, topi.multiply(a, a))
        return a

    new = check(Fallback(), made(chain, (3, 2)), "cuda", rtol=1e-3)
    assert nodes_of(new) < 4 * MOST_NODES < 2**links
