"""Graphs with branches as machine code: whatever a branch gives, its memory is where the rest of the graph reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oneir
from oneir import relax, tir
from oneir.relax import op
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T


def machine(mod: oneir.IRModule, native: bool = True) -> Any:
    """The main function of a module, which is to have a native form, or none."""
    executable = relax.build(mod, "llvm")
    assert bool(executable.natives) == native
    return relax.VirtualMachine(executable, oneir.cpu())["main"]


def arrays(result: Any) -> Any:
    return result.numpy() if hasattr(result, "numpy") else [arrays(r) for r in result]


TRUE, FALSE = np.array(True), np.array(False)


def test_branches_of_symbolic_shapes():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), go: R.Tensor((), "bool")):
            n = T.int64()
            if go:
                a = R.exp(x)
                b = R.add(R.permute_dims(R.permute_dims(a)), x)
                y = R.multiply(a, b)
            else:
                c = R.nn.softmax(x, axis=0)
                y = R.subtract(c, x)
            z = R.sum(y, axis=1)
            return (z, y)

    main = machine(Module)
    for rows in (3, 1, 0, 50):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype("float32")
        soft = np.exp(x) / np.exp(x).sum(0, keepdims=True) - x
        for go, expected in ((TRUE, np.exp(x) * (np.exp(x) + x)), (FALSE, soft)):
            z, y = arrays(main(x, go))
            np.testing.assert_allclose(y, expected, rtol=2e-5, atol=1e-6)
            np.testing.assert_allclose(z, expected.sum(1), rtol=2e-5, atol=1e-5)


def test_branches_that_give_what_is_not_their_own():
    weight = np.arange(4, dtype="float32")

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32"), go: R.Tensor((), "bool")):
            outer = R.add(x, x)
            if go:
                own = R.exp(x)
                r = (outer, x, own, own)
            else:
                w = R.multiply(R.const(weight), R.const(weight))
                r = (x, R.const(weight), outer, w)
            return (r[0], r[1], r[2], r[3], outer)

    main = machine(Module)
    x = np.array([1, -2, 0.5, 3], "float32")
    for got, expected in (
        (main(x, TRUE), (2 * x, x, np.exp(x), np.exp(x), 2 * x)),
        (main(x, FALSE), (x, weight, 2 * x, weight * weight, 2 * x)),
    ):
        for a, b in zip(arrays(got), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    first = main(x, TRUE)
    main(x + 1, FALSE)
    np.testing.assert_allclose(first[2].numpy(), np.exp(x), rtol=1e-6)


def test_a_branch_may_give_a_view():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), go: R.Tensor((), "bool")):
            n = T.int64()
            if go:
                a = R.exp(x)
                y = R.reshape(a, R.shape([n * 4]))
            else:
                y = R.reshape(x, R.shape([n * 4]))
            return y

    main = machine(Module)
    x = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
    np.testing.assert_allclose(arrays(main(x, TRUE)), np.exp(x).reshape(-1), rtol=1e-6)
    np.testing.assert_array_equal(arrays(main(x, FALSE)), x.reshape(-1))


def test_branches_of_different_shapes_run_as_bytecode():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32"), go: R.Tensor((), "bool")):
            if go:
                y = R.exp(x)
            else:
                y = R.concat((x, x), axis=0)
            return y

    main = machine(Module, native=False)
    x = np.ones(4, "float32")
    assert main(x, TRUE).shape == (4,) and main(x, FALSE).shape == (8,)


def test_only_the_branch_that_is_taken_is_checked():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), go: R.Tensor((), "bool")):
            n = T.int64()
            if go:
                y = R.match_cast(x, R.Tensor((3,), "float32"))
                z = R.sum(y)
            else:
                z = R.max(x)
            return z

    main = machine(Module)
    assert arrays(main(np.ones(3, "float32"), TRUE)) == 3
    assert arrays(main(np.ones(5, "float32"), FALSE)) == 1
    with pytest.raises(InvalidValue, match="expected 3"):
        main(np.ones(5, "float32"), TRUE)


UNARY = {"exp": (op.exp, np.exp), "negative": (op.negative, np.negative), "tanh": (op.tanh, np.tanh)}
BINARY = {"add": (op.add, np.add), "maximum": (op.maximum, np.maximum), "subtract": (op.subtract, np.subtract)}
Step = tuple[Any, ...]
steps = st.recursive(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(sorted(UNARY)), st.integers(0, 9)),
            st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 9), st.integers(0, 9)),
        ),
        max_size=3,
    ),
    lambda inner: st.lists(
        st.one_of(
            st.tuples(st.sampled_from(sorted(UNARY)), st.integers(0, 9)),
            st.tuples(st.just("if"), st.integers(0, 1), inner, inner),
        ),
        min_size=1,
        max_size=3,
    ),
    max_leaves=6,
)


def emit(builder: relax.BlockBuilder, known: list[Any], flags: list[Any], program: list[Step]) -> Any:
    """Emits the steps; the last tensor is the result."""
    known = list(known)
    for name, *places in program:
        if name == "if":
            flag, *branches = places
            sequences = []
            for branch in branches:
                builder.begin_scope()
                builder.begin_binding_block()
                result = emit(builder, known, flags, branch)
                sequences.append(relax.SeqExpr([builder.end_block()], result))
                builder.end_scope()
            known.append(builder.emit(relax.If(flags[flag], *sequences)))
        else:
            function = (UNARY.get(name) or BINARY[name])[0]
            known.append(builder.emit(function(*(known[p % len(known)] for p in places))))
    return known[-1]


def evaluate(known: list[np.ndarray], flags: list[bool], program: list[Step]) -> np.ndarray:
    known = list(known)
    for name, *places in program:
        if name == "if":
            flag, *branches = places
            known.append(evaluate(known, flags, branches[0 if flags[flag] else 1]))
        else:
            function: Any = (UNARY.get(name) or BINARY[name])[1]
            known.append(function(*(known[p % len(known)] for p in places)))
    return known[-1]


@given(steps)
@settings(max_examples=25, deadline=None)
def test_random_branches(program: list[Step]):
    builder = relax.BlockBuilder()
    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n, 3), "float32"))
    flags = [relax.Var(f"flag{i}", relax.TensorStructInfo((), "bool")) for i in range(2)]
    with builder.function("main", [x, *flags]):
        builder.emit_func_output(emit(builder, [x], flags, program))
    vm = relax.VirtualMachine(relax.build(builder.get(), "llvm"), oneir.cpu())
    assert vm.executable.natives
    data = np.random.default_rng(0).uniform(-1, 1, (2, 3)).astype("float32")
    with np.errstate(over="ignore"):
        for first in (True, False):
            for second in (True, False):
                expected = evaluate([data], [first, second], program)
                arguments = (data, np.array(first), np.array(second))
                for found in (vm["main"](*arguments), vm.interpret("main", *arguments)):
                    np.testing.assert_allclose(arrays(found), expected, rtol=1e-5, atol=1e-6)
