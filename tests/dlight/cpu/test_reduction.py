"""Reductions on processors: what belongs to a row is together, columns are vectors, and the numbers are NumPy's."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import oneir
from oneir import relax, te, tir, topi
from oneir.dlight.cpu import Reduction
from oneir.relax import op
from oneir.relax.pipeline import legalize_passes
from oneir.script import tir as T
from oneir.target import Target
from oneir.target.cpu import cpu_info
from oneir.tir.stmt_functor import post_order_visit


def kernel(build, *shapes, dtype: str = "float32") -> tir.PrimFunc:
    """The fused loops of a graph of one kernel."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(s, dtype)) for i, s in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(build(*params))
        builder.emit_func_output(output)
    mod = builder.get()
    with Target("llvm"):
        for step in legalize_passes(None):
            mod = step(mod)
    (func,) = [f for f in mod.functions.values() if isinstance(f, tir.PrimFunc)]
    return func.with_attr("global_symbol", "main")


def scheduled(func: tir.PrimFunc) -> tir.PrimFunc:
    schedule = Reduction().apply(func, Target("llvm"))
    assert schedule is not None
    return schedule.mod["main"]


def outcome(func: tir.PrimFunc, *inputs: np.ndarray, **extents: int) -> np.ndarray:
    """What the scheduled function computes."""
    func = scheduled(func)
    result = func.buffer_map[func.params[-1]]
    shape = [int(d) if isinstance(d, tir.IntImm) else extents[d.name] for d in result.shape]
    tensors = [*map(oneir.runtime.tensor, inputs), oneir.runtime.empty(shape, result.dtype)]
    oneir.build(func)["main"](*tensors)
    return tensors[-1].numpy()


def random(*shape: int, dtype: str = "float32") -> np.ndarray:
    rng = np.random.default_rng(7)
    if dtype.startswith("int"):
        return rng.integers(-9, 10, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def normal(x: np.ndarray, axis: int | tuple[int, ...] = -1) -> np.ndarray:
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)


def loops_of(func: tir.PrimFunc) -> list[tir.For]:
    found: list[tir.For] = []
    post_order_visit(func.body, lambda node: found.append(node) if isinstance(node, tir.For) else None)
    return found


def buffers_of(func: tir.PrimFunc) -> list[tir.Buffer]:
    """The buffers that the blocks of a function allocate."""
    found: list[tir.Buffer] = []
    post_order_visit(func.body, lambda n: found.extend(n.alloc_buffers) if isinstance(n, tir.Block) else None)
    return found


def of_kind(func: tir.PrimFunc, kind: tir.ForKind) -> list[tir.For]:
    return [loop for loop in loops_of(func) if loop.kind == kind]


ROWS = {
    "softmax": (lambda x: op.nn.softmax(x, axis=-1), softmax),
    "log softmax": (lambda x: op.nn.log_softmax(x, axis=-1), lambda x: np.log(softmax(x))),
    "sum": (lambda x: op.sum(x, axis=[-1]), lambda x: x.sum(-1)),
    "mean": (lambda x: op.mean(x, axis=[-1]), lambda x: x.mean(-1)),
    "max": (lambda x: op.max(x, axis=[-1]), lambda x: x.max(-1)),
    "min": (lambda x: op.min(x, axis=[-1]), lambda x: x.min(-1)),
    "argmax": (lambda x: op.argmax(x, axis=-1), lambda x: x.argmax(-1)),
    "variance": (lambda x: op.variance(x, axis=[-1]), lambda x: x.var(-1)),
}
COLUMNS = {
    "softmax": (lambda x: op.nn.softmax(x, axis=1), lambda x: softmax(x, 1)),
    "sum": (lambda x: op.sum(x, axis=[0]), lambda x: x.sum(0)),
    "max of the middle": (lambda x: op.max(x, axis=[1]), lambda x: x.max(1)),
    "mean of two": (lambda x: op.mean(x, axis=[0, 1]), lambda x: x.mean((0, 1))),
}


@pytest.mark.parametrize("extent", [1, 7, 17, 127, 197, 1000])
@pytest.mark.parametrize("name", ["softmax", "max", "variance"])
def test_rows_of_any_length(name, extent):
    build, expected = ROWS[name]
    x = random(19, extent)
    np.testing.assert_allclose(outcome(kernel(build, x.shape), x), expected(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ROWS)
def test_rows(name):
    build, expected = ROWS[name]
    x = random(3, 11, 65)
    np.testing.assert_allclose(outcome(kernel(build, x.shape), x), expected(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("extent", [1, 7, 17, 48, 197])
@pytest.mark.parametrize("name", COLUMNS)
def test_columns(name, extent):
    build, expected = COLUMNS[name]
    x = random(3, 9, extent)
    np.testing.assert_allclose(outcome(kernel(build, x.shape), x), expected(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("extent", [7, 96])
def test_normalizations(extent):
    x, g, b = random(13, extent), random(extent) + 2, random(extent)
    func = kernel(lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]), x.shape, g.shape, b.shape)
    np.testing.assert_allclose(outcome(func, x, g, b), normal(x) * g + b, rtol=1e-4, atol=1e-4)
    func = kernel(lambda x, g: op.nn.rms_norm(x, g, axes=[-1]), x.shape, g.shape)
    expected = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g
    np.testing.assert_allclose(outcome(func, x, g), expected, rtol=1e-5, atol=1e-5)


def test_groups_are_rows_of_several_channels():
    x, g, b = random(2, 6, 5, 7), random(6) + 2, random(6)
    func = kernel(
        lambda x, g, b: op.nn.group_norm(x, g, b, num_groups=3, channel_axis=1, axes=[2, 3]), x.shape, g.shape, b.shape
    )
    expected = normal(x.reshape(2, 3, -1)).reshape(x.shape) * g.reshape(6, 1, 1) + b.reshape(6, 1, 1)
    np.testing.assert_allclose(outcome(func, x, g, b), expected, rtol=1e-4, atol=1e-4)
    sch = tir.Schedule(scheduled(func))
    roots = {sch.get(sch.get_loops(block)[0]) for block in sch.get_child_blocks(sch.get_block("root"))}
    assert len(roots) == 1


def test_what_is_computed_before_and_after_belongs_to_the_row():
    scores, mask = te.placeholder((4, 32, 128), name="scores"), te.placeholder((128,), name="mask")
    masked = topi.add(topi.multiply(scores, tir.const(0.125, "float32")), mask)
    func = te.create_prim_func([scores, mask, topi.tanh(topi.nn.softmax(masked, axis=-1))])
    x, m = random(4, 32, 128), random(128)
    func = func.with_attr("global_symbol", "main")
    np.testing.assert_allclose(outcome(func, x, m), np.tanh(softmax(x * 0.125 + m)), rtol=1e-5, atol=1e-6)
    sch = tir.Schedule(scheduled(func))
    blocks = sch.get_child_blocks(sch.get_block("root"))
    assert len({sch.get(sch.get_loops(block)[0]) for block in blocks}) == 1
    # The masked scores are computed once, into a row.
    assert sum(sch.get(block).name_hint == "T_add" for block in blocks) == 1


POOLS = {
    "maximum": (
        lambda x: op.nn.max_pool2d(x, (3, 3), strides=2, padding=1),
        lambda x: windows(x, 3, 2, 1, -np.inf).max((-2, -1)),
    ),
    "maximum, channels last": (
        lambda x: op.nn.max_pool2d(x, (3, 3), strides=2, padding=1, layout="NHWC"),
        lambda x: windows(x.transpose(0, 3, 1, 2), 3, 2, 1, -np.inf).max((-2, -1)).transpose(0, 2, 3, 1),
    ),
    "average": (
        lambda x: op.nn.avg_pool2d(x, (2, 2), strides=2),
        lambda x: windows(x, 2, 2, 0, 0).mean((-2, -1)),
    ),
    "average with padding": (
        lambda x: op.nn.avg_pool2d(x, (3, 3), strides=1, padding=1, count_include_pad=True),
        lambda x: windows(x, 3, 1, 1, 0).mean((-2, -1)),
    ),
    "average, channels last": (
        lambda x: op.nn.avg_pool2d(x, (5, 5), strides=2, layout="NHWC"),
        lambda x: windows(x.transpose(0, 3, 1, 2), 5, 2, 0, 0).mean((-2, -1)).transpose(0, 2, 3, 1),
    ),
    "global": (lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1)), lambda x: x.mean((2, 3), keepdims=True)),
    "global, channels last": (
        lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1), layout="NHWC"),
        lambda x: x.mean((1, 2), keepdims=True),
    ),
}


def windows(x: np.ndarray, size: int, stride: int, padding: int, value: float) -> np.ndarray:
    widths = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    padded = np.pad(x, widths, constant_values=value)
    return np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))[:, :, ::stride, ::stride]


@pytest.mark.parametrize("shape", [(2, 8, 10, 16), (1, 9, 7, 5)])
@pytest.mark.parametrize("name", POOLS)
def test_pooling(name, shape):
    build, expected = POOLS[name]
    x = random(*shape)
    np.testing.assert_allclose(outcome(kernel(build, shape), x), expected(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int8"])
@pytest.mark.parametrize("axis", [0, 1])
def test_sums_and_extremes_of_other_dtypes(dtype, axis):
    x = random(33, 48, dtype=dtype)
    func = kernel(lambda x: op.max(x, axis=[axis]), x.shape, dtype=dtype)
    np.testing.assert_array_equal(outcome(func, x), x.max(axis))
    func = kernel(lambda x: op.sum(x, axis=[axis]), x.shape, dtype=dtype)
    exact = x.astype("float64").sum(axis)
    tolerance = 33 * 2 * float(np.finfo("float16").eps) * 9 if dtype == "float16" else 1e-9
    expected = exact if dtype.startswith("float") else x.sum(axis, dtype=dtype)
    np.testing.assert_allclose(outcome(func, x).astype("float64"), expected, atol=tolerance)


def test_bfloat16():
    x = random(9, 40).astype(ml_dtypes.bfloat16)
    func = kernel(lambda x: op.max(x, axis=[1]), x.shape, dtype="bfloat16")
    assert (outcome(func, x) == x.max(1)).all()
    func = kernel(lambda x: op.nn.softmax(x, axis=-1), x.shape, dtype="bfloat16")
    expected = softmax(x.astype("float32"))
    np.testing.assert_allclose(outcome(func, x).astype("float32"), expected, rtol=0.05)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("place", [0, 5, 40])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_what_has_a_nan_are_nan(name, axis, place):
    x = np.moveaxis(random(41, 41), 0, axis)
    x[(place, 3) if axis == 0 else (3, place)] = np.nan
    found = outcome(kernel(lambda x: getattr(op, name)(x, axis=[axis]), x.shape), x)
    assert np.isnan(found[3]) and np.isnan(found).sum() == 1


def test_extremes_of_infinities():
    x = np.full((8, 33), -np.inf, "float32")
    x[1, 32] = np.inf
    func = kernel(lambda x: op.max(x, axis=[1]), x.shape)
    assert outcome(func, x)[1] == np.inf


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 17), (40, 129)])
@pytest.mark.parametrize("name", ["softmax", "mean", "max"])
def test_symbolic_rows(name, n, m):
    build, expected = ROWS[name]
    func = kernel(build, (tir.Var("n", "int64"), tir.Var("m", "int64")))
    x = random(n, m)
    np.testing.assert_allclose(outcome(func, x, n=n, m=m), expected(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("m", [1, 64, 100])
def test_symbolic_columns(m):
    func = kernel(lambda x: op.sum(x, axis=[0]), (tir.Var("n", "int64"), tir.Var("m", "int64")))
    x = random(21, m)
    np.testing.assert_allclose(outcome(func, x, m=m), x.sum(0), rtol=1e-5, atol=1e-5)


def test_no_elements():
    func = kernel(lambda x: op.nn.softmax(x, axis=-1), (tir.Var("n", "int64"), 12))
    assert outcome(func, random(0, 12), n=0).shape == (0, 12)
    func = kernel(lambda x: op.sum(x, axis=[1]), (tir.Var("n", "int64"), 12))
    assert outcome(func, random(0, 12), n=0).shape == (0,)


@pytest.mark.parametrize("build", [op.mean, op.variance, op.std])
def test_what_is_made_of_the_sum_of_no_elements(build):
    func = kernel(lambda x: build(x), (tir.Var("n", "int64"), 12))
    assert np.isnan(outcome(func, random(0, 12), n=0))


@pytest.mark.parametrize("shape", [(0, 12), (12, 0)])
def test_loops_that_are_known_to_be_empty_are_left_alone(shape):
    assert Reduction().apply(kernel(lambda x: op.sum(x, axis=[1]), shape), Target("llvm")) is None


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((100_000, 8), [0]),
        ((3, 57_344), [1]),
        ((8, 33, 56, 56), [0, 2, 3]),
        ((1 << 21,), None),
        ((9, 3, 11_000), [0, 2]),
        ((1, 3, 57_344), [0, 2]),
        ((3, 57_344, 1), [1, 2]),
        ((2, 1, 3, 1, 28_672, 1), [0, 1, 3, 4, 5]),
    ],
)
def test_long_sums_are_exact(shape, axis):
    # One after the other, this many elements would leave an error of more than 1e-6 in most of these sums.
    func = kernel(lambda x: op.sum(x, axis), shape)
    data = np.abs(random(*shape))
    exact = np.sum(data.astype("float64"), None if axis is None else tuple(axis))
    assert np.abs(outcome(func, data) / exact - 1).max() < 4e-7


def test_long_moments_are_exact():
    func = kernel(lambda x, g, b: op.nn.group_norm(x, g, b, 2, 1, [2, 3]), (1, 8, 112, 112), (8,), (8,))
    x = random(1, 8, 112, 112)
    rows = x.astype("float64").reshape(2, -1)
    exact = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5)
    found = outcome(func, x, np.ones(8, "float32"), np.zeros(8, "float32")).reshape(2, -1)
    assert np.abs(found - exact).max() < 2e-6


@pytest.mark.parametrize(
    ("build", "shape", "dtype", "parts"),
    [
        (lambda x: op.sum(x, [1]), (64, 8192), "float32", True),
        (lambda x: op.sum(x, [1]), (64, 2048), "float32", False),  # short
        (lambda x: op.sum(x, [1]), (64, 8191), "float32", False),  # a prime
        (lambda x: op.sum(x, [1]), (64, 8192), "int32", False),  # exact in any order
        (lambda x: op.max(x, [1]), (64, 8192), "float32", False),
    ],
    ids=["long", "short", "prime", "integers", "maximum"],
)
def test_only_long_sums_of_floats_are_split(build, shape, dtype, parts):
    text = scheduled(kernel(build, shape, dtype=dtype)).script()
    assert ("_rf[" in text) == parts


def columns(groups: int, count: int, rows: int, outer: int = 1):
    """Sums over groups of neighbouring columns, and over the rows of images."""

    @T.prim_func
    def main(A: T.Buffer((outer, rows, groups * count), "float32"), B: T.Buffer((outer, groups), "float32")):
        T.func_attr({"tir.noalias": True})
        for n, g, k, c in T.grid(outer, groups, rows, count):
            with T.block("B"):
                vn, vg, vk, vc = T.axis.remap("SSRR", [n, g, k, c])
                with T.init():
                    B[vn, vg] = T.float32(0)
                B[vn, vg] = B[vn, vg] + A[vn, vk, vg * count + vc]

    return main


@pytest.mark.parametrize(
    ("groups", "count", "rows", "outer", "apart"),
    [
        (8, 4, 300, 1, True),
        (3, 10, 5000, 2, True),  # long columns, in parts
        (8, 4, 30, 1, False),  # too few rows
        (8, 1, 300, 1, False),  # one column a group
    ],
)
def test_groups_of_columns_are_vectors(groups, count, rows, outer, apart):
    func = columns(groups, count, rows, outer)
    extents = [[int(d) for d in buffer.shape] for buffer in buffers_of(scheduled(func))]
    assert ([outer, groups * count] in extents) == apart
    x = random(outer, rows, groups * count)
    expected = x.astype("float64").reshape(outer, rows, groups, count).sum((1, 3))
    np.testing.assert_allclose(outcome(func, x), expected, atol=1e-6 * np.sqrt(rows * count) * 4)


def test_what_starts_with_zero_need_not_be_a_sum():
    @T.prim_func
    def main(A: T.Buffer((4, 8192), "float32"), B: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 8192):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] * T.float32(0.5) + A[vi, vk]

    x = random(4, 8192)
    expected = np.zeros(4)
    for column in x.T:
        expected = expected * 0.5 + column
    np.testing.assert_allclose(outcome(main, x), expected, rtol=1e-5)


def test_sums_of_everything():
    x = random(640, 512)
    func = kernel(lambda x: op.sum(x), x.shape)
    np.testing.assert_allclose(outcome(func, x), x.sum(dtype="float64"), rtol=1e-5)
    (threads,) = of_kind(scheduled(func), tir.ForKind.PARALLEL)
    assert threads.extent >= 4


def test_moments_of_everything():
    x = random(640, 512)
    func = kernel(lambda x: op.variance(x), x.shape)
    np.testing.assert_allclose(outcome(func, x), x.var(dtype="float64"), rtol=1e-5)
    assert len(of_kind(scheduled(func), tir.ForKind.PARALLEL)) == 2


def test_extremes_of_everything():
    x = random(640, 512)
    func = kernel(lambda x: op.max(x), x.shape)
    np.testing.assert_array_equal(outcome(func, x), x.max())
    (threads,) = of_kind(scheduled(func), tir.ForKind.PARALLEL)
    assert 4 <= threads.extent <= 16


@pytest.mark.parametrize(
    ("build", "instruction"),
    [
        (lambda x: op.max(x, axis=[1]), r"vmaxps.*%ymm"),
        (lambda x: op.sum(x, axis=[1]), r"vaddps.*%ymm"),
        (lambda x: op.variance(x, axis=[1]), r"vfmadd\w+ps.*%ymm"),
    ],
)
@pytest.mark.parametrize("extent", [49, 1000])
def test_rows_are_vectors(build, instruction, extent):
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")
    assembly = oneir.build(scheduled(kernel(build, (64, extent))), target).inspect_source("asm")
    assert re.search(instruction, assembly)


# -- structure --


def test_rows_run_on_threads_and_pass_through_memory_once():
    sch = tir.Schedule(scheduled(kernel(lambda x: op.nn.softmax(x, axis=-1), (12, 197, 197))))
    blocks = sch.get_child_blocks(sch.get_block("root"))
    names = [sch.get(block).name_hint for block in blocks]
    assert names == [
        *("T_softmax_maxelem_init", "T_softmax_maxelem_update", "T_softmax_exp"),
        *("T_softmax_expsum_init", "T_softmax_expsum_update", "T_softmax_norm"),
    ]
    (outer,) = {sch.get(sch.get_loops(block)[0]) for block in blocks}
    assert outer.kind == tir.ForKind.PARALLEL


def test_short_rows_are_computed_several_at_a_time():
    func = scheduled(kernel(lambda x: op.nn.softmax(x, axis=-1), (17 * 64, 100)))
    outer, *_ = loops_of(func)[::-1]
    assert outer.kind == tir.ForKind.PARALLEL and int(outer.extent) == 17 * 64 // 8
    # A number of rows that nothing divides leaves few places empty: 3 times 6 for 17.
    func = scheduled(kernel(lambda x: op.nn.softmax(x, axis=-1), (17, 100)))
    assert int(loops_of(func)[-1].extent) == 3


def test_few_elements_run_on_one_thread():
    assert not of_kind(scheduled(kernel(lambda x: op.nn.softmax(x, axis=-1), (4, 100))), tir.ForKind.PARALLEL)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda x: op.sum(x, axis=[0]), (50, 256)),
        (lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1), layout="NHWC"), (1, 7, 7, 256)),
        (lambda x: op.nn.max_pool2d(x, (3, 3), strides=1, padding=1, layout="NHWC"), (1, 14, 14, 256)),
    ],
)
def test_columns_stay_in_registers(build, shape):
    func = scheduled(kernel(build, shape))
    vectors = of_kind(func, tir.ForKind.VECTORIZED)
    registers = cpu_info(Target("llvm")).vector_bytes // 4
    assert len(vectors) == 3  # zeros, sums and what leaves the registers
    assert {int(loop.extent) for loop in vectors} == {4 * registers}
    # The reduction runs between a vector and what is outside of it.
    sch = tir.Schedule(func)
    update = next(b for b in sch.get_child_blocks(sch.get_block("root")) if "update" in sch.get(b).name_hint)
    assert sch.get(sch.get_loops(update)[-1]) in vectors


@pytest.mark.parametrize("count", [3, 6, 18])
def test_columns_of_an_odd_number_of_registers_are_vectors_of_a_power_of_two(count):
    """LLVM takes vectors of other lengths apart: those of three registers took up to twenty times as long."""
    lanes = cpu_info(Target("llvm")).vector_bytes // 4
    func = scheduled(kernel(lambda x: op.sum(x, axis=[1]), (64, 50, count * lanes)))
    widths = {int(loop.extent) for loop in of_kind(func, tir.ForKind.VECTORIZED)}
    assert widths == {lanes * (count & -count)}


def test_short_axes_that_follow_each_other_are_one():
    func = scheduled(kernel(lambda x: op.mean(x, axis=[2, 3]), (1, 64, 7, 7)))
    assert 49 in {int(loop.extent) for loop in loops_of(func)}


# -- refusals --


@T.prim_func
def reduced_first(A: T.Buffer((8, 4), "float32"), B: T.Buffer((4,), "float32")):
    for k, i in T.grid(8, 4):
        with T.block("B"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vk, vi]


@T.prim_func
def on_threads(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32")):
    for i in T.parallel(8):
        for k in range(4):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]


@pytest.mark.parametrize("func", [reduced_first, on_threads], ids=["reduced first", "scheduled"])
def test_other_loops_are_left_alone(func):
    assert Reduction().apply(func, Target("llvm")) is None


def test_what_reduces_nothing_is_left_alone():
    assert Reduction().apply(kernel(lambda x: op.exp(x), (8, 8)), Target("llvm")) is None


def test_other_targets_are_left_alone():
    assert Reduction().apply(kernel(lambda x: op.sum(x, axis=[1]), (8, 8)), Target("cuda")) is None
