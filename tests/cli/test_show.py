"""`oneir show`: what it prints at each stage, what changes between stages, and what it refuses."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import torch
from cli_results import fails, succeeds

from oneir import ir, relax
from oneir.cli.main import main
from oneir.driver.graph import lower_graph
from oneir.driver.stages import Stages, stages
from oneir.ir import assert_structural_equal
from oneir.relax.frontend.torch import from_exported_program
from oneir.script import from_source
from oneir.target import Target


def test_show_prints_the_module_as_imported(cli, models: Path):
    expected = from_exported_program(torch.export.load(models / "net.pt2"))
    assert succeeds(cli("show", "{models}/net.pt2")) == expected.script() + "\n"


def test_show_prints_a_saved_module(cli, graph: str):
    assert_structural_equal(from_source(succeeds(cli("show", "{models}/graph.json"))), from_source(graph))


@pytest.mark.parametrize(
    ("stage", "names"),
    [
        ("imported", {"main"}),
        ("legalized", {"add", "add1", "main", "NT_matmul", "NT_matmul1", "relu"}),
        ("fused", {"fused_NT_matmul_add_relu", "fused_NT_matmul1_add1", "main"}),
        ("planned", {"fused_NT_matmul_add_relu1", "fused_NT_matmul1_add11", "main", "shape_func"}),
        ("program", {"fused_NT_matmul_add_relu1", "fused_NT_matmul1_add11", "main", "shape_func"}),
    ],
)
def test_show_names_after_a_stage(cli, stage: str, names: set[str]):
    assert set(succeeds(cli("show", "{models}/net.pt2", "--stage", stage, "--names")).split()) == names


def test_show_one_function(cli):
    text = succeeds(cli("show", "{models}/net.pt2", "--stage", "legalized", "--function", "relu"))
    assert "    def relu(" in text and text.count("def ") == 1
    text = succeeds(cli("show", "{models}/net.pt2", "--stage", "legalized", "--function", "main"))
    assert "    def main(" in text and "R.call_tir(relu, (lv2,)" in text and text.count("def ") == 1


@pytest.mark.parametrize(
    ("stage", "part"),
    [
        ("lowered", "R.builtin.alloc_tensor("),
        ("planned", "R.vm.alloc_storage("),
        ("program", "@main:"),
        ("scheduled", "T.vectorized("),
        ("tir", "T.func_attr({"),
        ("llvm", "define "),
        ("asm", "main"),
    ],
)
def test_show_a_later_stage(cli, stage: str, part: str):
    assert part in succeeds(cli("show", "{models}/net.pt2", "--stage", stage))


def test_show_resolves_outputs_as_building_does(cli):
    """A graph that returns a variable of a dataflow block, as older builders let it, is compiled; so it can be shown."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            inside = bb.emit(relax.op.add(x, x))
            bb.emit_output(inside)
        bb.emit_func_output(inside)
    Path("m.json").write_text(ir.save_json(bb.get()))
    assert "return lv" in succeeds(cli("show", "m.json"))
    assert "return lv" not in succeeds(cli("show", "m.json", "--stage", "fused"))


def test_show_what_changes_between_stages(cli):
    text = succeeds(cli("show", "{models}/graph.json", "--diff", "imported", "legalized"))
    assert text.startswith("--- imported\n+++ legalized\n")
    assert '-            double: R.Tensor((n, 3), dtype="float32") = R.add(x, x)' in text.splitlines()
    assert any(line.startswith("+") and "R.call_tir(cls.add, (x, x)" in line for line in text.splitlines())


def test_show_that_nothing_changes(cli):
    text = succeeds(cli("show", "{models}/net.pt2", "--diff", "fused", "fused"))
    assert text == "fused and fused are the same\n"


def test_diff_of_a_function_that_only_one_stage_has(cli):
    text = succeeds(cli("show", "{models}/net.pt2", "--diff", "imported", "legalized", "--function", "relu"))
    assert "+    def relu(" in text and not any(line.startswith("-") for line in text.splitlines()[2:])


def test_diff_of_names(cli):
    text = succeeds(cli("show", "{models}/net.pt2", "--diff", "imported", "legalized", "--names"))
    assert {line for line in text.splitlines()[2:] if line[0] == "+"} == {
        "+NT_matmul",
        "+NT_matmul1",
        "+add",
        "+add1",
        "+relu",
    }


def test_one_kernel_as_code_is_that_kernel_alone(cli):
    options = ("{models}/net.pt2", "--function", "fused_NT_matmul_add_relu1")
    for stage in ("scheduled", "tir"):
        text = succeeds(cli("show", *options, "--stage", stage))
        assert "def fused_NT_matmul_add_relu1__direct(" in text and text.count("def ") == 1
    text = succeeds(cli("show", *options, "--stage", "llvm"))
    assert "@fused_NT_matmul_add_relu1__direct(" in text and "NT_matmul1" not in text
    assert "fused_NT_matmul_add_relu1__direct:" in succeeds(cli("show", *options, "--stage", "asm"))


def test_stages_are_those_of_the_default_pipeline(cli):
    """What is compiled is what the last stage of the graph shows."""
    lines = succeeds(cli("show", "--stages")).splitlines()
    found: list[list[str]] = []
    for line in lines:
        if line[0] == " ":
            found[-1].append(line.strip())
        else:
            found.append([line.split()[1]])
    assert found == [[stage.name, *map(repr, stage.passes)] for stage in stages(Target("llvm"))]
    module = from_source(graph_of_two)
    lowered = lower_graph(module, Target("llvm"), None, "default")
    assert_structural_equal(Stages(module, "llvm").module("planned"), lowered)


graph_of_two = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        y = R.add(x, x)
        return R.nn.relu(y)
"""


def test_loops_have_the_stages_of_loops(cli):
    text = succeeds(cli("show", "{models}/loops.py"))
    assert_structural_equal(from_source(text)["add_one"], from_source(text_of_loops(cli))["add_one"])
    assert "def add_one(" in succeeds(cli("show", "{models}/loops.py", "--stage", "tir"))
    assert "add_one:" in succeeds(cli("show", "{models}/loops.py", "--stage", "asm"))
    for stage in ("fused", "program"):
        assert fails(cli("show", "{models}/loops.py", "--stage", stage)) == (
            "oneir show: the module has no graph, only loops, which go from imported through tir to code; "
            f"{stage} is for graphs"
        )


def test_a_script_that_also_runs_is_read_and_not_run(cli, models: Path):
    program = "if __name__ == '__main__':\n    raise SystemExit(3)\n\n"
    Path("m.py").write_text(program + (models / "loops.py").read_text() + program)
    assert succeeds(cli("show", "m.py")) == succeeds(cli("show", "{models}/loops.py"))
    Path("m.py").write_text(program + "f(")
    assert " --> m.py:4:2" in fails(cli("show", "m.py"))


def text_of_loops(cli) -> str:
    """The loops after they were written as JSON and read again."""
    succeeds(cli("import", "{models}/loops.py", "-o", "loops.json"))
    return succeeds(cli("show", "loops.json"))


def test_a_module_from_stdin(cli, graph: str, monkeypatch: pytest.MonkeyPatch):
    for text in (graph, ir.save_json(from_source(graph))):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert_structural_equal(from_source(succeeds(cli("show", "-"))), from_source(graph))


def test_a_terminal_gets_colours(cli, monkeypatch: pytest.MonkeyPatch):
    plain = succeeds(cli("show", "{models}/graph.json", "--diff", "imported", "legalized"))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    coloured = succeeds(cli("show", "{models}/graph.json", "--diff", "imported", "legalized"))
    assert "\x1b[" in coloured
    *lines, count = re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()
    assert lines == plain.splitlines()
    added = sum(line.startswith("+") for line in lines[2:])
    assert count.endswith(f" removed, {added} added")


def test_a_compiled_file(cli):
    succeeds(cli("compile", "{models}/graph.json", "-o", "graph.so"))
    text = succeeds(cli("show", "graph.so"))
    assert text.startswith("Relax VM executable statistics:") and "@main:" in text
    assert succeeds(cli("show", "graph.so", "--names")) == "main\ntwice\n"
    assert fails(cli("show", "graph.so", "--stage", "asm")) == (
        "oneir show: graph.so is compiled: only its program can be shown; show the stages of the model"
    )
    succeeds(cli("compile", "{models}/loops.py", "-o", "loops.so"))
    assert succeeds(cli("show", "loops.so")) == "add_one(A: float32[4], B: float32[4])\n"


def test_unknown_functions(cli):
    show, run = ("show", "{models}/graph.json"), ("run", "{models}/graph.json")
    assert fails(cli(*show, "--function", "f")) == (
        "oneir show: after the stage imported there is no function 'f'; there are main, twice"
    )
    assert fails(cli(*run, "--function", "f")) == "oneir run: the program has no function 'f'; it has main, twice"
    assert fails(cli(*show, "--function", "main", "--stage", "program")) == (
        "oneir show: the program is shown as a whole; --function is for the other stages"
    )
    assert fails(cli(*show, "--function", "f", "--diff", "imported", "fused")) == (
        "oneir show: after the stage fused there is no function 'f'; there are add, cast, main, multiply, twice"
    )


@pytest.mark.parametrize("options", [["--stage", "boiled"], ["--diff", "fused", "boiled"]])
def test_a_stage_that_there_is_not(options: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(["show", "m.json", *options])
    assert "there is no stage 'boiled'; there are imported, dispatched, legalized, fused, " in capsys.readouterr().err
