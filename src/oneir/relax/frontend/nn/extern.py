"""Functions that other programs provide, called from exported modules.

    ext = nn.SourceModule({"ext_add": lambda a, b: nn.Tensor.placeholder(a.shape, a.dtype)}, source, "cpp")
    y = ext["ext_add"](x, x)                               # in a module's method
    mod = relax.transform.AttachExternModules([ext])(mod)  # before the program is built

Each function is described by what infers its results: from the arguments, tensors like those that it writes. It is
called with its arguments and, behind them, the tensors that it writes.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ....runtime import llvm
from ....runtime.error import CompileError, InvalidValue, LibraryError, UnsupportedError
from ....runtime.module import Module as RuntimeModule
from ....runtime.module import load_static_library
from ....runtime.object_file import read_symbols
from ....runtime.signature import Param, Signature
from .core import Module
from .exporter import Exporter
from .op import extern

_INCLUDES = Path(llvm.__file__).parent / "include"
_SUFFIXES = {"cpp": ".cpp", "cu": ".cu"}
_COMPILERS = {"cpp": ("c++", "g++", "clang++"), "cu": ("nvcc",)}
_KINDS: dict[str, Literal["tensor", "int", "float", "bool", "handle"]] = {
    "t": "tensor",
    "i": "int",
    "f": "float",
    "b": "bool",
    "p": "handle",
}
"""The kinds of parameters, by the letters that `tvm/ffi/function.h` writes for them."""
_MAX_PARAMS = 255


class ExternModule(Module):
    """Functions by name, each with what infers its results."""

    def __init__(self, symbols: Mapping[str, Callable[..., Any]]):
        self.symbols = dict(symbols)

    def __getitem__(self, func_name: str) -> Callable[..., Any]:
        """The function, which may be called with tensors, expressions, numbers and texts."""
        if func_name not in self.symbols:
            raise InvalidValue(f"the external module has no function `{func_name}`; it has {', '.join(self.symbols)}")
        infer = self.symbols[func_name]
        exporter = Exporter.current()
        if self not in exporter.extern_mods:
            exporter.add_external_module(self)

        def call(*args: Any) -> Any:
            return extern(func_name, args, infer(*args))

        return call

    def load(self) -> RuntimeModule:
        """The functions, ready to be called."""
        raise UnsupportedError(
            "an ExternModule only says what its functions return; use SourceModule or ObjectModule, which have code, "
            "or register the functions with oneir.register_global_func"
        )


class ObjectModule(ExternModule):
    """Functions in an object file: one that `SourceModule.compile` made, or that `export_library` wrote."""

    def __init__(self, symbols: Mapping[str, Callable[..., Any]], filepath: str | Path):
        super().__init__(symbols)
        self.filepath = Path(filepath)
        if not self.filepath.is_file():
            raise InvalidValue(f"ObjectModule: there is no file {self.filepath}")

    def load(self) -> RuntimeModule:
        return _load_object(self.filepath, list(self.symbols))


class SourceModule(ExternModule):
    """Functions in C++ or CUDA source code, which is compiled when the module is loaded.

    The code is given as a text or as a path; `source_format` is "cpp" or "cu". It exports a function with

        #include <tvm/ffi/function.h>
        TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, function);

    whose parameters are `DLTensor*`, numbers, `const char*` and `void*`. `compiler` is the command; by default that of
    the environment variable CXX, or the first of c++, g++ and clang++ (nvcc for CUDA).
    """

    def __init__(
        self,
        symbols: Mapping[str, Callable[..., Any]],
        source_code: str | Path,
        source_format: str,
        compile_options: Sequence[str] | None = None,
        compiler: str | None = None,
        output_format: str = "obj",
    ):
        super().__init__(symbols)
        if source_format not in _SUFFIXES:
            raise InvalidValue(f'SourceModule: expected the source format "cpp" or "cu", found {source_format!r}')
        if output_format != "obj":
            raise UnsupportedError(f'SourceModule: the output format is "obj", found {output_format!r}')
        self.source_format = source_format
        self.source_code = _source_text(source_code)
        self.compiler = compiler
        self.compile_options = list(
            self.get_compile_options(source_format) if compile_options is None else compile_options
        )

    @staticmethod
    def tvm_home() -> Path:
        """The folder of packages that the environment variable TVM_HOME names; they lie in its folder 3rdparty."""
        home = os.environ.get("TVM_HOME")
        if not home or not Path(home).is_dir():
            raise InvalidValue(
                f"SourceModule: the environment variable TVM_HOME names the folder that has 3rdparty, found {home!r}"
            )
        return Path(home).resolve()

    @staticmethod
    def get_includes(tvm_pkg: Sequence[str] | None = None) -> list[Path]:
        """Where headers are looked for: those of tensors and exports, and folders of `tvm_home()/3rdparty`."""
        folders = [_INCLUDES, *(SourceModule.tvm_home() / "3rdparty" / name for name in tvm_pkg or ())]
        if missing := [str(folder) for folder in folders if not folder.is_dir()]:
            raise InvalidValue(f"SourceModule: there is no folder {', '.join(missing)}")
        return folders

    @staticmethod
    def get_compile_options(source_format: str, tvm_pkg: Sequence[str] | None = None) -> list[str]:
        """The options of the compiler unless others are given: an object file, -O3, C++17, the folders of headers."""
        if source_format not in _SUFFIXES:
            raise InvalidValue(f'SourceModule: expected the source format "cpp" or "cu", found {source_format!r}')
        includes = [option for folder in SourceModule.get_includes(tvm_pkg) for option in ("-I", str(folder))]
        independent = ["-fPIC"] if source_format == "cpp" else ["-Xcompiler=-fPIC"]
        return [*includes, "-c", "-O3", "-std=c++17", *independent]

    def compile(self, output_path: str | Path) -> None:
        """Compiles the code into an object file.

        Raises `CompileError` with the messages of the compiler, or if no compiler was found.
        """
        compiler = self.compiler or os.environ.get("CXX")
        candidates = [compiler] if compiler else _COMPILERS[self.source_format]
        command = next((found for name in candidates if (found := shutil.which(name))), None)
        if command is None:
            raise CompileError(
                f"SourceModule: no compiler was found, looked for {', '.join(candidates)}. What to do: install one, "
                "name one with compiler= or the environment variable CXX, or compile elsewhere and use ObjectModule"
            )
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / f"main{_SUFFIXES[self.source_format]}"
            source.write_text(self.source_code, encoding="utf-8")
            line = [command, *self.compile_options, "-o", str(Path(output_path).resolve()), str(source)]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CompileError(f"SourceModule: {command} failed:\n{(done.stderr or done.stdout).strip()}")

    def load(self) -> RuntimeModule:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "main.o"
            self.compile(path)
            return _load_object(path, list(self.symbols))


def _source_text(source: str | Path) -> str:
    """Source code, or the text of the file at a path."""
    if isinstance(source, str) and ("\n" in source or not Path(source).is_file()):
        return source
    path = Path(source)
    if not path.is_file():
        raise InvalidValue(f"SourceModule: there is no file {path}")
    return path.read_text(encoding="utf-8")


def _load_object(path: Path, names: Sequence[str]) -> RuntimeModule:
    """The functions of an object file."""
    data = path.read_bytes()
    defined = read_symbols(data, str(path)).defined
    if not any(f"__oneir_params_{name}" in defined for name in names):
        return load_static_library(path, names)
    if missing := [name for name in names if f"__oneir_{name}" not in defined]:
        raise LibraryError(f"{path} does not export {', '.join(missing)}; say TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, ...)")
    _load_cpp_runtime()
    linked = llvm.link(data, what=str(path))
    return RuntimeModule(lambda: linked, {name: _signature(linked, name) for name in names}, [data])


def _load_cpp_runtime() -> None:
    """Makes the functions of the C++ library, such as the operator new, known to the linker, where there is one."""
    for name in ("libstdc++.so.6", "libc++.so.1", "libc++.1.dylib"):
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return


def _signature(linked: llvm.LoadedObject, name: str) -> Signature:
    """The signature of a function, from its C++ declaration."""
    letters = ctypes.create_string_buffer(_MAX_PARAMS + 1)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(linked.symbol(f"__oneir_params_{name}"))(ctypes.addressof(letters))
    named = enumerate(letters.value.decode())
    return Signature(name, tuple(Param(f"arg{i}", _KINDS[letter]) for i, letter in named))
