"""LambdaLift: local functions become functions of the module.

    def main(x, y):                          def main(x, y):
        def add_y(a):                            add_y = R.make_closure(cls.main_add_y, (y,))
            return R.add(a, y)        ->         return R.invoke_pure_closure(add_y, (x,), ...)
        return add_y(x)                      def main_add_y(a, y):
                                                 return R.add(a, y)

One that uses no variable of the enclosing function is called directly, without a closure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import InvalidValue
from ..analysis import erase_to_well_defined, free_vars, tir_vars_in_struct_info
from ..copy_function import copy_with_new_vars
from ..expr import Call, Expr, Function, SeqExpr, Tuple, Var, VarBinding
from ..expr_functor import PyExprMutator, PyExprVisitor
from ..op.base import invoke_closure, invoke_pure_closure, make_closure
from ..struct_info import FuncStructInfo, StructInfo
from ..substitute import bind

Path = tuple[str, ...]
"""Where a local function is: the name of the function of the module, then the variables down to its own."""


class LambdaLift(ModulePass, opt_level=1):
    """Moves functions that are defined inside of others into the module.

    Raises `InvalidValue` for a local function whose `global_symbol` another function of the module has.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        local = _LocalFunctions()
        for var, func in mod.functions.items():
            if isinstance(func, Function):
                local.path = [var.name_hint]
                local.visit_expr(func)
        if not local.paths:
            return mod
        lifter = _Lifter(mod, local, _names(local.paths, {v.name_hint for v in mod.functions}))
        functions = {
            var: lifter.visit_expr(func) if isinstance(func, Function) else func for var, func in mod.functions.items()
        }
        return mod.replace(functions={**functions, **lifter.lifted})


class _LocalFunctions(PyExprVisitor):
    """Where local functions are, and what variables are bound to."""

    def __init__(self) -> None:
        self.path: list[str] = []
        self.paths: dict[Function, Path] = {}
        self.values: dict[Var, Expr] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self.values[binding.var] = binding.value
        if isinstance(binding.value, Function):
            self.path.append(binding.var.name)
            self.paths[binding.value] = tuple(self.path)
            super().visit_var_binding_(binding)
            self.path.pop()
        else:
            super().visit_var_binding_(binding)


def _names(paths: Mapping[Function, Path], taken: set[str]) -> dict[Function, str]:
    """Names for lifted functions: each gets the first that no other function has or is offered at the same time."""
    names: dict[Function, str] = {}
    for offer in _offers(paths, set(taken)):
        offered = {func: offer(func) for func in paths if func not in names}
        counts = Counter(offered.values())
        for func, name in offered.items():
            if name is not None and counts[name] == 1 and name not in taken:
                names[func] = name
        taken |= set(names.values())
        if len(names) == len(paths):
            break
    return names


def _offers(paths: Mapping[Function, Path], public: set[str]) -> Iterator[Callable[[Function], str | None]]:
    """Candidates for the name of a local function, the preferred ones first."""

    def global_symbol(func: Function) -> str | None:
        symbol = func.attrs.get("global_symbol")
        if symbol in public:
            path = paths[func]
            raise InvalidValue(
                f"the local function `{path[-1]}` of `{path[0]}` has the global_symbol {symbol!r}, which another "
                "function of the module has as well; public names must be unique"
            )
        if symbol is not None:
            public.add(symbol)
        return symbol

    yield global_symbol
    yield lambda func: f"{paths[func][0]}_{paths[func][-1]}"
    yield lambda func: "_".join(paths[func]) if len(paths[func]) > 2 else None
    usage: Counter[str] = Counter()

    def numbered(func: Function) -> str:
        name = f"{paths[func][0]}_{paths[func][-1]}"
        usage[name] += 1
        return f"{name}_{usage[name] - 1}"

    while True:
        yield numbered


class _Lifter(PyExprMutator):
    def __init__(self, mod: IRModule, local: _LocalFunctions, names: Mapping[Function, str]):
        super().__init__(mod)
        self.mod, self.values, self.names = mod, local.values, names
        self.lifted: dict[GlobalVar, Function] = {}
        self.direct: dict[Var, GlobalVar] = {}
        """local functions that need no closure"""
        self.recursive: dict[Var, tuple[GlobalVar, list[Expr]]] = {}
        """local functions that are being lifted and need a closure, with what they capture"""
        self.current: Var | None = None

    # -- definitions --

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if not isinstance(binding.value, Function):
            super().visit_var_binding_(binding)
            return
        outer, self.current = self.current, binding.var
        value = self.visit_expr(binding.value)
        if binding.var not in self.direct:
            self.reemit_binding(binding, value)
        self.current = outer

    def visit_function_(self, op: Function) -> Expr:
        name = self.current
        if name is None:
            return super().visit_function_(op)
        free = [v for v in free_vars(op) if v not in self.direct]
        captured = [self.visit_expr(v) for v in free if v is not name]
        params = [self.visit_var_def(p) for p in op.params]
        own = {v: Var(v.name, v.struct_info, v.span) for v in captured if isinstance(v, Var)}
        params += own.values()
        signature = FuncStructInfo([p.struct_info for p in params], op.ret_struct_info, op.is_pure)
        lifted = GlobalVar(self.names[op]).set_struct_info(signature)
        if not captured:
            self.direct[name] = lifted
        elif name in free:
            self.recursive[name] = lifted, captured
        body = self.visit_with_new_scope(op.body, params)
        self.recursive.pop(name, None)
        func = Function(params, bind(body, own), _result(body, params), op.is_pure, op.attrs, op.span)
        func = self.lifted[lifted] = copy_with_new_vars(func)
        lifted.set_struct_info(func.struct_info_)
        return make_closure(lifted, Tuple(captured)) if captured else lifted

    # -- uses --

    def visit_var_(self, op: Var) -> Expr:
        direct = self.direct.get(op)
        return super().visit_var_(op) if direct is None else direct

    def visit_call_(self, op: Call) -> Expr:
        callee = op.op
        if isinstance(callee, Var) and callee in self.recursive:
            lifted, captured = self.recursive[callee]
            return super().visit_call_(Call(lifted, [*op.args, *captured], op.attrs, op.sinfo_args, op.span))
        if isinstance(callee, Var) and callee not in self.direct and self._is_closure(callee):
            info = callee.struct_info
            pure = not isinstance(info, FuncStructInfo) or info.purity
            invoke = invoke_pure_closure if pure else invoke_closure
            return super().visit_call_(Call(invoke.op, [callee, Tuple(op.args)], None, [op.struct_info], op.span))
        return super().visit_call_(op)

    def _is_closure(self, var: Var) -> bool:
        """Whether a variable holds a closure, made here or returned by a function."""
        value = self.values.get(var)
        if isinstance(value, Var):
            return self._is_closure(value)
        if isinstance(value, Function):
            return True
        if not isinstance(value, Call):
            return False
        if isinstance(value.op, GlobalVar):
            func = self.mod.functions.get(value.op)
        elif isinstance(value.op, Var):
            func = self.values.get(value.op)
        else:
            return value.op is make_closure.op
        return isinstance(func, Function) and self._returns_function(func.body)

    def _returns_function(self, body: SeqExpr) -> bool:
        result = body.body
        return isinstance(result, Var) and (isinstance(self.values.get(result), Function) or self._is_closure(result))


def _result(body: Expr, params: list[Var]) -> StructInfo:
    """What is known of a body's value outside of it."""
    known = {v for p in params for v in tir_vars_in_struct_info(p.struct_info)}
    return erase_to_well_defined(body.struct_info, lambda v: v if v in known else None)
