"""Operators that move elements: shapes, joining, cutting, repeating, and sums of what was repeated."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from op_testing import check, infer, random, tensor, var

from oneir import relax, tir
from oneir.relax import op
from oneir.relax.struct_info import ShapeStructInfo, TupleStructInfo
from oneir.runtime.error import OneIRError

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
SHAPE = relax.Var("s", ShapeStructInfo(ndim=2))


def tensors(*infos: Any) -> relax.Tuple:
    return relax.Tuple([relax.Var(f"x{i}", info) for i, info in enumerate(infos)])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: op.broadcast_to(var((2, 1)), (4, 2, 3)), tensor((4, 2, 3))),
        (lambda: op.broadcast_to(var((N, 1)), (N, 3)), tensor((N, 3))),
        (lambda: op.broadcast_to(var(ndim=2), SHAPE), tensor(SHAPE)),
        (lambda: op.reshape(var((2, 3)), (3, 2)), tensor((3, 2))),
        (lambda: op.reshape(var((2, 3, 4)), (6, -1)), tensor((6, 4))),
        (lambda: op.reshape(var((2, 3, 4)), (0, -1)), tensor((2, 12))),
        (lambda: op.reshape(var((N, 4)), (2, -1)), tensor((2, N * 2))),
        (lambda: op.reshape(var(None), SHAPE), tensor(SHAPE)),
        (lambda: op.flatten(var((2, 3))), tensor((6,))),
        (lambda: op.flatten(var((N, 3))), tensor((N * 3,))),
        (lambda: op.flatten(var(())), tensor((1,))),
        (lambda: op.flatten(var(None, None)), tensor(None, None, 1)),
        (lambda: op.expand_dims(var((2, 3)), 1), tensor((2, 1, 3))),
        (lambda: op.expand_dims(var((N, 3)), [-1, 0]), tensor((1, N, 3, 1))),
        (lambda: op.expand_dims(var(ndim=2), [0]), tensor(ndim=3)),
        (lambda: op.expand_dims(var(), [0]), tensor()),
        (lambda: op.squeeze(var((2, 1, 3, 1))), tensor((2, 3))),
        (lambda: op.squeeze(var((2, 1, 3, 1)), -1), tensor((2, 1, 3))),
        (lambda: op.squeeze(var((N, 1))), tensor()),
        (lambda: op.squeeze(var((N, 1)), [0]), tensor((1,))),
        (lambda: op.squeeze(var(ndim=3), [0]), tensor(ndim=2)),
        (lambda: op.permute_dims(var((2, 3, 4))), tensor((4, 3, 2))),
        (lambda: op.permute_dims(var((2, N, 4)), [1, -1, 0]), tensor((N, 4, 2))),
        (lambda: op.permute_dims(var(ndim=3)), tensor(ndim=3)),
        (lambda: op.permute_dims(var(), [1, 0]), tensor(ndim=2)),
        (lambda: op.concat(tensors(tensor((2, 3)), tensor((2, 4))), 1), tensor((2, 7))),
        (lambda: op.concat(tensors(tensor((2, N)), tensor((2, M))), -1), tensor((2, N + M))),
        (lambda: op.concat(tensors(tensor((N, 3)), tensor((M, 3))), 1), tensor(ndim=2)),
        (lambda: op.concat(tensors(tensor((2, 3)), tensor(ndim=2)), 1), tensor(ndim=2)),
        (lambda: op.concat(tensors(tensor((2,)), tensor((3,), None)), None), tensor((5,), None)),
        (lambda: op.concat(tensors(tensor(), tensor()), 1), tensor()),
        (lambda: op.stack(tensors(tensor((2, 3)), tensor((2, 3))), 1), tensor((2, 2, 3))),
        (lambda: op.stack(tensors(tensor((N,)), tensor((N,)), tensor((N,))), -1), tensor((N, 3))),
        (lambda: op.stack(tensors(tensor((2, 3)), tensor(ndim=2))), tensor(ndim=3)),
        (lambda: op.split(var((2, 6)), 3, 1), TupleStructInfo([tensor((2, 2))] * 3)),
        (lambda: op.split(var((2, 5)), 2, -1), TupleStructInfo([tensor((2, 3)), tensor((2, 2))])),
        (
            lambda: op.split(var((7, 2)), [2, 4]),
            TupleStructInfo([tensor((2, 2)), tensor((2, 2)), tensor((3, 2))]),
        ),
        (lambda: op.split(var(ndim=2), 2), TupleStructInfo([tensor(ndim=2)] * 2)),
        (lambda: op.repeat(var((2, 3)), 2), tensor((12,))),
        (lambda: op.repeat(var((2, N)), 3, -1), tensor((2, N * 3))),
        (lambda: op.repeat(var(ndim=2), 3, 0), tensor(ndim=2)),
        (lambda: op.repeat(var(), 3), tensor(ndim=1)),
        (lambda: op.tile(var((2, 3)), 2), tensor((2, 6))),
        (lambda: op.tile(var((N, 3)), (4, 2, 1)), tensor((4, N * 2, 3))),
        (lambda: op.tile(var(ndim=2), (4, 2, 1)), tensor(ndim=3)),
        (lambda: op.flip(var((N, 3)), 1), tensor((N, 3))),
        (lambda: op.collapse_sum_to(var((2, 3, 4)), (3, 1)), tensor((3, 1))),
        (lambda: op.collapse_sum_like(var((2, N, 4)), var((N, 1))), tensor((N, 1))),
        (lambda: op.collapse_sum_like(var(), var(ndim=2)), tensor(ndim=2)),
        (lambda: op.layout_transform(var((N, 8)), lambda i, j: (j // 4, i, j % 4)), tensor((2, N, 4))),
        (lambda: op.layout_transform(var((3, 7)), lambda i, j: (j // 4, i, j % 4), 0), tensor((2, 3, 4))),
        (lambda: op.layout_transform(var(), lambda i, j: (j // 4, i, j % 4)), tensor(ndim=3)),
    ],
)
def test_struct_info(call: Any, expected: Any) -> None:
    assert infer(call()) == expected


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (3, 0, 2)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = random(shape)
    check(lambda a: op.flatten(a), x, torch_function=torch.flatten)
    check(lambda a: op.permute_dims(a), x, torch_function=lambda a: a.permute(2, 1, 0))
    check(lambda a: op.permute_dims(a, [1, -1, 0]), x, torch_function=lambda a: a.permute(1, 2, 0))
    check(lambda a: op.expand_dims(a, [0, -1]), x, torch_function=lambda a: a[None, ..., None])
    check(lambda a: op.flip(a, -2), x, torch_function=lambda a: a.flip(1))
    check(lambda a: op.reshape(a, (shape[2], shape[0] * shape[1])), x)
    check(lambda a: op.squeeze(a), x, torch_function=torch.squeeze)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "bool"])
def test_dtypes(dtype: str) -> None:
    x = random((2, 1, 3), dtype)
    check(lambda a: op.reshape(a, (3, -1)), x, torch_function=lambda a: a.reshape(3, 2))
    check(lambda a: op.broadcast_to(a, (2, 2, 3)), x, torch_function=lambda a: a.expand(2, 2, 3))
    check(lambda a: op.squeeze(a, 1), x, torch_function=lambda a: a.squeeze(1))
    check(lambda a: op.concat([a, a], -1), x, torch_function=lambda a: torch.cat([a, a], -1))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_joining(axis: int) -> None:
    a, b = random((2, 3)), random((2, 3), seed=1)
    check(lambda x, y: op.concat([x, y], axis), a, b, torch_function=lambda x, y: torch.cat([x, y], axis))
    check(lambda x, y: op.stack([x, y], axis), a, b, torch_function=lambda x, y: torch.stack([x, y], axis))


def test_joining_a_tuple_that_has_a_variable() -> None:
    pair = relax.Var("pair", TupleStructInfo([tensor((2, 3)), tensor((4, 3))]))
    builder = relax.BlockBuilder()
    with builder.testing_scope([]):
        builder.begin_binding_block()
        call: Any = builder.normalize(op.concat(pair))
        made: Any = call.op.get_attr("FLegalize")(builder, call)
        block = builder.end_block()
    assert made.sinfo_args[0] == tensor((6, 3)) and len(block.bindings) == 2


def test_joining_symbolic_extents() -> None:
    check(
        lambda x, y, n, m: op.concat([x, y], 0),
        random((4, 3)),
        random((2, 3)),
        shapes={0: ("n", 3), 1: ("m", 3)},
        torch_function=lambda x, y: torch.cat([x, y]),
    )


@pytest.mark.parametrize("cuts", [2, 3, [2, 5], [0, 4], [4, 9]])
def test_cutting(cuts: Any) -> None:
    x = random((2, 6))

    def expected(a: torch.Tensor) -> Any:
        return torch.split(a, 6 // cuts, 1) if isinstance(cuts, int) else torch.tensor_split(a, tuple(cuts), 1)

    check(lambda a: op.split(a, cuts, 1), x, torch_function=expected)


def test_the_last_part_may_be_smaller() -> None:
    run = check(lambda a: op.split(a, 3, 0), random((7, 2)), torch_function=lambda a: torch.split(a, 3))
    assert [p.shape[0] for p in run.native] == [3, 3, 1]
    check(lambda a: op.split(a, 4, 0), random((5, 2)))
    check(lambda a, n: op.split(a, 2, 0), random((6, 2)), shapes={0: ("n", 2)})


def test_repeating() -> None:
    x = random((2, 3))
    check(lambda a: op.repeat(a, 3), x, torch_function=lambda a: a.repeat_interleave(3))
    check(lambda a: op.repeat(a, 2, -1), x, torch_function=lambda a: a.repeat_interleave(2, -1))
    check(lambda a: op.tile(a, (2, 1, 3)), x, torch_function=lambda a: a.tile(2, 1, 3))
    check(lambda a: op.tile(a, 2), x, torch_function=lambda a: a.tile(2))


@pytest.mark.parametrize("target", [(3, 4), (1, 4), (3, 1), (4,), (1,), (2, 1, 1), ()])
def test_sums_of_what_was_repeated(target: tuple[int, ...]) -> None:
    x = random((2, 3, 4))
    check(lambda a: op.collapse_sum_to(a, target), x, torch_function=lambda a: a.sum_to_size(target))
    check(op.collapse_sum_like, x, np.zeros(target, "float32"), torch_function=lambda a, b: a.sum_to_size(b.shape))


def blocked(i: Any, j: Any) -> Any:
    return j // 4, i, j % 4


def test_layouts() -> None:
    x = random((3, 8))
    run = check(lambda a: op.layout_transform(a, blocked), x)
    np.testing.assert_array_equal(run.native, x.reshape(3, 2, 4).transpose(1, 0, 2))
    assert "te_layout_transform[v_i1 // T.int64(4), v_i0, v_i1 % T.int64(4)] = a0[v_i0, v_i1]" in str(run.module)
    check(lambda a, n: op.layout_transform(a, blocked), x, shapes={0: ("n", 8)})
    check(lambda a: op.layout_transform(a, lambda i, j: (j, i)), random((3, 8), "int8"))


def test_layouts_with_padding() -> None:
    x = random((3, 7))
    run = check(lambda a: op.layout_transform(a, blocked, 2.0), x)
    assert (run.native[1, :, 3] == 2).all() and run.native.shape == (2, 3, 4)
    assert [v.name_hint for v in run.module.functions] == ["te_layout_transform_with_pad"]
    check(lambda a: op.layout_transform(a, blocked), x)


def test_axis_separators_are_those_of_the_buffers() -> None:
    builder = relax.BlockBuilder()
    call: Any = op.layout_transform(var((3, 8)), blocked, None, [1, 2], [1])
    normal: Any = builder.normalize(call)
    normal.op.get_attr("FLegalize")(builder, normal)
    (variable, func) = next(iter(builder.get().functions.items()))
    assert isinstance(func, tir.PrimFunc) and variable.name_hint == "te_layout_transform_axis_separator"
    assert [list(func.buffer_map[p].axis_separators) for p in func.params] == [[1], [1, 2]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.reshape(var((2, 3)), (4, 2)), "relax.reshape: the shape"),
        (
            lambda: op.reshape(var((2, 3)), (-1, -1)),
            "relax.reshape: expected extents of at least 0, and at most one -1",
        ),
        (lambda: op.reshape(var((2, 3)), (4, -1)), "relax.reshape: (T.int64(2), T.int64(3)) cannot have the shape"),
        (lambda: op.reshape(var(ndim=2), (4, -1)), "need a tensor of known shape"),
        (lambda: op.broadcast_to(var((2, 3)), (2, 4)), "cannot be broadcast to"),
        (lambda: op.broadcast_to(var((2, 3)), (3,)), "a tensor of 2 dimensions cannot be broadcast to 1"),
        (lambda: op.expand_dims(var((2, 3)), [1, 1]), "relax.expand_dims: axes [1, 1] name a dimension of the 4 twice"),
        (lambda: op.squeeze(var((2, 3)), [0]), "relax.squeeze: axis 0 of the shape"),
        (lambda: op.permute_dims(var((2, 3)), [0]), "relax.permute_dims: expected 2 axes for a tensor of 2 dimensions"),
        (lambda: op.permute_dims(var((2, 3)), [0, 2]), "axis 2 is outside of a tensor of 2 dimensions"),
        (lambda: op.concat(tensors(tensor((2, 3)), tensor((3, 3))), 1), "differ at dimension 0"),
        (lambda: op.concat(tensors(tensor((2, 3)), tensor((2,))), 1), "expected tensors of as many dimensions"),
        (lambda: op.concat(tensors(tensor((2,)), tensor((2,), "int8"))), "expected arguments of one dtype"),
        (lambda: op.concat(tensors(), 1), "relax.concat: expected at least one tensor, found none"),
        (lambda: op.concat(tensors(tensor((2, 3)), tensor((2, 3))), None), "without an axis"),
        (lambda: op.stack(tensors(tensor((2, 3)), tensor((2, 3))), 3), "axis 3 is outside of a tensor of 3 dimensions"),
        (lambda: op.split(var((2, 3)), 0), "relax.split: expected at least one part, found 0"),
        (lambda: op.split(var((2, 3)), [3, 1]), "relax.split: expected ascending indices of at least 0, found [3, 1]"),
        (lambda: op.split(var((2, 3)), 2, 2), "axis 2 is outside"),
        (lambda: op.flip(var((2, 3)), 2), "relax.flip: axis 2 is outside"),
        (lambda: op.repeat(var((2, 3)), 2, 2), "relax.repeat: axis 2 is outside"),
        (lambda: op.layout_transform(var((2, 3, 4)), blocked), "the index map takes 2 indices, the tensor has 3"),
        (lambda: op.layout_transform(var((2, 3)), blocked, relax.PrimValue(1)), "pad_value must be of the tensor's"),
        (lambda: op.collapse_sum_to(var((2, 3)), (2,)), "which is not known to broadcast to it"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(OneIRError, match=re.escape(message)):
        infer(call())
