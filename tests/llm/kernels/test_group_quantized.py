"""Products with weights of 4 bits: rows, products and rows of weights against NumPy; every number of rows and target."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir.dlight.cpu import IntegerDots
from oneir.ir.expr import IntImm, const
from oneir.ir.visitor import Mapper, Visitor
from oneir.llm.kernels import group_quantized as gq
from oneir.runtime.error import ShapeMismatch
from oneir.target import Target
from oneir.target.cpu import enabled_features
from oneir.testing import interpret
from oneir.tir import Call, PrimFunc, decl_buffer

N, K = 96, 160
RNG = np.random.default_rng(7)


def weights(n: int = N, k: int = K) -> tuple[np.ndarray, np.ndarray]:
    return RNG.integers(0, 16, (n, k)).astype("uint8"), (RNG.random((n, k // 32)) * 0.1).astype("float16")


def rows(m: int, k: int = K) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values = RNG.integers(-127, 128, (m, k // 32, 32)).astype("int8")
    return values, RNG.random((m, k // 32)).astype("float32"), -8 * values.sum(-1, dtype="int32")


def expected_product(quantized: tuple[np.ndarray, ...], digits: np.ndarray, scales: np.ndarray) -> np.ndarray:
    values, row_scales, _ = quantized
    x = (values * row_scales[..., None].astype("float64")).reshape(len(values), -1)
    w = ((digits.astype("float64") - 8).reshape(*scales.shape, 32) * scales[..., None]).reshape(digits.shape)
    return x @ w.T


def with_rows(func: PrimFunc, m: int | None) -> PrimFunc:
    """The function for a fixed number of rows."""
    if m is None:
        return func
    shape = func.buffer_map[func.params[0]].shape
    return func.specialize({func.params[0]: decl_buffer([const(m, "int64"), *shape[1:]], "int8")})


def run(func: PrimFunc, target: Target, arguments: list[np.ndarray]) -> list[np.ndarray]:
    tensors = [oneir.nd.array(x) for x in arguments]
    oneir.build(func.with_attr("global_symbol", "f"), target)["f"](*tensors)
    return [t.numpy() for t in tensors]


class _Wider(Mapper):
    """Digits of 8 bits in place of those of 4."""

    def visit_IntImm(self, node: IntImm) -> IntImm:
        return const(255, "uint8") if node.dtype == "uint8" and node.value == 15 else node


class _Calls(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def visit_Call(self, call: Call) -> None:
        if call.op.name == "tir.call_llvm_pure_intrin":
            self.names.add(call.args[0].value)
        self.generic_visit(call)


def instructions(func: PrimFunc) -> set[str]:
    calls = _Calls()
    calls(func.body)
    return calls.names


@pytest.mark.parametrize("fixed", [None, 1, 2, 3, 4, 6])
def test_products_of_any_number_of_rows(fixed: int | None) -> None:
    target = Target("llvm")
    scheduled = IntegerDots().apply(with_rows(gq.product(N, K), fixed), target)
    assert scheduled is not None
    for m in [fixed] if fixed else [1, 3, 4, 9]:
        quantized, (digits, scales) = rows(m), weights()
        arguments = [*quantized, gq.pack(digits), gq.pack_scales(scales), np.zeros((m, N), "float32")]
        *_, found = run(scheduled.mod["main"], target, arguments)
        expected = expected_product(quantized, digits, scales)
        assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("processor", "needed", "name"),
    [
        ("-mcpu=haswell", "avx2", "llvm.x86.avx2.pmadd.ub.sw"),
        ("-mcpu=alderlake", "avxvnni", "llvm.x86.avx512.vpdpbusd.256"),
        ("-mcpu=znver4", "avx512vnni", "llvm.x86.avx512.vpdpbusd.512"),
    ],
)
def test_each_processor_gets_its_instructions(processor: str, needed: str, name: str) -> None:
    target = Target(f"llvm -mtriple=x86_64-unknown-linux-gnu {processor}")
    scheduled = IntegerDots().apply(gq.product(32, 64), target)
    assert scheduled is not None and instructions(scheduled.mod["main"]) >= {name}
    if not enabled_features(Target("llvm"), [needed]):
        return
    quantized, (digits, scales) = rows(3, 64), weights(32, 64)
    arguments = [*quantized, gq.pack(digits), gq.pack_scales(scales), np.zeros((3, 32), "float32")]
    *_, found = run(scheduled.mod["main"], target, arguments)
    expected = expected_product(quantized, digits, scales)
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def test_processors_without_integer_dots_compute_the_plain_loops() -> None:
    target = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64")
    func = gq.product(32, 64)
    assert IntegerDots().apply(func, target) is None
    quantized, (digits, scales) = rows(2, 64), weights(32, 64)
    arguments = [*quantized, gq.pack(digits), gq.pack_scales(scales), np.zeros((2, 32), "float32")]
    interpret(func, *arguments)
    expected = expected_product(quantized, digits, scales)
    assert np.abs(arguments[-1] - expected).max() <= 1e-6 * np.abs(expected).max()
    *_, found = run(func, target, [*arguments[:-1], np.zeros((2, 32), "float32")])
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def test_other_products_are_left_to_other_rules() -> None:
    a, b = (oneir.te.placeholder((8, 64), "int8", name) for name in "ab")
    k = oneir.te.reduce_axis((0, 64), "k")
    product = oneir.te.compute((8, 8), lambda i, j: oneir.te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), k))
    assert IntegerDots().apply(oneir.te.create_prim_func([a, b, product]), Target("llvm")) is None


def test_rows_become_bytes_with_their_scales_and_starts() -> None:
    x = RNG.standard_normal((5, K)).astype("float32")
    x[2, 32:64] = 0
    groups = x.reshape(5, -1, 32)
    scale = np.abs(groups).max(-1) / np.float32(127)
    results = [np.zeros((5, K // 32, 32), "int8"), np.zeros((5, K // 32), "float32"), np.zeros((5, K // 32), "int32")]
    func = gq.quantize_rows(K, 8)
    _, values, scales, starts = run(func, Target("llvm"), [x, *results])
    np.testing.assert_allclose(scales, scale, rtol=1e-6)
    # Half a step, and the rounding of the quotient.
    assert np.abs(values * scales[..., None] - groups).max() <= 0.5001 * scale.max()
    assert np.abs(values).max() == 127 and (values[2, 1] == 0).all()
    np.testing.assert_array_equal(starts, -8 * values.sum(-1, dtype="int32"))


def test_rows_of_weights() -> None:
    digits, scales = weights()
    numbers = np.array([0, 95, 17, 17], "int32")
    packed = [gq.pack(digits), gq.pack_scales(scales)]
    *_, found = run(gq.take_rows(N, K, 8), Target("llvm"), [numbers, *packed, np.zeros((4, K), "float32")])
    whole = (digits.astype("float32") - 8).reshape(N, -1, 32) * scales.astype("float32")[..., None]
    np.testing.assert_array_equal(found, whole.reshape(N, K)[numbers])


def test_weights_of_8_bits_are_left_to_other_rules() -> None:
    # 32 products of them would not fit into the 16 bits in which some processors add them up.
    func = gq.product(32, 64)
    wide = func.replace(body=_Wider()(func.body))
    assert IntegerDots().apply(func, Target("llvm")) is not None
    assert IntegerDots().apply(wide, Target("llvm")) is None


@pytest.mark.parametrize(("n", "k", "message"), [(48, 64, "the outputs"), (64, 48, "the sum"), (32, 0, "the sum")])
def test_parts_of_panels_and_groups_are_refused(n: int, k: int, message: str) -> None:
    with pytest.raises(ShapeMismatch, match=f"{message}.* to be a multiple of 32"):
        gq.product(n, k)
