"""Functions that tests of the virtual machine call, and ways of calling."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime import Tensor, register_func, tensor
from ...runtime.vm import VirtualMachine


@register_func("test.vm.move", override=True)
def move(src: Any) -> Any:
    """Its argument."""
    return src


@register_func("test.vm.add", override=True)
def add(a: Tensor, b: Tensor) -> Tensor:
    """a + b"""
    return tensor(a.numpy() + b.numpy())


@register_func("test.vm.mul", override=True)
def mul(a: Tensor, b: Tensor) -> Tensor:
    """a * b"""
    return tensor(a.numpy() * b.numpy())


@register_func("test.vm.equal_zero", override=True)
def equal_zero(a: Tensor) -> bool:
    """Whether all elements are 0."""
    return bool(np.all(a.numpy() == 0))


@register_func("test.vm.subtract_one", override=True)
def subtract_one(a: Tensor) -> Tensor:
    """a - 1"""
    return tensor(a.numpy() - 1)


@register_func("test.vm.identity", override=True)
def identity_packed(a: Tensor, b: Tensor) -> None:
    """Copies `a` into `b`."""
    b.copyfrom(a)


@register_func("test.vm.tile", override=True)
def tile_packed(a: Tensor, b: Tensor) -> None:
    """Two copies of `a`, one after the other along the second axis, into `b`."""
    b.copyfrom(np.tile(a.numpy(), (1, 2)))


@register_func("test.vm.add_scalar", override=True)
def add_scalar(a: float, b: float) -> float:
    """a + b"""
    return a + b


@register_func("test.vm.get_device_id", override=True)
def get_device_id(device: Any) -> int:
    """The index of a device among those of its kind."""
    return device.device_id


@register_func("test.vm.check_if_defined", override=True)
def check_if_defined(value: Any) -> bool:
    """Whether a value is not None."""
    return value is not None


def check_saved_func(vm: VirtualMachine, func_name: str, *inputs: Any) -> Any:
    """The result of a function, called with its arguments and once more as a saved closure, which must agree."""
    result = vm[func_name](*inputs)
    vm.save_function(func_name, "saved_func", *inputs)
    again = vm["saved_func"]()
    if isinstance(result, Tensor):
        np.testing.assert_array_equal(result.numpy(), again.numpy())
    return result
