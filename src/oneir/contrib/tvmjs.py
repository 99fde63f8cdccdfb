"""Weights in shards for browsers and for MLC's engines: `tensor-cache.json`, with files of a few megabytes each.

tvmjs.dump_tensor_cache({"weight": w}, "model", encode_format="raw")
params, metadata = tvmjs.load_tensor_cache("model", oneir.cpu())
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.device import Device
from ..runtime.dtype import dtype_name
from ..runtime.error import InvalidValue
from ..runtime.tensor import Tensor, as_array
from ..runtime.vm.tensor_cache import BF16, NAME, f32_to_bf16, read_tensor_cache
from .emcc import create_tvmjs_wasm

__all__ = ["create_tvmjs_wasm", "dump_tensor_cache", "load_tensor_cache"]

_BF16_NAME = "tensor-cache-b16.json"


class _Shards:
    """The files of a folder: new tensors go to new ones, and take the place of those with their names."""

    def __init__(self, folder: Path, most_bytes: int, records: list[dict[str, Any]]):
        self.folder, self.most_bytes, self.records = folder, most_bytes, records
        self.places = {r["name"]: (shard, r) for shard in records for r in shard["records"]}
        self.names = set(self.places)
        self.pending: list[dict[str, Any]] = []
        self.content = bytearray()

    def add(self, record: dict[str, Any], data: bytes) -> None:
        """Stores a new tensor; raises `InvalidValue` for a name that another one has."""
        if record["name"] in self.names:
            raise InvalidValue(f"there are two tensors {record['name']!r}")
        self.names.add(record["name"])
        if self.content and len(self.content) + len(data) > self.most_bytes:
            self.write()
        self.pending.append({**record, "byteOffset": len(self.content)})
        self.content += data

    def replace(self, record: dict[str, Any], data: bytes) -> None:
        """Stores a tensor in the place of another; raises `InvalidValue` for one that takes more or less memory."""
        shard, old = self.places[record["name"]]
        if old["nbytes"] != len(data):
            raise InvalidValue(
                f"the tensor {record['name']!r} of {len(data)} bytes cannot take the place of one of {old['nbytes']}"
            )
        path = self.folder / shard["dataPath"]
        content = bytearray(path.read_bytes())
        content[old["byteOffset"] : old["byteOffset"] + len(data)] = data
        path.write_bytes(content)
        old.update(record)
        shard["md5sum"] = _md5(content)

    def write(self) -> None:
        """Writes the tensors that wait for it as a file."""
        if not self.pending:
            return
        name = f"params_shard_{len(self.records)}.bin"
        (self.folder / name).write_bytes(self.content)
        shard = {"dataPath": name, "format": "raw-shard", "nbytes": len(self.content), "records": self.pending}
        self.records.append({**shard, "md5sum": _md5(self.content)})
        self.pending, self.content = [], bytearray()


def _md5(content: bytes | bytearray) -> str:
    """The digest that readers compare a download with."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def dump_tensor_cache(
    params: Mapping[str, Tensor | np.ndarray] | Iterable[tuple[str, Tensor | np.ndarray]],
    cache_dir: str | Path,
    encode_format: str = BF16,
    meta_data: Any = None,
    shard_cap_mb: int = 32,
    show_progress: bool = True,
    update_if_exists: bool = False,
) -> None:
    """Writes named tensors into a folder, in files of at most `shard_cap_mb` megabytes, but one tensor at least.

    With the encoding "f32-to-bf16" float32 is stored as bfloat16, and read as float32 again; a second description,
    `tensor-cache-b16.json`, says bfloat16 of these tensors. "raw" stores all as they are. `meta_data` is what JSON can
    hold, or a function that gives it. With `update_if_exists`, what the folder has already stays, but for tensors whose
    names are given again.

    Raises `InvalidValue` for another encoding, for two tensors of one name, and for a tensor in the place of one of
    another size.
    """
    if encode_format not in ("raw", BF16):
        raise InvalidValue(f'encode_format must be "raw" or "{BF16}", found {encode_format!r}')
    folder = Path(cache_dir)
    folder.mkdir(parents=True, exist_ok=True)
    description = folder / NAME
    records: list[dict[str, Any]] = []
    if update_if_exists and description.exists():
        known = json.loads(description.read_text("utf-8"))
        records, meta_data = known["records"], known["metadata"] if meta_data is None else meta_data
    shards = _Shards(folder, shard_cap_mb << 20, records)
    for count, (name, value) in enumerate(params.items() if isinstance(params, Mapping) else params):
        array = np.ascontiguousarray(as_array(value)).reshape(value.shape)
        dtype = dtype_name(array.dtype)
        halved = encode_format == BF16 and dtype == "float32"
        data = (f32_to_bf16(array) if halved else array).tobytes()
        record = {
            "name": name,
            "shape": list(array.shape),
            "dtype": dtype,
            "format": encode_format,
            "nbytes": len(data),
        }
        (shards.replace if name in shards.places else shards.add)(record, data)
        if show_progress:
            print(f"[{count + 1:04d}] {name}: {dtype} of shape {array.shape}, {len(data)} bytes")
    shards.write()
    metadata = meta_data() if callable(meta_data) else meta_data or {}
    _describe(description, metadata, records)
    if any(_halved(record) for shard in records for record in shard["records"]):
        as_stored = [
            {
                **shard,
                "records": [{**r, "dtype": "bfloat16", "format": "raw"} if _halved(r) else r for r in shard["records"]],
            }
            for shard in records
        ]
        _describe(folder / _BF16_NAME, metadata, as_stored)


def _halved(record: Mapping[str, Any]) -> bool:
    return record["dtype"] == "float32" and record["format"] == BF16


def _describe(path: Path, metadata: Any, records: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"metadata": metadata, "records": records}, indent=4), "utf-8")


def load_tensor_cache(cachepath: str | Path, device: Device | str | None = None) -> tuple[dict[str, Tensor], Any]:
    """The tensors of a folder, or of a description in it, by name, on a device; and the metadata.

    Raises `InvalidValue` for a file that describes no tensors, and for a shard of another size than it says.
    """
    return read_tensor_cache(cachepath, device)
