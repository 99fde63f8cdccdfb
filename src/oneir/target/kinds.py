"""The kinds of target that exist: for each, its options with their types and defaults.

kind("cuda").options["max_num_threads"]  # "int"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..runtime.error import NotRegistered

OptionType = Literal["int", "bool", "str", "list[str]", "Target", "list[Target]"]

# Every kind has these. `keys`, `host` and `tag` are kept apart from a target's other attributes; `from_device`, the
# number of a device of this machine, becomes what that device says of itself.
COMMON: dict[str, OptionType] = {
    "keys": "list[str]",
    "host": "Target",
    "tag": "str",
    "device": "str",
    "model": "str",
    "libs": "list[str]",
    "target_device_type": "int",
    "from_device": "int",
}


@dataclass(frozen=True, eq=False)
class TargetKind:
    """A family of targets that share a code generator. `device_type` is its code in DLPack."""

    name: str
    device_type: int
    default_keys: tuple[str, ...]
    options: Mapping[str, OptionType]
    defaults: Mapping[str, Any]
    features: frozenset[str] = frozenset()
    """What `Target.features` says of every target of the kind, beside what it says of its processor."""

    @staticmethod
    def options_from_name(kind_name: str) -> Mapping[str, OptionType]:
        """The options, with their types, of the kind called `kind_name`."""
        return kind(kind_name).options

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return (kind, (self.name,))


def suggestion(name: str, known: Iterable[str]) -> str:
    """` Did you mean "..."?`, with the nearest of the `known` names; "" if none is near."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1)
    return f' Did you mean "{near[0]}"?' if near else ""


def kind(name: str) -> TargetKind:
    """The kind called `name`. Raises `NotRegistered` if there is none."""
    if name not in KINDS:
        raise NotRegistered(f'There is no target kind "{name}".{suggestion(name, KINDS)} Kinds: {", ".join(KINDS)}.')
    return KINDS[name]


def _define(name: str, device_type: int, keys: str, **options: str) -> TargetKind:
    """A kind; each keyword is a type, with the names of its options, and their defaults as `name=default`."""
    types: dict[str, OptionType] = dict(COMMON)
    defaults: dict[str, Any] = {}
    by_keyword: dict[str, OptionType] = {
        "integers": "int",
        "booleans": "bool",
        "strings": "str",
        "lists": "list[str]",
        "targets": "list[Target]",
    }
    for keyword, entries in options.items():
        for entry in entries.split():
            option, _, default = entry.partition("=")
            types[option] = by_keyword[keyword]
            if default:
                defaults[option] = int(default) if keyword == "integers" else True if keyword == "booleans" else default
    return TargetKind(name, device_type, tuple(keys.split()), types, defaults)


_CPU, _CUDA, _OPENCL, _VULKAN, _METAL, _ROCM, _EXT_DEV, _WEBGPU, _HEXAGON = 1, 2, 4, 7, 8, 10, 12, 15, 16

_DEFINITIONS = (
    _define(
        "llvm",
        _CPU,
        "cpu",
        strings="mcpu mtriple mabi mfloat-abi jit",
        lists="mattr cl-opt",
        integers="num-cores opt-level vector-width",
        booleans="fast-math fast-math-nnan fast-math-ninf fast-math-nsz fast-math-arcp fast-math-contract "
        "fast-math-reassoc",
    ),
    _define(
        "c",
        _CPU,
        "cpu",
        strings="mcpu march",
        integers="num-cores workspace-byte-alignment constants-byte-alignment",
    ),
    _define(
        "cuda",
        _CUDA,
        "cuda gpu",
        strings="mcpu arch",
        integers="max_shared_memory_per_block max_threads_per_block thread_warp_size=32 registers_per_block "
        "l2_cache_size_bytes max_num_threads=1024",
    ),
    _define(
        "nvptx",
        _CUDA,
        "cuda gpu",
        strings="mcpu mtriple=nvptx64-nvidia-cuda",
        integers="max_num_threads=1024 thread_warp_size=32 max_shared_memory_per_block",
    ),
    _define(
        "rocm",
        _ROCM,
        "rocm gpu",
        strings="mcpu=gfx900 mtriple=amdgcn-amd-amdhsa-hcc",
        lists="mattr",
        integers="max_num_threads=256 max_threads_per_block=256 max_shared_memory_per_block=65536 thread_warp_size=64",
    ),
    _define(
        "opencl",
        _OPENCL,
        "opencl gpu",
        integers="max_threads_per_block=256 max_shared_memory_per_block=16384 max_num_threads=256 thread_warp_size=1 "
        "texture_spatial_limit=16384 texture_depth_limit=2048 max_function_args=128 image_base_address_alignment=64",
    ),
    _define(
        "metal",
        _METAL,
        "metal gpu",
        integers="max_num_threads=256 max_threads_per_block=256 max_shared_memory_per_block=32768 thread_warp_size=16 "
        "max_function_args=31",
    ),
    _define(
        "vulkan",
        _VULKAN,
        "vulkan gpu",
        lists="mattr",
        booleans="supports_float16 supports_float32=1 supports_float64 supports_int8 supports_int16 supports_int32=1 "
        "supports_int64 supports_8bit_buffer supports_16bit_buffer supports_storage_buffer_storage_class "
        "supports_push_descriptor supports_dedicated_allocation supports_integer_dot_product "
        "supports_cooperative_matrix",
        integers="supported_subgroup_operations max_num_threads=256 max_threads_per_block=256 thread_warp_size=1 "
        "max_block_size_x max_block_size_y max_block_size_z max_push_constants_size max_uniform_buffer_range "
        "max_storage_buffer_range max_per_stage_descriptor_storage_buffer max_shared_memory_per_block driver_version "
        "vulkan_api_version max_spirv_version",
        strings="device_type device_name driver_name",
    ),
    _define(
        "webgpu",
        _WEBGPU,
        "webgpu gpu",
        booleans="supports_float16",
        integers="max_num_threads=256 max_threads_per_block max_shared_memory_per_block thread_warp_size=1 "
        "max_storage_buffers=8",
    ),
    _define(
        "hexagon",
        _HEXAGON,
        "hexagon cpu",
        strings="mcpu mtriple",
        lists="mattr llvm-options",
        integers="num-cores vtcm-capacity",
    ),
    _define("ext_dev", _EXT_DEV, "ext_dev"),
    _define("hybrid", _CPU, "hybrid cpu"),
    TargetKind("test", _CPU, (), COMMON, {}, frozenset({"is_test"})),
    _define("composite", _CPU, "", targets="devices"),
)
KINDS: dict[str, TargetKind] = {each.name: each for each in _DEFINITIONS}
