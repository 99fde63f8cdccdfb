"""Buffers: where an element lies, checked against NumPy's strides; indexing by slices; pointers; refusals."""

from __future__ import annotations

import numpy as np
import pytest

from oneir import tir
from oneir.arith import Analyzer
from oneir.ir.expr import Ramp, Var
from oneir.ir.structural import structural_equal
from oneir.runtime.error import InvalidValue, OneIRError, TypeMismatch
from oneir.tir import BufferLoad, BufferRegion, decl_buffer

x, n = Var("x", "int32"), Var("n", "int32")


def test_what_a_declaration_leaves_out():
    a = decl_buffer((4, 5))
    assert (a.dtype, a.name, a.data.name, a.scope(), a.ndim) == ("float32", "buffer", "buffer", "global", 2)
    assert a.data_alignment == 64 and a.offset_factor == 1 and a.elem_offset.value == 0 and a.strides == []
    assert decl_buffer(7).shape[0].value == 7
    assert decl_buffer((tir.const(4, "int64"),)).elem_offset.dtype == "int64"


def test_what_a_declaration_can_say():
    data = Var("p", tir.decl_buffer((1,), "int8", scope="shared").data.type_annotation)
    a = decl_buffer((n,), "int8", "A", data=data, strides=[2], elem_offset=x, data_alignment=16, offset_factor=4)
    assert a.data is data and a.scope() == "shared" and a.strides[0].value == 2 and a.elem_offset is x
    assert (a.data_alignment, a.offset_factor) == (16, 4)
    assert decl_buffer((n,), offset_factor=4, name="B").elem_offset.name == "B_elem_offset"
    assert decl_buffer((n,), buffer_type="auto").buffer_type == "auto_broadcast"


def offset(buffer, indices):
    (at,) = buffer.offset_of(indices)
    return int(Analyzer().simplify(at))


@pytest.mark.parametrize("shape", [(6,), (3, 4), (2, 3, 5)])
def test_offsets_of_all_elements(shape):
    numbered = np.arange(np.prod(shape)).reshape(shape)
    plain = decl_buffer(shape)
    strided = decl_buffer(shape, strides=[s // 8 for s in numbered.T.copy().T.strides], elem_offset=7)
    memory = numbered.T.ravel()
    for index in np.ndindex(*shape):
        assert offset(plain, index) == numbered[index]
        assert memory[offset(strided, index) - 7] == numbered[index]


def test_separated_axes_are_flattened_apart():
    a = decl_buffer((2, 3, 4, 5), axis_separators=[2])
    assert [int(i) for i in a.offset_of([1, 2, 3, 4])] == [1 * 3 + 2, 3 * 5 + 4]
    assert [int(s) for s in a.get_flattened_buffer().shape] == [6, 20]


def test_flattened_buffers_hold_all_elements():
    a = decl_buffer((3, 4))
    flat = a.get_flattened_buffer()
    assert int(flat.shape[0]) == 12 and flat.data is a.data
    one = decl_buffer((5,))
    assert one.get_flattened_buffer() is one
    padded = decl_buffer((3, 4), strides=[10, 1]).get_flattened_buffer()
    assert int(padded.shape[0]) == 3 * 10  # as published: the last row with its gap
    assert int(decl_buffer(()).get_flattened_buffer().shape[0]) == 1


def test_indices_make_loads():
    a = decl_buffer((4, 8))
    load = a[x, 3]
    assert isinstance(load, BufferLoad) and load.buffer is a and load.indices[0] is x and load.dtype == "float32"
    assert a[[x, 1]].indices[1].value == 1 and a(x, 2).indices[1].value == 2
    assert a[x, Ramp(0, 1, 4)].dtype == "float32x4"


def test_slices_make_regions_and_with_a_step_vectors():
    a = decl_buffer((4, 8))
    region = a[1:3, x]
    assert isinstance(region, BufferRegion)
    assert [(bool(r.min == m), int(r.extent)) for r, m in zip(region.region, (1, x), strict=True)] == [
        (True, 2),
        (True, 1),
    ]
    assert [int(r.extent) for r in a[:2].region] == [2, 8] and [int(r.min) for r in a[2:].region] == [2, 0]
    vector = a[0, 2:8:2]
    assert isinstance(vector, BufferLoad) and vector.dtype == "float32x3" and int(vector.indices[1].stride) == 2
    assert a[0, 0:4:1].dtype == "float32x4" and a[0, 5:6:1].dtype == "float32"
    assert a[0, x * 4 : (x + 1) * 4 : 1].dtype == "float32x4" and a[0, x * 4 : (x + 1) * 4 : 2].dtype == "float32x2"
    with pytest.raises(InvalidValue, match=r"lanes of a vector must be an int or a multiple of vscale, found x"):
        _ = a[0, 0:x:1]


def test_vectors_are_loaded_and_stored():
    a = decl_buffer((4, 8))
    assert a.vload([0, x], "float32x4").indices[1].dtype == "int32x4" and a.vload([0, x]).dtype == "float32"
    store = a.vstore([1, 0], tir.const(1.0, "float32x8"))
    assert store.value.dtype == "float32x8" and store.indices[1].lanes == 8


def test_pointers_say_how_they_are_used():
    a = decl_buffer((4, 8))
    for mask, number in {"r": 1, "w": 2, "rw": 3, "wr": 3, 2: 2}.items():
        call = a.access_ptr(mask, offset=8)
        assert call.op.name == "tir.tvm_access_ptr" and int(call.args[4]) == number
        assert [int(v) for v in call.args[2:4]] == [8, 24]
    wide = a.access_ptr("r", content_lanes=4, extent=16)
    assert wide.args[0].dtype == "float32x4" and int(wide.args[3]) == 4


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: decl_buffer((4, 4), strides=[1]), InvalidValue, "`buffer` has 2 dimensions but 1 strides"),
        (lambda: decl_buffer((4,), "flot32"), OneIRError, "unknown dtype 'flot32'"),
        (lambda: list(decl_buffer((4,), name="A")), InvalidValue, r"`A` cannot be iterated over; index it: A\[i\]"),
        (lambda: decl_buffer((4, 4), name="A")[0:4:2, 0], InvalidValue, "region of buffer `A` cannot have the step 2"),
        (lambda: decl_buffer((4, 4), name="A")[0], TypeMismatch, "`A` has 2 dimensions, found 1 indices"),
        (
            lambda: decl_buffer((4,), name="A")[x * 0.5],
            TypeMismatch,
            "`A` is indexed by integers, found .* of dtype float32",
        ),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_pointer_to_strided_memory_reaches_over_the_gaps() -> None:
    n, m = tir.Var("n", "int32"), tir.Var("m", "int32")
    strided = tir.decl_buffer((n, m), strides=[m + 1, 1])
    assert structural_equal(strided.access_ptr("r").args[3], (m + 1) * n)
    assert structural_equal(strided.access_ptr("r", offset=5).args[3], (m + 1) * n - 5)
    assert structural_equal(tir.decl_buffer((n, m)).access_ptr("r").args[3], n * m)


def test_axis_separators_are_numbers_of_dimensions() -> None:
    for separators in ([1, 2], [-1], [1, 0]):
        with pytest.raises(InvalidValue, match=r"expected numbers of its 1 dimensions, in ascending order"):
            tir.decl_buffer([4], axis_separators=separators)
