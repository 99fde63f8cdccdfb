"""Custom dtypes: numbers in a format of one's own, computed by functions of a library.

datatype.register("posit", 130)
datatype.register_op(datatype.create_lower_func({(32, 32): "FloatToPosit32"}), "Cast", "llvm", "float", "posit")
datatype.register_op(datatype.create_lower_func({32: "Posit32Add"}), "Add", "llvm", "posit")

A program has values of `custom[posit]32` where it would have floats. `LowerCustomDatatypes` keeps them as unsigned
integers of the same width, parameters too, and replaces what is computed from them by what the functions registered
here give, calls of `Posit32Add` for instance. The library is found among those of the process:
`ctypes.CDLL(path, ctypes.RTLD_GLOBAL)` before the program is loaded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..ir.dtype import DataType
from ..ir.expr import BinaryOpExpr, Call, Cast, CmpExpr, FloatImm, PrimExpr, StringImm
from ..ir.op import Op
from ..runtime.dtype import custom_name, dlpack_dtype, register_custom
from ..runtime.error import InvalidValue, NotRegistered, TypeMismatch

Lower = Callable[[Any], PrimExpr]
_lowers: dict[tuple[str, ...], Lower] = {}
_minima: dict[str, Callable[[int], PrimExpr]] = {}


def register(type_name: str, type_code: int) -> None:
    """Makes `custom[TYPE_NAME]BITS` a dtype, with a type code of its own from 129 to 255.

    Raises `InvalidValue` for another code, and for a name or code that has another partner already.
    """
    register_custom(type_name, type_code)


def get_type_name(type_code: int) -> str:
    """The name that was registered with a type code; raises `NotRegistered` if none was."""
    name = custom_name(type_code)
    if name is None:
        raise NotRegistered(f"no custom dtype has the type code {type_code}")
    return name


def get_type_code(type_name: str) -> int:
    """The type code that was registered with a name; raises `NotRegistered` if none was."""
    try:
        return dlpack_dtype(f"custom[{type_name}]8")[0]
    except TypeMismatch:
        raise NotRegistered(f"no custom dtype {type_name!r} is registered") from None


def get_type_registered(type_code: int) -> bool:
    """Whether a custom dtype has that type code."""
    return custom_name(type_code) is not None


def register_op(
    lower_func: Lower,
    op_name: str,
    target: str,
    src_type_name: str,
    dest_type_name: str | None = None,
    intrinsic_name: str | None = None,
) -> None:
    """Says how an operation of a custom dtype is lowered for a kind of target.

    Parameters
    ----------
    lower_func: takes the expression, whose operands are lowered, and gives one without custom dtypes
        (`create_lower_func`).
    op_name: the class of the expression: "Add", "LT", "Cast", "FloatImm", "Call".
    target: the kind of the target, such as "llvm".
    src_type_name: the name of the dtype; of a cast that of its operand, which may be "float", "int", "uint", "bfloat"
        or "bool".
    dest_type_name: of a cast, the name of its result's dtype. Raises `InvalidValue` if a cast has none.
    intrinsic_name: of a call, the operator: "tir.exp".
    """
    if op_name == "Cast" and dest_type_name is None:
        raise InvalidValue(f"a cast from {src_type_name!r} is registered without dest_type_name")
    _lowers[_key(target, op_name, src_type_name, dest_type_name, intrinsic_name)] = lower_func


def lower_func_of(target: str, node: Any, src: DataType) -> Lower | None:
    """What `register_op` was given for an expression whose operands are of a dtype; None if nothing was."""
    dest = _type_name(node.dtype) if isinstance(node, Cast) else None
    intrinsic = node.op.name if isinstance(node, Call) and isinstance(node.op, Op) else None
    return _lowers.get(_key(target, type(node).__name__, _type_name(src), dest, intrinsic))


def _key(target: str, op: str, src: str, dest: str | None, intrinsic: str | None) -> tuple[str, ...]:
    detail = dest if op == "Cast" else intrinsic if op == "Call" else None
    return (target, op, src, detail or "")


def _type_name(dtype: DataType) -> str:
    """The name under which operations of a dtype are registered: "float" of float32, "posit" of custom[posit]16."""
    return get_type_name(dtype.type_code) if dtype.is_custom else dtype.code


def stored(dtype: DataType) -> DataType:
    """The dtype in which values are kept: the unsigned integers as wide as a custom dtype."""
    return DataType(f"uint{dtype.bits}").with_lanes(dtype.lanes, dtype.scalable) if dtype.is_custom else dtype


def create_lower_func(extern_func_map: Mapping[Any, str]) -> Lower:
    """A function for `register_op` that calls a C function by the width of the operands.

    `extern_func_map` has its name by the number of bits; of casts by the pair of the operand's and the result's. The
    function takes and gives a custom dtype as the unsigned integer of its width; constants it takes as a float.

    Raises `InvalidValue`, when a program is lowered, for a width that has no function, and `TypeMismatch` for an
    expression that is no cast, constant, call or operation of two operands.
    """

    return _CallExtern(tuple(extern_func_map.items()))


@dataclass(frozen=True)
class _CallExtern:
    """A lowering function that calls a C function; `functions` are pairs of a width and a name."""

    functions: tuple[tuple[Any, str], ...]

    def __call__(self, node: Any) -> PrimExpr:
        if isinstance(node, Cast):
            args, key = [node.value], (node.value.dtype.bits, node.dtype.bits)
        elif isinstance(node, FloatImm):
            args, key = [node.value], node.dtype.bits
        elif isinstance(node, Call):
            args, key = node.args, node.dtype.bits
        elif isinstance(node, BinaryOpExpr):
            args, key = [node.a, node.b], node.a.dtype.bits if isinstance(node, CmpExpr) else node.dtype.bits
        else:
            raise TypeMismatch(f"a {type(node).__name__} has no operands to call a function with: {node}")
        known = dict(self.functions)
        if key not in known:
            raise InvalidValue(f"no function for {key} bits of `{node}`; there are {known}")
        return _extern(stored(node.dtype), known[key], *args)


def _extern(dtype: Any, name: str, *args: Any) -> PrimExpr:
    return Call(dtype, "tir.call_pure_extern", [StringImm(name), *args])


def lower_ite(ite_op: Call) -> PrimExpr:
    """A function for `register_op` that keeps `tir.if_then_else`, of unsigned integers."""
    return Call(stored(ite_op.dtype), "tir.if_then_else", ite_op.args)


def lower_call_pure_extern(op: Call) -> PrimExpr:
    """A function for `register_op` that keeps `tir.call_pure_extern`, which gives unsigned integers."""
    return Call(stored(op.dtype), "tir.call_pure_extern", op.args)


def register_min_func(func: Callable[[int], PrimExpr], type_name: str) -> None:
    """Says the smallest finite value of a custom dtype: `func(bits)` is an expression of `custom[TYPE_NAME]BITS`."""
    _minima[type_name] = func


def create_min_lower_func(extern_func_map: Mapping[int, str], type_name: str) -> Callable[[int], PrimExpr]:
    """A function for `register_min_func` that calls a C function without parameters, named by the number of bits.

    It raises `InvalidValue` for a width that has no function.
    """

    def lower(num_bits: int) -> PrimExpr:
        dtype = DataType(f"custom[{type_name}]{num_bits}")
        if num_bits not in extern_func_map:
            raise InvalidValue(f"no function gives the smallest value of {dtype}; there are {dict(extern_func_map)}")
        return _extern(dtype, extern_func_map[num_bits])

    return lower


def min_value(dtype: DataType) -> PrimExpr:
    """The smallest finite value of a custom dtype; raises `NotRegistered` where `register_min_func` was not called."""
    name = get_type_name(dtype.type_code)
    if name not in _minima:
        raise NotRegistered(f"the smallest value of {dtype} is not known: call register_min_func(..., {name!r})")
    return _minima[name](dtype.bits)


def lowering_digest() -> str | None:
    """What operations of custom dtypes are lowered to, for keys of caches.

    None if a function of a user is registered, of which there is no digest.
    """
    parts: list[str] = []
    for key, lower in sorted(_lowers.items(), key=operator.itemgetter(0)):
        if isinstance(lower, _CallExtern):
            parts.append(f"{key}: {lower}")
        elif lower is lower_ite or lower is lower_call_pure_extern:
            parts.append(f"{key}: {lower.__name__}")
        else:
            return None
    return "; ".join(parts)
