"""LegalizeOps: operators become calls of loops; what has unknown shapes stays."""

from __future__ import annotations

import warnings

import pytest

from oneir import relax, topi
from oneir.ir import Op, structural_equal
from oneir.relax.operator_facts import FLegalize
from oneir.relax.transform import LegalizeOps, legalize_ops
from oneir.relax.transform.legalize_ops.common import register_legalize
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


@I.ir_module
class Two:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((8,), "float32")) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            lv = R.add(x, y)
            gv = R.exp(lv)
            R.output(gv)
        return gv


def test_each_operator_becomes_a_call_of_its_loops() -> None:
    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def add(
            x: T.Buffer((T.int64(4), T.int64(8)), "float32"),
            y: T.Buffer((T.int64(8),), "float32"),
            T_add: T.Buffer((T.int64(4), T.int64(8)), "float32"),
        ):
            T.func_attr({"tir.noalias": True})
            for ax0, ax1 in T.grid(T.int64(4), T.int64(8)):
                with T.block("T_add"):
                    v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                    T.reads(x[v_ax0, v_ax1], y[v_ax1])
                    T.writes(T_add[v_ax0, v_ax1])
                    T_add[v_ax0, v_ax1] = x[v_ax0, v_ax1] + y[v_ax1]

        @T.prim_func(private=True)
        def tir_exp(
            lv: T.Buffer((T.int64(4), T.int64(8)), "float32"),
            compute: T.Buffer((T.int64(4), T.int64(8)), "float32"),
        ):
            T.func_attr({"tir.noalias": True})
            for i0, i1 in T.grid(T.int64(4), T.int64(8)):
                with T.block("compute"):
                    v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                    T.reads(lv[v_i0, v_i1])
                    T.writes(compute[v_i0, v_i1])
                    compute[v_i0, v_i1] = T.exp(lv[v_i0, v_i1])

        @R.function
        def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((8,), "float32")) -> R.Tensor((4, 8), "float32"):
            cls = Expected
            with R.dataflow():
                lv = R.call_tir(cls.add, (x, y), out_sinfo=R.Tensor((4, 8), dtype="float32"))
                gv = R.call_tir(cls.tir_exp, (lv,), out_sinfo=R.Tensor((4, 8), dtype="float32"))
                R.output(gv)
            return gv

    check_pass(LegalizeOps(), Two, Expected)


def test_loops_of_equal_calls_are_one_function_and_of_others_get_names_of_their_own() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((2,), "float32")) -> R.Tuple(
            R.Tensor((4,), "float32"), R.Tensor((2,), "float32")
        ):
            a = R.exp(x)
            b = R.exp(a)
            c = R.exp(y)
            return (b, c)

    after = LegalizeOps()(Before)
    bindings = after["main"].body.blocks[0].bindings
    assert [b.value.args[0].name_hint for b in bindings] == ["tir_exp", "tir_exp", "tir_exp1"]
    assert sorted(v.name_hint for v in after.functions) == ["main", "tir_exp", "tir_exp1"]


def test_symbolic_shapes_become_symbolic_loops() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor((4, "n"), "float32"):
            n = T.int64()
            return R.permute_dims(x)

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def transpose(var_x: T.handle, var_T_transpose: T.handle):
            T.func_attr({"tir.noalias": True})
            n = T.int64()
            x = T.match_buffer(var_x, (n, T.int64(4)))
            T_transpose = T.match_buffer(var_T_transpose, (T.int64(4), n))
            for ax0, ax1 in T.grid(T.int64(4), n):
                with T.block("T_transpose"):
                    v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                    T.reads(x[v_ax1, v_ax0])
                    T.writes(T_transpose[v_ax0, v_ax1])
                    T_transpose[v_ax0, v_ax1] = x[v_ax1, v_ax0]

        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor((4, "n"), "float32"):
            n = T.int64()
            cls = Expected
            gv = R.call_tir(cls.transpose, (x,), out_sinfo=R.Tensor((4, n), dtype="float32"))
            return gv

    check_pass(LegalizeOps(), Before, Expected)


def test_a_rule_of_the_caller_takes_the_place_of_the_operators() -> None:
    def as_subtraction(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return builder.call_te(topi.subtract, *call.args)

    after = LegalizeOps({"relax.add": as_subtraction})(Two)
    assert sorted(v.name_hint for v in after.functions) == ["main", "subtract", "tir_exp"]


def test_what_a_rule_returns_is_legalized_again() -> None:
    def as_exp_of_log(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return relax.op.multiply(relax.op.exp(call.args[0]), relax.op.log(call.args[0]))

    after = LegalizeOps({"relax.add": as_exp_of_log})(Two)
    names = [b.value.args[0].name_hint for b in after["main"].body.blocks[0].bindings]
    assert names == ["tir_exp", "tir_log", "multiply", "tir_exp"]
    relax.analysis.verify_well_formed(after)


def test_what_a_rule_emits_is_legalized_again() -> None:
    def in_steps(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        a = builder.emit(relax.op.exp(call.args[0]))
        return builder.emit(relax.op.multiply(a, builder.emit(relax.op.log(a))))

    after = LegalizeOps({"relax.add": in_steps})(Two)
    (block,) = after["main"].body.blocks
    assert isinstance(block, relax.DataflowBlock)
    calls = [b.value for b in block.bindings if isinstance(b.value, relax.Call)]
    assert [c.args[0].name_hint for c in calls] == ["tir_exp", "tir_log", "multiply", "tir_exp"]
    relax.analysis.verify_well_formed(after)


def test_unknown_shapes_stay_and_are_named_when_that_is_asked_for() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(ndim=2, dtype="float32"), y: R.Tensor((4,), "float32")) -> R.Tensor(ndim=2):
            with R.dataflow():
                lv = R.add(x, y)
                gv = R.exp(lv)
                R.output(gv)
            return gv

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_pass(LegalizeOps(), Before, Before)
    with pytest.warns(UserWarning, match=r"relax\.(add|exp) stays: the shapes of .* are not known"):
        assert LegalizeOps(enable_warning=True)(Before) is Before


def test_operators_whose_result_depends_on_data_need_only_know_their_arguments() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((8, 9), "float32"),
            begin: R.Tensor((2,), "int64"),
            end: R.Tensor((2,), "int64"),
            strides: R.Tensor((2,), "int64"),
        ) -> R.Tensor(ndim=2, dtype="float32"):
            return R.dynamic_strided_slice(x, begin, end, strides)

    after = LegalizeOps()(Before)
    steps = [b.value for b in after["main"].body.blocks[0].bindings]
    assert [s.op.name if isinstance(s, relax.Call) else type(s).__name__ for s in steps] == [
        "relax.call_tir",
        "relax.tensor_to_shape",
        "Var",
        "relax.call_tir",
    ]
    relax.analysis.verify_well_formed(after)


def test_operators_without_loops_and_other_calls_stay() -> None:
    @I.ir_module
    class Before:
        @R.function
        def helper(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return x

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            a = cls.helper(x)
            s = R.shape_of(a)
            b = R.call_pure_packed("test.twice", a, s, sinfo_args=R.Tensor((4,), "float32"))
            return b

    assert LegalizeOps()(Before) is Before


def test_branches_and_local_functions_are_entered() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            if c:
                a = R.exp(x)
                y = R.add(a, x)
            else:
                y = R.log(x)
            return y

    after = LegalizeOps()(Before)
    assert sorted(v.name_hint for v in after.functions) == ["add", "main", "tir_exp", "tir_log"]
    assert "R.exp" not in after["main"].script() and "R.log" not in after["main"].script()
    assert structural_equal(LegalizeOps()(after), after)


def test_the_graph_around_an_operator_keeps_its_attributes_and_names() -> None:
    after = LegalizeOps()(Two.with_attr("key", "value"))
    assert after.attrs["key"] == "value"
    assert [b.var.name for b in after["main"].body.blocks[0].bindings] == ["lv", "gv"]
    assert after["main"].attrs["global_symbol"] == "main"


def test_a_legalization_is_stated_for_all() -> None:
    op = Op.get("relax.cosh")
    known = FLegalize.of(op)
    register_legalize("relax.cosh")(lambda builder, call: builder.call_te(topi.sinh, call.args[0]))

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.cosh(x)

    try:
        assert "T.sinh" in LegalizeOps()(Before).script()
    finally:
        FLegalize.set(op, known)


@pytest.mark.parametrize(
    "operator",
    [
        "binary.add",
        "create.full",
        "datatype.astype",
        "image.resize2d",
        "index.strided_slice",
        "linear_algebra.matmul",
        "manipulate.concat",
        "nn.softmax",
        "qdq.quantize",
        "search.where",
        "statistical.mean",
        "unary.exp",
        "vision.all_class_non_max_suppression",
    ],
)
def test_the_published_modules_hold_the_legalizations_of_their_families(operator: str) -> None:
    family, _, name = operator.partition(".")
    found = getattr(getattr(legalize_ops, family), name)
    call = f"relax.{operator}" if family in ("image", "nn", "vision") else f"relax.{name}"
    assert found.op is Op.get(call) and FLegalize.of(found.op) is not None


def test_results_stay_on_their_device() -> None:
    @I.ir_module
    class OnDevice:
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("opencl")]})

        @R.function
        def main(x: R.Tensor((4, 8), "float32", "opencl:0"), y: R.Tensor((4, 8), "float32", "llvm:0")):
            values, _ = R.topk(R.add(x, x), k=2)
            loss = R.nn.cross_entropy_with_logits(x, x)  # of several kernels
            return values, loss, R.exp(y)

    opencl, llvm = OnDevice.global_infos["vdevice"][1], OnDevice.global_infos["vdevice"][0]
    main = LegalizeOps()(OnDevice)["main"]
    kernels = [b for b in main.body.blocks[0].bindings if isinstance(b.value, relax.Call)]
    assert len(kernels) > 3
    for binding in kernels:
        info = binding.var.struct_info
        wanted = llvm if binding.value.args[0].name_hint == "tir_exp" else opencl
        for tensor in info.fields if isinstance(info, relax.TupleStructInfo) else [info]:
            assert tensor.vdevice is wanted, f"{binding.var} = {binding.value}"
