"""Kernels in WGSL: how tensors and numbers are bound, and what 32-bit words and integers mean for the rest.

    @group(0) @binding(0) var<storage, read> scale_kernel_x: array<f32>; // float32
    @group(0) @binding(1) var<storage, read_write> scale_kernel_y: array<f32>; // float32
    struct scale_kernel_numbers { x_at: i32, y_at: i32, n: i32, }
    @group(0) @binding(2) var<uniform> scale_kernel_number: scale_kernel_numbers;
    @compute @workgroup_size(64, 1, 1)
    fn scale_kernel(@builtin(workgroup_id) blockIdx: vec3<u32>, @builtin(local_invocation_id) threadIdx: vec3<u32>) {

Tensors are bound in the order of the kernel's parameters, then one struct of numbers of 4 bytes each: where in its
array each tensor begins, since arrays begin at multiples of 256 bytes only, and the numbers that the kernel takes.

Elements of less than 32 bits lie in words of 32 bits. Threads that write neighbouring elements share a word, so a word
is written by atomic operations, each of which changes one element's bits. Half precision is the same, computed in
float32, unless the target says `supports_float16`.

Index arithmetic of int64 is done in int32 (see `WgslEmitter.check_long`); int64 in memory is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ...ir import expr as e
from ...ir.dtype import INT32, INT64, DataType
from ...ir.op import Op
from ...ir.visitor import post_order_visit
from ...runtime.error import CompileError
from ...tir.expr import BufferLoad
from ...tir.intrin_rules.formula import ROUNDER, ROUNDER_BITS
from ...tir.stmt import AttrStmt, BufferStore, For
from .dialect import joined
from .emitter import KernelEmitter, Lanes, pointee
from .wgsl import PRELUDE, STORE_NAMES, Wgsl

_SHARED_BYTES = 16384
"""The workgroup memory that every WebGPU device has."""
_THREADS = 256
"""The invocations of a workgroup that every WebGPU device can run."""


class WgslEmitter(KernelEmitter):
    """Writes one kernel, its bindings above it."""

    dialect: Wgsl

    def __init__(self, func: Any, symbol: str, dialect: Wgsl, helpers: dict[str, str]):
        super().__init__(func, symbol, dialect, helpers)
        self.names |= {"blockIdx", "threadIdx"}
        self.globals: list[str] = []
        self.bindings: dict[e.Var, str] = {}
        """How the elements of a tensor lie: "plain", "packed" or, where it is written, "atomic"."""
        self.starts: dict[e.Var, str] = {}
        """The element of its array at which a tensor begins."""
        self.shared: dict[str, int] = {}
        """The bytes of shared memory, by name."""
        self.is_formula = True
        """Whether what is written is a function of the prelude: `text` writes kernels."""

    # -- the kernel --

    def text(self) -> str:
        self.is_formula, written = False, _written(self.func.body)
        tensors = [var for var in self.func.params if var.dtype.is_handle]
        numbers = [var for var in self.func.params if not var.dtype.is_handle]
        limit = self.func.attrs["target"].max_kernel_tensors
        if limit is not None and len(tensors) > limit:
            raise CompileError(
                f"the kernel `{self.symbol}` has {len(tensors)} tensors, {joined(var.name for var in tensors)}; a "
                f"WebGPU kernel has at most {limit} (storage buffers); fuse less into it"
            )
        for place, var in enumerate(tensors):
            self.bind_tensor(var, place, var in written)
        self.bind_numbers(tensors, numbers)
        self.stmt(self.func.body)
        self.check_shared_memory()
        x, y, z = self.workgroup()
        return "\n".join(
            [
                *self.globals,
                f"@compute @workgroup_size({x}, {y}, {z})",
                f"fn {self.symbol}(@builtin(workgroup_id) blockIdx: vec3<u32>, "
                "@builtin(local_invocation_id) threadIdx: vec3<u32>) {",
                *(f"  {line}" for line in self.top),
                *self.lines,
                "}\n",
            ]
        )

    def parameter(self, var: e.Var) -> tuple[str, str]:
        return self.memory_type(var, var.dtype), self.define(var)  # of a function of the prelude

    def bind_tensor(self, var: e.Var, place: int, written: bool) -> None:
        """Declares a tensor."""
        element, _ = self.pointers[var] = pointee(var)
        self.check_memory(var, element)
        name = self.values[var] = f"{self.symbol}_{self.fresh(var.name)}"
        kind = self.dialect.memory_type(element)
        self.bindings[var] = "plain"
        if kind != "f16" and (element.is_bool or element.bits < 32):
            self.bindings[var] = "atomic" if written else "packed"
            kind = "atomic<u32>" if written else "u32"
        access = "read_write" if written else "read"
        self.globals.append(f"@group(0) @binding({place}) var<storage, {access}> {name}: array<{kind}>; // {element}")

    def bind_numbers(self, tensors: Sequence[e.Var], numbers: Sequence[e.Var]) -> None:
        """Declares where tensors begin, and the numbers that a kernel takes, in one struct."""
        fields = []
        for var in tensors:
            name = self.starts[var] = self.fresh(f"{var.name}_at")
            fields.append(f"{name}: i32,")
            self.top.append(f"let {name} = {self.symbol}_number.{name};")
        for var in numbers:
            self.check_dtype(var.dtype, lambda var=var: f"`{var.name}`")
            name = self.define(var)
            fields.append(f"{name}: {'u32' if var.dtype.is_bool else self.dialect.type_name(var.dtype)},")
            value = f"{self.symbol}_number.{name}"
            self.top.append(f"let {name} = {f'({value} != 0u)' if var.dtype.is_bool else value};")
        self.globals += [
            f"struct {self.symbol}_numbers {{ {' '.join(fields)} }}",
            f"@group(0) @binding({len(tensors)}) var<uniform> {self.symbol}_number: {self.symbol}_numbers;",
        ]

    def workgroup(self) -> list[int]:
        """The threads of a block along x, y and z."""
        extents = [self.extents.get(f"threadIdx.{axis}", e.IntImm(INT32, 1)) for axis in "xyz"]
        sizes = [extent.value for extent in extents if isinstance(extent, e.IntImm)]
        if len(sizes) < 3:
            raise CompileError(
                f"a block of the kernel `{self.symbol}` has {joined(map(str, extents))} threads, which must be "
                "constants for WebGPU: split the loop that is bound to threadIdx"
            )
        x, y, z = sizes
        most = self.limit("max_threads_per_block", self.limit("max_num_threads", _THREADS))
        if x * y * z > most:
            raise CompileError(
                f"a block of the kernel `{self.symbol}` has {x}×{y}×{z} threads; the target allows {most} "
                "(max_threads_per_block)"
            )
        return sizes

    def limit(self, name: str, default: int) -> int:
        """A limit of the target."""
        target: Any = self.func.attrs.get("target")
        found = None if target is None else target.attrs.get(name)
        return default if found is None else int(found)

    def check_shared_memory(self) -> None:
        """Raises `CompileError` if a block needs more memory than the target has."""
        nbytes = sum(self.shared.values())
        most = self.limit("max_shared_memory_per_block", _SHARED_BYTES)
        if nbytes > most:
            raise CompileError(
                f"a block of the kernel `{self.symbol}` needs {nbytes} bytes of shared memory, in "
                f"{joined(self.shared)}; the target has {most} (max_shared_memory_per_block)"
            )

    # -- memory --

    def allocate(self, var: e.Var, element: DataType, scope: str, size: int) -> None:
        if scope == "local":
            return super().allocate(var, element, scope, size)
        name = self.values[var] = f"{self.symbol}_{self.fresh(var.name)}"
        self.globals.append(self.dialect.allocation(scope, element, name, size))
        self.shared[name] = size * (2 if self.dialect.memory_type(element) == "f16" else 4)

    def memory(self, data: e.Var, dtype: DataType) -> str:
        declared, _ = self.pointers[data]
        if declared.element is not dtype.element:
            raise CompileError(
                f"`{data.name}` in the kernel `{self.symbol}` has elements of {declared.element}, which WebGPU cannot "
                f"access as {dtype.element}"
            )
        return super().memory(data, dtype)

    def load(self, data: e.Var, dtype: DataType, pointer: str, index: str) -> str:
        layout = self.bindings.get(data, "plain")
        index = self.from_start(data, index)
        if layout == "plain":
            return self.dialect.load(dtype, pointer, index)
        index = index if index.isdigit() else f"({index})"
        bits, mask, step = _places(dtype)
        word = f"{pointer}[{index} >> {step}u]"
        word = f"atomicLoad(&{word})" if layout == "atomic" else word
        signed = dtype.code == "int"
        value = f"extractBits({f'i32({word})' if signed else word}, u32({index} & {mask}) * {bits}u, {bits}u)"
        if dtype == "float16":
            self.need("oneir_f16_of_bits")
            return f"oneir_f16_of_bits({value})"
        return f"({value} != 0u)" if dtype.is_bool else value

    def store(self, data: e.Var, dtype: DataType, pointer: str, index: str, value: str) -> str:
        index = self.from_start(data, index)
        if self.bindings.get(data, "plain") == "plain":
            return self.dialect.store(dtype, pointer, index, value)
        bits, mask, step = _places(dtype)
        if dtype == "float16":
            self.need("oneir_bits_of_f16")
            value = f"oneir_bits_of_f16({value})"
        # The arguments are named inside of a block of their own: there may be several stores in a row.
        at, shift, word = STORE_NAMES
        return (
            f"{{ let {at} = {index}; let {shift} = u32({at} & {mask}) * {bits}u; "
            f"let {word} = u32({value}) & {_ones(bits)}; "
            f"atomicAnd(&{pointer}[{at} >> {step}u], ~({_ones(bits)} << {shift})); "
            f"atomicOr(&{pointer}[{at} >> {step}u], {word} << {shift}); }}"
        )

    def from_start(self, data: e.Var, index: str) -> str:
        """The place in its array of an element of a tensor."""
        start = self.starts.get(data)
        return index if start is None else start if index == "0" else f"{start} + {index}"

    def pointer(self, node: Any) -> str:
        if isinstance(node, e.Var):
            return super().pointer(node)
        raise CompileError(f"WebGPU has no addresses; the kernel `{self.symbol}` takes one: {node}")

    def extern(self, node: e.Call) -> Lanes:
        name = getattr(node.args[0], "value", node.args[0])
        raise CompileError(f"WebGPU has no functions of C; the kernel `{self.symbol}` calls `{name}`")

    # -- functions of the prelude --

    def need(self, *names: str) -> None:
        """Adds functions of the prelude, below those that they call."""
        for name in names:
            text = PRELUDE[name]
            self.need(*(other for other in PRELUDE if other != name and f"{other}(" in text))
            self.helpers[name] = text

    def call_helper(self, operation: str, dtype: DataType, args: Sequence[str], source: DataType | None = None) -> str:
        text = super().call_helper(operation, dtype, args, source)
        name = text.partition("(")[0]
        self.need(*(other for other in PRELUDE if f"{other}(" in self.helpers[name] and other != name))
        return text

    def literal(self, value: Any, dtype: DataType) -> str:
        if dtype.element is INT64 and not -(1 << 31) <= value < 1 << 31:
            raise self.too_long(value)
        text = super().literal(value, dtype)
        if text.startswith("oneir_"):
            self.need("oneir_f32_of_bits")
        return text

    def expr_BinaryOpExpr(self, node: Any) -> Lanes:
        if self.is_formula and isinstance(node, e.Sub) and isinstance(node.b, e.FloatImm) and node.b.value == ROUNDER:
            # The whole number that adding `ROUNDER` left in the low bits. Compilers for WGSL may take x + c - c for x.
            return [f"f32(bitcast<i32>({a}) - 0x{ROUNDER_BITS:x})" for a in self.lanes(node.a)]
        if node.dtype.is_bool:
            sign = _OF_BOOLS[type(node)]
            return [f"({a} {sign} {b})" for a, b in self.pairs(node)]
        return super().expr_BinaryOpExpr(node)

    def expr_CmpExpr(self, node: Any) -> Lanes:
        if isinstance(node, e.NE) and node.a.dtype.is_float:  # `!=` may take no NaN to be unlike itself
            return [f"!({a} == {b})" for a, b in self.pairs(node)]
        if node.a.dtype.is_bool and not isinstance(node, (e.EQ, e.NE)):
            numbers = DataType("uint32").with_lanes(node.dtype.lanes)
            return super().expr_CmpExpr(type(node)(e.Cast(numbers, node.a), e.Cast(numbers, node.b)))
        return super().expr_CmpExpr(node)

    def cast(self, value: str, source: DataType, target: DataType) -> str:
        if source.is_float and target.is_bool:
            return f"!({value} == 0f)"
        return super().cast(value, source, target)

    def extreme(self, node: Any) -> Lanes:
        if not node.dtype.is_bool:
            return super().extreme(node)
        return [f"({a} {_OF_BOOLS[type(node)]} {b})" for a, b in self.pairs(node)]

    expr_Min = expr_Max = extreme

    def math(self, name: str, dtype: DataType) -> str:
        function = super().math(name, dtype)
        if function in PRELUDE:
            self.need(function)
        return function

    def shifted_left(self, value: str, count: int, dtype: DataType) -> str:
        return f"({value} << {count}u)"

    def count_bits(self, node: e.Call) -> Lanes:
        """The leading zeros of an integer, or its ones, of as many bits as its dtype has."""
        function = "countLeadingZeros" if getattr(node.op, "name", "") == "tir.clz" else "countOneBits"
        bits = node.args[0].dtype.bits
        more = 32 - bits if function == "countLeadingZeros" else 0
        found = [f"({function}(u32({a}) & {_ones(bits)}) - {more}u)" for a in self.lanes(node.args[0])]
        return [self.dialect.convert(value, DataType("uint32"), node.dtype.element) for value in found]

    # -- 64-bit integers, which WebGPU does not have --
    #
    # int64 is computed in int32, whose low 32 bits are right for sums, products and choices. What needs all bits
    # (divisions, comparisons, conversions to floats) must have operands that are known to fit, or that are made of loop
    # variables and extents: the driver passes no extent that does not fit, and no buffer has 2^31 elements.

    def check_memory(self, var: e.Var, dtype: DataType) -> None:
        if dtype.element is INT64:
            raise CompileError(
                f"`{var.name}` in the kernel `{self.symbol}` has the dtype int64, which WebGPU's memory does not have; "
                "use int32"
            )
        super().check_memory(var, dtype)

    def lanes(self, node: Any) -> Lanes:
        self.check_long(node)
        return super().lanes(node)

    def check_long(self, node: Any) -> None:
        """Raises `CompileError` for what would give another result in int32 than in int64."""
        name = node.op.name if isinstance(node, e.Call) and isinstance(node.op, Op) else ""
        if isinstance(node, _NEEDS_ALL_BITS) or name in _CALLS_NEED_ALL_BITS:
            operands = list(node.args) if isinstance(node, e.Call) else [node.a, node.b]
        elif isinstance(node, e.Cast):
            narrows = node.dtype.code in ("int", "uint")
            operands = [] if narrows and not node.value.dtype.is_float else [node.value]
            if node.dtype.element is INT64 and node.value.dtype.is_float:
                raise self.too_long(node)
        else:
            operands = []
        for operand in operands:
            if operand.dtype.element is INT64 and not self.fits(operand):
                raise self.too_long(operand)

    def fits(self, node: e.PrimExpr) -> bool:
        """Whether a value of int64 is one of int32."""
        if isinstance(node, e.Broadcast):
            return self.fits(node.value)
        if isinstance(node, e.Ramp):
            return self.fits(node.base) and self.fits(node.base + node.stride * (node.lanes - 1))
        bound = self.analyzer.const_int_bound(node)
        if bound.min_value >= -(1 << 31) and bound.max_value < 1 << 31:
            return True
        return self.indexes(node) and _has_symbols(bound)

    def indexes(self, node: e.PrimExpr) -> bool:
        """Whether an expression is made of loop variables, extents and constants only."""
        only = True

        def visit(part: Any) -> None:
            nonlocal only
            only = only and part not in self.data_variables if isinstance(part, e.Var) else only
            only = only and not isinstance(part, BufferLoad)

        post_order_visit(node, visit)
        return only

    def too_long(self, value: object) -> CompileError:
        """The error of a value that needs more than 32 bits."""
        return CompileError(
            f"{value} in the kernel `{self.symbol}` needs 64 bits, and WebGPU's integers have 32; use int32, and "
            "tensors of less than 2^31 elements"
        )

    def places(self, index: e.PrimExpr, dtype: DataType, element: DataType) -> Lanes:
        if index.dtype.element is INT64 and self.indexes(index) and not self.fits(index):
            raise self.too_long(f"the index {index}")
        return super().places(index, dtype, element)

    def stmt_AttrStmt(self, node: AttrStmt) -> None:
        if node.attr_key == "thread_extent":
            self.know(node.node.var, 0, node.value)
        super().stmt_AttrStmt(node)

    def stmt_For(self, node: For) -> None:
        self.know(node.loop_var, node.min, node.extent)
        super().stmt_For(node)

    def know(self, var: e.Var, low: Any, extent: Any) -> None:
        """Takes note of the values of a variable."""
        if var.dtype.is_index:
            self.analyzer.bind(var, e.Range.from_min_extent(low, extent), allow_override=True)

    _calls: ClassVar[dict[str, Any]] = KernelEmitter._calls | {
        "tir.call_extern": extern,
        "tir.call_pure_extern": extern,
        "tir.clz": count_bits,
        "tir.popcount": count_bits,
    }


_OF_BOOLS = {e.Add: "|", e.Sub: "!=", e.Mul: "&", e.Max: "|", e.Min: "&"}
_NEEDS_ALL_BITS = (e.Div, e.Mod, e.FloorDiv, e.FloorMod, e.Min, e.Max, e.CmpExpr)
_CALLS_NEED_ALL_BITS = ("tir.shift_left", "tir.shift_right", "tir.clz", "tir.popcount", "tir.pow")


def _has_symbols(bound: Any) -> bool:
    """Whether a bound is unknown, which that of a value made of constants is not."""
    return bound.max_value >= (1 << 62) or bound.min_value <= -(1 << 62)


def _places(dtype: DataType) -> tuple[int, int, int]:
    """The bits of an element in a word, the mask of its place among those of a word, and the digits of that mask."""
    bits = 8 if dtype.is_bool else dtype.bits
    return (bits, 3, 2) if bits == 8 else (bits, 1, 1)


def _ones(bits: int) -> str:
    return f"0x{(1 << bits) - 1:x}u"


def _written(body: Any) -> set[e.Var]:
    """The memory that is stored to."""
    found: set[e.Var] = set()

    def visit(node: Any) -> None:
        if isinstance(node, BufferStore):
            found.add(node.buffer.data)

    post_order_visit(body, visit)
    return found
