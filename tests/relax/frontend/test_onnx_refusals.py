"""What the ONNX importer refuses, and what it says."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model

from oneir.relax.frontend.onnx import from_onnx
from oneir.runtime.error import InvalidValue, OneIRError, TypeMismatch, UnsupportedError


def model(text: str, opset: int = 18, more: str = "") -> onnx.ModelProto:
    return parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{more}]>\n{text}')


RELU = "f (float[2] x) => (float[2] y) { y = Relu(x) }"


def test_one_report_names_all_nodes_that_cannot_be_imported():
    text = """f (float[2] x, float[p] z) => (float[2] y, float[q] w) {
        r = RandomNormalLike(x)
        a = own.Strange(x)
        b = Add(r, a)
        y = Relu(b)
        c = Loop (n, , z) <body = g (int64 i, bool k, float[p] s) => (bool k2, float[p] t) { k2 = Identity(k) t = Exp(s) }>
        w = Identity(c)
        n = Constant <value_int = 3> ()
    }"""
    source = model(text, more=', "own" : 1')
    source.graph.node.insert(0, source.graph.node.pop())
    source.graph.node[2].name = "odd"
    source.graph.node.append(helper.make_node("Reshape", ["x", "z"], ["v"]))
    with pytest.raises(UnsupportedError) as caught:
        from_onnx(source)
    text = str(caught.value)
    assert text.startswith("3 parts of the model cannot be imported:")
    assert "`r`, RandomNormalLike of ai.onnx 18\n    random numbers are not drawn in a module" in text
    assert "`odd`, Strange of own 1\n    the importer has no converter for this operator in opset 1" in text
    assert "`v`, Reshape" in text and "What to do:" in text
    assert "Add" not in text  # only the causes, not what follows from them


def test_operators_that_onnx_does_not_have_are_named():
    source = model(RELU)
    source.graph.node[0].op_type, source.graph.node[0].name = "Frobnicate", "odd"
    with pytest.raises(UnsupportedError, match=r"`odd`, Frobnicate of ai\.onnx 18\n.*no converter(.|\n)*What to do:"):
        from_onnx(source)


def test_unknown_operators_are_named_also_after_others():
    source = model(
        """f (float[2] x) => (float[p] y) {
            a = own.Strange(x)
            b = Identity(a)
            y = own.Stranger(b)
        }""",
        more=', "own" : 1',
    )
    with pytest.raises(UnsupportedError, match=r"^2 parts (.|\n)*`a`, Strange of own 1(.|\n)*`y`, Stranger of own 1\n"):
        from_onnx(source)


def test_nodes_in_bodies_are_named_with_the_way_to_them():
    source = parse_model("""<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
        f (float[n] x) => (float[n] y) { y = own.odd(x) }
        <domain: "own", opset_import: ["" : 18]> odd (v) => (w) { w = RandomUniformLike(v) }
    """)
    with pytest.raises(UnsupportedError, match=r"`w` in the body of odd `y`, RandomUniformLike of ai.onnx 18"):
        from_onnx(source)


def test_damaged_and_missing_files(tmp_path: Path):
    path = tmp_path / "m.onnx"
    data = model(
        "f (float[2] x) => (float[2] y) { c = Constant <value_floats = [1.0, 2.0]> () y = Add(x, c) }"
    ).SerializeToString()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InvalidValue, match=r"m\.onnx is no ONNX model, or it is cut short|not valid ONNX"):
        from_onnx(path)
    path.write_bytes(b"no model at all")
    with pytest.raises(InvalidValue, match=r"m\.onnx is no ONNX model"):
        from_onnx(str(path))
    with pytest.raises(InvalidValue, match="there is no file"):
        from_onnx(tmp_path / "other.onnx")
    with pytest.raises(TypeMismatch, match=r"expected an onnx\.ModelProto or the path of a model, found bytes"):
        from_onnx(data)


def test_every_prefix_of_a_file_is_refused_or_imported(tmp_path: Path):
    source = model("f (float[2, 3] x) => (float[2, 4] y) { y = MatMul(x, w) }")
    source.graph.initializer.append(numpy_helper.from_array(np.ones((3, 4), np.float32), "w"))
    data, path = source.SerializeToString(), tmp_path / "m.onnx"
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises((InvalidValue, UnsupportedError)):
            from_onnx(path)


DAMAGED = """f (float[n, 3, 8, 8] x) => (float[n, p] y) {
    c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (x, w)
    m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c)
    t = Transpose <perm = [0, 2, 3, 1]> (m)
    shape = Shape(t)
    zero = Constant <value_ints = [0]> ()
    rows = Gather(shape, zero)
    rest = Constant <value_ints = [-1]> ()
    target = Concat <axis = 0> (rows, rest)
    f = Reshape(t, target)
    y = Softmax <axis = 1> (f)
}"""


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_changed_bytes_are_refused_or_imported(changes):
    source = model(DAMAGED)
    source.graph.initializer.append(numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w"))
    data = bytearray(source.SerializeToString())
    for place, value in changes:
        data[place % len(data)] = value
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(OneIRError):
        path = Path(folder) / "m.onnx"
        path.write_bytes(data)
        from_onnx(path)


def test_what_the_checker_refuses():
    source = model(RELU)
    source.graph.node[0].input[0] = "nowhere"
    with pytest.raises(InvalidValue, match=r"the model is not valid ONNX: (.|\n)*nowhere"):
        from_onnx(source)


@pytest.mark.parametrize("opset", [0, 999])
def test_unknown_opsets(opset: int):
    newest = onnx.defs.onnx_opset_version()
    with pytest.raises(UnsupportedError, match=f"of opset {opset}; with onnx .*, opsets 1 to {newest} can be imported"):
        from_onnx(model(RELU), opset=opset)


def test_inputs_without_a_shape_or_that_are_no_tensors():
    source = model("f (float x) => (float y) { y = Relu(x) }")
    source.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(
        UnsupportedError, match=r"how many dimensions the input `x` has(.|\n)*shape_dict=\{\"x\": \(1, \.\.\.\)\}"
    ):
        from_onnx(source)
    kind = source.graph.input[0].type.map_type
    kind.key_type, kind.value_type.tensor_type.elem_type = TensorProto.INT64, TensorProto.FLOAT
    with pytest.raises(
        UnsupportedError, match=r"`x`, input\n    it is no tensor, sequence or optional value but a map"
    ):
        from_onnx(source)
    with pytest.raises(InvalidValue, match=r"shape_dict has z; the inputs of the model are x"):
        from_onnx(model(RELU), shape_dict={"z": (1,)})


def test_shapes_that_cannot_be():
    source = model("f (float[2, 3] x) => (float[p, q] y) { s = Constant <value_ints = [4, -1]> () y = Reshape(x, s) }")
    with pytest.raises(UnsupportedError, match=r"a tensor of shape \[2, 3\] cannot have the shape \[4, -1\]"):
        from_onnx(source)
    with pytest.raises(UnsupportedError, match=r"how many elements the axes of ReduceSum have must be known"):
        from_onnx(model("f (float[2, 3] x, int64[k] a) => (float[p, q] y) { y = ReduceSum(x, a) }"))
    with pytest.raises(UnsupportedError, match=r"expected an axis of a tensor of 2 dimensions, found 5"):
        from_onnx(model("f (float[2, 3] x) => (float[p, q] y) { i = Cast <to = 7> (x) y = Gather <axis = 5> (x, i) }"))


def test_a_window_of_padding_alone_has_no_largest_element():
    pool = "y, i = MaxPool <kernel_shape = [2], dilations = [4], pads = [1, 1]> (x)"
    with pytest.raises(UnsupportedError, match=r"the largest element of a window that has padding alone; pad less"):
        from_onnx(model(f"f (float[1, 1, 3] x) => (float[p, q, r] y, int64[p, q, r] i) {{ {pool} }}"))
    from_onnx(model(f"f (float[1, 1, 4] x) => (float[p, q, r] y, int64[p, q, r] i) {{ {pool} }}"))


def _external(location: str, length: int = 16, offset: int = 0, dims: tuple[int, ...] = (4,)) -> onnx.ModelProto:
    source = model("f (float[4] x) => (float[4] y) { y = Add(x, w) }")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    source.graph.initializer.append(tensor)
    return source


@pytest.mark.parametrize(
    "location", ["../secret.bin", "/etc/passwd", "sub/../../secret.bin", "link.bin", "", "none.bin"]
)
def test_tensors_outside_of_the_model_s_folder(location: str, tmp_path: Path):
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "m.onnx").write_bytes(_external(location).SerializeToString())
    with pytest.raises(InvalidValue, match=r"`w` is said to be stored in .*: (that is outside|there is no such file)"):
        from_onnx(folder / "m.onnx")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 12}, "needs 16 bytes; its entry says 12 bytes"),
        ({"offset": 8}, "the file may be cut short"),
        ({"offset": -8}, "needs 16 bytes"),
        ({"dims": (2**40, 2**40)}, "needs 4835703278458516698824704 bytes"),
        ({"dims": (-4,)}, "the file may be cut short"),
    ],
)
def test_tensors_that_do_not_fit_their_file(options, message, tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(bytes(16))
    (tmp_path / "m.onnx").write_bytes(_external("w.bin", **options).SerializeToString())
    with pytest.raises(InvalidValue, match=message):
        from_onnx(tmp_path / "m.onnx")


def test_tensors_in_files_need_the_path_of_the_model():
    with pytest.raises(InvalidValue, match=r"stored in the file 'w\.bin', next to the model: give from_onnx the path"):
        from_onnx(_external("w.bin"))


def test_loops_whose_state_changes_its_kind():
    text = """f (float[2] x, bool go) => (float[p] y) {
        y = Loop (, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, int64[2] t) { d = Identity(c) t = Cast <to = 7> (s) }>
    }"""
    with pytest.raises(UnsupportedError, match=r"a Loop carries .*float32.* into a step, and .*int64.* out of it"):
        from_onnx(model(text))


def test_importing_oneir_does_not_import_onnx():
    code = "import sys, oneir; from oneir.relax.frontend.onnx import from_onnx; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
