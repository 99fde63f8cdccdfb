"""Convolutions by cuDNN: what is taken for it, and that a program calls it, over a stub of the library."""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cuda_stub
import numpy as np
import pytest
from cuda_stub import needs_stub, stubbed

import oneir
from oneir import relax, tir
from oneir.contrib import cudnn
from oneir.relax.backend import get_patterns_with_prefix
from oneir.relax.backend.cuda.cudnn import partition_for_cudnn
from oneir.relax.op import add, nn
from oneir.relax.transform import RunCodegen
from oneir.runtime.error import DeviceError, InvalidValue, ShapeMismatch, TypeMismatch, UnsupportedError

rng = np.random.default_rng(9)
N = tir.Var("n", "int64")
F32, F16 = "float32", "float16"


@functools.cache
def stub_library() -> ctypes.CDLL:
    folder = tempfile.mkdtemp(prefix="oneir-cudnn-stub-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = Path(cuda_stub.__file__).with_name("cudnn_stub.c")
    options = ["-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Werror"]
    subprocess.run(["gcc", *options, "-o", f"{folder}/libcudnn.so", str(source)], check=True)
    library = ctypes.CDLL(f"{folder}/libcudnn.so")
    library.stub_cudnn(ctypes.cast(ctypes.CDLL(cuda_stub.library_path()).cuLaunchHostFunc, ctypes.c_void_p))
    return library


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    found = stub_library()
    monkeypatch.setattr(cudnn, "_library", lambda: cudnn.declared(found))
    with stubbed():
        yield found
    gc.collect()
    assert found.stub_cudnn_live() == 0


def graph(build: Any, *params: tuple[tuple[Any, ...], str]) -> oneir.IRModule:
    bb = relax.BlockBuilder()
    args = [relax.Var(f"x{i}", relax.TensorStructInfo(shape, dtype)) for i, (shape, dtype) in enumerate(params)]
    with bb.function("main", args):
        with bb.dataflow():
            out = bb.emit_output(build(*args))
        bb.emit_func_output(out)
    return bb.get()


def composites(mod: oneir.IRModule) -> list[str]:
    """The names of the patterns that matched."""
    found: list[str] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Function) and "Composite" in expr.attrs:
            found.append(expr.attrs["Composite"])

    for func in mod.functions.values():
        relax.analysis.post_order_visit(func, visit)
    return found


def convolution(ending: str = "", **options: Any) -> Any:
    """A convolution with a bias and an activation."""

    def build(x: Any, w: Any, b: Any = None) -> Any:
        y = nn.conv2d(x, w, **options)
        y = y if b is None else add(y, b)
        return nn.relu(y) if ending == "relu" else y

    return build


NHWC = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
TAKEN: dict[str, tuple[str, dict[str, Any], str, list[tuple[Any, ...]]]] = {
    "NCHW": ("", {}, F32, [(2, 3, 7, 6), (4, 3, 3, 2)]),
    "NCHW, dynamic, bias": ("bias", {"padding": (1, 2)}, F32, [(N, 3, 7, 6), (4, 3, 3, 3), (1, 4, 1, 1)]),
    "NCHW, groups, bias of three axes": (
        *("relu", {"groups": 2, "strides": (2, 1), "dilation": (1, 2), "padding": (2, 1)}, F16),
        [(2, 4, 9, 8), (6, 2, 3, 3), (6, 1, 1)],
    ),
    "NHWC": ("", {**NHWC, "strides": (2, 3)}, F16, [(2, 7, 6, 3), (4, 3, 2, 3)]),
    "NHWC, depthwise, bias": ("bias", {**NHWC, "groups": 4}, F32, [(N, 7, 6, 4), (4, 3, 3, 1), (4,)]),
    "NHWC, relu": ("relu", {**NHWC, "dilation": (2, 1)}, F32, [(1, 7, 6, 3), (4, 3, 3, 3), (1, 1, 1, 4)]),
}
NAMES = {
    "": "cudnn.conv2d.nhwc_ohwi",
    "bias": "cudnn.conv2d.nhwc_ohwi_bias",
    "relu": "cudnn.conv2d.nhwc_ohwi_bias_relu",
}
X, W = (2, 3, 7, 6), (4, 3, 3, 3)
LEFT: dict[str, tuple[Any, ...]] = {
    "float64": (convolution(), (X, "float64"), (W, "float64")),
    "sums of another dtype": (convolution(out_dtype=F32), (X, F16), (W, F16)),
    "weights in HWIO": (
        convolution(data_layout="NHWC", kernel_layout="HWIO"),
        ((2, 7, 6, 3), F32),
        ((3, 3, 3, 4), F32),
    ),
    "results in another layout": (convolution(out_layout="NHWC"), (X, F32), (W, F32)),
    "padded at one end": (convolution(padding=(0, 0, 1, 1)), (X, F32), (W, F32)),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_cudnn_computes_is_taken(name):
    ending, options, dtype, shapes = TAKEN[name]
    mod = graph(convolution(ending, **options), *((shape, dtype) for shape in shapes))
    assert composites(partition_for_cudnn(mod)) == [NAMES[ending]]


@pytest.mark.parametrize("name", LEFT)
def test_what_it_does_not_compute_is_left_to_our_own_kernels(name):
    mod = graph(*LEFT[name])
    assert composites(partition_for_cudnn(mod)) == []


def test_a_sum_with_what_is_no_bias_of_channels_is_not_fused():
    for shape in ((4,), (1, 1, 1, 1), (2, 4, 5, 4), (4, 5, 4), (1, 1, 4)):
        mod = graph(convolution("bias"), (X, F32), (W, F32), (shape, F32))
        assert composites(partition_for_cudnn(mod)) == ["cudnn.conv2d.nhwc_ohwi"]


def test_patterns_are_registered_under_their_published_names():
    assert {pattern.name for pattern in get_patterns_with_prefix("cudnn")} == set(NAMES.values())


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cudnn, "_library", lambda: None)
    mod = partition_for_cudnn(graph(convolution(), (X, F32), (W, F32)))
    with pytest.raises(
        UnsupportedError, match=r"cuDNN is not installed: pip install nvidia-cudnn-cu13 or nvidia-cudnn-cu12"
    ):
        RunCodegen()(mod)


# -- execution, over a stub --


def by_numpy(x: Any, w: Any, ending: str, bias: Any, options: dict[str, Any]) -> np.ndarray:
    """The convolution in float64, a window at a time."""
    if "data_layout" in options:
        x, w = x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2)
    (sh, sw), (dh, dw), (ph, pw) = (
        options.get(k, d) for k, d in (("strides", (1, 1)), ("dilation", (1, 1)), ("padding", (0, 0)))
    )
    groups, (outputs, inputs, r, s) = options.get("groups", 1), w.shape
    x = np.pad(x.astype("float64"), ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    height, width = (x.shape[2] - (r - 1) * dh - 1) // sh + 1, (x.shape[3] - (s - 1) * dw - 1) // sw + 1
    y = np.zeros((len(x), outputs, height, width))
    for k in range(outputs):
        first = k // (outputs // groups) * inputs
        for i in range(height):
            for j in range(width):
                window = x[:, first : first + inputs, i * sh :, j * sw :][:, :, ::dh, ::dw][:, :, :r, :s]
                y[:, k, i, j] = (window * w[k].astype("float64")).sum((1, 2, 3))
    if "data_layout" in options:
        y = y.transpose(0, 2, 3, 1)
    y = y if bias is None else y + bias.astype("float64")
    return np.maximum(y, 0) if ending == "relu" else y


@needs_stub
@pytest.mark.parametrize("name", TAKEN)
def test_programs_call_the_library(name, library):
    ending, options, dtype, shapes = TAKEN[name]
    mod = graph(convolution(ending, **options), *((shape, dtype) for shape in shapes))
    executable = relax.build(RunCodegen()(partition_for_cudnn(mod)), "cuda")
    machine, counts = relax.VirtualMachine(executable, oneir.cuda()), []
    made = library.stub_cudnn_made()
    for batch in (2, 5, 2) if N in shapes[0] else (2, 2):
        arrays = [rng.standard_normal([batch if e is N else e for e in shape]).astype(dtype) for shape in shapes]
        found = machine["main"](*(oneir.runtime.tensor(a, oneir.cuda()) for a in arrays)).numpy()
        expected = by_numpy(arrays[0], arrays[1], ending, arrays[2] if len(arrays) > 2 else None, options)
        assert found.dtype == dtype
        rtol = {F32: 1e-5, F16: 2e-3}[dtype]
        np.testing.assert_allclose(found.astype("float64"), expected, rtol=rtol, atol=rtol)
        counts.append(library.stub_cudnn_made() - made)
    # Descriptors are made once for each shape.
    assert counts == ([6, 12, 12] if N in shapes[0] else [6, 6])


def on_device(*shape: int, dtype: str = F32) -> Any:
    return oneir.runtime.tensor(np.ones(shape, dtype), oneir.cuda())


@needs_stub
def test_the_descriptors_of_the_last_shapes_stay(library):
    plain = cudnn.Convolution((1, 1), (0, 0), (1, 1))
    weight = on_device(1, 1, 1, 1)
    for batch in range(70):
        plain(on_device(batch, 1, 1, 1), weight, on_device(batch, 1, 1, 1))  # the first is empty
    assert library.stub_cudnn_live() == 64 * 6


@needs_stub
def test_what_does_not_fit_is_refused(library):
    plain, relu = (cudnn.Convolution((1, 1), (0, 0), (1, 1), activation=name) for name in ("", "relu"))
    x, w, out = on_device(*X), on_device(*W), on_device(2, 4, 5, 4)
    with pytest.raises(ShapeMismatch, match=r"\(2, 3, 7, 6\), \(4, 3, 3, 3\), \(2, 4, 5, 5\) do not fit in NCHW"):
        plain(x, w, on_device(2, 4, 5, 5))
    with pytest.raises(ShapeMismatch, match=r"\(2, 4, 5, 4\), \(5,\) do not fit in NCHW"):
        plain(x, w, out, on_device(5))
    with pytest.raises(ShapeMismatch, match=r"\(4, 3, 8, 3\), \(2, 4, 0, 4\) do not fit in NCHW"):
        plain(x, on_device(4, 3, 8, 3), on_device(2, 4, 0, 4))
    with pytest.raises(TypeMismatch, match=r"one dtype of float32, float16, found float32, float16, float32"):
        plain(x, on_device(*W, dtype=F16), out)
    with pytest.raises(TypeMismatch, match="expected contiguous tensors on one CUDA device"):
        plain(x, oneir.runtime.tensor(np.ones(W, F32)), out)
    shifted = on_device(4, 3, 3, 4)._create_view(W, F32, 4)
    with pytest.raises(TypeMismatch, match="expected tensors at multiples of 16 bytes; copy what is not"):
        plain(x, shifted, out)
    with pytest.raises(InvalidValue, match="an activation comes with a bias, found none"):
        relu(x, w, out)
    with pytest.raises(InvalidValue, match="expected the layout NCHW or NHWC, found 'CHWN'"):
        cudnn.Convolution((1, 1), (0, 0), (1, 1), layout="CHWN")
    with pytest.raises(InvalidValue, match='expected the activation "" or "relu", found \'tanh\''):
        cudnn.Convolution((1, 1), (0, 0), (1, 1), activation="tanh")


@needs_stub
def test_failures_of_the_library_are_named(library):
    plain = cudnn.Convolution((1, 1), (0, 0), (1, 1))
    x, w, out = on_device(*X), on_device(*W), on_device(2, 4, 5, 4)
    what = r"cuDNN, a convolution in NCHW of \(2, 3, 7, 6\) and \(4, 3, 3, 3\) float32 tensors: "
    try:
        library.stub_cudnn_fail(3000)
        with pytest.raises(DeviceError, match=what + "it has no algorithm for this"):
            plain(x, w, out)
        library.stub_cudnn_fail(5000)
        with pytest.raises(DeviceError, match=what + r"CUDNN_STATUS_EXECUTION_FAILED \(5000\)"):
            plain(x, w, out)
    finally:
        library.stub_cudnn_fail(0)
    plain(x, w, out)
    assert (out.numpy() == 27).all()
