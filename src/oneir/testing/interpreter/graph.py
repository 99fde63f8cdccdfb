"""Running graphs: functions, bindings and expressions, one after the other, as they are written.

Operators are what their NumPy references compute; loops are run by the interpreter of loops; functions of the runtime
are called. Each value is compared with what the program says of it: kind, dtype, shape, symbolic variables that have
one value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.expr import GlobalVar
from ...ir.op import Op
from ...relax import expr as r
from ...relax.block_builder import BlockBuilder
from ...relax.operator_facts import FLowerBuiltin, FReference
from ...relax.struct_info import PrimStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ...runtime.error import InterpreterError
from ...runtime.object import ShapeTuple
from ...runtime.registry import get_global_func
from ...runtime.tensor import Tensor
from ...tir.function import PrimFunc
from .graph_calls import CALLS
from .graph_values import Agreement, Killed, allocate, computed, described, is_tuple
from .loops import Loops, check_written
from .memory import Violation, storage_dtype
from .rounding import Exact, as_arrays
from .statements import Execution

# What a printed binding begins with: a comment, and what the binding uses from outside.
_DECLARATION = re.compile(r"#|\w+ = T\.\w+\(|\w+: (?!.* = )")
MAX_DEPTH = 5_000
"""How deep calls of graph functions may nest."""


class Frame:
    """One run of a function: the values of its variables, and of its symbolic ones (in `run`, which evaluates extents).

    `outer` is the run of the function around a local one.
    """

    def __init__(self, name: str, run: Execution, outer: Frame | None):
        self.name, self.run, self.outer = name, run, outer
        self.values: dict[Any, Any] = {}
        self.agreement = Agreement(run.variables, run.plain, self.lookup)

    def lookup(self, var: r.Var) -> Any:
        """The value of a variable."""
        frame: Frame | None = self
        while frame is not None:
            if var in frame.values:
                value = frame.values[var]
                if isinstance(value, Killed):
                    raise Violation(f"`{var.name}` is used after it was killed")
                return value
            frame = frame.outer
        raise Violation(f"the variable `{var.name}` is used where it is not defined")


class Closure:
    """A graph function as a value: with the run of the function around it, and some of its last arguments given."""

    def __init__(self, graph: Graph, name: str, func: r.Function, outer: Frame | None, captured: tuple[Any, ...] = ()):
        self.graph, self.name, self.func, self.outer, self.captured = graph, name, func, outer, captured

    def capture(self, args: Sequence[Any]) -> Closure:
        """The function with more of its last arguments given."""
        return Closure(self.graph, self.name, self.func, self.outer, (*args, *self.captured))

    def __call__(self, *args: Any) -> Any:
        return self.graph.run_function(self.name, self.func, (*args, *self.captured), self.outer)


class Kernel:
    """Loops as a value: called, they run on tensors and numbers."""

    def __init__(self, graph: Graph, name: str, func: PrimFunc):
        self.graph, self.name, self.func = graph, name, func

    def __call__(self, *args: Any) -> Any:
        return self.graph.run_kernel(self, args)


class Graph:
    """Runs the functions of a module."""

    def __init__(self, functions: Mapping[str, Any], rounding: Exact, check: bool):
        self.functions, self.rounding, self.check = functions, rounding, check
        self.loops = Loops({n: f for n, f in functions.items() if isinstance(f, PrimFunc)}, rounding.arithmetic, check)
        self.depth = 0

    # -- functions --

    def run_function(self, name: str, func: r.Function, args: Sequence[Any], outer: Frame | None = None) -> Any:
        """The value of a function for arguments that are values of the program."""
        frame = Frame(name, Execution(self.loops.functions, self.rounding.arithmetic, self.check, name), outer)
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                raise Violation(f"`{name}` is called {MAX_DEPTH} functions deep; does it call itself without end?")
            self._bind_parameters(frame, func, args)
            value = self.sequence(frame, func.body)
            frame.agreement.check(value, func.ret_struct_info, f"the result of `{name}`")
            return value
        except Violation as violation:
            raise InterpreterError(f"{violation}\n  running: {name}") from None
        finally:
            self.depth -= 1

    def _bind_parameters(self, frame: Frame, func: r.Function, args: Sequence[Any]) -> None:
        if len(args) != len(func.params):
            names = ", ".join(p.name for p in func.params)
            raise Violation(f"`{frame.name}` takes {len(func.params)} arguments ({names}), found {len(args)}")
        for param, arg in zip(func.params, args, strict=True):
            frame.values[param] = arg
            frame.agreement.define(arg, param.struct_info_)
        for param, arg in zip(func.params, args, strict=True):
            frame.agreement.check(arg, param.struct_info_, f"argument `{param.name}` of `{frame.name}`")

    def sequence(self, frame: Frame, seq: r.SeqExpr) -> Any:
        """The value of a body, after its bindings."""
        for block in seq.blocks:
            for binding in block.bindings:
                try:
                    self._binding(frame, binding)
                except Violation as violation:
                    raise _located(violation, frame, binding) from None
        return self.value(frame, seq.body)

    def _binding(self, frame: Frame, binding: r.Binding) -> None:
        value = self.value(frame, binding.value)
        if isinstance(binding, r.MatchCast):
            frame.agreement.define(value, binding.struct_info)
            frame.agreement.check(value, binding.struct_info, "the cast value")
        frame.values[binding.var] = value
        frame.agreement.check(value, binding.var.struct_info_, f"the value of `{binding.var.name}`")

    # -- expressions --

    def value(self, frame: Frame, expr: Any) -> Any:
        """The value of an expression."""
        if isinstance(expr, r.Var):
            return frame.lookup(expr)
        handler = _EXPRESSIONS.get(type(expr))
        if handler is None:
            raise Violation(f"a {type(expr).__name__} is no expression that can be evaluated")
        return handler(self, frame, expr)

    def _if(self, frame: Frame, expr: r.If) -> Any:
        condition = self.value(frame, expr.cond)
        if isinstance(condition, Tensor):
            if condition.size != 1:
                raise Violation(f"a condition must be one truth value, found {described(condition)}")
            condition = condition.numpy().item()
        return self.sequence(frame, expr.true_branch if condition else expr.false_branch)

    def _tuple(self, frame: Frame, expr: r.Tuple) -> Any:
        return tuple([self.value(frame, field) for field in expr.fields])

    def _field(self, frame: Frame, expr: r.TupleGetItem) -> Any:
        value = self.value(frame, expr.tuple_value)
        if not is_tuple(value) or not 0 <= expr.index < len(value):
            raise Violation(f"{described(value)} has no field {expr.index}")
        return value[expr.index]

    def _shape(self, frame: Frame, expr: r.ShapeExpr) -> Any:
        return ShapeTuple([frame.run.integer(extent) for extent in expr.values])

    def _number(self, frame: Frame, expr: r.PrimValue) -> Any:
        value = frame.run.plain(expr.value)
        return value.item() if isinstance(value, np.generic) else value

    def _local_function(self, frame: Frame, expr: r.Function) -> Any:
        return Closure(self, f"{frame.name}.<local>", expr, frame)

    def _extern(self, frame: Frame, expr: r.ExternFunc) -> Any:
        function = self.functions.get(expr.global_symbol)
        if isinstance(function, PrimFunc):
            return Kernel(self, expr.global_symbol, function)
        return get_global_func(expr.global_symbol)

    def _global(self, frame: Frame, expr: GlobalVar) -> Any:
        func = self.functions.get(expr.name_hint)
        if isinstance(func, PrimFunc):
            return Kernel(self, expr.name_hint, func)
        if isinstance(func, r.Function):
            return Closure(self, expr.name_hint, func, None)
        if isinstance(func, r.ExternFunc):
            return self._extern(frame, func)
        raise Violation(f"the module has no function `{expr.name_hint}`")

    # -- calls --

    def _call(self, frame: Frame, call: r.Call) -> Any:
        op = call.op
        if not isinstance(op, Op):
            callee = self.value(frame, op)
            return self.invoke(callee, [self.value(frame, a) for a in call.args], call.struct_info_)
        handler = CALLS.get(op.name)
        if handler is not None:
            return handler(self, frame, call)
        reference, lower = FReference.of(op), FLowerBuiltin.of(op)
        if reference is not None:
            return self._reference(frame, call, op, reference)
        if lower is not None:
            return self.value(frame, lower(BlockBuilder(), call))
        raise Violation(f"the operator {op.name} has no NumPy reference: register one with its `reference`")

    def _reference(self, frame: Frame, call: r.Call, op: Op, reference: Callable[..., Any]) -> Any:
        args = [_typed(as_arrays(self.value(frame, a)), a.struct_info_) for a in call.args]
        args = self.rounding.arguments(op, args, call.struct_info_)
        value = reference(*args, **call.attrs.values_by_name)
        return computed(self.rounding.result(op, as_arrays(computed(value, call.struct_info_))), call.struct_info_)

    def invoke(self, callee: Any, args: Sequence[Any], info: StructInfo | None) -> Any:
        """What a function returns: one of the program, or of the runtime."""
        if not callable(callee):
            raise Violation(f"expected a function to call, found {described(callee)}")
        value = callee(*args)
        return value if isinstance(callee, Closure) else computed(value, info)

    # -- loops --

    def kernel(self, frame: Frame, expr: Any) -> Kernel:
        """The loops that an expression names."""
        value = self.value(frame, expr)
        if not isinstance(value, Kernel):
            raise Violation(f"expected loops to call, found {described(value)}: `{expr}`")
        return value

    def run_kernel(self, kernel: Kernel, args: Sequence[Any], outputs: Collection[int] = ()) -> Any:
        """Runs loops; the tensors at the positions `outputs` count as unwritten, and must be written entirely."""
        arrays = [arg._view() if isinstance(arg, Tensor) else arg for arg in args]
        value, memories = self.loops.run(kernel.name, kernel.func, arrays, outputs)
        for position, (memory, array) in enumerate(zip(memories, arrays, strict=True)):
            if isinstance(array, np.ndarray):
                if position in outputs:
                    check_written(kernel.name, kernel.func, position, memory, array)
                self.rounding.written(array, self.loops.tolerance(memory, array))
        return value

    def outputs(self, frame: Frame, info: StructInfo) -> list[Tensor]:
        """Fresh tensors for the result of a call that writes it."""
        infos = info.fields if isinstance(info, TupleStructInfo) else [info]
        return [self._output(frame, i) for i in infos]

    def _output(self, frame: Frame, info: StructInfo) -> Tensor:
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            raise Violation(f"the output must be a tensor of known shape, found {info}")
        extents = info.extents
        shape = self.value(frame, info.shape) if extents is None else [frame.run.integer(e) for e in extents]
        return allocate(shape, info.dtype)


def _typed(value: Any, info: StructInfo | None) -> Any:
    """A number of the program in its dtype, if that is not the one in which NumPy takes Python's numbers."""
    if not isinstance(info, PrimStructInfo) or info.dtype in ("bool", "int64", "float64"):
        return value
    return storage_dtype(info.dtype).type(value)


def _located(violation: Violation, frame: Frame, binding: r.Binding) -> InterpreterError:
    lines = [line for line in str(binding).splitlines() if not _DECLARATION.match(line)]
    where = [f"  in: {lines[0][:160]}" if lines else f"  in: the binding of `{binding.var.name}`"]
    if binding.value.span is not None:
        where.append(f"  at: {binding.value.span}")
    symbols = [f"{v.name} = {n}" for v, n in frame.run.variables.items()]
    where.append(", ".join([f"  running: {frame.name}", *symbols]))
    return InterpreterError("\n".join([str(violation), *where]))


_EXPRESSIONS: dict[type, Callable[[Graph, Frame, Any], Any]] = {
    r.Call: Graph._call,
    r.If: Graph._if,
    r.Tuple: Graph._tuple,
    r.TupleGetItem: Graph._field,
    r.ShapeExpr: Graph._shape,
    r.PrimValue: Graph._number,
    r.Constant: lambda graph, frame, expr: expr.data,
    r.StringImm: lambda graph, frame, expr: expr.value,
    r.DataTypeImm: lambda graph, frame, expr: str(expr.value),
    r.Function: Graph._local_function,
    r.ExternFunc: Graph._extern,
    r.SeqExpr: Graph.sequence,
    GlobalVar: Graph._global,
}
