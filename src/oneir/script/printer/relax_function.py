"""Graph functions: their blocks, bindings and branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.op import Op
from ...relax import expr as x
from ...relax.block_builder import BlockBuilder
from ...relax.normalize import from_sinfo_args
from ...relax.operator_facts import FInferStructInfo
from ...relax.struct_info import StructInfo, TupleStructInfo
from .core import Frame, Printer, prints
from .ir import function_attrs, function_name
from .relax_expr import define
from .relax_struct_info import FunctionScope


@prints(x.Function)
def _function(p: Printer, func: x.Function) -> None:
    name = function_name(p, func)
    nested = any(isinstance(frame, FunctionScope) for frame in p.frames)
    options = [] if func.is_pure else ["pure=False"]
    if not nested and "global_symbol" not in func.attrs:
        options.append("private=True")
    p.emit(f"@{p.relax('function')}" + (f"({', '.join(options)})" if options else ""))
    scope = FunctionScope(p, func, [], p.frame.pad + p.indent, "relax")
    scope.nodes = (func,)
    scope.declared, scope.has_alias = None if nested else set(), False
    previous = p.root if nested else p.set_root(func)
    with scope:
        result = p.expr(func.ret_struct_info)
        params = [f"{define(p, param)}: {p.expr(param.struct_info_)}" for param in func.params]
        scope.header = f"def {name}({', '.join(params)}) -> {result}:"
        scope.declared = None
        attrs = dict(func.attrs) if nested else function_attrs(func, name)
        if attrs:
            p.emit(f"{p.relax('func_attr')}({p.expr(attrs)})")
        # What the body declares for all of it stands in front of the body, so the body's lines come later.
        with Frame(p, func.body, [], scope.pad, "relax") as body:
            _body(p, func.body, lambda text: p.emit(f"return {text}", func.body))
        scope.lines += body.lines
    if not nested:
        p.set_root(previous)


def _body(p: Printer, seq: x.SeqExpr, finish: Callable[[str], None]) -> None:
    for block in seq.blocks:
        p.stmt(block)
    finish(p.expr(seq.body))


@prints(x.SeqExpr)
def _seq(p: Printer, seq: x.SeqExpr) -> None:
    with p.concise(seq):
        _body(p, seq, lambda text: p.emit(text, seq))


@prints(x.BindingBlock)
def _block(p: Printer, block: x.BindingBlock) -> None:
    for binding in block.bindings:
        p.stmt(binding)


@prints(x.DataflowBlock)
def _dataflow(p: Printer, block: x.DataflowBlock) -> None:
    frame = p.frame
    # No frame of its own: what the block puts out is used after it. What it uses is declared above its header.
    lines, pad = frame.lines, frame.pad
    frame.lines, frame.pad = [], pad + p.indent
    for binding in block.bindings:
        p.stmt(binding)
    outputs = [b.var for b in block.bindings if not isinstance(b.var, x.DataflowVar)]
    p.emit(f"{p.relax('output')}({p.exprs(outputs)})")
    body, frame.lines, frame.pad = frame.lines, lines, pad
    p.emit(f"with {p.relax('dataflow')}():", block, opens=True)
    frame.lines += body


@prints(x.VarBinding)
def _var_binding(p: Printer, binding: x.VarBinding) -> None:
    var, value = binding.var, binding.value
    if isinstance(value, x.If):
        annotation = _annotation(p, var, value)
        _condition(p, value, f"{define(p, var)}{annotation} = ", binding)
    elif isinstance(value, x.Function):
        p.binding_names.append(define(p, var))
        _local_function(p, value)
        p.binding_names.pop()
    else:
        text = p.expr(value)
        if p.config.syntax_sugar and _is_void(var) and _is_effect(value) and p.holds_every_use(binding, var):
            p.emit(text, binding, var)
            return
        annotation = _annotation(p, var, value)
        p.emit(f"{define(p, var)}{annotation} = {text}", binding, var)


def _local_function(p: Printer, func: x.Function) -> None:
    """A function inside of another one, below the comments that are at the top of every function."""
    lines, start = p.frame.lines, len(p.frame.lines)
    p.stmt(func)
    imports = [("tir", p.config.tir_prefix), ("relax", p.config.relax_prefix)]
    head = [
        f"{p.frame.pad}# from tvm.script import {name} as {alias}" for name, alias in imports if name in p.used_dialects
    ]
    lines[start:start] = [*head, ""]
    lines.append("")


@prints(x.MatchCast)
def _match_cast(p: Printer, binding: x.MatchCast) -> None:
    text = f"{p.relax('match_cast')}({p.expr(binding.value)}, {p.expr(binding.struct_info)})"
    annotation = f": {p.expr(binding.var.struct_info_)}" if p.config.show_all_struct_info else ""
    p.emit(f"{define(p, binding.var)}{annotation} = {text}", binding, binding.var)


@prints(x.If)
def _if(p: Printer, value: x.If) -> None:
    _condition(p, value, "", value)


def _condition(p: Printer, value: x.If, target: str, *nodes: Any) -> None:
    """Both branches; each ends with its value, assigned to `target`."""
    condition, first = p.expr(value.cond), len(p.frame.lines)
    then, otherwise = value.true_branch, value.false_branch
    with p.scope(then, f"if {condition}:", *nodes):
        _body(p, then, lambda text: p.emit(target + text, then))
    with p.branch(otherwise, "else:", first):
        _body(p, otherwise, lambda text: p.emit(target + text, otherwise))


def _is_void(expr: Any) -> bool:
    info = expr.struct_info_
    return isinstance(info, TupleStructInfo) and not info.fields


def _is_effect(value: Any) -> bool:
    return isinstance(value, x.Call) and _is_void(value)


def _annotation(p: Printer, var: x.Var, value: Any) -> str:
    """What is known of a variable, unless its value says just that."""
    info = var.struct_info_
    if info is None:
        return ""
    says = isinstance(value, x.Call) and isinstance(value.op, Op) and value.op.name in _SAYS_ITS_OUTPUT
    if says or not p.config.show_all_struct_info:
        inferred = _inferred(value)
        if inferred is not None and (inferred is info or inferred == info):
            return ""
    return f": {p.expr(info)}"


_SAYS_ITS_OUTPUT = frozenset(["relax.call_tir", "relax.call_dps_packed"])


def _inferred(value: Any) -> StructInfo | None:
    """What a reader of the text knows of a value."""
    if isinstance(value, x.Call):
        if value.sinfo_args:
            return from_sinfo_args(value)
        rule = FInferStructInfo.of(value.op)
        if rule is not None:
            return rule(value, BlockBuilder())
        return None
    if isinstance(value, (x.Tuple, x.TupleGetItem, x.Var, x.Constant, x.ShapeExpr, x.PrimValue)):
        return value.struct_info_
    return None
