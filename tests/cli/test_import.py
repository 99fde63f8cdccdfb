"""`oneir import`: what it says of a model, and the module that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from cli_results import fails, succeeds
from onnx import TensorProto, helper

from oneir.ir import assert_structural_equal, load_json
from oneir.relax.frontend.torch import from_exported_program
from oneir.script import from_source


def onnx_model(operator: str = "Relu", shape: tuple[int | str | None, ...] = ("batch", 3)) -> onnx.ModelProto:
    """`operator(x @ w + b)`, for an `x` of a shape."""
    w, b = np.arange(6, dtype="float32").reshape(3, 2) - 2, np.array([0.5, -1], "float32")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["sum"]),
        helper.make_node(operator, ["sum"], ["y"], name="last", domain="" if operator == "Relu" else "mine"),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("rows", 2))],
        [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(b, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)])


def test_what_is_in_a_model(cli, rows: str):
    lines = [" ".join(line.split()) for line in succeeds(cli("import", "{models}/net.pt2")).splitlines()]
    assert lines[0].partition("/net.pt2, imported in ")[2].endswith(" s")
    # Two layers: 8 x 4 + 4 and 4 x 3 + 3 numbers of 4 bytes.
    assert lines[1:] == [
        "",
        "graph main",
        f"input x float32[{rows}, 8]",
        f"output output_0 float32[{rows}, 3]",
        f"symbolic {rows}: any extent, known when the model runs",
        "weights 4 tensors, 51 numbers, 204 bytes",
        "7 calls of 4 operators:",
        "2 relax.permute_dims",
        "2 relax.matmul",
        "2 relax.add",
        "1 relax.nn.relu",
    ]


def test_what_is_in_a_model_as_json(cli):
    found = json.loads(succeeds(cli("import", "{models}/graph.json", "--json")))
    main, twice = found["graphs"]
    assert main["inputs"] == [
        {"name": "x", "type": "tensor", "dtype": "float32", "shape": ["n", 3]},
        {"name": "flags", "type": "tensor", "dtype": "bool", "shape": [2]},
        {"name": "k", "type": 'Prim("int64")', "dtype": None, "shape": None},
    ]
    assert [output["dtype"] for output in main["outputs"]] == ["float32", "bool", "float16", None]
    assert main["operators"] == {"relax.add": 1, "relax.astype": 1} and main["symbolic"] == ["n"]
    assert twice["name"] == "twice" and twice["weights"] == {"tensors": 0, "numbers": 0, "bytes": 0}
    assert found["loops"] == [] and found["model"].endswith("graph.json")


def test_loops_are_their_signatures(cli):
    text = succeeds(cli("import", "{models}/loops.py"))
    assert text.endswith("1 function of loops\n  add_one(A: float32[4], B: float32[4])\n")


@pytest.mark.parametrize("name", ["net.json", "net.py"])
def test_the_module_that_is_written_has_its_weights(cli, models: Path, name: str):
    said = succeeds(cli("import", "{models}/net.pt2", "-o", name))
    assert said.splitlines()[-1].startswith(f"{name}: ")
    text = Path(name).read_text()
    module = load_json(text) if name.endswith(".json") else from_source(text)
    assert_structural_equal(module, from_exported_program(torch.export.load(models / "net.pt2")))
    assert succeeds(cli("show", name)) == succeeds(cli("show", "{models}/net.pt2"))


def test_a_module_on_stdout_is_all_that_is_there(cli, graph: str):
    code, out, err = cli("import", "{models}/graph.json", "-o", "-")
    assert code == 0 and "graph main" in err
    assert_structural_equal(from_source(out), from_source(graph))


def test_an_onnx_model_is_imported_compiled_and_run(cli):
    onnx.save(onnx_model(), "net.onnx")
    assert "float32[batch, 3]" in succeeds(cli("import", "net.onnx"))
    succeeds(cli("compile", "net.onnx", "-o", "net.so"))
    np.save("x.npy", np.array([[1, 2, 3]], "float32"))
    found = json.loads(succeeds(cli("run", "net.so", "--input", "x.npy", "--json")))
    # [1, 2, 3] @ [[-2, -1], [0, 1], [2, 3]] = [4, 10]
    assert found["outputs"][0]["values"] == [[4.5, 9]]
    assert "float32[7, 3]" in succeeds(cli("import", "net.onnx", "--shape", "x=7,3"))


# -- refusals --


def test_an_onnx_model_whose_shape_is_not_said(cli):
    onnx.save(onnx_model(shape=(None, 3)), "net.onnx")
    assert "any extent, known when the model runs" in succeeds(cli("import", "net.onnx"))
    assert "float32[n, 3]" in succeeds(cli("import", "net.onnx", "--shape", "x=n,3"))
    assert fails(cli("import", "net.onnx", "--shape", "z=n,3")) == (
        "oneir import: net.onnx: shape_dict has z; the inputs of the model are x\n"
        "On the command line: --shape NAME=1,3,n, with numbers or names for the extents"
    )


def test_an_onnx_model_with_an_operator_that_is_not_known(cli):
    onnx.save(onnx_model("Whirl"), "net.onnx")
    message = fails(cli("compile", "net.onnx"))
    assert message.startswith("oneir compile: net.onnx: 1 part of the model cannot be imported:")
    assert "last" in message and "Whirl" in message and "shape_dict" not in message
    assert "What to do: export the model with operators that can be imported" in message


def test_an_onnx_model_that_does_not_say_its_rank(cli):
    graph = onnx.parser.parse_graph("f (float[2, n] x) => (float[2, n] y) { y = Exp(x) }")
    graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]), "net.onnx")
    message = fails(cli("import", "net.onnx"))
    assert message.endswith("On the command line: --shape x=1,..., with numbers or names for the extents")
    assert "output  y  float32[2, 5]" in succeeds(cli("import", "net.onnx", "--shape", "x=2,5"))


def test_outputs_keep_their_names(cli):
    onnx.save(onnx_model(shape=(2, 3)), "net.onnx")
    name = onnx.load("net.onnx").graph.output[0].name
    assert f"  output  {name}  float32[2, 2]" in succeeds(cli("import", "net.onnx"))
    succeeds(cli("compile", "net.onnx", "-o", "net.so"))
    for program in ("net.onnx", "net.so"):
        succeeds(cli("run", program, "--output", "results.npz"))
        assert np.load("results.npz").files == [name]
        assert f"output {name} float32[2, 2]" in " ".join(succeeds(cli("run", program)).split())
        assert json.loads(succeeds(cli("run", program, "--json")))["outputs"][0]["name"] == name


def test_an_onnx_model_that_is_cut_short(cli):
    Path("net.onnx").write_bytes(onnx_model().SerializeToString()[:60])
    assert "net.onnx is no ONNX model, or it is cut short" in fails(cli("import", "net.onnx"))


@pytest.mark.parametrize("text", ["x", "x=1;3", "x=1,,3"])
def test_a_shape_that_is_none(cli, text: str):
    onnx.save(onnx_model(), "net.onnx")
    assert fails(cli("import", "net.onnx", "--shape", text)) == (
        f"oneir import: --shape is written NAME=N,N,... with numbers or names of extents, found {text!r}"
    )


def test_shapes_are_for_onnx(cli):
    assert fails(cli("import", "{models}/graph.json", "--shape", "x=1")) == (
        "oneir import: --shape is for ONNX models; the inputs of a .json file have their shapes"
    )


def test_a_module_is_written_as_json_or_script(cli):
    assert fails(cli("import", "{models}/graph.json", "-o", "graph.onnx")) == (
        "oneir import: modules are written as .json or .py (TVMScript), found graph.onnx"
    )
