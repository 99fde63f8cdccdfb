"""Functions that every server has, for trying out a session: `remote.get_function("rpc.test.addone")(10)` is 11."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..runtime.error import InvalidValue, NotRegistered
from ..runtime.once import once
from ..runtime.registry import register_func
from ..runtime.tensor import Tensor, tensor


def _addone(x: int) -> int:
    return x + 1


def _strcat(name: str, x: int) -> str:
    return f"{name}:{x}"


def _concatenated(x: str, y: str) -> str:
    return x + y


def _raising(name: str) -> None:
    raise InvalidValue(name)


def _check_ones(x: Tensor) -> None:
    """Raises `InvalidValue` unless a tensor is 3 by 4 ones."""
    if not np.array_equal(x.numpy(), np.ones((3, 4))):
        raise InvalidValue(f"expected 3 by 4 ones, found a tensor of shape {tuple(x.shape)}")


def _add_to_lhs(x: int) -> Callable[[int], int]:
    return lambda y: x + y


@once
def _kept() -> Tensor:
    """A tensor of each process."""
    return tensor(np.zeros((2, 2), "float32"))


def _on_tensors(name: str) -> Callable[..., Any]:
    """A function by its name that returns a tensor of the other side, or what lies in one."""
    functions: dict[str, Callable[..., Any]] = {
        "get_arr": _kept,
        "ref_count": lambda: sys.getrefcount(_kept()) - 1,
        "get_elem": lambda place: float(_kept().numpy().flat[place]),
        "get_arr_elem": lambda x, place: float(x.numpy().flat[place]),
    }
    if name not in functions:
        raise NotRegistered(f"there are {', '.join(functions)}; found {name!r}")
    return functions[name]


for _name, _function in (
    ("addone", _addone),
    ("strcat", _strcat),
    ("runtime_str_concat", _concatenated),
    ("except", _raising),
    ("remote_tensor_func", _check_ones),
    ("add_to_lhs", _add_to_lhs),
    ("remote_return_nd", _on_tensors),
):
    register_func(f"rpc.test.{_name}", _function, override=True)
