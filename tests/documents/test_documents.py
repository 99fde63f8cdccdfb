"""The cells of the five reference documents run, each document as a script for TVM in a process of its own.

README.md says what each document is and which of its cells are left out.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import forked
import pytest
from devices import needs_compiler, needs_opencl, needs_vulkan, needs_webgpu
from published import as_printed_here

FOLDER = Path(__file__).parent
DOCUMENTS = ["000", "001", "002", "003", "004"]
CELLS = [(d, path.stem) for d in DOCUMENTS for path in sorted((FOLDER / d).glob("[0-9][0-9].py"))]
SHOWN = [(d, path.stem) for d in DOCUMENTS for path in sorted((FOLDER / d).glob("[0-9][0-9].txt"))]
CHECKS = [
    (d, name) for d in DOCUMENTS for name in re.findall(r"(?m)^def (check_\w+)", (FOLDER / d / "checks.py").read_text())
]
# What a cell prints before the module that the document shows.
BEFORE = {
    ("002", "01"): "<class 'oneir.te.tensor.Tensor'>\n",
    ("002", "03"): "----------Composed Operation-----------\n",
}


@functools.cache
def results(document: str, *device: str) -> dict[str, Any]:
    """What `run_cells.py` found, run in an empty folder without a cache of compiled code."""
    environment = os.environ | {"MPLBACKEND": "template", "ONEIR_CACHE_DIR": ""}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(FOLDER / "run_cells.py"), document, "results.json", *device]
        done = forked.run(command, cwd=folder, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads((Path(folder) / "results.json").read_text())


@pytest.mark.parametrize(("document", "cell"), CELLS)
def test_a_cell_runs(document: str, cell: str):
    error = results(document)["errors"][cell]
    assert error is None, error


@pytest.mark.parametrize(("document", "cell"), SHOWN)
def test_a_cell_prints_what_the_document_shows(document: str, cell: str):
    shown = (FOLDER / document / f"{cell}.txt").read_text(encoding="utf-8")
    printed = results(document)["printed"][cell]
    # 003 is printed letter for letter; but one print of it lacks a line of the header.
    if document != "003" or cell == "08":
        shown = BEFORE.get((document, cell), "") + as_printed_here(shown)
    assert printed.strip("\n") == shown.strip("\n")


@pytest.mark.parametrize(("document", "name"), CHECKS)
def test_what_holds_after_a_cell(document: str, name: str):
    error = results(document)["errors"][name]
    assert error is None, error


FOR_GPUS = pytest.mark.parametrize(("document", "cell"), [("000", "05"), ("003", "12.cuda"), ("003", "13.cuda")])


@needs_opencl
@FOR_GPUS
def test_the_cells_for_gpus_run_on_an_opencl_device(document: str, cell: str):
    error = results(document, "opencl")["errors"][cell]
    assert error is None, error


@needs_webgpu
@FOR_GPUS
def test_the_cells_for_gpus_run_on_a_webgpu_device(document: str, cell: str):
    error = results(document, "webgpu")["errors"][cell]
    assert error is None, error


@pytest.mark.long
@needs_vulkan
@FOR_GPUS
def test_the_cells_for_gpus_run_on_a_vulkan_device(document: str, cell: str):
    error = results(document, "vulkan")["errors"][cell]
    assert error is None, error


@needs_compiler
@FOR_GPUS
def test_the_cells_for_gpus_run_on_cuda(document: str, cell: str):
    """As the documents have them, on the host as a CUDA device."""
    error = results(document, "cuda")["errors"][cell]
    assert error is None, error


def test_every_cell_is_a_file_or_listed_as_left_out():
    """The numbers of a document's cells have no gaps but those that README.md gives a reason for."""
    listed = re.findall(r"(?m)^\| (\d{3}) \| ([\d, ]+) \|", (FOLDER / "README.md").read_text(encoding="utf-8"))
    left_out = {(document, cell) for document, cells in listed for cell in cells.split(", ")}
    assert not left_out & set(CELLS)
    for document in DOCUMENTS:
        numbers = [int(cell) for d, cell in {*CELLS, *left_out} if d == document]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
