"""AlterOpImpl: kernels are replaced by others of the same operator, which may take other layouts.

lv = R.call_tir(cls.add, (x, y), R.Tensor((16,), "float32"))    # add: operator_name "relax.add"
->
a = R.layout_transform(x, index_map=lambda i: (i // 4, i % 4))
b = R.layout_transform(y, index_map=lambda i: (i // 4, i % 4))
c = R.call_tir(cls.relax_add_replacement, (a, b), R.Tensor((4, 4), "float32"))
lv = R.layout_transform(c, index_map=lambda i, j: (i * 4 + j,))

`OptimizeLayoutTransform` removes the changes of layout between two that were replaced.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from ... import te
from ...ir.expr import GlobalVar, IntImm
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import InvalidValue, ShapeMismatch, TypeMismatch
from ...tir.function import PrimFunc
from ...tir.index_map import IndexMap
from ..expr import Call, Constant, Expr, Tuple, TupleGetItem
from ..expr_functor import PyExprMutator
from ..op import layout_transform
from ..struct_info import StructInfo, TensorStructInfo, TupleStructInfo

CALL_TIR = Op.get("relax.call_tir")
OPERATOR_NAME = "operator_name"
"""The attribute of a PrimFunc that names the operator that it computes."""

Separators = Mapping[str, Sequence[Sequence[int]] | None]


class AlterOpImpl(ModulePass):
    """Replaces PrimFuncs by those in `op_impl_map`, by the attribute `operator_name` that they have.

    `op_buffer_transforms` are the layouts of the replacement's parameters, the results last: for each an `IndexMap`, a
    function of indices, or None for the layout as it is; none at all if there are no others. The separators are those
    of the buffers that changes of layout write and read, in the same order.

    Raises `TypeMismatch` for a layout of another kind, `InvalidValue` where a replacement has another number of
    parameters than there are layouts or than what it replaces, `ShapeMismatch` for a result of unknown shape whose
    layout changes.
    """

    op_impl_map: Mapping[str, PrimFunc]
    op_buffer_transforms: Mapping[str, Sequence[Any]]
    op_buffer_axis_separators: Separators | None = None
    op_buffer_input_axis_separators: Separators | None = None

    def __post_init__(self) -> None:
        transforms = {name: [_index_map(t) for t in maps] for name, maps in self.op_buffer_transforms.items()}
        object.__setattr__(self, "op_buffer_transforms", transforms)
        for name, func in self.op_impl_map.items():
            maps = transforms.get(name)
            if maps and len(maps) != len(func.params):
                raise InvalidValue(
                    f"AlterOpImpl: the replacement for {name!r} has {len(func.params)} parameters, but there are "
                    f"{len(maps)} layouts; give one for each, or none"
                )

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        separators = self.op_buffer_axis_separators or {}, self.op_buffer_input_axis_separators or {}
        return _Replacer(mod, self.op_impl_map, self.op_buffer_transforms, separators).transform_functions(mod)


def _index_map(transform: Any) -> IndexMap | None:
    if transform is None or isinstance(transform, IndexMap):
        return transform
    if isinstance(transform, (list, tuple)) and transform and isinstance(transform[0], IndexMap):
        return transform[0]
    if not callable(transform):
        raise TypeMismatch(f"AlterOpImpl: a layout is an IndexMap or a function of indices, found {transform!r}")
    return IndexMap.from_func_with_separators(transform)[0]


class _Layouts:
    """How one operator's buffers are laid out."""

    def __init__(self, maps: Sequence[IndexMap | None], separators: Sequence[Any], input_separators: Sequence[Any]):
        self.maps, self.separators, self.input_separators = maps, separators, input_separators

    def changed(self, expr: Expr, place: int, index_map: IndexMap | None) -> Expr:
        """A tensor in another layout; numbers have none."""
        if index_map is None or (isinstance(expr, Constant) and not expr.data.shape):
            return expr
        written, read = ([] if not s else s[place] for s in (self.separators, self.input_separators))
        # Variables of an index map are its own: each call has a copy.
        return layout_transform(expr, copy.copy(index_map), None, written, read)


class _Replacer(PyExprMutator):
    def __init__(
        self,
        mod: IRModule,
        replacements: Mapping[str, PrimFunc],
        transforms: Mapping[str, Sequence[IndexMap | None]],
        separators: tuple[Separators, Separators],
    ):
        super().__init__(mod)
        self.mod, self.replacements, self.transforms, self.separators = mod, replacements, transforms, separators
        self.added: dict[str, GlobalVar] = {}
        self.removers: dict[tuple[int, str], GlobalVar] = {}

    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or call.op is not CALL_TIR or not isinstance(call.args[1], Tuple):
            return call
        callee, inputs, *symbolic = call.args
        func = self.mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
        name: Any = func.attrs.get(OPERATOR_NAME) if isinstance(func, PrimFunc) else None
        if not isinstance(func, PrimFunc) or name not in self.replacements:
            return call
        replacement = self.replacements[name]
        if len(replacement.params) != len(func.params):
            raise InvalidValue(
                f"AlterOpImpl: `{callee}` has {len(func.params)} parameters, its replacement for {name!r} "
                f"{len(replacement.params)}"
            )
        if name not in self.added:
            self.added[name] = self.builder_.add_func(replacement.with_attr(OPERATOR_NAME, name), f"{name}_replacement")
        layouts = _Layouts(self.transforms.get(name, ()), *[s.get(name) or () for s in self.separators])
        if not layouts.maps:
            return Call(CALL_TIR, [self.added[name], inputs, *symbolic], call.attrs, call.sinfo_args, call.span)
        assert isinstance(inputs, Tuple)
        values = [layouts.changed(v, i, layouts.maps[i]) for i, v in enumerate(inputs.fields)]
        info = call.sinfo_args[0]
        infos = list(info.fields) if isinstance(info, TupleStructInfo) else [info]
        first = len(layouts.maps) - len(infos)
        wanted = [self._laid_out(i, m) for i, m in zip(infos, layouts.maps[first:], strict=True)]
        out: StructInfo = TupleStructInfo(wanted) if isinstance(info, TupleStructInfo) else wanted[0]
        new = Call(CALL_TIR, [self.added[name], Tuple(values), *symbolic], call.attrs, [out], call.span)
        if not isinstance(info, TupleStructInfo):
            return self._original(new, layouts, first, info)
        results = self.builder_.emit(new)
        return Tuple([self._original(TupleGetItem(results, i), layouts, first + i, f) for i, f in enumerate(infos)])

    def _laid_out(self, info: StructInfo, index_map: IndexMap | None) -> StructInfo:
        if not isinstance(info, TensorStructInfo) or info.extents is None:
            raise ShapeMismatch(f"AlterOpImpl: a result whose layout changes needs a known shape, found {info}")
        if index_map is None:
            return info
        return TensorStructInfo(index_map.map_shape(info.extents), info.dtype, info.vdevice)

    def _original(self, expr: Expr, layouts: _Layouts, place: int, info: StructInfo) -> Expr:
        """A result in the layout that it had, without padding."""
        index_map = layouts.maps[place]
        if index_map is None:
            return expr
        assert isinstance(info, TensorStructInfo) and info.extents is not None
        inverse, padding = index_map.non_surjective_inverse(info.extents)
        back = layouts.changed(expr, place, inverse)
        if isinstance(padding, IntImm) and padding.value == 0:
            return back
        padded = self.builder_.emit(back)
        return Call(CALL_TIR, [self._remove_pad(info), Tuple([padded])], None, [info])

    def _remove_pad(self, info: TensorStructInfo) -> GlobalVar:
        """A PrimFunc that copies what lies at the lowest indices, of any shape."""
        key = (info.ndim, info.dtype)
        if key not in self.removers:
            padded = [TirVar(f"p{i}", "int64") for i in range(info.ndim)]
            shape = [TirVar(f"i{i}", "int64") for i in range(info.ndim)]
            data = te.placeholder(padded, info.dtype, "input")
            output = te.compute(shape, lambda *indices: data(*indices), "output")
            func = te.create_prim_func([data, output]).with_attr(OPERATOR_NAME, "remove_pad")
            self.removers[key] = self.builder_.add_func(func.without_attr("global_symbol"), "remove_pad")
        return self.removers[key]
