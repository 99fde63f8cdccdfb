"""InjectSoftwarePipeline: prologue, body, epilogue; buffers alive in several rounds; plans that contradict the program."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply, check, same_numbers, unchanged

from oneir.arith import Analyzer
from oneir.ir.expr import const
from oneir.ir.transform import Sequential
from oneir.ir.visitor import post_order_visit
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.tir import AttrStmt, BlockRealize, BufferLoad, BufferStore, For, SeqStmt
from oneir.tir.stmt_functor import substitute
from oneir.tir.transform import InjectSoftwarePipeline, Simplify


def staged(extent, stages, order):
    @T.prim_func
    def func(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        for i in T.serial(extent, annotations={"software_pipeline_stage": stages, "software_pipeline_order": order}):
            with T.block("body"):
                T.reads(A[i])
                T.writes(C[i])
                B = T.alloc_buffer((1,), "float32")
                D = T.alloc_buffer((1,), "float32")
                B[0] = A[i] * T.float32(2)
                D[0] = B[0] + T.float32(1)
                C[i] = D[0] + B[0]

    return func


def test_two_stages():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i in T.serial(16, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
            with T.block("body"):
                T.reads(A[i])
                T.writes(C[i])
                B = T.alloc_buffer((1,), "float32")
                B[0] = A[i]
                C[i] = B[0] + T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        with T.block("root"):
            T.reads()
            T.writes()
            with T.block("body"):
                T.reads(A[0:16])
                T.writes(C[0:16])
                B = T.alloc_buffer((2, 1), "float32")
                with T.block(""):
                    T.reads(A[0])
                    T.writes(B[0, 0])
                    B[0, 0] = A[0]
                with T.block(""):
                    T.reads(A[1:16], B[0:2, 0])
                    T.writes(B[0:2, 0], C[0:15])
                    for i in range(15):
                        with T.block(""):
                            T.reads(A[i + 1])
                            T.writes(B[(i + 1) % 2, 0])
                            B[(i + 1) % 2, 0] = A[i + 1]
                        with T.block(""):
                            T.reads(B[i % 2, 0])
                            T.writes(C[i])
                            C[i] = B[i % 2, 0] + T.float32(1)
                with T.block(""):
                    T.reads(B[1, 0])
                    T.writes(C[15])
                    C[15] = B[1, 0] + T.float32(1)

    check(Sequential([InjectSoftwarePipeline(), Simplify()]), before, expected)


def kinds(func):
    found = []
    post_order_visit(func.body, lambda n: found.append((n.kind.name, int(n.extent))) if isinstance(n, For) else None)
    return found


def test_rounds_before_and_after_are_unrolled_loops_or_written_out():
    func = staged(9, [0, 1, 3], [0, 1, 2])
    assert kinds(apply(InjectSoftwarePipeline(), func)) == [("UNROLLED", 3), ("SERIAL", 6), ("UNROLLED", 3)]
    written = apply(InjectSoftwarePipeline(expand=True), func)
    assert kinds(written) == [("SERIAL", 6)] and "T.where" not in written.script().partition("for i")[0]
    same_numbers(func, written)


@pytest.mark.parametrize("mark", [{}, {"double_buffer_scope": 0}])
def test_a_double_buffer_has_two_versions(mark):
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in T.serial(8, annotations={"software_pipeline_stage": [0, 0], "software_pipeline_order": [0, 1]}):
            with T.block("body"):
                T.reads(A[i])
                T.writes(C[i])
                B = T.alloc_buffer((1,), "float32")
                with T.block("write"):
                    T.reads(A[i])
                    T.writes(B[0])
                    T.block_attr(mark)
                    B[0] = A[i]
                with T.block("read"):
                    T.reads(B[0])
                    T.writes(C[i])
                    C[i] = B[0] + B[0]

    after = apply(InjectSoftwarePipeline(), before)
    (buffer,) = after.body.block.body.block.alloc_buffers
    assert list(map(int, buffer.shape)) == ([2, 1] if mark else [1])
    same_numbers(before, after)


def test_a_double_buffer_that_is_not_written_is_refused():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("one"):
                T.writes(A[i])
                T.reads()
                T.block_attr({"double_buffer_scope": 1})
                A[i] = T.float32(0)

    with pytest.raises(InvalidValue, match="is the number of one of its 1 written regions; found 1"):
        apply(InjectSoftwarePipeline(), func)


def test_pointers_go_to_the_version():
    @T.prim_func
    def func(A: T.Buffer((8, 4), "float32")):
        for i in T.serial(8, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
            with T.block("body"):
                T.reads(A[i, 0:4])
                T.writes()
                B = T.alloc_buffer((4,), "float32")
                with T.block("write"):
                    T.reads(A[i, 0:4])
                    T.writes(B[0:4])
                    for j in range(4):
                        B[j] = A[i, j]
                with T.block("read"):
                    T.reads(B[0:4])
                    T.writes()
                    T.evaluate(T.call_extern("int32", "use", B.access_ptr("r", offset=1)))

    text = apply(Sequential([InjectSoftwarePipeline(), Simplify()]), func).script()
    assert "B.data, i % 2 * 4 + 1, " in text and "B.data, 5, " in text


def asynchronous(stages, order, copying):
    """Two copies, and a sum of what they copied."""

    @T.prim_func
    def func(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i in T.serial(
            16,
            annotations={
                "software_pipeline_stage": stages,
                "software_pipeline_order": order,
                "software_pipeline_async_stages": copying,
            },
        ):
            with T.block("body"):
                T.reads(A[i], B[i])
                T.writes(C[i])
                X = T.alloc_buffer((1,), "float32", scope="shared")
                Y = T.alloc_buffer((1,), "float32", scope="shared")
                with T.block("x"):
                    T.reads(A[i])
                    T.writes(X[0])
                    X[0] = A[i]
                with T.block("y"):
                    T.reads(B[i])
                    T.writes(Y[0])
                    Y[0] = B[i]
                with T.block("sum"):
                    T.reads(X[0], Y[0])
                    T.writes(C[i])
                    C[i] = X[0] + Y[0]

    return func


def run_queues(func, a, b):
    """Runs the loop's rounds with one queue: copies arrive, oldest group first, only when a wait asks for them.

    The statements are those of `asynchronous` with the rounds written out, so that all counts are constants.
    """
    memory, waiting, group, out = {}, [], [], np.zeros(16)
    values = {"A": a, "B": b}

    def at(indices, env):
        return tuple(int(Analyzer().simplify(substitute(index, env))) for index in indices)

    def value(expr, env):
        if isinstance(expr, BufferLoad):
            where = at(expr.indices, env)
            held = values.get(expr.buffer.name)
            return held[where[0]] if held is not None else memory.get((expr.buffer.name, *where), np.nan)
        return value(expr.a, env) + value(expr.b, env)

    def run(stmt, env, copying=False):
        nonlocal group
        if isinstance(stmt, SeqStmt):
            for part in stmt.seq:
                run(part, env, copying)
        elif isinstance(stmt, BlockRealize):
            if int(Analyzer().simplify(substitute(stmt.predicate, env))):
                run(stmt.block.body, env, copying)
        elif isinstance(stmt, For):
            for i in range(int(stmt.extent)):
                run(stmt.body, {**env, stmt.loop_var: const(i)}, copying)
        elif isinstance(stmt, AttrStmt):
            if stmt.attr_key == "async_wait_queue_scope":
                newer = int(Analyzer().simplify(substitute(stmt.body.value, env)))
                while len(waiting) > newer:
                    memory.update(waiting.pop(0))
                run(stmt.body.body, env)
            elif stmt.attr_key == "async_commit_queue_scope":
                group = []
                run(stmt.body, env)
                waiting.append(dict(group))
            else:
                run(stmt.body, env, True)
        elif isinstance(stmt, BufferStore):
            where, found = at(stmt.indices, env), value(stmt.value, env)
            if stmt.buffer.name == "C":
                out[where[0]] = found
            elif copying:
                group.append(((stmt.buffer.name, *where), found))
            else:
                memory[(stmt.buffer.name, *where)] = found

    run(func.body, {})
    return out


@pytest.mark.parametrize(
    ("stages", "order", "copying"),
    [
        ([0, 0, 1], [0, 1, 2], [0]),
        ([0, 0, 3], [0, 1, 2], [0]),
        ([0, 0, 3], [0, 2, 1], [0]),
        ([0, 0, 2], [1, 2, 0], [0]),
        ([0, 1, 2], [0, 1, 2], [0, 1]),
        ([0, 1, 3], [2, 0, 1], [0]),
        ([0, 0, 0], [0, 1, 2], [0]),
        ([1, 0, 2], [0, 1, 2], [0]),
    ],
)
@pytest.mark.parametrize("expand", [False, True])
def test_waits_are_for_what_is_read(stages, order, copying, expand):
    after = apply(InjectSoftwarePipeline(expand=expand), asynchronous(stages, order, copying))
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(16), rng.standard_normal(16)
    np.testing.assert_array_equal(run_queues(after, a, b), a + b)


def test_a_reader_that_stands_first_needs_one_version_only():
    after = apply(InjectSoftwarePipeline(), staged(8, [0, 0, 1], [1, 2, 0]))
    assert [list(map(int, buffer.shape)) for buffer in after.body.block.body.block.alloc_buffers] == [[1], [1]]


@pytest.mark.parametrize("extent", [1, 2, 3, 9])
@pytest.mark.parametrize(
    ("stages", "order"),
    [
        ([0, 0, 0], [0, 1, 2]),
        ([0, 1, 1], [0, 1, 2]),
        ([0, 1, 2], [0, 1, 2]),
        ([0, 1, 3], [2, 1, 0]),
        ([0, 0, 2], [1, 2, 0]),
    ],
)
def test_any_plan_and_any_length(extent, stages, order):
    func = staged(extent, stages, order)
    same_numbers(func, apply(InjectSoftwarePipeline(), func))


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_loops_of_unknown_length(n):
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32"), n: T.int32):
        for i in T.serial(n, annotations={"software_pipeline_stage": [0, 2], "software_pipeline_order": [0, 1]}):
            with T.block("body"):
                T.reads(A[i])
                T.writes(C[i])
                B = T.alloc_buffer((1,), "float32")
                B[0] = A[i]
                C[i] = B[0] + T.float32(1)

    after = apply(InjectSoftwarePipeline(), func)
    a, c = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    interpret(after, a, c, n)
    np.testing.assert_array_equal(c, np.where(np.arange(8) < n, a + 1, 0))


def nested(stages: tuple[int, ...], order: tuple[int, ...], inner_order: tuple[int, ...]):
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        for i in T.serial(8, annotations={"software_pipeline_stage": stages, "software_pipeline_order": order}):
            with T.block("row"):
                T.reads(A[i, 0:8])
                T.writes(C[i, 0:8])
                copy = T.alloc_buffer((8,), "float32")
                for j in range(8):
                    with T.block("load"):
                        T.reads(A[i, j])
                        T.writes(copy[j])
                        copy[j] = A[i, j]
                for j in T.serial(
                    8, annotations={"software_pipeline_stage": (0, 1), "software_pipeline_order": inner_order}
                ):
                    with T.block("compute"):
                        T.reads(copy[j])
                        T.writes(C[i, j])
                        double = T.alloc_buffer((1,), "float32")
                        with T.block("double"):
                            T.reads(copy[j])
                            T.writes(double[0])
                            double[0] = copy[j] * T.float32(2)
                        with T.block("add"):
                            T.reads(double[0])
                            T.writes(C[i, j])
                            C[i, j] = double[0] + T.float32(1)

    return func


@pytest.mark.parametrize("inner_order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("stages", "order"), [((0, 1, 1, 1), (0, 1, 2, 3)), ((0, 0, 1, 1), (0, 2, 1, 3)), ((0, 0, 0, 1), (0, 1, 2, 3))]
)
def test_statements_of_an_inner_pipeline_are_statements_of_the_outer_one(stages, order, inner_order):
    before = nested(stages, order, inner_order)
    after = apply(InjectSoftwarePipeline(), before)
    assert "software_pipeline" not in after.script()
    same_numbers(before, after)


@pytest.mark.parametrize(("read", "versions"), [(lambda i: i + 1, 2), (lambda i: 9, 1)])
def test_only_what_may_be_read_while_it_is_written_has_versions(read, versions):
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in T.serial(8, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
            with T.block("body"):
                T.reads(A[i])
                T.writes(C[i])
                D = T.alloc_buffer((10,), "float32")
                with T.block("write"):
                    T.reads(A[i])
                    T.writes(D[i])
                    D[i] = A[i]
                with T.block("read"):
                    T.reads(D[read(i)])
                    T.writes(C[i])
                    C[i] = D[read(i)]

    (buffer,) = apply(InjectSoftwarePipeline(), before).body.block.body.block.alloc_buffers
    # D[i + 1] of one iteration is what the next one writes; D[9] is written in none, since i is at most 7.
    assert list(map(int, buffer.shape)) == ([2, 10] if versions == 2 else [10])


def test_loops_without_annotations_stay():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        for i in range(8):
            A[i] = T.float32(0)

    unchanged(InjectSoftwarePipeline(), func)


def test_a_reader_in_an_earlier_stage_is_refused():
    with pytest.raises(InvalidValue, match="statement 1 reads B before statement 0 writes it"):
        apply(InjectSoftwarePipeline(), staged(8, [1, 0, 1], [0, 1, 2]))


def test_annotations_of_another_length_are_refused():
    with pytest.raises(InvalidValue, match="has 3 statements, but software_pipeline_stage has 2 entries"):
        apply(InjectSoftwarePipeline(), staged(8, [0, 1], [0, 1]))


def test_an_order_that_is_no_permutation_is_refused():
    with pytest.raises(InvalidValue, match=r"must be a permutation of 0 to 2, found \[0, 1, 1\]"):
        apply(InjectSoftwarePipeline(), staged(8, [0, 1, 1], [0, 1, 1]))
