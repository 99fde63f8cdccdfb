"""Signatures: the parameters of compiled functions, and error messages for arguments that do not match them.

Compiled code checks the arguments of every call. Only if it returns an error does `explain` compare them with the
signature again, to say which of them is wrong, in what way, and what the caller can do.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal

import numpy as np

from .device import Device
from .error import DeviceError, InvalidValue, OneIRError, ShapeMismatch, TypeMismatch
from .tensor import Tensor, compact_strides, from_dlpack

Extent = int | str | None
"""An extent or stride: a number, the text of a symbolic expression such as `n` or `n * 2`, or None for any."""


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a compiled function; a field that is None is not checked."""

    name: str
    kind: Literal["tensor", "int", "float", "bool", "handle"] = "tensor"
    dtype: str | None = None
    shape: tuple[Extent, ...] | None = None
    strides: tuple[Extent, ...] | None = None
    """In items. None: row-major without gaps, if `shape` is given."""
    writable: bool = False
    alignment: int = 1
    """In bytes."""
    device_type: int = 1
    """As DLPack numbers them; 1 is the CPU."""
    device_id: int | None = None
    """Which of the devices of that type; None: any."""

    def __str__(self) -> str:
        if self.kind != "tensor":
            return f"{self.name}: {self.kind}"
        shape = "..." if self.shape is None else ", ".join(map(_text, self.shape))
        return f"{self.name}: {self.dtype or 'any'}[{shape}]"


@dataclass(frozen=True, slots=True)
class Signature:
    """The name and the parameters of a compiled function."""

    name: str
    params: tuple[Param, ...]
    results: tuple[str, ...] = ()
    """The names of the results, where a model gives them names."""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.params))})"

    def to_json(self) -> list[Any]:
        """The signature as JSON values."""
        data: list[Any] = [self.name, [list(astuple(param)) for param in self.params]]
        return [*data, list(self.results)] if self.results else data

    @staticmethod
    def from_json(data: Any) -> Signature:
        """The inverse of `to_json`."""
        name, params, *results = data
        values: list[list[Any]] = [[tuple(v) if isinstance(v, list) else v for v in p] for p in params]
        return Signature(name, tuple(Param(*v) for v in values), *map(tuple, results))

    def result_name(self, index: int) -> str:
        """The name of a result: the model's, else one of its position."""
        return self.results[index] if index < len(self.results) else f"output_{index}"

    def place(self, index: int) -> str:
        """How messages name an argument: its position, counted from 0, and the name of its parameter."""
        if index < len(self.params):
            return f"argument {index} `{self.params[index].name}` of `{self.name}`"
        return f"argument {index} of `{self.name}`"


def explain(signature: Signature, args: Sequence[object]) -> OneIRError | None:
    """The error for the first argument that does not match the signature; None if all do.

    `args` are what users passed: tensors of any library, numbers, None, strings, pointers.
    """
    expected, found = len(signature.params), len(args)
    if found < expected:
        missing = _quoted([param.name for param in signature.params[found:]])
        return TypeMismatch(f"`{signature.name}` expects {_arguments(expected)}, found {found}: missing {missing}")
    if found > expected:
        return TypeMismatch(f"`{signature.name}` expects {_arguments(expected)}, found {found}; it is {signature}")
    pairs = list(enumerate(zip(signature.params, args, strict=True)))
    known = {param.name: arg for _, (param, arg) in pairs if param.kind == "int" and isinstance(arg, int)}
    # Twice: what an extent should be may follow from a later argument.
    for index, (param, arg) in pairs * 2:
        error = _explain_tensor(param, arg, known) if param.kind == "tensor" else _explain_scalar(param, arg)
        if error is not None:
            return type(error)(f"{signature.place(index)}: {error}")
    return None


def in_order(signature: Signature, args: Sequence[object], named: Mapping[str, object]) -> list[object]:
    """The arguments of a call in the order of the parameters: those by position first, then those by name.

    Raises `TypeMismatch` for names that are no parameters, for two arguments of one parameter, and if one is missing.
    """
    names = [param.name for param in signature.params]
    if unknown := [name for name in named if name not in names]:
        raise TypeMismatch(f"`{signature.name}` has no parameter {_quoted(unknown)}; it is {signature}")
    if twice := [name for name in names[: len(args)] if name in named]:
        raise TypeMismatch(f"`{signature.name}` got {_quoted(twice)} by position and by name")
    rest = names[len(args) :]
    if missing := [name for name in rest if name not in named]:
        expected, found = _arguments(len(names)), len(args) + len(named)
        raise TypeMismatch(f"`{signature.name}` expects {expected}, found {found}: missing {_quoted(missing)}")
    return [*args, *(named[name] for name in rest)]


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _arguments(count: int) -> str:
    return f"{count} argument{'' if count == 1 else 's'}"


_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_SCALARS: dict[str, tuple[str, tuple[type, ...]]] = {
    "int": ("an integer", (int,)),
    "float": ("a number", (float, int)),
    "bool": ("a bool", (bool, int)),
}


def _explain_scalar(param: Param, arg: object) -> OneIRError | None:
    if param.kind == "handle":
        return None
    noun, types = _SCALARS[param.kind]
    if isinstance(arg, types):
        return _explain_range(param, arg) if param.kind == "int" and isinstance(arg, int) else None
    return TypeMismatch(f"expected {noun}, found {_noun(arg)}")


def _explain_range(param: Param, value: int) -> OneIRError | None:
    """Whether a number is one of the values of an integer dtype."""
    dtype = np.dtype(param.dtype) if param.dtype in _INTEGERS else np.dtype("int64")
    limits = np.iinfo(dtype)
    if limits.min <= value <= limits.max:
        return None
    return InvalidValue(f"expected a value of {dtype}, from {limits.min} to {limits.max}, found {value}")


def _explain_tensor(param: Param, arg: object, known: dict[str, int]) -> OneIRError | None:
    if not isinstance(arg, Tensor | np.ndarray) and not hasattr(arg, "__dlpack__"):
        return TypeMismatch(f"expected a tensor, found {_noun(arg)}")
    try:
        tensor = arg if isinstance(arg, Tensor) else from_dlpack(arg)
    except OneIRError as error:
        return error
    if tensor.device.device_type != param.device_type or param.device_id not in (None, tensor.device.device_id):
        wanted = Device(param.device_type, param.device_id or 0)
        wanted = wanted.type if param.device_id is None else wanted
        return DeviceError(
            f"expected a tensor on {wanted}, found one on {tensor.device}; copy it to the {wanted} first"
        )
    if param.dtype is not None and tensor.dtype != param.dtype:
        hint = _conversion(arg, param.dtype)
        return TypeMismatch(f"expected dtype {param.dtype}, found {tensor.dtype}; {hint}")
    return (
        _explain_shape(param, tensor, known)
        or _explain_strides(param, arg, tensor, known)
        or _explain_memory(param, tensor)
    )


def _explain_shape(param: Param, tensor: Tensor, known: dict[str, int]) -> OneIRError | None:
    if param.shape is None:
        return None
    if len(param.shape) != tensor.ndim:
        dimensions = "dimension" if len(param.shape) == 1 else "dimensions"
        return ShapeMismatch(
            f"expected {len(param.shape)} {dimensions}, shape {_tuple(param.shape)}, "
            f"found {tensor.ndim}, shape {tensor.shape}"
        )
    for extent, found in zip(param.shape, tensor.shape, strict=True):
        if isinstance(extent, str) and extent.isidentifier():
            known.setdefault(extent, found)
    if any(
        extent_value(extent, known) not in (None, found)
        for extent, found in zip(param.shape, tensor.shape, strict=True)
    ):
        return ShapeMismatch(f"expected shape {_tuple(param.shape)}{_where(param.shape, known)}, found {tensor.shape}")
    return None


def _explain_strides(param: Param, arg: object, tensor: Tensor, known: dict[str, int]) -> OneIRError | None:
    if param.strides is None:
        if param.shape is None or tensor.is_contiguous():
            return None
        fix = "numpy.ascontiguousarray" if isinstance(arg, np.ndarray) else "its .contiguous()"
        if isinstance(arg, Tensor):
            fix = "tensor(x)"
        return ShapeMismatch(
            f"expected a contiguous tensor with strides {compact_strides(tensor.shape)}, "
            f"found strides {tensor.strides} (in items); copy it with {fix}"
        )
    for extent, stride, found in zip(tensor.shape, param.strides, tensor.strides, strict=True):
        if isinstance(stride, str) and stride.isidentifier():
            known.setdefault(stride, found)
        if extent > 1 and extent_value(stride, known) not in (None, found):
            return ShapeMismatch(
                f"expected strides {_tuple(param.strides)}{_where(param.strides, known)} (in items), "
                f"found {tensor.strides}"
            )
    return None


def _explain_memory(param: Param, tensor: Tensor) -> OneIRError | None:
    if param.writable and not tensor.writable:
        return InvalidValue("is written to, and the memory given is read-only; pass a writable copy")
    if tensor.size and tensor.address % param.alignment:
        return InvalidValue(
            f"expected memory aligned to {param.alignment} bytes, found address {tensor.address:#x}; "
            "copy it with tensor(x)"
        )
    return None


def _noun(arg: object) -> str:
    return "None" if arg is None else type(arg).__name__


def _conversion(arg: object, dtype: str) -> str:
    if isinstance(arg, np.ndarray):
        return f"convert it with .astype({dtype!r})"
    if isinstance(arg, Tensor):
        return f"convert it with tensor(numpy.asarray(x).astype({dtype!r}))"
    return (
        f"convert it with .to(torch.{dtype})" if type(arg).__module__.startswith("torch") else f"convert it to {dtype}"
    )


def _tuple(extents: tuple[Extent, ...]) -> str:
    return f"({', '.join(map(_text, extents))}{',' if len(extents) == 1 else ''})"


def _text(extent: Extent) -> str:
    return "?" if extent is None else str(extent)


def _where(extents: tuple[Extent, ...], known: dict[str, int]) -> str:
    """The values of the symbols in `extents`, as a part of a message."""
    names: dict[str, int] = {}
    for extent in extents:
        if isinstance(extent, str):
            names |= {
                node.id: known[node.id]
                for node in ast.walk(ast.parse(extent, mode="eval"))
                if isinstance(node, ast.Name) and node.id in known
            }
    return f" with {', '.join(f'{name} = {value}' for name, value in names.items())}" if names else ""


_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_DIVISIONS = {ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod}


def extent_value(extent: Extent, known: Mapping[str, int]) -> int | None:
    """The value of an extent; None if it depends on unknown symbols, or on more than plain arithmetic."""
    if not isinstance(extent, str):
        return extent
    if extent.isidentifier():
        return known.get(extent)
    try:
        return _evaluate(ast.parse(extent, mode="eval").body, known)
    except SyntaxError:
        return None


def _evaluate(node: ast.expr, known: Mapping[str, int]) -> int | None:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=op, right=right):
            x, y = _evaluate(left, known), _evaluate(right, known)
            if x is None or y is None:
                return None
            if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](x, y)
            return _DIVISIONS[type(op)](x, y) if y and type(op) in _DIVISIONS else None
        case _:
            return None
