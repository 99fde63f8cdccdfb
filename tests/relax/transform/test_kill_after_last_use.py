"""KillAfterLastUse: where values end."""

from __future__ import annotations

from oneir.relax.transform import KillAfterLastUse
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


def test_storages_tensors_and_objects_end_after_their_last_use() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([4]), R.dtype("float32"), R.prim_value(0))
            _ = R.call_packed("test.f", x, a, sinfo_args=R.Tuple)
            o = R.call_packed("test.object", a, sinfo_args=R.Object)
            b = R.call_packed("test.g", o, a, sinfo_args=R.Tensor((4,), "float32"))
            return b

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([4]), R.dtype("float32"), R.prim_value(0))
            _0 = R.memory.kill_storage(s)
            _ = R.call_packed("test.f", x, a, sinfo_args=R.Tuple)
            o = R.call_packed("test.object", a, sinfo_args=R.Object)
            b = R.call_packed("test.g", o, a, sinfo_args=R.Tensor((4,), "float32"))
            _1 = R.memory.kill_tensor(a)
            _2 = R.vm.kill_object(o)
            return b

    check_pass(KillAfterLastUse(), Before, Expected, numbers=False)


def test_shapes_numbers_and_what_is_never_used_do_not_end() -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            s = R.call_packed("test.shape", x, sinfo_args=R.Shape(ndim=1))
            n = R.call_packed("test.number", x, sinfo_args=R.Prim("int64"))
            t = R.call_packed("test.unused", s, n, sinfo_args=R.Tensor((4,), "float32"))
            return x

    assert KillAfterLastUse()(Module) is Module


def test_names_of_one_value_are_one_value() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
            a = R.call_packed("test.g", x, sinfo_args=R.Tensor(ndim=1, dtype="float32"))
            b = R.match_cast(a, R.Tensor((4,), "float32"))
            c = R.call_packed("test.g", b, sinfo_args=R.Tensor(ndim=1, dtype="float32"))
            d = c
            _ = R.call_packed("test.f", d, sinfo_args=R.Tuple)
            return d

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
            a = R.call_packed("test.g", x, sinfo_args=R.Tensor(ndim=1, dtype="float32"))
            b = R.match_cast(a, R.Tensor((4,), "float32"))
            c = R.call_packed("test.g", b, sinfo_args=R.Tensor(ndim=1, dtype="float32"))
            _1 = R.memory.kill_tensor(a)
            _ = R.call_packed("test.f", c, sinfo_args=R.Tuple)
            return c

    check_pass(KillAfterLastUse(), Before, Expected, numbers=False)


def test_what_is_returned_in_a_tuple_or_ended_already_does_not_end_again() -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Object):
            a = R.call_packed("test.g", x, sinfo_args=R.Tensor((4,), "float32"))
            b = R.call_packed("test.g", a, sinfo_args=R.Tensor((4,), "float32"))
            _ = R.memory.kill_tensor(b)
            c = R.call_packed("test.object", a, sinfo_args=R.Object)
            return (a, c)

    assert KillAfterLastUse()(Module) is Module


def test_what_branches_use_ends_behind_them_and_what_they_make_ends_inside() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.call_packed("test.g", x, sinfo_args=R.Tensor((4,), "float32"))
            if c:
                b = R.call_packed("test.g", a, sinfo_args=R.Tensor((4,), "float32"))
                d = R.call_packed("test.g", b, sinfo_args=R.Tensor((4,), "float32"))
                y = d
            else:
                e = R.call_packed("test.g", a, sinfo_args=R.Tensor((4,), "float32"))
                y = e
            return y

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.call_packed("test.g", x, sinfo_args=R.Tensor((4,), "float32"))
            if c:
                b = R.call_packed("test.g", a, sinfo_args=R.Tensor((4,), "float32"))
                d = R.call_packed("test.g", b, sinfo_args=R.Tensor((4,), "float32"))
                _1 = R.memory.kill_tensor(b)
                y = d
            else:
                e = R.call_packed("test.g", a, sinfo_args=R.Tensor((4,), "float32"))
                y = e
            _2 = R.memory.kill_tensor(a)
            return y

    check_pass(KillAfterLastUse(), Before, Expected, numbers=False)
