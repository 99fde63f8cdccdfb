"""Kernels as text of the C family: statements with braces, scalar arithmetic, vectors lane by lane.

A vector of TensorIR is a list of scalar expressions, one for each lane: a thread of a GPU is a scalar machine, and only
its accesses to memory are wider. Neighbouring elements are loaded and stored at once where the dialect can.

Arithmetic over loop variables and extents is written as it reads; arithmetic on data wraps, as docs/architecture.md
defines it, so it is done on unsigned numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeGuard

import numpy as np

from ...arith import Analyzer
from ...ir import expr as e
from ...ir.dtype import INT32, DataType
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.structural import structural_equal
from ...ir.type import PointerType, PrimType
from ...ir.visitor import deep_recursion
from ...runtime.error import CompileError
from ...tir.expr import BufferLoad, Shuffle
from ...tir.function import PrimFunc
from ...tir.op_hopper import TENSOR_MAP_SCOPE
from ...tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
)
from ..emitter import Emitter
from ..index_arithmetic import is_index_arithmetic
from .dialect import Dialect, joined

_OPERATORS = {e.Add: "+", e.Sub: "-", e.Mul: "*"}
_COMPARE = {e.EQ: "==", e.NE: "!=", e.LT: "<", e.LE: "<=", e.GT: ">", e.GE: ">="}
# Functions that the languages' libraries have, mostly under the name that TensorIR uses.
_MATH = {
    f"tir.{name}": name
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf", "exp"),
        *("exp10", "exp2", "fabs", "floor", "fma", "fmod", "hypot", "isfinite", "isinf", "isnan", "ldexp", "log"),
        *("log10", "log1p", "log2", "nearbyint", "nextafter", "popcount", "pow", "sin", "sinh", "sqrt", "tan", "tanh"),
        *("trunc",),
    )
} | {"tir.round": "roundeven"}
_FORMULA = "llvm.FLowerIntrinsic"
_BITWISE = {"tir.bitwise_and": "&", "tir.bitwise_or": "|", "tir.bitwise_xor": "^"}
_RESERVED = frozenset(
    [
        *("auto", "barrier", "bool", "break", "case", "char", "class", "const", "constant", "continue", "default"),
        *("delete", "do", "double", "else", "enum", "extern", "false", "float", "for", "global", "goto", "half", "if"),
        *("inline", "int", "kernel", "local", "long", "main", "max", "min", "new", "operator", "private", "register"),
        *("restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template", "this", "true"),
        *("typedef", "uchar", "uint", "ulong", "union", "unsigned", "ushort", "void", "volatile", "while"),
        *("alignas", "asm", "blockIdx", "catch", "explicit", "export", "friend", "inline", "mutable", "namespace"),
        *("nullptr", "protected", "public", "threadIdx", "throw", "try", "typename", "using", "virtual", "wchar_t"),
        *("int8_t", "int16_t", "int64_t", "uint8_t", "uint16_t", "uint64_t", "and", "or", "not", "xor", "compl"),
    ]
)

Lanes = list[str]
"""The expressions of a value's lanes; a scalar has one."""


def source_of(mod: IRModule, dialect: Dialect, emitter: type[KernelEmitter] | None = None) -> str:
    """The text of all functions of a module, which are kernels, below the functions of the prelude that they use."""
    emitter = emitter or KernelEmitter
    helpers: dict[str, str] = {}
    with deep_recursion:
        kernels = [
            emitter(func, str(func.attrs.get("global_symbol", var.name_hint)), dialect, helpers).text()
            for var, func in mod.functions_items()
            if isinstance(func, PrimFunc)
        ]
    return "\n".join([dialect.preamble(), *(text.lstrip("\n") for text in helpers.values()), *kernels])


class KernelEmitter(Emitter):
    """Writes one kernel. `helpers` collects the functions of the prelude, by name."""

    def __init__(self, func: PrimFunc, symbol: str, dialect: Dialect, helpers: dict[str, str]):
        self.func, self.symbol, self.dialect, self.helpers = func, symbol, dialect, helpers
        self.lines: list[str] = []
        self.top: list[str] = []
        """Declarations at the head of the kernel: thread indices and shared memory."""
        self.depth = 1
        self.names: set[str] = set(_RESERVED | dialect.reserved)
        self.values: dict[e.Var, str] = {}
        self.vectors: dict[e.Var, Lanes] = {}
        self.pointers: dict[e.Var, tuple[DataType, str]] = {}
        """The dtype of the elements that a pointer is declared to point to, and the scope of its memory."""
        self.threads: dict[str, str] = {}
        self.extents: dict[str, Any] = {}
        """The extents of the thread axes, by tag."""
        self.counts_registers = False
        """Whether threads hand registers over to others."""
        self.data_variables: set[e.Var] = set()
        self.analyzer = Analyzer()
        """Knows what variables are bound to."""
        self.guarded = 0
        """How many conditions the expression at hand stands in: nothing may be computed before it."""
        self.assumed: list[e.PrimExpr] = []
        """Conditions that hold where the expression at hand is computed."""

    def text(self) -> str:
        """The kernel."""
        params = self.dialect.kernel_parameters([self.parameter(var) for var in self.func.params])
        self.stmt(self.func.body)
        head = (
            f"{self.dialect.kernel_type(self.block_size(), self.counts_registers)} {self.symbol}({joined(params)}) {{"
        )
        return "\n".join([head, *(f"  {line}" for line in self.top), *self.lines, "}\n"])

    def block_size(self) -> int | None:
        """The threads of a block; None where that is not constant."""
        extents = [extent for tag, extent in self.extents.items() if tag.startswith("threadIdx")]
        sizes = [extent.value for extent in extents if isinstance(extent, e.IntImm)]
        return math.prod(sizes) if len(sizes) == len(extents) else None

    def parameter(self, var: e.Var) -> tuple[str, str]:
        """The type and the name of a parameter."""
        name = self.define(var)
        if not var.dtype.is_handle:
            return self.memory_type(var, var.dtype), name
        element, scope = pointee(var)
        self.pointers[var] = (element, scope)
        if scope == TENSOR_MAP_SCOPE:
            return self.dialect.tensor_map(self.helpers), name
        kind = f"{self.dialect.spaces[scope]}{self.memory_type(var, element)}*"
        if self.func.attrs.get("tir.noalias") and self.dialect.restrict:
            kind = f"{kind} {self.dialect.restrict}"
        return kind, name

    def memory_type(self, var: e.Var, dtype: DataType) -> str:
        """The type of what a variable of the program holds or points to."""
        self.check_memory(var, dtype)
        return self.dialect.memory_type(dtype)

    def check_memory(self, var: e.Var, dtype: DataType) -> None:
        """Raises `CompileError` for elements that memory cannot have."""
        self.check_dtype(dtype, lambda: f"`{var.name}`")

    def check_dtype(self, dtype: DataType, what: Callable[[], object]) -> None:
        """Raises `CompileError` for what has a dtype that the language does not have."""
        if str(dtype.element) not in self.dialect.types and dtype.code not in ("handle", "void"):
            name = self.dialect.name
            raise CompileError(
                f"{what()} in the kernel `{self.symbol}` has the dtype {dtype}, which {name} does not have; use another"
            )

    # -- names and lines --

    def define(self, var: e.Var) -> str:
        """A fresh name for a variable."""
        name = self.values[var] = self.fresh(var.name)
        return name

    def fresh(self, hint: str) -> str:
        """A name that nothing has yet."""
        base = re.sub(r"\W", "_", hint, flags=re.ASCII) or "v"
        base = f"v{base}" if base[0].isdigit() else base
        name, count = base, 1
        while name in self.names:
            name, count = f"{base}_{count}", count + 1
        self.names.add(name)
        return name

    def emit(self, line: str) -> None:
        """Adds a line at the present depth."""
        self.lines.append("  " * self.depth + line)

    def block(self, head: str, body: Callable[[], None]) -> None:
        """A statement with a body in braces."""
        self.emit(f"{head} {{")
        self.depth += 1
        body()
        self.depth -= 1
        self.emit("}")

    def temporary(self, dtype: DataType, text: str) -> str:
        """A value under a name; itself where it must not be computed here, or is a name already."""
        if self.guarded or re.fullmatch(r"[\w.]+", text):
            return text
        name = self.fresh("t")
        self.emit(self.dialect.constant(self.register_type(dtype), name, _bare(text)))
        return name

    def register_type(self, dtype: DataType) -> str:
        """The type of a value: half precision is float32 there."""
        return self.dialect.type_name(DataType("float32") if dtype.element == "float16" else dtype)

    def call_helper(self, operation: str, dtype: DataType, args: Sequence[str], source: DataType | None = None) -> str:
        """A call of a function of the prelude."""
        dtype = DataType("float32") if dtype.element == "float16" else dtype
        name, text = self.dialect.helper(operation, dtype.element, None if source is None else source.element)
        self.helpers[name] = text
        return f"{name}({joined(args)})"

    # -- statements --

    def refuse(self, node: Any) -> Any:
        kind, language = type(node).__name__, self.dialect.name
        if isinstance(node, Stmt):
            raise CompileError(f"{kind} must be lowered before code for {language} is written")
        raise CompileError(f"{kind} cannot be written in {language} code: {node}")

    def stmt_AssertStmt(self, node: AssertStmt) -> None:
        # A device cannot report: what the host can check, it has checked before the launch.
        self.stmt(node.body)

    def stmt_AttrStmt(self, node: AttrStmt) -> None:
        if node.attr_key == "thread_extent":
            self.bind_thread(node.node.var, node.node.thread_tag)
            self.extents[node.node.thread_tag] = node.value
        self.stmt(node.body)

    def bind_thread(self, var: e.Var, tag: str) -> None:
        """Gives the variable of a thread axis its name; all variables of one axis share it."""
        if tag not in self.threads:
            name = self.threads[tag] = self.fresh(tag)
            self.top.append(self.dialect.constant(self.dialect.type_name(INT32), name, self.dialect.thread_index(tag)))
        self.values[var] = self.threads[tag]

    def stmt_LetStmt(self, node: LetStmt) -> None:
        if not is_index_arithmetic(node.value, self.data_variables):
            self.data_variables.add(node.var)
        self.bind(node.var, node.value)
        self.stmt(node.body)

    def bind(self, var: e.Var, value: e.PrimExpr) -> None:
        """Declares a variable with its value."""
        if var.dtype.is_handle:
            self.pointers[var] = pointee(var)
            self.values[var] = self.pointer(value)
            return
        lanes = self.lanes(value)
        if len(lanes) > 1:
            self.vectors[var] = lanes if self.guarded else [self.temporary(var.dtype.element, lane) for lane in lanes]
            return
        if var.dtype.is_index:
            self.analyzer.bind(var, value, allow_override=True)
        if self.guarded:
            self.values[var] = lanes[0]
            return
        name = self.fresh(var.name)
        self.emit(self.dialect.constant(self.register_type(var.dtype), name, _bare(lanes[0])))
        self.values[var] = name

    def stmt_Allocate(self, node: Allocate) -> None:
        size = node.dtype.lanes
        for extent in node.extents:
            if not isinstance(extent, e.IntImm):
                raise CompileError(
                    f"`{node.buffer_var.name}` needs a constant size in a kernel, found {extent}: "
                    "schedule its producer so that a thread or a block needs a fixed part of it"
                )
            size *= extent.value
        _, scope = pointee(node.buffer_var)
        scope = scope or "local"
        if scope not in self.dialect.spaces or scope == "global":
            raise CompileError(
                f"`{node.buffer_var.name}` has the scope {scope!r}, in which a kernel for {self.dialect.name} "
                "cannot allocate; expected 'local' or 'shared'"
            )
        element = node.dtype.element
        self.check_memory(node.buffer_var, element)
        self.pointers[node.buffer_var] = (element, scope)
        self.allocate(node.buffer_var, element, scope, max(1, size))
        self.stmt(node.body)

    def allocate(self, var: e.Var, element: DataType, scope: str, size: int) -> None:
        """Declares memory of the kernel."""
        line = self.dialect.allocation(scope, element, self.define(var), size)
        if scope == "local":
            self.emit(line)
        else:
            self.top.append(line)

    def stmt_Evaluate(self, node: Evaluate) -> None:
        call = node.value
        if not isinstance(call, e.Call):
            return
        name = call.op.name if isinstance(call.op, Op) else ""
        if name == "tir.tvm_storage_sync":
            self.emit(self.dialect.barrier(getattr(call.args[0], "value", "")))
        elif name in ("tir.ret", "tir.tvm_thread_invariant"):
            if name == "tir.ret":
                self.emit("return;")
        elif name in ("tir.break_loop", "tir.continue_loop"):
            self.emit(f"{name[4:].partition('_')[0]};")
        else:
            self.emit(f"{self.lanes(call)[0]};")

    def stmt_IfThenElse(self, node: IfThenElse) -> None:
        self.block(f"if ({_bare(self.scalar(node.condition))})", lambda: self.stmt(node.then_case))
        if node.else_case is not None:
            other = node.else_case
            self.block("else", lambda: self.stmt(other))

    def stmt_For(self, node: For) -> None:
        if node.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
            raise CompileError(
                f"the loop over `{node.loop_var.name}` is {node.kind.name.lower()}, which a kernel cannot run; "
                "bind it to a thread axis"
            )
        kind, name = self.dialect.type_name(node.loop_var.dtype), self.define(node.loop_var)
        start = self.scalar(node.min)
        from_zero = isinstance(node.min, e.IntImm) and node.min.value == 0
        stop = self.scalar(node.extent if from_zero else node.min + node.extent)
        if node.kind is ForKind.UNROLLED and self.dialect.unroll is not None:
            self.emit(self.dialect.unroll)
        self.block(self.dialect.loop(kind, name, start, stop), lambda: self.stmt(node.body))

    def stmt_While(self, node: While) -> None:
        self.guarded += 1
        condition = self.scalar(node.condition)
        self.guarded -= 1
        self.block(f"while ({_bare(condition)})", lambda: self.stmt(node.body))

    def stmt_BufferStore(self, node: BufferStore) -> None:
        index = _flat_index(node)
        dtype = node.value.dtype
        pointer = self.memory(node.buffer.data, node.buffer.dtype)
        values = self.lanes(node.value)
        if node.predicate is None and _is_contiguous(index) and dtype.lanes > 1:
            values = [self.temporary(dtype.element, value) for value in values]
            alignment = self.alignment(node.buffer.data, index.base, dtype)
            _, scope = self.pointers[node.buffer.data]
            text = self.dialect.store_vector(dtype, pointer, self.scalar(index.base), values, alignment, scope)
            if text is not None:
                self.emit(text)
                return
        if len(values) > 1:  # what is loaded is loaded before anything is stored
            values = [self.temporary(dtype.element, value) for value in values]
        masks = None if node.predicate is None else self.lanes(node.predicate)
        for lane, (place, value) in enumerate(zip(self.places(index, dtype, node.buffer.dtype), values, strict=True)):
            text = self.store(node.buffer.data, dtype.element, pointer, place, _bare(value))
            self.emit(text if masks is None else self.dialect.guarded(masks[lane], text))

    # -- memory --

    def memory(self, data: e.Var, dtype: DataType) -> str:
        """A pointer to elements of a dtype."""
        name = self.values.get(data)
        if name is None:
            raise CompileError(f"the memory `{data.name}` is used before it is defined")
        declared, scope = self.pointers[data]
        element = dtype.element
        if declared.element == element and self.dialect.memory_type(element) == self.dialect.pointee_type(element):
            return name
        return f"(({self.dialect.spaces[scope]}{self.dialect.pointee_type(dtype.element)}*){name})"

    def alignment(self, data: e.Var, index: e.PrimExpr, dtype: DataType) -> int:
        """The bytes that are known to divide the address of an element; in a tensor, which users may have begin at any
        element, those that divide its distance from the begin.
        """
        size = self.dialect.memory_dtype(dtype.element).bits // 8
        _, scope = self.pointers[data]
        if scope in ("", "global") and not self.dialect.asks_where_tensors_begin:
            return size
        known = self.analyzer.modular_set(index)
        return math.gcd(max(size, self.dialect.memory_alignment), known.coeff * size, known.base * size)

    def places(self, index: e.PrimExpr, dtype: DataType, element: DataType) -> Lanes:
        """The index of each lane's element. Elements that are vectors lie lane after lane."""
        if element.lanes > 1:
            first = self.scalar(index) if index.dtype.is_scalar else self.lanes(index)[0]
            return [f"{first} * {element.lanes} + {i}" for i in range(dtype.lanes)]
        found = self.lanes(index)
        return [_bare(place) for place in found] if len(found) == dtype.lanes else found * dtype.lanes

    def expr_BufferLoad(self, node: BufferLoad) -> Lanes:
        index, dtype = _flat_index(node), node.dtype
        pointer = self.memory(node.buffer.data, node.buffer.dtype)
        if dtype.lanes > 1 and not self.guarded and node.predicate is None and _is_contiguous(index):
            alignment = self.alignment(node.buffer.data, index.base, dtype)
            _, scope = self.pointers[node.buffer.data]
            vector = self.dialect.load_vector(dtype, pointer, self.scalar(index.base), alignment, scope)
            if vector is not None:
                kind, text, lanes = vector
                name = self.fresh("v")
                self.emit(f"const {kind} {name} = {text};")
                return [lane.format(name) for lane in lanes]
        places = self.places(index, dtype, node.buffer.dtype)
        if isinstance(index, e.Broadcast):
            one = self.temporary(dtype.element, self.load(node.buffer.data, dtype.element, pointer, places[0]))
            return [one] * dtype.lanes
        loads = [self.load(node.buffer.data, dtype.element, pointer, place) for place in places]
        if node.predicate is not None and not any(structural_equal(node.predicate, test) for test in self.assumed):
            zero = self.literal(0, dtype.element)
            loads = [self.dialect.choose(m, v, zero) for m, v in zip(self.lanes(node.predicate), loads, strict=True)]
        return loads

    def load(self, data: e.Var, dtype: DataType, pointer: str, index: str) -> str:
        """An element of the memory of a variable, to which `pointer` points."""
        return self.dialect.load(dtype, pointer, index)

    def store(self, data: e.Var, dtype: DataType, pointer: str, index: str, value: str) -> str:
        """The statement that writes an element of the memory of a variable."""
        return self.dialect.store(dtype, pointer, index, value)

    def pointer(self, node: Any) -> str:
        """An address."""
        if isinstance(node, e.Var):
            return self.values[node]
        name = node.op.name if isinstance(node, e.Call) and isinstance(node.op, Op) else ""
        if name == "tir.address_of":
            load: Any = node.args[0]
            index = _flat_index(load)
            first = index.base if isinstance(index, e.Ramp) else index
            return f"({self.memory(load.buffer.data, load.buffer.dtype)} + {self.scalar(first)})"
        if name == "tir.tvm_access_ptr":
            args: Any = node.args
            element, data, offset = args[:3]
            return f"({self.memory(data, element.dtype)} + {self.scalar(offset)})"
        raise CompileError(f"{node} is no address that a kernel for {self.dialect.name} can take")

    # -- expressions --

    def scalar(self, node: Any) -> str:
        """The expression of a scalar."""
        (lane,) = self.lanes(node)
        return lane

    def lanes(self, node: Any) -> Lanes:
        """The expressions of a value's lanes."""
        self.check_dtype(node.dtype, lambda: node)
        return self._handle(node)

    def literal(self, value: Any, dtype: DataType) -> str:
        """A constant."""
        if dtype.element == "float16":  # what a constant holds is rounded where it is used
            with np.errstate(over="ignore"):
                value = np.float16(value)
        if dtype.is_float:
            return self.dialect.floating(float(value), DataType("float64" if dtype.bits == 64 else "float32"))
        return self.dialect.integer(int(value), dtype)

    def expr_Var(self, node: e.Var) -> Lanes:
        if node in self.vectors:
            return self.vectors[node]
        value = self.values.get(node)
        if value is None:
            raise CompileError(f"the variable `{node.name}` is used before it is defined")
        return [value]

    def expr_IntImm(self, node: e.IntImm) -> Lanes:
        return [self.literal(node.value, node.dtype)]

    def expr_FloatImm(self, node: e.FloatImm) -> Lanes:
        return [self.literal(node.value, node.dtype)]

    def pairs(self, node: Any) -> Iterable[tuple[str, str]]:
        """The lanes of both operands."""
        return zip(self.lanes(node.a), self.lanes(node.b), strict=True)

    def expr_BinaryOpExpr(self, node: Any) -> Lanes:
        dtype, sign = node.dtype, _OPERATORS[type(node)]
        if dtype.element == "float16":
            return [self.round_to_half(f"{a} {sign} {b}") for a, b in self.pairs(node)]
        indexes = dtype.bits >= 32 and is_index_arithmetic(node, self.data_variables)
        if dtype.is_float or (dtype.code == "uint" and dtype.bits >= 32) or indexes:
            return [f"({a} {sign} {b})" for a, b in self.pairs(node)]
        return [self.dialect.wrapping(a, sign, b, dtype.element) for a, b in self.pairs(node)]

    def division(self, node: Any) -> Lanes:
        dtype = node.dtype
        if dtype.is_float:
            if not isinstance(node, e.Div):
                return [self.call_helper("mod", dtype, pair) for pair in self.pairs(node)]
            if dtype.element == "float16":
                return [self.round_to_half(f"{a} / {b}") for a, b in self.pairs(node)]
            return [f"({a} / {b})" for a, b in self.pairs(node)]
        quotient = isinstance(node, (e.Div, e.FloorDiv))
        floored = isinstance(node, (e.FloorDiv, e.FloorMod)) and dtype.code == "int"
        divisor = _constant(node.b)
        if not floored and divisor is not None and divisor not in (0, -1):
            sign, element = "/" if quotient else "%", dtype.element
            found = [f"({a} {sign} {b})" for a, b in self.pairs(node)]
            return [self.dialect.convert(value, element, element) for value in found] if dtype.bits < 32 else found
        name = ("floordiv" if quotient else "floormod") if floored else ("div" if quotient else "mod")
        return [self.call_helper(name, dtype, pair) for pair in self.pairs(node)]

    expr_Div = expr_Mod = expr_FloorDiv = expr_FloorMod = division

    def extreme(self, node: Any) -> Lanes:
        name, sign = ("max", ">") if isinstance(node, e.Max) else ("min", "<")
        if node.dtype.is_float:
            return [self.call_helper(name, node.dtype, pair) for pair in self.pairs(node)]
        found = []
        for a, b in self.pairs(node):
            x, y = self.temporary(node.dtype.element, a), self.temporary(node.dtype.element, b)
            found.append(self.dialect.choose(f"{x} {sign} {y}", x, y))
        return found

    expr_Min = expr_Max = extreme

    def expr_CmpExpr(self, node: Any) -> Lanes:
        return [f"({a} {_COMPARE[type(node)]} {b})" for a, b in self.pairs(node)]

    def connective(self, node: Any) -> Lanes:
        left = self.lanes(node.a)
        right = self.guard(node.b)
        sign = "&&" if isinstance(node, e.And) else "||"
        return [f"({a} {sign} {b})" for a, b in zip(left, right, strict=True)]

    expr_And = expr_Or = connective

    def expr_Not(self, node: e.Not) -> Lanes:
        return [f"(!{a})" for a in self.lanes(node.a)]

    def guard(self, node: Any) -> Lanes:
        """The lanes of an expression that is computed only under a condition."""
        self.guarded += 1
        lanes = self.lanes(node)
        self.guarded -= 1
        return lanes

    def choice(self, condition: Any, then: Any, other: Any) -> Lanes:
        """One of two values, of which only that one is computed."""
        tests = self.lanes(condition)
        self.assumed.append(condition)
        first = self.guard(then)
        self.assumed.pop()
        second = self.guard(other)
        if len(tests) < len(first):
            tests = [self.temporary(DataType("bool"), tests[0])] * len(first)
        return [self.dialect.choose(t, a, b) for t, a, b in zip(tests, first, second, strict=True)]

    def expr_Select(self, node: e.Select) -> Lanes:
        return self.choice(node.condition, node.true_value, node.false_value)

    def expr_Let(self, node: e.Let) -> Lanes:
        if not is_index_arithmetic(node.value, self.data_variables):
            self.data_variables.add(node.var)
        self.bind(node.var, node.value)
        return self.lanes(node.body)

    def expr_Cast(self, node: e.Cast) -> Lanes:
        source, target = node.value.dtype, node.dtype
        return [self.cast(value, source.element, target.element) for value in self.lanes(node.value)]

    def cast(self, value: str, source: DataType, target: DataType) -> str:
        """A scalar converted as docs/architecture.md defines it."""
        if source is target:
            return value
        if target.is_bool:
            return f"({value} != {self.literal(0, source)})"
        if target == "float16":
            single = DataType("float32")
            return self.round_to_half(value if source.is_float else self.dialect.convert(value, source, single))
        if source == "float16":
            source = DataType("float32")
        if source.is_float and not target.is_float:
            return self.call_helper("", target, [value], source)
        return self.dialect.convert(value, source, target) if source is not target else value

    def round_to_half(self, value: str) -> str:
        """A float32 rounded to half precision, as a float32."""
        self.helpers |= self.dialect.half_functions()
        return f"oneir_f16_of_bits(oneir_bits_of_f16({value}))"

    # -- vectors --

    def expr_Broadcast(self, node: e.Broadcast) -> Lanes:
        value = self.temporary(node.value.dtype, self.scalar(node.value))
        return [value] * node.dtype.lanes

    def expr_Ramp(self, node: e.Ramp) -> Lanes:
        base = self.temporary(node.base.dtype, self.scalar(node.base))
        stride = _constant(node.stride)
        if stride is not None:
            return [f"({base} + {stride * i})" if i else base for i in range(node.dtype.lanes)]
        step = self.temporary(node.stride.dtype, self.scalar(node.stride))
        return [f"({base} + {step} * {i})" for i in range(node.dtype.lanes)]

    def expr_Shuffle(self, node: Shuffle) -> Lanes:
        lanes = [lane for vector in node.vectors for lane in self.lanes(vector)]
        return [lanes[_lane_number(index)] for index in node.indices]

    # -- calls --

    def expr_Call(self, node: e.Call) -> Lanes:
        if not isinstance(node.op, Op):
            raise CompileError(f"a kernel for {self.dialect.name} cannot call another function: {node}")
        name, dtype = node.op.name, node.dtype
        handler = self._calls.get(name) or self.dialect.calls.get(name)
        if handler is not None:
            return handler(self, node)
        if name in _BITWISE:
            a, b = map(self.lanes, node.args)
            return [self.dialect.bitwise(x, _BITWISE[name], y, dtype) for x, y in zip(a, b, strict=True)]
        rule = node.op.get_attr(_FORMULA)
        if _MATH.get(name) in self.dialect.own_functions and dtype.bits <= 32:
            rule = None
        if rule is not None and dtype.is_float and (dtype.bits <= 32 or name not in _MATH):
            function = self.formula(node.op, rule, node.args, "float64" if dtype.bits == 64 else "float32")
            return [f"{function}({joined(lane)})" for lane in zip(*map(self.lanes, node.args), strict=True)]
        if name in _MATH:
            function = self.math(_MATH[name], node.args[0].dtype.element)
            return [f"{function}({joined(lane)})" for lane in zip(*map(self.lanes, node.args), strict=True)]
        raise CompileError(f"the operator {name} cannot be written in {self.dialect.name} code: {node} ({dtype})")

    def math(self, name: str, dtype: DataType) -> str:
        """The name of a function of the C library for a dtype."""
        return self.dialect.math(name, dtype)

    def formula(self, op: Op, rule: Callable[[e.Call], e.PrimExpr], args: Sequence[e.PrimExpr], dtype: str) -> str:
        """The name of the function of the prelude that computes an operator as processors do.

        The languages' own libraries are a few units less exact in float32, and each in its own way.
        """
        name = f"oneir_{op.name.removeprefix('tir.')}_f{dtype[5:]}"
        if name not in self.helpers:
            params = [e.Var("xyz"[i], dtype if arg.dtype.is_float else arg.dtype) for i, arg in enumerate(args)]
            inner = type(self)(PrimFunc(params, Evaluate(0)), name, self.dialect, self.helpers)
            declared = [inner.parameter(param) for param in params]
            result = _bare(inner.scalar(rule(e.Call(dtype, op, params))))
            head = self.dialect.function_head(self.dialect.type_name(DataType(dtype)), name, declared)
            self.helpers[name] = "\n".join([f"{head} {{", *inner.lines, f"  return {result};", "}"])
        return name

    def shift(self, node: e.Call) -> Lanes:
        left = node.op.name == "tir.shift_left"
        a, n = map(self.lanes, node.args)
        count = _constant(node.args[1])
        if count is not None and 0 <= count < node.dtype.bits and node.dtype.bits >= 32:
            if not left:
                return [f"({x} >> {count})" for x in a]
            return [self.shifted_left(x, count, node.dtype.element) for x in a]
        return [self.call_helper("shl" if left else "shr", node.dtype, pair) for pair in zip(a, n, strict=True)]

    def shifted_left(self, value: str, count: int, dtype: DataType) -> str:
        """A value of 32 or 64 bits shifted by a constant number of bits, less than it has."""
        kind, wide = self.dialect.type_name(dtype), self.dialect.type_name(DataType(f"uint{dtype.bits}"))
        return f"({kind})(({wide}){value} << {count})"

    def if_then_else(self, node: e.Call) -> Lanes:
        return self.choice(*node.args)

    def first_argument(self, node: e.Call) -> Lanes:
        return self.lanes(node.args[0])

    def bitwise_not(self, node: e.Call) -> Lanes:
        sign, dtype = "!" if node.dtype.is_bool else "~", node.dtype.element
        return [self.dialect.convert(f"{sign}{a}", dtype, dtype) for a in self.lanes(node.args[0])]

    def reinterpret(self, node: e.Call) -> Lanes:
        source, target = node.args[0].dtype.element, node.dtype.element
        lanes = self.lanes(node.args[0])
        if source == "float16":  # kept as a float32
            self.helpers |= self.dialect.half_functions()
            lanes, source = [f"oneir_bits_of_f16({a})" for a in lanes], DataType("uint16")
        if target == "float16":
            self.helpers |= self.dialect.half_functions()
            short = DataType("uint16")
            return [f"oneir_f16_of_bits({self.dialect.reinterpret(a, source, short)})" for a in lanes]
        return [self.dialect.reinterpret(a, source, target) for a in lanes]

    def count_leading_zeros(self, node: e.Call) -> Lanes:
        source, target = node.args[0].dtype.element, node.dtype.element
        function = self.math("clz", source)
        return [self.dialect.convert(f"{function}({a})", source, target) for a in self.lanes(node.args[0])]

    def extern(self, node: e.Call) -> Lanes:
        symbol, *args = node.args
        function = self.dialect.c_function(str(getattr(symbol, "value", symbol)))
        return [f"{function}({joined(map(self.argument, args))})"]

    def argument(self, node: Any) -> str:
        """An argument of a function of the device's language."""
        return self.pointer(node) if node.dtype.is_handle else self.scalar(node)

    def nothing(self, node: e.Call) -> Lanes:
        return [self.literal(0, node.dtype.element)] * node.dtype.lanes

    _calls: ClassVar[dict[str, Callable[[KernelEmitter, e.Call], Lanes]]] = {
        "tir.shift_left": shift,
        "tir.shift_right": shift,
        "tir.if_then_else": if_then_else,
        "tir.likely": first_argument,
        "tir.bitwise_not": bitwise_not,
        "tir.reinterpret": reinterpret,
        "tir.clz": count_leading_zeros,
        "tir.call_extern": extern,
        "tir.call_pure_extern": extern,
        "tir.undef": nothing,
    }


def pointee(var: e.Var) -> tuple[DataType, str]:
    """The dtype that a pointer variable points to, and the scope of the memory."""
    annotation = var.type_annotation
    if isinstance(annotation, PointerType) and isinstance(annotation.element_type, PrimType):
        return DataType(annotation.element_type.dtype), annotation.storage_scope
    return DataType("uint8"), "global"


def _flat_index(node: Any) -> e.PrimExpr:
    if len(node.indices) > 1:
        raise CompileError(f"buffer `{node.buffer.name}` is not flat; run FlattenBuffer first: {node}")
    return node.indices[0] if node.indices else e.const(0)


def _is_contiguous(index: Any) -> TypeGuard[e.Ramp]:
    return isinstance(index, e.Ramp) and isinstance(index.stride, e.IntImm) and index.stride.value == 1


def _constant(node: Any) -> Any:
    """The value of a constant, or of the constant in every lane."""
    if isinstance(node, e.Broadcast):
        node = node.value
    return node.value if isinstance(node, e.IntImm) else None


def _lane_number(index: Any) -> int:
    if not isinstance(index, e.IntImm):
        raise CompileError(f"the indices of a shuffle must be constants, found {index}")
    return index.value


def _bare(text: str) -> str:
    """An expression without the parentheses around all of it: in brackets it needs none."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]
