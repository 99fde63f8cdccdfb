"""The targets of devices."""

from __future__ import annotations

import pytest

from oneir.runtime import llvm
from oneir.runtime.error import DeviceError
from oneir.target import Target, detect_target_from_device


def test_the_target_of_this_machines_cpu():
    target = detect_target_from_device("cpu")
    assert (target.mtriple, target.mcpu) == (llvm.host_triple(), llvm.host_cpu())
    assert Target.from_device("cpu:0") == target


def test_refusals():
    with pytest.raises(DeviceError, match=r"ext_dev:0 cannot be detected; it can for cpu, cuda"):
        detect_target_from_device("ext_dev")
    with pytest.raises(DeviceError, match="There is no device metal:0 here"):
        detect_target_from_device("metal")
