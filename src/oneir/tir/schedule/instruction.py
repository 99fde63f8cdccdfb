"""Instructions of a trace: which primitive was applied to which handles, and the decisions that it sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ...ir.container import Array, is_mapping, is_sequence
from ...ir.expr import FloatImm, IntImm, StringImm
from ...runtime.error import NotRegistered
from ...runtime.object import Object
from ..index_map import IndexMap


class InstructionKind(Object):
    """A primitive as it is recorded.

    Parameters
    ----------
    name: its name in a trace, "Split".
    method: the method of `Schedule`.
    run: its implementation, `run(state, *inputs, *attrs)` on handles of statements and on values; it returns handles.
    inputs, attrs: the method's parameters that are handles or values that a schedule chose, and the others. "*factors"
        takes the rest of the inputs as a list; "*" alone takes them as positional arguments.
    pure: whether it leaves the program as it is.
    decides: whether it makes a choice: then `run(state, random, *inputs, *attrs, decision)` returns the result and the
        choice.
    returns_list: whether the method returns a list, be it of one.
    order: the order of the method's parameters, unless it is inputs before attrs.
    render: the method's arguments for the recorded inputs and attrs, where those differ.
    """

    registered: ClassVar[dict[str, InstructionKind]] = {}

    def __init__(
        self,
        name: str,
        method: str,
        run: Callable[..., Any],
        inputs: Sequence[str] = (),
        attrs: Sequence[str] = (),
        *,
        pure: bool = False,
        decides: bool = False,
        returns_list: bool = False,
        order: Sequence[str] = (),
        render: Callable[[dict[str, Any]], dict[str, Any]] = lambda values: values,
    ):
        self.name, self.method, self.run = name, method, run
        self.inputs, self.attrs = tuple(inputs), tuple(attrs)
        self.is_pure, self.decides, self.returns_list = pure, decides, returns_list
        self.order, self.render = tuple(order), render
        InstructionKind.registered[name] = self

    @staticmethod
    def get(name: str) -> InstructionKind:
        """The kind of that name."""
        found = InstructionKind.registered.get(name)
        if found is None:
            raise NotRegistered(f"no primitive is recorded as {name!r}")
        return found

    @property
    def is_postproc(self) -> bool:
        """Whether it marks the beginning of postprocessing."""
        return self.name == "EnterPostproc"

    def group(self, inputs: Sequence[Any]) -> list[Any]:
        """Recorded inputs, one for each parameter."""
        if self.inputs and self.inputs[-1].startswith("*"):
            fixed = len(self.inputs) - 1
            return [*inputs[:fixed], list(inputs[fixed:])]
        return list(inputs)

    def as_python(self, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any, outputs: Sequence[str]) -> str:
        """The call as Python; inputs that are names come as such."""
        values: dict[str, Any] = {}
        arguments: list[str] = []
        for name, value in zip(self.inputs, self.group(inputs), strict=False):
            if name == "*":
                arguments += value
            elif value or not name.startswith("*"):
                values[name.removeprefix("*")] = as_code(value)
        values.update(zip(self.attrs, attrs, strict=True))
        values = self.render(values)
        arguments += [f"{name}={python_text(values[name])}" for name in self.order or values if name in values]
        if decision is not None:
            arguments.append(f"decision={python_text(decision)}")
        call = f"sch.{self.method}({', '.join(arguments)})"
        comma = "," if self.returns_list and len(outputs) == 1 else ""
        return f"{', '.join(outputs)}{comma} = {call}" if outputs else call


class Code(str):
    """Text that is Python source already, and is not quoted."""

    __slots__ = ()


def as_code(value: Any) -> Any:
    """An input, in which strings are names of values, or quoted."""
    if isinstance(value, str):
        return Code(value)
    return [as_code(v) for v in value] if is_sequence(value) else value


def python_text(value: Any) -> str:
    """A recorded value as Python writes it."""
    if isinstance(value, str):
        return str(value) if isinstance(value, Code) else f'"{value}"'
    if isinstance(value, (IntImm, FloatImm, StringImm)):
        return python_text(bool(value.value) if value.dtype == "bool" else value.value)
    if is_sequence(value):
        return f"[{', '.join([python_text(v) for v in value])}]"
    if is_mapping(value):
        items = sorted((str(key), python_text(v)) for key, v in value.items())
        return "{" + ", ".join(f'"{key}": {v}' for key, v in items) + "}"
    if isinstance(value, IndexMap):
        final = ", ".join(index_text(index) for index in value.final_indices)
        return f"lambda {', '.join(v.name for v in value.initial_indices)}: ({final}{',' if final else ''})"
    return repr(value) if isinstance(value, float) else str(value)


def index_text(index: Any) -> str:
    """An expression with plain numbers, whose dtype follows from the other operand."""
    return index.script(int_dtype=index.dtype if index.dtype.is_int else "int32", float_dtype=index.dtype)


class Instruction(Object):
    """One recorded application of a primitive."""

    __slots__ = ("attrs", "inputs", "kind", "outputs")

    def __init__(self, kind: InstructionKind, inputs: Sequence[Any], attrs: Sequence[Any], outputs: Sequence[Any]):
        self.kind = kind
        self.inputs, self.attrs, self.outputs = Array(inputs), Array(attrs), Array(outputs)

    def __repr__(self) -> str:
        texts = [v if isinstance(v, str) else "_" for v in self.inputs]
        return self.kind.as_python(texts, self.attrs, None, ["_"] * len(self.outputs))
