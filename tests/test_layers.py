"""Which module imports which, read off the sources; how long files are; and what `import oneir` must not load."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import imports
import pytest

import oneir

ROOT = Path(oneir.__file__).parent

# Where modules import one another today, each circle by the first two parts of a module in it. No new ones come in.
CIRCLES = ["oneir.ir"]


def tree(folder: Path, sources: dict[str, str]) -> Path:
    """A package `oneir` of some files; those not given are empty."""
    root = folder / "oneir"
    for path in ("__init__.py", "ir/__init__.py", "ir/node.py", "tir/__init__.py", "tir/stmt.py", "te/tensor.py"):
        sources.setdefault(path, "")
    for path, source in sources.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(source)
    return root


def test_no_modules_are_in_a_circle():
    found = imports.circles(imports.module_graph())
    assert sorted(".".join(circle[0].split(".")[:2]) for circle in found) == CIRCLES, found


def test_the_drawing_is_that_of_the_sources(capsys):
    status = imports.main(["--check"])
    assert status == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "source", "imported"),
    [
        ("tir/stmt.py", "from ..ir import node", ["oneir.ir.node"]),
        ("tir/stmt.py", "from ..ir.node import Node, attr", ["oneir.ir.node"]),
        ("tir/stmt.py", "from ..ir import Node", ["oneir.ir"]),
        ("tir/stmt.py", "def f():\n    from .. import te, ir", ["oneir", "oneir.ir"]),
        ("tir/stmt.py", "class A:\n    if B:\n        import oneir.te.tensor", ["oneir.te.tensor"]),
        ("tir/stmt.py", "import oneir", ["oneir"]),
        ("tir/stmt.py", "import numpy\nfrom os import path", []),
        (
            "tir/__init__.py",
            "from . import stmt\nfrom .stmt import For\nfrom ..te.tensor import x",
            ["oneir.te.tensor", "oneir.tir.stmt"],
        ),
        (
            "tir/transform/fold.py",
            "from ..stmt import For\nfrom ...te import tensor",
            ["oneir.te.tensor", "oneir.tir.stmt"],
        ),
        ("tir/stmt.py", "if TYPE_CHECKING:\n    pass\nelse:\n    from ..te import tensor", ["oneir.te.tensor"]),
        ("tir/stmt.py", "if typing.TYPE_CHECKING:\n    from ..te import tensor", []),
    ],
)
def test_what_counts_as_an_import(path, source, imported, tmp_path):
    graph = imports.module_graph(tree(tmp_path, {path: source}))
    name = "oneir." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert sorted(graph[name]) == imported


def test_circles_are_found(tmp_path):
    sources = {"ir/node.py": "def f():\n    from ..tir import stmt", "tir/stmt.py": "from .fold import x"}
    root = tree(tmp_path, {**sources, "tir/fold.py": "from ..ir.node import Node"})
    graph = imports.module_graph(root)
    assert imports.circles(graph) == [["oneir.ir.node", "oneir.tir.fold", "oneir.tir.stmt"]]
    with pytest.raises(
        ValueError, match=r"the packages ir, tir import one another:\noneir.ir.node imports oneir.tir.stmt"
    ):
        imports.drawing(graph)


def test_the_drawing_leaves_out_what_follows(tmp_path):
    sources = {
        "tir/stmt.py": "from ..ir import node\nfrom ..nd import x",
        "nd.py": "",
        "cli/main.py": "from ..te.tensor import x",
    }
    graph = imports.module_graph(
        tree(tmp_path, {**sources, "te/tensor.py": "from .. import tir\nfrom ..ir.node import x"})
    )
    assert imports.drawing(graph) == "```mermaid\ngraph TD\n    cli --> te\n    te --> tir\n    tir --> ir\n```\n"


def test_a_page_that_is_out_of_date_is_told(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{imports.BEGIN}{imports.END}after\n")
    monkeypatch.setattr(imports, "PAGE", page)
    assert imports.main(["--check"]) == 1 and "run: python docs/imports.py" in capsys.readouterr().err
    assert imports.main([]) == 0 and imports.main(["--check"]) == 0
    assert page.read_text().startswith(f"before\n{imports.BEGIN}```mermaid") and page.read_text().endswith("after\n")


def test_no_file_is_too_long():
    tests = Path(__file__).parent
    files = [*ROOT.rglob("*.py"), *tests.rglob("*.py")]
    lengths = {path: len(path.read_text().splitlines()) for path in files}
    assert {str(path): length for path, length in lengths.items() if length > 1000} == {}


def test_tests_stand_where_their_sources_do():
    tests = Path(__file__).parent
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    others = {path for path in folders if not (ROOT / path).is_dir()}
    assert others == {Path(name) for name in ("backends", "cross", "documents", "examples", "random")}


def test_every_file_says_what_it_is_for_and_waives_no_check():
    tests = Path(__file__).parent
    published = tests / "documents"  # as others wrote them
    files = [*ROOT.rglob("*.py"), *(path for path in tests.rglob("*.py") if published not in path.parents)]
    waiver = re.compile(r"#\s*(?:noqa|type: ignore|pyright:)")
    for path in files:
        text = path.read_text()
        assert re.match(r'(#.*\n)*r?"""\s*[^"\s]', text), path
        assert not waiver.search(text), path


def test_importing_takes_in_no_heavy_package():
    script = "import sys, oneir; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"torch", "onnx", "llvmlite", "rich", "black", "ml_dtypes", "cuda", "cupy", "pyopencl", "safetensors"}
    heavy |= {"starlette", "uvicorn", "llguidance", "tokenizers", "jinja2", "oneir.llm"}
    assert not heavy & set(loaded) and "oneir" in loaded
