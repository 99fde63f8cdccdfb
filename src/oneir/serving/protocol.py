"""Requests and responses of the Open Inference Protocol, version 2, with its extension for binary tensors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runtime.signature import Param
from .datatypes import DATATYPES, OF_DTYPE, from_bytes, from_json, to_bytes, to_json
from .http import HTTPError

HEADER_LENGTH = "inference-header-content-length"
"""The header that says how many bytes of a body are JSON; behind them are tensors."""

_REFUSED = {
    "sequence_id": "models keep no state from one request to another",
    "shared_memory_region": "tensors come and go in bodies",
    "classification": "ask for the tensor, and take its largest values",
}
"""Parameters that change what a request means, and why this server has none of them."""

_KINDS = {str: "a string", bool: "true or false", list: "a list", dict: "an object", int: "an integer"}


@dataclass
class Inference:
    """A request: what it is called, arrays in the order of the inputs, and the results that it wants.

    `outputs` has for each name whether the result is wanted as bytes; None stands for all results, by `binary`.
    """

    id: str | None
    arrays: list[np.ndarray]
    outputs: dict[str, bool] | None
    binary: bool
    timeout: float | None


def read_inference(body: bytes, header_length: str | None, inputs: Sequence[Param]) -> Inference:
    """What a body asks for. Raises `HTTPError` for what is no request, and for tensors that are not as `inputs` say."""
    header, data = _split(body, header_length)
    try:
        request = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise HTTPError(400, f"the body is no JSON: {error}") from None
    if not isinstance(request, dict):
        raise HTTPError(400, f"expected an object as the body, found a value of the type {type(request).__name__}")
    parameters = _parameters(request, "the request")
    given = _tensors(request, inputs, data)
    if missing := [param.name for param in inputs if param.name not in given]:
        raise HTTPError(400, f"inputs: `{missing[0]}` is missing; the inputs are {', '.join(map(str, inputs))}")
    timeout = _get(parameters, "timeout", int, "parameters")
    if timeout is not None and timeout < 0:
        raise HTTPError(400, f"parameters: timeout is a number of microseconds, found {timeout}")
    binary = _get(parameters, "binary_data_output", bool, "parameters") or False
    return Inference(
        _get(request, "id", str, "the request"),
        [given[param.name] for param in inputs],
        _wanted(request, binary),
        binary,
        timeout / 1e6 if timeout else None,
    )


def _split(body: bytes, header_length: str | None) -> tuple[bytes, memoryview]:
    """The JSON of a body, and the bytes of tensors behind it."""
    if header_length is None:
        return body, memoryview(b"")
    if not header_length.isdecimal() or int(header_length) > len(body):
        raise HTTPError(400, f"{HEADER_LENGTH}: expected a number up to {len(body)}, found {header_length!r}")
    size = int(header_length)
    return body[:size], memoryview(body)[size:]


def _tensors(request: Mapping[str, Any], inputs: Sequence[Param], data: memoryview) -> dict[str, np.ndarray]:
    known, found, place = {param.name: param for param in inputs}, dict[str, np.ndarray](), 0
    for index, tensor in enumerate(_get(request, "inputs", list, "the request") or []):
        where = f"inputs[{index}]"
        if not isinstance(tensor, dict):
            raise HTTPError(400, f"{where}: expected an object, found a value of the type {type(tensor).__name__}")
        name = _require(tensor, "name", str, where)
        if name not in known:
            raise HTTPError(400, f"{where}: there is no input `{name}`; there are {', '.join(known) or 'none'}")
        if name in found:
            raise HTTPError(400, f"{where}: `{name}` stands there twice")
        where = f"{where} `{name}`"
        dtype = _dtype(tensor, where, known[name])
        shape = _shape(tensor, where)
        size = _get(_parameters(tensor, where), "binary_data_size", int, where)
        if size is None:
            if "data" not in tensor:
                raise HTTPError(400, f"{where}: has neither `data` nor the parameter binary_data_size")
            found[name] = from_json(where, tensor["data"], dtype, shape)
            continue
        if "data" in tensor:
            raise HTTPError(400, f"{where}: has both `data` and the parameter binary_data_size")
        if not 0 <= size <= len(data) - place:
            left = f"{len(data) - place} bytes of tensors are left behind the JSON"
            raise HTTPError(400, f"{where}: binary_data_size is {size}, but {left}")
        found[name] = from_bytes(where, data[place : place + size], dtype, shape)
        place += size
    if place != len(data):
        raise HTTPError(400, f"{len(data)} bytes are behind the JSON, of which no input has {len(data) - place}")
    return found


def _dtype(tensor: Mapping[str, Any], where: str, param: Param) -> str:
    datatype, expected = _require(tensor, "datatype", str, where), OF_DTYPE[str(param.dtype)]
    if datatype != expected:
        hint = "; no compiled program takes texts" if datatype == "BYTES" else ""
        known = "" if datatype in DATATYPES or hint else f"; datatypes are {', '.join(DATATYPES)}"
        raise HTTPError(400, f"{where}: expected the datatype {expected}, found {datatype}{hint}{known}")
    return DATATYPES[datatype]


def _shape(tensor: Mapping[str, Any], where: str) -> tuple[int, ...]:
    shape = _require(tensor, "shape", list, where)
    if len(shape) > 32 or not all(type(extent) is int and 0 <= extent < 1 << 40 for extent in shape):
        raise HTTPError(400, f"{where}: a shape is a list of up to 32 numbers from 0 on, found {str(shape)[:60]}")
    if math.prod(shape) >= 1 << 40:
        raise HTTPError(400, f"{where}: the shape {shape} has too many values")
    return tuple(shape)


def _wanted(request: Mapping[str, Any], binary: bool) -> dict[str, bool] | None:
    if not (outputs := _get(request, "outputs", list, "the request")):
        return None
    wanted: dict[str, bool] = {}
    for index, output in enumerate(outputs):
        where = f"outputs[{index}]"
        if not isinstance(output, dict):
            raise HTTPError(400, f"{where}: expected an object, found a value of the type {type(output).__name__}")
        name = _require(output, "name", str, where)
        if name in wanted:
            raise HTTPError(400, f"{where}: `{name}` stands there twice")
        as_bytes = _get(_parameters(output, where), "binary_data", bool, where)
        wanted[name] = binary if as_bytes is None else as_bytes
    return wanted


def _parameters(owner: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The parameters of a request or tensor; those that are unknown have no effect, as the protocol says."""
    parameters = _get(owner, "parameters", dict, where) or {}
    for name, why in _REFUSED.items():
        if parameters.get(name):
            raise HTTPError(400, f"{where}: this server has no parameter {name}: {why}")
    return parameters


def _get(values: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = values.get(name)
    if value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return value
    text = repr(value)
    raise HTTPError(400, f"{where}: {name} is {_KINDS[kind]}, found {text if len(text) <= 60 else text[:57] + '...'}")


def _require(values: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = _get(values, name, kind, where)
    if value is None:
        raise HTTPError(400, f"{where}: {name} is missing; it is {_KINDS[kind]}")
    return value


def wanted_results(inference: Inference, names: Sequence[str]) -> dict[str, bool]:
    """The names of the results that a request wants, each with whether as bytes. Raises `HTTPError` for others."""
    if inference.outputs is None:
        return dict.fromkeys(names, inference.binary)
    if unknown := [name for name in inference.outputs if name not in names]:
        raise HTTPError(400, f"outputs: there is no result `{unknown[0]}`; there are {', '.join(names)}")
    return inference.outputs


def write_inference(
    model: str, version: str, id: str | None, results: Mapping[str, np.ndarray], wanted: Mapping[str, bool]
) -> tuple[bytes, int | None]:
    """The body of a response, and how many of its bytes are JSON if there are tensors behind it."""
    outputs, parts = [], []
    for name, as_bytes in wanted.items():
        array = results[name]
        output: dict[str, Any] = {"name": name, "datatype": _datatype(name, array), "shape": list(array.shape)}
        if as_bytes:
            parts.append(to_bytes(array))
            output["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            output["data"] = to_json(array)
        outputs.append(output)
    named = {} if id is None else {"id": id}
    header = json.dumps({"model_name": model, "model_version": version, **named, "outputs": outputs}).encode()
    return b"".join([header, *parts]), len(header) if parts else None


def _datatype(name: str, array: np.ndarray) -> str:
    found = OF_DTYPE.get(array.dtype.name)
    if found is None:
        raise HTTPError(
            422, f"the result `{name}` has the dtype {array.dtype.name}, for which the protocol has no name"
        )
    return found
