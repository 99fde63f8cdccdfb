"""JSON brings back the same program, and reads nothing else."""

from __future__ import annotations

import copy
import json
import math
import pickle

import ml_dtypes
import numpy as np
import pytest

from oneir.ir import Array, IRModule, load_json, save_json, structural_equal
from oneir.ir import expr as e
from oneir.ir.dtype import DataType
from oneir.ir.json import JSONError
from oneir.ir.node import Node, attr
from oneir.runtime.error import OneIRError
from oneir.runtime.tensor import Tensor, tensor
from oneir.target import Target
from oneir.tir import op
from oneir.tir import stmt as s
from oneir.tir.buffer import decl_buffer
from oneir.tir.expr import CommReducer, IterVar, IterVarType, Reduce
from oneir.tir.function import PrimFunc

x, y = e.Var("x", "int32"), e.Var("y", "int32")
ZERO = e.FloatImm("float32", 0.0)


def copied(value):
    return load_json(save_json(value))


def matmul():
    n = e.SizeVar("n", "int64")
    a, b, c = (decl_buffer((n, 16), "float32", name) for name in "ABC")
    local = decl_buffer((16,), "float32", "L", scope="local")
    i, k = e.Var("i", "int64"), e.Var("k", "int32")
    axes = [IterVar((e.const(0, "int64"), n), "vi", IterVar.DataPar), IterVar((0, 16), "vk", IterVar.CommReduce)]
    axes[0] = axes[0].replace(var=e.Var("vi", "int64"))
    vi, vk = (axis.var for axis in axes)
    block = s.Block(
        axes,
        [s.BufferRegion.from_point(a, [vi, vk])],
        [s.BufferRegion.from_point(c, [vi, vk])],
        "C",
        s.BufferStore(c, a[vi, vk] * b[vi, vk] + op.exp(local[vk]), [vi, vk]),
        s.BufferStore(c, ZERO, [vi, vk]),
        [local],
        annotations={"unroll": 4, "tile": [1, (2, 3)], "scale": math.inf},
    )
    realize = s.BlockRealize([i, k], i < n, block)
    loop = s.For(i, 0, n, s.ForKind.PARALLEL, s.For(k, 0, 16, s.ForKind.SERIAL, realize))
    return PrimFunc([a, b, c], loop, attrs={"global_symbol": "main", "tir.noalias": True})


def test_a_module_comes_back_equal():
    module = IRModule({"main": matmul()}, attrs={"version": 1})
    back = copied(module)
    assert structural_equal(module, back)
    assert back.script() == module.script()
    assert [axis.iter_type for axis in back["main"].body.body.body.block.iter_vars] == [
        IterVarType.DataPar,
        IterVarType.CommReduce,
    ]
    assert back["main"].body.kind is s.ForKind.PARALLEL


def test_shared_nodes_stay_shared():
    back = copied(matmul())
    block = back.body.body.body.block
    shapes = {id(buffer.shape[0]) for buffer in back.buffer_map.values()}
    assert len(shapes) == 1
    assert block.reads[0].buffer is back.buffer_map[back.params[0]]
    assert block.writes[0].buffer is block.init.buffer
    assert back.body.loop_var is back.body.body.body.iter_values[0]


def test_the_same_text_every_time():
    function = matmul()
    assert save_json(function) == save_json(function) == save_json(copied(function))


def test_expressions_of_every_kind():
    reducer = CommReducer([x], [y], [x + y], [e.const(0)])
    nodes = [
        e.Cast("int64", x),
        e.Select(x < y, x, y),
        e.Ramp(x, 1, 4),
        e.Ramp(x, 1, op.vscale() * 4),
        e.Broadcast(x, 4),
        e.Let(x, y, x + 1),
        e.And(x < 1, e.Not(x < y)),
        op.call_extern("int32", "f", x, "text"),
        Reduce(reducer, [x], [IterVar((0, 4), y, IterVar.CommReduce)], True, 0),
        e.GlobalVar("f"),
        e.Range(x, x + 4),
    ]
    back = copied({"nodes": nodes, "free": [x, y]})
    assert structural_equal(nodes, back["nodes"], map_free_vars=True)
    assert isinstance(back["nodes"][3].dtype, DataType)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        7,
        2**70,
        -1.5,
        0.1,
        1.0,
        math.inf,
        -math.inf,
        "text \ud800 \ue000 \U0001f600",
        b"\x00\xff",
        (1, (2, [3, ()])),
        [],
        {"a": 1, 2: {"b": (True, None)}},
        {(1, 2): "tuple key"},
        Array([1, Array([])]),
        DataType("bfloat16x4"),
        s.ForKind.UNROLLED,
    ],
)
def test_plain_values_keep_value_and_type(value):
    back = copied(value)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_nan_and_signed_zero():
    assert math.isnan(copied(math.nan))
    assert math.copysign(1.0, copied(-0.0)) == -1.0
    assert math.isnan(copied(e.FloatImm("float32", math.nan)).value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="float32").reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.zeros((0, 3), "int8"),
        np.array(5, "uint16"),
        np.array([True, False]),
        np.array([1.5, math.nan], ml_dtypes.bfloat16),
        np.array([0.5, 2.0], ml_dtypes.float8_e4m3fn),
    ],
)
def test_arrays_and_tensors_keep_their_bits(array):
    for value in (array, tensor(array)):
        back = copied(value)
        assert type(back) is type(value)
        plain = back.numpy() if isinstance(back, Tensor) else back
        assert plain.dtype == array.dtype and plain.shape == array.shape
        assert plain.tobytes() == array.tobytes()


def test_numpy_scalars_stay_scalars():
    back = copied(np.float16(0.5))
    assert back == np.float16(0.5) and type(back) is np.float16


def test_arrays_that_were_read_can_be_written():
    back = copied(np.zeros(3))
    back[0] = 1.0
    assert back[0] == 1.0


def test_operators_are_found_by_name():
    assert copied(op.exp(ZERO)).op is e.Call("float32", "tir.exp", [ZERO]).op


def test_targets_come_back_equal():
    module = IRModule({"main": matmul().with_attr("target", Target("llvm -mcpu=znver3", host="llvm"))})
    back = copied(module)
    assert back["main"].attrs["target"] == module["main"].attrs["target"]
    assert back.script() == module.script()


def test_deep_trees():
    tree = x
    for _ in range(50_000):
        tree = e.Add(tree, y)
    back, depth = copied(tree), 0
    while isinstance(back, e.Add):
        back, depth = back.a, depth + 1
    assert depth == 50_000 and back.name == "x"


def test_a_tree_that_is_a_small_graph_stays_small():
    tree = x
    for _ in range(60):
        tree = e.Add(tree, tree)
    text = save_json(tree)
    assert len(text) < 10_000
    back = load_json(text)
    assert back.a is back.b


class Holder(Node, key="test.Holder"):
    """Holds anything."""

    value: object = attr()


def test_what_cannot_be_saved_is_named():
    with pytest.raises(OneIRError, match=r"test\.Holder\.value holds .* of type function, which cannot be saved"):
        save_json(Holder(lambda: 0))
    with pytest.raises(OneIRError, match=r"test\.Holder\.value holds an array of dtype object"):
        save_json(Holder(np.array([object()])))


# -- texts that are no programs --


def program(*nodes, root=None, **changes):
    return json.dumps({"format": "oneir", "version": 1, "root": root, "nodes": list(nodes), **changes})


VAR = ["ir.Var", {"name": "x"}]
EVALUATE = ["tir.Evaluate", {"value": {"node": 0}}]


def test_the_programs_below_would_be_read_if_they_were_right():
    assert str(load_json(program(VAR, EVALUATE, root={"node": 1}))) == "x = T.int32()\nT.evaluate(x)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a program as JSON"),
        ("[1, 2", "expected a program as JSON"),
        ("[" * 100_000, "expected a program as JSON"),
        ("[1]", '"format": "oneir"'),
        ('{"format": "other"}', '"format": "oneir"'),
        ('{"format": "oneir", "version": NaN}', "unexpected NaN"),
        (program(version=2), "format version 2; this release reads version 1"),
        (program(version=None), "format version None"),
        (program(nodes=None), '"nodes": expected a list, found None'),
        (program("x"), r"nodes\[0\]: expected \[class, fields\], found 'x'"),
        (program(["os.system", {}]), r"nodes\[0\]: there is no node class 'os.system'"),
        (program(["builtins.eval", {"source": "1"}]), "there is no node class"),
        (program(["ir.Var", {"name": 5}]), r"nodes\[0\] \(ir.Var\).name: expected str, found 5"),
        (program(["ir.Var", {}]), r"nodes\[0\] \(ir.Var\): .*name"),
        (program(["ir.Var", {"name": "x", "extra": 1}]), "has no field extra"),
        (program(["ir.Var", {"name": "x", "type_annotation": "int3x"}]), "unknown dtype 'int3x'"),
        (program(["ir.IntImm", {"dtype": {"dtype": "int8"}, "value": 300}]), "300 does not fit int8"),
        (program(["ir.Add", {"a": {"node": 0}, "b": 1}]), r"nodes\[0\] \(ir.Add\).a: .* earlier node, found 0"),
        (program(VAR, ["ir.Not", {"a": {"node": -1}}]), "earlier node, found -1"),
        (program(VAR, ["ir.Not", {"a": {"node": True}}]), "earlier node, found True"),
        (program(VAR, ["ir.Not", {"a": {"node": 0}}]), "Not expects a bool operand"),
        (program(VAR, ["tir.SeqStmt", {"seq": [{"node": 0}]}]), r"\(tir.SeqStmt\).seq: expected array of Stmt"),
        (program(VAR, ["tir.Evaluate", {"value": {"a": 1, "b": 2}}]), "an object with one key"),
        (program(VAR, ["tir.Evaluate", {"value": {"lambda": "x"}}]), "no kind of value 'lambda'"),
        (program(["ir.Op", {"name": "tir.no_such"}]), "operator 'tir.no_such' is not registered"),
        (program(["ir.Op", {}]), r"nodes\[0\] \(ir.Op\)"),
        (program(root={"node": 0}), "root: expected the number of an earlier node"),
        (program(root={"float": "1"}), "expected 'float', found '1'"),
        (program(root={"dtype": 3}), "expected 'dtype', found 3"),
        (program(root={"enum": ["Color", 1]}), "expected 'enum'"),
        (program(root={"enum": ["ForKind", 99]}), "99 is not a valid ForKind"),
        (program(root={"bytes": "*"}), "expected 'bytes'"),
        (program(root={"map": [[{"list": []}, 1]]}), "expected 'map'"),
        (program(root={"map": 3}), "expected 'map'"),
        (program(root={"ndarray": ["float32", [2], ""]}), "expected 'ndarray'"),
        (program(root={"ndarray": ["float32", [-1], "AAAAAA"]}), "expected 'ndarray'"),
        (program(root={"ndarray": ["object", [1], "AAAAAAAAAAA="]}), "expected 'ndarray'"),
        (program(root={"tensor": ["float32", 1]}), "expected 'tensor'"),
    ],
)
def test_any_other_text_is_refused_and_the_place_is_named(text, message):
    with pytest.raises(JSONError, match=message):
        load_json(text)


@pytest.mark.parametrize("copy_of", [lambda v: pickle.loads(pickle.dumps(v)), copy.deepcopy, copy.copy])
def test_programs_are_pickled_and_copied(copy_of):
    module = IRModule({"main": matmul()})
    new = copy_of(module)
    assert new is not module
    assert structural_equal(new, module)
    twice = copy_of(Array([x, x]))
    assert twice[0] is twice[1]


def test_what_cannot_be_saved_cannot_be_pickled():
    with pytest.raises(OneIRError, match="which cannot be saved as JSON"):
        pickle.dumps(s.AttrStmt(object(), "key", x, s.Evaluate(x)))
