"""Functions as LLVM functions: parameters, the bodies of parallel loops, packed calls, errors.

A parallel loop's body becomes a function of its own. The values of the enclosing function that it uses (captures) are
found while it is emitted; they become its parameters, passed through a structure on the caller's stack. Pointers that
alias nothing keep `noalias`.
"""

from __future__ import annotations

from ...ir import expr as e
from ...ir.dtype import INT64, DataType
from ...ir.module import IRModule
from ...ir.type import PointerType
from ...runtime.error import CompileError
from ...runtime.packed import Code
from ...runtime.packed_fields import Field, field_of
from ...tir.function import PrimFunc
from ...tir.stmt import AttrStmt, For
from ..tensor_check import ExpectedTensor
from ..units import SHARED
from .expr import text_argument, where
from .stmt import MEMORY_ALIGNMENT, StmtEmitter
from .types import register_type
from .writer import FunctionWriter, ModuleText

_ERROR_CODE = 64
"""The code, in a result value, of a static error record."""

_COPY = ("llvm.memcpy.p0.p0.i64", "void", "ptr, ptr, i64, i1 immarg")

PACKED = 1
"""The `calling_conv` of packed functions, which are called from outside of the module."""

DEPTH = e.Var("depth", "int32")
"""The depth of calls within the module, an int32; beyond `MAX_DEPTH` a call fails before the stack overflows."""
MAX_DEPTH = 1000


class FunctionEmitter(StmtEmitter):
    """Emits one LLVM function. One for a scope outlined from `outer` captures the values that it uses of it."""

    def __init__(self, module: ModuleText, symbols: IRModule, name: str, outer: FunctionEmitter | None = None):
        self.w = FunctionWriter(module)
        self.symbols = symbols
        self.name = name
        self.outer = outer
        self.values: dict[e.Var, str] = {}
        self.captured: dict[e.Var, str] = {}
        self.loops = []
        self.bindings = {}
        self.loop_carried = set()
        self.workspaces = []
        self.data_variables = outer.data_variables if outer else set()
        self.own_memory = outer.own_memory if outer else set()
        self.unaliased: set[e.Var] = outer.unaliased if outer else set()
        self.reassociate = outer.reassociate if outer else False
        self.restrict: bool = outer.restrict if outer else False
        self.only_checks = False
        """Whether this function checks arguments, and leaves all else to another one, that of its compute scope."""
        self.in_memory = False
        """Whether variables are kept on the stack, as in functions that are compiled as they stand: LLVM would look for
        registers that keep hundreds of arguments through all checks for longer than it compiles the kernels."""
        self.slots: dict[e.Var, str] = {}
        self.captures_unaliased = False
        self.result = "%result"
        self.device_id: e.PrimExpr = outer.device_id if outer else e.IntImm("int32", 0)
        """Which device kernels are launched on."""

    def lookup(self, var: e.Var) -> str:
        found = self.values.get(var)
        if found is not None:
            return found
        slot = self.slots.get(var)
        if slot is not None:
            return self.w.value(f"load {register_type(var.dtype)}, ptr {slot}, align 8")
        if self.outer is None:
            raise CompileError(f"the variable `{var.name}` is used before it is defined{where(var)}")
        value = self.outer.lookup(var)
        if not value.startswith("%"):
            self.values[var] = value
            return value
        parameter = self.values[var] = f"%capture{len(self.captured)}"
        self.captured[var] = value
        if self.captures_unaliased and isinstance(var.type_annotation, PointerType):
            self.unaliased.add(var)
        return parameter

    def define(self, var: e.Var, value: str) -> None:
        if not self.in_memory or not value.startswith("%"):
            self.values[var] = value
            return
        llvm_type = register_type(var.dtype)
        slot = self.slots[var] = self.w.stack(llvm_type, 8)
        self.w.emit(f"store {llvm_type} {value}, ptr {slot}, align 8")

    def fail(self, kind: str, message: str) -> None:
        w = self.w
        record = w.module.error(kind, message)
        w.emit(f"store i64 {_ERROR_CODE}, ptr {self.result}, align 8")
        slot = w.value(f"getelementptr i8, ptr {self.result}, i64 8")
        w.emit(f"store ptr {record}, ptr {slot}, align 8")
        w.emit("ret i32 -1")

    def check_depth(self) -> None:
        """Emits the check of the call depth at the start of a function."""
        w = self.w
        too_deep, fine = w.label("deep"), w.label("fine")
        w.branch(w.value(f"icmp ugt i32 {self.lookup(DEPTH)}, {MAX_DEPTH}"), too_deep, fine, likely=False)
        w.start(too_deep)
        self.fail("RuntimeError", f"{self.name}: calls within the module are more than {MAX_DEPTH} deep")
        w.start(fine)

    def propagate(self, code: str, error: str | None = None) -> None:
        w = self.w
        failed, fine = w.label("failed"), w.label("fine")
        bad = w.value(f"icmp ne i32 {code}, 0")
        w.branch(bad, failed, fine, likely=False)
        w.start(failed)
        if error is not None:
            copy = w.module.declare(*_COPY)
            w.emit(f"call void {copy}(ptr {self.result}, ptr {error}, i64 16, i1 false)")
        for free in reversed(self.workspaces):
            w.emit(free)
        w.emit(f"ret i32 {code}")
        w.start(fine)

    # -- scopes that become functions --

    def _capture_parameters(self, inner: FunctionEmitter) -> list[str]:
        """The parameters of an outlined function, one for each captured value."""
        return [f"{register_type(var.dtype)} {self._facts(var)}{inner.values[var]}" for var in inner.captured]

    def _facts(self, var: e.Var) -> str:
        """The parameter attributes of a pointer."""
        noalias = "noalias " if var in self.unaliased or var in self.own_memory else ""
        return f"{noalias}align {MEMORY_ALIGNMENT} " if var in self.own_memory else noalias

    def compute_scope(self, node: AttrStmt) -> None:
        symbol = f"{self.name}_compute_"
        inner = FunctionEmitter(self.w.module, self.symbols, symbol, self)
        inner.captures_unaliased = self.restrict
        inner.stmt(node.body)
        inner.finish("internal", symbol, [*self._capture_parameters(inner), "ptr %result"])
        arguments = [f"{register_type(v.dtype)} {value}" for v, value in inner.captured.items()]
        code = self.w.value(f"call i32 @{symbol}({', '.join([*arguments, f'ptr {self.result}'])})")
        self.propagate(code)
        self.only_checks = self.outer is None

    def parallel(self, node: For) -> None:
        w, dtype = self.w, node.loop_var.dtype
        symbol = f"{self.name}_parallel{w.module.number()}_"
        begin, extent = self.expr(node.min), self.expr(node.extent)
        inner = FunctionEmitter(w.module, self.symbols, symbol, self)
        first = inner.lookup_value(begin, dtype) if begin.startswith("%") else begin
        low, high = inner.cast("%from", INT64, dtype), inner.cast("%to", INT64, dtype)
        start = inner.binary(e.Add, dtype, first, low)
        stop = inner.binary(e.Add, dtype, first, high)
        inner.loop(node.loop_var, start, stop, node.body, nonempty=False)
        self._finish_parallel(inner, symbol)
        environment = self._environment(inner)
        count = self.cast(extent, dtype, INT64)
        function = w.module.declare("oneir_parallel_for", "i32", "ptr, ptr, i64, i32")
        self.propagate(w.value(f"call i32 {function}(ptr @{symbol}, ptr {environment}, i64 {count}, i32 0)"))

    def lookup_value(self, value: str, dtype: DataType) -> str:
        """Captures a value of the outer function that is not bound to a variable."""
        assert self.outer is not None
        var = e.Var("value", dtype)
        self.outer.define(var, value)
        return self.lookup(var)

    def _finish_parallel(self, inner: FunctionEmitter, symbol: str) -> None:
        """Writes the loop's function, and the one that unpacks the captured values for it."""
        parameters = [*self._capture_parameters(inner), "i64 %from", "i64 %to", "ptr %result"]
        inner.finish("internal", f"{symbol}body", parameters)
        lines, arguments = [], []
        for i, var in enumerate([*inner.captured, None]):
            llvm_type = "ptr" if var is None else register_type(var.dtype)
            lines.append(f"  %slot{i} = getelementptr i8, ptr %environment, i64 {i * 64}")
            lines.append(f"  %value{i} = load {llvm_type}, ptr %slot{i}, align 8")
            arguments.append(f"{llvm_type} %value{i}")
        arguments[-1:] = ["i64 %from", "i64 %to", "ptr %own"]
        result, copy = len(inner.captured), self.w.module.declare(*_COPY)
        drop = self.w.module.declare("oneir_drop_error", "void", "ptr")
        attributes = self.w.module.processor.attributes
        self.w.module.functions.append(
            f"define internal i32 @{symbol}(ptr %environment, i64 %from, i64 %to) {attributes} {{\n"
            + "\n".join(["  %own = alloca [16 x i8], align 8", "  store i64 0, ptr %own, align 8", *lines])
            + f"""
  %code = call i32 @{symbol}body({", ".join(arguments)})
  %good = icmp eq i32 %code, 0
  br i1 %good, label %done, label %failed
failed: ; only one of the threads whose piece has failed may say why
  %flag = getelementptr i8, ptr %environment, i64 {(result + 1) * 64}
  %before = atomicrmw xchg ptr %flag, i32 1 monotonic
  %first = icmp eq i32 %before, 0
  br i1 %first, label %report, label %drop
report:
  call void {copy}(ptr %value{result}, ptr %own, i64 16, i1 false)
  br label %done
drop:
  call void {drop}(ptr %own)
  br label %done
done:
  ret i32 %code
}}"""
        )

    def _environment(self, inner: FunctionEmitter) -> str:
        """The structure with the captured values, the result's address, and whether a piece has failed.

        Each has a slot of the size of a cache line.
        """
        w = self.w
        address = w.stack(f"[{(len(inner.captured) + 2) * 64} x i8]", 64)
        values = [(register_type(var.dtype), value) for var, value in inner.captured.items()]
        for i, (llvm_type, value) in enumerate([*values, ("ptr", self.result), ("i32", "0")]):
            slot = w.value(f"getelementptr i8, ptr {address}, i64 {i * 64}")
            w.emit(f"store {llvm_type} {value}, ptr {slot}, align 8")
        return address

    def finish(self, linkage: str, symbol: str, parameters: list[str], inline: bool = True) -> None:
        """Ends the function and adds its text to the module. `inline`: whether LLVM may inline it.

        LLVM compiles checks of arguments as they stand: they are calls and comparisons, which are not worth its passes.
        """
        w = self.w
        if w.reachable:
            w.emit("ret i32 0")
        else:
            w.emit("unreachable")
        attributes = w.module.processor.attributes
        if self.only_checks:
            attributes = f"optnone noinline {attributes}"
        elif not inline:
            attributes = f"noinline {attributes}"
        w.module.functions.append(
            f"define {linkage} i32 @{symbol}({', '.join(parameters)}) {attributes} {{\n{w.body()}\n}}"
        )

    # -- calls between functions --

    def call_function(self, node: e.Call) -> str:
        callee = self.symbols.functions.get(node.op)
        if not isinstance(callee, PrimFunc):
            raise CompileError(
                f"`{node.op.name_hint}` is not a function of the module that code is generated for{where(node)}"
            )
        parameters = callee.params if callee.attrs.get("calling_conv") is None else callee.params[:-1]
        if len(parameters) != len(node.args):
            raise CompileError(
                f"`{node.op.name_hint}` takes {len(parameters)} arguments, found {len(node.args)}{where(node)}"
            )
        arguments = []
        for parameter, argument in zip(parameters, node.args, strict=True):
            value = self.expr(argument)
            if argument.dtype is not parameter.dtype:
                value = self.cast(value, argument.dtype, parameter.dtype)
            arguments.append(f"{register_type(parameter.dtype)} {value}")
        arguments.append(f"ptr {self.result}")
        if callee.attrs.get("calling_conv") != PACKED:
            arguments.append(f"i32 {self.w.pure(f'add i32 {self.lookup(DEPTH)}, 1')}")
        symbol = function_symbol(node.op.name_hint, callee)
        code = self.w.value(f"call i32 @{symbol}({', '.join(arguments)})")
        self.propagate(code)
        if SHARED in callee.attrs:  # a kernel of a graph, between which signals are handled
            self.propagate(self.w.value(f"call i32 {self.w.module.declare('oneir_poll_signals', 'i32', '')}()"))
        return "poison" if node.dtype == "void" else self._payload(self.result, node.dtype)

    def _payload(self, value: str, dtype: DataType) -> str:
        """The payload of a packed value, as a value of `dtype`."""
        payload = self.w.pure(f"getelementptr i8, ptr {value}, i64 8")
        wide = DataType("float64" if dtype.is_float else "handle" if dtype.is_handle else "int64")
        return self.cast(self.w.value(f"load {register_type(wide)}, ptr {payload}, align 8"), wide, dtype)

    # -- the packed convention --

    def struct_get(self, node: e.Call) -> str:
        address, field = self._field(node)
        if field.is_address:
            return address
        dtype = DataType(field.value.dtype)
        value = self.w.value(f"load {register_type(dtype)}, ptr {address}, align {self._alignment(dtype)}")
        return self.cast(value, dtype, node.dtype)

    def struct_set(self, node: e.Call) -> str:
        address, field = self._field(node)
        dtype = DataType(field.value.dtype)
        value = self.cast(self.expr(node.args[3]), node.args[3].dtype, dtype)
        self.w.emit(f"store {register_type(dtype)} {value}, ptr {address}, align {self._alignment(dtype)}")
        return "0"

    def check_tensor(self, node: e.Call) -> str:
        """Compares a packed value with a description of a tensor."""
        values, index, place, shape, *facts = node.args
        wanted, w = ExpectedTensor.of(place, shape, facts), self.w
        size = Field.VALUE_ADDRESS.layout(8).size
        value = w.value(f"getelementptr [{size} x i8], ptr {self.expr(values)}, i64 {self.index(index)}")
        expected, errors = w.module.numbers(wanted.numbers()), w.module.errors(wanted.errors())
        check = w.module.tensor_check()
        self.propagate(w.value(f"call i32 {check}(ptr {value}, ptr {expected}, ptr {errors}, ptr {self.result})"))
        return "0"

    def _alignment(self, dtype: DataType) -> int:
        return self.w.module.processor.pointer_bytes if dtype.is_handle else dtype.itemsize

    def _field(self, node: e.Call) -> tuple[str, Field]:
        """The address of a structure's field."""
        base, index, code = node.args[:3]
        field = field_of(getattr(code, "value", -1))
        if field is None:
            raise CompileError(f"no structure has a field {code}: {node}{where(node)}")
        layout, address, w = field.layout(self.w.module.processor.pointer_bytes), self.expr(base), self.w
        if not (isinstance(index, e.IntImm) and index.value == 0):
            address = w.pure(f"getelementptr [{layout.size} x i8], ptr {address}, i64 {self.index(index)}")
        if layout.offset:
            address = w.pure(f"getelementptr i8, ptr {address}, i64 {layout.offset}")
        return address, field

    def stack_alloca(self, node: e.Call) -> str:
        """Memory for values of the packed convention."""
        kind, count = text_argument(node), node.args[1]
        if not isinstance(count, e.IntImm):
            raise CompileError(f"memory on the stack needs a constant size, found {count}{where(node)}")
        size = {"shape": 8, "array": 48, "arg_value": 16, "arg_tcode": 4}.get(kind)
        if size is None:
            raise CompileError(f"expected memory for shape, array, arg_value or arg_tcode, found {kind!r}{where(node)}")
        return self.w.stack(f"[{size * max(1, count.value)} x i8]", 16)

    def call_packed(self, node: e.Call) -> str:
        """A call of a registered function, or of a symbol: name, values on the stack, and which of them are arguments.

        The value after the last argument receives the result.
        """
        name, stack, begin, end = node.args
        w = self.w
        values = self.expr(stack)
        first = w.pure(f"getelementptr [16 x i8], ptr {values}, i64 {self.index(begin)}")
        result = w.pure(f"getelementptr [16 x i8], ptr {values}, i64 {self.index(end)}")
        count = self.cast(w.pure(f"sub i64 {self.index(end)}, {self.index(begin)}"), INT64, DataType("int32"))
        kernels, symbol = w.module.kernels, getattr(name, "value", None)
        kernel = kernels.record_of(symbol) if kernels is not None and isinstance(symbol, str) else None
        if kernel is not None:
            launch = w.module.declare("oneir_launch_kernel", "i32", "ptr, i32, ptr, i32, ptr")
            device = self.expr(self.device_id)
            code = w.value(f"call i32 {launch}(ptr {kernel}, i32 {device}, ptr {first}, i32 {count}, ptr {result})")
            self.propagate(code, error=result)
            return "poison"
        if node.op.name == "tir.tvm_call_cpacked_lowered":
            # A symbol with the packed convention, called without the registry.
            symbol = getattr(name, "value", None)
            if not isinstance(symbol, str):
                raise CompileError(f"call_cpacked expects the name of a symbol, found {name}{where(node)}")
            function, callee = w.module.declare(symbol, "i32", "ptr, ptr, i32, ptr"), "null"
        else:
            function = w.module.declare("oneir_call_packed", "i32", "ptr, ptr, i32, ptr")
            callee = self.expr(name)
        code = w.value(f"call i32 {function}(ptr {callee}, ptr {first}, i32 {count}, ptr {result})")
        self.propagate(code, error=result)
        if node.op.name == "tir.tvm_call_trace_packed_lowered":
            return self._traced(result, node.dtype)
        return "poison" if node.dtype == "void" else self._payload(result, node.dtype)

    def _traced(self, result: str, dtype: DataType) -> str:
        """What a function that traces returned, as a value of `dtype`; for None, its last argument."""
        w = self.w
        last = w.pure(f"getelementptr i8, ptr {result}, i64 -16")
        code = w.value(f"load i32, ptr {result}, align 16")
        returned = w.pure(f"icmp ne i32 {code}, {int(Code.NONE)}")
        value = w.pure(f"select i1 {returned}, ptr {result}, ptr {last}")
        # A function may answer a float with an int, and the other way around.
        is_float = w.pure(f"icmp eq i32 {w.value(f'load i32, ptr {value}, align 16')}, {int(Code.FLOAT)}")
        parts = [self.cast(self._payload(value, wide), wide, dtype) for wide in (DataType("float64"), INT64)]
        kind = register_type(dtype)
        return w.pure(f"select i1 {is_float}, {kind} {parts[0]}, {kind} {parts[1]}")


def function_symbol(name: str, func: PrimFunc) -> str:
    """The symbol of a function in object code."""
    return func.attrs.get("global_symbol", name)
