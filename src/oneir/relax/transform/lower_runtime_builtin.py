"""LowerRuntimeBuiltin: operators on storages, shapes and closures become calls of the runtime's functions.

    R.memory.alloc_storage(...)  ->  R.vm.alloc_storage(...)
    R.shape_of(x)                ->  R.call_packed("vm.builtin.shape_of", x, sinfo_args=...)

How an operator is lowered is its fact `FLowerBuiltin`.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...runtime.device import device as device_of
from ..block_builder import BlockBuilder
from ..expr import Call, DataTypeImm, Expr, ExternFunc, Function, PrimValue, ShapeExpr, StringImm, Tuple
from ..expr_functor import PyExprMutator
from ..op import call_builtin_with_ctx, inspect, vm
from ..operator_facts import CallRewrite, FLowerBuiltin
from ..struct_info import ObjectStructInfo
from .lower_alloc_tensor import bytes_of
from .pass_base import FunctionPass


class LowerRuntimeBuiltin(FunctionPass):
    """Lowers what the runtime does to calls of its functions."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return _Lower(mod).visit_expr(func)


VMBuiltinLower = LowerRuntimeBuiltin
"""The earlier name of `LowerRuntimeBuiltin`."""


class _Lower(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return call
        rule = FLowerBuiltin.of(call.op)
        return call if rule is None else rule(self.builder_, call)


def _lowers(*operators: str) -> Callable[[CallRewrite], CallRewrite]:
    """A decorator: the rule that lowers calls of these operators."""

    def register(rule: CallRewrite) -> CallRewrite:
        for name in operators:
            FLowerBuiltin.set(Op.get(name), rule)
        return rule

    return register


def _packed(name: str, *args: Expr, like: Call) -> Call:
    return Call(ExternFunc(name), args, sinfo_args=[like.struct_info], span=like.span)


def _fields(expr: Expr) -> list[Expr]:
    assert isinstance(expr, Tuple)
    return list(expr.fields)


@_lowers("relax.memory.alloc_storage")
def _alloc_storage(builder: BlockBuilder, call: Call) -> Expr:
    size, device, scope, dtype = call.args
    return vm.alloc_storage(size, device, dtype, scope)


@_lowers("relax.memory.alloc_tensor")
def _alloc_tensor(builder: BlockBuilder, call: Call) -> Expr:
    return vm.alloc_tensor(*call.args)


@_lowers("relax.builtin.alloc_tensor")
def _alloc_tensor_at_once(builder: BlockBuilder, call: Call) -> Expr:
    shape, dtype, device, scope = call.args
    assert isinstance(shape, ShapeExpr) and isinstance(dtype, DataTypeImm)
    size = bytes_of(shape, dtype.value)
    storage = builder.emit(vm.alloc_storage([size], device, "uint8", scope), "storage")
    return vm.alloc_tensor(storage, 0, shape, dtype, device)


@_lowers("relax.memory.kill_storage", "relax.memory.kill_tensor")
def _kill(builder: BlockBuilder, call: Call) -> Expr:
    return vm.kill_object(call.args[0])


def _by_name(name: str) -> CallRewrite:
    """The rule of an operator that is one function of the runtime, with the same arguments."""
    return lambda builder, call: _packed(name, *call.args, like=call)


for _operator, _function in {
    "relax.reshape": "vm.builtin.reshape",
    "relax.shape_of": "vm.builtin.shape_of",
    "relax.tensor_to_shape": "vm.builtin.tensor_to_shape",
    "relax.shape_to_tensor": "relax.run.shape_to_tensor",
    "relax.null_value": "vm.builtin.null_value",
    "relax.memory.ensure_zero_offset": "vm.builtin.ensure_zero_offset",
    "relax.print": "relax.run.print",
}.items():
    _lowers(_operator)(_by_name(_function))


@_lowers(*(f"relax.inspect.tensor_{name}" for name in inspect.NAMES))
def _inspect(builder: BlockBuilder, call: Call) -> Expr:
    assert isinstance(call.op, Op)
    function = call.op.name.replace("relax.inspect.", "vm.builtin.")
    return inspect.known_number(call) or _packed(function, *call.args, like=call)


@_lowers("relax.assert_op")
def _assert(builder: BlockBuilder, call: Call) -> Expr:
    return _packed("relax.run.assert_op", *call.args, like=call)


@_lowers("relax.make_closure")
def _make_closure(builder: BlockBuilder, call: Call) -> Expr:
    func, captured = call.args
    return Call(ExternFunc("vm.builtin.make_closure"), [func, *_fields(captured)], sinfo_args=[ObjectStructInfo()])


@_lowers("relax.invoke_closure", "relax.invoke_pure_closure")
def _invoke_closure(builder: BlockBuilder, call: Call) -> Expr:
    closure, args = call.args
    return call_builtin_with_ctx("vm.builtin.invoke_closure", [closure, *_fields(args)], sinfo_args=call.sinfo_args)


@_lowers("relax.call_py_func")
def _call_py_func(builder: BlockBuilder, call: Call) -> Expr:
    return _packed("vm.builtin.call_py_func", Tuple(call.args), like=call)


@_lowers("relax.call_pure_packed", "relax.call_inplace_packed")
def _call_function(builder: BlockBuilder, call: Call) -> Expr:
    return Call(call.args[0], call.args[1:], sinfo_args=call.sinfo_args, span=call.span)


@_lowers("relax.to_vdevice")
def _to_vdevice(builder: BlockBuilder, call: Call) -> Expr:
    device = call.attrs["dst_vdevice"]
    kind = device_of(device.target.kind.name, device.vdevice_id)
    where = [PrimValue(kind.device_type), PrimValue(kind.device_id), StringImm(device.memory_scope)]
    return _packed("vm.builtin.to_device", call.args[0], *where, like=call)
