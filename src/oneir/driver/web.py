"""A model as a folder for browsers and npm: `export_web(executable, "folder")`.

The folder has the program in WebAssembly (with its weights), an ES module with types that runs it, a page that tries it
on an image of the user or on numbers, and package.json. The module knows nothing of the model but a table, which is
made here: for each function its inputs and outputs, and where in C's structures their addresses and shapes lie.
"""

from __future__ import annotations

import html
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..codegen.program.c_interface import Argument, EntryPoint, Interface, is_identifier
from ..contrib.emcc import link_wasm
from ..runtime.error import InvalidValue
from ..runtime.library import write_file
from ..runtime.vm.executable import Executable
from ..target.cpu import architecture, resolve
from ..version import __version__
from .standalone import Standalone

NORMALIZATIONS = {
    "unit": "0 to 1",
    "signed": "-1 to 1",
    "imagenet": "mean and deviation of ImageNet",
    "raw": "0 to 255",
}
"""What the page makes of an image's bytes before the model gets them."""

_TYPES = {
    "float32": "Float32Array",
    "float64": "Float64Array",
    "int64": "BigInt64Array",
    "uint64": "BigUint64Array",
    "bool": "Uint8Array",
    "float16": "Uint16Array",
    "bfloat16": "Uint16Array",
    **{f"{sign}int{bits}": f"{'Ui' if sign else 'I'}nt{bits}Array" for sign in ("", "u") for bits in (8, 16, 32)},
}


@dataclass(frozen=True, slots=True)
class Page:
    """What the page says, and what it makes of images. `labels` name the classes of a result."""

    title: str = ""
    labels: Sequence[str] = ()
    normalize: str = "unit"

    def __post_init__(self) -> None:
        if self.normalize not in NORMALIZATIONS:
            known = ", ".join(f'"{name}" ({what})' for name, what in NORMALIZATIONS.items())
            raise InvalidValue(f"expected a normalization of images: {known}; found {self.normalize!r}")


def export_web(executable: Executable, folder: Path, name: str = "model", page: Page | None = None) -> list[Path]:
    """Writes a folder for browsers and npm, which is made if there is none; returns the paths of its files.

    `executable` is compiled for WebAssembly (`target="wasm/simd"`); `name` is an identifier. Raises what
    `export_library` raises, `LibraryError` where there is no linker of WebAssembly, and `InvalidValue` for other names.
    """
    if not is_identifier(name):
        raise InvalidValue(f"functions of C are named after the model, and {name!r} is no identifier of C")
    page = page or Page(name)
    exporter = executable.exporter
    if not isinstance(exporter, Standalone):
        raise InvalidValue("a model is exported for browsers where it is compiled; this one was loaded from a file")
    triple = resolve(exporter.target)[0]
    if architecture(triple) != "wasm":
        raise InvalidValue(
            f'expected an executable for WebAssembly, compiled with target="wasm/simd"; this one is for {triple}'
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        objects, wasm = Path(temporary) / "m.o", Path(temporary) / "m.wasm"
        interface = exporter(executable, objects, Path(temporary) / f"{name}.h", None, False, None)
        link_wasm(str(wasm), str(objects), interface.symbols)
        program = wasm.read_bytes()
    table = _table(interface)
    files = {
        f"{name}.wasm": program,
        f"{name}.mjs": _module(table),
        f"{name}.d.ts": _declarations(table),
        "index.html": _page(table, page),
        "package.json": _package(name),
    }
    for file, content in files.items():
        write_file(folder / file, [content if isinstance(content, bytes) else content.encode()])
    return [folder / file for file in files]


# -- the table --


def _table(interface: Interface) -> dict[str, Any]:
    functions = {_name(interface, entry): _function(entry) for entry in interface.entries}
    main = "main" if "main" in functions else next(iter(functions))
    return {"name": interface.name, "wasm": f"./{interface.name}.wasm", "main": main, "functions": functions}


def _name(interface: Interface, entry: EntryPoint) -> str:
    return entry.prefix.removeprefix(interface.name).removeprefix("_") or "main"


def _function(entry: EntryPoint) -> dict[str, Any]:
    inputs, input_bytes = _fields(entry.inputs)
    outputs, output_bytes = _fields(entry.outputs)
    return {
        "prefix": entry.prefix,
        "inputs": inputs,
        "inputBytes": input_bytes,
        "outputs": outputs,
        "outputBytes": output_bytes,
    }


def _fields(arguments: Sequence[Argument]) -> tuple[list[dict[str, Any]], int]:
    """What the module knows of the fields of a structure, and its bytes. Addresses have 4 bytes."""
    fields: list[dict[str, Any]] = []
    end = 0

    def place(size: int, alignment: int) -> int:
        nonlocal end
        start = -(-end // alignment) * alignment
        end = start + size
        return start

    for argument in arguments:
        field: dict[str, Any] = {"name": argument.name, "kind": argument.param.kind}
        if not argument.is_tensor:
            size = 1 if argument.param.kind == "bool" else 8
            fields.append(field | {"offset": place(size, size)})
            continue
        extents = [extent if isinstance(extent, int) else str(extent) for extent in argument.extents]
        field |= {"dtype": str(argument.param.dtype), "shape": extents, "offset": place(4, 4)}
        if not argument.is_static:
            field["shapeOffset"] = place(8 * len(extents), 8)
        fields.append(field)
    return fields, max(place(0, 8), 8)


# -- files --


def _module(table: dict[str, Any]) -> str:
    text = Path(__file__).with_name("web.mjs").read_text(encoding="utf-8")
    main = table["functions"][table["main"]]
    outputs = [field["name"] for field in main["outputs"]]
    shown = ", ".join(
        f"{field['name']}: new {_type(field['dtype'])}({' * '.join(map(str, field['shape'])) or 1})"
        for field in main["inputs"]
        if field["kind"] == "tensor"
    )
    parts = {
        "NAME.mjs": f"{table['name']}.mjs",
        "RESULT": ", ".join(outputs),
        "INPUT: new Float32Array(SIZE)": shown,
        "METADATA": json.dumps(table, indent=2),
    }
    for place, part in parts.items():
        text = text.replace(place, part, 1)
    return text


def _type(dtype: str) -> str:
    """The typed array of a dtype."""
    return _TYPES.get(dtype, "Uint8Array")


def _declarations(table: dict[str, Any]) -> str:
    """The types of the module, in TypeScript."""
    parts = [_TENSORS]
    calls: list[str] = []
    for name, function in table["functions"].items():
        own = "" if len(table["functions"]) == 1 else re.sub(r"\W", "_", name).capitalize()
        for kind, fields in (("Inputs", function["inputs"]), ("Outputs", function["outputs"])):
            lines = [f"  /** {_described(field)} */\n  {field['name']}: {_ts_type(field, kind)};" for field in fields]
            parts.append(f"export interface {own}{kind} {{\n" + "\n".join(lines) + "\n}\n")
        if name == table["main"]:
            calls.append(f"  /** Calls `{name}`. Throws `ModelError`. */\n  run(inputs: {own}Inputs): {own}Outputs;")
        calls.append(f"  call(name: {json.dumps(name)}, inputs: {own}Inputs): {own}Outputs;")
    parts.append("export interface Model {\n" + "\n".join(calls) + "\n}\n")
    return "\n".join([*parts, _LOAD])


_TENSORS = """\
// The types of a model in WebAssembly. OneIR wrote this file.

export interface Tensor<Data> {
  /** Elements, row by row. float16, bfloat16 and floats of 8 bits are their bits. */
  data: Data;
  shape: number[];
  dtype: string;
}

/** A tensor, or its elements alone where at most one extent is unknown. */
export type Given<Data> = Data | number[] | { data: Data | number[]; shape?: number[] };
"""

_LOAD = """\
/** Why a model cannot run: inputs that it does not take, or too little memory. */
export class ModelError extends Error {}

/** What a model takes and gives, by the names of its functions. */
export const functions: Record<string, { inputs: Field[]; outputs: Field[] }>;

export interface Field {
  name: string;
  kind: "tensor" | "int" | "float" | "bool";
  dtype?: string;
  /** A text is the name of an extent that each call may choose. */
  shape?: (number | string)[];
}

/** The model, ready to run. `source` is the .wasm file or its address; without it, the one beside the module. */
export function load(source?: string | URL | ArrayBuffer | ArrayBufferView): Promise<Model>;
"""


def _described(field: dict[str, Any]) -> str:
    if field["kind"] != "tensor":
        return field["kind"]
    return f"{field['dtype']}[{', '.join(map(str, field['shape']))}]".replace("*/", "* /")


def _ts_type(field: dict[str, Any], kind: str) -> str:
    if field["kind"] != "tensor":
        return {"int": "number | bigint", "float": "number", "bool": "boolean"}[field["kind"]]
    return f"{'Given' if kind == 'Inputs' else 'Tensor'}<{_type(field['dtype'])}>"


def _page(table: dict[str, Any], page: Page) -> str:
    text = Path(__file__).with_name("web.html").read_text(encoding="utf-8")
    settings = {"main": table["main"], "labels": list(page.labels), "normalize": page.normalize}
    safe = json.dumps(settings).replace("<", "\\u003c")
    title = html.escape(page.title or table["name"])
    return text.replace("TITLE", title).replace("MODULE", f"./{table['name']}.mjs").replace("SETTINGS", safe)


def _package(name: str) -> str:
    described = {
        "name": name.lower(),
        "version": "1.0.0",
        "description": f"A model in WebAssembly, compiled by OneIR {__version__}",
        "type": "module",
        "main": f"./{name}.mjs",
        "types": f"./{name}.d.ts",
        "exports": {".": {"types": f"./{name}.d.ts", "default": f"./{name}.mjs"}, "./model.wasm": f"./{name}.wasm"},
        "files": [f"{name}.wasm", f"{name}.mjs", f"{name}.d.ts", "index.html"],
    }
    return json.dumps(described, indent=2) + "\n"
