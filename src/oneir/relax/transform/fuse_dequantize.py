"""Weights that are larger than what they are made of are made where they are read: in products and in gathers.

Dequantization reads words and scales and writes floats, which are several times as large. In a kernel of its own, they
go through memory twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...ir.expr import GlobalVar, IntImm
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...tir.expr import IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from ...tir.stmt import Block
from ...tir.stmt_functor import post_order_visit
from ..expr import Binding, Call, DataflowVar, Expr, Function, Var, VarBinding
from ..operator_facts import OpPattern
from ..struct_info import TensorStructInfo
from .binding_groups import BindingGroup, GroupFuser
from .dead_code_elimination import DeadCodeElimination
from .fuse_ops import CALL_TIR, leaves, pattern_of_call
from .fuse_tir import FuseTIR


class FuseDequantizeMatmul(ModulePass):
    """Makes one kernel of a product and of the kernel that makes one of its factors out of fewer bytes.

    It looks at calls of kernels, so it comes after legalization, `AnnotateTIROpPattern` and the fusion of what follows
    products (`FuseOps`, `FuseTIR`). A factor that several kernels read stays a kernel.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _fused(mod, reduces=True)


class FuseDequantizeTake(ModulePass):
    """Makes one kernel of a gather and of the kernel that makes what it reads out of fewer bytes.

    It looks at calls of kernels, so it comes after legalization and `AnnotateTIROpPattern`, and before `FuseOps`, which
    would make one kernel of the two with the whole of what is read in it.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _fused(mod, reduces=False)


def _fused(mod: IRModule, reduces: bool) -> IRModule:
    fuser = _Fuser(mod, reduces)
    grouped = fuser.transform_functions(mod)
    if not fuser.blocks:
        return mod
    before = set(mod.functions)
    fused = FuseTIR()(grouped)
    functions = {
        var: _inlined(func, fuser.blocks) if isinstance(func, PrimFunc) and var not in before else func
        for var, func in fused.functions.items()
    }
    return DeadCodeElimination()(fused.replace(functions=functions))


class _Fuser(GroupFuser):
    """Groups each consumer with the producers of what it reads. `blocks` are the names of the producers' blocks."""

    def __init__(self, mod: IRModule, reduces: bool):
        super().__init__(mod)
        self.reduces = reduces
        self.blocks: set[str] = set()

    def visit_function_(self, op: Function) -> Expr:
        return op if op.attrs.get("Primitive") else super().visit_function_(op)

    def groups_of(self, bindings: Sequence[Binding]) -> dict[Var, BindingGroup]:
        uses = Counter(leaf for b in bindings for leaf in leaves(b.value) if isinstance(leaf, Var))
        producers: dict[Var, str] = {}
        groups: dict[Var, BindingGroup] = {}
        for binding in bindings:
            value = binding.value
            if not isinstance(binding, VarBinding) or not isinstance(value, Call) or value.op is not CALL_TIR:
                continue
            found = [leaf for leaf in leaves(value) if isinstance(leaf, Var) and leaf in producers]
            if found and self._is_consumer(value):
                groups[binding.var] = group = BindingGroup()
                group.add_output(binding.var)
                for var in found:
                    groups[var] = group
                    self.blocks.add(producers[var])
            elif isinstance(binding.var, DataflowVar) and uses[binding.var] == 1:
                block = self._grows(value)
                if block is not None:
                    producers[binding.var] = block
        return groups

    def _func(self, call: Call) -> PrimFunc | None:
        callee = call.args[0]
        func = self.mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
        return func if isinstance(func, PrimFunc) else None

    def _grows(self, call: Call) -> str | None:
        """The one block of a kernel of single elements that writes more bytes than it reads."""
        func = self._func(call)
        if func is None or pattern_of_call(call, self.mod) > OpPattern.INJECTIVE:
            return None
        blocks = _blocks(func)
        written = _bytes(call.struct_info)
        read = [_bytes(leaf.struct_info) for leaf in leaves(call)]
        if len(blocks) != 1 or written is None or None in read or sum(n for n in read if n) >= written:
            return None
        return blocks[0].name_hint

    def _is_consumer(self, call: Call) -> bool:
        func = self._func(call)
        if func is None or func.attrs.get("tir.is_scheduled"):
            return False
        reduces = any(v.iter_type == IterVar.CommReduce for block in _blocks(func) for v in block.iter_vars)
        return reduces == self.reduces


def _blocks(func: PrimFunc) -> list[Block]:
    """The blocks of a function but the one around them all."""
    found: list[Block] = []
    post_order_visit(func.body, lambda node: found.append(node) if isinstance(node, Block) else None)
    return found[:-1]


def _inlined(func: PrimFunc, names: set[str]) -> PrimFunc:
    """A fused function whose producers are computed where they are read."""
    schedule = Schedule(func)
    for block in _blocks(func):
        # A name that another block of the function has already got a number behind it.
        if any(block.name_hint == name or block.name_hint.removeprefix(f"{name}_").isdigit() for name in names):
            schedule.compute_inline(block.name_hint)
    inlined = schedule.mod["main"]
    assert isinstance(inlined, PrimFunc)
    return inlined


def _bytes(info: object) -> int | None:
    """The size of a tensor of known extents."""
    if not isinstance(info, TensorStructInfo) or info.extents is None or info.dtype is None:
        return None
    total = info.dtype.bits
    for extent in info.extents:
        if not isinstance(extent, IntImm):
            return None
        total *= extent.value
    return total // 8
