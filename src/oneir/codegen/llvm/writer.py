"""Writing the text of LLVM functions: names, blocks, and value numbering.

A pure instruction is written once in each scope in which its value is available: a second one of the same text gets the
name of the first. Scopes follow loops and branches, so a definition dominates all its uses.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from ...runtime.llvm import link_ir
from ...runtime.packed import Code
from ...runtime.packed_fields import Field
from ...target.cpu import cpu_info, has_masked_loads, has_scalable_vectors, pointer_bytes, vector_scale
from ...target.target import Target


class Kernels(Protocol):
    """What functions of the host launch on a device."""

    def record_of(self, kernel: str) -> str | None:
        """The symbol of the record of a kernel; None for a name that is not one's."""
        ...

    def globals(self) -> list[str]:
        """The records as LLVM IR."""
        ...


class Processor(NamedTuple):
    """What the text of functions depends on in the processor that they run on; the defaults are those of every GPU."""

    pointer_bytes: int = 8
    """The bytes of an address."""
    has_fma: bool = True
    """Whether it multiplies and adds floats with one rounding."""
    asks_for_fma: bool = False
    """Whether LLVM must be asked for fused products: for 32-bit Arm it makes none of its own, though it may."""
    has_scalable_vectors: bool = False
    """Whether it has vectors whose length only the machine knows."""
    masked_load_bytes: int = 0
    """The longest vector of which it reads some lanes only about as fast as all of them."""
    attributes: str = "nounwind"
    """The attributes of functions, among them the length of scalable vectors, with which LLVM uses all of them."""
    target: str = "a GPU"
    """What errors call it."""

    @staticmethod
    def of_target(target: Target) -> Processor:
        """The processor of a target of kind `llvm`."""
        info, scale = cpu_info(target), vector_scale(target)
        return Processor(
            pointer_bytes(target),
            info.has_fma,
            info.arch == "arm" and info.has_fma,
            has_scalable_vectors(target),
            info.vector_bytes if has_masked_loads(info) else 0,
            "nounwind" if scale is None else f"nounwind vscale_range({scale},{scale})",
            str(target),
        )


class ModuleText:
    """What the functions of one LLVM module share: declarations, strings and other globals."""

    def __init__(self, processor: Processor, kernels: Kernels | None = None) -> None:
        self.processor = processor
        self.kernels = kernels
        self.declarations: dict[str, str] = {}
        self.globals: list[str] = [] if kernels is None else kernels.globals()
        self.functions: list[str] = []
        self.metadata = [
            '!0 = !{!"branch_weights", i32 2000, i32 1}',
            '!1 = !{!"branch_weights", i32 1, i32 2000}',
            '!2 = !{!"llvm.loop.vectorize.enable", i1 false}',
        ]
        self.imports: dict[str, None] = {}
        """Texts of modules whose functions are called here, each once."""
        self._checks_tensors = False
        self._count = 0
        self._strings: dict[str, str] = {}
        self._errors: dict[tuple[str, str], str] = {}

    def number(self) -> int:
        """A number that is unique in the module."""
        self._count += 1
        return self._count

    def declare(self, name: str, result: str, parameters: str, attributes: str = "") -> str:
        """Declares an external function, unless it is declared already; returns the name to call it by."""
        self.declarations.setdefault(name, f"declare {result} @{name}({parameters}) {attributes}".rstrip())
        return f"@{name}"

    def string(self, text: str) -> str:
        """The address of a constant C string."""
        found = self._strings.get(text)
        if found is None:
            data = text.encode() + b"\0"
            body = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)
            found = self._strings[text] = f"@.str.{len(self._strings)}"
            self.globals.append(f'{found} = private unnamed_addr constant [{len(data)} x i8] c"{body}"')
        return found

    def error(self, kind: str, message: str) -> str:
        """The address of a static error record."""
        found = self._errors.get((kind, message))
        if found is None:
            fields = f"{{ ptr {self.string(kind)}, ptr {self.string(message)} }}"
            found = self._errors[kind, message] = f"@.error.{len(self._errors)}"
            self.globals.append(f"{found} = private unnamed_addr constant {{ ptr, ptr }} {fields}")
        return found

    def numbers(self, values: Sequence[int]) -> str:
        """The address of constants of 64 bits."""
        name = f"@.numbers.{self.number()}"
        data = ", ".join(f"i64 {value}" for value in values)
        self.globals.append(f"{name} = private unnamed_addr constant [{len(values)} x i64] [{data}], align 8")
        return name

    def errors(self, errors: Sequence[tuple[str, str]]) -> str:
        """The address of static error records, one behind the other; their messages share a constant."""
        name, texts = f"@.errors.{self.number()}", "\0".join(message for _, message in errors)
        messages, at, records = self.string(texts), 0, list[str]()
        for kind, message in errors:
            records.append(f"ptr {self.string(kind)}, ptr getelementptr (i8, ptr {messages}, i64 {at})")
            at += len(message.encode()) + 1
        kinds = ", ".join(["ptr"] * (2 * len(errors)))
        self.globals.append(f"{name} = private unnamed_addr constant {{ {kinds} }} {{ {', '.join(records)} }}")
        return name

    def tensor_check(self) -> str:
        """The function that compares a packed value with what is expected of a tensor (check_tensor.ll).

        Each module has its own, so that object code of functions that compute by themselves needs no library.
        """
        if not self._checks_tensors:
            self._checks_tensors = True
            pointer = self.processor.pointer_bytes
            places = {field.name.lower(): field.layout(pointer).offset for field in Field}
            numbers = {"pointer": pointer, "tensor": int(Code.TENSOR), "failure": int(Code.FAILURE)}
            attributes = f"optnone noinline {self.processor.attributes}"
            text = string.Template(Path(__file__).with_name("check_tensor.ll").read_text(encoding="utf-8"))
            self.functions.append(text.substitute(places, **numbers, attributes=attributes))
        return "@oneir_check_tensor"

    def unroll(self, count: int) -> str:
        """The metadata of a loop's back edge that has LLVM make one of so many iterations; no loop if that is all."""
        return self._loop(f'!{{!"llvm.loop.unroll.count", i32 {count}}}')

    def unroll_vectors(self) -> str:
        """The metadata of a loop's back edge that has LLVM unroll it in full once its iterations are over vectors."""
        return self._loop('!{!"llvm.loop.vectorize.followup_vectorized", !{!"llvm.loop.unroll.full"}}')

    def no_vectorize(self) -> str:
        """The metadata of a loop's back edge that keeps LLVM from vectorizing it."""
        return self._loop("!2")

    def _loop(self, hint: str) -> str:
        number = len(self.metadata)
        self.metadata.append(f"!{number} = distinct !{{!{number}, {hint}}}")
        return f", !llvm.loop !{number}"

    def text(self) -> str:
        """The module."""
        text = "\n".join([*self.globals, *self.declarations.values(), *self.functions, *self.metadata]) + "\n"
        return link_ir(text, list(self.imports)) if self.imports else text


class FunctionWriter:
    """Builds one function. `entry` holds what belongs to the first block: stack memory and captured values."""

    def __init__(self, module: ModuleText):
        self.module = module
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.cold: list[str] = []
        self.block = "begin"
        self.reachable = True
        self.unwritten = 0
        """The instructions that unrolling adds, less those written that compute indices."""
        self._count = 0
        self._known: list[dict[str, str]] = [{}]

    @property
    def size(self) -> int:
        """How many instructions, with unrolled loops written out and without those that compute indices."""
        return len(self.lines) + self.unwritten

    def name(self, prefix: str = "v") -> str:
        """A new local name."""
        self._count += 1
        return f"%{prefix}{self._count}"

    def emit(self, text: str) -> None:
        """An instruction without a value."""
        self.lines.append(f"  {text}")

    def value(self, text: str) -> str:
        """An instruction with a value that must not be shared, such as a load."""
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def pure(self, text: str) -> str:
        """An instruction whose value depends on its operands alone."""
        for scope in reversed(self._known):
            found = scope.get(text)
            if found is not None:
                return found
        name = self.value(text)
        if " nsw " in text or text.startswith("getelementptr"):
            self.unwritten -= 1
        self._known[-1][text] = name
        return name

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Values computed inside are not known after it."""
        self._known.append({})
        try:
            yield
        finally:
            self._known.pop()

    def stack(self, llvm_type: str, align: int) -> str:
        """Memory for the whole function."""
        name = self.name("stack")
        self.entry.append(f"  {name} = alloca {llvm_type}, align {align}")
        return name

    def label(self, prefix: str) -> str:
        """A new name for a block."""
        self._count += 1
        return f"{prefix}{self._count}"

    def start(self, label: str) -> None:
        """Begins a block; an empty one before it, which nothing reaches, is closed."""
        if self.lines and self.lines[-1].endswith(":"):
            self.emit("unreachable")
        self.lines.append(f"{label}:")
        self.block = label
        self.reachable = True

    def jump(self, label: str) -> None:
        """Ends the block by going to another."""
        if self.reachable:
            self.emit(f"br label %{label}")

    def branch(self, condition: str, then: str, other: str, likely: bool | None = None) -> None:
        """Ends the block by going to one of two."""
        weight = "" if likely is None else ", !prof !0" if likely else ", !prof !1"
        self.emit(f"br i1 {condition}, label %{then}, label %{other}{weight}")

    def leave(self, text: str) -> None:
        """Ends the block by leaving the function; what follows is never reached."""
        self.emit(text)
        self.start(self.label("dead"))
        self.reachable = False

    def body(self) -> str:
        """The text between the function's braces."""
        return "\n".join(["entry:", *self.entry, "  br label %begin", "begin:", *self.lines, *self.cold])
