"""Index maps: the indices of one layout as functions of those of another.

IndexMap.from_func(lambda i, j: [i, j // 4, j % 4])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.container import Array, is_sequence
from ..ir.expr import BinaryOpExpr, ConstExpr, IntImm, PrimExpr, Var, as_expr
from ..ir.node import Node, as_array, attr, binder, child
from ..ir.operators import cast, match_types
from ..ir.visitor import Mapper
from ..runtime.error import InvalidValue
from .expr import expr_array


class _Separator:
    """Marks, in the result of a mapping function, the boundary between groups of axes that are flattened separately."""

    def __repr__(self) -> str:
        return "IndexMap.AXIS_SEPARATOR"


class IndexMap(Node):
    """`final_indices` as expressions over `initial_indices`; `inverse_index_map` when it is known beforehand."""

    initial_indices: Array[Var] = binder(converter=as_array)
    final_indices: Array[PrimExpr] = child(converter=expr_array)
    inverse_index_map: Any = attr(default=None)

    AXIS_SEPARATOR = _Separator()

    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: Any = None,
        *,
        index_dtype: str = "int64",
    ) -> IndexMap:
        """The map that a function of the indices describes; `ndim` is needed when the function takes `*indices`."""
        index_map, separators = IndexMap.from_func_with_separators(
            mapping_function, ndim, inverse_index_map, index_dtype=index_dtype
        )
        if separators:
            raise InvalidValue("this mapping has axis separators; use IndexMap.from_func_with_separators")
        return index_map

    @staticmethod
    def from_func_with_separators(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: Any = None,
        *,
        index_dtype: str = "int64",
    ) -> tuple[IndexMap, list[int]]:
        """The map, and the positions of the axis separators among its final indices."""
        names: list[str] = []
        star = None
        for param in inspect.signature(mapping_function).parameters.values():
            if param.kind == inspect.Parameter.VAR_POSITIONAL:
                star = param.name
            elif param.kind == inspect.Parameter.VAR_KEYWORD:
                raise InvalidValue("the function of an index map cannot take **keywords")
            else:
                names.append(param.name)
        if star is not None:
            if ndim is None:
                raise InvalidValue(f"the function of an index map takes *{star}: pass ndim, the number of indices")
            names += [f"{star}_{i}" for i in range(len(names), ndim)]
        initial = [Var(name, index_dtype) for name in names]
        result = mapping_function(*initial)
        items = result if is_sequence(result) else [result]
        separators: list[int] = []
        final: list[PrimExpr] = []
        for item in items:
            if isinstance(item, _Separator):
                separators.append(len(final))
            elif is_sequence(item):
                final += [as_expr(i) for i in item]
            else:
                final.append(as_expr(item))
        if inverse_index_map is not None and not isinstance(inverse_index_map, IndexMap):
            inverse_index_map = IndexMap.from_func(inverse_index_map, ndim=len(final), index_dtype=index_dtype)
        return IndexMap(initial, final, inverse_index_map), separators

    def map_indices(self, indices: Any) -> Array[PrimExpr]:
        """The final indices for given initial ones."""
        indices = expr_array(indices)
        if len(indices) != len(self.initial_indices):
            raise InvalidValue(f"the index map takes {len(self.initial_indices)} indices, found {len(indices)}")
        values = dict(zip(self.initial_indices, indices, strict=True))
        return Array(_simplify(_SubstituteIndices(values)(f), {}) for f in self.final_indices)

    def map_shape(self, shape: Any) -> Array[PrimExpr]:
        """The shape of the final layout for a given initial shape. Blocks are whole: `[i // 4, i % 4]` of 3 is [1, 4].

        Raises `InvalidValue` where an index of the final layout has no bounds, as a product of two symbolic extents.
        """
        from ..arith import Analyzer
        from ..arith.int_set import is_infinite
        from ..arith.iter_map_inverse import padded_extents

        shape = expr_array(shape)
        analyzer = Analyzer()
        fresh = [v.copy_with_dtype(d.dtype) for v, d in zip(self.initial_indices, shape, strict=True)]
        from ..ir.expr import Range

        for var, dim in zip(fresh, shape, strict=True):
            analyzer.bind(var, Range(dim))
        final = self.map_indices(fresh)
        dom_map = {var: Range(dim) for var, dim in zip(fresh, shape, strict=True)}
        if all(isinstance(dim, IntImm) for dim in shape):
            extents = padded_extents(final, dom_map)
            if extents is not None:
                return Array([analyzer.simplify(extent) for extent in extents])
        out: list[PrimExpr] = []
        for index in final:
            bounds: Any = analyzer.int_set(index, _intervals(dom_map))
            if is_infinite(bounds.min_value) or is_infinite(bounds.max_value):
                raise InvalidValue(f"the extent of the index {index} over the shape {shape} cannot be bounded")
            out.append(analyzer.simplify(bounds.max_value - bounds.min_value + 1))
        return Array(out)

    def map_tensor(self, arr_src: Any) -> Any:
        """The data of a tensor in the final layout, as a new tensor."""
        import numpy as np

        from ..runtime.tensor import tensor

        source: Any = arr_src.numpy() if hasattr(arr_src, "numpy") else np.asarray(arr_src)
        extents: Array[Any] = self.map_shape(list(source.shape))
        shape = tuple(int(d) for d in extents)
        grids: Sequence[Any] = np.meshgrid(*[np.arange(int(d)) for d in source.shape], indexing="ij")
        values = dict(zip(self.initial_indices, grids, strict=True))
        target = np.zeros(shape, dtype=source.dtype)
        target[tuple(evaluate_on_arrays(f, values) for f in self.final_indices)] = source
        return tensor(target)

    map_ndarray = map_tensor

    def inverse(self, shape: Any) -> IndexMap:
        """The inverse map, for a given initial shape; the map must be bijective."""
        index_map, predicate = self.non_surjective_inverse(shape)
        if getattr(predicate, "value", None) != 0:
            raise InvalidValue(
                f"the index map is not one to one over the shape {list(shape)}: indices are left over where {predicate}"
            )
        return index_map

    def non_surjective_inverse(self, shape: Any) -> tuple[IndexMap, PrimExpr]:
        """The inverse map, and a predicate over the final indices that holds for padding.

        An extent of `shape` may be given as the range of the index, from 0 on.
        """
        from ..arith import inverse_index_map
        from ..ir.expr import Range

        for dim in shape:
            if isinstance(dim, Range) and getattr(dim.min, "value", None) != 0:
                raise InvalidValue(f"the indices of a layout start at 0, found the range {dim}")
        return inverse_index_map(self, expr_array([d.extent if isinstance(d, Range) else d for d in shape]))

    def is_equivalent_to(self, other_map: IndexMap) -> bool:
        """Whether two maps give equal final indices."""
        if len(self.initial_indices) != len(other_map.initial_indices):
            return False
        mine, theirs = self.final_indices, other_map.map_indices(self.initial_indices)
        return len(mine) == len(theirs) and all(
            getattr(_simplify(a - b, {}), "value", None) == 0 for a, b in zip(mine, theirs, strict=True)
        )


class _SubstituteIndices(Mapper):
    """Substitutes expressions for indices; constants take the dtype of the new indices."""

    def __init__(self, values: dict[Var, PrimExpr]):
        super().__init__()
        self.values = values

    def visit_Var(self, var: Var) -> PrimExpr:
        return self.values.get(var, var)

    def visit_BinaryOpExpr(self, node: BinaryOpExpr) -> PrimExpr:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        if a.dtype is not b.dtype:
            if isinstance(b, ConstExpr):
                b = cast(a.dtype, b)
            elif isinstance(a, ConstExpr):
                a = cast(b.dtype, a)
            else:
                a, b = match_types(a, b)
        return type(node)(a, b)


def _simplify(expr: PrimExpr, ranges: dict[Var, Any]) -> PrimExpr:
    from ..arith import Analyzer

    analyzer = Analyzer()
    for var, dom in ranges.items():
        analyzer.bind(var, dom)
    return analyzer.simplify(expr)


def _intervals(dom_map: dict[Var, Any]) -> dict[Var, Any]:
    from ..arith import IntervalSet

    return {var: IntervalSet(dom.min, dom.min + dom.extent - 1) for var, dom in dom_map.items()}


def evaluate_on_arrays(expr: PrimExpr, values: dict[Var, Any]) -> Any:
    """The value of an integer expression whose variables are NumPy arrays."""
    from ..ir import expr as e

    binary: dict[type, Callable[[Any, Any], Any]] = {
        e.Add: lambda a, b: a + b,
        e.Sub: lambda a, b: a - b,
        e.Mul: lambda a, b: a * b,
        e.FloorDiv: lambda a, b: a // b,
        e.FloorMod: lambda a, b: a % b,
    }
    if isinstance(expr, Var):
        return values[expr]
    if isinstance(expr, e.IntImm):
        return expr.value
    if isinstance(expr, e.Cast):
        return evaluate_on_arrays(expr.value, values)
    if type(expr) in binary:
        node: Any = expr
        return binary[type(expr)](evaluate_on_arrays(node.a, values), evaluate_on_arrays(node.b, values))
    raise InvalidValue(f"expected an index expression of +, -, *, // and %, found {expr}")
