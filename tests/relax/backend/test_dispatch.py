"""DispatchSortScan and DispatchSampling: calls on devices with threads become kernels, others stay; and parts of the
pipelines of each kind of target are those of its back end.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from devices import needs_opencl, needs_webgpu

import oneir
from oneir import relax
from oneir.ir.transform import Sequential
from oneir.relax.backend import DispatchSampling, DispatchSortScan
from oneir.relax.backend.gpu_generic import (
    generic_get_sample_index,
    gpu_2d_continuous_cumsum,
    gpu_multinomial_from_uniform,
)
from oneir.relax.transform import FoldConstant, FoldRequantization, IntegerProducts
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.target import Target
from oneir.target.cpu import cpu_info

rng = np.random.default_rng(5)


@I.ir_module
class Model:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("opencl")]})

    @R.function
    def main(
        x: R.Tensor(("n", 300), "float32"),
        y: R.Tensor((4, 5), "float32", "llvm"),
        z: R.Tensor((4, 5), "float32", "opencl"),
    ):
        with R.dataflow():
            a = R.sort(x, axis=-1, descending=True)
            b = R.cumsum(y, axis=1)
            c = R.topk(z, 2)
            gv = (a, b, c)
            R.output(gv)
        return gv


@I.ir_module
class Draw:
    @R.function
    def main(
        prob: R.Tensor(("b", "n"), "float32"), u: R.Tensor(("s", 1), "float32"), rows: R.Tensor(("s", 1), "int64")
    ) -> R.Tensor(("s", 1), "int32"):
        with R.dataflow():
            gv = R.multinomial_from_uniform(prob, u, rows, dtype="int32")
            R.output(gv)
        return gv


def callees(mod: oneir.IRModule) -> list[str]:
    """What each binding of `main` calls."""
    found = []
    for binding in mod["main"].body.blocks[0].bindings[:-1]:
        call = binding.value
        found.append(call.args[0].name_hint if call.op.name == "relax.call_tir" else call.op.name)
    return found


def test_the_device_of_a_result_decides_and_else_the_target_that_is_entered():
    assert callees(DispatchSortScan()(Model)) == ["relax.sort", "relax.cumsum", "topk"]
    with Target("cuda", host="llvm"):
        assert callees(DispatchSortScan()(Model)) == ["sort", "relax.cumsum", "topk"]
    with Target("llvm"):
        assert callees(DispatchSortScan()(Model)) == ["relax.sort", "relax.cumsum", "topk"]
        assert DispatchSampling()(Draw) is Draw
    kernel = DispatchSortScan()(Model)["topk"]
    assert kernel.attrs["tir.is_scheduled"] and "blockIdx.x" in kernel.script()


def drawn(prob: np.ndarray, u: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The first class of each row at which the exact sum exceeds the number."""
    sums = np.cumsum(prob.astype("float64"), 1)[rows[:, 0]]
    return np.minimum((sums <= u).sum(1, keepdims=True), prob.shape[1] - 1).astype("int32")


def probabilities(batch: int, classes: int) -> np.ndarray:
    """Multiples of a power of two, so that any order of sums is exact."""
    cuts = np.sort(rng.integers(0, 1 << 16, (batch, classes - 1)), 1)
    return (np.diff(cuts, axis=1, prepend=0, append=1 << 16) / (1 << 16)).astype("float32")


SAMPLES = [(3, 1, 4), (2, 5, 7), (4, 3000, 5)]


@needs_opencl
@pytest.mark.parametrize(("batch", "classes", "samples"), SAMPLES)
def test_samples_are_those_of_exact_sums(batch, classes, samples):
    prob, rows = probabilities(batch, classes), rng.integers(0, batch, (samples, 1))
    u = (rng.integers(0, 1 << 16, (samples, 1)) / (1 << 16)).astype("float32")
    device = oneir.opencl()
    machine = relax.VirtualMachine(relax.build(Draw, "opencl"), device)
    found = machine["main"](*(oneir.runtime.tensor(a, device) for a in (prob, u, rows))).numpy()
    np.testing.assert_array_equal(found, drawn(prob, u, rows))


@needs_opencl
def test_published_kernels_by_themselves():
    device, target = oneir.opencl(), Target("opencl", host="llvm")
    a = rng.integers(-9, 9, (3, 130)).astype("int32")
    sums = oneir.runtime.tensor(np.zeros(a.shape, "int64"), device)
    cumsum = gpu_2d_continuous_cumsum(2, 4, 2, "int32", "int64")
    oneir.build(cumsum, target=target)(oneir.runtime.tensor(a, device), sums)
    np.testing.assert_array_equal(sums.numpy(), np.cumsum(a, 1, dtype="int64"))

    prob, u, rows = probabilities(2, 9), np.float32([[0.25], [0.999]]), np.int32([[1], [0]])
    found = oneir.runtime.tensor(np.zeros((2, 1), "int32"), device)
    draw = gpu_multinomial_from_uniform(sample_indices_dtype="int32", dtype="int32", tx_len=8, eps=0.0)
    oneir.build(draw, target=target)(*(oneir.runtime.tensor(x, device) for x in (prob, u, rows)), found)
    np.testing.assert_array_equal(found.numpy(), drawn(prob, u, rows))

    # A tolerance takes a class already where the sum is short of the number by less.
    prob, u = np.float32([[0.5, 0.5]]), np.float32([[0.5]])
    for eps, expected in ((0.0, 1), (0.1, 0)):
        draw = gpu_multinomial_from_uniform(sample_indices_dtype="int32", dtype="int32", eps=eps)
        found = oneir.runtime.tensor(np.zeros((1, 1), "int32"), device)
        arguments = (oneir.runtime.tensor(x, device) for x in (prob, u, np.zeros((1, 1), "int32")))
        oneir.build(draw, target=target)(*arguments, found)
        assert found.numpy() == expected


def test_an_index_from_sums():
    prob, u, rows = probabilities(2, 9), np.float32([[0.25], [0.999]]), np.int64([[1], [0]])
    found = np.zeros((2, 1), "int64")
    oneir.build(generic_get_sample_index())(np.cumsum(prob, 1), u, rows, found)
    np.testing.assert_array_equal(found, drawn(prob, u, rows))


def test_threads_that_cannot_be_added_in_halves_are_refused():
    with pytest.raises(InvalidValue, match=r"gpu_2d_continuous_cumsum: expected a power of two, .* found 3 \* 32"):
        gpu_2d_continuous_cumsum(3)
    with pytest.raises(InvalidValue, match=r"expected a power of two, at least 2, of threads a block, found 1 \* 1"):
        gpu_multinomial_from_uniform(ty_len=1, tx_len=1)


@needs_webgpu
def test_sort_and_scan_on_a_device_without_int64_and_small_integers():
    @I.ir_module
    class Small:
        @R.function
        def main(x: R.Tensor((3, 700), "float32"), y: R.Tensor((5, 9), "int32")):
            with R.dataflow():
                a = R.argsort(x, axis=-1)
                b = R.cumsum(y, axis=0)
                gv = (a, b)
                R.output(gv)
            return gv

    x, y = rng.integers(0, 9, (3, 700)).astype("float32"), rng.integers(-9, 9, (5, 9)).astype("int32")
    device = oneir.webgpu()
    machine = relax.VirtualMachine(relax.build(Small, "webgpu"), device)
    order, sums = machine["main"](*(oneir.runtime.tensor(a, device) for a in (x, y)))
    np.testing.assert_array_equal(order.numpy(), np.argsort(x, 1, kind="stable"))
    np.testing.assert_array_equal(sums.numpy(), np.cumsum(y, 0))


# -- parts of pipelines --

KINDS = {"cuda": "cuda", "rocm": "rocm", "metal": "metal", "gpu_generic": "opencl", "cpu_generic": "llvm"}
KINDS["adreno"] = "opencl"


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_parts_of_the_pipeline_of_each_kind_of_target_make_the_whole(name, kind):
    backend, target = importlib.import_module(f"oneir.relax.backend.{name}"), Target(kind)
    parts = (
        backend.library_dispatch_passes,
        backend.legalize_passes,
        backend.dataflow_lower_passes,
        backend.finalize_passes,
    )
    with target:
        after = Sequential([step for part in parts for step in part(target)])(Draw)
        oneir.ir.assert_structural_equal(after, backend.get_default_pipeline(target)(Draw))
    expected = [FoldConstant(), DispatchSampling(), DispatchSortScan()]
    if name == "cpu_generic":  # Processors that multiply bytes have products of integers.
        expected = [IntegerProducts(), FoldRequantization()] if cpu_info(target).byte_dots else []
    assert backend.library_dispatch_passes(target) == expected
