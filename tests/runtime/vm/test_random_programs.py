"""Random programs of forward jumps and calls do what a direct reading of the emitted instructions says, saved or not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oneir.runtime import cpu, load_module, register_func
from oneir.runtime.error import InvalidValue
from oneir.runtime.vm import ExecBuilder, VirtualMachine


@register_func("test.random.mix")
def mix(*values: int | None) -> int:
    return sum((i + 1) * (value or 0) for i, value in enumerate(values)) % 1009


INPUTS = 2
# Numbers of registers are as a user may choose them; 0 and 1 are the inputs.
registers = st.sampled_from([0, 1, 2, 3, 7, 50, 90])
arguments = st.one_of(st.tuples(st.just("r"), registers), st.tuples(st.just("imm"), st.integers(-9, 9)))
instructions = st.one_of(
    st.tuples(st.just("call"), registers, st.lists(arguments, max_size=3)),
    st.tuples(st.just("goto"), st.integers(1, 4)),
    st.tuples(st.just("if"), registers, st.integers(2, 5)),
    st.tuples(st.just("self"), registers, registers),
    st.tuples(st.just("ret"), registers),
)
any_programs = st.lists(instructions, min_size=1, max_size=6)


@st.composite
def proper_programs(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Programs that read what was written above, and jump to instructions, the last of which returns."""
    size = draw(st.integers(1, 14))
    written = list(range(INPUTS))
    program: list[tuple[Any, ...]] = []
    for pc in range(size):
        read = st.sampled_from(written)
        calls = ["call"] * 4 + ["self"] * 2
        kind = draw(st.sampled_from([*calls, "goto", "if", "if", "ret"] if pc + 2 <= size else calls))
        match kind:
            case "call":
                one = st.one_of(st.tuples(st.just("r"), read), st.tuples(st.just("imm"), st.integers(-9, 9)))
                program.append((kind, draw(registers), draw(st.lists(one, max_size=3))))
            case "self":
                program.append((kind, draw(registers), draw(read)))
            case "goto":
                program.append((kind, draw(st.integers(1, size - pc))))
            case "if":
                # An input, since a jump may have left out what writes another register.
                program.append((kind, draw(st.integers(0, INPUTS - 1)), draw(st.integers(2, size - pc))))
            case _:
                program.append((kind, draw(read)))
        if kind in ("call", "self"):
            written.append(program[-1][1])
    return [*program, ("ret", draw(st.sampled_from(written)))]


def emitted(program: list[tuple[Any, ...]]) -> ExecBuilder:
    ib = ExecBuilder()
    with ib.function("other", num_inputs=1):
        ib.emit_call("test.random.mix", [ib.r(0), ib.imm(5)], ib.r(1))
        ib.emit_ret(ib.r(1))
    with ib.function("main", num_inputs=INPUTS):
        for instruction in program:
            match instruction:
                case "call", dst, args:
                    words = [ib.r(value) if kind == "r" else ib.imm(value) for kind, value in args]
                    ib.emit_call("test.random.mix", words, ib.r(dst))
                case "self", dst, arg:
                    ib.emit_call("other", [ib.r(arg)], ib.r(dst))
                case "goto", offset:
                    ib.emit_goto(offset)
                case "if", cond, offset:
                    ib.emit_if(ib.r(cond), offset)
                case "ret", result:
                    ib.emit_ret(ib.r(result))
    return ib


def expected(program: list[tuple[Any, ...]], inputs: list[int]) -> int | None:
    values: dict[int, int | None] = dict(enumerate(inputs))
    pc = 0
    while True:
        match program[pc]:
            case "call", dst, args:
                values[dst] = mix(*(values.get(value) if kind == "r" else value for kind, value in args))
            case "self", dst, arg:
                values[dst] = mix(values.get(arg), 5)
            case "goto", offset:
                pc += offset - 1
            case "if", cond, offset:
                pc += 0 if values[cond] else offset - 1
            case "ret", result:
                return values.get(result)
        pc += 1


def is_proper(program: list[tuple[Any, ...]]) -> bool:
    """Whether all jumps lead somewhere, the end returns, and what is read was written by an instruction above."""
    written = set(range(INPUTS))
    for pc, instruction in enumerate(program):
        match instruction:
            case "call", dst, args:
                read, write = {value for kind, value in args if kind == "r"}, {dst}
            case "self", dst, arg:
                read, write = {arg}, {dst}
            case "goto", offset:
                read, write = set(), set()
            case _, register, *_:
                read, write = {register}, set()
        if not read <= written or (instruction[0] in ("goto", "if") and pc + instruction[-1] >= len(program)):
            return False
        written |= write
    return program[-1][0] in ("ret", "goto")


@settings(max_examples=150, deadline=None)
@given(program=any_programs)
def test_what_leaves_its_bounds_is_refused(program):
    ib = emitted(program)
    if is_proper(program):
        ib.get()
    else:
        with pytest.raises(InvalidValue, match="main"):
            ib.get()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=proper_programs(), inputs=st.lists(st.integers(0, 2), min_size=INPUTS, max_size=INPUTS))
def test_programs_do_what_their_instructions_say(tmp_path, program, inputs):
    ex = emitted(program).get()
    result = expected(program, inputs)
    assert VirtualMachine(ex, cpu())["main"](*inputs) == result
    ex.export_library(tmp_path / "program.bin")
    loaded = load_module(tmp_path / "program.bin")
    assert loaded.program == ex.program
    assert VirtualMachine(loaded, cpu())["main"](*inputs) == result
