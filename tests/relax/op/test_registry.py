"""How operators are registered, and that every one has what passes and tests ask for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from op_testing import infer, tensor, var

from oneir import relax
from oneir.ir.op import Op
from oneir.relax import op
from oneir.relax.op.registry import Operator, with_inlined_scalars
from oneir.relax.operator_facts import OpPattern
from oneir.runtime.error import OneIRError, TypeMismatch
from oneir.runtime.object import ShapeTuple
from oneir.runtime.tensor import tensor as runtime_tensor

# What lowering writes has neither loops nor a meaning in NumPy.
LOWERED = ("relax.builtin.alloc", "relax.memory.", "relax.vm.")
CALLS = (
    "relax.call_",
    "relax.invoke_",
    "relax.make_closure",
    "relax.null_value",
    "relax.print",
    "relax.assert_op",
    "relax.shape_of",
    "relax.tensor_to_shape",
    "relax.shape_to_tensor",
    "relax.to_vdevice",
    "relax.hint_on_device",
    "relax.builtin.stop_lift_params",
)


def operators() -> list[Operator[..., Any]]:
    spaces = (op, op.nn, op.memory, op.image, op.vision, op.grad, op.builtin, op.vm)
    found = {v.op.name: v for space in spaces for v in vars(space).values() if isinstance(v, Operator)}
    return list(found.values())


def test_every_operator_has_its_facts() -> None:
    found = operators()
    assert len(found) > 150
    for made in found:
        name = made.op.name
        assert made.op.get_attr("FInferStructInfo") is not None, name
        assert made.op.get_attr("FPurity") in (True, False), name
        assert made.__doc__ and made.op.description, name
        if name.startswith((*LOWERED, *CALLS)):
            continue
        assert made.op.get_attr("FReference") is not None, name
        assert made.op.get_attr("FLegalize") is not None, name


def test_patterns_say_what_may_be_fused() -> None:
    for name, pattern in (
        ("exp", OpPattern.ELEMENTWISE),
        ("add", OpPattern.BROADCAST),
        ("permute_dims", OpPattern.INJECTIVE),
        ("sum", OpPattern.COMM_REDUCE),
        ("matmul", OpPattern.OUT_EWISE_FUSABLE),
    ):
        assert Op.get(f"relax.{name}").get_attr("TOpPattern") == pattern


@pytest.mark.parametrize("name", ["divide", "multiply", "power", "log", "exp", "mod", "floor_mod", "floor_divide"])
def test_references_do_not_warn(name: str) -> None:
    made = Op.get(f"relax.{name}")
    for values in (np.array([0, -1, 3e4], "float16"), np.array([0, -1, 3e38], "float32"), np.array([0, -128], "int8")):
        if name not in ("log", "exp"):
            assert made.get_attr("FReference")(values, values[::-1]).dtype == values.dtype
        elif values.dtype.kind == "f":
            assert made.get_attr("FReference")(values).dtype == values.dtype


def test_gradients_are_registered_by_name() -> None:
    target = Op.get("relax.hamming_window")

    @op.register_gradient("relax.hamming_window")
    def rule(orig_var: Any, orig_call: Any, output_grad: Any, builder: Any) -> list[Any]:
        return []

    assert target.get_attr("FGradient") is rule
    op.register_gradient("relax.hamming_window", len, 0)
    assert target.get_attr("FGradient") is rule
    target.reset_attr("FGradient")
    with pytest.raises(OneIRError, match=re.escape("relax.no_such_operator")):
        op.register_gradient("relax.no_such_operator", len)


def test_an_argument_may_be_left_out_only_at_the_end() -> None:
    assert len(op.nn.nll_loss(var((2, 3)), var((2,), "int64")).args) == 2
    missing: Any = None
    with pytest.raises(TypeMismatch, match=re.escape("relax.where: argument 1 is missing but a later one is given")):
        op.where(var((2,), "bool"), missing, var((2,)))


def test_what_is_no_graph_value_is_refused() -> None:
    wrong: Any = object()
    with pytest.raises(TypeMismatch, match=re.escape("relax.exp, argument 0: expected a graph expression")):
        op.exp(wrong)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda wrong: op.permute_dims(var((2, 3)), [1, wrong]), "relax.permute_dims: expected an integer, found 0.5"),
        (lambda wrong: op.sum(var((2, 3)), wrong), "relax.sum: expected an integer, found 0.5"),
        (lambda wrong: op.nn.softmax(var((2, 3)), wrong), "relax.nn.softmax: expected an integer, found 0.5"),
        (lambda wrong: op.nn.max_pool1d(var((2, 3, 4)), wrong), "relax.nn.max_pool1d: expected an integer, found 0.5"),
        (
            lambda wrong: op.reshape(var((2, 3)), wrong),
            "relax.reshape: expected a shape or a list of extents, found 0.5",
        ),
    ],
)
def test_what_is_no_integer_is_refused_by_the_operator(call: Any, message: str) -> None:
    with pytest.raises(TypeMismatch, match=re.escape(message)):
        call(0.5)


def test_scalars_are_inlined_from_the_last_on() -> None:
    x, one, two = var((2,)), relax.const(1.0), relax.const(2.0)
    assert with_inlined_scalars([x, one])[1].value == 1.0
    kept, number = with_inlined_scalars([one, two])
    assert kept is one and number.value == 2.0
    assert with_inlined_scalars([one, relax.PrimValue(3.0)])[0] is one


def test_arrays_and_numbers_are_values() -> None:
    assert infer(op.add(var((2, 3)), relax.const(np.ones((3,), "float32")))) == tensor((2, 3))
    assert infer(op.multiply(var((2, 3), "int64"), relax.PrimValue(2))) == tensor((2, 3), "int64")


def test_what_runs_can_be_called_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    op.relax_print("{} and {}", 1, (2, 3))
    assert capsys.readouterr().out == "1 and (2, 3)\n"
    assert op.render_object((1, (2, 3))) == "(1, (2, 3))"
    np.testing.assert_array_equal(op.relax_shape_to_tensor(ShapeTuple((2, 3))).numpy(), [2, 3])
    op.relax_assert_op(runtime_tensor(np.asarray(True)), "fine")
    with pytest.raises(AssertionError, match="not 4"):
        op.relax_assert_op(runtime_tensor(np.asarray(False)), "not {}", 4)
