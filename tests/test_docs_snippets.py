"""The programs of a page, run as one session, print what stands below them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import forked
import pytest
import snippets

import oneir

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [DOCS / "walkthrough.md", DOCS / "write-a-pass.md", *sorted(DOCS.glob("tutorials/*.md"))]
PAGES += [*sorted(DOCS.glob("contribute/*.md")), DOCS / "language-models.md", DOCS / "distributed.md"]
GALLERY = [path for path in sorted(DOCS.glob("gallery/*.md")) if path.name != "index.md"]
NEEDS = {"browser": ["wasm-ld", "node"], "riscv": ["riscv64-linux-gnu-gcc", "qemu-riscv64"]}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_snippets_print_what_the_page_says(path):
    # In a process of its own, since pages register operators, converters and back ends.
    assert path.read_text().count("```python\n") >= 2
    done = forked.run([sys.executable, DOCS / "snippets.py", "--check", path])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_a_program_of_the_gallery_prints_what_its_page_says_and_makes_its_picture(path):
    missing = [tool for tool in NEEDS.get(path.stem, ()) if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"there is no {' and no '.join(missing)} here")
    done = forked.run([sys.executable, DOCS / "snippets.py", "--check", path])
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"({path.stem}.svg)" in path.read_text()


def test_the_gallery_shows_every_program_of_it():
    index = (DOCS / "gallery" / "index.md").read_text()
    assert len(GALLERY) >= 10
    assert sorted(re.findall(r"\]\(([\w-]+)\.md\)", index)) == sorted(path.stem for path in GALLERY)
    for path in GALLERY:
        ET.parse(path.with_suffix(".svg"))
        assert f"![]({path.stem}.svg) {path.read_text().splitlines()[0].removeprefix('# ')}](" in index


def test_a_picture_that_no_program_makes_is_an_error(tmp_path):
    write = "```python\nopen('a.svg', 'w').write('<svg/>')\n```\n\n"
    (tmp_path / "page.md").write_text(f"{write}![](a.svg) ![](b.svg)\n")
    done = subprocess.run(
        [sys.executable, DOCS / "snippets.py", tmp_path / "page.md"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and done.stderr.endswith("page.md: no program writes b.svg\n")
    (tmp_path / "page.md").write_text(f"{write}![](a.svg)\n")
    subprocess.run([sys.executable, DOCS / "snippets.py", tmp_path / "page.md"], check=True)
    assert (tmp_path / "a.svg").read_text() == "<svg/>"


def test_another_output_or_an_error_is_noticed():
    assert snippets.run("```python\nprint(1)\n```\n\n```text\n2\n```\n") == [("2\n", "1\n")]
    assert snippets.run("```python\nprint(1)\n```\n\ntext\n") == [("", "1\n")]
    with pytest.raises(NameError, match="name 'y' is not defined"):
        snippets.run("```python\ny\n```\n")
    with pytest.raises(AssertionError, match="expected an error"):
        snippets.run("```python\n1\n```\n\n```pytb\nNameError\n```\n")


def test_what_a_page_prints_is_written_into_it():
    page = "```python\nprint(1)\n```\n\n```text\n2\n```\n\nand\n\n```python\n1 / 0\n```\n\n```pytb\n```\n"
    shown = "```python\nprint(1)\n```\n\n```text\n1\n```\n\nand\n\n```python\n1 / 0\n```\n\n```pytb\n"
    assert snippets.updated(page) == shown + "ZeroDivisionError: division by zero\n```\n"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_files_that_a_page_names_exist(path):
    root = DOCS.parent
    places = [Path(oneir.__file__).parent, root, root / "tests"]
    names = re.findall(r"`([\w/]+(?:\.py|/))`", path.read_text())
    assert [name for name in names if not any((place / name).exists() for place in places)] == []
