"""AlterOpImpl: other loops for an operator, and the layouts that they want."""

from __future__ import annotations

from typing import Any

import pytest

from oneir import IRModule, tir
from oneir.relax.transform import AlterOpImpl, DeadCodeElimination, OptimizeLayoutTransform
from oneir.runtime.error import InvalidValue, ShapeMismatch, TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass
from oneir.testing.numerics import assert_same_numbers


@T.prim_func(private=True)
def add_blocked(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32"), c: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        with T.block("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = a[vi, vj] + b[vi, vj]


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def add(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32"), c: T.Buffer((16,), "float32")):
        T.func_attr({"operator_name": "relax.add"})
        for i in range(16):
            with T.block("add"):
                vi = T.axis.spatial(16, i)
                c[vi] = a[vi] + b[vi]

    @R.function
    def main(x: R.Tensor((16,), "float32"), y: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        cls = Before
        with R.dataflow():
            lv = R.call_tir(cls.add, (x, y), out_sinfo=R.Tensor((16,), "float32"))
            gv = R.call_tir(cls.add, (lv, y), out_sinfo=R.Tensor((16,), "float32"))
            R.output(gv)
        return gv


def called(mod: IRModule) -> list[str]:
    """What `main` calls: loops by their names, and changes of layout."""
    values = [b.value for b in mod["main"].body.blocks[0].bindings]
    return [v.args[0].name_hint if v.op.name == "relax.call_tir" else "layout" for v in values]


def blocked(i: Any) -> Any:
    return i // 4, i % 4


def test_loops_are_replaced_and_get_their_layouts() -> None:
    @I.ir_module
    class Single:
        @T.prim_func(private=True)
        def add(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32"), c: T.Buffer((16,), "float32")):
            T.func_attr({"operator_name": "relax.add"})
            for i in range(16):
                with T.block("add"):
                    vi = T.axis.spatial(16, i)
                    c[vi] = a[vi] + b[vi]

        @R.function
        def main(x: R.Tensor((16,), "float32"), y: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            cls = Single
            with R.dataflow():
                gv = R.call_tir(cls.add, (x, y), out_sinfo=R.Tensor((16,), "float32"))
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def add(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32"), c: T.Buffer((16,), "float32")):
            T.func_attr({"operator_name": "relax.add"})
            for i in range(16):
                with T.block("add"):
                    vi = T.axis.spatial(16, i)
                    c[vi] = a[vi] + b[vi]

        @T.prim_func(private=True)
        def relax_add_replacement(
            a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32"), c: T.Buffer((4, 4), "float32")
        ):
            T.func_attr({"operator_name": "relax.add"})
            for i, j in T.grid(4, 4):
                with T.block("add"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    c[vi, vj] = a[vi, vj] + b[vi, vj]

        @R.function
        def main(x: R.Tensor((16,), "float32"), y: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            cls = Expected
            with R.dataflow():
                lv = R.layout_transform(x, index_map=T.index_map(lambda i: (i // 4, i % 4)))
                lv1 = R.layout_transform(y, index_map=T.index_map(lambda i: (i // 4, i % 4)))
                lv2 = R.call_tir(cls.relax_add_replacement, (lv, lv1), out_sinfo=R.Tensor((4, 4), "float32"))
                gv = R.layout_transform(lv2, index_map=T.index_map(lambda i, j: (i * 4 + j,)))
                R.output(gv)
            return gv

    alter = AlterOpImpl({"relax.add": add_blocked}, {"relax.add": [tir.IndexMap.from_func(blocked)] * 3})
    check_pass(alter, Single, Expected, idempotent=False)


def test_changes_between_replaced_loops_can_be_removed() -> None:
    alter = AlterOpImpl({"relax.add": add_blocked}, {"relax.add": [blocked] * 3})
    after = DeadCodeElimination()(OptimizeLayoutTransform()(alter(Before)))
    calls = [b.value.op.name for b in after["main"].body.blocks[0].bindings]
    assert calls.count("relax.layout_transform") == 3
    assert sorted(v.name_hint for v in after.functions) == ["main", "relax_add_replacement"]
    assert_same_numbers(Before, after, entry="main")


def test_a_layout_that_pads_is_undone_by_loops() -> None:
    @T.prim_func(private=True)
    def exp_blocked(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = T.exp(a[vi, vj])

    @I.ir_module
    class Odd:
        @T.prim_func(private=True)
        def exp(a: T.Buffer((14,), "float32"), b: T.Buffer((14,), "float32")):
            T.func_attr({"operator_name": "relax.exp"})
            for i in range(14):
                with T.block("exp"):
                    vi = T.axis.spatial(14, i)
                    b[vi] = T.exp(a[vi])

        @R.function
        def main(x: R.Tensor((14,), "float32")) -> R.Tensor((14,), "float32"):
            cls = Odd
            with R.dataflow():
                lv = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((14,), "float32"))
                gv = R.call_tir(cls.exp, (lv,), out_sinfo=R.Tensor((14,), "float32"))
                R.output(gv)
            return gv

    after = AlterOpImpl({"relax.exp": exp_blocked}, {"relax.exp": [blocked, blocked]})(Odd)
    names = called(after)
    once = ["layout", "relax_exp_replacement", "layout", "remove_pad"]
    assert names == [*once, *once]
    assert (
        after["remove_pad"].attrs["operator_name"] == "remove_pad" and "global_symbol" not in after["remove_pad"].attrs
    )
    shorter = OptimizeLayoutTransform()(after)
    assert called(shorter) == ["layout", *["relax_exp_replacement"] * 2, "layout", "remove_pad"]


def test_several_results_and_parameters_that_keep_their_layouts() -> None:
    @T.prim_func(private=True)
    def split_blocked(a: T.Buffer((4, 4), "float32"), b: T.Buffer((16,), "float32"), c: T.Buffer((4, 4), "float32")):
        for i in range(16):
            with T.block("both"):
                vi = T.axis.spatial(16, i)
                b[vi] = a[vi // 4, vi % 4] + T.float32(1)
                c[vi // 4, vi % 4] = a[vi // 4, vi % 4] * T.float32(2)

    @I.ir_module
    class Two:
        @T.prim_func(private=True)
        def both(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32"), c: T.Buffer((16,), "float32")):
            T.func_attr({"operator_name": "both"})
            for i in range(16):
                with T.block("both"):
                    vi = T.axis.spatial(16, i)
                    b[vi] = a[vi] + T.float32(1)
                    c[vi] = a[vi] * T.float32(2)

        @R.function
        def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            cls = Two
            with R.dataflow():
                lv = R.call_tir(cls.both, (x,), out_sinfo=[R.Tensor((16,), "float32"), R.Tensor((16,), "float32")])
                lv1 = lv[0]
                lv2 = lv[1]
                gv = R.add(lv1, lv2)
                R.output(gv)
            return gv

    separators = {"both": [[1], [], [1]]}
    after = AlterOpImpl({"both": split_blocked}, {"both": [blocked, None, blocked]}, separators)(Two)
    values = [b.value for b in after["main"].body.blocks[0].bindings]
    changes = [v for v in values if getattr(getattr(v, "op", None), "name", "") == "relax.layout_transform"]
    assert [list(v.attrs["axis_separators"]) for v in changes] == [[1], [1]]
    assert_same_numbers(
        Two, AlterOpImpl({"both": split_blocked}, {"both": [blocked, None, blocked]})(Two), entry="main"
    )


def test_operators_without_a_replacement_and_layouts_that_stay() -> None:
    assert AlterOpImpl({"relax.exp": add_blocked}, {})(Before) is Before
    plain = Before["add"].with_attr("fast", True)
    assert called(AlterOpImpl({"relax.add": plain}, {})(Before)) == ["relax_add_replacement"] * 2


def test_refusals() -> None:
    with pytest.raises(
        InvalidValue, match=r"for 'relax.add' has 3 parameters, but there are 2 layouts; give one for each"
    ):
        AlterOpImpl({"relax.add": add_blocked}, {"relax.add": [blocked, blocked]})
    with pytest.raises(TypeMismatch, match="a layout is an IndexMap or a function of indices, found 4"):
        AlterOpImpl({"relax.add": add_blocked}, {"relax.add": [4, blocked, blocked]})

    @T.prim_func(private=True)
    def two(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj]

    with pytest.raises(InvalidValue, match=r"`.*add.*` has 3 parameters, its replacement for 'relax.add' 2"):
        AlterOpImpl({"relax.add": two}, {"relax.add": [blocked, blocked]})(Before)


def test_a_result_of_unknown_shape_is_refused() -> None:
    @I.ir_module
    class Unknown:
        @T.prim_func(private=True)
        def add(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32"), c: T.Buffer((16,), "float32")):
            T.func_attr({"operator_name": "relax.add"})
            for i in range(16):
                with T.block("add"):
                    vi = T.axis.spatial(16, i)
                    c[vi] = a[vi] + b[vi]

        @R.function
        def main(x: R.Tensor((16,), "float32")) -> R.Tensor("float32", ndim=1):
            cls = Unknown
            gv = R.call_tir(cls.add, (x, x), out_sinfo=R.Tensor("float32", ndim=1))
            return gv

    mod: IRModule = Unknown
    with pytest.raises(ShapeMismatch, match="a result whose layout changes needs a known shape"):
        AlterOpImpl({"relax.add": add_blocked}, {"relax.add": [blocked] * 3})(mod)
