"""FuseTIR: fused graph functions become TensorIR functions of all their blocks."""

from __future__ import annotations

import pytest

from oneir import IRModule
from oneir.ir.transform import Sequential
from oneir.relax.transform import AnnotateTIROpPattern, FuseOps, FuseTIR, LegalizeOps
from oneir.runtime.error import UnsupportedError
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass

fused = Sequential([LegalizeOps(), AnnotateTIROpPattern(), FuseOps()])


def check(program: IRModule, expected: IRModule) -> IRModule:
    return check_pass(FuseTIR(), fused(program), expected)


def test_intermediate_tensors_are_allocated_in_the_function() -> None:
    @I.ir_module
    class Program:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((8,), "float32")) -> R.Tensor((4, 8), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(a)
                gv = R.add(b, y)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def fused_tir_exp_tir_exp_add(
            x: T.Buffer((T.int64(4), T.int64(8)), "float32"),
            y: T.Buffer((T.int64(8),), "float32"),
            out: T.Buffer((T.int64(4), T.int64(8)), "float32"),
        ):
            T.func_attr({"tir.noalias": True})
            a = T.alloc_buffer((T.int64(4), T.int64(8)))
            b = T.alloc_buffer((T.int64(4), T.int64(8)))
            for i0, i1 in T.grid(T.int64(4), T.int64(8)):
                with T.block("compute"):
                    v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                    T.reads(x[v_i0, v_i1])
                    T.writes(a[v_i0, v_i1])
                    a[v_i0, v_i1] = T.exp(x[v_i0, v_i1])
            for i0, i1 in T.grid(T.int64(4), T.int64(8)):
                with T.block("compute_1"):
                    v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                    T.reads(a[v_i0, v_i1])
                    T.writes(b[v_i0, v_i1])
                    b[v_i0, v_i1] = T.exp(a[v_i0, v_i1])
            for ax0, ax1 in T.grid(T.int64(4), T.int64(8)):
                with T.block("T_add"):
                    v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                    T.reads(b[v_ax0, v_ax1], y[v_ax1])
                    T.writes(out[v_ax0, v_ax1])
                    out[v_ax0, v_ax1] = b[v_ax0, v_ax1] + y[v_ax1]

        @R.function
        def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((8,), "float32")) -> R.Tensor((4, 8), "float32"):
            cls = Expected
            with R.dataflow():
                gv = R.call_tir(cls.fused_tir_exp_tir_exp_add, (x, y), out_sinfo=R.Tensor((4, 8), "float32"))
                R.output(gv)
            return gv

    check(Program, Expected)


def test_buffers_of_a_callee_stand_before_its_results() -> None:
    @I.ir_module
    class Program:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.nn.softmax(x)
                gv = R.negative(a)
                R.output(gv)
            return gv

    after = FuseTIR()(fused(Program))
    (func,) = (f for v, f in after.functions.items() if v.name_hint.startswith("fused"))
    allocated = [b.name for b in func.body.block.alloc_buffers]
    assert allocated == ["T_softmax_maxelem", "T_softmax_exp", "T_softmax_expsum", "T_softmax_norm_intermediate"]


@I.ir_module
class Tuples:
    """Written as FuseOps would leave it: a part takes and gives tuples."""

    @T.prim_func(private=True)
    def exp(x: T.Buffer((T.int64(4),), "float32"), y: T.Buffer((T.int64(4),), "float32")):
        T.func_attr({"tir.noalias": True})
        for i in range(T.int64(4)):
            with T.block("exp"):
                v = T.axis.spatial(T.int64(4), i)
                y[v] = T.exp(x[v])

    @T.prim_func(private=True)
    def unused(x: T.Buffer((T.int64(4),), "float32")):
        T.evaluate(0)

    @R.function(private=True)
    def part(
        t: R.Tuple(R.Tensor((4,), "float32"), R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))),
    ) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
        R.func_attr({"Primitive": True})
        cls = Tuples
        with R.dataflow():
            inner = t[1]
            last = inner[1]
            first = t[0]
            a = R.call_tir(cls.exp, (last,), out_sinfo=R.Tensor((4,), "float32"))
            b = R.call_tir(cls.exp, (first,), out_sinfo=R.Tensor((4,), "float32"))
            c = R.call_tir(cls.exp, (b,), out_sinfo=R.Tensor((4,), "float32"))
            gv = (a, c)
            R.output(gv)
        return gv

    @R.function
    def main(
        x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))
    ) -> R.Tensor((4,), "float32"):
        cls = Tuples
        with R.dataflow():
            y = cls.part((x, t))
            gv = y[1]
            R.output(gv)
        return gv


def test_tuples_are_taken_apart_and_results_are_several_outputs() -> None:
    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def part(
            t: T.Buffer((T.int64(4),), "float32"),
            t_1: T.Buffer((T.int64(4),), "float32"),
            t_2: T.Buffer((T.int64(4),), "float32"),
            y: T.Buffer((T.int64(4),), "float32"),
            y_1: T.Buffer((T.int64(4),), "float32"),
        ):
            T.func_attr({"tir.noalias": True})
            b = T.alloc_buffer((T.int64(4),))
            for i in range(T.int64(4)):
                with T.block("exp"):
                    v = T.axis.spatial(T.int64(4), i)
                    y[v] = T.exp(t_2[v])
            for i in range(T.int64(4)):
                with T.block("exp_1"):
                    v = T.axis.spatial(T.int64(4), i)
                    b[v] = T.exp(t[v])
            for i in range(T.int64(4)):
                with T.block("exp_2"):
                    v = T.axis.spatial(T.int64(4), i)
                    y_1[v] = T.exp(b[v])

        @R.function
        def main(
            x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))
        ) -> R.Tensor((4,), "float32"):
            cls = Expected
            with R.dataflow():
                p = t[0]
                q = t[1]
                y = R.call_tir(cls.part, (x, p, q), out_sinfo=[R.Tensor((4,), "float32"), R.Tensor((4,), "float32")])
                gv = y[1]
                R.output(gv)
            return gv

    check_pass(FuseTIR(), Tuples, Expected)


def test_functions_that_nothing_calls_are_dropped_only_when_something_is_fused() -> None:
    assert sorted(v.name_hint for v in FuseTIR()(Tuples).functions) == ["main", "part"]
    rest = Tuples.clone()
    for name in ("part", "main"):
        del rest[name]
    assert FuseTIR()(rest) is rest


def test_symbolic_shapes_come_from_arguments_and_numbers() -> None:
    @I.ir_module
    class Program:
        @R.function
        def main(s: R.Shape(["n"]), x: R.Tensor((1, "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
            n, m = T.int64(), T.int64()
            with R.dataflow():
                a = R.broadcast_to(x, (n, m))
                gv = R.exp(a)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def fused_broadcast_to_tir_exp(p_x: T.handle, p_out: T.handle, n: T.int64):
            T.func_attr({"tir.noalias": True})
            m = T.int64()
            x = T.match_buffer(p_x, (T.int64(1), m))
            out = T.match_buffer(p_out, (n, m))
            a = T.alloc_buffer((n, m))
            for ax0, ax1 in T.grid(n, m):
                with T.block("T_broadcast_to"):
                    v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                    T.reads(x[T.int64(0), v_ax1])
                    T.writes(a[v_ax0, v_ax1])
                    a[v_ax0, v_ax1] = x[T.int64(0), v_ax1]
            for i0, i1 in T.grid(n, m):
                with T.block("compute"):
                    v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                    T.reads(a[v_i0, v_i1])
                    T.writes(out[v_i0, v_i1])
                    out[v_i0, v_i1] = T.exp(a[v_i0, v_i1])

        @R.function
        def main(s: R.Shape(["n"]), x: R.Tensor((1, "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
            n, m = T.int64(), T.int64()
            cls = Expected
            with R.dataflow():
                gv = R.call_tir(
                    cls.fused_broadcast_to_tir_exp,
                    (x,),
                    out_sinfo=R.Tensor((n, m), "float32"),
                    tir_vars=R.shape([n]),
                )
                R.output(gv)
            return gv

    check(Program, Expected)


def test_a_symbolic_callee_is_given_the_extents_of_its_call() -> None:
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def exp(p_x: T.handle, p_y: T.handle):
            T.func_attr({"tir.noalias": True})
            n = T.int64()
            x = T.match_buffer(p_x, (n,))
            y = T.match_buffer(p_y, (n,))
            for i in range(n):
                with T.block("exp"):
                    v = T.axis.spatial(n, i)
                    y[v] = T.exp(x[v])

        @R.function(private=True)
        def twice(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Primitive": True})
            cls = Module
            with R.dataflow():
                a = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((4,), "float32"))
                gv = R.call_tir(cls.exp, (a,), out_sinfo=R.Tensor((4,), "float32"))
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            with R.dataflow():
                gv = cls.twice(x)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def twice(x: T.Buffer((T.int64(4),), "float32"), y: T.Buffer((T.int64(4),), "float32")):
            T.func_attr({"tir.noalias": True})
            a = T.alloc_buffer((T.int64(4),))
            for i in range(T.int64(4)):
                with T.block("exp"):
                    v = T.axis.spatial(T.int64(4), i)
                    a[v] = T.exp(x[v])
            for i in range(T.int64(4)):
                with T.block("exp_1"):
                    v = T.axis.spatial(T.int64(4), i)
                    y[v] = T.exp(a[v])

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            with R.dataflow():
                gv = R.call_tir(cls.twice, (x,), out_sinfo=R.Tensor((4,), "float32"))
                R.output(gv)
            return gv

    check_pass(FuseTIR(), Module, Expected)


def test_a_module_without_fused_functions_comes_back() -> None:
    @I.ir_module
    class Program:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.exp(x)

    legal = LegalizeOps()(Program)
    assert FuseTIR()(legal) is legal


def test_functions_for_other_compilers_stay_graphs() -> None:
    mod = Tuples.clone()
    mod["part"] = mod["part"].with_attr("Codegen", "test")
    assert FuseTIR()(mod) is mod


def test_tensors_of_unknown_shape_are_refused_by_name() -> None:
    @I.ir_module
    class Module:
        @R.function(private=True)
        def part(x: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor(ndim=1, dtype="float32"):
            R.func_attr({"Primitive": True})
            return x

        @R.function
        def main(x: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor(ndim=1, dtype="float32"):
            cls = Module
            return cls.part(x)

    with pytest.raises(UnsupportedError, match="`x` has no known shape"):
        FuseTIR()(Module)


def test_other_calls_in_a_fused_function_are_refused_by_name() -> None:
    @I.ir_module
    class Module:
        @R.function(private=True)
        def part(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Primitive": True})
            return R.exp(x)

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            return cls.part(x)

    with pytest.raises(UnsupportedError, match=r"`part` .*R\.exp\(x\).*legalize"):
        FuseTIR()(Module)
