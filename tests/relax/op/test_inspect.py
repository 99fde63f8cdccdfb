"""What tensors are when a program runs: the numbers, as NumPy has them, and what is known before."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.relax.struct_info import PrimStructInfo
from oneir.runtime import DataType, tensor
from oneir.script import ir as I
from oneir.script import relax as R


@I.ir_module
class Module:
    @R.function
    def code(x: R.Tensor):
        return x.dtype.type_code

    @R.function
    def bits(x: R.Tensor):
        return x.dtype.bits

    @R.function
    def lanes(x: R.Tensor):
        return x.dtype.lanes

    @R.function
    def ndim(x: R.Tensor):
        return x.ndim

    @R.function
    def extent(x: R.Tensor, axis: R.Prim("int64")):
        return x.shape[axis]

    @R.function
    def stride(x: R.Tensor, axis: R.Prim("int64")):
        return x.strides[axis]

    @R.function
    def bytes_before(x: R.Tensor):
        return x.byte_offset

    @R.function
    def elements_before(x: R.Tensor):
        return x.elem_offset


@pytest.fixture(scope="module")
def vm() -> relax.VirtualMachine:
    return relax.VirtualMachine(relax.build(Module, "llvm"), oneir.cpu())


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float32", "float64", "bool", "bfloat16", "float8_e4m3fn"])
def test_dtype(vm: relax.VirtualMachine, dtype: str) -> None:
    x = oneir.runtime.empty((2,), dtype)
    assert vm["code"](x) == DataType(dtype).type_code
    assert vm["bits"](x) == (8 if dtype == "bool" else DataType(dtype).bits)
    assert vm["lanes"](x) == 1


@pytest.mark.parametrize("shape", [(), (5,), (3, 4, 5)])
def test_shape_and_strides(vm: relax.VirtualMachine, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, "float32")
    assert vm["ndim"](tensor(array)) == array.ndim
    assert [vm["extent"](tensor(array), i) for i in range(array.ndim)] == list(shape)
    assert [vm["stride"](tensor(array), i) * 4 for i in range(array.ndim)] == list(array.strides)


def test_place_in_memory(vm: relax.VirtualMachine) -> None:
    view = tensor(np.zeros((8, 8), "float64"))._create_view((2, 3), "float64", relative_byte_offset=64)
    assert (vm["bytes_before"](view), vm["elements_before"](view)) == (64, 8)


def test_an_axis_that_the_tensor_does_not_have(vm: relax.VirtualMachine) -> None:
    with pytest.raises(ValueError, match="found axis 2 of a tensor of 2 dimensions"):
        vm["extent"](tensor(np.zeros((2, 2), "float32")), 2)
    x = relax.Var("x", relax.TensorStructInfo((2, 2), "float32"))
    with pytest.raises(ValueError, match="the axis must be at least 0 and below the number of dimensions, found 2"):
        relax.BlockBuilder().normalize(x.shape[2])


def test_what_is_known_is_a_number() -> None:
    n = oneir.tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n, 4), "float16"))

    def known(call: relax.Expr) -> PrimStructInfo:
        return relax.BlockBuilder().normalize(call).struct_info

    assert known(x.dtype.bits).value == 16
    assert known(x.dtype.type_code).value == 2
    assert known(x.ndim).value == 2
    assert known(x.shape[1]).value == 4
    assert known(x.shape[0]).value.same_as(n)
    assert known(x.strides[0]).value is None


def test_attributes_of_what_is_no_tensor() -> None:
    shape = relax.Var("s", relax.ShapeStructInfo(ndim=2))
    with pytest.raises(AttributeError, match="`s` is not known to be a tensor, so it has no dtype"):
        shape.dtype
    with pytest.raises(TypeError, match="index them by an axis"):
        list(relax.Var("x", relax.TensorStructInfo((2, 2), "float32")).shape)
