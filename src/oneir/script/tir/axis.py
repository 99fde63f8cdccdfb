"""`T.axis`: the iteration variables of a block."""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import Range, Var, as_expr
from ...runtime.error import InvalidValue, TypeMismatch
from ...tir.expr import IterVar, IterVarType
from .note import Note
from .state import FunctionState


def as_range(dom: Any) -> Range:
    """A domain: a range, (begin, end), or an extent."""
    if isinstance(dom, Range):
        return dom
    if isinstance(dom, (list, tuple)):
        begin, end = dom
        return Range(begin, end)
    return Range(dom)


def _bind(state: FunctionState, kind: IterVarType, dom: Any, binding: Any, dtype: str) -> Var:
    block = state.block("T.axis")
    dom, binding = as_range(dom), as_expr(binding)
    for what, value in (("value", binding), ("extent", dom.extent), ("begin", dom.min)):
        if not value.dtype.is_int or not value.dtype.is_scalar:
            raise TypeMismatch(f"the {what} of an axis must be an integer, found `{value}` of dtype {value.dtype}")
    base = DataType(dtype)
    bits = max(dom.min.dtype.bits, dom.extent.dtype.bits, base.bits)
    wanted = DataType(f"{base.code}{bits}")
    if dom.min.dtype is not wanted or dom.extent.dtype is not wanted:
        dom = Range.from_min_extent(ops.cast(wanted, dom.min), ops.cast(wanted, dom.extent))
    var = Var("", wanted)
    block.iter_vars.append(IterVar(dom, var, kind))
    block.iter_values.append(binding)
    return var


def spatial(dom: Any, binding: Any, dtype: str = "int32") -> Note:
    """An axis whose instances are independent."""
    return Note(lambda state: _bind(state, IterVarType.DataPar, dom, binding, dtype))


def reduce(dom: Any, binding: Any, dtype: str = "int32") -> Note:
    """An axis over which the block reduces."""
    return Note(lambda state: _bind(state, IterVarType.CommReduce, dom, binding, dtype))


def scan(dom: Any, binding: Any, dtype: str = "int32") -> Note:
    """An axis that runs in order."""
    return Note(lambda state: _bind(state, IterVarType.Ordered, dom, binding, dtype))


def opaque(dom: Any, binding: Any, dtype: str = "int32") -> Note:
    """An axis of which nothing is known."""
    return Note(lambda state: _bind(state, IterVarType.Opaque, dom, binding, dtype))


S, R = spatial, reduce
_KINDS = {"S": IterVarType.DataPar, "R": IterVarType.CommReduce}


def remap(kinds: str, bindings: Any, dtype: str = "int32") -> Note:
    """One axis for each loop variable, spatial ("S") or reduction ("R"), over the loop's own range."""
    if len(kinds) != len(bindings):
        raise InvalidValue(f"T.axis.remap expects one letter a loop, found {kinds!r} for {len(bindings)}")

    def apply(state: FunctionState) -> Any:
        out = []
        for letter, binding in zip(kinds, bindings, strict=True):
            if letter not in _KINDS:
                raise InvalidValue(f'T.axis.remap expects the letters "S" and "R", found {letter!r}')
            dom = state.domains.get(binding) if isinstance(binding, Var) else None
            if dom is None:
                raise TypeMismatch(
                    f"T.axis.remap expects variables of the loops around the block, found `{binding}`; "
                    "use T.axis.spatial(extent, value) for any other value"
                )
            out.append(_bind(state, _KINDS[letter], dom, binding, str(binding.dtype)))
        return out[0] if len(out) == 1 else out

    return Note(apply)
