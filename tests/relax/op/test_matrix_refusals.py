"""Wrong calls of operators that move elements, and of layers: each is refused by the operator, which says what it
found.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from op_testing import infer, var

from oneir.relax import op
from oneir.relax.op import nn
from oneir.runtime.error import OneIRError

IMAGE, WEIGHT, WHOLE = var((1, 3, 8, 8)), var((4, 3, 3, 3)), var((2, 3, 4, 8), "int32")


def index(shape: Any, dtype: str = "int64") -> Any:
    return var(shape, dtype, name="i")


@pytest.mark.parametrize(
    ("name", "call", "message"),
    [
        ("broadcast_to", lambda: op.broadcast_to(var((2, 3)), (-1, 3)), "(2, 3) cannot be broadcast to (-1, 3)"),
        ("broadcast_to", lambda: op.broadcast_to(var((2,)), var((2,), "int64")), "argument 1 must be a shape"),
        ("reshape", lambda: op.reshape(var(()), (2,)), "the shape () has 1 elements, (2) has 2"),
        ("expand_dims", lambda: op.expand_dims(var((2, 3)), 4), "axis 4 is outside of a tensor of 3 dimensions"),
        ("squeeze", lambda: op.squeeze(var((1, 1)), [0, -2]), "axes [0, -2] name a dimension of the 2 twice"),
        ("permute_dims", lambda: op.permute_dims(var((2, 3)), [0, -2]), "axes [0, -2] name a dimension of the 2 twice"),
        ("concat", lambda: op.concat([var((2,)), var((2,))], -2), "axis -2 is outside of a tensor of 1 dimensions"),
        ("concat", lambda: op.concat(var((2, 3))), "argument 0 must be a tuple of tensors, found R.Tensor((2, 3)"),
        ("stack", lambda: op.stack([var((2, 3)), var((3, 3))]), "shapes (2, 3) and (3, 3) differ at dimension 0"),
        ("stack", lambda: op.stack([var((2,)), var((2,), "int8")]), "of one dtype, found float32 and int8"),
        ("split", lambda: op.split(var(()), 2), "axis 0 is outside of a tensor of 0 dimensions, which has no axes"),
        ("split", lambda: op.split(var((4,)), [-1]), "expected ascending indices of at least 0, found [-1]"),
        ("repeat", lambda: op.repeat(var((4,)), -1), "expected repeats of at least 0, found -1"),
        ("tile", lambda: op.tile(var((4,)), (2, -1)), "expected repeats of at least 0, found [2, -1]"),
        ("flip", lambda: op.flip(var(()), 0), "axis 0 is outside of a tensor of 0 dimensions"),
        ("collapse_sum_to", lambda: op.collapse_sum_to(var((3,)), (2, 3)), "(3) cannot be summed to (2, 3)"),
        ("take", lambda: op.take(var((2, 3)), var((2,)), 0), "the indices must be integers, found dtype float32"),
        ("take", lambda: op.take(var((2, 3)), index((2,)), 2), "axis 2 is outside of a tensor of 2 dimensions"),
        ("take", lambda: op.take(var((2, 3)), index((2,))), "without an axis, expected a tensor of one dimension"),
        ("take", lambda: op.take(var((2,)), index((2,)), 0, "raise"), "expected the mode"),
        (
            "take",
            lambda: op.take(var((2,), "int32"), index((2,)), 0, "nan"),
            'the mode "nan" needs a tensor of floats, found dtype int32',
        ),
        ("strided_slice", lambda: op.strided_slice(var((2, 3)), [2], [0], [1]), "axis 2 is outside of a tensor of 2"),
        ("strided_slice", lambda: op.strided_slice(var((2, 3)), [0, -2], [0, 0], [1, 1]), "axes [0, -2] name"),
        ("strided_slice", lambda: op.strided_slice(var((2,)), [0], [0], [1], [0]), "the strides must not be 0"),
        ("strided_slice", lambda: op.strided_slice(var((2,)), [0], [0.5], [1]), "begin must be a tuple of integers"),
        (
            "dynamic_strided_slice",
            lambda: op.dynamic_strided_slice(var((2,)), index((1,), "int32"), index((1,)), index((1,))),
            'argument begin must be a vector of int64, found R.Tensor((1,), dtype="int32")',
        ),
        ("gather_elements", lambda: op.gather_elements(var((2, 3)), index((2, 3)), 2), "axis 2 is outside"),
        ("gather_elements", lambda: op.gather_elements(var((2,)), var((2,))), "indices must be a tensor of integers"),
        (
            "gather_elements",
            lambda: op.gather_elements(var((2, 3)), index((5, 3)), 1),
            "indices of the shape [5, 3] must not reach behind data of the shape [2, 3] along dimension 0; the axis is 1",
        ),
        ("gather_nd", lambda: op.gather_nd(var((2,)), index(())), "expected indices of at least one dimension"),
        (
            "gather_nd",
            lambda: op.gather_nd(var((2, 3)), index((4, 1)), 1),
            "data and indices have batch_dims=1 in common, found 2 and 4 at dimension 0",
        ),
        ("gather_nd", lambda: op.gather_nd(var((2, 3)), index((2, 1)), 2), "batch_dims=2 is too large"),
        ("index_tensor", lambda: op.index_tensor(var((2,)), [var((2,))]), "indices must be a tensor of integers"),
        ("index_tensor", lambda: op.index_tensor(var((2,)), []), "expected at least one index tensor, found none"),
        ("meshgrid", lambda: op.meshgrid([var((2,)), var((3,), "int8")]), "of one dtype, found float32 and int8"),
        ("meshgrid", lambda: op.meshgrid([]), "expected at least one vector, found none"),
        (
            "one_hot",
            lambda: op.one_hot(var((2,)), 1, 0, 3),
            "indices must be a tensor of integers, found dtype float32",
        ),
        ("one_hot", lambda: op.one_hot(index((2,)), 1, 0, 3, 5), "axis 5 is outside of a tensor of 2 dimensions"),
        (
            "scatter_elements",
            lambda: op.scatter_elements(var((2,)), index((2, 2)), var((2, 2))),
            "expected data, indices and updates of as many dimensions, found (1, 2, 2)",
        ),
        (
            "scatter_elements",
            lambda: op.scatter_elements(var((2, 3)), index((5, 3)), var((5, 3)), 1),
            "indices of the shape [5, 3] must not reach behind data of the shape [2, 3]",
        ),
        (
            "scatter_elements",
            lambda: op.scatter_elements(var((2,)), index((2,)), var((2,), "int8")),
            "of one dtype, found float32 and int8",
        ),
        (
            "scatter_nd",
            lambda: op.scatter_nd(var((2,)), index(()), var(())),
            "expected indices of at least one dimension",
        ),
        (
            "scatter_nd",
            lambda: op.scatter_nd(var((2,)), index((3, 0)), var((3, 2))),
            "each index names 0 places in data of 1 dimensions",
        ),
        (
            "scatter_nd",
            lambda: op.scatter_nd(var((2,)), var((2, 1)), var((2,))),
            "argument indices must be a tensor of integers, found dtype float32",
        ),
        (
            "index_put",
            lambda: op.index_put(var((2,)), [index((3,))], var((2, 3))),
            "values of the shape [2, 3] do not broadcast to [3], which is indexed",
        ),
        (
            "index_put",
            lambda: op.index_put(var((2, 4)), [index((1,))], var((2, 4))),
            "values of the shape [2, 4] do not broadcast to [1, 4], which is indexed",
        ),
        (
            "slice_scatter",
            lambda: op.slice_scatter(var((4,)), var((7,)), 0, 7),
            "expected src of the shape (4), that of the slice",
        ),
        ("slice_scatter", lambda: op.slice_scatter(var((4,)), var((2,)), 0, 2, 1, 1), "axis 1 is outside"),
        ("slice_scatter", lambda: op.slice_scatter(var((4,)), var((2,)), 0.5, 2), "start must be an integer"),
        (
            "layout_transform",
            lambda: op.layout_transform(var((4,)), lambda i, j: (j, i)),
            "the index map takes 2 indices",
        ),
        (
            "memory.view",
            lambda: op.memory.view(var((4,)), (-4,)),
            "extents of the view must not be below 0, found [-4]",
        ),
        ("memory.view", lambda: op.memory.view(var((4,)), (1,), None, -4), "relative_byte_offset must not be below 0"),
        ("nn.conv2d", lambda: nn.conv2d(IMAGE, WEIGHT, strides=0), "expected strides of at least 1, found [0, 0]"),
        ("nn.conv2d", lambda: nn.conv2d(IMAGE, WEIGHT, dilation=(1, 0)), "dilations of at least 1, found [1, 0]"),
        (
            "nn.conv2d",
            lambda: nn.conv2d(IMAGE, var((4, 3, 3, 3), "float16")),
            "of one dtype, found float32 and float16",
        ),
        (
            "nn.conv2d",
            lambda: nn.conv2d(var((3, 8, 8)), WEIGHT),
            "data in the layout NCHW must have 4 dimensions, found 3",
        ),
        (
            "nn.conv1d_transpose",
            lambda: nn.conv1d_transpose(var((1, 3, 1)), var((3, 4, 1)), padding=3),
            "the padding 6 is larger than the result along W",
        ),
        ("nn.max_pool2d", lambda: nn.max_pool2d(IMAGE, 0), "expected window extents of at least 1, found [0, 0]"),
        ("nn.max_pool2d", lambda: nn.max_pool2d(IMAGE, 2, 0), "expected strides of at least 1, found [0, 0]"),
        ("nn.avg_pool2d", lambda: nn.avg_pool2d(IMAGE, 2, dilation=0), "expected dilations of at least 1"),
        ("nn.adaptive_avg_pool2d", lambda: nn.adaptive_avg_pool2d(IMAGE, -1), "expected output sizes of at least 1"),
        ("nn.softmax", lambda: nn.softmax(var(()), 0), "axis 0 is outside of a tensor of 0 dimensions"),
        (
            "nn.log_softmax",
            lambda: nn.log_softmax(var((2,), "int32")),
            "data must be a tensor of floats, found dtype int32",
        ),
        (
            "nn.layer_norm",
            lambda: nn.layer_norm(var((3, 3)), var((3, 3)), var((3, 3)), [0, -2]),
            "axes [0, -2] name a dimension of the 2 twice",
        ),
        (
            "nn.rms_norm",
            lambda: nn.rms_norm(var((2, 3)), var((3,)), 5),
            "axis 5 is outside of a tensor of 2 dimensions",
        ),
        (
            "nn.attention",
            lambda: nn.attention(var((2, 3, 4, 8)), var((2, 3, 4, 8), "float16"), var((2, 3, 4, 8))),
            "expected arguments of one dtype, found float32 and float16 and float32",
        ),
        (
            "nn.attention",
            lambda: nn.attention(WHOLE, WHOLE, WHOLE),
            "argument query must be a tensor of floats, found dtype int32",
        ),
        (
            "nn.pad",
            lambda: nn.pad(var((2, 3)), (0, 0, 3, 0), "reflect"),
            "3 elements along dimension 1 cannot be padded by 3 with mode 'reflect'",
        ),
        (
            "nn.pad",
            lambda: nn.pad(var((0,)), (1, 0), "replicate"),
            "0 elements along dimension 0 cannot be padded by 1",
        ),
        ("image.resize2d", lambda: op.image.resize2d(IMAGE, -2), "the size must be of at least 0, found [-2, -2]"),
        (
            "vision.all_class_non_max_suppression",
            lambda: op.vision.all_class_non_max_suppression(var((1, 6, 4)), var((1, 2, 5)), 2, 0.5, 0.5),
            "boxes and scores must be of as many boxes, found 6 and 5",
        ),
        (
            "grad.take_backward",
            lambda: op.grad.take_backward(var((2,)), var((3,)), var((2,)), 0),
            "argument indices must be a tensor of integers, found dtype float32",
        ),
        (
            "grad.nll_loss_backward",
            lambda: op.grad.nll_loss_backward(var(()), var((2, 3)), index((2,)), reduction="all"),
            "expected the reduction",
        ),
    ],
)
def test_refusals(name: str, call: Any, message: str) -> None:
    with pytest.raises(OneIRError, match=re.escape(message)) as caught:
        infer(call())
    assert str(caught.value).startswith(f"relax.{name}: ")
