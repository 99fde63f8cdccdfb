"""`Target`, the description of a machine to compile for, and constructors for common boards and devices.

target = Target("llvm -mcpu=znver3 -num-cores=4")
with target:
    assert Target.current() == target
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from ..ir.container import Array
from ..ir.global_info import make_target
from ..ir.json import register_json_type
from ..runtime.device import Device
from ..runtime.error import InvalidValue, NotRegistered, TypeMismatch
from ..runtime.object import Object
from . import boards
from .cpu import (
    MICROCONTROLLER_FEATURES,
    MICROCONTROLLERS,
    all_enabled_features,
    has_microcontroller_feature,
    is_microcontroller,
)
from .device_config import config_of_device
from .kinds import KINDS, OptionType, TargetKind, kind, suggestion
from .tag_configs import configs
from .text import join_list, parse_options, print_option, split_list

_entered: ContextVar[tuple[Target, ...]] = ContextVar("oneir_targets", default=())


class HostWithoutTarget(InvalidValue, AssertionError):
    """A host that was given without a target that it could drive."""


class InvalidOption(TypeMismatch, ValueError):
    """A value of a target's option that is not of the option's type."""


class TargetFeatures:
    """The features of a target's processor, by LLVM's names: `target.features.has_avx2`, `.has_dotprod`.

    An attribute `has_x` is True or False for the LLVM feature `x` (with `_` for `-`) of an `llvm` target, and `has_dsp`
    and `has_mve` for any Arm microcontroller. Of other kinds LLVM is not asked: there it is None. What a kind says of
    its targets is True, and any other name is None.
    """

    __slots__ = ("target",)

    # The names under which the Arm profiles publish some of LLVM's features.
    _PUBLISHED = MappingProxyType({"asimd": "neon", "matmul_i8": "i8mm", "fp16_simd": "fullfp16"})

    def __init__(self, target: Target) -> None:
        self.target = target

    def __getattr__(self, name: str) -> bool | None:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self.target.kind.features:
            return True
        if not name.startswith("has_"):
            return None
        feature = name.removeprefix("has_")
        if is_microcontroller(self.target) and feature in MICROCONTROLLER_FEATURES:
            return has_microcontroller_feature(self.target, feature)
        if self.target.kind.name != "llvm":
            return None
        feature = self._PUBLISHED.get(feature, feature)
        enabled = all_enabled_features(self.target)
        return any(spelling in enabled for spelling in (feature, feature.replace("_", "-"), feature.replace("_", ".")))


class Target(Object):
    """A machine to compile for: a kind, options of that kind, and the host that drives it.

    `target` is text (`"cuda -arch=sm_80"`), the name of a tag (`"nvidia/nvidia-a100"`), a dictionary
    (`{"kind": "cuda", "arch": "sm_80"}`), the same as JSON, or another target. Targets are immutable; equal ones have
    the same kind, keys, options and host. `str(target)` reads back as an equal target. The option `from_device`, the
    number of a device of this machine (`"vulkan -from_device=0"`), stands for what that device says of itself, where
    other options do not say it.

    Raises `NotRegistered` for an unknown kind or tag, `InvalidValue` for an unknown option, `InvalidOption` for a value
    of the wrong type, `DeviceError` for a device that is not there, `TypeMismatch` for what is no target at all.
    """

    __slots__ = ("_attrs", "_hash", "host", "keys", "kind", "tag")

    kind: TargetKind
    host: Target | None
    tag: str
    keys: Array[str]

    def __init__(
        self, target: Target | str | Mapping[str, Any], host: Target | str | Mapping[str, object] | None = None
    ):
        if isinstance(target, Target):
            fields = (target.kind, target.keys, target._attrs, target.host, target.tag)
        else:
            fields = _from_config(*_to_config(target))
        found, keys, attrs, own_host, name = fields
        host = own_host if host is None else host if isinstance(host, Target) else Target(host)
        for slot, value in (("kind", found), ("keys", keys), ("_attrs", attrs), ("host", host), ("tag", name)):
            object.__setattr__(self, slot, value)
        object.__setattr__(self, "_hash", hash((found.name, keys, tuple(attrs.items()), host)))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"A target is immutable; to change {name}, make another: Target({{**target.export(), ...}})."
        )

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Target):
            return NotImplemented
        return self is other or (
            self._hash == other._hash
            and self.kind is other.kind
            and self.keys == other.keys
            and self._attrs == other._attrs
            and self.host == other.host
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return (Target, (self.export(),))

    def __str__(self) -> str:
        options = {"keys": self.keys, **self._attrs}
        if self.host is not None:
            options["host"] = self.host
        return " ".join([self.kind.name, *(print_option(k, _print_value(v)) for k, v in options.items() if v != ())])

    def __repr__(self) -> str:
        return str(self)

    def pass_key(self) -> str:
        """The part of a cache key for a target that is an option of a pass."""
        return str(self)

    def __enter__(self) -> Target:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _entered.set(_entered.get()[:-1])

    def export(self) -> dict[str, object]:
        """The target as a dictionary of JSON values, which `Target` takes."""
        config: dict[str, object] = {"kind": self.kind.name, "tag": self.tag, "keys": list(self.keys)}
        config.update((name, _export_value(value)) for name, value in self._attrs.items())
        if self.host is not None:
            config["host"] = self.host.export()
        return config

    def with_host(self, host: Target | str | Mapping[str, object]) -> Target:
        """The same target with another host."""
        return Target(self, host)

    def without_host(self) -> Target:
        """The same target, driven by nobody."""
        if self.host is None:
            return self
        return Target({name: value for name, value in self.export().items() if name != "host"})

    @staticmethod
    def from_device(device: Device | str) -> Target:
        """The target of a device of this machine: `"cpu"`, `"cuda:0"`, or a `Device`.

        Raises `DeviceError` for a device that is not there, or of a kind that cannot be queried.
        """
        return Target(config_of_device(device))

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The target of the innermost `with target:`, or None outside of any.

        Raises `InvalidValue` instead of returning None if not `allow_none`.
        """
        entered = _entered.get()
        if not entered and not allow_none:
            raise InvalidValue('No target is set here. Set one, for instance: with oneir.target.Target("llvm"): ...')
        return entered[-1] if entered else None

    @staticmethod
    def target_or_current(target: Target | str | Mapping[str, object] | None) -> Target:
        """`target` as a `Target`; for None, the current one. Raises `InvalidValue` if there is none."""
        found = Target.current(allow_none=False) if target is None else Target.canon_target(target)
        assert found is not None
        return found

    @staticmethod
    def canon_target(target: Target | str | Mapping[str, object] | None) -> Target | None:
        """`target` as a `Target`; None stays None."""
        return target if target is None or isinstance(target, Target) else Target(target)

    @staticmethod
    def canon_target_and_host(
        target: Target | str | Mapping[str, object] | None,
        target_host: Target | str | Mapping[str, object] | None = None,
    ) -> tuple[Target | None, Target | None]:
        """The target with its host set, and that host. Raises `HostWithoutTarget` for a host alone."""
        if target is None:
            if target_host is not None:
                raise HostWithoutTarget("Target host is not empty when target is empty. Give both, or neither.")
            return None, None
        found = Target(target, target_host)
        return found, found.host

    @staticmethod
    def canon_multi_target(multi_targets: Any) -> list[Target] | None:
        """One target, several, or those that are the values of a dictionary, as a list; None stays None."""
        if multi_targets is None:
            return None
        if isinstance(multi_targets, Mapping) and "kind" not in multi_targets:
            return [Target(each) for each in multi_targets.values()]
        if isinstance(multi_targets, (str, Target, Mapping)):
            return [Target(multi_targets)]
        return [Target(each) for each in multi_targets]

    @staticmethod
    def canon_multi_target_and_host(
        target: Any, target_host: Target | str | Mapping[str, object] | None = None
    ) -> list[Target]:
        """The targets as a list, each with the host: the one that is given, or else the first target's own.

        Raises `HostWithoutTarget` where there is no target.
        """
        found = Target.canon_multi_target(target)
        if not found:
            raise HostWithoutTarget("There is no target; expected at least one.")
        host = Target.canon_target(target_host) or found[0].host
        return [each if host is None else each.with_host(host) for each in found]

    @staticmethod
    def canon_target_map_and_host(
        target_map: Mapping[Any, Any], target_host: Target | str | Mapping[str, object] | None = None
    ) -> tuple[dict[Target, Any], Target | None]:
        """A dictionary by targets with their host set, and that host: the first target's own, or else the one given."""
        targets = {Target(each): value for each, value in target_map.items()}
        host = next((each.host for each in targets if each.host is not None), Target.canon_target(target_host))
        if host is None:
            return targets, None
        return {each.with_host(host): value for each, value in targets.items()}, host

    @staticmethod
    def list_kinds() -> list[str]:
        """The names of all kinds."""
        return list(KINDS)

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The options, given or by default: strings, ints, bools, and arrays, which compare equal to lists."""
        return self._attrs

    @property
    def features(self) -> TargetFeatures:
        """The features of the processor."""
        return TargetFeatures(self)

    def get_target_device_type(self) -> int:
        """DLPack's code of the device that the compiled code runs on."""
        return self._attrs.get("target_device_type", self.kind.device_type)

    @property
    def mcpu(self) -> str:
        """The processor's name, or "" for one that was not named."""
        return self._attrs.get("mcpu", "")

    @property
    def mtriple(self) -> str:
        """LLVM's triple, or "" for the host's."""
        return self._attrs.get("mtriple", "")

    @property
    def mattr(self) -> list[str]:
        """LLVM's features to add and to take away: `["+avx2", "-fma"]`."""
        return list(self._attrs.get("mattr", ()))

    @property
    def arch(self) -> str:
        """The GPU's architecture, for instance `sm_80`, or "" if it is left to the device."""
        return self._attrs.get("arch", "")

    @property
    def model(self) -> str:
        """The model of the device, or "unknown"."""
        return self._attrs.get("model", "unknown")

    @property
    def device_name(self) -> str:
        """The `-device` option, for instance `arm_cpu`, or ""."""
        return self._attrs.get("device", "")

    @property
    def libs(self) -> list[str]:
        """The external libraries to use."""
        return list(self._attrs.get("libs", ()))

    @property
    def max_num_threads(self) -> int:
        """The most threads in a block."""
        return self._needed("max_num_threads")

    @property
    def max_block_size_x(self) -> int:
        """The most threads in a block along x."""
        return self._attrs.get("max_block_size_x") or self.max_num_threads

    @property
    def max_block_size_y(self) -> int:
        """The most threads in a block along y."""
        return self._attrs.get("max_block_size_y") or self.max_num_threads

    @property
    def thread_warp_size(self) -> int:
        """How many threads run in lockstep."""
        return self._needed("thread_warp_size")

    @property
    def max_shared_memory_per_block(self) -> int:
        """Bytes of memory that the threads of a block share."""
        if self.kind.name in ("cuda", "nvptx"):
            return self._attrs.get("max_shared_memory_per_block", 49152)  # every CUDA device has that much
        return self._needed("max_shared_memory_per_block")

    @property
    def max_kernel_tensors(self) -> int | None:
        """The most tensors of a kernel: "max_storage_buffers", else "max_function_args"; None for no limit."""
        return self._attrs.get("max_storage_buffers", self._attrs.get("max_function_args"))

    @property
    def max_function_args(self) -> int:
        """The most arguments of a kernel, or -1 for no limit."""
        return self._attrs.get("max_function_args", -1)

    @property
    def vtcm_capacity(self) -> int:
        """Bytes of Hexagon's tightly coupled memory; 0 elsewhere."""
        return self._attrs.get("vtcm-capacity", 0)

    @property
    def l2_cache_size_bytes(self) -> int:
        """Bytes of the GPU's second-level cache; 0 if unknown."""
        return self._attrs.get("l2_cache_size_bytes", 0)

    @property
    def supports_integer_dot_product(self) -> bool:
        """Whether the GPU multiplies and adds four int8 at once. CUDA has that (dp4a) from sm_61 on."""
        version = re.match(r"sm_(\d+)", self.arch)
        dp4a = self.kind.name == "cuda" and version is not None and int(version[1]) >= 61
        return self._attrs.get("supports_integer_dot_product", dp4a)

    @property
    def supports_cooperative_matrix(self) -> bool:
        """Whether a Vulkan device multiplies matrices held by a subgroup."""
        return self._attrs.get("supports_cooperative_matrix", False)

    def _needed(self, name: str) -> Any:
        if name not in self._attrs:
            raise InvalidValue(
                f'The target "{self}" has no {name}; a target of kind {self.kind.name} says none by itself.'
            )
        return self._attrs[name]


_Fields = tuple[TargetKind, Array[str], Mapping[str, Any], Target | None, str]


def _to_config(target: str | Mapping[str, object]) -> tuple[dict[str, Any], str]:
    """The configuration of a target given as text or as a dictionary, and the tag that was given, or ""."""
    if isinstance(target, Mapping):
        if not isinstance(target.get("kind"), str):
            raise InvalidValue(f'The target {dict(target)!r} names no kind; expected {{"kind": "llvm", ...}}.')
        return dict(target), ""
    if not isinstance(target, str):
        raise TypeMismatch(
            f"A target is a string, a dictionary or a Target; found {type(target).__name__}: {target!r}."
        )
    if target in configs:
        return dict(configs[target]), target
    config = parse_options(target)
    name = config["kind"]
    if name not in KINDS:
        known = [*KINDS, *configs]
        raise NotRegistered(
            f'There is no target kind or tag "{name}".{suggestion(name, known)} Kinds: {", ".join(KINDS)}; '
            "for the tags, see oneir.target.list_tags()."
        )
    return config, ""


def _from_config(config: dict[str, Any], name: str) -> _Fields:
    """The fields of the target that `config` describes; `name` is the tag it came from, if any."""
    found = kind(config.pop("kind"))
    values = dict(found.defaults)
    for option, value in config.items():
        if option not in found.options:
            raise InvalidValue(
                f'Targets of kind {found.name} have no option "{option}".{suggestion(option, found.options)} '
                f"Options: {', '.join(sorted(found.options))}."
            )
        values[option] = _convert(value, found.options[option], found.name, option)
    if "from_device" in values:
        queried = config_of_device(Device(found.device_type, values.pop("from_device")))
        values |= {
            option: value for option, value in queried.items() if option in found.options and option not in config
        }
    own_tag = values.pop("tag", "")
    host = values.pop("host", None)
    keys = [*values.pop("keys", ())]
    if "device" in values:
        keys.append(values["device"])
    if re.match(r"(aarch64|arm|thumb)", values.get("mtriple", "")) or MICROCONTROLLERS.match(values.get("mcpu", "")):
        keys.append("arm_cpu")
    keys += found.default_keys
    _check_architecture(found.name, values)
    attrs = MappingProxyType(dict(sorted(values.items())))
    return found, Array(dict.fromkeys(keys)), attrs, host, name or own_tag


def _check_architecture(name: str, values: Mapping[str, Any]) -> None:
    for owner, option, prefix in (("cuda", "arch", "sm_"), ("nvptx", "mcpu", "sm_"), ("rocm", "mcpu", "gfx")):
        if name == owner and not values.get(option, prefix).startswith(prefix):
            raise InvalidValue(
                f'The option "{option}" of a {name} target is an architecture such as {prefix}90; '
                f'found "{values[option]}".'
            )


def _convert(value: Any, wanted: OptionType, owner: str, option: str) -> Any:
    """`value`, as text or already typed, as the type that the option has."""
    if wanted == "str" and isinstance(value, str):
        return value
    if wanted == "bool" and str(value).lower() in ("true", "false", "1", "0"):
        return str(value).lower() in ("true", "1")
    if wanted == "int" and not isinstance(value, bool):
        try:
            return int(value, 0) if isinstance(value, str) else operator.index(value)
        except (ValueError, TypeError):
            pass
    if wanted == "Target" and isinstance(value, (str, Mapping, Target)):
        return value if isinstance(value, Target) else Target(value)
    if wanted in ("list[str]", "list[Target]"):
        elements = split_list(value) if isinstance(value, str) else value
        accepted = str if wanted == "list[str]" else (str, Mapping, Target)
        if isinstance(elements, Sequence) and all(isinstance(element, accepted) for element in elements):
            return Array(elements if wanted == "list[str]" else map(Target, elements))
    raise InvalidOption(f'The option "{option}" of a {owner} target is of type {wanted}; found {value!r}.')


def _print_value(value: object) -> str:
    if isinstance(value, Array):
        return join_list(map(str, value))
    return str(int(value)) if isinstance(value, bool) else str(value)


def _export_value(value: object) -> object:
    if isinstance(value, Array):
        return [_export_value(element) for element in value]
    return value.export() if isinstance(value, Target) else value


def _assemble(start: str, given: Sequence[str], options: str | Sequence[str] | None) -> Target:
    """The target of `start` with the options `given`, and those of `options` that are not among them."""
    more = options.split() if isinstance(options, str) else list(options or ())
    return Target(" ".join([start, *given, *(option for option in more if option not in given)]))


def cuda(model: str = "unknown", arch: str | None = None, options: str | Sequence[str] | None = None) -> Target:
    """An NVIDIA GPU; `arch` is its architecture, for instance `sm_80`."""
    return _assemble("cuda", [f"-model={model}", *([f"-arch={arch}"] if arch else ())], options)


def rocm(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An AMD GPU."""
    return _assemble("rocm", [f"-model={model}"], options)


def mali(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An Arm Mali GPU, through OpenCL."""
    return _assemble("opencl", ["-device=mali", f"-model={model}"], options)


def bifrost(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An Arm Mali GPU of the Bifrost generation, through OpenCL."""
    return _assemble("opencl", ["-device=bifrost", f"-model={model}"], options)


def intel_graphics(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An Intel integrated GPU, through OpenCL."""
    return _assemble("opencl", ["-device=intel_graphics", f"-model={model}", "-thread_warp_size=16"], options)


def adreno(
    model: str = "unknown",
    options: str | Sequence[str] | None = None,
    cfg: str | None = None,
    backend: str = "opencl",
) -> Target:
    """A Qualcomm Adreno GPU, through OpenCL or Vulkan; `cfg="texture"` puts tensors into textures."""
    if backend not in ("opencl", "vulkan"):
        raise InvalidValue(f'An Adreno GPU is reached through "opencl" or "vulkan"; found "{backend}".')
    if cfg not in (None, "texture"):
        raise InvalidValue(f'The configuration of an Adreno target is None or "texture"; found "{cfg}".')
    keys = f"-keys=adreno,{backend},gpu{',texture' if cfg else ''}"
    return _assemble(backend, ["-device=adreno", keys, f"-model={model}"], options)


def arm_cpu(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An Arm CPU: a board or phone of `boards.ARM`, or another that `options` describe."""
    return _assemble("llvm", ["-device=arm_cpu", *boards.ARM.get(model, f"-model={model}").split()], options)


def rasp(options: str | Sequence[str] | None = None) -> Target:
    """A Raspberry Pi 3B. Deprecated: use `arm_cpu("rasp3b")`."""
    warnings.warn('rasp() is deprecated; use arm_cpu("rasp3b").', DeprecationWarning, stacklevel=2)
    return arm_cpu("rasp3b", options)


def riscv_cpu(model: str = "sifive-u54", options: str | Sequence[str] | None = None) -> Target:
    """A RISC-V CPU: one of `boards.RISCV`, or another that `options` describe."""
    return _assemble("llvm", ["-device=riscv_cpu", *boards.RISCV.get(model, f"-model={model}").split()], options)


def stm32(series: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An STM32 microcontroller: a series of `boards.STM32`."""
    if series not in boards.STM32:
        raise NotRegistered(
            f'There is no STM32 series "{series}".{suggestion(series, boards.STM32)} Series: {", ".join(boards.STM32)}.'
        )
    return _assemble("c", ["-device=arm_cpu", *boards.STM32[series].split()], options)


def hexagon(
    cpu_ver: str = "v68",
    *,
    hvx: int = 128,
    use_qfloat: bool | None = None,
    use_ieee_fp: bool = False,
    num_cores: int = 4,
    vtcm_capacity: int | None = None,
    llvm_options: str = "",
) -> Target:
    """A Qualcomm Hexagon DSP of the given version.

    `hvx` is the length of a vector in bytes: 64, 128, or 0 for no vectors. `use_qfloat` is the default from v68 on.
    """
    version = cpu_ver[cpu_ver.find("v") :].lower() if "v" in cpu_ver else cpu_ver
    if version not in boards.HEXAGON_VTCM:
        raise NotRegistered(f'There is no Hexagon version "{cpu_ver}". Versions: {", ".join(boards.HEXAGON_VTCM)}.')
    if hvx not in (0, 64, 128):
        raise InvalidValue(f"The length of a Hexagon vector is 0, 64 or 128 bytes; found {hvx}.")
    features = ["-hvx"]
    if hvx:
        features = [f"+hvx{version.rstrip('t')}", f"+hvx-length{hvx}b"]
        modern = int(version[1:3]) >= 68
        for name, use in (("hvx-qfloat", modern if use_qfloat is None else use_qfloat), ("hvx-ieee-fp", use_ieee_fp)):
            features.append(f"{'+' if use else '-'}{name}")
    config: dict[str, object] = {
        "kind": "hexagon",
        "mtriple": "hexagon",
        "mcpu": f"hexagon{version}",
        "mattr": features,
        "num-cores": num_cores,
        "vtcm-capacity": boards.HEXAGON_VTCM[version] if vtcm_capacity is None else vtcm_capacity,
    }
    if llvm_options:
        config["llvm-options"] = llvm_options.split()
    return Target(config)


def create(target: Target | str | Mapping[str, object]) -> Target:
    """Deprecated: use `Target(target)`."""
    warnings.warn("create() is deprecated; use Target().", DeprecationWarning, stacklevel=2)
    return Target(target)


register_json_type("target", Target, Target.export, Target)
make_target.provide(Target)
