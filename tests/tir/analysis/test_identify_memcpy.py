"""identify_memcpy: what it calls a copy is one in every iteration, counted out; what is none says why."""

from __future__ import annotations

import itertools
import re

import pytest

from oneir.arith import Analyzer
from oneir.script import tir as T
from oneir.tir import Var, analysis, decl_buffer
from oneir.tir.stmt import BufferStore, For, ForKind
from oneir.tir.stmt_functor import substitute

I, J = Var("i", "int32"), Var("j", "int32")
INDICES = [
    I,
    J,
    I * 6 + J,
    J + I * 6,
    I * 6 + J + 5,
    J * 4 + I,
    I * 7 + J,
    I * 12 + J * 2,
    23 - (I * 6 + J),
    (I * 6 + J) // 8 * 8 + (I * 6 + J) % 8,
    (I * 6 + J) // 8 * 9 + (I * 6 + J) % 8,
    (I * 6 + J) // 2,
    I * 6 + J % 3,
]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(INDICES, repeat=2)))
def test_a_copy_is_one_when_its_iterations_are_counted(source, target):
    src, dst = decl_buffer((64,), name="src"), decl_buffer((64,), name="dst")
    loop = For(I, 0, 4, ForKind.SERIAL, For(J, 0, 6, ForKind.SERIAL, BufferStore(dst, src[source], [target])))
    found = analysis.identify_memcpy(loop)

    def value(index, i, j):
        return int(Analyzer().simplify(substitute(index, {I: i, J: j})))

    pairs = [(value(source, i, j), value(target, i, j)) for i in range(4) for j in range(6)]
    first = min(a for a, _ in pairs), min(b for _, b in pairs)
    if sorted(pairs) == [(first[0] + n, first[1] + n) for n in range(24)]:
        (region,), (written,) = (part.region for part in found)
        assert [(int(region.min), int(region.extent)), (int(written.min), int(written.extent))] == [
            (first[0], 24),
            (first[1], 24),
        ]
        assert found[0].buffer is src and found[1].buffer is dst
    else:
        assert isinstance(found, str)


def test_loops_around_are_parameters():
    @T.prim_func
    def func(A: T.Buffer((8, 32), "float32"), B: T.Buffer((256,), "float32"), C: T.Buffer((32,), "float32")):
        for i in range(8):
            for j in range(32):
                B[i * 32 + j] = A[i, j]
        for i in range(8):
            for j in range(32):
                C[j] = A[i, j]

    copy, row, other, one = analysis._ffi_api._identify_memcpy(func.body)
    assert [str(region) for region in copy] == ["A[0:8, 0:32]", "B[0:256]"]
    assert [str(region) for region in row] == ["A[i, 0:32]", "B[i * 32:i * 32 + 32]"]
    assert "dst does not form a bijective transform of the loops" in other.value
    assert [str(region) for region in one] == ["A[i, 0:32]", "C[0:32]"]


def test_sizes_may_be_variables():
    @T.prim_func
    def func(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 16), "float16")
        B = T.match_buffer(b, (n * 16,), "float16")
        for i, j in T.grid(n, 16):
            B[i * 16 + j] = A[i, j]

    source, target = analysis.identify_memcpy(func.body)
    assert [str(source), str(target)] == ["A[0:n, 0:16]", "B[0:n * 16]"]


@T.prim_func
def computed(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        B[i] = A[i] * T.float32(2)


@T.prim_func
def conditional(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        if i < 8:
            B[i] = A[i]


@T.prim_func
def strided(A: T.Buffer((32,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        B[i] = A[i * 2]


@T.prim_func
def transposed(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        B[j, i] = A[i, j]


@T.prim_func
def shifted(A: T.Buffer((17,), "float32")):
    for i in range(16):
        A[i] = A[i + 1]


@T.prim_func
def vectors(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(16):
        B[i * 4 : i * 4 + 4] = A[i * 4 : i * 4 + 4]


@T.prim_func
def gathered(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "int32")):
    for i in range(16):
        B[i] = A[C[i]]


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (computed, "Expected BufferStore's value to be BufferLoad, but instead found A"),
        (conditional, "Expected innermost loop to have BufferStore body, but instead found IfThenElse"),
        (strided, r"Mismatch between loop iterations \(16\) and number of src indices touched \(31\)"),
        (transposed, "comes from a different source element"),
        (shifted, "Expected different memory for src and dst, but instead found A for both"),
        (vectors, "Expected accesses of single elements, but instead found one of a vector of src"),
        (gathered, "of src does not form a bijective transform of the loops"),
    ],
)
def test_what_is_no_copy_says_why(func, reason):
    found = analysis.identify_memcpy(func.body)
    assert isinstance(found, str) and re.search(reason, found)


def test_an_unregistered_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"no function is registered as 'tir\.analysis\._identify_memmove'"):
        _ = analysis._ffi_api._identify_memmove
