"""The bodies of functions: those that ONNX defines an operator by, and those that a model brings along."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from .objects import Kind, type_of

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


def body_of(
    schema: Any, node: onnx.NodeProto, attributes: Sequence[Any], opset: int, kinds: Sequence[Kind | None]
) -> Any:
    """The function that defines a node's operator, with these attributes and kinds of inputs; None if none does."""
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
    types = [type_of(k).SerializeToString() for k in kinds]
    body = schema.get_context_dependent_function_with_opset_version(versions, complete.SerializeToString(), types)
    return onnx.FunctionProto.FromString(body)


def defaults(schema: Any, given: Collection[str]) -> list[Any]:
    """The default values of the attributes that are not given."""
    return [a.default_value for name, a in schema.attributes.items() if name not in given and a.default_value.name]


def _newest(versions: Sequence[int], opset: int) -> int | None:
    """The newest version that is not newer than an opset, or the oldest: operators are older than their bodies."""
    return max((v for v in versions if v <= opset), default=min(versions, default=None))
