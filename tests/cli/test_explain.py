"""`oneir explain` and `oneir completion`: every error is explained and names its explanation; shells complete."""

from __future__ import annotations

import ast
import importlib
import pickle
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from cli_results import fails, succeeds

import oneir
from oneir.cli.explain import error_classes
from oneir.runtime import error as errors
from oneir.runtime.error import LibraryError, OneIRError, ParseError, ShapeMismatch

SOURCES = Path(oneir.__file__).parent
KINDS = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, OneIRError)]


def classes_in_sources() -> set[str]:
    """The classes below `OneIRError`, read off the sources; those that are answers of servers are left out."""
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    found, size = {"OneIRError"}, 0
    while len(found) > size:
        size = len(found)
        found |= {name for name, of in bases.items() if of & found}
    return found - {"HTTPError", "APIError"}


def test_every_class_of_errors_in_the_sources_is_explained(cli):
    importlib.import_module("oneir.serving.http")  # as other tests of this process may have done
    assert set(error_classes()) == classes_in_sources()
    listed = [line.split()[0] for line in succeeds(cli("explain")).splitlines()]
    assert listed == sorted(error_classes())


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_an_explanation_has_more_than_what_the_error_is(cls, cli):
    text = succeeds(cli("explain", cls.__name__.upper()))
    assert text.startswith(cls.__name__) and len(text.split("\n\n")) > 2 and len(text) > 200


def test_pages_that_explanations_name_exist():
    named = {page for cls in error_classes().values() for page in re.findall(r"docs/[\w/-]+\.md", cls.__doc__ or "")}
    assert len(named) > 5 and all((SOURCES.parents[1] / page).is_file() for page in named)


def test_a_special_error_is_explained_with_what_it_is_a_case_of(cli):
    text = succeeds(cli("explain", "oneir.llm.ContextExceeded"))
    assert (
        text.startswith("ContextExceeded, also an InvalidValue\n\n") and "\nInvalidValue, also a ValueError\n" in text
    )


def test_an_error_that_there_is_not(cli):
    assert fails(cli("explain", "ShapeMissmatch")) == (
        "oneir explain: there is no error 'ShapeMissmatch'; did you mean 'ShapeMismatch'?; "
        "`oneir explain` lists those that there are"
    )


@pytest.mark.parametrize("cls", [ShapeMismatch, ParseError, LibraryError, error_classes()["ContextExceeded"]])
def test_a_message_names_its_explanation_once_even_from_another_process(cls):
    error = pickle.loads(pickle.dumps(cls("wrong")))
    shown = "".join(traceback.format_exception_only(error))
    assert str(error) == "wrong" and shown.count(f"\ncauses and cures: oneir explain {cls.__name__}\n") == 1


def test_a_command_that_fails_names_the_explanation(cli):
    code, out, err = cli("show", "nowhere.onnx")
    assert (code, out) == (1, "") and err.endswith("\ncauses and cures: oneir explain InvalidValue\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_a_shell_has_every_command_and_files(shell: str, cli):
    script = succeeds(cli("completion", shell))
    assert all(word in script for word in ("export-web", "rpc-server", "stages", "quantize"))


def test_bash_completes_commands_options_and_files(cli):
    Path("script").write_text(succeeds(cli("completion", "bash")))
    Path("model.onnx").touch()

    def completed(*words: str) -> list[str]:
        asked = f"source ./script; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _shtab_oneir"
        done = subprocess.run(
            ["bash", "-c", f'{asked}; printf "%s\\n" "${{COMPREPLY[@]}}"'], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert completed("oneir", "ex") == ["export-web", "explain"]
    assert completed("oneir", "show", "--st") == ["--stage", "--stages"]
    assert completed("oneir", "import", "mo") == ["model.onnx"]


def test_completion_without_its_package(cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert fails(cli("completion", "bash")).endswith("pip install 'oneir[completion]'")
