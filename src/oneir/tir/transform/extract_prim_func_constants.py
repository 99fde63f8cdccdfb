"""ExtractPrimFuncConstants: collects the constant arrays of all functions in the module's attribute `constants`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...ir.visitor import Mapper
from ..function import PrimFunc
from ..stmt import AllocateConst

CONSTANTS = "constants"
STORAGE_INDEX = "irmod_storage_idx"


class ExtractPrimFuncConstants(ModulePass, name="tir.ExtractPrimFuncConstants"):
    """Collects the data of `AllocateConst` in the module attribute `constants`, equal data once.

    Each allocation gets its index there as the annotation `irmod_storage_idx`.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        constants = list(mod.attrs.get(CONSTANTS, ()))
        extract = _Extract(constants)
        functions: dict[Any, Any] = {}
        for var, func in mod.functions.items():
            functions[var] = func.with_body(extract(func.body)) if isinstance(func, PrimFunc) else func
        if all(functions[var] is func for var, func in mod.functions.items()):
            return mod
        return mod.replace(functions=functions).with_attr(CONSTANTS, constants)


class _Extract(Mapper):
    """Numbers the constants; equal ones get the same number."""

    def __init__(self, constants: list[Any]):
        super().__init__()
        self.constants = constants

    def visit_AllocateConst(self, node: AllocateConst) -> AllocateConst:
        node = self.generic_visit(node)
        if STORAGE_INDEX in node.annotations:
            return node
        index = self.number(node.data)
        annotations = {**node.annotations, STORAGE_INDEX: index}
        return node.replace(data=self.constants[index], annotations=annotations)

    def number(self, data: Any) -> int:
        array = _array(data)
        for index, known in enumerate(self.constants):
            other = _array(known)
            if known is data or (
                array.dtype == other.dtype and array.shape == other.shape and array.tobytes() == other.tobytes()
            ):
                return index
        self.constants.append(data)
        return len(self.constants) - 1


def _array(data: Any) -> np.ndarray:
    return data.numpy() if hasattr(data, "numpy") else np.asarray(data)
