"""What C sees of a compiled graph: functions, structures, and the header that declares them.

    model = interface("m", natives, library_signatures, graph_signatures)
    print(c_header(model))

For each function of the graph there are three things: a structure of its inputs, one of its outputs, and two functions
over them. An input or output whose extents are all known is a pointer; any other has its shape beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...runtime.dtype import dlpack_dtype
from ...runtime.error import UnsupportedError
from ...runtime.signature import Param, Signature
from ...runtime.standalone import Status
from ...runtime.vm.native import NativeSpec, Number

WORKSPACE_ALIGNMENT = 64

_C_TYPES = {
    "bool": "bool",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const
        constexpr continue decltype default delete do double dynamic_cast else enum explicit export extern
        false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
        operator or or_eq private protected public register reinterpret_cast restrict return short signed
        sizeof static static_assert static_cast struct switch template this thread_local throw true try
        typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq""",
    )
)


@dataclass(frozen=True, slots=True)
class Argument:
    """A field of a structure: an input or an output, or a number."""

    name: str
    """An identifier of C."""
    param: Param
    label: str
    """What comments call it."""
    constant: int | None = None
    """The constant that an output is a copy of."""

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, not a number."""
        return self.param.kind == "tensor"

    @property
    def extents(self) -> tuple[Any, ...]:
        """The extents: numbers, and texts of those that are not known."""
        return self.param.shape or ()

    @property
    def is_static(self) -> bool:
        """Whether all extents are known."""
        return all(isinstance(extent, int) for extent in self.extents)

    @property
    def c_type(self) -> str:
        """The C type of a number, or of an element."""
        if not self.is_tensor:
            return {"int": "int64_t", "float": "double", "bool": "bool"}[self.param.kind]
        dtype = str(self.param.dtype)
        if dtype in _C_TYPES:
            return _C_TYPES[dtype]
        _, bits, lanes = dlpack_dtype(dtype)
        if bits != 8 or lanes != 1:
            raise UnsupportedError(
                f"`{self.label}` has the dtype {dtype}, which C has no type for; cast it in the graph"
            )
        return "uint8_t"


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A function of the graph, as C calls it."""

    prefix: str
    """What the names of its functions and structures begin with."""
    spec: NativeSpec
    inputs: list[Argument]
    outputs: list[Argument]
    """First those that the function writes, in its order, then copies of constants."""
    remarks: list[str] = field(default_factory=list)

    @property
    def workspace(self) -> Number:
        """The bytes of its workspace, but for alignment."""
        return self.spec.arena

    @property
    def shapes(self) -> list[tuple[Number, ...]]:
        """The shapes of the outputs that the function writes."""
        return [output.shape for output in self.spec.outputs]


@dataclass(frozen=True, slots=True)
class Interface:
    """All that a program offers to C."""

    name: str
    """What all names begin with."""
    entries: list[EntryPoint]
    target: str
    """The machines that it is for, in words."""
    weights: int
    """The bytes of the weights."""
    separate: str | None = None
    """The name of the file that has the weights, if they have one."""
    threads: bool = False
    """Whether loops may have threads."""

    @property
    def symbols(self) -> list[str]:
        """The names of its functions."""
        names = [f"{self.name}_init", f"{self.name}_free"]
        names += [f"{self.name}_set_threads"] if self.threads else []
        return names + [f"{entry.prefix}_{what}" for entry in self.entries for what in ("plan", "run")]


def entry_point(
    prefix: str, spec: NativeSpec, compiled: Signature, graph: Signature, constants: Mapping[int, Param]
) -> EntryPoint:
    """A function of a graph, as C calls it.

    `compiled` is the signature of the native function, over inputs, outputs, arena and constants, `graph` that of the
    graph's function; `constants` describes constants that are results. Raises `UnsupportedError` for what C has no type
    for.
    """
    names = _Names()
    inputs = [Argument(names.of(p.name), p, p.name) for p in compiled.params[: spec.params]]
    names, outputs, remarks = _Names(), dict[int, Argument](), list[str]()
    copies: list[Argument] = []
    leaves = list(_leaves(spec.result, ()))
    for result, path in leaves:
        label = "_".join([graph.result_name(path[0] if path else 0), *map(str, path[1:])])
        if isinstance(result, int):
            param = compiled.params[spec.params + result]
            if result in outputs:
                remarks.append(f"The result `{label}` is `{outputs[result].label}`.")
            else:
                outputs[result] = Argument(names.of(label), param, label)
        elif "param" in result:
            remarks.append(f"The result `{label}` is the input `{inputs[result['param']].label}` itself.")
        else:
            place = spec.constants.index(result["constant"]) if result["constant"] in spec.constants else None
            if place is None:
                raise UnsupportedError(f"the result `{label}` is a constant that the function does not use")
            copies.append(Argument(names.of(label), constants[result["constant"]], label, place))
    for argument in (*inputs, *outputs.values(), *copies):
        _ = argument.c_type
    return EntryPoint(prefix, spec, inputs, [outputs[i] for i in sorted(outputs)] + copies, remarks)


def _leaves(result: Any, path: tuple[int, ...]) -> Iterable[tuple[Any, tuple[int, ...]]]:
    if isinstance(result, list):
        for i, part in enumerate(result):
            yield from _leaves(part, (*path, i))
    else:
        yield result, path


class _Names:
    """Identifiers of C for names of models, each once."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def of(self, name: str) -> str:
        base = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
        base = f"_{base}" if base[0].isdigit() else f"{base}_" if base in _KEYWORDS else base
        found, number = base, 1
        while found in self._used or f"{found}_shape" in self._used:
            number += 1
            found = f"{base}_{number}"
        self._used |= {found, f"{found}_shape"}
        return found


def is_identifier(name: str) -> bool:
    """Whether names of C may begin with a name."""
    return re.fullmatch(r"[A-Za-z_]\w*", name, flags=re.ASCII) is not None and name not in _KEYWORDS


# -- the header --


def c_header(interface: Interface) -> str:
    """The text of the C header, which is one of C++ as well."""
    name, guard = interface.name, f"{interface.name.upper()}_H"
    parts = [
        _introduction(interface),
        f"#ifndef {guard}\n#define {guard}\n\n#include <stdbool.h>\n#include <stdint.h>\n",
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        _statuses(name),
        f"/* The model. Its fields are for the functions below. */\n"
        f"typedef struct {name}_model {{\n    const void *weights;\n    int64_t bytes;\n}} {name}_model;\n",
        _life(interface),
        *map(_functions, [name] * len(interface.entries), interface.entries),
        "#ifdef __cplusplus\n}\n#endif\n",
        f"#endif /* {guard} */\n",
    ]
    return "\n".join(parts)


def _comment(*lines: str) -> str:
    safe = [f" * {line.replace('*/', '* /')}".replace("\n", " ").rstrip() for line in lines]
    return "/*" + "\n".join(safe)[2:] + " */\n"


def _introduction(interface: Interface) -> str:
    name = interface.name
    lines = [
        f"{name}.h: a model as machine code. OneIR wrote this file.",
        "",
        f"Machines: {interface.target}.",
        f"Weights: {interface.weights} bytes, in "
        + ("the code's own file." if interface.separate is None else f"a file of their own, {interface.separate}."),
        "",
        f"    {name}_model model;",
        "    const char *error;",
        f"    if ({name}_init(&model, {'' if interface.separate is None else 'path, '}&error) != {name.upper()}_OK)",
        "        puts(error);",
        "",
        f"Functions return {name.upper()}_OK or another status; then *error is a text that says why,",
        "unless `error` is NULL. These texts are constants.",
        "",
        "Tensors are row-major without gaps, and aligned to their elements.",
        "",
        "Any number of threads may call _plan and _run at once, on one model, if each has outputs",
        "and a workspace of its own. _init and _free must not meet another call on the same model.",
    ]
    if interface.threads:
        lines += [
            "",
            "Loops use the threads of one pool, which serves one call at a time; others run alone",
            "meanwhile. Its threads live until the process ends: a library that has started some must",
            "not be unloaded.",
        ]
    return _comment(*lines)


def _statuses(name: str) -> str:
    says = {
        Status.OK: "",
        Status.INVALID: "an argument is not what the function takes",
        Status.NO_MEMORY: "there is not enough memory",
        Status.BAD_WEIGHTS: "the file of weights cannot be read, or is another one",
        Status.FAILED: "the computation failed",
    }
    lines = [
        f"    {name.upper()}_{status.name} = {int(status)}," + (f" /* {text} */" if text else "")
        for status, text in says.items()
    ]
    return f"enum {name}_status {{\n" + "\n".join(lines) + "\n};\n"


def _life(interface: Interface) -> str:
    name = interface.name
    if interface.separate is None:
        text = _comment("Makes a model ready. It takes no memory.")
        text += f"int {name}_init({name}_model *model, const char **error);\n\n"
    else:
        text = _comment(f"Makes a model ready: maps its weights, the file at `path` ({interface.separate}).")
        text += f"int {name}_init({name}_model *model, const char *path, const char **error);\n\n"
    text += _comment("Gives back what _init took, and temporary memory that calls have kept.")
    text += f"void {name}_free({name}_model *model);\n"
    if interface.threads:
        text += "\n" + _comment(
            "Sets how many threads a loop uses from now on, its caller included: 1 to 256, and 1 until this is called.",
            "All models of this program share them.",
        )
        text += f"int {name}_set_threads(int32_t count, const char **error);\n"
    return text


def _functions(name: str, entry: EntryPoint) -> str:
    prefix = entry.prefix
    size = entry.workspace
    parts = [
        _structure(f"{prefix}_inputs", entry.inputs, "const "),
        _structure(f"{prefix}_outputs", entry.outputs, ""),
    ]
    if isinstance(size, int):
        parts.append(
            f"/* The bytes of its workspace, as {prefix}_plan says. */\n"
            f"#define {prefix.upper()}_WORKSPACE_BYTES {workspace_bytes(size)}\n"
        )
    dynamic = any(not a.is_static for a in (*entry.inputs, *entry.outputs)) or not isinstance(size, int)
    says = (
        "The shapes of the outputs and the bytes of the workspace, for the shapes and numbers in `inputs`."
        if dynamic
        else "The bytes of the workspace."
    )
    parts.append(
        _comment(says, "Pointers to tensors are not looked at, and not set.")
        + f"int {prefix}_plan(const {prefix}_inputs *inputs, {prefix}_outputs *outputs, int64_t *workspace_bytes,\n"
        + " " * (len(prefix) + 10)
        + "const char **error);\n"
    )
    parts.append(
        _comment(
            "Computes the outputs, in memory that the caller has brought. `workspace` is memory for the",
            "time of the call, of any alignment; if it is NULL, the call allocates it. What single",
            "loops need for a moment they allocate in any case.",
            *entry.remarks,
        )
        + f"int {prefix}_run(const {name}_model *model, const {prefix}_inputs *inputs,\n"
        + " " * (len(prefix) + 9)
        + f"const {prefix}_outputs *outputs, void *workspace, int64_t workspace_bytes,\n"
        + " " * (len(prefix) + 9)
        + "const char **error);\n"
    )
    return "\n".join(parts)


def workspace_bytes(size: int) -> int:
    """The bytes of memory of any alignment that has so many aligned ones."""
    return size + WORKSPACE_ALIGNMENT - 1 if size else 0


def _structure(name: str, arguments: list[Argument], const: str) -> str:
    lines = []
    for argument in arguments:
        if not argument.is_tensor:
            lines.append(f"    {argument.c_type} {argument.name};")
            continue
        kept = "" if argument.param.writable else const
        shape = ", ".join(map(str, argument.extents))
        written = ", which is written to" if argument.param.writable and const else ""
        described = f"{argument.param.dtype}[{shape}]{written}".replace("*/", "* /")
        lines.append(f"    {kept}{argument.c_type} *{argument.name}; /* {described} */")
        if not argument.is_static:
            lines.append(f"    int64_t {argument.name}_shape[{len(argument.extents)}];")
    lines = lines or ["    char none;"]
    return f"typedef struct {name} {{\n" + "\n".join(lines) + f"\n}} {name};\n"
