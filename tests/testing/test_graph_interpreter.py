"""The interpreter computes what graphs mean, at every stage of lowering, and refuses values that are not what they say.

Expected values are NumPy's, or worked out by hand.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import oneir
from oneir import relax, te, tir
from oneir.ir.expr import GlobalVar
from oneir.relax import BlockBuilder, PrimStructInfo, ShapeStructInfo, TensorStructInfo, TupleStructInfo
from oneir.runtime.error import AssertionFailure, InterpreterError, InvalidValue, NotRegistered
from oneir.runtime.object import ShapeTuple
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing import interpret

RNG = np.random.default_rng(0)
INFO = TensorStructInfo((2, 3), "float32")


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def refused(message, program, *args, kind=InterpreterError):
    with pytest.raises(kind, match=re.escape(message)):
        interpret(program, *args)


# -- operators and values --


def test_operators_are_their_references():
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 5), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.exp(y)
            R.output(z)
        return z

    x, w = floats(3, 4), floats(4, 5)
    product = (x.astype("float64") @ w.astype("float64")).astype("float32")
    np.testing.assert_array_equal(interpret(main, x, w), np.exp(product))


def test_tensors_of_any_library_are_arguments():
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        return R.add(x, x)

    x = floats(2, 3)
    np.testing.assert_array_equal(interpret(main, oneir.runtime.tensor(x)), x + x)


def test_tuples_go_in_and_out():
    @R.function
    def main(p: R.Tuple(R.Tensor((2,), "float32"), R.Tuple(R.Tensor((3,), "int32")))):
        a = p[0]
        b = p[1]
        c = b[0]
        return ((c, a), R.shape([2, 3]), R.prim_value(7), R.str("text"))

    a, c = floats(2), np.arange(3, dtype="int32")
    pair, shape, number, text = interpret(main, (a, (c,)))
    np.testing.assert_array_equal(pair[0], c)
    np.testing.assert_array_equal(pair[1], a)
    assert isinstance(shape, ShapeTuple) and shape == (2, 3)
    assert (number, text) == (7, "text")


def test_shapes_and_numbers_give_symbolic_variables_their_values():
    @R.function
    def main(s: R.Shape(["n", "m"]), k: R.Prim(value="k")):
        n, m, k = T.int64(), T.int64(), T.int64()
        return R.shape([n * m, k + 1])

    assert interpret(main, (4, 5), 6) == (20, 7)


def test_constants_are_what_they_hold():
    builder = BlockBuilder()
    with builder.function("main", []):
        builder.emit_func_output(builder.emit(relax.op.add(relax.const([1.0, 2.0]), relax.const([3.0, 5.0]))))
    np.testing.assert_array_equal(interpret(builder.finalize()), [4.0, 7.0])


def test_bfloat16_is_a_dtype_like_others():
    @R.function
    def main(x: R.Tensor((2,), "bfloat16")):
        return R.add(x, x)

    import ml_dtypes

    result = interpret(main, np.array([1.5, -2.0], ml_dtypes.bfloat16))
    assert result.dtype == ml_dtypes.bfloat16 and result.astype("float32").tolist() == [3.0, -4.0]


def test_matrix_products_of_bfloat16_are_bfloat16():
    @R.function
    def main(x: R.Tensor((2, 2), "bfloat16")):
        return R.matmul(x, x)

    import ml_dtypes

    result = interpret(main, np.array([[1, 2], [3, 4]], ml_dtypes.bfloat16))
    assert result.dtype == ml_dtypes.bfloat16 and result.astype("float32").tolist() == [[7, 10], [15, 22]]


def test_shapes_of_tensors_and_tensors_of_shapes():
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), s: R.Tensor((2,), "int64")):
        a = R.shape_of(x)
        b = R.shape_to_tensor(a)
        c = R.tensor_to_shape(s)
        return (a, b, c)

    a, b, c = interpret(main, floats(4, 3), np.array([5, 6]))
    assert a == (4, 3) and isinstance(a, ShapeTuple)
    assert b.tolist() == [4, 3] and b.dtype == np.int64
    assert c == (5, 6) and isinstance(c, ShapeTuple)


def test_an_operator_without_reference_is_refused():
    op = oneir.ir.Op.register("test.graph.unknown", FPurity=True)
    call = relax.Call(op, [relax.const(1.0)])
    call.struct_info_ = TensorStructInfo((), "float32")
    func = relax.Function([], relax.SeqExpr([], call), TensorStructInfo((), "float32"))
    refused("the operator test.graph.unknown has no NumPy reference", func)


def test_a_reference_that_gives_another_dtype_is_found_out():
    op = oneir.ir.Op.register("test.graph.wrong", FPurity=True, FReference=lambda x: x.astype("float64"))
    x, y = relax.Var("x", INFO), relax.Var("y", INFO)
    call = relax.Call(op, [x])
    call.struct_info_ = INFO
    func = relax.Function([x], relax.SeqExpr([relax.BindingBlock([relax.VarBinding(y, call)])], y), INFO)
    refused("the value of `y`: expected dtype float32, found float64", func, floats(2, 3))


# -- control --


def test_conditions_take_one_branch():
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        if c:
            y = R.add(x, x)
            z = R.add(y, x)
        else:
            z = R.exp(x)
        return z

    x = floats(2)
    np.testing.assert_array_equal(interpret(main, np.array(True), x), x + x + x)
    np.testing.assert_array_equal(interpret(main, np.array(False), x), np.exp(x))
    refused("argument `c` of `main`: expected 0 dimensions, found the shape (2,)", main, np.array([True, False]), x)


@oneir.register_func("test.graph.positive")
def positive(x):
    return np.array(x.numpy() > 0)


def countdown():
    """main(n, x) = x if n <= 0 else main(n - 1, x + x)"""
    scalar, pair = TensorStructInfo((), "int32"), TensorStructInfo((2,), "float32")
    name = GlobalVar("main")
    name.struct_info_ = relax.FuncStructInfo([scalar, pair], pair)
    n, x = relax.Var("n", scalar), relax.Var("x", pair)
    builder = BlockBuilder()
    condition = relax.op.call_pure_packed("test.graph.positive", n, sinfo_args=[TensorStructInfo((), "bool")])
    again = relax.Call(name, [relax.op.add(n, relax.const(-1, "int32")), relax.op.add(x, x)])
    builder.begin_scope([n, x])
    body = builder.normalize(relax.SeqExpr([], relax.If(condition, again, x)))
    builder.end_scope()
    return oneir.IRModule({name: relax.Function([n, x], body, pair)})


def test_functions_call_themselves():
    np.testing.assert_array_equal(interpret(countdown(), np.array(3, "int32"), np.ones(2, "float32")), [8.0, 8.0])


def test_endless_recursion_ends():
    refused("`main` is called 5000 functions deep", countdown(), np.array(100_000, "int32"), np.ones(2, "float32"))


def test_functions_of_the_module_call_one_another():
    @I.ir_module
    class Module:
        @R.function
        def twice(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            return R.add(x, x)

        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((3,), "float32")):
            cls = Module
            a = cls.twice(x)
            b = cls.twice(y)
            return (a, b)

    x, y = floats(2), floats(3)
    a, b = interpret(Module, x, y)
    np.testing.assert_array_equal(a, x + x)
    np.testing.assert_array_equal(b, y + y)
    np.testing.assert_array_equal(interpret(Module, y, entry="twice"), y + y)
    with pytest.raises(NotRegistered, match="the module has no function 'other'; it has main, twice"):
        interpret(Module, x, entry="other")


def test_local_functions_see_the_variables_around_them():
    @R.function
    def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        @R.function
        def inner(z: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return R.add(z, y)

        a = inner(x)
        return inner(a)

    x, y = floats(2), floats(2)
    np.testing.assert_array_equal(interpret(main, x, y), (x + y) + y)


def test_closures_keep_their_last_arguments():
    builder, y = BlockBuilder(), relax.Var("y", INFO)
    a, b = relax.Var("a", INFO), relax.Var("b", INFO)
    with builder.function("exp_of_sum", [a, b], private=True):
        total = builder.emit(relax.op.exp(relax.op.add(a, b)))
        name = builder.emit_func_output(total)
    x = relax.Var("x", INFO)
    with builder.function("main", [x, y]):
        closure = builder.emit(relax.op.make_closure(name, [y]))
        builder.emit_func_output(builder.emit(relax.op.invoke_pure_closure(closure, [x], INFO)))
    v, w = floats(2, 3), floats(2, 3)
    np.testing.assert_array_equal(interpret(builder.finalize(), v, w), np.exp(v + w))


# -- calls of loops and of the runtime --


def loops_module(compute, *, out=INFO, shape=(2, 3), tir_vars=None, operator=relax.op.call_tir):
    a = te.placeholder(shape, "float32", name="a")
    loops = te.create_prim_func([a, compute(a)], "int64").without_attr("global_symbol")
    name, x = GlobalVar("loops"), relax.Var("x", TensorStructInfo(shape, "float32"))
    builder = BlockBuilder(oneir.IRModule({name: loops}))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(operator(name, [x], out, tir_vars)))
    return builder.finalize()


def test_loops_write_new_outputs():
    mod = loops_module(lambda a: te.compute((2, 3), lambda i, j: a[i, j] * 2.0, name="b"))
    x = floats(2, 3)
    kept = x.copy()
    np.testing.assert_array_equal(interpret(mod, x), x * 2)
    np.testing.assert_array_equal(x, kept)


def test_several_outputs_are_a_tuple():
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def both(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
            for i in range(4):
                B[i] = A[i] + T.float32(1)
                C[i] = A[i] * T.float32(2)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            return R.call_tir(cls.both, (x,), [R.Tensor((4,), "float32"), R.Tensor((4,), "float32")])

    x = floats(4)
    b, c = interpret(Module, x)
    np.testing.assert_array_equal(b, x + 1)
    np.testing.assert_array_equal(c, x * 2)


def test_numbers_follow_the_tensors():
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def fill(var_A: T.handle, n: T.int64, m: T.int64):
            k = T.int64()
            A = T.match_buffer(var_A, (k,), "int64")
            for i in range(k):
                A[i] = n * T.int64(100) + m

        @R.function
        def main(s: R.Shape(["n", "m"])):
            n, m = T.int64(), T.int64()
            cls = Module
            return R.call_tir(cls.fill, R.tuple(), R.Tensor((n,), "int64"), tir_vars=R.shape([n, m]))

    np.testing.assert_array_equal(interpret(Module, (3, 7)), [307, 307, 307])


def test_loops_may_write_into_arguments():
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def step(A: T.Buffer((3,), "float32"), B: T.Buffer((3,), "float32")):
            for i in range(3):
                B[i] = A[i] + T.float32(1)
                A[i] = A[i] * T.float32(2)

        @R.function
        def main(x: R.Tensor((3,), "float32")):
            cls = Module
            return R.call_tir_inplace(cls.step, (x,), [0, -1], [R.Tensor((3,), "float32"), R.Tensor((3,), "float32")])

    x = floats(3)
    before = x.copy()
    doubled, more = interpret(Module, x)
    np.testing.assert_array_equal(doubled, before * 2)
    np.testing.assert_array_equal(more, before + 1)
    np.testing.assert_array_equal(x, before * 2)


def test_loops_that_write_what_they_may_only_read_are_refused():
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def step(A: T.Buffer((3,), "float32"), B: T.Buffer((3,), "float32")):
            for i in range(3):
                B[i] = A[i]
                A[i] = T.float32(0)

        @R.function
        def main(x: R.Tensor((3,), "float32")):
            cls = Module
            return R.call_tir(cls.step, (x,), R.Tensor((3,), "float32"))

    refused("`A` is written, but its memory is read-only", Module, floats(3))


def test_an_output_that_is_not_written_entirely_is_refused():
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def half(A: T.Buffer((2, 3), "float32"), B: T.Buffer((2, 3), "float32")):
            for j in range(3):
                B[0, j] = A[0, j]

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            cls = Module
            return R.call_tir(cls.half, (x,), R.Tensor((2, 3), "float32"))

    refused("`half` leaves `B[1, 0]` of its output unwritten", Module, floats(2, 3))


def test_mistakes_inside_of_loops_are_reported():
    mod = loops_module(lambda a: te.compute((2, 3), lambda i, j: a[i, j + 1], name="b"))
    refused("out of bounds: `a[0, 3]` is read, but dimension 1 has the extent 3", mod, floats(2, 3))


def test_loops_that_do_not_fit_the_call_are_refused():
    mod = loops_module(
        lambda a: te.compute((2, 3), lambda i, j: a[i, j], name="b"), out=TensorStructInfo((2, 4), "float32")
    )
    refused("argument `b`: expected the shape (2, 3), found (2, 4)", mod, floats(2, 3), kind=oneir.TVMError)


@oneir.register_func("test.graph.add_into")
def add_into(a, b, out):
    out[:] = a.numpy() + b.numpy()


@oneir.register_func("test.graph.first_and_count")
def first_and_count(*values):
    return values[0], len(values)


def test_functions_of_the_runtime_are_called():
    @R.function
    def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        z = R.call_dps_packed("test.graph.add_into", (x, y), R.Tensor((2,), "float32"))
        w = R.call_pure_packed(
            "test.graph.first_and_count",
            z,
            R.prim_value(3),
            sinfo_args=R.Tuple(R.Tensor((2,), "float32"), R.Prim("int64")),
        )
        return w

    x, y = floats(2), floats(2)
    total, count = interpret(main, x, y)
    np.testing.assert_array_equal(total, x + y)
    assert count == 2


def test_a_function_of_the_runtime_that_nobody_registered():
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        return R.call_dps_packed("test.graph.nobody", (x,), R.Tensor((2,), "float32"))

    refused("No function is registered as 'test.graph.nobody'", main, floats(2), kind=NotRegistered)


def test_a_function_of_the_runtime_that_returns_something_else_is_found_out():
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y = R.call_pure_packed("test.graph.positive", x, sinfo_args=R.Tensor((2,), "float32"))
        return y

    refused("the value of `y`: expected dtype float32, found bool", main, floats(2))


def test_functions_that_change_an_argument_return_it():
    oneir.register_func("test.graph.double_in_place", lambda x: x.copyfrom(x.numpy() * 2), override=True)

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y = R.add(x, x)
        return R.call_inplace_packed(
            "test.graph.double_in_place", y, inplace_indices=[0], sinfo_args=R.Tensor((2,), "float32")
        )

    x = floats(2)
    np.testing.assert_array_equal(interpret(main, x), x * 4)


def test_python_functions_of_the_module_are_called_by_name():
    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32")):
        return R.call_py_func("test_graph_negative", (x,), R.Tensor((2,), "float32"))

    register = oneir.get_global_func("vm.builtin.register_py_func")
    register("test_graph_negative", lambda x: -x.numpy())
    x = floats(2)
    np.testing.assert_array_equal(interpret(main, x), -x)


def test_printing_and_assertions(capsys):
    @R.function(pure=False)
    def main(c: R.Tensor((), "bool"), x: R.Tensor((), "int32")):
        R.print(x, format="x is {}")
        R.assert_op(c, [x], format="x must not be {}")
        return x

    assert interpret(main, np.array(True), np.array(3, "int32")) == 3
    assert capsys.readouterr().out == "x is 3\n"
    refused("x must not be 3", main, np.array(False), np.array(3, "int32"), kind=AssertionFailure)


# -- struct info --


def test_arguments_must_be_what_the_parameters_say():
    @R.function
    def main(x: R.Tensor(("n", "n"), "float32"), y: R.Tensor(("n * 2",), "float32")):
        return x

    np.testing.assert_array_equal(interpret(main, np.eye(3, dtype="float32"), floats(6)), np.eye(3))
    refused("`main` takes 2 arguments (x, y), found 1", main, floats(3, 3))
    refused("argument `x` of `main`: expected dtype float32, found float64", main, np.eye(3), floats(6))
    refused(
        "argument `x` of `main`: expected the shape (3, 3) (that is, n, n), found (3, 4)", main, floats(3, 4), floats(6)
    )
    refused(
        "argument `y` of `main`: expected the shape (6,) (that is, n * T.int64(2)), found (5,)",
        main,
        floats(3, 3),
        floats(5),
    )
    refused("argument `x` of `main`: expected 2 dimensions, found the shape (3,)", main, floats(3), floats(6))
    refused("argument `x` of `main`: expected a tensor, found 3", main, 3, floats(6))


def test_other_kinds_of_arguments_are_checked_too():
    number = relax.Var("number", PrimStructInfo("int64"))
    shape = relax.Var("shape", ShapeStructInfo([2, 3]))
    pair = relax.Var("pair", TupleStructInfo([INFO, INFO]))
    func = relax.Function([number, shape, pair], number, PrimStructInfo("int64"))
    x = floats(2, 3)
    assert interpret(func, 5, (2, 3), (x, x)) == 5
    refused("argument `number` of `main`: expected a number of dtype int64, found 1.5", func, 1.5, (2, 3), (x, x))
    refused("argument `shape` of `main`: expected the shape (2, 3), found the shape (2, 4)", func, 5, (2, 4), (x, x))
    refused("argument `pair` of `main`: expected a tuple of 2 values, found a tuple of 1 values", func, 5, (2, 3), (x,))
    refused(
        "argument `pair` of `main`: field 1: expected dtype float32, found int32",
        func,
        5,
        (2, 3),
        (x, x.astype("int32")),
    )


def test_a_cast_checks_and_gives_symbolic_variables_their_values():
    @R.function
    def main(x: R.Tensor(dtype="float32", ndim=2)):
        n = T.int64()
        y = R.match_cast(x, R.Tensor((n, 3), "float32"))
        return (y, R.shape([n + 1]))

    x = floats(4, 3)
    y, shape = interpret(main, x)
    np.testing.assert_array_equal(y, x)
    assert shape == (5,)
    refused("the cast value: expected the shape (4, 3) (that is, n, 3), found (4, 2)", main, floats(4, 2))


def test_a_cast_compares_with_what_is_known():
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(dtype="float32", ndim=1)):
        n = T.int64()
        z = R.match_cast(y, R.Tensor((n,), "float32"))
        return z

    assert interpret(main, floats(2), floats(2)).shape == (2,)
    refused("the cast value: expected the shape (2,) (that is, n), found (3,)", main, floats(2), floats(3))


def test_the_error_names_the_binding_the_function_and_the_symbolic_variables():
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(dtype="float32", ndim=1)):
        n = T.int64()
        z = R.match_cast(y, R.Tensor((n,), "float32"))
        return z

    with pytest.raises(InterpreterError) as caught:
        interpret(main, floats(2), floats(3))
    text = str(caught.value)
    assert "in: " in text and "match_cast" in text
    assert "running: main, n = 2" in text


def test_outputs_are_for_loops():
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        return x

    with pytest.raises(InvalidValue, match="`main` is a graph, which returns its outputs"):
        interpret(main, floats(2), outputs=[0])


# -- lowered forms --


def lowered(emit, params=(), pure=False):
    """A module with loops `double`, and a function `main` that `emit` writes into a builder."""
    a = te.placeholder((4,), "float32", name="a")
    name = GlobalVar("double")
    loops = te.create_prim_func([a, te.compute((4,), lambda i: a[i] * 2.0, name="b")], "int64").without_attr(
        "global_symbol"
    )
    builder = BlockBuilder(oneir.IRModule({name: loops}))
    with builder.function("main", list(params), pure=pure):
        builder.emit_func_output(emit(builder, name))
    return builder.finalize()


QUAD = TensorStructInfo((4,), "float32")


def test_loops_called_with_allocated_outputs():
    x = relax.Var("x", QUAD)

    def emit(builder, double):
        out = builder.emit(relax.op.builtin.alloc_tensor(relax.ShapeExpr([4]), "float32", 0))
        builder.emit(relax.Call(double, [x, out]))
        return out

    v = floats(4)
    np.testing.assert_array_equal(interpret(lowered(emit, [x]), v), v * 2)


def storage_program(second_offset, size=32, kill=False):
    """Two tensors in one storage, the second made from the first."""
    x = relax.Var("x", QUAD)

    def emit(builder, double):
        storage = builder.emit(relax.op.memory.alloc_storage(relax.ShapeExpr([size]), 0, "global", "uint8"))
        a = builder.emit(relax.op.memory.alloc_tensor(storage, 0, relax.ShapeExpr([4]), "float32"))
        builder.emit(relax.Call(double, [x, a]))
        b = builder.emit(relax.op.memory.alloc_tensor(storage, second_offset, relax.ShapeExpr([4]), "float32"))
        if kill:
            builder.emit(relax.op.memory.kill_tensor(a))
        builder.emit(relax.Call(double, [a, b]))
        out = builder.emit(relax.op.builtin.alloc_tensor(relax.ShapeExpr([4]), "float32", 0))
        builder.emit(relax.Call(double, [b, out]))
        builder.emit(relax.op.memory.kill_storage(storage))
        return out

    return lowered(emit, [x])


def test_tensors_lie_in_storages():
    v = floats(4)
    np.testing.assert_array_equal(interpret(storage_program(16), v), v * 8)


def test_tensors_that_lie_over_one_another_change_one_another():
    v = np.array([1, 2, 3, 4], "float32")
    # Element i of the second tensor is element i + 1 of the first: 2 * 2 * 1 is read again as element 1.
    np.testing.assert_array_equal(interpret(storage_program(4), v), [8, 16, 32, 64])


def test_a_tensor_behind_its_storage_is_refused():
    refused(
        "a tensor of shape (4,) and dtype float32 at byte 20 ends at byte 36; the storage has 32",
        storage_program(20),
        floats(4),
    )


def test_a_tensor_that_was_killed_is_not_used():
    refused("is used after it was killed", storage_program(16, kill=True), floats(4))


def test_storages_of_the_machine():
    x = relax.Var("x", QUAD)

    def emit(builder, double):
        storage = builder.emit(relax.op.vm.alloc_storage(relax.ShapeExpr([16]), 0, "uint8"))
        out = builder.emit(relax.op.vm.alloc_tensor(storage, 0, relax.ShapeExpr([4]), "float32"))
        builder.emit(relax.Call(double, [x, out]))
        builder.emit(relax.op.vm.kill_object(storage))
        return x

    v = floats(4)
    np.testing.assert_array_equal(interpret(lowered(emit, [x]), v), v)


def test_a_view_looks_into_the_memory_of_a_tensor():
    x = relax.Var("x", TensorStructInfo((4,), "uint32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        view = builder.emit(relax.op.memory.view(x, relax.ShapeExpr([2, 4]), "uint8", relax.PrimValue(8)))
        builder.emit_func_output(view)
    array = np.arange(4, dtype="uint32") * 257
    np.testing.assert_array_equal(interpret(builder.finalize(), array), array.view("uint8")[8:].reshape(2, 4))


def test_functions_of_the_machine_work_on_a_shape_heap():
    x = relax.Var("x", TensorStructInfo(dtype="float32", ndim=2))
    heap_info = TensorStructInfo((2,), "int64")

    def call(name, args, info):
        return relax.Call(relax.extern(name), [relax.expr.as_graph_expr(a) for a in args], sinfo_args=[info])

    def emit(builder, double):
        heap = builder.emit(
            relax.op.call_builtin_with_ctx("vm.builtin.alloc_shape_heap", [relax.PrimValue(2)], sinfo_args=heap_info)
        )
        builder.emit(call("vm.builtin.match_shape", [x, heap, 2, 1, 0, 1, 1, "x: "], relax.ObjectStructInfo()))
        return builder.emit(call("vm.builtin.make_shape", [heap, 3, 1, 1, 0, 9, 1, 0], ShapeStructInfo(ndim=3)))

    assert interpret(lowered(emit, [x]), floats(5, 7)) == (7, 9, 5)


def test_loops_with_a_computed_shape():
    a = tir.Var("n", "int64")
    buffer = tir.decl_buffer((a,), "int64", name="A")
    handle, number = tir.Var("var_A", "handle"), tir.Var("k", "int64")
    i = tir.Var("i", "int64")
    body = tir.For(i, 0, a, tir.ForKind.SERIAL, tir.BufferStore(buffer, number + i, [i]))
    name, out = GlobalVar("fill"), relax.Var("out", TensorStructInfo((3,), "int64"))
    builder = BlockBuilder(oneir.IRModule({name: tir.PrimFunc([handle, number], body, buffer_map={handle: buffer})}))
    with builder.function("main", [out], pure=False):
        builder.emit(relax.op.vm.call_tir_dyn(name, [out, relax.ShapeExpr([10])]))
        builder.emit_func_output(out)
    array = np.zeros(3, "int64")
    assert interpret(builder.finalize(), array).tolist() == [10, 11, 12]
