"""Expressions as TVMScript writes them.

An operator is printed with its symbol only where Python's operator, which folds constants, gives back the same node;
else the constructor is written out: `T.Add(1, 2)`. So printed text parses to the tree that was printed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...ir import expr as e
from ...ir import operators as ops
from ...ir.op import Op
from ...ir.type import PointerType
from ...tir.expr import CommReducer, IterVar, ProducerLoad, Reduce, Shuffle
from ...tir.index_map import IndexMap
from .. import tir
from .core import Operation, Printer, prints
from .values import float_text, quoted

LAMBDA, OR, AND, NOT, COMPARISON, SUM, PRODUCT = 1, 3, 4, 5, 6, 11, 12


# -- variables --


def creation(p: Printer, var: e.Var) -> str:
    """The text that makes a variable: `T.int32()`."""
    keyword = "is_size_var=True" if isinstance(var, e.SizeVar) else ""
    kind = var.type_annotation
    if isinstance(kind, PointerType):
        text = p.expr(kind)
        return f"{text[:-1]}, {keyword})" if keyword else text
    return f"{p.tir(var.dtype)}({keyword})"


@prints(e.Var, e.SizeVar)
def _var(p: Printer, var: e.Var) -> str:
    name = p.name_of(var)
    if name is None:
        frame = p.declaring_frame(var)
        name = define_var(p, var, frame)
        frame.lines.append(f"{frame.pad}{name} = {creation(p, var)}")
    return name


def define_var(p: Printer, var: e.Var, frame: Any = None) -> str:
    """Names a variable."""
    return p.define(var, var.name or "v", frame)


@prints(IterVar)
def _iter_var(p: Printer, iter_var: IterVar) -> str:
    dom = p.expr(iter_var.dom)
    return (
        f"{p.tir('iter_var')}({p.expr(iter_var.var)}, {dom}, "
        f"{quoted(iter_var.iter_type.name)}, {quoted(iter_var.thread_tag)})"
    )


# -- constants --


@prints(e.IntImm)
def _int_imm(p: Printer, imm: e.IntImm) -> str:
    dtype = imm.dtype
    if dtype == p.int_dtype:
        return str(imm.value)
    return f"{p.tir(dtype)}({bool(imm.value) if dtype.is_bool else imm.value})"


@prints(e.FloatImm)
def _float_imm(p: Printer, imm: e.FloatImm) -> str:
    text = float_text(imm.value)
    if imm.dtype.is_custom:
        return f"{p.tir('float64')}({text}).astype({quoted(str(imm.dtype))})"
    return text if imm.dtype == p.float_dtype else f"{p.tir(imm.dtype)}({text})"


@prints(e.StringImm)
def _string_imm(p: Printer, imm: e.StringImm) -> str:
    return quoted(imm.value)


# -- operators --


def _binary(name: str, symbol: str, level: int, fold: Callable[[Any, Any], Any]) -> Callable[[Printer, Any], str]:
    # Python reads `a < b < c` as `a < b and b < c`, and it puts a sum of sums together from the left.
    left_level = level + 1 if level == COMPARISON else level

    def handler(p: Printer, node: Any) -> str:
        a, b = node.a, node.b
        if _unfolded(fold, node, a, b):
            return Operation.of(f"{p.operand(a, left_level)} {symbol} {p.operand(b, level + 1)}", level)
        return f"{p.tir(name)}({p.expr(a)}, {p.expr(b)})"

    return handler


def _unfolded(fold: Callable[[Any, Any], Any], node: Any, a: Any, b: Any) -> bool:
    """Whether the operator that Python calls makes this very node."""
    try:
        made = fold(a, b)
    except (TypeError, ValueError):
        return False
    return type(made) is type(node) and made.a is a and made.b is b


_BINARY: list[tuple[type, str, int, Callable[[Any, Any], Any]]] = [
    (e.Add, "+", SUM, ops.add),
    (e.Sub, "-", SUM, ops.subtract),
    (e.Mul, "*", PRODUCT, ops.multiply),
    (e.Div, "/", PRODUCT, ops.divide),
    (e.FloorDiv, "//", PRODUCT, ops.floordiv),
    (e.FloorMod, "%", PRODUCT, ops.floormod),
    (e.LT, "<", COMPARISON, ops.less),
    (e.LE, "<=", COMPARISON, ops.less_equal),
    (e.EQ, "==", COMPARISON, ops.equal),
    (e.NE, "!=", COMPARISON, ops.not_equal),
    (e.GT, ">", COMPARISON, ops.greater),
    (e.GE, ">=", COMPARISON, ops.greater_equal),
    (e.And, "and", AND, ops.logical_and),
    (e.Or, "or", OR, ops.logical_or),
]
for _cls, _symbol, _level, _fold in _BINARY:
    prints(_cls)(_binary(_cls.__name__, _symbol, _level, _fold))


def _function(sugar: str, name: str, fold: Callable[[Any, Any], Any]) -> Callable[[Printer, Any], str]:
    def handler(p: Printer, node: Any) -> str:
        return f"{p.tir(sugar if _unfolded(fold, node, node.a, node.b) else name)}({p.expr(node.a)}, {p.expr(node.b)})"

    return handler


prints(e.Min)(_function("min", "Min", ops.minimum))
prints(e.Max)(_function("max", "Max", ops.maximum))
prints(e.Mod)(_function("truncmod", "Mod", ops.truncmod))


@prints(e.Not)
def _not(p: Printer, node: e.Not) -> str:
    if isinstance(node.a, e.IntImm):
        return f"{p.tir('Not')}({p.expr(node.a)})"
    return Operation.of(f"not {p.operand(node.a, NOT)}", NOT)


@prints(e.Cast)
def _cast(p: Printer, cast: e.Cast) -> str:
    return f"{p.tir('Cast')}({quoted(cast.dtype)}, {p.expr(cast.value)})"


@prints(e.Select)
def _select(p: Printer, node: e.Select) -> str:
    return f"{p.tir('Select')}({p.exprs([node.condition, node.true_value, node.false_value])})"


@prints(e.Ramp)
def _ramp(p: Printer, ramp: e.Ramp) -> str:
    return f"{p.tir('Ramp')}({p.exprs([ramp.base, ramp.stride, ramp.lanes])})"


@prints(e.Broadcast)
def _broadcast(p: Printer, node: e.Broadcast) -> str:
    return f"{p.tir('Broadcast')}({p.exprs([node.value, node.lanes])})"


@prints(Shuffle)
def _shuffle(p: Printer, node: Shuffle) -> str:
    return f"{p.tir('Shuffle')}({p.exprs([node.vectors, node.indices])})"


@prints(e.Let)
def _let(p: Printer, let: e.Let) -> str:
    where = f"{{{p.expr(let.var)}: {p.expr(let.value)}}}"
    return f"{p.tir('Let')}({p.expr(let.body)}, where={where})"


# -- calls --


@prints(e.Call)
def _call(p: Printer, call: e.Call) -> str:
    op, args = call.op, call.args
    if not isinstance(op, Op):
        callee = (p.name_of(op) or op.name_hint) if isinstance(op, e.GlobalVar) else p.expr(op)
        if call.dtype == "void":
            return f"{callee}({p.exprs(args)})"
        return f"{p.tir('call_intrin')}({p.exprs([call.dtype])}, {', '.join([callee, *[p.expr(a) for a in args]])})"
    name = op.attrs.get("script_name") or op.name.removeprefix("tir.")
    arguments = _script_arguments(call, op, name)
    if arguments is None:
        return f"{p.tir('call_intrin')}({p.exprs([call.dtype, op.name, *args])})"
    return f"{p.tir(name)}({p.exprs(arguments)})"


def _script_arguments(call: e.Call, op: Op, name: str) -> list[Any] | None:
    """The arguments with which `T.name` makes this very call; None when it makes another one.

    The dtype is an argument where it does not follow from the others: first where the operator says so, else last.
    """
    function = _script_function(name)
    if function is None:
        return None
    args = list(call.args)
    with_dtype = [call.dtype, *args]
    choices = [with_dtype] if op.attrs.get("script_dtype_first") else [args, [*args, call.dtype], with_dtype]
    return next((choice for choice in choices if _makes(function, choice, call)), None)


@functools.cache
def _script_function(name: str) -> Callable[..., Any] | None:
    """What a script calls as `T.name`."""
    return getattr(tir, name, None)


def _makes(function: Callable[..., Any], arguments: list[Any], call: e.Call) -> bool:
    plain = [a.value if isinstance(a, e.StringImm) else a for a in arguments]
    try:
        made = function(*plain)
    except (TypeError, ValueError, AttributeError):
        return False
    return (
        type(made) is e.Call
        and made.op is call.op
        and made.dtype is call.dtype
        and len(made.args) == len(call.args)
        and all(x is y or (isinstance(x, e.StringImm) and x == y) for x, y in zip(made.args, call.args, strict=True))
    )


# -- reductions and index maps --


@prints(CommReducer)
def _comm_reducer(p: Printer, reducer: CommReducer) -> str:
    with p.concise(reducer):
        names = [define_var(p, var) for var in (*reducer.lhs, *reducer.rhs)]
        result = p.expr(reducer.result[0]) if len(reducer.result) == 1 else p.tuple_of(reducer.result)
    return f"{p.tir('comm_reducer')}(lambda {', '.join(names)}: {result}, {p.expr(reducer.identity_element)})"


@prints(Reduce)
def _reduce(p: Printer, reduce: Reduce) -> str:
    combiner = p.expr(reduce.combiner)
    source, init, axis = p.expr(reduce.source), p.expr(reduce.init), p.expr(reduce.axis)
    return (
        f"{p.tir('reduce')}({combiner}, source={source}, init={init}, axis={axis}, "
        f"condition={p.expr(reduce.condition)}, value_index={reduce.value_index})"
    )


@prints(ProducerLoad)
def _producer_load(p: Printer, load: ProducerLoad) -> str:
    return f"{load.producer.name}[{p.exprs(load.indices) or '()'}]"


def _lambda(p: Printer, index_map: IndexMap) -> str:
    with p.concise(index_map):
        names = [define_var(p, var) for var in index_map.initial_indices]
        return f"lambda {', '.join(names)}: {p.tuple_of(index_map.final_indices)}"


@prints(IndexMap)
def _index_map(p: Printer, index_map: IndexMap) -> str:
    inverse = index_map.inverse_index_map
    text = f", inverse_index_map={_lambda(p, inverse)}" if inverse is not None else ""
    indices = index_map.initial_indices
    # A graph says of which dtype the indices are, so that it parses back; alone, a map is printed for the reader.
    if p.frame.dialect == "relax" and indices and indices[0].dtype != "int64":
        text += f', index_dtype="{indices[0].dtype}"'
    return f"{p.tir('index_map')}({_lambda(p, index_map)}{text})"
