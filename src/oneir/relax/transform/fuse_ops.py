"""FuseOps: calls that may run as one loop nest become one function.

    lv1 = R.call_tir(cls.matmul, (x, w), ...)
    lv2 = R.call_tir(cls.add, (lv1, b), ...)      ->    gv = cls.fused_matmul_add(x, w, b)

What may be fused is decided by the patterns of the TensorIR functions (`AnnotateTIROpPattern`) and stands in
`analysis/fusion_graph.py`. A fused function is private and has the attribute `Primitive`; FuseTIR makes it one TensorIR
function.
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import ModulePass, Pass, PassContext, PassInfo, register_config_option
from ...tir.function import PrimFunc
from ..analysis.fusion_graph import FusionGraph, FusionNode
from ..analysis.struct_info import definable_tir_vars_in_struct_info, tir_vars_in_struct_info
from ..block_builder import BlockBuilder
from ..copy_function import copy_with_new_vars
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..expr_functor import PyExprMutator
from ..op.registry import OpPattern
from ..struct_info import ShapeStructInfo

register_config_option("relax.FuseOps.max_depth", int)

CALL_TIR = Op.get("relax.call_tir")


def FuseOps(fuse_opt_level: int = -1) -> Pass:
    """A pass that groups the calls of each dataflow block into functions.

    `fuse_opt_level` 0 fuses nothing; -1 asks the context's opt_level. The option "relax.FuseOps.max_depth" limits how
    many calls one function has (256).
    """

    def transform(mod: IRModule, ctx: PassContext) -> IRModule:
        level = ctx.opt_level if fuse_opt_level == -1 else fuse_opt_level
        if level == 0:
            return mod
        return _Fuser(mod, ctx.config.get("relax.FuseOps.max_depth", 256)).transform_functions(mod)

    return ModulePass(transform, PassInfo(0, "FuseOps"))


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


class _Fuser(PyExprMutator):
    def __init__(self, mod: IRModule, max_depth: int):
        super().__init__(mod)
        self.mod, self.max_depth = mod, max_depth

    def visit_function_(self, op: Function) -> Expr:
        return op if op.attrs.get("Primitive") else super().visit_function_(op)

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        bindings = without_aliases(block)
        groups = self.groups(bindings)
        if not groups:
            return super().visit_dataflow_block_(block)
        self.builder_.begin_dataflow_block()
        for binding in bindings:
            group = groups.get(binding.var)
            if group is None:
                self.visit_binding(binding)
            elif binding is group.bindings[-1]:
                self.emit_group(group, binding)
        return self.builder_.end_block()

    def groups(self, bindings: list[Binding]) -> dict[Var, _Group]:
        """The group of each binding that is fused with others."""
        graph, nodes = FusionGraph(), {}
        for binding in bindings:
            nodes[binding.var] = self.add_node(graph, binding, nodes)
        graph.partition(self.max_depth)
        groups: dict[int, _Group] = {}
        for binding in bindings:
            root = nodes[binding.var].root()
            if root.size > 1:
                groups.setdefault(root.index, _Group()).bindings.append(binding)
        return {b.var: group for group in groups.values() if group.calls for b in group.bindings}

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
        for leaf in leaves(binding.value):
            if isinstance(leaf, Var) and leaf in nodes:
                nodes[leaf].uses.append((node, pattern))
        return node

    def emit_group(self, group: _Group, last: Binding) -> None:
        func, arguments = group.function()
        var = self.builder_.add_func(func, group.name(self.mod))
        call = Call(var, [self.visit_expr(a) for a in arguments])
        output = isinstance(last.var, DataflowVar)
        self.set_var_remap(last.var, self.builder_.emit(call) if output else self.builder_.emit_output(call))


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
            value.struct_info_ = binding.value.struct_info_
        changed = value is not binding.value or var is not binding.var
        result.append(binding.replace(var=var, value=value) if changed else binding)
    return result


class _Group:
    """Bindings that become one function."""

    def __init__(self) -> None:
        self.bindings: list[Any] = []

    @property
    def calls(self) -> list[Call]:
        return [b.value for b in self.bindings if isinstance(b.value, Call)]

    def name(self, mod: IRModule) -> str:
        """`fused` and the names of the functions that are called."""
        return "_".join(["fused", *(getattr(call.args[0], "name_hint", "op") for call in self.calls)])

    def function(self) -> tuple[Function, list[Expr]]:
        """The function, whose parameters are what the group uses from outside, and what these are here.

        Of a tuple from outside, the fields that the group takes are parameters.
        """
        inner: dict[Any, Var] = {}
        arguments: list[Expr] = []
        params: list[Var] = []
        body: list[Any] = []
        constants = 0
        own = {b.var for b in self.bindings}

        def parameter(key: Any, name: str, argument: Expr) -> Var:
            if key not in inner:
                inner[key] = Var(name, argument.struct_info)
                params.append(inner[key])
                arguments.append(argument)
            return inner[key]

        for binding in self.bindings:
            value = binding.value
            if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Var) and value.tuple_value not in own:
                source, index = value.tuple_value, value.index
                inner[binding.var] = parameter((source, index), f"{source.name}_{index}", value)
                continue
            body.append(binding)
            for leaf in leaves(value):
                if leaf in own or leaf in inner:
                    continue
                parameter(leaf, leaf.name if isinstance(leaf, Var) else f"param_{constants}", leaf)
                constants += not isinstance(leaf, Var)
        symbolic = self.free_symbolic_variables(params)
        if symbolic:
            params.append(Var("tir_vars", ShapeStructInfo(symbolic)))
            arguments.append(ShapeExpr(symbolic))
        builder = BlockBuilder()
        with builder.function("fused", params, {"Primitive": True}, private=True):
            with builder.dataflow():
                rename = _Inside(inner)
                for binding in body[:-1]:
                    value = rename.visit_expr(binding.value)
                    rename.variables[binding.var] = self._bind(builder, binding, value)
                output = builder.emit_output(rename.visit_expr(body[-1].value))
            builder.emit_func_output(output)
        # Symbolic variables are a function's own.
        return copy_with_new_vars(builder.get()["fused"]), arguments

    def _bind(self, builder: BlockBuilder, binding: VarBinding, value: Expr) -> Var:
        var = DataflowVar(binding.var.name, binding.var.struct_info)
        builder.emit_normalized(VarBinding(var, builder.normalize(value), binding.span))
        return var

    def free_symbolic_variables(self, params: list[Var]) -> list[Any]:
        """Symbolic variables that the group uses and no parameter's shape gives."""
        known = {v for p in params for v in definable_tir_vars_in_struct_info(p.struct_info)}
        used: dict[Any, None] = {}
        for binding in self.bindings:
            for info in getattr(binding.value, "sinfo_args", ()):
                used.update(dict.fromkeys(tir_vars_in_struct_info(info)))
            for a in getattr(binding.value, "args", ()):
                if isinstance(a, ShapeExpr):
                    used.update(dict.fromkeys(tir_vars_in_struct_info(a.struct_info)))
        for p in params:
            used.update(dict.fromkeys(tir_vars_in_struct_info(p.struct_info)))
        return [v for v in used if v not in known]


class _Inside(PyExprMutator):
    """Expressions of a group as they stand in its function."""

    def __init__(self, variables: dict[Any, Var]):
        super().__init__()
        self.variables = variables

    def visit_var_(self, op: Var) -> Expr:
        return self.variables.get(op, op)

    def visit_constant_(self, op: Constant) -> Expr:
        return self.variables.get(op, op)
