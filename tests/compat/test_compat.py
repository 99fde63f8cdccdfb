"""`tvm` means `oneir`: one module object for each name, in scripts and in running programs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

SCRIPT = """
from __future__ import annotations
import sys
import numpy as np
import tvm
from tvm import te
from tvm.ir.module import IRModule
from tvm.script import ir as I
from tvm.script import tir as T
import tvm.script.tir
import oneir

assert tvm is oneir and sys.modules["tvm.script"] is sys.modules["oneir.script"]
assert sys.modules["tvm.script.tir"] is oneir.script.tir and IRModule is oneir.IRModule
assert oneir.script.__name__ == "oneir.script" and oneir.script.__spec__.name == "oneir.script"

@T.prim_func
def add_one(A: T.Buffer((4,), "float32"), B: T.Buffer[(4,), "float32"]):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] + T.float32(1)

import tvm.relax.transform.legalize_ops.manipulate
from tvm.relax.exec_builder import ExecBuilder
assert sys.modules["tvm.relax.transform.legalize_ops.manipulate"] is oneir.relax.op.manipulate
assert ExecBuilder is oneir.relax.ExecBuilder
try:
    import tvm.relax.transform.legalize_ops.nothing
except ModuleNotFoundError as error:
    assert "OneIR has no module oneir.relax.transform.legalize_ops.nothing" in str(error)
else:
    raise AssertionError

print(add_one.script())
b = np.zeros(4, "float32")
tvm.build(add_one, target="llvm")["add_one"](np.arange(4, dtype="float32"), b)
print(tvm.nd.array(b), sys.argv[1:], __name__)
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "oneir.compat", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_a_script_runs_as_it_is(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run("script.py", "one", "two", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "B[vi] = A[vi] + T.float32(1.0)" in done.stdout
    assert done.stdout.strip().endswith("[1. 2. 3. 4.] ['one', 'two'] __main__")


def test_a_module_runs_too(tmp_path):
    (tmp_path / "mine.py").write_text("import tvm, oneir\nprint(tvm is oneir)")
    assert run("-m", "mine", cwd=tmp_path).stdout == "True\n"


def test_tracebacks_show_the_users_line(tmp_path):
    (tmp_path / "broken.py").write_text("import tvm\n\n\nraise ValueError('mine')  # here\n")
    done = run("broken.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "broken.py" in done.stderr and "line 4" in done.stderr and "# here" in done.stderr


def test_names_that_do_not_exist_are_said(tmp_path):
    (tmp_path / "missing.py").write_text("import tvm.no_such_part")
    done = run("missing.py", cwd=tmp_path)
    assert "OneIR has no module oneir.no_such_part, which tvm.no_such_part stands for" in done.stderr
    assert "there is no file" in run("nowhere.py", cwd=tmp_path).stderr


def test_another_tvm_is_not_replaced(tmp_path):
    (tmp_path / "tvm.py").write_text("")
    code = textwrap.dedent("""
        import tvm, oneir.compat
        try:
            oneir.compat.install()
        except ImportError as error:
            print(error)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "`tvm` is imported already, from" in done.stdout


def test_installing_twice_is_harmless(tmp_path):
    code = "import oneir.compat as c; c.install(); c.install(); import tvm.te; print(tvm.te.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout == "oneir.te\n", done.stderr


FFI_SCRIPT = """
import tvm_ffi
import tvm
from tvm_ffi import Array, Map, register_global_func
from tvm_ffi.access_path import AccessPath
from tvm_ffi.core import DLDeviceType

@register_global_func("mine.add")
def add(a, b):
    return a + b

assert tvm_ffi.get_global_func("mine.add")(1, 2) == 3 == tvm.get_global_func("mine.add")(1, 2)
assert isinstance(add, tvm_ffi.Function)
tvm_ffi.registry.remove_global_func("mine.add")
assert tvm_ffi.get_global_func("mine.add", allow_missing=True) is None

@tvm_ffi.register_error
class MineError(RuntimeError):
    pass

values = tvm_ffi.convert({"a": [1, 2, {"b": 3}]})
assert isinstance(values["a"], Array) and isinstance(values, Map)
mismatch = tvm_ffi.get_first_structural_mismatch(values["a"], tvm_ffi.convert([1, 4, {"b": 3}]))
assert mismatch == (AccessPath.root().array_item(1),) * 2 and tvm_ffi.structural_equal(values, values)
x = tvm.tir.Var("x", "int32")
text = tvm_ffi.serialization.to_json_graph_str([x + 1, x])
total, var = tvm_ffi.serialization.from_json_graph_str(text)
assert total.a is var and tvm_ffi.dtype("float32x4").lanes == 4
assert tvm_ffi.device("cuda", 1).dlpack_device_type() == DLDeviceType.kDLCUDA
assert tvm_ffi.Module is tvm.runtime.Module and tvm_ffi.Shape((1, 2)) == (1, 2)
print("done")
"""


def test_a_script_may_import_tvm_ffi(tmp_path):
    (tmp_path / "script.py").write_text(FFI_SCRIPT)
    done = run("script.py", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr


def test_another_tvm_ffi_is_not_taken_over(tmp_path):
    (tmp_path / "tvm_ffi.py").write_text("")
    script = "import tvm_ffi, oneir.compat\noneir.compat.install()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "CompatError: `tvm_ffi` is imported already, from" in done.stderr


def test_processes_know_the_names(tmp_path):
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
        import multiprocessing
        import subprocess
        import sys
        import tvm


        def name_of(value):
            import tvm_ffi
            from tvm.script import tir as T

            return value + 1, tvm.__name__, tvm_ffi.__name__, T.__name__


        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(*pool.apply(name_of, [1]))
            lines = "import tvm, oneir, tvm.tir; from tvm_ffi import Array; print(tvm is oneir)"
            print(subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True).stdout)
        """)
    )
    done = run("script.py", cwd=tmp_path)
    assert done.stdout.split() == ["2", "oneir", "oneir.compat.ffi", "oneir.script.tir", "True"], done.stderr
