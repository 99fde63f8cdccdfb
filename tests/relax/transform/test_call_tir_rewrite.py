"""CallTIRRewrite: outputs are allocated, and loops are called with them."""

from __future__ import annotations

import pytest

from oneir.relax.transform import CallTIRRewrite
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def both(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32"), z: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("both"):
                v = T.axis.spatial(4, i)
                y[v] = x[v] + T.float32(1)
                z[v] = v

    @T.prim_func(private=True)
    def fill(x: T.Buffer((4,), "float32"), p_y: T.handle, n: T.int64):
        y = T.match_buffer(p_y, (n,))
        for i in range(n):
            with T.block("fill"):
                v = T.axis.spatial(n, i)
                y[v] = x[0]

    @T.prim_func(private=True)
    def bump(x: T.Buffer((4,), "float32"), z: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("bump"):
                v = T.axis.spatial(4, i)
                x[v] = x[v] + T.float32(1)
                z[v] = v

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32"), s: R.Shape(["n"])) -> R.Tuple(
        R.Tensor((4,), "int32"), R.Tensor(("n",), "float32"), R.Tensor((4,), "float32")
    ):
        n = T.int64()
        cls = Before
        a = R.call_tir(cls.both, (x,), out_sinfo=[R.Tensor((4,), "float32"), R.Tensor((4,), "int32")])
        b = a[0]
        c = R.call_tir(cls.fill, (b,), out_sinfo=R.Tensor((n,), "float32"), tir_vars=R.shape([n]))
        e = R.call_tir_inplace(
            cls.bump, (b,), inplace_indices=[0, -1], out_sinfo=[R.Tensor((4,), "float32"), R.Tensor((4,), "int32")]
        )
        f = e[1]
        g = e[0]
        return (f, c, g)


def test_every_kind_of_call() -> None:
    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def both(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32"), z: T.Buffer((4,), "int32")):
            for i in range(4):
                with T.block("both"):
                    v = T.axis.spatial(4, i)
                    y[v] = x[v] + T.float32(1)
                    z[v] = v

        @T.prim_func(private=True)
        def fill(x: T.Buffer((4,), "float32"), p_y: T.handle, n: T.int64):
            y = T.match_buffer(p_y, (n,))
            for i in range(n):
                with T.block("fill"):
                    v = T.axis.spatial(n, i)
                    y[v] = x[0]

        @T.prim_func(private=True)
        def bump(x: T.Buffer((4,), "float32"), z: T.Buffer((4,), "int32")):
            for i in range(4):
                with T.block("bump"):
                    v = T.axis.spatial(4, i)
                    x[v] = x[v] + T.float32(1)
                    z[v] = v

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32"), s: R.Shape(["n"])) -> R.Tuple(
            R.Tensor((4,), "int32"), R.Tensor(("n",), "float32"), R.Tensor((4,), "float32")
        ):
            n = T.int64()
            cls = Expected
            y = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            z = R.builtin.alloc_tensor(R.shape([4]), R.dtype("int32"), R.prim_value(0), R.str("global"))
            _ = cls.both(x, y, z)
            a = (y, z)
            b = a[0]
            w = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _1 = R.vm.call_tir_dyn(cls.fill, (b, w, R.shape([n])))
            c = w
            v = R.builtin.alloc_tensor(R.shape([4]), R.dtype("int32"), R.prim_value(0), R.str("global"))
            _2 = cls.bump(b, v)
            e = (b, v)
            f = e[1]
            g = e[0]
            return (f, c, g)

    check_pass(CallTIRRewrite(), Before, Expected)


def test_runtime_functions_get_their_outputs_last() -> None:
    @I.ir_module
    class Packed:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((2, 4), "float32"):
            y = R.call_dps_packed("test.stack", (x, x, R.prim_value(2)), out_sinfo=R.Tensor((2, 4), "float32"))
            return y

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((2, 4), "float32"):
            z = R.builtin.alloc_tensor(R.shape([2, 4]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _ = R.call_packed("test.stack", x, x, R.prim_value(2), z)
            y = z
            return y

    check_pass(CallTIRRewrite(), Packed, Expected, numbers=False)


def test_branches_are_entered() -> None:
    @I.ir_module
    class Branches:
        @R.function(pure=False)
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            if c:
                y = R.call_dps_packed("test.copy", (x,), out_sinfo=R.Tensor((4,), "float32"))
            else:
                y = x
            return y

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            if c:
                z = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0), R.str("global"))
                _ = R.call_packed("test.copy", x, z)
                w = z
                y = w
            else:
                y = x
            return y

    check_pass(CallTIRRewrite(), Branches, Expected, numbers=False)


def test_other_calls_stay() -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Object:
            y = R.call_packed("test.f", x, sinfo_args=R.Object)
            return y

    assert CallTIRRewrite()(Module) is Module


def test_an_output_of_unknown_shape_is_refused() -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
            y = R.call_dps_packed("test.unique", (x,), out_sinfo=R.Tensor(ndim=1, dtype="float32"))
            return y

    with pytest.raises(InvalidValue, match=r"needs a known shape, found R.Tensor\(.*ndim=1\)"):
        CallTIRRewrite()(Module)
