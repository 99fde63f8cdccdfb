"""Other machines, emulated: compilers and emulators for them, and C programs that run exported functions there.

A program reads the inputs of all functions from its standard input, one array behind the other, calls each function,
and writes all outputs. A machine whose tools are missing is a skipped test that names them (`make cross` installs them).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CLANGS = ("clang", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14")
WASI = Path("/usr/lib/wasm32-wasi")


@dataclass(frozen=True)
class Machine:
    """A target, the compiler of C for it, and what executes its programs. WebAssembly is linked with WASI's library."""

    name: str
    target: str
    compiler: str
    emulator: tuple[str, ...] = ()

    def require(self) -> None:
        """Skips the test that calls it if a tool is missing."""
        if self.emulator:
            missing = [tool for tool in (self.compiler, self.emulator[0]) if shutil.which(tool) is None]
        else:
            missing = [tool for tool in ("wasm-ld",) if shutil.which(tool) is None]
            missing += [] if clang() else ["clang"]
            missing += [] if WASI.exists() else ["wasi-libc"]
            pytest.importorskip("wasmtime")
        if missing:
            pytest.skip(f"there is no {' and no '.join(missing)} here; make cross installs it")

    def build(self, folder: Path, objects: Sequence[str]) -> Path:
        """The program of `main.c` and object files of a folder."""
        flags = ["-std=c99", "-O1", "-Wall", "-Werror"]
        if self.emulator:
            execute([self.compiler, *flags, "main.c", *objects, "-static", "-o", "main", "-lm"], folder)
            return folder / "main"
        execute(
            [str(clang()), "--target=wasm32-wasi", "--sysroot=/usr", *flags, "-c", "main.c", "-o", "main.o"], folder
        )
        parts = [str(WASI / "crt1-command.o"), "main.o", *objects, f"-L{WASI}", "-lc", "-lm"]
        execute(["wasm-ld", *parts, "-o", "main.wasm"], folder)
        return folder / "main.wasm"

    def run(self, program: Path, data: bytes) -> bytes:
        """What a program writes when it reads `data`."""
        if self.emulator:
            done = subprocess.run([*self.emulator, program], input=data, capture_output=True, check=False, timeout=600)
            assert done.returncode == 0, done.stderr.decode()
            return done.stdout
        return run_wasm(program, data)


AARCH64 = Machine("aarch64", "raspberry-pi/4b-aarch64", "aarch64-linux-gnu-gcc", ("qemu-aarch64",))
SVE = Machine("sve512", "fujitsu/a64fx", "aarch64-linux-gnu-gcc", ("qemu-aarch64", "-cpu", "max,sve512=on"))
ARMV7 = Machine("armv7", "raspberry-pi/2b", "arm-linux-gnueabihf-gcc", ("qemu-arm",))
RISCV = Machine("riscv64", "riscv/rv64gc", "riscv64-linux-gnu-gcc", ("qemu-riscv64",))
RISCV_V = Machine(
    "riscv64v",
    "riscv/rv64gcv",
    "riscv64-linux-gnu-gcc",
    ("qemu-riscv64", "-cpu", "rv64,v=true,vlen=128,vext_spec=v1.0"),
)
WASM = Machine("wasm", "wasm/simd", "clang")
WASM_RELAXED = Machine("wasm-relaxed", "wasm/relaxed-simd", "clang")
MACHINES = (AARCH64, SVE, ARMV7, RISCV, RISCV_V, WASM, WASM_RELAXED)
ISSUED = (AARCH64, ARMV7, RISCV, RISCV_V, WASM)
"""Those on which whole models run."""


def clang() -> str | None:
    """A compiler of C for WebAssembly."""
    return next(filter(None, map(shutil.which, CLANGS)), None)


def execute(command: Sequence[str], folder: Path) -> str:
    """Runs a command, and returns what it prints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stderr}"
    return done.stdout


def run_wasm(program: Path, data: bytes) -> bytes:
    """What a program of WASI writes when it reads `data`, in wasmtime."""
    import wasmtime

    given, taken = program.with_suffix(".in"), program.with_suffix(".out")
    given.write_bytes(data)
    engine = wasmtime.Engine()
    store, linker = wasmtime.Store(engine), wasmtime.Linker(engine)
    linker.define_wasi()
    config = wasmtime.WasiConfig()
    config.stdin_file, config.stdout_file = str(given), str(taken)
    config.inherit_stderr()
    store.set_wasi(config)
    instance = linker.instantiate(store, wasmtime.Module.from_file(engine, str(program)))
    try:
        start: Any = instance.exports(store)["_start"]
        start(store)
    except wasmtime.ExitTrap as ended:
        assert ended.code == 0
    return taken.read_bytes()


def main_c(header: str, functions: Mapping[str, tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]) -> str:
    """A program that calls functions of a header, each with its inputs and outputs; all extents are known.

    Structures whose fields are pointers lie in memory as arrays of them do.
    """
    name = header.removesuffix(".h")
    lines = ["#include <stdio.h>", "#include <stdlib.h>", f'#include "{header}"', f"static {name}_model model;"]
    calls = []
    for function, (inputs, outputs) in functions.items():
        sizes = [", ".join(str(array.nbytes) for array in arrays) for arrays in (inputs, outputs)]
        lines.append(
            f"""
static int call_{function}(void) {{
    static const long given[] = {{{sizes[0]}}}, made[] = {{{sizes[1]}}};
    void *inputs[{len(inputs)}], *outputs[{len(outputs)}];
    const char *error = "";
    int i;
    for (i = 0; i < {len(inputs)}; i++) {{
        inputs[i] = malloc(given[i] ? given[i] : 1);
        if (fread(inputs[i], 1, given[i], stdin) != (size_t)given[i]) return 1;
    }}
    for (i = 0; i < {len(outputs)}; i++) outputs[i] = malloc(made[i]);
    if ({function}_run(&model, (const void *)inputs, (const void *)outputs, NULL, 0, &error) != 0) {{
        fprintf(stderr, "{function}: %s\\n", error);
        return 1;
    }}
    for (i = 0; i < {len(outputs)}; i++) fwrite(outputs[i], 1, made[i], stdout);
    for (i = 0; i < {len(inputs)}; i++) free(inputs[i]);
    for (i = 0; i < {len(outputs)}; i++) free(outputs[i]);
    return 0;
}}"""
        )
        calls.append(f"    if (call_{function}()) return 3;")
    main = ["int main(void) {", f"    if ({name}_init(&model, NULL)) return 2;", *calls, "    return 0;", "}"]
    return "\n".join([*lines, *main]) + "\n"


def computed(
    machine: Machine,
    folder: Path,
    executable: Any,
    functions: Mapping[str, tuple[Sequence[np.ndarray], Sequence[np.ndarray]]],
) -> dict[str, list[np.ndarray]]:
    """What functions of an executable give on a machine: for each its outputs, of the shapes that are given.

    `functions` are by their names in C, without `_run`.
    """
    executable.export_library(folder / "m.o", header=folder / "m.h")
    (folder / "main.c").write_text(main_c("m.h", functions))
    data = b"".join(np.ascontiguousarray(x).tobytes() for inputs, _ in functions.values() for x in inputs)
    written = machine.run(machine.build(folder, ["m.o"]), data)
    found: dict[str, list[np.ndarray]] = {}
    start = 0
    for name, (_, outputs) in functions.items():
        found[name] = []
        for output in outputs:
            part = written[start : start + output.nbytes]
            found[name].append(np.frombuffer(part, output.dtype).reshape(output.shape))
            start += output.nbytes
    assert start == len(written)
    return found
