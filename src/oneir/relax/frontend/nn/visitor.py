"""A mutator of models: it may replace modules, parameters and effects."""

from __future__ import annotations

from typing import Any

from .core import Module, ModuleDict, ModuleList
from .tensor import Effect, Parameter


class Mutator:
    """Replaces the attributes of a module by the results of their visits. Override the visits of what shall change."""

    def visit_module(self, name: str, node: Module) -> Any:
        """A module; by default what is inside of it is visited."""
        return self.visit(name, node)

    def visit_effect(self, name: str, node: Effect) -> Any:
        """An effect; stays by default."""
        return node

    def visit_param(self, name: str, node: Parameter) -> Any:
        """A parameter; stays by default."""
        return node

    def visit_modulelist(self, name: str, node: ModuleList) -> Any:
        """A list of modules; by default each is visited."""
        return self.visit(name, node)

    def visit_moduledict(self, name: str, node: ModuleDict) -> Any:
        """A dictionary of modules; by default each is visited."""
        return self.visit(name, node)

    def visit(self, name: str, node: Any) -> Any:
        """Visits what is inside of a module, whose name is given ("" for that of a whole model)."""
        prefix = f"{name}." if name else ""
        if isinstance(node, ModuleList):
            for i, item in enumerate(node.modules):
                node.modules[i] = self._child(f"{prefix}{i}", item)
            return node
        attributes = node.modules if isinstance(node, ModuleDict) else vars(node)
        for key, item in list(attributes.items()):
            if isinstance(item, (Module, Effect, Parameter)):
                attributes[key] = self._child(f"{prefix}{key}", item)
        return node

    def _child(self, name: str, item: Any) -> Any:
        if isinstance(item, ModuleList):
            return self.visit_modulelist(name, item)
        if isinstance(item, ModuleDict):
            return self.visit_moduledict(name, item)
        if isinstance(item, Module):
            return self.visit_module(name, item)
        return self.visit_effect(name, item) if isinstance(item, Effect) else self.visit_param(name, item)
