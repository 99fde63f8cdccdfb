"""BlockBuilder: programs made binding by binding.

    bb = BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(op.nn.relu(x))
            out = bb.emit_output(y)
        bb.emit_func_output(out)
    mod = bb.finalize()

Everything that is emitted is normalized (`normalize.py`): it gets its struct info, and a variable for each step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar

from ..arith import Analyzer, ConstIntBound
from ..ir.expr import GlobalVar, PrimExpr, as_int
from ..ir.expr import Var as TirVar
from ..ir.module import BaseFunc, IRModule
from ..ir.structural import structural_equal
from ..ir.type import PrimType
from ..ir.visitor import deep_recursion
from ..runtime.error import InvalidValue, NotRegistered, OneIRError, TypeMismatch
from ..tir.analysis import is_pure_function
from ..tir.function import PrimFunc
from .analysis.struct_info import erase_to_well_defined, tir_vars_in_struct_info
from .emit_te import gen_call_tir_inputs, graph_values, key_of
from .expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    Tuple,
    Var,
    VarBinding,
    as_graph_expr,
    as_struct_info,
)
from .global_names import normalize_global_vars
from .normalize import Normalizer, merge_blocks
from .op.base import call_tir, call_tir_with_grad
from .struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)


class Names:
    """Gives each name once: a name that is taken gets the lowest free number as a suffix."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def reserve(self, name: str) -> None:
        """Takes a name."""
        self.counts.setdefault(name, 0)

    def fresh(self, name: str, separator: str = "") -> str:
        """The name itself, or with a number behind `separator`."""
        name = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "v"
        if name not in self.counts:
            self.counts[name] = 0
            return name
        count = self.counts[name]
        while True:
            count += 1
            numbered = f"{name}{separator}{count}"
            if numbered not in self.counts:
                break
        self.counts[name] = count
        self.counts[numbered] = 0
        return numbered


class FunctionScope:
    """The `with` of `BlockBuilder.function`."""

    def __init__(
        self, builder: BlockBuilder, name: str, params: Any, attrs: Mapping[str, Any] | None, private: bool, pure: bool
    ):
        self.builder, self.name, self.private, self.pure = builder, name, private, pure
        self.params = None if params is None else _as_params(params)
        self.attrs = dict(attrs or {})
        self.returned = False
        self.outer: list[_Frame] = []
        """What was open around it."""

    def __enter__(self) -> None:
        self.builder._enter_function(self)

    def __exit__(self, exc_type: object, exc_value: object, traceback: object) -> None:
        self.builder._exit_function(self, exc_type is not None)


class DataflowScope:
    """The `with` of `BlockBuilder.dataflow`."""

    def __init__(self, builder: BlockBuilder):
        self.builder = builder

    def __enter__(self) -> None:
        self.builder.switch_block(True)

    def __exit__(self, exc_type: object, exc_value: object, traceback: object) -> None:
        if exc_type is None:
            self.builder.switch_block(False)


class TestingScope:
    """The `with` of `BlockBuilder.testing_scope`: symbolic variables that are known without a function."""

    __test__ = False

    def __init__(self, builder: BlockBuilder, def_vars: Sequence[TirVar]):
        self.builder, self.def_vars = builder, list(def_vars)

    def __enter__(self) -> None:
        self.builder.begin_scope()
        self.builder.define(self.def_vars)

    def __exit__(self, *exception: object) -> None:
        self.builder.end_scope()


def _as_params(params: Any) -> list[Any]:
    """Parameters, in which tuples and lists may be nested, as one list."""
    if isinstance(params, (list, tuple)):
        return [v for p in params for v in _as_params(p)]
    return [params]


class _Frame:
    """The body of one function or branch while it is built: what is known in it, its blocks so far, the open block."""

    def __init__(self, outer: _Frame | None, anonymous: bool = False):
        self.shape_vars: set[TirVar] = set(outer.shape_vars) if outer else set()
        self.variables: set[Var] = set()
        self.outer = outer
        self.anonymous = anonymous
        self.blocks: list[BindingBlock] = []
        self.bindings: list[Binding] | None = None
        self.dataflow = False
        self.emitted: dict[int, tuple[Expr, Var]] = {}

    def knows(self, var: Var) -> bool:
        frame: _Frame | None = self
        while frame is not None:
            if var in frame.variables:
                return True
            frame = frame.outer
        return False


class BlockBuilder:
    """Builds functions of a module; `mod` is the module to add to, which stays as it is.

    Whatever is emitted is normalized first. So all methods that emit raise what the struct-info rule of an operator
    raises for arguments that it cannot have (`TypeMismatch`, `InvalidValue`), `NotRegistered` for an operator without
    such a rule, and `InvalidValue` outside of a function's scope.
    """

    _local: ClassVar[threading.local] = threading.local()

    def __init__(self, mod: IRModule | None = None, *, normalize_operators: bool = True):
        """`normalize_operators`: whether operators bring their calls into forms of their own (`FNormalize`)."""
        self.mod = mod.clone() if mod is not None else IRModule()
        self.analyzer = Analyzer()
        self._normalizer = Normalizer(self, normalize_operators)
        self._names = Names()
        self._frames: list[_Frame] = []
        self._values: dict[Var, Expr] = {}
        self._functions: list[FunctionScope] = []
        self._known: dict[Hashable, list[GlobalVar]] | None = None
        self._made: dict[Hashable, tuple[GlobalVar, BaseFunc, StructInfo | list[StructInfo], ShapeExpr | None]] = {}
        """The functions that `call_te` made, with the struct info of their results and their symbolic arguments."""
        for var in self.mod.functions:
            self._names.reserve(var.name_hint)

    @classmethod
    def current(cls) -> BlockBuilder | None:
        """The builder whose function scope this thread is in; None outside of one."""
        stack = getattr(cls._local, "stack", None)
        return stack[-1] if stack else None

    # -- scopes --

    def function(
        self,
        name: str,
        params: Any = None,
        attrs: Mapping[str, Any] | None = None,
        private: bool = False,
        pure: bool = True,
    ) -> FunctionScope:
        """The scope of a function. Parameters may be given here or to `emit_func_output`.

        A `private` function cannot be called from outside of the module. Inside of another function's scope it is
        another function of the module, which sees nothing of what is around it. Raises `InvalidValue` when the scope is
        left without `emit_func_output`, `TypeMismatch` for a parameter that is no graph variable.
        """
        return FunctionScope(self, name, params, attrs, private, pure)

    def testing_scope(self, def_vars: Sequence[TirVar]) -> TestingScope:
        """A scope in which expressions can be normalized without a function."""
        return TestingScope(self, def_vars)

    def dataflow(self) -> DataflowScope:
        """The scope of a dataflow block."""
        return DataflowScope(self)

    @property
    def in_block(self) -> bool:
        """Whether there is a block to emit to."""
        return bool(self._frames) and self._frames[-1].bindings is not None

    def begin_scope(self, params: Sequence[Var] | None = None) -> None:
        """Opens the scope of a function's parameters, or a branch's."""
        self._frames.append(_Frame(self._frames[-1] if self._frames else None))
        self.add_params(params or ())

    def add_params(self, params: Sequence[Var]) -> None:
        """Makes parameters, and the symbolic variables of their struct info, known."""
        for param in params:
            self._frames[-1].variables.add(param)
            self.define(tir_vars_in_struct_info(param.struct_info))

    def end_scope(self) -> None:
        """Closes the innermost scope."""
        self._frames.pop()

    def define(self, shape_vars: Sequence[TirVar]) -> None:
        """Makes symbolic variables known; as extents, they are not negative."""
        known = self._frames[-1].shape_vars
        for var in shape_vars:
            if var not in known:
                known.add(var)
                if not self.analyzer.const_int_bound_is_bound(var):
                    self.analyzer.update(var, ConstIntBound(0, ConstIntBound.POS_INF), True)

    def shape_variable(self, var: TirVar) -> TirVar | None:
        """The symbolic variable itself if it is known here; everything is, outside of all scopes."""
        return var if not self._frames or var in self._frames[-1].shape_vars else None

    def variable(self, var: Var) -> Var | None:
        """The variable itself if it is known here."""
        return var if not self._frames or self._frames[-1].knows(var) else None

    def well_defined(self, info: StructInfo) -> StructInfo:
        """Struct info without what is not known in this scope."""
        return erase_to_well_defined(info, self.shape_variable, self.variable)

    # -- blocks --

    def begin_dataflow_block(self) -> None:
        """Opens a dataflow block. Raises `InvalidValue` while another block is open."""
        self._begin_block(True)

    def begin_binding_block(self) -> None:
        """Opens a block of bindings. Raises `InvalidValue` while another block is open."""
        self._begin_block(False)

    def _begin_block(self, dataflow: bool) -> None:
        if not self._frames:
            self._frames.append(_Frame(None, anonymous=True))
        frame = self._frames[-1]
        if frame.bindings is not None:
            raise InvalidValue("a block is open already; close it with end_block first")
        frame.bindings, frame.dataflow, frame.emitted = [], dataflow, {}

    def end_block(self) -> BindingBlock:
        """Closes the open block and returns it. Raises `InvalidValue` if none is open."""
        frame = self._open_frame()
        block = (DataflowBlock if frame.dataflow else BindingBlock)(frame.bindings)
        frame.bindings, frame.dataflow = None, False
        if frame.anonymous:
            self._frames.pop()
        return block

    _begin_dataflow_block = begin_dataflow_block
    """The published name."""
    _begin_binding_block = begin_binding_block
    """The published name."""
    _end_block = end_block
    """The published name."""

    def _open_frame(self) -> _Frame:
        if not self.in_block:
            raise InvalidValue("there is no block to emit to: use `with bb.function(name)` first")
        return self._frames[-1]

    def switch_block(self, dataflow: bool) -> None:
        """Closes the open block, keeping it unless it is empty, and opens the next one of the same body."""
        frame = self._frames[-1]
        block = self.end_block()
        if block.bindings:
            frame.blocks.append(block)
        self._begin_block(dataflow)

    def end_blocks(self) -> list[BindingBlock]:
        """Closes the last block of a function or branch and returns all its blocks."""
        frame = self._frames[-1]
        self.switch_block(False)
        frame.bindings = None
        return merge_blocks(frame.blocks)

    def take_blocks(self) -> list[BindingBlock]:
        """The blocks that were finished in this scope so far, apart from those that `end_block` returned."""
        if not self._frames:
            return []
        blocks, self._frames[-1].blocks = self._frames[-1].blocks, []
        return blocks

    def current_block_is_dataflow(self) -> bool:
        """Whether what is emitted now is part of a dataflow block."""
        return bool(self._frames) and self._frames[-1].dataflow

    def emit_block(self, block: BindingBlock) -> None:
        """Emits the bindings of a block, in a dataflow block where they were in one."""
        opened = isinstance(block, DataflowBlock) and not self.current_block_is_dataflow()
        if opened:
            self.switch_block(True)
        for binding in block.bindings:
            self.emit_normalized(self.normalize_binding(binding))
        if opened:
            self.switch_block(False)

    def normalize_binding(self, binding: Binding) -> Binding:
        """A binding with a normal value; its variable gets struct info if it has none."""
        if isinstance(binding, MatchCast):
            value = self._normalizer.argument(binding.value)
            return binding if value is binding.value else binding.replace(value=value)
        assert isinstance(binding, VarBinding)
        value = self._normalizer.normalize(binding.value)
        if binding.var.struct_info_ is None:
            binding.var.set_struct_info(self.struct_info_of(value))
        return binding if value is binding.value else binding.replace(value=value)

    # -- functions --

    def _enter_function(self, scope: FunctionScope) -> None:
        params = self._checked_params(scope.params or [])
        self._functions.append(scope)
        scope.outer, self._frames = self._frames, []
        stack = getattr(BlockBuilder._local, "stack", None)
        if stack is None:
            stack = BlockBuilder._local.stack = []
        stack.append(self)
        self.begin_scope(params)
        self.begin_binding_block()

    def _checked_params(self, params: Any) -> list[Var]:
        for p in params:
            if not isinstance(p, Var):
                hint = " (te.placeholder makes a tensor expression)" if hasattr(p, "op") else ""
                raise TypeMismatch(
                    f"the parameters of a function are graph variables, found {p!r}{hint}: "
                    "declare relax.Var(name, relax.TensorStructInfo(shape, dtype))"
                )
        return list(params)

    def _exit_function(self, scope: FunctionScope, failed: bool) -> None:
        BlockBuilder._local.stack.pop()
        self._functions.pop()
        self._frames = scope.outer
        if not failed and not scope.returned:
            raise InvalidValue(f"emit_func_output was not called in the scope of the function `{scope.name}`")

    def emit_func_output(self, output: Any, params: Any = None) -> GlobalVar:
        """Ends the function: it returns `output`. `params` are its parameters, unless the scope was given them.

        Returns the function's variable in the module. Raises `InvalidValue` outside of a function's scope, inside of a
        dataflow block, when called twice, and for parameters that are given twice.
        """
        if not self._functions:
            raise InvalidValue("emit_func_output is called in the scope of bb.function(name)")
        scope = self._functions[-1]
        if scope.returned:
            raise InvalidValue(f"emit_func_output is called a second time for the function `{scope.name}`")
        if self.current_block_is_dataflow():
            raise InvalidValue("emit_func_output is called outside of the dataflow block: leave `with bb.dataflow()`")
        if params is not None:
            if scope.params is not None:
                raise InvalidValue(
                    f"the parameters of `{scope.name}` are given twice: to bb.function and to emit_func_output"
                )
            scope.params = self._checked_params(_as_params(params))
            self.add_params(scope.params)
        if scope.params is None:
            scope.params = []
        result = self._normalizer.argument(as_graph_expr(output))
        blocks = self.end_blocks()
        self.end_scope()
        body = SeqExpr(blocks, result)
        own = {v for p in scope.params for v in tir_vars_in_struct_info(p.struct_info)}
        ret = erase_to_well_defined(result.struct_info, lambda v: v if v in own else None, lambda v: None)
        attrs = dict(scope.attrs)
        if not scope.private:
            attrs["global_symbol"] = scope.name
        func = Function(scope.params, body, ret, scope.pure, attrs)
        scope.returned = True
        existing = next((v for v in self.mod.functions if v.name_hint == scope.name), None)
        if existing is not None:
            self.update_func(existing, func)
            return existing
        return self.add_func(func, scope.name)

    def add_func(self, func: BaseFunc, func_name: str) -> GlobalVar:
        """Adds a function; one that is structurally equal to an earlier one is not added again."""
        similar = self._by_outline().setdefault(_outline(func), [])
        for var in similar:
            if structural_equal(self.mod.functions[var], func):
                return var
        var = GlobalVar(self._names.fresh(func_name))
        similar.append(var)
        self._set(var, func)
        return var

    def _by_outline(self) -> dict[Hashable, list[GlobalVar]]:
        """The functions of the module by what equal ones have in common."""
        if self._known is None:
            self._known = {}
            for var, func in self.mod.functions.items():
                self._known.setdefault(_outline(func), []).append(var)
        return self._known

    def _set(self, var: GlobalVar, func: BaseFunc) -> None:
        # The module is the builder's own copy, so its table may be changed in place.
        table = self.mod.functions
        if not isinstance(table, dict):
            table = self.mod.functions = dict(table)
        table[var] = func
        var.set_struct_info(function_struct_info(func))

    def update_func(self, gv: GlobalVar, updated_func: BaseFunc) -> None:
        """Replaces a function. Raises `NotRegistered` for one that the module does not have."""
        if gv not in self.mod.functions:
            raise NotRegistered(f"the module has no function `{gv.name_hint}`")
        if self._known is not None:
            for variables in self._known.values():
                if gv in variables:
                    variables.remove(gv)
            self._known.setdefault(_outline(updated_func), []).append(gv)
        self._set(gv, updated_func)

    def function_struct_info(self, var: GlobalVar) -> StructInfo:
        """What is known about a function of the module."""
        func = self.mod.functions.get(var)
        if func is not None:
            return function_struct_info(func)
        known = getattr(var, "struct_info_", None)
        return ObjectStructInfo() if known is None else known

    # -- emitting --

    def emit(self, expr: Any, name_hint: str = "") -> Var:
        """Gives a value a variable, which is returned."""
        with deep_recursion:
            value = self._normalizer.normalize(as_graph_expr(expr))
        return self._bind(value, name_hint, DataflowVar if self.current_block_is_dataflow() else Var)

    def emit_once(self, expr: Expr) -> Var:
        """The variable of a value, which is emitted once to a block, however often it is used there."""
        emitted = self._open_frame().emitted
        known = emitted.get(id(expr))
        if known is None:
            # The expression is kept, so that its id stays its own.
            known = emitted[id(expr)] = (expr, self.emit(expr))
        return known[1]

    def _bind(self, value: Expr, name_hint: str, kind: type[Var]) -> Var:
        name = self._names.fresh(name_hint or ("lv" if kind is DataflowVar else "gv"))
        var = kind(name, self.struct_info_of(value), span=value.span)
        self._append(VarBinding(var, value, span=value.span))
        return var

    def struct_info_of(self, value: Expr) -> StructInfo:
        """What is known of a normalized value."""
        return self.function_struct_info(value) if isinstance(value, GlobalVar) else value.struct_info

    def _append(self, binding: Binding) -> None:
        frame = self._open_frame()
        assert frame.bindings is not None
        frame.bindings.append(binding)
        frame.variables.add(binding.var)
        if isinstance(binding, VarBinding):
            self._values[binding.var] = binding.value
        elif isinstance(binding, MatchCast):
            self.define(tir_vars_in_struct_info(binding.struct_info))

    def emit_normalized(self, binding: Binding) -> None:
        """Emits a binding whose value is normal."""
        self._append(binding)

    def emit_output(self, output: Any, name_hint: str = "") -> Var:
        """Gives a value of a dataflow block a variable that is seen outside of it.

        Raises `InvalidValue` outside of a dataflow block.
        """
        if not self.current_block_is_dataflow():
            raise InvalidValue("emit_output is called inside of a dataflow block: use `with bb.dataflow()`")
        with deep_recursion:
            value = self._normalizer.normalize(as_graph_expr(output))
        return self._bind(value, name_hint, Var)

    def match_cast(self, value: Expr, struct_info: StructInfo, name_hint: str = "") -> Var:
        """Asserts struct info of a value; symbolic variables in it that are new take their values from it.

        The assertion is checked when the program runs.
        """
        value, struct_info = self._normalizer.argument(value), as_struct_info(struct_info)
        dataflow = self.current_block_is_dataflow()
        name = self._names.fresh(name_hint or ("lv" if dataflow else "gv"))
        var = (DataflowVar if dataflow else Var)(name, struct_info)
        self._append(MatchCast(var, value, struct_info))
        return var

    def normalize(self, expr: Expr) -> Expr:
        """The expression in normal form, with its struct info known."""
        with deep_recursion:
            return self._normalizer.normalize(as_graph_expr(expr))

    def normalize_argument(self, expr: Expr) -> Expr:
        """The expression as a leaf: emitted and given a variable unless it is one."""
        return self._normalizer.argument(expr)

    def lookup_binding(self, var: Var) -> Expr | None:
        """The value that a variable was bound to; None for parameters and casts."""
        return self._values.get(var)

    # -- tensor expressions --

    def call_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
        """A call of the kernel that a tensor-expression function describes.

        `func` gets a placeholder for each tensor among the arguments and returns tensors. `primfunc_name_hint` and
        `primfunc_attrs` are the name and the attributes of the kernel's PrimFunc.
        """
        name = kwargs.pop("primfunc_name_hint", None) or getattr(func, "__name__", "te_func")
        key = key_of(func, args, kwargs)
        made = None if key is None else self._made.get(key)
        if made is not None and self.mod.functions.get(made[0]) is made[1]:
            return call_tir(made[0], Tuple(graph_values(args, kwargs)), *made[2:])
        prim_func, values, infos, tir_vars = gen_call_tir_inputs(func, *args, **kwargs)
        gvar = self.add_func(prim_func, name)
        info = infos if len(infos) > 1 else infos[0]
        if key is not None:
            self._made[key] = gvar, self.mod.functions[gvar], info, tir_vars
        return call_tir(gvar, Tuple(values), info, tir_vars)

    def call_te_with_grad(
        self,
        func: Callable[..., Any],
        *args: Any,
        te_grad_name: str,
        te_grad_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Expr:
        """A call as `call_te` makes it, with the name of the registered tensor expression that is its gradient."""
        call = self.call_te(func, *args, **kwargs)
        gvar, values, *tir_vars = call.args
        assert isinstance(gvar, GlobalVar)
        return call_tir_with_grad(gvar, values, call.sinfo_args[0], te_grad_name, te_grad_kwargs, *tir_vars)

    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
        """Emits the call that `call_te` makes."""
        name_hint = kwargs.pop("name_hint", "")
        return self.emit(self.call_te(func, *args, **kwargs), name_hint)

    # -- the module --

    def get_unique_name(self, name_prefix: str) -> str:
        """A name that nothing of this builder has."""
        return self._names.fresh(name_prefix)

    def get(self) -> IRModule:
        """The module as it is now."""
        return self.mod.clone()

    def finalize(self) -> IRModule:
        """The finished module, its public functions named as their `global_symbol` says.

        Raises `InvalidValue` while a function is not finished, `NotRegistered` for two public functions of one name.
        """
        if self._functions:
            raise InvalidValue(f"the function `{self._functions[-1].name}` is not finished")
        return normalize_global_vars(self.mod.clone())


def function_struct_info(func: BaseFunc) -> StructInfo:
    """What is known of a function: its parameters, result and purity. A PrimFunc without a result is impure, and gives
    an empty tuple.
    """
    info = getattr(func, "struct_info_", None)
    if info is not None:
        return info
    if isinstance(func, PrimFunc):
        if isinstance(func.ret_type, PrimType):
            return FuncStructInfo.opaque_func(ret=PrimStructInfo(func.ret_type.dtype), purity=is_pure_function(func))
        return FuncStructInfo.opaque_func(ret=TupleStructInfo([]), purity=False)
    raise OneIRError(f"the struct info of a {type(func).__name__} is not known")


def _outline(func: BaseFunc) -> Hashable:
    """What structurally equal functions have in common, cheap to find out: the shapes of parameters, the steps."""
    if isinstance(func, PrimFunc):
        buffers = [func.buffer_map.get(p) for p in func.params]
        return PrimFunc, tuple([None if b is None else (b.dtype, _numbers(b.shape)) for b in buffers])
    if isinstance(func, Function):
        infos = [p.struct_info for p in func.params]
        tensors = [(i.dtype, _numbers(i.extents or ())) if isinstance(i, TensorStructInfo) else type(i) for i in infos]
        blocks = func.body.blocks if isinstance(func.body, SeqExpr) else ()
        return Function, tuple(tensors), tuple([len(block.bindings) for block in blocks])
    return type(func)


def _numbers(extents: Sequence[PrimExpr]) -> tuple[int | None, ...]:
    """Extents, symbolic ones as None."""
    return tuple([as_int(e) for e in extents])
