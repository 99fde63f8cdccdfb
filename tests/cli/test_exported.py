"""Saved programs whose results are objects of a library that nobody has imported yet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from cli_results import fails, succeeds
from torch.utils import _pytree as pytree

LIBRARY = """
from collections import OrderedDict
from torch.utils import _pytree as pytree

class Output(OrderedDict):
    pass

pytree.register_pytree_node(
    Output,
    lambda value: (list(value.values()), list(value)),
    lambda values, names: Output(zip(names, values)),
    serialized_type_name=__name__ + ".Output",
)
"""


class Network(torch.nn.Module):
    def __init__(self, output: type):
        super().__init__()
        self.output = output

    def forward(self, x: torch.Tensor) -> object:
        return self.output(first=x + 1, second=x * 2)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Saves a program that returns an object of a library of that name, which is then as if it had never been seen."""
    known = set(pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE)
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path / "libraries"))

    def forget() -> None:
        for name in set(pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE) - known:
            pytree._deregister_pytree_node(pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE[name])

    def save(library: str) -> Path:
        folder = tmp_path / "libraries" / library
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "outputs.py").write_text(LIBRARY)
        module = __import__(f"{library}.outputs").outputs
        program = torch.export.export(Network(module.Output).eval(), (torch.zeros(4),))
        torch.export.save(program, tmp_path / "model.pt2")
        forget()
        for name in (library, f"{library}.outputs"):
            del sys.modules[name]
        return tmp_path / "model.pt2"

    yield save
    forget()
    for name in ("transformers", "transformers.outputs"):
        sys.modules.pop(name, None)


def test_results_of_transformers_are_read(cli, saved) -> None:
    path = saved("transformers")
    assert "def main" in succeeds(cli("show", str(path)))
    assert "functions main" in succeeds(cli("compile", str(path)))


def test_classes_of_other_libraries_are_named(cli, saved) -> None:
    path = saved("somebodys_library")
    said = fails(cli("compile", str(path)))
    assert "the program takes or returns somebodys_library.outputs.Output, of which PyTorch knows nothing" in said
    assert "Export a model whose forward takes and returns tensors" in said
    assert "somebodys_library" not in sys.modules


def test_a_class_that_transformers_lacks_is_named(cli, saved, tmp_path: Path) -> None:
    path = saved("transformers")
    (tmp_path / "libraries" / "transformers" / "outputs.py").unlink()
    said = fails(cli("compile", str(path)))
    assert "a transformers.outputs.Output, which cannot be imported" in said and "pip install transformers" in said
