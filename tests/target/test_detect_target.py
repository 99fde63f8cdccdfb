"""The targets of devices."""

from __future__ import annotations

import pytest

from oneir.runtime import llvm, vulkan
from oneir.runtime.error import DeviceError
from oneir.target import Target, detect_target_from_device


def test_the_target_of_this_machines_cpu():
    target = detect_target_from_device("cpu")
    assert (target.mtriple, target.mcpu) == (llvm.host_triple(), llvm.host_cpu())
    assert Target.from_device("cpu:0") == target


def test_a_target_asks_a_device_for_what_is_not_said():
    assert Target("llvm -from_device=0") == Target.from_device("cpu")
    target = Target({"kind": "llvm", "mcpu": "x86-64", "from_device": 0})
    assert (target.mtriple, target.mcpu) == (llvm.host_triple(), "x86-64")
    assert "from_device" not in target.export() and Target(str(target)) == target


@pytest.mark.skipif(not vulkan().exist, reason="needs a Vulkan device")
def test_a_target_asks_a_vulkan_device():
    target = Target("vulkan -from_device=0 -max_num_threads=64")
    assert target.attrs["max_num_threads"] == 64
    assert target.attrs["max_threads_per_block"] == vulkan().max_threads_per_block
    assert target.attrs["supports_float16"] == Target.from_device("vulkan").attrs["supports_float16"]


def test_refusals():
    with pytest.raises(DeviceError, match="There is no device metal:3 here"):
        Target("metal -from_device=3")
    with pytest.raises(DeviceError, match=r"ext_dev:0 cannot be detected; it can for cpu, cuda"):
        detect_target_from_device("ext_dev")
    with pytest.raises(DeviceError, match="There is no device metal:0 here"):
        detect_target_from_device("metal")
