"""MatmulTensorization: products of any size, layout and epilogue equal NumPy; what breaks a kernel is found."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from devices import needs_compiler, needs_nvrtc
from products import half, inputs_and_result, product, rectified, target

import oneir
from oneir import dlight as dl
from oneir import relax
from oneir.contrib import nvcc
from oneir.runtime.error import DeviceError
from oneir.script import relax as R
from oneir.target import Target
from oneir.testing.cuda_host import ORDERS, CudaOnHost, cuda_on_host

RULES = (dl.gpu.MatmulTensorization(), dl.gpu.MatmulInt8Tensorization())


CASES = {
    "plain": {"m": 64, "n": 128, "k": 64},
    "odd": {"m": 133, "n": 257, "k": 71},
    "few_rows": {"m": 8, "n": 40, "k": 16},
    "both_transposed": {"m": 33, "n": 130, "k": 33, "trans": (True, True)},
    "batched": {"m": 40, "n": 36, "k": 50, "batch": (3,)},
    "half_sums": {"m": 40, "n": 40, "k": 48, "out": "float16"},
    "bfloat": {"m": 64, "n": 33, "k": 48, "dtype": "bfloat16"},
    "bytes": {"m": 70, "n": 45, "k": 100, "dtype": "int8", "out": "int32"},
    "bytes_transposed": {"m": 34, "n": 40, "k": 64, "dtype": "int8", "out": "int32", "trans": (True, True)},
    "epilogue": {"m": 50, "n": 70, "k": 64, "after": rectified},
    "prologue": {"m": 50, "n": 40, "k": 40, "before": half},
    "dynamic": {"m": None, "n": None, "k": None},
    "dynamic_rows": {"m": None, "n": 64, "k": 40, "trans": (False, True), "after": rectified},
}
USUAL = ("odd", "bytes", "bfloat", "epilogue", "dynamic")
OTHERS = tuple(name for name in CASES if name not in USUAL)
SIZES = [(37, 150, 21), (129, 16, 100), (5, 7, 1), (9, 7, 0)]
"""For those that have any size."""


def scheduled(name, arch="sm_80"):
    """The function of a case under the first rule that takes it."""
    func = product(**CASES[name]).with_attr("global_symbol", name)
    found = [sch for rule in RULES if (sch := rule.apply(func, target(arch))) is not None]
    assert len(found) == 1
    return found[0].mod


@functools.cache
def built(*names, arch="sm_80"):
    functions = {name: func for name in names for func in scheduled(name, arch).functions.values()}
    return oneir.build(oneir.IRModule(functions), target(arch))


def arrays(name, size=(0, 0, 0)):
    return inputs_and_result(CASES[name], size)


def check(ex, name, order, size=(0, 0, 0)):
    inputs, expected, error, out = arrays(name, size)
    with cuda_on_host(order) as driver:
        dev = oneir.cuda()
        result = oneir.nd.array(np.full(expected.shape, 77, out), dev)
        ex[name](*[oneir.nd.array(x, dev) for x in inputs], result)
        assert driver.launched == [f"{name}_kernel"]
        difference = np.abs(result.numpy().astype("f8") - expected)
    assert (difference <= error).all(), (name, order, size, difference.max())


@needs_compiler
@pytest.mark.parametrize("names", [USUAL, pytest.param(OTHERS, marks=pytest.mark.long)])
def test_products_equal_numpy_in_every_order_of_threads(names):
    ex = built(*names)
    for name in names:
        sizes = SIZES if None in CASES[name].values() else [(0, 0, 0)]
        for place, size in enumerate(sizes):
            for order in ORDERS if place == 0 else ["shuffled"]:
                check(ex, name, order, size)


@needs_nvrtc
def test_the_compiler_of_nvidia_takes_them():
    text = built(*USUAL).inspect_source("cuda")
    kernels = text[text.index('extern "C"') :]
    assert "asm" not in kernels and kernels.count("oneir_cp_async16(") > 2 * len(USUAL)
    ptx = nvcc.compile_cuda(text, "ptx", "sm_80").decode()
    # All fragments are in registers.
    assert "mma.sync" in ptx and "cp.async.cg" in ptx and ".local" not in ptx
    for arch in ("sm_80", "sm_90a"):
        assert nvcc.compile_cuda(text, "cubin", arch)
    older = built("plain", "bytes", arch="sm_75").inspect_source("cuda")
    assert nvcc.compile_cuda(older, "cubin", "sm_75")


# -- which functions the rules take --


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ({"dtype": "float32"}, {"kind": "cuda", "arch": "sm_80"}),
        ({"dtype": "bfloat16"}, {"kind": "cuda", "arch": "sm_75"}),
        ({"dtype": "float16"}, {"kind": "cuda", "arch": "sm_70"}),
        ({"dtype": "float16"}, {"kind": "cuda"}),
        ({"dtype": "float16"}, {"kind": "opencl"}),
        ({"dtype": "uint8", "out": "int32"}, {"kind": "cuda", "arch": "sm_90a"}),
    ],
)
def test_what_tensor_cores_do_not_take(case, kind):
    func = product(64, 64, 64, **case)
    assert all(rule.apply(func, Target(kind, host="llvm")) is None for rule in RULES)


def test_a_function_that_must_not_be_tensorized():
    func = product(64, 64, 64)
    assert RULES[0].apply(func, target("sm_90a")) is not None
    assert RULES[0].apply(func.with_attr("dlight.do_not_tensorize", True), target("sm_90a")) is None


HALF = "float16"
GRAPHS = {
    "layer": (
        lambda x, w, b: relax.op.nn.gelu(relax.op.add(relax.op.matmul(x, w), b)),
        ((30, 64), HALF),
        ((64, 100), HALF),
        ((100,), HALF),
    ),
    "broadcast": (lambda x, w: relax.op.matmul(x, w), ((2, 5, 20, 48), HALF), ((48, 24), HALF)),
    "scores": (
        lambda q, k: relax.op.nn.softmax(relax.op.matmul(q, relax.op.permute_dims(k, [0, 2, 1]))),
        ((3, 20, 64), HALF),
        ((3, 30, 64), HALF),
    ),
    "convolution": (
        lambda x, w: relax.op.nn.relu(relax.op.nn.conv2d(x, w, padding=1)),
        ((1, 8, 9, 9), HALF),
        ((16, 8, 3, 3), HALF),
    ),
    "a matrix by itself": (lambda x: relax.op.matmul(x, relax.op.permute_dims(x)), ((40, 24), HALF)),
}


@needs_compiler
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "layer" else pytest.mark.long) for name in GRAPHS]
)
def test_graphs_use_them(name):
    """They give on tensor cores what they give on a processor."""
    build, *params = GRAPHS[name]
    bb = relax.BlockBuilder()
    args = [relax.Var(f"x{i}", R.Tensor(shape, dtype)) for i, (shape, dtype) in enumerate(params)]
    with bb.function("main", args):
        with bb.dataflow():
            out = bb.emit_output(build(*args))
        bb.emit_func_output(out)
    inputs = [np.random.default_rng(i).standard_normal(shape).astype(d) / 3 for i, (shape, d) in enumerate(params)]
    on_host = relax.VirtualMachine(relax.build(bb.get(), "llvm"), oneir.cpu())
    expected = on_host["main"](*map(oneir.nd.array, inputs)).numpy()
    ex = relax.build(bb.get(), target("sm_90a"))
    assert "oneir_mma_m16n8k16_f32_f16(" in ex.mod.inspect_source("cuda")
    with cuda_on_host("backward"):
        dev = oneir.cuda()
        result = relax.VirtualMachine(ex, dev)["main"](*[oneir.nd.array(x, dev) for x in inputs]).numpy()
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


# -- planted faults --

FAULTS = {
    "no wait": (r"oneir_cp_async_wait<1>\(\);", ""),
    "a wait one group short": ("oneir_cp_async_wait<1>", "oneir_cp_async_wait<2>"),
    "no group closed": (r"oneir_cp_async_commit\(\);", ""),
    "no barrier": (r"__syncthreads\(\);", ""),
    "no barrier after the wait": (r"(wait<1>\(\);\n +)__syncthreads\(\);", r"\1"),
    "no barrier before the next copies": (r"__syncthreads\(\);(\n    for \(int ax1)", r"\1"),
    "rows of one side not permuted": (r" \^ \(threadIdx_x >> 3\)", ""),
    "rows of the other side permuted otherwise": (r" >> 1;", ";"),
    "copies to the stage in use": (r"\(\(ax3_0 \+ 1\) & 1\) \* 4096", "(ax3_0 & 1) * 4096"),
    "the stage of the other parity": (r"= ax3_0 \* 4096", "= (1 - ax3_0) * 4096"),
    "matrices not transposed": ("oneir_ldmatrix_x4_trans", "oneir_ldmatrix_x4"),
    "halves of the right matrix exchanged": (r"(\(B_\w+ \+ \w+\)) \+ 4", r"\1 + 0"),
    "half of the rows": ("threadIdx_x & 15", "threadIdx_x & 7"),
    "sums not cleared": ("oneir_mma_fill<8>", "oneir_mma_fill<4>"),
}


@needs_compiler
def test_planted_faults_are_found():
    text = built("odd").inspect_source("cuda")
    start = text.index('extern "C"')
    kernel = text[start:]
    texts = {"none": kernel}
    for fault, (before, after) in FAULTS.items():
        texts[fault], count = re.subn(before, after, kernel)
        assert count, fault
    names = {fault: f"kernel_{place}" for place, fault in enumerate(texts)}
    program = CudaOnHost(
        text[:start] + "".join(found.replace("odd_kernel(", f"{names[fault]}(") for fault, found in texts.items())
    )
    (a, b), expected, error, _ = arrays("odd")

    def fails(fault, order):
        c = np.full(expected.shape, 77, "float32")
        try:
            program.launch(names[fault], [2, 3], [32, 2, 2], [a, b, c], order)
        except DeviceError:
            return True
        return not (np.abs(c - expected) <= error).all()

    found = {fault for fault in texts if any(fails(fault, order) for order in ORDERS)}
    assert found == set(FAULTS)
