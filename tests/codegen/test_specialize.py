"""Lowered graphs for known extents: which kernels they call, and that nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest

import oneir
from oneir import relax, tir
from oneir.codegen.program.specialize import extents_of, with_known_extents
from oneir.driver.kernels import kernels_of
from oneir.ir.visitor import post_order_visit
from oneir.relax import op
from oneir.script import ir as I
from oneir.script import tir as T
from oneir.target import Target

TARGET = Target("llvm -mcpu=haswell")
N, M = tir.Var("n", "int64"), tir.Var("m", "int64")


def lowered(build: Any, *infos: relax.StructInfo) -> oneir.IRModule:
    """The kernels and host functions of a graph."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", info) for i, info in enumerate(infos)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(build(*params))
        builder.emit_func_output(output)
    with TARGET:
        found = kernels_of(relax.get_pipeline("default")(builder.get()), TARGET)
    assert found is not None
    return found


def tensor(*shape: Any) -> relax.TensorStructInfo:
    return relax.TensorStructInfo(shape, "float32")


def calls_of(func: tir.PrimFunc) -> list[tuple[str, list[Any]]]:
    """The kernels that a host function calls, with what it passes besides tensors."""
    found: list[tuple[str, list[Any]]] = []

    def visit(node: Any) -> None:
        if isinstance(node, tir.Call) and isinstance(node.op, oneir.ir.GlobalVar):
            found.append((node.op.name_hint, [a for a in node.args if str(a.dtype).startswith("int")]))

    post_order_visit(func.body, visit)
    return found


def test_one_kernel_gets_a_form_for_each_list_of_extents():
    mod = lowered(lambda x, y: relax.Tuple([op.exp(x), op.exp(y)]), tensor(N, 6), tensor(M, 6))
    ((kernel, first), (same, second)) = calls_of(mod["main"])
    assert kernel == same and len(first) == len(second) == 1
    known = with_known_extents(mod, "main", 2, [3, 4])
    assert calls_of(known["main"]) == [(f"{kernel}_3", []), (f"{kernel}_4", [])]
    for rows in (3, 4):
        shapes = [list(map(int, buffer.shape)) for buffer in known[f"{kernel}_{rows}"].buffer_map.values()]
        assert shapes == [[rows, 6], [rows, 6]]
    assert [v.name_hint for v in known.functions].count("main") == 1
    assert f"{kernel}_3" in [v.name_hint for v in with_known_extents(mod, "main", 2, [3, 3]).functions]


def test_kernels_of_known_extents_stay_as_they_are():
    mod = lowered(lambda x, y: relax.Tuple([op.exp(x), op.exp(y)]), tensor(N, 6), tensor(5, 7))
    known = with_known_extents(mod, "main", 2, [3])
    (of_unknown, _), (of_known, passed) = calls_of(known["main"])
    assert of_unknown.endswith("_3") and passed == []
    assert oneir.ir.structural_equal(known[of_known], mod[of_known])


def test_numbers_that_are_arguments_stay_unknown():
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def fill(p: T.handle, a: T.int64, b: T.int64):
            T.func_attr({"tir.is_shared": True})
            x = T.match_buffer(p, (a, b))
            for i, j in T.grid(a, b):
                x[i, j] = T.float32(1)

        @T.prim_func
        def main(p: T.handle, count: T.int64):
            n = T.int64()
            x = T.match_buffer(p, (n, 8))
            Module.fill(x.data, n, count)
            Module.fill(x.data, count, n)

    known = with_known_extents(Module, "main", 2, [3])
    count = known["main"].params[1]
    assert calls_of(known["main"]) == [("fill_3_n", [count]), ("fill_n_3", [count])]
    ((rows, columns),) = [buffer.shape for buffer in known["fill_3_n"].buffer_map.values()]
    assert int(rows) == 3 and columns is known["fill_3_n"].params[1]


def test_extents_are_numbered_in_the_order_of_parameters():
    mod = lowered(lambda x, y: op.add(x, op.exp(y)), tensor(M, N), tensor(M, N))
    assert [var.name for var in extents_of(mod["main"], 2)] == ["m", "n"]
    assert extents_of(mod["main"], 0) == []


def test_another_number_of_extents_is_refused():
    mod = lowered(op.exp, tensor(N, 6))
    with pytest.raises(ValueError, match="zip"):
        with_known_extents(mod, "main", 1, [3, 4])
