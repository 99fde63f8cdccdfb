"""Functions of a processor as C: parameters, checks, calls, errors and memory of the packed convention.

Statements and arithmetic are those of kernels (`emitter.py`). As in LLVM IR, every function returns 0, or another
number after it has described an error in its result; loops that may run on several threads run on one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ...ir import expr as e
from ...ir.dtype import INT64, DataType
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.type import PointerType
from ...ir.visitor import deep_recursion, post_order_visit
from ...runtime.error import CompileError
from ...runtime.packed import Code
from ...runtime.packed_fields import Field, field_of
from ...tir.function import PrimFunc
from ...tir.stmt import Allocate, AllocateConst, AssertStmt, AttrStmt, Evaluate, For, ForKind, LetStmt, While
from ..tensor_check import ExpectedTensor
from ..units import DECLARED, SHARED
from .dialect import joined
from .emitter import KernelEmitter, Lanes, _bare, pointee
from .host_c import C

PACKED = 1
"""The `calling_conv` of functions that are called from outside of the module."""
MAX_DEPTH = 1000
"""Calls within the module that are deeper fail before the stack overflows."""
_PREFIX, _SYMBOL = "__oneir_", "__tvm_ffi_"
_SYMBOL_OF_PACKED = "int32_t {}(void* self_handle, void* args, int32_t num_args, void* result)"
_MEMBERS = {
    Field.TENSOR_DATA: "data",
    Field.TENSOR_DEVICE_TYPE: "device_type",
    Field.TENSOR_DEVICE_ID: "device_id",
    Field.TENSOR_NDIM: "ndim",
    Field.TENSOR_DTYPE: "dtype",
    Field.TENSOR_SHAPE: "shape",
    Field.TENSOR_STRIDES: "strides",
    Field.TENSOR_BYTE_OFFSET: "byte_offset",
    Field.VALUE_CODE: "code",
    Field.VALUE_FLAGS: "flags",
    Field.VALUE_INT: "u.i",
    Field.VALUE_FLOAT: "u.f",
    Field.VALUE_HANDLE: "u.p",
}
_STACK = {"shape": "int64_t", "array": "oneir_tensor", "arg_value": "oneir_value", "arg_tcode": "int32_t"}
_CALLS_PACKED = ("tir.tvm_call_packed_lowered", "tir.tvm_call_trace_packed_lowered", "tir.tvm_call_cpacked_lowered")


class _Text:
    """What the functions of one text share."""

    def __init__(self, mod: IRModule):
        self.functions = mod.functions
        self.symbols: dict[e.GlobalVar, str] = {}
        self.prototypes: dict[str, str] = {}
        self.records: list[str] = []
        """Errors that the functions may report."""
        self.imports: dict[str, None] = {}
        """C that the program brings."""
        names = C.reserved
        for var, func in mod.functions_items():
            symbol = str(func.attrs.get("global_symbol", re.sub(r"\W", "_", var.name_hint, flags=re.ASCII)))
            if func.attrs.get("calling_conv") == PACKED and symbol.startswith(_PREFIX):
                symbol = _SYMBOL + symbol.removeprefix(_PREFIX)
            while symbol in names:
                symbol += "_"
            self.symbols[var] = symbol
            names |= {symbol}
        self.names = names


def c_text(mod: IRModule) -> str:
    """The C of a lowered module, as text.

    A packed function `f` is `__tvm_ffi_f`, and `__oneir_f` calls it. Raises `CompileError` for what lowering should
    have replaced, and for what C does not have.
    """
    shared, helpers, bodies = _Text(mod), dict[str, str](), list[str]()
    declared: list[str] = []
    with deep_recursion:
        for var, func in mod.functions_items():
            if isinstance(func, PrimFunc):
                emitter = HostEmitter(func, shared.symbols[var], C(), helpers)
                emitter.shared = shared
                emitter.names |= shared.names
                head, text = emitter.definition()
                declared.append(f"{head};")
                if DECLARED not in func.attrs:
                    bodies.append(text)
    parts = [C.header, *shared.imports, *shared.prototypes.values(), *declared, *shared.records]
    return "\n".join([*parts, *(text.lstrip("\n") for text in helpers.values()), *bodies])


class HostEmitter(KernelEmitter):
    """Writes one function of a processor."""

    shared: _Text
    result = "result"
    depth_of_calls = "0"

    # -- the function --

    def definition(self) -> tuple[str, str]:
        """The head of the function, and all of it."""
        func, convention = self.func, self.func.attrs.get("calling_conv")
        params = [" ".join(self.parameter(var)) for var in func.params]
        if convention is None:
            self.result = self.fresh("result")
            params.append(f"void* {self.result}")
        else:
            self.result = self.values[func.params[-1]]
        self.workspaces: list[str] = []
        if convention != PACKED:
            params.append("int32_t depth")
            self.depth_of_calls = "depth + 1"
            with_depth = f"if (depth > {MAX_DEPTH}) return {{}}"
            message = f"{self.symbol}: calls within the module are more than {MAX_DEPTH} deep"
            self.emit(with_depth.format(self.failure("RuntimeError", message)))
        own = "global_symbol" not in func.attrs and SHARED not in func.attrs and DECLARED not in func.attrs
        head = f"{'static ' if own else ''}int32_t {self.symbol}({joined(params)})"
        self.stmt(func.body)
        lines = [f"{head} {{", *(f"  {line}" for line in self.top), *self.lines, "  return 0;", "}"]
        if convention == PACKED and self.symbol.startswith(_SYMBOL):
            entry = _SYMBOL_OF_PACKED.format(_PREFIX + self.symbol.removeprefix(_SYMBOL))
            lines.append(f"{entry} {{\n  return {self.symbol}(self_handle, args, num_args, result);\n}}")
        return head, "\n".join([*lines, ""])

    def parameter(self, var: e.Var) -> tuple[str, str]:
        if not var.dtype.is_handle:
            return super().parameter(var)
        kind = self.pointer_type(var)
        unaliased = self.func.attrs.get("tir.noalias") and kind != "void*"
        return f"{kind} restrict" if unaliased else kind, self.define(var)

    def pointer_type(self, var: e.Var) -> str:
        """The C type of a pointer."""
        self.pointers[var] = (pointee(var)[0], "")
        if not isinstance(var.type_annotation, PointerType) or self.pointers[var][0].code in ("handle", "void"):
            return "void*"
        return f"{self.memory_type(var, self.pointers[var][0].element)}*"

    # -- errors --

    def failure(self, kind: str, message: str) -> str:
        """The expression that describes an error in the result and gives the function's status."""
        records = self.shared.records
        name = f"oneir_error_{len(records)}"
        records.append(f"static const char* const {name}[2] = {{{_literal(kind)}, {_literal(message)}}};")
        return f"oneir_fail({self.result}, {name});"

    def stmt_AssertStmt(self, node: AssertStmt) -> None:
        kind, message = "AssertionError", str(getattr(node.message, "value", node.message))
        prefix, _, rest = message.partition(":")
        if prefix.endswith("Error") and prefix.isidentifier():
            kind, message = prefix, rest.strip()
        condition = _bare(self.scalar(node.condition))
        self.emit(f"if (!({condition})) return {self.failure(kind, message)}")
        self.stmt(node.body)

    def check(self, call: str, error: str | None = None) -> None:
        """Executes a call that gives a status, and returns from the function where that is not 0."""
        status = self.fresh("status")
        self.emit(f"const int32_t {status} = {call};")
        copy = [] if error is None else [f"*(oneir_value*){self.result} = *{error};"]
        self.emit(f"if ({status} != 0) {{ {' '.join([*copy, *reversed(self.workspaces), f'return {status};'])} }}")

    def check_tensor(self, node: e.Call) -> Lanes:
        """Compares a packed value with a description of a tensor."""
        args, index, place, shape, *facts = node.args
        wanted, records = ExpectedTensor.of(place, shape, facts), self.shared.records
        name = f"oneir_tensor_{len(records)}"
        numbers = joined(f"{number}LL" for number in wanted.numbers())
        errors = joined(f"{{{_literal(kind)}, {_literal(message)}}}" for kind, message in wanted.errors())
        records.append(
            f"static const int64_t {name}[] = {{{numbers}}};\n"
            f"static const char* const {name}_errors[][2] = {{{errors}}};"
        )
        value = f"&((oneir_value*){self.pointer(args)})[{_bare(self.scalar(index))}]"
        self.check(f"oneir_check_tensor({value}, {name}, {name}_errors, {self.result})")
        return ["0"]

    # -- statements --

    def stmt_Evaluate(self, node: Evaluate) -> None:
        call = node.value
        if isinstance(call, e.Call) and isinstance(call.op, Op) and call.op.name == "tir.ret":
            self.emit(f"return {_bare(self.scalar(call.args[0]))};")
        elif isinstance(call, e.Call) and (_has_status(call) or call.op.name in _STATEMENTS):
            self.lanes(call)
        else:
            super().stmt_Evaluate(node)

    def stmt_AttrStmt(self, node: AttrStmt) -> None:
        text = getattr(node.value, "value", None)
        if node.attr_key in ("thread_extent", "virtual_thread"):
            self.dialect.thread_index(str(getattr(node.node, "thread_tag", "a thread")))
        if node.attr_key == "pragma_import_llvm":
            raise CompileError('a program that brings LLVM IR is compiled for "llvm"; pragma_import_c brings C')
        if node.attr_key == "pragma_import_c" and isinstance(text, str):
            self.shared.imports[text] = None
        self.stmt(node.body)

    def stmt_LetStmt(self, node: LetStmt) -> None:
        call: Any = node.value
        name = call.op.name if isinstance(call, e.Call) and isinstance(call.op, Op) else ""
        super().stmt_LetStmt(node) if name != "tir.TVMBackendAllocWorkspace" else self.with_workspace(node)

    def with_workspace(self, node: LetStmt) -> None:
        """A statement that has memory of the runtime."""
        self.bind(node.var, node.value)
        self.workspaces.append(f"oneir_free_workspace({self.values[node.var]});")
        self.stmt(node.body)
        self.workspaces.pop()

    def bind(self, var: e.Var, value: e.PrimExpr) -> None:
        if not var.dtype.is_handle or self.guarded:
            return super().bind(var, value)
        kind, address = self.pointer_type(var), self.pointer(value)
        name = self.define(var)
        restrict = "restrict " if self.func.attrs.get("tir.noalias") and kind != "void*" else ""
        self.emit(f"{kind} {restrict}{name} = {address if kind == 'void*' else f'({kind}){address}'};")
        return None

    def stmt_For(self, node: For) -> None:
        if node.kind in (ForKind.PARALLEL, ForKind.VECTORIZED):
            node = node.replace(kind=ForKind.SERIAL)
        super().stmt_For(node)

    def stmt_While(self, node: While) -> None:
        if not _has_status(node.condition):
            return super().stmt_While(node)

        def body() -> None:
            self.emit(f"if (!{self.scalar(node.condition)}) break;")
            self.stmt(node.body)

        return self.block("while (true)", body)

    def stmt_Allocate(self, node: Allocate) -> None:
        size = node.dtype.lanes
        for extent in node.extents:
            if not isinstance(extent, e.IntImm):
                raise CompileError(
                    f"`{node.buffer_var.name}` has no constant size; LowerTVMBuiltin gives it memory of the runtime"
                )
            size *= extent.value
        element = node.dtype.element
        self.check_memory(node.buffer_var, element)
        self.pointers[node.buffer_var] = (element, "")
        self.allocate(node.buffer_var, element, "local", max(1, size))
        self.stmt(node.body)

    def stmt_AllocateConst(self, node: AllocateConst) -> None:
        data: Any = node.data.numpy() if hasattr(node.data, "numpy") else node.data
        element = node.dtype.element
        self.check_memory(node.buffer_var, element)
        self.pointers[node.buffer_var] = (element, "")
        stored = self.dialect.memory_dtype(element)
        values = data.reshape(-1).view(str(stored)).tolist()
        text = joined(self.literal(value, stored) for value in values) or "0"
        kind, name = self.dialect.memory_type(element), self.define(node.buffer_var)
        self.emit(f"static {kind} {name}[{max(1, len(values))}] = {{{text}}};")
        self.stmt(node.body)

    # -- addresses and structures --

    def pointer(self, node: Any) -> str:
        if isinstance(node, e.StringImm):
            return f"(void*){_literal(node.value)}"
        name = node.op.name if isinstance(node, e.Call) and isinstance(node.op, Op) else ""
        if isinstance(node, e.Var) or name in ("tir.address_of", "tir.tvm_access_ptr"):
            return super().pointer(node)
        return self.scalar(node)

    def structure(self, node: e.Call) -> tuple[str, Field]:
        """A field of a structure, as an expression that can be assigned to."""
        base, index, code = node.args[:3]
        field = field_of(getattr(code, "value", -1))
        if field is None:
            raise CompileError(f"no structure has a field {code}: {node}")
        is_tensor, is_element = field.name.startswith("TENSOR"), field is Field.INT64_ELEMENT
        kind = "int64_t" if is_element else "oneir_tensor" if is_tensor else "oneir_value"
        element = f"(({kind}*){self.pointer(base)})[{_bare(self.scalar(index))}]"
        if field.is_address:
            return f"((void*)&{element})", field
        return element if is_element else f"{element}.{_MEMBERS[field]}", field

    def struct_get(self, node: e.Call) -> Lanes:
        text, field = self.structure(node)
        dtype = DataType(field.value.dtype)
        if field.is_address or dtype.is_handle:
            return [f"((void*){text})"]
        return [self.cast(text, dtype, node.dtype)]

    def struct_set(self, node: e.Call) -> Lanes:
        place, field = self.structure(node)
        dtype, value = DataType(field.value.dtype), node.args[3]
        text = f"(void*){self.pointer(value)}" if dtype.is_handle else self.cast(self.scalar(value), value.dtype, dtype)
        self.emit(f"{place} = {_bare(text)};")
        return ["0"]

    def stack_alloca(self, node: e.Call) -> Lanes:
        kind, count = str(getattr(node.args[0], "value", "")), node.args[1]
        if kind not in _STACK or not isinstance(count, e.IntImm):
            raise CompileError(f"expected memory of constant size for {', '.join(_STACK)}, found {node}")
        name = self.fresh(f"stack_{kind}")
        self.top.append(f"{_STACK[kind]} {name}[{max(1, count.value)}];")
        return [name]

    def add_byte_offset(self, node: e.Call) -> Lanes:
        return [f"((void*)((char*){self.pointer(node.args[0])} + {self.scalar(node.args[1])}))"]

    def is_null(self, node: e.Call) -> Lanes:
        return [f"({self.pointer(node.args[0])} == NULL)"]

    def reinterpret(self, node: e.Call) -> Lanes:
        value = node.args[0]
        if value.dtype.is_handle and not node.dtype.is_handle:
            return [self.dialect.convert(f"(uintptr_t){self.pointer(value)}", INT64, node.dtype)]
        if node.dtype.is_handle:
            bits = self.pointer(value) if value.dtype.is_handle else f"(uintptr_t){self.scalar(value)}"
            return [f"((void*){bits})"]
        return super().reinterpret(node)

    def alloc_workspace(self, node: e.Call) -> Lanes:
        if e.as_int(node.args[0]) != 1:
            raise CompileError(f"C for the host allocates memory of the host only, found {node}")
        return [f"oneir_alloc_workspace({_bare(self.scalar(node.args[2]))}, 64)"]

    def free_workspace(self, node: e.Call) -> Lanes:
        self.emit(f"oneir_free_workspace({self.pointer(node.args[2])});")
        return ["0"]

    # -- calls --

    def expr_Call(self, node: e.Call) -> Lanes:
        if not isinstance(node.op, Op):
            return self.call_function(node)
        handler = _HANDLERS.get(node.op.name)
        return super().expr_Call(node) if handler is None else handler(self, node)

    def call_function(self, node: e.Call) -> Lanes:
        """A call of another function of the module."""
        callee: Any = self.shared.functions.get(node.op)
        if not isinstance(callee, PrimFunc):
            raise CompileError(f"`{node.op.name_hint}` is not a function of the module that code is generated for")
        convention = callee.attrs.get("calling_conv")
        parameters = callee.params if convention is None else callee.params[:-1]
        if len(parameters) != len(node.args):
            raise CompileError(
                f"`{node.op.name_hint}` takes {len(parameters)} arguments, found {len(node.args)}: {node}"
            )
        args: list[str] = []
        for parameter, arg in zip(parameters, node.args, strict=True):
            if parameter.dtype.is_handle:
                args.append(self.pointer(arg))
            else:
                args.append(self.cast(self.scalar(arg), arg.dtype, parameter.dtype))
        args += [self.result, *([] if convention == PACKED else [self.depth_of_calls])]
        self.check(f"{self.shared.symbols[node.op]}({joined(args)})")
        return [self.payload(f"((oneir_value*){self.result})", node.dtype)]

    def payload(self, value: str, dtype: DataType) -> str:
        """What a value of the packed convention holds, to which `value` points."""
        if dtype == "void":
            return "0"
        if dtype.is_handle:
            return self.temporary_pointer(f"{value}->u.p")
        wide = DataType("float64") if dtype.is_float else INT64
        return self.temporary(dtype, self.cast(f"{value}->u.{'f' if dtype.is_float else 'i'}", wide, dtype))

    def temporary_pointer(self, text: str) -> str:
        """An address under a name."""
        name = self.fresh("t")
        self.emit(f"void* {name} = {text};")
        return name

    def call_packed(self, node: e.Call) -> Lanes:
        """A call of a registered function, or of a symbol: name, values, and which of them are arguments."""
        name, stack, begin, end = node.args
        values = f"((oneir_value*){self.pointer(stack)})"
        first, last = _bare(self.scalar(begin)), _bare(self.scalar(end))
        result = self.fresh("returned")
        self.emit(f"oneir_value* {result} = &{values}[{last}];")
        function, callee = "oneir_call_packed", self.pointer(name)
        if node.op.name == "tir.tvm_call_cpacked_lowered":
            function, callee = str(getattr(name, "value", name)), "NULL"
            self.shared.prototypes[function] = f"{_SYMBOL_OF_PACKED.format(function)};"
        self.check(f"{function}({callee}, &{values}[{first}], {last} - {first}, {result})", result)
        if node.op.name == "tir.tvm_call_trace_packed_lowered":
            return [self.traced(result, node.dtype)]
        return [self.payload(result, node.dtype)]

    def traced(self, result: str, dtype: DataType) -> str:
        """What a function that traces returned; for None, its last argument. It may answer a float with an int."""
        self.emit(f"if ({result}->code == {int(Code.NONE)}) --{result};")
        as_float, as_int = (
            self.cast(f"{result}->u.{member}", wide, dtype)
            for member, wide in (("f", DataType("float64")), ("i", INT64))
        )
        return self.temporary(dtype, f"({result}->code == {int(Code.FLOAT)} ? {as_float} : {as_int})")

    def extern(self, node: e.Call) -> Lanes:
        symbol, *args = node.args
        name = str(getattr(symbol, "value", symbol))
        if not any(re.search(rf"\b{re.escape(name)}\s*\(", text) for text in self.shared.imports):
            kinds = joined("void*" if arg.dtype.is_handle else self.register_type(arg.dtype) for arg in args)
            self.shared.prototypes.setdefault(name, f"{self.result_type(node.dtype)} {name}({kinds or 'void'});")
        return super().extern(node)

    def result_type(self, dtype: DataType) -> str:
        """The type of what a C function returns."""
        return "void" if dtype == "void" else "void*" if dtype.is_handle else self.register_type(dtype)

    def omitted(self, node: e.Call) -> Lanes:
        return ["0"]

    # -- choices between what gives a status, which are statements --

    def choice(self, condition: Any, then: Any, other: Any) -> Lanes:
        if not (_has_status(then) or _has_status(other)):
            return super().choice(condition, then, other)
        return [self.chosen(self.scalar(condition), then.dtype, lambda: self.scalar(then), lambda: self.scalar(other))]

    def connective(self, node: Any) -> Lanes:
        if not _has_status(node.b):
            return super().connective(node)
        left, then = self.scalar(node.a), lambda: self.scalar(node.b)
        if isinstance(node, e.And):
            return [self.chosen(left, node.dtype, then, lambda: "false")]
        return [self.chosen(left, node.dtype, lambda: "true", then)]

    expr_And = expr_Or = connective

    def chosen(self, condition: str, dtype: DataType, then: Callable[[], str], other: Callable[[], str]) -> str:
        """One of two values, of which only that one is computed, by statements."""
        name = self.fresh("t")
        self.emit(f"{'void*' if dtype.is_handle else self.register_type(dtype)} {name};")
        self.block(f"if ({_bare(condition)})", lambda: self.emit(f"{name} = {then()};"))
        self.block("else", lambda: self.emit(f"{name} = {other()};"))
        return name


_HANDLERS: dict[str, Callable[[HostEmitter, e.Call], Lanes]] = {
    "tir.tvm_struct_get": HostEmitter.struct_get,
    "tir.tvm_struct_set": HostEmitter.struct_set,
    "tir.check_tensor": HostEmitter.check_tensor,
    "tir.tvm_stack_alloca": HostEmitter.stack_alloca,
    "tir.handle_add_byte_offset": HostEmitter.add_byte_offset,
    "tir.isnullptr": HostEmitter.is_null,
    "tir.reinterpret": HostEmitter.reinterpret,
    "tir.TVMBackendAllocWorkspace": HostEmitter.alloc_workspace,
    "tir.TVMBackendFreeWorkspace": HostEmitter.free_workspace,
    "tir.call_extern": HostEmitter.extern,
    "tir.call_pure_extern": HostEmitter.extern,
    "tir.tvm_thread_invariant": HostEmitter.first_argument,
    "tir.prefetch": HostEmitter.omitted,
    "tir.assume": HostEmitter.omitted,
    "tir.type_annotation": HostEmitter.omitted,
    **dict.fromkeys(_CALLS_PACKED, HostEmitter.call_packed),
}
_STATEMENTS = ("tir.tvm_struct_set", "tir.check_tensor", "tir.TVMBackendFreeWorkspace", "tir.prefetch", "tir.assume")
"""Calls whose handlers write a statement, or nothing, and whose value nobody needs."""


def _has_status(node: Any) -> bool:
    """Whether an expression calls what may fail, or what must be written as a statement."""
    found = False

    def look(part: Any) -> None:
        nonlocal found
        if isinstance(part, e.Call):
            found |= not isinstance(part.op, Op) or part.op.name in _CALLS_PACKED

    post_order_visit(node, look)
    return found


def _literal(text: str) -> str:
    """A C string."""
    letters = (chr(b) if 32 <= b < 127 and b not in (34, 63, 92) else f"\\{b:03o}" for b in text.encode())
    return f'"{"".join(letters)}"'
