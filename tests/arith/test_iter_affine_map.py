"""Iteration maps: known cases by table, and random maps whose claims are checked by going through all iterations."""

from __future__ import annotations

from typing import Any

import pytest
from arith_oracle import evaluate, points
from arith_text import build
from hypothesis import assume, given
from hypothesis import strategies as st
from iter_map_oracle import Level, assert_claim_holds, domains, iterations

from oneir import arith
from oneir.ir import expr as e
from oneir.ir.structural import structural_equal
from oneir.runtime.error import OneIRError, TypeMismatch

i, j, k = (e.Var(name, "int32") for name in "ijk")
n, m = e.SizeVar("n", "int32"), e.SizeVar("m", "int32")
NAMES = {"i": i, "j": j, "k": k, "n": n, "m": m}

BIJECTIVE = """
i: 8 | i
i: 8 | i + 5
i: 8 | 7 - i
i: 8 | i * 3
i: 32 | i // 4, i % 4
i: 32 | i % 4, i // 4
i: 32 | i // 16, i // 4 % 4, i % 4
i: 32 | i // 4 // 2, i // 4 % 2, i % 4
i: 32 | i // 4 * 4 + i % 4
i: 8, j: 4 | i * 4 + j
i: 8, j: 4 | j * 8 + i
i: 8, j: 4 | j, i
i: 8, j: 4 | i * 4 + (3 - j) * (0 - 1) + 3
i: 8, j: 4 | (i * 4 + j) // 8, (i * 4 + j) % 8
i: 8, j: 4 | (i * 4 + j) // 8, (i * 4 + j) // 4 % 2, j
i: 6, j: 6 | (i * 6 + j) // 4, (i * 6 + j) % 4
i: 6, j: 6 | (i * 6 + j) // 12, (i * 6 + j) % 12 // 4, (i * 6 + j) % 4
i: 4, j: 6, k: 5 | (i * 30 + j * 5 + k) // 20, (i * 30 + j * 5 + k) % 20
i: 16, j: 4, k: 2 | i // 4 * 2 + k, j * 4 + i % 4
i: 8, j: 4 | i * 4 + j if i * 4 + j < 30
i: 8, j: 4 | (i * 4 + j) // 5, (i * 4 + j) % 5 if i * 4 + j < 30
i: 8, j: 4 | i * 4 + j if i * 4 + j < 30 and i * 4 + j >= 3
i: 8, j: 4 | i, j if i < 5
i: 8, j: 4 | i // 2, i % 2, j if i < 6 and j >= 1
i: 8, j: 4, k: 3 | k * 30 + i * 4 + j if i * 4 + j < 30
i: 8, j: 4, k: 3 | i * 4 + j, k if 29 >= i * 4 + j and k < 2
i: 5, j: 4, k: 4 | (i * 4 + j) * 4 + k if i * 4 + j < 18 and (i * 4 + j) * 4 + k < 70
i: 8, j: 4 | i * 4 + j if i < 5 and i * 4 + j < 30
i: 1, j: 8 | i * 3 + j
"""
SURJECTIVE = """
i: 8, j: 4 | i + j
i: 3, j: 8 | i * 7 + j
i: 2, j: 3, k: 8 | i * 18 + j * 7 + k
i: 8, j: 4 | (i + j) // 2
i: 5, j: 6 | i * 3 + j if j < 4 and i >= 1
i: 24 | i // 6, i % 2
i: 8, j: 4 | i
i: 32 | i // 4 % 4
i: 30 | i // 4
i: 30 | i % 4
i: 30 | i // 3 % 5, i % 3
i: 13 | (i + 3) // 4
i: 16 | (i + 7) // 3 % 2, (i + 7) % 3
i: 19 | i // 8, i // 2 % 2
i: 5, j: 3 | (i * 3 + j) // 4
i: 60 | (i + 10) % 3, (i + 10) // 3 % 4, (i + 10) // 3 // 4 % 5
i: 60 | (i + 1) % 3, ((i + 10) // 3 + 2) % 4, ((i + 10) // 3 // 4 + 3) % 5
i: 12, j: 2 | i % 6 // 4, i // 6 + j * 2
i: 12 | (i + 3) // 4 % 2, (i + 1) % 4
"""
PADDED = """
i: 30 | i // 4, i % 4 | i >= 30
i: 16 | (i + 3) // 4, (i + 3) % 4 | i < 0 or i >= 16
i: 13 | (i + 3) // 4, (i + 3) % 4 | i < 0
i: 30 | i // 8, i // 4 % 2, i % 4 | i >= 30
i: 9 | i // 3, i % 3 // 2 | i % 3 >= 3
i: 26 | i // 15 | i >= 26
i: 5, j: 3 | (i * 3 + j) // 4, (i * 3 + j) % 4 | i * 3 + j >= 15
"""
NO_MAP = """
i: 8, j: 4 | i * 5 + j | neighbouring digits
i: 8, j: 4 | j - i * 2 | neighbouring digits
i: 4, j: 4 | i * 4 + j * 6 | neighbouring digits
i: 8, j: 4 | i * 8 + j | neighbouring digits
i: 8, j: 4 | i * j | product
i: 8, j: 4 | i // (j + 1) | divides by an iterator
i: 8, j: 4 | min(i, j) | no sum, multiple, quotient or remainder
i: 8 | i, i | not independent
i: 8 | i, i % 4 | not independent
i: 8 | i // 2, i % 4 | not independent
i: 30 | i // 4, i % 4 | not independent
i: 13 | (i + 3) // 4, (i + 3) % 4 | not independent
i: 17 | i // 8, i // 2 % 2 | not independent
i: 59 | (i + 1) % 3, ((i + 10) // 3 + 2) % 4, ((i + 10) // 3 // 4 + 3) % 5 | not independent
i: 12 | i % 6 // 4, i % 6 % 4 | not independent
i: 8 | i * 4 // 6 | does not divide 6
i: 8 | i // (0 - 2) | not known to be positive
i: 8, j: 4 | i, j if i + j < 6 | bounds a sum
i: 8, j: 4 | i if i * 4 + j < 3 | not independent
i: 8, j: 4 | i * 4 + j, i if i * 4 + j < 30 | not independent
i: 8 | i if i < 0 | holds nowhere
i: 8 | i if i < 5 or i > 6 | no bound of a sum
"""
NOT_BIJECTIVE = """
i: 24 | i // 6, i % 2 | not independent
i: 8, j: 4 | i + j | neighbouring digits
i: 8, j: 4 | i | the iterator j in [0, 4) is not used
i: 30 | i // 4, i % 4 | padding is not allowed
i: 8, j: 4 | i if j < 3 | used as nothing
"""


def lines(table: str) -> list[str]:
    return [line for line in table.splitlines() if line]


def parsed(line: str) -> tuple[dict[e.Var, tuple[int, int]], list[Any], Any, str]:
    """`i: 8, j: 4 | indices if predicate | text` as its parts."""
    iterators, _, rest = line.partition(" | ")
    body, _, text = rest.partition(" | ")
    body, _, predicate = body.partition(" if ")
    ranges = {}
    for part in iterators.split(", "):
        name, extent = part.split(": ")
        ranges[NAMES[name]] = (0, int(extent) - 1)
    indices = [build(t, NAMES) for t in _split(body)]
    return ranges, indices, build(predicate, NAMES) if predicate else True, text


def _split(text: str) -> list[str]:
    """The text cut at commas outside of parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


@pytest.mark.parametrize("line", lines(BIJECTIVE))
def test_bijective_maps_are_found(line: str) -> None:
    ranges, indices, predicate, _ = parsed(line)
    result = arith.detect_iter_map(indices, domains(ranges), predicate, Level.Bijective)
    assert not result.errors
    assert result.padding_predicate.value == 0
    assert_claim_holds(indices, ranges, predicate, Level.Bijective, result)


@pytest.mark.parametrize("line", lines(SURJECTIVE))
def test_surjective_maps_are_found(line: str) -> None:
    ranges, indices, predicate, _ = parsed(line)
    result = arith.detect_iter_map(indices, domains(ranges), predicate)
    assert not result.errors
    assert_claim_holds(indices, ranges, predicate, Level.Surjective, result)
    assert arith.detect_iter_map(indices, domains(ranges), predicate, Level.Bijective).errors


@pytest.mark.parametrize("line", lines(PADDED))
def test_padding_is_described(line: str) -> None:
    ranges, indices, predicate, text = parsed(line)
    result = arith.detect_iter_map(indices, domains(ranges), predicate, Level.NoCheck)
    assert not result.errors
    assert structural_equal(result.padding_predicate, build(text, NAMES))
    assert_claim_holds(indices, ranges, predicate, Level.NoCheck, result)


@pytest.mark.parametrize("line", lines(NO_MAP))
def test_what_is_no_map_is_refused_with_a_reason(line: str) -> None:
    ranges, indices, predicate, text = parsed(line)
    result = arith.detect_iter_map(indices, domains(ranges), predicate)
    assert len(result.indices) == 0
    assert text in result.errors[0]


@pytest.mark.parametrize("line", lines(NOT_BIJECTIVE))
def test_what_is_not_bijective_is_refused_with_a_reason(line: str) -> None:
    ranges, indices, predicate, text = parsed(line)
    result = arith.detect_iter_map(indices, domains(ranges), predicate, Level.Bijective)
    assert len(result.indices) == 0
    assert text in result.errors[0]


def test_iterators_need_not_start_at_zero() -> None:
    result = arith.detect_iter_map([i * 4 + j], {i: e.Range(2, 6), j: e.Range(-1, 3)}, check_level=Level.Bijective)
    assert_claim_holds([i * 4 + j], {i: (2, 5), j: (-1, 2)}, True, Level.Bijective, result)
    (total,) = result.indices
    assert (total.base.value, total.args[0].extent.value) == (7, 16)


def test_ranges_must_not_depend_on_iterators() -> None:
    result = arith.detect_iter_map([i, j], {i: e.Range(0, 8), j: e.Range(0, i)})
    assert "depends on the iterator i" in result.errors[0]


def test_indices_must_be_integers() -> None:
    with pytest.raises(TypeMismatch, match="signed integer indices, found `x` of dtype float32"):
        arith.detect_iter_map([e.Var("x", "float32")], {i: e.Range(0, 8)})


def test_trivial_iterators_are_kept_when_asked_for() -> None:
    iters = {i: e.Range(0, 1), j: e.Range(0, 8)}
    for simplify, count in ((True, 0), (False, 1)):
        result = arith.detect_iter_map([i, j], iters, simplify_trivial_iterators=simplify)
        assert len(result.indices[0].args) == count


def test_mixed_index_types_are_one() -> None:
    wide = e.Var("w", "int64")
    result = arith.detect_iter_map([wide * 4 + e.Cast("int64", i)], {wide: e.Range(0, 8), i: e.Range(0, 4)})
    assert result.indices[0].args[0].extent.value == 32


SYMBOLIC = """
i: n | i // 8 | i // 8 | (n + 7) // 8
i: 8, j: n | i * n + j | i * n + j | n * 8
i: 8, j: n | (i * n + j) // n, (i * n + j) % n | i, j | 8, n
i: m, j: n | i * n + j | i * n + j | m * n
i: n * 4 | i // 4, i % 4 | i // 4, i % 4 | n, 4
i: n * 4 | i // n, i % n | i // n, i % n | 4, n
i: n, j: 4, k: m | (i * 4 + j) * m + k | i * (m * 4) + j * m + k | m * n * 4
"""


@pytest.mark.parametrize("line", lines(SYMBOLIC))
def test_symbolic_extents(line: str) -> None:
    iterators, indices, written, extents = line.split(" | ")
    ranges = {}
    for part in iterators.split(", "):
        name, extent = part.split(": ")
        ranges[NAMES[name]] = e.Range(0, build(extent, NAMES))
    result = arith.detect_iter_map([build(t, NAMES) for t in _split(indices)], ranges)
    assert not result.errors
    analyzer = arith.Analyzer()
    for total, text, extent in zip(result.indices, _split(written), _split(extents), strict=True):
        assert analyzer.can_prove_equal(arith.normalize_iter_map_to_expr(total), build(text, NAMES))
        assert analyzer.can_prove_equal(total.args[0].extent, build(extent, NAMES))


def test_digits_of_an_unknown_extent_are_not_all_independent() -> None:
    result = arith.detect_iter_map([i // 8, i % 8], {i: e.Range(0, n)})
    assert "not independent" in result.errors[0]
    result = arith.detect_iter_map([i // 8, i % 8], {i: e.Range(0, n)}, check_level=Level.NoCheck)
    assert structural_equal(result.padding_predicate, e.GE(i, n))


def test_symbolic_tiles_with_a_predicate() -> None:
    ranges = {i: e.Range(0, e.FloorDiv(n + 31, e.const(32, "int32"))), j: e.Range(0, 32)}
    result = arith.detect_iter_map([i * 32 + j], ranges, i * 32 + j < n, Level.Bijective)
    (total,) = result.indices
    assert total.args[0].extent is n
    assert len(arith.subspace_divide([i * 32 + j], ranges, [j], i * 32 + j < n)) == 0


def test_factors_of_extents_are_positive() -> None:
    rows, columns = e.Var("rows", "int32"), e.Var("columns", "int32")
    result = arith.detect_iter_map(
        [i // columns, i % columns], {i: e.Range(0, rows * columns)}, check_level="bijective"
    )
    assert [total.args[0].extent for total in result.indices] == [rows, columns]


def test_levels_have_names() -> None:
    with pytest.raises(OneIRError, match="one of bijective, surjective, nocheck, found the iteration map level 'all'"):
        arith.detect_iter_map([i], {i: e.Range(0, 8)}, check_level="all")


@pytest.mark.parametrize("text", ["i // n", "i % n"])
def test_unknown_sizes_are_refused(text: str) -> None:
    assert arith.detect_iter_map([build(text, NAMES)], {i: e.Range(0, 8)}).errors


@pytest.mark.parametrize("text", ["(i + n) // 4", "(i + n) % 4", "(n * 6 + i) // 4", "(i * 2 + n * 2) // 8"])
def test_offsets_by_parameters_are_padding(text: str) -> None:
    index = build(text, NAMES)
    (total,) = arith.detect_iter_map([index], {i: e.Range(0, 8)}).indices
    (split,) = total.args
    for value in range(-9, 9):
        reached = {evaluate(index, {i: place, n: value}) for place in range(8)}
        low, extent, scale = (evaluate(part, {n: value}) for part in (total.base, split.extent, split.scale))
        assert reached == {low + scale * place for place in range(extent)}
    assert (
        "padding is not allowed" in arith.detect_iter_map([index], {i: e.Range(0, 8)}, True, Level.Bijective).errors[0]
    )


SIMPLIFIED = """
i: 8, j: 4 | (i * 4 + j) // 4, (i * 4 + j) % 4 -> (i * 4 + j) // 4, (i * 4 + j) % 4
i: 8, j: 4 | (i * 4 + j) // 8, (i * 4 + j) % 8 -> (i * 4 + j) // 8, (i * 4 + j) % 8
i: 8, j: 4 | (i * 4 + j) // 4 * 4 + (i * 4 + j) % 4 -> i * 4 + j
i: 32 | i // 4 * 4 + i % 4 -> i
i: 32 | i // 4 // 2 -> i // 8
i: 8, j: 4 | i + j -> i + j
i: 8, j: 16 | (i * 16 + j) // 32, (i * 16 + j) % 32 // 4, j % 4 -> i // 2, i % 2 * 4 + j // 4, j % 4
"""


@pytest.mark.parametrize("line", lines(SIMPLIFIED))
def test_iter_map_simplify(line: str) -> None:
    before, _, after = line.partition(" -> ")
    ranges, indices, _, _ = parsed(before)
    found = arith.iter_map_simplify(indices, domains(ranges))
    for index, expected in zip(found, _split(after), strict=True):
        assert structural_equal(index, build(expected, NAMES)), f"{index} is not {expected}"


@pytest.mark.parametrize(
    "text",
    [
        "i // (n * n) % 8 * (n * n) + i // n % n * n + i % n",
        "(i % (n * n * 8) // (n * n) * n + i % (n * n) // n) * n + i % n",
        "(i // (n * n) * n + i % (n * n) // n) * n + i % n",
    ],
)
def test_digits_by_powers_of_a_size_are_joined(text: str) -> None:
    index = build(text, NAMES)
    (found,) = arith.iter_map_simplify([index], {i: e.Range(0, n * n * 8)})
    assert found is i
    assert all(evaluate(index, {i: value, n: size}) == value for size in (1, 2, 3) for value in range(size * size * 8))
    # Of an extent that is no multiple of the square, the highest digit is cut off.
    (found,) = arith.iter_map_simplify([i // (n * n) % 8 * (n * n) + i % (n * n)], {i: e.Range(0, n * 8)})
    assert found is not i


def test_iter_map_simplify_without_the_predicate() -> None:
    found = arith.iter_map_simplify([(i * 4 + j) // 4, j], domains({i: (0, 7), j: (0, 3)}), i + j < 6)
    assert found[0] is i


def test_other_operations_end_the_search_in_an_index_and_not_in_the_predicate() -> None:
    ranges = domains({i: (0, 7), j: (0, 3)})
    simplified = arith.iter_map_simplify([(i * 4 + j) // 4, j], ranges, e.Min(i, j) < 3)
    assert [str(index) for index in simplified] == ["i", "j"]
    index = [(e.Min(i, j) * 4 + j) // 4]
    assert list(arith.iter_map_simplify(index, ranges, i + j < 6)) == index
    for predicate in (True, i < 6):
        reason = arith.detect_iter_map(index, ranges, predicate).errors[0]
        assert reason == "T.min(i, j) is no sum, multiple, quotient or remainder of iterators"


def test_iter_map_simplify_divides_terms_on_demand() -> None:
    found = arith.iter_map_simplify([(i * 4 + j) // 8], domains({i: (0, 7), j: (0, 3)}), fused_first=False)
    assert structural_equal(found[0], i // 2)


def test_iter_map_simplify_keeps_the_order_of_iterators_of_extent_one() -> None:
    ranges = domains({i: (0, 0), j: (0, 0), k: (0, 31)})
    total = k // 4 * 4 + k % 4
    for index, expected in ((i + j, "i + j"), (i + j + total, "k + i + j")):
        (found,) = arith.iter_map_simplify([index], ranges, simplify_trivial_iterators=False)
        assert structural_equal(found, build(expected, NAMES)), found


def test_iter_map_simplify_computes_in_the_dtype_of_the_index() -> None:
    wide = e.Var("wide", "int64")
    ranges = {i: e.Range(0, 8), j: e.Range(0, 4), wide: e.Range(e.const(0, "int64"), e.const(4, "int64"))}
    narrow, other = arith.iter_map_simplify([(i * 4 + j) // 2 * 2 + j % 2, wide], ranges)
    assert structural_equal(narrow, i * 4 + j)
    assert other is wide
    # A dividend that 32 bits may not hold is computed in 64.
    ranges[i] = e.Range(0, 1 << 30)
    (found, _) = arith.iter_map_simplify([(i * 4 + j) // 8, wide], ranges)
    assert found.dtype == "int32" and found.value.dtype == "int64"


def test_overlapping_terms_are_refused_on_demand() -> None:
    ranges = domains({i: (0, 7), j: (0, 3)})
    assert arith.detect_iter_map([i + j], ranges).indices[0].args[0].extent.value == 11
    assert "overlap or leave gaps" in arith.detect_iter_map([i + j], ranges, may_overlap=False).errors[0]


def test_normalize_to_iter_sum_takes_digits_of_the_iterator_itself() -> None:
    (split,) = arith.normalize_to_iter_sum(k // 5, domains({k: (0, 15)})).args
    assert split.source.source is k and (split.source.extent.value, split.extent.value) == (16, 4)
    assert structural_equal(arith.normalize_iter_map_to_expr(split), k // 5)
    # Digits of some digits are not those of the iterator: 13 % 12 // 5 is 0, and 13 // 5 % 3 is 2.
    total = arith.normalize_to_iter_sum(k % 12 // 5, domains({k: (0, 15)}))
    value = arith.normalize_iter_map_to_expr(total)
    assert [evaluate(value, {k: n}) for n in range(16)] == [n % 12 // 5 for n in range(16)]


def test_constants_of_nested_marks_are_one() -> None:
    ranges = domains({i: (0, 10), j: (0, 4), k: (0, 1)})
    condition = build("j * 2 + k >= 1 and i * 8 + j * 2 + k >= 3 and j * 2 + k < 9", NAMES)
    (total,) = arith.detect_iter_map([i * 8 + j * 2 + k], ranges, condition).indices
    assert str(arith.normalize_iter_map_to_expr(total)).count("+ -") <= 1


def test_normalize_to_iter_sum_orders_and_joins() -> None:
    ranges = domains({i: (0, 7), j: (0, 3), k: (0, 15)})
    total = arith.normalize_to_iter_sum(j + i * 4 + k // 4 * 400 + k % 4 * 100 + n, ranges)
    assert [arg.scale.value for arg in total.args] == [100, 4, 1]
    assert structural_equal(total.base, n)
    assert str(arith.normalize_iter_map_to_expr(total)) == "k * 100 + i * 4 + j + n"


def test_normalize_to_iter_sum_leaves_other_terms_in_the_base() -> None:
    total = arith.normalize_to_iter_sum(i * 4 + i * j, domains({i: (0, 7), j: (0, 3)}))
    assert [arg.scale.value for arg in total.args] == [4]
    assert structural_equal(total.base, i * j)


# -- random maps --


@st.composite
def maps(draw: Any) -> tuple[dict[e.Var, tuple[int, int]], list[Any], Any]:
    """Loops that are split, fused, moved, stretched, reordered and dropped, often not evenly; perhaps a predicate."""
    variables = [i, j, k][: draw(st.integers(1, 3))]
    ranges = {v: (low := draw(st.sampled_from([0, 0, 0, -2, 3])), low + draw(st.integers(0, 6))) for v in variables}
    parts: list[tuple[Any, int]] = [(v, high - low + 1) for v, (low, high) in ranges.items()]
    predicates = []
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(parts) - 1))
        expr, extent = parts[place]
        step = draw(st.sampled_from(["split", "split", "fuse", "fuse", "move", "stretch", "bound", "swap", "drop"]))
        if step == "split":
            factor = draw(st.integers(2, 4))
            parts[place : place + 1] = [(expr // factor, -(-extent // factor)), (expr % factor, factor)]
        elif step == "fuse" and place + 1 < len(parts):
            other, width = parts[place + 1]
            parts[place : place + 2] = [(expr * width + other, extent * width)]
        elif step == "move":
            parts[place] = (expr + draw(st.integers(-3, 5)), extent)
        elif step == "stretch":
            parts[place] = (expr * draw(st.sampled_from([2, 3, -1])), extent * 2)
        elif step == "bound":
            comparison = draw(st.sampled_from([e.LT, e.GE, e.LE, e.GT]))
            predicates.append(comparison(expr, draw(st.integers(0, max(1, extent)))))
        elif step == "swap":
            parts = parts[::-1]
        elif step == "drop" and len(parts) > 1:
            del parts[place]
    predicate: Any = True
    for condition in predicates[:2]:
        predicate = condition if predicate is True else e.And(predicate, condition)
    return ranges, [e.as_expr(expr) for expr, _ in parts], predicate


@given(maps(), st.sampled_from(list(Level)))
def test_claims_hold(case: Any, level: Level) -> None:
    ranges, indices, predicate = case
    result = arith.detect_iter_map(indices, domains(ranges), predicate, level)
    assume(not result.errors)
    assert_claim_holds(indices, ranges, predicate, level, result)


@given(maps())
def test_iter_map_simplify_keeps_the_values(case: Any) -> None:
    ranges, indices, predicate = case
    found = arith.iter_map_simplify(indices, domains(ranges), predicate, Level.NoCheck)
    for point in iterations(ranges, predicate):
        for before, after in zip(indices, found, strict=True):
            assert evaluate(before, point) == evaluate(after, point), f"{before} is not {after} at {point}"


@given(maps())
def test_normalize_to_iter_sum_keeps_the_values(case: Any) -> None:
    ranges, indices, _ = case
    for index in indices:
        written = arith.normalize_iter_map_to_expr(arith.normalize_to_iter_sum(index, domains(ranges)))
        for point in points(ranges):
            assert evaluate(index, point) == evaluate(written, point)


@given(maps())
def test_inverses_lead_back(case: Any) -> None:
    ranges, indices, predicate = case
    result = arith.detect_iter_map(indices, domains(ranges), predicate, Level.Bijective)
    assume(not result.errors)
    outputs = [e.Var(f"o{place}", "int32") for place in range(len(indices))]
    back = arith.inverse_affine_iter_map(result.indices, outputs)
    for point in iterations(ranges, predicate):
        values = {var: evaluate(index, point) for var, index in zip(outputs, indices, strict=True)}
        for var, expr in back.items():
            assert evaluate(expr, values) == point[var]
        assert {v for v, (low, high) in ranges.items() if low != high} <= back.keys() or predicate is not True


def test_inverse_of_a_sum_of_several_digits() -> None:
    total = arith.normalize_to_iter_sum(i * 4 + j + 3, domains({i: (0, 7), j: (0, 3)}))
    out = e.Var("out", "int32")
    back = arith.inverse_affine_iter_map([total], [out])
    for value in range(32):
        assert (evaluate(back[i], {out: value + 3}), evaluate(back[j], {out: value + 3})) == divmod(value, 4)


def test_inverse_of_a_sum_with_a_digit_of_extent_one() -> None:
    one = e.const(1)
    digits = [arith.IterSplitExpr(arith.IterMark(v, e.const(n)), one, e.const(n), one) for v, n in ((i, 32), (j, 1))]
    out = e.Var("out", "int32")
    for order in (digits, digits[::-1]):
        back = arith.inverse_affine_iter_map([arith.IterSumExpr(order, e.const(0))], [out])
        assert [(evaluate(back[i], {out: n}), evaluate(back[j], {out: n})) for n in range(32)] == [
            (n, 0) for n in range(32)
        ]


def test_inverse_refuses_overlapping_digits() -> None:
    total = arith.normalize_to_iter_sum(i * 2 + j, domains({i: (0, 7), j: (0, 3)}))
    with pytest.raises(OneIRError, match="overlap or leave gaps"):
        arith.inverse_affine_iter_map([total], [i])


def test_inverse_refuses_a_wrong_number_of_outputs() -> None:
    result = arith.detect_iter_map([i], domains({i: (0, 7)}))
    with pytest.raises(OneIRError, match="has 1 indices, found 2 outputs"):
        arith.inverse_affine_iter_map(result.indices, [i, j])


# -- dividing spaces --

DIVIDED = """
i: 8, j: 4 | i * 4 + j | j -> i, 8 ; j, 4
i: 8, j: 4 | i * 4 + j + 5 | j -> i, 8 ; j + 5, 4
i: 8, j: 4, k: 3 | i * 12 + j * 3 + k | j k -> i, 8 ; j * 3 + k, 12
i: 8, j: 4, k: 3 | i * 12 + j * 3 + k | k -> i * 4 + j, 32 ; k, 3
i: 8, j: 4, k: 3 | i, j * 3 + k | k -> i, 8 ; 0, 1 ; j, 4 ; k, 3
i: 8, j: 8 | (i * 8 + j) // 4, (i * 8 + j) % 4 | j -> i, 8 ; j // 4, 2 ; 0, 1 ; j % 4, 4
i: 8, j: 4 | 5, i * 4 + j | i j -> 0, 1 ; 5, 1 ; 0, 1 ; i * 4 + j, 32
"""
UNDIVIDED = """
i: 8, j: 4 | i * 4 + j | i
i: 8, j: 4 | i + j | j
i: 8, j: 4 | i * 4 + j if i * 4 + j < 30 | j
i: 8, j: 4 | i * 8 + j * 2 | j
"""


def divided(line: str) -> tuple[Any, list[Any], Any, Any, list[Any]]:
    left, _, names = line.rpartition(" | ")
    ranges, indices, predicate, _ = parsed(left)
    inner = [NAMES[name] for name in names.split()]
    return ranges, indices, inner, predicate, list(arith.subspace_divide(indices, domains(ranges), inner, predicate))


@pytest.mark.parametrize("line", lines(DIVIDED))
def test_subspace_divide(line: str) -> None:
    before, _, after = line.partition(" -> ")
    *_, pairs = divided(before)
    marks = [mark for pair in pairs[:-1] for mark in pair]
    for mark, expected in zip(marks, after.split(" ; "), strict=True):
        text, extent = _split(expected)
        assert structural_equal(arith.normalize_iter_map_to_expr(mark.source), build(text, NAMES))
        assert mark.extent.value == int(extent)


@pytest.mark.parametrize("line", lines(UNDIVIDED))
def test_subspace_divide_refuses(line: str) -> None:
    assert divided(line)[-1] == []


def test_subspace_divide_keeps_iterators_of_extent_one_when_asked_for() -> None:
    ranges = domains({i: (0, 0), j: (0, 15)})
    pairs = arith.subspace_divide([i * 16 + j], ranges, [j], simplify_trivial_iterators=False)
    assert [arith.normalize_iter_map_to_expr(mark.source) for mark in pairs[0]] == [i, j]


def test_subspace_divide_separates_predicates() -> None:
    conditions = e.And(i * 4 + j < 18, k < 2)
    iters = domains({i: (0, 7), j: (0, 3), k: (0, 2)})
    pairs = arith.subspace_divide([i * 4 + j, k], iters, [k], conditions)
    outer, inner = pairs[-1]
    assert structural_equal(outer.extent, conditions.a)
    assert structural_equal(inner.extent, conditions.b)


@given(maps(), st.sets(st.sampled_from([i, j, k])))
def test_divided_parts_put_together_are_the_whole(case: Any, inner: set[e.Var]) -> None:
    ranges, indices, predicate = case
    pairs = arith.subspace_divide(indices, domains(ranges), inner, predicate)
    assume(len(pairs) > 0)
    for index, (outside, inside) in zip(indices, pairs[:-1], strict=True):
        parts = [arith.normalize_iter_map_to_expr(mark.source) for mark in (outside, inside)]
        for point in iterations(ranges, predicate):
            high, low = (evaluate(part, point) for part in parts)
            assert high * inside.extent.value + low == evaluate(index, point)
        for part, own in zip(parts, (set(ranges) - inner, inner & set(ranges)), strict=True):
            used: set[Any] = set()
            _variables(part, used)
            assert used <= own
    outer_condition, inner_condition = (mark.extent for mark in pairs[-1])
    for point in points(ranges):
        whole = predicate is True or bool(evaluate(predicate, point))
        assert whole == bool(evaluate(outer_condition, point) and evaluate(inner_condition, point))


def _variables(expr: Any, found: set[Any]) -> None:
    if isinstance(expr, e.Var):
        found.add(expr)
    expr.visit_children(lambda child: _variables(child, found))


def test_the_parts_of_a_map() -> None:
    result = arith.detect_iter_map([i // 4 * 2 + j], {i: e.Range(0, 8), j: e.Range(0, 2)})
    assert isinstance(result, arith.IterMapResult) and not result.errors
    (total,) = result.indices
    assert isinstance(total, arith.IterSumExpr) and isinstance(total, arith.IterMapExpr)
    # Digits that fill a number are one mark.
    (whole,) = total.args
    assert isinstance(whole.source.source, arith.IterSumExpr) and int(whole.source.extent) == 4
    outer, inner = whole.source.source.args
    assert all(isinstance(s, arith.IterSplitExpr) and isinstance(s, arith.IterMapExpr) for s in (outer, inner))
    assert isinstance(outer.source, arith.IterMark) and outer.source.source is i
    assert [int(v) for v in (outer.lower_factor, outer.extent, outer.scale, outer.source.extent)] == [4, 2, 2, 8]
    assert (inner.source.source, int(inner.scale), int(total.base)) == (j, 1, 0)
    failed = arith.detect_iter_map([i * i], {i: e.Range(0, 8)})
    assert isinstance(failed, arith.IterMapResult) and not failed.indices and failed.errors
