"""OptimizeLayoutTransform: changes of layout that undo each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oneir import relax, tir
from oneir.relax.struct_info import TensorStructInfo
from oneir.relax.transform import OptimizeLayoutTransform
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def chain(shape: tuple[int, ...], *maps: Callable[..., Any]) -> relax.Function:
    builder = relax.BlockBuilder()
    x = relax.Var("x", TensorStructInfo(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(R.exp(x))
            for index_map in maps:
                value = builder.emit(
                    R.layout_transform(value, index_map=tir.IndexMap.from_func(index_map, index_dtype="int64"))
                )
            output = builder.emit_output(R.tanh(value))
        builder.emit_func_output(output)
    return builder.finalize()


def blocked(i: Any) -> Any:
    return i // 4, i % 4


def plain(i: Any, j: Any) -> Any:
    return (i * 4 + j,)


def swapped(i: Any, j: Any) -> Any:
    return j, i


def shifted(i: Any, j: Any) -> Any:
    return i, (j + 1) % 4


def test_there_and_back_is_nothing() -> None:
    check_pass(OptimizeLayoutTransform(), chain((16,), blocked, plain), chain((16,)))
    check_pass(OptimizeLayoutTransform(), chain((4, 4), swapped, swapped), chain((4, 4)))
    check_pass(OptimizeLayoutTransform(), chain((16,), blocked, swapped, swapped, plain), chain((16,)))


def test_what_only_has_the_same_shape_stays() -> None:
    mod = chain((16,), blocked, swapped, plain)
    assert OptimizeLayoutTransform()(mod) is mod
    once = chain((4, 4), swapped)
    assert OptimizeLayoutTransform()(once) is once
    moved = chain((4, 4), shifted, shifted)
    assert OptimizeLayoutTransform()(moved) is moved


@I.ir_module
class Padded:
    @T.prim_func(private=True)
    def remove_pad(var_input: T.handle, var_output: T.handle):
        T.func_attr({"operator_name": "remove_pad"})
        p0, i0 = T.int64(), T.int64()
        data = T.match_buffer(var_input, (p0,), "float32")
        output = T.match_buffer(var_output, (i0,), "float32")
        for i in range(i0):
            with T.block("output"):
                vi = T.axis.spatial(i0, i)
                output[vi] = data[vi]

    @R.function
    def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        cls = Padded
        with R.dataflow():
            lv = R.layout_transform(x, index_map=T.index_map(lambda i, j: (i * 4 + j,)))
            lv1 = R.call_tir(cls.remove_pad, (lv,), out_sinfo=R.Tensor((14,), "float32"))
            lv2 = R.layout_transform(lv1, index_map=T.index_map(lambda i: (i // 4, i % 4)), pad_value=None)
            gv = R.exp(lv2)
            R.output(gv)
        return gv


def test_padding_that_is_removed_and_comes_back() -> None:
    after = OptimizeLayoutTransform()(Padded)
    (exp,) = after["main"].body.blocks[0].bindings
    assert exp.value.op.name == "relax.exp" and exp.value.args[0] is after["main"].params[0]


def test_other_functions_in_between_stay() -> None:
    other = Padded.clone()
    loops = Padded["remove_pad"].with_attr("operator_name", "add_one")
    other.update_func(other.get_global_var("remove_pad"), loops)
    assert OptimizeLayoutTransform()(other) is other
