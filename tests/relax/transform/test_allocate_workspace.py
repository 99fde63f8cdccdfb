"""AllocateWorkspace: temporary memory of external functions."""

from __future__ import annotations

from oneir.relax.transform import AllocateWorkspace
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


def test_one_tensor_of_the_largest_size_is_passed_down_to_the_composites() -> None:
    @I.ir_module
    class Before:
        @R.function(private=True)
        def attention(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "vendor", "WorkspaceSize": 64})

            @R.function
            def local(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                R.func_attr({"Composite": "vendor.exp", "WorkspaceSize": 64})
                a = R.exp(y)
                return a

            b = local(x)
            return b

        @R.function(private=True)
        def small(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "vendor", "WorkspaceSize": 16})
            a = R.exp(x)
            return a

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            with R.dataflow():
                a = cls.attention(x)
                b = cls.small(a)
                R.output(b)
            return b

    @I.ir_module
    class Expected:
        @R.function
        def attention1(x: R.Tensor((4,), "float32"), w: R.Tensor((64,), "uint8")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "vendor"})

            @R.function
            def local(y: R.Tensor((4,), "float32"), v: R.Tensor((64,), "uint8")) -> R.Tensor((4,), "float32"):
                R.func_attr({"Composite": "vendor.exp"})
                a = R.exp(y)
                return a

            b = local(x, w)
            return b

        @R.function
        def small1(x: R.Tensor((4,), "float32"), w: R.Tensor((64,), "uint8")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "vendor"})
            a = R.exp(x)
            return a

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            with R.dataflow():
                w = R.builtin.alloc_tensor(R.shape([64]), R.dtype("uint8"), R.prim_value(0), R.str("global"))
                a = cls.attention1(x, w)
                b = cls.small1(a, w)
                R.output(b)
            return b

    after = check_pass(AllocateWorkspace(), Before, Expected, numbers=False)
    assert after["main"].body.blocks[0].bindings[0].var.name == "workspace_main"


def test_a_call_outside_of_dataflow_gets_its_own() -> None:
    @I.ir_module
    class Before:
        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "vendor", "WorkspaceSize": 16})
            a = R.exp(x)
            return a

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            a = R.exp(x)
            b = cls.f(a)
            return b

    after = AllocateWorkspace()(Before)
    assert [b.var.name for b in after["main"].body.blocks[0].bindings] == ["a", "workspace_main", "b"]


def test_nothing_needs_memory() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.exp(x)

    check_pass(AllocateWorkspace(), Module, Module)
