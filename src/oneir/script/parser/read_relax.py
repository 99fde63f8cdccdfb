"""Reads `@R.function`: statements of the script as bindings, which a `BlockBuilder` normalizes."""

from __future__ import annotations

import ast
import numbers
from collections.abc import Callable
from typing import Any, ClassVar

from ...ir.expr import ExprOp, GlobalVar
from ...ir.expr import Var as TirVar
from ...ir.global_info import DeviceMesh, VDevice
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.visitor import deep_recursion
from ...relax.block_builder import BlockBuilder
from ...relax.expr import (
    Call,
    DataflowVar,
    Expr,
    Function,
    SeqExpr,
    Tuple,
    Var,
    VarBinding,
    as_graph_expr,
    as_struct_info,
    const,
)
from ...relax.expr import If as IfExpr
from ...relax.struct_info import FuncStructInfo, ObjectStructInfo, StructInfo, TupleStructInfo
from ...runtime.error import OneIRError, ParseError
from ..relax import struct_info as vocabulary
from ..relax.note import Cast, Frame, Note
from ..relax.state import FunctionState, WrongAnnotation
from ..relax.struct_info import Deferred, Member
from ..tir.meta import Macro, meta_var
from .evaluator import Evaluator, binary_operator, locate
from .module import ModuleNote, ModuleParser
from .scope import MISSING, Scope

_UNSUPPORTED = {
    ast.For: "a loop",
    ast.While: "a loop",
    ast.Try: "`try`",
    ast.TryStar: "`try`",
    ast.ClassDef: "a class",
    ast.AsyncFunctionDef: "`async`",
    ast.AsyncFor: "`async`",
    ast.AsyncWith: "`async`",
    ast.Delete: "`del`",
    ast.Raise: "`raise`",
    ast.Match: "`match`",
    ast.Import: "`import`",
    ast.ImportFrom: "`import`",
    ast.Assert: "`assert` (R.assert_op checks while the program runs)",
}
_BARE_NAMES = {name: member for name, member in vars(vocabulary).items() if isinstance(member, Member)}
"""Struct info as the first releases wrote it, without `R.`: known where the script does not define the name itself."""


class RelaxParser(Evaluator):
    """Reads one graph function, with the functions inside of it. `decorator` is what marks those."""

    _statements: ClassVar[dict[type, Callable[[Any, Any], None]]] = {}

    def __init__(self, module: ModuleParser, decorator: Any):
        super().__init__(module.source, module.scope)
        self.module = module
        self.decorator = decorator
        self.builder = BlockBuilder(IRModule(module.added), normalize_operators=False)
        for name in module.members:
            self.builder.get_unique_name(name)
        self.state = self.new_state("", {})
        self.checked = module.checked
        """Whether what is not seen by the rules of graphs can be named nevertheless."""
        self.declares = False
        """Whether texts in struct info declare symbolic variables: in the signature of a function they do."""
        self.annotated: Any = None
        """The call that made the struct info whose texts are read."""
        self.texts: set[str] = set()
        """All texts in the parameters of the signature that is read; those that are names are symbolic variables."""
        self.determined: set[str] = set()
        """The symbolic variables that the signature has as extents of their own, so that arguments determine them."""
        self.prelude: dict[str, ast.expr] = {}
        """What the body of the function whose signature is read assigns to plain names."""
        self.inside: set[str] = set()
        """The names that were bound inside of dataflow blocks and are not their outputs."""

    def new_state(self, name: str, options: dict[str, Any]) -> FunctionState:
        """The state of a function that is about to be read."""
        return FunctionState(name, self.builder, bool(options.get("pure", True)), self.module.global_infos)

    # -- functions --

    def signature(self, node: ast.FunctionDef, options: dict[str, Any]) -> FuncStructInfo:
        """What calls of a function must know of it."""
        outer, self.state = self.state, self.new_state(node.name, options)
        try:
            with self.new_scope():
                ret = self.read_signature(node)
            infos = [param.struct_info for param in self.state.params]
            return FuncStructInfo(infos, ObjectStructInfo() if ret is None else ret, self.state.pure)
        finally:
            self.state = outer

    def parse_function(self, node: ast.FunctionDef, options: dict[str, Any]) -> Function:
        """The function that a definition describes."""
        outer, self.state = self.state, self.new_state(node.name, options)
        state, checked = self.state, self.checked
        self.checked = checked and bool(options.get("check_well_formed", True))
        inside, self.inside = self.inside, set()
        try:
            with deep_recursion, self.new_scope():
                state.ret_struct_info = self.read_signature(node)
                state.begin_function()
                for stmt in node.body:
                    self.statement(stmt)
                return state.end_function(bool(options.get("private", False)), self.source.span(node))
        except ParseError:
            raise
        except Exception as problem:
            last = node.body[-1]
            raise self.error(last if isinstance(last, ast.Return) else node, problem) from problem
        finally:
            self.state, self.inside, self.checked = outer, inside, checked

    def read_signature(self, node: ast.FunctionDef) -> StructInfo | None:
        """Declares the parameters and their symbolic variables; the struct info of the result if it is annotated."""
        args = node.args
        odd = [*args.posonlyargs, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg)), *args.defaults]
        if odd:
            raise self.error(
                odd[0], "a graph function takes plain parameters: no defaults, no stars, no keyword-only ones"
            )
        self.prelude = {
            s.targets[0].id: s.value
            for s in node.body
            if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)
        }
        parts = [part for param in args.args if param.annotation for part in ast.walk(param.annotation)]
        self.texts = {p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)}
        self.declares, self.determined = True, set()
        try:
            for param in args.args:
                if param.annotation is None:
                    raise self.error(
                        param,
                        f'parameter `{param.arg}` expects an annotation, for instance R.Tensor((2, 3), "float32")',
                    )
                var = Var(param.arg, self.struct_info(param.annotation), self.source.span(param))
                self.state.params.append(var)
                self.scope.names[param.arg] = var
        finally:
            self.declares = False
        for name in self.state.symbols:
            if name not in self.determined:
                raise self.error(
                    node, f"undefined symbolic variable `{name}`: no parameter of `{node.name}` has it as an extent"
                )
        if node.returns is None or self.names_tuple(node.returns):
            return None
        return self.struct_info(node.returns)

    def names_tuple(self, node: ast.expr) -> bool:
        """Whether an annotation is `R.Tuple` alone, which says nothing of what the tuple holds."""
        return isinstance(node, (ast.Name, ast.Attribute)) and self.eval(node) is vocabulary.Tuple

    def struct_info(self, node: ast.expr) -> StructInfo:
        """The struct info of an annotation, which may be written as a string."""
        text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        value = self.eval_text(node) if text and isinstance(node, ast.Constant) else self.eval(node)
        if value is None:
            return TupleStructInfo([])
        try:
            return as_struct_info(value)
        except Exception as problem:
            raise self.error(node, problem) from problem

    # -- texts in struct info --

    def extent(self, text: str) -> Any:
        """The expression of an extent that is written as a text."""
        try:
            expression: Any = ast.parse(f"({text})").body[0]
        except SyntaxError:
            raise self.error(
                self.annotated, f"an extent is an integer or an expression, found the text {text!r}"
            ) from None
        if isinstance(expression.value, ast.Name):
            self.determined.add(expression.value.id)
        for part in ast.walk(expression):
            if self.declares and isinstance(part, ast.Name):
                self.declare_symbol(part.id)
            if hasattr(part, "lineno"):
                ast.copy_location(part, self.annotated)
        return self.eval(expression.value)

    def declare_symbol(self, name: str) -> None:
        """Declares a symbolic variable of the function; the body may make it a `SizeVar`.

        A name in a longer text may stand for something else that the script knows.
        """
        if name in self.state.symbols or (name not in self.texts and self.scope.lookup(name) is not MISSING):
            return
        stated = self.prelude.get(name)
        var = self.eval(stated) if isinstance(stated, ast.Call) else None
        if not isinstance(var, TirVar):
            var = TirVar(name, "int64")
        elif var.dtype != "int64":
            raise self.error(stated, f"the symbolic extent `{name}` must be int64, found {var.dtype}")
        var.name = name
        self.state.symbols[name] = self.scope.names[name] = var

    def vdevice(self, text: str) -> VDevice:
        """The device of the module that a text names."""
        return self.state.vdevice(text)

    def device_mesh(self, text: str) -> DeviceMesh:
        """The mesh of the module that a text names."""
        return self.state.device_mesh(text)

    # -- expressions --

    def eval_Name(self, node: ast.Name) -> Any:
        value = self.scope.lookup(node.id)
        if value is not MISSING:
            return value
        if node.id in _BARE_NAMES:
            return _BARE_NAMES[node.id]
        if node.id in self.inside:
            raise self.error(
                node,
                f"`{node.id}` is a variable of a dataflow block and not seen outside of it; "
                f"make it an output: R.output({node.id})",
            )
        raise self.undefined(node, node.id)

    def call(self, node: ast.Call, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(callee, Macro):
            return self.expand(callee, args, kwargs)
        args = [a.as_struct_info() if isinstance(a, Member) and not isinstance(callee, Member) else a for a in args]
        kwargs = {k: v.as_struct_info() if isinstance(v, Member) else v for k, v in kwargs.items()}
        if "out_ty" in kwargs:
            kwargs["out_sinfo"] = kwargs.pop("out_ty")
        if isinstance(callee, GlobalVar) and not kwargs:
            value: Any = Call(callee, [as_graph_expr(a) for a in args])
        else:
            value = super().call(node, callee, args, kwargs)
        if isinstance(value, Deferred):
            self.annotated = node
            value = value.build(self)
        if isinstance(value, Note):
            value = value.apply(self.state)
        elif isinstance(value, ModuleNote):
            value = value.apply(self.module)
        if isinstance(value, StructInfo) and getattr(value, "span", None) is None:
            locate(value, self.source.span(node))
        return value

    def expand(self, macro: Macro, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The value of a macro; its bindings are made in the place of its call."""
        bound = macro.bind(args, kwargs)
        source, scope = self.source, self.scope
        self.source, self.scope = macro.source, Scope(macro.scope if macro.hygienic else scope)
        self.scope.names.update(bound)
        try:
            *stmts, last = macro.node.body
            for stmt in stmts:
                self.statement(stmt)
            if not isinstance(last, ast.Return) or last.value is None:
                raise self.error(last, f"the macro `{macro.node.name}` ends with `return` and a value")
            return self.eval(last.value)
        finally:
            self.source, self.scope = source, scope

    # -- names --

    def bind(self, target: ast.expr, value: Any, info: StructInfo | None = None) -> None:
        """Assigns to a name, or the parts of a value to several."""
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, (Expr, Cast)) and not isinstance(value, (Tuple, Var)):
                value = self.bound(value, None, "", target)
            for name, item in self.unpack(target, list(value) if isinstance(value, meta_var) else value):
                self.bind(name, item)
        elif isinstance(target, ast.Name):
            self.scope.names[target.id] = self.bind_name(target, value, info)
        else:
            raise self.error(target, "expected a name to assign to; tensors of a graph cannot be written into")

    def bind_name(self, target: ast.Name, value: Any, info: StructInfo | None) -> Any:
        """What a name stands for after an assignment: a new variable for graph values, anything else as it is."""
        name = target.id
        if isinstance(value, meta_var):
            return value.value
        if isinstance(value, TirVar):
            return self.symbol(target, value)
        if isinstance(value, numbers.Number):
            value = const(value)
        elif (isinstance(value, tuple) and _is_graph_value(value)) or (isinstance(value, ExprOp) and info is not None):
            value = as_graph_expr(value)
        if not isinstance(value, (Expr, Cast)) or isinstance(value, Op):
            if info is not None:
                raise self.error(target, f"an annotated assignment expects a graph value, found {value!r}")
            return value
        return self.bound(value, info, name, target)

    def bound(self, value: Any, info: StructInfo | None, name: str, target: ast.expr) -> Var:
        """A new variable for a value."""
        span = self.source.span(target)
        if isinstance(value, Cast):
            if info is not None and info != value.struct_info:
                raise WrongAnnotation(f"the annotation says {info}, but the cast is to {value.struct_info}")
            return self.state.match_cast(value.value, value.struct_info, name, span)
        return self.state.bind(self.located(value, target), info, name, span)

    def located(self, value: Expr, node: Any) -> Expr:
        """A value with the place that it came from."""
        if value.span is None and not value.is_shared:
            locate(value, self.source.span(node))
        return value

    def symbol(self, target: ast.Name, var: TirVar) -> TirVar:
        """`n = T.int64()` or `n = T.Var("n", "int64")`: the symbolic variable of that name.

        The signature may have declared it.
        """
        if var.name not in ("", target.id):
            return var
        known = self.state.symbols.get(target.id)
        if known is None:
            if not var.name:
                var.name = target.id
                var.span = self.source.span(target)
                self.state.symbols[target.id] = var
            return var
        if known.dtype != var.dtype:
            raise self.error(target, f"`{target.id}` is a symbolic variable of dtype {known.dtype}, not {var.dtype}")
        return known

    # -- statements --

    def statement(self, node: ast.stmt) -> None:
        """Reads one statement of the script."""
        handler = self._statements.get(type(node))
        if handler is None:
            handler = getattr(type(self), f"stmt_{type(node).__name__}", type(self).stmt_unsupported)
            self._statements[type(node)] = handler
        try:
            handler(self, node)
        except ParseError:
            raise
        except Exception as problem:
            raise self.error(node, problem) from problem

    def stmt_unsupported(self, node: ast.stmt) -> None:
        what = _UNSUPPORTED.get(type(node), f"`{type(node).__name__}`")
        raise self.error(node, f"{what} cannot stand in a graph function")

    def stmt_Pass(self, node: ast.Pass) -> None:
        return

    def stmt_Nonlocal(self, node: ast.Nonlocal) -> None:
        """Says that names come from around the function, as they do anyway."""

    def stmt_Global(self, node: ast.Global) -> None:
        """Says that names come from around the function, as they do anyway."""

    def stmt_Assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            raise self.error(node, "assign to one target at a time, not `a = b = value`")
        self.assign(node.targets[0], node.value, None)

    def stmt_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None or not isinstance(node.target, ast.Name):
            raise self.error(node, "expected `name: R.Tensor(...) = value`")
        self.assign(node.target, node.value, node.annotation)

    def assign(self, target: ast.expr, source: ast.expr, annotation: ast.expr | None) -> None:
        value = self.eval(source)
        info = None if annotation is None else self.struct_info(annotation)
        try:
            self.bind(target, value, info)
        except ParseError:
            raise
        except WrongAnnotation as problem:
            raise self.error(annotation, problem) from problem
        except Exception as problem:
            raise self.error(source, problem) from problem

    def stmt_AugAssign(self, node: ast.AugAssign) -> None:
        self.bind(node.target, binary_operator(node.op)(self.eval(node.target), self.eval(node.value)))

    def stmt_Expr(self, node: ast.Expr) -> None:
        value = self.eval(node.value)
        if value is None or isinstance(value, (str, Var)):
            return
        if not isinstance(value, Expr):
            raise self.error(node.value, f"this is neither a statement nor a graph value: {value!r}")
        var = self.state.bind(value, name="_", span=self.source.span(node))
        info = var.struct_info
        if not (isinstance(info, TupleStructInfo) and not info.fields):
            raise self.error(node.value, f"this gives {info}: assign it to a name, `_` if it is not used")

    def stmt_Return(self, node: ast.Return) -> None:
        value = None if node.value is None else self.eval(node.value)
        if value is None:
            raise self.error(node, "`return` in a graph function expects a value; R.tuple() is none")
        self.state.returns(self.located(as_graph_expr(value), node.value))

    def stmt_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            kind = self.eval(decorator.func if isinstance(decorator, ast.Call) else decorator)
            options = self.module.options_of(decorator)
            if kind is self.decorator:
                self.local_function(node, options)
                return
            if getattr(kind, "makes_macro", False):
                hygienic = bool(options.get("hygienic", True))
                self.scope.names[node.name] = Macro(self.source, node, self.scope, hygienic)
                return
        raise self.error(node, "a function inside of a graph function is one itself: decorate it with @R.function")

    def local_function(self, node: ast.FunctionDef, options: dict[str, Any]) -> None:
        """A function as a value of the graph. It may call itself if it says what it returns."""
        span = self.source.span(node)
        var = self.state.variable(node.name, self.signature(node, options), span)
        if node.returns is not None:
            self.scope.names[node.name] = var
        function = self.parse_function(node, {**options, "private": True})
        var.set_struct_info(function.struct_info)
        self.state.append(VarBinding(var, self.builder.normalize(function), span=span))
        self.scope.names[node.name] = var

    # -- blocks --

    def stmt_With(self, node: ast.With) -> None:
        frame = self.eval(node.items[0].context_expr)
        if not isinstance(frame, Frame) or len(node.items) != 1 or node.items[0].optional_vars is not None:
            raise self.error(node.items[0].context_expr, "expected `with R.dataflow():` or `with R.If(condition):`")
        if frame.kind == "dataflow":
            self.dataflow(node)
        elif frame.kind == "If":
            self.condition(frame.condition, self.branch(node, 0, "Then"), self.branch(node, 1, "Else"), node)
        else:
            raise self.error(node, f"`with {frame}():` stands inside of `with R.If(condition):`")

    def dataflow(self, node: ast.With) -> None:
        self.state.begin_dataflow()
        with self.new_scope() as scope:
            for stmt in node.body:
                self.statement(stmt)
        self.state.end_dataflow()
        for name, value in scope.names.items():
            if isinstance(value, DataflowVar) and self.checked:
                self.inside.add(name)
            else:
                self.scope.names[name] = value

    def stmt_If(self, node: ast.If) -> None:
        condition = self.eval(node.test)
        if not isinstance(condition, (Expr, ExprOp)):
            for inner in node.body if condition else node.orelse:
                self.statement(inner)
            return
        if not node.orelse:
            raise self.error(node, "a condition of a graph function needs both branches: add `else:`")
        self.condition(condition, node.body, node.orelse, node)

    def branch(self, node: ast.With, position: int, kind: str) -> list[ast.stmt]:
        """The statements below `with R.Then():` or `with R.Else():`."""
        inner = node.body[position] if len(node.body) == 2 else None
        frame = self.eval(inner.items[0].context_expr) if isinstance(inner, ast.With) else None
        if not (isinstance(inner, ast.With) and isinstance(frame, Frame) and frame.kind == kind):
            raise self.error(node, "R.If holds `with R.Then():` and then `with R.Else():`, and nothing else")
        return inner.body

    def condition(self, condition: Any, then: list[ast.stmt], orelse: list[ast.stmt], node: ast.stmt) -> None:
        """A value that depends on a condition: that of the last variable of either branch."""
        condition = self.builder.normalize_argument(as_graph_expr(condition))
        branches = [self.read_branch(then), self.read_branch(orelse)]
        (name, first, info), (other, second, other_info) = branches
        if name != other:
            raise self.error(
                orelse[-1],
                f"both branches end with the same variable, but one ends with `{name}`, the other with `{other}`",
            )
        span = self.source.span(node)
        value = IfExpr(condition, first, second, span=span)
        agreed = info if info is not None and info == other_info else None
        self.scope.names[name] = self.state.bind(value, agreed, name, span)

    def read_branch(self, body: list[ast.stmt]) -> tuple[str, SeqExpr, StructInfo | None]:
        """The name of a branch's last variable, its bindings, and what is known of that variable outside."""
        state = self.state
        state.begin_branch()
        with self.new_scope():
            for stmt in body:
                self.statement(stmt)
        try:
            name, seq, info = state.end_branch()
        except OneIRError as problem:
            raise self.error(body[-1], problem) from problem
        return name, seq, info if self.builder.well_defined(info) is info else None


def _is_graph_value(value: Any) -> bool:
    """Whether a tuple of a script is a tuple of the graph: all that it holds can be in one."""
    if isinstance(value, tuple):
        return all(_is_graph_value(v) for v in value)
    return isinstance(value, (Expr, ExprOp, numbers.Number))
