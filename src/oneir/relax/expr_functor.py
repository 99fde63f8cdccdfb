"""Walking over graphs and rewriting them.

    class Fold(PyExprMutator):
        def visit_call_(self, call):
            call = super().visit_call_(call)
            return folded(call) or call

Override `visit_X_`; call the method of the base class to go on below. A mutator rebuilds through its `builder_`, a
`BlockBuilder`, so what it returns is normalized, may emit further bindings on the way, and has its struct info. What
did not change comes back as the identical object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.container import same_objects
from ..ir.expr import GlobalVar, PrimExpr
from ..ir.module import BaseFunc, IRModule
from ..ir.op import Op
from ..ir.structural import structural_equal
from ..ir.visitor import Dispatch
from ..runtime.error import TypeMismatch
from ..tir.functor import mutator as mutator
from ..tir.functor import visitor as visitor
from .analysis.struct_info import erase_to_well_defined, tir_vars_in_struct_info
from .block_builder import BlockBuilder
from .expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from .normalize import merge_blocks
from .operator_facts import FNormalize
from .struct_info import (
    BaseCheckResult,
    DTensorStructInfo,
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    is_base_of,
    struct_info_base_check,
)

_METHODS: dict[type, str] = {
    Call: "visit_call_",
    DataflowVar: "visit_dataflow_var_",
    Var: "visit_var_",
    Constant: "visit_constant_",
    Tuple: "visit_tuple_",
    TupleGetItem: "visit_tuple_getitem_",
    ShapeExpr: "visit_shape_expr_",
    PrimValue: "visit_prim_value_",
    StringImm: "visit_string_imm_",
    DataTypeImm: "visit_data_type_imm_",
    GlobalVar: "visit_global_var_",
    ExternFunc: "visit_extern_func_",
    Op: "visit_op_",
    If: "visit_if_",
    SeqExpr: "visit_seq_expr_",
    Function: "visit_function_",
    VarBinding: "visit_var_binding_",
    MatchCast: "visit_match_cast_",
    DataflowBlock: "visit_dataflow_block_",
    BindingBlock: "visit_binding_block_",
}


def _method_name(node_class: type) -> str:
    for base in node_class.__mro__:
        if base in _METHODS:
            return _METHODS[base]
    raise TypeMismatch(f"a {node_class.__name__} is no part of a graph")


class ExprFunctor(Dispatch):
    """Base of functors over graph expressions: `visit_expr` calls the method for the expression's class."""

    @classmethod
    def _method_for(cls, node_class: type) -> Callable[[Any, Any], Any]:
        return getattr(cls, _method_name(node_class))

    def visit_expr(self, expr: Expr) -> Any:
        """Calls the method for the expression's class."""
        return self._handle(expr)

    __call__ = visit_expr

    def visit_binding(self, binding: Binding) -> Any:
        """Calls the method for the binding's class."""
        return self._handle(binding)

    def visit_binding_block(self, block: BindingBlock) -> Any:
        """Calls the method for the block's class."""
        return self._handle(block)

    def visit_var_def(self, var: Var) -> Any:
        """Calls the method for the definition of a variable."""
        return self.visit_dataflow_var_def_(var) if type(var) is DataflowVar else self.visit_var_def_(var)

    def visit_dataflow_var_def_(self, var: Var) -> Any:
        """As `visit_var_def_`, for a variable of a dataflow block."""
        return self.visit_var_def_(var)

    def visit_var_def_(self, var: Var) -> Any:
        """Called where a variable is defined: by a parameter or a binding."""
        raise NotImplementedError


class PyExprVisitor(ExprFunctor):
    """Visits every expression of a graph."""

    def _leaf(self, op: Expr) -> None:
        pass

    visit_constant_ = visit_var_ = visit_dataflow_var_ = visit_global_var_ = visit_extern_func_ = _leaf
    visit_op_ = visit_string_imm_ = visit_data_type_imm_ = _leaf

    def visit_shape_expr_(self, op: ShapeExpr) -> None:
        for value in op.values:
            self.visit_prim_expr(value)

    def visit_prim_value_(self, op: PrimValue) -> None:
        self.visit_prim_expr(op.value)

    def visit_prim_expr(self, op: PrimExpr) -> None:
        """Called for each symbolic extent and number."""

    def visit_tuple_(self, op: Tuple) -> None:
        for field in op.fields:
            self.visit_expr(field)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> None:
        self.visit_expr(op.tuple_value)

    def visit_call_(self, op: Call) -> None:
        self.visit_expr(op.op)
        for a in op.args:
            self.visit_expr(a)

    def visit_if_(self, op: If) -> None:
        self.visit_expr(op.cond)
        self.visit_expr(op.true_branch)
        self.visit_expr(op.false_branch)

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        for block in op.blocks:
            self.visit_binding_block(block)
        self.visit_expr(op.body)

    def visit_function_(self, op: Function) -> None:
        for param in op.params:
            self.visit_var_def(param)
        self.visit_expr(op.body)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_binding_block_(self, block: BindingBlock) -> None:
        for binding in block.bindings:
            self.visit_binding(binding)

    visit_dataflow_block_ = visit_binding_block_

    def visit_var_def_(self, var: Var) -> None:
        pass


class PyExprMutator(ExprFunctor):
    """Rewrites a graph; `mod` is the module that `builder_` adds functions to."""

    builder_: BlockBuilder

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self._variables = {}
        self.builder_ = BlockBuilder()
        return self

    def __init__(self, mod: IRModule | None = None):
        self._variables: dict[Var, Var]
        if mod is not None:
            self.builder_ = BlockBuilder(mod)

    # -- variables --

    def set_var_remap(self, vid: Var, var: Var) -> None:
        """Lets uses of the variable `vid` become uses of `var`."""
        self._variables[vid] = var

    def get_var_remap(self, vid: Var) -> Var:
        """What uses of a variable become."""
        return self._variables[vid]

    def lookup_binding(self, var: Var) -> Expr | None:
        """The value that a rewritten variable is bound to; None for parameters."""
        return self.builder_.lookup_binding(var)

    def with_struct_info(self, var: Var, struct_info: StructInfo) -> Var:
        """The variable itself if that is its struct info; else a new one that has it."""
        known = var.struct_info_
        if known is struct_info or (known is not None and structural_equal(known, struct_info)):
            return var
        return type(var)(var.name, struct_info, var.span)

    # -- expressions --

    def _same(self, op: Expr) -> Expr:
        return op

    visit_constant_ = visit_global_var_ = visit_extern_func_ = visit_op_ = visit_string_imm_ = _same
    visit_data_type_imm_ = _same

    def visit_var_(self, op: Var) -> Expr:
        return self._variables.get(op, op)

    def visit_dataflow_var_(self, op: Var) -> Expr:
        return self.visit_var_(op)

    def visit_prim_expr(self, op: PrimExpr) -> PrimExpr:
        """Called for each symbolic extent and number, in expressions and in struct info."""
        return op

    def _values(self, values: Sequence[PrimExpr]) -> Sequence[PrimExpr]:
        new = [self.visit_prim_expr(v) for v in values]
        return values if same_objects(new, values) else new

    def visit_shape_expr_(self, op: ShapeExpr) -> Expr:
        values = self._values(op.values)
        return op if values is op.values else ShapeExpr(values, span=op.span)

    def visit_prim_value_(self, op: PrimValue) -> Expr:
        value = self.visit_prim_expr(op.value)
        return op if value is op.value else PrimValue(value, span=op.span)

    def visit_tuple_(self, op: Tuple) -> Expr:
        fields = [self.visit_expr(f) for f in op.fields]
        return op if same_objects(fields, op.fields) else Tuple(fields, span=op.span)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Expr:
        value = self.visit_expr(op.tuple_value)
        return op if value is op.tuple_value else TupleGetItem(value, op.index, span=op.span)

    def visit_call_(self, op: Call) -> Expr:
        callee = self.visit_expr(op.op)
        args = [self.visit_expr(a) for a in op.args]
        infos = [self.visit_struct_info(s) for s in op.sinfo_args]
        if callee is op.op and same_objects(args, op.args) and same_objects(infos, op.sinfo_args):
            return op
        return Call(callee, args, op.attrs, infos, op.span)

    def visit_if_(self, op: If) -> Expr:
        cond = self.visit_expr(op.cond)
        true_branch = self.visit_with_new_scope(op.true_branch)
        false_branch = self.visit_with_new_scope(op.false_branch)
        if cond is op.cond and true_branch is op.true_branch and false_branch is op.false_branch:
            return op
        return If(cond, true_branch, false_branch, span=op.span)

    def visit_seq_expr_(self, op: SeqExpr) -> Expr:
        blocks: list[BindingBlock] = []
        for block in op.blocks:
            new = self.visit_binding_block(block)
            # A value that became a sequence with blocks of another kind has split the block.
            blocks += [*self.builder_.take_blocks(), new]
        self.builder_.begin_binding_block()
        body = self.builder_.normalize_argument(self.visit_expr(op.body))
        rest = self.builder_.end_block()
        blocks = merge_blocks([*blocks, *self.builder_.take_blocks(), rest])
        return op if same_objects(blocks, op.blocks) and body is op.body else SeqExpr(blocks, body, span=op.span)

    def visit_function_(self, op: Function) -> Expr:
        params = [self.visit_var_def(p) for p in op.params]
        self._variables.update((old, new) for old, new in zip(op.params, params, strict=True) if old is not new)
        body = self.visit_with_new_scope(op.body, params)
        ret = self.visit_struct_info(op.ret_struct_info)
        if same_objects(params, op.params) and body is op.body and ret is op.ret_struct_info:
            return op
        return Function(params, body, self.refined(ret, params, body), op.is_pure, op.attrs, op.span)

    def refined(self, declared: StructInfo, params: Sequence[Var], body: Expr) -> StructInfo:
        """What is known of a function's result outside: what was declared, or what the body says where that is more, or
        something else.
        """
        found = body.struct_info_
        if found is None or structural_equal(found, declared):
            return declared
        changed = struct_info_base_check(declared, found) is BaseCheckResult.FAIL_L0
        if not changed and not is_base_of(declared, found):
            return declared
        own = {v for p in params for v in tir_vars_in_struct_info(p.struct_info)}
        # A local function sees the symbolic variables of the enclosing scope.
        outer = self.builder_.shape_variable if self.builder_.in_block else lambda v: None
        found = erase_to_well_defined(found, lambda v: v if v in own else outer(v), lambda v: None)
        return found if changed or is_base_of(declared, found) else declared

    def visit_with_new_scope(self, expr: Expr, params: Sequence[Var] = ()) -> Expr:
        """Rewrites the body of a function or branch in a scope of its own."""
        self.builder_.begin_scope(params)
        try:
            if isinstance(expr, SeqExpr):
                return self.visit_expr(expr)
            self.builder_.begin_binding_block()
            body = self.builder_.normalize_argument(self.visit_expr(expr))
            return SeqExpr(self.builder_.end_blocks(), body)
        finally:
            self.builder_.end_scope()

    def visit_expr_post_order(self, expr: Expr) -> Expr:
        """The expression with its parts rewritten, normalized: what an overridden method often starts with."""
        # That for variables of dataflow blocks would call the overridden one for variables, which may have called this.
        name = _METHODS[Var] if isinstance(expr, Var) else _method_name(type(expr))
        new: Any = getattr(PyExprMutator, name)(self, expr)
        return self.builder_.normalize(new) if isinstance(new, Expr) and not isinstance(new, GlobalVar) else new

    # -- bindings --

    def visit_binding_block_(self, block: BindingBlock) -> BindingBlock:
        self.builder_.begin_binding_block()
        return self._bindings(block)

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        self.builder_.begin_dataflow_block()
        return self._bindings(block)

    def _bindings(self, block: BindingBlock) -> BindingBlock:
        for binding in block.bindings:
            self.visit_binding(binding)
        new = self.builder_.end_block()
        return block if same_objects(new.bindings, block.bindings) else new

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = self.visit_expr(binding.value)
        self.reemit_binding(binding, value)

    def reemit_binding(self, binding: VarBinding, value: Expr) -> None:
        """Emits a binding with a new value; its variable changes where the value's struct info does."""
        var = self.visit_var_def(binding.var)
        if value is binding.value and var is binding.var and not _has_operator_form(value):
            self.builder_.emit_normalized(binding)
            return
        value = self.builder_.normalize(value)
        new = self.with_struct_info(var, self.builder_.struct_info_of(value))
        if value is binding.value and new is binding.var:
            self.builder_.emit_normalized(binding)
            return
        if new is not binding.var:
            self._variables[binding.var] = new
        self.builder_.emit_normalized(VarBinding(new, value, span=binding.span))

    def visit_match_cast_(self, binding: MatchCast) -> None:
        var, value = self.visit_var_def(binding.var), self.visit_expr(binding.value)
        info = self.visit_struct_info(binding.struct_info)
        if var is not binding.var or value is not binding.value or info is not binding.struct_info:
            new = self.with_struct_info(var, info)
            if new is not binding.var:
                self._variables[binding.var] = new
            binding = MatchCast(new, self.builder_.normalize_argument(value), info, binding.span)
        self.builder_.emit_normalized(binding)

    def visit_var_def_(self, var: Var) -> Var:
        if var.struct_info_ is None:
            return var
        info = self.visit_struct_info(var.struct_info_)
        if info is var.struct_info_:
            return var
        new = self._variables[var] = type(var)(var.name, info, var.span)
        return new

    # -- struct info --

    def visit_struct_info(self, info: StructInfo) -> StructInfo:
        """Struct info with the expressions in it rewritten."""
        if isinstance(info, TensorStructInfo):
            if info.shape is None:
                return info
            shape = self.visit_expr(info.shape)
            return info if shape is info.shape else TensorStructInfo(shape, info.dtype, info.vdevice)
        if isinstance(info, DTensorStructInfo):
            whole = self.visit_struct_info(info.tensor_sinfo)
            return info if whole is info.tensor_sinfo else info.replace(tensor_sinfo=whole)
        if isinstance(info, ShapeStructInfo) and info.values is not None:
            values = self._values(info.values)
            return info if values is info.values else ShapeStructInfo(values)
        if isinstance(info, PrimStructInfo) and info.value is not None:
            value = self.visit_prim_expr(info.value)
            return info if value is info.value else PrimStructInfo(value=value)
        if isinstance(info, TupleStructInfo):
            fields = [self.visit_struct_info(f) for f in info.fields]
            return info if same_objects(fields, info.fields) else TupleStructInfo(fields)
        if isinstance(info, FuncStructInfo) and info.params is not None:
            params, ret = [self.visit_struct_info(p) for p in info.params], self.visit_struct_info(info.ret)
            same = same_objects(params, info.params) and ret is info.ret
            return info if same else FuncStructInfo(params, ret, info.purity)
        return info

    # -- modules --

    def transform_functions(self, mod: IRModule) -> IRModule:
        """The module with all its graph functions rewritten, and what `builder_` added to it."""
        functions: dict[GlobalVar, BaseFunc] = {}
        for var, func in mod.functions.items():
            if isinstance(func, Function):
                new = self.visit_expr(func)
                if new is not func:
                    functions[var] = new
        result = self.builder_.get()
        added = [var for var in result.functions if var not in mod.functions]
        if not functions and not added:
            return mod
        for var, func in functions.items():
            result.update_func(var, func)
        return result


def _has_operator_form(value: Expr) -> bool:
    """Whether the operator of a call has a normal form of its own, so that a call which is not rewritten may change."""
    return isinstance(value, Call) and isinstance(value.op, Op) and FNormalize.of(value.op) is not None
