"""What programs written for TVM say to the driver, to compiled modules, tensors and `testing`."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import oneir as tvm
from oneir.script import tir as T


@T.prim_func
def add_one(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = A[i] + T.float32(1)


def check(built):
    out = tvm.nd.empty((4,), "float32")
    built["add_one"](tvm.nd.array(np.arange(4, dtype="float32")), out)
    tvm.testing.assert_allclose(out, [1, 2, 3, 4])


def test_every_way_to_compile():
    target = tvm.target.Target("llvm")
    pipeline = tvm.tir.get_tir_pipeline("default")
    check(tvm.compile(add_one, target=target, tir_pipeline=pipeline))
    check(tvm.build(add_one, "llvm", "default"))
    check(tvm.tir.build(tvm.IRModule({"add_one": add_one}), target, pipeline="default"))
    check(tvm.target.codegen.build_module(add_one, "llvm"))
    check(tvm.compile(add_one, target, tir_pipeline=tvm.tir.get_default_tir_pipeline(target)))
    with pytest.raises(tvm.TVMError, match="no TensorIR pipeline 'fast'"):
        tvm.compile(add_one, tir_pipeline="fast")


def test_executables():
    executable = tvm.compile(add_one)
    assert isinstance(executable, tvm.runtime.Executable)
    check(executable.jit())
    check(executable.mod)
    check(executable.jit(force_recompile=True))


def test_two_functions_of_one_symbol_are_refused():
    mod = tvm.IRModule({"first": add_one, "second": add_one})
    with pytest.raises(ValueError, match="`first` and `second` have the same global_symbol 'add_one'"):
        tvm.build(mod)


def test_tensors_by_older_names():
    array = tvm.nd.array(np.arange(3, dtype="int8"))
    np.testing.assert_array_equal(array.asnumpy(), [0, 1, 2])
    assert tvm.DataType("float32x4").lanes == 4


def test_assert_allclose():
    array = tvm.nd.array(np.ones(3, "float32"))
    tvm.testing.assert_allclose(actual=array, desired=np.ones(3), rtol=1e-5, atol=1e-7)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        tvm.testing.assert_allclose(array, np.full(3, 1.1))
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        tvm.testing.assert_allclose(array, 1.0)


SCRIPT = """
import tvm
from tvm.driver.build_module import compile
from tvm.ir.base import structural_equal
from tvm.runtime.ndarray import array
from tvm.tir.analysis.analysis import undefined_vars
import tvm.tir.transform.transform, tvm.testing

assert compile is tvm.compile and array is tvm.nd.array and undefined_vars is tvm.tir.analysis.undefined_vars
assert tvm.tir.transform.transform.Simplify is tvm.tir.transform.Simplify and structural_equal(1, 1)
try:
    import tvm.driver.nonesuch
except ModuleNotFoundError as error:
    assert "OneIR has no module oneir.driver.nonesuch, which tvm.driver.nonesuch stands for" in str(error), error
else:
    raise AssertionError("a module that does not exist was imported")

def test_addition():
    assert 1 + 1 == 2

if __name__ == "__main__":
    tvm.testing.main()
"""


def test_modules_by_their_own_names_and_tests_that_are_programs(tmp_path):
    script = tmp_path / "test_script.py"
    script.write_text(SCRIPT)
    (tmp_path / "conftest.py").write_text("import oneir.compat\noneir.compat.install()\n")
    command = [sys.executable, "-m", "oneir.compat", str(script), "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def test_registering_takes_published_names():
    assert tvm.register_func(func_name="test.api.one", f=lambda: 1, override=True)() == 1
    assert tvm.register_global_func(func_name="test.api.one", f=lambda: 2, override=True)() == 2
    assert tvm.get_global_func(name="test.api.one", allow_missing=False)() == 2
    with pytest.raises(ValueError, match=r"'test\.api\.one' is registered already"):
        tvm.register_func("test.api.one", lambda: 3)


def test_timing_prepares_each_measurement():
    seen = []
    tvm.register_func("test.api.prepare", lambda *args: seen.append(len(args)), override=True)
    arrays = [tvm.nd.empty((4,)) for _ in range(2)]
    built = tvm.build(add_one)
    timer = built.time_evaluator("add_one", tvm.cpu(), number=2, repeat=3, f_preproc="test.api.prepare")
    assert len(timer(*arrays).results) == 3 and seen == [2, 2, 2]
    with pytest.raises(ValueError, match=r"No function is registered as 'test\.api\.nonesuch'"):
        built.time_evaluator("add_one", tvm.cpu(), f_preproc="test.api.nonesuch")


def test_devices_wait_for_streams():
    assert tvm.cpu().sync() is None and tvm.cpu(0).sync(stream=None) is None
