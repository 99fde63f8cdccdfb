"""Reads model files, and has ONNX's checker check them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....runtime.error import InvalidValue, TypeMismatch, UnsupportedError

if TYPE_CHECKING:
    import onnx


def read_model(model: onnx.ModelProto | str | Path) -> tuple[onnx.ModelProto, Path | None]:
    """The model, or the model at a path, and the folder of the path.

    Raises `UnsupportedError` without the package onnx, `TypeMismatch` for anything but a model or a path, and
    `InvalidValue` for files that are missing or damaged, and for models that are not valid.
    """
    try:
        import onnx
    except ImportError:
        raise UnsupportedError("importing an ONNX model needs the package onnx: pip install 'oneir[onnx]'") from None
    folder = None
    if isinstance(model, (str, Path)):
        path = Path(model)
        if not path.is_file():
            raise InvalidValue(f"there is no file {path}")
        try:
            folder, model = path.parent, onnx.load(path, load_external_data=False)
        except Exception as error:  # Protocol buffers raise errors of their own, of several kinds.
            raise InvalidValue(f"{path} is no ONNX model, or it is cut short: {error}") from None
    if not isinstance(model, onnx.ModelProto):
        raise TypeMismatch(f"expected an onnx.ModelProto or the path of a model, found {type(model).__name__}")
    _check(model)
    return model, folder


def _check(model: onnx.ModelProto) -> None:
    """Raises `InvalidValue` for a model that ONNX's checker does not accept."""
    import onnx

    try:
        onnx.checker.check_model(_without_weights(model))
    except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        # Operators of other domains, and those that ONNX does not have, are reported node by node, with their names.
        if not any(reason in str(error) for reason in ("No opset import for domain", "No Op registered for")):
            raise InvalidValue(f"the model is not valid ONNX: {error}") from None


def _without_weights(model: onnx.ModelProto) -> Any:
    """The model with its weights as inputs: they are most of it, and are checked when they are read."""
    import onnx

    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    light.graph.name = model.graph.name
    light.graph.node.extend(model.graph.node)
    light.graph.output.extend(model.graph.output)
    light.graph.input.extend(model.graph.input)
    for value in (*light.graph.input, *light.graph.output):
        # Inputs without a shape get an error of their own later; outputs need neither shape nor type.
        if value.type.WhichOneof("value") in ("tensor_type", None):
            value.type.tensor_type.shape.SetInParent()
            value.type.tensor_type.elem_type = value.type.tensor_type.elem_type or onnx.TensorProto.FLOAT
    given = {i.name for i in model.graph.input}
    for weight in (*model.graph.initializer, *[s.values for s in model.graph.sparse_initializer]):
        if weight.name not in given:
            light.graph.input.append(onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    return light


def with_rest(node: onnx.NodeProto, rest: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> onnx.NodeProto:
    """A condition with all that follows it in its graph inside of both branches, so that each branch knows the number
    of dimensions of its values. `outputs` are those of the graph.
    """
    from onnx import ValueInfoProto, helper

    both = helper.make_node("If", list(node.input), list(outputs), f"{node.name}, and what follows")
    for attribute in node.attribute:
        made = both.attribute.add()
        made.CopyFrom(attribute)
        graph = made.g
        named = zip(graph.output, node.output, strict=True)
        graph.node.extend(helper.make_node("Identity", [own.name], [name]) for own, name in named if name)
        graph.node.extend(rest)
        del graph.output[:]
        graph.output.extend(ValueInfoProto(name=name) for name in outputs)
    return both
