"""MatmulWarpgroup: products on sm_90 equal NumPy, in any size, layout and order; what breaks the kernel is found."""

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
from oneir.dlight.gpu import matmul_warpgroup
from oneir.runtime.error import CompileError, DeviceError
from oneir.runtime.tensor_map import TensorMap
from oneir.script import relax as R
from oneir.target import Target
from oneir.testing.cuda_host import ORDERS, CudaOnHost, cuda_on_host

RULE = dl.gpu.MatmulWarpgroup()
CASES = {
    "odd": {"m": 133, "n": 257, "k": 328, "trans": (False, True)},
    "right_across": {"m": 70, "n": 136, "k": 40},
    "both_across": {"m": 136, "n": 72, "k": 71, "trans": (True, False)},
    "left_across": {"m": 72, "n": 33, "k": 72, "trans": (True, True)},
    "few_rows": {"m": 5, "n": 200, "k": 200, "after": rectified},
    "batched": {"m": 40, "n": 40, "k": 56, "batch": (2, 2)},
    "bfloat": {"m": 70, "n": 80, "k": 64, "dtype": "bfloat16"},
    "bytes": {"m": 70, "n": 45, "k": 208, "dtype": "int8", "out": "int32", "trans": (False, True)},
    "whole": {"m": 128, "n": 128, "k": 64, "after": rectified},
    "dynamic_rows": {"m": None, "n": 72, "k": 136, "after": rectified},
    "dynamic": {"m": None, "n": None, "k": None},
}
USUAL = ("odd", "right_across", "bfloat", "bytes", "few_rows", "dynamic_rows")
OTHERS = tuple(name for name in CASES if name not in USUAL)
ROWS = [(300, 0, 0), (1, 0, 0), (129, 0, 0)]
"""For those that have any number of rows."""


def scheduled(name):
    sch = RULE.apply(product(**CASES[name]).with_attr("global_symbol", name), target("sm_90a"))
    assert sch is not None
    return sch.mod["main"]


@functools.cache
def built(*names):
    """Programs for a GPU of two processors, so that each has several tiles."""
    processors, matmul_warpgroup.PROCESSORS = matmul_warpgroup.PROCESSORS, 2
    try:
        return oneir.build(oneir.IRModule({name: scheduled(name) for name in names}), target("sm_90a"))
    finally:
        matmul_warpgroup.PROCESSORS = processors


def check(name, order, size=(0, 0, 0), names=USUAL, kernel="kernel", shift=0):
    """Runs a case; `shift` is how many elements behind a multiple of 16 bytes the first factor begins."""
    inputs, expected, error, out = inputs_and_result(CASES[name], size)
    with cuda_on_host(order) as driver:
        dev = oneir.cuda()
        result = oneir.nd.array(np.full(expected.shape, 77, out), dev)
        tensors = [oneir.nd.array(x, dev) for x in inputs]
        if shift:
            whole = np.concatenate([np.zeros(shift, inputs[0].dtype), inputs[0].ravel()])
            held = oneir.nd.array(whole, dev)
            tensors[0] = held._create_view(inputs[0].shape, relative_byte_offset=shift * whole.itemsize)
        built(*names)[name](*tensors, result)
        assert driver.launched == ([f"{name}_{kernel}"] if expected.size else [])
        difference = np.abs(result.numpy().astype("f8") - expected)
    assert (difference <= error).all(), (name, order, size, difference.max())


@needs_compiler
@pytest.mark.parametrize("names", [USUAL, pytest.param(OTHERS, marks=pytest.mark.long)])
def test_products_equal_numpy_in_every_order_of_threads(names):
    for name in names:
        if name != "dynamic":
            for order in ORDERS if name == "odd" else ["shuffled"]:
                check(name, order, ROWS[0], names)
    if names == USUAL:
        for size in (*ROWS[1:], (0, 0, 0)):
            check("dynamic_rows", "shuffled", size)


@needs_compiler
def test_what_a_call_brings_decides_which_kernel_runs():
    names = ("dynamic", "right_across")
    check("dynamic", "forward", (37, 40, 72), names)
    for size in ((37, 150, 24), (9, 40, 21), (9, 8, 0)):  # rows of 300 bytes, of 42, and no products at all
        check("dynamic", "forward", size, names, "kernel_1")
    check("right_across", "forward", names=names, shift=8)
    check("right_across", "forward", names=names, shift=1, kernel="kernel_1")


@needs_nvrtc
def test_the_compiler_of_nvidia_takes_them():
    text = built("right_across", "bytes", "dynamic_rows").inspect_source("cuda")
    kernels = text[text.index('extern "C"') :]
    assert "asm" not in kernels and kernels.count("oneir_copy_tile(") == 2 + (1 + 2) * 2
    assert kernels.count("__launch_bounds__(384, 1)") == kernels.count("oneir_setmaxnreg_inc<232>") == 3
    ptx = nvcc.compile_cuda(text, "ptx", "sm_90a").decode()
    for instruction in ("wgmma.mma_async", "cp.async.bulk.tensor.3d", "mbarrier.try_wait.parity", "setmaxnreg.inc"):
        assert instruction in ptx
    assert ".local" not in ptx  # all sums are in registers
    assert nvcc.compile_cuda(text, "cubin", "sm_90a")
    with pytest.raises(CompileError, match="wgmma"):
        nvcc.compile_cuda(text, "cubin", "sm_100a")


# -- which functions the rule takes --


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ({}, {"kind": "cuda", "arch": "sm_80"}),
        ({}, {"kind": "cuda", "arch": "sm_100a"}),
        ({}, {"kind": "cuda"}),
        ({"n": 60}, {"kind": "cuda", "arch": "sm_90a"}),  # rows of 120 bytes
        ({"k": 60, "trans": (False, True)}, {"kind": "cuda", "arch": "sm_90a"}),
        ({"before": half}, {"kind": "cuda", "arch": "sm_90a"}),
        ({"out": "float16"}, {"kind": "cuda", "arch": "sm_90a"}),
        ({"dtype": "float32"}, {"kind": "cuda", "arch": "sm_90a"}),
        ({"dtype": "int8", "out": "int32"}, {"kind": "cuda", "arch": "sm_90a"}),
    ],
)
def test_what_is_left_to_other_rules(case, kind):
    func = product(**{"m": 64, "n": 64, "k": 64} | case)
    assert RULE.apply(func, Target(kind, host="llvm")) is None


def test_a_function_that_must_not_be_tensorized():
    func = product(64, 64, 64)
    assert RULE.apply(func, target("sm_90")) is not None
    assert RULE.apply(func.with_attr("dlight.do_not_tensorize", True), target("sm_90")) is None


def layer(x, w, b, residual):
    return relax.op.add(relax.op.nn.gelu(relax.op.add(relax.op.matmul(x, w), b)), residual)


def scores(x, w, b, residual):
    keys = relax.op.permute_dims(relax.op.reshape(residual, (2, 16, 96)), [0, 2, 1])
    return relax.op.matmul(relax.op.reshape(residual, (2, 16, 96)), keys)


@needs_compiler
@pytest.mark.parametrize("build", [layer, pytest.param(scores, marks=pytest.mark.long)])
def test_the_default_pipeline_takes_them_for_sm_90(build):
    """A layer with all that is computed from its product is one kernel, and gives what it gives on a processor."""
    bb = relax.BlockBuilder()
    shapes = [(4, 8, 64), (64, 96), (96,), (4, 8, 96)]
    args = [relax.Var(f"x{i}", R.Tensor(shape, "float16")) for i, shape in enumerate(shapes)]
    with bb.function("main", args):
        with bb.dataflow():
            out = bb.emit_output(build(*args))
        bb.emit_func_output(out)
    inputs = [np.random.default_rng(i).standard_normal(shape).astype("float16") / 3 for i, shape in enumerate(shapes)]
    on_host = relax.VirtualMachine(relax.build(bb.get(), "llvm"), oneir.cpu())
    expected = on_host["main"](*map(oneir.nd.array, inputs)).numpy()
    ex = relax.build(bb.get(), Target("cuda -arch=sm_90a", host="llvm"))
    with cuda_on_host("backward") as driver:
        dev = oneir.cuda()
        result = relax.VirtualMachine(ex, dev)["main"](*[oneir.nd.array(x, dev) for x in inputs]).numpy()
        assert len(driver.launched) == 1 or build is scores
    text = ex.mod.inspect_source("cuda")
    (kernel,) = [name for name in driver.launched if re.search(rf" {name}\(const __grid_constant__", text)]
    assert "oneir_wgmma_" in text[text.index(f" {kernel}(") :]
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


# -- planted faults --

PHASE = r"\(\(+[^;]* & 7\) >> 2\)"
WAIT_FULL = rf"oneir_mbarrier_wait\(\(barriers \+ (cse_v\d+)\), ({PHASE})\);"
WAIT_EMPTY = rf"oneir_mbarrier_wait\(\(barriers \+ (\(cse_v\d+ \+ 4\))\), \(1 - ({PHASE})\)\);"
EXPECT = r"oneir_mbarrier_arrive_expect_tx\((.*), 49152\);"
ARRIVE = r"if \(cse_v\d+\) \{\s+oneir_mbarrier_arrive\((.*)\);\s+\}"
FAULTS = {
    "no wait for full stages": (WAIT_FULL, ""),
    "the other phase of full stages": (WAIT_FULL, r"oneir_mbarrier_wait((barriers + \1), (1 - \2));"),
    "a wait for another full stage": (WAIT_FULL, r"oneir_mbarrier_wait((barriers + ((\1 + 1) & 3)), \2);"),
    "no wait for empty stages": (WAIT_EMPTY, ""),
    "the other phase of empty stages": (WAIT_EMPTY, r"oneir_mbarrier_wait((barriers + \1), \2);"),
    "bytes not announced": (EXPECT, r"oneir_mbarrier_arrive(\1);"),
    "too few bytes announced": (EXPECT, r"oneir_mbarrier_arrive_expect_tx(\1, 16384);"),
    "too many bytes announced": (EXPECT, r"oneir_mbarrier_arrive_expect_tx(\1, 49280);"),
    "bytes announced twice": (EXPECT, r"\g<0> \g<0>"),
    "stages never called empty": (ARRIVE, ""),
    "stages called empty before the products": (
        rf"(oneir_wgmma_commit_group\(\);)([\s\S]*?){ARRIVE}",
        r"\1 if (threadIdx_x % 32 == 0) oneir_mbarrier_arrive(\3); __syncwarp(); \2",
    ),
    "stages called empty by all threads": (ARRIVE, r"oneir_mbarrier_arrive(\1);"),
    "barriers for fewer arrivals": (r"(oneir_mbarrier_init\(\(barriers \+ [4567]\)), 8\)", r"\1, 4)"),
    "a barrier not made": (r"oneir_mbarrier_init\(\(barriers \+ 3\), 1\);", ""),
    "barriers not visible to copies": (r"oneir_fence_proxy_async\(\);", ""),
    "no barrier of the block at the start": (r"__syncthreads\(\);", ""),
    "no wait for products": (r"oneir_wgmma_wait_group<0, 128>\(sums\);", ""),
    "a wait one group short": ("oneir_wgmma_wait_group<0, 128>", "oneir_wgmma_wait_group<1, 128>"),
    "stages called empty one step early": ("oneir_wgmma_wait_group<1, 128>", "oneir_wgmma_wait_group<2, 128>"),
    "no group closed": (r"oneir_wgmma_commit_group\(\);", ""),
    "registers not fenced": (r"oneir_wgmma_fence\(\);", ""),
    "fewer stages for those that multiply": (r"(const int cse_v\d+ = \(cse_v\d+ \+ step_1\)) & 3;", r"\1 & 1;"),
    "copies to another stage": (
        r"oneir_copy_tile\(\(stages \+ (cse_v\d+)\)",
        r"oneir_copy_tile((stages + (\1 + 49152) % 196608)",
    ),
    "pieces not where they are looked for": (
        r"oneir_copy_tile\(\(stages \+ (cse_v\d+)\)",
        r"oneir_copy_tile((stages + (\1 ^ 128))",
    ),
    "a piece along the sum twice": (r"- 8160\)\)", "- 8176))"),
    "a factor taken to lie across the sum": ("_f32_f16<0, 0>", "_f32_f16<0, 1>"),
    "sums of the tile before": (r"8192, cse_v\d+\);", "8192, true);"),
    "rows of the other warpgroup": (r"(cse_v\d+) \* 8192", r"(\1 ^ 3) * 8192"),
    "one warp that does not multiply": (r"(oneir_wgmma_m64n256k16_f32_f16<0, 0>)", r"if (threadIdx_x % 128 < 96) \1"),
    "registers not given back": ("setmaxnreg_dec<40>", "setmaxnreg_dec<168>"),
    "a copy that nobody waits for": (r"step < 6", "step < 6 + turn"),
    "a tile of the same block twice": (r"tile\[2\] = turn;", "tile[2] = 0;"),
}
REPORTS = {
    "the other phase of empty stages": "wait forever: thread 0 waits in line",
    "too many bytes announced": "wait forever: thread 0 waits in line",
    "bytes announced twice": "more threads arrive than the barrier is for",
    "no barrier of the block at the start": "there is no barrier yet",
    "a barrier not made": "there is no barrier yet",
    "barriers not visible to copies": "copies may not see the barrier yet",
    "registers not fenced": "a product begins without a fence",
    "one warp that does not multiply": "thread 96 waits|thread 224 waits",
    "registers not given back": "wait forever",
    "a copy that nobody waits for": "a tile is still being copied when the block has ended",
}
"""How some of them are told; the others spoil the result, or one of several messages comes first."""


@needs_compiler
def test_planted_faults_are_found():
    text = built(*USUAL).inspect_source("cuda")
    start = text.index('extern "C"')
    (kernel,) = re.findall(r'extern "C"[^\n]* odd_kernel\([\s\S]*?\n\}\n', text[start:])
    texts = {"none": kernel}
    for fault, (before, after) in FAULTS.items():
        texts[fault], count = re.subn(before, after, kernel)
        assert count, fault
    names = {fault: f"kernel_{place}" for place, fault in enumerate(texts)}
    program = CudaOnHost(
        text[:start] + "".join(found.replace("odd_kernel(", f"{names[fault]}(") for fault, found in texts.items())
    )
    (a, b), expected, error, _ = inputs_and_result(CASES["odd"])

    def tensor_map(x, rows):
        (m, k), held = x.shape, x.ctypes.data
        return TensorMap(held, 2, (k, m, 1), (2 * k, 2 * k * m), (64, rows, 1))

    def run(fault, order):
        """What is wrong; empty if nothing is."""
        c = np.full(expected.shape, 77, "float32")
        try:
            program.launch(names[fault], [2], [384], [tensor_map(a, 128), tensor_map(b, 256), c], order)
        except DeviceError as reported:
            return str(reported)
        return "" if (np.abs(c - expected) <= error).all() else "other numbers"

    assert [run("none", order) for order in ORDERS] == [""] * len(ORDERS)
    missed = []
    for fault in FAULTS:
        found = next((told for order in ORDERS if (told := run(fault, order))), "")
        if not re.search(REPORTS.get(fault, "."), found):
            missed.append((fault, found))
    assert not missed, missed
