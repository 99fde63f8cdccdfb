"""Integer dot products of x86: the instructions compute what the plain loops of their descriptions say."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir.runtime.error import InvalidValue
from oneir.target import Target
from oneir.target.cpu import architecture, enabled_features, resolve
from oneir.testing import interpret
from oneir.tir import PrimFunc, TensorIntrin
from oneir.tir.tensor_intrin.x86 import VECTOR_BYTES, get_byte_dot_intrin, get_group_dot_intrin

NEEDED = {"vnni": ["avx512vnni", "avx512vl"], "avx_vnni": ["avxvnni"], "avx512": ["avx512bw"], "avx2": ["avx2"]}


def skip_without(instructions: str) -> Target:
    """The machine's target; skips the test where it lacks the instructions."""
    target = Target("llvm")
    if architecture(resolve(target)[0]) != "x86_64":
        pytest.skip("the machine is no x86_64")
    if not enabled_features(target, NEEDED[instructions]).issuperset(NEEDED[instructions]):
        pytest.skip(f"the processor lacks {NEEDED[instructions]}")
    return target


def check(pair: tuple[PrimFunc, PrimFunc], arrays: list[np.ndarray], by_hand: np.ndarray, target: Target) -> None:
    """The description, interpreted, and the implementation, compiled, give what is computed by hand."""
    described, implemented = pair
    tensors = [oneir.nd.array(x) for x in arrays]
    oneir.build(implemented.with_attr("global_symbol", "f"), target)["f"](*tensors)
    interpret(described, *arrays)
    np.testing.assert_array_equal(arrays[2], by_hand)
    np.testing.assert_array_equal(tensors[2].numpy(), by_hand)


@pytest.mark.parametrize(("instructions", "largest"), [("vnni", 255), ("avx512", 128)])
def test_four_products(instructions: str, largest: int) -> None:
    target, rng = skip_without(instructions), np.random.default_rng(5)
    a = rng.integers(0, largest + 1, 4).astype("uint8")
    b = rng.integers(-128, 128, (16, 4)).astype("int8")
    c = rng.integers(-1000, 1000, 16).astype("int32")
    intrin = TensorIntrin.get(f"dot_16x4_{instructions}")
    assert intrin is not None
    check((intrin.desc, intrin.impl), [a, b, c], c + b.astype("int32") @ a.astype("int32"), target)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [16, 32])
@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("instructions", NEEDED)
def test_a_group_of_digits(instructions: str, extreme: bool, group: int, bits: int) -> None:
    target, rng, size = skip_without(instructions), np.random.default_rng(5), VECTOR_BYTES[instructions]
    # Where all are as large as can be, 16 bits still hold the sum.
    quads, largest = group // 4, (1 << bits) - 1
    a = np.full(group, -128, "int8") if extreme else rng.integers(-128, 128, group).astype("int8")
    b = np.full((quads, size), largest) if extreme else rng.integers(0, largest + 1, (quads, size))
    c = rng.integers(-1000, 1000, size // 4).astype("int32")
    products = b.reshape(quads, -1, 4) * a.astype("int32").reshape(quads, 1, 4)
    arrays = [a, b.astype("uint8"), c]
    check(get_group_dot_intrin(instructions, bits, group), arrays, c + products.sum((0, 2)), target)


@pytest.mark.parametrize("extreme", [(255, -128), (255, 127), None])
@pytest.mark.parametrize("instructions", NEEDED)
def test_four_bytes_are_multiplied_exactly(instructions: str, extreme: tuple[int, int] | None) -> None:
    target, rng, lanes = skip_without(instructions), np.random.default_rng(5), VECTOR_BYTES[instructions] // 4
    a, b = rng.integers(0, 256, 4).astype("uint8"), rng.integers(-128, 128, (lanes, 4)).astype("int8")
    if extreme is not None:
        # Sums of two such products exceed 16 bits.
        a[:], b[:] = extreme
    c = rng.integers(-1000, 1000, lanes).astype("int32")
    check(get_byte_dot_intrin(instructions), [a, b, c], c + b.astype("int32") @ a.astype("int32"), target)


def test_names_are_registered() -> None:
    for name in (
        "dot_16x4_vnni",
        "dot_16x4_avx512",
        "dot_8x32_u4_weights_avx2",
        "dot_16x32_u4_weights_vnni",
        "dot_8x4_bytes_avx2",
    ):
        assert TensorIntrin.get(name) is not None


def test_other_instructions_are_not_known() -> None:
    with pytest.raises(InvalidValue, match=r'expected the instructions "vnni", .*found "amx"'):
        get_group_dot_intrin("amx")
    with pytest.raises(InvalidValue, match=r'expected the instructions "vnni", .*found "dot"'):
        get_byte_dot_intrin("dot")
    with pytest.raises(InvalidValue, match="digits of 4 or 8 bits in groups of 16 or 32, found 5 in groups of 32"):
        get_group_dot_intrin("avx2", 5)
