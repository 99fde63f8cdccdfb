"""What a call on distributed tensors gives: the whole as one worker has it, placed as the arguments are."""

from __future__ import annotations

from ..block_builder import BlockBuilder
from ..expr import Call
from ..normalize import infer_call, infer_distributed
from ..op.inference import fail
from ..placement import Placement
from ..struct_info import DTensorStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from .kernel import Kernels, divided_params, leaves, mesh_of, stand_in, whole_of, with_leaves


@infer_distributed.provide
def _infer(call: Call, builder: BlockBuilder) -> StructInfo:
    tensors = leaves(call)
    alone = with_leaves(call, {path: stand_in(leaf) for path, leaf in tensors.items()})
    whole = infer_call(Call(call.op, alone.args, call.attrs, [whole_of(i) for i in call.sinfo_args]), builder)
    kernels = Kernels(builder.mod)
    mesh, kernel = mesh_of(call), kernels.of(call)
    assert mesh is not None
    places: list[dict[int, int]] = []
    for dim, parts in enumerate(mesh.shape if kernel is not None else ()):
        assert kernel is not None
        for way in kernels.divisions(kernel.func, parts):
            axes = divided_params(kernel.func, way)
            inputs = [(axes[p], tensors[path].struct_info) for p, path in kernel.inputs().items() if p in axes]
            given = [isinstance(i, DTensorStructInfo) and i.placement.axes.get(dim) == axis for axis, i in inputs]
            if not any(given):
                continue
            for index, param in enumerate(kernel.outputs):
                places += [{} for _ in range(index + 1 - len(places))]
                if param in axes and places[index].setdefault(dim, axes[param]) != axes[param]:
                    raise fail(call, f"the result would be divided along two axes by dimension {dim} of the mesh")

    def placed(info: StructInfo, index: int) -> StructInfo:
        if not isinstance(info, TensorStructInfo):
            return info
        return DTensorStructInfo(info, mesh, Placement.of_axes(places[index] if index < len(places) else {}, mesh))

    if isinstance(whole, TupleStructInfo):
        return TupleStructInfo([placed(field, i) for i, field in enumerate(whole.fields)])
    return placed(whole, 0)
