"""Reads `@T.prim_func`: statements of the script as statements of the program."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, ClassVar

from ...ir.expr import Call, ExprOp, GlobalVar, PrimExpr, Var, as_expr, const
from ...ir.operators import not_equal
from ...ir.visitor import deep_recursion
from ...runtime.error import OneIRError, ParseError
from ...tir import op as tir_op
from ...tir.buffer import Buffer, vector_index
from ...tir.expr import IterVar
from ...tir.function import PrimFunc
from ...tir.stmt import (
    BufferRegion,
    BufferStore,
    Evaluate,
    IfThenElse,
    SeqStmt,
    Stmt,
    While,
)
from ..tir.dtypes import var_of
from ..tir.frame import Assert, Frame, LetStmt_
from ..tir.loop import ForFrame, serial
from ..tir.meta import Macro, meta_var
from ..tir.note import Note, arg, func_ret, name_fresh
from ..tir.state import FunctionState
from .assemble import sequence, with_root_block
from .evaluator import Evaluator, binary_operator, locate
from .scope import Scope
from .source import Source

_LOOPS = "range, T.serial, T.grid, T.parallel, T.vectorized, T.unroll or T.thread_binding"
_UNSUPPORTED = {
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
}


class Suite:
    """The statements of one suite; a frame opened in it takes in all statements that follow."""

    def __init__(self) -> None:
        self.stmts: list[Stmt] = []
        self.open_frames: list[tuple[int, Frame, Any]] = []


class TIRParser(Evaluator):
    """Reads the body of a prim_func."""

    _statements: ClassVar[dict[type, Callable[[Any, Any], None]]] = {}

    def __init__(self, source: Source, scope: Scope, return_dtypes: dict[GlobalVar, str] | None = None):
        super().__init__(source, scope)
        self.return_dtypes = return_dtypes or {}
        self.state = FunctionState("")
        self.suite = Suite()

    # -- functions --

    def parse_function(self, node: ast.FunctionDef, private: bool) -> PrimFunc:
        """The function that a definition describes."""
        state = self.state = FunctionState(node.name)
        with deep_recursion, self.new_scope():
            self.parameters(node)
            if node.returns is not None:
                func_ret(self.annotation(node.returns)).apply(state)
            body = self.suite_of(node.body)
        body = self.located(with_root_block(body, state), node)
        attrs = dict(state.attrs or {})
        if not private:
            attrs.setdefault("global_symbol", state.name)
        return PrimFunc(state.params, body, state.ret_type, state.buffer_map, attrs, span=self.source.span(node))

    def parameters(self, node: ast.FunctionDef) -> None:
        args = node.args
        odd = [*args.posonlyargs, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg)), *args.defaults]
        if odd:
            raise self.error(odd[0], "a prim_func takes plain parameters: no defaults, no stars, no keyword-only ones")
        for param in args.args:
            if param.annotation is None:
                raise self.error(
                    param, f'parameter `{param.arg}` expects an annotation, for instance T.Buffer((128,), "float32")'
                )
            value = self.annotation(param.annotation)
            if isinstance(value, Buffer) and not isinstance(param.annotation, (ast.Call, ast.Subscript)):
                value = _fresh_buffer(value)
            try:
                found = arg(param.arg, value if isinstance(value, Buffer) else var_of(value)).apply(self.state)
            except Exception as problem:
                raise self.error(param.annotation, problem) from problem
            found.span = self.source.span(param)
            self.scope.names[param.arg] = found

    def annotation(self, node: ast.expr) -> Any:
        """The value of an annotation, which may be written as a string."""
        return (
            self.eval_text(node) if isinstance(node, ast.Constant) and isinstance(node.value, str) else self.eval(node)
        )

    # -- suites --

    def suite_of(self, nodes: list[ast.stmt]) -> Stmt:
        """The statement that a suite describes."""
        outer, self.suite = self.suite, Suite()
        try:
            for node in nodes:
                self.statement(node)
            return self.finish(self.suite)
        finally:
            self.suite = outer

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

    def finish(self, suite: Suite) -> Stmt:
        """The suite as one statement, every frame closed around what follows it."""
        while suite.open_frames:
            start, frame, node = suite.open_frames.pop()
            body = sequence(suite.stmts[start:])
            del suite.stmts[start:]
            stmt = self.close(frame, body, node, node)
            if stmt is not None:
                suite.stmts.append(stmt)
        return sequence(suite.stmts)

    def close(self, frame: Frame, body: Stmt, node: Any, blame: Any) -> Stmt | None:
        """The statement that a frame makes of its body; `blame` is where a mistake in it is shown."""
        try:
            stmt = frame.close(self.state, body)
        except ParseError:
            raise
        except Exception as problem:
            raise self.error(blame, problem) from problem
        return None if stmt is None else self.located(stmt, node)

    def located(self, stmt: Stmt, node: Any) -> Stmt:
        """A statement with the span of the syntax node that it came from."""
        locate(stmt, self.source.span(node))
        return stmt

    def add(self, stmt: Stmt, node: Any) -> None:
        """Appends a statement that came from `node`."""
        self.suite.stmts.append(self.located(stmt, node))

    def open(self, frame: Frame, node: Any) -> Any:
        """Opens a frame to the end of the suite."""
        self.suite.open_frames.append((len(self.suite.stmts), frame, node))
        return frame.open(self.state)

    # -- names --

    def bind(self, target: ast.expr, value: Any, node: Any) -> None:
        """Assigns: a name, several, or an element of a buffer."""
        if isinstance(target, ast.Subscript):
            self.store(target, value, node)
            return
        if isinstance(value, meta_var) and isinstance(target, (ast.Tuple, ast.List)):
            value = list(value)
        for name, item in self.unpack(target, value):
            if isinstance(name, ast.Name):
                self.bind_name(name, item, node)
            elif isinstance(name, ast.Subscript):
                self.store(name, item, node)
            else:
                raise self.error(name, "expected a name or an element of a buffer to assign to")

    def bind_name(self, name: ast.Name, value: Any, node: Any) -> None:
        """Gives a name its meaning: a value becomes a `LetStmt`, anything else stays what it is."""
        if isinstance(value, meta_var):
            self.scope.names[name.id] = value.value
            return
        if isinstance(value, Frame):
            value = self.open(value, node)
        elif isinstance(value, (ExprOp, int, float)) and not isinstance(value, IterVar):
            known = not isinstance(value, Var) or (value.name != "" and self.scope.binds(value))
            if known:
                self.check_update(name)
                self.scope.values.add(name.id)
            if known and isinstance(value, ExprOp):
                value = self.open(LetStmt_(value), node)
        else:
            self.scope.values.discard(name.id)
        self.check_definition(name, value)
        self.name(value, name)
        self.scope.names[name.id] = value

    def check_update(self, name: ast.Name) -> None:
        """A name bound to a value outside of a loop or branch cannot be given another inside of it."""
        owner = self.scope.owner(name.id)
        if owner is not None and owner is not self.scope and name.id in owner.values:
            raise self.error(
                name,
                f"`{name.id}` stands for a value that was computed outside of this loop or branch, and assigning here "
                f'would not change it there; keep it in a buffer: {name.id} = T.alloc_buffer((1,), "float32")',
            )

    def check_definition(self, name: ast.Name, value: Any) -> None:
        """The name of a buffer or an axis stands for it in all of its scope."""
        known = self.scope.names.get(name.id)
        fresh = isinstance(value, (Var, Buffer)) and value.name == ""
        if fresh and isinstance(known, (Var, Buffer)) and name.id not in self.scope.values:
            raise self.error(name, f"`{name.id}` is defined in this scope already; take another name")

    def name(self, value: Any, name: ast.Name) -> None:
        """Names what has just been made, and the elements of a list of such."""
        if isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                name_fresh(item, f"{name.id}_{i}")
            return
        name_fresh(value, name.id)
        if isinstance(value, (Var, Buffer)) and value.span is None:
            value.span = self.source.span(name)

    def store(self, target: ast.Subscript, value: Any, node: Any) -> None:
        """`buffer[indices] = value`"""
        base = self.eval(target.value)
        indices = self.eval(target.slice)
        if not isinstance(base, Buffer):
            if isinstance(base, (ExprOp, BufferRegion)) or not hasattr(base, "__setitem__"):
                raise self.error(target.value, f"`{ast.unparse(target.value)}` is not a buffer; it cannot be stored to")
            base[indices] = value.value if isinstance(value, meta_var) else value
            return
        items = indices if isinstance(indices, (tuple, list)) else (indices,)
        try:
            stmt = BufferStore(
                base,
                value,
                [vector_index(i, base.shape[axis]) if isinstance(i, slice) else i for axis, i in enumerate(items)],
            )
        except Exception as problem:
            raise self.error(node if isinstance(problem, ParseError) else target, problem) from problem
        self.add(stmt, node)

    # -- calls --

    def call(self, node: ast.Call, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(callee, Macro):
            return self.expand(callee, node, args, kwargs)
        value = super().call(node, callee, args, kwargs)
        if isinstance(value, Call) and isinstance(value.op, GlobalVar):
            return value.replace(dtype=self.return_dtypes.get(value.op, value.dtype))
        return value.apply(self.state) if isinstance(value, Note) else value

    def expand(self, macro: Macro, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> None:
        """The statements of a macro, in the place of its call."""
        bound = macro.bind(args, kwargs)
        source, scope = self.source, self.scope
        inside = Scope(macro.scope if macro.hygienic else scope)
        inside.names.update(bound)
        self.source, self.scope = macro.source, inside
        try:
            body = self.suite_of(macro.node.body)
        finally:
            self.source, self.scope = source, scope
        for stmt in body.seq if isinstance(body, SeqStmt) else [body]:
            self.add(stmt, node)

    # -- statements --

    def stmt_unsupported(self, node: ast.stmt) -> None:
        what = _UNSUPPORTED.get(type(node), f"`{type(node).__name__}`")
        raise self.error(node, f"{what} cannot stand in a prim_func")

    def stmt_Pass(self, node: ast.Pass) -> None:
        return

    def stmt_Nonlocal(self, node: ast.Nonlocal) -> None:
        """Says that names come from around the function, as they do anyway."""

    def stmt_Global(self, node: ast.Global) -> None:
        """Says that names come from around the function, as they do anyway."""

    def stmt_Assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            raise self.error(node, "assign to one target at a time, not `a = b = value`")
        target = node.targets[0]
        value = self.vector_value(node.value)
        self.bind(target, value, node)

    def vector_value(self, node: ast.expr) -> Any:
        """The right side of an assignment, where `A[0:16]` is the vector of 16 elements."""
        value = self.eval(node)
        if isinstance(node, ast.Subscript) and isinstance(value, BufferRegion) and _has_bounds(node.slice):
            value = as_expr(value)
            locate(value, self.source.span(node))
        return value

    def stmt_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None or not isinstance(node.target, ast.Name):
            raise self.error(node, "expected `name: type = value`")
        value = self.eval(node.value)
        var = var_of(self.annotation(node.annotation))
        if not isinstance(value, (ExprOp, int, float, str)):
            raise self.error(node.value, f"expected an expression of dtype {var.dtype}, found {value!r}")
        value = (
            as_expr(value) if isinstance(value, ExprOp) else const(value, None if isinstance(value, str) else var.dtype)
        )
        name = node.target
        self.name(var, name)
        try:
            frame = LetStmt_(value, var=var)
        except Exception as problem:
            raise self.error(node.value, problem) from problem
        self.scope.names[name.id] = self.open(frame, node)
        self.scope.values.add(name.id)

    def stmt_AugAssign(self, node: ast.AugAssign) -> None:
        old = self.eval(node.target)
        value = binary_operator(node.op)(old, self.eval(node.value))
        if isinstance(value, PrimExpr) and value.span is None:
            locate(value, self.source.span(node))
        self.bind(node.target, value, node)

    def stmt_Expr(self, node: ast.Expr) -> None:
        value = self.eval(node.value)
        if value is None or isinstance(value, str):
            return
        for item in value if isinstance(value, (list, tuple)) else (value,):
            self.emit(item, node)

    def emit(self, value: Any, node: ast.Expr) -> None:
        """What an expression stands for as a statement."""
        if isinstance(value, Frame):
            self.open(value, node)
        elif isinstance(value, Stmt):
            self.add(value, node)
        elif isinstance(value, (ExprOp, bool, int)):
            self.add(Evaluate(value), node)
        elif value is not None and not isinstance(value, (Buffer, str)):
            raise self.error(node.value, f"this is neither a statement nor an expression: {value!r}")

    def stmt_For(self, node: ast.For) -> None:
        frame = self.loop_of(node.iter)
        if not isinstance(frame, ForFrame):
            raise self.error(node.iter, f"expected a loop of the program: {_LOOPS}; found {frame!r}")
        if node.orelse:
            raise self.error(node.orelse[0], "a loop of the program has no `else`")
        with self.new_scope() as scope:
            value = frame.open(self.state)
            pairs = [(node.target, value)] if isinstance(node.target, ast.Name) else self.unpack(node.target, value)
            for target, item in pairs:
                if not isinstance(target, ast.Name):
                    raise self.error(target, "expected the name of a loop variable")
                scope.names[target.id] = item
                # The value of a loop with a step is no variable; its name is that of the variable in it.
                self.name(item if frame.step == 1 else frame.variables[0], target)
            body = self.suite_of(node.body)
        self.add(frame.close(self.state, body), node)

    def loop_of(self, node: ast.expr) -> Any:
        """What a `for` runs over; Python's `range` is a serial loop, whose bounds may be expressions."""
        if not (isinstance(node, ast.Call) and self.eval(node.func) is range):
            found = self.eval(node)
            return serial(found.start, found.stop, step=found.step) if isinstance(found, range) else found
        args = self.sequence(node.args)
        options = {keyword.arg: self.eval(keyword.value) for keyword in node.keywords}
        if not 1 <= len(args) <= 3 or options.keys() - {"annotations"}:
            raise self.error(node, "range expects begin, end and step, or the end alone, and perhaps annotations=")
        try:
            annotations = options.get("annotations")
            return serial(*args[:2], step=args[2] if len(args) == 3 else None, annotations=annotations)
        except OneIRError as problem:
            raise self.error(node, problem) from problem

    def condition(self, node: ast.expr) -> Any:
        """A condition; an integer holds unless it is 0, as in Python."""
        value = self.eval(node)
        if isinstance(value, ExprOp) and (expr := as_expr(value)).dtype.is_int and not expr.dtype.is_bool:
            value = not_equal(expr, 0)
            locate(value, self.source.span(node))
        return value

    def stmt_While(self, node: ast.While) -> None:
        condition = self.condition(node.test)
        with self.new_scope():
            body = self.suite_of(node.body)
        self.add(While(condition, body), node)

    def stmt_If(self, node: ast.If) -> None:
        condition = self.condition(node.test)
        if not isinstance(condition, ExprOp):
            for inner in node.body if condition else node.orelse:
                self.statement(inner)
            return
        with self.new_scope():
            then_case = self.suite_of(node.body)
        else_case = None
        if node.orelse:
            with self.new_scope():
                else_case = self.suite_of(node.orelse)
        try:
            stmt = IfThenElse(condition, then_case, else_case)
        except Exception as problem:
            raise self.error(node.test, problem) from problem
        self.add(stmt, node)

    def stmt_Assert(self, node: ast.Assert) -> None:
        message = "" if node.msg is None else self.eval(node.msg)
        condition = self.eval(node.test)
        self.open(Assert(condition, message), node)

    def stmt_With(self, node: ast.With) -> None:
        frames: list[tuple[Frame, Any]] = []
        with self.new_scope():
            for item in node.items:
                frame = self.eval(item.context_expr)
                if not isinstance(frame, Frame):
                    raise self.error(
                        item.context_expr, f"expected T.block, T.init, T.attr or the like after `with`, found {frame!r}"
                    )
                try:
                    value = frame.open(self.state)
                except Exception as problem:
                    raise self.error(item.context_expr, problem) from problem
                frames.append((frame, item.context_expr))
                if item.optional_vars is not None:
                    if value is None:
                        raise self.error(item.optional_vars, f"`{ast.unparse(item.context_expr)}` has no value to name")
                    for name, part in self.unpack(item.optional_vars, value):
                        if not isinstance(name, ast.Name):
                            raise self.error(name, "expected a name after `as`")
                        self.name(part, name)
                        self.scope.names[name.id] = part
            stmt: Stmt | None = self.suite_of(node.body)
        for frame, at in reversed(frames):
            stmt = self.close(frame, stmt or Evaluate(0), node, at)
        if stmt is not None:
            self.suite.stmts.append(stmt)

    def stmt_Return(self, node: ast.Return) -> None:
        if node.value is None:
            raise self.error(node, "`return` in a prim_func expects a value; T.thread_return() ends a thread")
        self.add(Evaluate(tir_op.ret(self.eval(node.value))), node)

    def stmt_Break(self, node: ast.Break) -> None:
        self.add(Evaluate(tir_op.break_loop()), node)

    def stmt_Continue(self, node: ast.Continue) -> None:
        self.add(Evaluate(tir_op.continue_loop()), node)

    def stmt_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            kind = self.eval(decorator.func if isinstance(decorator, ast.Call) else decorator)
            hygienic = True
            if isinstance(decorator, ast.Call):
                hygienic = all(self.truth(k.value) for k in decorator.keywords if k.arg == "hygienic")
            if getattr(kind, "makes_macro", False):
                self.scope.names[node.name] = Macro(self.source, node, self.scope, hygienic)
                return
        raise self.error(node, "a function inside of a prim_func must be a macro: decorate it with @T.inline")


def _has_bounds(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(isinstance(p, ast.Slice) and p.lower is not None and p.upper is not None for p in parts)


def _fresh_buffer(buffer: Buffer) -> Buffer:
    """A buffer of the same form for one more parameter."""
    return buffer.replace(data=buffer.data.copy_with_name(""), name="")
