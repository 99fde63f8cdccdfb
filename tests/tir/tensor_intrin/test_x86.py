"""Integer dot products of x86: the instructions compute what the plain loops of their descriptions say."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir.runtime.dtype import numpy_dtype
from oneir.runtime.error import InvalidValue
from oneir.target import Target
from oneir.target.cpu import architecture, enabled_features, resolve
from oneir.testing import interpret
from oneir.tir import PrimFunc, TensorIntrin
from oneir.tir.tensor_intrin.x86 import (
    VECTOR_BYTES,
    get_bfloat16_dot_intrin,
    get_bfloat16_pairs_dot_intrin,
    get_byte_dot_intrin,
    get_group_dot_intrin,
    get_pair_dot_intrin,
    get_pair_start_intrin,
    get_pair_sum_intrin,
    get_split_intrin,
    get_word_dot_intrin,
)

NEEDED = {"vnni": ["avx512vnni", "avx512vl"], "avx_vnni": ["avxvnni"], "avx512": ["avx512bw"], "avx2": ["avx2"]}


def skip_without(*needed: str) -> Target:
    """The machine's target; skips the test where it lacks these features."""
    target = Target("llvm")
    if architecture(resolve(target)[0]) != "x86_64":
        pytest.skip("the machine is no x86_64")
    if not enabled_features(target, needed).issuperset(needed):
        pytest.skip(f"the processor lacks {needed}")
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
    target, rng = skip_without(*NEEDED[instructions]), np.random.default_rng(5)
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
    target, rng, size = skip_without(*NEEDED[instructions]), np.random.default_rng(5), VECTOR_BYTES[instructions]
    # Where all are as large as can be, 16 bits still hold the sum.
    quads, largest = group // 4, (1 << bits) - 1
    a = np.full(group, -128, "int8") if extreme else rng.integers(-128, 128, group).astype("int8")
    b = np.full((quads, size), largest) if extreme else rng.integers(0, largest + 1, (quads, size))
    c = rng.integers(-1000, 1000, size // 4).astype("int32")
    products = b.reshape(quads, -1, 4) * a.astype("int32").reshape(quads, 1, 4)
    arrays = [a, b.astype("uint8"), c]
    check(get_group_dot_intrin(instructions, bits, group), arrays, c + products.sum((0, 2)), target)


def test_pairs_of_products_in_16_bits() -> None:
    target, rng = skip_without("avx2"), np.random.default_rng(5)
    a = rng.integers(-128, 128, 4).astype("int8")
    b = rng.integers(0, 129, 32).astype("uint8")
    a[:2], b[:2] = -128, 128  # the largest products, whose sum is the least of 16 bits
    c = rng.integers(-1000, 1000, (8, 2)).astype("int16")
    c[0, 0] = 0
    products = b.reshape(8, 2, 2) * a.astype("int16").reshape(2, 2)
    check(get_pair_dot_intrin(), [a, b, c], c + products.sum(-1, dtype="int16"), target)


def test_sums_of_pairs() -> None:
    target, rng = skip_without("avx2"), np.random.default_rng(5)
    pairs = rng.integers(-32768, 32768, (8, 2)).astype("int16")
    pairs[0] = -32768
    c = rng.integers(-1000, 1000, 8).astype("int32")
    described, implemented = get_pair_sum_intrin()
    tensors, by_hand = [oneir.nd.array(x) for x in (pairs, c)], c + pairs.sum(-1, dtype="int32")
    oneir.build(implemented.with_attr("global_symbol", "f"), target)["f"](*tensors)
    interpret(described, pairs, c)
    np.testing.assert_array_equal(c, by_hand)
    np.testing.assert_array_equal(tensors[1].numpy(), by_hand)


@pytest.mark.parametrize("halves", [(-32768, 32767), (-1, 5), (7, -30000)])
def test_sums_of_pairs_start_with_the_halves_of_a_word(halves: tuple[int, int]) -> None:
    target, word = skip_without("avx2"), np.array(halves, "int16").view("int32")
    described, implemented = get_pair_start_intrin()
    sums, tensors = np.zeros((8, 2), "int16"), [oneir.nd.array(x) for x in (word, np.zeros((8, 2), "int16"))]
    oneir.build(implemented.with_attr("global_symbol", "f"), target)["f"](*tensors)
    interpret(described, word, sums)
    np.testing.assert_array_equal(sums, [halves] * 8)
    np.testing.assert_array_equal(tensors[1].numpy(), [halves] * 8)


def test_products_of_words() -> None:
    target, rng = skip_without("avx2"), np.random.default_rng(5)
    a = rng.integers(-32767, 32768, 2).astype("int16")
    b = rng.integers(-32767, 32768, 16).astype("int16")
    b[:2] = np.sign(a) * 32767
    c = rng.integers(-1000, 0, 8).astype("int32")
    by_hand = c + (b.reshape(8, 2).astype("int32") * a).sum(-1, dtype="int32")
    check(get_word_dot_intrin(), [a, b, c], by_hand, target)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_at_even_and_at_odd_places(dtype: str) -> None:
    target, rng = skip_without("avx2"), np.random.default_rng(5)
    a = rng.integers(-128, 128, 32).astype("int8").view(dtype)
    a[:4] = np.array([-128, 127, -1, 0], "int8").view(dtype)
    described, implemented = get_split_intrin(dtype)
    tensors, found = [oneir.nd.array(x) for x in (a, np.zeros((2, 16), "int16"))], np.zeros((2, 16), "int16")
    oneir.build(implemented.with_attr("global_symbol", "f"), target)["f"](*tensors)
    interpret(described, a, found)
    for result in (found, tensors[1].numpy()):
        np.testing.assert_array_equal(result, a.reshape(16, 2).T.astype("int16"))


@pytest.mark.parametrize("extreme", [(255, -128), (255, 127), None])
@pytest.mark.parametrize("instructions", NEEDED)
def test_four_bytes_are_multiplied_exactly(instructions: str, extreme: tuple[int, int] | None) -> None:
    target, rng, lanes = skip_without(*NEEDED[instructions]), np.random.default_rng(5), VECTOR_BYTES[instructions] // 4
    a, b = rng.integers(0, 256, 4).astype("uint8"), rng.integers(-128, 128, (lanes, 4)).astype("int8")
    if extreme is not None:
        # Sums of two such products exceed 16 bits.
        a[:], b[:] = extreme
    c = rng.integers(-1000, 1000, lanes).astype("int32")
    check(get_byte_dot_intrin(instructions), [a, b, c], c + b.astype("int32") @ a.astype("int32"), target)


def test_pairs_of_bfloat16() -> None:
    target, rng = skip_without("avx512bf16"), np.random.default_rng(5)
    # Integers and halves of few bits, whose sums are exact in any order.
    a, b = ((rng.integers(-64, 64, shape) / 2).astype(numpy_dtype("bfloat16")) for shape in (2, (16, 2)))
    c = rng.integers(-1000, 1000, 16).astype("float32")
    by_hand = c + b.astype("float32") @ a.astype("float32")
    check(get_bfloat16_dot_intrin(), [a, b.view("uint32").reshape(16), c.copy()], by_hand, target)
    check(get_bfloat16_pairs_dot_intrin(), [a, b, c], by_hand, target)


def test_subnormal_bfloat16_are_zeros_to_the_instruction() -> None:
    target, smallest = skip_without("avx512bf16"), np.float32(2.0**-130)
    a = np.array([smallest, 0], numpy_dtype("bfloat16"))
    b = np.full((16, 2), 2.0**100).astype(numpy_dtype("bfloat16")).view("uint32").reshape(16)
    described, implemented = get_bfloat16_dot_intrin()
    sums, tensors = np.zeros(16, "float32"), [oneir.nd.array(x) for x in (a, b, np.zeros(16, "float32"))]
    oneir.build(implemented.with_attr("global_symbol", "f"), target)["f"](*tensors)
    interpret(described, a, b, sums)
    assert (sums == 2.0**-30).all() and (tensors[2].numpy() == 0).all()


def test_names_are_registered() -> None:
    for name in (
        "dot_16x4_vnni",
        "dot_16x4_avx512",
        "dot_8x32_u4_weights_avx2",
        "dot_16x32_u4_weights_vnni",
        "dot_8x4_bytes_avx2",
        "dot_8x2x2_pairs_avx2",
        "sum_8x2_pairs_avx2",
        "start_8x2_pairs_avx2",
        "dot_8x2_words_avx2",
        "split_int8x32_avx2",
        "split_uint8x32_avx2",
        "dot_16x2_bfloat16",
        "dot_16x2_bfloat16_pairs",
    ):
        assert TensorIntrin.get(name) is not None


def test_other_instructions_are_not_known() -> None:
    with pytest.raises(InvalidValue, match=r'expected the instructions "vnni", .*found "amx"'):
        get_group_dot_intrin("amx")
    with pytest.raises(InvalidValue, match=r'expected the instructions "vnni", .*found "dot"'):
        get_byte_dot_intrin("dot")
    with pytest.raises(InvalidValue, match="digits of 4 or 8 bits in groups of 16 or 32, found 5 in groups of 32"):
        get_group_dot_intrin("avx2", 5)
