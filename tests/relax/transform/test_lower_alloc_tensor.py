"""LowerAllocTensor: a tensor that memory planning left alone gets a storage of its own."""

from __future__ import annotations

from oneir.relax.transform import LowerAllocTensor
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def test_storages_have_as_many_bytes_as_tensors() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(s: R.Shape(["n"])) -> R.Object:
            n = T.int64()
            a = R.builtin.alloc_tensor(R.shape([2, 3]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            b = R.builtin.alloc_tensor(R.shape([n, 4]), R.dtype("float16"), R.prim_value(1), R.str("texture"))
            c = R.builtin.alloc_tensor(R.shape([]), R.dtype("bool"), R.prim_value(0), R.str("global"))
            return (a, b, c)

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(s: R.Shape(["n"])) -> R.Object:
            n = T.int64()
            s1 = R.memory.alloc_storage(R.shape([24]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(s1, R.prim_value(0), R.shape([2, 3]), R.dtype("float32"), R.prim_value(0))
            s2 = R.memory.alloc_storage(R.shape([2 * n * 4]), R.prim_value(1), R.str("texture"), R.dtype("uint8"))
            b = R.memory.alloc_tensor(s2, R.prim_value(0), R.shape([n, 4]), R.dtype("float16"), R.prim_value(1))
            s3 = R.memory.alloc_storage(R.shape([1]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            c = R.memory.alloc_tensor(s3, R.prim_value(0), R.shape([]), R.dtype("bool"), R.prim_value(0))
            return (a, b, c)

    check_pass(LowerAllocTensor(), Before, Expected, numbers=False)


def test_branches_are_entered_and_planned_tensors_stay() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(c: R.Tensor((), "bool")) -> R.Tensor((2,), "int32"):
            if c:
                x = R.builtin.alloc_tensor(R.shape([2]), R.dtype("int32"), R.prim_value(0), R.str("global"))
                y = x
            else:
                s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
                z = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([2]), R.dtype("int32"), R.prim_value(0))
                y = z
            return y

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(c: R.Tensor((), "bool")) -> R.Tensor((2,), "int32"):
            if c:
                t = R.memory.alloc_storage(R.shape([8]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
                x = R.memory.alloc_tensor(t, R.prim_value(0), R.shape([2]), R.dtype("int32"), R.prim_value(0))
                y = x
            else:
                s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
                z = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([2]), R.dtype("int32"), R.prim_value(0))
                y = z
            return y

    check_pass(LowerAllocTensor(), Before, Expected, numbers=False)
