"""MergeCompositeFunctions: neighbouring composite functions for one compiler become one function.

    lv = cls.fused_conv2d(x, w)    # Composite "dnnl.conv2d"
    gv = cls.fused_relu(lv)        # Composite "dnnl.relu"    ->    gv = cls.fused_conv2d_relu_dnnl(x, w)

The function has the attribute `Codegen`, and the composite ones as local functions, so that it stands by itself. Calls
are not merged where the function would need what others compute from its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import NotRegistered
from ..copy_function import copy_with_new_vars
from ..expr import Binding, Call, Expr, Function, Var
from ..expr_functor import PyExprMutator
from .binding_groups import BindingGroup, GroupFuser
from .dead_code_elimination import DeadCodeElimination
from .fuse_ops_by_pattern import codegen_name
from .to_non_dataflow import to_non_dataflow


class MergeCompositeFunctions(ModulePass):
    """Merges the composite functions, as `FuseOpsByPattern` makes them, that `main` calls.

    Raises `NotRegistered` for a module without a graph function `main`.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        main = next((v for v in mod.functions if v.name_hint == "main"), None)
        func = mod.functions[main] if main is not None else None
        if main is None or not isinstance(func, Function):
            raise NotRegistered(
                "MergeCompositeFunctions merges what the graph function `main` calls; the module has none"
            )
        merger = _Merger(mod)
        new = merger.visit_expr(func)
        if new is func:
            return mod
        merged = merger.builder_.get()
        merged.update_func(main, new)
        return DeadCodeElimination(["main"])(_Finisher(mod, merged).run(main))


def _composite(mod: IRModule, value: Expr) -> str | None:
    """The name of the pattern that a call's function was made from."""
    if isinstance(value, Call) and isinstance(value.op, GlobalVar):
        func = mod.functions.get(value.op)
        if isinstance(func, Function):
            return func.attrs.get("Composite")
    return None


class _Node:
    """Calls that are merged so far, or a single other binding; `needs` are the bits of all nodes that it needs."""

    def __init__(self, index: int, compiler: str | None):
        self.bit, self.compiler = 1 << index, compiler
        self.needs = 0
        self.variables: list[Var] = []


class _Merger(GroupFuser):
    def groups_of(self, bindings: Sequence[Binding]) -> dict[Var, BindingGroup]:
        nodes: list[_Node] = []
        node_of: dict[Var, _Node] = {}
        required = self.requirements(bindings)
        for index, binding in enumerate(bindings):
            composite = _composite(self.mod, binding.value)
            compiler = None if composite is None else codegen_name(composite)
            if isinstance(binding.value, Var) and binding.value in node_of:  # another name of a result
                compiler = node_of[binding.value].compiler
            sources = list(dict.fromkeys(node_of[v] for v in required[binding.var] if v in node_of))
            node = self._place(nodes, node_of, index, compiler, sources)
            node.variables.append(binding.var)
            node_of[binding.var] = node
            for source in sources:
                if source in nodes and source is not node:
                    node.needs |= source.bit | source.needs
            for other in nodes if len(node.variables) > 1 else ():
                if other.needs & node.bit:
                    other.needs |= node.needs
        groups: dict[Var, BindingGroup] = {}
        for node in nodes:
            if node.compiler is not None:
                groups.update(dict.fromkeys(node.variables, BindingGroup({"Codegen": node.compiler})))
        return groups

    def _place(
        self, nodes: list[_Node], node_of: dict[Var, _Node], index: int, compiler: str | None, sources: list[_Node]
    ) -> _Node:
        """The node that a binding goes to: one of those that it uses, with which others are merged, or a new one."""
        through = 0
        for source in sources:
            through |= source.needs
        same = [s for s in sources if compiler is not None and s.compiler == compiler and not s.bit & through]
        if not same:
            node = _Node(index, compiler)
            nodes.append(node)
            return node
        first, *others = same
        for other in others:
            for var in other.variables:
                node_of[var] = first
            first.variables += other.variables
            first.needs |= other.needs
            nodes.remove(other)
            for node in nodes:
                if node.needs & other.bit:
                    node.needs |= first.bit | first.needs
                    node.needs &= ~other.bit
        return first


class _Finisher(PyExprMutator):
    """Gives merged functions their names and the composite functions that they call."""

    def __init__(self, original: IRModule, merged: IRModule):
        super().__init__(merged)
        self.original, self.merged = original, merged
        self.finished: dict[GlobalVar, GlobalVar] = {}

    def run(self, main: GlobalVar) -> IRModule:
        self.builder_.update_func(main, self.visit_expr(self.merged.functions[main]))
        result = self.builder_.get()
        return result.replace(functions={v: f for v, f in result.functions.items() if v not in self.finished})

    def visit_call_(self, op: Call) -> Expr:
        callee = op.op
        func = self.merged.functions.get(callee) if isinstance(callee, GlobalVar) else None
        if not isinstance(callee, GlobalVar) or not isinstance(func, Function) or callee in self.original.functions:
            return super().visit_call_(op)
        if callee not in self.finished:
            name = f"{callee.name_hint}_{func.attrs['Codegen']}"
            whole = _Inliner(self.original).visit_expr(to_non_dataflow(func)).without_attr("Primitive")
            self.finished[callee] = self.builder_.add_func(whole.with_attr("global_symbol", name), name)
        return Call(self.finished[callee], [self.visit_expr(a) for a in op.args], span=op.span)


class _Inliner(PyExprMutator):
    """Calls of composite functions become calls of local copies."""

    def __init__(self, mod: IRModule):
        self.mod = mod
        self.copies: dict[Any, Function] = {}

    def visit_call_(self, op: Call) -> Expr:
        if _composite(self.mod, op) is None:
            return super().visit_call_(op)
        if op.op not in self.copies:
            func = self.mod.functions[op.op]
            assert isinstance(func, Function)
            self.copies[op.op] = copy_with_new_vars(func.without_attr("Primitive"))
        local = self.builder_.emit_once(self.copies[op.op])
        return self.builder_.normalize(Call(local, [self.visit_expr(a) for a in op.args], span=op.span))
