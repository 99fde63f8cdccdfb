"""Functions are measured at sampled extents, and written as scripts that measure them."""

from __future__ import annotations

import re
import runpy

import numpy as np
import pytest

from oneir import rpc, runtime
from oneir.dlight.benchmark import (
    benchmark,
    benchmark_prim_func,
    benchmark_relax_func,
    default_dym_var_sample_func,
    extract_all_func_info_from_relax,
    extract_from_relax,
    extract_func_info_from_prim_func,
    extract_prim_func,
)
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T

QUICK = {"number": 1, "repeat": 3}


@I.ir_module
class Module:
    @T.prim_func
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n * 4,), "float32")
        for i, j in T.grid(n, 4):
            with T.block("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi * 4 + vj] = A[vi, vj] * T.float32(2)

    @T.prim_func
    def negate(A: T.Buffer((3,), "int8"), B: T.Buffer((3,), "int8")):
        for i in range(3):
            with T.block("negate"):
                vi = T.axis.spatial(3, i)
                B[vi] = -A[vi]

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((3,), "int8")):
        n = T.int64()
        cls = Module
        with R.dataflow():
            a = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((n * 4,), "float32"))
            b = R.call_tir(cls.negate, (y,), out_sinfo=R.Tensor((3,), "int8"))
            c = R.call_tir(cls.negate, (b,), out_sinfo=R.Tensor((3,), "int8"))
            out = (a, c)
            R.output(out)
        return out


def test_the_parameters_of_a_function():
    tensors, variables = extract_func_info_from_prim_func(Module["double"])
    assert str(tensors) == "[((n, 4), 'float32'), ((n * T.int64(4),), 'float32')]"
    assert variables == {"n": "int64"}
    assert extract_func_info_from_prim_func(Module["negate"]) == ([((3,), "int8"), ((3,), "int8")], {})


def test_a_number_among_the_parameters_is_refused():
    @T.prim_func
    def fill(A: T.Buffer((3,), "int32"), value: T.int32):
        for i in range(3):
            A[i] = value

    with pytest.raises(InvalidValue, match="a function of tensors, found the parameter `value` of dtype int32"):
        extract_func_info_from_prim_func(fill)


def test_what_graphs_call():
    found = extract_all_func_info_from_relax(Module)
    assert {g.name_hint: {f.name_hint: n for f, n in fs.items()} for g, fs in found.items()} == {
        "main": {"double": 1, "negate": 2}
    }


def test_samples_of_every_variable():
    assert default_dym_var_sample_func({}) == {}
    found = default_dym_var_sample_func({"n": "int64", "m": "int32"})
    assert found.keys() == {"n", "m"} and all(2 <= value <= 128 for value in found.values())


SEEN: list[tuple[np.ndarray, np.ndarray]] = []


@runtime.register_global_func("test_dlight_benchmark.seen")
def seen(a, b):
    """What the function is called with, before each measurement."""
    SEEN.append((a.numpy(), b.numpy()))


@pytest.mark.parametrize("session", [None, rpc.LocalSession()], ids=["here", "session"])
def test_the_function_runs_at_the_sampled_extents(session):
    SEEN.clear()
    options = {"number": 1, "repeat": 3, "f_preproc": "test_dlight_benchmark.seen"}
    infos, median, std = benchmark(
        Module, func_name="double", dym_var_sample={"n": 5}, target="llvm", evaluator_config=options, session=session
    )
    assert infos == [((5, 4), "float32"), ((20,), "float32")]
    assert median > 0 and std >= 0
    assert len(SEEN) == 3
    np.testing.assert_array_equal(SEEN[-1][1], SEEN[-1][0].ravel() * 2)


def test_shapes_by_names():
    args = [(("rows", 4), "float32"), ((8,), "float32")]
    infos, *_ = benchmark(
        Module["double"], dym_var_sample={"rows": 2}, args=args, target="llvm", evaluator_config=QUICK
    )
    assert infos == [((2, 4), "float32"), ((8,), "float32")]


def test_what_is_not_known_is_refused():
    with pytest.raises(InvalidValue, match=r"to give the extent `n` a value, found \{'m': 3\}"):
        benchmark(Module["double"], dym_var_sample={"m": 3}, target="llvm")
    with pytest.raises(InvalidValue, match=r"func_name to be one of \['double', 'negate'\], found None"):
        benchmark(Module, dym_var_sample={}, target="llvm")
    with pytest.raises(InvalidValue, match="the name of a graph, found `negate`, a PrimFunc"):
        benchmark_relax_func(Module, "negate", target="llvm")


def test_a_line_for_each_sample(capsys):
    values = iter([3, 7])
    benchmark_prim_func(
        Module["double"],
        dym_var_sample_func=lambda variables: {name: next(values) for name in variables},
        sample_number=2,
        target="llvm",
        evaluator_config=QUICK,
    )
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.split()[-1] == "arguments"
    assert [line[line.index("float32") :] for line in lines] == [
        "float32[3, 4], float32[12]",
        "float32[7, 4], float32[28]",
    ]


def test_a_table_of_what_a_graph_calls(capsys):
    benchmark_relax_func(Module, "main", target="llvm", evaluator_config=QUICK)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "called" in line] == [
        "double, called in 1 places",
        "negate, called in 2 places",
    ]
    assert len([line for line in lines if "float32[" in line]) == 2
    assert len([line for line in lines if "int8[3], int8[3]" in line]) == 1  # the same at every sample


def test_scripts_measure(tmp_path, capsys):
    extract_from_relax(Module, "a model", tmp_path, target="llvm")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["main_double.py", "main_negate.py"]
    runpy.run_path(str(tmp_path / "main_negate.py"), run_name="__main__")
    assert re.search(r" int8\[3\], int8\[3\]\n$", capsys.readouterr().out)


def test_a_script_with_shapes_of_its_own():
    args = [((2, 4), "float32"), (("m",), "float32")]
    text = extract_prim_func(
        "a model",
        "main",
        "double",
        Module["double"],
        func_args=args,
        dym_var_dict={"m": "int64"},
        weight=3,
        target="llvm",
    )
    assert text.startswith('"""double, which main of a model calls."""')
    assert "args=[((2, 4), 'float32'), (('m',), 'float32')]" in text
    assert "dym_var_dict={'m': 'int64'}" in text and "weight=3" in text
    with pytest.raises(InvalidValue, match="No target is set here"):
        extract_prim_func("a model", "main", "double", Module["double"])
