"""Default thread bindings: what is bound, what is left alone, and that results stay the same."""

from __future__ import annotations

import pytest

import oneir
from oneir import te
from oneir.ir import assert_structural_equal
from oneir.runtime.error import InvalidValue, ScheduleError
from oneir.script import ir as I
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing import check_pass
from oneir.tir.transform import DefaultGPUSchedule


def applied(mod: oneir.IRModule, target: str = "cuda") -> oneir.IRModule:
    with Target(target):
        return DefaultGPUSchedule()(mod)


@I.ir_module
class RowSums:
    @T.prim_func
    def main(A: T.Buffer((4, 6, 8), "float32"), B: T.Buffer((4, 6), "float32")):
        for i, j, k in T.grid(4, 6, 8):
            with T.block("B"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    B[vi, vj] = T.float32(0)
                B[vi, vj] = B[vi, vj] + A[vi, vj, vk]


@I.ir_module
class RowSumsBound:
    @T.prim_func
    def main(A: T.Buffer((4, 6, 8), "float32"), B: T.Buffer((4, 6), "float32")):
        T.func_attr({"tir.is_scheduled": True})
        for i_j_fused_0 in T.thread_binding(1, thread="blockIdx.x"):
            for i_j_fused_1 in T.thread_binding(24, thread="threadIdx.x"):
                for k in range(8):
                    with T.block("B"):
                        vi = T.axis.spatial(4, (i_j_fused_0 * 24 + i_j_fused_1) // 6)
                        vj = T.axis.spatial(6, (i_j_fused_0 * 24 + i_j_fused_1) % 6)
                        vk = T.axis.reduce(8, k)
                        with T.init():
                            B[vi, vj] = T.float32(0)
                        B[vi, vj] = B[vi, vj] + A[vi, vj, vk]


def test_spatial_loops_become_threads():
    with Target("cuda"):
        check_pass(DefaultGPUSchedule(), RowSums, RowSumsBound)


def sums(shape: tuple[int, ...]) -> oneir.IRModule:
    """The sum of an array along its first axis."""
    A = te.placeholder(shape, name="A")
    k = te.reduce_axis((0, shape[0]), name="k")
    return oneir.IRModule({"main": te.create_prim_func([A, te.compute(shape[1:], lambda *i: te.sum(A(k, *i), k))])})


def test_a_sum_of_all_elements_is_one_thread():
    text = applied(sums((5,))).script()
    assert 'T.thread_binding(1, thread="blockIdx.x")' in text and 'T.thread_binding(1, thread="threadIdx.x")' in text
    assert "for k in range(5)" in text


@pytest.mark.parametrize(
    ("elements", "blocks", "threads"), [(7, 1, 7), (1024, 1, 1024), (1500, 2, 1024), (1024 * 256, 256, 1024)]
)
def test_how_many_threads(elements: int, blocks: int, threads: int):
    text = applied(sums((2, elements))).script()
    assert f'T.thread_binding({blocks}, thread="blockIdx.x")' in text
    assert f'T.thread_binding({threads}, thread="threadIdx.x")' in text
    # Where the threads are more than the elements, a condition keeps those at the end from writing.
    assert ("T.where(" in text) == (elements % threads != 0)


def test_above_256_thread_blocks_a_thread_computes_several_elements():
    text = applied(sums((2, 1024 * 256 * 3))).script()
    assert 'T.thread_binding(256, thread="blockIdx.x")' in text
    assert 'T.thread_binding(1024, thread="threadIdx.x")' in text and "in T.grid(3, 2)" in text


def test_the_threads_are_those_that_the_target_has():
    text = applied(sums((2, 600)), "webgpu").script()
    assert 'T.thread_binding(3, thread="blockIdx.x")' in text and 'T.thread_binding(256, thread="threadIdx.x")' in text


def test_the_target_of_the_function_counts_more_than_the_current_one():
    func = RowSums["main"]
    cpu, gpu = func.with_attr("target", Target("llvm")), func.with_attr("target", Target("cuda"))
    out = applied(oneir.IRModule({"cpu": cpu, "gpu": gpu}), "llvm")
    assert out["cpu"] is cpu and "threadIdx.x" in out["gpu"].script()


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_functions_for_cpus_stay_as_they_are(target: str):
    assert applied(RowSums, target) is RowSums


def test_what_is_scheduled_stays_as_it_is():
    once = applied(RowSums)
    assert applied(once) is once


def test_a_block_that_is_bound_stays_as_it_is():
    bound = oneir.IRModule({"main": RowSumsBound["main"].without_attr("tir.is_scheduled")})
    assert_structural_equal(applied(bound), RowSumsBound)


def test_without_a_target():
    with pytest.raises(InvalidValue, match=r"DefaultGPUSchedule needs to know the target: apply it inside of `with"):
        DefaultGPUSchedule()(RowSums)


def test_a_target_that_does_not_say_how_many_threads_it_has():
    with pytest.raises(InvalidValue, match="has no max_num_threads"):
        applied(RowSums, "hexagon -keys=gpu")


def test_loops_that_cannot_be_fused():
    @T.prim_func
    def between(A: T.Buffer((4, 6, 8), "float32"), B: T.Buffer((4, 6), "float32")):
        for i, k, j in T.grid(4, 8, 6):
            with T.block("B"):
                vi, vk, vj = T.axis.remap("SRS", [i, k, j])
                with T.init():
                    B[vi, vj] = T.float32(0)
                B[vi, vj] = B[vi, vj] + A[vi, vj, vk]

    with pytest.raises(ScheduleError):
        applied(oneir.IRModule({"main": between}))
