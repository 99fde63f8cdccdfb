"""VMShapeLower: which checks, stores and computations symbolic shapes become."""

from __future__ import annotations

import pytest

from oneir import relax, tir
from oneir.relax.transform import VMShapeLower
from oneir.runtime.error import WellFormedError
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass

# What `match_shape` does with an extent, and what `make_shape` makes one of.
IMM, STORE, NO_OP, LOAD = range(4)
USE_IMM, FROM_HEAP = range(2)


def check(before, expected) -> None:
    check_pass(VMShapeLower(emit_err_ctx=False), before, expected, idempotent=False, numbers=False)


def test_static_shapes_need_no_heap() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor((1, 2), "float32"), o: R.Object) -> R.Shape([3]):
            return R.shape([3])

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor((1, 2), "float32"), o: R.Object) -> R.Shape([3]):
            heap = R.null_value()
            _ = R.call_packed("vm.builtin.check_tensor_info", x, 2, R.dtype("float32"), "", sinfo_args=R.Tuple)
            _1 = R.call_packed("vm.builtin.match_shape", x, heap, 2, IMM, 1, IMM, 2, "", sinfo_args=R.Tuple)
            return R.shape([3])

    check(Before, Expected)


def test_extents_are_stored_where_they_come_first_and_compared_everywhere_else() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor(("n", "m"), "float32"), y: R.Tensor(("m", 4, "n"))) -> R.Shape(["m", 7, "n"]):
            n, m = T.int64(), T.int64()
            return R.shape([m, 7, n])

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor(("n", "m"), "float32"), y: R.Tensor(("m", 4, "n"))) -> R.Shape(["m", 7, "n"]):
            n, m = T.int64(), T.int64()
            heap = R.call_builtin_with_ctx(
                "vm.builtin.alloc_shape_heap", (2,), sinfo_args=R.Tensor(ndim=1, dtype="int64")
            )
            _ = R.call_packed("vm.builtin.check_tensor_info", x, 2, R.dtype("float32"), "", sinfo_args=R.Tuple)
            _1 = R.call_packed("vm.builtin.check_tensor_info", y, 3, R.dtype("void"), "", sinfo_args=R.Tuple)
            _2 = R.call_packed("vm.builtin.match_shape", x, heap, 2, STORE, 0, STORE, 1, "", sinfo_args=R.Tuple)
            _3 = R.call_packed("vm.builtin.match_shape", y, heap, 3, LOAD, 1, IMM, 4, LOAD, 0, "", sinfo_args=R.Tuple)
            s = R.call_packed(
                "vm.builtin.make_shape", heap, 3, FROM_HEAP, 1, USE_IMM, 7, FROM_HEAP, 0, sinfo_args=R.Shape(ndim=3)
            )
            _4 = R.call_packed("vm.builtin.match_shape", s, heap, 3, LOAD, 1, IMM, 7, LOAD, 0, "", sinfo_args=R.Tuple)
            return s

    check(Before, Expected)


def test_tuples_expressions_numbers_and_casts() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(
            t: R.Tuple(R.Tensor(("n + 1", "m")), R.Tuple(R.Shape(["n"]), R.Object)), p: R.Prim(value="k")
        ) -> R.Shape(["n * 2", "k"]):
            n, m, k = T.int64(), T.int64(), T.int64()
            y = R.call_packed("test.f", R.prim_value(k + 1), sinfo_args=R.Tensor(ndim=2, dtype="float32"))
            q = T.int64()
            z = R.match_cast(y, R.Tensor((q, n), "float32"))
            s = R.shape([q + n, m])
            _ = R.call_packed("test.g", z, s, sinfo_args=R.Tuple)
            return R.shape([n * 2, k])

    # n + 1, m, n, k, k + 1, q, q + n, n * 2 have the slots 0 to 7.
    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def shape_func(H: T.Buffer((T.int64(8),), "int64")):
            T.func_attr({"tir.is_host_func": True})
            H[T.int64(0)] = H[T.int64(2)] + T.int64(1)
            H[T.int64(4)] = H[T.int64(3)] + T.int64(1)
            H[T.int64(7)] = H[T.int64(2)] * T.int64(2)

        @T.prim_func(private=True)
        def shape_func1(H: T.Buffer((T.int64(8),), "int64")):
            T.func_attr({"tir.is_host_func": True})
            H[T.int64(6)] = H[T.int64(5)] + H[T.int64(2)]

        @R.function(pure=False)
        def main(
            t: R.Tuple(R.Tensor(("n + 1", "m")), R.Tuple(R.Shape(["n"]), R.Object)), p: R.Prim(value="k")
        ) -> R.Shape(["n * 2", "k"]):
            n, m, k = T.int64(), T.int64(), T.int64()
            cls = Expected
            heap = R.call_builtin_with_ctx(
                "vm.builtin.alloc_shape_heap", (8,), sinfo_args=R.Tensor(ndim=1, dtype="int64")
            )
            _ = R.call_packed("vm.builtin.check_tuple_info", t, 2, "", sinfo_args=R.Tuple)
            t0 = t[0]
            _1 = R.call_packed("vm.builtin.check_tensor_info", t0, 2, R.dtype("void"), "", sinfo_args=R.Tuple)
            t1 = t[1]
            _2 = R.call_packed("vm.builtin.check_tuple_info", t1, 2, "", sinfo_args=R.Tuple)
            t10 = t1[0]
            _3 = R.call_packed("vm.builtin.check_shape_info", t10, 1, "", sinfo_args=R.Tuple)
            _4 = R.call_packed("vm.builtin.check_prim_value_info", p, R.dtype("int64"), "", sinfo_args=R.Tuple)
            _5 = R.call_packed("vm.builtin.match_shape", t0, heap, 2, NO_OP, 0, STORE, 1, "", sinfo_args=R.Tuple)
            _6 = R.call_packed("vm.builtin.match_shape", t10, heap, 1, STORE, 2, "", sinfo_args=R.Tuple)
            _7 = R.call_packed("vm.builtin.match_prim_value", p, heap, STORE, 3, "", sinfo_args=R.Tuple)
            _8 = cls.shape_func(heap)
            _9 = R.call_packed("vm.builtin.match_shape", t0, heap, 2, LOAD, 0, LOAD, 1, "", sinfo_args=R.Tuple)
            a = R.call_packed("vm.builtin.make_prim_value", heap, FROM_HEAP, 4, sinfo_args=R.Prim(value=k + 1))
            y = R.call_packed("test.f", a, sinfo_args=R.Tensor(ndim=2, dtype="float32"))
            q = T.int64()
            _10 = R.call_packed("vm.builtin.match_shape", y, heap, 2, STORE, 5, LOAD, 2, "", sinfo_args=R.Tuple)
            _11 = cls.shape_func1(heap)
            z = R.match_cast(y, R.Tensor((q, n), "float32"))
            s = R.call_packed("vm.builtin.make_shape", heap, 2, FROM_HEAP, 6, FROM_HEAP, 1, sinfo_args=R.Shape(ndim=2))
            _12 = R.call_packed("test.g", z, s, sinfo_args=R.Tuple)
            b = R.call_packed("vm.builtin.make_shape", heap, 2, FROM_HEAP, 7, FROM_HEAP, 3, sinfo_args=R.Shape(ndim=2))
            _13 = R.call_packed("vm.builtin.match_shape", b, heap, 2, LOAD, 7, LOAD, 3, "", sinfo_args=R.Tuple)
            return b

    check(Before, Expected)


def test_an_expression_that_comes_before_its_variables_is_compared_behind_them() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor(("n * 2",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            return y

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def shape_func(H: T.Buffer((T.int64(2),), "int64")):
            T.func_attr({"tir.is_host_func": True})
            H[T.int64(0)] = H[T.int64(1)] * T.int64(2)

        @R.function(pure=False)
        def main(x: R.Tensor(("n * 2",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            cls = Expected
            heap = R.call_builtin_with_ctx(
                "vm.builtin.alloc_shape_heap", (2,), sinfo_args=R.Tensor(ndim=1, dtype="int64")
            )
            _ = R.call_packed("vm.builtin.check_tensor_info", x, 1, R.dtype("float32"), "", sinfo_args=R.Tuple)
            _1 = R.call_packed("vm.builtin.check_tensor_info", y, 1, R.dtype("float32"), "", sinfo_args=R.Tuple)
            _2 = R.call_packed("vm.builtin.match_shape", y, heap, 1, STORE, 1, "", sinfo_args=R.Tuple)
            _3 = cls.shape_func(heap)
            _4 = R.call_packed("vm.builtin.match_shape", x, heap, 1, LOAD, 0, "", sinfo_args=R.Tuple)
            return y

    check(Before, Expected)


def test_what_is_cast_is_checked_only_as_far_as_it_is_not_known() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor((4, 2), "float32"), o: R.Object) -> R.Object:
            a = R.match_cast(x, R.Tensor(ndim=2, dtype="float32"))
            b = R.match_cast(o, R.Tuple(R.Object, R.Tensor((4,), "int32")))
            c = R.match_cast(o, R.Callable([R.Object], R.Object))
            return (a, b, c)

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor((4, 2), "float32"), o: R.Object) -> R.Object:
            heap = R.null_value()
            _ = R.call_packed("vm.builtin.check_tensor_info", x, 2, R.dtype("float32"), "", sinfo_args=R.Tuple)
            _1 = R.call_packed("vm.builtin.match_shape", x, heap, 2, IMM, 4, IMM, 2, "", sinfo_args=R.Tuple)
            a = R.match_cast(x, R.Tensor(ndim=2, dtype="float32"))
            _2 = R.call_packed("vm.builtin.check_tuple_info", o, 2, "", sinfo_args=R.Tuple)
            o1 = R.call_packed("vm.builtin.tuple_getitem", o, 1, sinfo_args=R.Object)
            _3 = R.call_packed("vm.builtin.check_tensor_info", o1, 1, R.dtype("int32"), "", sinfo_args=R.Tuple)
            _4 = R.call_packed("vm.builtin.match_shape", o1, heap, 1, IMM, 4, "", sinfo_args=R.Tuple)
            b = R.match_cast(o, R.Tuple(R.Object, R.Tensor((4,), "int32")))
            _5 = R.call_packed("vm.builtin.check_func_info", o, "", sinfo_args=R.Tuple)
            c = R.match_cast(o, R.Callable([R.Object], R.Object))
            return (a, b, c)

    check(Before, Expected)


def test_weights_are_checked_only_where_their_shape_is_symbolic() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(
            x: R.Tensor(("n",), "float32"), v: R.Tensor((4,), "float32"), w: R.Tensor(("n",), "float32")
        ) -> R.Object:
            R.func_attr({"num_input": 1})
            n = T.int64()
            return (x, v, w)

    after = VMShapeLower()(Before)
    checked = [
        b.value.args[0].name
        for b in after["main"].body.blocks[0].bindings
        if isinstance(b.value.op, relax.ExternFunc) and "check_tensor_info" in b.value.op.global_symbol
    ]
    assert checked == ["x", "w"]


def test_what_is_known_in_one_branch_is_not_known_in_the_other_nor_behind() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(c: R.Tensor((), "bool"), x: R.Tensor(ndim=1, dtype="float32")) -> R.Object:
            if c:
                n = T.int64()
                y = R.match_cast(x, R.Tensor((n,), "float32"))
                a = R.call_packed("test.f", y, R.shape([n]), sinfo_args=R.Object)
                r = a
            else:
                m = T.int64()
                z = R.match_cast(x, R.Tensor((m,), "float32"))
                b = R.call_packed("test.g", z, R.shape([m]), sinfo_args=R.Object)
                r = b
            return r

    after = VMShapeLower(emit_err_ctx=False)(Before)
    relax.analysis.verify_well_formed(after)
    text = after["main"].script()
    for slot in (0, 1):
        assert f'R.prim_value(1), R.prim_value(1), R.prim_value({slot}), R.str("")' in text  # stored in each branch


def test_checks_say_where() -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def entry(x: R.Tensor(("n",), "float32"), o: R.Object) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            y = R.match_cast(o, R.Tensor((n,), "float32"))
            return y

    text = VMShapeLower()(Module).script()
    for context in ("in entry: argument `x`: ", "in entry: match_cast of `y`: "):
        assert f'R.str("{context}")' in text
    assert 'R.str("in entry' not in VMShapeLower(emit_err_ctx=False)(Module).script()


def test_a_variable_without_a_value_is_refused_by_name() -> None:
    n = tir.Var("n", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.ObjectStructInfo())
    with builder.function("main", [x], private=False):
        builder.emit_func_output(relax.ShapeExpr([n * 2]))
    with pytest.raises(
        WellFormedError, match=r"in main: `n \* .*2.*` has no value, since `n` has none: give it one by"
    ):
        VMShapeLower()(builder.get())
