"""Random arguments, tolerances and checks of passes, for graphs: what is right passes, each kind of mistake does not."""

from __future__ import annotations

import re

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.ir.transform import PassContext, module_pass
from oneir.relax import BlockBuilder, PrimStructInfo, ShapeStructInfo, TensorStructInfo, TupleStructInfo
from oneir.runtime.error import AssertionFailure, InterpreterError, InvalidValue, WellFormedError
from oneir.runtime.object import ShapeTuple
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing import VerifyNumerics, assert_same_numbers, check_pass, random_inputs, tolerances

RNG = np.random.default_rng(0)
EPS = float(np.finfo("float32").eps)


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def graph(build, *infos):
    """A module whose `main` takes parameters of the struct infos and returns what `build` makes of them."""
    params = [relax.Var(f"x{i}", info) for i, info in enumerate(infos)]
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(build(*params))
        builder.emit_func_output(out)
    return builder.finalize()


def replaced_by(mod, name="Rewrite"):
    @module_pass(opt_level=0, name=name)
    def rewrite(_, ctx):
        return mod

    return rewrite


VECTOR = TensorStructInfo((64,), "float32")


# -- random arguments --


def test_arguments_follow_struct_info():
    n = oneir.tir.Var("n", "int64")
    infos = [
        TensorStructInfo((n, n * 2), "float16"),
        ShapeStructInfo([n, 7]),
        PrimStructInfo(value=n),
        PrimStructInfo("float32"),
        TupleStructInfo([TensorStructInfo((n,), "int8"), TensorStructInfo((2,), "bool")]),
    ]
    params = [relax.Var(f"x{i}", info) for i, info in enumerate(infos)]
    func = relax.Function(params, params[0], infos[0])
    for seed in range(5):
        x, shape, number, scale, (small, truth) = random_inputs(func, np.random.default_rng(seed))
        extent = x.shape[0]
        assert x.shape == (extent, 2 * extent) and x.dtype == np.float16
        assert isinstance(shape, ShapeTuple) and shape == (extent, 7)
        assert number == extent and isinstance(scale, float)
        assert small.shape == (extent,) and small.dtype == np.int8 and truth.dtype == bool


def test_what_is_not_known_is_made_to_fit_together():
    infos = [TensorStructInfo(dtype="float32", ndim=2), TensorStructInfo(dtype=""), ShapeStructInfo(ndim=3)]
    params = [relax.Var(f"x{i}", info) for i, info in enumerate(infos)]
    x, y, shape = random_inputs(relax.Function(params, params[0], infos[0]), np.random.default_rng(0))
    assert x.shape == y.shape == (3, 3) and shape == (3, 3, 3) and y.dtype == np.float32


def test_integers_that_may_be_indices_are_below_every_extent():
    @R.function
    def gather(x: R.Tensor((5, 4), "float32"), i: R.Tensor((40,), "int64")):
        return R.call_dps_packed("take", (x, i), R.Tensor((40, 4), "float32"))

    @R.function
    def add(x: R.Tensor((5, 4), "float32"), i: R.Tensor((40,), "int64")):
        return R.add(i, i)

    _, indices = random_inputs(gather, np.random.default_rng(0))
    assert indices.min() >= 0 and indices.max() == 3
    _, numbers = random_inputs(add, np.random.default_rng(0))
    assert numbers.min() < 0 and numbers.max() > 5


def test_symbolic_variables_keep_to_their_bounds():
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        R.func_attr({"tir_var_upper_bound": {"n": 2}, "tir_var_lower_bound": {"m": 20}})
        return x

    shapes = {random_inputs(main, np.random.default_rng(seed))[0].shape for seed in range(30)}
    assert {n for n, _ in shapes} == {1, 2} and {m for _, m in shapes} == {20}


def test_no_argument_is_made_of_nothing_known():
    x = relax.Var("x", relax.ObjectStructInfo())
    with pytest.raises(InvalidValue, match="no random argument can be made for `x`"):
        random_inputs(relax.Function([x], x, relax.ObjectStructInfo()), np.random.default_rng(0))
    n = oneir.tir.Var("n", "int64")
    y = relax.Var("y", TensorStructInfo((n + 1,), "float32"))
    with pytest.raises(InvalidValue, match=re.escape("no extent can be chosen for `n + ") + ".*struct info of `y`"):
        random_inputs(relax.Function([y], y, y.struct_info), np.random.default_rng(0))


# -- tolerances --


def test_what_moves_data_is_exact():
    mod = graph(lambda x: relax.op.permute_dims(x), TensorStructInfo((3, 5), "float32"))
    # Nothing is rounded, so what is left is the few units in the last place that every comparison allows.
    x = floats(3, 5)
    assert (tolerances(mod, x) <= 4.1 * EPS * np.abs(x.T) + 1e-40).all()


def test_a_rounding_is_within_the_tolerance_and_a_mistake_is_not():
    mod = graph(
        lambda x, w: relax.op.matmul(x, w), TensorStructInfo((8, 32), "float32"), TensorStructInfo((32, 8), "float32")
    )
    x, w = floats(8, 32), floats(32, 8)
    allowed = tolerances(mod, x, w)
    exact = x.astype("float64") @ w.astype("float64")
    # Sums in float32 from the last product to the first.
    backwards = np.zeros((8, 8), "float32")
    for k in reversed(range(32)):
        backwards += x[:, k : k + 1] * w[k : k + 1, :]
    assert (np.abs(backwards - exact) < allowed).all()
    magnitude = np.abs(x).astype("float64") @ np.abs(w)
    assert (allowed < 2e-3 * magnitude).all()
    # Leaving out one of the products is more than rounding.
    assert (np.abs(exact - (exact - x[:, :1] * w[:1, :])) > allowed).mean() > 0.95


def test_errors_grow_where_a_function_is_steep():
    mod = graph(lambda x, y: relax.op.exp(relax.op.add(x, y)), VECTOR, VECTOR)
    x, y = np.full(64, 20.0, "float32"), np.full(64, 10.0, "float32")
    relative = tolerances(mod, x, y) / np.exp(30.0)
    # exp moves by 30 times the relative error of its argument, which is up to 4 eps.
    assert (relative > 30 * EPS).all() and (relative < 30 * 4 * EPS * 16 * 1.1).all()


def test_shapes_and_integers_have_no_tolerance():
    @R.function
    def main(x: R.Tensor((3,), "int32")):
        y = R.add(x, x)
        return (y, R.shape([3]), R.prim_value(1))

    integers, shape, number = tolerances(main, np.arange(3, dtype="int32"))
    assert (integers == 0).all() and shape is None and number is None


def test_loops_in_a_graph_are_followed_inside():
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def difference(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                # A sum of 1e6 and the value, of which only the value is left: its last bits are lost.
                B[i] = (A[i] + T.float32(1e6)) - T.float32(1e6)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            return R.call_tir(cls.difference, (x,), R.Tensor((4,), "float32"))

    allowed = tolerances(Module, floats(4))
    assert (allowed > 1e6 * EPS / 2).all() and (allowed < 1e6 * EPS * 200).all()


# -- comparisons --


def test_reordered_sums_are_the_same_numbers():
    def first(x, y):
        return relax.op.add(relax.op.add(x, y), relax.op.exp(x))

    def second(x, y):
        return relax.op.add(x, relax.op.add(relax.op.exp(x), y))

    assert_same_numbers(graph(first, VECTOR, VECTOR), graph(second, VECTOR, VECTOR))
    with pytest.raises(AssertionFailure, match=r"`main\(\)` differs in \d+ of 64 elements; the worst is"):
        assert_same_numbers(graph(first, VECTOR, VECTOR), graph(lambda x, y: relax.op.add(x, y), VECTOR, VECTOR))


def test_results_of_another_form_differ():
    before = graph(lambda x: relax.Tuple([x, relax.op.exp(x)]), VECTOR)
    assert_same_numbers(before, before)
    swapped = graph(lambda x: relax.Tuple([relax.op.exp(x), x]), VECTOR)
    with pytest.raises(AssertionFailure, match=re.escape("`main()[0]` differs in")):
        assert_same_numbers(before, swapped)
    with pytest.raises(AssertionFailure, match=re.escape("`main()`: expected a tuple of 2 values, found an array")):
        assert_same_numbers(before, graph(relax.op.exp, VECTOR))
    other = TensorStructInfo((8, 8), "float32")
    matrix = graph(lambda x: relax.op.exp(x), other)
    transposed = graph(lambda x: relax.op.permute_dims(relax.op.permute_dims(relax.op.exp(x))), other)
    assert_same_numbers(matrix, transposed)


def test_the_pass_that_breaks_a_graph_is_named():
    before, after = graph(relax.op.exp, VECTOR), graph(lambda x: relax.op.add(x, x), VECTOR)
    with PassContext(instruments=[VerifyNumerics()]):
        replaced_by(graph(relax.op.exp, VECTOR))(before)
        with pytest.raises(AssertionFailure, match="the pass Break changes what `main` computes: "):
            replaced_by(after, "Break")(before)


def test_a_pass_after_which_a_graph_cannot_run_is_named():
    x = relax.Var("x", VECTOR)
    lies = relax.Function([x], x, TensorStructInfo((64,), "int32"), attrs={"global_symbol": "main"})
    before, lie = graph(relax.op.exp, VECTOR), replaced_by(oneir.IRModule({"main": lies}), "Lie")
    refusal = pytest.raises(InterpreterError, match="expected dtype int32, found float32")
    with PassContext(instruments=[VerifyNumerics()]), refusal as caught:
        lie(before)
    assert caught.value.__notes__[1:] == ["while `main` was run as it was before and as it is after the pass Lie"]


def test_graphs_that_take_other_arguments_are_not_compared():
    before, after = graph(relax.op.exp, VECTOR), graph(lambda x, y: relax.op.add(x, y), VECTOR, VECTOR)
    with PassContext(instruments=[VerifyNumerics()]):
        replaced_by(after)(before)
        replaced_by(graph(lambda x: relax.op.add(x, x), TensorStructInfo((3,), "float32")))(before)


def test_a_graph_with_fixed_extents_is_compared_with_the_symbolic_one():
    n = oneir.tir.Var("n", "int64")
    symbolic = graph(relax.op.exp, TensorStructInfo((n,), "float32"))
    with PassContext(instruments=[VerifyNumerics()]):
        replaced_by(graph(relax.op.exp, VECTOR))(symbolic)
        with pytest.raises(AssertionFailure, match="the pass Break changes what `main` computes: "):
            replaced_by(graph(lambda x: relax.op.add(x, x), VECTOR), "Break")(symbolic)


# -- all at once --


@module_pass(opt_level=0, name="RemoveDoubleTransposition")
def remove_double_transposition(mod, ctx):
    """permute_dims(permute_dims(x)) -> x, for the reversing one."""

    class Remove(relax.expr_functor.PyExprMutator):
        def visit_call_(self, call):
            call = super().visit_call_(call)
            inner = self.lookup_binding(call.args[0]) if isinstance(call.args[0], relax.Var) else None
            both = [c.op.name for c in (call, inner) if isinstance(c, relax.Call)]
            return inner.args[0] if both == ["relax.permute_dims"] * 2 else call

    result = Remove(mod).transform_functions(mod)
    if result is mod:
        return mod
    return oneir.IRModule({v: relax.analysis.remove_all_unused(f) for v, f in result.functions.items()})


def test_a_right_pass_passes_every_check():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                a = R.permute_dims(x)
                b = R.permute_dims(a)
                c = R.exp(b)
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                b: R.Tensor((2, 3), "float32") = x
                c = R.exp(b)
                R.output(c)
            return c

    check_pass(remove_double_transposition, Before, Expected)
    check_pass(remove_double_transposition, Expected, Expected)


def test_a_pass_that_changes_numbers_fails():
    before, after = graph(relax.op.exp, VECTOR), graph(lambda x: relax.op.add(x, x), VECTOR)
    with pytest.raises(AssertionFailure, match="the pass Rewrite changes what `main` computes"):
        check_pass(replaced_by(after), before, after)


def test_a_pass_that_makes_a_graph_ill_formed_fails():
    before = graph(relax.op.exp, VECTOR)
    x, y = relax.Var("x", VECTOR), relax.Var("y", VECTOR)
    bad = oneir.IRModule({"main": relax.Function([x], y, VECTOR, attrs={"global_symbol": "main"})})
    with pytest.raises(WellFormedError, match="in `main`: `y` is used, but not defined here"):
        check_pass(replaced_by(bad), before, bad)


def test_constants_survive_the_round_trip():
    mod = graph(lambda x: relax.op.add(x, relax.const(np.arange(64, dtype="float32"))), VECTOR)
    check_pass(replaced_by(mod), mod, mod)
