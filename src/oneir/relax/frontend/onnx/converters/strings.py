"""Operators of strings, which functions of the runtime compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....runtime.error import UnsupportedError
from ....expr import Expr
from ....struct_info import TensorStructInfo
from ..context import Context
from ..objects import Strings, constant_of, constant_strings, is_object, kind_of, runtime_value
from ..registry import converter


def _ndim(g: Context, x: Any) -> int:
    """The number of dimensions of a tensor of strings. Raises `UnsupportedError` for anything else."""
    kind = kind_of(g, x)
    if not isinstance(kind, Strings):
        raise UnsupportedError(f"expected a tensor of strings, found {kind}")
    if kind.ndim == -1:
        raise UnsupportedError("how many dimensions a tensor of strings has must be known while compiling")
    return kind.ndim


def strings_equal(g: Context, x: Expr, y: Expr) -> Expr:
    """Where strings are equal."""
    kind = TensorStructInfo(dtype="bool", ndim=max(_ndim(g, x), _ndim(g, y)))
    return runtime_value(g, "vm.builtin.strings_equal", [x, y], kind)


@converter("StringConcat")
def string_concat(g: Context, x: Expr, y: Expr) -> Expr:
    """Strings one after the other."""
    return runtime_value(g, "vm.builtin.strings_concat", [x, y], Strings(max(_ndim(g, x), _ndim(g, y))))


@converter("StringSplit")
def string_split(g: Context, x: Expr, *, delimiter: str = "", maxsplit: int = -1) -> tuple[Expr, Expr]:
    """The parts of strings, and how many each has."""
    ndim = _ndim(g, x)
    both = runtime_value(g, "vm.builtin.strings_split", [x, delimiter, maxsplit], Strings(ndim + 1))
    parts = runtime_value(g, "vm.builtin.tuple_getitem", [both, 0], Strings(ndim + 1))
    return parts, runtime_value(g, "vm.builtin.tuple_getitem", [both, 1], TensorStructInfo(dtype="int64", ndim=ndim))


@converter("StringNormalizer")
def string_normalizer(
    g: Context,
    x: Expr,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: Sequence[str] = (),
) -> Expr:
    """Strings without stop words, in one case."""
    words = constant_strings(g, np.array(list(stopwords), object))
    given = [x, words, case_change_action, int(is_case_sensitive)]
    return runtime_value(g, "vm.builtin.strings_normalize", given, Strings(_ndim(g, x)))


@converter("RegexFullMatch")
def regex_full_match(g: Context, x: Expr, *, pattern: str) -> Expr:
    """Which strings a regular expression matches as a whole."""
    kind = TensorStructInfo(dtype="bool", ndim=_ndim(g, x))
    return runtime_value(g, "vm.builtin.strings_match", [x, pattern], kind)


_DTYPES = {"strings": object, "int64s": np.int64, "floats": np.float32}
_DEFAULTS: dict[str, Any] = {"strings": "_Unused", "int64s": -1, "floats": -0.0}


@converter("LabelEncoder", since=2, domain="ai.onnx.ml")
def label_encoder(g: Context, x: Expr, **attributes: Any) -> Expr:
    """The values of keys; keys and values are strings or numbers."""
    keys, values, default = _table(attributes)
    given = [x, constant_of(g, keys), constant_of(g, values), constant_of(g, default)]
    ndim = _ndim(g, x) if is_object(g, x) else g.ndim(x)
    if values.dtype == object:
        return runtime_value(g, "vm.builtin.encode_labels", given, Strings(ndim))
    kind = TensorStructInfo(dtype=values.dtype.name, ndim=ndim)
    return runtime_value(g, "vm.builtin.encode_labels", given, kind)


def _table(attributes: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys, values and the default, from the attributes of a LabelEncoder."""
    found: dict[str, np.ndarray] = {}
    default = attributes.get("default_tensor")
    for part in ("keys", "values"):
        for suffix, dtype in _DTYPES.items():
            if f"{part}_{suffix}" in attributes:
                found[part] = np.array(attributes[f"{part}_{suffix}"], dtype)
                if part == "values" and default is None:
                    default = attributes.get(f"default_{suffix.removesuffix('s')}", _DEFAULTS[suffix])
        found.setdefault(part, np.asarray(attributes.get(f"{part}_tensor", ())))
    if not found["keys"].size or found["keys"].size != found["values"].size:
        raise UnsupportedError("a LabelEncoder needs as many keys as values")
    if default is None:
        default = _DEFAULTS["strings" if found["values"].dtype.kind in "OUS" else "int64s"]
    return found["keys"], found["values"], np.asarray(default, found["values"].dtype).reshape(-1)[:1]
