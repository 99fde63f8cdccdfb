"""Oracles and checks, for this project's tests and for users'.

interpret(func, a, b)  # the reference interpreter
check_pass(Simplify(), before, expected)
with PassContext(instruments=[VerifyNumerics()]):
    mod = pipeline(mod)

size = parameter(1, 16)  # and what else tests written for the published API import: `parametrize`, `requirements`
"""

from __future__ import annotations

from ..compat import provide_ffi
from . import conversions
from .attrs import TestAttrs
from .check_pass import check_pass
from .compare import CompareBeforeAfter
from .devices import device_enabled, enabled_targets
from .expressions import (
    assert_prim_expr_equal,
    check_bool_expr_is_true,
    check_int_constraints_trans_consistency,
)
from .gradients import check_numerical_grads
from .inputs import random_inputs
from .interpreter import interpret, tolerances
from .main import main
from .miscellaneous import get_dtype_range, install_request_hook, strtobool
from .numerics import VerifyNumerics, assert_allclose, assert_close, assert_same_numbers
from .packed_functions import (
    ErrorTest,
    FrontendTestModule,
    device_test,
    echo,
    identity_cpp,
    nop,
    object_use_count,
    run_check_signal,
    test_check_eq_callback,
    test_raise_error,
    test_wrap_callback,
)
from .parametrize import (
    exclude_targets,
    fixture,
    known_failing_targets,
    parameter,
    parameters,
    parametrize_targets,
    skip_parameterizations,
    xfail_parameterizations,
)
from .popen_pool import (
    after_initializer,
    call_cpp_ffi,
    call_cpp_py_ffi,
    call_py_ffi,
    fast_summation,
    identity_after,
    initializer,
    register_ffi,
    slow_summation,
    terminate_self,
    timeout_job,
)
from .requirements import (
    Feature,
    is_ampere_or_newer,
    requires_aarch64_sve,
    requires_arm_dot,
    requires_cublas,
    requires_cuda,
    requires_cuda_compute_version,
    requires_cudagraph,
    requires_cudnn,
    requires_cutlass,
    requires_gpu,
    requires_hexagon,
    requires_llvm,
    requires_llvm_minimum_version,
    requires_matrixcore,
    requires_metal,
    requires_multi_gpu,
    requires_nccl,
    requires_nvcc_version,
    requires_nvptx,
    requires_opencl,
    requires_openclml,
    requires_package,
    requires_rocm,
    requires_rpc,
    requires_tensorcore,
    requires_vulkan,
    requires_x86,
    requires_x86_amx,
    requires_x86_avx512,
    requires_x86_vnni,
    skip_if_32bit,
    skip_if_no_reference_system,
    slow,
    uses_gpu,
)
from .runner import local_run, rpc_run
from .stages import VerifyStages

provide_ffi()

__all__ = [
    "CompareBeforeAfter",
    "ErrorTest",
    "Feature",
    "FrontendTestModule",
    "TestAttrs",
    "VerifyNumerics",
    "VerifyStages",
    "after_initializer",
    "assert_allclose",
    "assert_close",
    "assert_prim_expr_equal",
    "assert_same_numbers",
    "call_cpp_ffi",
    "call_cpp_py_ffi",
    "call_py_ffi",
    "check_bool_expr_is_true",
    "check_int_constraints_trans_consistency",
    "check_numerical_grads",
    "check_pass",
    "conversions",
    "device_enabled",
    "device_test",
    "echo",
    "enabled_targets",
    "exclude_targets",
    "fast_summation",
    "fixture",
    "get_dtype_range",
    "identity_after",
    "identity_cpp",
    "initializer",
    "install_request_hook",
    "interpret",
    "is_ampere_or_newer",
    "known_failing_targets",
    "local_run",
    "main",
    "nop",
    "object_use_count",
    "parameter",
    "parameters",
    "parametrize_targets",
    "random_inputs",
    "register_ffi",
    "requires_aarch64_sve",
    "requires_arm_dot",
    "requires_cublas",
    "requires_cuda",
    "requires_cuda_compute_version",
    "requires_cudagraph",
    "requires_cudnn",
    "requires_cutlass",
    "requires_gpu",
    "requires_hexagon",
    "requires_llvm",
    "requires_llvm_minimum_version",
    "requires_matrixcore",
    "requires_metal",
    "requires_multi_gpu",
    "requires_nccl",
    "requires_nvcc_version",
    "requires_nvptx",
    "requires_opencl",
    "requires_openclml",
    "requires_package",
    "requires_rocm",
    "requires_rpc",
    "requires_tensorcore",
    "requires_vulkan",
    "requires_x86",
    "requires_x86_amx",
    "requires_x86_avx512",
    "requires_x86_vnni",
    "rpc_run",
    "run_check_signal",
    "skip_if_32bit",
    "skip_if_no_reference_system",
    "skip_parameterizations",
    "slow",
    "slow_summation",
    "strtobool",
    "terminate_self",
    "test_check_eq_callback",
    "test_raise_error",
    "test_wrap_callback",
    "timeout_job",
    "tolerances",
    "uses_gpu",
    "xfail_parameterizations",
]
