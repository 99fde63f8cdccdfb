"""SPIR-V for Vulkan: modules of kernels, written from structured TensorIR."""

from .backend import Vulkan

__all__ = ["Vulkan"]
