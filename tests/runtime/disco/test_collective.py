"""Collectives of workers that are threads, and of such that are processes, against NumPy; and what they refuse."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from oneir.runtime import ShapeTuple, disco
from oneir.runtime.error import ExecutionError, InvalidValue

WORKERS, GROUPS = 4, 2


@pytest.fixture(scope="module", params=[disco.ThreadedSession, disco.ProcessSession])
def session(request):
    with request.param(WORKERS, GROUPS) as made:
        made.import_python_module("disco_functions")
        made.init_ccl("cpu")
        yield made


@pytest.fixture
def threads():
    """A session of its own, for what ends it."""
    made = disco.ThreadedSession(2)
    made.import_python_module("disco_functions")
    made.init_ccl("cpu")
    yield made
    made.shutdown()


def spread(session, arrays):
    """A tensor on each worker: the array of its place."""
    name, shape = str(arrays[0].dtype), ShapeTuple(arrays[0].shape)
    values = b"".join(array.tobytes() for array in arrays)
    return session.get_global_func("tests.disco.make")(values, name, shape)


def on_all(session, ref):
    return [ref.debug_get_from_remote(rank).numpy() for rank in range(session.num_workers)]


def members(rank, in_group):
    """The workers that meet the one of a rank."""
    if not in_group:
        return range(WORKERS)
    return range(2) if rank < 2 else range(2, 4)


ORACLES = {
    "sum": sum,
    "prod": math.prod,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("in_group", [True, False])
@pytest.mark.parametrize("op", ORACLES)
@pytest.mark.parametrize(
    "dtype",
    ["int8", "uint8", "int32", "uint64", "int64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "int4"],
)
def test_reductions_of_small_integers_are_those_of_python(session, dtype, op, in_group):
    # Numbers and results are small, so all dtypes have them exactly.
    numbers = [[1, 0, 2, 1, 1, 2], [2, 1, 1, 0, 1, 1], [1, 2, 0, 1, 2, 1], [0, 1, 1, 2, 1, 1]]
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    source = spread(session, [np.array(row).astype(kind).reshape(2, 3) for row in numbers])
    target = session.empty((2, 3), dtype)
    assert session.allreduce(source, target, op, in_group) is target
    for rank, found in enumerate(on_all(session, target)):
        rows = [numbers[other] for other in members(rank, in_group)]
        expected = [ORACLES[op](column) for column in zip(*rows, strict=True)]
        assert found.astype(int).ravel().tolist() == expected and found.dtype == kind


def test_average(session):
    arrays = [np.array([1, 2, rank], "float64") for rank in range(WORKERS)]
    target = session.empty((3,), "float64")
    session.allreduce(spread(session, arrays), target, "avg", in_group=False)
    assert on_all(session, target)[3].tolist() == [1, 2, 1.5]
    arrays = [np.array([-3, 3 * rank], "int32") for rank in range(WORKERS)]
    target = session.empty((2,), "int32")
    session.allreduce(spread(session, arrays), target, "avg")
    assert [a.tolist() for a in on_all(session, target)] == [[-3, 1], [-3, 1], [-3, 7], [-3, 7]]


def test_booleans(session):
    arrays = [np.array([False, rank == 1, True]) for rank in range(WORKERS)]
    for op, expected in (("sum", [False, True, True]), ("prod", [False, False, True])):
        target = session.empty((3,), "bool")
        session.allreduce(spread(session, arrays), target, op, in_group=False)
        assert on_all(session, target)[2].tolist() == expected


def test_short_floats_are_rounded_once(session):
    # In float16, 2048 + 1 is 2048 again, twice; the sum of all is 2050.
    arrays = [np.array([value], "float16") for value in (2048, 1, 1, 0)]
    target = session.empty((1,), "float16")
    session.allreduce(spread(session, arrays), target, in_group=False)
    assert [a.item() for a in on_all(session, target)] == [2050.0] * WORKERS


def test_integers_wrap_and_nan_stays(session):
    target = session.empty((1,), "uint8")
    session.allreduce(spread(session, [np.array([200], "uint8")] * WORKERS), target)
    assert on_all(session, target)[0].item() == 400 - 256
    arrays = [np.array([np.nan if rank == 1 else rank], "float32") for rank in range(WORKERS)]
    target = session.empty((1,), "float32")
    session.allreduce(spread(session, arrays), target, "max")
    assert np.isnan(on_all(session, target)[0].item()) and on_all(session, target)[2].item() == 3


def test_a_result_may_lie_where_its_source_does(session):
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 99, 5000) for _ in range(WORKERS)]
    ref = spread(session, arrays)
    session.allreduce(ref, ref, in_group=False)
    session.allreduce(ref, ref, in_group=True)
    for found in on_all(session, ref):
        np.testing.assert_array_equal(found, 2 * sum(arrays))


@pytest.mark.parametrize("in_group", [True, False])
def test_allgather(session, in_group):
    arrays = [np.arange(6, dtype="float32").reshape(2, 3) + 10 * rank for rank in range(WORKERS)]
    count = len(members(0, in_group))
    target = session.empty((2 * count, 3), "float32")
    session.allgather(spread(session, arrays), target, in_group)
    for rank, found in enumerate(on_all(session, target)):
        np.testing.assert_array_equal(found, np.concatenate([arrays[r] for r in members(rank, in_group)]))


@pytest.mark.parametrize("in_group", [True, False])
def test_gather_and_scatter_are_inverse(session, in_group):
    arrays = [np.arange(4, dtype="int16") + 10 * rank for rank in range(WORKERS)]
    count = len(members(0, in_group))
    whole = session.empty((count, 4), "int16", worker0_only=True, in_group=in_group)
    session.gather_to_worker0(spread(session, arrays), whole, in_group)
    np.testing.assert_array_equal(whole.debug_get_from_remote(0).numpy(), np.stack(arrays[:count]))
    parts = session.empty((4,), "int16")
    session.scatter_from_worker0(whole, parts, in_group)
    for found, expected in zip(on_all(session, parts), arrays, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("in_group", [True, False])
def test_broadcast(session, in_group):
    arrays = [np.full((2, 2), rank, "float64") for rank in range(WORKERS)]
    target = session.empty((2, 2), "float64")
    session.broadcast_from_worker0(spread(session, arrays), target, in_group)
    first = [members(rank, in_group)[0] for rank in range(WORKERS)]
    assert [found[0, 0] for found in on_all(session, target)] == first


def test_tensors_without_items(session):
    arrays = [np.zeros((0, 3), "float32")] * WORKERS
    target = session.empty((0, 3), "float32")
    session.allreduce(spread(session, arrays), target)
    session.allgather(spread(session, arrays), target)
    assert on_all(session, target)[3].shape == (0, 3)


def test_memory_grows_with_the_tensors(session):
    for size in (10, 100_000, 1_000_000, 50):
        arrays = [np.full(size, rank, "int64") for rank in range(WORKERS)]
        target = session.empty((size,), "int64")
        session.allreduce(spread(session, arrays), target, in_group=False)
        assert (on_all(session, target)[1] == 6).all()


def refused(session, *message):
    with pytest.raises(ExecutionError) as error:
        session.sync_worker_0()
    assert any(text in str(error.value) for text in message), error.value


def test_workers_must_meet_with_tensors_of_one_size(threads):
    source = threads.get_global_func("tests.disco.sized_by_rank")()
    threads.allreduce(source, source)
    one, two = "allreduce of 1 float32", "allreduce of 2 float32"
    refused(threads, f"worker 1 is at {two}, and worker 0 at {one}", f"worker 0 is at {one}, and worker 1 at {two}")


def test_no_collectives_without_a_library():
    session = disco.ThreadedSession(2)
    x = session.empty((1,), "float32")
    session.allreduce(x, x)
    refused(session, "allreduce needs a library of collectives: session.init_ccl('cpu')")


def test_results_of_another_dtype_or_size_are_refused():
    for shape, dtype, message in (
        ((4,), "float64", "TypeMismatch: allreduce: expected a result of dtype float32, found float64"),
        ((5,), "float32", "ShapeMismatch: allreduce: expected a result of 4 items, found the shape (5,)"),
    ):
        session = disco.ThreadedSession(2)
        session.init_ccl("cpu")
        session.allreduce(session.empty((4,), "float32"), session.empty(shape, dtype))
        refused(session, message)


def test_what_is_no_equal_parts_is_not_scattered(threads):
    threads.scatter_from_worker0(threads.empty((3,), "float32"), threads.empty((1,), "float32"))
    refused(threads, "worker 0 raised ShapeMismatch: scatter_from_worker0: 3 items are not 2 equal parts")


def test_booleans_have_no_average(threads):
    x = threads.empty((1,), "bool")
    threads.allreduce(x, x, "avg")
    refused(threads, "there is no average of booleans")


def test_unknown_libraries_operations_and_devices_are_refused(threads):
    with pytest.raises(InvalidValue, match="no collectives of 'nccl' are there; those for processors are called 'cpu'"):
        threads.init_ccl("nccl", 0, 1)
    x = threads.empty((1,), "float32")
    with pytest.raises(InvalidValue, match="expected one of sum, prod, min, max, avg to reduce by, found 'mean'"):
        threads.allreduce(x, x, "mean")
    threads.init_ccl("cpu", 0, 1)
    refused(threads, "'cpu' takes no ids of devices, or 0 for each of the 2 workers")
