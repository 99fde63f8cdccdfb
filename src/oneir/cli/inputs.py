"""The inputs of a function that is run: from files, as numbers, or random; symbolic extents follow from them."""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.dtype import numpy_dtype
from ..runtime.error import InvalidValue, TypeMismatch
from ..runtime.signature import Param, Signature, extent_value
from ..runtime.tensor import Tensor, tensor

_SYMBOL = re.compile(r"\b[A-Za-z_]\w*\b(?!\s*[.(])")


ASSUMED = 64
"""Symbolic extents of random inputs that nothing says, apart from first ones, which are mostly batches, and 1."""


class Inputs:
    """What the options --input, --extent and --seed give to a function.

    `given` are the items of --input: `NAME=FILE.npy`, `NAME=NUMBER`, `NAME=-` (stdin), `FILE.npz` (arrays by the names
    of inputs), or `FILE.npy` where there is one input. `extents` are those of --extent, `NAME=N`.
    """

    def __init__(self, signature: Signature, given: Sequence[str], extents: Sequence[str], seed: int):
        self.function, self.params = signature.name, signature.params
        self.rng = np.random.default_rng(seed)
        self.extents: dict[str, int] = {}
        self.assumed: dict[str, int] = {}
        self.found: dict[str, Any] = {}
        for item in given:
            self._read(item)
        self._read_extents(extents)

    def arguments(self) -> list[Any]:
        """The arguments in their order; those that nothing gives are random."""
        return [self.found[p.name] if p.name in self.found else self._random(p) for p in self.params]

    def assumptions(self) -> str:
        """Which symbolic extents were made up, and how to say what they are; nothing where none was."""
        if not self.assumed:
            return ""
        found = ", ".join(f"{name} = {size}" for name, size in self.assumed.items())
        return f"extents that nothing says: {found}; --extent {next(iter(self.assumed))}=N sets one"

    # -- what is given --

    def _read(self, item: str) -> None:
        name, equals, text = item.partition("=")
        if not equals and item.endswith(".npz"):
            self._read_archive(item)
            return
        if not equals:
            names = [p.name for p in self.params]
            if not item.endswith(".npy") or len(names) != 1:
                raise InvalidValue(
                    f"--input is written NAME=FILE.npy, NAME=NUMBER or FILE.npz, found {item!r}; "
                    f"the inputs of `{self.function}` are {', '.join(names) or 'none'}"
                )
            name, text = names[0], item
        self._check([name], [p.name for p in self.params], "input")
        param = next(p for p in self.params if p.name == name)
        self._give(param, _read_value(param, text))

    def _read_archive(self, path: str) -> None:
        if Path(path).is_file() and not zipfile.is_zipfile(path):
            raise InvalidValue(f"--input {path}: expected an archive that numpy.savez wrote; it may be cut short")
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidValue(f"--input {path}: expected an archive that numpy.savez wrote: {error}") from error
        self._check(arrays, [p.name for p in self.params], "input")
        for param in self.params:
            if param.name in arrays:
                array = arrays[param.name]
                self._give(param, tensor(array) if param.kind == "tensor" else array.item())

    def _give(self, param: Param, value: Any) -> None:
        """Takes a value; what extents it has says what symbols are."""
        if isinstance(value, Tensor) and param.dtype not in (None, value.dtype):
            raise TypeMismatch(
                f"the input `{param.name}`: expected dtype {param.dtype}, found {value.dtype}; "
                f'save it as numpy.save("{param.name}.npy", array.astype("{param.dtype}"))'
            )
        self.found[param.name] = value
        if isinstance(value, Tensor) and param.shape is not None:
            for extent, size in zip(param.shape, value.shape, strict=False):
                if isinstance(extent, str) and extent.isidentifier():
                    self.extents.setdefault(extent, size)

    def _read_extents(self, items: Sequence[str]) -> None:
        known = dict.fromkeys(s for p in self.params for e in p.shape or () for s in _SYMBOL.findall(str(e)))
        for item in items:
            name, equals, text = item.partition("=")
            if not equals or not text.isdecimal():
                raise InvalidValue(f"--extent is written NAME=N, N a number such as 8, found {item!r}")
            self._check([name], list(known), "symbolic extent")
            size = int(text)
            if self.extents.get(name, size) != size:
                raise InvalidValue(f"--extent {item}: the inputs that are given say that {name} = {self.extents[name]}")
            self.extents[name] = size

    def _check(self, names: Iterable[str], known: Sequence[str], what: str) -> None:
        for name in names:
            if name not in known:
                raise InvalidValue(f"`{self.function}` has no {what} {name!r}; it has {', '.join(known) or 'none'}")

    # -- what is random --

    def _random(self, param: Param) -> Any:
        if param.kind != "tensor" or param.dtype is None or param.shape is None:
            raise InvalidValue(
                f"the input `{param.name}` is no tensor of known dtype and rank: give it with --input {param.name}=..."
            )
        shape = [self._size(param, axis, extent) for axis, extent in enumerate(param.shape)]
        if param.writable:
            return tensor(np.zeros(shape, numpy_dtype(param.dtype)))
        dtype = numpy_dtype(param.dtype)
        if dtype.kind in "iu":
            # Indices into anything, and lengths, are in bounds.
            return tensor(self.rng.integers(0, 2, shape).astype(dtype))
        if dtype.kind == "b":
            return tensor(self.rng.random(shape) < 0.5)
        return tensor(self.rng.standard_normal(shape).astype(dtype))

    def _size(self, param: Param, axis: int, extent: int | str | None) -> int:
        """An extent of a random input; symbols that nothing says are made up."""
        for symbol in _SYMBOL.findall(extent) if isinstance(extent, str) else ():
            if symbol not in self.extents:
                self.extents[symbol] = self.assumed[symbol] = ASSUMED if axis else 1
        size = extent_value(extent, self.extents)
        if size is None:
            raise InvalidValue(
                f"the shape of the input `{param.name}` cannot be told, for its extent {extent or 'that is unknown'}; "
                f"give the input with --input {param.name}=FILE.npy"
            )
        return size


def _read_value(param: Param, text: str) -> Any:
    """The input of `--input NAME=text`: an array from a file, or a number."""
    where = f"--input {param.name}={text}"
    if param.kind in ("int", "float", "bool"):
        try:
            return {"int": int, "float": float, "bool": json.loads}[param.kind](text)
        except ValueError:
            raise InvalidValue(f"{where}: expected a number of dtype {param.dtype}") from None
    try:
        array = np.load(io.BytesIO(sys.stdin.buffer.read()) if text == "-" else Path(text), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidValue(f"{where}: expected an array that numpy.save wrote: {error}") from error
    if not isinstance(array, np.ndarray):
        raise InvalidValue(f"{where}: expected one array (.npy), found an archive of several (.npz); leave out NAME=")
    return tensor(array)
