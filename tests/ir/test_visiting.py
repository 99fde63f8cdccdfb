"""Walks go as deep as trees: no walk passes through a function written in C, whose stack is small.

A generator that `tuple(...)` exhausts, and `map`, call what they are given from C.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import oneir
from oneir.ir.expr import Var
from oneir.ir.visitor import Mapper, Visitor

ROOT = Path(oneir.__file__).parent


def is_visit(node: ast.AST) -> bool:
    """Whether an expression is a method that visits nodes."""
    return isinstance(node, ast.Attribute) and node.attr.startswith(("visit", "generic_visit"))


def visits_through_c(source: str) -> list[int]:
    """The lines in which a method that visits is called by a generator expression, or given to `map`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.GeneratorExp):
            inside = [part for part in ast.walk(node) if part is not node.generators[0].iter]
            found += [n.lineno for n in inside if isinstance(n, ast.Call) and is_visit(n.func)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("map", "filter"):
            found += [node.lineno for argument in node.args if is_visit(argument)]
    return sorted(set(found))


def test_no_walk_passes_through_c():
    found = {str(path.relative_to(ROOT)): visits_through_c(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("tuple(self.visit(x) for x in xs)", [1]),
        ("xs = [\n  *(self.visit_expr(x) for x in xs)]", [2]),
        ("list(map(self.visit, xs))", [1]),
        ("[self.visit(x) for x in xs]", []),
        ("for x in xs:\n    self.visit(x)", []),
        ("any(x.visited for x in xs)", []),
    ],
)
def test_what_counts(source, lines):
    assert visits_through_c(source) == lines


@pytest.mark.parametrize("base", [Visitor, Mapper])
def test_attributes_of_visitors_may_have_any_name(base):
    class Counting(base):
        def __init__(self):
            super().__init__()
            self.below, self.handlers, self.walk = {}, [], None

        def visit_IntImm(self, node):
            self.below[node.value] = self.below.get(node.value, 0) + 1
            return node

    x = Var("x", "int32")
    counting = Counting()
    counting((x + 1) * (x + 2) + 1)
    assert counting.below == {1: 2, 2: 1}
