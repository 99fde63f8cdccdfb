"""Devices: names, numbers, equality, refusals."""

from __future__ import annotations

import pickle

import pytest

from oneir.runtime import Device, cpu, cuda, device, opencl
from oneir.runtime.error import InvalidValue


def test_all_spellings_of_a_device_are_equal():
    assert device("cuda:1") == device("cuda", 1) == cuda(1) == Device(2, 1) == device(cuda(1))
    assert device("llvm") == device("cpu") == cpu() != cpu(1) != cuda(1)
    assert len({device("opencl", 0), opencl()}) == 1


def test_attributes_and_text():
    dev = cuda(3)
    assert (dev.device_type, dev.device_id, dev.type, dev.index) == (2, 3, "cuda", 3)
    assert repr(dev) == str(dev) == "cuda:3" and str(cpu()) == "cpu:0"
    assert cpu().exist and not cpu(1).exist
    assert pickle.loads(pickle.dumps(dev)) == dev


@pytest.mark.parametrize("name", ["cdua", "", "cuda:x", "cuda:-1"])
def test_names_of_no_device_are_refused(name):
    with pytest.raises(InvalidValue, match=rf"{name!r} is no"):
        device(name)


def test_an_index_given_twice_is_refused():
    with pytest.raises(InvalidValue, match=r"'cuda:1' is no device; expected a name and one index"):
        device("cuda:1", 1)


def test_devices_are_immutable():
    with pytest.raises(AttributeError, match=r"immutable"):
        cpu().device_id = 3
