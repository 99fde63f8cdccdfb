"""Compiled graphs in the cache on disk, found again without running a pass.

    key = key_of(mod, {}, target)
    compiled = None if key is None else get(key)

The key is a digest of all that compiling looks at: the module with its weights, names and spans, the target and this
machine's processor, the options of the `PassContext`, what is registered of operators, and the compiler's own files.
Where one of these has no digest, there is no key. An entry is the file of an executable, whose constants are mapped
into memory; all of it is compared with checksums before it is used.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import BuiltinFunctionType, CellType, FunctionType
from typing import Any

from ..codegen.backend import backend_of
from ..ir.json import load_json, save_json
from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.structural import exact_digest
from ..ir.transform import pass_key
from ..runtime import object_cache
from ..runtime.error import LibraryError, TypeMismatch
from ..runtime.library import checksum
from ..runtime.once import once
from ..runtime.signature import Signature
from ..runtime.vm.file import Stored, decode, encode
from ..runtime.vm.native import NativeSpec
from ..runtime.vm.program import Program
from ..target.target import Target
from .build import cache_facts
from .stages import stages

_LARGEST = object_cache.MAX_BYTES // 4
"""Weights of more bytes than an entry may have are not read for a digest."""


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
    registered = None if facts is None else _registered(target, mod)
    if facts is None or registered is None:
        return None
    facts += [fact for other in others for fact in [str(other), *backend_of(other).facts(other)]]
    digest = exact_digest([mod, dict(params)], _LARGEST)
    return None if digest is None else object_cache.cache_key("graph", digest, registered, *facts)


def get(key: str) -> Compiled | None:
    """The entry of a key; None if there is none, or a damaged one, which is removed."""
    path = object_cache.find(key)
    if path is None:
        return None
    try:
        stored = decode(path, checked=None)
        if stored is None:
            raise LibraryError(f"{path} is no compiled graph")
        return Compiled(stored.program, stored.natives, _decode_code(stored.library) if stored.library else None)
    except LibraryError:
        object_cache.remove(key)
        return None


def put(key: str, compiled: Compiled) -> None:
    """Keeps a compiled graph, unless it is too large or its kernels cannot be saved as JSON."""
    if not object_cache.holds(0):
        return
    try:
        library = b"" if compiled.code is None else _encode_code(compiled.code)
    except TypeMismatch:
        return
    object_cache.put_file(key, encode(Stored(compiled.program, compiled.natives, library)))


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


# -- what is registered --


def _registered(target: Target, mod: IRModule) -> str | None:
    """What passes depend on outside of the module: their options, and facts of operators.

    None if code of a user is registered, of which there is no digest.
    """
    parts: list[str] = []
    for stage in stages(target, mod):
        key = pass_key(stage.passes)
        if key is None:
            return None
        parts.append(key)
    for name in Op.list_op_names():
        text = _facts_of(name)
        if text is None:
            return None
        parts.append(text)
    return "\n".join(parts)


_facts: dict[str, tuple[dict[str, Any], str | None]] = {}
"""The facts of operators when they were last looked at, and what that gave."""


def _facts_of(name: str) -> str | None:
    """The facts of an operator that have a text; None if one of its facts has no digest."""
    attrs = Op.get(name).attrs
    known = _facts.get(name)
    if known is None or known[0] != attrs:
        attrs, seen = dict(attrs), set[int]()
        shown = attrs.items() if name.startswith("relax.") else ()
        lines = [f"{name} {key} {fact!r}" for key, fact in shown if isinstance(fact, (int, str, Enum))]
        text = "\n".join(lines) if all(_is_own(fact, seen) for fact in attrs.values()) else None
        known = _facts[name] = attrs, text
    return known[1]


def _is_own(value: object, seen: set[int]) -> bool:
    """Whether a value is plain data, or code of this compiler only. `seen` are the functions checked before."""
    if isinstance(value, FunctionType):
        if id(value) in seen:
            return True
        seen.add(id(value))
        held = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        return _is_ours(value.__module__) and all(_is_own(part, seen) for part in held)
    if isinstance(value, functools.partial):
        return all(_is_own(part, seen) for part in (value.func, *value.args, *value.keywords.values()))
    if isinstance(value, (tuple, list)):
        return all(_is_own(part, seen) for part in value)
    if isinstance(value, (type, BuiltinFunctionType)):
        return _is_ours(value.__module__ or "builtins")
    return _is_ours(type(value).__module__)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in (__name__.partition(".")[0], "builtins", "numpy", "math", "operator")
