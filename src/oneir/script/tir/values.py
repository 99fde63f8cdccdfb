"""Members of `T` that make values: casts, stores, reducers, index maps, targets."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...ir import operators as ops
from ...ir.expr import Let, Var, as_expr, const
from ...target import Target
from ...tir.buffer import Buffer
from ...tir.expr import CommReducer, IterVar, IterVarType
from ...tir.index_map import IndexMap
from ...tir.stmt import BufferStore, Evaluate
from .dtypes import DTypeMember, dtype_name
from .frame import LetStmt_


def cast(value: Any, dtype: Any, span: Any = None) -> Any:
    """`value` converted to `dtype`."""
    return ops.cast(dtype_name(dtype), value, span)


def buffer_store(buffer: Buffer, value: Any, indices: Any, predicate: Any = None) -> BufferStore:
    """`buffer[indices] = value`, in the lanes that `predicate` selects."""
    return BufferStore(buffer, value, indices, predicate)


def evaluate(value: Any) -> Evaluate:
    """Evaluates an expression for its effect."""
    return Evaluate(const(value) if isinstance(value, str) else value)


def iter_var(v: Any, dom: Any, iter_type: str, thread_tag: str) -> IterVar:
    """An iteration variable; `iter_type` names its kind: "DataPar", "ThreadIndex", "CommReduce", ..."""
    return IterVar(dom, v, IterVarType[iter_type], thread_tag)


def comm_reducer(combiner: Callable[..., Any], identity: Any) -> CommReducer:
    """A reducer from a function of left and right values and from the neutral elements."""
    elements = [as_expr(i) for i in identity]
    names = list(inspect.signature(combiner).parameters)
    variables = [Var(name, e.dtype) for name, e in zip(names, [*elements, *elements], strict=True)]
    result = combiner(*variables)
    half = len(variables) // 2
    results = result if isinstance(result, (tuple, list)) else (result,)
    return CommReducer(variables[:half], variables[half:], results, elements)


def index_map(mapping: Callable[..., Any], *, inverse_index_map: Any = None, index_dtype: str = "int64") -> IndexMap:
    """How the indices of one layout follow from those of another."""
    return IndexMap.from_func(mapping, inverse_index_map=inverse_index_map, index_dtype=index_dtype)


def target(target_config: Any, host: Any = None) -> Any:
    """A machine to compile for, from a name or a configuration."""
    return Target(target_config, host)


def let(v: Var, value: Any, body: Any = None) -> Any:
    """`body` with `v` standing for `value`; without a body, for the statements that follow."""
    return LetStmt_(value, var=v) if body is None else Let(v, value, body)


def func_gen(name: str) -> DTypeMember:
    """The member of `T` for a dtype, "Float32" or "float32"."""
    return DTypeMember(name.lower())
