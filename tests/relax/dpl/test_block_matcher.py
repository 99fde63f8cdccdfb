"""Patterns of a whole block: the variable of each, under all constraints between them."""

from __future__ import annotations

import itertools
import random

import pytest

from oneir import relax
from oneir.relax.dpl import PatternContext, PatternSeq, is_op, is_var, wildcard
from oneir.relax.struct_info import TensorStructInfo
from oneir.runtime.error import InvalidValue
from oneir.script import relax as R


@R.function
def diamond(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
    with R.dataflow():
        lv = R.matmul(x, w)
        left = R.nn.relu(lv)
        right = R.sigmoid(lv)
        both = R.add(left, right)
        gv = R.exp(both)
        R.output(gv)
    return gv


BLOCK = diamond.body.blocks[0]
VAR = {binding.var.name: binding.var for binding in BLOCK.bindings} | {p.name: p for p in diamond.params}


def names(found: dict | None, *patterns: object) -> list[str] | None:
    return None if found is None else [found[p].name for p in patterns]


def test_calling_a_pattern_in_a_context_connects_it() -> None:
    with PatternContext() as ctx:
        a, b = wildcard(), wildcard()
        product = is_op("relax.matmul")(a, b)
        relu, sigmoid = is_op("relax.nn.relu")(product), is_op("relax.sigmoid")(product)
        total = is_op("relax.add")(relu, sigmoid)
    found = ctx.match_dfb(BLOCK)
    assert names(found, a, b, product, relu, sigmoid, total) == ["x", "w", "lv", "left", "right", "both"]


def test_chains_and_forks() -> None:
    with PatternContext() as ctx:
        product = is_op("relax.matmul")(wildcard(), wildcard(), add_constraint=False)
        relu = is_op("relax.nn.relu")(wildcard(), add_constraint=False)
        sigmoid = is_op("relax.sigmoid")(wildcard(), add_constraint=False)
        total = is_op("relax.add")(wildcard(), wildcard(), add_constraint=False)
        product.fork_to(relu, sigmoid)
        relu >> total
        sigmoid ^ total ^ is_op("relax.exp")(wildcard(), add_constraint=False)
    assert names(ctx.match_dfb(BLOCK), product, relu, sigmoid, total) == ["lv", "left", "right", "both"]


def test_what_must_be_the_only_user() -> None:
    for only, expected in ((False, ["lv", "left"]), (True, None)):
        with PatternContext() as ctx:
            product = is_op("relax.matmul")(wildcard(), wildcard(), add_constraint=False)
            relu = is_op("relax.nn.relu")(wildcard(), add_constraint=False)
            PatternSeq([product, relu], only_use=only)
        assert names(ctx.match_dfb(BLOCK), product, relu) == expected


def test_the_place_of_an_argument() -> None:
    for place, expected in ((-1, ["x", "lv"]), (0, ["x", "lv"]), (1, None), (7, None)):
        with PatternContext() as ctx:
            data, product = is_var("x"), is_op("relax.matmul")(wildcard(), wildcard(), add_constraint=False)
            data.used_by(product, place)
        assert names(ctx.match_dfb(BLOCK), data, product) == expected


def test_each_pattern_has_a_variable_of_its_own() -> None:
    @R.function
    def twice(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.add(x, x)
            gv = R.exp(lv)
            R.output(gv)
        return gv

    with PatternContext() as ctx:
        is_op("relax.add")(wildcard(), wildcard())
    assert ctx.match_dfb(twice.body.blocks[0]) is None
    with PatternContext() as ctx:
        operand = wildcard()
        total = is_op("relax.add")(operand, operand)
    assert names(ctx.match_dfb(twice.body.blocks[0]), operand, total) == ["x", "lv"]


def test_a_first_choice_is_taken_back() -> None:
    # Of two products, only the second one's sum is added to the rest; relu comes first in both.
    @R.function
    def branches(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            c = R.nn.relu(b)
            d = R.exp(a)
            e = R.tanh(d)
            gv = R.add(c, e)
            R.output(gv)
        return gv

    with PatternContext() as ctx:
        first = is_op("relax.nn.relu")(wildcard(), add_constraint=False)
        second = is_op("relax.exp")(wildcard(), add_constraint=False)
        third = is_op("relax.tanh")(wildcard(), add_constraint=False)
        first ^ second ^ third
    assert names(ctx.match_dfb(branches.body.blocks[0]), first, second, third) == ["a", "d", "e"]


def test_shapes_that_must_be_the_same() -> None:
    @R.function
    def sums(a: R.Tensor((4, 4), "float32"), b: R.Tensor((4,), "float32"), c: R.Tensor((4, 4), "float32")) -> R.Tensor(
        (4, 4), "float32"
    ):
        with R.dataflow():
            lv = R.add(a, b)
            gv = R.add(lv, c)
            R.output(gv)
        return gv

    with PatternContext() as ctx:
        lhs, rhs = wildcard(), wildcard()
        total = is_op("relax.add")(lhs, rhs)
        lhs.same_shape_as(rhs)
    assert names(ctx.match_dfb(sums.body.blocks[0]), lhs, rhs, total) == ["lv", "c", "gv"]


def test_an_incremental_context_adds_to_the_one_around_it() -> None:
    with PatternContext() as outer:
        product = is_op("relax.matmul")(wildcard(), wildcard())
        with PatternContext(incremental=True) as inner:
            relu = is_op("relax.nn.relu")(product)
    assert names(inner.match_dfb(BLOCK), product, relu) == ["lv", "left"]
    found = outer.match_dfb(BLOCK)
    assert found is not None and relu not in found


def test_a_match_may_start_with_a_certain_variable() -> None:
    @R.function
    def three(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(a)
            gv = R.exp(b)
            R.output(gv)
        return gv

    block = three.body.blocks[0]
    var = {binding.var.name: binding.var for binding in block.bindings}
    with PatternContext() as ctx:
        first = is_op("relax.exp")(wildcard(), add_constraint=False)
        second = is_op("relax.exp")(wildcard(), add_constraint=False)
        first >> second
    assert names(ctx.match_dfb(block), first, second) == ["a", "b"]
    assert names(ctx.match_dfb(block, var["gv"], must_include_hint=True), first, second) == ["b", "gv"]
    elsewhere = VAR["gv"]
    assert names(ctx.match_dfb(block, elsewhere), first, second) == ["a", "b"]
    assert ctx.match_dfb(block, elsewhere, must_include_hint=True) is None
    with pytest.raises(InvalidValue, match="must_include_hint needs a start_hint"):
        ctx.match_dfb(block, must_include_hint=True)


def test_a_context_without_uses_matches_nothing() -> None:
    with PatternContext() as ctx:
        wildcard()
    assert ctx.match_dfb(BLOCK) is None
    with PatternContext() as ctx:
        a, b = wildcard(), wildcard()
        a ^ b
        b ^ a
    assert ctx.match_dfb(BLOCK) is None


def test_a_constraint_on_what_takes_no_part_is_refused() -> None:
    with PatternContext() as ctx:
        a, b = wildcard(), wildcard()
        is_op("relax.exp")(a)
        a.same_shape_as(b)
    with pytest.raises(InvalidValue, match=r"SameShapeConstraint\(\*, \*\) speaks of \*, which takes part in no use"):
        ctx.match_dfb(BLOCK)


OPERATORS = ("relax.exp", "relax.tanh", "relax.add")


def random_block(rng: random.Random, size: int) -> tuple[relax.BindingBlock, list[relax.Var]]:
    builder = relax.BlockBuilder()
    variables = [relax.Var(name, TensorStructInfo((2,), "float32")) for name in "xy"]
    with builder.function("main", list(variables)):
        with builder.dataflow():
            for _ in range(size):
                op = rng.choice(OPERATORS)
                args = [rng.choice(variables[-4:]) for _ in range(2 if op == "relax.add" else 1)]
                variables.append(builder.emit(relax.Call(op, args)))
            output = builder.emit_output(relax.Call("relax.exp", [variables[-1]]))
        builder.emit_func_output(output)
    return builder.get()["main"].body.blocks[0], [*variables, output]


@pytest.mark.parametrize("seed", range(60))
def test_a_match_is_found_where_brute_force_finds_one(seed: int) -> None:
    rng = random.Random(seed)
    block, variables = random_block(rng, 6)
    values = {binding.var: binding.value for binding in block.bindings}
    users = {v: {u for u, value in values.items() if any(a is v for a in value.args)} for v in variables}
    patterns = [rng.choice([wildcard(), wildcard() & ~is_op("relax.add")(wildcard(), wildcard())]) for _ in range(4)]
    edges = {(rng.randrange(i), i, rng.random() < 0.4) for i in (1, 2, 3, 3)}
    with PatternContext() as ctx:
        for producer, consumer, only in edges:
            PatternSeq([patterns[producer], patterns[consumer]], only_use=only)

    def holds(chosen: tuple[relax.Var, ...]) -> bool:
        return all(p.match(v, values) for p, v in zip(patterns, chosen, strict=True)) and all(
            chosen[c] in users[chosen[p]] and (not only or len(users[chosen[p]]) == 1) for p, c, only in edges
        )

    found = ctx.match_dfb(block)
    expected = any(holds(chosen) for chosen in itertools.permutations(variables, 4))
    assert (found is not None) == expected
    if found is not None:
        assert holds(tuple(found[p] for p in patterns)) and len(set(found.values())) == 4


def test_a_long_block_with_two_matches_of_each_half() -> None:
    # Each pattern but the last one matches everywhere, so the search must not start anew for each.
    builder = relax.BlockBuilder()
    x = relax.Var("x", TensorStructInfo((2,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(500):
                value = builder.emit(R.add(builder.emit(R.exp(value)), x))
            output = builder.emit_output(R.tanh(value))
        builder.emit_func_output(output)
    block = builder.get()["main"].body.blocks[0]
    with PatternContext() as ctx:
        chain = [is_op("relax.exp")(wildcard(), add_constraint=False), wildcard()]
        last = is_op("relax.tanh")(wildcard(), add_constraint=False)
        (PatternSeq([chain[0]]) >> chain[1]) >> last
    found = ctx.match_dfb(block)
    assert found is not None and found[last] is output
