"""ChooseLayouts: tensors between the functions of a graph lie in memory as the functions want them.

    lv = R.call_tir(cls.conv2d, (x, weight), ...)      # (N, C, H, W) and (O, I, H, W)
->
    lv = R.call_tir(cls.conv2d, (x, weight), ...)      # (N, H, W, C) and (O / 64, H, W, I, 64)

A contraction wants the channels of its operand and of its result last, so that vectors are contiguous in memory, and
its constant weights in panels, in the order in which it reads them. Other functions take tensors as they lie and give
theirs in the same order. Constants change while compiling. What enters and leaves the graph stays as it was declared.
Weights of a function with the attribute `lift_weights` are laid out by calls, which `LiftWeights` takes off.
All of it is read off the accesses of TensorIR blocks: the functions may be anyone's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.expr import Add, FloorDiv, FloorMod, GlobalVar, IntImm, PrimExpr, Var, as_int
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import ModulePass, PassContext
from ...ir.visitor import Visitor
from ...relax.expr import Call, Constant, DataflowVar, Expr, ExternFunc, StringImm, Tuple, VarBinding
from ...relax.expr import Var as GraphVar
from ...relax.expr_functor import PyExprMutator
from ...relax.op import call_pure_packed, call_tir
from ...relax.struct_info import TensorStructInfo
from ...relax.transform import DeadCodeElimination
from ...relax.transform.bundle_model_params import num_input_of
from ...relax.transform.lift_transform_params import LIFTED
from ...runtime.error import ScheduleError
from ...runtime.registry import register_func
from ...runtime.tensor import Tensor
from ...target.cpu import CPUInfo, cpu_info, has_masked_loads
from ...target.target import Target
from ...tir.analysis.variables import variables
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.stmt import Block, BufferStore
from ...tir.stmt_functor import loads
from ...tir.transform.simplify import SimplifyConfig, simplify
from ...topi import transpose
from ..analysis.contraction import dot_length, operands
from ..analysis.leaves import extent_of, is_copy, leaves, plain_schedule
from .depthwise import group_of, groups_in_vector, panel_of_group
from .register_tile import panel_for
from .relayout import Panels, Permuted, WordPanels, can_be_changed, relayout
from .winograd import Winograd, in_winograd_form, winograd_for

Layout = Permuted | Panels | WordPanels | Winograd
Axes = tuple[int, ...]

CALL_TIR = Op.get("relax.call_tir")


class ChooseLayouts(ModulePass):
    """Chooses the memory layouts of the tensors inside of graph functions, for a processor.

    target: the processor; without it, that of the target that is entered, or this machine's.
    """

    target: Target | None = None

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        target = self.target or Target.current(allow_none=True) or Target("llvm")
        new = _Choose(mod, cpu_info(target)).transform_functions(mod)
        return mod if new is mod else DeadCodeElimination()(new)


class _Choose(PyExprMutator):
    def __init__(self, mod: IRModule, info: CPUInfo):
        super().__init__(mod)
        self.mod, self.info = mod, info
        self.axes: dict[GraphVar, Axes] = {}
        """How variables lie in memory, by their new selves; the others as they are declared."""
        self.declared: dict[GraphVar, GraphVar] = {}
        """The same values as they are declared."""
        self.functions: dict[tuple[Any, ...], GlobalVar] = {}
        self.blocks: dict[GlobalVar, _Accesses] = {}
        self.constants: dict[tuple[Constant, Layout], Constant] = {}
        self.weights: frozenset[GraphVar] = frozenset()
        """The parameters that may be laid out at no cost."""
        self.readers: dict[GraphVar, list[tuple[Call, int]]] = {}
        """Calls of functions of loops that read a variable of the function as it was, and as which argument."""
        self.laid_out: dict[tuple[GraphVar, Layout], Expr] = {}

    def visit_function_(self, op: Any) -> Expr:
        if op.attrs.get("Primitive"):
            return op
        count = num_input_of(op) if op.attrs.get(LIFTED) else None
        outside = self.weights, self.readers
        self.weights = frozenset() if count is None else frozenset(op.params[count:])
        self.readers = _readers(op)
        try:
            return super().visit_function_(op)
        finally:
            self.weights, self.readers = outside

    def visit_var_(self, op: GraphVar) -> Expr:
        var = super().visit_var_(op)
        assert isinstance(var, GraphVar)
        return self.as_declared(var)

    def as_declared(self, var: GraphVar) -> GraphVar:
        """The value of a variable in its declared layout; transposed once for all uses."""
        axes = self.axes.get(var)
        if axes is None:
            return var
        if var not in self.declared:
            self.declared[var] = self.builder_.emit(self.transposed(var, _inverse(axes)))
        return self.declared[var]

    def transposed(self, value: Expr, axes: Axes) -> Call:
        """A call that permutes the dimensions of a value."""
        return self.builder_.call_te(transpose, value, list(axes), primfunc_name_hint="layout")

    def visit_var_binding_(self, binding: VarBinding) -> None:
        call = binding.value
        if not isinstance(call, Call) or call.op is not CALL_TIR:
            return super().visit_var_binding_(binding)
        gvar, arguments, info = call.args[0], call.args[1], call.sinfo_args[0]
        accesses = self.accesses(gvar)
        if (
            accesses is None
            or not isinstance(gvar, GlobalVar)
            or not isinstance(arguments, Tuple)
            or not isinstance(info, TensorStructInfo)
        ):
            return super().visit_var_binding_(binding)
        # The arguments as they lie in memory, and how.
        values = [super(_Choose, self).visit_var_(a) if isinstance(a, GraphVar) else a for a in arguments.fields]
        given = [self.axes.get(v) if isinstance(v, GraphVar) else None for v in values]
        if accesses.transposes_matrix() and self.is_parameter(values[0]) and isinstance(binding.var, DataflowVar):
            # The consumers that can read the matrix untransposed do so; for the others it is transposed.
            var = self.builder_.emit(values[0], binding.var.name)
            self.axes[var] = (1, 0)
            self.set_var_remap(binding.var, var)
            return None
        constant = [isinstance(v, Constant) or v in self.weights for v in values]
        inside = isinstance(binding.var, DataflowVar)
        plan = accesses.plan(given, constant, inside, self.info)
        if plan is None and inside and not accesses.contractions:
            plan = accesses.plan_of_result(self.wanted_by_readers(binding.var))
        if plan is None or self.enlarges_what_leaves(binding.var, accesses, plan):
            return super().visit_var_binding_(binding)
        *wanted, result = (plan.get(buffer) for buffer in accesses.params)
        new_arguments = [self.in_layout(v, g, w) for v, g, w in zip(values, given, wanted, strict=True)]
        out, axes = info, None
        if isinstance(result, Permuted) and info.extents is not None:
            out, axes = TensorStructInfo(result.shape(info.extents), info.dtype, info.vdevice), result.axes
        called = call_tir(self.in_layouts(gvar, accesses, plan), Tuple(new_arguments), out, *call.args[2:])
        if axes is None:
            return self.reemit_binding(binding, called)
        if isinstance(binding.var, DataflowVar):
            var = self.builder_.emit(called, binding.var.name)
            self.axes[var] = axes
            self.set_var_remap(binding.var, var)
            return None
        return self.reemit_binding(binding, self.transposed(self.builder_.emit(called), _inverse(axes)))

    def enlarges_what_leaves(self, var: GraphVar, accesses: _Accesses, plan: dict[Buffer, Layout]) -> bool:
        """Whether a function makes more elements than it takes in another layout, and no function reads them: then
        these are transposed, rather than the result or while it is made.
        """
        *arguments, result = accesses.params
        permuted = [_size(buffer) for buffer in arguments if isinstance(plan.get(buffer), Permuted)]
        made = _size(result)
        if accesses.contractions or var in self.readers or not permuted or made is None or None in permuted:
            return False
        return made > sum(size or 0 for size in permuted)

    def wanted_by_readers(self, var: GraphVar) -> Axes | None:
        """How a contraction that reads a variable of the function as it was wants it to lie; None if as declared."""
        for call, place in self.readers.get(var, ()):
            accesses, arguments = self.accesses(call.args[0]), call.args[1]
            if accesses is None or not accesses.contractions or not isinstance(arguments, Tuple):
                continue
            constant = [isinstance(a, Constant) or a in self.weights for a in arguments.fields]
            plan = accesses.plan([None] * len(constant), constant, True, self.info) or {}
            wanted = plan.get(accesses.params[place])
            if isinstance(wanted, Permuted):
                return wanted.axes
        return None

    def is_parameter(self, value: Expr) -> bool:
        """Whether a value is a parameter of the function, as it is declared."""
        return isinstance(value, GraphVar) and value not in self.axes and self.lookup_binding(value) is None

    def accesses(self, gvar: Any) -> _Accesses | None:
        """The accesses of a function to its buffers; None where their layouts cannot be changed."""
        func = self.mod[gvar] if isinstance(gvar, GlobalVar) else None
        if gvar not in self.blocks and isinstance(func, PrimFunc) and can_be_changed(func):
            self.blocks[gvar] = _Accesses.of(func).without_views()
        return self.blocks.get(gvar)

    def in_layout(self, value: Expr, given: Axes | None, wanted: Layout | None) -> Expr:
        """An argument in the layout that a function wants it in."""
        if isinstance(value, Constant):
            return value if wanted is None else self.constant(value, wanted)
        if isinstance(value, GraphVar) and value in self.weights and isinstance(wanted, Panels | WordPanels | Winograd):
            return self.weight(value, wanted)
        axes = wanted.axes if isinstance(wanted, Permuted) else None
        if axes == given or not isinstance(value, GraphVar):
            return value
        declared = self.as_declared(value)
        return declared if axes is None else self.builder_.emit(self.transposed(declared, axes))

    def constant(self, value: Constant, layout: Layout) -> Constant:
        """A constant in another layout, made once for all its uses."""
        key = (value, layout)
        if key not in self.constants:
            self.constants[key] = Constant(layout.in_memory(np.asarray(value.data)))
        return self.constants[key]

    def weight(self, value: GraphVar, layout: Panels | WordPanels | Winograd) -> Expr:
        """A weight in another layout, made once for all its uses."""
        key = (value, layout)
        if key not in self.laid_out:
            info = value.struct_info
            assert isinstance(info, TensorStructInfo) and info.extents is not None
            dtype = "float32" if isinstance(layout, Winograd) else info.dtype
            made = TensorStructInfo(layout.shape(info.extents), dtype)
            kind = StringImm(json.dumps([type(layout).__name__, *vars(layout).values()]))
            call = call_pure_packed(ExternFunc(IN_LAYOUT), value, kind, sinfo_args=made)
            self.laid_out[key] = self.builder_.emit(call)
        return self.laid_out[key]

    def in_layouts(self, gvar: GlobalVar, accesses: _Accesses, plan: dict[Buffer, Layout]) -> GlobalVar:
        """The function over buffers in the layouts planned."""
        key = (gvar, frozenset(plan.items()))
        if key not in self.functions:
            func = relayout(
                accesses.func, {b: layout for b, layout in plan.items() if not isinstance(layout, Winograd)}
            )
            for buffer, layout in plan.items():
                if isinstance(layout, Winograd):
                    func = in_winograd_form(func, buffer, layout, self.info)
            self.functions[key] = self.builder_.add_func(func, gvar.name_hint)
        return self.functions[key]


def _size(buffer: Buffer) -> int | None:
    """The number of elements, if it is known."""
    extents = [as_int(extent) for extent in buffer.shape]
    return None if None in extents else math.prod(extent or 0 for extent in extents)


def _readers(function: Any) -> dict[GraphVar, list[tuple[Call, int]]]:
    """The calls of functions of loops in a function's body that read each variable, and as which argument."""
    found: dict[GraphVar, list[tuple[Call, int]]] = {}
    for block in function.body.blocks:
        for binding in block.bindings:
            call = binding.value if isinstance(binding, VarBinding) else None
            arguments = call.args[1] if isinstance(call, Call) and call.op is CALL_TIR else None
            if isinstance(call, Call) and isinstance(arguments, Tuple):
                for place, argument in enumerate(arguments.fields):
                    if isinstance(argument, GraphVar):
                        found.setdefault(argument, []).append((call, place))
    return found


IN_LAYOUT = "oneir.dlight.cpu.in_layout"
"""The function that lays out a weight when a program runs."""


@register_func(IN_LAYOUT)
def _in_layout(value: Tensor, layout: str) -> Tensor:
    name, axes, *rest = json.loads(layout)
    kind = {"Panels": Panels, "WordPanels": WordPanels, "Winograd": Winograd}[name]
    return kind(tuple(axes), *rest).in_memory(np.asarray(value))


def _inverse(axes: Axes) -> Axes:
    return tuple(int(i) for i in np.argsort(axes))


# -- what a function wants --


@dataclass
class _Step:
    """One block: where it stores, what it loads."""

    block: Block
    store: BufferStore
    loads: list[BufferLoad]

    def spatial(self) -> set[Var]:
        """The axes of its result."""
        return {iv.var for iv in self.block.iter_vars if iv.iter_type == IterVar.DataPar}

    def follows_dimensions(self) -> bool:
        """Whether each axis runs along one dimension of each buffer: reshaping does not."""
        spatial = self.spatial()
        for access in (self.store, *self.loads):
            used = [variables(index) & spatial for index in access.indices]
            if any(len(axes) > 1 for axes in used) or sum(map(len, used)) > len(set().union(*used)):
                return False
        return True


@dataclass
class _Accesses:
    """The blocks of a function and its parameters."""

    func: PrimFunc
    params: list[Buffer]
    steps: list[_Step]
    contractions: list[tuple[_Step, tuple[BufferLoad, BufferLoad]]]
    """The steps that are sums of products, with the loads of their operands."""

    @staticmethod
    def of(func: PrimFunc) -> _Accesses:
        """The accesses of a function."""
        finder = _Steps()
        finder(func.body)
        params = [func.buffer_map[p] for p in func.params if p in func.buffer_map]
        contractions = [(step, pair) for step in finder.found if (pair := operands(step.block)) is not None]
        return _Accesses(func, params, finder.found, contractions)

    def without_views(self) -> _Accesses:
        """The accesses once reshapes inside of the function are index arithmetic, where all blocks follow dimensions
        then: groups of channels, which a reshape splits from the others, are some of the channels.
        """
        if self.contractions or len(self.steps) < 2 or all(step.follows_dimensions() for step in self.steps):
            return self
        sch = plain_schedule(self.func)
        for leaf in leaves(sch) or ():
            consumers = [sch.get(consumer) for consumer in sch.get_consumers(leaf.handle)]
            if (len(consumers) == 1 and is_copy(consumers[0])) or (consumers and is_copy(leaf.block)):
                try:
                    sch.compute_inline(leaf.handle)
                except ScheduleError:
                    return self
        func = sch.mod["main"]
        inlined = _Accesses.of(simplify(func.replace(attrs=self.func.attrs), SimplifyConfig()))
        return inlined if all(step.follows_dimensions() for step in inlined.steps) else self

    def plan(
        self, given: Sequence[Axes | None], constant: Sequence[bool], inside: bool, info: CPUInfo
    ) -> dict[Buffer, Layout] | None:
        """The layouts of the buffers whose layout changes; None if there are none.

        `given` has the layouts of the arguments, `constant` says which arguments are constants, whose layout can be
        changed at no cost, and `inside` that the result may have another layout than declared.
        """
        if len(self.params) != len(given) + 1:
            return None
        layouts: dict[Buffer, Layout] = {}
        if self.contractions:
            packable = {self.params[i] for i, fixed in enumerate(constant) if fixed}
            for step, pair in self.contractions:
                wanted = _wanted(step, pair, packable, info)
                if wanted is None:
                    wanted = self.read_as_given(step, pair, given)
                if wanted is None:
                    return None
                layouts.update(wanted)
        for buffer, axes in zip(self.params, given, strict=False):
            if axes is not None:
                layouts.setdefault(buffer, Permuted(axes))
        if not inside:
            layouts.setdefault(self.params[-1], Permuted(tuple(range(self.params[-1].ndim))))
        if not layouts or all(_is_identity(layout) for layout in layouts.values()):
            return None
        self.propagate(layouts)
        return {buffer: layout for buffer, layout in layouts.items() if not _is_identity(layout)} or None

    def plan_of_result(self, axes: Axes | None) -> dict[Buffer, Layout] | None:
        """The layouts of buffers that change when the result lies in another order, and arguments as declared."""
        if axes is None or len(axes) != self.params[-1].ndim:
            return None
        layouts: dict[Buffer, Layout] = {b: Permuted(tuple(range(b.ndim))) for b in self.params[:-1]}
        layouts[self.params[-1]] = Permuted(axes)
        self.propagate(layouts)
        return {buffer: layout for buffer, layout in layouts.items() if not _is_identity(layout)} or None

    def transposes_matrix(self) -> bool:
        """Whether all that the function does is to transpose a matrix."""
        if len(self.steps) != 1 or len(self.params) != 2:
            return False
        store = self.steps[0].store
        value = store.value
        if not isinstance(value, BufferLoad) or len(store.indices) != 2 or len(value.indices) != 2:
            return False
        return all(isinstance(a, Var) and a is b for a, b in zip(store.indices, reversed(value.indices), strict=True))

    def read_as_given(
        self, step: _Step, pair: tuple[BufferLoad, BufferLoad], given: Sequence[Axes | None]
    ) -> dict[Buffer, Layout] | None:
        """The layouts with which a product reads a transposed matrix as it lies; else None.

        Products of few rows read it once, and in order, and long sums tile by tile. Others copy it into panels on the
        way, which takes no longer for columns than for rows.
        """
        store, (data, weight) = step.store, pair
        places = {buffer: i for i, buffer in enumerate(self.params[:-1])}
        layout = given[places[weight.buffer]] if weight.buffer in places else None
        if layout is None or not store.indices:
            return None
        plain = {a.buffer: Permuted(tuple(range(len(a.indices)))) for a in (store, data)}
        return {weight.buffer: Permuted(layout), **plain}

    def propagate(self, layouts: dict[Buffer, Layout]) -> None:
        """Adds the layouts of the buffers that are used together with those whose layout is known."""
        changed = True
        while changed:
            changed = False
            for step in self.steps:
                order = step_order(step, layouts) if step.follows_dimensions() else order_of_last(step, layouts)
                if order is None:
                    continue
                for access in (step.store, *step.loads):
                    if access.buffer not in layouts and access.indices:
                        layouts[access.buffer] = Permuted(_axes_for(access.indices, order, step.spatial()))
                        changed = True


def _is_identity(layout: Layout) -> bool:
    return isinstance(layout, Permuted) and list(layout.axes) == sorted(layout.axes)


class _Steps(Visitor):
    """Finds the blocks that store one element."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[_Step] = []

    def visit_Block(self, block: Block) -> None:
        if isinstance(block.body, BufferStore):
            self.found.append(_Step(block, block.body, loads(block.body.value)))
        self.generic_visit(block)


def step_order(step: _Step, layouts: dict[Buffer, Layout]) -> list[set[Var]] | None:
    """The axes of a block in the order in which they lie in memory, read off a buffer whose layout is known."""
    candidates: Iterable[Any] = (step.store, *sorted(step.loads, key=lambda load: -len(load.indices)))
    for access in candidates:
        layout = layouts.get(access.buffer)
        if isinstance(layout, Permuted) and access.indices:
            return [variables(access.indices[axis]) & step.spatial() for axis in layout.axes]
    return None


def order_of_last(step: _Step, layouts: dict[Buffer, Layout]) -> list[set[Var]] | None:
    """The axes of a block in order, but for the one along which a load with a known layout is contiguous, as that of
    channels in what takes images apart or puts them together; None where there is no such axis.
    """
    axes = [index for index in step.store.indices if isinstance(index, Var)]
    if len(axes) < len(step.store.indices):
        return None
    for load in step.loads:
        layout = layouts.get(load.buffer)
        if isinstance(layout, Permuted) and not _is_identity(layout):
            last = load.indices[layout.axes[-1]]
            channel = next((axis for axis in axes if _steps_along(last, axis)), None)
            if channel is not None and sum(channel in variables(index) for index in load.indices) == 1:
                return [*({axis} for axis in axes if axis is not channel), {channel}]
    return None


def _steps_along(index: PrimExpr, axis: Var) -> bool:
    """Whether an index is an axis, or something that does not depend on it and the axis."""
    while isinstance(index, Add):
        index = index.a if axis in variables(index.a) else index.b
    return index is axis


def _axes_for(indices: Sequence[PrimExpr], order: Sequence[set[Var]], spatial: set[Var]) -> Axes:
    """The order of the dimensions of an access that follows a given order of axes: dimensions indexed by none of them
    come first, those that are only summed over last.
    """
    place = {var: position for position, group in enumerate(order) for var in group}

    def key(axis: int) -> tuple[int, int]:
        used = variables(indices[axis])
        places = [place[var] for var in used if var in place]
        return (min(places) if places else len(order) if used - spatial else -1), axis

    return tuple(sorted(range(len(indices)), key=key))


def _wanted(
    step: _Step, pair: tuple[BufferLoad, BufferLoad], packable: set[Buffer], info: CPUInfo
) -> dict[Buffer, Layout] | None:
    """The layouts of operands and result that suit a contraction; None where no layout is better than the declared
    ones.
    """
    for data, weight in (pair, pair[::-1]):
        if weight.buffer in packable and data.buffer not in packable:
            return _wanted_by_channels(step, data, weight, info)
        if not packable.intersection((data.buffer, weight.buffer)):
            wanted = _wanted_by_images(step, data, weight)
            if wanted is not None:
                return wanted
    return None


_WORTH_MOVING = 16
"""Products for each element of the result, from which on a convolution gains more than moving its images costs."""


def _wanted_by_images(step: _Step, data: BufferLoad, weight: BufferLoad) -> dict[Buffer, Layout] | None:
    """Images with channels last, for convolutions whose weights may be others in each call and stay as they are: as
    in training. Measured, 14×14 images of 16 channels take 0.25 ms instead of 1.92.
    """
    store, spatial = step.store, step.spatial()
    axes = [i for i in store.indices if isinstance(i, Var)]
    channels = [v for v in axes if v in _used(weight)]
    summed = {index: i for i, index in enumerate(data.indices) if isinstance(index, Var) and index not in spatial}
    products = math.prod(as_int(extent_of(iv)) or 1 for iv in step.block.iter_vars if iv.var not in spatial)
    if (
        len(axes) < len(store.indices)
        or len(channels) != 1
        or channels[0] in _used(data)
        or channels[0] is axes[-1]
        or all(isinstance(i, Var) for i in data.indices)
        or not all(isinstance(i, Var) for i in weight.indices)
        or len(summed) != 1
        or products < _WORTH_MOVING
    ):
        return None
    ((_, depth),) = summed.items()
    return {
        store.buffer: Permuted(_last(len(axes), axes.index(channels[0]))),
        data.buffer: Permuted(_last(len(data.indices), depth)),
        weight.buffer: Permuted(tuple(range(len(weight.indices)))),
    }


def _wanted_by_channels(
    step: _Step, data: BufferLoad, weight: BufferLoad, info: CPUInfo
) -> dict[Buffer, Layout] | None:
    store, spatial = step.store, step.spatial()
    axes = [i for i in store.indices if isinstance(i, Var) and i in spatial]
    if len(axes) < len(store.indices):
        return None
    in_data, in_weight = _used(data), _used(weight)
    channels = [v for v in axes if v in in_weight and v not in in_data]
    shared = [v for v in axes if v in in_weight and v in in_data]
    dims = {var: i for i, index in enumerate(weight.indices) for var in variables(index)}
    if len(channels) == 1 and not shared and all(isinstance(i, Var) for i in weight.indices):
        # A matrix product or a convolution: the sum runs along the data's channels.
        return _dense(step, data, weight, channels[0], dims, info)
    if len(shared) == 1 and not channels and _is_plain(data, shared[0]):
        # Each channel by itself.
        place = next(i for i, index in enumerate(data.indices) if shared[0] in variables(index))
        return {
            store.buffer: Permuted(_last(len(axes), axes.index(shared[0]))),
            data.buffer: Permuted(_last(len(data.indices), place)),
            weight.buffer: Permuted(_last(len(weight.indices), dims[shared[0]])),
        }
    if len(shared) == 1 and not channels and all(isinstance(i, Var) for i in weight.indices):
        return _in_groups(step, data, weight, shared[0], dims, info)
    return None


def _in_groups(
    step: _Step, data: BufferLoad, weight: BufferLoad, channel: Any, dims: dict[Var, int], info: CPUInfo
) -> dict[Buffer, Layout] | None:
    store = step.store
    extents = {iv.var: as_int(extent_of(iv)) for iv in step.block.iter_vars}
    place = next(i for i, index in enumerate(data.indices) if channel in variables(index))
    group = group_of(data.indices[place], channel)
    depth = [var for var in variables(data.indices[place]) - step.spatial() if var in dims]
    # Vectors of two channels are slower than those along a row.
    if group is None or group % 4 or len(depth) != 1:
        return None
    lanes = max(1, info.vector_bytes // store.buffer.dtype.itemsize)
    others = [i for i, index in enumerate(weight.indices) if index is not channel and index is not depth[0]]
    width = panel_of_group(group, lanes)
    if has_masked_loads(info) and groups_in_vector(data.indices[place], channel, extents[channel], lanes):
        width = lanes
    return {
        store.buffer: Permuted(_last(len(store.indices), list(store.indices).index(channel))),
        data.buffer: Permuted(_last(len(data.indices), place)),
        weight.buffer: winograd_for(step.block, data, weight, depth[0], channel, info)
        or Panels((*others, dims[depth[0]], dims[channel]), width),
    }


def _dense(
    step: _Step, data: BufferLoad, weight: BufferLoad, channel: Any, dims: dict[Var, int], info: CPUInfo
) -> dict[Buffer, Layout] | None:
    store = step.store
    extents = {iv.var: as_int(extent_of(iv)) for iv in step.block.iter_vars}
    spatial = step.spatial()
    summed = {index: i for i, index in enumerate(data.indices) if isinstance(index, Var) and index not in spatial}
    if not summed or not all(isinstance(e, IntImm) for e in weight.buffer.shape):
        return None
    # Of the weights, the sum over channels runs innermost.
    depth = max(summed, key=lambda axis: extents[axis] or 0)
    others = [i for i, index in enumerate(weight.indices) if index is not channel and index is not depth]
    length = length_of_dots(store, data, weight, depth, extents[depth], info)
    # A matrix product: rows and columns lie as declared.
    is_matrix = store.indices[-1] is channel
    place = len(data.indices) - 1 if is_matrix else summed[depth]
    width = panel_for(step.block, channel, _last(len(data.indices), place), info, length)
    if width is None:
        return None
    axes = (*others, dims[depth], dims[channel])
    panels = Panels(axes, width) if length == 1 else WordPanels(axes, width, length)
    if is_matrix:
        return {weight.buffer: panels, **{a.buffer: Permuted(tuple(range(len(a.indices)))) for a in (store, data)}}
    return {
        store.buffer: Permuted(_last(len(store.indices), list(store.indices).index(channel))),
        data.buffer: Permuted(_last(len(data.indices), summed[depth])),
        # A dot product of halves computes as much as Winograd's form saves.
        weight.buffer: (length == 1 and winograd_for(step.block, data, weight, depth, channel, info)) or panels,
    }


def length_of_dots(
    store: BufferStore, data: BufferLoad, weight: BufferLoad, depth: Var, extent: int | None, info: CPUInfo
) -> int:
    """How many products of a contraction along `depth` an instruction of the processor adds up: of unsigned by signed
    bytes, or of bfloat16, whose sums are float32. 1 where it has none, and where the sum is no multiple.
    """
    dtypes = (data.buffer.dtype, weight.buffer.dtype)
    of_bytes = dtypes == ("uint8", "int8") and store.buffer.dtype == "int32" and info.byte_dots is not None
    # Channels become the last dimension of images; rows of matrices stay as they are.
    along = store.indices[-1] not in _used(weight) or data.indices[-1] is depth
    of_pairs = dtypes == ("bfloat16", "bfloat16") and info.has_bfloat16_dots and along
    length = dot_length(weight.buffer.dtype) or 1
    return length if (of_bytes or of_pairs) and extent is not None and extent % length == 0 else 1


def _used(load: BufferLoad) -> set[Var]:
    return {var for index in load.indices for var in variables(index)}


def _is_plain(load: BufferLoad, var: Var) -> bool:
    """Whether steps of a variable are steps along one dimension of a load."""
    finder = _Divisions()
    for index in load.indices:
        finder(index)
    return not finder.found and sum(var in variables(index) for index in load.indices) == 1


class _Divisions(Visitor):
    found = False

    def visit_FloorDiv(self, node: FloorDiv) -> None:
        self.found = True

    def visit_FloorMod(self, node: FloorMod) -> None:
        self.found = True


def _last(ndim: int, axis: int) -> Axes:
    """All dimensions in order, except for one, which is moved to the end."""
    return (*(i for i in range(ndim) if i != axis), axis)
