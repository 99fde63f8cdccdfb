"""UpdateVDevice: one device for another."""

from __future__ import annotations

import pytest

from oneir.ir.global_info import VDevice
from oneir.relax.transform import UpdateVDevice
from oneir.runtime.error import InvalidValue, TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


@I.ir_module
class Before:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 0)]})

    @R.function
    def main(x: R.Tensor(("n",), "float32", "llvm:0"), t: R.Tuple(R.Tensor((4,), "float32", "cuda:0"))) -> R.Tensor(
        ("n",), "float32", "cuda:0"
    ):
        with R.dataflow():
            a: R.Tensor(("n",), "float32", "llvm:0") = R.exp(x)
            b: R.Tensor(("n",), "float32", "cuda:0") = R.to_vdevice(a, dst_vdevice="cuda:0")
            R.output(b)
        return b


def test_annotations_and_copies_name_the_new_device() -> None:
    @I.ir_module
    class Expected:
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 1)]})

        @R.function
        def main(x: R.Tensor(("n",), "float32", "llvm:0"), t: R.Tuple(R.Tensor((4,), "float32", "cuda:0"))) -> R.Tensor(
            ("n",), "float32", "cuda:0"
        ):
            with R.dataflow():
                a: R.Tensor(("n",), "float32", "llvm:0") = R.exp(x)
                b: R.Tensor(("n",), "float32", "cuda:0") = R.to_vdevice(a, dst_vdevice="cuda:0")
                R.output(b)
            return b

    after = check_pass(
        UpdateVDevice(VDevice(Before.global_infos["vdevice"][1].target, 1), 1), Before, Expected, numbers=False
    )
    new = after.global_infos["vdevice"][1]
    assert new.vdevice_id == 1
    assert after["main"].ret_struct_info.vdevice is new


def test_the_same_device_changes_nothing() -> None:
    (llvm, _) = Before.global_infos["vdevice"]
    assert UpdateVDevice(VDevice(llvm.target, 0), 0)(Before) is Before


def test_what_is_no_device_is_refused() -> None:
    with pytest.raises(InvalidValue, match="declares 2 vdevices, found the index 2"):
        UpdateVDevice(VDevice(None), 2)(Before)
    with pytest.raises(TypeMismatch, match="expected a VDevice, found 'cuda'"):
        UpdateVDevice("cuda", 0)
