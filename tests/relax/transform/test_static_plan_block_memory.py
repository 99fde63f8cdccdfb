"""StaticPlanBlockMemory: tensors get places in storages. How places are chosen is tested with the plan itself."""

from __future__ import annotations

from oneir.relax.transform import StaticPlanBlockMemory
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def test_tensors_that_do_not_live_at_once_share_a_place() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor((64,), "float32")) -> R.Tensor((64,), "float32"):
            a = R.builtin.alloc_tensor(R.shape([64]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _ = R.call_packed("test.f", x, a, sinfo_args=R.Tuple)
            b = R.builtin.alloc_tensor(R.shape([64]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _1 = R.call_packed("test.f", a, b, sinfo_args=R.Tuple)
            c = R.builtin.alloc_tensor(R.shape([64]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _2 = R.call_packed("test.f", b, c, sinfo_args=R.Tuple)
            d = R.builtin.alloc_tensor(R.shape([64]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _3 = R.call_packed("test.f", c, d, sinfo_args=R.Tuple)
            return d

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor((64,), "float32")) -> R.Tensor((64,), "float32"):
            s = R.memory.alloc_storage(R.shape([512]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([64]), R.dtype("float32"), R.prim_value(0))
            _ = R.call_packed("test.f", x, a, sinfo_args=R.Tuple)
            b = R.memory.alloc_tensor(s, R.prim_value(256), R.shape([64]), R.dtype("float32"), R.prim_value(0))
            _1 = R.call_packed("test.f", a, b, sinfo_args=R.Tuple)
            c = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([64]), R.dtype("float32"), R.prim_value(0))
            _2 = R.call_packed("test.f", b, c, sinfo_args=R.Tuple)
            d = R.builtin.alloc_tensor(R.shape([64]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _3 = R.call_packed("test.f", c, d, sinfo_args=R.Tuple)
            return d

    check_pass(StaticPlanBlockMemory(), Before, Expected, numbers=False)


def test_each_branch_has_a_plan_and_what_is_used_in_it_lives_through_it() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(c: R.Tensor((), "bool"), x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            a = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _ = R.call_packed("test.f", x, a, sinfo_args=R.Tuple)
            if c:
                b = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
                _1 = R.call_packed("test.f", a, b, sinfo_args=R.Tuple)
                y = c
            else:
                y = c
            d = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _2 = R.call_packed("test.f", x, d, sinfo_args=R.Tuple)
            return x

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(c: R.Tensor((), "bool"), x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([16]), R.dtype("float32"), R.prim_value(0))
            _ = R.call_packed("test.f", x, a, sinfo_args=R.Tuple)
            if c:
                t = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
                b = R.memory.alloc_tensor(t, R.prim_value(0), R.shape([16]), R.dtype("float32"), R.prim_value(0))
                _1 = R.call_packed("test.f", a, b, sinfo_args=R.Tuple)
                y = c
            else:
                y = c
            d = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([16]), R.dtype("float32"), R.prim_value(0))
            _2 = R.call_packed("test.f", x, d, sinfo_args=R.Tuple)
            return x

    check_pass(StaticPlanBlockMemory(), Before, Expected, numbers=False)


def test_what_a_branch_returns_keeps_memory_of_its_own() -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(c: R.Tensor((), "bool"), x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            if c:
                b = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
                _1 = R.call_packed("test.f", x, b, sinfo_args=R.Tuple)
                y = b
            else:
                y = x
            return y

    assert StaticPlanBlockMemory()(Module) is Module


def test_what_a_kernel_gives_beside_the_arguments_that_it_writes_into_shares_a_place() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor((16,), "float32"), pages: R.Tensor((64,), "float32")) -> R.Tensor((16,), "float32"):
            a = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _ = R.call_packed("test.f", x, pages, a, sinfo_args=R.Tuple)
            t = (a, pages)
            b = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            q = t[0]
            p = t[1]
            _1 = R.call_packed("test.f", q, p, b, sinfo_args=R.Tuple)
            c = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _2 = R.call_packed("test.f", b, pages, c, sinfo_args=R.Tuple)
            d = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _3 = R.call_packed("test.f", c, pages, d, sinfo_args=R.Tuple)
            return d

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor((16,), "float32"), pages: R.Tensor((64,), "float32")) -> R.Tensor((16,), "float32"):
            s = R.memory.alloc_storage(R.shape([128]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([16]), R.dtype("float32"), R.prim_value(0))
            _ = R.call_packed("test.f", x, pages, a, sinfo_args=R.Tuple)
            t = (a, pages)
            b = R.memory.alloc_tensor(s, R.prim_value(64), R.shape([16]), R.dtype("float32"), R.prim_value(0))
            q = t[0]
            p = t[1]
            _1 = R.call_packed("test.f", q, p, b, sinfo_args=R.Tuple)
            c = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([16]), R.dtype("float32"), R.prim_value(0))
            _2 = R.call_packed("test.f", b, pages, c, sinfo_args=R.Tuple)
            d = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _3 = R.call_packed("test.f", c, pages, d, sinfo_args=R.Tuple)
            return d

    check_pass(StaticPlanBlockMemory(), Before, Expected, numbers=False)


def test_a_tuple_that_is_used_as_a_whole_keeps_its_fields() -> None:
    @I.ir_module
    class Kept:
        @R.function(pure=False)
        def main(x: R.Tensor((16,), "float32")) -> R.Tuple(R.Tensor((16,), "float32"), R.Tensor((16,), "float32")):
            a = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _ = R.call_packed("test.f", x, a, sinfo_args=R.Tuple)
            t = (a, x)
            q = t[0]
            _1 = R.call_packed("test.g", q, sinfo_args=R.Tuple)
            return t

    assert StaticPlanBlockMemory()(Kept) is Kept

    @I.ir_module
    class Field:
        @R.function(pure=False)
        def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            a = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _ = R.call_packed("test.f", x, a, sinfo_args=R.Tuple)
            t = (x, a)
            q = t[1]
            return q

    assert StaticPlanBlockMemory()(Field) is Field

    @I.ir_module
    class Passed:
        @R.function(pure=False)
        def main(x: R.Tensor((16,), "float32")) -> R.Object:
            a = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _ = R.call_packed("test.f", x, a, sinfo_args=R.Tuple)
            t = (a, x)
            y = R.call_packed("test.wrap", t, sinfo_args=R.Object)
            return y

    assert StaticPlanBlockMemory()(Passed) is Passed


def test_what_a_function_of_the_runtime_may_keep_lives_as_long_as_its_result() -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((16,), "float32")) -> R.Object:
            a = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            y = R.call_packed("test.wrap", a, sinfo_args=R.Object)
            return y

    assert StaticPlanBlockMemory()(Module) is Module


def test_devices_and_scopes_have_storages_of_their_own() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main() -> R.Tuple:
            a = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            b = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(1), R.str("global"))
            _ = R.call_packed("test.f", a, b, sinfo_args=R.Tuple)
            return R.tuple()

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main() -> R.Tuple:
            s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            t = R.memory.alloc_storage(R.shape([64]), R.prim_value(1), R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([16]), R.dtype("float32"), R.prim_value(0))
            b = R.memory.alloc_tensor(t, R.prim_value(0), R.shape([16]), R.dtype("float32"), R.prim_value(1))
            _ = R.call_packed("test.f", a, b, sinfo_args=R.Tuple)
            return R.tuple()

    check_pass(StaticPlanBlockMemory(), Before, Expected, numbers=False)


def test_symbolic_parts_stand_behind_static_ones() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")) -> R.Tuple:
            n = T.int64()
            a = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            b = R.builtin.alloc_tensor(R.shape([n, 32]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _ = R.call_packed("test.f", a, b, sinfo_args=R.Tuple)
            return R.tuple()

    after = StaticPlanBlockMemory()(Before)
    storage, a, b, _ = [b.value for b in after["main"].body.blocks[0].bindings]
    n = after["main"].params[0].struct_info.shape[0]
    assert str(storage.args[0].values[0]) == f"T.int64(64) + {n} * T.int64(128)"
    assert [int(t.args[1].value) for t in (a, b)] == [0, 64]
