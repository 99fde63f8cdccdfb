"""Visitors and mutators of nodes.

    class CountLoads(Visitor):
        count = 0

        def visit_BufferLoad(self, load):
            self.count += 1
            self.generic_visit(load)

A method `visit_X` is called for nodes of class X and of its subclasses, unless those have a method of their own;
without a method, the children are visited. A `Mapper` returns nodes, the identical ones where nothing changed.

Shared nodes (a buffer, say) are visited once, and mapped to one new node everywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

from ..runtime.frames import use_evaluator, use_own_evaluator
from ..runtime.once import ProcessSetting
from .node import Node
from .walk import Walk, Walks, map_below, visit_below

_DEEP = 400_000


def _raise_limit() -> tuple[int, int | None]:
    """Returns the limit that was, and the evaluator that was, if it was not the interpreter's."""
    limit = sys.getrecursionlimit()
    if limit < _DEEP:
        sys.setrecursionlimit(_DEEP)
    return limit, use_own_evaluator()


def _restore_limit(before: tuple[int, int | None]) -> None:
    limit, evaluator = before
    if sys.getrecursionlimit() == _DEEP:
        sys.setrecursionlimit(limit)
    if evaluator is not None:
        use_evaluator(evaluator)


deep_recursion = ProcessSetting(_raise_limit, _restore_limit)
"""Lets walks go as deep as the trees they walk: `with deep_recursion: ...`.

Every visitor method is a Python function called from Python, for which the interpreter keeps no C stack; only its own
counter stands in the way, and evaluators that others have put in the interpreter's place.
"""


class Dispatch:
    """Finds, once for each pair of visitor class and node class, the method that handles the node."""

    _handlers: ClassVar[dict[type, Callable[[Any, Any], Any]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._handlers = {}

    def _handle(self, node: object) -> Any:
        """Calls the method for the node's class."""
        handler = self._handlers.get(type(node))
        return (handler or self._find_handler(type(node)))(self, node)

    @classmethod
    def _find_handler(cls, node_class: type) -> Callable[[Any, Any], Any]:
        method = cls._handlers[node_class] = cls._method_for(node_class)
        return method

    @classmethod
    def _method_for(cls, node_class: type) -> Callable[[Any, Any], Any]:
        """The method of this visitor class for nodes of `node_class`."""
        raise NotImplementedError


class _MethodsByClass(Dispatch):
    """Calls `visit_X` for nodes of class X and of its subclasses, unless those have a method of their own."""

    visit = Dispatch._handle
    _below: ClassVar[Walks[Walk | None]]
    """By the class of a child what handles it; None for leaves without a method, and for what is no node."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._below = Walks(cls._for_child)

    @classmethod
    def _method_for(cls, node_class: type) -> Callable[[Any, Any], Any]:
        for base in node_class.__mro__:
            method = getattr(cls, f"visit_{base.__name__}", None)
            if method is not None:
                return method
        if not getattr(node_class, "has_children", True) and cls.generic_visit in _GENERIC:
            return cls._visit_leaf
        return cls._visit_shared if getattr(node_class, "is_shared", False) else cls.generic_visit

    @classmethod
    def _for_child(cls, node_class: type) -> Walk | None:
        """What `visit` comes to for children of a class."""
        if not issubclass(node_class, Node):
            return None
        if cls.visit is not Dispatch._handle:
            return cls.visit
        method = cls._find_handler(node_class)
        if method is cls._visit_leaf:
            return None
        walks = _GENERIC.get(method)
        return method if walks is None else walks[node_class]

    def generic_visit(self, node: Any) -> Any:
        """Goes on with the children of a node."""
        raise NotImplementedError

    def _visit_shared(self, node: Any) -> Any:
        raise NotImplementedError

    def _visit_leaf(self, node: Any) -> Any:
        """What `generic_visit` comes to for a node of a class without children, as more than half of all nodes are."""
        raise NotImplementedError


class Visitor(_MethodsByClass):
    """Visits a node and everything below it. Override `visit_X`; call `generic_visit` to go on below."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def __call__(self, node: Any) -> None:
        """Visits a whole tree, however deep."""
        with deep_recursion:
            self.visit(node)

    def generic_visit(self, node: Any) -> None:
        """Visits the children of a node."""
        visit_below[type(node)](self, node)

    def _visit_shared(self, node: Any) -> None:
        if id(node) not in self._seen:
            self._seen.add(id(node))
            visit_below[type(node)](self, node)

    def _visit_leaf(self, node: Any) -> None:
        pass


class Mapper(_MethodsByClass):
    """Rebuilds a tree. Override `visit_X` to return another node; call `generic_visit` to map the children.

    An unchanged node comes back as the identical object.
    """

    def __init__(self) -> None:
        self._mapped: dict[int, tuple[Any, Any]] = {}

    def __call__(self, node: Any) -> Any:
        """Maps a whole tree, however deep."""
        with deep_recursion:
            return self.visit(node)

    def generic_visit(self, node: Any) -> Any:
        """The node with its children mapped."""
        return map_below[type(node)](self, node)

    def _visit_shared(self, node: Any) -> Any:
        found = self._mapped.get(id(node))
        if found is None:
            # The original is kept too, so that its id stays its own while the mapper lives.
            found = self._mapped[id(node)] = (node, map_below[type(node)](self, node))
        return found[1]

    def _visit_leaf(self, node: Any) -> Any:
        return node


_GENERIC: dict[Walk, Walks[Walk]] = {Visitor.generic_visit: visit_below, Mapper.generic_visit: map_below}


class _PostOrder(Visitor):
    def __init__(self, f: Callable[[Any], None]):
        super().__init__()
        self.f = f

    def visit(self, node: Any) -> None:
        if node.is_shared:
            if id(node) in self._seen and not node.is_variable:
                return
            self._seen.add(id(node))
        visit_below[type(node)](self, node)
        self.f(node)


def post_order_visit(stmt: Node, fvisit: Callable[[Any], None]) -> None:
    """Calls `fvisit` on every node below `stmt` and then on itself, children first."""
    _PostOrder(fvisit)(stmt)


def pre_order_visit(stmt: Node, fvisit: Callable[[Any], bool]) -> None:
    """Calls `fvisit` on `stmt` and what is below it, parents first; goes on below only where `fvisit` returns true."""

    def visit(node: Any) -> None:
        if fvisit(node):
            node.visit_children(visit)

    with deep_recursion:
        visit(stmt)
