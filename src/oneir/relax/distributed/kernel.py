"""The kernel behind a call, and which of its divisions the placements of the call's tensors ask for.

How the axes of an operator's arguments and results belong together is not stated anywhere: it is read off the kernel
that the operator is legalized to (`tir/division.py`), so it holds of every operator, and of kernels that users write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.expr import GlobalVar
from ...ir.expr import Var as TirVar
from ...ir.global_info import DeviceMesh
from ...ir.module import IRModule
from ...ir.op import Op
from ...tir.division import Division, divisions
from ...tir.function import PrimFunc
from ..block_builder import BlockBuilder
from ..expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from ..op.base import call_tir
from ..op.inference import fail
from ..operator_facts import FInferDistributedStructInfo, FLegalize
from ..placement import Placement
from ..struct_info import DTensorStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ..transform.legalize_ops import is_shape_known

Path = tuple[int, ...]
"""Where a tensor stands among the arguments of a call: the argument, and the field if that is a tuple."""


@dataclass(frozen=True)
class Kernel:
    """What a call computes. `fields`: the arguments of `func`, as paths of the call's or, if they are none of these, as
    expressions; `outputs`: its parameters for results; `symbols`: what is passed after the tensors.
    """

    name: str
    func: PrimFunc
    fields: list[Path | Expr]
    outputs: list[TirVar]
    symbols: list[Expr]

    def inputs(self) -> dict[TirVar, Path]:
        """The arguments of the call by the parameters that they are passed as."""
        pairs = zip(self.func.params, self.fields, strict=False)
        return {param: path for param, path in pairs if isinstance(path, tuple)}

    def placements(self, tensors: Mapping[Path, Expr], info: StructInfo) -> dict[TirVar, Placement]:
        """Where the tensors of the call are, by parameters; `info`: what is known of its result."""
        infos = {param: tensors[path].struct_info for param, path in self.inputs().items()}
        infos.update(zip(self.outputs, outputs_of(info), strict=True))
        return {param: info.placement for param, info in infos.items() if isinstance(info, DTensorStructInfo)}


def leaves(call: Call) -> dict[Path, Expr]:
    """The arguments of a call that are no tuples, and the fields of those that are."""
    found: dict[Path, Expr] = {}
    for i, arg in enumerate(call.args):
        info = getattr(arg, "struct_info_", None)
        if isinstance(arg, Tuple):
            found.update(((i, j), field) for j, field in enumerate(arg.fields))
        elif isinstance(info, TupleStructInfo):
            found.update(((i, j), TupleGetItem(arg, j)) for j in range(len(info.fields)))
        else:
            found[(i,)] = arg
    return found


def with_leaves(call: Call, new: Mapping[Path, Expr]) -> Call:
    """The call with other leaves."""
    args: list[Expr] = []
    for i in range(len(call.args)):
        if (i,) in new:
            args.append(new[(i,)])
        else:
            args.append(Tuple([value for path, value in new.items() if path[0] == i]))
    return call.replace(args=args)


def outputs_of(info: StructInfo) -> list[StructInfo]:
    """What a call gives, a field at a time."""
    return list(info.fields) if isinstance(info, TupleStructInfo) else [info]


class Kernels:
    """The kernels of calls of a module, each made and looked into once."""

    def __init__(self, mod: IRModule):
        self.mod = mod
        self.builder = BlockBuilder()
        self.known: dict[tuple[int, int], tuple[PrimFunc, list[Division]]] = {}

    def divisions(self, func: PrimFunc, parts: int) -> list[Division]:
        """The ways to divide a kernel."""
        found = self.known.get((id(func), parts))
        if found is None:
            # The function is kept, so that its id stays its own.
            found = self.known[id(func), parts] = func, divisions(func, parts)
        return found[1]

    def of(self, call: Call) -> Kernel | None:
        """The kernel that a call runs, or would run once it is legalized; None if it is not one kernel."""
        if call.op is call_tir.op:
            return _of_call_tir(call, self.mod, {id(leaf): path for path, leaf in leaves(call).items()})
        rule = FLegalize.of(call.op) if isinstance(call.op, Op) else None
        if rule is None or FInferDistributedStructInfo.of(call.op) is not None:
            return None
        values, builder = {path: stand_in(leaf) for path, leaf in leaves(call).items()}, self.builder
        builder.begin_scope()
        builder.begin_dataflow_block()
        alone = Call(call.op, with_leaves(call, values).args, call.attrs, [whole_of(i) for i in call.sinfo_args])
        alone = builder.normalize(alone)
        assert isinstance(alone, Call)
        tensors = [info for info in (getattr(v, "struct_info_", None) for v in values.values()) if info is not None]
        legal = rule(builder, alone) if all(map(is_shape_known, [*tensors, alone.struct_info])) else alone
        blocks = builder.end_blocks()
        builder.end_scope()
        if blocks or not isinstance(legal, Call) or legal.op is not call_tir.op:
            return None
        return _of_call_tir(legal, builder.mod, {id(value): path for path, value in values.items()})


def stand_in(leaf: Expr) -> Expr:
    """A tensor of its own that stands for a leaf."""
    info = getattr(leaf, "struct_info_", None)
    if isinstance(leaf, Constant):
        return Constant(leaf.data)
    if isinstance(info, (TensorStructInfo, DTensorStructInfo)):
        return Var("x", whole_of(info))
    return leaf


def whole_of(info: StructInfo) -> StructInfo:
    """What is known of a value, as if there were one worker."""
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo([whole_of(field) for field in info.fields])
    return info.tensor_sinfo if isinstance(info, DTensorStructInfo) else info


def _of_call_tir(call: Call, mod: IRModule, paths: Mapping[int, Path]) -> Kernel | None:
    gvar, args, *symbols = call.args
    assert isinstance(gvar, GlobalVar)
    func = mod.functions.get(gvar)
    if not isinstance(func, PrimFunc) or not isinstance(args, Tuple):
        return None
    fields = [paths.get(id(field), field) for field in args.fields]
    count = len(fields)
    outputs = list(func.params[count : count + len(outputs_of(call.sinfo_args[0]))])
    if not all(param in func.buffer_map for param in outputs):
        return None
    return Kernel(gvar.name_hint, func, fields, outputs, symbols)


def divided_params(func: PrimFunc, division: Division) -> dict[TirVar, int]:
    """The parameters that a division divides, with the axis of each."""
    return {p: division.axes[b] for p, b in func.buffer_map.items() if b in division.axes}


def asked_for(
    call: Call, func: PrimFunc, ways: list[Division], dim: int, placed: Mapping[TirVar, Placement]
) -> Division | None:
    """The division that placements along a dimension of a mesh ask for; None if all is computed by all.

    `placed` has the placement of each parameter. Raises `InvalidValue` where no division fits them.
    """
    axes = {param: place.axes[dim] for param, place in placed.items() if dim in place.axes}
    if not axes:
        return None
    for way in ways:
        if divided_params(func, way) == axes:
            return way
    texts = ", ".join(f'`{func.buffer_map[param].name}` "{place}"' for param, place in placed.items())
    raise fail(
        call,
        f"no division of the kernel among the workers of dimension {dim} of the mesh fits the placements {texts}; "
        "place arguments and results by R.dist.redistribute, as PropagateSharding does",
    )


def mesh_of(call: Call) -> DeviceMesh | None:
    """The mesh that the distributed arguments of a call lie on; None if there are none. Raises for two meshes."""
    infos = [getattr(leaf, "struct_info_", None) for leaf in leaves(call).values()]
    meshes = [info.device_mesh for info in infos if isinstance(info, DTensorStructInfo)]
    for mesh in meshes[1:]:
        if (list(mesh.shape), mesh.devices) != (list(meshes[0].shape), meshes[0].devices):
            raise fail(call, "the arguments lie on different meshes; bring them together by R.dist.redistribute")
    return meshes[0] if meshes else None
