"""AttachGlobalSymbol: public names for all functions."""

from __future__ import annotations

from oneir.relax.transform import AttachGlobalSymbol
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


@I.ir_module
class Private:
    @T.prim_func(private=True)
    def loops(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("b"):
                v = T.axis.spatial(4, i)
                B[v] = A[v] + T.float32(1)

    @R.function(private=True)
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Private
        y = R.call_tir(cls.loops, (x,), out_sinfo=R.Tensor((4,), "float32"))
        return y


def test_names_are_those_in_the_module() -> None:
    @I.ir_module
    class Expected:
        @T.prim_func
        def loops(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("b"):
                    v = T.axis.spatial(4, i)
                    B[v] = A[v] + T.float32(1)

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            y = R.call_tir(cls.loops, (x,), out_sinfo=R.Tensor((4,), "float32"))
            return y

    check_pass(AttachGlobalSymbol(), Private, Expected)
    check_pass(AttachGlobalSymbol(), Expected, Expected)


def test_a_system_library_has_a_prefix_for_loops_and_their_uses() -> None:
    after = AttachGlobalSymbol()(Private.with_attr("system_lib_prefix", "lib_"))
    assert {v.name_hint: f.attrs["global_symbol"] for v, f in after.functions.items()} == {
        "lib_loops": "lib_loops",
        "main": "main",
    }
    call = after["main"].body.blocks[0].bindings[0].value
    assert call.args[0] is after.get_global_var("lib_loops")
