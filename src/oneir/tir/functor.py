"""Visitors and mutators of statements and expressions whose methods have their published names.

    @functor.mutator
    class Halve(PyStmtExprMutator):
        def visit_for_(self, loop):
            loop = super().visit_for_(loop)
            return loop.replace(extent=loop.extent // 2)

    func.with_body(Halve().visit_stmt(func.body))

Override `visit_X_`; call the method of the base class to go on below. `visit_stmt` and `visit_expr` are called for each
statement and expression. Variables and buffers where they are defined, and what a buffer says of itself, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from ..ir.expr import PrimExpr
from ..ir.node import node_classes
from ..ir.visitor import Dispatch, deep_recursion
from .expr import IterVar
from .stmt import Stmt

C = TypeVar("C", bound=type)


def _method_name(node_class: type) -> str:
    """`visit_buffer_load_` for `BufferLoad`, `visit_eq_` for `EQ`."""
    return f"visit_{re.sub('(?<=[a-z])(?=[A-Z])', '_', node_class.__name__).lower()}_"


class _Functor(Dispatch):
    @classmethod
    def _method_for(cls, node_class: type) -> Callable[[Any, Any], Any]:
        return getattr(cls, _method_name(node_class))

    def generic_visit(self, node: Any) -> Any:
        """Goes on with the children of a node."""
        raise NotImplementedError

    def _child(self, node: Any) -> Any:
        if isinstance(node, Stmt):
            return self.visit_stmt(node)
        if isinstance(node, PrimExpr):
            return self.visit_expr(node)
        return node if node.is_shared and not isinstance(node, IterVar) else self.generic_visit(node)

    def visit_stmt(self, stmt: Stmt) -> Any:
        """Calls the method for the statement's class."""
        with deep_recursion:
            return self._handle(stmt)

    def visit_expr(self, expr: PrimExpr) -> Any:
        """Calls the method for the expression's class."""
        with deep_recursion:
            return self._handle(expr)


class PyStmtExprVisitor(_Functor):
    """Visits a statement or expression and all below it."""

    def generic_visit(self, node: Any) -> None:
        """Visits the children of a node."""
        node.visit_children(self._child)


class PyStmtExprMutator(_Functor):
    """Rebuilds a statement or expression from what its methods return; what did not change is the identical object."""

    def generic_visit(self, node: Any) -> Any:
        """The node with its children mapped."""
        return node.map_children(self._child)


for _node_class in list(node_classes.values()):
    if issubclass(_node_class, (Stmt, PrimExpr)):
        for _functor in (PyStmtExprVisitor, PyStmtExprMutator):
            setattr(_functor, _method_name(_node_class), _functor.generic_visit)


def visitor(visitor_cls: C) -> C:
    """A decorator that visitor classes may have; `_cls` of a decorated class is what others may derive from."""
    vars_of: Any = visitor_cls
    vars_of._cls = visitor_cls
    return visitor_cls


mutator = visitor
"""A decorator that mutator classes may have; `_cls` of a decorated class is what others may derive from."""
