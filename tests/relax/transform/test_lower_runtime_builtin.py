"""LowerRuntimeBuiltin: which function of the runtime stands for which operator."""

from __future__ import annotations

from oneir.relax.transform import LowerRuntimeBuiltin, VMBuiltinLower
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def test_memory() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            s = R.memory.alloc_storage(R.shape([4 * n]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(s, R.prim_value(64), R.shape([n]), R.dtype("float32"), R.prim_value(0))
            _ = R.memory.kill_storage(s)
            _1 = R.memory.kill_tensor(a)
            b = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            return b

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            s = R.vm.alloc_storage(R.shape([4 * n]), R.prim_value(0), R.dtype("uint8"), R.str("global"))
            a = R.vm.alloc_tensor(s, R.prim_value(64), R.shape([n]), R.dtype("float32"), R.prim_value(0))
            _ = R.vm.kill_object(s)
            _1 = R.vm.kill_object(a)
            t = R.vm.alloc_storage(R.shape([4 * n]), R.prim_value(0), R.dtype("uint8"), R.str("global"))
            b = R.vm.alloc_tensor(t, R.prim_value(0), R.shape([n]), R.dtype("float32"), R.prim_value(0))
            return b

    check_pass(LowerRuntimeBuiltin(), Before, Expected, numbers=False)
    assert VMBuiltinLower is LowerRuntimeBuiltin


def test_shapes() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor((4, 2), "float32"), i: R.Tensor((1,), "int64")) -> R.Object:
            s = R.shape_of(x)
            t = R.tensor_to_shape(i)
            u = R.shape_to_tensor(s)
            y = R.reshape(x, R.shape([8]))
            return (s, t, u, y)

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor((4, 2), "float32"), i: R.Tensor((1,), "int64")) -> R.Object:
            s = R.call_packed("vm.builtin.shape_of", x, sinfo_args=R.Shape([4, 2]))
            t = R.call_packed("vm.builtin.tensor_to_shape", i, sinfo_args=R.Shape(ndim=1))
            u = R.call_packed("relax.run.shape_to_tensor", s, sinfo_args=R.Tensor((2,), "int64"))
            y = R.call_packed("vm.builtin.reshape", x, R.shape([8]), sinfo_args=R.Tensor((8,), "float32"))
            return (s, t, u, y)

    check_pass(LowerRuntimeBuiltin(), Before, Expected)


def test_closures_packed_calls_and_effects() -> None:
    @I.ir_module
    class Before:
        @R.function(private=True)
        def add(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return x

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
            cls = Before
            f = R.make_closure(cls.add, (x,))
            y = R.invoke_closure(f, (x,), sinfo_args=R.Tensor((4,), "float32"))
            z = R.call_pure_packed("test.f", y, sinfo_args=R.Tensor((4,), "float32"))
            w = R.call_inplace_packed("test.g", z, inplace_indices=[0], sinfo_args=R.Tensor((4,), "float32"))
            _ = R.print(w, format="{}")
            _1 = R.assert_op(c, w, format="{}")
            return w

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def add(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return x

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
            cls = Expected
            f = R.call_packed("vm.builtin.make_closure", cls.add, x, sinfo_args=R.Object)
            y = R.call_builtin_with_ctx("vm.builtin.invoke_closure", (f, x), sinfo_args=R.Tensor((4,), "float32"))
            z = R.call_packed("test.f", y, sinfo_args=R.Tensor((4,), "float32"))
            w = R.call_packed("test.g", z, sinfo_args=R.Tensor((4,), "float32"))
            _ = R.call_packed("relax.run.print", R.str("{}"), w, sinfo_args=R.Tuple)
            _1 = R.call_packed("relax.run.assert_op", c, R.str("{}"), w, sinfo_args=R.Tuple)
            return w

    check_pass(LowerRuntimeBuiltin(), Before, Expected, numbers=False)


def test_kernels_and_other_operators_stay() -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.exp(x)
            z = R.call_packed("test.f", y, sinfo_args=R.Tensor((4,), "float32"))
            return z

    assert LowerRuntimeBuiltin()(Module) is Module
