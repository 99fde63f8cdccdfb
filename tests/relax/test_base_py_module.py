"""BasePyModule: Python, loops and graphs that call one another."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oneir
from oneir import relax
from oneir.relax.base_py_module import BasePyModule
from oneir.runtime.error import InvalidValue, NotRegistered, ParseError, TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T


@I.ir_module
class Model(BasePyModule):
    @I.pyfunc
    def main(self, x, w):
        # Loops, then PyTorch, then a graph.
        y = self.call_tir(self.matmul, [x, w], R.Tensor((2, 3), "float32"))
        return self.add_one(torch.relu(y))

    @I.pyfunc
    def double(x):
        return x * 2

    @T.prim_func
    def matmul(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (4, 3), "float32")
        C = T.match_buffer(c, (n, 3), "float32")
        for i, j, k in T.grid(n, 3, 4):
            with T.block("c"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] += A[vi, vk] * B[vk, vj]

    @R.function
    def add_one(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
        y = R.add(x, R.const(1.0, "float32"))
        return y

    @R.function(pure=False)
    def doubled(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        y = R.call_py_func("double", (x,), out_sinfo=R.Tensor((3,), "float32"))
        z = R.add(y, y)
        return z


@pytest.fixture(scope="module")
def module() -> BasePyModule:
    return Model(oneir.cpu(0))


def test_python_calls_loops_and_graphs(module: BasePyModule) -> None:
    x, w = torch.randn(2, 4), torch.randn(4, 3)
    result = module.main(x, w)
    assert isinstance(result, torch.Tensor)
    torch.testing.assert_close(result, torch.relu(x @ w) + 1)


def test_graphs_call_python(module: BasePyModule) -> None:
    torch.testing.assert_close(module.doubled(torch.tensor([1.0, 2.0, 3.0])), torch.tensor([4.0, 8.0, 12.0]))


def test_loops_write_into_tensors(module: BasePyModule) -> None:
    x, w, out = torch.randn(5, 4), torch.randn(4, 3), torch.zeros(5, 3)
    module.matmul(x, w, out)
    torch.testing.assert_close(out, x @ w)


def test_outputs_are_made_as_they_are_described(module: BasePyModule) -> None:
    x, w = torch.randn(5, 4), torch.randn(4, 3)
    for described in [(5, 3), relax.TensorStructInfo((oneir.tir.Var("n", "int64"), 3), "float32")]:
        torch.testing.assert_close(module.call_tir("matmul", [x, w], described), x @ w)
    variable = relax.TensorStructInfo((oneir.tir.Var("n", "int64"),), "float32")
    with pytest.raises(InvalidValue, match=r"Cannot infer concrete output shape from arguments"):
        module.call_tir("matmul", [x, w], variable)


def test_registered_functions_write_outputs(module: BasePyModule) -> None:
    @oneir.register_global_func("tests.base_py_module.sum", override=True)
    def add(a: oneir.runtime.Tensor, b: oneir.runtime.Tensor, out: oneir.runtime.Tensor) -> None:
        np.from_dlpack(out)[...] = np.from_dlpack(a) + np.from_dlpack(b)

    a, b = torch.ones(3), torch.full((3,), 2.0)
    result = module.call_dps_packed("tests.base_py_module.sum", [a, b], R.Tensor((3,), "float32"))
    torch.testing.assert_close(result, a + b)
    assert module.list_functions() == {
        "tir": ["matmul"],
        "relax": ["add_one", "doubled"],
        "extern": ["tests.base_py_module.sum"],
    }
    torch.testing.assert_close(module.call_py_func("double", a), a * 2)


def test_functions_may_be_added(module: BasePyModule) -> None:
    module.add_python_function("triple", lambda x: 3 * x)
    assert module.triple(2) == 6
    assert module.get_function("matmul") is not None
    assert module.get_function("nothing") is None


def test_the_text_has_the_source_of_python() -> None:
    text = Model.script()
    assert "@I.pyfunc\n    def double(x):\n        return x * 2" in text
    assert text.index("class Module") < text.index("@I.pyfunc") < text.index("@T.prim_func")
    assert [v.name_hint for v in Model.functions][:2] == ["main", "double"]
    assert sorted(Model.pyfuncs) == ["double", "main"]


def test_a_module_without_python() -> None:
    @I.ir_module
    class Plain:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")):
            y = R.exp(x)
            return (x, y)

    x = torch.tensor([0.0, 1.0])
    first, second = BasePyModule(Plain, oneir.cpu(), "llvm").main(x)
    torch.testing.assert_close(first, x)
    torch.testing.assert_close(second, torch.exp(x))


def test_refusals(module: BasePyModule) -> None:
    with pytest.raises(NotRegistered, match="there are no loops `nothing`; the module has matmul"):
        module.call_tir("nothing", [], (1,))
    with pytest.raises(NotRegistered, match="there is no Python function `nothing`; the module has main, double"):
        module.call_py_func("nothing", [])
    with pytest.raises(TypeMismatch, match="expected a tensor, a number or a list of numbers, found <object"):
        module.matmul(object(), 1, 2)
    with pytest.raises(TypeMismatch, match="expected a function as `f`, found 3"):
        module.add_python_function("f", 3)
    with pytest.raises(ParseError, match="the class of its module must derive from BasePyModule"):

        @I.ir_module
        class Wrong:
            @I.pyfunc
            def main(x):
                return x
