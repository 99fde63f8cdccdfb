"""AppendLoss, which puts a loss behind a model, and the registry of gradients of tensor expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...ir.visitor import deep_recursion
from ...runtime.error import InvalidValue, TypeMismatch
from ...runtime.registry import register_func
from ..analysis import free_vars
from ..block_builder import BlockBuilder
from ..copy_function import copy_with_new_vars
from ..expr import Binding, Call, DataflowBlock, DataflowVar, Expr, Function, SeqExpr, Tuple, Var
from ..expr_functor import PyExprMutator
from ..struct_info import is_base_of
from ..substitute import SymbolicMutator, bind, infer_symbolic_values
from ..transform.gradient import TE_GRADIENT


class AppendLoss(ModulePass, opt_level=0):
    """Adds the function `new_func_name`, by default `<func_name>_loss`: a model and behind it a loss.

        def model(x, w):         def loss(predictions, targets):         def model_loss(x, w, targets):
            return out, state        return value                  ->        return value, state

    The loss takes the first `num_backbone_outputs` results of the model, the new function its other parameters. Both
    have one dataflow block, and so has the new function. Raises `TypeMismatch` for others, and where the loss takes
    something else than the model gives.
    """

    func_name: str
    loss_function: Function
    num_backbone_outputs: int = 1
    new_func_name: str | None = None

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        name = self.new_func_name or f"{self.func_name}_loss"
        model, loss = copy_with_new_vars(mod[self.func_name]), copy_with_new_vars(self.loss_function)
        block, result = self._parts(model, f"the function `{self.func_name}`")
        outputs = list(result.fields) if isinstance(result, Tuple) else [result]
        count = self.num_backbone_outputs
        if len(outputs) < count or len(loss.params) < count:
            raise InvalidValue(
                f"AppendLoss: the loss takes {count} results, `{self.func_name}` has {len(outputs)} and the loss "
                f"{len(loss.params)} parameters"
            )
        given = dict(zip(loss.params, outputs[:count], strict=False))
        symbolic = infer_symbolic_values(given)
        for param, output in given.items():
            expected = SymbolicMutator(symbolic).visit_struct_info(param.struct_info)
            if not is_base_of(expected, output.struct_info):
                raise TypeMismatch(
                    f"AppendLoss: the loss takes {param.struct_info} as `{param.name}`, `{self.func_name}` gives "
                    f"{output.struct_info}"
                )
        bound = bind(loss, given, symbolic)
        loss_block, value = self._parts(bound, "the loss")
        rest = outputs[count:]
        returned = Tuple([value, *rest]) if rest else value
        body = _one_block([*block.bindings, *loss_block.bindings], returned)
        attrs = {**model.attrs, "global_symbol": name}
        func = Function([*model.params, *bound.params], body, None, model.is_pure and loss.is_pure, attrs)
        return mod.replace(functions={**mod.functions, GlobalVar(name): func})

    def _parts(self, func: Function, what: str) -> tuple[DataflowBlock, Expr]:
        body = func.body
        block = body.blocks[0] if isinstance(body, SeqExpr) and len(body.blocks) == 1 else None
        if not isinstance(body, SeqExpr) or not isinstance(block, DataflowBlock):
            raise TypeMismatch(f"AppendLoss: {what} must have one dataflow block and nothing else")
        return block, body.body


def _one_block(bindings: Sequence[Binding], returned: Expr) -> SeqExpr:
    """A body of one dataflow block, which only what is returned is seen outside of."""
    with deep_recursion:
        return _Inner(set(free_vars(returned))).visit_expr(SeqExpr([DataflowBlock(bindings)], returned))


class _Inner(PyExprMutator):
    """Makes variables of a dataflow block its own, unless they are `outer`."""

    def __init__(self, outer: set[Var]):
        self.outer = outer

    def visit_var_def_(self, var: Var) -> Var:
        if var in self.outer or isinstance(var, DataflowVar):
            return var
        inner = DataflowVar(var.name, var.struct_info, var.span)
        self.set_var_remap(var, inner)
        return inner


def register_te_gradient(te_grad_name: str, te_grad_func: Callable[..., Any] | None = None) -> Any:
    """Registers the gradient that `call_tir_with_grad` names; a decorator if no function is given.

    `te_grad_func(output_grad, *args, **te_grad_kwargs)` takes tensors, those of the call after the gradient with
    respect to its result, and gives a tensor for each of `args`. Raises `InvalidValue` for a name that is taken.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def emit(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> Var:
            arguments = orig_call.args[1]
            assert isinstance(arguments, Tuple)
            options = orig_call.attrs["te_grad_kwargs"]
            return builder.emit_te(function, output_grad, *arguments.fields, **options, primfunc_name_hint=te_grad_name)

        register_func(TE_GRADIENT + te_grad_name, emit)
        return function

    return register if te_grad_func is None else register(te_grad_func)
