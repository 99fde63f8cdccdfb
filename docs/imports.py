"""Who imports whom, read off the sources: `python docs/imports.py` writes the drawing into docs/architecture.md.

All imports count, also those inside of functions, but not those that only a type checker follows. Modules that import
one another, directly or through others, are a circle; there is none, and tests/test_layers.py keeps it so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "oneir"
PAGE = Path(__file__).parent / "architecture.md"

Graph = dict[str, set[str]]
"""What each module imports, by full names such as "oneir.tir.stmt"."""


def run_time_imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports, at whatever depth, but those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for other in node.orelse:
                yield from run_time_imports(ast.Module([other], []))
        else:
            yield from run_time_imports(node)


def module_name(path: Path) -> str:
    """The full name of the module in a file below `ROOT`."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_graph(root: Path = ROOT) -> Graph:
    """The imports of all modules. A package counts as imported only by who names it, not by who names a part of it."""
    files = {module_name(path): path for path in sorted(root.rglob("*.py"))}
    graph: Graph = {}
    for name, path in files.items():
        package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
        graph[name] = set()
        for node in run_time_imports(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            else:
                base = package[: len(package) - node.level + 1] if node.level else []
                start = ".".join([*base, *([node.module] if node.module else [])])
                # `from . import x` imports the module x, if there is one, and else a name of the package.
                parts = [f"{start}.{alias.name}" for alias in node.names]
                named = [part if part in files else start for part in parts]
            graph[name] |= {other for other in named if other in files and other != name}
    # A package's __init__ offers what its modules define: that modules import their own package is no circle by itself.
    return graph


def circles(graph: Graph) -> list[list[str]]:
    """The groups of modules that import one another (strongly connected components), the largest first.

    Source: R. Tarjan, Depth-first search and linear graph algorithms, 1972.
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(start: str) -> None:
        work = [(start, iter(sorted(graph[start])))]
        number[start] = lowest[start] = len(number)
        stack.append(start)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in number:
                    number[other] = lowest[other] = len(number)
                    stack.append(other)
                    work.append((other, iter(sorted(graph[other]))))
                    break
                if other in stack:
                    lowest[node] = min(lowest[node], number[other])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == number[node]:
                    group = stack[stack.index(node) :]
                    del stack[stack.index(node) :]
                    if len(group) > 1:
                        found.append(sorted(group))

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return sorted(found, key=len, reverse=True)
