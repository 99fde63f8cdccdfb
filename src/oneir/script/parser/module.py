"""Reads functions and modules: from what a decorator was given, or from a text.

Each dialect registers its decorator with `register_dialect`; a module then reads every member with the dialect of its
decorator, first all signatures, then all bodies, so members may call one another in any order.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
import textwrap
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from ...ir.diagnostics import report
from ...ir.expr import GlobalVar
from ...ir.json import load_json
from ...ir.module import BaseFunc, IRModule
from ...relax import analysis as relax_analysis
from ...relax.base_py_module import factory
from ...relax.block_builder import function_struct_info
from ...relax.expr import Function
from ...runtime.error import ParseError, WellFormedError
from ...runtime.hook import Hook
from ...tir import analysis as tir_analysis
from ...tir.function import PrimFunc
from ..acting import reading
from .evaluator import Evaluator
from .scope import MISSING, Scope, closure_of, names_around
from .source import Source, SourceFile, find_class, find_function, source_of_text


class Dialect(Protocol):
    """How the functions of one decorator are read."""

    def declare(self, module: ModuleParser, node: ast.FunctionDef, options: dict[str, Any], var: GlobalVar) -> None:
        """Notes what other functions must know of this one to call it."""
        ...

    def define(self, module: ModuleParser, node: ast.FunctionDef, options: dict[str, Any]) -> BaseFunc | None:
        """The function; None when it is none of the program's."""
        ...


_dialects: dict[int, tuple[Any, Dialect]] = {}


def register_dialect(decorator: Any, dialect: Dialect) -> None:
    """Says that functions under `decorator` are read by `dialect`."""
    _dialects[id(decorator)] = (decorator, dialect)


dispatched: Hook[[str], Dialect | None] = Hook("dispatched", "oneir.script.parser.core.parser", lambda token: None)
"""The dialect of a token that programs have registered methods for, as who imports that module may."""


def _dialect_of_token(decorator: Any) -> Dialect | None:
    """The dialect of a decorator that has a token."""
    token = getattr(decorator, "dispatch_token", None)
    return dispatched(token) if isinstance(token, str) else None


_WITH_PYTHON = "BasePyModule"
"""What the class of a module with functions of Python derives from."""


class ModuleNames:
    """What the class of a module stands for inside of it: `cls.f` is the module's function f."""

    def __init__(self, names: Mapping[str, Any]):
        self.names = names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.names:
            raise AttributeError(f"the module has no function `{name}`")
        return self.names[name]

    def __dir__(self) -> list[str]:
        return list(self.names)


class ModuleParser(Evaluator):
    """Reads the members of a module, or a lone function."""

    def __init__(self, source: Source, scope: Scope, checked: bool = True):
        super().__init__(source, scope)
        self.checked = checked
        """Whether what is read is to be well formed."""
        self.members: dict[str, GlobalVar] = {}
        """The functions of the module, by name."""
        self.added: dict[GlobalVar, BaseFunc] = {}
        """Functions that reading the members has added."""
        self.return_dtypes: dict[GlobalVar, str] = {}
        self.attrs: dict[str, Any] = {}
        self.global_infos: dict[str, list[Any]] = {}
        self.allows_python = False
        """Whether the module may have functions of Python."""

    def call(self, node: ast.Call, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        value = super().call(node, callee, args, kwargs)
        return value.apply(self) if isinstance(value, ModuleNote) else value

    def dialect_of(self, node: ast.FunctionDef) -> tuple[Dialect, dict[str, Any]]:
        """The dialect of a function, and the options that its decorator was given."""
        for decorator in node.decorator_list:
            value = self.eval(decorator.func if isinstance(decorator, ast.Call) else decorator)
            found = _dialects.get(id(value))
            dialect = found[1] if found is not None else _dialect_of_token(value)
            if dialect is not None:
                return dialect, self.options_of(decorator)
        raise self.error(
            node.decorator_list[0] if node.decorator_list else node,
            f"expected `{node.name}` to be decorated with @T.prim_func or @R.function",
        )

    def options_of(self, decorator: ast.expr) -> dict[str, Any]:
        """The keyword arguments of a decorator."""
        keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
        return {k.arg: self.eval(k.value) for k in keywords if k.arg}

    def parse_module(self, node: ast.ClassDef, closures: Mapping[str, Mapping[str, Any]]) -> IRModule:
        """The module that a class describes; `closures` are the variables that each member sees around the class."""
        self.allows_python = any(ast.unparse(base).endswith(_WITH_PYTHON) for base in node.bases)
        members: list[tuple[ast.FunctionDef, Dialect, dict[str, Any], GlobalVar]] = []
        functions: dict[GlobalVar, BaseFunc] = {}
        names = self.members
        with self.new_scope() as scope:
            scope.names[node.name] = scope.names["cls"] = ModuleNames(names)
            for item in node.body:
                if isinstance(item, ast.FunctionDef):
                    dialect, options = self.dialect_of(item)
                    members.append((item, dialect, options, self.add_member(item, item.name)))
                else:
                    self.class_statement(item, functions)
            for item, dialect, options, var in members:
                with self.new_scope() as inside:
                    inside.names.update({k: v for k, v in closures.get(item.name, {}).items() if k not in names})
                    dialect.declare(self, item, options, var)
            for item, dialect, options, var in members:
                with self.new_scope() as inside:
                    inside.names.update({k: v for k, v in closures.get(item.name, {}).items() if k not in names})
                    function = dialect.define(self, item, options)
                if function is not None:
                    functions[var] = function
                    var.set_struct_info(function_struct_info(function))
        functions.update(self.added)
        return IRModule(functions, self.attrs, self.global_infos, self.source.span(node))

    def add_member(self, node: ast.stmt, name: str) -> GlobalVar:
        """A new function of the module."""
        if name in self.members:
            raise self.error(node, f"the module has two functions with the name `{name}`")
        self.members[name] = self.scope.names[name] = var = GlobalVar(name)
        return var

    def class_statement(self, node: ast.stmt, functions: dict[GlobalVar, BaseFunc]) -> None:
        """What may stand in the class of a module beside its functions."""
        if isinstance(node, ast.Expr):
            value = self.eval(node.value)
            if value is not None and not isinstance(value, str):
                raise self.error(node, "expected I.module_attrs(...) or I.module_global_infos(...) here")
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], self.eval(node.value)
            if isinstance(value, BaseFunc) and isinstance(target, ast.Name):
                var = self.add_member(node, target.id)  # f = R.ExternFunc("env.f")
                functions[var] = value
                var.set_struct_info(function_struct_info(value))
            else:
                self.bind_names(target, value)
        elif not isinstance(node, ast.Pass):
            raise self.error(node, f"`{type(node).__name__}` cannot stand in a module; it holds functions")


class ModuleNote:
    """A statement about the module around it."""

    def __init__(self, apply: Callable[[ModuleParser], Any]):
        self.apply = apply


@contextmanager
def _reported() -> Generator[None]:
    """Lets the program's own renderer of diagnostics, if it has set one, see an error before it is raised."""
    try:
        with reading():
            yield
    except ParseError as error:
        report(error)
        raise


@_reported()
def parse_decorated(function: Any, decorator: Any, options: dict[str, Any], frame: FrameType) -> Any:
    """What a dialect's decorator returns: the function of the program.

    A member of a module stays as it is, for the module to read.
    """
    source, node, parent = find_function(function)
    parser = ModuleParser(source, Scope(outer=names_around(frame, function)))
    if isinstance(parent, ast.ClassDef) and any(_makes_module(parser, d) for d in parent.decorator_list):
        return function
    result = _dialects[id(decorator)][1].define(parser, node, options)
    if result is not None and options.get("check_well_formed", True):
        verify(result)
    return result


def _makes_module(parser: ModuleParser, decorator: ast.expr) -> bool:
    try:
        return parser.eval(decorator.func if isinstance(decorator, ast.Call) else decorator) in _module_decorators
    except ParseError:
        return False


def ir_module(cls: Any = None, *, check_well_formed: bool = True) -> Any:
    """`@I.ir_module`: a class whose members are functions, as an `IRModule`."""
    if cls is None:
        frame = sys._getframe(1)
        return lambda decorated: module_of_class(decorated, check_well_formed, frame)
    return module_of_class(cls, check_well_formed, sys._getframe(1))


_module_decorators: list[Any] = [ir_module]


def register_module_decorator(decorator: Any) -> None:
    """Makes a decorator known whose class is read as a module (`module_of_class`), so that its functions wait."""
    _module_decorators.append(decorator)


@_reported()
def module_of_class(cls: type, check_well_formed: bool, frame: FrameType) -> Any:
    """A class whose members are functions, written where `frame` is, as a module.

    Of a class that derives from `BasePyModule`, the result may be called: it compiles the module for a device.
    """
    source, node = find_class(cls, frame)
    parser = ModuleParser(source, Scope(outer=names_around(frame)), check_well_formed)
    closures = {name: closure_of(member) for name, member in vars(cls).items()}
    module = parser.parse_module(node, closures)
    if check_well_formed:
        verify(module)
    if parser.allows_python:
        return factory(cls, module)
    return module


class IllFormedScript(ParseError, WellFormedError):
    """A script that was read, but breaks a rule of the program representation."""

    span: object = None


def verify(program: Any) -> None:
    """Raises `IllFormedScript` when a function or module breaks a rule of TensorIR or of graphs."""
    try:
        if isinstance(program, (PrimFunc, IRModule)):
            tir_analysis.verify_well_formed(program)
        if isinstance(program, (Function, IRModule)):
            relax_analysis.verify_well_formed(program)
    except WellFormedError as problem:
        error = IllFormedScript(str(problem))
        error.span = problem.span
        raise error from problem


# -- texts --


@_reported()
def from_source(program: str, extra_vars: Mapping[str, Any] | None = None, check_well_formed: bool = True) -> Any:
    """The function or module that a text defines; of several definitions the last.

    The text may import; `I`, `T`, `R`, `tir` and `tvm` are known without. `extra_vars` are further names. Raises
    `ParseError`, which underlines the place, for a text that cannot be read, or, unless `check_well_formed` is False,
    is no well-formed program.
    """
    source = source_of_text(program if program[:1] not in (" ", "\t", "\n") else textwrap.dedent(program))
    known = (dict(extra_vars or {}), _known_names(), vars(builtins))
    return TextParser(source, Scope(outer=known), check_well_formed).parse()


def _known_names() -> dict[str, Any]:
    package, script = importlib.import_module("oneir"), importlib.import_module("oneir.script")
    return {
        **{"I": script.ir, "ir": script.ir, "T": script.tir, "tir": importlib.import_module("oneir.tir.op")},
        **{"R": script.relax, "relax": script.relax, "tvm": package, "oneir": package},
    }


class TextParser(ModuleParser):
    """Reads a whole text: imports, Python values, functions and modules."""

    def parse(self) -> Any:
        """The last definition of the text."""
        assert isinstance(self.source, SourceFile)
        body = self.source.tree.body
        result, options = None, {}
        # What the functions refer to as metadata may be printed after them.
        for node in sorted(body, key=lambda n: not _assigns_metadata(n)):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.import_names(node)
            elif isinstance(node, ast.FunctionDef):
                dialect, options = self.dialect_of(node)
                result = self.scope.names[node.name] = dialect.define(self, node, options)
            elif isinstance(node, ast.ClassDef):
                decorator = self.module_decorator(node)
                options = self.options_of(decorator)
                checked = self.checked and bool(options.get("check_well_formed", True))
                result = ModuleParser(self.source, self.scope, checked).parse_module(node, {})
                self.scope.names[node.name] = result
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                self.bind_names(node.targets[0], self.metadata(node))
            elif not (
                isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            ):
                raise self.error(node, "expected a function or a module: the text of a script holds definitions")
        if result is None:
            raise ParseError("error: the text defines neither a function (@T.prim_func) nor a module (@I.ir_module)")
        if self.checked and options.get("check_well_formed", True):
            verify(result)
        return result

    def module_decorator(self, node: ast.ClassDef) -> ast.expr:
        """What marks a class as a module."""
        decorator = next((d for d in node.decorator_list if _makes_module(self, d)), None)
        if decorator is None:
            raise self.error(node, f"expected the class `{node.name}` to be decorated with @I.ir_module")
        return decorator

    def metadata(self, node: ast.Assign) -> Any:
        """The value of an assignment; the metadata that is printed with a module is read from its JSON."""
        value = node.value
        if not (_assigns_metadata(node) and isinstance(value, ast.Call) and len(value.args) == 1):
            return self.eval(value)
        return load_json(self.eval(value.args[0]))

    def import_names(self, node: Any) -> None:
        """Binds the names of an import; what other systems call their package is this one."""
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            try:
                if isinstance(node, ast.ImportFrom):
                    value = _imported(node.module or "", alias.name)
                elif alias.asname:
                    value = _imported_module(alias.name)
                else:
                    value = _imported_module(alias.name.split(".")[0])
            except (ImportError, AttributeError) as problem:
                raise self.error(node, f"cannot import `{alias.name}`: {problem}") from problem
            if value is not MISSING:
                self.scope.names[name] = value


def _assigns_metadata(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "metadata"


def _imported_module(path: str) -> Any:
    root, _, rest = path.partition(".")
    root = "oneir" if root == "tvm" else root
    return importlib.import_module(f"{root}.{rest}" if rest else root)


def _imported(path: str, name: str) -> Any:
    if path == "__future__":
        return MISSING
    module = _imported_module(path)
    if hasattr(module, name):
        return getattr(module, name)
    return importlib.import_module(f"{module.__name__}.{name}")
