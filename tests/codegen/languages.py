"""Programs that every language of devices has to compute as NumPy does."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import oneir
from oneir import relax
from oneir.script import relax as R
from oneir.script import tir as T

op = relax.op


@dataclass(frozen=True)
class Case:
    """A graph, its arguments, and the result that NumPy gives."""

    mod: oneir.IRModule
    inputs: tuple[np.ndarray, ...]
    expected: np.ndarray
    rtol: float = 0.0

    def check(self, found: np.ndarray) -> None:
        assert found.dtype == self.expected.dtype and found.shape == self.expected.shape
        np.testing.assert_allclose(found, self.expected, rtol=self.rtol, atol=self.rtol)
        if found.dtype.kind == "f" and not self.rtol:
            np.testing.assert_array_equal(np.signbit(found), np.signbit(self.expected))


def graph(build: Callable[..., Any], *arrays: np.ndarray, dynamic: bool = False) -> oneir.IRModule:
    """A graph of one function, `main`, for arguments as these; `dynamic`: with symbolic extents."""
    bb = relax.BlockBuilder()
    extents: dict[int, Any] = {}
    params = []
    for i, array in enumerate(arrays):
        shape: list[Any] = list(array.shape)
        if dynamic:
            shape = [extents.setdefault(n, oneir.tir.Var(f"n{n}", "int64")) for n in shape]
        params.append(relax.Var(f"x{i}", R.Tensor(shape, str(array.dtype))))
    with bb.function("main", params):
        with bb.dataflow():
            out = bb.emit_output(build(*params))
        bb.emit_func_output(out)
    return bb.get()


def case(
    build: Callable[..., Any],
    reference: Callable[..., np.ndarray],
    *inputs: np.ndarray,
    rtol: float = 0.0,
    dynamic: bool = False,
) -> Case:
    with np.errstate(all="ignore"):
        expected = np.asarray(reference(*inputs))
    return Case(graph(build, *inputs, dynamic=dynamic), inputs, expected, rtol)


def random(*shape: int, dtype: str = "float32", low: float = -3, high: float = 3) -> np.ndarray:
    values = np.random.default_rng(len(shape) + sum(shape)).uniform(low, high, shape)
    return values.astype(dtype)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def scattered(data: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    result = data.copy()
    np.put_along_axis(result, indices, updates, 0)
    return result


EDGES = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, -7.0], "float32")
DIVIDENDS = np.array([7, -7, 7, -7, 0, 5, -5, -(2**31), 2**31 - 1, -(2**31)], "int32")
DIVISORS = np.array([3, 3, -3, -3, 3, 0, 0, -1, -1, 3], "int32")


def floordiv(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Division as docs/architecture.md defines it."""
    return np.array([0 if y == 0 else int(x) // int(y) for x, y in zip(a, b, strict=True)]).astype(a.dtype)


def floormod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([int(x) if y == 0 else int(x) % int(y) for x, y in zip(a, b, strict=True)]).astype(a.dtype)


PLAIN = {
    "sort": case(lambda a: op.sort(a), np.sort, random(5, 40)),
    "elementwise": case(lambda a, b: op.add(op.multiply(a, b), a), lambda a, b: a * b + a, random(70), random(70)),
    "broadcast": case(lambda a, b: op.subtract(a, b), lambda a, b: a - b, random(7, 1, 9), random(5, 1)),
    "functions": case(
        lambda a: op.add(op.tanh(a), op.add(op.exp(a), op.sigmoid(a))),
        lambda a: np.tanh(a) + np.exp(a) + 1 / (1 + np.exp(-a)),
        random(300),
        rtol=1e-5,
    ),
    "power": case(
        lambda a, b: op.power(a, b),
        lambda a, b: a**b,
        *(np.array([2, -2, -3, 0.5, 0, 7, -1.5, 1.25], "float32"), np.array([3, 3, 4, 0.5, 2, 0, -2, -7.5], "float32")),
        rtol=1e-5,
    ),
    "trigonometry": case(
        lambda a: op.add(op.sin(a), op.add(op.cos(a), op.erf(a))),
        lambda a: (np.sin(a) + np.cos(a) + np.vectorize(math.erf)(a)).astype("float32"),
        random(64),
        rtol=1e-5,
    ),
    "rounding": case(
        lambda a: op.add(op.add(op.floor(a), op.ceil(a)), op.add(op.round(a), op.trunc(a))),
        lambda a: np.floor(a) + np.ceil(a) + np.rint(a) + np.trunc(a),
        np.arange(-20, 20, dtype="float32") / 4,
    ),
    "sum": case(lambda a: op.sum(a, axis=[1]), lambda a: a.sum(1), random(6, 700), rtol=1e-4),
    "softmax": case(lambda a: op.nn.softmax(a), softmax, random(5, 300), rtol=1e-5),
    "layer_norm": case(
        lambda a, g, b: op.nn.layer_norm(a, g, b, axes=[-1]),
        lambda a, g, b: (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * g + b,
        *(random(6, 33), random(33), random(33)),
        rtol=1e-4,
    ),
    "matmul": case(lambda a, b: op.matmul(a, b), lambda a, b: a @ b, random(37, 20), random(20, 45), rtol=1e-4),
    "batched": case(lambda a, b: op.matmul(a, b), lambda a, b: a @ b, random(3, 9, 8), random(3, 8, 5), rtol=1e-4),
    "gemv": case(lambda a, b: op.matmul(a, b), lambda a, b: a @ b, random(1, 96), random(96, 64), rtol=1e-4),
    "dynamic": case(
        lambda a, b: op.nn.relu(op.matmul(a, b)),
        lambda a, b: np.maximum(a @ b, 0),
        *(random(37, 20), random(20, 45)),
        rtol=1e-4,
        dynamic=True,
    ),
    "padding": case(
        lambda a: op.nn.pad(a, [1, 2, 3, 4], pad_value=2.5),
        lambda a: np.pad(a, [(1, 2), (3, 4)], constant_values=2.5),
        random(5, 6),
    ),
    "transpose": case(lambda a: op.permute_dims(a), lambda a: a.T.copy(), random(33, 17)),
    "concat": case(
        lambda a, b: op.concat([a, b], 1), lambda a, b: np.concatenate([a, b], 1), random(4, 5), random(4, 3)
    ),
    "take": case(lambda a, i: op.take(a, i, 0), lambda a, i: a[i], random(8, 5), np.array([7, 0, 3, 3], "int32")),
    "gather": case(
        lambda a, i: op.gather_elements(a, i, 0),
        lambda a, i: np.take_along_axis(a, i, 0),
        *(random(5, 3), np.array([[0, 4, 2], [1, 1, 0]], "int32")),
    ),
    "scatter": case(
        lambda a, i, u: op.scatter_elements(a, i, u, 0),
        scattered,
        *(random(5, 3), np.array([[0, 4, 2], [1, 1, 0]], "int32"), random(2, 3)),
    ),
    "conv2d": case(
        lambda a, w: op.nn.conv2d(a, w, padding=1),
        lambda a, w: sum(
            np.einsum(
                "nchw,oc->nohw", np.pad(a, [(0, 0), (0, 0), (1, 1), (1, 1)])[:, :, i : i + 6, j : j + 6], w[..., i, j]
            )
            for i in range(3)
            for j in range(3)
        ),
        *(random(1, 4, 6, 6), random(8, 4, 3, 3)),
        rtol=1e-4,
    ),
    "floordiv": case(lambda a, b: op.floor_divide(a, b), floordiv, DIVIDENDS, DIVISORS),
    "floormod": case(lambda a, b: op.floor_mod(a, b), floormod, DIVIDENDS, DIVISORS),
    "wrapping": case(
        lambda a, b: op.multiply(op.add(a, b), b),
        lambda a, b: (a + b) * b,
        *(random(40, dtype="int32", low=-(2**31), high=2**31 - 1), random(40, dtype="int32", low=-(2**31), high=0)),
    ),
    "unsigned": case(
        lambda a, b: op.subtract(op.multiply(a, b), b),
        lambda a, b: a * b - b,
        *(random(40, dtype="uint32", low=0, high=2**32 - 1), random(40, dtype="uint32", low=0, high=2**31)),
    ),
    "shifts": case(
        lambda a, b: op.bitwise_xor(op.left_shift(a, b), op.right_shift(a, b)),
        lambda a, b: (a << b) ^ (a >> b),
        *(random(40, dtype="int32", low=-(2**31), high=2**31 - 1), np.arange(40, dtype="int32") % 32),
    ),
    "saturating": case(
        lambda a: op.astype(a, "int32"),
        lambda a: np.array([-5, 5, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0, 0], "int32"),
        np.array([-5.9, 5.9, 3e9, -3e9, np.inf, -np.inf, np.nan, 1e-30], "float32"),
    ),
    "choice": case(lambda a, b: op.where(op.greater(a, b), a, b), np.maximum, random(99), random(99)[::-1].copy()),
    "copied bits": case(lambda a: op.reshape(a, (2, 5)), lambda a: a.reshape(2, 5), EDGES),
    "maximum": case(lambda a, b: op.maximum(a, b), np.maximum, EDGES[[2, 3, 4, 5, 8, 9]], EDGES[[3, 2, 5, 4, 9, 8]]),
}
"""What needs no dtype but float32, int32 and uint32, and nothing of NaNs."""

EXACT_FLOATS = {
    "nan": case(
        lambda a, b: op.maximum(op.minimum(a, b), a),
        lambda a, b: np.maximum(np.minimum(a, b), a),
        EDGES,
        EDGES[::-1].copy(),
    ),
    "isnan": case(
        lambda a: op.where(op.isnan(a), op.ones_like(a), op.negative(a)),
        lambda a: np.where(np.isnan(a), 1, -a).astype("float32"),
        EDGES,
    ),
    "truth": case(
        lambda a: relax.op.where(op.astype(a, "bool"), op.ones_like(a), op.zeros_like(a)),
        lambda a: a.astype("bool").astype("float32"),
        EDGES[[0, 1, 2, 4, 5, 6, 8]],
    ),
    "division": case(
        lambda a, b: op.divide(a, b), lambda a, b: a / b, EDGES[[0, 2, 3, 4, 5, 9]], EDGES[[2, 0, 1, 3, 2, 9]]
    ),
}
"""Infinities, NaNs and zeros with a sign, as IEEE 754 has them."""

SHORT = {
    **{
        f"add {dtype}": case(
            lambda a, b: op.add(op.multiply(a, b), a),
            lambda a, b: a * b + a,
            *(random(70, dtype=dtype, low=0, high=120), random(70, dtype=dtype, low=0, high=100)[::-1].copy()),
        )
        for dtype in ("int8", "uint8", "int16", "uint16", "float16")
    },
    "compare": case(lambda a, b: op.less(a, b), np.less, random(77), random(77)[::-1].copy()),
    "logic": case(
        lambda a, b: op.logical_and(a, op.logical_not(b)),
        lambda a, b: a & ~b,
        *(random(77) > 0, random(77)[::-1] > 0),
    ),
    "half matmul": case(
        lambda a, b: op.matmul(a, b),
        lambda a, b: a @ b,
        random(16, 20, dtype="float16"),
        random(20, 9, dtype="float16"),
        rtol=1e-2,
    ),
    **{
        f"{source} to {target}": case(
            lambda a, t=target: op.astype(a, t), lambda a, t=target: a.astype(t), values.astype(source)
        )
        for source, target, values in (
            ("float32", "int8", np.arange(-99, 99, 7) / 3),
            ("float32", "uint8", np.arange(0, 99, 7) / 3),
            ("float32", "float16", np.arange(-99, 99, 7) / 3),
            ("float16", "float32", np.arange(-99, 99, 7) / 3),
            ("float16", "int16", np.arange(-99, 99, 7) / 3),
            ("int32", "int8", np.arange(-999, 999, 70)),
            ("int32", "uint16", np.arange(-999, 999, 70)),
            ("int8", "float32", np.arange(-99, 99, 7)),
            ("uint8", "int32", np.arange(0, 255, 5)),
            ("float32", "bool", np.array([0.0, 0.5, -2, 0])),
            ("bool", "float32", np.array([0, 1, 1, 0])),
        )
    },
}
"""What has elements of less than 32 bits."""

LONG = {
    "add int64": case(
        lambda a, b: op.add(op.multiply(a, b), a),
        lambda a, b: a * b + a,
        *(
            random(70, dtype="int64", low=-(2.0**60), high=2.0**60),
            random(70, dtype="int64", low=-(2.0**40), high=2.0**40),
        ),
    ),
    "take int64": case(lambda a, i: op.take(a, i, 0), lambda a, i: a[i], random(8, 5), np.array([7, 0, 3, 3], "int64")),
    "gather int64": case(
        lambda a, i: op.gather_elements(a, i, 0),
        lambda a, i: np.take_along_axis(a, i, 0),
        *(random(5, 3), np.array([[0, 4, 2], [1, 1, 0]], "int64")),
    ),
    "argmax": case(lambda a: op.argmax(a, axis=1), lambda a: a.argmax(1), random(6, 33)),
}
"""What has int64 in memory."""

DOUBLE = {
    "functions float64": case(
        lambda a: op.add(op.erf(op.exp(a)), op.round(op.sqrt(op.abs(a)))),
        lambda a: np.vectorize(math.erf)(np.exp(a)) + np.rint(np.sqrt(np.abs(a))),
        random(77, dtype="float64"),
        rtol=1e-12,
    ),
    "float64 to float32": case(
        lambda a: op.astype(a, "float32"), lambda a: a.astype("float32"), random(50, dtype="float64")
    ),
}


ALL = PLAIN | EXACT_FLOATS | SHORT | LONG | DOUBLE


@T.prim_func
def row_sums(A: T.Buffer((4, 64), "float32"), B: T.Buffer((4,), "float32")):
    """The sums of rows, each by the threads of a block, which exchange values."""
    for bx in T.thread_binding(4, "blockIdx.x"):
        for tx in T.thread_binding(64, "threadIdx.x"):
            with T.block("sum"):
                i, k = T.axis.remap("SR", [bx, tx])
                with T.init():
                    B[i] = T.float32(0)
                B[i] = B[i] + A[i, k]


def run(found: Case, target: Any, device: Any) -> np.ndarray:
    """The result of a graph on a device."""
    ex = relax.build(found.mod, target)
    return relax.VirtualMachine(ex, device)["main"](*[oneir.nd.array(x, device) for x in found.inputs]).numpy()
