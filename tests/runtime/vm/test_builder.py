"""Assembling programs: the instructions that come out, as text, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

import oneir
from oneir.relax import VMFuncScope
from oneir.runtime import ShapeTuple, tensor
from oneir.runtime.error import InvalidValue, NotRegistered, TypeMismatch
from oneir.runtime.vm import Arg, ArgKind, Cost, ExecBuilder, Note, SpecialReg, VMFuncKind


def test_arguments_are_numbers_that_can_be_read_back():
    ib = ExecBuilder()
    assert ib.r(7) == 7
    assert Arg.from_word(ib.imm(-3)) == (ArgKind.IMMEDIATE, -3)
    assert Arg.from_word(ib.imm((1 << 55) - 1)) == (ArgKind.IMMEDIATE, (1 << 55) - 1)
    assert Arg.from_word(ib.c(5)) == (ArgKind.CONSTANT, 5)
    assert ib.void_arg() == 1 << 54 and ib.vm_state() == (1 << 54) + 1
    # The kind stands in the topmost of eight bytes.
    assert ib.imm(2) == (1 << 56) + 2 and ib.c(0) == 2 << 56
    with pytest.raises(InvalidValue, match="at most"):
        ib.imm(1 << 55)
    with pytest.raises(InvalidValue, match=r"make one with r\(\), imm\(\), c\(\) or f\(\)"):
        Arg.from_word(9 << 56)


def test_a_scope_ends_its_function():
    ib = ExecBuilder()
    scope = ib.function("main", num_inputs=1)
    assert isinstance(scope, VMFuncScope)
    with scope as entered:
        assert entered is scope
        ib.emit_ret(ib.r(0))
    assert [f.name for f in ib.program().functions] == ["main"]
    ended = []
    with VMFuncScope(lambda: ended.append(True)):
        assert not ended
    assert ended == [True]


def test_text_python_and_statistics():
    ib = ExecBuilder()
    with ib.function("inner", num_inputs=1):
        ib.emit_ret(ib.r(0))
    with ib.function("main", num_inputs=2):
        ib.emit_call("test.add", args=[ib.r(0), ib.imm(-3)], dst=ib.r(4))
        ib.emit_if(ib.r(4), 3)
        ib.emit_call("test.use", args=[ib.vm_state(), np.zeros((2, 3), "float32"), ib.f("inner")])
        ib.emit_goto(2)
        ib.emit_call("a.function.with.a.long.name", args=[(2, 3), "text", np.float32(1)], dst=ib.r(4))
        ib.emit_call("inner", args=[ib.r(1)], dst=ib.r(3))
        ib.emit_ret(ib.r(3))
    ex = ib.get()
    assert ex.as_text() == (
        "@inner:\n"
        "  ret   %0\n"
        "\n"
        "@main:\n"
        "  call  test.add         in: %0, i-3      dst: %2\n"
        "  If    %2, 3\n"
        "  call  test.use         in: %vm, c[0], f[inner] dst: %void\n"
        "  goto  2\n"
        "  call  a.function.with.a.long.name in: c[1], c[2], c[3] dst: %2\n"
        "  call  inner            in: %1           dst: %3\n"
        "  ret   %3\n"
        "\n"
        "@test.add packed_func;\n"
        "\n"
        "@test.use packed_func;\n"
        "\n"
        "@a.function.with.a.long.name packed_func;\n"
        "\n"
    )
    assert ex.as_python() == (
        "ib = rx.Builder()\n"
        'with ib.function("inner", num_inputs=1):\n'
        "    ib.emit_ret(ib.r(0))\n"
        'with ib.function("main", num_inputs=2):\n'
        '    ib.emit_call("test.add", args=[ib.r(0), ib.imm(-3)], dst=ib.r(2))\n'
        "    ib.emit_if(ib.r(2), 3)\n"
        '    ib.emit_call("test.use", args=[ib.r(vm), ib.c(0), ib.f("inner")])\n'
        "    ib.emit_goto(2)\n"
        '    ib.emit_call("a.function.with.a.long.name", args=[ib.c(1), ib.c(2), ib.c(3)], dst=ib.r(2))\n'
        '    ib.emit_call("inner", args=[ib.r(1)], dst=ib.r(3))\n'
        "    ib.emit_ret(ib.r(3))\n"
    )
    assert ex.stats() == (
        "Relax VM executable statistics:\n"
        '  Constant pool (# 4): [[2, 3], shapetuple[2, 3], "text", 1.0]\n'
        "  Globals (#5): [inner, main, test.add, test.use, a.function.with.a.long.name]\n"
    )


def test_statistics_of_scalars_dtypes_and_nothing():
    ib = ExecBuilder()
    assert ib.get().stats().splitlines()[1:] == ["  Constant pool (# 0): []", "  Globals (#0): []"]
    ib.convert_constant(tensor(np.float32(1)))
    ib.convert_constant(oneir.DataType("float16"))
    ib.convert_constant(1 << 60)
    assert ib.get().stats().splitlines()[1] == f"  Constant pool (# 3): [scalar, float16, {1 << 60}]"


def test_equal_constants_are_kept_once():
    ib = ExecBuilder()
    pairs = [
        ("text", "other"),
        ((1, 2), (1, 3)),
        (np.arange(3, dtype="int32"), np.arange(3, dtype="int64")),
        (np.zeros((1, 2), "float32"), np.zeros((2, 1), "float32")),
        (oneir.DataType("int8"), "int8"),
        (0.0, -0.0),
    ]
    for one, other in pairs:
        assert ib.convert_constant(one) == ib.convert_constant(one)
        assert ib.convert_constant(one) != ib.convert_constant(other)
    assert ib.convert_constant(ShapeTuple((1, 2))) == ib.convert_constant([1, 2])
    assert ib.convert_constant(math.nan) == ib.convert_constant(math.nan)
    large = np.zeros(10_000, "float32")
    shared = tensor(large)
    assert ib.convert_constant(shared) == ib.convert_constant(shared) != ib.convert_constant(tensor(large))
    assert ib.convert_constant(7) == ib.imm(7) and ib.convert_constant(True) == ib.imm(1)
    with pytest.raises(TypeMismatch, match="expected a tensor, a tuple of extents, a dtype, a string or a number"):
        ib.convert_constant({"a": 1})


def test_named_constants_are_not_merged():
    ib = ExecBuilder()
    zeros = np.zeros(2, "float32")
    first = ib.convert_constant(zeros, "first")
    assert len({first, ib.convert_constant(zeros, "second"), ib.convert_constant(zeros)}) == 3
    assert ib.program().constant_names == {"first": 0, "second": 1}
    with pytest.raises(InvalidValue, match="there is a constant named 'first' already"):
        ib.convert_constant(zeros, "first")


def test_registers_are_numbered_in_the_order_of_writing():
    def built(first: int, second: int) -> str:
        ib = ExecBuilder()
        with ib.function("main", num_inputs=1):
            ib.emit_call("test.f", args=[ib.r(0)], dst=ib.r(first))
            ib.emit_call("test.f", args=[ib.r(first)], dst=ib.r(second))
            ib.emit_call("test.f", args=[ib.r(second), ib.r(first)], dst=ib.r(first))
            ib.emit_ret(ib.r(second))
        return ib.get().as_text()

    assert built(100, 50) == built(2, 1) == built(1, 2)


def test_notes_costs_and_parameters_are_kept():
    ib = ExecBuilder()
    ib.declare_function("test.f", cost=Cost(10, 20))
    with ib.function("main", num_inputs=2, param_names=["x", "w"]):
        ib.emit_call("test.f", [ib.r(0)], ib.r(2), note=Note("relax.nn.relu", "model.py:3"))
        ib.emit_ret(ib.r(2))
    packed, main = ib.program().functions
    assert packed.kind == VMFuncKind.PACKED_FUNC and packed.cost == (10, 20)
    assert main.kind == VMFuncKind.VM_FUNC and main.params == ("x", "w") and main.registers == 3
    assert main.instructions[0].note == ("relax.nn.relu", "model.py:3")
    assert ib.check_func_exists("test.f") and not ib.check_func_exists("test.g")


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (lambda ib: ib.emit_ret(ib.r(2)), r'r\(2\) in VM function "main" is used as input while it is never defined'),
        (lambda ib: ib.emit_call("f", [ib.r(2)], ib.r(2)), r"r\(2\)"),
        (lambda ib: ib.emit_if(ib.r(5), 2), r"r\(5\)"),
        (lambda ib: ib.emit_if(ib.r(0), 1), "the offset of an If must be more than 1, found 1"),
        (lambda ib: ib.emit_goto(0), "a jump by 0 leads nowhere"),
        (lambda ib: ib.emit_goto(-1), "a jump by -1 leads nowhere"),
        (lambda ib: ib.emit_goto(2), "a jump by 2 leads nowhere: the function has instructions 0 to 1"),
        (lambda ib: ib.emit_call("f", [ib.c(0)]), "there is no constant 0, only 0"),
        (lambda ib: ib.emit_call("f", [], ib.imm(2)), "the destination of an instruction must be a register"),
        (lambda ib: ib.emit_ret(ib.imm(1)), "the result of an instruction must be a register, found immediate 1"),
        (lambda ib: ib.emit_call("f", [], SpecialReg.VM_STATE), "there is no register"),
    ],
)
def test_what_leaves_the_program_is_refused(emit, message):
    ib = ExecBuilder()
    with pytest.raises(InvalidValue, match=message):
        with ib.function("main", num_inputs=1):
            emit(ib)
            ib.emit_ret(ib.r(0))
        ib.get()


def test_functions_that_are_not_whole_are_refused():
    ib = ExecBuilder()
    with pytest.raises(InvalidValue, match="emit should happen in a function scope"):
        ib.emit_ret(ib.r(0))
    with pytest.raises(NotRegistered, match="there is no function 'later' yet"):
        ib.f("later")
    with ib.function("empty"), pytest.raises(InvalidValue, match="leave that first"):
        ib.function("nested")
    with pytest.raises(InvalidValue, match="it has no instructions"):
        ib.get()
    with pytest.raises(InvalidValue, match="'empty' is defined already"):
        ib.function("empty")
    with pytest.raises(InvalidValue, match="has 2 inputs, and 1 names"):
        ib.function("named", num_inputs=2, param_names=["x"])

    ib = ExecBuilder()
    with ib.function("main"):
        ib.emit_call("later")
    with pytest.raises(InvalidValue, match="the last instruction must return or jump"):
        ib.get()
    with pytest.raises(InvalidValue, match=r"needs declare_function\(name, VMFuncKind.VM_FUNC\)"):
        ib.function("later")

    ib = ExecBuilder()
    ib.declare_function("later", VMFuncKind.VM_FUNC)
    with pytest.raises(InvalidValue, match="'later' is declared as a VM function, and not defined"):
        ib.get()
