"""The bodies of functions: those that ONNX defines an operator by, and those that a model brings along."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from ....ir.expr import IntImm
from ...expr import Expr
from ...struct_info import TensorStructInfo
from .dtypes import element_type

if TYPE_CHECKING:
    import onnx


def schema_of(node: onnx.NodeProto, opset: int) -> Any:
    """ONNX's description of the operator of a node; None if there is none."""
    import onnx

    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        return onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def body_of(schema: Any, node: onnx.NodeProto, attributes: Sequence[Any], opset: int, inputs: Sequence[Any]) -> Any:
    """The function that defines a node's operator, with these attributes; None if no others define it."""
    import onnx

    versions = _newest(schema.function_opset_versions, opset)
    if versions is not None:
        return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(versions))
    versions = _newest(schema.context_dependent_function_opset_versions, opset)
    if versions is None:
        return None
    complete = onnx.NodeProto()
    complete.CopyFrom(node)
    del complete.attribute[:]
    complete.attribute.extend([*attributes, *defaults(schema, {a.name for a in attributes})])
    types = [_type_of(x).SerializeToString() for x in inputs]
    body = schema.get_context_dependent_function_with_opset_version(versions, complete.SerializeToString(), types)
    return onnx.FunctionProto.FromString(body)


def defaults(schema: Any, given: Collection[str]) -> list[Any]:
    """The default values of the attributes that are not given."""
    return [a.default_value for name, a in schema.attributes.items() if name not in given and a.default_value.name]


def _newest(versions: Sequence[int], opset: int) -> int | None:
    """The newest version that is not newer than an opset, or the oldest: operators are older than their bodies."""
    return max((v for v in versions if v <= opset), default=min(versions, default=None))


def _type_of(x: Any) -> Any:
    """What ONNX calls the type of a tensor; an empty one of anything else."""
    import onnx

    result = onnx.TypeProto()
    info = x.struct_info if isinstance(x, Expr) else None
    if isinstance(info, TensorStructInfo):
        result.tensor_type.elem_type = element_type(info.dtype)
        for extent in info.extents or ():
            dim = result.tensor_type.shape.dim.add()
            if isinstance(extent, IntImm):
                dim.dim_value = extent.value
            else:
                dim.dim_param = str(extent)
    return result
