"""LowerDistIR: parts of distributed tensors become plain tensors.

A function is called with whole tensors, of which those of worker 0 count: it hands out parts of what is divided, and
copies of the rest. What comes out is each worker's part of the result.
"""

from __future__ import annotations

from ....ir.global_info import DeviceMesh
from ....ir.module import IRModule
from ....ir.transform import ModulePass, PassContext
from ....runtime.error import InvalidValue
from ...analysis.variables import free_vars
from ...expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ...expr_functor import PyExprMutator
from ...normalize import merge_blocks
from ...op.base import call_tir
from ...op.ccl import broadcast_from_worker0, scatter_from_worker0
from ...op.distributed import call_tir_local_view, redistribute
from ...op.inference import fail
from ...struct_info import DTensorStructInfo, StructInfo, TupleStructInfo, is_base_of
from ..kernel import Kernels, asked_for, leaves, outputs_of, whole_of


class LowerDistIR(ModulePass):
    """Replaces distributed tensors by each worker's parts.

    Raises `InvalidValue` for kernels over whole tensors, for `redistribute`, and for a mesh that is not all workers in
    a row.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _Sharder(mod).transform_functions(mod)


def _local(info: StructInfo) -> StructInfo:
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo([_local(field) for field in info.fields])
    return info.local if isinstance(info, DTensorStructInfo) else info


def _is_distributed(info: StructInfo | None) -> bool:
    return info is not None and any(isinstance(field, DTensorStructInfo) for field in outputs_of(info))


class _Sharder(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.kernels = Kernels(mod)

    def visit_struct_info(self, info: StructInfo) -> StructInfo:
        return super().visit_struct_info(_local(info))

    def visit_function_(self, op: Function) -> Expr:
        if not any(_is_distributed(param.struct_info_) for param in op.params):
            return super().visit_function_(op)
        params: list[Var] = []
        handed: list[Binding] = []
        seq = op.body
        assert isinstance(seq, SeqExpr)
        block = type(seq.blocks[0]) if seq.blocks else BindingBlock
        later = set(free_vars(seq.replace(blocks=seq.blocks[1:])))
        kind = DataflowVar if block is DataflowBlock and not later.intersection(op.params) else Var
        for param in op.params:
            if not _is_distributed(param.struct_info):
                params.append(param)
                continue
            whole, mine = Var(param.name, whole_of(param.struct_info)), kind(param.name, _local(param.struct_info))
            params.append(whole)
            handed += self.handed_out(param.struct_info, whole, mine)
            self.set_var_remap(param, mine)
        body = self.visit_with_new_scope(op.body, params)
        assert isinstance(body, SeqExpr)
        body = SeqExpr(merge_blocks([block(handed), *body.blocks]), body.body)
        return Function(params, body, _local(op.ret_struct_info), op.is_pure, op.attrs, op.span)

    def handed_out(self, info: StructInfo, whole: Var, mine: Var) -> list[Binding]:
        """The bindings by which a variable gets the worker's part of a parameter."""
        if isinstance(info, DTensorStructInfo):
            return [VarBinding(mine, self.builder_.normalize(_collective(whole, info)))]
        bindings: list[Binding] = []
        fields: list[Expr] = []
        for index, field in enumerate(outputs_of(info)):
            value: Expr = TupleGetItem(whole, index)
            var = type(mine)(f"{whole.name}_{index}", value.struct_info)
            bindings.append(VarBinding(var, value))
            if isinstance(field, DTensorStructInfo):
                part = type(mine)(f"{whole.name}_{index}_part", field.local)
                bindings.append(VarBinding(part, self.builder_.normalize(_collective(var, field))))
                var = part
            fields.append(var)
        return [*bindings, VarBinding(mine, Tuple(fields))]

    def visit_constant_(self, op: Constant) -> Expr:
        return Constant(op.data, name=op.name) if isinstance(op.struct_info_, DTensorStructInfo) else op

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or not (
            _is_distributed(op.struct_info_) or any(_is_distributed(getattr(a, "struct_info_", None)) for a in op.args)
        ):
            return call
        if op.op is call_tir.op:
            raise fail(op, "a kernel over whole tensors; run LowerGlobalViewToLocalView first")
        if op.op is redistribute.op:
            raise fail(op, "a tensor changes its place; run LegalizeRedistribute first")
        _check_mesh(op)
        name = call_tir.op if op.op is call_tir_local_view.op else call.op
        new = self.builder_.normalize(Call(name, call.args, call.attrs, [_local(i) for i in op.sinfo_args], op.span))
        self.check(op, new)
        return new

    def check(self, op: Call, new: Expr) -> None:
        """An operator that is left gives, of parts, the parts of what it gives of the whole."""
        kernel = self.kernels.of(op)
        if kernel is not None:
            tensors = leaves(op)
            placed = kernel.placements(tensors, op.struct_info)
            known = [*(getattr(value, "struct_info_", None) for value in tensors.values()), *outputs_of(op.struct_info)]
            mesh = next(info.device_mesh for info in known if isinstance(info, DTensorStructInfo))
            for dim, parts in enumerate(mesh.shape):
                way = asked_for(op, kernel.func, self.kernels.divisions(kernel.func, parts), dim, placed)
                if way is not None and way.combine is not None:
                    raise fail(op, "each worker has a partial result; run LowerGlobalViewToLocalView first")
        if not is_base_of(_local(op.struct_info), new.struct_info):
            raise fail(op, f"of parts it gives {new.struct_info}, not parts; run LowerGlobalViewToLocalView first")


def _check_mesh(call: Call) -> None:
    for value in (call, *leaves(call).values()):
        for info in outputs_of(value.struct_info) if getattr(value, "struct_info_", None) is not None else ():
            if isinstance(info, DTensorStructInfo):
                _checked(info.device_mesh)


def _checked(mesh: DeviceMesh) -> DeviceMesh:
    if len(mesh.shape) != 1 or mesh.devices != list(range(mesh.shape[0])):
        raise InvalidValue(
            "LowerDistIR: the mesh must be all workers of a program in a row, R.device_mesh((n,), I.Range(0, n)), "
            f"found shape {list(mesh.shape)} and devices {mesh.devices}"
        )
    return mesh


def _collective(whole: Expr, info: DTensorStructInfo) -> Call:
    mesh = _checked(info.device_mesh)
    for axis in info.placement.axes.values():
        return scatter_from_worker0(whole, mesh.shape[0], axis)
    return broadcast_from_worker0(whole)
