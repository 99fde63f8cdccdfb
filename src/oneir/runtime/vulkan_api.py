"""The C interface of Vulkan 1.2, as far as the driver uses it: structures, functions, and what its errors mean."""

from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

from .once import once

_u32, _u64, _f32, _pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_float, ctypes.c_void_p

VULKAN_1_2 = 1 << 22 | 2 << 12
COMPUTE_BIT = 2
"""Of a family of queues that run kernels."""
DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT = 1, 2, 4
"""Properties of memory."""
BUFFER_USAGE = 0x1 | 0x2 | 0x20 | 0x20000
"""Copies from and to it, tensors, and an address."""
COMPUTE_STAGE, TRANSFER_STAGE = 0x800, 0x1000
OUT_OF_MEMORY = (-1, -2)
DEVICE_LOST = -4
ERRORS = {
    -1: "the host has not enough memory (VK_ERROR_OUT_OF_HOST_MEMORY)",
    -2: "the device has not enough memory (VK_ERROR_OUT_OF_DEVICE_MEMORY)",
    -3: "the driver failed to start (VK_ERROR_INITIALIZATION_FAILED)",
    DEVICE_LOST: "the device is lost: work that it was given failed (VK_ERROR_DEVICE_LOST)",
    -8: "the device lacks a feature (VK_ERROR_FEATURE_NOT_PRESENT)",
    -9: "the driver does not take the program (VK_ERROR_INCOMPATIBLE_DRIVER)",
    -10: "there are too many objects (VK_ERROR_TOO_MANY_OBJECTS)",
}


class Struct(ctypes.Structure):
    """A structure that Vulkan takes, which begins with its number where it has one."""

    TYPE: int | None = None

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        if self.TYPE is not None:
            self.kind = self.TYPE


def _struct(name: str, number: int | None, *fields: tuple[str, Any]) -> Any:
    """A class of structures; those with a number begin with it, and a pointer to the next one."""
    head = [] if number is None else [("kind", _u32), ("next", _pointer)]
    return type(name, (Struct,), {"_fields_": [*head, *fields], "TYPE": number})


ApplicationInfo = _struct(
    "ApplicationInfo",
    0,
    ("name", _pointer),
    ("version", _u32),
    ("engine", _pointer),
    ("engine_version", _u32),
    ("api", _u32),
)
InstanceInfo = _struct(
    "InstanceInfo",
    1,
    ("flags", _u32),
    ("application", _pointer),
    ("layer_count", _u32),
    ("layers", _pointer),
    ("extension_count", _u32),
    ("extensions", _pointer),
)
QueueInfo = _struct("QueueInfo", 2, ("flags", _u32), ("family", _u32), ("count", _u32), ("priorities", _pointer))
DeviceInfo = _struct(
    "DeviceInfo",
    3,
    ("flags", _u32),
    ("queue_count", _u32),
    ("queues", _pointer),
    ("layer_count", _u32),
    ("layers", _pointer),
    ("extension_count", _u32),
    ("extensions", _pointer),
    ("features", _pointer),
)
SubmitInfo = _struct(
    "SubmitInfo",
    4,
    ("wait_count", _u32),
    ("waits", _pointer),
    ("wait_stages", _pointer),
    ("command_count", _u32),
    ("commands", _pointer),
    ("signal_count", _u32),
    ("signals", _pointer),
)
AllocateInfo = _struct("AllocateInfo", 5, ("size", _u64), ("memory_type", _u32))
AllocateFlags = _struct("AllocateFlags", 1000060000, ("flags", _u32), ("device_mask", _u32))
BufferInfo = _struct(
    "BufferInfo",
    12,
    ("flags", _u32),
    ("size", _u64),
    ("usage", _u32),
    ("sharing", _u32),
    ("family_count", _u32),
    ("families", _pointer),
)
QueryPoolInfo = _struct(
    "QueryPoolInfo", 11, ("flags", _u32), ("query_type", _u32), ("count", _u32), ("statistics", _u32)
)
ShaderInfo = _struct("ShaderInfo", 16, ("flags", _u32), ("size", ctypes.c_size_t), ("words", _pointer))
StageInfo = _struct(
    "StageInfo",
    18,
    ("flags", _u32),
    ("stage", _u32),
    ("module", _u64),
    ("name", ctypes.c_char_p),
    ("constants", _pointer),
)
PipelineInfo = _struct(
    "PipelineInfo",
    29,
    ("flags", _u32),
    ("stage", StageInfo),
    ("layout", _u64),
    ("base", _u64),
    ("base_index", ctypes.c_int32),
)
PushRange = _struct("PushRange", None, ("stages", _u32), ("offset", _u32), ("size", _u32))
LayoutInfo = _struct(
    "LayoutInfo",
    30,
    ("flags", _u32),
    ("set_count", _u32),
    ("sets", _pointer),
    ("range_count", _u32),
    ("ranges", _pointer),
)
CommandPoolInfo = _struct("CommandPoolInfo", 39, ("flags", _u32), ("family", _u32))
CommandInfo = _struct("CommandInfo", 40, ("pool", _u64), ("level", _u32), ("count", _u32))
BeginInfo = _struct("BeginInfo", 42, ("flags", _u32), ("inheritance", _pointer))
MemoryBarrier = _struct("MemoryBarrier", 46, ("source", _u32), ("target", _u32))
SemaphoreInfo = _struct("SemaphoreInfo", 9, ("flags", _u32))
SemaphoreType = _struct("SemaphoreType", 1000207002, ("type", _u32), ("value", _u64))
TimelineSubmit = _struct(
    "TimelineSubmit",
    1000207003,
    ("wait_count", _u32),
    ("waits", _pointer),
    ("signal_count", _u32),
    ("signals", _pointer),
)
WaitInfo = _struct(
    "WaitInfo", 1000207004, ("flags", _u32), ("count", _u32), ("semaphores", _pointer), ("values", _pointer)
)
AddressInfo = _struct("AddressInfo", 1000244001, ("buffer", _u64))
Requirements = _struct("Requirements", None, ("size", _u64), ("alignment", _u64), ("types", _u32))
CopyRegion = _struct("CopyRegion", None, ("source", _u64), ("target", _u64), ("size", _u64))
MemoryType = _struct("MemoryType", None, ("flags", _u32), ("heap", _u32))
MemoryHeap = _struct("MemoryHeap", None, ("size", _u64), ("flags", _u32))
MemoryProperties = _struct(
    "MemoryProperties",
    None,
    ("type_count", _u32),
    ("types", MemoryType * 32),
    ("heap_count", _u32),
    ("heaps", MemoryHeap * 16),
)
QueueFamily = _struct(
    "QueueFamily", None, ("flags", _u32), ("count", _u32), ("timestamp_bits", _u32), ("extent", _u32 * 3)
)

_LIMITS_BEFORE = (
    *("image_1d", "image_2d", "image_3d", "image_cube", "image_layers", "texel_elements", "uniform_range"),
    *("storage_range", "push_bytes", "allocations", "samplers"),
)
_LIMITS_BETWEEN = 38
"""Numbers of 32 bits about descriptors, vertices and fragments."""
Limits = _struct(
    "Limits",
    None,
    *((name, _u32) for name in _LIMITS_BEFORE),
    ("granularity", _u64),
    ("sparse", _u64),
    ("graphics", _u32 * _LIMITS_BETWEEN),
    ("shared_bytes", _u32),
    ("grid", _u32 * 3),
    ("threads", _u32),
    ("block", _u32 * 3),
    ("rest", ctypes.c_uint8 * 176),
    ("timestamp_period", _f32),
    ("last", ctypes.c_uint8 * 76),
)
DeviceProperties = _struct(
    "DeviceProperties",
    None,
    ("api", _u32),
    ("driver", _u32),
    ("vendor", _u32),
    ("device", _u32),
    ("type", _u32),
    ("name", ctypes.c_char * 256),
    ("cache", ctypes.c_uint8 * 16),
    ("limits", Limits),
    ("tail", ctypes.c_uint8 * 32),
)
DeviceProperties2 = _struct("DeviceProperties2", 1000059001, ("properties", DeviceProperties))
FloatControls = _struct(
    "FloatControls",
    1000197000,
    ("denormals", _u32),
    ("rounding", _u32),
    ("preserve_16", _u32),
    ("preserve_32", _u32),
    ("rest", _u32 * 13),
)
"""What a device keeps of IEEE 754: `preserve_32` says that zeros with a sign, infinities and NaNs are kept."""

# Features by the names of Vulkan, and where in its structures they stand.
Features = _struct("Features", 1000059000, ("flags", _u32 * 56))
Features11 = _struct("Features11", 49, ("flags", _u32 * 12))
Features12 = _struct("Features12", 51, ("flags", _u32 * 48))
FEATURES: dict[str, tuple[Any, int]] = {
    "shaderFloat64": (Features, 39),
    "shaderInt64": (Features, 40),
    "shaderInt16": (Features, 41),
    "storageBuffer16BitAccess": (Features11, 0),
    "storageBuffer8BitAccess": (Features12, 2),
    "shaderFloat16": (Features12, 7),
    "shaderInt8": (Features12, 8),
    "hostQueryReset": (Features12, 36),
    "timelineSemaphore": (Features12, 37),
    "bufferDeviceAddress": (Features12, 38),
}


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of its functions: objects that work is given to are pointers, others numbers."""
    code, none, p, u, q = ctypes.c_int32, None, _pointer, _u32, _u64
    functions: dict[str, tuple[Any, list[Any]]] = {
        "vkCreateInstance": (code, [p, p, p]),
        "vkEnumeratePhysicalDevices": (code, [p, p, p]),
        "vkGetPhysicalDeviceProperties": (none, [p, p]),
        "vkGetPhysicalDeviceProperties2": (none, [p, p]),
        "vkGetPhysicalDeviceFeatures2": (none, [p, p]),
        "vkGetPhysicalDeviceMemoryProperties": (none, [p, p]),
        "vkGetPhysicalDeviceQueueFamilyProperties": (none, [p, p, p]),
        "vkCreateDevice": (code, [p, p, p, p]),
        "vkGetDeviceQueue": (none, [p, u, u, p]),
        "vkGetDeviceProcAddr": (p, [p, ctypes.c_char_p]),
        "vkCreateBuffer": (code, [p, p, p, p]),
        "vkDestroyBuffer": (none, [p, q, p]),
        "vkGetBufferMemoryRequirements": (none, [p, q, p]),
        "vkAllocateMemory": (code, [p, p, p, p]),
        "vkFreeMemory": (none, [p, q, p]),
        "vkBindBufferMemory": (code, [p, q, q, q]),
        "vkMapMemory": (code, [p, q, q, q, u, p]),
        "vkGetBufferDeviceAddress": (q, [p, p]),
        "vkCreateSemaphore": (code, [p, p, p, p]),
        "vkGetSemaphoreCounterValue": (code, [p, q, p]),
        "vkCreateCommandPool": (code, [p, p, p, p]),
        "vkAllocateCommandBuffers": (code, [p, p, p]),
        "vkCreateShaderModule": (code, [p, p, p, p]),
        "vkDestroyShaderModule": (none, [p, q, p]),
        "vkCreatePipelineLayout": (code, [p, p, p, p]),
        "vkDestroyPipelineLayout": (none, [p, q, p]),
        "vkCreateComputePipelines": (code, [p, q, u, p, p, p]),
        "vkDestroyPipeline": (none, [p, q, p]),
        "vkCreateQueryPool": (code, [p, p, p, p]),
        "vkResetQueryPool": (none, [p, q, u, u]),
        "vkGetQueryPoolResults": (code, [p, q, u, u, ctypes.c_size_t, p, q, u]),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


@once
def library() -> ctypes.CDLL | None:
    """The loader of Vulkan's drivers; None where the system has none of version 1.2."""
    for name in ("libvulkan.so.1", ctypes.util.find_library("vulkan"), "libvulkan.dylib", "vulkan-1.dll"):
        if name:
            try:
                return _declared(ctypes.CDLL(name))
            except (OSError, AttributeError):
                continue
    return None
