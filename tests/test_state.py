"""Everything that lives longer than a call, found in the sources, stands in docs/threads.md with what protects it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import oneir

ROOT = Path(oneir.__file__).parent
PAGE = ROOT.parents[1] / "docs" / "threads.md"

CHANGES = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "setdefault",
        "sort",
        "update",
    ]
)
"""Methods that change a container."""
STATEFUL = frozenset(
    [
        "ContextVar",
        "Hook",
        "ProcessSetting",
        "RLock",
        "Lock",
        "SourceMap",
        "Walks",
        "WeakKeyDictionary",
        "WeakSet",
        "WeakValueDictionary",
        "count",
        "local",
        "new_lock",
        "ConverterTable",
        "_Builders",
        "_Engines",
        "_LlvmLock",
        "_PassBuilders",
    ]
)
"""What is called to make an object with state of its own."""
CACHES = frozenset(["cache", "lru_cache", "once", "_once_in_llvm"])


def names_in(target: ast.expr) -> Iterator[str]:
    """The names that an assignment binds."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from names_in(element)


def called(node: ast.AST | None) -> str:
    """The last name of what a call calls."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Subscript):
        function = function.value
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def top_level(tree: ast.Module) -> dict[str, ast.expr | None]:
    """The variables of a module and, as `Class.name`, those of its classes, with what they are bound to."""
    found: dict[str, ast.expr | None] = {}

    def scan(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.Assign):
                found.update((prefix + name, node.value) for target in node.targets for name in names_in(target))
            elif isinstance(node, ast.AnnAssign):
                if not prefix or re.match(r"ClassVar|ContextVar", ast.unparse(node.annotation)):
                    found.update((prefix + name, node.value) for name in names_in(node.target))
            elif isinstance(node, ast.ClassDef):
                scan(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, (ast.If, ast.Try)):
                scan(node.body + node.orelse, prefix)

    scan(tree.body, "")
    return found


def state_of(source: str) -> set[str]:
    """The names in a file of what functions change, of caches, and of objects with state of their own."""
    tree = ast.parse(source)
    top = top_level(tree)
    found = {name for name, value in top.items() if isinstance(value, ast.Call) and called(value) in STATEFUL}

    outer = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}

    def owner(node: ast.expr, classes: list[str]) -> str | None:
        """The top-level name that an expression is."""
        text = ast.unparse(node)
        for prefix in ("self.", "cls.", "type(self)."):
            if text.startswith(prefix):
                text = f"{'.'.join(classes)}.{text.removeprefix(prefix)}"
        return text if text in top else None

    def look(node: ast.AST, classes: list[str], inside: bool) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if any(called(decorator) in CACHES for decorator in node.decorator_list):
                found.add(node.name)
            inside = True
        elif isinstance(node, ast.ClassDef) and not inside:
            classes = [*classes, node.name]
        changed: ast.expr | None = None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) in outer:
            found.add(ast.unparse(node))
        if isinstance(node, ast.Global):
            found.update(node.names)
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            changed = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            changed = node.func.value
        name = owner(changed, classes) if inside and changed is not None else None
        if name is not None:
            found.add(name)
        for child in ast.iter_child_nodes(node):
            look(child, classes, inside)

    look(tree, [], False)
    return found


def on_the_page() -> set[tuple[str, str]]:
    """What the page lists: file and name."""
    return set(re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \| \S", PAGE.read_text(), re.MULTILINE))


def test_all_state_is_listed_with_what_protects_it():
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in sorted(ROOT.rglob("*.py"))
        for name in state_of(path.read_text())
    }
    listed = on_the_page()
    assert not found - listed, f"not in docs/threads.md: {sorted(found - listed)}"
    assert not listed - found, f"in docs/threads.md, and not in the sources: {sorted(listed - found)}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("known = {}\ndef f(x): known[x] = 1", {"known"}),
        ("known = {}\ndef f(x): return known[x]", set()),
        ("known = []\nknown.append(1)", set()),
        ("known = []\ndef f(): known.append(1)", {"known"}),
        ("size = 1\ndef f():\n    global size\n    size = 2", {"size"}),
        ("import functools\n@functools.cache\ndef f(): return 1", {"f"}),
        ("@once\ndef f(): return 1", {"f"}),
        ("lock = threading.RLock()", {"lock"}),
        ("class A:\n    known: ClassVar[dict] = {}\n    def f(self): self.known[1] = 2", {"A.known"}),
        ("class A:\n    known = None\n    def f(self): A.known = self", {"A.known"}),
        ("class A:\n    def __init__(self): self.known = {}\n    def f(self): self.known[1] = 2", set()),
    ],
)
def test_what_counts_as_state(source, expected):
    assert state_of(source) == expected
