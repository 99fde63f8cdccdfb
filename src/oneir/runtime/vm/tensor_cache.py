"""Weights in shards: folders of files with named tensors, as MLC's models come, and those that a process has loaded.

    model/tensor-cache.json     {"metadata": {...}, "records": [{"dataPath": "params_shard_0.bin", "records": [...]}]}
    model/params_shard_0.bin    the items of tensors, one after the other

A record of a tensor has its name, shape, dtype and place in the shard. float32 with the format "f32-to-bf16" is stored
as the upper half of each item. Reading checks every size before a tensor is made, so that a folder from anywhere can be
read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..device import Device
from ..dtype import numpy_dtype
from ..error import InvalidValue, NotRegistered, TypeMismatch
from ..registry import register_func
from ..tensor import Tensor, tensor

NAME = "tensor-cache.json"
_OLDER_NAME = "ndarray-cache.json"
BF16 = "f32-to-bf16"
_cache: dict[str, Tensor] = {}


def f32_to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 as the bits of bfloat16, uint16: rounded to the nearest, but finite numbers stay finite, NaN a NaN."""
    bits = values.view(np.uint32)
    largest = np.uint32(0x7F7F0000).view(np.float32)
    rounding = np.where(np.abs(values) < largest, ((bits >> 16) & 1) + 0x7FFF, 0).astype(np.uint32)
    return np.where(np.isnan(values), 0x7FC0, (bits + rounding) >> 16).astype(np.uint16)


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """The float32 values of the bits of bfloat16, uint16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def read_tensor_cache(path: str | Path, device: Device | str | None = None) -> tuple[dict[str, Tensor], Any]:
    """The tensors of a folder, or of the file in it that describes them, by name, on a device; and its metadata.

    Raises `InvalidValue` for a file that describes no tensors, and for a shard of another size than it says.
    """
    path = Path(path)
    if path.suffix != ".json":
        older = path / _OLDER_NAME
        path = older if older.exists() and not (path / NAME).exists() else path / NAME
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise InvalidValue(f"{path} is no JSON: {error}") from None
    match content:
        case {"records": [*shards]}:
            pass
        case _:
            raise InvalidValue(f"{path} has no list of records, as a description of tensors has")
    found: dict[str, Tensor] = {}
    for shard in shards:
        for name, values in _read_shard(path, shard).items():
            found[name] = tensor(values, device)
    return found, content.get("metadata", {})


def _read_shard(path: Path, shard: object) -> dict[str, np.ndarray]:
    """The tensors of a shard that lies beside the file that describes it."""
    match shard:
        case {"dataPath": str(name), "format": "raw-shard", "nbytes": int(nbytes), "records": [*records]}:
            pass
        case _:
            raise InvalidValue(
                f"{path}: expected the dataPath, nbytes and records of a raw-shard, found {shard!r:.200}"
            )
    if Path(name).name != name:
        raise InvalidValue(f"{path}: the shard {name!r} does not lie beside it")
    content = np.fromfile(path.parent / name, np.uint8)
    if len(content) != nbytes:
        raise InvalidValue(
            f"{path.parent / name} has {len(content)} bytes where {nbytes} are expected: it may be damaged, or its "
            "download not complete"
        )
    return dict([_stored(path, record, content) for record in records])


def _stored(path: Path, record: object, content: np.ndarray) -> tuple[str, np.ndarray]:
    """The name and the values of a tensor in a shard."""
    match record:
        case {
            "name": str(name),
            "shape": [*shape],
            "dtype": str(dtype),
            "format": str(encoding),
            "byteOffset": int(begin),
            "nbytes": int(nbytes),
        } if all(type(extent) is int and extent >= 0 for extent in shape):
            pass
        case _:
            raise InvalidValue(f"{path}: expected a name, a shape, a dtype and a place, found {record!r:.200}")
    halved = encoding == BF16 and dtype == "float32"
    stored = np.dtype(np.uint16) if halved else numpy_dtype(dtype)
    needed = math.prod(shape) * stored.itemsize
    if nbytes != needed or not 0 <= begin <= len(content) - nbytes:
        raise InvalidValue(
            f"{path}: {name!r}, {dtype} of shape {shape}, takes {needed} bytes; found {nbytes} from byte {begin} of "
            f"{len(content)}"
        )
    values = content[begin : begin + nbytes].copy().view(stored).reshape(shape)
    return name, bf16_to_f32(values) if halved else values


@register_func("vm.builtin.tensor_cache.load")
def load(path: str, device_type: int, device_id: int) -> None:
    """Reads the tensors of a folder onto a device; what has a name already is replaced."""
    _cache.update(read_tensor_cache(path, Device(device_type, device_id))[0])


@register_func("vm.builtin.tensor_cache.update")
def update(name: str, value: Tensor, override: bool = False) -> None:
    """Gives a tensor a name; raises `InvalidValue` for one that is taken, without `override`."""
    if not isinstance(value, Tensor):
        raise TypeMismatch(f"expected a Tensor to keep as {name!r}, found {type(value).__name__}")
    if not override and name in _cache:
        raise InvalidValue(f"a tensor {name!r} is in the cache already; replace it with override=True")
    _cache[name] = value


@register_func("vm.builtin.tensor_cache.get")
def get(name: str) -> Tensor | None:
    """The tensor of a name; None if there is none."""
    return _cache.get(name)


@register_func("vm.builtin.tensor_cache.remove")
def remove(name: str) -> None:
    """Forgets a tensor, if there is one of that name."""
    _cache.pop(name, None)


@register_func("vm.builtin.tensor_cache.clear")
def clear() -> None:
    """Forgets all tensors."""
    _cache.clear()


@register_func("vm.builtin.param_array_from_cache_by_name")
def params_by_name(names: Sequence[str]) -> tuple[Tensor, ...]:
    """The tensors of these names; raises `NotRegistered` for a name that is not in the cache."""
    missing = [name for name in names if name not in _cache]
    if missing:
        raise NotRegistered(f"no tensor {missing[0]!r} is in the cache; load it with vm.builtin.tensor_cache.load")
    return tuple([_cache[name] for name in names])


@register_func("vm.builtin.param_array_from_cache_by_name_unpacked")
def params_by_names(*names: str) -> tuple[Tensor, ...]:
    """As `vm.builtin.param_array_from_cache_by_name`, with each name as an argument."""
    return params_by_name(names)


@register_func("vm.builtin.param_array_from_cache")
def params_by_prefix(prefix: str, num_params: int) -> tuple[Tensor, ...]:
    """The tensors `PREFIX_0`, `PREFIX_1`, ...; with -1 parameters, as many as there are without a gap.

    Raises `NotRegistered` if there are fewer than `num_params`.
    """
    count = num_params
    if count == -1:
        count = 0
        while f"{prefix}_{count}" in _cache:
            count += 1
    return params_by_name([f"{prefix}_{i}" for i in range(count)])
