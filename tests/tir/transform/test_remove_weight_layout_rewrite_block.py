"""RemoveWeightLayoutRewriteBlock: the rewritten weight is the parameter or the constant, and its block does nothing."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply, unchanged

import oneir
from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir.transform import ConvertBlocksToOpaque, LowerOpaqueBlock, RemoveNoOp, RemoveWeightLayoutRewriteBlock


def test_a_parameter_comes_in_the_new_layout():
    @T.prim_func
    def before(W: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
        W_packed = T.alloc_buffer((8, 4), "float32")
        for i, j in T.grid(4, 8):
            with T.block("rewrite"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(W[vi, vj])
                T.writes(W_packed[vj, vi])
                T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                W_packed[vj, vi] = W[vi, vj]
        for i, j in T.grid(4, 8):
            with T.block("use"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(W_packed[vj, vi])
                T.writes(C[vi, vj])
                C[vi, vj] = W_packed[vj, vi] * T.float32(2)

    @T.prim_func
    def expected(W: T.Buffer((8, 4), "float32"), C: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("rewrite"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads()
                T.writes()
                T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                T.evaluate(0)
        for i, j in T.grid(4, 8):
            with T.block("use"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(W[vj, vi])
                T.writes(C[vi, vj])
                C[vi, vj] = W[vj, vi] * T.float32(2)

    after = apply(RemoveWeightLayoutRewriteBlock(), before)
    assert_structural_equal(after.without_attr("global_symbol"), expected.without_attr("global_symbol"))
    unchanged(RemoveWeightLayoutRewriteBlock(), after)
    lowered = apply(RemoveNoOp(), apply(LowerOpaqueBlock(), apply(ConvertBlocksToOpaque(), after)))
    assert lowered.script().count("for ") == 1  # nothing runs in place of the copy


@pytest.mark.parametrize("skip", [False, True])
def test_a_constant_is_rewritten(skip):
    weights = np.arange(32, dtype="float32").reshape(4, 8)
    constant = oneir.runtime.tensor(weights)

    @T.prim_func
    def rewriting(C: T.Buffer((4, 8), "float32"), W: T.Buffer((4, 8), "float32")):
        W_packed = T.alloc_buffer((8, 4), "float32")
        for i, j in T.grid(4, 8):
            with T.block("rewrite"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(W[vi, vj])
                T.writes(W_packed[7 - vj, vi])
                T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                W_packed[7 - vj, vi] = W[vi, vj]
        for i, j in T.grid(4, 8):
            with T.block("use"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(W_packed[7 - vj, vi])
                T.writes(C[vi, vj])
                C[vi, vj] = W_packed[7 - vj, vi]

    c, w = rewriting.params
    W = rewriting.buffer_map[w]
    body = oneir.tir.AllocateConst(W.data, "float32", (4, 8), constant, oneir.tir.DeclBuffer(W, rewriting.body))
    func = oneir.tir.PrimFunc([c], body, None, {c: rewriting.buffer_map[c]})
    after = apply(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=skip), func)
    packed = np.zeros((8, 4)) if skip else weights.T[::-1]
    np.testing.assert_array_equal(after.body.data.numpy(), packed)
    assert list(map(int, after.body.extents)) == [8, 4]
    assert "alloc_buffer" not in after.script()
    assert oneir.tir.analysis.verify_well_formed(after)


def test_a_block_that_does_more_than_copy_is_refused():
    @T.prim_func
    def func(W: T.Buffer((8,), "float32")):
        P = T.alloc_buffer((8,), "float32")
        for i in range(8):
            with T.block("rewrite"):
                vi = T.axis.spatial(8, i)
                T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                P[vi] = W[vi] * T.float32(2)

    with pytest.raises(InvalidValue, match=r"block rewrite with .* must copy a buffer"):
        apply(RemoveWeightLayoutRewriteBlock(), func)
