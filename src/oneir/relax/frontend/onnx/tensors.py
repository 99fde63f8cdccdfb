"""Tensors of a model file: stored in it, or in files next to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ....runtime.error import InvalidValue, UnsupportedError
from .dtypes import STRING, dtype_name

if TYPE_CHECKING:
    import onnx


def array_of(tensor: onnx.TensorProto, folder: Path | None) -> np.ndarray:
    """The elements of a `TensorProto`; those of an external file are mapped, not read.

    Raises `InvalidValue` where the data does not fit the shape, or lies outside of the model's folder.
    """
    import onnx

    if tensor.data_type != STRING:
        dtype_name(tensor.data_type)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, folder)
    try:
        return onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise InvalidValue(f"the tensor `{tensor.name}` of the model is damaged: {error}") from None


def _external(tensor: onnx.TensorProto, folder: Path | None) -> np.ndarray:
    """A view of the file that holds a tensor."""
    import onnx

    fields = {entry.key: entry.value for entry in tensor.external_data}
    path = _inside(tensor.name, fields.get("location", ""), folder)
    shape = tuple(tensor.dims)
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    if dtype_name(tensor.data_type) in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn"):
        raise UnsupportedError(f"the tensor `{tensor.name}` of packed elements in an external file; store it inside")
    try:
        offset, length = int(fields.get("offset", 0)), fields.get("length")
        size = int(length) if length is not None else path.stat().st_size - offset
    except ValueError:
        raise InvalidValue(
            f"the tensor `{tensor.name}`: its offset and length must be integers, found {fields}"
        ) from None
    needed = int(np.prod(shape, dtype=object)) * dtype.itemsize if min(shape, default=0) >= 0 else -1
    if size != needed or offset < 0 or offset + size > path.stat().st_size:
        raise InvalidValue(
            f"the tensor `{tensor.name}` of shape {shape} needs {needed} bytes; its entry says {size} bytes from "
            f"{offset} on, of {path.name}, which has {path.stat().st_size}; the file may be cut short"
        )
    if not size:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype.newbyteorder("<"), "c", offset, shape).view(np.ndarray)


def _inside(name: str, location: str, folder: Path | None) -> Path:
    """The path of an external file. Raises `InvalidValue` if it is not in the folder of the model."""
    if folder is None:
        raise InvalidValue(
            f"the tensor `{name}` is stored in the file {location!r}, next to the model: give from_onnx the path of "
            "the model, or load it with onnx.load(path), which reads such tensors"
        )
    root = folder.resolve()
    path = (root / location).resolve()
    if not location or not path.is_relative_to(root) or not path.is_file():
        found = "there is no such file" if path.is_relative_to(root) else "that is outside of the model's folder"
        raise InvalidValue(f"the tensor `{name}` is said to be stored in {location!r}: {found}")
    return path
