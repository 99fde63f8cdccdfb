"""Sequences whose length only the running program knows, optional values and strings, in ONNX models.

ONNX's own evaluator says what is right; each program is compiled once and called with several values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import oneir
from oneir.relax.frontend.onnx import from_onnx
from oneir.runtime.error import InvalidValue, TypeMismatch, UnsupportedError

RNG = np.random.default_rng(0)


def model(text: str) -> onnx.ModelProto:
    domains = '["" : 20, "ai.onnx.ml" : 4]'
    parsed = onnx.parser.parse_model(f"<ir_version: 9, opset_import: {domains}> {text}")
    onnx.checker.check_model(parsed)
    return parsed


def flat(value: Any) -> list[np.ndarray]:
    if isinstance(value, (list, tuple)):
        return [array for field in value for array in flat(field)]
    return [value.numpy() if hasattr(value, "numpy") else np.asarray(value)]


def compared(text: str, *feeds: dict[str, Any]) -> None:
    """Compares one program with ONNX's evaluator for each of some inputs."""
    parsed = model(text)
    compiled = oneir.load(from_onnx(parsed))
    for feed in feeds:
        found, expected = flat(tuple(compiled(**feed))), flat(ReferenceEvaluator(parsed).run(None, feed))
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert a.shape == b.shape and (a.dtype == b.dtype or a.dtype == object)
            np.testing.assert_array_equal(a, b)


def vectors(*lengths: int) -> list[np.ndarray]:
    return [RNG.standard_normal(n).astype("float32") for n in lengths]


def text_of(*strings: str) -> np.ndarray:
    return np.array(strings, object)


def place(index: int) -> np.ndarray:
    return np.array(index, "int64")


def test_sequences_of_any_length_are_changed():
    text = """f (seq(float[N]) s, float[3] x, int64 i) => (seq(float[N]) t, int64 n, seq(float[N]) u) {
        y = Add (x, x)
        t = SequenceInsert (s, y, i)
        n = SequenceLength (t)
        u = SequenceErase (t, i)
    }"""
    (x,) = vectors(3)
    compared(text, {"s": vectors(2, 5), "x": x, "i": place(1)}, {"s": vectors(4), "x": x, "i": place(-1)})


def test_an_element_that_is_chosen_when_the_program_runs_is_computed_with():
    text = """f (seq(float[N]) s, int64 i) => (float[M] y) {
        x = SequenceAt (s, i)
        y = Mul (x, x)
    }"""
    compared(text, {"s": vectors(2, 5), "i": place(1)}, {"s": vectors(2, 5, 3), "i": place(-3)})
    with pytest.raises(InvalidValue, match="position 2 in a sequence of 2 elements"):
        oneir.load(from_onnx(model(text)))(vectors(2, 5), place(2))
    with pytest.raises(TypeMismatch, match=r"expected a sequence .*, found Tensor"):
        oneir.load(from_onnx(model(text)))(vectors(2)[0], place(0))


def test_tensors_are_split_into_pieces_of_sizes_that_the_program_gets_and_joined():
    text = """f (float[N, 3] x, int64[k] sizes) => (seq(float[A, 3]) s, float[B, 3] y) {
        s = SplitToSequence <axis = 0> (x, sizes)
        y = ConcatFromSequence <axis = 0> (s)
    }"""
    x = RNG.standard_normal((6, 3)).astype("float32")
    compared(text, {"x": x, "sizes": np.array([1, 2, 3])}, {"x": x, "sizes": np.array([6])})
    with pytest.raises(InvalidValue, match=r"pieces of sizes \[1, 2\] do not add up to the extent 6 of axis 0"):
        oneir.load(from_onnx(model(text)))(x, np.array([1, 2]))


def test_a_loop_of_any_number_of_steps_carries_a_sequence():
    text = """f (int64 count, bool go, float[2] x) => (seq(float[N]) s, float[M] joined) {
        none = SequenceEmpty <dtype = 1> ()
        s = Loop (count, go, none) <body = step (int64 i, bool c, seq(float[N]) t) => (bool d, seq(float[N]) u) {
            d = Identity (c)
            f = Cast <to = 1> (i)
            y = Add (x, f)
            u = SequenceInsert (t, y)
        }>
        joined = ConcatFromSequence <axis = 0> (s)
    }"""
    (x,) = vectors(2)
    compared(text, *({"count": place(n), "go": np.array(True), "x": x} for n in (1, 3, 5)))


def test_a_function_is_mapped_over_sequences():
    text = """f (seq(float[N]) s, float[1] x) => (seq(float[N]) t) {
        t = SequenceMap (s, x) <body = one (float[N] a, float[1] b) => (float[N] c) { c = Add (a, b) }>
    }"""
    compiled = oneir.load(from_onnx(model(text)))
    for lengths in ((2, 5), (1, 1, 3), ()):
        s, (x,) = vectors(*lengths), vectors(1)
        (found,) = compiled(s, x)
        assert len(found) == len(s) and all(np.array_equal(a.numpy(), b + x) for a, b in zip(found, s, strict=True))


def test_a_branch_may_give_a_sequence_or_nothing():
    text = """f (bool c, float[5] x) => (bool there) {
        s = If (c) <
            then_branch = a () => (optional(seq(float[5])) n) { n = Optional <type = seq(float[5])> () },
            else_branch = b () => (optional(seq(float[5])) o) { q = SequenceConstruct (x) o = Optional (q) }
        >
        there = OptionalHasElement (s)
    }"""
    compiled = oneir.load(from_onnx(model(text)))
    assert [bool(compiled(np.array(c), vectors(5)[0])[0].numpy()) for c in (True, False)] == [False, True]


def test_an_input_may_be_missing():
    text = """f (optional(float[2]) x) => (bool there, float[2] y) {
        there = OptionalHasElement (x)
        z = OptionalGetElement (x)
        y = Add (z, z)
    }"""
    compiled = oneir.load(from_onnx(model(text)))
    (x,) = vectors(2)
    there, y = compiled(x)
    assert bool(there.numpy()) and np.array_equal(y.numpy(), 2 * x)
    with pytest.raises(InvalidValue, match="an optional value is empty, and its element is asked for"):
        compiled(None)


def test_strings_are_joined_split_compared_and_matched():
    text = """f (string[N] x, string[M] y) => (string[N] joined, string[N, K] parts, int64[N] counts, bool[N] same) {
        joined = StringConcat (x, y)
        parts, counts = StringSplit <delimiter = ".", maxsplit = 2> (joined)
        same = Equal (x, y)
    }"""
    compared(
        text,
        {"x": text_of("a.b", "c", "d.e.f.g"), "y": text_of("c")},
        {"x": text_of("", "中"), "y": text_of("x.y", "中")},
    )
    whole = 'f (string[N] x) => (bool[N] y) { y = RegexFullMatch <pattern = "a+b?"> (x) }'
    found = oneir.load(from_onnx(model(whole)))(text_of("aab", "b", "aabb", "a"))[0]
    assert found.numpy().tolist() == [True, False, False, True]


def test_strings_are_normalized():
    text = """f (string[N] x) => (string[M] y) {
        y = StringNormalizer <case_change_action = "UPPER", is_case_sensitive = 0, stopwords = ["monday"]> (x)
    }"""
    compiled = oneir.load(from_onnx(model(text)))
    assert compiled(text_of("Monday", "tuesday"))[0].tolist() == ["TUESDAY"]
    assert compiled(text_of("monday", "MONDAY"))[0].tolist() == [""]


def test_labels_are_numbers_or_strings():
    text = """f (string[N] x) => (int64[N] y, string[N] z) {
        y = ai.onnx.ml.LabelEncoder <default_int64 = 42, keys_strings = ["a", "b"], values_int64s = [0, 1]> (x)
        z = ai.onnx.ml.LabelEncoder <keys_int64s = [0, 42], values_strings = ["zero", "other"]> (y)
    }"""
    y, z = oneir.load(from_onnx(model(text)))(text_of("b", "a", "c"))
    assert y.numpy().tolist() == [1, 0, 42] and z.tolist() == ["_Unused", "zero", "other"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("f (string[N] x) => (string[N] y) { y = Reshape (x, x) }", "a tensor of numbers, found a tensor of strings"),
        ("f (float[2] x) => (string[2] y) { y = StringConcat (x, x) }", "a tensor of strings, found R.Tensor"),
        ("f (float[2] x) => (int64 y) { y = SequenceLength (x) }", "a sequence, found R.Tensor"),
    ],
)
def test_kinds_of_values_that_operators_do_not_take(text: str, why: str):
    parsed = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> {text}')
    with pytest.raises(UnsupportedError, match=f"expected {why}"):
        from_onnx(parsed)
