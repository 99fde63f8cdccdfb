"""When two programs are one: bound variables by place, free ones by identity; where they differ; equal digests."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from oneir import tir
from oneir.ir import (
    IRModule,
    assert_structural_equal,
    get_first_structural_mismatch,
    structural_equal,
    structural_hash,
)
from oneir.ir.access_path import AccessKind, AccessPath
from oneir.ir.attrs import DictAttrs
from oneir.ir.expr import Add, FloatImm, IntImm, Let, Var, const
from oneir.ir.span import SourceName, Span
from oneir.ir.structural import StructuralMismatch, exact_digest, structural_digest
from oneir.script import tir as T


def scale(name="scale", factor=2.0, extent=8, first="A", loop="i"):
    """`B[i] = A[i] * factor`, with chosen names."""
    a, b = tir.decl_buffer((extent,), "float32", first), tir.decl_buffer((extent,), "float32", "B")
    i = Var(loop, "int32")
    body = tir.For(i, 0, extent, tir.ForKind.SERIAL, tir.BufferStore(b, a[i] * factor, [i]))
    return tir.PrimFunc([a, b], body).with_attr("global_symbol", name)


def same(a, b, **options):
    """Equality, which the hash must follow."""
    equal = structural_equal(a, b, **options)
    assert structural_equal(b, a, **options) == equal
    if equal:
        assert structural_hash(a, **options) == structural_hash(b, **options)
    return equal


def test_names_of_bound_variables_and_buffers_do_not_matter():
    assert same(scale(), scale(first="X", loop="j"))


@pytest.mark.parametrize("other", [{"factor": 3.0}, {"extent": 9}, {"name": "other"}])
def test_what_does_matter(other):
    assert not same(scale(), scale(**other))
    assert structural_hash(scale()) != structural_hash(scale(**other))


def test_free_variables_are_themselves_unless_mapped():
    x, y, z = (Var(n, "int32") for n in "xyz")
    assert same(x + y, x + y) and not same(x + y, x + z)
    assert same(x + y, y + z, map_free_vars=True)
    assert not same(x + y, z + z, map_free_vars=True) and not same(x + x, y + z, map_free_vars=True)
    assert not same(x + 1, Var("w", "int64") + 1, map_free_vars=True)


def test_binders_are_of_one_kind_and_one_type():
    x, w = Var("x", "int32"), Var("x", "int64")
    a, b = Let(x, const(1), x + 1), Let(w, const(1, "int64"), w + 1)
    assert not same(a, b)
    y = Var("y", "int32")
    assert same(a, Let(y, const(1), y + 1)) and not same(a, Let(y, const(1), x + 1))
    assert not same(Let(x, const(1), x + y), Let(y, const(1), y + y))


def test_buffers_correspond_one_to_one():
    def copy(swapped):
        a, b = tir.decl_buffer((4,), "float32", "A"), tir.decl_buffer((4,), "float32", "B")
        source, target = (b, a) if swapped else (a, b)
        return tir.PrimFunc([a, b], tir.BufferStore(target, source[0], [0]))

    assert same(copy(False), copy(False)) and not same(copy(False), copy(True))


def test_a_shape_defines_its_variables():
    def total(name):
        n = Var(name, "int32")
        a = tir.decl_buffer((n, n), "float32", "A")
        return tir.PrimFunc([a], tir.BufferStore(a, a[0, n - 1], [n - 1, 0]))

    assert same(total("n"), total("m"))


def test_zeros_have_a_sign_and_nan_is_nan():
    zero, minus, nan = (FloatImm("float32", v) for v in (0.0, -0.0, float("nan")))
    assert not same(zero, minus) and structural_hash(zero) != structural_hash(minus)
    assert same(nan, FloatImm("float32", -float("nan"))) and not same(nan, zero)
    assert not same(zero, FloatImm("float64", 0.0))
    facts = [DictAttrs({"v": v}) for v in (0.0, -0.0, float("nan"))]
    assert same(facts[2], DictAttrs({"v": float("nan")})) and not same(facts[0], facts[1])


def test_plain_values_are_of_one_type():
    assert not same(DictAttrs({"v": 1}), DictAttrs({"v": True})) and not same(
        DictAttrs({"v": 1}), DictAttrs({"v": 1.0})
    )
    assert same(DictAttrs({"a": 1, "b": (2, "x")}), DictAttrs({"b": (2, "x"), "a": 1}))
    assert not same(DictAttrs({"a": 1}), DictAttrs({"a": 1, "b": 2}))


def test_arrays_are_compared_bit_by_bit():
    a = DictAttrs({"v": np.array([1.0, np.nan], "float32")})
    assert same(a, DictAttrs({"v": np.array([1.0, np.nan], "float32")}))
    for other in (
        np.array([1.0, np.nan], "float64"),
        np.array([[1.0, np.nan]], "float32"),
        np.array([1.0, 2.0], "float32"),
    ):
        assert not same(a, DictAttrs({"v": other}))


def test_digests_read_what_is_in_arrays():
    values = np.arange(6, dtype="float32").reshape(2, 3)
    a, transposed = DictAttrs({"v": values}), DictAttrs({"v": np.ascontiguousarray(values.T).T})
    other = DictAttrs({"v": values + 1})
    assert structural_digest(a) == structural_digest(transposed) != structural_digest(other)


def test_functions_of_a_module_are_matched_by_name():
    one = IRModule({"f": scale(), "g": scale(factor=3.0)})
    assert same(one, IRModule({"g": scale(factor=3.0, loop="q"), "f": scale()}))
    assert not same(one, IRModule({"f": scale(factor=3.0), "g": scale()}))
    assert not same(one, IRModule({"f": scale(), "h": scale(factor=3.0)}))


ROOT = AccessPath.root()


def test_the_first_difference_has_a_path():
    x = Var("x", "int32")
    assert get_first_structural_mismatch(x + 1, x + 1) is None
    value = ROOT.attr("b").attr("value")
    assert get_first_structural_mismatch(x + 1, x + 2) == (value, value)
    path, _ = get_first_structural_mismatch(scale(), scale(factor=3.0))
    assert str(path) == "<root>.body.body.value.b"
    assert get_first_structural_mismatch(tir.Evaluate(x), x)[0] == ROOT
    sequences = [tir.SeqStmt([tir.Evaluate(x), tir.Evaluate(x + k)]) for k in (1, 2)]
    assert str(get_first_structural_mismatch(*sequences)[0]) == "<root>.seq[1].value.b.value"
    functions = [tir.PrimFunc([Var("y", dtype)], tir.Evaluate(0)) for dtype in ("int32", "float32")]
    path = ROOT.attr("params").array_item(0).attr("dtype")
    assert get_first_structural_mismatch(*functions) == (path, path)


def test_what_only_one_side_has_is_missing_on_the_other():
    here, missing = ROOT.array_item(2), ROOT.array_item_missing(2)
    assert get_first_structural_mismatch([1, 2, 3], [1, 2]) == (here, missing)
    assert get_first_structural_mismatch([1, 2], [1, 2, 3]) == (missing, here)
    assert get_first_structural_mismatch([1, 2], [1, 3, 4]) == (ROOT.array_item(1), ROOT.array_item(1))
    here, missing = ROOT.map_item("b"), ROOT.map_item_missing("b")
    assert get_first_structural_mismatch({"a": 1, "b": 2}, {"a": 1}) == (here, missing)
    assert get_first_structural_mismatch({"a": 1}, {"a": 1, "b": 2}) == (missing, here)
    assert str(missing) == "<root>[<missing entry 'b'>]"


def test_paths_are_values():
    path = ROOT.attr("body").array_item(1).map_item("k")
    assert path == AccessPath(path.to_steps()) and hash(path) == hash(AccessPath(path.to_steps()))
    assert path.parent == ROOT.attr("body").array_item(1) and path.step.kind is AccessKind.MAP_ITEM
    assert ROOT.parent is None and ROOT.step is None and (ROOT.depth, path.depth) == (0, 3)
    assert ROOT.attr("body").is_prefix_of(path) and not path.is_prefix_of(ROOT.attr("body"))
    assert ROOT.attr("x") != ROOT.attr_missing("x") and str(path) == "<root>.body[1]['k']"


def test_a_failed_assertion_shows_the_difference_and_both_programs():
    assert_structural_equal(scale(), scale(loop="j"))
    with pytest.raises(StructuralMismatch) as raised:
        assert_structural_equal(scale(), scale(extent=9))
    text = str(raised.value)
    assert text.startswith("StructuralEqual check failed, caused by lhs at <root>.buffer_map[")
    left, right = text.split("\nand rhs at <root>")
    for side, extent in ((left, "8"), (right, "9")):
        line = next(i for i, text in enumerate(side.splitlines()) if text.strip() == "^")
        code, carets = side.splitlines()[line - 1 : line + 1]
        assert code[carets.index("^")] == extent


def test_spans_are_outside_of_equality():
    source = "@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    A[0] = A[1] + 1.0\n"
    from oneir.script import from_source

    assert same(from_source(source), from_source("\n\n" + source))


def test_any_depth():
    x = Var("x", "int32")

    def deep():
        expr = x
        for _ in range(30_000):
            expr = Add(expr, IntImm("int32", 1))
        return expr

    assert same(deep(), deep())


def test_the_digest_is_the_same_in_every_process():
    @T.prim_func
    def f(A: T.Buffer((8, 8), "float32"), n: T.int32):
        T.func_attr({"global_symbol": "f", "tir.noalias": True, "b": 1, "a": "x"})
        for i in T.serial(8, annotations={"z": 1, "y": 2}):
            with T.block("b"):
                vi = T.axis.spatial(8, i)
                A[vi, n] = T.exp(A[vi, 0]) + T.float32(0.5)

    script = (
        "from oneir.script import from_source\nfrom oneir.ir.structural import structural_digest\n"
        f"print(structural_digest(from_source({f.script()!r})).hex())"
    )
    digests = set()
    for seed in ("0", "1", "7"):
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        )
        digests.add(done.stdout.strip())
    assert digests == {structural_digest(f).hex()}


def test_exact_digests_tell_names_and_spans_apart():
    n, m = (Var(name, "int32") for name in "nm")
    assert structural_digest(n, True) == structural_digest(m, True)
    assert exact_digest(n, 0) != exact_digest(m, 0)
    here, there = (Span(SourceName("model.py"), line, line, 1, 2) for line in (1, 2))
    a, b = (Add(n, n, span) for span in (here, there))
    assert structural_digest(a) == structural_digest(b)
    assert exact_digest(a, 0) == exact_digest(Add(n, n, here), 0) != exact_digest(b, 0)


def test_exact_digests_refuse_what_they_cannot_tell_apart():
    assert exact_digest([{"value": object()}], 0) is None
    assert exact_digest([{"value": 1}], 0) != exact_digest([{"value": True}], 0)
    weight = np.zeros(4, "float32")
    assert exact_digest([weight], 15) is None
    assert exact_digest([weight], 16) is not None


def test_digests_of_shared_arrays_are_by_place():
    one, two = np.arange(4.0), np.arange(4.0) + 1
    views = [one, one[::-1], one.reshape(2, 2), one.view("int64")]
    assert len({structural_digest([view, one]) for view in views}) == len(views)
    assert structural_digest([one, two, one]) == structural_digest([one.copy(), two, one.copy()])
    assert structural_digest([one, two, one]) != structural_digest([two, one, one])
