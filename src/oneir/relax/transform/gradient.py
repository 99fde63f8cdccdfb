"""Gradient: beside a function, one that also gives the gradients of its result, by reverse-mode differentiation.

    def main(x):                               def main_adjoint(x):
        with R.dataflow():                         with R.dataflow():
            y = R.exp(x)              ->               y = R.exp(x)
            z = R.sum(y)                               z = R.sum(y)
            R.output(z)                                z_adjoint = R.ones((), "float32")
        return z                                       y_adjoint = R.broadcast_to(z_adjoint, (3, 3))
                                                       x_adjoint = R.multiply(y_adjoint, y)
                                                       R.output(z, x_adjoint)
                                                   return z, (x_adjoint,)

Bindings are gone through from the last to the first; each adds to the gradients with respect to what it uses, by the
operators' FGradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import ModulePass, PassContext
from ...ir.visitor import deep_recursion
from ...runtime.error import InvalidValue, NotRegistered, TypeMismatch, UnsupportedError
from ...runtime.registry import get_global_func
from ..analysis import free_vars, remove_all_unused
from ..block_builder import BlockBuilder
from ..copy_function import copy_and_variables
from ..expr import (
    Binding,
    Call,
    Constant,
    DataflowBlock,
    Expr,
    Function,
    If,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from ..expr_functor import PyExprMutator
from ..op.base import call_tir, call_tir_with_grad
from ..op.binary import add
from ..op.create import ones, zeros
from ..op.grad import no_grad
from ..operator_facts import FGradient
from ..struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from .gradient_checkpoints import Recomputation, take_checkpoints
from .gradient_transposes import simplify_transposed_products

TE_GRADIENT = "relax.te_gradient."
"""What begins the name of a registered function that emits a gradient of tensor expressions."""


class Gradient(ModulePass, opt_level=0):
    """Adds the function `<func_name>_adjoint`, which gives `(what the function gives, (gradient, ...))`.

    `require_grads`, a variable or several of the function, are what the gradients are taken with respect to; by
    default its parameters. What is differentiated is the function's result, a scalar of a float dtype; of several
    results, that at `target_index`. The function has one dataflow block. Between `grad.start_checkpoint` and
    `grad.end_checkpoint` values are computed again for the gradients, not kept.

    Raises `NotRegistered` for an unknown function, `TypeMismatch` for one that has no such result, `InvalidValue` for
    variables that are not the function's, `UnsupportedError` for operators without a gradient.
    """

    func_name: str
    require_grads: Var | Sequence[Var] | None = None
    target_index: int = 0

    def __post_init__(self) -> None:
        wanted = self.require_grads
        if wanted is not None:
            object.__setattr__(self, "require_grads", (wanted,) if isinstance(wanted, Var) else tuple(wanted))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        func = mod[self.func_name]
        if not isinstance(func, Function):
            raise TypeMismatch(f"Gradient: `{self.func_name}` is no graph function, found a {type(func).__name__}")
        copy, copies = copy_and_variables(func)
        copy, checkpoints = take_checkpoints(copy)
        wanted = copy.params if self.require_grads is None else self._wanted(copies)
        # A variable that marks a checkpoint is the one that it marks.
        wanted = [checkpoints.marked.get(var, var) for var in wanted]
        for var in wanted:
            self._check_floats(var)
        block, target = self._target(copy)
        builder = BlockBuilder(mod)
        with deep_recursion:
            builder.begin_scope(copy.params)
            builder.begin_dataflow_block()
            for binding in block.bindings:
                builder.emit_normalized(binding)
            backward = _Backward(builder, block.bindings, wanted, Recomputation(builder, block.bindings, checkpoints))
            grads = backward.gradients(target)
            body = SeqExpr([builder.end_block()], builder.normalize(Tuple([copy.body.body, Tuple(grads)])))
            builder.end_scope()
        name = f"{self.func_name}_adjoint"
        adjoint = Function(copy.params, body, None, copy.is_pure, copy.attrs)
        adjoint = _WithoutGradientNames().visit_expr(adjoint)
        adjoint = simplify_transposed_products(remove_all_unused(adjoint)).with_attr("global_symbol", name)
        result = builder.get()
        return result.replace(functions={**result.functions, GlobalVar(name): adjoint})

    def _wanted(self, copies: Mapping[Var, Var]) -> list[Var]:
        assert isinstance(self.require_grads, tuple)
        for var in self.require_grads:
            if var not in copies:
                raise InvalidValue(
                    f"Gradient: `{var}` in require_grads is no variable of the function `{self.func_name}`"
                )
        return [copies[var] for var in self.require_grads]

    def _check_floats(self, var: Var) -> None:
        for info in _tensors(var.struct_info):
            if not (isinstance(info, TensorStructInfo) and info.dtype.is_float):
                raise TypeMismatch(
                    f"Gradient: gradients are taken with respect to tensors of floats, `{var}` has {var.struct_info}; "
                    "name the others in require_grads"
                )

    def _target(self, func: Function) -> tuple[DataflowBlock, Var]:
        """The block of a function, and the variable that is differentiated."""
        body = func.body
        assert isinstance(body, SeqExpr)
        block = body.blocks[0] if len(body.blocks) == 1 else None
        if not isinstance(block, DataflowBlock):
            raise TypeMismatch(
                f"Gradient: `{self.func_name}` must have one dataflow block and nothing else, found {len(body.blocks)} "
                "blocks; ConvertToDataflow makes dataflow blocks"
            )
        results = list(body.body.fields) if isinstance(body.body, Tuple) else [body.body]
        if not 0 <= self.target_index < len(results):
            raise InvalidValue(
                f"Gradient: target_index is {self.target_index}, but `{self.func_name}` has {len(results)} results"
            )
        target = results[self.target_index]
        info = target.struct_info
        scalar = isinstance(info, TensorStructInfo) and info.ndim == 0 and info.dtype.is_float
        if not isinstance(target, Var) or not scalar:
            raise TypeMismatch(
                f"Gradient: what is differentiated is a variable that holds one float, found `{target}`: {info}"
            )
        return block, target


def _tensors(info: StructInfo) -> Iterable[StructInfo]:
    """What is in (nested) tuples."""
    if isinstance(info, TupleStructInfo):
        for field in info.fields:
            yield from _tensors(field)
    else:
        yield info


def _zeros(info: StructInfo) -> Expr:
    """A tensor of zeros, or a tuple of such."""
    if isinstance(info, TupleStructInfo):
        return Tuple([_zeros(field) for field in info.fields])
    if not isinstance(info, TensorStructInfo) or not isinstance(info.shape, ShapeExpr):
        raise TypeMismatch(f"Gradient: expected a tensor of known shape, found {info}: add a match_cast before")
    return zeros(info.shape, info.dtype)


def _fields(value: Expr) -> list[Expr]:
    """The fields of a tuple."""
    if isinstance(value, Tuple):
        return list(value.fields)
    info = value.struct_info
    assert isinstance(info, TupleStructInfo)
    return [TupleGetItem(value, i) for i in range(len(info.fields))]


def _sum(a: Expr, b: Expr, info: StructInfo) -> Expr:
    """The sum of two tensors, or of the tensors in two tuples, that are `info`."""
    if not isinstance(info, TupleStructInfo):
        return add(a, b)
    parts = zip(_fields_of(a, info), _fields_of(b, info), info.fields, strict=True)
    return Tuple([_sum(x, y, field) for x, y, field in parts])


def _fields_of(value: Expr, info: TupleStructInfo) -> list[Expr]:
    return list(value.fields) if isinstance(value, Tuple) else [TupleGetItem(value, i) for i in range(len(info.fields))]


def _depending(bindings: Sequence[Binding], wanted: Iterable[Var]) -> set[Var]:
    """The variables that depend on those wanted, and these."""
    found = set(wanted)
    for binding in bindings:
        value = binding.value
        assert isinstance(value, Expr)
        if any(var in found for var in free_vars(value)):
            found.add(binding.var)
    return found


class _Backward:
    """Emits the gradients of a block's bindings. `adjoints` has those that are known, by variable."""

    def __init__(
        self, builder: BlockBuilder, bindings: Sequence[Binding], wanted: Sequence[Var], recomputation: Recomputation
    ):
        self.builder, self.bindings, self.wanted, self.recomputation = builder, bindings, wanted, recomputation
        self.depending = _depending(bindings, wanted)
        self.adjoints: dict[Var, Var] = {}

    def gradients(self, target: Var) -> list[Expr]:
        """The gradients of `target` with respect to what is wanted: output variables of the block."""
        info = target.struct_info
        assert isinstance(info, TensorStructInfo)
        self._set(target, ones(info.shape, info.dtype))
        for binding in reversed(self.bindings):
            if binding.var in self.adjoints and binding.var in self.depending:
                self._binding(binding, self.adjoints[binding.var])
        outputs: list[Expr] = []
        for var in self.wanted:
            if var not in self.adjoints:
                self._set(var, _zeros(var.struct_info))
            outputs.append(self.builder.emit_output(self.adjoints[var], f"{var.name}_adjoint_out"))
        return outputs

    def _set(self, var: Var, value: Expr) -> None:
        self.adjoints[var] = self.builder.emit(value, f"{var.name}_adjoint")

    def _binding(self, binding: Binding, adjoint: Var) -> None:
        value = binding.value
        if isinstance(value, Call):
            self._call(binding.var, value, adjoint)
        elif isinstance(value, (Var, Tuple)):
            self._add(value, adjoint)
        elif isinstance(value, TupleGetItem):
            self._add_to_field(value, adjoint)
        elif isinstance(value, (If, SeqExpr, Function)):
            raise UnsupportedError(f"Gradient: expected calls and tuples, `{binding.var}` is a {type(value).__name__}")

    def _call(self, var: Var, call: Call, adjoint: Var) -> None:
        kept, recomputed = self.recomputation.of(var, call)
        if call.op is call_tir_with_grad.op:
            emit = get_global_func(TE_GRADIENT + recomputed.attrs["te_grad_name"], allow_missing=True)
            if emit is None:
                raise NotRegistered(
                    f"Gradient: no gradient is registered as {recomputed.attrs['te_grad_name']!r}; "
                    "relax.training.register_te_gradient registers one"
                )
            partial: Var = emit(kept, recomputed, adjoint, self.builder)
            arguments = call.args[1]
            assert isinstance(arguments, Tuple)
            whole = isinstance(partial.struct_info, TupleStructInfo)
            partials = _fields(partial) if whole else [partial]
            if len(partials) != len(arguments.fields):
                raise InvalidValue(
                    f"Gradient: `{call}` has {len(arguments.fields)} arguments, but its gradient gives {len(partials)}"
                )
            for argument, value in zip(arguments.fields, partials, strict=True):
                self._add(argument, value)
            return
        rule = FGradient.of(call.op) if isinstance(call.op, Op) else None
        if rule is None:
            raise UnsupportedError(
                f"Gradient: no gradient is known of `{call}`; relax.op.register_gradient registers one of an operator, "
                "call_tir_with_grad calls a kernel that has one"
            )
        partials = rule(kept, recomputed, adjoint, self.builder)
        if len(partials) != len(call.args):
            raise InvalidValue(
                f"Gradient: `{call}` has {len(call.args)} arguments, but its gradient gives {len(partials)}"
            )
        for argument, value in zip(call.args, partials, strict=True):
            if not (isinstance(value, Call) and value.op is no_grad.op):
                self._add(argument, value)

    def _add(self, target: Expr, partial: Expr) -> None:
        """Adds a gradient with respect to a variable, or to variables in (nested) tuples; constants have none."""
        self._add_normal(target, self.builder.normalize(partial))

    def _add_normal(self, target: Expr, partial: Expr) -> None:
        if isinstance(target, Tuple):
            for field, part in zip(target.fields, _fields(partial), strict=True):
                self._add_normal(field, part)
        elif isinstance(target, Var):
            value = self.builder.normalize(partial)
            known = self.adjoints.get(target)
            self._set(target, value if known is None else _sum(known, value, target.struct_info))
        elif not isinstance(target, Constant):
            raise UnsupportedError(f"Gradient: expected a gradient with respect to tensors, found `{target}`")

    def _add_to_field(self, item: TupleGetItem, adjoint: Var) -> None:
        """Adds a gradient with respect to one field of a tuple."""
        var = item.tuple_value
        info = var.struct_info
        if not isinstance(var, Var) or not isinstance(info, TupleStructInfo):
            raise TypeMismatch(f"Gradient: expected a field of a variable that is a tuple, found `{item}`")
        known = self.adjoints.get(var)
        if known is None:
            fields = [adjoint if i == item.index else _zeros(field) for i, field in enumerate(info.fields)]
        else:
            fields = list(_fields_of(known, info))
            fields[item.index] = _sum(fields[item.index], adjoint, info.fields[item.index])
        self._set(var, Tuple(fields))


class _WithoutGradientNames(PyExprMutator):
    """Makes plain calls of those that name a gradient."""

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or call.op is not call_tir_with_grad.op:
            return call
        return Call(call_tir.op, call.args, {}, call.sinfo_args, call.span)
