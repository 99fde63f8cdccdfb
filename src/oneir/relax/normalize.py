"""Normalization: every value that is not a variable, a constant or a tuple of these gets a variable, and everything its
struct info.

The normal form is what all passes are written for: arguments of calls are leaves, functions and branches are
`SeqExpr`s, no value is nested in another. An expression that is normal already comes back as the identical object.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..ir.container import same_objects
from ..ir.expr import GlobalVar
from ..ir.module import BaseFunc
from ..ir.op import Op
from ..runtime.error import InvalidValue, NotRegistered, TypeMismatch
from ..runtime.hook import Hook
from .analysis.struct_info import (
    call_error,
    callee_name,
    derive_call_ret_struct_info,
    erase_to_well_defined,
    struct_info_lca,
)
from .expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from .operator_facts import FInferDistributedStructInfo, FInferStructInfo, FNormalize
from .struct_info import DTensorStructInfo, FuncStructInfo, ObjectStructInfo, StructInfo, TupleStructInfo

if TYPE_CHECKING:
    from .block_builder import BlockBuilder

infer_distributed: Hook[[Call, Any], StructInfo] = Hook("infer_distributed", "oneir.relax.distributed")
"""What a call on distributed tensors gives, by how its kernel reads and writes them."""

LEAVES = (Var, Constant, ShapeExpr, PrimValue, StringImm, DataTypeImm, ExternFunc, GlobalVar, Op)
"""What may be an argument as it is. Tuples of these may as well."""


def infer_call(call: Call, builder: BlockBuilder) -> StructInfo:
    """What a call gives."""
    op = call.op
    if isinstance(op, Op):
        rule = FInferStructInfo.of(op)
        if rule is None:
            raise call_error(
                call, NotRegistered, f"the operator `{op.name}` has no rule that says what a call of it gives"
            )
        if any(map(_is_distributed, call.args)):
            return (FInferDistributedStructInfo.of(op) or infer_distributed)(call, builder)
        return rule(call, builder)
    info = builder.function_struct_info(op) if isinstance(op, GlobalVar) else op.struct_info
    if not isinstance(info, FuncStructInfo):
        if type(info) is ObjectStructInfo:
            return from_sinfo_args(call)
        raise call_error(call, TypeMismatch, f"expected a function to call, found `{callee_name(op)}`: {info}")
    if info.params is None and call.sinfo_args:
        return from_sinfo_args(call)
    return derive_call_ret_struct_info(info, call, builder)


def _is_distributed(arg: Expr) -> bool:
    info = getattr(arg, "struct_info_", None)
    if isinstance(info, TupleStructInfo):
        return any(isinstance(field, DTensorStructInfo) for field in info.fields)
    return isinstance(info, DTensorStructInfo)


def from_sinfo_args(call: Call) -> StructInfo:
    """What `sinfo_args` say that a call gives."""
    infos = call.sinfo_args
    if not infos:
        return ObjectStructInfo()
    return infos[0] if len(infos) == 1 else TupleStructInfo(infos)


class Normalizer:
    """Normalizes expressions into the blocks that a builder is at."""

    def __init__(self, builder: BlockBuilder, by_operator: bool = True):
        self.builder, self.by_operator = builder, by_operator

    def normalize(self, expr: Expr) -> Expr:
        """The expression with normal arguments and known struct info."""
        if isinstance(expr, Call):
            return self.call(expr)
        if isinstance(expr, LEAVES):
            if isinstance(expr, Var) and expr.struct_info_ is None:
                raise InvalidValue(f"the struct info of the variable `{expr.name}` is not known")
            return expr
        if isinstance(expr, Tuple):
            return self.tuple(expr)
        if isinstance(expr, TupleGetItem):
            return self.tuple_get_item(expr)
        if isinstance(expr, If):
            return self.condition(expr)
        if isinstance(expr, SeqExpr):
            return self.sequence(expr)
        if isinstance(expr, Function):
            return self.function(expr)
        if isinstance(expr, BaseFunc):
            raise TypeMismatch("a TensorIR function cannot be a value; add it to the module and use its GlobalVar")
        raise TypeMismatch(f"expected a graph expression, found {expr!r}")

    def argument(self, expr: Expr) -> Expr:
        """An expression as a leaf, or a tuple of leaves: given a variable if it is none."""
        if isinstance(expr, LEAVES):
            return self.normalize(expr)
        if isinstance(expr, Tuple):
            return self.tuple(expr)
        return self.builder.emit_once(expr)

    def call(self, call: Call) -> Call:
        op = call.op if isinstance(call.op, LEAVES) else self.argument(call.op)
        args = [self.argument(a) for a in call.args]
        if op is not call.op or not same_objects(args, call.args):
            call = call.replace(op=op, args=args)
        if call.struct_info_ is None:
            call.set_struct_info(infer_call(call, self.builder))
        rule = FNormalize.of(call.op) if self.by_operator and isinstance(call.op, Op) else None
        if rule is not None:
            normal = rule(self.builder, call)
            if normal is not call:
                assert isinstance(normal, Call)
                return self.call(normal)
        return call

    def tuple(self, expr: Tuple) -> Tuple:
        fields = [self.argument(f) for f in expr.fields]
        if not same_objects(fields, expr.fields):
            return Tuple(fields, span=expr.span)
        if expr.struct_info_ is None:
            expr._derive()
        return expr

    def tuple_get_item(self, expr: TupleGetItem) -> Expr:
        value = self.argument(expr.tuple_value)
        if isinstance(value, Tuple):
            return value.fields[expr.index]
        if value is not expr.tuple_value:
            return TupleGetItem(value, expr.index, span=expr.span)
        if expr.struct_info_ is None:
            expr._derive()
        if expr.struct_info_ is None:
            expr.set_struct_info(ObjectStructInfo())
        return expr

    def condition(self, expr: If) -> If:
        cond = self.argument(expr.cond)
        true_branch, false_branch = self.scope(expr.true_branch), self.scope(expr.false_branch)
        if not (cond is expr.cond and true_branch is expr.true_branch and false_branch is expr.false_branch):
            expr = If(cond, true_branch, false_branch, span=expr.span)
        if expr.struct_info_ is None:
            known = self.builder.well_defined
            branches = known(true_branch.struct_info), known(false_branch.struct_info)
            expr.set_struct_info(struct_info_lca(*branches, self.builder.analyzer))
        return expr

    def scope(self, body: Expr, params: Sequence[Var] = ()) -> SeqExpr:
        """A body with bindings of its own, as a sequence."""
        builder = self.builder
        if isinstance(body, SeqExpr) and is_normal(body):
            return body
        builder.begin_scope(params)
        builder.begin_binding_block()
        result = self.flattened(body)
        blocks = builder.end_blocks()
        builder.end_scope()
        if isinstance(body, SeqExpr) and same_objects(body.blocks, blocks) and result is body.body:
            if body.struct_info_ is None:
                body._derive()
            return body
        return SeqExpr(blocks, result)

    def flattened(self, body: Expr) -> Expr:
        """Emits the bindings of a body where the builder stands; returns its value as a leaf."""
        builder = self.builder
        while isinstance(body, SeqExpr):
            for block in body.blocks:
                builder.emit_block(block)
            body = body.body
        return self.argument(body)

    def sequence(self, expr: SeqExpr) -> Expr:
        if not self.builder.in_block:
            return self.scope(expr)
        return self.flattened(expr)

    def function(self, func: Function) -> Function:
        body = self.scope(func.body, func.params)
        return func if body is func.body else func.replace(body=body)


def merge_blocks(blocks: list[BindingBlock]) -> list[BindingBlock]:
    """The blocks of a sequence in normal form: none is empty, and no two neighbours are of one kind."""
    merged: list[BindingBlock] = []
    for block in blocks:
        if not block.bindings:
            continue
        if merged and type(merged[-1]) is type(block):
            merged[-1] = block.replace(bindings=merged[-1].bindings + block.bindings)
        else:
            merged.append(block)
    return merged


def _merged(blocks: Sequence[BindingBlock]) -> bool:
    kinds = [isinstance(block, DataflowBlock) for block in blocks if block.bindings]
    return len(kinds) == len(blocks) and all(a is not b for a, b in pairwise(kinds))


def is_leaf(expr: object) -> bool:
    """Whether an expression may be an argument."""
    return isinstance(expr, LEAVES) or (isinstance(expr, Tuple) and all(map(is_leaf, expr.fields)))


def is_normal(body: SeqExpr) -> bool:
    """Whether a sequence is in normal form, with all struct info known."""
    if body.struct_info_ is None or not is_leaf(body.body) or not _merged(body.blocks):
        return False
    return all(_normal_binding(binding) for block in body.blocks for binding in block.bindings)


def _normal_binding(binding: Binding) -> bool:
    value = binding.value
    if binding.var.struct_info_ is None or getattr(value, "struct_info_", None) is None:
        return isinstance(value, (GlobalVar, Op)) and binding.var.struct_info_ is not None
    if isinstance(binding, MatchCast):
        return is_leaf(value)
    assert isinstance(binding, VarBinding)
    if isinstance(value, Call):
        return isinstance(value.op, LEAVES) and all(map(is_leaf, value.args))
    if isinstance(value, If):
        return is_leaf(value.cond) and is_normal(value.true_branch) and is_normal(value.false_branch)
    if isinstance(value, Function):
        return is_normal(value.body)
    if isinstance(value, TupleGetItem):
        return isinstance(value.tuple_value, LEAVES)
    return is_leaf(value)


def erased_outside(info: StructInfo, builder: BlockBuilder) -> StructInfo:
    """Struct info as it is seen outside of the scope that the builder is in."""
    return erase_to_well_defined(info, builder.shape_variable, builder.variable)
