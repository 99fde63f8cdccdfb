"""Layouts of blocks and inputs that follow from those of outputs."""

from __future__ import annotations

import pytest

from oneir.ir.structural import assert_structural_equal
from oneir.relax.analysis import suggest_layout_transforms
from oneir.runtime.error import InvalidValue, TypeMismatch
from oneir.script import tir as T
from oneir.tir import IndexMap, PrimFunc, Schedule


def suggested(func: PrimFunc, *maps) -> dict[str, dict[str, IndexMap]]:
    """What is suggested, by the names of blocks and buffers; that of a block's loops under its own name."""
    return {
        block.name_hint: {getattr(key, "name_hint", None) or key.name: index_map for key, index_map in found.items()}
        for block, found in suggest_layout_transforms(func, list(maps)).items()
    }


def check(found: dict[str, IndexMap], **expected) -> None:
    assert set(found) == set(expected)
    for name, function in expected.items():
        assert_structural_equal(found[name], IndexMap.from_func(function))


def nchw_to_nhwc(n, c, h, w):
    return n, h, w, c


@T.prim_func
def relu(A: T.Buffer((32, 64, 224, 224), "float32"), B: T.Buffer((32, 64, 224, 224), "float32")):
    for n, c, h, w in T.grid(32, 64, 224, 224):
        with T.block("compute"):
            vn, vc, vh, vw = T.axis.remap("SSSS", [n, c, h, w])
            B[vn, vc, vh, vw] = T.max(A[vn, vc, vh, vw], T.float32(0))


def test_elementwise() -> None:
    check(suggested(relu, nchw_to_nhwc)["compute"], compute=nchw_to_nhwc, A=nchw_to_nhwc, B=nchw_to_nhwc)


def test_packing() -> None:
    def packed(n, c, h, w):
        return n, c // 4, h, w, c % 4

    check(suggested(relu, packed)["compute"], compute=packed, A=packed, B=packed)
    # 64 channels do not fill groups of 5.
    assert suggested(relu, lambda n, c, h, w: (n, c // 5, h, w, c % 5)) == {}


def test_reduction_and_broadcast() -> None:
    @T.prim_func
    def total(A: T.Buffer((4, 8, 16), "float32"), b: T.Buffer((8,), "float32"), C: T.Buffer((4, 8), "float32")):
        for i, j, k in T.grid(4, 8, 16):
            with T.block("sum"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vj, vk] * b[vj]

    check(
        suggested(total, lambda i, j: (j, i))["sum"],
        sum=lambda i, j, d: (j, i, d),
        C=lambda i, j: (j, i),
        A=lambda i, j, d: (j, i, d),
        b=lambda j: (j,),
    )


def test_several_blocks_agree_on_what_is_between() -> None:
    @T.prim_func
    def two(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
        B = T.alloc_buffer((16, 16))
        for i, j in T.grid(16, 16):
            with T.block("first"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(16, 16):
            with T.block("second"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    # Blocks are looked at in order: nothing is known of B when the first one is.
    found = suggested(two, lambda i, j: (i, j // 4, j % 4))
    assert list(found) == ["second"]
    assert set(found["second"]) == {"second", "B", "C"}


def test_what_is_out_of_order_is_left_out() -> None:
    @T.prim_func
    def transposed(A: T.Buffer((8, 4), "float32"), B: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi]

    assert set(suggested(transposed, lambda i, j: (i, j // 2, j % 2))["b"]) == {"b", "B"}

    @T.prim_func
    def diagonal(A: T.Buffer((12,), "float32"), B: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi + vj]

    assert set(suggested(diagonal, lambda i, j: (j, i))["b"]) == {"b", "B"}


def test_a_dimension_that_only_part_of_an_index_needs_is_left_out() -> None:
    @T.prim_func
    def rows(A: T.Buffer((4,), "float32"), B: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi]

    assert set(suggested(rows, lambda i, j: (i * 8 + j,))["b"]) == {"b", "B"}


def test_the_schedule_takes_what_is_suggested() -> None:
    found = suggested(relu, nchw_to_nhwc)["compute"]
    schedule = Schedule(relu)
    schedule.transform_layout("compute", ("write", 0), found["B"])
    schedule.transform_block_layout("compute", found["compute"])
    block = schedule.get(schedule.get_block("compute"))
    assert [int(i.dom.extent) for i in block.iter_vars] == [32, 224, 224, 64]


def test_refusals() -> None:
    assert suggest_layout_transforms(relu, []) == {}
    with pytest.raises(InvalidValue, match=r"takes 2 indices; the parameter has 4 dimensions"):
        suggest_layout_transforms(relu, [lambda i, j: (j, i)])
    with pytest.raises(InvalidValue, match="expected at most 2 layouts"):
        suggest_layout_transforms(relu, [nchw_to_nhwc] * 3)
    with pytest.raises(TypeMismatch, match="a layout is an IndexMap or a function of the indices, found 'NHWC'"):
        suggest_layout_transforms(relu, ["NHWC"])
