"""SplitLayoutRewritePreproc: what brings weights into another layout becomes a function of its own.

    y = R.call_tir(cls.matmul, (x, w), R.Tensor((16, 16), "float32"))
->
    lv = R.call_tir(cls.matmul_weight_prepack, (w,), R.Tensor((4, 16, 4), "float32"))
    y = R.call_tir(cls.matmul_prepacked, (x, lv), R.Tensor((16, 16), "float32"))

In a kernel, the blocks that copy a weight carry the annotation "meta_schedule.layout_rewrite_preproc". What is split
off depends on weights alone, so it can be computed once (`LiftTransformParams`, `FoldConstant`).
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import GlobalVar, IntImm
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext, Sequential
from ...runtime.error import InvalidValue
from ...tir.buffer import Buffer
from ...tir.function import PrimFunc
from ...tir.stmt import Block, BlockRealize, SeqStmt, Stmt, flat_seq
from ...tir.stmt_functor import StmtMapper, renew_defs
from ...tir.transform.remove_weight_layout_rewrite_block import ANNOTATION
from ..expr import Call, Expr, Tuple, TupleGetItem
from ..expr_functor import PyExprMutator
from ..op.base import call_tir
from ..struct_info import TensorStructInfo
from .dead_code_elimination import DeadCodeElimination


class SplitLayoutRewritePreproc(ModulePass):
    """Splits the PrimFuncs of `call_tir` into those that rewrite weights and those that compute.

    Raises `InvalidValue` for a block with the annotation that does not copy one parameter into one buffer of constant
    shape, or that stands under one statement with a block that computes.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return Sequential([_SplitCalls(), DeadCodeElimination()]).transform_module(mod, ctx)


class _SplitCalls(ModulePass, name="SplitLayoutRewritePreproc"):
    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        parts = {var: _split(var, func) for var, func in mod.functions.items() if isinstance(func, PrimFunc)}
        found = {var: part for var, part in parts.items() if part is not None}
        return _Calls(mod, found).transform_functions(mod) if found else mod


class _Parts:
    """The two functions, and which parameters are rewritten into which buffers."""

    def __init__(self, prepack: PrimFunc, compute: PrimFunc, rewritten: dict[int, Buffer]):
        self.prepack, self.compute, self.rewritten = prepack, compute, rewritten


class _Blocks(StmtMapper):
    """Takes the annotations off, and notes which blocks have one."""

    def __init__(self) -> None:
        super().__init__()
        self.rewrites: list[Block] = []
        self.computes = False

    def visit_Block(self, block: Block) -> Any:
        if not block.annotations.get(ANNOTATION):
            self.computes = True
            return self.generic_visit(block)
        self.rewrites.append(block)
        kept = {key: value for key, value in block.annotations.items() if key != ANNOTATION}
        return block.replace(annotations=kept)


def _split(var: GlobalVar, func: PrimFunc) -> _Parts | None:
    """The parts of a function; None for one that rewrites nothing."""
    root = func.body.block if isinstance(func.body, BlockRealize) else None
    if root is None:
        return None
    prepack: list[Stmt] = []
    compute: list[Stmt] = []
    rewritten: dict[int, tuple[Buffer, Buffer]] = {}
    for stmt in root.body.seq if isinstance(root.body, SeqStmt) else [root.body]:
        blocks = _Blocks()
        new = blocks(stmt)
        if blocks.rewrites and blocks.computes:
            raise InvalidValue(
                f"SplitLayoutRewritePreproc: in `{var.name_hint}`, the block {blocks.rewrites[0].name_hint} that "
                "rewrites a weight stands under one statement with a block that computes; put it under the root block"
            )
        for block in blocks.rewrites:
            index, *buffers = _rewrite_of(var, func, block)
            rewritten[index] = (buffers[0], buffers[1])
        (prepack if blocks.rewrites else compute).append(new)
    if not prepack:
        return None
    order = sorted(rewritten)
    sources, targets = ([rewritten[i][side] for i in order] for side in (0, 1))
    names = [TirVar(b.name, "handle") for b in (*sources, *targets)]
    whole = Block([], [], [], "root", flat_seq(prepack))
    first = _function(func, names, dict(zip(names, (*sources, *targets), strict=True)), whole, "_weight_prepack")
    params = list(func.params)
    buffers_of = {p: b for p, b in func.buffer_map.items() if params.index(p) not in rewritten}
    for index, name, target in zip(order, names[len(order) :], targets, strict=True):
        params[index] = TirVar(name.name, "handle")
        buffers_of[params[index]] = target
    inner = [b for b in root.alloc_buffers if b not in targets]
    rest = root.replace(body=flat_seq(compute), alloc_buffers=inner)
    second = _function(func, params, buffers_of, rest, "_prepacked")
    return _Parts(first, second, {i: target for i, (_, target) in sorted(rewritten.items())})


def _rewrite_of(var: GlobalVar, func: PrimFunc, block: Block) -> tuple[int, Buffer, Buffer]:
    """Of a block that rewrites a weight: the position of the parameter, its buffer, the buffer written."""
    where = f"SplitLayoutRewritePreproc: in `{var.name_hint}`, the block {block.name_hint} that rewrites a weight"
    if len(block.reads) != 1 or len(block.writes) != 1 or block.alloc_buffers or block.match_buffers:
        raise InvalidValue(
            f"{where} must read one buffer, write one, and make none; it reads {len(block.reads)}, writes "
            f"{len(block.writes)} and makes {len(block.alloc_buffers) + len(block.match_buffers)}"
        )
    source, target = block.reads[0].buffer, block.writes[0].buffer
    index = next((i for i, param in enumerate(func.params) if func.buffer_map.get(param) is source), None)
    if index is None:
        raise InvalidValue(f"{where} must read a parameter, found the buffer {source.name}")
    if not all(isinstance(extent, IntImm) for extent in target.shape):
        raise InvalidValue(f"{where} must write a buffer of constant shape, found {list(target.shape)}")
    return index, source, target


def _function(func: PrimFunc, params: list[TirVar], buffers: dict[Any, Buffer], root: Block, suffix: str) -> PrimFunc:
    """One of the parts, with the attributes of the whole."""
    attrs = {key: value for key, value in func.attrs.items() if key != "layout_free_buffers"}
    if "global_symbol" in attrs:
        attrs["global_symbol"] = f"{attrs['global_symbol']}{suffix}"
    body = BlockRealize([], True, root)
    return renew_defs(PrimFunc(params, body, func.ret_type, buffers, attrs))


class _Calls(PyExprMutator):
    def __init__(self, mod: IRModule, parts: dict[GlobalVar, _Parts]):
        super().__init__(mod)
        self.parts = parts

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or call.op is not call_tir.op:
            return call
        callee, args, *rest = call.args
        if not isinstance(callee, GlobalVar) or callee not in self.parts or not isinstance(args, Tuple):
            return call
        parts = self.parts[callee]
        prepack = self.builder_.add_func(parts.prepack, f"{callee.name_hint}_weight_prepack")
        compute = self.builder_.add_func(parts.compute, f"{callee.name_hint}_prepacked")
        infos = [TensorStructInfo(buffer.shape, buffer.dtype) for buffer in parts.rewritten.values()]
        weights = [args.fields[i] for i in parts.rewritten]
        packed = self.builder_.emit(call_tir(prepack, Tuple(weights), infos if len(infos) > 1 else infos[0]))
        fields = list(args.fields)
        for place, index in enumerate(parts.rewritten):
            fields[index] = TupleGetItem(packed, place) if len(infos) > 1 else packed
        return self.builder_.emit(Call(call.op, [compute, Tuple(fields), *rest], None, call.sinfo_args, call.span))
