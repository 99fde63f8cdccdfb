"""SplitCallTIRByPattern: which loops a library takes, and what is left of their function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oneir import IRModule, cpu, relax
from oneir.ir.structural import assert_structural_equal
from oneir.ir.transform import Sequential
from oneir.relax.transform import (
    AnnotateTIROpPattern,
    DeadCodeElimination,
    FuseOps,
    FuseTIR,
    LegalizeOps,
    SplitCallTIRByPattern,
)
from oneir.runtime import register_func, remove_global_func, tensor
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T

FUSED = Sequential([LegalizeOps(), AnnotateTIROpPattern(), FuseOps(), FuseTIR()])


@T.prim_func
def matmul(a: T.handle, b: T.handle, c: T.handle, M: T.int64, N: T.int64, K: T.int64):
    A = T.match_buffer(a, (M, K), "float32")
    B = T.match_buffer(b, (K, N), "float32")
    C = T.match_buffer(c, (M, N), "float32")
    for i, j, k in T.grid(M, N, K):
        with T.block("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def bias(a: T.handle, b: T.handle, c: T.handle, M: T.int64, N: T.int64):
    A = T.match_buffer(a, (M, N), "float32")
    B = T.match_buffer(b, (N,), "float32")
    C = T.match_buffer(c, (M, N), "float32")
    for i, j in T.grid(M, N):
        with T.block("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] + B[vj]


@T.prim_func
def scaled(a: T.handle, c: T.handle, M: T.int64, scale: T.float32, shift: T.float32):
    A = T.match_buffer(a, (M,), "float32")
    C = T.match_buffer(c, (M,), "float32")
    for i in range(M):
        with T.block("scaled"):
            vi = T.axis.spatial(M, i)
            C[vi] = A[vi] * scale + shift


def library(wanted: int = 9) -> tuple[list[Any], Any]:
    """What the library is asked, and a library that computes up to so many loop nests."""
    asked: list[Any] = []

    def codegen(matches: list[Any]) -> list[Any]:
        asked.append(matches)
        count = min(len(matches), wanted)
        inner = {m.matched_buffers[-1] for m in matches}
        used = [b for m in matches[:count] for b in m.matched_buffers[:-1] if b not in inner]
        return ["void {global_symbol}();", count, used]

    return asked, codegen


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), w: R.Tensor((4, 5), "float32"), b: R.Tensor((5,), "float32")) -> R.Tensor(
        (3, 5), "float32"
    ):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, b)
            gv = R.nn.relu(lv1)
            R.output(gv)
        return gv


def test_the_first_loops_are_left_to_the_library() -> None:
    asked, codegen = library(1)
    after = SplitCallTIRByPattern([matmul, bias], codegen)(FUSED(Model))
    matches = asked[0]
    assert [m.pattern for m in matches] == [matmul, bias]
    assert [int(v) for v in matches[0].symbol_values] == [3, 5, 4]
    assert [tuple(map(int, b.shape)) for b in matches[1].matched_buffers] == [(3, 5), (5,), (3, 5)]

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def unfused_epilogue(
            data: T.Buffer((T.int64(3), T.int64(5)), "float32"),
            b: T.Buffer((T.int64(5),), "float32"),
            out: T.Buffer((T.int64(3), T.int64(5)), "float32"),
        ):
            T.func_attr({"tir.noalias": True})
            total = T.alloc_buffer((T.int64(3), T.int64(5)))
            for i, j in T.grid(T.int64(3), T.int64(5)):
                with T.block("add"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    total[vi, vj] = data[vi, vj] + b[vj]
            for i, j in T.grid(T.int64(3), T.int64(5)):
                with T.block("relu"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    out[vi, vj] = T.max(total[vi, vj], T.float32(0))

    assert_structural_equal(after["unfused_epilogue"], Expected["unfused_epilogue"])
    first, second = [b.value for b in after["main"].body.blocks[0].bindings]
    assert first.op.name == "relax.call_dps_packed" and len(first.args[1].fields) == 2
    symbol = first.args[0]
    assert symbol.attrs["c_source"] == f"void {symbol.global_symbol}();" and symbol.attrs["c_source_fmt"] == "cu"
    assert second.args[0].name_hint == "unfused_epilogue" and len(second.args[1].fields) == 2


def run(mod: IRModule, name: str, compute: Any) -> tuple[np.ndarray, list[np.ndarray]]:
    """What a module computes with a library in NumPy, and its arguments."""
    rng = np.random.default_rng(0)
    args = [rng.random(s, np.float32) - 0.5 for s in ((3, 4), (4, 5), (5,))]

    @register_func(name)
    def call(*values: Any) -> None:
        *inputs, output = [np.from_dlpack(v) for v in values]
        output[...] = compute(*inputs)

    try:
        vm = relax.VirtualMachine(relax.build(DeadCodeElimination()(mod), "llvm"), cpu())
        return vm["main"](*map(tensor, args)).numpy(), args
    finally:
        remove_global_func(name)


@pytest.mark.parametrize(("count", "compute"), [(1, np.matmul), (2, lambda x, w, b: x @ w + b)])
def test_a_library_and_the_rest_compute_the_same(count: int, compute: Any) -> None:
    _, codegen = library(count)
    fused = FUSED(Model)
    (name,) = [v.name_hint for v in fused.functions if v.name_hint != "main"]
    after = SplitCallTIRByPattern([matmul, bias], codegen)(fused)
    found, (x, w, b) = run(after, name, compute)
    np.testing.assert_allclose(found, np.maximum(x @ w + b, 0), rtol=1e-5, atol=1e-6)


def test_loops_that_match_whole_become_an_external_function() -> None:
    _, codegen = library()

    @I.ir_module
    class Product:
        @R.function
        def main(x: R.Tensor((3, 4), "float32"), w: R.Tensor((4, 5), "float32")) -> R.Tensor((3, 5), "float32"):
            with R.dataflow():
                gv = R.matmul(x, w)
                R.output(gv)
            return gv

    after = SplitCallTIRByPattern([matmul], codegen)(FUSED(Product))
    assert isinstance(after["matmul"], relax.ExternFunc)
    (call,) = [b.value for b in after["main"].body.blocks[0].bindings]
    assert call.op.name == "relax.call_dps_packed" and call.args[0].global_symbol == "matmul"


def loops_of(make: Any) -> Any:
    """A call of the loops of one tensor expression, as a module."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((8,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(make(x))
        builder.emit_func_output(output)
    return FUSED(builder.finalize())


@pytest.mark.parametrize(
    ("make", "numbers"),
    [
        (lambda x: R.add(R.multiply(x, R.const(3.0, "float32")), R.const(0.5, "float32")), None),
        (lambda x: R.multiply(x, R.const(3.0, "float32")), [8, 3.0, 0.0]),
        (lambda x: R.add(x, R.const(0.5, "float32")), [8, 1.0, 0.5]),
        (lambda x: R.exp(x), None),
    ],
)
def test_numbers_of_a_pattern_are_found_or_neutral(make: Any, numbers: Any) -> None:
    asked, codegen = library()
    mod = loops_of(make)
    after = SplitCallTIRByPattern([scaled], codegen)(mod)
    if numbers is None:
        # Two loop nests, of which the first is only half of the pattern; or none at all.
        assert not asked or [m.pattern for m in asked[0]] == [scaled, scaled]
    else:
        assert [v.value for v in asked[0][0].symbol_values] == numbers
    assert (after is mod) == (not asked)


def test_what_does_not_match_or_is_not_wanted_stays() -> None:
    fused = FUSED(Model)
    asked, codegen = library()
    assert SplitCallTIRByPattern([bias], codegen)(fused) is fused and not asked
    assert SplitCallTIRByPattern([matmul], library(0)[1])(fused) is fused

    @I.ir_module
    class Dynamic:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 5), "float32")) -> R.Tensor(("n", 5), "float32"):
            with R.dataflow():
                gv = R.matmul(x, w)
                R.output(gv)
            return gv

    # A size that is not known is no number that the library could be made for.
    dynamic = FUSED(Dynamic)
    assert SplitCallTIRByPattern([matmul], library()[1])(dynamic) is dynamic


def test_what_the_rest_also_reads_of_the_inside_is_not_cut_off() -> None:
    @I.ir_module
    class Twice:
        @R.function
        def main(
            x: R.Tensor((3, 4), "float32"), w: R.Tensor((4, 5), "float32"), b: R.Tensor((5,), "float32")
        ) -> R.Tensor((3, 5), "float32"):
            with R.dataflow():
                lv = R.matmul(x, w)
                lv1 = R.add(lv, b)
                gv = R.multiply(lv1, lv)
                R.output(gv)
            return gv

    fused = FUSED(Twice)
    assert SplitCallTIRByPattern([matmul, bias], library(2)[1])(fused) is fused
    assert SplitCallTIRByPattern([matmul, bias], library(1)[1])(fused) is not fused


def test_refusals() -> None:
    fused = FUSED(Model)
    with pytest.raises(InvalidValue, match=r"returns the source, how many loop nests it computes.*found 2 values"):
        SplitCallTIRByPattern([matmul], lambda matches: ["", 1])(fused)
    with pytest.raises(InvalidValue, match="the library is to compute 4 of 1 loop nests that were matched"):
        SplitCallTIRByPattern([matmul], lambda matches: ["", 4, []])(fused)
    with pytest.raises(InvalidValue, match="expected parameters of the function"):
        SplitCallTIRByPattern([matmul], lambda matches: ["", 1, [matches[0].matched_buffers[-1]]])(fused)

    @T.prim_func
    def nothing(a: T.Buffer((4,), "float32")):
        T.evaluate(0)

    with pytest.raises(InvalidValue, match="a pattern of loops is a function of one loop nest, found"):
        SplitCallTIRByPattern([nothing], library()[1])(fused)
