"""AnnotateTIROpPattern: what the loads and stores of a function's blocks say about it."""

from __future__ import annotations

import pytest

from oneir import IRModule, relax, te, tir, topi
from oneir.relax.operator_facts import OpPattern
from oneir.relax.transform import AnnotateTIROpPattern
from oneir.script import tir as T

ELEMENTWISE, BROADCAST, INJECTIVE = OpPattern.ELEMENTWISE, OpPattern.BROADCAST, OpPattern.INJECTIVE
REDUCE, FUSABLE, OPAQUE = OpPattern.COMM_REDUCE, OpPattern.OUT_EWISE_FUSABLE, OpPattern.OPAQUE


def pattern(func: tir.PrimFunc) -> OpPattern:
    return OpPattern(AnnotateTIROpPattern()(IRModule({"main": func}))["main"].attrs["op_pattern"])


def of_te(function, *shapes: tuple, dtypes: tuple[str, ...] = ()) -> OpPattern:
    names = dtypes or ("float32",) * len(shapes)
    inputs = [te.placeholder(s, d, f"x{i}") for i, (s, d) in enumerate(zip(shapes, names, strict=True))]
    outputs = function(*inputs)
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    return pattern(te.create_prim_func([*inputs, *outputs]))


n = tir.Var("n", "int64")


@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (topi.exp, [(4, 8)], ELEMENTWISE),
        (topi.add, [(4, 8), (4, 8)], ELEMENTWISE),
        (topi.add, [(n, 8), (n, 8)], ELEMENTWISE),
        # With one operand of the result's shape, the others do not count.
        (topi.add, [(4, 8), (8,)], ELEMENTWISE),
        (topi.add, [(4, 1), (1, 8)], BROADCAST),
        (lambda x: topi.broadcast_to(x, (3, 4, 8)), [(4, 8)], BROADCAST),
        (lambda x: topi.expand_dims(x, 0), [(4, 8)], BROADCAST),
        (topi.transpose, [(4, 8)], INJECTIVE),
        (lambda x: topi.strided_slice(x, [0, 1], [4, 8], [1, 2]), [(4, 8)], INJECTIVE),
        (lambda x: topi.reshape(x, (8, 4)), [(4, 8)], INJECTIVE),
        (lambda x: topi.flip(x, 0), [(4, 8)], INJECTIVE),
        (lambda x, y: topi.concatenate([x, y], 0), [(4, 8), (2, 8)], INJECTIVE),
        (lambda x: topi.reshape(x, (n * 8,)), [(n, 8)], INJECTIVE),
        # What reads at the indices that it writes, but has elements more or fewer.
        (lambda x: topi.nn.pad(x, (0, 0), (0, 1)), [(4, 8)], INJECTIVE),
        (lambda x: topi.strided_slice(x, [0, 0], [4, 7]), [(4, 8)], INJECTIVE),
        (topi.sum, [(4, 8)], REDUCE),
        (lambda x: topi.max(x, axis=1), [(4, 8)], REDUCE),
        (lambda x: topi.sum(x, axis=-1, keepdims=True), [(n, 8)], REDUCE),
        (topi.matmul, [(4, 8), (8, 2)], FUSABLE),
        (topi.matmul, [(n, 8), (8, 2)], FUSABLE),
        (topi.nn.batch_matmul, [(2, 4, 8), (2, 3, 8)], FUSABLE),
        # A window that moves over the input: no whole axis is reduced.
        (lambda x: topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max"), [(1, 2, 8, 8)], FUSABLE),
        (lambda x, w: topi.nn.conv2d_nchw(x, w, 1, 1, 1), [(1, 3, 8, 8), (4, 3, 3, 3)], FUSABLE),
        # Several steps count as the strongest of them, and a reduction followed by what writes the result as fusable.
        (lambda x: topi.exp(topi.exp(x)), [(4, 8)], ELEMENTWISE),
        (lambda x: topi.transpose(topi.exp(x)), [(4, 8)], INJECTIVE),
        (lambda x: topi.sum(topi.exp(x), axis=1), [(4, 8)], REDUCE),
        (topi.nn.softmax, [(4, 8)], FUSABLE),
        (lambda x: topi.divide(x, topi.sum(x, axis=1, keepdims=True)), [(4, 8)], FUSABLE),
        # Two results, one part of the input each.
        (lambda x: topi.split(x, 2, 1), [(4, 8)], INJECTIVE),
    ],
)
def test_patterns(function, shapes, expected) -> None:
    assert of_te(function, *shapes) is expected


def test_a_gather_is_injective() -> None:
    assert of_te(lambda x, i: topi.take(x, i, 0), (4, 8), (3,), dtypes=("float32", "int32")) is INJECTIVE


def test_what_only_writes_is_elementwise() -> None:
    assert of_te(lambda: topi.full((4, 8), "float32", 1.0)) is ELEMENTWISE


@T.prim_func(private=True)
def scatter(x: T.Buffer((8,), "float32"), i: T.Buffer((8,), "int32"), y: T.Buffer((8,), "float32")):
    for a in range(8):
        with T.block("scatter"):
            v = T.axis.spatial(8, a)
            y[i[v]] = x[v]


@T.prim_func(private=True)
def no_block(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    T.evaluate(T.call_extern("int32", "copy", x.data, y.data))


@T.prim_func(private=True)
def two_stores(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32"), z: T.Buffer((8,), "float32")):
    for a in range(8):
        with T.block("both"):
            v = T.axis.spatial(8, a)
            y[v] = x[v]
            z[v] = x[v]


@T.prim_func(private=True)
def condition(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    for a in range(8):
        with T.block("condition"):
            v = T.axis.spatial(8, a)
            if v < 4:
                y[v] = x[v]


@T.prim_func(private=True)
def scan(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    for a, b in T.grid(8, 8):
        with T.block("prefix"):
            v, k = T.axis.remap("SS", [a, b])
            y[v] = x[k]


@pytest.mark.parametrize("func", [scatter, no_block, two_stores, condition, scan])
def test_what_is_not_understood_is_opaque(func) -> None:
    assert pattern(func) is OPAQUE


def test_a_pattern_that_is_stated_stays_and_graphs_are_left_alone() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(x)
    stated = IRModule({"f": scan.with_attr("op_pattern", int(REDUCE))})
    stated.update(builder.get())
    assert AnnotateTIROpPattern()(stated) is stated
