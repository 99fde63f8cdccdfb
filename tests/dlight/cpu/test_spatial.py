"""Elementwise code and layout changes on processors: long loops, whole cache lines, no conditions in what is long."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax, tir
from oneir.dlight.cpu import Spatial
from oneir.ir.expr import as_int
from oneir.relax import op
from oneir.relax.pipeline import legalize_passes
from oneir.target import Target
from oneir.target.cpu import cpu_info
from oneir.tir.stmt_functor import post_order_visit


def kernel(build, *shapes, dtypes: str | tuple[str, ...] = "float32") -> tir.PrimFunc:
    """The fused loops of a graph of one kernel."""
    builder = relax.BlockBuilder()
    kinds = (dtypes,) * len(shapes) if isinstance(dtypes, str) else dtypes
    pairs = enumerate(zip(shapes, kinds, strict=True))
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(s, d)) for i, (s, d) in pairs]
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


def scheduled(func: tir.PrimFunc, target: str = "llvm") -> tir.PrimFunc:
    schedule = Spatial().apply(func, Target(target))
    assert schedule is not None
    return schedule.mod["main"]


def outcome(func: tir.PrimFunc, *inputs: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    func = scheduled(func)
    result = oneir.runtime.empty(shape, func.buffer_map[func.params[-1]].dtype)
    oneir.build(func)["main"](*map(oneir.runtime.tensor, inputs), result)
    return result.numpy()


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype("float32")


def loops_of(func: tir.PrimFunc) -> list[tir.For]:
    found: list[tir.For] = []
    post_order_visit(func.body, lambda node: found.append(node) if isinstance(node, tir.For) else None)
    return found


def test_axes_whose_values_are_used_stay_loops_of_their_own() -> None:
    """In one loop of all elements, the row and the column of each would be a quotient and a remainder."""

    def extents(build):
        return [as_int(loop.extent) for loop in loops_of(scheduled(kernel(build, (24, 40))))]

    assert extents(op.exp) == [24 * 40]
    assert extents(op.triu) == [40, 24]
    x = random(24, 40)
    np.testing.assert_array_equal(outcome(kernel(op.triu, (24, 40)), x, shape=x.shape), np.triu(x))


@pytest.mark.parametrize("shape", [(1, 1), (7, 17), (40, 197), (128, 768)])
def test_matrices_are_transposed(shape):
    x = random(*shape)
    assert (outcome(kernel(op.permute_dims, shape), x, shape=shape[::-1]) == x.T).all()


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 64, 14, 14), (1, 24, 7, 7)])
@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (3, 2, 1, 0)])
def test_axes_are_permuted(shape, axes):
    x = random(*shape)
    expected = x.transpose(axes)
    func = kernel(lambda x: op.permute_dims(x, list(axes)), shape)
    assert (outcome(func, x, shape=expected.shape) == expected).all()


def test_a_transposition_of_symbolic_extents():
    func = kernel(op.permute_dims, (tir.Var("n", "int64"), tir.Var("m", "int64")))
    for shape in [(1, 1), (17, 40), (0, 5)]:
        x = random(*shape)
        assert (outcome(func, x, shape=shape[::-1]) == x.T).all()


def test_transpositions_go_through_memory_in_squares():
    loops = loops_of(scheduled(kernel(lambda x: op.permute_dims(x, [0, 2, 3, 1]), (1, 64, 56, 56))))
    # Rows and columns of images are one axis, and a square is of 16 cache lines; its elements are in registers.
    outer = [int(loop.extent) for loop in loops if loop.kind != tir.ForKind.VECTORIZED]
    assert {extent for extent in outer if extent > 2} == {4, 3136 // 16}
    assert loops[-1].kind == tir.ForKind.PARALLEL


def test_axes_without_gaps_are_one_loop():
    loops = loops_of(scheduled(kernel(lambda x, y: op.nn.relu(op.add(x, y)), (1, 64, 56, 56), (1, 64, 56, 56))))
    inner, outer = loops
    assert outer.kind == tir.ForKind.PARALLEL and int(inner.extent) * int(outer.extent) == 64 * 56 * 56


def test_a_bias_of_channels_keeps_their_axis():
    func = kernel(lambda x, y: op.add(x, y), (2, 64, 56, 56), (1, 64, 1, 1))
    assert [int(loop.extent) for loop in loops_of(scheduled(func))] == [56 * 56, 2 * 64]
    x, y = random(2, 64, 56, 56), random(1, 64, 1, 1)
    assert (outcome(func, x, y, shape=x.shape) == x + y).all()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("extent", [1, 17, 64])
def test_concatenation(axis, extent):
    x, y = random(extent, extent), random(extent, extent)
    expected = np.concatenate([x, y], axis)
    func = kernel(lambda x, y: op.concat([x, y], axis=axis), x.shape, y.shape)
    assert (outcome(func, x, y, shape=expected.shape) == expected).all()


def test_concatenated_rows_are_copied_without_conditions():
    func = scheduled(kernel(lambda x, y: op.concat([x, y], axis=1), (8, 100), (8, 28)))
    with Target("llvm"):
        lowered = oneir.tir.get_default_tir_pipeline("llvm")(oneir.IRModule({"main": func}))
    (body,) = [f for f in lowered.functions.values() if isinstance(f, tir.PrimFunc)]
    assert "if_then_else" not in body.script()


@pytest.mark.parametrize("extent", [1, 33])
def test_padding(extent):
    x = random(2, extent, extent)
    func = kernel(lambda x: op.nn.pad(x, [0, 0, 1, 2, 3, 0], pad_value=2.0), x.shape)
    expected = np.pad(x, ((0, 0), (1, 2), (3, 0)), constant_values=2)
    assert (outcome(func, x, shape=expected.shape) == expected).all()


@pytest.mark.parametrize("shape", [(8, 40, 5), (2, 30, 41, 3), (4, 7, 31)])
@pytest.mark.parametrize("joined", [False, True])
def test_pixels_of_few_channels_have_no_condition_each(shape, joined):
    """Padding and concatenation along the last axis but one: of each row, the parts are loops of their own."""
    x, axis = random(*shape), len(shape) - 2
    ends = [(0, 0)] * axis + [(1, 2), (0, 0)]
    if joined:
        inputs, expected = (x, -x), np.concatenate([x, -x], axis)
        loops = kernel(lambda x, y: op.concat([x, y], axis=axis), shape, shape)
    else:
        inputs, expected = (x,), np.pad(x, ends)
        loops = kernel(lambda x: op.nn.pad(x, [end for pair in ends for end in pair]), shape)
    np.testing.assert_array_equal(outcome(loops, *inputs, shape=expected.shape), expected)
    with Target("llvm"):
        lowered = tir.get_tir_pipeline()(oneir.IRModule({"main": scheduled(loops)}))
    (body,) = [f for f in lowered.functions.values() if isinstance(f, tir.PrimFunc)]
    assert "if_then_else" not in body.script()


def test_points_in_one_row_stay_for_threads():
    """A loop over many points keeps them on threads, though each has a condition."""
    x = random(1, 1, 70_000, 3)
    loops = kernel(lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 0, 0]), x.shape)
    assert max(int(loop.extent) for loop in loops_of(scheduled(loops)) if loop.kind == tir.ForKind.PARALLEL) > 1
    expected = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    np.testing.assert_array_equal(outcome(loops, x, shape=expected.shape), expected)


def test_rows_of_a_table():
    table, rows = random(50, 24), np.array([3, 49, 0, 3], "int64")
    func = kernel(lambda t, i: op.take(t, i, axis=0), table.shape, rows.shape, dtypes=("float32", "int64"))
    assert (outcome(func, table, rows, shape=(4, 24)) == table[rows]).all()


def vectors_of(func: tir.PrimFunc) -> list[int]:
    """The lanes of the loops of a kernel that are vectors."""
    return [as_int(loop.extent) for loop in loops_of(func) if loop.kind == tir.ForKind.VECTORIZED]


@pytest.mark.parametrize("extent", [2, 5, 64, 1003, 20_001])
def test_sines_are_vectors_with_a_last_one_that_is_not_full(extent):
    x = random(3, extent) * np.float32(100)
    x.flat[:: max(1, extent // 3)] = 1e30  # one argument in a vector goes the long way
    func = kernel(lambda x: op.multiply(op.sin(x), op.sin(x)), (3, extent))
    lanes = cpu_info(Target("llvm")).vector_bytes // 4
    assert vectors_of(scheduled(func)) == [lanes]
    np.testing.assert_allclose(outcome(func, x, shape=x.shape), np.sin(x.astype("float64")) ** 2, rtol=2e-6, atol=1e-12)


def test_sines_of_symbolic_extents_are_vectors():
    n, x = tir.Var("n", "int64"), random(77, 3) * np.float32(1e6)
    func = kernel(op.cos, (n, 3))
    assert len(vectors_of(scheduled(func))) == 1
    np.testing.assert_allclose(outcome(func, x, shape=x.shape), np.cos(x.astype("float64")), rtol=1e-6, atol=1e-7)


def test_loops_without_rare_cases_are_left_to_llvm():
    assert vectors_of(scheduled(kernel(op.exp, (4, 64)))) == []


@pytest.mark.parametrize(
    ("build", "other", "extent"),
    [(op.add, 1, 31), (op.add, 1, 32), (op.add, 1, 9), (lambda x, y: op.exp(op.add(x, y)), 1, 97)],
    ids=["two vectors but for one", "two vectors", "little more than half of one", "a function of long rows"],
)
def test_short_rows_are_vectors(build, other, extent):
    x, y = random(5, extent), random(5, other)
    func = kernel(build, x.shape, y.shape)
    assert vectors_of(scheduled(func, "llvm -mcpu=x86-64-v4")) == [16]
    expected = np.exp(x + y) if extent == 97 else x + y
    np.testing.assert_allclose(outcome(func, x, y, shape=x.shape), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda x: op.strided_slice(x, [1], [0], [32], [2]), (5, 32)),
        (lambda x: op.flip(x, 1), (5, 31)),
        (lambda x: op.repeat(x, 2, 1), (5, 15)),
    ],
    ids=["every other element", "backwards", "each twice"],
)
def test_what_no_vector_loads_is_left_to_llvm(build, shape):
    assert vectors_of(scheduled(kernel(build, shape), "llvm -mcpu=x86-64-v4")) == []


@pytest.mark.parametrize("repeats", [[1, 2, 3], [2, 1, 1], [1, 1, 4]])
def test_what_is_read_again_and_again_is_a_loop_of_its_own(repeats):
    x = random(3, 5, 37)
    func = kernel(lambda x: op.tile(x, repeats), x.shape)
    innermost = loops_of(scheduled(func))[0]
    assert int(innermost.extent) in (37, 5 * 37, 3 * 5 * 37)
    expected = np.tile(x, repeats)
    assert (outcome(func, x, shape=expected.shape) == expected).all()


@pytest.mark.parametrize("widths", [(9, 9, 1), (1, 9, 9), (9, 1, 9), (3, 4, 5, 6), (1, 1, 1)])
def test_each_of_what_is_concatenated_has_a_loop_of_its_own(widths):
    shapes = [(3, 5, width) for width in widths]
    func = kernel(lambda *parts: op.concat(list(parts), 2), *shapes)
    with Target("llvm"):
        lowered = oneir.tir.get_default_tir_pipeline("llvm")(oneir.IRModule({"main": scheduled(func)}))
    (body,) = [f for f in lowered.functions.values() if isinstance(f, tir.PrimFunc)]
    assert "if_then_else" not in body.script().split("compute_scope")[1]
    parts = [random(*shape) for shape in shapes]
    expected = np.concatenate(parts, 2)
    assert (outcome(func, *parts, shape=expected.shape) == expected).all()


def test_images_of_channels_in_another_order_are_copied_whole():
    x = random(2, 12, 5, 7)

    def shuffled(x):
        parts = op.permute_dims(op.reshape(x, (2, 4, 3, 5, 7)), [0, 2, 1, 3, 4])
        return op.reshape(parts, (2, 12, 5, 7))

    func = kernel(shuffled, x.shape)
    assert loops_of(scheduled(func))[0].extent == 5 * 7
    expected = x.reshape(2, 4, 3, 5, 7).swapaxes(1, 2).reshape(x.shape)
    assert (outcome(func, x, shape=x.shape) == expected).all()


def test_axes_of_unknown_extent_that_are_read_again_and_again_are_loops_of_their_own():
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    func = kernel(lambda x: op.tile(x, [2, 3]), (n, m))
    found = scheduled(func)
    innermost = loops_of(found)[0]
    assert isinstance(innermost.extent, tir.Var) and innermost.extent.name == "m"
    assert "T.where" not in found.script()
    for shape in ((3, 37), (1, 1), (0, 4)):
        x = random(*shape)
        expected = np.tile(x, [2, 3])
        assert (outcome(func, x, shape=expected.shape) == expected).all()


def test_elements_in_tasks_that_do_not_divide_rows_are_neighbours():
    # 300,096 elements are 48 tasks of 6,252, which neither 9 nor 18,756 divides.
    func = kernel(op.nn.relu, (16, 2084, 9))
    with Target("llvm"):
        lowered = oneir.tir.get_default_tir_pipeline("llvm")(oneir.IRModule({"main": scheduled(func)}))
    (body,) = [f for f in lowered.functions.values() if isinstance(f, tir.PrimFunc)]
    assert not any(division in body.script() for division in ("truncmod", "T.Div(", "//", " % "))
    x = random(16, 2084, 9)
    assert (outcome(func, x, shape=x.shape) == np.maximum(x, 0)).all()


@pytest.mark.parametrize("shape", [(0, 12), (12, 0)])
def test_loops_that_are_known_to_be_empty_are_left_alone(shape):
    for build in (op.permute_dims, op.exp):
        assert Spatial().apply(kernel(build, shape), Target("llvm")) is None


def test_other_targets_are_left_alone():
    assert Spatial().apply(kernel(op.permute_dims, (8, 8)), Target("cuda")) is None


def test_loops_that_somebody_bound_are_left_alone():
    sch = tir.Schedule(kernel(op.permute_dims, (8, 8)))
    sch.parallel(sch.get_loops(sch.get_child_blocks(sch.get_block("root"))[0])[0])
    assert Spatial().apply(sch.mod["main"], Target("llvm")) is None


def nodes_of(func: tir.PrimFunc) -> int:
    found: list[object] = []
    post_order_visit(func.body, found.append)
    return len(found)


def test_what_is_read_at_several_places_is_not_computed_at_each():
    """A chain in which each link uses the one before twice: written out, it would double with every link."""
    links = 12

    def chain(x):
        for _ in range(links):
            x = op.add(
                op.tanh(op.concat([op.strided_slice(x, [1], [1], [6]), op.strided_slice(x, [1], [0], [1])], 1)), x
            )
        return x

    x = random(4, 6)
    func = kernel(chain, x.shape)
    assert nodes_of(scheduled(func)) < 200 * links
    expected = x.astype("float64")
    for _ in range(links):
        expected = np.tanh(np.roll(expected, -1, 1)) + expected
    np.testing.assert_allclose(outcome(func, x, shape=x.shape), expected, rtol=1e-4, atol=1e-4)


def test_what_is_cheap_or_read_at_one_place_is_inlined():
    def blocks(build):
        return scheduled(kernel(build, (4, 6))).script().count("with T.block(") - 1  # the root

    assert blocks(lambda x: op.multiply(op.exp(x), op.sin(op.exp(x)))) == 1
    assert blocks(lambda x: op.add(op.permute_dims(op.add(x, x)), op.reshape(op.add(x, x), (6, 4)))) == 1


def test_what_others_read_elsewhere_is_inlined_once_they_are_gone():
    """Five exponentials are too much to compute twice, unless what reads them transposed is transposed again."""

    def tower(x):
        for _ in range(5):
            x = op.exp(op.negative(x))
        return x

    def build(back):
        def sum_of_both(x):
            y = tower(x)
            turned = op.negative(op.permute_dims(y))
            return op.add(y, op.permute_dims(turned) if back else turned)

        return kernel(sum_of_both, (6, 6))

    assert [computed(scheduled(build(back)), "tir.exp") for back in (True, False)] == [2 * 5 * 36, 5 * 36]
    x = random(6, 6)
    expected = x.astype("float64")
    for _ in range(5):
        expected = np.exp(-expected)
    np.testing.assert_allclose(outcome(build(True), x, shape=x.shape), 0 * expected, atol=1e-6)
    np.testing.assert_allclose(outcome(build(False), x, shape=x.shape), expected - expected.T, atol=1e-6)


def computed(func: tir.PrimFunc, name: str) -> int:
    """How many times the loops of a scheduled function compute a function of mathematics."""
    found: list[int] = []

    def enter(node: object, outer: int) -> None:
        if isinstance(node, tir.For):
            assert isinstance(node.extent, tir.IntImm)
            enter(node.body, outer * node.extent.value)
        elif isinstance(node, tir.SeqStmt):
            for stmt in node.seq:
                enter(stmt, outer)
        elif isinstance(node, tir.BlockRealize):
            enter(node.block.body, outer)
        elif isinstance(node, tir.BufferStore):
            post_order_visit(
                node.value, lambda n: found.append(outer) if isinstance(n, tir.Call) and n.op.name == name else None
            )

    enter(func.body, 1)
    return sum(found)


@pytest.mark.parametrize(
    ("gate", "times"),
    [
        ((1, 1, 1, 40), 40),  # one gate for each channel
        ((1, 6, 1, 40), 6 * 40),
        ((1, 6, 7, 40), 6 * 7 * 40),  # one for each element, which is computed where it is used
    ],
)
def test_a_gate_is_computed_once(gate, times):
    shape = (1, 6, 7, 40)
    func = kernel(lambda g, x: op.multiply(op.sigmoid(g), x), gate, shape)
    assert computed(scheduled(func, "llvm -mcpu=x86-64-v3"), "tir.sigmoid") == times
    values = [loop for loop in loops_of(scheduled(func)) if isinstance(loop.body, tir.BlockRealize)]
    assert len(values) == (1 if gate == shape else 2)
    x, g = random(*shape), random(*gate)
    expected = x / (1 + np.exp(-g.astype("float64")))
    np.testing.assert_allclose(outcome(func, g, x, shape=shape), expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(269, 12, 31), (1, 1, 100_068), (1, 300_000)])
def test_tasks_of_long_loops_that_do_not_divide_them_have_no_conditions(shape):
    loops = kernel(op.negative, shape)
    func = scheduled(loops)
    assert max(int(loop.extent) for loop in loops_of(func) if loop.kind == tir.ForKind.PARALLEL) > 1
    with Target("llvm"):
        lowered = tir.get_tir_pipeline()(oneir.IRModule({"main": func}))
    conditions: list[tir.IfThenElse] = []
    post_order_visit(
        lowered["main"].body, lambda node: conditions.append(node) if isinstance(node, tir.IfThenElse) else None
    )
    assert not conditions
    x = random(*shape)
    np.testing.assert_array_equal(outcome(loops, x, shape=shape), -x)


@pytest.mark.parametrize("lead", [(), (1,), (1, 1)])
def test_long_rows_that_are_joined_are_tasks_without_conditions(lead):
    shape = (*lead, 70_000)
    loops = kernel(lambda x, y: op.concat([x, y], axis=len(lead)), shape, shape)
    func = scheduled(loops)
    assert max(int(loop.extent) for loop in loops_of(func) if loop.kind == tir.ForKind.PARALLEL) > 1
    x, y = random(*shape), -random(*shape)
    np.testing.assert_array_equal(outcome(loops, x, y, shape=(*lead, 140_000)), np.concatenate([x, y], axis=-1))


def test_loops_of_unknown_extents_run_on_threads():
    n, m, k = (tir.Var(name, "int64") for name in "nmk")
    func = scheduled(kernel(op.negative, (n, m, k)))
    assert [loop.kind for loop in loops_of(func)] == [tir.ForKind.SERIAL, tir.ForKind.PARALLEL]


def test_parts_of_a_concatenation_are_computed_where_they_are_joined():
    def joined(x, y):
        return op.concat([op.exp(x), op.tanh(y)], axis=2)

    func = kernel(joined, (2, 3, 40), (2, 3, 24))
    assert scheduled(func).script().count("with T.block(") == 2  # the root, and one
    x, y = random(2, 3, 40), random(2, 3, 24)
    expected = np.concatenate([np.exp(x), np.tanh(y)], axis=2)
    np.testing.assert_allclose(outcome(func, x, y, shape=(2, 3, 64)), expected, rtol=1e-6)


def test_what_is_repeated_is_not_computed_where_it_is_used():
    func = kernel(lambda x: op.repeat(op.exp(x), 3, axis=1), (4, 10))
    assert computed(scheduled(func), "tir.exp") == 40
    x = random(4, 10)
    np.testing.assert_allclose(outcome(func, x, shape=(4, 30)), np.repeat(np.exp(x), 3, 1), rtol=1e-6)
