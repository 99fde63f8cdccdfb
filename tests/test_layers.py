"""Which package imports which, read off the sources; and what `import oneir` must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import oneir

ROOT = Path(oneir.__file__).parent

# A package imports at run time only from packages of the lines above it. Those of one line may use each other.
LAYERS = (
    ("runtime",),
    ("ir",),
    ("arith",),
    ("target",),
    ("tir",),
    ("te",),
    ("topi",),
    ("relax",),
    ("script",),
    ("dlight",),
    ("meta_schedule",),
    ("codegen",),
    ("driver",),
    ("testing",),
    ("bench",),
    ("cli", "compat"),
)
LAYER = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}
# Modules of the top level that give published names to parts of a package, and the package.
FACADES = {"nd": "runtime", "contrib": "runtime", "error": "runtime", "version": "runtime"}


def run_time_imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports, at whatever depth, but those under `if TYPE_CHECKING`, which only a type checker follows."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for other in node.orelse:
                yield from run_time_imports(ast.Module([other], []))
        else:
            yield from run_time_imports(node)


def imported_modules(node: ast.Import | ast.ImportFrom, module: list[str], is_package: bool) -> list[list[str]]:
    """The modules that an import statement of `module` names, each as the parts of its full name."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".") for alias in node.names]
    base: list[str] = []
    if node.level:
        base = module[: len(module) - node.level + (1 if is_package else 0)]
    base = base + (node.module.split(".") if node.module else [])
    # `from .. import arith` imports a package by the name that follows.
    return [[*base, alias.name] for alias in node.names] if base == ["oneir"] else [base]


def violations(source: str, path: Path) -> list[str]:
    """The imports of a file, at `path` below the package's folder, that its place does not allow.

    Only the last packages may import `oneir` itself, which imports all others.
    """
    module = ["oneir", *path.with_suffix("").parts]
    is_package = module[-1] == "__init__"
    if is_package:
        module.pop()
    if len(module) == 1 or module[1] == "__main__":
        return []
    own = FACADES.get(module[1], module[1])
    found = []
    for node in run_time_imports(ast.parse(source)):
        for name in imported_modules(node, module, is_package):
            if name[0] != "oneir":
                continue
            other = name[1] if len(name) > 1 else "oneir"
            other = FACADES.get(other, other)
            if other == "oneir" and own in LAYERS[-1]:
                continue
            if other != own and (other not in LAYER or LAYER[other] >= LAYER[own]):
                found.append(f"{path}:{node.lineno}: {own} imports {'.'.join(name)}")
    return found


def test_packages_import_only_from_those_above_them():
    found = [v for path in sorted(ROOT.rglob("*.py")) for v in violations(path.read_text(), path.relative_to(ROOT))]
    assert not found, "\n" + "\n".join(found)


def test_every_package_has_its_place():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    modules = {path.stem for path in ROOT.glob("*.py")} - {"__init__", "__main__"}
    assert packages <= set(LAYER) and modules <= set(FACADES)


@pytest.mark.parametrize(
    ("path", "source", "refused"),
    [
        ("tir/stmt.py", "from ..script import parser", "tir imports oneir.script"),
        ("tir/stmt.py", "def f():\n    from ..script import parser", "tir imports oneir.script"),
        ("tir/stmt.py", "import oneir.relax.expr", "tir imports oneir.relax.expr"),
        ("tir/stmt.py", "import oneir", "tir imports oneir"),
        ("tir/stmt.py", "from oneir import te", "tir imports oneir.te"),
        ("tir/__init__.py", "from .. import te", "tir imports oneir.te"),
        ("tir/transform/__init__.py", "from ...te import x", "tir imports oneir.te"),
        ("tir/transform/fold.py", "from ...te.tensor import x", "tir imports oneir.te.tensor"),
        ("nd.py", "from .ir import x", "runtime imports oneir.ir"),
        ("tir/stmt.py", "if TYPE_CHECKING:\n    pass\nelse:\n    from ..te import x", "tir imports oneir.te"),
        ("tir/stmt.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..te import x", None),
        ("tir/stmt.py", "from ..ir.node import Node\nfrom . import expr\nfrom .expr import Add\nimport numpy", None),
        (
            "tir/transform/fold.py",
            "from ..stmt import For\nfrom ...arith import Analyzer\nfrom oneir.ir import x",
            None,
        ),
        ("__init__.py", "from . import tir, relax", None),
        ("compat/__main__.py", "from . import install\nimport oneir", None),
    ],
)
def test_what_counts_as_an_import(path, source, refused):
    found = violations(source, Path(path))
    assert [v.split(": ", 1)[1] for v in found] == ([refused] if refused else [])


def test_no_file_is_too_long():
    tests = Path(__file__).parent
    files = [*ROOT.rglob("*.py"), *tests.rglob("*.py")]
    lengths = {path: len(path.read_text().splitlines()) for path in files}
    assert {str(path): length for path, length in lengths.items() if length > 1000} == {}


def test_importing_takes_in_no_heavy_package():
    script = "import sys, oneir; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"torch", "onnx", "llvmlite", "rich", "black", "ml_dtypes", "cuda", "cupy", "pyopencl", "safetensors"}
    assert not heavy & set(loaded) and "oneir" in loaded
