"""`oneir export-web`: the folder it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_results import fails, succeeds

from oneir.contrib.emcc import wasm_linker


@pytest.mark.skipif(wasm_linker() is None, reason="there is no linker of WebAssembly; make cross installs it")
def test_a_model_becomes_a_folder(cli):
    Path("labels.txt").write_text("left\nright\n")
    out = succeeds(cli("export-web", "{models}/net.pt2", "web", "--labels", "labels.txt", "--title", "Net & more"))
    assert [line.split(":")[0] for line in out.splitlines()] == [
        "web/net.wasm",
        "web/net.mjs",
        "web/net.d.ts",
        "web/index.html",
        "web/package.json",
    ]
    page = Path("web/index.html").read_text()
    assert '"labels": ["left", "right"]' in page and "<title>Net &amp; more</title>" in page
    assert json.loads(Path("web/package.json").read_text())["exports"]["."]["default"] == "./net.mjs"


def test_refusals(cli):
    says = fails(cli("export-web", "{models}/net.pt2", "web", "--target", "llvm"))
    assert "expected a target of WebAssembly, such as wasm/simd; found llvm" in says
    assert "there is no file none.txt" in fails(cli("export-web", "{models}/net.pt2", "web", "--labels", "none.txt"))
    assert "'a-b' is no identifier of C" in fails(cli("export-web", "{models}/net.pt2", "web", "--name", "a-b"))
    assert not Path("web").exists()
