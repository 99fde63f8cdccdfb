"""Who imports whom, read off the sources: `python docs/imports.py` writes the drawing into docs/architecture.md.

All imports count, also those inside of functions, but not those that only a type checker follows. Modules that import
one another, directly or through others, are a circle; tests/test_layers.py lets in no new one.

    python docs/imports.py            # writes the drawing
    python docs/imports.py --check    # exits with 1 where the page is out of date, or packages are a circle
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "oneir"
PAGE = Path(__file__).parent / "architecture.md"
BEGIN, END = "<!-- written by docs/imports.py -->\n", "<!-- end of the drawing -->\n"

Graph = dict[str, set[str]]
"""What each module, or each package, imports. Modules have their full names, such as "oneir.tir.stmt"."""


def run_time_imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports, at whatever depth, but those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue  # holds no statements
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for other in node.orelse:
                yield from run_time_imports(ast.Module([other], []))
        else:
            yield from run_time_imports(node)


@functools.cache
def module_graph(root: Path = ROOT) -> Graph:
    """The imports of all modules in a folder, which is a package; read once.

    A package counts as imported only by who names it, not by who names a part of it: its `__init__` offers what its
    modules define, so that otherwise each of them would be in a circle with it.
    """

    def module_name(path: Path) -> str:
        parts = path.relative_to(root.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

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
    return graph


def package_of(module: str) -> str:
    """The short name, such as "tir", of a module's package; of a module beside packages, its own; "" for the root."""
    return module.partition(".")[2].partition(".")[0]


def package_graph(modules: Graph) -> Graph:
    """The imports of the packages, and of the modules beside them, by short names; without the root."""
    graph: Graph = {}
    for name, others in modules.items():
        graph.setdefault(package_of(name), set()).update(package_of(other) for other in others)
    del graph[""]
    return {package: others - {package, ""} for package, others in graph.items()}


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


def drawing(modules: Graph) -> str:
    """The packages as a Mermaid graph: those that import stand above what they import.

    An import has an arrow unless a longer way of arrows leads there as well (transitive reduction).
    Raises `ValueError` for packages that are a circle.
    """
    graph = package_graph(modules)
    for circle in circles(graph):
        crossing = [
            f"{name} imports {other}"
            for name, others in sorted(modules.items())
            for other in sorted(others)
            if {package_of(name), package_of(other)} <= {*circle} and package_of(name) != package_of(other)
        ]
        raise ValueError(f"the packages {', '.join(circle)} import one another:\n" + "\n".join(crossing))
    below: Graph = {}

    def reach(package: str) -> set[str]:
        """All that a package needs, directly and through others."""
        if package not in below:
            below[package] = set().union(*({other} | reach(other) for other in graph[package]))
        return below[package]

    packages = {package_of(name) for name in modules if name.count(".") > 1}
    lines = []
    for package in sorted(packages, key=lambda package: (-len(reach(package)), package)):
        direct = {other for other in graph[package] if not any(other in reach(step) for step in graph[package])}
        lines += [f"    {package} --> {other}" for other in sorted(direct & packages)]
    return "\n".join(["```mermaid", "graph TD", *lines, "```\n"])


def with_drawing(page: str, text: str) -> str:
    """A page with a new text between the two markers."""
    return re.sub(f"(?<={BEGIN}).*(?={END})", lambda found: text, page, count=1, flags=re.DOTALL)


def main(arguments: list[str] | None = None) -> int:
    """Writes the drawing, or checks it; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if the page is out of date")
    options = parser.parse_args(arguments)
    page = PAGE.read_text()
    try:
        new = with_drawing(page, drawing(module_graph()))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if options.check and new != page:
        print(f"{PAGE} shows other imports than the sources have; run: python docs/imports.py", file=sys.stderr)
        return 1
    if not options.check:
        PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
