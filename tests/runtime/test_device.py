"""Devices: names, numbers, equality, refusals."""

from __future__ import annotations

import pickle

import pytest

from oneir import runtime
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


def test_the_numbers_of_kinds_are_those_of_dlpack():
    numbers = {
        "cpu": 1,
        "cuda": 2,
        "opencl": 4,
        "vulkan": 7,
        "metal": 8,
        "vpi": 9,
        "rocm": 10,
        "ext_dev": 12,
        "webgpu": 15,
        "hexagon": 16,
    }
    for name, number in numbers.items():
        made = getattr(runtime, name)(2)
        assert (made.device_type, made.device_id, made.type) == (number, 2, name)
        assert made == device(name, 2) == Device(number, 2) and getattr(runtime, name)().device_id == 0


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
