"""The interface to LLVM: compiles LLVM IR text to object code, and links object code into this process.

    data = compile_ir("define i32 @next(i32 %x) { ... }", name="demo")
    loaded = link(data)
    address = loaded.symbol("next")

Nothing else in the project touches `llvmlite.binding`, and this module imports it only when it is first needed. One
lock serializes everything (LLVM's C API has no locking of its own); to compile in parallel, use processes. Objects of
LLVM's live and die under the lock: so a `fork`, which takes it first, finds LLVM at rest.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from .error import CompileError, LibraryError
from .llvm_parts import parts_of
from .object_file import host_machine, read_symbols
from .once import Once

if TYPE_CHECKING:
    import llvmlite.binding as llvm

P = ParamSpec("P")
T = TypeVar("T")

Passes = Literal["default", "kernel", "minimal", "none"]
"""Which IR passes run. `default`: LLVM's pipeline for the optimization level, which vectorizes loops, and unrolls those
that ask for it in their metadata.
`kernel`, for code that is vectorized and unrolled already: simplification and loop-invariant motion, half the time.
`minimal`: helpers inlined and local arrays turned into registers, a third of the time. `none`: not one."""


class _LlvmLock:
    """The lock of all calls of LLVM: `with _lock: ...`. Releasing it frees the programs that died meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._dead: deque[tuple[llvm.ResourceTracker, llvm.LLJIT]] = deque()
        self._is_finalizing = sys.is_finalizing
        self._of_llvmlite: Any = None
        """llvmlite's lock of each call, from before a fork until after it."""

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self.free_dead()

    def free_later(self, tracker: llvm.ResourceTracker, jit: llvm.LLJIT) -> None:
        """Frees code when LLVM is at rest: who drops a program does not wait for another thread that compiles."""
        self._dead.append((tracker, jit))
        if not self._is_finalizing():
            self.free_dead()

    def free_dead(self) -> None:
        """Frees what waits to be freed, unless another thread is in LLVM, which does so in the end."""
        while self._dead and self._lock.acquire(blocking=False):
            try:
                while self._dead:
                    tracker, jit = self._dead.popleft()
                    tracker.close()
                    del tracker, jit  # the code engine goes with its last program
            finally:
                self._lock.release()

    def before_fork(self) -> None:
        """Waits until no other thread is in LLVM, nor in llvmlite, whose objects may die in any thread."""
        self._lock.acquire()
        ffi = sys.modules.get("llvmlite.binding.ffi")
        self._of_llvmlite = None if ffi is None else ffi.lib._lock
        if self._of_llvmlite is not None:
            self._of_llvmlite.__enter__()

    def after_fork(self) -> None:
        """Lets other threads in again; in a child, which has none, both locks are the forking thread's as well."""
        if self._of_llvmlite is not None:
            self._of_llvmlite.__exit__(None, None, None)
        self._lock.release()


_lock = _LlvmLock()
# A child of fork must not find LLVM, or its lock, in the hands of a thread that it does not have.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.before_fork, after_in_parent=_lock.after_fork, after_in_child=_lock.after_fork)


def _in_llvm(function: Callable[P, T]) -> Callable[P, T]:
    """A decorator: calls the function under the lock, under which its local objects die as well."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with _lock:
            return function(*args, **kwargs)

    return call


def _once_in_llvm(make: Callable[P, T]) -> Once[P, T]:
    """Like `once`, under LLVM's lock, since callers may hold it already."""
    return Once(make, _lock)


@_once_in_llvm
def _binding() -> Any:
    """`llvmlite.binding`, initialized for the host."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@_once_in_llvm
def _binding_for_every_target() -> Any:
    """`llvmlite.binding`, initialized for every target that it carries."""
    binding = _binding()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding


@_once_in_llvm
def llvm_version() -> str:
    """The version of LLVM in use, such as `22.1.0`; part of every cache key for object code."""
    return ".".join(str(part) for part in _binding().llvm_version_info)


@_once_in_llvm
def host_triple() -> str:
    """The target triple of this process."""
    return _binding().get_process_triple()


@_once_in_llvm
def host_cpu() -> str:
    """LLVM's name of the processor that this process runs on."""
    return _binding().get_host_cpu_name()


@_once_in_llvm
def host_features() -> str:
    """The host's feature string, `+avx2,-sse4a,...`, sorted."""
    return _binding().get_host_cpu_features().flatten()


@_in_llvm
def target_names() -> list[str]:
    """The architectures that code can be generated for."""
    targets = _binding_for_every_target().targets
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


@_in_llvm
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
    machine = _target_machine(triple, cpu, features, abi, opt_level)
    module = _optimized(text, name, machine, opt_level, passes)
    try:
        return machine.emit_object(module)
    except RuntimeError as error:
        raise CompileError(f"LLVM cannot emit an object file for {name}: {error}") from error


@_in_llvm
def to_bitcode(text: str) -> bytes:
    """LLVM IR as bitcode. Raises `CompileError` for what is not LLVM IR."""
    try:
        return _binding().parse_assembly(text).as_bitcode()
    except RuntimeError as error:
        raise CompileError(f"LLVM cannot read the IR that is to be bitcode: {error}") from error


@_in_llvm
def from_bitcode(data: bytes, name: str) -> str:
    """The text of LLVM IR that is bitcode; `name` names it in errors. Raises `CompileError` for what is none."""
    try:
        return str(_binding().parse_bitcode(data))
    except RuntimeError as error:
        raise CompileError(f"{name} is no bitcode that LLVM can read: {' '.join(str(error).split())}") from error


@_in_llvm
def link_ir(text: str, imports: Sequence[str], visible: Collection[str] = ()) -> str:
    """The text of a module of LLVM IR with all of others, which lose their target and are visible inside of it only.

    Those of their symbols that are `visible` are so outside as well, where nobody can put others in their place. What
    was to be compiled as it stands is optimized with the rest, which may be more than text tells apart. Raises
    `CompileError` for what is not LLVM IR, and for two definitions of one name.
    """
    binding = _binding()
    context = binding.create_context()
    module = binding.parse_assembly(text, context=context)
    for imported in imports:
        try:
            part = binding.parse_assembly(imported, context=context)
            part.triple = part.data_layout = ""
            functions = [value.name for value in part.functions if _is_exported(value)]
            variables = [value.name for value in part.global_variables if _is_exported(value)]
            module.link_in(part)
        except RuntimeError as error:
            raise CompileError(_rejected(imported, "pragma_import_llvm", str(error))) from error
        for value in (*map(module.get_function, functions), *map(module.get_global_variable, variables)):
            if value.name in visible:
                value.visibility = "protected"
            else:
                value.linkage = "internal"
    return _OPTNONE.sub(r"\1", str(module))


def _is_exported(value: Any) -> bool:
    """Whether other modules may refer to what a value of LLVM's defines."""
    linkage = _binding().Linkage
    return not value.is_declaration and value.linkage not in (linkage.internal.value, linkage.private.value)


@_in_llvm
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
    machine = _target_machine(triple, cpu, features, abi, opt_level)
    module = _optimized(text, name, machine, opt_level, passes)
    try:
        return machine.emit_assembly(module)
    except RuntimeError as error:
        raise CompileError(f"LLVM cannot emit assembly for {name}: {error}") from error


@_in_llvm
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
    machine = _target_machine(triple, cpu, features, abi, opt_level)
    return str(_optimized(text, name, machine, opt_level, passes))


@functools.lru_cache(maxsize=16)
def _target_machine(
    triple: str | None, cpu: str | None, features: str | None, abi: str, opt_level: int
) -> llvm.TargetMachine:
    if not 0 <= opt_level <= 3:
        raise CompileError(f"The optimization level must be 0, 1, 2 or 3; found {opt_level}.")
    native = triple is None or triple == host_triple()
    binding = _binding() if native else _binding_for_every_target()
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
if cpu != "help":
    module = llvm.parse_assembly("define void @f() { ret void }")
    module.triple, module.data_layout = triple, str(machine.target_data)
    machine.emit_assembly(module)
"""


def ask_apart(triple: str, cpu: str, features: str = "") -> subprocess.CompletedProcess[str]:
    """How a process ends that makes code for a processor, and what LLVM prints there.

    LLVM prints what it does not know, and what it knows when it is asked for the processor "help", and aborts over what
    does not go together.
    """
    command = [sys.executable, "-I", "-S", "-c", _QUESTION, triple, cpu, features, *sys.path]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@_once_in_llvm
def _ask_about_processor(triple: str, cpu: str, features: str) -> None:
    if not sys.executable:
        return
    answer = ask_apart(triple, cpu, features)
    if f"{cpu!r} is not a recognized processor" in answer.stderr:
        raise CompileError(
            f"LLVM knows no processor {cpu!r} for {triple}; llvm_get_cpu_archlist() lists those there are"
        )
    if answer.returncode:
        reason = (answer.stderr.strip().splitlines() or ["it ended without a word"])[-1].removeprefix("LLVM ERROR: ")
        raise CompileError(f"LLVM refuses the processor {cpu!r} with the features {features!r} for {triple}: {reason}")


_OPTNONE = re.compile(r"^((?:define|attributes) .*) optnone\b", re.MULTILINE)
"""Where a module's text says that a function is to be compiled as it stands."""


class _PassBuilders:
    """LLVM's builders of pass pipelines, each used for several modules, since each one leaks 1.5 KB."""

    MODULES = 16

    def __init__(self) -> None:
        self._wanted: tuple[Any, ...] = ()
        self._current: Any = None
        self._count = 0

    def next(self, machine: llvm.TargetMachine, opt_level: int, passes: Passes) -> llvm.PassBuilder:
        """A builder for one module."""
        if self._wanted != (machine, opt_level, passes) or self._count == self.MODULES:
            binding, full = _binding(), passes == "default"
            options = binding.create_pipeline_tuning_options(opt_level if full else min(opt_level, 1))
            options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = full and opt_level >= 2
            options.loop_unrolling = False
            self._wanted, self._count = (machine, opt_level, passes), 0
            self._current = binding.create_pass_builder(machine, options)
        self._count += 1
        return self._current


_builders = _PassBuilders()


def _optimized(text: str, name: str, machine: llvm.TargetMachine, opt_level: int, passes: Passes) -> llvm.ModuleRef:
    """Parse and verify `text`, set it up for `machine`, and run the passes on it."""
    # A context of its own, so that its types and constants are freed with the module.
    context = _binding().create_context()
    parts = None if passes == "none" else parts_of(text)
    if parts is None:
        # See llvm_parts.py for why no pass may meet such a function.
        module = _parsed(text if passes == "none" else _OPTNONE.sub(r"\1", text), name, machine, context)
        _run_passes(module, machine, opt_level, passes)
        return module
    module = _parsed(parts.optimized, name, machine, context)
    _run_passes(module, machine, opt_level, passes)
    module.link_in(_parsed(parts.as_it_stands, name, machine, context))
    for shared in parts.shared:
        module.get_function(shared).linkage = "internal"
    return module


def _parsed(text: str, name: str, machine: llvm.TargetMachine, context: llvm.ContextRef) -> llvm.ModuleRef:
    """A verified module for a machine."""
    try:
        module = _binding().parse_assembly(text, context=context)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileError(_rejected(text, name, str(error))) from error
    return module


def _run_passes(module: llvm.ModuleRef, machine: llvm.TargetMachine, opt_level: int, passes: Passes) -> None:
    if passes == "none":
        return
    binding = _binding()
    builder = _builders.next(machine, opt_level, passes)
    if passes == "minimal":
        manager = binding.create_new_module_pass_manager()
        manager.add_always_inliner_pass()
        manager.add_sroa_pass()
    else:
        manager = builder.getModulePassManager()
    manager.run(module, builder)
    # llvmlite's own class does not free what it holds: of its two bases, the one without the method comes first.
    binding.newpassmanagers.NewPassManager._dispose(manager)
    manager.detach()


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


def add_symbol(name: str, address: int | Callable[[], int]) -> None:
    """Make `name` known to every object linked later. A callable is asked for the address when it is first needed."""
    _symbols[name] = address


class LoadedObject:
    """Object code linked into this process; its memory lives as long as this does."""

    def __init__(
        self, tracker: llvm.ResourceTracker, jit: llvm.LLJIT, addresses: dict[str, int], needs: object
    ) -> None:
        self._tracker = tracker
        self._jit = jit
        self._addresses = addresses
        self._needs = needs
        self._at_unload: list[Callable[[], None]] = []

    def at_unload(self, function: Callable[[], None]) -> None:
        """Has a function called when the object dies, before its memory is freed."""
        self._at_unload.append(function)

    def __del__(
        self, free_later: Callable[..., None] = _lock.free_later, is_ending: Callable[[], bool] = sys.is_finalizing
    ) -> None:
        if is_ending():
            return  # modules that the functions use may be empty already, and all goes with the process
        for function in self._at_unload:
            function()
        free_later(self._tracker, self._jit)

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
    return _load(objects, imports, defined, what)


@_in_llvm
def _load(
    objects: Sequence[bytes], imports: Mapping[str, int | None], exports: Iterable[str], what: str
) -> LoadedObject:
    library = _binding().JITLibraryBuilder()
    for data in objects:
        library.add_object_img(data)
    for name, address in imports.items():
        library.import_symbol(name, address)
    for name in exports:
        library.export_symbol(name)
    jit, number = _engines.next()
    try:
        tracker = library.link(jit, f"oneir{number}")
    except RuntimeError as error:
        raise LibraryError(f"LLVM cannot link {what}: {error}") from error
    return LoadedObject(tracker, jit, {name: tracker[name] for name in exports}, objects)


class _Engines:
    """LLVM's code engines, each used for several programs; it dies with the last of them.

    An engine keeps about 9 KB for each program that it has ever held, and takes 108 KB and 0.13 ms itself.
    """

    PROGRAMS = 16

    def __init__(self) -> None:
        self._current: llvm.LLJIT | None = None
        self._count = 0

    def next(self) -> tuple[llvm.LLJIT, int]:
        """An engine, and the number of a program in it."""
        if self._current is None or self._count == self.PROGRAMS:
            self._current, self._count = _new_engine(), 0
        self._count += 1
        return self._current, self._count


_engines = _Engines()


def _new_engine() -> llvm.LLJIT:
    binding = _binding()
    target = binding.Target.from_triple(host_triple())
    machine = target.create_target_machine(opt=0, reloc="pic", codemodel="small", jit=True)
    return binding.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)


@_once_in_llvm
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
