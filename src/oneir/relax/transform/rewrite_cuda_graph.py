"""RewriteCUDAGraph: memory that stays, and what is launched on nothing else, become functions that a machine captures.

    storage = R.memory.alloc_storage(...)           gv = R.call_builtin_with_ctx(
    a = R.memory.alloc_tensor(storage, ...)             "vm.builtin.cuda_graph.get_cached_alloc",
    _ = cls.f(x, a)                                     (cls.main_cuda_graph_alloc, R.prim_value(0)))
    b = R.memory.alloc_tensor(storage, ...)   ->    storage = gv[0]
    _1 = cls.g(a, b)                                a = R.memory.alloc_tensor(storage, ...)
    _2 = cls.h(b, out)                              _ = cls.f(x, a)
                                                    gv1 = (a, storage)
                                                    gv2 = R.call_builtin_with_ctx(
                                                        "vm.builtin.cuda_graph.run_or_capture",
                                                        (cls.main_cuda_graph_capture, gv1, R.prim_value(1)))
                                                    b = gv2[0]
                                                    _2 = cls.h(b, out)

A graph of launches has the addresses that it was captured with. So only kernels are captured all of whose tensors lie
in memory that is allocated once, or are weights: what comes after the first `num_input` parameters. It runs after
`StaticPlanBlockMemory`, for programs whose functions are bytecode; host functions are captured whole, without it.
All calls of a machine share that memory, so they must come one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import GlobalVar, PrimExpr
from ...ir.expr import Var as TirVar
from ...ir.module import BaseFunc, IRModule
from ...ir.op import Op
from ...ir.transform import ModulePass, PassContext, register_config_option
from ...tir.analysis import undefined_vars
from ...tir.function import PrimFunc
from ..analysis.variables import free_vars, used_vars
from ..copy_function import copy_with_new_vars
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataTypeImm,
    Expr,
    Function,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..op.base import call_builtin_with_ctx
from ..struct_info import ShapeStructInfo, TensorStructInfo, TupleStructInfo

USE_CUDA_GRAPH = "relax.backend.use_cuda_graph"
"""The option that has programs for CUDA launch many kernels as one graph."""
register_config_option(USE_CUDA_GRAPH, bool)
CAPTURE_SYMBOLIC_VARS = "relax.rewrite_cuda_graph.capture_symbolic_vars"
"""The attribute of a function that names symbolic variables, for each value of which a graph may be captured."""

_ALLOC_STORAGE, _ALLOC_TENSOR = Op.get("relax.memory.alloc_storage"), Op.get("relax.memory.alloc_tensor")
_KILLS = (Op.get("relax.memory.kill_storage"), Op.get("relax.memory.kill_tensor"))


class RewriteCUDAGraph(ModulePass):
    """Makes functions of what can be captured, where the option "relax.backend.use_cuda_graph" is set.

    Kernels whose shapes have symbolic variables are captured if a function's attribute
    "relax.rewrite_cuda_graph.capture_symbolic_vars" names all of these.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        if not ctx.config.get(USE_CUDA_GRAPH, False):
            return mod
        made = _Module(mod)
        for var, func in mod.functions_items():
            if isinstance(func, Function):
                made.functions[var] = _Rewriter(made, var, func).rewritten()
        same = len(made.functions) == len(mod.functions) and all(
            func is mod.functions.get(var) for var, func in made.functions.items()
        )
        return mod if same else mod.replace(functions=made.functions)


class _Module:
    """The functions of a module, and those that are added."""

    def __init__(self, mod: IRModule):
        self.functions: dict[GlobalVar, BaseFunc] = dict(mod.functions)
        self.names = {var.name_hint for var in mod.functions}
        self.count = 0

    def add(self, name: str, func: Function) -> tuple[GlobalVar, PrimValue]:
        """A new function's variable, and the number by which a machine keeps what it captured of it."""
        unique, number = name, 0
        while unique in self.names:
            number += 1
            unique = f"{name}_{number}"
        self.names.add(unique)
        var = GlobalVar(unique)
        func = copy_with_new_vars(func)
        var.set_struct_info(func.struct_info)
        self.functions[var] = func
        self.count += 1
        return var, PrimValue(self.count - 1)


class _Rewriter:
    def __init__(self, made: _Module, var: GlobalVar, func: Function):
        self.made, self.name, self.func = made, var.name_hint, func
        self.hinted = set(func.attrs.get(CAPTURE_SYMBOLIC_VARS, ()))
        weights = func.params[int(func.attrs.get("num_input", len(func.params))) :]
        self.stays: set[Var] = {p for p in weights if isinstance(p.struct_info, TensorStructInfo)}
        """Variables whose values are in the same memory in each call."""
        self.bindings: list[Binding] = [b for block in func.body.blocks for b in block.bindings]
        self.done: list[Binding] = []

    def rewritten(self) -> Function:
        """The function, or itself where nothing of it can be captured."""
        kept = self._storages()
        if not kept:
            return self.func
        self.stays.update(binding.var for binding in kept)
        self._emit_storages(kept)
        region: list[Binding] = []
        later: list[Binding] = []
        for place, binding in enumerate(self.bindings):
            if binding in kept:
                continue
            if self._is_launch(binding):
                region, later = [*region, *later, binding], []
                self.stays.add(binding.var)
            elif self._stays(binding):
                later.append(binding)
                self.stays.add(binding.var)
            else:
                self._close(region, [*later, *self.bindings[place:]])
                self.done += [*later, binding]
                region, later = [], []
        self._close(region, later)
        self.done += later
        body = SeqExpr([BindingBlock(self.done)], self.func.body.body)
        body.set_struct_info(self.func.body.struct_info)
        return self.func.replace(body=body)

    # -- what stays, and what can be captured --

    def _storages(self) -> list[Binding]:
        """The allocations of memory that no result lies in, of known sizes or such as a graph may be captured for."""
        found = [
            b
            for b in self.bindings
            if isinstance(b, VarBinding)
            and isinstance(b.value, Call)
            and b.value.op is _ALLOC_STORAGE
            and all(map(self._captures, b.value.args))
        ]
        returned: set[Var] = set(free_vars(self.func.body.body))
        for binding in reversed(self.bindings):
            if binding.var in returned:
                returned.update(used_vars(binding))
        return [b for b in found if b.var not in returned]

    def _captures(self, expr: Expr) -> bool:
        """Whether an argument is the same in each call for which a graph is captured."""
        if isinstance(expr, Var):
            return expr in self.stays
        if isinstance(expr, Tuple):
            return all(map(self._captures, expr.fields))
        if isinstance(expr, (ShapeExpr, PrimValue)):
            return {symbol.name for symbol in _symbols(expr)} <= self.hinted
        return isinstance(expr, (Constant, StringImm, DataTypeImm))

    def _is_launch(self, binding: Binding) -> bool:
        call = binding.value if isinstance(binding, VarBinding) else None
        if not isinstance(call, Call) or not isinstance(call.op, GlobalVar):
            return False
        callee = self.made.functions.get(call.op)
        is_kernel = isinstance(callee, PrimFunc) and not callee.attrs.get("tir.is_host_func")
        return is_kernel and all(map(self._captures, call.args))

    def _stays(self, binding: Binding) -> bool:
        """Whether a value is made of what stays, without a launch."""
        value = binding.value if isinstance(binding, VarBinding) else None
        if isinstance(value, Call):
            return value.op in (_ALLOC_TENSOR, *_KILLS) and all(map(self._captures, value.args))
        if isinstance(value, TupleGetItem):
            return self._captures(value.tuple_value)
        return isinstance(value, (Var, Tuple)) and self._captures(value)

    # -- what is made of it --

    def _emit_storages(self, kept: Sequence[Binding]) -> None:
        """A function that allocates, and the bindings that take its results."""
        variables = [binding.var for binding in kept]
        self._call("alloc", "get_cached_alloc", kept, None, variables)

    def _close(self, region: Sequence[Binding], later: Sequence[Binding]) -> None:
        """A function of the bindings of a region, and the bindings that take its results."""
        if not region:
            return
        own = {binding.var for binding in region}
        inputs = list(dict.fromkeys(v for b in region for v in used_vars(b) if v not in own))
        used = {v for b in later for v in used_vars(b)} | set(free_vars(self.func.body.body))
        outputs = [binding.var for binding in region if binding.var in used]
        self._call("capture", "run_or_capture", region, inputs, outputs)

    def _call(
        self, kind: str, builtin: str, region: Sequence[Binding], inputs: Sequence[Var] | None, variables: Sequence[Var]
    ) -> None:
        """Makes a function of bindings, calls the runtime with it, and takes `variables` from what that returns."""
        symbols = sorted({s for b in region for s in _symbols(b.value)}, key=lambda symbol: symbol.name)
        shape = [ShapeExpr(symbols)] if symbols else []
        params = [*(inputs or ()), *(Var("shape_expr", ShapeStructInfo(symbols)) for _ in shape)]
        func = _function(params, region, variables)
        callee, number = self.made.add(f"{self.name}_cuda_graph_{kind}", func)
        arguments: list[Expr] = [callee, number, *shape]
        if inputs is not None:
            given = _bound("args", _tuple(inputs))
            self.done.append(given)
            arguments.insert(1, given.var)
        info = func.ret_struct_info
        call = call_builtin_with_ctx(f"vm.builtin.cuda_graph.{builtin}", arguments, sinfo_args=[info])
        call.set_struct_info(info)
        result = _bound("gv", call)
        self.done.append(result)
        for i, var in enumerate(variables):
            item = TupleGetItem(result.var, i)
            item.set_struct_info(var.struct_info)
            self.done.append(VarBinding(var, item))


def _symbols(expr: Expr) -> list[TirVar]:
    """The symbolic variables in the shapes and numbers of an expression's arguments, and in its own shape."""
    found: dict[TirVar, None] = {}

    def visit(part: Any) -> None:
        if isinstance(part, PrimExpr):
            found.update(dict.fromkeys(undefined_vars(part)))
        elif isinstance(part, PrimValue):
            visit(part.value)
        elif isinstance(part, ShapeExpr):
            for extent in part.values:
                visit(extent)
        elif isinstance(part, Tuple):
            for inner in part.fields:
                visit(inner)
        elif isinstance(part, Call):
            for inner in part.args:
                visit(inner)
        info = getattr(part, "struct_info_", None)
        if isinstance(info, TensorStructInfo):
            for extent in info.extents or ():
                visit(extent)

    visit(expr)
    return list(found)


def _tuple(variables: Sequence[Var]) -> Tuple:
    made = Tuple(list(variables))
    made.set_struct_info(TupleStructInfo([var.struct_info for var in variables]))
    return made


def _bound(name: str, value: Expr) -> VarBinding:
    return VarBinding(Var(name, value.struct_info), value)


def _function(params: Sequence[Var], bindings: Sequence[Binding], outputs: Sequence[Var]) -> Function:
    """A private function that returns some of its variables as a tuple."""
    result = _bound("gv", _tuple(outputs))
    body = SeqExpr([BindingBlock([*bindings, result])], result.var)
    body.set_struct_info(result.var.struct_info)
    func = Function(list(params), body, result.var.struct_info, True)
    return func.with_attr("relax.force_pure", True)
