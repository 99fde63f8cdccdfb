"""The default schedules for processors: scheduled functions compute what unscheduled ones do, and hot ones have tiles."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax, te, tir, topi
from oneir.dlight.cpu import Contraction, Reduction, Spatial
from oneir.relax import op
from oneir.relax.pipeline import legalize_passes
from oneir.script import tir as T
from oneir.target import Target
from oneir.target.cpu import cpu_info

TARGETS = ["llvm", "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3", "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v2"]


def loops_of(build, *shapes, dtype: str = "float32") -> tir.PrimFunc:
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


def arrays(func: tir.PrimFunc, extent: int = 5) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    made = []
    for param in func.params:
        buffer = func.buffer_map[param]
        shape = [int(d) if isinstance(d, tir.IntImm) else extent for d in buffer.shape]
        values = rng.standard_normal(shape) if buffer.dtype.is_float else rng.integers(-4, 5, shape)
        made.append(values.astype(str(buffer.dtype)))
    return made


def result(func: tir.PrimFunc, inputs: list[np.ndarray]) -> np.ndarray:
    tensors = [oneir.runtime.tensor(a) for a in inputs]
    oneir.build(func)["main"](*tensors)
    return tensors[-1].numpy()


def scheduled(func: tir.PrimFunc, target: str = "llvm"):
    """The function as the first rule makes it, and the rule's name; nothing may refuse it."""
    for rule in (Contraction(), Reduction(), Spatial()):
        schedule = rule.apply(func, Target(target), False)
        if schedule is not None:
            return schedule.mod["main"], type(rule).__name__
    raise AssertionError("no rule is for the function")


CONTRACTIONS = {
    "matrices": (lambda a, b: op.matmul(a, b), (24, 40), (40, 96)),
    "odd extents": (lambda a, b: op.matmul(a, b), (7, 11), (11, 13)),
    "a prime width": (lambda a, b: op.matmul(a, b), (3, 5), (5, 67)),
    "a width of quarters": (lambda a, b: op.matmul(a, b), (6, 9), (9, 100)),
    "rows of no whole vectors": (lambda a, b: op.nn.relu(op.matmul(a, b)), (20, 30), (30, 45)),
    "far fewer columns than a vector": (lambda a, b: op.matmul(a, b), (20, 30), (30, 3)),
    "columns far apart": (lambda a, b: op.matmul(a, b), (64, 66), (66, 8208)),
    "one row": (lambda a, b: op.matmul(a, b), (1, 30), (30, 64)),
    "vector by matrix": (lambda a, b: op.matmul(a, b), (30,), (30, 32)),
    "one column": (lambda a, b: op.matmul(a, b), (8, 30), (30, 1)),
    "batches": (lambda a, b: op.matmul(a, b), (2, 3, 8, 5), (3, 5, 16)),
    "bias and relu": (lambda a, b, c: op.nn.relu(op.add(op.matmul(a, b), c)), (16, 20), (20, 48), (48,)),
    "residual": (lambda a, b, c: op.add(op.matmul(a, b), c), (16, 20), (20, 48), (16, 48)),
    "convolution": (lambda x, w: op.nn.relu(op.nn.conv2d(x, w, padding=1)), (2, 3, 8, 8), (8, 3, 3, 3)),
    "strides": (lambda x, w: op.nn.conv2d(x, w, strides=2, padding=1), (1, 4, 9, 9), (8, 4, 3, 3)),
    "dilation": (lambda x, w: op.nn.conv2d(x, w, dilation=2), (1, 4, 9, 9), (8, 4, 3, 3)),
    "groups": (lambda x, w: op.nn.conv2d(x, w, groups=2), (1, 4, 8, 8), (6, 2, 3, 3)),
    "depthwise": (lambda x, w: op.nn.conv2d(x, w, groups=4, padding=1), (1, 4, 8, 8), (4, 1, 3, 3)),
    "channels last": (
        lambda x, w: op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO", padding=1),
        (1, 6, 6, 4),
        (3, 3, 4, 16),
    ),
    "pointwise": (lambda x, w: op.nn.conv2d(x, w), (1, 16, 7, 7), (24, 16, 1, 1)),
}


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contractions_compute_what_plain_loops_do(name):
    func = loops_of(*CONTRACTIONS[name])
    inputs = arrays(func)
    new, _ = scheduled(func)
    np.testing.assert_allclose(result(new, inputs), result(func, inputs), rtol=1e-4, atol=1e-5)


def test_what_pads_the_result_does_not_follow_tile_by_tile():
    a, b = te.placeholder((16, 8), "float32", "a"), te.placeholder((8, 48), "float32", "b")
    padded = topi.nn.pad(topi.nn.relu(topi.matmul(a, b)), (0, 0), (1, 1))
    func = te.create_prim_func([a, b, padded]).with_attr("global_symbol", "main")
    inputs = arrays(func)
    new, rule = scheduled(func)
    assert rule == "Contraction"
    found = result(new, inputs)
    assert found.shape == (17, 49) and not found[16].any() and not found[:, 48].any()
    np.testing.assert_allclose(found[:16, :48], np.maximum(inputs[0] @ inputs[1], 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int8"])
def test_contractions_of_other_dtypes(dtype):
    func = loops_of(lambda a, b: op.matmul(a, b), (12, 20), (20, 64), dtype=dtype)
    inputs = arrays(func)
    new, rule = scheduled(func)
    assert rule == "Contraction"
    np.testing.assert_allclose(result(new, inputs), result(func, inputs), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
@pytest.mark.parametrize("width", [33, 64])
def test_transposed_matrices_are_copied_into_panels(dtype, width):
    a, b = te.placeholder((3, 12, 20), dtype, "a"), te.placeholder((3, width, 20), dtype, "b")
    k = te.reduce_axis((0, 20), "k")
    c = te.compute((3, 12, width), lambda n, i, j: te.sum(a[n, i, k] * b[n, j, k], axis=k), "c")
    func = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    inputs = arrays(func)
    new, rule = scheduled(func)
    assert rule == "Contraction" and "b_reindex" in new.script()
    tolerance = {"float16": 2e-2, "float32": 1e-4}.get(dtype, 1e-9)
    expected = (inputs[0].astype("float64") @ inputs[1].astype("float64").swapaxes(1, 2)).astype(dtype)
    np.testing.assert_allclose(result(new, inputs), expected, rtol=tolerance, atol=tolerance)


def copied_operand(func: tir.PrimFunc) -> list[int]:
    """The shape of the copy that a scheduled function makes of an operand."""
    copies = []

    def see(node):
        if isinstance(node, tir.Block):
            copies.extend(b for b in node.alloc_buffers if b.name.endswith("_reindex"))

    tir.stmt_functor.post_order_visit(func.body, see)
    (copy,) = copies
    return [int(extent) for extent in copy.shape]


@pytest.mark.parametrize("subscripts", ["bhik,bhjk->bhij", "bihk,bjhk->bhij", "ibhk,jbhk->bhij", "bhik,bhkj->bhij"])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_batch_of_one_has_the_panels_of_many(subscripts, batch):
    extents = dict(zip("bhijk", (batch, 3, 24, 20, 16), strict=True))
    shapes = [[extents[letter] for letter in part] for part in subscripts.split("->")[0].split(",")]
    a, b = (te.placeholder(shape, "float32", name) for shape, name in zip(shapes, "ab", strict=True))
    func = te.create_prim_func([a, b, topi.einsum(subscripts, a, b)]).with_attr("global_symbol", "main")
    inputs = arrays(func)
    new, rule = scheduled(func, "llvm -mcpu=haswell")
    shape = copied_operand(new)
    assert rule == "Contraction"
    assert sorted(shape[:-2]) == sorted([batch, 3, -(-20 // shape[-1])]) and shape[-2] == 16
    np.testing.assert_allclose(result(new, inputs), np.einsum(subscripts, *inputs[:2]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [3, 5, 7, 9, 15, 17, 23, 31, 33, 60, 63, 70])
@pytest.mark.parametrize("batches, rows", [(2, 12), (1, 12), (3, 2)])
def test_columns_that_are_no_whole_vectors(batches, rows, columns):
    func = loops_of(op.matmul, (batches, rows, 20), (batches, 20, columns))
    inputs = arrays(func)
    new, rule = scheduled(func, "llvm -mcpu=haswell")
    vectors = []

    def see(node):
        if isinstance(node, tir.For) and node.kind == tir.ForKind.VECTORIZED and "_update" in str(node):
            vectors.append(int(node.extent))

    tir.stmt_functor.post_order_visit(new.body, see)
    assert rule == "Contraction" and vectors and all(lanes >= 4 for lanes in vectors)  # half a vector
    np.testing.assert_allclose(result(new, inputs), inputs[0] @ inputs[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batches, width", [(1, 24), (1, 20), (3, 30)])
def test_some_columns_of_wider_rows(batches, width):
    """Vectors may read past the columns that count, where the rows of a matrix go on."""
    a, b = te.placeholder((batches, 12, 20), "float32", "a"), te.placeholder((batches, 20, width), "float32", "b")
    k = te.reduce_axis((0, 20), "k")
    c = te.compute((batches, 12, 17), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), "c")
    func = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    inputs = arrays(func)
    inputs[1][..., 17:] = np.nan
    new, _ = scheduled(func, "llvm -mcpu=haswell")
    np.testing.assert_allclose(result(new, inputs), inputs[0] @ inputs[1][..., :17], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("extent", [1, 5, 50])
def test_a_symbolic_number_of_columns(extent):
    n = tir.Var("n", "int64")
    func = loops_of(lambda a, b, c: op.add(op.matmul(a, b), c), (16, 20), (20, n), (n,))
    inputs = arrays(func, extent)
    new, rule = scheduled(func)
    assert rule == "Contraction" and "vectorized" in new.script()
    np.testing.assert_allclose(result(new, inputs), inputs[0] @ inputs[1] + inputs[2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("extent", [1, 5, 64])
def test_a_symbolic_number_of_rows(extent):
    n = tir.Var("n", "int64")
    func = loops_of(lambda a, b, c: op.nn.relu(op.add(op.matmul(a, b), c)), (n, 20), (20, 48), (48,))
    inputs = arrays(func, extent)
    new, rule = scheduled(func)
    assert rule == "Contraction"
    np.testing.assert_allclose(result(new, inputs), result(func, inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("extent", [1, 5, 13])
def test_two_symbolic_extents(extent):
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    func = loops_of(lambda a, b, c: op.nn.relu(op.add(op.matmul(a, b), c)), (n, m, 20), (20, 48), (48,))
    inputs = arrays(func, extent)
    new, rule = scheduled(func)
    assert rule == "Contraction"
    np.testing.assert_allclose(result(new, inputs), result(func, inputs), rtol=1e-4, atol=1e-5)


def test_rows_whose_number_is_a_product_of_unknown_extents():
    """The rows of batches of sequences, in one matrix: enough for several threads."""
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n, m, 256), "float32"))
    weight = np.random.default_rng(0).standard_normal((256, 1024)).astype("float32")
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            rows = builder.emit(op.reshape(x, relax.ShapeExpr([n * m, 256])))
            output = builder.emit_output(op.matmul(rows, relax.const(weight)))
        builder.emit_func_output(output)
    mod = builder.get()
    with Target("llvm"):
        for step in legalize_passes(None):
            mod = step(mod)
    func = next(f for g, f in mod.functions.items() if g.name_hint.startswith("matmul"))
    new, rule = scheduled(func)
    assert rule == "Contraction" and "T.parallel" in new.script()
    data = np.random.default_rng(1).standard_normal((3, 5, 256)).astype("float32")
    machine = relax.VirtualMachine(oneir.compile(builder.get(), "llvm"), oneir.cpu())
    found = machine["main"](oneir.nd.array(data)).numpy()
    np.testing.assert_allclose(found, data.reshape(15, 256) @ weight, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_the_tile_fits_the_targets_registers(target):
    func = loops_of(lambda a, b: op.matmul(a, b), (96, 64), (64, 256))
    new, rule = scheduled(func, target)
    assert rule == "Contraction"
    info = cpu_info(Target(target))
    sch = tir.Schedule(new)
    loops = [sch.get(loop) for loop in sch.get_loops(sch.get_block("matmul_update"))]
    (width,) = [int(loop.extent) for loop in loops if loop.kind == tir.ForKind.VECTORIZED]
    rows = int(np.prod([int(loop.extent) for loop in loops if loop.kind == tir.ForKind.UNROLLED]))
    vectors = width * 4 // info.vector_bytes
    assert rows * vectors + vectors + 1 <= info.vector_registers
    assert rows * vectors >= 4


@pytest.mark.parametrize(
    ("rows", "depth", "most"), [(196, 1024, 8), (196, 2048, 8), (195, 1024, 8), (196, 1040, 14), (196, 768, 14)]
)
def test_lines_of_the_rows_of_a_tile_fit_into_the_first_level_cache(rows, depth, most):
    """Rows 4,096 bytes apart are in the same set of the cache, which has eight lines on this processor."""
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4"
    func = loops_of(lambda a, b: op.matmul(a, b), (rows, depth), (depth, 32))
    sch = tir.Schedule(scheduled(func, target)[0])
    loops = [sch.get(loop) for loop in sch.get_loops(sch.get_block("matmul_update"))]
    of_tile = int(np.prod([int(loop.extent) for loop in loops if loop.kind == tir.ForKind.UNROLLED]))
    assert most // 2 < of_tile <= most


OTHERS = {
    "elementwise": (lambda a: op.exp(op.add(a, a)), (33, 50)),
    "softmax": (lambda a: op.nn.softmax(a, axis=-1), (20, 31)),
    "sum": (lambda a: op.sum(a, axis=[1]), (40, 21)),
    "sum of all": (lambda a: op.sum(a), (40, 21)),
    "transpose": (lambda a: op.permute_dims(a), (40, 21)),
    "pooling": (lambda a: op.nn.max_pool2d(a, pool_size=2, strides=2), (1, 6, 8, 8)),
    "layer norm": (lambda a, g, b: op.nn.layer_norm(a, g, b, axes=[-1]), (9, 30), (30,), (30,)),
    "a transposed product": (lambda a, b: op.matmul(a, op.permute_dims(b)), (3, 40), (24, 40)),
    "a long vector": (lambda a: op.exp(a), (70001,)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_compute_what_plain_loops_do(name):
    func = loops_of(*OTHERS[name])
    inputs = arrays(func)
    new, _ = scheduled(func)
    np.testing.assert_allclose(result(new, inputs), result(func, inputs), rtol=1e-4, atol=1e-5)


@T.prim_func
def hand_written(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in T.parallel(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] + T.float32(1)


def test_what_somebody_scheduled_is_left_alone():
    assert Contraction().apply(hand_written, Target("llvm")) is None
    assert Spatial().apply(hand_written, Target("llvm")) is None


def test_other_targets_are_left_alone():
    func = loops_of(lambda a: op.exp(a), (8,))
    assert Spatial().apply(func, Target("cuda")) is None
