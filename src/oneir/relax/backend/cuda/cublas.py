"""Products of matrices for cuBLAS, with a bias and an activation.

mod = RunCodegen()(partition_for_cublas(mod))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....arith import Analyzer
from ....contrib import cublas
from ....ir import operators as ops
from ....ir.expr import as_int
from ....ir.module import IRModule
from ....runtime.error import UnsupportedError
from ....runtime.registry import register_func
from ....runtime.tensor import Tensor
from ...expr import Function
from ...struct_info import TensorStructInfo
from ...transform.fuse_ops_by_pattern import FuseOpsByPattern, PatternCheckContext
from ..library import LibraryModule, composite_of
from ..pattern_registry import get_patterns_with_prefix, register_patterns
from ..patterns import make_matmul_pattern
from ..utils import has_leaking_intermediate_variables

_ACTIVATIONS = {"": None, "_relu": "relax.nn.relu", "_gelu": "relax.nn.gelu_tanh"}
"""The activations of patterns, by the end of their names. cuBLAS computes GELU by tanh."""


def _check_matmul(context: PatternCheckContext) -> bool:
    """Whether cuBLAS has the dtypes and shapes of a match."""
    if has_leaking_intermediate_variables(context):
        return False
    found = context.annotated_expr
    lhs, rhs, root = (_tensor(found[part]) for part in ("lhs", "rhs", "root"))
    if lhs is None or rhs is None or root is None or lhs.dtype not in cublas.DTYPES:
        return False
    transposes = [value for value in context.matched_bindings.values() if _name(value) == "relax.permute_dims"]
    if any(not _swaps_last_two(value, rhs.ndim) for value in transposes):
        return False
    out = root.dtype
    if lhs.dtype != rhs.dtype or out not in (lhs.dtype, *(["float32"] if lhs.dtype != "float64" else [])):
        return False
    rows, columns = list(lhs.extents or ()), list(rhs.extents or ())
    if len(rows) < 2 or len(columns) < 2 or any(as_int(extent) == 0 for extent in (*rows, *columns)):
        return False
    if len(columns) > 2 and not _same(rows[:-2], columns[:-2]):
        return False
    if "bias" not in found:
        return True
    bias, width = _tensor(found["bias"]), columns[-2] if transposes else columns[-1]
    return bias is not None and bias.dtype == out and _same(list(bias.extents or ()), [width])


def _tensor(expr: Any) -> TensorStructInfo | None:
    info = expr.struct_info
    return info if isinstance(info, TensorStructInfo) else None


def _name(value: Any) -> str:
    return getattr(getattr(value, "op", None), "name", "")


def _swaps_last_two(transpose: Any, ndim: int) -> bool:
    axes = transpose.attrs["axes"]
    order = list(reversed(range(ndim))) if axes is None else [axis % ndim for axis in axes]
    return order == [*range(ndim - 2), ndim - 1, ndim - 2]


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    analyzer = Analyzer()
    return len(a) == len(b) and all(analyzer.can_prove(ops.equal(x, y)) for x, y in zip(a, b, strict=True))


register_patterns(
    [
        (
            f"cublas.matmul{'_transposed' if transposed else ''}{'_bias' if with_bias else ''}{ending}",
            *make_matmul_pattern(with_bias, activation, transposed),
            _check_matmul,
        )
        for transposed in (False, True)
        for with_bias, endings in ((False, [""]), (True, list(_ACTIVATIONS)))
        for ending, activation in ((ending, _ACTIVATIONS[ending]) for ending in endings)
    ]
)


def partition_for_cublas(mod: IRModule, bind_constants: bool = False) -> IRModule:
    """The module with functions for cuBLAS, which `RunCodegen` compiles.

    With `bind_constants`, constants become part of them; cuBLAS takes them as arguments only.
    """
    patterns = get_patterns_with_prefix("cublas")
    return FuseOpsByPattern(patterns, bind_constants=bind_constants, annotate_codegen=True)(mod)


@register_func("relax.ext.cublas")
def _compile(
    functions: Sequence[Function], options: Mapping[str, Any], constant_names: Mapping[Any, str]
) -> list[LibraryModule]:
    """Raises `UnsupportedError` where cuBLAS is not installed."""
    if not cublas.cublas_exists():
        raise UnsupportedError(cublas.MISSING)
    return [LibraryModule({func.attrs["global_symbol"]: _caller(func) for func in functions})]


def _caller(func: Function) -> Callable[..., None]:
    """What calls cuBLAS with the arguments of a function, the last of which is the result."""
    match = composite_of(func)
    product, add = match.calls["relax.matmul"], match.calls.get("relax.add")
    lhs, rhs = (match.place(argument) for argument in product.args)
    bias = None if add is None else match.place(add.args[1])
    activation = next((_name(call).rpartition(".")[2] for call in match.calls.values() if "nn." in _name(call)), "")

    def call(*tensors: Tensor) -> None:
        cublas.matmul(
            tensors[lhs],
            tensors[rhs],
            tensors[-1],
            transposed_rhs="relax.permute_dims" in match.calls,
            bias=None if bias is None else tensors[bias],
            activation=activation,
        )

    return call
