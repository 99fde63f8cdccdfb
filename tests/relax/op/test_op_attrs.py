"""The classes of the attributes of calls: which class a call's attributes have, and what they hold."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest

from oneir import ir, relax
from oneir.ir.op import Op
from oneir.relax import op
from oneir.relax.expr import OpAttrs
from oneir.relax.op import op_attrs
from oneir.script import ir as I
from oneir.script import relax as R


def var(*shape: int, dtype: str = "float32") -> relax.Var:
    return relax.Var("x", relax.TensorStructInfo(shape, dtype))


def ints(*shape: int) -> relax.Var:
    return var(*shape, dtype="int64")


ROW, SQUARE, IMAGE, ONE = var(8), var(4, 4), var(1, 4, 8, 8), var()
GLOBAL = ir.GlobalVar("f")
ROW_INFO = relax.TensorStructInfo((8,), "float32")
HEADS = var(1, 2, 3, 4)
PACKED = var(1, 8, 2, 4)

CALLS: dict[str, tuple[Callable[[], relax.Call], ...]] = {
    "CallTIRWithGrad": (lambda: op.call_tir_with_grad(GLOBAL, [ROW], ROW_INFO, "g"),),
    "CallTIRInplace": (lambda: op.call_tir_inplace(GLOBAL, [ROW], 0, ROW_INFO),),
    "CallInplacePacked": (lambda: op.call_inplace_packed("f", ROW, inplace_indices=0, sinfo_args=ROW_INFO),),
    "ToVDevice": (lambda: op.to_vdevice(ROW, ir.VDevice("llvm")),),
    "HintOnDevice": (lambda: op.hint_on_device(ROW, ir.VDevice("llvm")),),
    "Init": (
        lambda: op.full((2,), relax.const(1.0), "float32"),
        lambda: op.full_like(ROW, relax.const(1.0)),
        lambda: op.ones((2,), "float32"),
        lambda: op.zeros_like(ROW),
        lambda: op.eye(3, dtype="float32"),
        lambda: op.eye_like(SQUARE),
        lambda: op.arange(3),
        lambda: op.hamming_window(8, True, 0.5, 0.5, "float32"),
    ),
    "Astype": (lambda: op.astype(ROW, "int8"),),
    "WrapParam": (lambda: op.wrap_param(relax.const([1.0]), "float16"),),
    "Quantize": (
        lambda: op.quantize(ROW, ONE, relax.const(0, "int8"), 0, "int8"),
        lambda: op.dequantize(var(8, dtype="int8"), ONE, relax.const(0, "int8"), 0, "float32"),
    ),
    "Matmul": (lambda: op.matmul(SQUARE, SQUARE),),
    "Einsum": (lambda: op.einsum((SQUARE, SQUARE), "ij,jk->ik"),),
    "Take": (lambda: op.take(SQUARE, ints(2), 0),),
    "StridedSlice": (lambda: op.strided_slice(ROW, [0], [0], [2]),),
    "GatherElements": (lambda: op.gather_elements(SQUARE, ints(4, 4)),),
    "GatherND": (lambda: op.gather_nd(SQUARE, ints(1, 2)),),
    "Meshgrid": (lambda: op.meshgrid((ROW, ROW)),),
    "OneHot": (lambda: op.one_hot(ints(2), relax.PrimValue(1), relax.PrimValue(0), 3),),
    "IndexPut": (lambda: op.index_put(ROW, (ints(2),), var(2)),),
    "ScatterElements": (lambda: op.scatter_elements(SQUARE, ints(4, 4), SQUARE),),
    "ScatterND": (lambda: op.scatter_nd(SQUARE, ints(1, 2), var(1)),),
    "SliceScatter": (lambda: op.slice_scatter(ROW, var(2), 0, 2, 1),),
    "Concat": (lambda: op.concat([ROW, ROW]),),
    "ExpandDims": (lambda: op.expand_dims(ROW, 0),),
    "Flip": (lambda: op.flip(ROW, 0),),
    "LayoutTransform": (lambda: op.layout_transform(ROW, lambda i: (i // 4, i % 4)),),
    "PermuteDims": (lambda: op.permute_dims(SQUARE),),
    "Repeat": (lambda: op.repeat(ROW, 2),),
    "Split": (lambda: op.split(ROW, 2),),
    "Squeeze": (lambda: op.squeeze(var(1, 8)),),
    "Stack": (lambda: op.stack([ROW, ROW]),),
    "Tile": (lambda: op.tile(ROW, 2),),
    "ArgmaxArgmin": (lambda: op.argmax(ROW), lambda: op.argmin(ROW)),
    "Statistical": (lambda: op.sum(ROW), lambda: op.variance(ROW)),
    "Scanop": (lambda: op.cumsum(ROW), lambda: op.cumprod(ROW)),
    "Sort": (lambda: op.sort(ROW),),
    "Argsort": (lambda: op.argsort(ROW),),
    "TopK": (lambda: op.topk(ROW),),
    "MultinomialFromUniform": (lambda: op.multinomial_from_uniform(SQUARE, var(4, 1), ints(4, 1)),),
    "Conv1D": (lambda: op.nn.conv1d(var(1, 4, 8), var(2, 4, 3)),),
    "Conv2D": (lambda: op.nn.conv2d(IMAGE, var(2, 4, 3, 3)),),
    "Conv3D": (lambda: op.nn.conv3d(var(1, 4, 8, 8, 8), var(2, 4, 3, 3, 3)),),
    "Conv1DTranspose": (lambda: op.nn.conv1d_transpose(var(1, 4, 8), var(4, 2, 3)),),
    "Conv2DTranspose": (lambda: op.nn.conv2d_transpose(IMAGE, var(4, 2, 3, 3)),),
    "Pool1D": (lambda: op.nn.max_pool1d(var(1, 4, 8)), lambda: op.nn.avg_pool1d(var(1, 4, 8))),
    "Pool2D": (
        lambda: op.nn.max_pool2d(IMAGE),
        lambda: op.nn.avg_pool2d(IMAGE),
        lambda: op.grad.max_pool2d_backward(IMAGE, IMAGE),
    ),
    "Pool3D": (lambda: op.nn.max_pool3d(var(1, 4, 8, 8, 8)), lambda: op.nn.avg_pool3d(var(1, 4, 8, 8, 8))),
    "AdaptivePool1D": (lambda: op.nn.adaptive_avg_pool1d(var(1, 4, 8)),),
    "AdaptivePool2D": (lambda: op.nn.adaptive_avg_pool2d(IMAGE),),
    "AdaptivePool3D": (lambda: op.nn.adaptive_avg_pool3d(var(1, 4, 8, 8, 8)),),
    "Attention": (
        lambda: op.nn.attention(PACKED, PACKED, PACKED),
        lambda: op.nn.attention(PACKED, PACKED, PACKED, HEADS),
    ),
    "BatchNorm": (lambda: op.nn.batch_norm(IMAGE, var(4), var(4), var(4), var(4), 1),),
    "LayerNorm": (lambda: op.nn.layer_norm(ROW, ROW, ROW, 0),),
    "GroupNorm": (lambda: op.nn.group_norm(IMAGE, var(4), var(4), 2, 1, [2, 3]),),
    "InstanceNorm": (lambda: op.nn.instance_norm(IMAGE, var(4), var(4), 1, [2, 3]),),
    "RMSNorm": (lambda: op.nn.rms_norm(ROW, ROW, 0),),
    "Dropout": (lambda: op.nn.dropout(ROW),),
    "LeakyRelu": (lambda: op.nn.leakyrelu(ROW),),
    "PRelu": (lambda: op.nn.prelu(IMAGE, var(4)),),
    "Softplus": (lambda: op.nn.softplus(ROW),),
    "Softmax": (lambda: op.nn.softmax(ROW), lambda: op.nn.log_softmax(ROW)),
    "NLLLoss": (lambda: op.nn.nll_loss(SQUARE, ints(4)), lambda: op.grad.nll_loss_backward(ONE, SQUARE, ints(4))),
    "Pad": (lambda: op.nn.pad(ROW, [1, 1]),),
    "PixelShuffle": (lambda: op.nn.pixel_shuffle(IMAGE, 2),),
    "Resize2D": (lambda: op.image.resize2d(IMAGE, (4, 4)),),
    "AllClassNonMaximumSuppression": (
        lambda: op.vision.all_class_non_max_suppression(
            var(1, 5, 4), var(1, 2, 5), relax.const(1, "int64"), relax.const(0.5), relax.const(0.1)
        ),
    ),
    "AllReduce": (lambda: op.ccl.allreduce(ROW),),
    "AllGather": (lambda: op.ccl.allgather(ROW, 2),),
    "ScatterCollective": (lambda: op.ccl.scatter_from_worker0(ROW, 2),),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_have_the_class_and_the_attributes_that_its_docstring_names(name: str) -> None:
    cls = getattr(op_attrs, f"{name}Attrs")
    text = " ".join((cls.__doc__ or "").split())
    operators, _, attributes = text.removeprefix("Of ").removesuffix(".").partition(": ")
    for make in CALLS[name]:
        call = make()
        assert type(call.attrs) is cls
        assert ", ".join(call.attrs) == attributes
    assert CALLS[name][0]().op.name.split(".")[-1].split("_")[0] in operators


def test_every_class_is_that_of_some_operator() -> None:
    classes = {c for _, c in inspect.getmembers(op_attrs, inspect.isclass) if c.__module__ == op_attrs.__name__}
    assert {c.__name__ for c in classes} == {f"{name}Attrs" for name in CALLS}
    assert classes == {Op.get(n).get_attr("TAttrs") for n in Op.list_op_names() if n.startswith("relax.")} - {
        None,
        OpAttrs,
    }


def test_the_class_stays_through_scripts_json_and_copies() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 8), "float32"), w: R.Tensor((2, 4, 3, 3), "float32")):
            y = R.nn.conv2d(x, w, strides=(2, 1))
            return y

    copies = (ir.load_json(ir.save_json(Module)), relax.transform.ConvertToDataflow(1)(Module))
    calls = [mod["main"].body.blocks[0].bindings[0].value for mod in (Module, *copies)]
    for call in calls:
        assert isinstance(call.attrs, op_attrs.Conv2DAttrs)
        assert list(call.attrs.strides) == [2, 1]
    call = calls[0]
    made = relax.Call(call.op, call.args, {**call.attrs, "groups": 2})
    assert isinstance(made.attrs, op_attrs.Conv2DAttrs)
    assert made.attrs.groups == 2
    assert not ir.structural_equal(made, call)
    assert ir.structural_equal(relax.Call(call.op, call.args, dict(call.attrs)), call)


def test_attributes_of_another_operator_get_the_class_of_the_call() -> None:
    softmax = op.nn.softmax(ROW)
    assert isinstance(relax.Call("relax.sort", [ROW], softmax.attrs).attrs, op_attrs.SortAttrs)


def test_an_attribute_that_a_class_does_not_name_is_refused() -> None:
    message = "the call has no attribute 'stride'; it has strides, padding, dilation, groups, data_layout"
    with pytest.raises(AttributeError, match=re.escape(message)):
        _ = op.nn.conv2d(IMAGE, var(2, 4, 3, 3)).attrs.stride


def test_a_class_is_no_attribute_of_another_operators_calls() -> None:
    assert not isinstance(op.nn.conv1d(var(1, 4, 8), var(2, 4, 3)).attrs, op_attrs.Conv2DAttrs)
    assert type(op.exp(ROW).attrs) is OpAttrs
