"""Calls of `check_tensor`: what packed functions expect of a tensor, and what is said where it differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..ir.expr import PrimExpr, StringImm, as_int
from ..runtime.device import Device
from ..runtime.dtype import name_of_dlpack
from ..runtime.error import CompileError


class ExpectedTensor(NamedTuple):
    """The arguments of `check_tensor` after the values and the index.

    The call returns from its function, with an error, unless that value is a tensor as described.
    """

    place: str
    """What messages call it."""
    shape: str
    """What messages say of its shape."""
    dtype: int
    """As `Field.TENSOR_DTYPE` has it."""
    device_type: int
    device_id: int
    """-1 for any."""
    forbidden: int
    """Flags that the value must not have."""
    alignment: int
    """Of the memory, in bytes: a power of two."""
    compact: int
    """1 if elements must be row-major without gaps, else 0."""
    extents: tuple[int, ...]
    """-1 for any."""

    @staticmethod
    def of(place: PrimExpr, shape: PrimExpr, facts: Sequence[PrimExpr]) -> ExpectedTensor:
        """The description of these arguments of a call. Raises `CompileError` for what is not constant."""
        texts = [text.value for text in (place, shape) if isinstance(text, StringImm)]
        numbers = [number for number in map(as_int, facts) if number is not None]
        if len(texts) < 2 or len(numbers) < max(6, len(facts)):
            raise CompileError(f"check_tensor takes two texts, six numbers and extents, found {[place, shape, *facts]}")
        dtype, device_type, device_id, forbidden, alignment, compact, *extents = numbers
        return ExpectedTensor(
            texts[0], texts[1], dtype, device_type, device_id, forbidden, alignment, compact, tuple(extents)
        )

    def numbers(self) -> list[int]:
        """What native code compares a tensor with, as int64: check_tensor.ll says how."""
        return [*self[2:8], len(self.extents), *self.extents]

    def errors(self) -> list[tuple[str, str]]:
        """The kinds and messages of errors, in the order in which native code numbers them."""
        dtype = name_of_dlpack(self.dtype & 0xFF, self.dtype >> 8 & 0xFF, self.dtype >> 16)
        device = Device(self.device_type, max(0, self.device_id))
        where = str(device) if self.device_id >= 0 else f"the {device.type}"
        return [
            ("TypeError", f"{self.place}: expected a tensor"),
            ("TypeError", f"{self.place}: expected dtype {dtype}"),
            ("ValueError", f"{self.place}: expected a tensor on {where}"),
            ("ValueError", f"{self.place}: is written to but is read-only"),
            ("ValueError", f"{self.place}: expected {self.shape}"),
            ("ValueError", f"{self.place}: expected row-major memory without gaps"),
            ("ValueError", f"{self.place}: has no memory"),
            ("ValueError", f"{self.place}: expected memory aligned to {self.alignment} bytes"),
        ]
