"""AllocateWorkspace: external functions that need temporary memory are given it.

    with R.dataflow():                  with R.dataflow():
        y = cls.extern(x)       ->          workspace_main = R.builtin.alloc_tensor(R.shape([1024]), ...)
        R.output(y)                         y = cls.extern1(x, workspace_main)
                                            R.output(y)

A function says with its attribute `WorkspaceSize` how many bytes it needs; one tensor, of the largest such size, serves
all calls in a block.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.expr import GlobalVar
from ...ir.module import BaseFunc, IRModule
from ...ir.transform import ModulePass, PassContext
from ..block_builder import Names
from ..expr import BindingBlock, Call, DataflowBlock, Expr, Function, Var
from ..expr_functor import PyExprMutator
from ..op.builtin import alloc_tensor
from ..struct_info import TensorStructInfo

SIZE, EXTERNAL, COMPOSITE = "WorkspaceSize", "Codegen", "Composite"


class AllocateWorkspace(ModulePass):
    """Adds a parameter `workspace` to external functions, and allocates the tensor that is passed for it."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        needing = {var: f for var, f in mod.functions.items() if isinstance(f, Function) and f.attrs.get(SIZE)}
        if not needing:
            return mod
        size = max(func.attrs[SIZE] for func in needing.values())
        names = Names()
        for var in mod.functions:
            names.reserve(var.name_hint)
        renamed: dict[GlobalVar, GlobalVar] = {}
        functions: dict[GlobalVar, BaseFunc] = {}
        for var, func in mod.functions.items():
            if var not in needing:
                functions[var] = func
                continue
            new = renamed[var] = GlobalVar(names.fresh(var.name_hint))
            extended = _Extender(size).visit_expr(func).with_attr("global_symbol", new.name_hint)
            functions[new.set_struct_info(extended.struct_info_)] = extended
        extended_mod = mod.replace(functions=functions)
        added = set(renamed.values())
        for var, func in functions.items():
            external = var not in added and (EXTERNAL in func.attrs or COMPOSITE in func.attrs)
            if isinstance(func, Function) and not external:
                workspace = func.params[-1] if var in added else None
                functions[var] = _Provider(extended_mod, renamed, size, workspace).visit_expr(func)
        return mod.replace(functions=functions)


class _Extender(PyExprMutator):
    """Adds the parameter to an external function and to the composite functions in it."""

    def __init__(self, size: int):
        self.size = size
        self.workspace: Var | None = None
        self.composites: set[Expr | None] = set()
        self.names = Names()

    def visit_function_(self, op: Function) -> Expr:
        if SIZE not in op.attrs or (EXTERNAL not in op.attrs and COMPOSITE not in op.attrs):
            return super().visit_function_(op)
        param = Var(self.names.fresh("workspace"), TensorStructInfo((self.size,), "uint8"))
        if EXTERNAL in op.attrs:
            self.workspace = param
        params = [*op.params, param]
        body = self.visit_with_new_scope(op.body, params)
        func = Function(params, body, op.ret_struct_info, op.is_pure, op.attrs, op.span).without_attr(SIZE)
        if COMPOSITE in op.attrs:
            self.composites.add(func)
        return func

    def visit_call_(self, op: Call) -> Expr:
        callee = self.visit_expr(op.op)
        value = self.lookup_binding(callee) if isinstance(callee, Var) else None
        if value not in self.composites or self.workspace is None:
            return super().visit_call_(op)
        args = [*[self.visit_expr(a) for a in op.args], self.workspace]
        return Call(callee, args, op.attrs, op.sinfo_args, op.span)


class _Provider(PyExprMutator):
    """Passes the workspace to the functions that have a parameter for it now."""

    def __init__(self, mod: IRModule, renamed: Mapping[GlobalVar, GlobalVar], size: int, workspace: Var | None):
        super().__init__(mod)
        self.renamed, self.size, self.workspace = renamed, size, workspace

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        outer = self.workspace
        self.builder_.begin_dataflow_block()
        if outer is None and any(isinstance(b.value, Call) and b.value.op in self.renamed for b in block.bindings):
            self.workspace = self.allocate()
        new = self._bindings(block)
        self.workspace = outer
        return new

    def allocate(self) -> Var:
        return self.builder_.emit(alloc_tensor((self.size,), "uint8", 0), "workspace_main")

    def visit_call_(self, op: Call) -> Expr:
        if op.op not in self.renamed:
            return super().visit_call_(op)
        args = [*[self.visit_expr(a) for a in op.args], self.allocate() if self.workspace is None else self.workspace]
        return Call(self.renamed[op.op], args, op.attrs, op.sinfo_args, op.span)
