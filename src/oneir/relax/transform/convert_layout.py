"""ConvertLayout: convolutions get the layouts that are desired, and what follows them takes the data as it comes.

ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})

    with R.dataflow():                  with R.dataflow():
        a = R.nn.conv2d(x, w)               lv = R.permute_dims(x, axes=[0, 2, 3, 1])
        b = R.nn.relu(a)       ->           lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
        R.output(b)                         a = R.nn.conv2d(lv, lv1, data_layout="NHWC", kernel_layout="OHWI")
                                            lv2 = R.nn.relu(a)
                                            b = R.permute_dims(lv2, axes=[0, 3, 1, 2])
                                            R.output(b)

Which layouts a call takes and gives is its operator's fact `FRelaxInferLayout` (rules: `op/infer_layout.py`); a call of
one without it takes its arguments as they were made. What leaves a dataflow block is in the layout that it was made in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...ir.container import same_objects
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ...ir.transform import PassContext
from ...ir.visitor import deep_recursion
from ...runtime.error import TypeMismatch
from ...tir.data_layout import Layout, bijective_layout
from ...tir.index_map import IndexMap
from ..expr import (
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    MatchCast,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..expr_functor import PyExprMutator
from ..op.infer_layout import (
    LETTERS,
    LayoutChoice,
    Layouts,
    NestedLayout,
    axes_of,
    initial_of,
    is_packed,
)
from ..op.layout_transform import layout_transform
from ..op.manipulate import permute_dims
from ..operator_facts import FRelaxInferLayout
from ..struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from .pass_base import DataflowBlockPass

DesiredLayouts = Mapping[str, Sequence[str]]


class ConvertLayout(DataflowBlockPass):
    """Gives operators, by their names, the layouts of data, weight and maybe output that are desired.

    With `layout_cb`, it is called for each call: it returns the desired layouts for that call. Raises
    `TypeMismatch` for a number of layouts that no operator has.
    """

    desired_layouts: DesiredLayouts
    layout_cb: Callable[[Call], DesiredLayouts] | None = None

    def __post_init__(self) -> None:
        for name, layouts in self.desired_layouts.items():
            if isinstance(layouts, str) or not 1 <= len(layouts) <= 3:
                raise TypeMismatch(
                    f"ConvertLayout: the layouts desired of {name} are those of data, weight and maybe output, such as "
                    f'["NHWC", "OHWI"]; found {layouts!r}'
                )
            for layout in layouts:
                Layout(layout)

    def transform_dataflowblock(self, block: DataflowBlock, mod: IRModule, ctx: PassContext) -> DataflowBlock:
        with deep_recursion:
            return _Converter(self.desired_layouts, self.layout_cb).visit_binding_block(block)


class _Converter(PyExprMutator):
    def __init__(self, desired: DesiredLayouts, layout_cb: Callable[[Call], DesiredLayouts] | None):
        self.desired, self.layout_cb = desired, layout_cb
        self.layouts = Layouts()

    # -- values in layouts --

    def _converted(self, expr: Expr, source: NestedLayout, target: NestedLayout) -> Expr:
        """A value of one layout in another one."""
        if source == target or source == "" or target == "" or source is None:
            return expr
        info = expr.struct_info
        if isinstance(info, TupleStructInfo):
            if isinstance(expr, Tuple):
                fields: list[Expr] = list(expr.fields)
            else:
                fields = [TupleGetItem(expr, i) for i in range(len(info.fields))]
            return Tuple([self._converted(f, a, b) for f, a, b in zip(fields, source, target, strict=True)])
        if is_packed(source) or is_packed(target):
            made = layout_transform.call(
                expr,
                index_map=_index_map(source, target),
                pad_value=None,
                axis_separators=[],
                input_axis_separators=[],
            )
            return made
        return permute_dims(expr, [source.index(axis) for axis in target])

    def _in_layout(self, expr: Expr, target: NestedLayout) -> Expr:
        """An argument in a layout."""
        return self._converted(self._now(expr), self.layouts.of(expr), target)

    def _now(self, expr: Expr) -> Expr:
        if isinstance(expr, Tuple):
            fields = [self._now(f) for f in expr.fields]
            return expr if same_objects(fields, expr.fields) else Tuple(fields)
        return self._variables.get(expr, expr) if isinstance(expr, Var) else expr

    def visit_var_(self, op: Var) -> Expr:
        return self._in_layout(op, initial_of(op.struct_info))

    # -- bindings --

    def _bind(self, binding: VarBinding, value: Expr, layout: NestedLayout) -> None:
        """Emits the new value of a variable, and notes its layout; a value seen outside gets the one it was made in."""
        var = binding.var
        start = initial_of(var.struct_info)
        if isinstance(var, DataflowVar):
            self.layouts.known[var] = layout
            self.reemit_binding(binding, value)
            return
        value = self.builder_.normalize(value)
        if layout != start:
            value = self._converted(self.builder_.emit(value), layout, start)
        new = value if value is binding.value else self.builder_.normalize(value)
        self.builder_.emit_normalized(binding if new is binding.value else VarBinding(var, new, span=binding.span))

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        inside = isinstance(binding.var, DataflowVar)
        if isinstance(value, Call):
            choice = self._choice(value)
            if choice is None or not (inside or _is_tensors(binding.var.struct_info)):
                args = [self._in_layout(a, initial_of(a.struct_info)) for a in value.args]
                self._bind(binding, _changed(value, args, {}), initial_of(binding.var.struct_info))
            else:
                self._bind(binding, self._call(value, choice), choice.output)
        elif isinstance(value, Tuple):
            wanted = tuple([self.layouts.of(f) if inside else initial_of(f.struct_info) for f in value.fields])
            fields = [self._in_layout(f, layout) for f, layout in zip(value.fields, wanted, strict=True)]
            same = same_objects(fields, value.fields)
            self._bind(binding, value if same else Tuple(fields, span=value.span), wanted)
        elif isinstance(value, TupleGetItem):
            layout = self.layouts.of(value.tuple_value)
            source = self._now(value.tuple_value)
            item = value if source is value.tuple_value else TupleGetItem(source, value.index, span=value.span)
            self._bind(binding, item, layout[value.index])
        else:
            super().visit_var_binding_(binding)

    def _choice(self, call: Call) -> LayoutChoice | None:
        """What a call wants, if its operator says and the dimensions of its arguments are known."""
        rule = FRelaxInferLayout.of(call.op)
        tensors = [a for a in call.args if _is_tensors(a.struct_info_)]
        if rule is None or any(_unknown(self.layouts.of(a)) for a in tensors):
            return None
        return rule(call, self.desired if self.layout_cb is None else self.layout_cb(call), self.layouts)

    def _call(self, call: Call, choice: LayoutChoice) -> Expr:
        args = [
            self._in_layout(a, choice.inputs[i]) if i < len(choice.inputs) else self.visit_expr(a)
            for i, a in enumerate(call.args)
        ]
        for index, arg in choice.new_args.items():
            args[index] = arg
        return _changed(call, args, choice.attrs)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        layout = self.layouts.of(binding.value)
        # A split tensor, or one of unknown dimensions, is cast as it was made.
        if not isinstance(binding.var, DataflowVar) or not _castable(layout, binding):
            super().visit_match_cast_(binding)
            return
        info = _moved(binding.struct_info, layout)
        new = self.builder_.match_cast(self._now(binding.value), info, binding.var.name)
        self.layouts.known[binding.var] = layout
        self.set_var_remap(binding.var, new)


def _changed(call: Call, args: Sequence[Expr], attrs: Mapping[str, object]) -> Call:
    """The call with other arguments and, if any are given, attributes; itself if they are the same."""
    if same_objects(args, call.args) and all(
        value is call.attrs[name] or structural_equal(value, call.attrs[name]) for name, value in attrs.items()
    ):
        return call
    return Call(call.op, args, attrs or call.attrs, call.sinfo_args, call.span)


def _is_tensors(info: StructInfo | None) -> bool:
    if isinstance(info, TupleStructInfo):
        return all(map(_is_tensors, info.fields))
    return isinstance(info, TensorStructInfo)


def _unknown(layout: NestedLayout) -> bool:
    return any(map(_unknown, layout)) if isinstance(layout, tuple) else layout is None


def _castable(layout: NestedLayout, binding: MatchCast) -> bool:
    """Whether a cast of a value in a layout that is not that of its making may be one of the value as it is."""
    made = initial_of(binding.value.struct_info)
    return layout != made and initial_of(binding.struct_info) == made and not _packed(layout)


def _packed(layout: NestedLayout) -> bool:
    return any(map(_packed, layout)) if isinstance(layout, tuple) else is_packed(layout)


def _index_map(source: str, target: str) -> IndexMap:
    """How the indices of one layout follow from those of another."""
    indices = [TirVar(f"i{i}", "int32") for i in range(len(axes_of(source)))]
    return IndexMap(indices, bijective_layout(source, target).forward_index(indices))


def _moved(info: StructInfo, layout: NestedLayout) -> StructInfo:
    """What a cast says of a tensor, of it in another layout."""
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo([_moved(f, part) for f, part in zip(info.fields, layout, strict=True)])
    if not isinstance(info, TensorStructInfo) or layout == initial_of(info) or info.extents is None:
        return info
    return TensorStructInfo([info.extents[LETTERS.index(axis)] for axis in layout], info.dtype, info.vdevice)
