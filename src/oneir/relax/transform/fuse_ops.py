"""FuseOps: calls that may run as one loop nest become one function.

    lv1 = R.call_tir(cls.matmul, (x, w), ...)
    lv2 = R.call_tir(cls.add, (lv1, b), ...)      ->    gv = cls.fused_matmul_add(x, w, b)

What may be fused is decided by the patterns of the TensorIR functions (`AnnotateTIROpPattern`) and stands in
`analysis/fusion_graph.py`. A fused function is private and has the attribute `Primitive`; FuseTIR makes it one TensorIR
function.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import ModulePass, PassContext, register_config_option
from ...target.target import Target
from ...tir.function import PrimFunc
from ..analysis.fusion_graph import FusionGraph, FusionNode
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..expr_functor import PyExprMutator
from ..operator_facts import OpPattern
from ..struct_info import TupleStructInfo
from .binding_groups import BindingGroup, GroupFuser

register_config_option("relax.FuseOps.max_depth", int)

CALL_TIR = Op.get("relax.call_tir")


class FuseOps(ModulePass):
    """Groups the calls of each dataflow block into functions.

    `fuse_opt_level` 0 fuses nothing; -1 asks the context's opt_level. The option "relax.FuseOps.max_depth" limits how
    many calls one function has (256); the target that is entered, how many tensors (`Target.max_kernel_tensors`).
    """

    fuse_opt_level: int = -1

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        level = ctx.opt_level if self.fuse_opt_level == -1 else self.fuse_opt_level
        if level == 0:
            return mod
        return _Fuser(mod, ctx.config.get("relax.FuseOps.max_depth", 256)).transform_functions(mod)


def pattern_of_call(call: Call, mod: IRModule) -> OpPattern:
    """The pattern of a call: that of the TensorIR function for `call_tir`; of everything else nothing is known."""
    if call.op is CALL_TIR:
        callee = call.args[0]
        func = mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
        if isinstance(func, PrimFunc) and "op_pattern" in func.attrs:
            return OpPattern(func.attrs["op_pattern"])
    return OpPattern.OPAQUE


def leaves(expr: Expr) -> list[Expr]:
    """The variables and constants among the arguments of a normal expression."""
    if isinstance(expr, (Var, Constant)):
        return [expr]
    if isinstance(expr, Tuple):
        return [leaf for field in expr.fields for leaf in leaves(field)]
    if isinstance(expr, Call):
        return [leaf for a in expr.args for leaf in leaves(a)]
    if isinstance(expr, TupleGetItem):
        return leaves(expr.tuple_value)
    return []


class _Fuser(GroupFuser):
    def __init__(self, mod: IRModule, max_depth: int):
        super().__init__(mod)
        self.max_depth = max_depth

    def visit_function_(self, op: Function) -> Expr:
        return op if op.attrs.get("Primitive") else super().visit_function_(op)

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        bindings = without_aliases(block)
        groups = self.groups_of(bindings)
        return self.fused(bindings, groups) if groups else super().visit_dataflow_block_(block)

    def groups_of(self, bindings: Sequence[Binding]) -> dict[Var, BindingGroup]:
        graph, nodes = FusionGraph(), {}
        for binding in bindings:
            nodes[binding.var] = self.add_node(graph, binding, nodes)
        target = Target.current(allow_none=True)
        graph.partition(self.max_depth, None if target is None else target.max_kernel_tensors)
        roots = {var: node.root() for var, node in nodes.items()}
        called = {roots[b.var].index for b in bindings if isinstance(b.value, Call)}
        groups = {index: BindingGroup() for index in called}
        return {var: groups[root.index] for var, root in roots.items() if root.size > 1 and root.index in called}

    def add_node(self, graph: FusionGraph, binding: Binding, nodes: dict[Var, FusionNode]) -> FusionNode:
        value = binding.value if isinstance(binding, VarBinding) else None
        if isinstance(value, Call):
            pattern = pattern_of_call(value, self.mod)
        elif isinstance(value, TupleGetItem):
            pattern = OpPattern.INJECTIVE
        else:
            pattern = OpPattern.OPAQUE
        node = graph.add(binding.var, pattern)
        node.escapes = not isinstance(binding.var, DataflowVar)
        node.reads = leaves(binding.value)
        info = binding.var.struct_info
        node.tensors = len(info.fields) if isinstance(info, TupleStructInfo) else 1
        for leaf in leaves(binding.value):
            if isinstance(leaf, Var) and leaf in nodes:
                nodes[leaf].uses.append((node, pattern))
        return node


def without_aliases(block: DataflowBlock) -> list[Binding]:
    """The bindings, where an output that only renames a value of the block is that value itself."""
    renamed: dict[Var, Var] = {}
    for binding in block.bindings:
        value = binding.value
        if not isinstance(binding.var, DataflowVar) and isinstance(value, DataflowVar) and value not in renamed:
            renamed[value] = binding.var
    if not renamed:
        return list(block.bindings)

    class Rename(PyExprMutator):
        def visit_var_(self, op: Var) -> Expr:
            return renamed.get(op, op)

    rename, result = Rename(), []
    for binding in block.bindings:
        if isinstance(binding.value, Var) and renamed.get(binding.value) is binding.var:
            continue
        value = rename.visit_expr(binding.value)
        var = renamed.get(binding.var, binding.var)
        if isinstance(value, Call) and value.struct_info_ is None:
            value.set_struct_info(binding.value.struct_info_)
        changed = value is not binding.value or var is not binding.var
        result.append(binding.replace(var=var, value=value) if changed else binding)
    return result
