"""Runs calls of operators three ways, so that tests can compare them: natively through the operator's legalization, by
its NumPy reference, and in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import oneir
from oneir import relax, tir
from oneir.ir.dtype import DataType
from oneir.relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-11}


def var(shape: Any = None, dtype: Any = "float32", ndim: int = -1, name: str = "x") -> relax.Var:
    """A tensor variable of a shape, or of a number of dimensions, or of neither."""
    return relax.Var(name, TensorStructInfo(shape, dtype, ndim=ndim))


def tensor(shape: Any = None, dtype: Any = "float32", ndim: int = -1) -> TensorStructInfo:
    """The struct info of a tensor."""
    return TensorStructInfo(shape, dtype, ndim=ndim)


def infer(call: Any) -> StructInfo:
    """What is known of a call."""
    builder = relax.BlockBuilder()
    with builder.testing_scope([]):
        return builder.normalize(call).struct_info


class Evaluator:
    """Computes what a legalized call gives, each of its loops compiled by itself."""

    def __init__(self, module: oneir.IRModule, variables: dict[Any, Any], extents: dict[tir.Var, int]):
        self.module, self.variables, self.extents = module, variables, extents

    def extent(self, value: Any) -> int:
        """A symbolic extent as a number."""
        values = {var: tir.IntImm(var.dtype, extent) for var, extent in self.extents.items()}
        known = oneir.arith.Analyzer().simplify(tir.stmt_functor.substitute(value, values))
        assert isinstance(known, tir.IntImm)
        return known.value

    def __call__(self, expr: Any) -> Any:
        if isinstance(expr, relax.Var):
            return self.variables[expr]
        if isinstance(expr, relax.Constant):
            return expr.data.numpy()
        if isinstance(expr, relax.Tuple):
            return [self(f) for f in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return self(expr.tuple_value)[expr.index]
        if isinstance(expr, relax.ShapeExpr):
            return tuple(self.extent(e) for e in expr.values)
        if isinstance(expr, relax.PrimValue):
            return self.extent(expr.value)
        if isinstance(expr, (relax.StringImm, relax.DataTypeImm)):
            return expr.value
        assert isinstance(expr, relax.Call), expr
        if expr.op.name == "relax.call_tir":
            return self.call_tir(expr)
        if expr.op.name == "relax.tensor_to_shape":
            return tuple(int(v) for v in self(expr.args[0]))
        return self(expr.op.get_attr("FLegalize")(None, expr))

    def call_tir(self, call: Any) -> Any:
        info = call.sinfo_args[0]
        infos = list(info.fields) if isinstance(info, TupleStructInfo) else [info]
        outputs = []
        for made in infos:
            assert isinstance(made, TensorStructInfo) and made.extents is not None
            output = np.zeros([self.extent(e) for e in made.extents], DataType(made.dtype).to_numpy())
            output.reshape(-1).view(np.uint8).fill(0xA5)
            outputs.append(output)
        numbers = [self.extent(v) for v in call.args[2].values] if len(call.args) > 2 else []
        inputs = [np.ascontiguousarray(a).reshape(np.shape(a)) for a in self(call.args[1])]
        oneir.build(self.module[call.args[0]])(*inputs, *outputs, *numbers)
        return outputs if isinstance(info, TupleStructInfo) else outputs[0]

    def bind(self, block: Any) -> None:
        """Computes the bindings of a block."""
        for binding in block.bindings:
            self.variables[binding.var] = self(binding.value)
            if isinstance(binding, relax.MatchCast):
                assert isinstance(binding.struct_info, ShapeStructInfo) and binding.struct_info.values is not None
                for extent, value in zip(binding.struct_info.values, self.variables[binding.var], strict=True):
                    assert isinstance(extent, tir.Var)
                    self.extents[extent] = value


def _argument(evaluator: Evaluator, expr: Any) -> Any:
    """An argument as the reference gets it."""
    if isinstance(expr, relax.PrimValue):
        known = expr.value
        return known.value if isinstance(known, (tir.IntImm, tir.FloatImm)) else evaluator.extent(known)
    if isinstance(expr, relax.Tuple):
        return [_argument(evaluator, f) for f in expr.fields]
    return evaluator(expr)


class Run:
    """The results of one call: `native`, `reference`; `call` and the `module` with the loops it was legalized to."""

    def __init__(self, make: Callable[..., Any], *inputs: Any, shapes: dict[int, tuple[Any, ...]] | None = None):
        symbols: dict[str, tir.Var] = {}
        extents: dict[tir.Var, int] = {}
        variables: dict[Any, Any] = {}

        def declare(value: Any, name: str, wanted: Any) -> relax.Var:
            dims = []
            for dim, actual in zip(wanted or value.shape, value.shape, strict=True):
                if isinstance(dim, str):
                    dim = symbols.setdefault(dim, tir.Var(dim, "int64"))
                    extents[dim] = actual
                dims.append(dim)
            made = relax.Var(name, TensorStructInfo(dims, value.dtype.name))
            variables[made] = value
            return made

        arguments: list[Any] = []
        for i, value in enumerate(inputs):
            wanted = (shapes or {}).get(i)
            if isinstance(value, list):
                arguments.append([declare(v, f"a{i}_{j}", wanted) for j, v in enumerate(value)])
            else:
                arguments.append(declare(np.asarray(value), f"a{i}", wanted))
        flat = [v for a in arguments for v in (a if isinstance(a, list) else [a])]
        builder = relax.BlockBuilder()
        builder.begin_scope(flat)
        builder.begin_binding_block()
        self.call: Any = builder.normalize(make(*arguments, **symbols))
        inner = Evaluator(builder.mod, dict(variables), dict(extents))
        op = self.call.op
        self.legalized: Any = builder.normalize(op.get_attr("FLegalize")(builder, self.call))
        inner.module = self.module = builder.get()
        inner.bind(builder.end_block())
        self.native = inner(self.legalized)
        arrays = [_argument(inner, a) for a in self.call.args]
        self.reference = op.get_attr("FReference")(*arrays, **self.call.attrs.values_by_name)
        self.extent = inner.extent


def check(
    make: Callable[..., Any],
    *inputs: Any,
    shapes: dict[int, tuple[Any, ...]] | None = None,
    torch_function: Callable[..., Any] | None = None,
    tolerance: float | None = None,
) -> Run:
    """Asserts that native code, the reference and PyTorch agree, in dtypes and shapes as the struct info says.

    `make` gets a variable for each array, a list of them for each list, and symbolic extents by name. `shapes` declares
    inputs with symbolic extents.
    """
    run = Run(make, *inputs, shapes=shapes)
    native = run.native if isinstance(run.native, list) else [run.native]
    reference = run.reference if isinstance(run.reference, list) else [run.reference]
    info = run.call.struct_info
    infos = list(info.fields) if isinstance(info, TupleStructInfo) else [info]
    assert len(native) == len(reference) == len(infos)
    for n, r, i in zip(native, reference, infos, strict=True):
        assert isinstance(i, TensorStructInfo)
        assert n.dtype.name == np.asarray(r).dtype.name == i.dtype, (n.dtype, np.asarray(r).dtype, i.dtype)
        assert n.shape == np.shape(r)
        if i.extents is not None:
            assert tuple(map(run.extent, i.extents)) == n.shape
        close(n, r, tolerance)
    if torch_function is not None:
        expected = torch_function(*[[to_torch(v) for v in a] if isinstance(a, list) else to_torch(a) for a in inputs])
        outputs = list(expected) if isinstance(expected, (list, tuple)) else [expected]
        assert len(outputs) == len(native)
        for n, t in zip(native, outputs, strict=True):
            assert tuple(t.shape) == n.shape
            close(n, from_torch(t).astype(n.dtype), tolerance)
    return run


def to_torch(array: Any) -> torch.Tensor:
    """A NumPy array as PyTorch's tensor."""
    array = np.asarray(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(array.copy())


def from_torch(value: torch.Tensor) -> np.ndarray:
    """PyTorch's tensor as a NumPy array."""
    return value.to(torch.float32).numpy() if value.dtype == torch.bfloat16 else value.numpy()


def close(found: np.ndarray, expected: Any, tolerance: float | None = None) -> None:
    """Asserts that arrays are equal; of floats, as far as their dtype and the sums in them allow."""
    bound = TOLERANCE.get(found.dtype.name) if tolerance is None else tolerance
    if bound is None:
        np.testing.assert_array_equal(found, expected)
    else:
        wide = [np.asarray(a).astype(np.float64) for a in (found, expected)]
        np.testing.assert_allclose(*wide, rtol=bound, atol=bound)


def random(shape: Any, dtype: str = "float32", low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    """Numbers of a dtype in an interval; bools by chance."""
    generator = np.random.default_rng([seed, *map(int, np.atleast_1d(shape))] if np.size(shape) else seed)
    if dtype == "bool":
        return np.asarray(generator.integers(0, 2, shape), bool)
    values = generator.uniform(low, high, shape)
    name = DataType(dtype)
    if name.is_float:
        return np.asarray(values).astype(name.to_numpy())
    return np.asarray(
        generator.integers(int(max(low, 0 if name.is_uint else low)), int(high) + 1, shape), name.to_numpy()
    )
