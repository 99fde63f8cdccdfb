"""Marks of tests that need something of the machine: a device, instructions, a package.

    @requires_cuda
    def test_on_a_gpu(): ...

    @requires_gpu(support_required="compile-only")
    def test_of_code_that_does_not_run(): ...

pytest is imported where a mark is made, so that this package needs it only in tests.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

from ..contrib import cudnn
from ..contrib.nvcc import nvrtc_exists
from ..runtime import cuda, device
from ..runtime.error import InvalidValue
from ..target.codegen import llvm_get_cpu_features
from .devices import device_enabled

F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[], bool | str]
_SUPPORT = ("compile-and-run", "compile-only", "optional")


class Feature:
    """Something that a test may need, and the decorator that skips the test where it is missing.

    `name` is the mark that the test gets (`pytest -m cuda`), `long_name` what messages call it. Code for it can be made
    if `compile_time_check` says so, and run if there is a device of the kind `target_kind_hardware` and
    `run_time_check` says so; the checks return True, False, or the reason why not. `target_kind_enabled` is a kind of
    target that the environment variable `TVM_TEST_TARGETS`, if set, must name. A feature needs what its
    `parent_features` need.
    """

    _all_features: ClassVar[dict[str, Feature]] = {}

    def __init__(
        self,
        name: str,
        long_name: str | None = None,
        target_kind_enabled: str | None = None,
        compile_time_check: Check | None = None,
        target_kind_hardware: str | None = None,
        run_time_check: Check | None = None,
        parent_features: str | Sequence[str] | None = None,
    ) -> None:
        self.name, self.long_name = name, long_name or name
        self.target_kind_enabled, self.target_kind_hardware = target_kind_enabled, target_kind_hardware
        self.compile_time_check, self.run_time_check = compile_time_check, run_time_check
        self.parent_features = [parent_features] if isinstance(parent_features, str) else list(parent_features or ())
        self._all_features[name] = self

    def _lacking(self, running: bool) -> Iterator[str]:
        """Why tests of the feature cannot run here (without `running`: cannot be compiled)."""
        for parent in self.parent_features:
            yield from self._all_features[parent]._lacking(running)
        checks = [("Compile-time", self.compile_time_check), ("Run-time", self.run_time_check if running else None)]
        for when, check in checks:
            found = check() if check is not None else True
            if found is not True:
                yield found or f"{when} support for {self.long_name} not present"
        chosen = [target.split()[0] for target in os.environ.get("TVM_TEST_TARGETS", "").split(";") if target.strip()]
        if self.target_kind_enabled and chosen and self.target_kind_enabled not in chosen:
            yield f"{self.target_kind_enabled} is not among TVM_TEST_TARGETS"
        kind = self.target_kind_hardware
        if running and kind and not device_enabled(kind):
            yield f"No device exists for target {kind}"

    def _names(self) -> Iterator[str]:
        for parent in self.parent_features:
            yield from self._all_features[parent]._names()
        yield self.name

    def marks(self, support_required: str = "compile-and-run") -> list[Any]:
        """The marks of a test of this feature: those that skip it here, and its name.

        `support_required` is "compile-and-run", "compile-only", or "optional", which skips nothing.
        """
        import pytest

        if support_required not in _SUPPORT:
            raise InvalidValue(f"expected support_required to be one of {_SUPPORT}, found {support_required!r}")
        lacking = () if support_required == "optional" else self._lacking(support_required == "compile-and-run")
        return [
            *(pytest.mark.skip(reason=reason) for reason in lacking),
            *(getattr(pytest.mark, name) for name in dict.fromkeys(self._names())),
        ]

    def __call__(self, func: Any = None, *, support_required: str = "compile-and-run") -> Any:
        """Decorates a test, or, without one, gives the decorator."""

        def decorate(test: F) -> F:
            return _marked(test, self.marks(support_required))

        return decorate if func is None else decorate(func)

    @classmethod
    def require(cls, name: str, support_required: str = "compile-and-run") -> Callable[[F], F]:
        """The decorator of the feature of a name. Raises `InvalidValue` for an unknown one."""
        if name not in cls._all_features:
            raise InvalidValue(f"there is no feature {name!r}; there are {', '.join(sorted(cls._all_features))}")
        return cls._all_features[name](support_required=support_required)


def _marked(test: F, marks: Sequence[Any]) -> F:
    for mark in marks:
        test = mark(test)
    return test


_GPUS = ("cuda", "rocm", "opencl", "metal", "vulkan")


def _gpus(count: int) -> bool:
    """Whether there are so many devices of one kind."""
    return any(all(device(kind, index).exist for index in range(count)) for kind in _GPUS)


def _instructions(*names: str) -> Check:
    # Of a name that LLVM has on other processors only, it raises an error if it is asked.
    return lambda: not set(names).isdisjoint(llvm_get_cpu_features())


def _compute_version() -> tuple[int, int]:
    """That of the first CUDA device; zeros where there is none."""
    major, _, minor = (cuda(0).compute_version or "0.0").partition(".")
    return int(major), int(minor or 0)


def _has_library(name: str) -> Check:
    return lambda: f"OneIR does not call {name}"


requires_llvm = Feature("llvm", "LLVM", target_kind_enabled="llvm", target_kind_hardware="llvm")
requires_gpu = Feature("gpu", run_time_check=lambda: _gpus(1))
requires_multi_gpu = Feature("multi_gpu", run_time_check=lambda: _gpus(2))
requires_x86 = Feature("x86", "x86 Architecture", run_time_check=lambda: platform.machine() in ("x86_64", "AMD64"))
requires_rpc = Feature("rpc", "RPC")
requires_cuda = Feature("cuda", "CUDA", "cuda", target_kind_hardware="cuda", parent_features="gpu")
requires_opencl = Feature("opencl", "OpenCL", "opencl", target_kind_hardware="opencl", parent_features="gpu")
requires_rocm = Feature("rocm", "ROCm", "rocm", target_kind_hardware="rocm", parent_features="gpu")
requires_metal = Feature("metal", "Metal", "metal", target_kind_hardware="metal", parent_features="gpu")
requires_vulkan = Feature("vulkan", "Vulkan", "vulkan", target_kind_hardware="vulkan", parent_features="gpu")
requires_nvptx = Feature("nvptx", "NVPTX", "nvptx", target_kind_hardware="cuda", parent_features=["llvm", "cuda"])
requires_cudagraph = Feature("cudagraph", "CUDA Graph", "cuda", parent_features="cuda")
requires_tensorcore = Feature(
    "tensorcore", "NVIDIA Tensor Core", run_time_check=lambda: _compute_version() >= (7, 0), parent_features="cuda"
)
requires_matrixcore = Feature("matrixcore", "AMD Matrix Core", parent_features="rocm")
requires_cublas = Feature("cublas", "cuBLAS", parent_features="cuda")
requires_cudnn = Feature("cudnn", "cuDNN", compile_time_check=cudnn.exists, parent_features="cuda")
requires_nccl = Feature("nccl", "NCCL", compile_time_check=_has_library("NCCL"), parent_features="cuda")
requires_cutlass = Feature("cutlass", "CUTLASS", compile_time_check=_has_library("CUTLASS"), parent_features="cuda")
requires_hexagon = Feature("hexagon", "Hexagon", "hexagon", compile_time_check=_has_library("Hexagon"))
requires_openclml = Feature("OpenCLML", "CLML", "opencl", compile_time_check=_has_library("CLML"))
requires_arm_dot = Feature("arm_dot", "ARM dot product", run_time_check=_instructions("dotprod"))
requires_aarch64_sve = Feature("arm_sve", "AArch64 SVE", run_time_check=_instructions("sve"))
requires_x86_vnni = Feature("x86_vnni", "x86 VNNI Extensions", run_time_check=_instructions("avx512vnni", "avxvnni"))
requires_x86_avx512 = Feature("x86_avx512", "x86 AVX512 Extensions", run_time_check=_instructions("avx512bw"))
requires_x86_amx = Feature("x86_amx", "x86 AMX Extensions", run_time_check=_instructions("amx-int8"))


def uses_gpu(test: F) -> F:
    """Marks a test that uses a GPU where there is one, and runs without one, too."""
    return requires_gpu(test, support_required="optional")


def requires_package(*packages: str) -> Callable[[F], F]:
    """Skips a test where one of these Python packages is not installed."""
    import pytest

    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return lambda test: _marked(test, [pytest.mark.skip(reason=f"Cannot import {name!r}") for name in missing])


def _at_least(what: str, found: Sequence[int], wanted: Sequence[int], feature: Feature) -> Callable[[F], F]:
    import pytest

    wanted_text, found_text = (".".join(map(str, version)) for version in (wanted, found))
    reason = f"Requires {what} >= {wanted_text}, but have {found_text}"
    old = [pytest.mark.skip(reason=reason)] if tuple(found) < tuple(wanted) else []
    return lambda test: _marked(test, [*old, *feature.marks()])


def requires_nvcc_version(major_version: int, minor_version: int = 0, release_version: int = 0) -> Callable[[F], F]:
    """Skips a test where NVIDIA's compiler is older than a version, or where there is no CUDA device."""
    found = _nvrtc_version()
    return _at_least("NVCC", found, (major_version, minor_version, release_version)[: len(found)], requires_cuda)


def _nvrtc_version() -> tuple[int, ...]:
    """The version of the package of NVRTC; zeros where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        text = version("nvidia-cuda-nvrtc") if nvrtc_exists() else "0.0.0"
    except PackageNotFoundError:
        text = "0.0.0"
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())


def requires_cuda_compute_version(major_version: int, minor_version: int = 0) -> Callable[[F], F]:
    """Skips a test where no CUDA device has at least this compute capability."""
    return _at_least("CUDA compute", _compute_version(), (major_version, minor_version), requires_cuda)


def requires_llvm_minimum_version(major_version: int) -> Callable[[F], F]:
    """Skips a test where LLVM is older than a version."""
    from ..target.codegen import llvm_version_major

    return _at_least("LLVM", (llvm_version_major() or 0,), (major_version,), requires_llvm)


def is_ampere_or_newer() -> bool:
    """Whether the first CUDA device has a compute capability of 8 or more."""
    return _compute_version() >= (8, 0)


def skip_if_32bit(reason: str) -> Callable[[F], F]:
    """Skips a test in a process with pointers of 32 bits."""
    import pytest

    narrow = platform.architecture()[0] == "32bit"
    return lambda test: _marked(test, [pytest.mark.skip(reason=reason)] if narrow else [])


def skip_if_no_reference_system(func: F) -> F:
    """Skips a test that wants the board simulator that published tests of microcontrollers use: it is not there."""
    import pytest

    return pytest.mark.skip(reason="Reference system unavailable")(func)


def slow(func: F) -> F:
    """Skips a test where the environment variable `SKIP_SLOW_TESTS` says so."""
    import pytest

    skipped = os.environ.get("SKIP_SLOW_TESTS", "").lower() in ("true", "1", "yes")
    return pytest.mark.skipif(skipped, reason="SKIP_SLOW_TESTS is set")(func)


def marks_of_target(target: Any) -> list[Any]:
    """The marks of a test that is run for a target."""
    from ..target import Target

    feature = Feature._all_features.get(Target(target).kind.name)
    return feature.marks() if feature is not None else []


def markers() -> Iterator[str]:
    """Lines for pytest's `markers`, one a feature."""
    return (f"{name}: mark a test as using {made.long_name}" for name, made in list(Feature._all_features.items()))
