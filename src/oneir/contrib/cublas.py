"""Products of matrices by cuBLAS, NVIDIA's library: `matmul(a, b, out, bias=c, activation="relu")`.

Of the library only its part cublasLt is used, by ctypes. It computes in the stream that the thread has chosen, and
returns at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterator
from typing import Any

from ..runtime.cuda import Cuda
from ..runtime.driver import driver_of
from ..runtime.error import DeviceError, InvalidValue, ShapeMismatch, TypeMismatch, UnsupportedError
from ..runtime.once import once
from ..runtime.tensor import Tensor
from .nvidia import find_library

MISSING = (
    "cuBLAS is not installed: pip install nvidia-cublas (of CUDA 13) or nvidia-cublas-cu12, as new as the GPU's driver "
    "allows, or install the CUDA toolkit"
)
_VERSIONS = (13, 12, 11)
_SUCCESS = 0
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
"""cudaDataType of each dtype."""
_IN_FLOAT32, _IN_FLOAT64 = 68, 70
"""cublasComputeType_t"""
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS = 3, 4, 7, 8
"""cublasLtMatmulDescAttributes_t"""
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
"""cublasLtMatrixLayoutAttribute_t"""
_EPILOGUES = {(False, ""): 1, (False, "relu"): 2, (True, ""): 4, (True, "relu"): 6, (False, "gelu_tanh"): 32}
_EPILOGUES[True, "gelu_tanh"] = 36
"""cublasLtEpilogue_t, by whether there is a bias, and the activation; its GELU is the one by tanh."""
DTYPES = tuple(_TYPES)
"""The dtypes of matrices."""

_pointer = ctypes.c_void_p
_FUNCTIONS: dict[str, list[Any]] = {
    "cublasLtCreate": [_pointer],
    "cublasLtMatmulDescCreate": [_pointer, ctypes.c_int32, ctypes.c_int32],
    "cublasLtMatmulDescSetAttribute": [_pointer, ctypes.c_int32, _pointer, ctypes.c_size_t],
    "cublasLtMatmulDescDestroy": [_pointer],
    "cublasLtMatrixLayoutCreate": [_pointer, ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64],
    "cublasLtMatrixLayoutSetAttribute": [_pointer, ctypes.c_int32, _pointer, ctypes.c_size_t],
    "cublasLtMatrixLayoutDestroy": [_pointer],
    "cublasLtMatmul": [*[_pointer] * 14, ctypes.c_size_t, _pointer],
}


@once
def _library() -> ctypes.CDLL | None:
    library = find_library("cublasLt", _VERSIONS)
    return None if library is None else declared(library)


def declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """The library, which knows the types of its functions' arguments."""
    for name, arguments in _FUNCTIONS.items():
        getattr(library, name).argtypes = arguments
    return library


def cublas_exists() -> bool:
    """Whether the library is installed."""
    return _library() is not None


def _checked(code: int, what: str) -> None:
    if code != _SUCCESS:
        raise DeviceError(f"cuBLAS, {what}: error {code} (cublasStatus_t)")


_handles: dict[int, int] = {}
"""The library's handle for each device, made in its context; two threads may make one each, and either will do."""


def _handle(library: ctypes.CDLL, device_id: int) -> int:
    if device_id not in _handles:
        handle = ctypes.c_void_p()
        _checked(library.cublasLtCreate(ctypes.byref(handle)), "opening it")
        _handles[device_id] = handle.value or 0
    return _handles[device_id]


def matmul(
    lhs: Tensor,
    rhs: Tensor,
    out: Tensor,
    *,
    transposed_rhs: bool = False,
    bias: Tensor | None = None,
    activation: str = "",
) -> None:
    """out = activation(lhs @ rhs + bias), of (..., m, k) and (..., k, n), or (..., n, k) with `transposed_rhs`.

    `rhs` has the batches of `lhs`, or none. `bias` has n elements; `activation` is "", "relu" or "gelu_tanh". Sums are
    those of float32, or of float64 for its matrices. All tensors are contiguous, and on one CUDA device.

    Raises `UnsupportedError` where cuBLAS is not installed, `TypeMismatch` or `ShapeMismatch` for tensors that do not
    fit, `InvalidValue` for an unknown activation, and `DeviceError` with the library's code where it fails.
    """
    library = _library()
    if library is None:
        raise UnsupportedError(MISSING)
    if (bias is not None, activation) not in _EPILOGUES:
        raise InvalidValue(f'matmul: expected the activation "", "relu" or "gelu_tanh", found {activation!r}')
    tensors = [tensor for tensor in (lhs, rhs, out, bias) if tensor is not None]
    if lhs.dtype != rhs.dtype or any(tensor.dtype not in _TYPES for tensor in tensors):
        raise TypeMismatch(
            f"matmul: expected matrices of one dtype of {', '.join(_TYPES)}, found "
            f"{', '.join(tensor.dtype for tensor in tensors)}"
        )
    if any(t.device != out.device or not t.is_contiguous() for t in tensors) or out.device.device_type != 2:
        raise TypeMismatch("matmul: expected contiguous tensors on one CUDA device")
    k, n = rhs.shape[-1:-3:-1] if transposed_rhs else rhs.shape[-2:]
    (*batch, m, found), batches = lhs.shape, math.prod(rhs.shape[:-2])
    fits = found == k and out.shape == (*batch, m, n) and (bias is None or bias.shape == (n,))
    if not fits or (rhs.ndim > 2 and list(rhs.shape[:-2]) != batch):
        raise ShapeMismatch(
            f"matmul: tensors of the shapes {', '.join(str(tensor.shape) for tensor in tensors)} do not fit"
        )
    if rhs.ndim == 2:
        m, batches = m * math.prod(batch), 1
    if out.size == 0:
        return
    driver = driver_of(out.device.device_type, out.device.index, str(out.device))
    assert isinstance(driver, Cuda)
    with driver.inside(out.device.index), contextlib.ExitStack() as stack:
        # The library's matrices are column by column: row by row, they are transposed, and so is the product.
        wide = out.dtype == "float64"
        compute, scale = (_IN_FLOAT64, _TYPES["float64"]) if wide else (_IN_FLOAT32, _TYPES["float32"])
        what = stack.enter_context(_description(library, compute, scale))
        _set(library.cublasLtMatmulDescSetAttribute, what, _TRANSPOSE_A, ctypes.c_int32(int(transposed_rhs)))
        _set(library.cublasLtMatmulDescSetAttribute, what, _TRANSPOSE_B, ctypes.c_int32(0))
        epilogue = _EPILOGUES[bias is not None, activation]
        _set(library.cublasLtMatmulDescSetAttribute, what, _EPILOGUE, ctypes.c_int32(epilogue))
        if bias is not None:
            _set(library.cublasLtMatmulDescSetAttribute, what, _BIAS, ctypes.c_uint64(bias.address))
        rows, columns = (k, n) if transposed_rhs else (n, k)
        layouts = [
            stack.enter_context(_layout(library, tensor.dtype, *sides, batches))
            for tensor, sides in ((rhs, (rows, columns)), (lhs, (k, m)), (out, (n, m)))
        ]
        one, zero = ((ctypes.c_double if wide else ctypes.c_float)(value) for value in (1, 0))
        code = library.cublasLtMatmul(
            *(_handle(library, out.device.index), what, ctypes.byref(one)),
            *(rhs.address, layouts[0], lhs.address, layouts[1], ctypes.byref(zero)),
            *(out.address, layouts[2], out.address, layouts[2]),
            *(None, None, 0, driver.current_stream(out.device.index)),
        )
        _checked(code, f"a product of {m}×{k} and {k}×{n} {lhs.dtype} matrices")


@contextlib.contextmanager
def _description(library: ctypes.CDLL, compute: int, scale: int) -> Iterator[ctypes.c_void_p]:
    made = ctypes.c_void_p()
    _checked(library.cublasLtMatmulDescCreate(ctypes.byref(made), compute, scale), "describing a product")
    try:
        yield made
    finally:
        library.cublasLtMatmulDescDestroy(made)


@contextlib.contextmanager
def _layout(library: ctypes.CDLL, dtype: str, rows: int, columns: int, batches: int) -> Iterator[ctypes.c_void_p]:
    made = ctypes.c_void_p()
    code = library.cublasLtMatrixLayoutCreate(ctypes.byref(made), _TYPES[dtype], rows, columns, rows)
    _checked(code, "describing a matrix")
    try:
        _set(library.cublasLtMatrixLayoutSetAttribute, made, _BATCH_COUNT, ctypes.c_int32(batches))
        _set(library.cublasLtMatrixLayoutSetAttribute, made, _BATCH_STRIDE, ctypes.c_int64(rows * columns))
        yield made
    finally:
        library.cublasLtMatrixLayoutDestroy(made)


def _set(function: Any, what: ctypes.c_void_p, attribute: int, value: Any) -> None:
    _checked(function(what, attribute, ctypes.byref(value), ctypes.sizeof(value)), "describing a product")
