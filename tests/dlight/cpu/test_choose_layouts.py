"""Layouts of whole graphs: numbers stay those of NumPy and torch; weights lie in panels, activations channels-last."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from processors import target_with

import oneir
from oneir import relax, tir
from oneir.dlight import cpu
from oneir.dlight.cpu.winograd import matrices
from oneir.relax.pipeline import legalize_passes
from oneir.runtime.dtype import numpy_dtype
from oneir.target import Target

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def graph(shape, build, dtype="float32"):
    """A module with one function of one tensor; `build(builder, x)` emits its body."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def chosen(mod, target="llvm -mcpu=x86-64-v4"):
    """The module after layouts were chosen."""
    with Target(target):
        return oneir.ir.transform.Sequential([*legalize_passes(None), cpu.ChooseLayouts()])(mod)


def run(mod, x):
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())
    return vm["main"](oneir.runtime.tensor(x)).numpy()


def assert_close(found, expected, tolerance=1e-5):
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * max(np.abs(expected).max(), 1e-30)


def test_convolutions_in_a_row_stay_channels_last_and_only_borders_change():
    first, second = normal(16, 8, 3, 3), normal(24, 16, 1, 1)

    def build(builder, x):
        y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(x, relax.const(first), padding=1))))
        return relax.op.nn.conv2d(y, relax.const(second), strides=2)

    mod = graph((2, 8, 9, 7), build)
    layouts = [v.name_hint for v in chosen(mod).functions if v.name_hint.startswith("layout")]
    assert len(layouts) == 2  # what enters and what leaves
    x = normal(2, 8, 9, 7)
    inner = torch.relu(torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(first), padding=1))
    assert_close(run(mod, x), torch.nn.functional.conv2d(inner, torch.tensor(second), stride=2).numpy())


def test_a_transposed_convolution_is_put_together_with_channels_last():
    """Its phases are channels of a plain convolution, whose pixels are copied as they lie."""
    first, second = normal(8, 24, 2, 2), normal(16, 24, 1, 1)

    def build(builder, x):
        y = builder.emit(relax.op.nn.conv2d_transpose(x, relax.const(first), strides=2))
        return relax.op.nn.conv2d(builder.emit(relax.op.nn.relu(y)), relax.const(second))

    mod = graph((1, 8, 9, 7), build)
    names = [v.name_hint for v in chosen(mod).functions]
    assert sum(name.startswith("layout") for name in names) == 2  # what enters and what leaves
    x = normal(1, 8, 9, 7)
    inner = torch.relu(torch.nn.functional.conv_transpose2d(torch.tensor(x), torch.tensor(first), stride=2))
    assert_close(run(mod, x), torch.nn.functional.conv2d(inner, torch.tensor(second)).numpy())


def test_what_no_contraction_computes_lies_as_the_one_that_reads_it_wants():
    """Tokens become images of two sizes, which are joined along the channels and read by a convolution, as
    segmentation heads do: the joined images are written with channels last, by a kernel, not by a change of layout.
    """
    weight = normal(8, 12, 1, 1)

    def build(builder, x):
        images = builder.emit(relax.op.reshape(relax.op.permute_dims(x, [0, 2, 1]), (2, 6, 5, 4)))
        half = builder.emit(relax.op.image.resize2d(images, (5, 4), method="nearest_neighbor"))
        joined = builder.emit(relax.op.concat([builder.emit(relax.op.exp(half)), images], axis=1))
        return relax.op.nn.conv2d(joined, relax.const(weight))

    mod = graph((2, 20, 6), build)
    layouts = [v.name_hint for v in chosen(mod).functions if v.name_hint.startswith("layout")]
    assert len(layouts) == 1  # what leaves
    x = normal(2, 20, 6)
    images = x.transpose(0, 2, 1).reshape(2, 6, 5, 4)
    joined = np.concatenate([np.exp(images), images], axis=1)
    assert_close(run(mod, x), np.einsum("nchw,oc->nohw", joined, weight[:, :, 0, 0]))


@pytest.mark.parametrize("size, transposed", [((36, 40), [[2, 5, 9, 10]]), ((3, 4), [])])
def test_images_that_are_enlarged_and_leave_are_transposed_before(size, transposed):
    weight = normal(5, 8, 3, 3)

    def build(builder, x):
        y = builder.emit(relax.op.nn.conv2d(x, relax.const(weight), padding=1))
        return relax.op.image.resize2d(y, size)

    mod = graph((2, 8, 9, 10), build)
    calls = [binding.value for binding in chosen(mod)["main"].body.blocks[0].bindings]
    layouts = [call for call in calls if call.args[0].name_hint.startswith("layout")]
    assert [[int(extent) for extent in call.sinfo_args[0].extents] for call in layouts[1:]] == transposed
    x = normal(2, 8, 9, 10)
    inner = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(weight), padding=1)
    assert_close(run(mod, x), torch.nn.functional.interpolate(inner, size, mode="bilinear").numpy())


def test_what_others_read_as_well_is_still_read_in_its_declared_order():
    weight = normal(8, 6, 1, 1)

    def build(builder, x):
        squares = builder.emit(relax.op.multiply(x, x))
        product = builder.emit(relax.op.nn.conv2d(squares, relax.const(weight)))
        rows = builder.emit(relax.op.reshape(squares, (2, 3, 40)))
        return relax.op.add(relax.op.sum(product), relax.op.cumsum(rows, axis=-1))

    mod, x = graph((2, 6, 5, 4), build), normal(2, 6, 5, 4)
    product = np.einsum("nchw,oc->nohw", x * x, weight[:, :, 0, 0])
    assert_close(run(mod, x), product.sum() + np.cumsum((x * x).reshape(2, 3, 40), axis=-1), 1e-4)


@pytest.mark.parametrize(
    ("results", "whole", "halves"), [(24, 32, 24), (40, 48, 40), (8, 16, 8), (3, 16, 8), (48, 48, 48)]
)
def test_panels_end_with_half_a_vector_where_that_takes_half_the_time(results, whole, halves):
    weight = normal(results, 32, 1, 1)
    mod = graph((1, 32, 13, 15), lambda b, x: relax.op.nn.conv2d(x, relax.const(weight)))
    for processor, width in (("skylake-avx512", whole), ("znver4", halves)):
        text = chosen(mod, f"llvm -mtriple=x86_64-linux-gnu -mcpu={processor}").script()
        assert f"T.int64(1), T.int64(1), T.int64(32), T.int64({width})" in text
    x, target = normal(1, 32, 13, 15), target_with("llvm -mcpu=znver4", ("avx512f", "avx512vl", "avx512bf16"))
    main = relax.VirtualMachine(relax.build(mod, target), oneir.cpu())["main"]
    assert_close(main(x).numpy(), np.einsum("nchw,oc->nohw", x.astype("float64"), weight[:, :, 0, 0]))


@pytest.mark.parametrize(("rows", "width"), [(4, 48), (64, 40)])
def test_few_rows_have_panels_of_whole_vectors(rows, width):
    weight = normal(32, 40)
    mod = graph((rows, 32), lambda b, x: relax.op.matmul(x, relax.const(weight)))
    text = chosen(mod, "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4").script()
    assert f"T.int64(1), T.int64(32), T.int64({width})" in text


def test_constant_weights_lie_in_panels_with_zeros_at_the_end():
    weight = normal(20, 50)
    text = chosen(graph((7, 20), lambda b, x: relax.op.matmul(x, relax.const(weight)))).script()
    panels = cpu.choose_layouts.Panels((0, 1), 32)
    packed = panels.in_memory(weight).numpy()
    assert packed.shape == (2, 20, 32)
    np.testing.assert_array_equal(packed[1, :, :18], weight[:, 32:])
    assert not packed[1, :, 18:].any()
    assert "// T.int64(" in text and "layout" not in text


@pytest.mark.parametrize("rows", [1, 2, 5, 13, 16, 17, 49, 197])
@pytest.mark.parametrize("columns", [1, 2, 10, 16, 50, 96, 100])
def test_products_of_any_size(rows, columns):
    weight, bias, x = normal(37, columns), normal(columns), normal(rows, 37)
    mod = graph(
        (rows, 37), lambda b, v: relax.op.add(b.emit(relax.op.matmul(v, relax.const(weight))), relax.const(bias))
    )
    assert_close(run(mod, x), x.astype("float64") @ weight + bias)


def test_rows_of_unknown_number():
    weight = normal(24, 40)
    rows = oneir.tir.Var("n", "int64")
    mod = graph((rows, 24), lambda b, v: relax.op.nn.relu(b.emit(relax.op.matmul(v, relax.const(weight)))))
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())
    for count in (0, 1, 5, 33):
        x = normal(count, 24)
        found = vm["main"](oneir.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(found, np.maximum(x @ weight, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", [1, 3])
def test_weights_of_images_of_an_unknown_number_lie_as_those_of_a_known_one(kernel):
    weight = normal(64, 32, kernel, kernel)

    def weights(batch):
        mod = graph((batch, 32, 14, 14), lambda b, x: relax.op.nn.conv2d(x, relax.const(weight), strides=2))
        found = []

        def visit(expr):
            if isinstance(expr, relax.Constant):
                found.append(expr.data.shape)

        relax.analysis.post_order_visit(chosen(mod)["main"], visit)
        return found

    assert weights(tir.Var("n", "int64")) == weights(1) == weights(300)


@pytest.mark.parametrize(
    ("inputs", "outputs", "groups", "width"),
    # Several small groups are one vector, unless one has more inputs than outputs, or vectors no whole groups.
    [(32, 64, 2, 32), (12, 48, 2, 24), (16, 16, 4, 16), (16, 32, 4, 16), (32, 16, 4, 4), (24, 24, 6, 4)],
)
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_in_groups(inputs, outputs, groups, width, stride):
    weight = normal(outputs, inputs // groups, 3, 3)

    def build(builder, x):
        return relax.op.nn.conv2d(x, relax.const(weight), strides=stride, padding=1, groups=groups)

    mod = graph((2, inputs, 9, 7), build)
    text = chosen(mod).script()
    assert f"R.Tensor((2, 9, 7, {inputs})" in text  # channels last
    assert f"T.Buffer((T.int64({outputs // width})," in text  # panels of a group's weights
    x = normal(2, inputs, 9, 7)
    expected = torch.nn.functional.conv2d(
        torch.tensor(x), torch.tensor(weight), stride=stride, padding=1, groups=groups
    )
    assert_close(run(mod, x), expected.numpy())


def test_groups_of_two_channels_keep_their_layout():
    weight = normal(8, 1, 3, 3)
    mod = graph((1, 4, 9, 7), lambda b, x: relax.op.nn.conv2d(x, relax.const(weight), groups=4))
    assert "layout" not in chosen(mod).script()


def test_residuals_pooling_and_broadcasts_follow_the_layout():
    weight, scale = normal(16, 16, 3, 3), normal(1, 16, 1, 1)

    def build(builder, x):
        y = builder.emit(relax.op.nn.conv2d(x, relax.const(weight), padding=1))
        y = builder.emit(relax.op.add(builder.emit(relax.op.multiply(y, relax.const(scale))), x))
        y = builder.emit(relax.op.nn.max_pool2d(y, (2, 2), (2, 2)))
        return relax.op.concat([y, y], axis=1)

    x = normal(1, 16, 10, 6)
    inner = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(weight), padding=1) * torch.tensor(scale)
    pooled = torch.max_pool2d(inner + torch.tensor(x), 2, 2)
    assert_close(run(graph(x.shape, build), x), torch.cat([pooled, pooled], 1).numpy())


@pytest.mark.parametrize(("channels", "groups", "images"), [(16, 1, 2), (24, 4, 1), (32, 8, 2), (10, 10, 1)])
def test_groups_of_channels_follow_the_layout(channels, groups, images):
    first, second = normal(channels, 8, 1, 1), normal(8, channels, 1, 1)
    scale, shift = normal(channels), normal(channels)

    def build(builder, x):
        y = builder.emit(relax.op.nn.conv2d(x, relax.const(first)))
        y = builder.emit(relax.op.nn.group_norm(y, relax.const(scale), relax.const(shift), groups, 1, [2, 3]))
        return relax.op.nn.conv2d(builder.emit(relax.op.nn.relu(y)), relax.const(second))

    mod, shape = graph((images, 8, 20, 17), build), (images, 8, 20, 17)
    layouts = [v.name_hint for v in chosen(mod).functions if v.name_hint.startswith("layout")]
    assert len(layouts) == 2  # what enters and what leaves
    x = normal(*shape)
    inner = torch.nn.functional.conv2d(torch.tensor(x).double(), torch.tensor(first).double())
    inner = torch.nn.functional.group_norm(inner, groups, torch.tensor(scale).double(), torch.tensor(shift).double())
    assert_close(run(mod, x), torch.nn.functional.conv2d(torch.relu(inner), torch.tensor(second).double()).numpy())


def test_what_mixes_rows_and_channels_keeps_its_layout():
    """A reshape that makes channels of rows runs along two dimensions at once, so the images are transposed first."""
    weight = normal(6, 8, 1, 1)

    def build(builder, x):
        y = builder.emit(relax.op.nn.conv2d(x, relax.const(weight)))
        y = builder.emit(relax.op.reshape(builder.emit(relax.op.exp(y)), (2, 3, 10, 4)))
        return relax.op.multiply(y, y)

    mod, x = graph((2, 8, 5, 4), build), normal(2, 8, 5, 4)
    assert any(v.name_hint.startswith("layout") for v in chosen(mod).functions)
    product = np.einsum("nchw,oc->nohw", x, weight[:, :, 0, 0])
    assert_close(run(mod, x), (np.exp(product) ** 2).reshape(2, 3, 10, 4))


def test_flattening_reads_channels_in_their_declared_order():
    weight, head = normal(8, 3, 3, 3), normal(8 * 4 * 5, 6)

    def build(builder, x):
        y = builder.emit(relax.op.nn.conv2d(x, relax.const(weight), padding=1))
        return relax.op.matmul(builder.emit(relax.op.reshape(y, (2, 160))), relax.const(head))

    x = normal(2, 3, 4, 5)
    inner = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(weight), padding=1)
    assert_close(run(graph(x.shape, build), x), (inner.flatten(1) @ torch.tensor(head)).numpy())


def with_weights(data, weight, **options):
    """A module of one convolution whose weights are a parameter."""
    builder = relax.BlockBuilder()
    x, w = (relax.Var(n, relax.TensorStructInfo(s, "float32")) for n, s in (("x", data), ("w", weight)))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.nn.conv2d(x, w, **options))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    ("data", "weight", "strides"),
    [((3, 16, 7, 9), (5, 16, 3, 3), (2, 1)), ((tir.Var("n", "int64"), 2, 6, 6), (8, 2, 3, 3), (1, 1))],
    ids=["odd sizes", "any batch"],
)
def test_images_lie_channels_last_where_weights_are_parameters(data, weight, strides):
    mod = with_weights(data, weight, strides=strides, padding=1)
    made = chosen(mod)
    assert len([v for v in made.functions if v.name_hint.startswith("layout")]) == 2  # what enters and what leaves
    kernel = next(f for v, f in made.functions.items() if v.name_hint.startswith("conv2d"))
    shapes = [[int(e) if isinstance(e, tir.IntImm) else e for e in b.shape] for b in kernel.buffer_map.values()]
    assert shapes[1] == list(weight) and shapes[0][-1] == weight[1] and shapes[2][-1] == weight[0]
    x, w = normal(3, *data[1:]), normal(*weight)
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())
    expected = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), stride=strides, padding=1)
    assert_close(vm["main"](x, w).numpy(), expected.numpy())


def test_convolutions_of_few_products_leave_images_as_they_are():
    mod = oneir.ir.transform.Sequential(legalize_passes(None))(with_weights((1, 8, 6, 6), (8, 8, 1, 1)))
    assert cpu.ChooseLayouts(Target("llvm"))(mod) is mod


@pytest.mark.parametrize("rows", [1, 4, 16, 65])
def test_matrices_that_are_parameters_are_read_as_they_lie(rows):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((rows, 24), "float32"))
    w = relax.Var("w", relax.TensorStructInfo((40, 24), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            matrix = builder.emit(relax.op.permute_dims(w))
            result = builder.emit_output(relax.op.nn.relu(builder.emit(relax.op.matmul(x, matrix))))
        builder.emit_func_output(result)
    mod = relax.get_pipeline("zero")(builder.get())
    with Target("llvm"):
        text = cpu.ChooseLayouts()(mod).script()
    assert "layout" not in text and "transpose" not in text.replace("T_transpose", "")
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())
    data, weight = normal(rows, 24), normal(40, 24)
    found = vm["main"](oneir.runtime.tensor(data), oneir.runtime.tensor(weight)).numpy()
    assert_close(found, np.maximum(data @ weight.T, 0))


# -- Winograd's form --


@pytest.mark.parametrize("tile", [2, 4])
def test_minimal_filtering_is_exact_in_double_precision(tile):
    result, weights, data = matrices(tile)
    g, d = RNG.standard_normal(3), RNG.standard_normal(tile + 2)
    np.testing.assert_allclose(result @ ((weights @ g) * (data @ d)), np.correlate(d, g), atol=1e-12)


@pytest.mark.parametrize(
    ("channels", "results", "height", "width", "padding", "images"),
    [(64, 64, 24, 24, 1, 1), (64, 32, 13, 18, 1, 2), (32, 64, 16, 11, 0, 1), (128, 128, 7, 7, 1, 1)],
)
@pytest.mark.parametrize("follows", [True, False])
def test_three_by_three_convolutions(channels, results, height, width, padding, images, follows):
    weight, bias = normal(results, channels, 3, 3) / np.float32(np.sqrt(9 * channels)), normal(1, results, 1, 1)

    def build(builder, x):
        y = builder.emit(relax.op.nn.conv2d(x, relax.const(weight), padding=padding))
        return relax.op.nn.relu(builder.emit(relax.op.add(y, relax.const(bias)))) if follows else y

    x = normal(images, channels, height, width)
    expected = torch.nn.functional.conv2d(torch.tensor(x).double(), torch.tensor(weight).double(), padding=padding)
    if follows:
        expected = torch.relu(expected + torch.tensor(bias))
    assert_close(run(graph(x.shape, build), x), expected.numpy())


@pytest.mark.parametrize(("dtype", "unit"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
@pytest.mark.parametrize("padding", [0, 1])
def test_three_by_three_convolutions_of_half_precision(dtype, unit, padding):
    weight = (normal(64, 64, 3, 3) / np.float32(24)).astype(numpy_dtype(dtype))
    x = normal(2, 64, 13, 18).astype(numpy_dtype(dtype))
    mod = graph(x.shape, lambda b, x: relax.op.nn.conv2d(x, relax.const(weight, dtype), padding=padding), dtype)
    target = target_with("llvm -mcpu=x86-64-v3", ("avx2", "fma", "f16c", "bmi2"))
    assert "winograd" in chosen(mod, target).script()
    data, weights = (torch.tensor(array.astype("float64")) for array in (x, weight))
    expected = torch.nn.functional.conv2d(data, weights, padding=padding).numpy()
    main = relax.VirtualMachine(relax.build(mod, target), oneir.cpu())["main"]
    found = main(oneir.runtime.tensor(x)).numpy()
    assert found.dtype == numpy_dtype(dtype)
    # Rounded once, from what is exact in float32.
    assert np.all(np.abs(found.astype("float64") - expected) <= unit * np.abs(expected) + 1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("processor", "found"), [("znver4", False), ("znver3", True)])
def test_dot_products_of_bfloat16_are_preferred(processor, found):
    weight = normal(64, 64, 3, 3).astype(numpy_dtype("bfloat16"))
    mod = graph((1, 64, 28, 28), lambda b, x: relax.op.nn.conv2d(x, relax.const(weight), padding=1), "bfloat16")
    assert ("winograd" in chosen(mod, f"llvm -mtriple=x86_64-linux-gnu -mcpu={processor}").script()) == found


@pytest.mark.parametrize("padding", [0, 1])
def test_three_by_three_convolutions_of_images_of_any_size(padding):
    weight = normal(32, 64, 3, 3) / np.float32(24)
    n, h, w = (tir.Var(name, "int64") for name in "nhw")
    mod = graph(
        (n, 64, h, w), lambda b, x: relax.op.nn.relu(relax.op.nn.conv2d(x, relax.const(weight), padding=padding))
    )
    assert "winograd" in chosen(mod).script()
    main = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())["main"]
    for shape in ((1, 64, 24, 24), (2, 64, 13, 18), (1, 64, 3, 3)):
        x = normal(*shape)
        expected = torch.nn.functional.conv2d(torch.tensor(x).double(), torch.tensor(weight).double(), padding=padding)
        assert_close(main(x).numpy(), torch.relu(expected).numpy())
    assert main(normal(0, 64, 5, 5)).shape == (0, 32, 3 + 2 * padding, 3 + 2 * padding)


@pytest.mark.parametrize(
    ("channels", "results", "groups", "size"),
    [(128, 128, 2, (28, 28)), (96, 192, 3, (30, 25)), (256, 128, 4, (29, 32))],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_three_by_three_convolutions_of_groups_of_channels(channels, results, groups, size, symbolic):
    weight = normal(results, channels // groups, 3, 3) / np.float32(np.sqrt(9 * channels / groups))
    n, h, w = (tir.Var(name, "int64") for name in "nhw") if symbolic else (2, *size)

    def build(builder, x):
        y = builder.emit(relax.op.nn.conv2d(x, relax.const(weight), padding=1, groups=groups))
        return relax.op.nn.relu(y)

    mod, x = graph((n, channels, h, w), build), normal(2, channels, *size)
    assert "winograd" in chosen(mod, "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512").script()
    data, weights = torch.tensor(x).double(), torch.tensor(weight).double()
    expected = torch.relu(torch.nn.functional.conv2d(data, weights, padding=1, groups=groups))
    assert_close(run(mod, x), expected.numpy())


def test_winograd_is_chosen_for_large_images_and_steps_of_one_only():
    weight = normal(64, 64, 3, 3)

    def text(**attrs) -> str:
        return chosen(graph((1, 64, 28, 28), lambda b, x: relax.op.nn.conv2d(x, relax.const(weight), **attrs))).script()

    assert "winograd" in text(padding=1)
    assert "winograd" not in text(padding=1, strides=2)
    assert "winograd" not in text(padding=2, dilation=2)


@pytest.mark.parametrize(("processor", "found"), [("znver4", True), ("skylake-avx512", False)])
def test_winograd_is_chosen_where_products_take_longer_than_what_they_are_made_of(processor, found):
    weight = normal(64, 32, 3, 3)
    mod = graph((1, 32, 14, 14), lambda b, x: relax.op.nn.conv2d(x, relax.const(weight), padding=1))
    assert ("winograd" in chosen(mod, f"llvm -mtriple=x86_64-linux-gnu -mcpu={processor}").script()) == found


def test_winograd_is_not_chosen_for_groups_of_few_channels():
    weight = normal(128, 8, 3, 3)
    mod = graph((1, 128, 56, 56), lambda b, x: relax.op.nn.conv2d(x, relax.const(weight), padding=1, groups=16))
    assert "winograd" not in chosen(mod, "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512").script()
