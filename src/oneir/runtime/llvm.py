"""LLVM at arm's length: text of LLVM IR in, object code out, and object code linked into this process.

    data = compile_ir("define i32 @next(i32 %x) { ... }", name="demo")
    loaded = link(data)
    address = loaded.symbol("next")

Nothing else in the project touches `llvmlite.binding`, and this module imports it only when it is first needed. One
lock serializes everything (LLVM's C API has no locking of its own); to compile in parallel, use processes.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from .error import CompileError, LibraryError
from .object_file import host_machine, read_symbols

if TYPE_CHECKING:
    import llvmlite.binding as llvm

Passes = Literal["default", "kernel", "minimal", "none"]
"""Which IR passes run. `default`: LLVM's pipeline for the optimization level, which vectorizes and unrolls loops.
`kernel`, for code that is vectorized and unrolled already: simplification and loop-invariant motion, half the time.
`minimal`: helpers inlined and local arrays turned into registers, a third of the time. `none`: not one."""

_lock = threading.RLock()
# A child of fork must not inherit a lock held by a thread that it does not have.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@functools.cache
def _binding(*, every_target: bool = False):
    """`llvmlite.binding`, initialized for the host or for every target that it carries."""
    import llvmlite.binding as llvm

    if every_target:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    return llvm


@functools.cache
def llvm_version() -> str:
    """The version of LLVM in use, such as `22.1.0`; part of every cache key for object code."""
    with _lock:
        return ".".join(str(part) for part in _binding().llvm_version_info)


@functools.cache
def host_triple() -> str:
    """The target triple of this process."""
    with _lock:
        return _binding().get_process_triple()


@functools.cache
def host_cpu() -> str:
    """LLVM's name of the processor that this process runs on."""
    with _lock:
        return _binding().get_host_cpu_name()


@functools.cache
def host_features() -> str:
    """The host's feature string, `+avx2,-sse4a,...`, sorted."""
    with _lock:
        return _binding().get_host_cpu_features().flatten()


def target_names() -> list[str]:
    """The architectures that code can be generated for."""
    with _lock:
        _binding(every_target=True)
        from llvmlite.binding import targets

        return sorted(name for name in _ARCHITECTURES if _has_target(targets, name))


_ARCHITECTURES = {
    "aarch64": "aarch64-unknown-linux-gnu",
    "amdgcn": "amdgcn-amd-amdhsa",
    "arm": "armv7-unknown-linux-gnueabihf",
    "nvptx64": "nvptx64-nvidia-cuda",
    "riscv64": "riscv64-unknown-linux-gnu",
    "spirv64": "spirv64-unknown-unknown",
    "thumb": "thumbv7em-none-eabi",
    "wasm32": "wasm32-unknown-unknown",
    "x86-64": "x86_64-unknown-linux-gnu",
}


def _has_target(targets: Any, name: str) -> bool:
    try:
        targets.Target.from_triple(_ARCHITECTURES[name])
    except RuntimeError:
        return False
    return True


def compile_ir(
    text: str,
    *,
    name: str,
    triple: str | None = None,
    cpu: str | None = None,
    features: str | None = None,
    abi: str = "",
    opt_level: int = 3,
    passes: Passes = "default",
) -> bytes:
    """Compile LLVM IR text to a relocatable object file.

    `triple`, `cpu` and `features` default to the host's; naming a triple without a CPU means a generic one. `abi` is
    needed by RISC-V with hardware floating point (`lp64d`). Code is position independent where the target has that.
    `opt_level` is 0 to 3; `passes` see `Passes`. `name` names the module in errors. Raises `CompileError`.
    """
    with _lock:
        machine = _target_machine(triple, cpu, features, abi, opt_level)
        module = _optimized(text, name, machine, opt_level, passes)
        try:
            return machine.emit_object(module)
        except RuntimeError as error:
            raise CompileError(f"LLVM cannot emit an object file for {name}: {error}") from error


def link_ir(text: str, imports: Sequence[str]) -> str:
    """The text of a module of LLVM IR with all of others, which lose their target and are visible inside of it only.

    Raises `CompileError` for what is not LLVM IR, and for two definitions of one name.
    """
    with _lock:
        binding = _binding()
        context = binding.create_context()
        module = binding.parse_assembly(text, context=context)
        for imported in imports:
            try:
                part = binding.parse_assembly(imported, context=context)
                part.triple = part.data_layout = ""
                functions = [value.name for value in part.functions if not value.is_declaration]
                variables = [value.name for value in part.global_variables if not value.is_declaration]
                module.link_in(part)
            except RuntimeError as error:
                raise CompileError(_rejected(imported, "pragma_import_llvm", str(error))) from error
            for value in (*map(module.get_function, functions), *map(module.get_global_variable, variables)):
                value.linkage = "internal"
        return str(module)


def compile_to_assembly(
    text: str,
    *,
    name: str,
    triple: str | None = None,
    cpu: str | None = None,
    features: str | None = None,
    abi: str = "",
    opt_level: int = 3,
    passes: Passes = "default",
) -> str:
    """Compile LLVM IR text to assembly; arguments and errors as for `compile_ir`."""
    with _lock:
        machine = _target_machine(triple, cpu, features, abi, opt_level)
        module = _optimized(text, name, machine, opt_level, passes)
        try:
            return machine.emit_assembly(module)
        except RuntimeError as error:
            raise CompileError(f"LLVM cannot emit assembly for {name}: {error}") from error


def optimize(
    text: str,
    *,
    name: str,
    triple: str | None = None,
    cpu: str | None = None,
    features: str | None = None,
    abi: str = "",
    opt_level: int = 3,
    passes: Passes = "default",
) -> str:
    """The IR text after LLVM's passes; arguments and errors as for `compile_ir`."""
    with _lock:
        machine = _target_machine(triple, cpu, features, abi, opt_level)
        return str(_optimized(text, name, machine, opt_level, passes))


@functools.lru_cache(maxsize=16)
def _target_machine(
    triple: str | None, cpu: str | None, features: str | None, abi: str, opt_level: int
) -> llvm.TargetMachine:
    if not 0 <= opt_level <= 3:
        raise CompileError(f"The optimization level must be 0, 1, 2 or 3; found {opt_level}.")
    native = triple is None or triple == host_triple()
    binding = _binding() if native else _binding(every_target=True)
    if native:
        triple = host_triple()
        if cpu is None:
            cpu = host_cpu()
            features = host_features() if features is None else features
    assert triple is not None
    try:
        target = binding.Target.from_triple(triple)
    except RuntimeError as error:
        raise CompileError(f"LLVM has no target for the triple {triple!r}: {str(error).strip()}") from error
    check_processor(triple, cpu or "", features or "")
    position_dependent = target.name.startswith(("wasm", "nvptx", "amdgcn", "spirv"))
    return target.create_target_machine(
        cpu=cpu or "",
        features=features or "",
        opt=opt_level,
        reloc="static" if position_dependent else "pic",
        codemodel="default",
        abiname=abi,
    )


def check_processor(triple: str, cpu: str, features: str) -> None:
    """Raises `CompileError` for a processor that LLVM does not know, or with which it would end this process."""
    plain = cpu in ("", "generic", "help") and not features
    if not plain and (triple, cpu, features) != (host_triple(), host_cpu(), host_features()):
        _ask_about_processor(triple, cpu, features)


_QUESTION = """
import sys
triple, cpu, features, *sys.path = sys.argv[1:]
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
module = llvm.parse_assembly("define void @f() { ret void }")
module.triple, module.data_layout = triple, str(machine.target_data)
machine.emit_assembly(module)
"""


@functools.cache
def _ask_about_processor(triple: str, cpu: str, features: str) -> None:
    # LLVM prints what it does not know, and aborts over what does not go together: so it is asked in another process.
    if not sys.executable:
        return
    command = [sys.executable, "-I", "-S", "-c", _QUESTION, triple, cpu, features, *sys.path]
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if f"{cpu!r} is not a recognized processor" in answer.stderr:
        raise CompileError(
            f"LLVM knows no processor {cpu!r} for {triple}; llvm_get_cpu_archlist() lists those there are"
        )
    if answer.returncode:
        reason = (answer.stderr.strip().splitlines() or ["it ended without a word"])[-1].removeprefix("LLVM ERROR: ")
        raise CompileError(f"LLVM refuses the processor {cpu!r} with the features {features!r} for {triple}: {reason}")


def _optimized(text: str, name: str, machine: llvm.TargetMachine, opt_level: int, passes: Passes) -> llvm.ModuleRef:
    """Parse and verify `text`, set it up for `machine`, and run the passes on it."""
    binding = _binding()
    try:
        # A context of its own, so that its types and constants are freed with the module.
        module = binding.parse_assembly(text, context=binding.create_context())
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileError(_rejected(text, name, str(error))) from error
    if passes == "none":
        return module
    full = passes == "default"
    options = binding.create_pipeline_tuning_options(opt_level if full else min(opt_level, 1))
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = full and opt_level >= 2
    options.loop_unrolling = full
    builder = binding.create_pass_builder(machine, options)
    if passes == "minimal":
        manager = binding.create_new_module_pass_manager()
        manager.add_always_inliner_pass()
        manager.add_sroa_pass()
    else:
        manager = builder.getModulePassManager()
    manager.run(module, builder)
    return module


def _rejected(text: str, name: str, message: str) -> str:
    """The text of the error for IR that LLVM does not accept, with the offending line of `text`."""
    lines = text.splitlines()
    located = re.search(r"<string>:(\d+):\d+: error: (.*)", message)
    if located:
        number, reason = int(located[1]), located[2]
    else:
        reason, *quoted = message.strip().splitlines()
        wanted = {line.strip() for line in quoted}
        number = next((i for i, line in enumerate(lines, 1) if line.strip() in wanted), 0)
    if not 0 < number <= len(lines):
        return f"LLVM rejects the IR of {name}: {message.strip()}"
    return f"LLVM rejects the IR of {name}, line {number}: {reason}\n    {lines[number - 1].strip()}"


# Linking into this process -------------------------------------------------------------------------------------------

_symbols: dict[str, int | Callable[[], int]] = {}
_library_numbers = itertools.count()


def add_symbol(name: str, address: int | Callable[[], int]) -> None:
    """Make `name` known to every object linked later. A callable is asked for the address when it is first needed."""
    _symbols[name] = address


class LoadedObject:
    """Object code linked into this process; its memory lives as long as this does."""

    def __init__(
        self, tracker: llvm.ResourceTracker, jit: llvm.LLJIT, addresses: dict[str, int], needs: object
    ) -> None:
        self._tracker = tracker
        self._jit = jit  # must outlive the tracker
        self._addresses = addresses
        self._needs = needs

    def symbol(self, name: str) -> int:
        """The address of a function or variable that the object defines; `LibraryError` if it defines no such."""
        try:
            return self._addresses[name]
        except KeyError:
            known = ", ".join(sorted(self._addresses)) or "none"
            raise LibraryError(f"The object code defines no symbol {name!r}; it defines: {known}.") from None

    def symbols(self) -> frozenset[str]:
        """The names that `symbol` knows."""
        return frozenset(self._addresses)


def link(*objects: bytes, what: str = "object code") -> LoadedObject:
    """Link relocatable objects with each other and with this process, and load the result.

    Symbols are looked for in the objects, then among those of `add_symbol`, then in the process (libc, Python's C API),
    in libm and the compiler's support library. `what` names the objects in errors. Raises `LibraryError` for a
    malformed or foreign object and for a symbol that is nowhere.
    """
    defined: set[str] = set()
    hidden: set[str] = set()
    undefined: set[str] = set()
    for data in objects:
        symbols = read_symbols(data, what)
        if symbols.machine != host_machine():
            raise LibraryError(
                f"{what} is for {symbols.machine}, and this machine is {host_machine()}. Compile it for this machine."
            )
        defined |= symbols.defined
        hidden |= symbols.hidden
        undefined |= symbols.undefined
    imports = {name: _resolve(name) for name in undefined - defined - hidden}
    missing = sorted(name for name, address in imports.items() if address is None)
    if missing:
        raise LibraryError(
            f"{what} needs {', '.join(missing)}, which neither the runtime nor this process defines. "
            "Load the library that defines it first (ctypes.CDLL with mode=RTLD_GLOBAL)."
        )
    with _lock:
        binding = _binding()
        library = binding.JITLibraryBuilder()
        for data in objects:
            library.add_object_img(data)
        for name, address in imports.items():
            library.import_symbol(name, address)
        for name in defined:
            library.export_symbol(name)
        jit = _jit()
        try:
            tracker = library.link(jit, f"oneir{next(_library_numbers)}")
        except RuntimeError as error:
            raise LibraryError(f"LLVM cannot link {what}: {error}") from error
        return LoadedObject(tracker, jit, {name: tracker[name] for name in defined}, objects)


@functools.cache
def _jit() -> llvm.LLJIT:
    binding = _binding()
    target = binding.Target.from_triple(host_triple())
    machine = target.create_target_machine(opt=0, reloc="pic", codemodel="small", jit=True)
    return binding.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)


@functools.cache
def _process_libraries() -> list[ctypes.CDLL]:
    libraries: list[ctypes.CDLL] = [ctypes.CDLL(None), ctypes.pythonapi] if os.name == "posix" else [ctypes.pythonapi]
    for file in ("libm.so.6", "libgcc_s.so.1", "msvcrt.dll"):
        try:
            libraries.append(ctypes.CDLL(file))
        except OSError:
            continue
    return libraries


def _resolve(name: str) -> int | None:
    """The address of a symbol that lies outside of the objects being linked."""
    known = _symbols.get(name)
    if known is not None:
        return known() if callable(known) else known
    for library in _process_libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            continue
    return None
