"""Products without tensor cores on CUDA: which tiles and parts they get, and that they give NumPy's results."""

from __future__ import annotations

import re

import numpy as np
import pytest
from devices import needs_compiler

import oneir
from oneir import relax, tir
from oneir.dlight import gpu
from oneir.dlight.gpu.matmul_parts import _plan
from oneir.script import relax as R
from oneir.target import Target
from oneir.testing.cuda_host import ORDERS, cuda_on_host

TARGET = Target(
    {
        "kind": "cuda",
        "arch": "sm_80",
        "max_shared_memory_per_block": 49152,
        "max_num_threads": 1024,
        "thread_warp_size": 32,
    },
    host="llvm",
)


def graph(build, *shapes, dtype="float32"):
    bb = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", R.Tensor(shape, dtype)) for i, shape in enumerate(shapes)]
    with bb.function("main", params):
        with bb.dataflow():
            out = bb.emit_output(build(*params))
        bb.emit_func_output(out)
    return bb.get()


def kernel(build, *shapes, dtype="float32"):
    """The one function that a graph's operators are fused to."""
    mod = relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps()(graph(build, *shapes, dtype=dtype)))
    mod = relax.transform.FuseTIR()(relax.transform.FuseOps()(mod))
    (func,) = [func for func in mod.functions.values() if isinstance(func, tir.PrimFunc)]
    return func


def rectified(a, b):
    return relax.op.nn.relu(relax.op.matmul(a, b))


def convolution(x, w):
    return relax.op.nn.relu(relax.op.nn.conv2d(x, w, padding=1))


CASES = {
    "a sum in eight parts": (rectified, lambda a, b: np.maximum(a @ b, 0), (64, 512), (512, 64)),
    "no extent fits": (rectified, lambda a, b: np.maximum(a @ b, 0), (37, 301), (301, 53)),
    "a batch": (relax.op.matmul, np.matmul, (3, 40, 72), (3, 72, 24)),
    "a right factor along the sum": (
        lambda a, b, c: relax.op.add(relax.op.matmul(a, relax.op.permute_dims(b)), c),
        lambda a, b, c: a @ b.T + c,
        (70, 256),
        (90, 256),
        (90,),
    ),
}


def numbers(*shapes):
    return [np.random.default_rng(seed).standard_normal(shape).astype("float32") for seed, shape in enumerate(shapes)]


def on_cuda(mod, arrays, order):
    with cuda_on_host(order) as driver:
        dev = oneir.cuda()
        machine = relax.VirtualMachine(relax.build(mod, TARGET), dev)
        return machine["main"](*[oneir.nd.array(x, dev) for x in arrays]).numpy(), driver.launched


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_products_equal_numpy_in_every_order_of_threads(name):
    build, expected, *shapes = CASES[name]
    arrays = numbers(*shapes)
    wanted = expected(*(x.astype("float64") for x in arrays))
    for order in ORDERS:
        found, _ = on_cuda(graph(build, *shapes), arrays, order)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@needs_compiler
def test_a_convolution_is_a_product_in_parts():
    shapes = (1, 32, 14, 14), (48, 32, 3, 3)
    arrays = numbers(*shapes)
    mod = graph(convolution, *shapes)
    expected = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())["main"](*map(oneir.nd.array, arrays))
    found, launched = on_cuda(mod, arrays, "shuffled")
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-4)
    assert len(launched) == 2  # one kernel of parts, and one that adds them up


@needs_compiler
def test_neighbours_of_a_pointwise_convolution_are_loaded_and_stored_by_neighbouring_threads():
    """Images lie along pixels, so threads have these as columns; weights lie along the sum, and come as vectors."""
    mod = graph(relax.op.nn.conv2d, (1, 64, 16, 16), (64, 64, 1, 1))
    text = relax.build(mod, TARGET).inspect_source("cuda")
    assert re.search(r"oneir_load<oneir_vector<float, 4>>\(x1 \+", text)
    (stored,) = re.findall(r" conv2d_nchw\[(.*)\] = ", text)
    assert stored.endswith("+ threadIdx_x")


@needs_compiler
def test_a_pointwise_convolution_of_several_images():
    shapes = (2, 64, 12, 16), (48, 64, 1, 1)
    mod = graph(relax.op.nn.conv2d, *shapes)
    x, w = numbers(*shapes)
    found, _ = on_cuda(mod, [x, w], "shuffled")
    np.testing.assert_allclose(found, np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "tile", "parts"),
    [
        ((1, 4096, 4096, 4096), (128, 128), 1),
        ((1, 128, 4096, 4096), (128, 128), 8),  # 32 tiles
        ((1, 128, 3072, 768), (64, 128), 8),
        ((1, 128, 768, 768), (32, 64), 8),
        ((1, 16, 4096, 4096), (32, 64), 16),
        ((1, 3136, 256, 64), (32, 64), 1),
        ((64, 64, 512, 32), (64, 128), 1),
        ((1, 64, 64, 32), (32, 64), 1),  # a second kernel takes longer than a sum of two steps
    ],
)
def test_tiles_and_parts(sizes, tile, parts):
    found, count = _plan(*sizes)
    assert (found.sizes, count) == (tile, parts)


@pytest.mark.parametrize(
    ("build", "shapes", "dtype"),
    [
        (rectified, ((40, 24), (24, 40)), "float16"),
        (relax.op.add, ((40, 24), (40, 24)), "float32"),
        (rectified, ((tir.Var("n", "int64"), 24), (24, 40)), "float32"),
    ],
)
def test_what_is_left_to_other_rules(build, shapes, dtype):
    assert gpu.MatmulInParts().apply(kernel(build, *shapes, dtype=dtype), TARGET) is None


@needs_compiler
@pytest.mark.parametrize("shift", [0, 1, 4])
def test_tensors_that_begin_anywhere(shift):
    """Vectors of four are loaded at once where the address allows it, and number by number elsewhere."""
    a, b = numbers((64, 64), (64, 64))
    mod = graph(rectified, a.shape, b.shape)
    ex = relax.build(mod, TARGET)
    assert "oneir_load<oneir_vector<float, 4>>" in ex.inspect_source("cuda")
    with cuda_on_host():
        dev = oneir.cuda()
        held = oneir.nd.array(np.concatenate([np.zeros(shift, "float32"), a.ravel()]), dev)
        shifted = held._create_view(a.shape, relative_byte_offset=4 * shift)
        found = relax.VirtualMachine(ex, dev)["main"](shifted, oneir.nd.array(b, dev)).numpy()
    np.testing.assert_allclose(found, np.maximum(a @ b, 0), rtol=1e-5, atol=1e-4)
