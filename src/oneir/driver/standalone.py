"""Programs that stand alone: machine code, weights and a C header of a compiled graph (`Executable.export_library`).

The graph's functions and kernels, the functions of the header and the runtime become one module of LLVM IR, and that
one object file. So nothing but the names of the header is visible outside of it, and any linker takes it.

Weights are no part of the text: LLVM writes zeros behind a mark, and these bytes of the linked file are overwritten.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..codegen.backend import backend_of
from ..codegen.program.c_entry import WEIGHTS, c_entry_ir
from ..codegen.program.c_interface import EntryPoint, Interface, c_header, entry_point, is_identifier
from ..codegen.units import merged
from ..ir.expr import Call, StringImm, as_int
from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.transform import Pass, PassContext
from ..ir.visitor import Mapper, Visitor
from ..runtime import library, object_cache
from ..runtime.device import Device
from ..runtime.error import InvalidValue, LibraryError, UnsupportedError
from ..runtime.llvm import link_ir
from ..runtime.module import SYMBOL_PREFIX
from ..runtime.object_file import host_machine
from ..runtime.pool import SPIN_NANOSECONDS
from ..runtime.signature import Param
from ..runtime.standalone import OWN, OWN_FUNCTIONS, has_threads, runtime_ir
from ..runtime.tensor import Tensor
from ..runtime.vm.executable import Executable
from ..runtime.vm.file import Place, constant_items, write_executable
from ..runtime.vm.native import NativeSpec
from ..runtime.vm.program import VMFunction
from ..target.cpu import architecture, pointer_bytes, resolve
from ..target.target import Target
from ..tir.function import PrimFunc
from ..tir.stmt import AssertStmt
from .build import cache_facts, code_key, lower
from .graph_cache import KernelCode
from .stages import schedule_passes

_OBJECTS = (".o", ".obj")
_ARCHIVE = ".a"
_LARGEST = 1 << 30
"""Bytes of weights that a file of code may have; code addresses no more than 2 GiB."""
_PADDING = 128
"""The bytes in front of the weights in a file of their own: a header of 64 bytes, and zeros."""


@dataclass(frozen=True, slots=True)
class Standalone:
    """Writes the programs of an executable; it holds what the executable was compiled from."""

    code: KernelCode | None
    target: Target
    pipeline: str | Pass | None
    context: PassContext

    def __call__(
        self,
        executable: Executable,
        path: Path,
        header: Path,
        weights: Path | None,
        threads: bool,
        linker: library.Linker | None,
    ) -> Interface:
        """Writes the program, its header and, with `weights`, its weights; see `Executable.export_library`.

        Returns what C sees of it.
        """
        shared = path.suffix in library.SHARED
        triple, name = self.check(executable, path, header, threads, shared and linker is None)
        items = constant_items(executable.program)
        blob = _Blob([(offset, part) for _, offset, part in items], separate=weights is not None)
        if weights is None and blob.size > _LARGEST:
            raise UnsupportedError(
                f"{blob.size} bytes of weights do not fit into a file of code, which may have {_LARGEST}; give them a "
                'file of their own: weights="..."'
            )
        target = f"{triple}, processor {resolve(self.target)[1]}"
        separate = None if weights is None else weights.name
        interface = Interface(name, list(self.entries(executable, name)), target, blob.size, separate, threads)
        entries = c_entry_ir(interface, {i: offset for i, offset, _ in items}, blob.ir(), SPIN_NANOSECONDS)
        data = self.compiled(interface, entries, triple, shared)
        if shared:
            data = library.shared_library([data], linker)
        data, start = blob.fill(data)
        if path.suffix == _ARCHIVE:
            data = _archive(data, f"{name}.o", interface.symbols)
        if shared:
            place = Place(start, blob.size) if separate is None else Place(_PADDING, blob.size, separate)
            specs = {name: native.spec for name, native in executable.natives.items()}
            write_executable(path, executable.program, library.sealed(data), specs, place)
        else:
            library.write_file(path, [data])
        if weights is not None:
            library.write_file(weights, blob.file())
        library.write_file(header, [c_header(interface).encode()])
        return interface

    # -- what can be exported --

    def check(self, executable: Executable, path: Path, header: Path, threads: bool, links: bool) -> tuple[str, str]:
        """The target triple and the name of a program; raises for one that cannot be written."""
        if self.target.kind.name != "llvm":
            raise UnsupportedError(
                f"a program that stands alone runs on a processor; this one is compiled for {self.target.kind.name}: "
                'compile it with target="llvm"'
            )
        if executable.program.devices:
            places = ", ".join(str(Device(*place)) for place in executable.program.devices)
            raise UnsupportedError(
                f"a program that stands alone runs on a processor; this one has tensors on {places}: "
                "compile it from a module without vdevices"
            )
        triple = resolve(self.target)[0]
        if path.suffix not in (*library.SHARED, *_OBJECTS, _ARCHIVE):
            raise InvalidValue(
                f"a program that stands alone is a .so, .dylib, .dll, .a, .o or .obj file; found {path.name}"
            )
        name = header.stem
        if not is_identifier(name):
            raise InvalidValue(
                f"functions of C are named after the header, and {name!r} is no identifier of C; name it model.h, say"
            )
        if threads and not has_threads(triple, architecture(triple)):
            raise UnsupportedError(f"there are no threads for {triple}, only for Linux and macOS on x86-64 and AArch64")
        machine = architecture(triple)
        if links and machine != host_machine():
            raise LibraryError(
                f"this machine's linker makes no shared library for {triple}; give another as `fcompile`, or write an "
                "object file (.o)"
            )
        for function in executable.vm_functions:
            if function not in executable.natives:
                reasons = {} if self.code is None else self.code.reasons
                reason = reasons.get(function, "it only calls functions of Python's")
                raise UnsupportedError(
                    f"`{function}` stays bytecode, which Python executes, so it cannot stand alone: {reason}"
                )
        return triple, name

    def entries(self, executable: Executable, name: str) -> Iterable[EntryPoint]:
        """The functions of the graph, as C calls them."""
        assert executable.library is not None
        constants = {
            i: Param(f"constant_{i}", dtype=str(value.dtype), shape=tuple(value.shape))
            for i, value in enumerate(executable.program.constants)
            if isinstance(value, Tensor)
        }
        for function, native in executable.natives.items():
            graph = executable.program.functions[executable.place_of(function)]
            assert isinstance(graph, VMFunction) and graph.signature is not None
            spec: NativeSpec = native.spec
            only = len(executable.natives) == 1 or function == "main"
            prefix = name if only else f"{name}_{function}"
            if not is_identifier(prefix):
                raise UnsupportedError(f"`{function}` is no identifier of C; give the graph's function another name")
            yield entry_point(prefix, spec, executable.library.signatures[spec.symbol], graph.signature, constants)

    # -- code --

    def compiled(self, interface: Interface, entries: str, triple: str, shared: bool) -> bytes:
        """The object code of the program, whose functions of C are `entries`."""
        code, backend = self.code, backend_of(self.target)
        assert code is not None  # who has a native function has code
        native, public = code.modules()
        with PassContext(
            self.context.opt_level,
            self.context.required_pass,
            self.context.disabled_pass,
            config=self.context.config,
        ):
            module = merged([native, public]) if shared and code.public else native
            signatures = {**code.signatures, **code.public}
            machine = architecture(triple)
            metadata = library.library_metadata(machine, signatures) if shared else ""
            stub = library.stub_ir(metadata, {function: f"{OWN}{function}" for function in OWN_FUNCTIONS})
            visible = [f"{SYMBOL_PREFIX}{name}" for name in signatures] if shared else []
            visible += ["oneir_library_metadata", "oneir_library_table"] if shared else []
            runtime = runtime_ir(triple, machine, pointer_bytes(self.target), interface.threads)
            schedule = schedule_passes(self.target)
            key = code_key(module, self.target, self.pipeline, schedule, cache_facts(self.target))
            if key is not None:
                fields = repr([_fields(entry) for entry in interface.entries])
                key = object_cache.cache_key("standalone", key, entries, stub, *runtime, fields, repr(visible))
            kept = None if key is None else object_cache.get(key)
            if kept is not None:
                return kept
            lowered = lower(module, self.target, self.pipeline, schedule)
            _refuse_calls(lowered)
            text = backend.write(_with_messages(lowered, interface))
        made = backend.compile(link_ir(entries, [text, stub, *runtime], visible), self.target)
        if key is not None:
            object_cache.put(key, made)
        return made


def _with_messages(lowered: IRModule, interface: Interface) -> IRModule:
    """The module whose checks of arguments speak of the fields of C's structures."""
    fields: dict[str, list[str]] = {}
    for entry in interface.entries:
        for symbol in filter(None, (entry.spec.symbol, entry.spec.plan)):
            fields[f"{SYMBOL_PREFIX}{symbol}"] = _fields(entry)
    functions = {
        var: _Messages(fields[func.attrs["global_symbol"]])(func) if func.attrs.get("global_symbol") in fields else func
        for var, func in lowered.functions.items()
    }
    return lowered.replace(functions=functions)


def _fields(entry: EntryPoint) -> list[str]:
    """What C calls the arguments of a function of the graph."""
    return [f"inputs->{a.name}" for a in entry.inputs] + [f"outputs->{a.name}" for a in entry.outputs]


class _Messages(Mapper):
    """Names arguments in messages of checks: `inputs->x: expected shape (n, 784)`."""

    def __init__(self, fields: Sequence[str]):
        super().__init__()
        self.fields = fields

    def visit_AssertStmt(self, node: AssertStmt) -> AssertStmt:
        node = self.generic_visit(node)
        found = re.fullmatch(r"(\w+): .*?: argument (\d+) `.*?`: (.*)", getattr(node.message, "value", ""))
        if found is None or int(found[2]) >= len(self.fields):
            return node
        said = re.sub(r"T\.int\d+\((-?\d+)\)", r"\1", found[3])
        return node.replace(message=StringImm(f"{found[1]}: {self.fields[int(found[2])]}: {said}"))

    def visit_Call(self, node: Call) -> Call:
        if not (isinstance(node.op, Op) and node.op.name == "tir.check_tensor"):
            return self.generic_visit(node)
        args, index, _, *facts = node.args
        number = as_int(index)
        if number is None or number >= len(self.fields):
            return node
        return Call(node.dtype, node.op, [args, index, StringImm(self.fields[number]), *facts], span=node.span)


class _PackedCalls(Visitor):
    """Collects the names of functions that are called through Python."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, None] = {}

    def visit_Call(self, node: Call) -> None:
        if isinstance(node.op, Op) and node.op.name in (
            "tir.tvm_call_packed_lowered",
            "tir.tvm_call_trace_packed_lowered",
        ):
            callee = node.args[0]
            self.names[str(callee.value) if isinstance(callee, StringImm) else str(callee)] = None
        self.generic_visit(node)


def _refuse_calls(lowered: IRModule) -> None:
    """Raises for functions that call Python's."""
    for var, func in lowered.functions_items():
        calls = _PackedCalls()
        if isinstance(func, PrimFunc):
            calls(func.body)
        if calls.names:
            called = ", ".join(f"`{name}`" for name in calls.names)
            caller = var.name_hint.removesuffix("__direct")
            raise UnsupportedError(
                f"`{caller}` calls {called}, a function of Python's, which no program has on its own"
            )


# -- weights --


class _Blob:
    """The weights as bytes: in the file of the code, or in a file of their own."""

    def __init__(self, parts: Sequence[tuple[int, np.ndarray]], separate: bool):
        self.parts = [(offset, part.data) for offset, part in parts]
        self.separate = separate
        self.size = max((offset + part.nbytes for offset, part in self.parts), default=0)
        digest = hashlib.blake2b(digest_size=32)
        for offset, part in self.parts:
            digest.update(offset.to_bytes(8, "little"))
            digest.update(part)
        self.digest = digest.digest()

    @property
    def space(self) -> int:
        """The bytes that the code has for them; at least as many as the mark has."""
        return max(self.size, len(self.digest))

    def header(self) -> bytes:
        """The first 64 bytes of the weights' file, which tell it from others."""
        return struct.pack("<16s32sQQ", b"oneir-weights-1\0", self.digest, self.size, 0)

    def ir(self) -> str:
        """The definition of the weights in LLVM IR: the mark and zeros, or the header of their file."""
        if self.separate:
            return f'@{WEIGHTS} = internal constant [64 x i8] c"{_escaped(self.header())}", align 128\n'
        rest = self.space - len(self.digest)
        return (
            f"@{WEIGHTS} = internal constant <{{ [{len(self.digest)} x i8], [{rest} x i8] }}> "
            f'<{{ [{len(self.digest)} x i8] c"{_escaped(self.digest)}", [{rest} x i8] zeroinitializer }}>, align 128\n'
        )

    def fill(self, data: bytes) -> tuple[bytes, int]:
        """The file of the code with the weights, and at which byte they begin."""
        if self.separate:
            return data, 0
        start = data.find(self.digest)
        if start < 0 or data.find(self.digest, start + 1) >= 0:
            raise LibraryError("the file that was linked does not have the place of the weights once, as it should")
        filled = bytearray(data)
        filled[start : start + self.space] = bytes(self.space)
        for offset, part in self.parts:
            filled[start + offset : start + offset + part.nbytes] = part
        return bytes(filled), start

    def file(self) -> Iterable[bytes | memoryview]:
        """The content of the weights' own file."""
        yield self.header().ljust(_PADDING, b"\0")
        end = 0
        for offset, part in self.parts:
            yield b"\0" * (offset - end)
            yield part
            end = offset + part.nbytes


def _escaped(data: bytes) -> str:
    return "".join(f"\\{byte:02X}" for byte in data)


# -- static libraries --


def _archive(data: bytes, name: str, symbols: Sequence[str]) -> bytes:
    """A static library, in the format of System V, of one object file that defines `symbols`."""
    table = "".join(f"{symbol}\0" for symbol in symbols).encode()
    member = name if len(name) < 16 else "program.o"
    index_size = 4 + 4 * len(symbols) + len(table)
    start = 8 + 60 + index_size + index_size % 2
    index = struct.pack(f">{1 + len(symbols)}I", len(symbols), *[start] * len(symbols)) + table
    return b"!<arch>\n" + b"".join(
        f"{label:<16}{0:<12}{0:<6}{0:<6}{mode:<8}{len(part):<10}`\n".encode() + part + b"\n" * (len(part) % 2)
        for label, mode, part in (("/", "0", index), (f"{member}/", "100644", data))
    )
