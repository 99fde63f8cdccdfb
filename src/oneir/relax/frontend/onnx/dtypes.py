"""ONNX's element types, value infos, and dimensions that are names or sums of names."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import Any

from ....ir import operators
from ....ir.expr import PrimExpr, SizeVar
from ....runtime.error import InvalidValue, OneIRError, UnsupportedError
from ....tir.analysis import undefined_vars

_NAMES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
}
_CODES = {name: code for code, name in _NAMES.items()}
_OTHER = {0: "undefined", 8: "string", 14: "complex64", 15: "complex128"}


def dtype_name(code: int) -> str:
    """The dtype of one of ONNX's element types. Raises `UnsupportedError` if there is none."""
    if code not in _NAMES:
        raise UnsupportedError(
            f"tensors of element type {_OTHER.get(code, code)} cannot be imported; these can: {', '.join(_CODES)}"
        )
    return _NAMES[code]


STRING = 8
"""ONNX's element type of strings."""

FLOAT4 = "float4_e2m1fn"
"""The dtype that kernels do not compute with: constants are cast while compiling, other tensors by the runtime."""


def element_type(dtype: str) -> int:
    """The number of ONNX's element type for a dtype."""
    return _CODES[dtype]


def is_float(dtype: str) -> bool:
    """Whether a dtype is one of floats."""
    return "float" in dtype


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operators.add,
    ast.Sub: operators.subtract,
    ast.Mult: operators.multiply,
    ast.FloorDiv: operators.floordiv,
    ast.Div: operators.floordiv,
}


class Symbols:
    """The symbolic extents of a model, one variable for each name."""

    def __init__(self) -> None:
        self._variables: dict[str, SizeVar] = {}
        self._count = 0

    def named(self, name: str) -> PrimExpr:
        """The extent of a name, or of a sum, difference, product or quotient of names and numbers."""
        if name in self._variables:
            return self._variables[name]
        try:
            return self._evaluate(ast.parse(name.strip(), mode="eval").body)
        except (OneIRError, ArithmeticError, RecursionError, SyntaxError, ValueError):
            return self._variable(name)

    def declare(self, names: Iterable[str]) -> None:
        """Makes variables of the extents of inputs: of names, and of expressions of names that are no extents."""
        names = [name.strip() for name in names]
        known = {self._variable(name) for name in names if name.isidentifier()}
        for name in names:
            if not known.issuperset(undefined_vars(self.named(name))):
                self._variable(name)

    def _evaluate(self, tree: ast.expr) -> Any:
        if isinstance(tree, ast.Name):
            return self._variable(tree.id)
        if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
            return tree.value
        if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
            return _OPERATORS[type(tree.op)](self._evaluate(tree.left), self._evaluate(tree.right))
        raise ValueError(ast.dump(tree))

    def _variable(self, name: str) -> SizeVar:
        if name not in self._variables:
            self._variables[name] = SizeVar(re.sub(r"\W", "_", name) or "n", "int64")
        return self._variables[name]

    def fresh_extent(self) -> SizeVar:
        """A new variable for an extent."""
        self._count += 1
        return SizeVar(f"n{self._count}", "int64")


def extents_of(tensor_type: Any, symbols: Symbols) -> list[Any] | None:
    """The extents that a tensor type declares: integers, expressions, None where nothing is said; None of no shape."""
    if not tensor_type.HasField("shape"):
        return None
    extents: list[Any] = []
    for dim in tensor_type.shape.dim:
        if isinstance(dim.dim_param, bytes):
            raise InvalidValue(f"the name of a dimension is no text: {dim.dim_param!r}; the model may be damaged")
        if dim.HasField("dim_value"):
            extents.append(dim.dim_value if dim.dim_value >= 0 else None)
        else:
            extents.append(symbols.named(dim.dim_param) if dim.dim_param not in ("", "?") else None)
    return extents
