"""InstrumentProfileIntrinsics: calls around a function's body and its loops, for a profiler to count and time.

Each section has a number of its own, in the order of the program; a target's runtime says what
`T.start_profile_intrinsic(number)` and `T.end_profile_intrinsic(number)` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.expr import PrimExpr, const
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext, register_config_option
from ...ir.visitor import Visitor
from ..function import PrimFunc
from ..op_vendor import end_profile_intrinsic, start_profile_intrinsic
from ..stmt import Evaluate, For, ForKind, SeqStmt, Stmt, flat_seq
from ..stmt_functor import StmtMapper

register_config_option("tir.instrument_lwp", bool)
register_config_option("tir.lwp_disable_func_prof", bool)
register_config_option("tir.lwp_max_depth", int)
register_config_option("tir.lwp_min_height", int)
register_config_option("tir.instr_siblings", bool)
register_config_option("tir.reset_start_id", bool)


class InstrumentProfileIntrinsics(ModulePass, name="tir.InstrumentProfileIntrinsics"):
    """Marks sections for a profiler: each function, unless "tir.lwp_disable_func_prof", and its loops.

    Of the loops outside of parallel ones those that stand beside others (all with "tir.instr_siblings": False) and have
    at least "tir.lwp_min_height" (1) loops inside of one another below them, down to a depth of "tir.lwp_max_depth"
    (0: any).
    A function and then all its loops, marked or not, are numbered in the order of the program: through all functions,
    or from 0 in each with "tir.reset_start_id".
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        options = ctx.config
        functions: dict[Any, Any] = {}
        number = 0
        for var, func in mod.functions.items():
            functions[var] = func
            if isinstance(func, PrimFunc):
                heights = _Heights()
                heights(func.body)
                instrument = _Instrument(number, heights.of, options)
                whole = not options.get("tir.lwp_disable_func_prof", False)
                instrument.next += 1
                body = instrument(func.body)
                body = bracket(number, body) if whole else body
                number = 0 if options.get("tir.reset_start_id", False) else instrument.next
                functions[var] = func.with_body(body)
        if all(functions[var] is func for var, func in mod.functions.items()):
            return mod
        return mod.replace(functions=functions)


class _Heights(Visitor):
    """The height of the loop nest below each loop."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[int, int] = {}
        self.highest = 0

    def visit_PrimExpr(self, node: PrimExpr) -> None:
        pass

    def visit_For(self, node: For) -> None:
        beside, self.highest = self.highest, 0
        self.visit(node.body)
        self.of[id(node)] = self.highest
        self.highest = max(beside, self.highest + 1)


class _Instrument(StmtMapper):
    def __init__(self, first: int, heights: dict[int, int], options: Mapping[str, Any]):
        super().__init__()
        self.next, self.heights = first, heights
        self.max_depth = options.get("tir.lwp_max_depth", 0)
        self.min_height = options.get("tir.lwp_min_height", 1)
        self.siblings = options.get("tir.instr_siblings", True)
        self.depth = 0
        self.beside_others = self.parallel = False

    def visit_SeqStmt(self, node: SeqStmt) -> Any:
        beside_others = sum(isinstance(stmt, For) for stmt in node.seq) > 1
        seq: list[Stmt] = []
        for stmt in node.seq:
            self.beside_others = beside_others
            seq.append(self.visit(stmt))
        self.beside_others = False
        return node if all(a is b for a, b in zip(seq, node.seq, strict=True)) else flat_seq(seq)

    def visit_For(self, node: For) -> Any:
        chosen = (
            node.kind in (ForKind.SERIAL, ForKind.PARALLEL)
            and not self.parallel
            and (not self.max_depth or self.depth < self.max_depth)
            and self.heights[id(node)] >= self.min_height
            and (self.beside_others or not self.siblings)
        )
        number, parallel = self.next, self.parallel
        self.next += 1
        self.beside_others = False
        self.parallel = parallel or node.kind is ForKind.PARALLEL
        self.depth += 1
        new = self.generic_visit(node)
        self.depth -= 1
        self.parallel = parallel
        return bracket(number, new) if chosen else new


def bracket(number: int, body: Stmt) -> Stmt:
    """A section between the calls that say where it begins and ends."""
    section = const(number)
    return flat_seq([Evaluate(start_profile_intrinsic(section)), body, Evaluate(end_profile_intrinsic(section))])
