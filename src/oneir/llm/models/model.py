"""What all models have that are read from files: how their parameters are found there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from ...relax.frontend import nn
from ..kernels.kernel_set import PROCESSORS, KernelSet


class FileModel(nn.Module):
    """A model whose parameters are tensors of files, as they are or put together."""

    generates = False
    """Whether it gives the logits of what may come next, and not the states of tokens."""
    kernels: KernelSet = PROCESSORS
    """What it is exported with, which is the target's."""
    fused: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Layers that are one here, and in files those of these names, one after the other."""
    prefixes: ClassVar[Sequence[str]] = ()
    """What names have here or in files before those that the same model has without a head of its own."""

    def sources(self, name: str) -> list[str]:
        """The names that a parameter has in files: several where it is put together from them, one after the other."""
        for fused, parts in self.fused.items():
            if f".{fused}." in name:
                return [name.replace(f".{fused}.", f".{part}.") for part in parts]
        return [name]

    def spellings(self, name: str) -> list[str]:
        """The names that a tensor may have in files."""
        bare = [name.removeprefix(prefix) for prefix in self.prefixes if name.startswith(prefix)]
        return [name, *bare, *(prefix + name for prefix in self.prefixes)]

    def is_transposed(self, name: str) -> bool:
        """Whether a parameter's last two dimensions are exchanged in files. Blocks of digits never lie so."""
        return False

    def rows_here(self, name: str, value: np.ndarray) -> np.ndarray:
        """The rows of a parameter, of values or whole blocks, in the order that they have here."""
        return value

    def as_here(self, name: str, value: np.ndarray) -> np.ndarray:
        """The value of a parameter in the order that it has here."""
        return self.rows_here(name, value.swapaxes(-2, -1) if self.is_transposed(name) else value)
