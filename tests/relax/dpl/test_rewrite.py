"""Replacing what matches: expressions, tuples that are none, whole contexts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from oneir import IRModule, relax
from oneir.ir.structural import assert_structural_equal
from oneir.relax import dpl
from oneir.relax.analysis import verify_well_formed
from oneir.relax.dpl import (
    PatternContext,
    PatternMatchingRewriter,
    is_const,
    is_op,
    is_tuple,
    rewrite_bindings,
    rewrite_call,
    wildcard,
)
from oneir.relax.struct_info import TensorStructInfo
from oneir.runtime.error import InvalidValue, TypeMismatch
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass
from oneir.testing.numerics import assert_same_numbers


def check(rewriter: PatternMatchingRewriter, before: relax.Function, expected: relax.Function) -> None:
    check_pass(rewriter, named(before), named(expected))


def named(func: relax.Function) -> relax.Function:
    return func.with_attr("global_symbol", "main")


def rule(pattern: dpl.DFPattern, func: Callable[[Any, Any], Any]) -> PatternMatchingRewriter:
    return PatternMatchingRewriter.from_pattern(pattern, func)


x = wildcard()
PLUS_ITSELF = is_op("relax.add")(x, x)


def twice(expr: Any, found: Any) -> Any:
    return R.multiply(found[x], R.const(2.0, "float32"))


TWICE = rule(PLUS_ITSELF, twice)


def test_kinds_of_rewriters() -> None:
    one = dpl.ExprPatternRewriter(PLUS_ITSELF, twice)
    both = one | rule(is_op("relax.exp")(x), lambda expr, found: found[x])
    assert isinstance(TWICE, dpl.ExprPatternRewriter) and isinstance(one, PatternMatchingRewriter)
    assert isinstance(both, dpl.OrRewriter) and not isinstance(both, dpl.ExprPatternRewriter)

    @R.function
    def before(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.add(a, a)
            gv = R.exp(lv)
            R.output(gv)
        return gv

    operators = [
        [b.value.op.name for b in rewriter(before).body.blocks[0].bindings if isinstance(b.value, relax.Call)]
        for rewriter in (one, both)
    ]
    assert operators == [["relax.multiply", "relax.exp"], ["relax.multiply"]]


def test_a_call_is_replaced_wherever_it_stands() -> None:
    @R.function
    def before(a: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            lv = R.add(a, a)
            gv = R.exp(lv)
            R.output(gv)
        if c:
            t = R.add(gv, gv)
            r = t
        else:
            t = R.tanh(gv)
            r = t
        return r

    @R.function
    def expected(a: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            lv = R.multiply(a, R.const(2.0, "float32"))
            gv = R.exp(lv)
            R.output(gv)
        if c:
            r = R.multiply(gv, R.const(2.0, "float32"))
        else:
            r = R.tanh(gv)
        return r

    assert_structural_equal(named(rewrite_call(PLUS_ITSELF, twice, before)), named(expected))
    check(TWICE, before, expected)


def test_what_does_not_match_comes_back_as_it_is() -> None:
    @R.function
    def main(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.add(a, b)
            gv = R.add(lv, a)
            R.output(gv)
        return gv

    assert TWICE(main) is main
    mod = IRModule({"main": main})
    assert TWICE(mod) is mod
    keep = rule(is_op("relax.add")(wildcard(), wildcard()), lambda expr, found: expr)
    assert keep(main) is main
    assert rule(is_op("relax.add")(wildcard(), wildcard()), lambda expr, found: None)(main) is main


def test_one_replacement_makes_way_for_the_next() -> None:
    # exp(log(exp(log(a)))): the inner pair goes first, which brings the outer pair together.
    inner = wildcard()
    cancel = rule(is_op("relax.exp")(is_op("relax.log")(inner)), lambda expr, found: found[inner])

    @R.function
    def before(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.abs(a)
            lv1 = R.log(lv)
            lv2 = R.exp(lv1)
            lv3 = R.log(lv2)
            gv = R.exp(lv3)
            R.output(gv)
        return gv

    @R.function
    def expected(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            gv = R.abs(a)
            R.output(gv)
        return gv

    check(cancel, before, expected)


def test_effects_keep_their_places() -> None:
    @R.function(pure=False)
    def before(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        b = R.add(a, a)
        R.print(b, format="b: {}")
        c = R.add(b, b)
        return c

    @R.function(pure=False)
    def expected(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        b = R.multiply(a, R.const(2.0, "float32"))
        R.print(b, format="b: {}")
        c = R.multiply(b, R.const(2.0, "float32"))
        return c

    assert_structural_equal(named(TWICE(before)), named(expected))


def test_the_second_of_two_rules_gets_what_the_first_keeps() -> None:
    a, b = wildcard(), wildcard()
    total, product = is_op("relax.add")(a, b), is_op("relax.multiply")(a, b)
    either = total | product

    def change(expr: Any, found: Any) -> Any:
        assert found[either] is expr
        return R.subtract(found[a], found[b]) if product in found else None

    @R.function
    def before(p: R.Tensor((4,), "float32"), q: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.add(p, q)
            gv = R.multiply(lv, q)
            R.output(gv)
        return gv

    @R.function
    def expected(p: R.Tensor((4,), "float32"), q: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.add(p, q)
            gv = R.subtract(lv, q)
            R.output(gv)
        return gv

    assert_structural_equal(named(rule(either, change)(before)), named(expected))
    both = rule(is_op("relax.exp")(a), lambda e, f: R.tanh(f[a])) | rule(product, change_product(a, b))
    assert isinstance(both, dpl.OrRewriter)
    assert_structural_equal(named(both(before)), named(expected))


def change_product(a: dpl.DFPattern, b: dpl.DFPattern) -> Callable[[Any, Any], Any]:
    return lambda expr, found: R.subtract(found[a], found[b])


def qkv() -> tuple[dpl.DFPattern, Callable[[Any, Any], Any]]:
    data, first, second = wildcard(), wildcard(), wildcard()
    pair = is_tuple([is_op("relax.matmul")(data, first), is_op("relax.matmul")(data, second)])

    def together(expr: Any, found: Any) -> Any:
        weights = R.concat([found[first], found[second]], axis=1)
        return R.split(R.matmul(found[data], weights), indices_or_sections=2, axis=1)

    return pair, together


def test_values_that_no_tuple_holds_are_replaced_together() -> None:
    @R.function
    def before(
        a: R.Tensor(("n", 8), "float32"), p: R.Tensor((8, 4), "float32"), q: R.Tensor((8, 4), "float32")
    ) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            lv = R.matmul(a, p)
            lv1 = R.matmul(a, q)
            gv = R.add(lv, lv1)
            R.output(gv)
        return gv

    @R.function
    def expected(
        a: R.Tensor(("n", 8), "float32"), p: R.Tensor((8, 4), "float32"), q: R.Tensor((8, 4), "float32")
    ) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            w = R.concat((p, q), axis=1)
            lv = R.matmul(a, w)
            s = R.split(lv, indices_or_sections=2, axis=1)
            lv1 = s[0]
            lv2 = s[1]
            gv = R.add(lv1, lv2)
            R.output(gv)
        return gv

    check(rule(*qkv()), before, expected)


def test_an_actual_tuple_is_replaced_as_one_value() -> None:
    @R.function
    def before(
        a: R.Tensor((2, 8), "float32"), p: R.Tensor((8, 4), "float32"), q: R.Tensor((8, 4), "float32")
    ) -> R.Tuple(R.Tensor((2, 4), "float32"), R.Tensor((2, 4), "float32")):
        with R.dataflow():
            lv = R.matmul(a, p)
            lv1 = R.matmul(a, q)
            R.output(lv, lv1)
        return (lv, lv1)

    after = rule(*qkv())(before)
    calls = [b.value.op.name for block in after.body.blocks for b in block.bindings if isinstance(b.value, relax.Call)]
    assert calls == ["relax.concat", "relax.matmul", "relax.split"]


def test_what_is_used_between_is_not_moved() -> None:
    @R.function
    def main(a: R.Tensor((2, 4), "float32"), p: R.Tensor((4, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            lv = R.matmul(a, p)
            lv1 = R.exp(lv)
            lv2 = R.matmul(a, p)
            gv = R.add(lv1, lv2)
            R.output(gv)
        return gv

    assert rule(*qkv())(main) is main


def test_a_replacement_may_use_what_is_bound_later() -> None:
    a = wildcard()
    seen: dict[str, relax.Var] = {}

    @R.function
    def before(p: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.exp(p)
            lv1 = R.tanh(p)
            gv = R.add(lv, lv1)
            R.output(gv)
        return gv

    @R.function
    def expected(p: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv1 = R.tanh(p)
            lv = R.negative(lv1)
            gv = R.add(lv, lv1)
            R.output(gv)
        return gv

    seen["tanh"] = before.body.blocks[0].bindings[1].var
    later = rule(is_op("relax.exp")(a), lambda expr, found: R.negative(seen["tanh"]))
    assert_structural_equal(named(later(before)), named(expected))


def test_a_context_is_replaced_block_by_block() -> None:
    with PatternContext() as ctx:
        data, first, second = wildcard(), wildcard(), wildcard()
        left, right = is_op("relax.matmul")(data, first), is_op("relax.matmul")(data, second)

    def change(found: Any, values: Any) -> Any:
        weights = R.concat([found[first], found[second]], axis=1)
        product = R.matmul(found[data], weights)
        width = found[first].struct_info.shape[1]
        return {
            found[left]: R.strided_slice(product, axes=[1], begin=[0], end=[width]),
            found[right]: R.strided_slice(product, axes=[1], begin=[width], end=[width * 2]),
        }

    @R.function
    def before(
        a: R.Tensor((2, 8), "float32"), p: R.Tensor((8, 4), "float32"), q: R.Tensor((8, 4), "float32")
    ) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            lv = R.matmul(a, p)
            lv1 = R.matmul(a, q)
            gv = R.add(lv, lv1)
            R.output(gv)
        return gv

    @R.function
    def expected(
        a: R.Tensor((2, 8), "float32"), p: R.Tensor((8, 4), "float32"), q: R.Tensor((8, 4), "float32")
    ) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            w = R.concat((p, q), axis=1)
            product = R.matmul(a, w)
            lv = R.strided_slice(product, axes=[1], begin=[0], end=[4])
            lv1 = R.strided_slice(product, axes=[1], begin=[4], end=[8])
            gv = R.add(lv, lv1)
            R.output(gv)
        return gv

    after = rewrite_bindings(ctx, change, before)
    assert_structural_equal(named(after), named(expected))
    assert rewrite_bindings(ctx, change, after) is after
    assert rewrite_bindings(ctx, lambda found, values: {}, before) is before


def test_another_dtype_reaches_the_users() -> None:
    a = wildcard()
    half = rule(is_op("relax.exp")(a.has_dtype("float32")), lambda expr, found: R.exp(R.astype(found[a], "float16")))

    @R.function
    def before(p: R.Tensor((4,), "float32")) -> R.Tensor(ndim=1):
        with R.dataflow():
            lv = R.exp(p)
            gv = R.negative(lv)
            R.output(gv)
        return gv

    after = half(before)
    assert after.body.body.struct_info.dtype == "float16"


def test_an_expression_becomes_a_body() -> None:
    v = relax.Var("v", R.Tensor((4,), "float32"))
    after = TWICE(R.add(v, v))
    assert isinstance(after, relax.SeqExpr)
    assert [b.value.op.name for b in after.blocks[0].bindings] == ["relax.multiply"]
    kept = R.exp(v)
    assert TWICE(kept) is kept


def test_refusals() -> None:
    v = relax.Var("v", R.Tensor((4,), "float32"))
    many = dpl.TupleRewriter([wildcard()] * 4, lambda expr, found: expr)
    with pytest.raises(InvalidValue, match=r"a tuple of 4 fields is looked for.*at most 3"):
        many(R.exp(R.exp(v)))
    with pytest.raises(TypeMismatch, match="a rewriter is applied to a module or a graph expression, found int"):
        many(3)
    pair = is_tuple([is_op("relax.exp")(wildcard()), is_op("relax.tanh")(wildcard())])
    short = rule(pair, lambda expr, found: relax.Tuple([v]))
    with pytest.raises(InvalidValue, match="2 values are replaced together, but by a tuple of 1"):
        short(R.add(R.exp(v), R.tanh(v)))


def test_a_rule_that_matches_its_own_result_is_an_error() -> None:
    v = relax.Var("v", R.Tensor((4,), "float32"))
    c = is_const()
    grow = rule(is_op("relax.add")(wildcard(), c), lambda e, f: R.add(v, R.const(f[c].data.numpy() + 1)))
    with pytest.raises(InvalidValue, match="after 1000 rounds the rewriter still finds something to replace"):
        grow(R.add(v, R.const(1.0, "float32")))


def test_a_value_that_uses_itself_is_refused() -> None:
    @R.function
    def main(p: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.exp(p)
            gv = R.tanh(lv)
            R.output(gv)
        return gv

    out = main.body.body
    circle = rule(is_op("relax.exp")(wildcard()), lambda expr, found: R.negative(out))
    with pytest.raises(InvalidValue, match="binds to `lv`, `gv` uses itself"):
        circle(main)


def test_loops_are_left_alone() -> None:
    @T.prim_func
    def loops(a: T.Buffer((4,), "float32")):
        for i in range(4):
            a[i] = 0.0

    mod = IRModule({"loops": loops})
    assert TWICE(mod) is mod


def random_function(rng: random.Random, size: int) -> IRModule:
    """A function with branches, dataflow blocks and other ones."""
    builder = relax.BlockBuilder()
    params = [relax.Var(name, TensorStructInfo((2, 2), "int32")) for name in "xy"]

    def steps(values: list[Any], count: int) -> None:
        for _ in range(count):
            op = rng.choice(["negative", "negative", "add", "add", "multiply", "abs"])
            args = [rng.choice(values[-4:]) for _ in range(2 if op in ("add", "multiply") else 1)]
            values.append(builder.emit(getattr(relax.op, op)(*args)))

    with builder.function("main", list(params)):
        values: list[Any] = list(params)
        for _ in range(3):
            if rng.random() < 0.6:
                with builder.dataflow():
                    inside = list(values)
                    steps(inside, size)
                    values.append(builder.emit_output(inside[-1]))
            else:
                steps(values, size)
        builder.emit_func_output(relax.Tuple([values[-1], values[-2]]) if rng.random() < 0.5 else values[-1])
    return builder.get()


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_replaced_the_program_computes_the_same(seed: int) -> None:
    a, b, c = wildcard(), wildcard(), wildcard()
    negative, add, multiply = (is_op(f"relax.{name}") for name in ("negative", "add", "multiply"))
    both = is_tuple([add(a, b), multiply(a, b)])

    def product(x: Any, y: Any) -> Any:
        return R.einsum((x, y), "ij,ij->ij")

    rules = [
        rule(negative(negative(a)), lambda e, f: f[a]),
        rule(add(a, a), lambda e, f: R.multiply(f[a], R.const(2, "int32"))),
        rule(add(a, negative(b)), lambda e, f: R.subtract(f[a], f[b])),
        rule(add(multiply(a, b), multiply(a, c)), lambda e, f: R.multiply(f[a], R.subtract(f[b], R.negative(f[c])))),
        rule(both, lambda e, f: R.split(R.concat([R.subtract(f[a], R.negative(f[b])), product(f[a], f[b])]), 2)),
    ]
    rng = random.Random(seed)
    mod = random_function(rng, 6)
    chosen = rng.sample(rules, 2)
    for rewriter in (*chosen, chosen[0] | chosen[1]):
        after = rewriter(mod)
        verify_well_formed(after)
        assert_same_numbers(mod, after, entry="main")
        assert rewriter(after) is after
