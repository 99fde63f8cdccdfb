"""MakePackedAPI: gives a function the packed calling convention, with every argument checked before the body runs.

The checks are assertions of TensorIR like any other; their messages are what a caller sees where the runtime has no
better one. What is known of a tensor before the call is checked by one call of a function, `check_tensor`. The body
becomes a `compute_scope`, a function of its own in the object code, so that its pointers can be promised not to
overlap.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from ...ir import operators as ops
from ...ir.container import EMPTY, Array
from ...ir.dtype import DataType
from ...ir.expr import Call, GlobalVar, IntImm, PrimExpr, StringImm, Var, const
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...ir.type import PrimType
from ...ir.visitor import Mapper, Visitor
from ...runtime.device import Device
from ...runtime.dtype import dlpack_dtype
from ...runtime.error import WellFormedError
from ...runtime.packed import READ_ONLY, Code
from ...runtime.packed_fields import Field
from ...runtime.signature import Param, Signature
from ...target.target import Target
from ..analysis.symbolic_extents import solve_extent
from ..analysis.variables import variables
from ..buffer import DEFAULT_ALIGNMENT, Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..op import if_then_else, isnullptr, ret, tvm_struct_get, tvm_struct_set
from ..stmt import AssertStmt, AttrStmt, BufferStore, DeclBuffer, Evaluate, LetStmt, SeqStmt, Stmt
from ..stmt_functor import renew_defs
from .flatten_buffer import is_flat
from .pass_base import PrimFuncPass

PREFIX = "__oneir_"
"""What the symbol of a packed function starts with."""

_Wrap = Callable[[Stmt], Stmt]
CPU = 1
"""The type of the host's processor."""
TENSORS_ON = "tir.tensors_on"
"""The attribute of host functions whose tensors are on devices, which they do not access: the type of the device or,
for several, the type and the number of the device of each parameter, one after the other."""


def device_type_of(func: PrimFunc) -> int:
    """The type of the devices, as DLPack numbers them, on which a function expects its tensors."""
    target: Target | None = func.attrs.get("target")
    given = func.attrs.get(TENSORS_ON)
    return given if isinstance(given, int) else CPU if target is None else target.get_target_device_type()


def placed_on(func: PrimFunc, index: int) -> tuple[int, int] | None:
    """The type and number of the device of one parameter; None where all are on one device of `device_type_of`."""
    given = func.attrs.get(TENSORS_ON)
    return None if given is None or isinstance(given, int) else (int(given[2 * index]), int(given[2 * index + 1]))


def on_device(body: Stmt, device_type: int, device_id: PrimExpr) -> Stmt:
    """The statement, with the device on which it launches kernels and takes memory."""
    body = AttrStmt(StringImm("default"), "device_type", const(device_type), body)
    return AttrStmt(StringImm("default"), "device_id", device_id, body)


class MakePackedAPI(PrimFuncPass):
    """Gives every function with a `global_symbol` the packed convention, with checks of its arguments.

    Calls within the module are not packed: they go to private copies. Raises `WellFormedError` for a symbolic extent
    whose value does not follow from the arguments.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return make_packed_api(func, mod=mod)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return super().transform_module(with_unpacked_copies(mod), ctx)


def _get(pointer: Any, field: Field, dtype: str | None = None, index: Any = 0) -> PrimExpr:
    return tvm_struct_get(
        pointer, const(index) if isinstance(index, int) else index, field.code, dtype or field.value.dtype
    )


class _Checks:
    """Collects the let bindings and assertions around the body, from the outside in."""

    def __init__(self, func: PrimFunc, name: str):
        self.func, self.name = func, name
        self.layers: list[_Wrap] = []
        self.known: set[Var] = set()
        self.later: list[tuple[PrimExpr, str]] = []
        self.extents: list[tuple[PrimExpr, PrimExpr]] = []
        """Declared extents that are no single variable, with the actual ones."""
        self.device_type = device_type_of(func)
        self.device_id: Var | None = None
        """The number of the device that the first tensor is on, where functions run on one device that calls choose."""

    def wrap(self, body: Stmt) -> Stmt:
        for layer in reversed(self.layers):
            body = layer(body)
        return body

    def let(self, var: Var, value: PrimExpr) -> Var:
        self.layers.append(lambda body: LetStmt(var, value, body))
        self.known.add(var)
        return var

    def check(self, condition: PrimExpr, message: str, kind: str = "ValueError") -> None:
        if not (isinstance(condition, IntImm) and condition.value):
            self.layers.append(lambda body: AssertStmt(condition, f"{kind}: {message}", body))

    def equate(self, declared: PrimExpr, actual: PrimExpr, message: str) -> None:
        """Binds a symbolic extent where it occurs alone first; other extents are solved, and checked, after all."""
        if isinstance(declared, Var) and declared not in self.known:
            self.let(declared, ops.cast(declared.dtype, actual))
            if declared.dtype.bits == 64:
                return
        if not isinstance(declared, (Var, IntImm)):
            self.extents.append((declared, actual))
        self.later.append((ops.equal(ops.cast("int64", declared), actual), message))

    def finish(self) -> None:
        for declared, actual in self.extents:
            solved = solve_extent(declared, actual, self.known)
            if solved is not None:
                self.let(solved[0], ops.cast(solved[0].dtype, solved[1]))
        for condition, message in self.later:
            unknown = sorted(var.name for var in variables(condition) - self.known)
            if unknown:
                raise WellFormedError(
                    f"{message}: the arguments do not tell the value of {', '.join(f'`{n}`' for n in unknown)}; "
                    "let it be a parameter, or the one variable of a dimension's extent"
                )
            self.check(condition, message)
        self.later = []


def make_packed_api(func: PrimFunc, name: str | None = None, mod: IRModule | None = None) -> PrimFunc:
    """The packed form of a function of `mod`; one without a `global_symbol` is left as it is."""
    symbol = func.attrs.get("global_symbol") if name is None else name
    if symbol is None or func.attrs.get("calling_conv") is not None:
        return func
    handle, args = Var("self_handle", "handle"), Var("args", "handle")
    num_args, result = Var("num_args", "int32"), Var("result", "handle")
    checks = _Checks(func, symbol)
    count = len(func.params)
    checks.check(ops.equal(num_args, count), f"{symbol}: expected {count} arguments", "TypeError")
    written = written_buffers(func, mod)
    values = [_argument(checks, args, i, param) for i, param in enumerate(func.params)]
    for i, param in enumerate(func.params):
        if param in func.buffer_map:
            buffer = func.buffer_map[param]
            _tensor(checks, args, i, values[i], buffer, buffer.data in written)
    checks.finish()
    body = Returns(result)(func.body)
    for buffer in reversed(list(func.buffer_map.values())):
        body = DeclBuffer(buffer, body) if is_flat(buffer) else body
    if checks.device_id is not None:
        body = on_device(body, checks.device_type, checks.device_id)
    scope = AttrStmt(const(0), "compute_scope", StringImm(f"{symbol}_compute_"), body)
    packed = checks.wrap(SeqStmt([scope, Evaluate(ret(const(0)))]))
    attrs = {**func.attrs.values_by_name, "calling_conv": 1, "global_symbol": PREFIX + symbol}
    target: Target | None = func.attrs.get("target")
    if target is not None and target.host is not None:
        attrs["target"] = target.host
    params = Array((handle, args, num_args, result))
    return PrimFunc(params, packed, PrimType("int32"), EMPTY, attrs, span=func.span)


def _argument(checks: _Checks, args: Var, i: int, param: Var) -> PrimExpr:
    """Checks the kind of a scalar or a pointer, and binds it. Gives the address of a tensor's descriptor, unchecked."""
    if param in checks.func.buffer_map:
        return checks.let(Var(f"{param.name}_tensor", "handle"), _get(args, Field.VALUE_HANDLE, index=i))
    place = f"{checks.name}: argument {i} `{param.name}`"
    code = _get(args, Field.VALUE_CODE, index=i)
    dtype = param.dtype
    if dtype.is_handle:
        kinds = (Code.POINTER, Code.NONE, Code.TENSOR, Code.STR)
        is_pointer = functools.reduce(ops.logical_or, [ops.equal(code, int(kind)) for kind in kinds])
        checks.check(is_pointer, f"{place}: expected a pointer", "TypeError")
        return checks.let(param, _get(args, Field.VALUE_HANDLE, index=i))
    whole = ops.logical_or(ops.equal(code, int(Code.INT)), ops.equal(code, int(Code.BOOL)))
    number = _get(args, Field.VALUE_INT, index=i)
    if dtype.is_float:
        is_float = ops.equal(code, int(Code.FLOAT))
        checks.check(ops.logical_or(is_float, whole), f"{place}: expected a number", "TypeError")
        real = _get(args, Field.VALUE_FLOAT, index=i)
        value = Call("float64", "tir.if_then_else", [is_float, real, ops.cast("float64", number)])
        checks.let(param, ops.cast(dtype, value))
    else:
        checks.check(whole, f"{place}: expected an integer", "TypeError")
        checks.let(param, ops.cast(dtype, number))
        if dtype.is_int and dtype.bits < 64:
            checks.check(ops.equal(ops.cast("int64", param), number), f"{place}: the value does not fit {dtype}")
    return param


def _tensor(checks: _Checks, args: Var, i: int, tensor: PrimExpr, buffer: Buffer, is_written: bool) -> None:
    """Checks one tensor and binds its data, its symbolic shape, strides and offset."""
    place = f"{checks.name}: argument {i} `{buffer.name}`"
    _facts(checks, args, i, buffer, is_written, place)
    if checks.device_type != CPU and placed_on(checks.func, i) is None:
        number = _get(tensor, Field.TENSOR_DEVICE_ID)
        if checks.device_id is None:
            checks.device_id = checks.let(Var("dev_id", "int32"), number)
        else:
            message = f"{place}: expected a tensor on the same {Device(checks.device_type).type} as the first"
            checks.check(ops.equal(number, checks.device_id), message)
    if not all(isinstance(dim, IntImm) for dim in buffer.shape):
        shape = checks.let(Var(f"{buffer.name}_shape", "handle"), _get(tensor, Field.TENSOR_SHAPE))
        for axis, dim in enumerate(buffer.shape):
            if not isinstance(dim, IntImm):
                extent = _get(shape, Field.INT64_ELEMENT, index=axis)
                checks.equate(dim, extent, f"{place}: expected {dim} elements in dimension {axis}")
    if buffer.strides:
        _strides(checks, tensor, buffer, place)
    _data(checks, tensor, buffer, place)


def _facts(checks: _Checks, args: Var, i: int, buffer: Buffer, is_written: bool, place: str) -> None:
    """Checks what is known of a tensor before the call; `codegen/tensor_check.py` says how that is written."""
    code, bits, lanes = dlpack_dtype(buffer.dtype)
    device_type, device_id = placed_on(checks.func, i) or (checks.device_type, -1)
    extents = [dim.value if isinstance(dim, IntImm) else -1 for dim in buffer.shape]
    facts = [
        const(code | bits << 8 | lanes << 16, "uint32"),
        const(device_type),
        const(device_id),
        const(READ_ONLY if is_written else 0),
        const(argument_alignment(buffer) if _starts_at_0(buffer) else 1),
        const(0 if buffer.strides else 1),
        *(const(extent, "int64") for extent in extents),
    ]
    shape = ", ".join(str(_extent(dim)) for dim in buffer.shape)
    said = StringImm(f"shape ({shape}{',' if len(extents) == 1 else ''})")
    call = Call("int32", "tir.check_tensor", [args, const(i), StringImm(place), said, *facts])
    checks.layers.append(lambda body: SeqStmt([Evaluate(call), body]))


def _strides(checks: _Checks, tensor: PrimExpr, buffer: Buffer, place: str) -> None:
    """Checks that memory is as the buffer's strides say, and binds symbolic ones.

    The stride of a dimension of extent 1 does not matter, nor does any when there are no elements.
    """
    pointer = checks.let(Var(f"{buffer.name}_strides", "handle"), _get(tensor, Field.TENSOR_STRIDES))
    extents = [ops.cast("int64", dim) for dim in buffer.shape]
    compact: list[PrimExpr] = []
    size: PrimExpr = const(1, "int64")
    for extent in reversed(extents):
        compact.insert(0, size)
        size = ops.multiply(size, extent)
    for axis, stride in enumerate(buffer.strides):
        loaded = _get(pointer, Field.INT64_ELEMENT, index=axis)
        actual: PrimExpr = Call("int64", "tir.if_then_else", [isnullptr(pointer), compact[axis], loaded])
        if buffer.buffer_type == "auto_broadcast":
            actual = if_then_else(ops.equal(extents[axis], 1), const(0, "int64"), actual)
        message = f"{place}: expected stride {stride} in dimension {axis}"
        if isinstance(stride, Var) and stride not in checks.known:
            checks.equate(stride, actual, message)
        else:
            does_not_matter = ops.logical_or(ops.equal(extents[axis], 1), ops.equal(size, 0))
            fits = ops.logical_or(does_not_matter, ops.equal(ops.cast("int64", stride), actual))
            checks.later.append((fits, message))


def _starts_at_0(buffer: Buffer) -> bool:
    """Whether the elements start where a tensor's data does, with its offset in bytes."""
    return isinstance(buffer.elem_offset, IntImm) and buffer.elem_offset.value == 0


def _data(checks: _Checks, tensor: PrimExpr, buffer: Buffer, place: str) -> None:
    """Binds the data pointer and the offset; where the offset is not 0, checks it and the alignment."""
    offset = _get(tensor, Field.TENSOR_BYTE_OFFSET)
    base = _get(tensor, Field.TENSOR_DATA)
    if _starts_at_0(buffer):
        checks.let(buffer.data, Call("handle", "tir.handle_add_byte_offset", [base, ops.cast("int64", offset)]))
        return
    size = max(1, buffer.dtype.itemsize)
    data = checks.let(buffer.data, base)
    assert buffer.elem_offset is not None
    elements = ops.floordiv(ops.cast("int64", offset), size)
    checks.equate(buffer.elem_offset, elements, f"{place}: expected an offset of {buffer.elem_offset} elements")
    whole = ops.equal(ops.multiply(elements, size), ops.cast("int64", offset))
    checks.check(whole, f"{place}: expected an offset of whole elements")
    if buffer.offset_factor > 1:
        checks.check(
            ops.equal(ops.floormod(elements, buffer.offset_factor), 0),
            f"{place}: expected an offset that is a multiple of {buffer.offset_factor} elements",
        )
    alignment = argument_alignment(buffer)
    if alignment > 1:
        address = Call("uint64", "tir.reinterpret", [data])
        misaligned = ops.bitwise_and(address, const(alignment - 1, "uint64"))
        checks.check(
            ops.equal(misaligned, const(0, "uint64")), f"{place}: expected memory aligned to {alignment} bytes"
        )


def argument_alignment(buffer: Buffer) -> int:
    """Bytes to which a tensor given from outside must be aligned: its elements' size, unless the buffer says more."""
    element = max(1, buffer.dtype.element.itemsize)
    return element if buffer.data_alignment == DEFAULT_ALIGNMENT else max(element, buffer.data_alignment)


class Returns(Mapper):
    """Lowers `ret(value)`: stores the value in the caller's result, and returns 0."""

    def __init__(self, result: Var):
        super().__init__()
        self.result = result

    def visit_Evaluate(self, node: Evaluate) -> Stmt:
        call = node.value
        if not (isinstance(call, Call) and isinstance(call.op, Op) and call.op.name == "tir.ret"):
            return node
        value = call.args[0]
        dtype = value.dtype
        code = (
            Code.FLOAT
            if dtype.is_float
            else Code.POINTER
            if dtype.is_handle
            else Code.BOOL
            if dtype.is_bool
            else Code.INT
        )
        field = Field.VALUE_FLOAT if dtype.is_float else Field.VALUE_HANDLE if dtype.is_handle else Field.VALUE_INT
        payload = value if dtype.is_handle else ops.cast(DataType(field.value.dtype), value)
        zero = const(0)
        return SeqStmt(
            [
                # The payload first: a call in it leaves its own code in the result.
                Evaluate(tvm_struct_set(self.result, zero, field.code, payload)),
                Evaluate(tvm_struct_set(self.result, zero, Field.VALUE_CODE.code, const(int(code)))),
                Evaluate(ret(const(0))),
            ]
        )


class _Written(Visitor):
    """Finds the buffers, and the data pointers, that a function may write through."""

    def __init__(self, mod: IRModule | None) -> None:
        super().__init__()
        self.mod = mod
        self.found: set[Any] = set()

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.found.add(node.buffer.data)
        self.generic_visit(node)

    def visit_Call(self, node: Call) -> None:
        name = node.op.name if isinstance(node.op, Op) else ""
        if name == "tir.tvm_access_ptr":
            mask = getattr(node.args[4], "value", 3)
            if mask & 2:
                self.found.add(node.args[1])
        elif name == "tir.address_of":
            self.found.update(load.buffer.data for load in node.args if isinstance(load, BufferLoad))
        elif isinstance(kernel := self.kernel(node), PrimFunc):
            written = written_buffers(kernel)
            pairs = zip(kernel.params, node.args, strict=True)
            self.found.update(a for p, a in pairs if isinstance(a, Var) and p in written)
        elif not isinstance(node.op, Op) or name in ("tir.call_extern", "tir.tvm_stack_make_array"):
            self.found.update(a for a in node.args if isinstance(a, Var))
        self.generic_visit(node)

    def kernel(self, call: Call) -> Any:
        """The kernel that a call launches, which calls nothing itself; None for any other callee."""
        callee = None if self.mod is None or not isinstance(call.op, GlobalVar) else self.mod.functions.get(call.op)
        return callee if isinstance(callee, PrimFunc) and callee.attrs.get("tir.is_global_func") else None


def written_buffers(func: PrimFunc, mod: IRModule | None = None) -> set[Any]:
    """The data pointers through which a function writes, or may write; those of kernels in `mod` are known."""
    visitor = _Written(mod)
    visitor(func.body)
    return visitor.found


def signature_of(func: PrimFunc) -> Signature:
    """What a function expects of its arguments, for the message of a call that fails its checks."""
    written, device_type = written_buffers(func), device_type_of(func)
    params: list[Param] = []
    for index, var in enumerate(func.params):
        buffer = func.buffer_map.get(var)
        placed = placed_on(func, index)
        if buffer is None:
            dtype = var.dtype
            kind = "handle" if dtype.is_handle else "float" if dtype.is_float else "bool" if dtype.is_bool else "int"
            params.append(Param(var.name, kind, str(dtype)))
            continue
        params.append(
            Param(
                buffer.name,
                "tensor",
                str(buffer.dtype),
                tuple(_extent(d) for d in buffer.shape),
                tuple(_extent(s) for s in buffer.strides) if buffer.strides else None,
                buffer.data in written,
                argument_alignment(buffer),
                device_type if placed is None else placed[0],
                None if placed is None else placed[1],
            )
        )
    return Signature(func.attrs.get("global_symbol", "main"), tuple(params))


def _extent(expr: PrimExpr) -> int | str:
    """A number, or a symbolic extent as Python text."""
    return expr.value if isinstance(expr, IntImm) else re.sub(r"T\.u?int\d+\((-?\d+)\)", r"\1", str(expr))


class _Callees(Mapper):
    """Directs calls of public functions to copies of them that are called without packing."""

    def __init__(self, copies: dict[GlobalVar, GlobalVar], public: set[GlobalVar], names: set[str]):
        super().__init__()
        self.copies, self.public, self.names = copies, public, names

    def visit_Call(self, node: Call) -> Call:
        node = self.generic_visit(node)
        if not isinstance(node.op, GlobalVar) or node.op not in self.public:
            return node
        copy = self.copies.get(node.op)
        if copy is None:
            name = f"{node.op.name_hint}_unpacked"
            while name in self.names:
                name += "_"
            self.names.add(name)
            copy = self.copies[node.op] = GlobalVar(name)
        return Call(node.dtype, copy, node.args, span=node.span)


def with_unpacked_copies(mod: IRModule) -> IRModule:
    """The module with a private copy of each public function that one of the module calls."""
    functions = {var: func for var, func in mod.functions.items() if isinstance(func, PrimFunc)}
    public = {v for v, f in functions.items() if "global_symbol" in f.attrs and f.attrs.get("calling_conv") is None}
    if not public:
        return mod
    copies: dict[GlobalVar, GlobalVar] = {}
    callees = _Callees(copies, public, {var.name_hint for var in mod.functions})
    new: dict[Any, Any] = dict(mod.functions)
    for var, func in functions.items():
        new[var] = func.with_body(callees(func.body))
    for var, copy in copies.items():
        new[copy] = renew_defs(new[var].without_attr("global_symbol"))
    return mod.replace(functions=new) if copies else mod
