"""What emitters of code share: the class of a node chooses the method that writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.visitor import Dispatch
from ..tir.stmt import DeclBuffer, SeqStmt, Stmt


class Emitter(Dispatch):
    """Writes a statement by its method `stmt_X`, an expression by `expr_X`, where X is its class or a class above it.

    `_handle` calls that method; nodes without one are given to `refuse`.
    """

    def stmt(self, node: Stmt) -> None:
        """Writes one statement."""
        self._handle(node)

    def refuse(self, node: Any) -> Any:
        """Raises `CompileError`, which says what the target lacks for this node."""
        raise NotImplementedError

    @classmethod
    def _method_for(cls, node_class: type) -> Callable[[Any, Any], Any]:
        kind = "stmt" if issubclass(node_class, Stmt) else "expr"
        for base in node_class.__mro__:
            method = getattr(cls, f"{kind}_{base.__name__}", None)
            if method is not None:
                return method
        return cls.refuse

    def stmt_SeqStmt(self, node: SeqStmt) -> None:
        for inner in node.seq:
            self.stmt(inner)

    def stmt_DeclBuffer(self, node: DeclBuffer) -> None:
        self.stmt(node.body)
