"""Queries of LLVM and of the CPUs that it knows, under their published names.

    llvm_get_system_cpu()  # "znver3"
    target_has_features("avx2", Target("llvm -mcpu=znver3"))  # True

Where `target` is None, the current target is meant or, outside of any, this machine.
"""

from __future__ import annotations

import platform
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..runtime import llvm
from ..runtime.error import CompileError, NotRegistered
from ..runtime.hook import Hook
from .cpu import all_enabled_features, cpu_info, enabled_features, processors_and_features, resolve
from .kinds import suggestion
from .target import Target

build: Hook[..., Any] = Hook("build", "oneir.driver")
"""Compiles a module for a target to a runtime module: `build(mod, target, pipeline)`."""

_intrinsics: dict[int, str] = {}


def build_module(mod: Any, target: Target | str) -> Any:
    """Compiles an `IRModule` of PrimFuncs for `target` to a runtime module; raises as `oneir.build` does."""
    return build(mod, Target(target))


def target_has_features(cpu_features: str | Sequence[str], target: Target | str | None = None) -> bool:
    """Whether code for `target` may use all the given LLVM features. Raises `NotRegistered` for an unknown one."""
    target = _or_host(target)
    names = [cpu_features] if isinstance(cpu_features, str) else list(cpu_features)
    triple = resolve(target)[0]
    known = processors_and_features(triple)[1]
    for name in names:
        if name not in known:
            raise NotRegistered(f'LLVM has no feature "{name}" for {triple}.{suggestion(name, known)}')
    return enabled_features(target, names) == frozenset(names)


def llvm_cpu_has_features(cpu_features: str | Sequence[str], target: Target | str | None = None) -> bool:
    """The same as `target_has_features`."""
    return target_has_features(cpu_features, target)


def llvm_get_cpu_features(target: Target | str | None = None) -> list[str]:
    """All LLVM features that code for `target` may use, sorted."""
    return sorted(all_enabled_features(_or_host(target)))


def llvm_get_cpu_archlist(target: Target | str | None = None) -> list[str]:
    """The names that `-mcpu` can have for the triple of `target`."""
    return list(processors_and_features(resolve(_or_host(target))[0])[0])


def llvm_get_vector_width(target: Target | str | None = None) -> int:
    """The size of a vector register of `target`, in bits."""
    return 8 * cpu_info(_or_host(target)).vector_bytes


def llvm_get_targets() -> list[str]:
    """The names of the targets for which this LLVM generates code."""
    return llvm.target_names()


def llvm_get_system_triple() -> str:
    """The triple of this machine."""
    return llvm.host_triple()


def llvm_get_system_cpu() -> str:
    """LLVM's name of this machine's processor."""
    return llvm.host_cpu()


def llvm_get_system_x86_vendor() -> str:
    """The vendor of this machine's processor: `"intel"`, `"amd"`, or `"unknown"`, also if it is not an x86."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else platform.processor()
    vendors = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}
    return next((vendor for mark, vendor in vendors.items() if mark in text), "unknown")


def llvm_version_major(allow_none: bool = False) -> int | None:
    """The major version of LLVM. Without llvmlite, None if `allow_none`; else raises `ImportError`."""
    try:
        return int(llvm.llvm_version().partition(".")[0])
    except ImportError:
        if allow_none:
            return None
        raise


def llvm_lookup_intrinsic_id(name: str) -> int:
    """An id of the LLVM intrinsic `name`, such as `llvm.exp.f32`; the same in every process.

    Raises `NotRegistered` for a name that LLVM does not know.
    """
    try:
        llvm.optimize(f"define void @f() {{ call void @{name}() ret void }}", name=name, passes="none")
    except CompileError as error:
        # LLVM also rejects the call of a known intrinsic, for its signature.
        if "invalid intrinsic signature" not in str(error):
            raise NotRegistered(f'LLVM has no intrinsic "{name}". Their names look like llvm.exp.f32.') from None
    number = zlib.crc32(name.encode())
    _intrinsics[number] = name
    return number


def llvm_get_intrinsic_name(intrin_id: int) -> str:
    """The name of the intrinsic with an id that `llvm_lookup_intrinsic_id` returned in this process.

    Raises `NotRegistered` for any other number.
    """
    if intrin_id not in _intrinsics:
        raise NotRegistered(f"No intrinsic has the number {intrin_id}; numbers come from llvm_lookup_intrinsic_id.")
    return _intrinsics[intrin_id]


def _or_host(target: Target | str | None) -> Target:
    return Target.canon_target(target) or Target.current() or Target("llvm")
