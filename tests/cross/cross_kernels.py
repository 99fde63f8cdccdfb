"""Functions of graphs, one operator each, whose kernels are compared across machines; NumPy's arrays go in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from oneir import relax
from oneir.ir.module import IRModule
from oneir.relax import op as R
from oneir.relax.op import image, nn

Case = tuple[Callable[..., Any], tuple[np.ndarray, ...]]


def _floats(*shape: int, low: float = -2, high: float = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).uniform(low, high, shape).astype("float32")


def _ints(*shape: int, low: int = -9, high: int = 10, dtype: str = "int32") -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(low, high, shape).astype(dtype)


A, B = _floats(5, 37), _floats(5, 37, seed=9)
POSITIVE = _floats(5, 37, low=0.1)
UNIT = _floats(5, 37, low=-0.99, high=0.99)
IMAGE, FILTER = _floats(1, 6, 13, 11), _floats(10, 6, 3, 3)
CHANNELS = _floats(6)


def _cases() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for name in [
        "negative",
        "abs",
        "ceil",
        "floor",
        "round",
        "sign",
        "exp",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "sinh",
        "cosh",
        "atan",
        "erf",
    ]:
        cases[name] = (getattr(R, name), (A,))
    for name in ["sqrt", "rsqrt", "log"]:
        cases[name] = (getattr(R, name), (POSITIVE,))
    for name in ["asin", "acos", "atanh"]:
        cases[name] = (getattr(R, name), (UNIT,))
    for name in ["relu", "gelu", "silu", "softmax", "log_softmax", "leakyrelu"]:
        cases[name] = (getattr(nn, name), (A,))
    for name in ["add", "subtract", "multiply", "divide", "maximum", "minimum", "floor_divide", "mod"]:
        cases[name] = (getattr(R, name), (A, B))
    for name in ["floor_divide", "mod", "multiply"]:
        cases[f"{name}_int32"] = (getattr(R, name), (_ints(4, 9), _ints(4, 9, low=1)))
    cases["multiply_int64"] = (R.multiply, (_ints(40, dtype="int64"), _ints(40, dtype="int64")))
    cases["add_uint8"] = (R.add, (_ints(70, low=0, high=255, dtype="uint8"),) * 2)
    cases["add_float64"] = (R.add, (A.astype("float64"), B.astype("float64")))
    cases["add_float16"] = (R.add, (A.astype("float16"), B.astype("float16")))
    cases["power"] = (R.power, (POSITIVE, B))
    cases["greater"] = (R.greater, (A, B))
    cases["where"] = (R.where, (A > 0, A, B))
    for name in ["sum", "mean", "max", "min", "prod", "std", "variance"]:
        cases[f"{name}_rows"] = (partial(getattr(R, name), axis=1), (A,))
    cases["sum_all"] = (R.sum, (_floats(3, 50, 7),))
    cases["sum_columns"] = (lambda x: R.sum(x, axis=0), (A,))
    cases["argmax"] = (lambda x: R.argmax(x, axis=1), (A,))
    cases["cumsum"] = (lambda x: R.cumsum(x, axis=1), (A,))
    cases["sort"] = (lambda x: R.sort(x, axis=1), (A,))
    cases["matmul"] = (R.matmul, (_floats(17, 33), _floats(33, 29)))
    cases["matmul_whole"] = (R.matmul, (_floats(32, 64), _floats(64, 64)))
    cases["matmul_batch"] = (R.matmul, (_floats(3, 8, 16), _floats(3, 16, 24)))
    cases["matmul_vector"] = (R.matmul, (_floats(1, 65), _floats(65, 40)))
    cases["matmul_int8"] = (
        lambda a, b: R.matmul(a, b, out_dtype="int32"),
        (_ints(9, 32, dtype="int8"), _ints(32, 16, dtype="int8")),
    )
    cases["conv2d"] = (lambda x, w: nn.conv2d(x, w, padding=1), (IMAGE, FILTER))
    cases["conv2d_stride"] = (lambda x, w: nn.conv2d(x, w, strides=2), (IMAGE, FILTER))
    cases["conv2d_1x1"] = (nn.conv2d, (IMAGE, _floats(8, 6, 1, 1)))
    cases["depthwise"] = (lambda x, w: nn.conv2d(x, w, padding=1, groups=6), (IMAGE, _floats(6, 1, 3, 3)))
    cases["grouped"] = (lambda x, w: nn.conv2d(x, w, groups=2), (IMAGE, _floats(4, 3, 3, 3)))
    cases["conv2d_transpose"] = (lambda x, w: nn.conv2d_transpose(x, w, strides=2), (IMAGE, _floats(6, 4, 2, 2)))
    cases["conv1d"] = (nn.conv1d, (_floats(2, 3, 20), _floats(5, 3, 4)))
    cases["max_pool"] = (lambda x: nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2)), (IMAGE,))
    cases["avg_pool"] = (lambda x: nn.avg_pool2d(x, pool_size=(3, 3)), (IMAGE,))
    cases["global_pool"] = (lambda x: nn.adaptive_avg_pool2d(x, (1, 1)), (IMAGE,))
    cases["layer_norm"] = (lambda x, g, b: nn.layer_norm(x, g, b, axes=[-1]), (A, _floats(37), _floats(37, seed=3)))
    cases["rms_norm"] = (lambda x, g: nn.rms_norm(x, g, axes=[-1]), (A, _floats(37)))
    cases["transpose"] = (R.permute_dims, (_floats(9, 20),))
    cases["concat"] = (lambda a, b: R.concat([a, b], axis=1), (A, B))
    cases["take"] = (lambda x, i: R.take(x, i, axis=0), (A, _ints(11, low=0, high=5)))
    cases["resize"] = (lambda x: image.resize2d(x, (20, 20), layout="NCHW"), (IMAGE,))
    cases["cast_int"] = (lambda x: R.astype(x, "int32"), (A * 100,))
    cases["cast_half"] = (lambda x: R.astype(x, "float16"), (A,))
    cases["attention"] = (nn.attention, tuple(_floats(1, 9, 2, 16, seed=i) for i in range(3)))
    return cases


KERNELS = _cases()


def module(names: list[str]) -> IRModule:
    """A module with a function for each kernel."""
    builder = relax.BlockBuilder()
    for name in names:
        make, arrays = KERNELS[name]
        params = [relax.Var(f"x{i}", relax.TensorStructInfo(x.shape, str(x.dtype))) for i, x in enumerate(arrays)]
        with builder.function(f"k_{name}", params):
            with builder.dataflow():
                result = builder.emit_output(builder.emit(make(*params)))
            builder.emit_func_output(result)
    return builder.get()
