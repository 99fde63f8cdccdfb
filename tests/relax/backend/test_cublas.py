"""Products of matrices by cuBLAS: what is taken for it, and that a program calls it, over a stub of the library."""

from __future__ import annotations

import atexit
import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cuda_stub
import ml_dtypes
import numpy as np
import pytest
from cuda_stub import needs_stub, stubbed

import oneir
from oneir import relax, tir
from oneir.contrib import cublas
from oneir.relax.backend import get_pattern, get_patterns_with_prefix
from oneir.relax.backend.cuda.cublas import partition_for_cublas
from oneir.relax.op import add, matmul, multiply, nn, permute_dims
from oneir.relax.transform import RunCodegen
from oneir.runtime.error import DeviceError, InvalidValue, ShapeMismatch, TypeMismatch, UnsupportedError

rng = np.random.default_rng(8)
N = tir.Var("n", "int64")


@functools.cache
def stub_library() -> ctypes.CDLL:
    folder = tempfile.mkdtemp(prefix="oneir-cublas-stub-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = Path(cuda_stub.__file__).with_name("cublas_stub.c")
    options = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Werror"]
    subprocess.run(["gcc", *options, "-o", f"{folder}/libcublasLt.so", str(source), "-lm"], check=True)
    library = ctypes.CDLL(f"{folder}/libcublasLt.so")
    library.stub_cublas(ctypes.cast(ctypes.CDLL(cuda_stub.library_path()).cuLaunchHostFunc, ctypes.c_void_p))
    return library


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    found = stub_library()
    monkeypatch.setattr(cublas, "_library", lambda: cublas.declared(found))
    with stubbed():
        yield found
        assert found.stub_cublas_live() == 0


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


def linear(ending: str = "", transposed: bool = True, flipped: bool = False) -> Any:
    """x @ w + b and an activation."""

    def build(x: Any, w: Any, b: Any = None) -> Any:
        y = matmul(x, permute_dims(w) if transposed else w)
        y = y if b is None else add(b, y) if flipped else add(y, b)
        return {"": lambda v: v, "relu": nn.relu, "gelu": nn.gelu_tanh, "erf": nn.gelu}[ending](y)

    return build


F32 = "float32"
TAKEN = {
    "matmul": (linear(transposed=False), ((N, 8), F32), ((8, 4), F32)),
    "matmul_transposed": (linear(), ((3, N, 8), "float16"), ((4, 8), "float16")),
    "matmul_bias": (linear(transposed=False), ((5, 8), "bfloat16"), ((8, 4), "bfloat16"), ((4,), "bfloat16")),
    "matmul_transposed_bias_relu": (linear("relu"), ((5, 8), F32), ((4, 8), F32), ((4,), F32)),
    "matmul_transposed_bias_gelu": (linear("gelu"), ((N, 8), F32), ((4, 8), F32), ((4,), F32)),
}
LEFT = {
    "integers": (linear(transposed=False), ((5, 8), "int8"), ((8, 4), "int8")),
    "a vector": (linear(transposed=False), ((8,), F32), ((8, 4), F32)),
    "batches of another number": (linear(transposed=False), ((3, 5, 8), F32), ((1, 8, 4), F32)),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_cublas_computes_is_taken(name):
    assert composites(partition_for_cublas(graph(*TAKEN[name]))) == [f"cublas.{name}"]


@pytest.mark.parametrize("name", LEFT)
def test_what_it_does_not_compute_is_left_alone(name):
    mod = graph(*LEFT[name])
    assert composites(partition_for_cublas(mod)) == []


def test_of_a_chain_what_it_computes_is_taken():
    rows, square, column = ((5, 4), F32), ((4, 4), F32), ((5, 1), F32)
    assert composites(partition_for_cublas(graph(linear(transposed=False), rows, square, column))) == ["cublas.matmul"]
    vector = ((4,), F32)
    erf = composites(partition_for_cublas(graph(linear("erf"), rows, square, vector)))
    assert erf == ["cublas.matmul_transposed_bias"]  # its GELU is another one
    used_twice = graph(lambda x, w: multiply(y := matmul(x, w), add(y, x)), rows, square)
    assert composites(partition_for_cublas(used_twice)) == ["cublas.matmul"]


def test_patterns_are_registered_under_their_published_names():
    names = {pattern.name for pattern in get_patterns_with_prefix("cublas")}
    assert names == {
        f"cublas.matmul{transposed}{rest}"
        for transposed in ("", "_transposed")
        for rest in ("", "_bias", "_bias_relu", "_bias_gelu")
    }
    assert get_pattern("cublas.matmul_bias") is not None and get_pattern("cublas.dense") is None


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cublas, "_library", lambda: None)
    mod = partition_for_cublas(graph(*TAKEN["matmul"]))
    with pytest.raises(
        UnsupportedError, match=r"cuBLAS is not installed: pip install nvidia-cublas .* or install the CUDA"
    ):
        RunCodegen()(mod)


def test_constants_that_are_bound_are_refused(library):
    weight = relax.const(np.ones((8, 4), "float32"))
    mod = partition_for_cublas(graph(lambda x: matmul(x, weight), ((5, 8), F32)), bind_constants=True)
    with pytest.raises(UnsupportedError, match=r"`cublas.matmul` takes tensors as arguments, found the constant"):
        RunCodegen()(mod)


# -- execution, over a stub --


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.standard_normal(shape).astype(getattr(ml_dtypes, dtype, dtype))


@needs_stub
@pytest.mark.parametrize("name", TAKEN)
def test_programs_call_the_library(name, library):
    build, *params = TAKEN[name]
    arrays = [random(tuple(7 if e is N else e for e in shape), dtype) for shape, dtype in params]
    executable = relax.build(RunCodegen()(partition_for_cublas(graph(build, *params))), "cuda")
    machine = relax.VirtualMachine(executable, oneir.cuda())
    found = machine["main"](*(oneir.runtime.tensor(a, oneir.cuda()) for a in arrays)).numpy()
    x, w, *b = (a.astype("float64") for a in arrays)
    y = x @ (w.T if "transposed" in name else w) + (b[0] if b else 0)
    if name.endswith("relu"):
        y = np.maximum(y, 0)
    if name.endswith("gelu"):
        y = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    assert found.dtype == arrays[0].dtype
    rtol = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}[params[0][1]]
    np.testing.assert_allclose(found.astype("float64"), y, rtol=rtol, atol=rtol)


@needs_stub
def test_batches_and_float64(library):
    device = oneir.cuda()
    a, b = random((2, 3, 5, 4), "float64"), random((2, 3, 6, 4), "float64")
    out = oneir.runtime.tensor(np.zeros((2, 3, 5, 6)), device)
    cublas.matmul(oneir.runtime.tensor(a, device), oneir.runtime.tensor(b, device), out, transposed_rhs=True)
    np.testing.assert_allclose(out.numpy(), a @ np.swapaxes(b, -1, -2), rtol=1e-12)
    empty = oneir.runtime.tensor(np.zeros((0, 6)), device)
    cublas.matmul(oneir.runtime.tensor(np.zeros((0, 4)), device), oneir.runtime.tensor(b[0, 0].T.copy(), device), empty)


@needs_stub
def test_what_does_not_fit_is_refused(library):
    def on_device(*shape: int, dtype: str = "float32") -> Any:
        return oneir.runtime.tensor(np.zeros(shape, dtype), oneir.cuda())

    a, b, out = on_device(5, 4), on_device(4, 6), on_device(5, 6)
    with pytest.raises(ShapeMismatch, match=r"tensors of the shapes \(5, 4\), \(4, 6\), \(5, 5\) do not fit"):
        cublas.matmul(a, b, on_device(5, 5))
    with pytest.raises(ShapeMismatch, match=r"\(5, 4\), \(4, 6\), \(5, 6\), \(5,\) do not fit"):
        cublas.matmul(a, b, out, bias=on_device(5))
    with pytest.raises(TypeMismatch, match=r"expected matrices of one dtype of float32, .* found float32, float64"):
        cublas.matmul(a, on_device(4, 6, dtype="float64"), out)
    with pytest.raises(TypeMismatch, match="expected contiguous tensors on one CUDA device"):
        cublas.matmul(a, oneir.runtime.tensor(np.zeros((4, 6), "float32")), out)
    with pytest.raises(InvalidValue, match='expected the activation "", "relu" or "gelu_tanh", found \'tanh\''):
        cublas.matmul(a, b, out, activation="tanh")
    library.stub_cublas_fail(15)
    try:
        with pytest.raises(DeviceError, match=r"cuBLAS, describing a product: error 15 \(cublasStatus_t\)"):
            cublas.matmul(a, b, out)
    finally:
        library.stub_cublas_fail(0)
    cublas.matmul(a, b, out)
    assert not out.numpy().any()
