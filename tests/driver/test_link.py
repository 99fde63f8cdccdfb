"""The two halves of a build after its pipeline: graph functions added to a program, and the program linked."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.relax.vm_build import _vmcodegen, _vmlink
from oneir.runtime import tensor
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T


@I.ir_module
class Lowered:
    @T.prim_func
    def twice(a: T.handle, b: T.handle):
        T.func_attr({"global_symbol": "twice"})
        A, B = T.match_buffer(a, (4,)), T.match_buffer(b, (4,))
        for i in range(4):
            with T.block("twice"):
                j = T.axis.spatial(4, i)
                B[j] = A[j] * T.float32(2)

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor:
        cls = Lowered
        storage = R.vm.alloc_storage(R.shape([16]), R.prim_value(0), R.dtype("uint8"))
        out = R.vm.alloc_tensor(storage, R.prim_value(0), R.shape([4]), R.dtype("float32"))
        same = out
        _ = cls.twice(x, out)
        _ = R.vm.kill_object(out)
        return same


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_a_program_of_own_and_lowered_functions(exec_mode: str) -> None:
    builder = relax.ExecBuilder()
    builder.declare_function("main", relax.VMFuncKind.VM_FUNC)
    with builder.function("again", 1):
        builder.emit_call("main", [builder.r(0)], 1)
        builder.emit_call("main", [builder.r(1)], 1)
        builder.emit_ret(builder.r(1))
    kernels = _vmcodegen(builder, Lowered, exec_mode)
    assert [v.name_hint for v in kernels.functions] == ["twice"]
    vm = relax.VirtualMachine(_vmlink(builder, "llvm", kernels), oneir.cpu())
    x = np.arange(4, dtype="float32")
    # The killed register was one name of the tensor; the other has it still.
    np.testing.assert_array_equal(vm["main"](tensor(x)).numpy(), 2 * x)
    np.testing.assert_array_equal(vm["again"](tensor(x)).numpy(), 4 * x)


def test_linking_adds_constants_by_name_and_checks_the_program() -> None:
    builder = relax.ExecBuilder()
    with builder.function("main", 0):
        builder.emit_ret(builder.r(0))
    with pytest.raises(ValueError, match=r"register r\(0\) in VM function .main. is used as input"):
        _vmlink(builder, "llvm")
    builder = relax.ExecBuilder()
    with builder.function("main", 1):
        builder.emit_ret(builder.r(0))
    executable = _vmlink(builder, "llvm", params={"weight": np.ones(3, "float32")})
    np.testing.assert_array_equal(executable.constant("weight").numpy(), np.ones(3))
    assert executable["as_text"]() == executable.as_text()


def test_unknown_mode() -> None:
    with pytest.raises(ValueError, match='exec_mode is "bytecode" or "compiled", found \'fast\''):
        _vmcodegen(relax.ExecBuilder(), Lowered, "fast")
