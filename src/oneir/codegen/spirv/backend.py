"""The back end of Vulkan: kernels are SPIR-V, as assembly beside the host's functions that launch them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...ir.module import IRModule
from ..backend import register_backend
from ..c_source.backend import HOST_FORMAT, SourceBackend
from .emitter import spirv_text


class Vulkan(SourceBackend):
    """GPUs through Vulkan."""

    kind: ClassVar[str] = "vulkan"
    formats: ClassVar[Mapping[str, str]] = {"spirv": "SPIR-V of the kernels, as assembly", **HOST_FORMAT}

    def source(self, mod: IRModule) -> str:
        return spirv_text(mod)


register_backend(Vulkan())
