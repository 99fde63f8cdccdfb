"""RealizeVDevice: devices spread from hints and annotations."""

from __future__ import annotations

import pytest

import oneir
from oneir.relax.transform import RealizeVDevice
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


def test_a_hint_places_what_it_is_computed_from() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 0)]})

        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            with R.dataflow():
                a = R.add(x, y)
                b = R.hint_on_device(a, oneir.cpu())
                c = R.exp(b)
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 0)]})

        @R.function
        def main(x: R.Tensor(("n",), "float32", "llvm:0"), y: R.Tensor(("n",), "float32", "llvm:0")) -> R.Tensor(
            ("n",), "float32", "llvm:0"
        ):
            with R.dataflow():
                a: R.Tensor(("n",), "float32", "llvm:0") = R.add(x, y)
                b: R.Tensor(("n",), "float32", "llvm:0") = a
                c: R.Tensor(("n",), "float32", "llvm:0") = R.exp(b)
                R.output(c)
            return c

    check_pass(RealizeVDevice(), Before, Expected, numbers=False)


def test_a_hint_that_is_not_met_becomes_a_copy() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 0)]})

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                h = R.hint_on_device(x, oneir.cpu())
                a = R.exp(h)
                b = R.hint_on_device(a, oneir.cuda(0))
                c = R.exp(b)
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 0)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")) -> R.Tensor((4,), "float32", "cuda:0"):
            with R.dataflow():
                h: R.Tensor((4,), "float32", "llvm:0") = x
                a: R.Tensor((4,), "float32", "llvm:0") = R.exp(h)
                b: R.Tensor((4,), "float32", "cuda:0") = R.to_vdevice(a, dst_vdevice="cuda:0")
                c: R.Tensor((4,), "float32", "cuda:0") = R.exp(b)
                R.output(c)
            return c

    check_pass(RealizeVDevice(), Before, Expected, numbers=False)


def test_what_a_function_returns_may_say_where_it_is() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm")]})

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32", "llvm:0"), R.Tensor((), "int64")):
            a = R.exp(x)
            b = (a, R.const(1, "int64"))
            return b

    after = RealizeVDevice()(Before)
    (x,) = after["main"].params
    assert x.struct_info.vdevice is after.global_infos["vdevice"][0]


def test_without_devices_nothing_changes() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.exp(x)
            return y

    check_pass(RealizeVDevice(), Before, Before)


def test_a_hint_of_a_device_that_is_not_declared_is_refused() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm")]})

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.hint_on_device(x, oneir.cuda(1))
            return y

    with pytest.raises(InvalidValue, match=r"a device that the module does not declare; it declares llvm:0: add"):
        RealizeVDevice()(Before)


def test_the_scope_of_memory_tells_devices_apart() -> None:
    @I.ir_module
    class Textures:
        I.module_global_infos({"vdevice": [I.vdevice("opencl"), I.vdevice("opencl", 0, "global.texture")]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "opencl:1:global.texture"), y: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.hint_on_device(y, oneir.opencl(), "global.texture")
                c = R.hint_on_device(b, oneir.opencl())
                R.output(a, b, c)
            return a, b, c

    plain, texture = Textures.global_infos["vdevice"]
    assert Textures["main"].params[0].struct_info.vdevice is texture
    after = RealizeVDevice()(Textures)
    a, b, c = (binding.var.struct_info.vdevice for binding in after["main"].body.blocks[0].bindings)
    assert a is texture and b is texture and c is plain
    oneir.ir.assert_structural_equal(oneir.script.from_source(after.script()), after)


def test_a_scope_that_the_device_has_not_is_refused() -> None:
    header = "@I.ir_module\nclass M:\n    I.module_global_infos({'vdevice': [I.vdevice('opencl')]})\n"
    function = (
        "    @R.function\n    def main(x: R.Tensor((4,), 'float32', 'opencl:0:global.texture')):\n        return x\n"
    )
    with pytest.raises(oneir.runtime.error.ParseError, match="means the device opencl:0 with 'global' memory"):
        oneir.script.from_source(header + function)

    @I.ir_module
    class Textures:
        I.module_global_infos({"vdevice": [I.vdevice("opencl", 0, "global.texture")]})

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return R.hint_on_device(x, oneir.opencl())

    with pytest.raises(InvalidValue, match=r"it declares opencl:0:global\.texture: add the device"):
        RealizeVDevice()(Textures)
