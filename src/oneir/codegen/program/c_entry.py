"""The functions of a C header, as LLVM IR: they bring structures of C into the packed convention.

The packed functions of the graph check their arguments themselves, and their errors have texts; what is written here
puts addresses and shapes into place. Everything fixed is a function of the runtime (runtime/standalone.ll).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...runtime.dtype import dlpack_dtype, numpy_dtype
from ...runtime.packed import READ_ONLY, Code
from ...runtime.standalone import OWN
from .c_interface import WORKSPACE_ALIGNMENT, Argument, EntryPoint, Interface, workspace_bytes

WEIGHTS = "weights"
"""The symbol of the weights, or of the header of their file."""

_LARGEST_EXTENT = 1 << 40

_DECLARED = f"""
declare i32 @fail_null(ptr)
declare i32 @fail_small(ptr)
declare i32 @fail_memory(ptr)
declare i32 @fail_model(ptr)
declare i32 @fail_extent(ptr)
declare i32 @fail_call(ptr, ptr)
declare void @put_number(ptr, i64, i32, i64)
declare void @put_tensor(ptr, i64, ptr, ptr, i32, i32, ptr, i32)
declare void @put_addresses(ptr, ptr, i64, ptr)
declare ptr @aligned(ptr)
declare i32 @init_embedded(ptr, ptr, ptr)
declare i32 @init_file(ptr, ptr, ptr, i64, ptr)
declare void @free_model(ptr)
declare void @free_file(ptr)
declare ptr @{OWN}oneir_alloc_workspace(i64, i64)
declare void @{OWN}oneir_free_workspace(ptr)
declare void @oneir_pool_configure(i32, i64)
declare void @oneir_pool_after_fork()
declare i32 @pthread_atfork(ptr, ptr, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)
@anchor = private constant [64 x i8] zeroinitializer, align 64
"""

_THREADS = """
@set.up = internal global i32 0
@bad.count = private constant [39 x i8] c"the number of threads must be 1 to 256\\00"

; The pool's threads stay with the parent of a fork, so that its child begins with none.
define i32 @NAME_set_threads(i32 %count, ptr %error) {
  %less = sub i32 %count, 1
  %wrong = icmp ugt i32 %less, 255
  br i1 %wrong, label %refuse, label %set
refuse:
  %unwanted = icmp eq ptr %error, null
  br i1 %unwanted, label %leave, label %tell
tell:
  store ptr @bad.count, ptr %error
  br label %leave
leave:
  ret i32 1
set:
  call void @oneir_pool_configure(i32 %count, i64 SPIN)
  %before = atomicrmw xchg ptr @set.up, i32 1 monotonic
  %again = icmp ne i32 %before, 0
  br i1 %again, label %done, label %first
first:
  %ignored = call i32 @pthread_atfork(ptr null, ptr null, ptr @oneir_pool_after_fork)
  br label %done
done:
  ret i32 0
}
"""


def c_entry_ir(interface: Interface, offsets: Mapping[int, int], weights: str, spin_nanoseconds: int) -> str:
    """The functions of an interface, as LLVM IR.

    `offsets` says where each constant lies among the weights, in bytes. `weights` defines the global `WEIGHTS`: they
    themselves, or the first 64 bytes of their file.
    """
    parts = [_DECLARED, weights, _life(interface)]
    if interface.threads:
        parts.append(_THREADS.replace("NAME", interface.name).replace("SPIN", str(spin_nanoseconds)))
    parts += [_Entry(entry, [offsets[c] for c in entry.spec.constants]).text() for entry in interface.entries]
    return "\n".join(parts)


def _life(interface: Interface) -> str:
    name = interface.name
    if interface.separate is None:
        made = f"define i32 @{name}_init(ptr %model, ptr %error) {{\n"
        made += f"  %code = call i32 @init_embedded(ptr %model, ptr @{WEIGHTS}, ptr %error)\n"
        free = "free_model"
    else:
        made = f"define i32 @{name}_init(ptr %model, ptr %path, ptr %error) {{\n"
        made += (
            f"  %code = call i32 @init_file(ptr %model, ptr %path, ptr @{WEIGHTS}, i64 {interface.weights + 128}, "
            "ptr %error)\n"
        )
        free = "free_file"
    freed = f"define void @{name}_free(ptr %model) {{\n  call void @{free}(ptr %model)\n  ret void\n}}\n"
    return f"{made}  ret i32 %code\n}}\n{freed}"


class _Entry:
    """Writes the functions of one entry point."""

    def __init__(self, entry: EntryPoint, offsets: Sequence[int]):
        self.entry, self.offsets = entry, offsets
        self.globals: list[str] = []
        self.lines: list[str] = []
        self.count = 0

    def text(self) -> str:
        entry, offsets = self.entry, self.offsets
        if offsets:
            values = ", ".join(f"i64 {offset}" for offset in offsets)
            self.globals.append(f"@{entry.prefix}.offsets = private constant [{len(offsets)} x i64] [{values}]")
        functions = [self.plan_numbers()] if entry.spec.plan is not None else []
        functions += [self.plan(), self.run()]
        for symbol in filter(None, (entry.spec.symbol, entry.spec.plan)):
            self.globals.append(f"declare i32 @__oneir_{symbol}(ptr, ptr, i32, ptr)")
        for kind, arguments in (("inputs", entry.inputs), ("outputs", entry.outputs)):
            fields = [t for argument in arguments for t in _fields(argument)] or ["i8"]
            self.globals.append(f"%{entry.prefix}_{kind} = type {{ {', '.join(fields)} }}")
        return "\n".join([*self.globals, *functions])

    # -- lines --

    def emit(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def value(self, instruction: str) -> str:
        self.count += 1
        self.emit(f"%v{self.count} = {instruction}")
        return f"%v{self.count}"

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def fail_if(self, condition: str, failure: str) -> None:
        """Returns what a function of the runtime returns if a condition holds."""
        self.count += 1
        number = self.count
        self.emit(f"br i1 {condition}, label %fail{number}, label %fine{number}")
        self.label(f"fail{number}")
        self.emit(f"ret i32 {self.value(f'call i32 @{failure}')}")
        self.label(f"fine{number}")

    def fail_if_null(self, *pointers: str) -> None:
        for pointer in pointers:
            self.fail_if(self.value(f"icmp eq ptr {pointer}, null"), "fail_null(ptr %error)")

    def function(self, head: str) -> str:
        body, self.lines = "\n".join(self.lines), []
        return f"{head} {{\n{body}\n}}\n"

    # -- arguments --

    def field(self, kind: str, arguments: Sequence[Argument], index: int, part: int = 0) -> str:
        """The address of a field of a structure; `part` 1 is the shape of a tensor."""
        place = sum(len(_fields(argument)) for argument in arguments[:index]) + part
        return self.value(f"getelementptr %{self.entry.prefix}_{kind}, ptr %{kind}, i32 0, i32 {place}")

    def put(self, kind: str, arguments: Sequence[Argument], index: int, place: int, data: str | None = None) -> None:
        """Puts an argument into the values of a call, with `data` in place of its own memory."""
        argument = arguments[index]
        address = self.field(kind, arguments, index)
        if not argument.is_tensor:
            self.number(argument, address, place)
            return
        data = data or self.value(f"load ptr, ptr {address}")
        if argument.is_static:
            shape = self.shape([int(extent) for extent in argument.extents])
        else:
            shape = self.field(kind, arguments, index, 1)
            for axis, extent in enumerate(argument.extents):
                if not isinstance(extent, int):
                    self.check_extent(shape, axis)
        flags = 0 if kind == "outputs" or argument.param.writable else READ_ONLY
        self.tensor(place, data, len(argument.extents), str(argument.param.dtype), shape, flags)

    def check_extent(self, shape: str, axis: int) -> None:
        """No memory has a negative number of elements, nor so many that their bytes could overflow."""
        extent = self.value(f"load i64, ptr {self.value(f'getelementptr i64, ptr {shape}, i64 {axis}')}")
        self.fail_if(self.value(f"icmp ugt i64 {extent}, {_LARGEST_EXTENT}"), "fail_extent(ptr %error)")

    def number(self, argument: Argument, address: str, place: int) -> None:
        match argument.param.kind:
            case "int":
                code, bits = Code.INT, self.value(f"load i64, ptr {address}")
            case "float":
                real = self.value(f"load double, ptr {address}")
                code, bits = Code.FLOAT, self.value(f"bitcast double {real} to i64")
            case _:
                byte = self.value(f"load i8, ptr {address}")
                holds = self.value(f"icmp ne i8 {byte}, 0")
                code, bits = Code.BOOL, self.value(f"zext i1 {holds} to i64")
        self.emit(f"call void @put_number(ptr %values, i64 {place}, i32 {int(code)}, i64 {bits})")

    def shape(self, extents: Sequence[int]) -> str:
        """The address of a constant shape."""
        if not extents:
            return "null"
        name = f"@{self.entry.prefix}.shape{len(self.globals)}"
        values = ", ".join(f"i64 {extent}" for extent in extents)
        self.globals.append(f"{name} = private constant [{len(extents)} x i64] [{values}]")
        return name

    def tensor(self, place: int, data: str, ndim: int, dtype: str, shape: str, flags: int = 0) -> None:
        code, bits, lanes = dlpack_dtype(dtype)
        described = code | bits << 8 | lanes << 16
        self.emit(
            f"call void @put_tensor(ptr %values, i64 {place}, ptr %tensors, ptr {data}, i32 {ndim}, i32 {described}, "
            f"ptr {shape}, i32 {flags})"
        )

    def space(self, count: int) -> None:
        """Memory on the stack for the values of a call."""
        self.emit(f"%values = alloca [{count * 16} x i8], align 16")
        self.emit(f"%tensors = alloca [{count * 48} x i8], align 16")  # at most 48 bytes each
        self.emit("%result = alloca [16 x i8], align 16")
        self.emit("store i64 0, ptr %result")

    def call(self, symbol: str, count: int) -> str:
        """Calls a packed function; whether it failed."""
        status = self.value(f"call i32 @__oneir_{symbol}(ptr null, ptr %values, i32 {count}, ptr %result)")
        return self.value(f"icmp ne i32 {status}, 0")

    # -- functions --

    def plan_numbers(self) -> str:
        """The numbers of the plan. Tensors need no memory for it, so it is told of some that all could have."""
        entry = self.entry
        inputs, count = entry.inputs, len(entry.inputs) + 1
        self.space(count)
        for i in range(len(inputs)):
            self.put("inputs", inputs, i, i, "@anchor")
        self.tensor(count - 1, "%numbers", 1, "int64", self.shape([entry.spec.numbers]))
        self.fail_if(self.call(str(entry.spec.plan), count), "fail_call(ptr %result, ptr %error)")
        self.emit("ret i32 0")
        return self.function(f"define internal i32 @{entry.prefix}.numbers(ptr %inputs, ptr %numbers, ptr %error)")

    def numbers(self) -> None:
        """Computes the numbers of the plan, if it has any."""
        if self.entry.spec.plan is None:
            return
        code = self.value(f"call i32 @{self.entry.prefix}.numbers(ptr %inputs, ptr %numbers, ptr %error)")
        failed = self.value(f"icmp ne i32 {code}, 0")
        self.count += 1
        number = self.count
        self.emit(f"br i1 {failed}, label %fail{number}, label %fine{number}")
        self.label(f"fail{number}")
        self.emit(f"ret i32 {code}")
        self.label(f"fine{number}")

    def known(self, number: int | list[int]) -> str:
        """A number of the plan."""
        if isinstance(number, int):
            return str(number)
        return self.value(f"load i64, ptr {self.value(f'getelementptr i64, ptr %numbers, i64 {number[0]}')}")

    def workspace_bytes(self) -> str:
        """The bytes that a workspace of any alignment needs."""
        size = self.entry.workspace
        if isinstance(size, int):
            return str(workspace_bytes(size))
        known = self.known(size)
        more = self.value(f"add i64 {known}, {WORKSPACE_ALIGNMENT - 1}")
        none = self.value(f"icmp eq i64 {known}, 0")
        return self.value(f"select i1 {none}, i64 0, i64 {more}")

    def plan(self) -> str:
        entry = self.entry
        self.emit(f"%numbers = alloca [{max(entry.spec.numbers, 1)} x i64], align 8")
        self.fail_if_null("%inputs", "%outputs", "%bytes")
        self.numbers()
        for i, shape in enumerate(entry.shapes):
            if entry.outputs[i].is_static:
                continue
            place = self.field("outputs", entry.outputs, i, 1)
            for axis, extent in enumerate(shape):
                extent_at = self.value(f"getelementptr i64, ptr {place}, i64 {axis}")
                self.emit(f"store i64 {self.known(extent)}, ptr {extent_at}")
        self.emit(f"store i64 {self.workspace_bytes()}, ptr %bytes")
        self.emit("ret i32 0")
        return self.function(f"define i32 @{entry.prefix}_plan(ptr %inputs, ptr %outputs, ptr %bytes, ptr %error)")

    def run(self) -> str:
        entry, offsets = self.entry, self.offsets
        written = len(entry.shapes)
        count = len(entry.inputs) + written + 2
        self.space(count)
        self.emit(f"%numbers = alloca [{max(entry.spec.numbers, 1)} x i64], align 8")
        self.emit(f"%table = alloca [{max(len(offsets), 1)} x i64], align 8")
        self.emit("%arena.shape = alloca i64, align 8")
        self.fail_if_null("%model", "%inputs", "%outputs")
        weights = self.value("load ptr, ptr %model")
        if offsets:
            self.fail_if(self.value(f"icmp eq ptr {weights}, null"), "fail_model(ptr %error)")
            self.emit(
                f"call void @put_addresses(ptr %table, ptr @{entry.prefix}.offsets, i64 {len(offsets)}, ptr {weights})"
            )
        if not isinstance(entry.workspace, int):
            self.numbers()
        for i in range(len(entry.inputs)):
            self.put("inputs", entry.inputs, i, i)
        for i in range(written):
            self.put("outputs", entry.outputs, i, len(entry.inputs) + i)
        arena, own = self.arena()
        self.emit(f"store i64 {self.known(entry.workspace)}, ptr %arena.shape")
        self.tensor(count - 2, arena, 1, "uint8", "%arena.shape")
        self.tensor(count - 1, "%table", 1, "int64", self.shape([len(offsets)]))
        failed = self.call(entry.spec.symbol, count)
        if own:
            self.emit(f"call void @{OWN}oneir_free_workspace(ptr {own})")
        self.fail_if(failed, "fail_call(ptr %result, ptr %error)")
        for i, output in enumerate(entry.outputs):
            if output.constant is not None:
                self.copy(output, self.field("outputs", entry.outputs, i), weights)
        self.emit("ret i32 0")
        return self.function(
            f"define i32 @{entry.prefix}_run(ptr %model, ptr %inputs, ptr %outputs, ptr %workspace, i64 %given, "
            "ptr %error)"
        )

    def arena(self) -> tuple[str, str | None]:
        """The address of the arena, and what is to be freed in the end."""
        if self.entry.workspace == 0:
            return "@anchor", None
        bytes_needed = self.workspace_bytes()
        none = self.value("icmp eq ptr %workspace, null")
        self.emit(f"br i1 {none}, label %own, label %measure")
        self.label("own")
        allocated = self.value(f"call ptr @{OWN}oneir_alloc_workspace(i64 {bytes_needed}, i64 {WORKSPACE_ALIGNMENT})")
        self.fail_if(self.value(f"icmp eq ptr {allocated}, null"), "fail_memory(ptr %error)")
        self.emit("br label %allocated")
        self.label("allocated")
        self.emit("br label %placed")
        self.label("measure")
        self.fail_if(self.value(f"icmp slt i64 %given, {bytes_needed}"), "fail_small(ptr %error)")
        self.emit("br label %brought")
        self.label("brought")
        self.emit("br label %placed")
        self.label("placed")
        memory = self.value(f"phi ptr [ {allocated}, %allocated ], [ %workspace, %brought ]")
        own = self.value(f"phi ptr [ {allocated}, %allocated ], [ null, %brought ]")
        return self.value(f"call ptr @aligned(ptr {memory})"), own

    def copy(self, output: Argument, place: str, weights: str) -> None:
        """Writes an output that is a copy of a constant."""
        assert output.constant is not None
        size = numpy_dtype(str(output.param.dtype)).itemsize
        for extent in output.extents:
            size *= int(extent)
        target = self.value(f"load ptr, ptr {place}")
        self.fail_if(self.value(f"icmp eq ptr {target}, null"), "fail_null(ptr %error)")
        source = self.value(f"getelementptr i8, ptr {weights}, i64 {self.offsets[output.constant]}")
        self.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")


def _fields(argument: Argument) -> list[str]:
    """The types of the fields of an argument."""
    if not argument.is_tensor:
        return [{"int": "i64", "float": "double", "bool": "i8"}[argument.param.kind]]
    return ["ptr"] if argument.is_static else ["ptr", f"[{len(argument.extents)} x i64]"]
