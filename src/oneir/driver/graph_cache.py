"""Compiled graphs in the cache on disk, found again without running a pass.

    key = key_of(mod, {}, target)
    compiled = None if key is None else get(key)

The key is a digest of all that compiling looks at: the module with its weights, names and spans, the target and this
machine's processor, the options of the `PassContext`, what is registered of operators, and the compiler's own files.
Where one of these has no digest, there is no key. An entry is the file of an executable, whose constants are mapped
into memory; all of it is compared with checksums before it is used. Large weights are a file of their own, which is
written while kernels are compiled.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..codegen.backend import backend_of
from ..ir.json import load_json, save_json
from ..ir.module import IRModule
from ..ir.structural import exact_digest
from ..ir.transform import pass_key
from ..runtime import object_cache
from ..runtime.error import LibraryError, TypeMismatch
from ..runtime.library import checksum
from ..runtime.once import once
from ..runtime.signature import Signature
from ..runtime.vm.file import Place, Stored, checksums_of, constant_items, decode, encode, encode_items, size_of
from ..runtime.vm.native import NativeSpec
from ..runtime.vm.program import Program
from ..target.target import Target
from . import registered
from .build import cache_facts
from .stages import stages

_LARGEST = object_cache.MAX_BYTES // 4
"""Weights of more bytes than an entry may have are not read for a digest."""
_FEW_BYTES = 1 << 24
"""Weights of fewer bytes are part of the entry: writing them takes milliseconds."""


@dataclass(frozen=True, slots=True)
class KernelCode:
    """The compiled kernels and host functions of a graph."""

    objects: Sequence[bytes]
    signatures: dict[str, Signature]
    public: dict[str, Signature]
    """Signatures of the kernels' public forms, which are compiled when one is asked for."""
    modules: Callable[[], tuple[IRModule, IRModule]]
    """What the objects and the public forms are compiled from."""
    reasons: dict[str, str]
    """Why graph functions that stay bytecode have no native form, by name."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled graph. `natives` says how its native functions are called."""

    program: Program
    natives: dict[str, NativeSpec]
    code: KernelCode | None


def key_of(mod: IRModule, params: Mapping[Any, object], target: Target) -> str | None:
    """The key of a graph that goes through the default pipelines; None if something in it has no digest."""
    others = [Target(device.target) for device in mod.global_infos.get("vdevice", ())]
    facts = cache_facts(target)
    outside = None if facts is None else _outside(target, mod)
    if facts is None or outside is None:
        return None
    facts += [fact for other in others for fact in [str(other), *backend_of(other).facts(other)]]
    digest = exact_digest([mod, dict(params)], _LARGEST)
    return None if digest is None else object_cache.cache_key("graph", digest, outside, *facts)


def get(key: str) -> Compiled | None:
    """The entry of a key; None if there is none, or a damaged one, which is removed."""
    path = object_cache.find(key)
    if path is None:
        return None
    object_cache.find(_weights_of(key))  # they are evicted together
    try:
        stored = decode(path, checked=None)
        if stored is None:
            raise LibraryError(f"{path} is no compiled graph")
        return Compiled(stored.program, stored.natives, _decode_code(stored.library) if stored.library else None)
    except LibraryError:
        object_cache.remove(key)
        object_cache.remove(_weights_of(key))
        return None


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of an entry in a file of their own."""

    place: Place
    checksums: Sequence[bytes]


@contextmanager
def writing_weights(key: str | None, program: Program) -> Iterator[Callable[[], Weights | None]]:
    """Writes the weights of an entry while the rest is compiled; what is entered waits for them.

    It gives None for weights that belong into the entry, being few, and for those that cannot be written.
    """
    items = constant_items(program)
    if key is None or size_of(items) < _FEW_BYTES or not object_cache.holds(size_of(items)):
        yield lambda: None
        return
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(_write_weights, _weights_of(key), items)
        try:
            yield written.result
        except BaseException:
            written.result()
            object_cache.remove(_weights_of(key))
            raise


def _write_weights(name: str, items: list[tuple[int, int, np.ndarray]]) -> Weights | None:
    checksums, size = checksums_of(items), size_of(items)
    return Weights(Place(0, size, name), checksums) if object_cache.put_file(name, encode_items(items)) else None


def _weights_of(key: str) -> str:
    """The key of the file that has the weights of an entry, if they are not in the entry."""
    return f"{key}-weights"


def put(key: str, compiled: Compiled, weights: Weights | None = None) -> None:
    """Keeps a compiled graph, unless it is too large or its kernels cannot be saved as JSON."""
    if not object_cache.holds(0):
        return
    try:
        library = b"" if compiled.code is None else _encode_code(compiled.code)
    except TypeMismatch:
        return
    place, checksums = (None, None) if weights is None else (weights.place, weights.checksums)
    object_cache.put_file(key, encode(Stored(compiled.program, compiled.natives, library), place, checksums))


def _encode_code(code: KernelCode) -> bytes:
    modules = zlib.compress(save_json(list(code.modules())).encode(), 1)
    signatures = [{name: s.to_json() for name, s in table.items()} for table in (code.signatures, code.public)]
    header = json.dumps([[len(data) for data in code.objects], code.reasons, *signatures]).encode()
    content = b"".join([len(header).to_bytes(8, "little"), header, *code.objects, modules])
    return content + checksum(content)


def _decode_code(data: bytes) -> KernelCode:
    content = data[:-32]
    if checksum(content) != data[-32:]:
        raise LibraryError("the code of a compiled graph is damaged")
    start = 8 + int.from_bytes(content[:8], "little")
    sizes, reasons, *signatures = json.loads(content[8:start])
    objects = []
    for size in sizes:
        objects.append(content[start : start + size])
        start += size

    @once
    def modules() -> tuple[IRModule, IRModule]:
        kernels, public_forms = load_json(zlib.decompress(content[start:]).decode())
        return kernels, public_forms

    own, public = ({name: Signature.from_json(s) for name, s in table.items()} for table in signatures)
    return KernelCode(objects, own, public, modules, reasons)


def _outside(target: Target, mod: IRModule) -> str | None:
    """What passes depend on outside of the module: their options, and facts of operators.

    None if code of a user is among them, of which there is no digest.
    """
    parts = [pass_key(stage.passes) for stage in stages(target, mod)]
    parts += [registered.of_graphs(), registered.of_users(mod)]
    known = [part for part in parts if part is not None]
    return "\n".join(known) if len(known) == len(parts) else None
