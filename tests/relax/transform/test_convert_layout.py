"""ConvertLayout: convolutions in the layouts that are desired, and what surrounds them."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.ir.op import Op
from oneir.relax import op
from oneir.relax.op.infer_layout import find_axis, transpose_like
from oneir.relax.transform import ConvertLayout
from oneir.runtime.error import InvalidValue, TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass
from oneir.testing.interpreter import interpret

NHWC = {"relax.nn.conv2d": ["NHWC", "OHWI"]}
rng = np.random.default_rng(0)


def test_names_follow_a_permutation() -> None:
    assert transpose_like("NCHW", "ABCD", "ACDB") == "NHWC"
    assert transpose_like("ABCD", "NCHW", "NHWC") == "ACDB"
    assert transpose_like("NCHW", "ABCD", "ABCD4b") == "NCHW4c"
    assert transpose_like("NCHW16c", "ABCD16b", "ABCD16b") == "NCHW16c"
    assert [find_axis("ACDB", axis, 4) for axis in (0, 1, 2, 3, -1)] == [0, 3, 1, 2, 2]


def test_the_data_stays_where_the_convolution_leaves_it() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 3, 8, 8), "float32"),
            w: R.Tensor((4, 3, 3, 3), "float32"),
            b: R.Tensor((4, 1, 1), "float32"),
        ) -> R.Tensor(("n", 4, 3, 3), "float32"):
            with R.dataflow():
                y = R.nn.conv2d(x, w)
                z = R.add(y, b)
                r = R.nn.relu(z)
                p = R.nn.max_pool2d(r, pool_size=[2, 2], strides=[2, 2])
                R.output(p)
            return p

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("n", 3, 8, 8), "float32"),
            w: R.Tensor((4, 3, 3, 3), "float32"),
            b: R.Tensor((4, 1, 1), "float32"),
        ) -> R.Tensor(("n", 4, 3, 3), "float32"):
            with R.dataflow():
                lv = R.permute_dims(x, axes=[0, 2, 3, 1])
                lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
                y = R.nn.conv2d(lv, lv1, data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC")
                lv2 = R.permute_dims(y, axes=[0, 3, 1, 2])
                z = R.add(lv2, b)
                r = R.nn.relu(z)
                p = R.nn.max_pool2d(r, pool_size=[2, 2], strides=[2, 2])
                R.output(p)
            return p

    check_pass(ConvertLayout(NHWC), Before, Expected)


def test_broadcast_tensors_of_as_many_dimensions_follow() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 3, 8, 8), "float32"),
            w: R.Tensor((4, 3, 3, 3), "float32"),
            b: R.Tensor((1, 4, 1, 1), "float32"),
        ) -> R.Tensor((2, 4, 3, 3), "float32"):
            with R.dataflow():
                y = R.nn.conv2d(x, w)
                z = R.add(y, b)
                s = R.multiply(z, R.const(2.0, "float32"))
                p = R.nn.max_pool2d(s, pool_size=[2, 2], strides=[2, 2])
                R.output(p)
            return p

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 3, 8, 8), "float32"),
            w: R.Tensor((4, 3, 3, 3), "float32"),
            b: R.Tensor((1, 4, 1, 1), "float32"),
        ) -> R.Tensor((2, 4, 3, 3), "float32"):
            with R.dataflow():
                lv = R.permute_dims(x, axes=[0, 2, 3, 1])
                lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
                y = R.nn.conv2d(lv, lv1, data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC")
                lv2 = R.permute_dims(b, axes=[0, 2, 3, 1])
                z = R.add(y, lv2)
                s = R.multiply(z, R.const(2.0, "float32"))
                lv3 = R.nn.max_pool2d(s, pool_size=[2, 2], strides=[2, 2], layout="NHWC", out_layout="NHWC")
                p = R.permute_dims(lv3, axes=[0, 3, 1, 2])
                R.output(p)
            return p

    check_pass(ConvertLayout(NHWC), Before, Expected)


def test_a_convolution_of_no_desired_layout_follows_its_data() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
            with R.dataflow():
                y = R.nn.conv2d(x, w)
                t = R.permute_dims(y, axes=[0, 2, 3, 1])
                R.output(t)
            return t

    check_pass(ConvertLayout({"relax.nn.conv1d": ["NWC", "OWI"]}), Before, Before)


def test_a_transposition_is_merged() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
            with R.dataflow():
                y = R.nn.conv2d(x, w)
                t = R.permute_dims(y, axes=[0, 2, 3, 1])
                R.output(t)
            return t

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
            with R.dataflow():
                lv = R.permute_dims(x, axes=[0, 2, 3, 1])
                lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
                y = R.nn.conv2d(lv, lv1, data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC")
                t = R.permute_dims(y, axes=[0, 1, 2, 3])
                R.output(t)
            return t

    check_pass(ConvertLayout(NHWC), Before, Expected)


def conv_then(follow, shape: tuple[int, ...] = (1, 4, 8, 8)) -> oneir.IRModule:
    """A convolution of a (1, 4, 8, 8) result, and what follows it."""
    x = relax.Var("x", relax.TensorStructInfo((1, 4, 10, 10), "float32"))
    weight = relax.const(rng.standard_normal((4, 4, 3, 3)).astype("float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            conv = builder.emit(op.nn.conv2d(x, weight))
            out = builder.emit_output(follow(builder, conv))
        builder.emit_func_output(out)
    return builder.get()


def vector(*shape: int) -> relax.Constant:
    return relax.const(np.abs(rng.standard_normal(shape)).astype("float32") + 0.5)


FOLLOWERS = {
    "softmax": lambda b, y: op.nn.softmax(y, axis=1),
    "log_softmax": lambda b, y: op.nn.log_softmax(y, axis=-1),
    "batch_norm": lambda b, y: relax.TupleGetItem(
        b.emit(op.nn.batch_norm(y, *(vector(4) for _ in range(4)), axis=1, training=False)), 0
    ),
    "layer_norm": lambda b, y: op.nn.layer_norm(y, vector(8, 8), vector(8, 8), axes=[-2, -1]),
    "group_norm": lambda b, y: op.nn.group_norm(y, vector(4), vector(4), 2, 1, [2, 3]),
    "instance_norm": lambda b, y: op.nn.instance_norm(y, vector(4), vector(4), 1, [2, 3]),
    "rms_norm": lambda b, y: op.nn.rms_norm(y, vector(8), [-1]),
    "prelu": lambda b, y: op.nn.prelu(y, vector(4), 1),
    "sum": lambda b, y: op.sum(y, [1]),
    "mean_kept": lambda b, y: op.mean(y, [2, 3], keepdims=True),
    "max_all": lambda b, y: op.max(y),
    "concat": lambda b, y: op.concat([y, b.emit(op.exp(y))], axis=1),
    "stack": lambda b, y: op.stack([y, b.emit(op.negative(y))], axis=2),
    "split": lambda b, y: op.concat([relax.TupleGetItem(b.emit(op.split(y, 2, axis=1)), i) for i in (1, 0)], axis=1),
    "squeeze": lambda b, y: op.squeeze(y, [0]),
    "expand_dims": lambda b, y: op.expand_dims(y, [1, -1]),
    "permute_dims": lambda b, y: op.permute_dims(y, [3, 1, 0, 2]),
    "permute_dims_reversed": lambda b, y: op.permute_dims(y),
    "strided_slice": lambda b, y: op.strided_slice(y, [1, 3], [1, 2], [4, 8], [2, 3]),
    "resize2d": lambda b, y: op.image.resize2d(y, (4, 16), method="linear"),
    "avg_pool2d": lambda b, y: op.nn.avg_pool2d(y, (2, 2), strides=(2, 2)),
    "adaptive": lambda b, y: op.nn.adaptive_avg_pool2d(y, (2, 4)),
    "clip": lambda b, y: op.clip(y, 0, 1),
    "astype": lambda b, y: op.astype(y, "float16"),
    "transposed": lambda b, y: op.nn.conv2d_transpose(y, vector(4, 2, 2, 2), strides=(2, 2)),
    "flip": lambda b, y: op.flip(y, 1),
    "reshape": lambda b, y: op.reshape(y, (4, 64)),
    "matmul": lambda b, y: op.matmul(y, vector(8, 3)),
    "fma": lambda b, y: op.ewise_fma(y, b.emit(op.exp(y)), vector(1, 4, 8, 8)),
    "add_vector": lambda b, y: op.add(y, vector(8)),
    "subtract_larger": lambda b, y: op.subtract(b.emit(op.sum(y, [1])), vector(2, 1, 8, 8)),
}


@pytest.mark.parametrize("name", FOLLOWERS)
@pytest.mark.parametrize("layouts", [["NHWC", "OHWI"], ["NHWC", "HWIO", "NWHC"]], ids="-".join)
def test_every_operator_gives_the_same_numbers(name: str, layouts: list[str]) -> None:
    before = conv_then(FOLLOWERS[name])
    after = ConvertLayout({"relax.nn.conv2d": layouts})(before)
    relax.analysis.verify_well_formed(after)
    conv = next(
        b.value
        for b in after["main"].body.blocks[0].bindings
        if isinstance(b.value, relax.Call) and b.value.op is Op.get("relax.nn.conv2d")
    )
    assert (
        conv.attrs["data_layout"] == layouts[0] and conv.attrs["out_layout"] == layouts[-1 if len(layouts) == 3 else 0]
    )
    x = rng.standard_normal((1, 4, 10, 10)).astype("float32")
    np.testing.assert_allclose(interpret(after, x), interpret(before, x), rtol=1e-3, atol=1e-4)


PACKED = {"relax.nn.conv2d": ["NCHW4c", "OIHW4o", "NCHW4c"]}


def test_channels_are_split_where_the_factor_divides_them() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 16, 8, 8), "float32"), w: R.Tensor((4, 16, 3, 3), "float32")) -> R.Tensor(
            (2, 4, 6, 6), "float32"
        ):
            with R.dataflow():
                y = R.nn.conv2d(x, w)
                r = R.nn.relu(y)
                R.output(r)
            return r

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 16, 8, 8), "float32"), w: R.Tensor((4, 16, 3, 3), "float32")) -> R.Tensor(
            (2, 4, 6, 6), "float32"
        ):
            with R.dataflow():
                lv = R.layout_transform(
                    x,
                    index_map=T.index_map(lambda i0, i1, i2, i3: (i0, i1 // 4, i2, i3, i1 % 4), index_dtype="int32"),
                    pad_value=None,
                    axis_separators=[],
                    input_axis_separators=[],
                )
                lv1 = R.layout_transform(
                    w,
                    index_map=T.index_map(lambda i0, i1, i2, i3: (i0 // 4, i1, i2, i3, i0 % 4), index_dtype="int32"),
                    pad_value=None,
                    axis_separators=[],
                    input_axis_separators=[],
                )
                y = R.nn.conv2d(lv, lv1, data_layout="NCHW4c", kernel_layout="OIHW4o", out_layout="NCHW4c")
                lv2 = R.nn.relu(y)
                r = R.layout_transform(
                    lv2,
                    index_map=T.index_map(lambda i0, i1, i2, i3, i4: (i0, i1 * 4 + i4, i2, i3), index_dtype="int32"),
                    pad_value=None,
                    axis_separators=[],
                    input_axis_separators=[],
                )
                R.output(r)
            return r

    check_pass(ConvertLayout(PACKED), Before, Expected, numbers=False)


@pytest.mark.parametrize("name", FOLLOWERS)
def test_what_follows_a_split_layout_is_well_formed(name: str) -> None:
    before = conv_then(FOLLOWERS[name])
    after = ConvertLayout(PACKED)(before)
    relax.analysis.verify_well_formed(after)
    assert after["main"].ret_struct_info == before["main"].ret_struct_info


def test_a_factor_that_does_not_divide_leaves_the_convolution() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
            with R.dataflow():
                y = R.nn.conv2d(x, w)
                R.output(y)
            return y

    check_pass(ConvertLayout(PACKED), Before, Before)


def test_a_cast_is_made_in_the_layout() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 3, "h", "w_"), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
            m, k = T.int64(), T.int64()
            with R.dataflow():
                y = R.nn.conv2d(x, w)
                z = R.match_cast(y, R.Tensor((m, 4, k, k), "float32"))
                r = R.nn.relu(z)
                R.output(r)
            return r

    after = ConvertLayout(NHWC)(Before)
    relax.analysis.verify_well_formed(after)
    cast = next(b for b in after["main"].body.blocks[0].bindings if isinstance(b, relax.MatchCast))
    assert [getattr(e, "name", e) for e in cast.struct_info.extents] == ["m", "k", "k", 4]


def test_each_call_may_be_asked_for_by_itself() -> None:
    asked = []

    def callback(call: relax.Call) -> dict[str, list[str]]:
        asked.append(call.op.name)
        return NHWC if call.op.name == "relax.nn.conv2d" else {}

    before = conv_then(FOLLOWERS["clip"])
    after = ConvertLayout({}, callback)(before)
    assert asked == ["relax.nn.conv2d", "relax.clip"]
    oneir.ir.assert_structural_equal(after, ConvertLayout(NHWC)(before))


def test_tensors_of_unknown_dimensions_stay() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor("float32"), y: R.Tensor("float32")) -> R.Tensor("float32"):
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.add(a, y)
                R.output(b)
            return b

    check_pass(ConvertLayout(NHWC), Before, Before, numbers=False)


def test_refusals() -> None:
    with pytest.raises(TypeMismatch, match=r'such as \["NHWC", "OHWI"\]; found \'NHWC\''):
        ConvertLayout({"relax.nn.conv2d": "NHWC"})
    with pytest.raises(InvalidValue, match="layout 'NN' has the axis 'N' twice"):
        ConvertLayout({"relax.nn.conv2d": ["NN", "OHWI"]})
    with pytest.raises(InvalidValue, match=r"relax\.clip: follows the layouts of its arguments"):
        ConvertLayout({**NHWC, "relax.clip": ["NHWC"]})(conv_then(FOLLOWERS["clip"]))
    with pytest.raises(InvalidValue, match="expected the desired layouts of data, weight and maybe output"):
        ConvertLayout({"relax.nn.conv2d": ["NHWC"]})(conv_then(FOLLOWERS["clip"]))
