"""What the pages in docs/ name exists."""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from types import ModuleType

import comparisons
import drawing
import pytest
import site_pages
import words

from oneir.cli.explain import error_classes

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "oneir"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
ENTRIES = re.findall(r"^- \*\*(.+?)\*\*: (.+)$", GLOSSARY, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([\w./-]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_entry_of_the_glossary_stands_once_and_names_its_files():
    assert len(ENTRIES) == GLOSSARY.count("\n- ")
    terms = [term.lower() for term, _ in ENTRIES]
    assert len(set(terms)) == len(terms)
    for term, text in ENTRIES:
        files = re.findall(r"`([\w/]+\.py)`", text)
        assert files and all((SOURCES / file).is_file() for file in files), (term, files)


def test_headings_of_the_architecture_name_files():
    headings = re.findall(r"^## .*", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    named = [path for heading in headings for path in re.findall(r"`([\w/]+(?:\.py|/))`", heading)]
    assert len(named) > 30
    assert [path for path in named if not (SOURCES / path).exists()] == []


def test_every_public_name_has_a_section_of_its_own():
    pages = site_pages.pages()
    assert {"oneir.tir", "oneir.relax.op", "oneir.te", "oneir.llm"} <= set(site_pages.packages())
    for package, names in site_pages.packages().items():
        anchors = re.findall(r"^## .* \{ #([\w.]+) \}$", pages[f"api/{package}.md"], re.MULTILINE)
        assert anchors == [f"{package}.{name}" for name in names], package
        assert f"]({package}.md)" in pages["api/index.md"]


def test_what_programs_of_pages_import_and_what_a_package_shows_has_a_section():
    described = {package: set(names) for package, names in site_pages.packages().items()}
    imported = {
        (module, name.split(" as ")[0].strip())
        for page in PAGES
        for module, names in re.findall(r"^from (oneir[\w.]*) import ([\w, ]+)$", page.read_text(), re.MULTILINE)
        for name in names.split(",")
    }
    names = {(module, name) for module, name in imported if not site_pages.is_module(module, name)}
    assert {(module, name) for module, name in names if name not in described.get(module, ())} == set()
    assert len(names) > 45
    for package in ("oneir.tir", "oneir.relax.transform", "oneir.script.tir", "oneir.te", "oneir.topi"):
        members = {n: getattr(importlib.import_module(package), n) for n in dir(importlib.import_module(package))}
        public = {n for n, v in members.items() if not n.startswith("_") and not isinstance(v, ModuleType)}
        assert public - {"annotations"} <= described[package], package


def test_a_section_has_the_signature_the_file_and_the_docstring():
    section = site_pages.entry("oneir.relax.op", "matmul")
    assert "matmul(" in section and "*in `relax/op/" in section and "a column on the right" in section
    methods = site_pages.entry("oneir.tir", "Schedule")
    assert "- `#!python split(self, " in methods


def test_docstrings_are_no_headings_links_or_html():
    def documented():
        """# a [b](c) <d> `x < y`"""

    assert site_pages.text_of(documented) == "\\# a [b]\\(c) &lt;d&gt; `x < y`"


def test_code_and_lists_in_docstrings_are_shown_as_such():
    def documented():
        """What it does.

        y = documented(1)

        Attributes
        ----------
        a, b: two of
            them
        c: one
        """

    shown = site_pages.text_of(documented)
    assert shown == (
        "What it does.\n\n```python\ny = documented(1)\n```\n\n**Attributes**\n\n- a, b: two of\n    them\n- c: one"
    )
    assert not site_pages.is_code("nothing at all") and not site_pages.is_code("Raises `X` (when it fails).")


def test_files_outside_of_docs_that_pages_link_to_are_pages():
    made = site_pages.pages()
    page = made["source/examples/deploy/classify.c.md"]
    assert page.startswith("# examples/deploy/classify.c\n") and "#include" in page
    with pytest.raises(FileNotFoundError):
        site_pages.file_page("examples/none.c")


def test_each_class_of_errors_has_a_section_with_its_docstring():
    page = site_pages.pages()["reference/errors.md"]
    sections = dict(re.findall(r"^###? (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(error_classes())
    assert "*Also a TypeError.*" in sections["TypeMismatch"] and "*Also an InvalidValue.*" in sections["JSONError"]
    assert (
        "[install](../install.md)" in sections["LibraryError"]
        and "\n- **Of another processor**" in sections["LibraryError"]
    )


def test_each_variable_that_is_read_is_in_the_table():
    read = {
        name
        for path in SOURCES.rglob("*.py")
        for name in re.findall(r"os\.environ(?:\.get\(|\[)\"(\w+)\"", path.read_text())
    }
    named = set(re.findall(r"`([A-Z_]+)`", (ROOT / "docs" / "environment.md").read_text()))
    assert read - {"PYTHONPATH"} <= named and len(read) > 8


def test_the_grammar_has_nodes_with_their_fields_and_marks_what_defines_variables():
    page = site_pages.pages()["reference/grammar.md"]
    assert "- `#!python For(loop_var!: Var, min: PrimExpr, extent: PrimExpr, kind: ForKind, body: Stmt, " in page
    assert "Base of arithmetic" not in page and page.count("- `#!python ") > 80


def test_the_page_of_options_has_those_that_are_declared():
    page = site_pages.pages()["reference/options.md"]
    assert "| `tir.disable_vectorize` | bool |" in page
    assert "| `FPurity` | `bool` | Whether a call has no side effect. | `relax/operator_facts.py` |" in page
    assert re.search(r"^\| `llvm` \| .*`mcpu`: str", page, re.MULTILINE)


def test_the_drawing_of_packages_is_a_picture_with_what_leads_lower_below():
    edges = [("cli", "tir"), ("cli", "ir"), ("tir", "ir"), ("te", "tir")]
    assert drawing.layers(edges) == [["cli", "te"], ["tir"], ["ir"]]
    picture = drawing.drawn("# Packages\n\n```mermaid\ngraph TD\n    cli --> tir\n    tir --> ir\n```\n")
    assert picture.startswith("# Packages\n\n<svg") and picture.count("<rect") == 3 and picture.count("<path") == 2


def test_words_that_the_glossary_rules_out_are_not_used():
    assert words.suspicious() == []
    ruled_out, terms = words.ruled_out(), {term.lower() for term, _ in ENTRIES}
    assert len(ruled_out) > 20 and not terms & set(ruled_out)
    assert all(any(word.lower() in term for term in terms) for word in ruled_out.values()), terms


def test_a_word_that_is_ruled_out_is_found_where_it_is_prose():
    page = "A `backend`, a [page](backend.md).\n\n```text\nbackend\n```\n\nA Backend. TVM calls it a backend.\n"
    assert list(words.found(words.prose(page), {"backend": "back end"})) == [(7, "'backend': say 'back end'")]
    comment = "x = 1  # the trip\n    # count of it"
    assert list(words.found(comment, {"trip count": "extent"})) == [(1, "'trip count': say 'extent'")]


def test_comparisons_have_the_ratios_of_the_pages_that_they_name():
    page = (site_pages.DOCS / "comparisons.md").read_text()
    filled = comparisons.filled(page)
    assert "<!--" not in filled and all(f"<!-- figures: {name} -->" in page for name in comparisons.FIGURES)
    measured = comparisons.milliseconds()
    assert set(measured) == {1, 2} and {"OneIR", "ONNX Runtime", "OpenVINO"} <= set(measured[1])
    # By hand, the other way round: OneIR's time in logarithms to the base 2.
    logs = [
        math.log2(measured[2]["OpenVINO"][m] / ms)
        for m, ms in measured[2]["OneIR"].items()
        if m in measured[2]["OpenVINO"]
    ]
    [row] = [line.split(" | ") for line in filled.splitlines() if line.startswith("| OpenVINO | ")]
    assert row[3:] == [f"{2 ** (sum(logs) / len(logs)):.2f}", f"{sum(log > 0 for log in logs)} of {len(logs)} |"]


def test_comparisons_name_a_command_beside_each_table():
    text = (site_pages.DOCS / "comparisons.md").read_text()
    for table in re.finditer(r"\n\n(.+)\n\n<!-- figures", text):
        [module] = re.findall(r"`python -m benchmarks\.(\w+)", table[1])
        assert (ROOT / "benchmarks" / f"{module}.py").is_file()
