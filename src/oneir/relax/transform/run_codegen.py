"""RunCodegen: functions with the attribute `Codegen` are compiled by the compiler of that name.

    gv = cls.fused_matmul_mine(x, w)    # Codegen "mine"
->
    gv = R.call_dps_packed("fused_matmul_mine", (x, w), out_sinfo=...)

The compiler is the registered function `relax.ext.mine(functions, options, constant_names)`, which returns runtime
modules. They become the module's attribute `external_mods`; what is built from it calls their functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import InvalidValue, NotRegistered, TypeMismatch
from ...runtime.registry import get_global_func, list_global_func_names
from ..analysis.variables import post_order_visit
from ..expr import Call, Constant, Expr, ExternFunc, Function, Tuple
from ..expr_functor import PyExprMutator
from .dead_code_elimination import DeadCodeElimination

CALL_DPS_PACKED = Op.get("relax.call_dps_packed")
PREFIX = "relax.ext."


class RunCodegen(ModulePass):
    """Compiles functions by the compilers that their attribute `Codegen` names, and removes what nothing calls then.

    Public functions and `entry_functions` stay. `target_options` are the options of each compiler. A compiler gets all
    functions for it as a list, its options, and the names of the constants in all functions, by which the attribute
    `const_name_to_constant` has them.

    Raises `NotRegistered` for a compiler or an entry function that is not there, `InvalidValue` for a function for a
    compiler without `global_symbol`, `TypeMismatch` for a compiler that returns anything but runtime modules.
    """

    target_options: Mapping[str, Mapping[str, Any]] | None = None
    entry_functions: Sequence[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "entry_functions", tuple(self.entry_functions or ()))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _Runner(mod).run(self.entry_functions or (), self.target_options or {})


class _Runner(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.mod = mod
        self.symbols: dict[GlobalVar, str] = {}
        self.constant_names: dict[Constant, str] = {}

    def run(self, names: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> IRModule:
        for name in names:
            self.mod.get_global_var(name)  # An unknown name is an error before anything is compiled.
        functions = dict(self.mod.functions)
        for var, func in self.mod.functions.items():
            if isinstance(func, Function) and "Codegen" not in func.attrs:
                functions[var] = self.visit_expr(func)
        modules = self._compiled(options)
        if not self.symbols and not modules:
            return self.mod
        for var in self.symbols:
            # Nothing calls it any more, so that it goes.
            functions[var] = functions[var].without_attr("Codegen").without_attr("global_symbol")
        result = self.mod.replace(functions=functions)
        if modules:
            result = result.with_attr("external_mods", [*self.mod.get_attr("external_mods", ()), *modules])
        if self.constant_names:
            constants = {name: constant.data for constant, name in self.constant_names.items()}
            result = result.with_attr("const_name_to_constant", constants)
        return DeadCodeElimination(names)(result)

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        callee = op.op
        func = self.mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
        if not isinstance(call, Call) or not isinstance(callee, GlobalVar) or not isinstance(func, Function):
            return call
        if "Codegen" not in func.attrs:
            return call
        if callee not in self.symbols:
            self.symbols[callee] = self._symbol(callee, func)
        return Call(CALL_DPS_PACKED, [ExternFunc(self.symbols[callee]), Tuple(call.args)], None, [op.struct_info])

    def _symbol(self, var: GlobalVar, func: Function) -> str:
        symbol = func.attrs.get("global_symbol")
        if symbol is None:
            raise InvalidValue(
                f"the function `{var.name_hint}` is for the compiler {func.attrs['Codegen']!r}, but has no "
                "`global_symbol`, by which its compiled form is called"
            )
        count = 0

        def name(expr: Expr) -> None:
            nonlocal count
            if isinstance(expr, Constant) and expr not in self.constant_names:
                self.constant_names[expr] = f"{symbol}_{func.attrs['Codegen']}_const_{count}"
                count += 1

        post_order_visit(func.body, name)
        return symbol

    def _compiled(self, options: Mapping[str, Mapping[str, Any]]) -> list[Any]:
        """What the compilers make of the functions for them."""
        of_compiler: dict[str, list[Function]] = {}

        def collect(expr: Expr) -> None:
            if isinstance(expr, Function) and "Codegen" in expr.attrs:
                of_compiler.setdefault(expr.attrs["Codegen"], []).append(expr)

        for func in self.mod.functions.values():
            if isinstance(func, Function):
                post_order_visit(func, collect)
        modules: list[Any] = []
        for name, functions in of_compiler.items():
            result = _compiler(name)(functions, dict(options.get(name, {})), self.constant_names)
            if not isinstance(result, (list, tuple)) or not all(map(_is_module, result)):
                raise TypeMismatch(
                    f"the compiler {PREFIX}{name} must return a list of runtime modules, which have the methods "
                    f"implements_function and get_function, found {result!r}"
                )
            modules += result
        return modules


def _is_module(value: Any) -> bool:
    return callable(getattr(value, "implements_function", None)) and callable(getattr(value, "get_function", None))


def _compiler(name: str) -> Callable[..., Any]:
    found = get_global_func(PREFIX + name, allow_missing=True)
    if found is None:
        known = sorted(n.removeprefix(PREFIX) for n in list_global_func_names() if n.startswith(PREFIX))
        raise NotRegistered(
            f"there is no compiler {name!r}: nothing is registered as {PREFIX + name!r}; there are: "
            f"{', '.join(known) or 'none'}"
        )
    return found
