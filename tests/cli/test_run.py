"""`oneir compile` and `oneir run`: results, times, files; inputs that do not fit."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_results import fails, succeeds
from devices import needs_opencl, needs_vulkan, needs_webgpu

from oneir.cli.inputs import Inputs
from oneir.runtime.error import InvalidValue
from oneir.runtime.signature import Param, Signature


def test_compile_and_run_give_what_pytorch_gives(cli, network: Network):
    said = succeeds(cli("compile", "{models}/net.pt2", "-o", "net.so"))
    assert said.startswith("net.so: ") and "kB, functions main, compiled in " in said
    x = np.random.default_rng(0).standard_normal((5, 8), dtype="float32")
    np.save("x.npy", x)
    printed = succeeds(cli("run", "net.so", "--input", "x=x.npy", "--output", "y.npz"))
    with torch.inference_mode():
        expected = network(torch.from_numpy(x)).numpy()
    with np.load("y.npz") as results:
        np.testing.assert_allclose(results["output_0"], expected, rtol=1e-5, atol=1e-6)
        first = ", ".join(f"{v:.4g}" for v in results["output_0"].reshape(-1)[:6])
    lines = printed.splitlines()
    assert lines[0].split() == ["input", "x", "float32[5,", "8]", "given"]
    assert lines[1].startswith("output  output_0") and lines[1].endswith(f"float32[5, 3]  [{first}, ...]")
    assert lines[2].endswith(" ms for the first call; --repeat N tells how long later ones take") and len(lines) == 3


@pytest.mark.parametrize(
    "kind, stage, kernel",
    [
        pytest.param("opencl", "opencl", "__kernel void", marks=needs_opencl),
        pytest.param("vulkan", "spirv", "OpEntryPoint GLCompute", marks=needs_vulkan),
        pytest.param("webgpu", "wgsl", "@compute", marks=needs_webgpu),
    ],
)
def test_a_model_runs_on_another_device(cli, network: Network, kind: str, stage: str, kernel: str):
    """Compiled on the way, and from a file; results are those of PyTorch."""
    x = np.random.default_rng(0).standard_normal((5, 8), dtype="float32")
    np.save("x.npy", x)
    with torch.inference_mode():
        expected = network(torch.from_numpy(x)).numpy()
    succeeds(cli("compile", "{models}/net.pt2", "-o", "there.so", "--target", kind))
    for program in ("{models}/net.pt2", "there.so"):
        succeeds(cli("run", program, "--device", kind, "--input", "x=x.npy", "--output", "y.npz"))
        with np.load("y.npz") as results:
            np.testing.assert_allclose(results["output_0"], expected, rtol=1e-5, atol=1e-6)
    message = fails(cli("run", "there.so", "--input", "x=x.npy"))
    assert f"`main` is compiled for {kind}; the machine has only cpu:0" in message
    if kind != "webgpu":
        profile = json.loads(succeeds(cli("run", "there.so", "--device", kind, "--profile", "--json")))["profile"]
        kernels = [call for call in profile["calls"] if call["Argument Shapes"]]
        assert kernels and all(call["Duration (us)"]["microseconds"] > 0 for call in kernels)  # by the device's clock
    else:
        refusal = fails(cli("run", "there.so", "--device", kind, "--profile"))
        assert f"what each kernel takes is not measured on {kind}:0" in refusal
    assert kernel in succeeds(cli("show", "{models}/net.pt2", "--stage", stage, "--target", kind))


def test_a_device_that_is_not_there_is_an_error_that_says_so(cli):
    assert 'code for the target "hexagon" cannot be generated' in fails(
        cli("run", "{models}/net.pt2", "--device", "hexagon")
    )
    assert "metal:0 cannot be used: there is no driver for devices of this kind" in fails(
        cli("run", "{models}/net.pt2", "--device", "metal")
    )
    assert "is no kind of device; expected one of cpu, cuda," in fails(
        cli("run", "{models}/net.pt2", "--device", "tpu")
    )


def test_compile_names_the_file_after_the_model(cli, models: Path):
    assert succeeds(cli("compile", "{models}/graph.json")).split(":")[0] == str(models / "graph.so")
    (models / "graph.so").unlink()


def test_compile_shows_where_the_time_goes(cli):
    lines = succeeds(cli("compile", "{models}/graph.json", "--time-passes", "-o", "graph.so")).splitlines()
    assert lines[0].split() == ["count", "seconds", "share"]
    rows = {line[:44].strip(): line[44:].split() for line in lines[1:-1]}
    assert [name for name in rows if name in ("graph", "schedules", "lowering", "code", "total")] == [
        "graph",
        "schedules",
        "lowering",
        "code",
        "total",
    ]
    assert rows["total"][2] == "100.0%"
    # One kernel or more, and the function that calls them, are modules of LLVM's each.
    assert int(rows["compiling code"][0]) >= 2
    stages = sum(float(rows[name][2].rstrip("%")) for name in ("graph", "schedules", "lowering", "code"))
    assert abs(stages - 100) < 0.5
    assert lines[-1].startswith("graph.so: ")


def test_run_a_model_on_numbers_that_a_seed_gives(cli, rows: str):
    first, again, other = (
        values_of(cli("run", "{models}/net.pt2", "--extent", f"{rows}=2", "--seed", seed, "--json")) for seed in "001"
    )
    assert first == again != other and np.shape(first) == (1, 2, 3)


def values_of(result: tuple[int, str, str]) -> list[Any]:
    """The values that `oneir run --json` printed."""
    return [output["values"] for output in json.loads(succeeds(result))["outputs"]]


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
    assert found["profile"]["configuration"]["Function"] == "main" and found["profile"]["calls"]


def test_run_another_function(cli):
    """Its parameters are told apart by the names that are printed."""
    np.save("a.npy", np.array([2, 3], "int32"))
    np.save("b.npy", np.array([5, 7], "int32"))
    inputs = ["--input", "x=a.npy", "--input", "x_1=b.npy"]
    out = succeeds(cli("run", "{models}/graph.json", "--function", "twice", *inputs)).splitlines()
    assert [" ".join(line.split()) for line in out[:-1]] == [
        "input x int32[2] given",
        "input x_1 int32[2] given",
        "output output_0 int32[2] [10, 21]",
    ]


def test_run_prints_times_and_a_profile_and_writes_a_trace(cli):
    out = succeeds(cli("run", "{models}/net.pt2", "--repeat", "3", "--profile", "--trace", "trace.json")).splitlines()
    assert out[2] == "extents that nothing says: x_dim0 = 1; --extent x_dim0=N sets one"
    assert out[3].startswith("3 runs: median ") and re.fullmatch(r"kernels, each with its .* time of \d+ runs?", out[5])
    assert out[7].split()[:2] == ["Name", "Count"] and out[-1].split()[0] == "Sum"
    assert any(line.startswith("fused_NT_matmul_add_relu") for line in out[9:])
    assert not any("vm.builtin" in line for line in out)
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    assert any(event["name"].startswith("fused_NT_matmul_add_relu") for event in events)


def test_a_damaged_library(cli, models: Path):
    succeeds(cli("compile", "{models}/graph.json", "-o", "graph.so"))
    Path("graph.so").write_bytes(Path("graph.so").read_bytes()[:5000])
    assert fails(cli("run", "graph.so")) == (
        "oneir run: graph.so is not a library that export_library wrote, or it is cut short; export it again"
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--input", "y=x.npy"], "`main` has no input 'y'; it has x"),
        (
            ["--input", "x"],
            "--input is written NAME=FILE.npy, NAME=NUMBER or FILE.npz, found 'x'; the inputs of `main` are x",
        ),
        (["--input", "x=nowhere.npy"], "nowhere.npy: No such file or directory"),
        (["--input", "nowhere.npz"], "nowhere.npz: No such file or directory"),
        (["--input", "two.npz"], "`main` has no input 'a'; it has x"),
        (["--input", "cut.npz"], "--input cut.npz: expected an archive that numpy.savez wrote; it may be cut short"),
        (["--output", "y.txt"], "--output is an archive of arrays, FILE.npz, found y.txt"),
        (["--input", "x=text.npy"], "--input x=text.npy: expected an array that numpy.save wrote: "),
        (
            ["--input", "x=two.npz"],
            "--input x=two.npz: expected one array (.npy), found an archive of several (.npz); leave out NAME=",
        ),
        (["--input", "x=wide.npy"], "argument 0 `x` of `main`: expected shape "),
        (["--input", "x=double.npy"], "the input `x`: expected dtype float32, found float64; save it as numpy.save("),
        (["--extent", "rows=2"], "`main` has no symbolic extent 'rows'; it has "),
    ],
)
def test_inputs_that_do_not_fit(cli, option: list[str], message: str):
    Path("text.npy").write_text("no array")
    np.savez("two.npz", a=1, b=2)
    Path("cut.npz").write_bytes(Path("two.npz").read_bytes()[:60])
    np.save("wide.npy", np.zeros((2, 9), "float32"))
    np.save("double.npy", np.zeros((2, 8)))
    assert fails(cli("run", "{models}/net.pt2", *option)).startswith(f"oneir run: {message}")


def test_numbers_that_are_none(cli):
    run = ("run", "{models}/graph.json")
    assert fails(cli(*run, "--extent", "n=many")) == (
        "oneir run: --extent is written NAME=N, N a number such as 8, found 'n=many'"
    )
    assert fails(cli(*run, "--input", "k=many")) == "oneir run: --input k=many: expected a number of dtype int64"
    assert fails(cli(*run)).endswith("the input `k` is no tensor of known dtype and rank: give it with --input k=...")


@pytest.mark.parametrize(
    ("command", "option", "file"),
    [
        ("compile", "-o", "graph.so"),
        ("compile", "--header", "m.h"),
        ("import", "-o", "m.py"),
        ("run", "--output", "r.npz"),
    ],
)
def test_a_directory_that_is_not_there_is_found_before_the_model_is_read(cli, command, option, file):
    assert fails(cli(command, "{models}/none.json", option, f"nowhere/{file}")) == (
        f"oneir {command}: cannot write nowhere/{file}: the directory nowhere does not exist"
    )


def test_an_unknown_target(cli):
    assert 'There is no target kind or tag "lvm"' in fails(cli("compile", "{models}/graph.json", "--target", "lvm"))


# -- inputs --


def test_arrays_by_their_names_and_what_follows_for_the_others(cli):
    """The rows of the array that is given say how many rows the random one has."""
    np.savez("inputs.npz", x=np.ones((4, 3), "float32"), k=np.array(7))
    values = values_of(cli("run", "{models}/graph.json", "--input", "inputs.npz", "--json"))
    assert values[0] == [[2] * 3] * 4 and values[3] == 7


def test_the_only_input_needs_no_name(cli, network):
    x = np.random.default_rng(1).standard_normal((2, 8), dtype="float32")
    np.save("any.npy", x)
    (values,) = values_of(cli("run", "{models}/net.pt2", "--input", "any.npy", "--json"))
    with torch.inference_mode():
        np.testing.assert_allclose(values, network(torch.from_numpy(x)).numpy(), rtol=1e-5, atol=1e-6)


def test_an_array_from_stdin(cli, monkeypatch: pytest.MonkeyPatch):
    data = io.BytesIO()
    np.save(data, np.array([3, 4], "int32"))
    data.seek(0)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(data))
    np.save("b.npy", np.array([5, 7], "int32"))
    inputs = ["--input", "x=-", "--input", "x_1=b.npy"]
    assert values_of(cli("run", "{models}/graph.json", "--function", "twice", *inputs, "--json")) == [[15, 28]]


def test_extents_follow_from_what_is_given():
    signature = Signature(
        "f", (Param("a", "tensor", "float32", ("n", 2)), Param("b", "tensor", "int64", ("n * 2", "m")))
    )
    inputs = Inputs(signature, [], ["n=3"], 0)
    a, b = inputs.arguments()
    assert inputs.assumptions() == "extents that nothing says: m = 64; --extent m=N sets one"
    assert (a.shape, b.shape) == ((3, 2), (6, 64)) and set(b.numpy().reshape(-1).tolist()) <= {0, 1}


def test_an_extent_that_nothing_tells():
    signature = Signature("f", (Param("a", "tensor", "float32", ("T.max(n, 2)",)),))
    with pytest.raises(
        InvalidValue, match=r"the shape of the input `a` cannot be told, for its extent T\.max\(n, 2\);"
    ):
        Inputs(signature, [], [], 0).arguments()


def test_an_extent_that_an_array_contradicts(cli, rows: str):
    np.save("x.npy", np.zeros((2, 8), "float32"))
    message = fails(cli("run", "{models}/net.pt2", "--input", "x=x.npy", "--extent", f"{rows}=3"))
    assert message == f"oneir run: --extent {rows}=3: the inputs that are given say that {rows} = 2"


# -- loops --


def test_loops_give_what_they_write(cli):
    np.save("a.npy", np.arange(4, dtype="float32"))
    inputs = ["--input", "A=a.npy", "--json", "--repeat", "2"]
    assert values_of(cli("run", "{models}/loops.py", *inputs)) == [[1, 2, 3, 4]]
    assert succeeds(cli("compile", "{models}/loops.py", "-o", "loops.so")).startswith("loops.so: ")
    assert values_of(cli("run", "loops.so", *inputs)) == [[1, 2, 3, 4]]
    assert "zeros, to be written" in succeeds(cli("run", "loops.so"))


def test_loops_have_nothing_to_profile(cli):
    assert fails(cli("run", "{models}/loops.py", "--profile")) == (
        "oneir run: `add_one` is one kernel: there is nothing in it to profile"
    )


# -- compile, for scripts --


def test_compile_as_json(cli):
    found = json.loads(succeeds(cli("compile", "{models}/graph.json", "-o", "g.so", "--json", "--time-passes")))
    assert found["output"] == "g.so" and found["functions"] == ["main", "twice"]
    assert (
        found["bytes"] == Path("g.so").stat().st_size and found["seconds"] > 0 and "compiling code" in found["passes"]
    )


def test_compile_a_module_from_stdin_needs_a_name(cli):
    assert fails(cli("compile", "-")) == (
        "oneir compile: a model from stdin has no name: say with -o which file to write"
    )
