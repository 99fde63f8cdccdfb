"""FuseTIR: a fused graph function becomes one PrimFunc, in which intermediate tensors are local buffers.

    cls.fused_matmul_add(x, w, b)    ->    R.call_tir(cls.fused_matmul_add, (x, w, b), out_sinfo=...)

The blocks of the functions that it calls stand one after the other; scheduling brings them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.container import Array
from ...ir.expr import GlobalVar, PrimExpr
from ...ir.expr import Var as TirVar
from ...ir.module import BaseFunc, IRModule
from ...ir.op import Op
from ...ir.transform import ModulePass, PassContext
from ...ir.visitor import Mapper
from ...runtime.error import UnsupportedError
from ...tir.buffer import Buffer, decl_buffer
from ...tir.function import PrimFunc
from ...tir.stmt import Block, BlockRealize, Stmt, flat_seq
from ...tir.stmt_functor import renew_defs, substitute
from ..block_builder import function_struct_info
from ..expr import Call, Constant, Expr, Function, ShapeExpr, Tuple, TupleGetItem, Var
from ..expr_functor import PyExprMutator
from ..op import call_tir
from ..struct_info import PrimStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from .dead_code_elimination import DeadCodeElimination

CALL_TIR = Op.get("relax.call_tir")


class FuseTIR(ModulePass):
    """Makes PrimFuncs of the graph functions that FuseOps made.

    Raises `UnsupportedError` for one that has another step than calls of PrimFuncs, a constant, or a tensor of unknown
    shape.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        # Names of their own, since what is known of a name says what a call of it takes and gives.
        names: dict[GlobalVar, GlobalVar] = {}
        params: dict[GlobalVar, Array[Var]] = {}
        functions: dict[GlobalVar, BaseFunc] = {}
        for var, func in mod.functions.items():
            if isinstance(func, Function) and func.attrs.get("Primitive") and "Codegen" not in func.attrs:
                params[var] = func.params
                func = _Fusion(mod, var.name_hint, func).prim_func()
                names[var] = GlobalVar(var.name_hint).set_struct_info(function_struct_info(func))
            functions[names.get(var, var)] = func
        if not names:
            return mod
        calls = _Calls(names, params)
        for var, func in functions.items():
            if isinstance(func, Function):
                functions[var] = calls.visit_expr(func)
        return DeadCodeElimination()(mod.replace(functions=functions))


def flat_infos(info: StructInfo) -> list[StructInfo]:
    """The struct infos of a value's tensors and numbers, tuples taken apart."""
    if isinstance(info, TupleStructInfo):
        return [inner for field in info.fields for inner in flat_infos(field)]
    return [info]


class _Calls(PyExprMutator):
    """Calls of fused functions become `call_tir`."""

    def __init__(self, names: dict[GlobalVar, GlobalVar], params: dict[GlobalVar, Array[Var]]):
        super().__init__()
        self.names, self.params = names, params

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or not isinstance(call.op, GlobalVar) or call.op not in self.names:
            return call
        tensors: list[Expr] = []
        numbers: dict[TirVar, PrimExpr] = {}
        for argument, param in zip(call.args, self.params[call.op], strict=True):
            self.flatten(argument, param.struct_info, tensors, numbers)
        info = op.struct_info
        infos = list(info.fields) if isinstance(info, TupleStructInfo) else info
        return call_tir(self.names[call.op], Tuple(tensors), infos, list(numbers.values()) or None)

    def flatten(self, expr: Expr, declared: StructInfo, tensors: list[Expr], numbers: dict[TirVar, PrimExpr]) -> None:
        """Adds the tensors of an argument, and the values of the symbolic variables that it is declared to have."""
        info = expr.struct_info
        if isinstance(declared, TupleStructInfo):
            for i, field in enumerate(declared.fields):
                taken = expr.fields[i] if isinstance(expr, Tuple) else TupleGetItem(expr, i)
                self.flatten(self.builder_.normalize_argument(taken), field, tensors, numbers)
        elif isinstance(declared, (ShapeStructInfo, PrimStructInfo)):
            for var, value in zip(_values(declared), _values(info), strict=True):
                if isinstance(var, TirVar):
                    numbers.setdefault(var, value)
        else:
            tensors.append(expr)


def _values(info: StructInfo) -> list[PrimExpr]:
    """The numbers in a shape, or the number."""
    if isinstance(info, PrimStructInfo):
        return [] if info.value is None else [info.value]
    return list(info.values or ()) if isinstance(info, ShapeStructInfo) else []


class _Replace(Mapper):
    """Replaces whole buffers."""

    def __init__(self, buffers: dict[Buffer, Buffer]):
        super().__init__()
        self.buffers = buffers

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        new = self.buffers.get(buffer)
        return self._visit_shared(buffer) if new is None else new


class _Fusion:
    """The TensorIR function of one fused graph function."""

    def __init__(self, mod: IRModule, name: str, func: Function):
        self.mod, self.name, self.func = mod, name, func
        self.names: dict[str, int] = {}
        self.block_names: dict[str, int] = {}
        self.values: dict[Expr, list[Buffer]] = {}
        self.allocated: list[Buffer] = []
        self.body: list[Stmt] = []

    def prim_func(self) -> PrimFunc:
        params: list[TirVar] = []
        buffer_map: dict[TirVar, Buffer] = {}
        numbers: dict[TirVar, None] = {}
        for param in self.func.params:
            self.values[param] = []
            for info in flat_infos(param.struct_info):
                if isinstance(info, TensorStructInfo):
                    buffer = self.buffer(info, param.name)
                    self.values[param].append(buffer)
                    handle = TirVar(f"p_{buffer.name}", "handle")
                    params.append(handle)
                    buffer_map[handle] = buffer
                else:
                    numbers.update(dict.fromkeys(v for v in _values(info) if isinstance(v, TirVar)))
        outputs = self.outputs()
        for block in self.func.body.blocks:
            for binding in block.bindings:
                self.bind(binding.var, binding.value)
        for out in outputs:
            for buffer in self.values[out]:
                handle = TirVar(f"p_output{len(params) - len(buffer_map)}", "handle")
                params.append(handle)
                buffer_map[handle] = buffer
                self.allocated = [b for b in self.allocated if b is not buffer]
        root = Block((), (), (), "root", flat_seq(self.body), alloc_buffers=Array(self.allocated))
        return PrimFunc([*params, *numbers], BlockRealize((), True, root), None, buffer_map, self.attrs())

    def attrs(self) -> dict[str, Any]:
        attrs: dict[str, Any] = {"tir.noalias": True}
        for key, value in self.func.attrs.items():
            if key not in ("Primitive", "global_symbol"):
                attrs[key] = value
        return attrs

    def outputs(self) -> list[Expr]:
        """The variables that are returned."""
        result = self.func.body.body
        if isinstance(result, Var):
            for block in self.func.body.blocks:
                for binding in block.bindings:
                    if binding.var is result and isinstance(binding.value, Tuple):
                        return list(binding.value.fields)
        return list(result.fields) if isinstance(result, Tuple) else [result]

    def buffer(self, info: TensorStructInfo, name: str) -> Buffer:
        if info.extents is None:
            raise UnsupportedError(f"`{name}` has no known shape: {info}; it cannot be a buffer")
        scope = info.vdevice.memory_scope if info.vdevice is not None else "global"
        return decl_buffer(info.extents, info.dtype, self.unique(name), scope=scope)

    def unique(self, name: str) -> str:
        count = self.names.get(name)
        self.names[name] = 0 if count is None else count + 1
        return name if count is None else self.unique(f"{name}_{count + 1}")

    def bind(self, var: Var, value: Expr) -> None:
        if isinstance(value, Call):
            self.values[var] = self.inline(value)
        elif isinstance(value, TupleGetItem):
            flat = self.flat(value.tuple_value)
            infos = [len(flat_infos(f)) for f in value.tuple_value.struct_info.fields]
            start = sum(infos[: value.index])
            self.values[var] = flat[start : start + infos[value.index]]
        else:
            self.values[var] = self.flat(value)

    def flat(self, expr: Expr) -> list[Buffer]:
        if isinstance(expr, Tuple):
            return [b for field in expr.fields for b in self.flat(field)]
        if isinstance(expr, Constant):
            raise UnsupportedError("a constant inside of a fused function must be a parameter")
        return self.values[expr]

    def inline(self, call: Call) -> list[Buffer]:
        """Adds the blocks of the function that a `call_tir` calls; returns the buffers that it writes."""
        if call.op is not CALL_TIR:
            raise UnsupportedError(
                f"the fused function `{self.name}` can only consist of calls of TensorIR functions, found `{call}`: "
                "legalize operators before they are fused"
            )
        callee, args, *symbolic = call.args
        assert isinstance(callee, GlobalVar)
        func = renew_defs(self.mod.functions[callee])
        inputs = self.flat(args)
        params = list(func.params)
        tensors = [func.buffer_map[p] for p in params if p in func.buffer_map]
        numbers = [p for p in params if p not in func.buffer_map]
        infos = flat_infos(call.struct_info)
        symbols: dict[TirVar, PrimExpr] = {}
        for shape in symbolic:
            assert isinstance(shape, ShapeExpr)
            symbols.update(zip(numbers, shape.values, strict=True))
        declared, buffers = tensors[: len(inputs)], dict(zip(tensors, inputs, strict=False))
        for inner, outer in zip(declared, inputs, strict=True):
            self.match(inner, outer.shape, symbols)
        outputs = []
        for inner, info in zip(tensors[len(inputs) :], infos, strict=True):
            assert isinstance(info, TensorStructInfo) and info.extents is not None
            self.match(inner, info.extents, symbols)
            made = self.buffer(info, f"{inner.name}_intermediate")
            outputs.append(made)
            buffers[inner] = made
        body = _Replace(buffers)(func.body)
        if symbols:
            body = substitute(body, symbols)
        root = body.block
        self.allocated += [*root.alloc_buffers, *outputs]
        self.body.append(_UniqueBlocks(self.block_names)(root.body))
        return outputs

    def match(self, inner: Buffer, extents: Sequence[PrimExpr], symbols: dict[TirVar, PrimExpr]) -> None:
        for declared, given in zip(inner.shape, extents, strict=True):
            if isinstance(declared, TirVar) and declared not in symbols:
                value = given if given.dtype == declared.dtype else given.astype(declared.dtype)
                symbols[declared] = value


class _UniqueBlocks(Mapper):
    """Gives blocks names that no other block of the function has."""

    def __init__(self, names: dict[str, int]):
        super().__init__()
        self.names = names

    def visit_Block(self, block: Block) -> Block:
        block = self.generic_visit(block)
        name = block.name_hint
        count = self.names.get(name)
        self.names[name] = 0 if count is None else count + 1
        return block if count is None else block.replace(name_hint=f"{name}_{count + 1}")
