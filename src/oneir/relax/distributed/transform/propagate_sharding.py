"""PropagateSharding: every tensor of a function is placed, as the tensors that annotations place ask for.

    w = R.dist.annotate_sharding(w0, "mesh[0]", "S[1]")
    y = R.matmul(x, w)
->
    # w0 is R.DTensor(..., "mesh[0]", "S[1]"), x is "R"
    y: R.DTensor(..., "mesh[0]", "S[1]") = R.matmul(x, w0)

Axes that kernels tie together (`tir/division.py`) are divided together, forward and backward, for each dimension of the
mesh. Placements do not spread through `redistribute`, nor through an annotation "R". Where a call needs an argument
placed differently from how the argument is, or gives a result that is, a `redistribute` is put there.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....ir.global_info import DeviceMesh
from ....ir.module import IRModule
from ....ir.op import Op
from ....ir.structural import structural_equal
from ....ir.transform import ModulePass, PassContext
from ....runtime.error import InvalidValue
from ....tir.division import Division
from ...analysis.struct_info import callee_name
from ...expr import (
    Binding,
    Call,
    Constant,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ...expr_functor import PyExprMutator
from ...op.distributed import annotate_sharding, redistribute
from ...op.inference import fail
from ...placement import Placement
from ...struct_info import DTensorStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ..kernel import Kernel, Kernels, Path, divided_params, leaves, outputs_of, with_leaves

Tensor = tuple[Var, int]
"""A tensor that a variable stands for, or the field of that number of its tuple."""
Axis = tuple[Tensor, int]


class PropagateSharding(ModulePass):
    """Places all tensors of the functions that annotate some.

    Raises `InvalidValue` for annotations of two meshes, for a tensor of which two axes would be divided by one
    dimension of the mesh, and for what a function may not hold: conditions, local functions, calls of other functions.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        functions = {var: _placed(func, mod) for var, func in mod.functions.items() if isinstance(func, Function)}
        changed = {var: func for var, func in functions.items() if func is not mod.functions[var]}
        return mod.replace(functions={**mod.functions, **changed}) if changed else mod


def _placed(func: Function, mod: IRModule) -> Function:
    body = func.body
    assert isinstance(body, SeqExpr)
    bindings = [b for block in body.blocks for b in block.bindings]
    calls = [b.value for b in bindings if isinstance(b, VarBinding) and isinstance(b.value, Call)]
    placing = [call for call in calls if call.op is annotate_sharding.op or call.op is redistribute.op]
    mesh = next((call.attrs["device_mesh"] for call in placing if call.op is annotate_sharding.op), None)
    if mesh is None:
        return func
    for call in placing:
        if not structural_equal(call.attrs["device_mesh"], mesh):
            raise fail(call, f"all tensors of a function lie on one mesh, and another annotation says {mesh}")
    plan = _Plan(mesh, mod)
    for binding in bindings:
        plan.binding(binding)
    new = _Rewriter(mod, plan).visit_expr(func)
    assert isinstance(new, Function)
    return new


class _Plan:
    """Which axes are divided together, and which of them are."""

    def __init__(self, mesh: DeviceMesh, mod: IRModule):
        self.mesh, self.all_kernels = mesh, Kernels(mod)
        dims = range(len(mesh.shape))
        self.parent: list[dict[Axis, Axis]] = [{} for _ in dims]
        self.sources: list[list[Axis]] = [[] for _ in dims]
        self.whole: list[set[Var]] = [set() for _ in dims]
        """The variables that are said not to be divided by a dimension."""
        self.kernels: dict[Var, Kernel | None] = {}
        self.ways: dict[Var, list[list[tuple[Division, list[Axis]]]]] = {}

    # -- what is divided together --

    def find(self, dim: int, axis: Axis) -> Axis:
        """What stands for all axes that are divided together with one."""
        parent = self.parent[dim]
        while (above := parent.get(axis, axis)) != axis:
            axis = above
        return axis

    def tie(self, dim: int, axes: Iterable[Axis]) -> None:
        """Some axes are divided together, but for those of tensors that are said not to be."""
        roots = [self.find(dim, axis) for axis in axes if axis[0][0] not in self.whole[dim]]
        for root in roots[1:]:
            if root != roots[0]:
                self.parent[dim][root] = roots[0]

    def same(self, a: Tensor, b: Tensor, info: StructInfo) -> None:
        """Two tensors are one."""
        if isinstance(info, TensorStructInfo):
            for dim in range(len(self.mesh.shape)):
                for axis in range(info.ndim):
                    self.tie(dim, [(a, axis), (b, axis)])

    def binding(self, binding: Binding) -> None:
        """Takes in what a binding ties together."""
        if not isinstance(binding, VarBinding) or isinstance(binding.value, (If, Function)):
            kind = "a match_cast" if isinstance(binding, MatchCast) else "a condition or a local function"
            raise InvalidValue(f"PropagateSharding: {kind} cannot be divided among workers, found `{binding}`")
        var, value = binding.var, binding.value
        infos = outputs_of(var.struct_info)
        if isinstance(value, Call):
            self.call(var, value)
        elif isinstance(value, Tuple):
            for index, field in enumerate(value.fields):
                self.alias((var, index), field, infos[index])
        elif isinstance(value, Var):
            for index, info in enumerate(infos):
                self.same((var, index), (value, index), info)
        else:
            self.alias((var, 0), value, infos[0])

    def alias(self, tensor: Tensor, value: Expr, info: StructInfo) -> None:
        """A tensor is what an expression stands for."""
        other = tensor_of(value)
        if other is not None:
            self.same(tensor, other, info)

    def call(self, var: Var, call: Call) -> None:
        """Takes in what a call ties together."""
        if call.op is annotate_sharding.op or call.op is redistribute.op:
            place: Placement = call.attrs["placement"]
            DTensorStructInfo(_tensor_info(call, var), self.mesh, place)
            for dim in range(len(self.mesh.shape)):
                if dim in place.axes:
                    self.sources[dim].append(((var, 0), place.axes[dim]))
                else:
                    self.whole[dim].add(var)
            if call.op is annotate_sharding.op:
                self.alias((var, 0), call.args[0], var.struct_info)
            return
        if not isinstance(call.op, Op):
            name = callee_name(call.op)
            raise InvalidValue(
                f"PropagateSharding: only operators and kernels are divided among workers; inline the function `{name}`"
            )
        kernel = self.kernels[var] = self.all_kernels.of(call)
        tensors = {path: tensor_of(leaf) for path, leaf in leaves(call).items()}
        self.ways[var] = []
        for dim, parts in enumerate(self.mesh.shape if kernel is not None else ()):
            assert kernel is not None
            found: list[tuple[Division, list[Axis]]] = []
            inputs = {param: tensors[path] for param, path in kernel.inputs().items()}
            for way in self.all_kernels.divisions(kernel.func, parts):
                axes: list[Axis] = []
                for param, axis in divided_params(kernel.func, way).items():
                    if param in kernel.outputs:
                        axes.append(((var, kernel.outputs.index(param)), axis))
                    elif (tensor := inputs.get(param)) is not None:
                        axes.append((tensor, axis))
                self.tie(dim, axes)
                found.append((way, axes))
            self.ways[var].append(found)

    # -- what is divided --

    def is_divided(self, dim: int, axis: Axis) -> bool:
        """Whether a dimension of the mesh divides an axis."""
        if axis[0][0] in self.whole[dim]:
            return False
        root = self.find(dim, axis)
        return any(self.find(dim, source) == root for source in self.sources[dim])

    def placement(self, tensor: Tensor, ndim: int) -> Placement:
        """Where a tensor is."""
        axes: dict[int, int] = {}
        for dim in range(len(self.mesh.shape)):
            divided = [axis for axis in range(ndim) if self.is_divided(dim, (tensor, axis))]
            if len(divided) > 1:
                raise InvalidValue(
                    f"PropagateSharding: conflicting annotations: dimension {dim} of the mesh would divide the axes "
                    f"{divided[0]} and {divided[1]} of `{tensor[0].name}`; say where a tensor changes its place with "
                    "R.dist.redistribute"
                )
            axes.update((dim, axis) for axis in divided)
        return Placement.of_axes(axes, self.mesh)

    def info(self, var: Var) -> StructInfo | None:
        """What is known of a variable, its tensors placed."""
        info = var.struct_info_
        if isinstance(info, TupleStructInfo):
            return TupleStructInfo([self.distributed((var, i), field) for i, field in enumerate(info.fields)])
        return None if info is None else self.distributed((var, 0), info)

    def distributed(self, tensor: Tensor, info: StructInfo) -> StructInfo:
        """What is known of a tensor with its place; anything else unchanged."""
        if not isinstance(info, TensorStructInfo):
            return info
        if info.ndim < 0:
            raise InvalidValue(
                f"PropagateSharding: the number of dimensions of `{tensor[0].name}` must be known: {info}"
            )
        return DTensorStructInfo(info, self.mesh, self.placement(tensor, info.ndim))

    def needed(self, var: Var, call: Call) -> tuple[dict[Path, Placement], list[Placement]]:
        """Where a call must have its tensors, and where it gives its results."""
        kernel = self.kernels[var]
        inputs: dict[Path, dict[int, int]] = {path: {} for path in leaves(call)}
        outputs: list[dict[int, int]] = [{} for _ in outputs_of(var.struct_info)]
        for dim, ways in enumerate(self.ways[var]):
            assert kernel is not None
            chosen = [way for way, axes in ways if any(self.is_divided(dim, axis) for axis in axes)]
            if len(chosen) > 1:
                raise fail(
                    call,
                    f"conflicting annotations: dimension {dim} of the mesh would divide the call in two ways; "
                    "say where a tensor changes its place with R.dist.redistribute",
                )
            for way in chosen:
                axes = divided_params(kernel.func, way)
                for param, path in kernel.inputs().items():
                    if param in axes:
                        inputs[path][dim] = axes[param]
                for index, param in enumerate(kernel.outputs):
                    if param in axes:
                        outputs[index][dim] = axes[param]
        places = {path: Placement.of_axes(axes, self.mesh) for path, axes in inputs.items()}
        return places, [Placement.of_axes(axes, self.mesh) for axes in outputs]


def tensor_of(expr: Expr) -> Tensor | None:
    """The tensor of a variable that an expression stands for."""
    if isinstance(expr, TupleGetItem) and isinstance(expr.tuple_value, Var):
        return expr.tuple_value, expr.index
    return (expr, 0) if isinstance(expr, Var) else None


def _tensor_info(call: Call, var: Var) -> TensorStructInfo:
    info = var.struct_info
    if not isinstance(info, TensorStructInfo):
        raise fail(call, f"expected a tensor that has no place yet, found {info}")
    return info


class _Rewriter(PyExprMutator):
    def __init__(self, mod: IRModule, plan: _Plan):
        super().__init__(mod)
        self.plan = plan

    def visit_var_def_(self, var: Var) -> Var:
        info = self.plan.info(var)
        return var if info is None else self.with_struct_info(var, info)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        call, var = binding.value, binding.var
        if not isinstance(call, Call):
            value = self.visit_expr(call)
        elif call.op is annotate_sharding.op:
            info = self.plan.info(var)
            assert isinstance(info, DTensorStructInfo)
            value = self.moved(self.visit_expr(call.args[0]), info.placement)
            if isinstance(var, DataflowVar) and isinstance(value, Var):
                self.set_var_remap(var, value)
                return
        elif call.op is redistribute.op:
            value = self.moved(self.visit_expr(call.args[0]), call.attrs["placement"])
        else:
            value = self.called(var, call)
        new = self.visit_var_def(var)
        if new is not var:
            self.set_var_remap(var, new)
        self.builder_.emit_normalized(VarBinding(new, self.builder_.normalize(value), span=binding.span))

    def moved(self, value: Expr, place: Placement) -> Expr:
        """A tensor where it is wanted."""
        info = value.struct_info
        if isinstance(info, TensorStructInfo):  # a constant, which all have
            info = DTensorStructInfo(info, self.plan.mesh, Placement.of_axes({}, self.plan.mesh))
            assert isinstance(value, Constant)
            value = Constant(value.data, info, value.span, name=value.name)
        if not isinstance(info, DTensorStructInfo) or info.placement == place:
            return value
        return redistribute(value, self.plan.mesh, place)

    def called(self, var: Var, call: Call) -> Expr:
        """A call with its tensors where it must have them, and its results where they are wanted."""
        places, given = self.plan.needed(var, call)
        values: dict[Path, Expr] = {}
        for path, leaf in leaves(call).items():
            new = self.visit_expr(leaf)
            values[path] = self.builder_.normalize_argument(self.moved(new, places[path]))
        infos = [
            DTensorStructInfo(info, self.plan.mesh, place) if isinstance(info, TensorStructInfo) else info
            for info, place in zip(outputs_of(var.struct_info), given, strict=True)
        ]
        info = TupleStructInfo(infos) if isinstance(var.struct_info, TupleStructInfo) else infos[0]
        new = with_leaves(call, values)
        new = Call(new.op, new.args, new.attrs, [info] if call.sinfo_args else (), call.span)
        new.set_struct_info(info)
        wanted = outputs_of(self.plan.info(var) or info)
        if all(a == b for a, b in zip(infos, wanted, strict=True)):
            return new
        made = self.builder_.emit(new)
        fields = [made] if len(infos) == 1 and info is infos[0] else [TupleGetItem(made, i) for i in range(len(infos))]
        moved = [
            self.moved(field, want.placement) if isinstance(want, DTensorStructInfo) else field
            for field, want in zip(fields, wanted, strict=True)
        ]
        return moved[0] if info is infos[0] else Tuple([self.builder_.normalize_argument(value) for value in moved])
