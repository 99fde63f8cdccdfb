"""Integer dot products of x86: the instructions compute what the plain loops of their descriptions say."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir.runtime.error import InvalidValue
from oneir.target import Target
from oneir.target.cpu import architecture, enabled_features, resolve
from oneir.testing import interpret
from oneir.tir import TensorIntrin
from oneir.tir.tensor_intrin.x86 import get_dot_16x4_intrin

NEEDED = {"vnni": ["avx512vnni", "avx512vl"], "avx_vnni": ["avxvnni"], "avx512": ["avx512bw"], "avx2": ["avx2"]}


def arrays(unsigned_weights: bool, largest: int) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    unsigned = rng.integers(0, largest + 1, 64 if unsigned_weights else 4).astype("uint8")
    signed = rng.integers(-128, 128, 4 if unsigned_weights else 64).astype("int8")
    sums = rng.integers(-1000, 1000, 16).astype("int32")
    return [signed, unsigned, sums] if unsigned_weights else [unsigned, signed.reshape(16, 4), sums]


@pytest.mark.parametrize("unsigned_weights", [False, True])
@pytest.mark.parametrize("instructions", NEEDED)
def test_the_instructions_compute_what_the_description_says(instructions: str, unsigned_weights: bool) -> None:
    target = Target("llvm")
    if architecture(resolve(target)[0]) != "x86_64":
        pytest.skip("the machine is no x86_64")
    if not enabled_features(target, NEEDED[instructions]).issuperset(NEEDED[instructions]):
        pytest.skip(f"the processor lacks {NEEDED[instructions]}")
    described, implemented = get_dot_16x4_intrin(instructions, unsigned_weights)
    largest = 255 if instructions.endswith("vnni") else 127
    expected, found = arrays(unsigned_weights, largest), arrays(unsigned_weights, largest)
    interpret(described, *expected)
    a, b = found[0].astype("int32"), found[1].astype("int32")
    by_hand = found[2] + (b.reshape(16, 4) @ a if unsigned_weights else b @ a)
    tensors = [oneir.nd.array(x) for x in found]
    oneir.build(implemented.with_attr("global_symbol", "f"), target)["f"](*tensors)
    np.testing.assert_array_equal(expected[2], by_hand)
    np.testing.assert_array_equal(tensors[2].numpy(), by_hand)


def test_published_names_are_registered() -> None:
    for name in ("dot_16x4_vnni", "dot_16x4_avx512", "dot_16x4_u8_weights_avx2"):
        assert TensorIntrin.get(name) is not None


def test_other_instructions_are_not_known() -> None:
    with pytest.raises(InvalidValue, match=r'expected the instructions "vnni", .*found "amx"'):
        get_dot_16x4_intrin("amx")
