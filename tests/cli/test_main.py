"""The command line as a whole: files that are no models, exit codes, tracebacks, the installed command."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from cli_results import fails

import oneir
from oneir import ir, te
from oneir.cli.main import main
from oneir.ir import assert_structural_equal
from oneir.runtime.error import InvalidValue
from oneir.script import from_source


def test_the_model_is_missing(cli):
    assert fails(cli("show", "nowhere.pt2")) == "oneir show: there is no file nowhere.pt2"
    assert fails(cli("compile", "nowhere.json")) == "oneir compile: there is no file nowhere.json"
    assert fails(cli("run", "nowhere.so")) == "oneir run: there is no file nowhere.so"


@pytest.mark.parametrize(("name", "found"), [("model.h5", ".h5"), ("model", "no suffix")])
def test_a_file_of_another_kind(cli, name: str, found: str):
    Path(name).write_bytes(b"?")
    for command in ("import", "show", "compile", "run"):
        or_compiled = "; or a file of `oneir compile`" if command in ("run", "show") else ""
        assert fails(cli(command, name)) == (
            f"oneir {command}: {name}: expected a model: .pt2 (torch.export.save), .onnx (ONNX), .py (TVMScript), "
            f".json (oneir.ir.save_json){or_compiled}; found {found}"
        )


def test_an_empty_file(cli):
    for name in ("model.onnx", "model.pt2", "model.py"):
        Path(name).write_bytes(b"")
        assert fails(cli("import", name)) == f"oneir import: {name} is empty: what was to write it did not"


def test_a_compiled_file_where_a_model_is_expected(cli):
    Path("net.so").write_bytes(b"?")
    for command in ("import", "compile", "bench"):
        message = fails(cli(command, "net.so"))
        assert "found .so.\nIt is compiled already: give this command the model" in message
        assert "or a file of" not in message


def test_a_full_disk(cli, models: Path):
    if not Path("/dev/full").exists():
        pytest.skip("the system has no device that is always full")
    Path("full.json").symlink_to("/dev/full")
    message = fails(cli("import", str(models / "graph.json"), "-o", "full.json"))
    assert message == "oneir import: full.json: No space left on device"


def test_a_file_of_weights(cli):
    Path("model.pth").write_bytes(b"?")
    message = fails(cli("show", "model.pth"))
    assert "found .pth.\nSuch files hold weights." in message and "torch.export.save(torch.export.export(" in message


def test_a_folder(cli):
    Path("folder.pt2").mkdir()
    assert fails(cli("show", "folder.pt2")).startswith(
        "oneir show: folder.pt2 is a folder; expected a model file: .pt2"
    )


def test_a_damaged_exported_program(cli, models: Path):
    Path("cut.pt2").write_bytes((models / "net.pt2").read_bytes()[:4000])
    assert fails(cli("show", "cut.pt2")) == (
        "oneir show: cut.pt2 is no program of torch.export.save, which is a zip archive; it may be cut short"
    )
    with zipfile.ZipFile("other.pt2", "w") as archive:
        archive.writestr("x", "y")
    assert "other.pt2 is no program that torch.export.load of PyTorch" in fails(cli("compile", "other.pt2"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no JSON", "m.json: expected a program as JSON, found a text that is none"),
        (b"{}", 'm.json: expected a program as JSON, an object with "format": "oneir"'),
        (b"\xff\xfe", "m.json: expected TVMScript or a program as JSON, found bytes that are no UTF-8 text"),
        (ir.save_json(te.var("n")).encode(), "m.json holds a Var, not a module"),
    ],
)
def test_a_file_that_holds_no_module(cli, content: bytes, message: str):
    Path("m.json").write_bytes(content)
    assert fails(cli("show", "m.json")).startswith(f"oneir show: {message}")


@pytest.mark.parametrize("arguments", [[], ["show"], ["fly", "x"], ["show", "x", "--stage", "boiled"]])
def test_a_command_line_that_is_not_understood(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2 and capsys.readouterr().err.startswith("usage: oneir")


def test_without_a_command_it_says_what_there_is(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit:
        main([])
    shown = capsys.readouterr().err
    assert exit.value.code == 2 and "doctor     say what this machine has" in shown and "\nexamples:\n" in shown
    with pytest.raises(SystemExit):
        main(["--fast"])
    assert capsys.readouterr().err.endswith("oneir: error: unrecognized arguments: --fast\n")


@pytest.mark.parametrize("arguments", [["--traceback", "show", "nowhere.pt2"], ["show", "nowhere.pt2", "--traceback"]])
def test_an_error_with_its_traceback(arguments: list[str]):
    with pytest.raises(InvalidValue, match=r"there is no file nowhere\.pt2"):
        main(arguments)


def test_the_environment_asks_for_tracebacks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ONEIR_DEBUG", "1")
    with pytest.raises(InvalidValue, match=r"there is no file nowhere\.pt2"):
        main(["show", "nowhere.pt2"])


def test_an_error_of_the_compiler_itself(cli, monkeypatch: pytest.MonkeyPatch):
    def broken(*arguments: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("oneir.cli.show.load_model", broken)
    assert fails(cli("show", "{models}/graph.json")) == (
        "oneir show: KeyError: 'x'\n"
        "This is a defect of OneIR, or of a library that it calls; --traceback shows where it came up."
    )


def test_a_long_message_keeps_its_begin_and_its_end_on_a_terminal(cli, monkeypatch: pytest.MonkeyPatch):
    def broken(*arguments: object) -> None:
        raise InvalidValue("\n".join([f"line {i}" for i in range(100)]))

    monkeypatch.setattr("oneir.cli.show.load_model", broken)
    assert len(fails(cli("show", "{models}/graph.json")).splitlines()) == 100
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    shown = cli("show", "{models}/graph.json")[2].partition("oneir show: ")[2].splitlines()
    assert len(shown) == 22 and shown[0] == "line 0"
    assert shown[-5:-1] == [
        "  ... 80 more lines; 2> FILE writes all of them to a file",
        "line 97",
        "line 98",
        "line 99",
    ]
    assert shown[-1] == "causes and cures: oneir explain InvalidValue"


def test_a_script_that_is_none(cli):
    Path("m.py").write_text("@R.function\ndef main(x: R.Tensor((2,), 'float32')):\n    return R.flour(x)\n")
    message = fails(cli("show", "m.py"))
    assert message.startswith("oneir show: m.py: error: `R` has no attribute `flour`") and " --> m.py:3:12" in message
    Path("m.py").write_bytes(b"\xff")
    assert fails(cli("show", "m.py")) == (
        "oneir show: m.py: expected TVMScript or a program as JSON, found bytes that are no UTF-8 text"
    )


@pytest.mark.parametrize("command", ["import", "show", "compile", "run", "doctor"])
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert f"examples:\n  oneir {command}" in capsys.readouterr().out


def test_a_saved_module_is_all_that_a_process_needs(models: Path, tmp_path: Path):
    """Nothing that an importer would have loaded is missing; and a module goes through a pipe, weights included."""
    for model in ("graph.json", "loops.py"):
        command = [
            sys.executable,
            "-m",
            "oneir",
            "compile",
            str(models / model),
            "-o",
            str(tmp_path / "m.so"),
            "--json",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    command = [sys.executable, "-m", "oneir"]
    written = subprocess.run([*command, "import", str(models / "net.pt2"), "-o", "-"], capture_output=True, check=True)
    done = subprocess.run([*command, "run", "-", "--json"], input=written.stdout, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"") and json.loads(done.stdout)["outputs"][0]["shape"] == [1, 3]


def test_it_is_a_module_too_and_says_its_version():
    done = subprocess.run([sys.executable, "-m", "oneir", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"oneir {oneir.__version__}\n", "")


def test_the_installed_command(models: Path, graph: str):
    """It prints, and stops quietly when nobody reads on."""
    command = [str(Path(sys.executable).parent / "oneir"), "show", str(models / "graph.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert_structural_equal(from_source(done.stdout), from_source(graph))
    reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout is not None and reader.stderr is not None
    reader.stdout.close()
    assert reader.stderr.read() == b"" and reader.wait() == 0
    reader.stderr.close()


@pytest.mark.parametrize("command", [("serve", "model"), ("rpc-server",)], ids=lambda command: command[0])
@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_ports_that_are_none(cli, capsys, command, port):
    with pytest.raises(SystemExit, match="2"):
        cli(*command, f"--port={port}")
    assert f"argument --port: expected a port from 0 to 65535, found '{port}'" in capsys.readouterr().err
