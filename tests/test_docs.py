"""What the pages in docs/ name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "oneir"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
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
