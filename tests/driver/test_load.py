"""Models as functions of arrays: from files and modules, called by position and by name, with results by name."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import oneir
from oneir import relax
from oneir.driver.load import Model
from oneir.runtime import error
from oneir.script import from_source

RNG = np.random.default_rng(0)
X, Y = RNG.random((3, 4), "float32"), RNG.random((3, 4), "float32")


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sum and difference of two matrices with any number of rows."""
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", 4]) for n in ("x", "y", "sum", "less")]
    nodes = [helper.make_node("Add", ["x", "y"], ["sum"]), helper.make_node("Sub", ["x", "y"], ["less"])]
    graph = helper.make_graph(nodes, "both", values[:2], values[2:])
    path = tmp_path_factory.mktemp("onnx") / "both.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


@pytest.fixture(scope="module")
def model(onnx_file: Path) -> Model:
    return oneir.load(onnx_file)


def check(results) -> None:
    np.testing.assert_array_equal(results["sum"].numpy(), X + Y)
    np.testing.assert_array_equal(results["less"].numpy(), X - Y)


def test_inputs_and_outputs(model):
    assert [(i.name, i.dtype, i.shape) for i in model.inputs] == [
        ("x", "float32", ("rows", 4)),
        ("y", "float32", ("rows", 4)),
    ]
    assert model.outputs == ("sum", "less")
    assert repr(model) == "Model(x: float32[rows, 4], y: float32[rows, 4]) -> (sum, less)"


def test_arguments_by_position_and_by_name(model):
    for results in (model(X, Y), model(y=Y, x=X), model(X, y=Y), model(torch.from_numpy(X), Y.tolist())):
        check(results)
    total, less = model(X, Y)
    np.testing.assert_array_equal(total.numpy() - less.numpy(), (X + Y) - (X - Y))


def test_results_are_a_tuple_with_names(model):
    results = model(X, Y)
    assert results[1] is results["less"] and len(results[:1]) == 1 and list(dict(results)) == ["sum", "less"]
    with pytest.raises(KeyError, match="no result 'product'; results are sum, less"):
        results["product"]
    for other in (copy.copy(results), pickle.loads(pickle.dumps(results))):
        check(other)


def test_models_are_pickled_and_copied(onnx_file, model, tmp_path):
    for again in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert repr(again) == repr(model)
        check(again(X, Y))
    model.executable.export_library(tmp_path / "both.so")
    with pytest.raises(error.LibraryError, match="shared library cannot be exported again; copy its file"):
        pickle.dumps(oneir.load(tmp_path / "both.so"))


def test_arrays_with_gaps_are_copied_which_is_said_once(onnx_file):
    model = oneir.load(onnx_file)
    wide, turned = np.repeat(X, 2, axis=1), torch.from_numpy(Y.T.copy())
    with pytest.warns(UserWarning, match=r"input `x` has gaps in memory") as said:
        check(model(wide[:, ::2], Y))
    assert said[0].filename == __file__
    with pytest.warns(UserWarning, match="input `y` has gaps in memory"):
        check(model(wide[:, ::2], turned.T))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(model(wide[:, ::2], turned.T))


@pytest.mark.parametrize(
    ("args", "named", "kind", "message"),
    [
        ((X,), {}, error.TypeMismatch, "`main` expects 2 arguments, found 1: missing `y`"),
        ((X,), {"z": Y}, error.TypeMismatch, "`main` has no parameter `z`; it is main(x: float32[rows, 4], y: "),
        ((X, Y), {"x": X}, error.TypeMismatch, "`main` got `x` by position and by name"),
        ((), {"y": Y}, error.TypeMismatch, "`main` expects 2 arguments, found 1: missing `x`"),
        ((X, Y[:2]), {}, error.ShapeMismatch, "argument 1 `y` of `main`: "),
        ((X, "text"), {}, error.TypeMismatch, "argument 1 `y` of `main`: expected a tensor, found str"),
    ],
)
def test_unfit_arguments(model, args, named, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        model(*args, **named)


def test_models_in_memory_are_imported_first(onnx_file):
    program: Any = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    number: Any = 3
    found, importer = re.escape("found ModelProto"), re.escape("oneir.relax.frontend.onnx.from_onnx makes a module of")
    with pytest.raises(error.TypeMismatch, match=f"expected the path of a model, .*{found}; {importer}"):
        oneir.load(onnx.load(onnx_file))
    with pytest.raises(error.TypeMismatch, match=r"found ExportedProgram; .*torch\.from_exported_program"):
        oneir.load(program)
    with pytest.raises(error.TypeMismatch, match=r"or an executable, found int\n"):
        oneir.load(number)


def test_shapes_of_onnx_models(onnx_file):
    model = oneir.load(onnx_file, shapes={"x": [3, 4], "y": [3, 4]})
    assert [i.shape for i in model.inputs] == [(3, 4), (3, 4)]
    check(model(X, Y))


def test_a_compiled_file(onnx_file, tmp_path, model):
    model.executable.export_library(tmp_path / "both.so")
    again = oneir.load(str(tmp_path / "both.so"))
    assert (again.inputs, again.outputs) == (model.inputs, model.outputs)
    check(again(y=Y, x=X))


def test_an_exported_program(tmp_path):
    layer = torch.nn.Linear(4, 2)
    path = tmp_path / "layer.pt2"
    torch.export.save(torch.export.export(layer, (torch.from_numpy(X),)), path)
    results = oneir.load(path)(torch.from_numpy(X))
    assert results.names == ("output_0",)
    np.testing.assert_allclose(results[0].numpy(), layer(torch.from_numpy(X)).detach().numpy(), rtol=1e-5)


def test_a_module_whose_function_stays_bytecode():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo(ndim=1, dtype="float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.unique(x)))
    model = oneir.load(builder.get())
    assert model.outputs == ()
    (found,) = model(x=np.array([3, 1, 3, 2], "float32"))
    np.testing.assert_array_equal(found.numpy(), [1, 2, 3])


def test_what_is_no_model(tmp_path, onnx_file):
    with pytest.raises(error.InvalidValue, match=r"there is no file .*nothing\.onnx"):
        oneir.load(tmp_path / "nothing.onnx")
    with pytest.raises(error.UnsupportedError, match="shapes are for ONNX models"):
        oneir.load(oneir.IRModule(), shapes={"x": [1]})
    with pytest.raises(error.InvalidValue, match="shapes has other; the inputs of the model are x"):
        oneir.load(onnx_file, shapes={"other": [1]})
    (tmp_path / "weights.pt").write_bytes(b"PK")
    with pytest.raises(error.UnsupportedError, match=r"weights\.pt is none of the files .*torch\.export\.export"):
        oneir.load(tmp_path / "weights.pt")
    (tmp_path / "cut.so").write_bytes(b"ELF")
    with pytest.raises(error.LibraryError, match="or it is cut short; export it again"):
        oneir.load(tmp_path / "cut.so")

    double = from_source(
        """
@T.prim_func
def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = A[i] * T.float32(2)
"""
    )
    oneir.compile(double).export_library(tmp_path / "double.so")
    with pytest.raises(error.UnsupportedError, match="functions of loops, which write into their arguments"):
        oneir.load(tmp_path / "double.so")
    builder = relax.BlockBuilder()
    for name in ("one", "other"):
        x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
        with builder.function(name, [x]):
            builder.emit_func_output(x)
    with pytest.raises(error.InvalidValue, match="`main`, or its only one; the program has one, other"):
        oneir.load(builder.get())


def test_the_only_function_of_a_model_need_not_be_main():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    with builder.function("forward", [x]):
        builder.emit_func_output(builder.emit(relax.op.negative(x)))
    model = oneir.load(builder.get())
    assert model.entry == "forward" and len(model.outputs) == 1
    np.testing.assert_array_equal(model(x=np.array([1, -2], "float32"))[0].numpy(), [-1, 2])
