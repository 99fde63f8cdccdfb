"""The commands of `oneir`, on a model exported by PyTorch and on a saved module: what they print, write and refuse."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from oneir import ir, relax, te
from oneir.cli.main import main
from oneir.ir import assert_structural_equal
from oneir.relax.frontend.torch import from_exported_program
from oneir.script import from_source

GRAPH = """
# from tvm.script import ir as I
# from tvm.script import relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), flags: R.Tensor((2,), "bool"), k: R.Prim("int64")):
        with R.dataflow():
            double = R.add(x, x)
            out = (double, (flags, R.astype(double, "float16")), k)
            R.output(out)
        return out

    @R.function
    def twice(x: R.Tensor((2,), "int32"), x_1: R.Tensor((2,), "int32")):
        with R.dataflow():
            out = R.multiply(x, x_1)
            R.output(out)
        return out
"""


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 4), torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(4)
    return Network().eval()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, network: Network) -> Path:
    """A folder with `net.pt2`, for any number of rows, and `graph.json`."""
    folder = tmp_path_factory.mktemp("models")
    shapes = ({0: torch.export.Dim("rows", min=1, max=64)},)
    torch.export.save(torch.export.export(network, (torch.zeros(2, 8),), dynamic_shapes=shapes), folder / "net.pt2")
    (folder / "graph.json").write_text(ir.save_json(from_source(GRAPH)))
    return folder


@pytest.fixture
def cli(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs a command in an empty folder; gives the exit code and what it wrote. `{models}` stands for the models."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main([argument.replace("{models}", str(models)) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def succeeds(result: tuple[int, str, str]) -> str:
    code, out, err = result
    assert (code, err) == (0, "")
    return out


def fails(result: tuple[int, str, str]) -> str:
    code, out, err = result
    assert (code, out) == (1, "") and err.count("Traceback") == 0
    return err.rstrip("\n")


# -- show --


def test_show_prints_the_module_as_imported(cli, models: Path):
    expected = from_exported_program(torch.export.load(models / "net.pt2"))
    assert succeeds(cli("show", "{models}/net.pt2")) == expected.script() + "\n"


def test_show_prints_a_saved_module(cli):
    assert_structural_equal(from_source(succeeds(cli("show", "{models}/graph.json"))), from_source(GRAPH))


@pytest.mark.parametrize(
    ("stage", "names"),
    [
        ("imported", {"main"}),
        ("legalized", {"add", "add1", "main", "matmul", "matmul1", "relu", "transpose", "transpose1"}),
        ("fused", {"fused_NT_matmul_add_relu", "fused_NT_matmul1_add1", "main"}),
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
    text = succeeds(cli("show", "{models}/graph.json", "--stage", "legalized", "--diff", "imported"))
    assert text.startswith("--- imported\n+++ legalized\n")
    assert '-            double: R.Tensor((n, 3), dtype="float32") = R.add(x, x)' in text.splitlines()
    assert any(line.startswith("+") and "R.call_tir(cls.add, (x, x)" in line for line in text.splitlines())


def test_show_that_nothing_changes(cli):
    text = succeeds(cli("show", "{models}/net.pt2", "--stage", "fused", "--diff", "fused"))
    assert text == "fused and fused are the same\n"


# -- compile and run --


def test_compile_and_run_give_what_pytorch_gives(cli, network: Network):
    said = succeeds(cli("compile", "{models}/net.pt2", "-o", "net.so"))
    assert said.startswith("net.so: ") and "MB, functions main, compiled in " in said
    x = np.random.default_rng(0).standard_normal((5, 8), dtype="float32")
    np.save("x.npy", x)
    printed = succeeds(cli("run", "net.so", "--input", "x=x.npy", "--output", "y.npz"))
    with torch.inference_mode():
        expected = network(torch.from_numpy(x)).numpy()
    with np.load("y.npz") as results:
        np.testing.assert_allclose(results["output_0"], expected, rtol=1e-5, atol=1e-6)
        first = ", ".join(f"{v:.4g}" for v in results["output_0"].reshape(-1)[:6])
    assert printed == f"output 0: float32[5, 3] [{first}, ...]\n"


def test_compile_names_the_file_after_the_model(cli, models: Path):
    assert succeeds(cli("compile", "{models}/graph.json")).split(":")[0] == str(models / "graph.so")
    (models / "graph.so").unlink()


def test_compile_shows_where_the_time_goes(cli):
    lines = succeeds(cli("compile", "{models}/graph.json", "--time-passes", "-o", "graph.so")).splitlines()
    assert lines[0].split() == ["count", "seconds", "share"]
    rows = {line[:44].strip(): line[44:].split() for line in lines[1:-1]}
    assert [name for name in rows if name in ("the graph", "schedules", "loops", "code", "total")] == [
        "the graph",
        "schedules",
        "loops",
        "code",
        "total",
    ]
    assert rows["total"][2] == "100.0%"
    # One kernel or more, and the function that calls them, are modules of LLVM's each.
    assert int(rows["LLVM"][0]) >= 2
    stages = sum(float(rows[name][2].rstrip("%")) for name in ("the graph", "schedules", "loops", "code"))
    assert abs(stages - 100) < 0.5
    assert lines[-1].startswith("graph.so: ")


def test_run_a_model_on_numbers_that_a_seed_gives(cli):
    name = symbol(cli)
    first, again, other = (
        succeeds(cli("run", "{models}/net.pt2", "--extent", f"{name}=2", "--seed", seed)) for seed in "001"
    )
    assert first == again != other and first.startswith("output 0: float32[2, 3] [")


def symbol(cli) -> str:
    """The name that the exporter gave to the number of rows."""
    text = succeeds(cli("show", "{models}/net.pt2"))
    return text.split('x: R.Tensor(("')[1].split('"')[0]


def test_run_as_json(cli):
    np.save("x.npy", np.array([[1, 2, 3]], "float32"))
    np.save("flags.npy", np.array([True, False]))
    inputs = ["--input", "x=x.npy", "--input", "flags=flags.npy", "--input", "k=7"]
    found = json.loads(succeeds(cli("run", "{models}/graph.json", *inputs, "--json", "--repeat", "2", "--profile")))
    assert found["function"] == "main"
    assert found["inputs"]["x"] == {"type": "Tensor", "dtype": "float32", "shape": [1, 3]}
    assert [output["values"] for output in found["outputs"]] == [[[2, 4, 6]], [True, False], [[2, 4, 6]], 7]
    assert [output.get("dtype") for output in found["outputs"]] == ["float32", "bool", "float16", None]
    assert len(found["times_ms"]) == 2 and all(time > 0 for time in found["times_ms"])
    assert found["profile"]["function"] == "main" and found["profile"]["rows"]


def test_run_another_function(cli):
    """Its parameters are told apart by the names that are printed."""
    np.save("a.npy", np.array([2, 3], "int32"))
    np.save("b.npy", np.array([5, 7], "int32"))
    inputs = ["--input", "x=a.npy", "--input", "x_1=b.npy"]
    out = succeeds(cli("run", "{models}/graph.json", "--function", "twice", *inputs))
    assert out == "output 0: int32[2] [10, 21]\n"


def test_run_prints_times_and_a_profile_and_writes_a_trace(cli):
    out = succeeds(cli("run", "{models}/net.pt2", "--repeat", "3", "--profile", "--trace", "trace.json")).splitlines()
    assert out[1].startswith("3 runs: median ") and out[2].split()[:2] == ["Name", "Count"]
    assert any(line.startswith("fused_NT_matmul_add_relu") for line in out[3:])
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    assert any(event["name"].startswith("fused_NT_matmul_add_relu") for event in events)


# -- refusals --


def test_the_model_is_missing(cli):
    assert fails(cli("show", "nowhere.pt2")) == "oneir show: there is no file nowhere.pt2"
    assert fails(cli("compile", "nowhere.json")) == "oneir compile: there is no file nowhere.json"
    assert fails(cli("run", "nowhere.so")) == (
        "oneir run: cannot read the library nowhere.so: No such file or directory"
    )


@pytest.mark.parametrize(("name", "found"), [("model.onnx", ".onnx"), ("model", "no suffix")])
def test_a_model_of_another_kind(cli, name: str, found: str):
    Path(name).write_bytes(b"")
    message = fails(cli("show", name))
    assert message == (
        f"oneir show: {name}: models are .pt2 (saved by torch.export.save) or .json (saved by oneir.ir.save_json), "
        f"found {found}"
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
        (b"\xff\xfe", "m.json: expected a program as JSON, found bytes that are no UTF-8 text"),
        (ir.save_json(te.var("n")).encode(), "m.json holds a Var, not a module"),
    ],
)
def test_a_file_that_holds_no_module(cli, content: bytes, message: str):
    Path("m.json").write_bytes(content)
    assert fails(cli("show", "m.json")).startswith(f"oneir show: {message}")


def test_a_damaged_library(cli, models: Path):
    succeeds(cli("compile", "{models}/graph.json", "-o", "graph.so"))
    Path("graph.so").write_bytes(Path("graph.so").read_bytes()[:5000])
    assert fails(cli("run", "graph.so")) == (
        "oneir run: graph.so is not a library that export_library wrote, or it is cut short; export it again"
    )


def test_unknown_functions(cli):
    show, run = ("show", "{models}/graph.json"), ("run", "{models}/graph.json")
    assert fails(cli(*show, "--function", "f")) == (
        "oneir show: after the stage imported there is no function 'f'; there are main, twice"
    )
    assert fails(cli(*run, "--function", "f")) == "oneir run: the program has no function 'f'; it has main, twice"
    assert fails(cli(*show, "--function", "main", "--stage", "asm")) == (
        "oneir show: --names and --function are for stages that are modules; asm is none"
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--input", "y=x.npy"], "`main` has no input 'y'; it has x"),
        (["--input", "x"], "--input is written NAME=VALUE, found 'x'"),
        (["--input", "x=nowhere.npy"], "[Errno 2] No such file or directory: 'nowhere.npy'"),
        (["--input", "x=text.npy"], "--input x=text.npy: expected an array that numpy.save wrote: "),
        (["--input", "x=two.npz"], "--input x=two.npz: expected one array (.npy), found an archive of several (.npz)"),
        (["--input", "x=wide.npy"], "argument 0 `x` of `main`: expected shape "),
        (["--input", "x=double.npy"], "argument 0 `x` of `main`: expected dtype float32, found float64"),
        (["--extent", "rows=2"], "`main` has no symbolic extent 'rows'; it has "),
    ],
)
def test_inputs_that_do_not_fit(cli, option: list[str], message: str):
    Path("text.npy").write_text("no array")
    np.savez("two.npz", a=1, b=2)
    np.save("wide.npy", np.zeros((2, 9), "float32"))
    np.save("double.npy", np.zeros((2, 8)))
    assert fails(cli("run", "{models}/net.pt2", *option)).startswith(f"oneir run: {message}")


def test_numbers_that_are_none(cli):
    run = ("run", "{models}/graph.json")
    assert fails(cli(*run, "--extent", "n=many")) == "oneir run: --extent n=many: an extent is a number such as 8"
    assert fails(cli(*run, "--input", "k=many")) == "oneir run: --input k=many: expected a number of dtype int64"
    assert fails(cli(*run)).endswith("the input `k` is no tensor of known dtype and rank: give it with --input")


def test_an_unknown_target(cli):
    assert 'There is no target kind or tag "lvm"' in fails(cli("compile", "{models}/graph.json", "--target", "lvm"))


def test_a_folder_that_is_not_there(cli):
    assert fails(cli("compile", "{models}/graph.json", "-o", "nowhere/graph.so")) == (
        "oneir compile: cannot write nowhere/graph.so: the directory nowhere does not exist"
    )


@pytest.mark.parametrize("arguments", [[], ["show"], ["fly", "x"], ["show", "x", "--stage", "boiled"]])
def test_a_command_line_that_is_not_understood(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2 and capsys.readouterr().err.startswith("usage: oneir")


def test_an_error_with_its_traceback():
    with pytest.raises(Exception, match=r"there is no file nowhere\.pt2"):
        main(["--traceback", "show", "nowhere.pt2"])


# -- the command itself --


def test_the_installed_command(models: Path):
    """It prints, and stops quietly when nobody reads on."""
    command = [str(Path(sys.executable).parent / "oneir"), "show", str(models / "graph.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert_structural_equal(from_source(done.stdout), from_source(GRAPH))
    reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout is not None and reader.stderr is not None
    reader.stdout.close()
    assert reader.stderr.read() == b"" and reader.wait() == 1
    reader.stderr.close()
