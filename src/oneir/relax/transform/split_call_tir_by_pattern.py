"""SplitCallTIRByPattern: the part of a fused kernel that a library computes becomes a call of the library.

    gv = R.call_tir(cls.fused_matmul_relu, (x, w), ...)
->
    lv = R.call_dps_packed("fused_matmul_relu", (x, w), ...)    # its source is an attribute of the external function
    gv = R.call_tir(cls.unfused_epilogue, (lv,), ...)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.expr import GlobalVar, IntImm
from ...ir.expr import Var as TirVar
from ...ir.module import BaseFunc, IRModule
from ...ir.op import Op
from ...ir.transform import ModulePass, PassContext
from ...ir.visitor import post_order_visit
from ...runtime.error import InvalidValue
from ...tir.buffer import Buffer
from ...tir.function import PrimFunc
from ...tir.stmt import Block, BlockRealize, Stmt, stmt_list, stmt_seq
from ...tir.stmt_functor import renew_defs
from ..analysis.loop_pattern import MatchResult, match_loops, root_block
from ..expr import Call, Expr, ExternFunc, ShapeExpr, Tuple
from ..expr_functor import PyExprMutator
from ..struct_info import TensorStructInfo

CALL_TIR, CALL_DPS_PACKED = Op.get("relax.call_tir"), Op.get("relax.call_dps_packed")
Codegen = Callable[[list[MatchResult]], Sequence[Any]]


class SplitCallTIRByPattern(ModulePass):
    """Splits called PrimFuncs after the loop nests that a library computes.

    `patterns` are functions of one loop nest; they are matched with the first loop nests of a function, one after the
    other. `fcodegen(matches)` returns the library's source, in which `{global_symbol}` stands for the name of the
    function, how many of the loop nests it computes (0: none), and the parameters' buffers that it reads.

    Raises `InvalidValue` where it returns another number of values, more loop nests than were matched, or buffers that
    are no parameters.
    """

    patterns: Sequence[PrimFunc]
    fcodegen: Codegen

    def __post_init__(self) -> None:
        object.__setattr__(self, "patterns", tuple(self.patterns))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _Splitter(mod, self.patterns, self.fcodegen).run()


class _Split:
    """A kernel in two parts: what a library computes, and the rest."""

    def __init__(self, source: str, arguments: list[int]):
        self.source, self.arguments = source, arguments
        self.between: Buffer | None = None
        """What the library writes, for the rest to read; None where there is no rest."""
        self.rest: PrimFunc | None = None
        self.rest_arguments: list[int] = []


class _Splitter(PyExprMutator):
    def __init__(self, mod: IRModule, patterns: Sequence[PrimFunc], fcodegen: Codegen):
        super().__init__(mod)
        self.mod, self.patterns, self.fcodegen = mod, patterns, fcodegen
        self.splits: dict[GlobalVar, _Split | None] = {}

    def run(self) -> IRModule:
        result = self.transform_functions(self.mod)
        changed: dict[GlobalVar, BaseFunc] = {}
        for var, split in self.splits.items():
            if split is not None:
                func = self.mod.functions[var]
                whole = self._library(var, split) if split.rest is None else func.without_attr("global_symbol")
                changed[var] = whole
        return result.replace(functions={**result.functions, **changed}) if changed else result

    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        callee = call.args[0] if isinstance(call, Call) and call.op is CALL_TIR else None
        if not isinstance(call, Call) or not isinstance(callee, GlobalVar):
            return call
        args = call.args[1]
        func = self.mod.functions.get(callee)
        if callee not in self.splits:
            self.splits[callee] = self._split(func) if isinstance(func, PrimFunc) and len(call.args) == 2 else None
        split = self.splits[callee]
        if split is None:
            return call
        library = self._library(callee, split)
        if split.rest is None or split.between is None:
            return Call(CALL_DPS_PACKED, [library, args], call.attrs, call.sinfo_args, call.span)
        values = list(args.fields) if isinstance(args, Tuple) else [args]
        info = TensorStructInfo(ShapeExpr(split.between.shape), split.between.dtype)
        inputs = Tuple([values[i] for i in split.arguments])
        first = self.builder_.emit(Call(CALL_DPS_PACKED, [library, inputs], call.attrs, [info]))
        rest = self.builder_.add_func(split.rest, "unfused_epilogue")
        others = [values[i] for i in split.rest_arguments]
        return Call(CALL_TIR, [rest, Tuple([first, *others])], call.attrs, call.sinfo_args, call.span)

    def _library(self, callee: GlobalVar, split: _Split) -> ExternFunc:
        name = callee.name_hint
        attrs = {"c_source": split.source.replace("{global_symbol}", name), "c_source_fmt": "cu"}
        return ExternFunc(name, attrs=attrs)

    def _split(self, func: PrimFunc) -> _Split | None:
        root = root_block(func)
        if root is None:
            return None
        nests = stmt_list(root.body)
        matches: list[MatchResult] = []
        for nest in nests:
            match = next((m for p in self.patterns if (m := match_loops(p, nest)) is not None), None)
            if match is None:
                break
            matches.append(match)
        if not matches:
            return None
        answer = self.fcodegen(matches)
        if len(answer) != 3:
            raise InvalidValue(
                "SplitCallTIRByPattern: the function that makes the library's source returns the source, how many loop "
                f"nests it computes, and the buffers that it reads; found {len(answer)} values"
            )
        source, count, buffers = answer
        count = count.value if isinstance(count, IntImm) else int(count)
        if count == 0:
            return None
        places = {func.buffer_map[p]: i for i, p in enumerate(func.params) if p in func.buffer_map}
        if count > len(matches) or any(b not in places for b in buffers):
            raise InvalidValue(
                f"SplitCallTIRByPattern: the library is to compute {count} of {len(matches)} loop nests that were "
                f"matched, from {', '.join(b.name for b in buffers)}; expected parameters of the function"
            )
        split = _Split(str(source), [places[b] for b in buffers])
        if count == len(nests):
            return split
        return split if _add_rest(split, func, root, nests[:count], nests[count:], places) else None


def _add_rest(
    split: _Split, func: PrimFunc, root: Block, done: list[Stmt], left: list[Stmt], places: dict[Buffer, int]
) -> bool:
    """Makes a PrimFunc of the remaining loop nests; whether they read only one buffer that those before them write."""
    written = _accessed(done)[1]
    reads, writes = _accessed(left)
    between = _accessed(done[-1:])[1]
    # What the library writes has to be its one result, which the others read and do not write.
    if len(between) != 1 or between[0] in places or any(b in written for b in writes):
        return False
    if any(b in written and b is not between[0] for b in reads):
        return False
    split.between = between[0]
    last = len(func.params) - 1
    params = [(i, p) for i, p in enumerate(func.params) if func.buffer_map.get(p) in (*reads, *writes)]
    source = TirVar("input", "handle")
    buffer_map = {source: between[0], **{p: func.buffer_map[p] for _, p in params}}
    kept = [b for b in root.alloc_buffers if b in writes]
    body = BlockRealize((), True, root.replace(body=stmt_seq(*left), alloc_buffers=kept))
    rest = PrimFunc([source, *(p for _, p in params)], body, func.ret_type, buffer_map, func.attrs)
    split.rest = renew_defs(rest.without_attr("global_symbol"))
    split.rest_arguments = [i for i, _ in params if i != last]
    return True


def _accessed(stmts: Sequence[Stmt]) -> tuple[list[Buffer], list[Buffer]]:
    """The buffers that blocks read and write, as they declare."""
    reads: dict[Buffer, None] = {}
    writes: dict[Buffer, None] = {}

    def visit(node: Any) -> None:
        if isinstance(node, Block):
            reads.update(dict.fromkeys(r.buffer for r in node.reads))
            writes.update(dict.fromkeys(w.buffer for w in node.writes))

    for stmt in stmts:
        post_order_visit(stmt, visit)
    return list(reads), list(writes)
