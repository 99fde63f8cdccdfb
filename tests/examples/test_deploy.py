"""The examples of exported programs classify as many images as their models do, and the page about them is right."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples.deploy.export import export

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "deploy"
PAGE = (ROOT / "docs" / "deploy.md").read_text()
RIGHT = {"mlp": "888 of 1000 images are classified right\n", "cnn": "934 of 1000 images are classified right\n"}


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"there is no {', '.join(missing)}")


def run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deploy")
    if shutil.which("cc") is None:
        pytest.skip("there is no linker (cc), which the shared library needs")
    export(folder / "build")
    return folder


def commands(source: Path) -> list[list[str]]:
    """How the first lines of a source say that it is built and run."""
    lines = re.findall(r"^(?://!?| \*) {4,5}(\S.*)$", source.read_text(), re.MULTILINE)
    return [line.replace("examples/deploy", str(FOLDER)).split() for line in lines]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        pytest.param("classify.c", "mlp", marks=needs("cc")),
        pytest.param("classify.cpp", "cnn", marks=needs("c++")),
        pytest.param("classify.rs", "mlp", marks=needs("rustc")),
        pytest.param("classify.mjs", "mlp", marks=needs("wasm-ld", "node")),
    ],
)
def test_examples_classify_as_their_models_do(build, name, model):
    made, called = commands(FOLDER / name)
    run(made, build)
    assert run(called, build) == RIGHT[model]


@needs("cc")
def test_the_page_prints_what_it_says(tmp_path):
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    run([sys.executable, "-c", blocks["python"]], tmp_path)
    (tmp_path / "main.c").write_text(blocks["c"])
    assert "".join(run(line.split(), tmp_path) for line in blocks["sh"].splitlines()) == blocks["text"]


@needs("cc")
def test_an_example_says_what_is_missing(build, tmp_path):
    made, _ = commands(FOLDER / "classify.c")
    run(made, build)
    done = subprocess.run([build / "build" / "classify", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"there is no images.bin or labels.bin in {tmp_path}\n"
