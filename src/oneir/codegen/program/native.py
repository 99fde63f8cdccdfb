"""Lowered graph functions as native functions: one call runs the whole graph.

Each instruction of a lowered function is translated to TensorIR: kernels are called directly, with pointers into one
arena; shapes are scalars; functions of the runtime are packed calls; branches are branches. The result is a PrimFunc

    main(x, w, ..., out, arena, constants)

over the graph's arguments, its results, memory for everything between, and a table of the addresses of its constants.
Where extents are symbolic, a second one, `main__plan(x, w, ..., plan)`, computes the extents of the results and the
bytes of the arena first. The functions of a graph for a device run on the host: arguments, results, arena and constants
are memory of the device, whose addresses they pass to kernels; only the table and the plan are the host's. A graph
whose tensors are placed on several devices has an arena on each: those after the first are further results, which the
caller does not get.

A graph with objects (closures, tensors that runtime functions return) has no native form; the virtual machine executes
its bytecode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import Call as TirCall
from ...ir.expr import GlobalVar, IntImm, PrimExpr, const
from ...ir.expr import StringImm as TirString
from ...ir.expr import Var as TirVar
from ...ir.module import BaseFunc, IRModule
from ...ir.op import Op
from ...ir.visitor import Mapper
from ...relax.analysis import free_vars
from ...relax.analysis.placement import place_index, placed_devices
from ...relax.analysis.variables import used_vars
from ...relax.expr import (
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    If,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from ...relax.struct_info import PrimStructInfo, TensorStructInfo
from ...runtime.packed_fields import Field
from ...runtime.vm.builtins import COPY_BYTES, MakeShapeCode, MatchShapeCode
from ...runtime.vm.native import NativeSpec, Output
from ...target.target import Target
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import BufferLoad
from ...tir.function import PrimFunc
from ...tir.op import handle_add_byte_offset, reinterpret, tvm_struct_get
from ...tir.pipeline import driven
from ...tir.stmt import AssertStmt, BufferStore, Evaluate, For, ForKind, IfThenElse, LetStmt, SeqStmt, Stmt
from ...tir.stmt_functor import renew_defs, substitute
from ...tir.transform.make_packed_api import CPU, TENSORS_ON, on_device, written_buffers
from ..units import SHARED, with_declarations
from .specialize import extents_of

ALIGNMENT = 64
"""Bytes to which storages are aligned in the arena."""


class NotNative(Exception):
    """The function does something that only the virtual machine can do; the message says what."""


@dataclass(slots=True)
class _Storage:
    """A range of the arena, or the memory of a result."""

    size: PrimExpr
    """In bytes."""
    device: int = 0
    """Its place among the devices of the program."""
    base: PrimExpr | None = None
    """The offset in the arena, in bytes, once it is known."""
    result: Buffer | None = None
    """The result whose memory it is."""
    tensors: int = 0
    """How many tensors lie in it."""
    merged_into: _Storage | None = None
    """The storage of an `If`'s value, for one of a branch's value: both branches write to the same memory."""


@dataclass(slots=True)
class _Tensor:
    """A tensor of the graph: in a storage, an argument (`buffer`, `param`) or a constant, each by its position."""

    shape: Sequence[PrimExpr]
    dtype: DataType
    storage: _Storage | None = None
    offset: PrimExpr = field(default_factory=lambda: const(0, "int64"))
    buffer: Buffer | None = None
    constant: int | None = None
    param: int | None = None
    device: int = 0


@dataclass(slots=True)
class _Branch:
    """A branch of an `If`: its value, its statements, its storages."""

    value: _Value
    steps: list[Callable[[], Stmt]]
    storages: list[Any]


_Value = Any
"""A `_Tensor`, a `_Storage`, a tuple of values, a shape (list of expressions), a number, or None."""


@dataclass(slots=True)
class Native:
    """The native form of a function: its TensorIR functions, how the runtime calls them, and which kernels they
    call."""

    functions: dict[str, PrimFunc]
    spec: NativeSpec
    kernels: set[GlobalVar]


def native_form(
    mod: IRModule, name: str, func: Function, constants: Callable[[Constant], int], target: Target
) -> Native:
    """The native form of a function that is lowered for `target`; raises `NotNative` for one that has none.

    `constants(constant)` is its place in the program. The kernels that it calls are to be split by
    `with_direct_kernels`.
    """
    return _Translator(mod, name, func, constants, target).translate()


def direct_name(kernel: GlobalVar) -> str:
    """The name of a kernel's direct form, over pointers and scalars, which native code calls."""
    return f"{kernel.name_hint}__direct"


def kernel_params(func: PrimFunc) -> list[TirVar]:
    """The symbolic extents of a kernel's buffers that are no parameters: further parameters of its direct form.

    Raises `NotNative` for a buffer with strides or an offset.
    """
    known, extra = set(func.params), dict[TirVar, None]()
    for buffer in func.buffer_map.values():
        compact = not buffer.strides and isinstance(buffer.elem_offset, IntImm) and buffer.elem_offset.value == 0
        if not compact:
            raise NotNative(f"the buffer `{buffer.name}` has strides or an offset")
        for extent in buffer.shape:
            if isinstance(extent, TirVar) and extent not in known:
                extra[extent] = None
    return list(extra)


def pointer_to(buffer: Buffer, written: bool) -> PrimExpr:
    """The address of a parameter's memory. A buffer whose variable itself is passed counts as written."""
    return buffer.data if written else handle_add_byte_offset(buffer.data, const(0, "int64"))


def with_direct_kernels(mod: IRModule, kernels: set[GlobalVar]) -> tuple[IRModule, IRModule]:
    """The module with the direct forms of some kernels in their place, and a module of their public forms.

    Direct forms are shared functions over pointers and scalars; public forms check their arguments and call those.
    """
    functions: dict[GlobalVar, BaseFunc] = {}
    public_forms: dict[GlobalVar, BaseFunc] = {}
    for var, func in mod.functions.items():
        if var not in kernels or not isinstance(func, PrimFunc):
            functions[var] = func
            continue
        direct = GlobalVar(direct_name(var))
        pointers = func.without_attr("global_symbol").replace(params=[*func.params, *kernel_params(func)])
        functions[direct] = pointers.with_attr(SHARED, True)
        written = written_buffers(func)
        public = renew_defs(func.with_body(Evaluate(0)))
        arguments: list[PrimExpr] = []
        for param, own in zip(public.params, func.params, strict=True):
            buffer = public.buffer_map.get(param)
            arguments.append(param if buffer is None else pointer_to(buffer, func.buffer_map[own].data in written))
        arguments += kernel_params(public)
        public_forms[GlobalVar(func.attrs["global_symbol"])] = public.with_body(
            Evaluate(TirCall("void", direct, arguments))
        )
    native = _with_unique_global_vars(mod.replace(functions=functions))
    return native, IRModule(with_declarations(public_forms, native))


def _with_unique_global_vars(mod: IRModule) -> IRModule:
    """The module with one `GlobalVar` object for each name."""
    by_name = {var.name_hint: var for var in mod.functions}

    class Names(Mapper):
        def visit_GlobalVar(self, var: GlobalVar) -> GlobalVar:
            return by_name.get(var.name_hint, var)

    names = Names()
    return mod.replace(functions={var: names(func) for var, func in mod.functions.items()})


class _Translator:
    """Translates a function in two passes: the first finds the values, their storages and the order of statements;
    then storages are placed in the arena, and the second (`steps`) writes the statements.
    """

    def __init__(self, mod: IRModule, name: str, func: Function, constants: Callable[[Constant], int], target: Target):
        self.target, self.device_type = target, target.get_target_device_type()
        self.places = placed_devices(mod)
        self.devices = self.places or [(self.device_type, 0)]
        self.mod, self.name, self.func, self.constant_place = mod, name, func, constants
        self.analyzer = Analyzer()
        self.used = _used(func.body)
        self.binding: Var | None = None
        self.inputs: list[TirVar | Buffer] = []
        self.input_devices: list[int] = []
        self.values: dict[Var, _Value] = {}
        self.slots: dict[int, PrimExpr] = {}
        self.storages: list[_Storage | tuple[list[Any], list[Any]]] = []
        self.steps: list[Callable[[], Stmt]] = []
        self.results: list[tuple[_Tensor, Buffer]] = []
        self.constants: list[tuple[int, int]] = []
        """The places of constants in the program, and of the devices that they are read on."""
        self.kernels: set[GlobalVar] = set()
        self.calls_runtime = False
        self.arenas = [_arena(f"arena_{i}" if i else "arena") for i in range(len(self.devices))]
        self.table = decl_buffer((TirVar("constant_count", "int64"),), "int64", "constants")

    def translate(self) -> Native:
        for position, param in enumerate(self.func.params):
            self.values[param] = self.parameter(param, position)
        result = self.result(self.sequence(self.func.body))
        sizes = [self.place(self.storages, const(0, "int64"), i) for i in range(len(self.devices))]
        body = SeqStmt([step() for step in self.steps])
        further = [i for i, size in enumerate(sizes) if i and not _is_zero(size)]
        outputs = [(buffer, tensor.device) for tensor, buffer in self.results]
        outputs += [(self.arenas[i], i) for i in further]
        where = [*self.input_devices, *(device for _, device in outputs), 0]
        tensors = [*self.inputs, *(buffer for buffer, _ in outputs), self.arenas[0]]
        run = self.function(self.name, tensors, where, self.table, body)
        functions, plan = {self.name: run}, _Plan()
        results = [(buffer, buffer.shape, tensor.device) for tensor, buffer in self.results]
        results += [(self.arenas[i], (sizes[i],), i) for i in further]
        shapes = [Output(str(b.dtype), tuple(plan.place(e) for e in shape), i) for b, shape, i in results]
        size = plan.place(sizes[0])
        extents = [] if self.on_device or self.places else [plan.place(e)[0] for e in extents_of(run, len(self.inputs))]
        plan_name = f"{self.name}__plan" if plan.exprs else None
        if plan_name is not None:
            functions[plan_name] = self.plan_function(plan_name, plan.exprs)
        constants, count = [place for place, _ in self.constants], len(self.inputs)
        spec = NativeSpec(self.name, plan_name, self.device_type, count, shapes, size, constants, result)
        spec.extents = extents
        if self.places:
            spec.devices, spec.constant_devices = self.places, [device for _, device in self.constants]
        spec.only_launches = (
            self.on_device and not self.places and not self.calls_runtime and not self.writes_arguments(run)
        )
        return Native(functions, spec, self.kernels)

    def writes_arguments(self, run: PrimFunc) -> bool:
        """Whether the function writes to an argument, as kernels that work in place do."""
        written = written_buffers(run)
        return any(isinstance(argument, Buffer) and argument.data in written for argument in self.inputs)

    @property
    def on_device(self) -> bool:
        return self.device_type != CPU

    def device_of(self, tensor: _Tensor) -> tuple[int, int]:
        """The type and the number of the device that a tensor is on."""
        return self.devices[tensor.device]

    def function(
        self, name: str, params: Sequence[TirVar | Buffer], devices: Sequence[int], last: Buffer, body: Stmt
    ) -> PrimFunc:
        """A host function of parameters on devices; its last argument is memory of the host whatever these are."""
        if not self.places and not self.on_device:
            return PrimFunc([*params, last], body, attrs={"global_symbol": name})
        tensor = TirVar(last.name, "handle")
        address = tvm_struct_get(tensor, 0, Field.TENSOR_DATA.code, "handle")
        attrs: dict[str, Any] = {"global_symbol": name, "tir.is_host_func": True, TENSORS_ON: self.device_type}
        if self.places:
            host = self.target if self.device_type == CPU else driven(self.target).host
            attrs["target"] = host
            places = [*(self.devices[device] for device in devices), (CPU, 0)]
            attrs[TENSORS_ON] = [number for place in places for number in place]
        return PrimFunc([*params, tensor], LetStmt(last.data, address, body), attrs=attrs)

    def plan_function(self, name: str, exprs: list[PrimExpr]) -> PrimFunc:
        """The PrimFunc that stores the expressions of the plan, as int64, into its last argument.

        A tensor of known extents says nothing about them: it is a pointer here, which the other function checks.
        """
        target = decl_buffer((len(exprs),), "int64", "plan")
        stores = [BufferStore(target, e.astype("int64"), [const(i, "int64")]) for i, e in enumerate(exprs)]
        inputs = [TirVar(i.name, "handle") if isinstance(i, Buffer) and _is_static(i) else i for i in self.inputs]
        return renew_defs(self.function(name, inputs, self.input_devices, target, SeqStmt(stores)))

    # -- parameters and results --

    def parameter(self, param: Var, position: int) -> _Value:
        info = param.struct_info
        if isinstance(info, PrimStructInfo):
            var = info.value if isinstance(info.value, TirVar) else TirVar(param.name, info.dtype)
            if info.value is not None and var is not info.value:
                raise NotNative(f"the parameter `{param.name}` is an expression")
            self.inputs.append(var)
            self.input_devices.append(0)
            return var
        if not isinstance(info, TensorStructInfo) or info.ndim < 0 or info.dtype == "void":
            raise NotNative(f"the parameter `{param.name}` is no tensor of known dtype and dimensions")
        place = info.vdevice
        other_kind = place is not None and place.target is not None and place.target.kind.name != self.target.kind.name
        if not self.places and (other_kind or (self.on_device and place is not None and place.vdevice_id != 0)):
            raise NotNative(f"the parameter `{param.name}` lies on another device")
        shape = info.extents
        if shape is None:
            shape = [TirVar(f"{param.name}_{axis}", "int64") for axis in range(info.ndim)]
        buffer = decl_buffer(shape, info.dtype, param.name)
        device = place_index(self.mod, info) if self.places else 0
        self.inputs.append(buffer)
        self.input_devices.append(device)
        return _Tensor(buffer.shape, info.dtype, buffer=buffer, param=position, device=device)

    def result(self, value: _Value) -> Any:
        """What a call returns, in the form of `NativeSpec.result`; memory of new tensors becomes the caller's."""
        if isinstance(value, tuple):
            return [self.result(v) for v in value]
        if not isinstance(value, _Tensor):
            raise NotNative("the result is neither a tensor nor a tuple of tensors")
        if value.param is not None and value.buffer is not None and value.shape is value.buffer.shape:
            return {"param": value.param}
        if value.constant is not None:
            return {"constant": self.constants[value.constant][0]}
        for index, (known, _) in enumerate(self.results):
            if known.storage is value.storage and value.storage is not None:
                if known.shape is not value.shape:
                    raise NotNative("one tensor is returned in two shapes")
                return index
        storage = value.storage
        if storage is None or storage.tensors != 1 or not _is_zero(value.offset):
            raise NotNative("a part of other memory is returned")
        buffer = decl_buffer(value.shape, value.dtype, f"output_{len(self.results)}")
        storage.result = buffer
        self.results.append((value, buffer))
        return len(self.results) - 1

    def place(self, storages: Sequence[Any], start: PrimExpr, device: int) -> PrimExpr:
        """Places storages in the arena of a device, from byte `start` on; returns the byte behind the last one.

        Only one of two branches runs, so the storages of both begin at the same byte.
        """
        end = start
        for storage in storages:
            if isinstance(storage, tuple):
                first, second = (self.place(branch, end, device) for branch in storage)
                end = self.analyzer.simplify(ops.maximum(first, second))
            elif storage.device == device and storage.result is None and storage.merged_into is None:
                storage.base = end
                rounded = ops.floordiv(storage.size + (ALIGNMENT - 1), ALIGNMENT) * ALIGNMENT
                end = self.analyzer.simplify(end + rounded)
        return end

    def pointer(self, tensor: _Tensor, written: bool) -> PrimExpr:
        """The address of a tensor's first element."""
        if tensor.constant is not None:
            address = BufferLoad(self.table, [const(tensor.constant, "int64")])
            return reinterpret("handle", address)
        storage = tensor.storage
        if storage is not None:
            while storage.merged_into is not None:
                storage = storage.merged_into
            if storage.result is not None:
                return storage.result.data
            assert storage.base is not None
            return handle_add_byte_offset(self.arenas[storage.device].data, storage.base + tensor.offset)
        assert tensor.buffer is not None
        return pointer_to(tensor.buffer, written)

    # -- values --

    def sequence(self, seq: SeqExpr) -> _Value:
        """Translates the bindings of a sequence; returns its value."""
        for block in seq.blocks:
            for binding in block.bindings:
                self.binding = binding.var
                self.values[binding.var] = self.value(binding.value)
        return self.value(seq.body)

    def value(self, expr: Expr) -> _Value:
        if isinstance(expr, Var):
            return self.values[expr]
        if isinstance(expr, Call):
            return self.call(expr)
        if isinstance(expr, If):
            return self.condition(expr)
        if isinstance(expr, Tuple):
            return tuple(self.value(f) for f in expr.fields)
        if isinstance(expr, TupleGetItem):
            fields = self.value(expr.tuple_value)
            if not isinstance(fields, tuple):
                raise NotNative("a field of an unknown tuple is taken")
            return fields[expr.index]
        if isinstance(expr, Constant):
            return self.constant(expr)
        if isinstance(expr, ShapeExpr):
            return list(expr.values)
        if isinstance(expr, PrimValue):
            return expr.value
        if isinstance(expr, (StringImm, DataTypeImm)):
            return expr.value
        raise NotNative(f"a {type(expr).__name__} is a value")

    def constant(self, expr: Constant, device: int = 0) -> _Tensor:
        key = self.constant_place(expr), device
        if key not in self.constants:
            self.constants.append(key)
        shape = [const(e, "int64") for e in expr.data.shape]
        return _Tensor(shape, DataType(expr.data.dtype), constant=self.constants.index(key), device=device)

    def tensor(self, expr: Expr) -> _Tensor:
        value = self.value(expr)
        if not isinstance(value, _Tensor):
            raise NotNative(f"`{expr}` is no tensor")
        return value

    # -- branches --

    def condition(self, expr: If) -> _Value:
        """The value of an `If`: both branches write it to the same memory."""
        chosen = self.value(expr.cond)
        if isinstance(chosen, _Tensor) and self.device_of(chosen)[0] != CPU:
            raise NotNative("a condition is in the memory of a device")
        steps, storages, slots = self.steps, self.storages, self.slots
        branches: list[_Branch] = []
        for seq in (expr.true_branch, expr.false_branch):
            self.steps, self.storages, self.slots = [], [], dict(slots)
            branches.append(_Branch(self.sequence(seq), self.steps, self.storages))
        self.steps, self.storages, self.slots = steps, storages, slots
        first, second = branches
        merged_value = self.merge(first, first.value, second, second.value)
        self.storages.append((first.storages, second.storages))

        def step() -> Stmt:
            then, otherwise = (SeqStmt([step() for step in branch.steps]) for branch in branches)
            if isinstance(chosen, PrimExpr):
                return IfThenElse(chosen, then, otherwise)
            flag = decl_buffer((), chosen.dtype, "condition")
            taken = IfThenElse(BufferLoad(flag, []).astype("bool"), then, otherwise)
            return LetStmt(flag.data, self.pointer(chosen, False), taken)

        self.steps.append(step)
        return merged_value

    def merge(self, first: _Branch, one: _Value, second: _Branch, other: _Value) -> _Value:
        """One value for the values of two branches, which are merged into one storage or copied to it."""
        if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
            return tuple(self.merge(first, a, second, b) for a, b in zip(one, other, strict=True))
        if not isinstance(one, _Tensor) or not isinstance(other, _Tensor):
            raise NotNative("branches give something else than tensors")
        if one.dtype != other.dtype or not self.same_shape(one.shape, other.shape):
            raise NotNative("branches give tensors of different shapes or dtypes")
        if one.device != other.device:
            raise NotNative("branches give tensors on different devices")
        size = self.analyzer.simplify(_product(one.shape) * one.dtype.itemsize)
        storage = _Storage(size, one.device, tensors=1)
        merged_value = _Tensor(one.shape, one.dtype, storage, device=one.device)
        for branch, tensor in ((first, one), (second, other)):
            own = tensor.storage
            if (
                own is not None
                and own.merged_into is None
                and own.tensors == 1
                and any(own is s for s in branch.storages)
            ):
                own.merged_into = storage
                storage.size = self.analyzer.simplify(ops.maximum(storage.size, own.size))
            else:
                branch.steps.append(lambda tensor=tensor: self.copy(tensor, merged_value))
        self.storages.append(storage)
        return merged_value

    def same_shape(self, one: Sequence[PrimExpr], other: Sequence[PrimExpr]) -> bool:
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(self.analyzer.can_prove_equal(a, b) for a, b in pairs)

    def copy(self, source: _Tensor, target: _Tensor) -> Stmt:
        """A loop that copies a compact tensor."""
        if self.device_of(source)[0] != CPU:
            raise NotNative("a tensor is copied in the memory of a device")
        count = _product(source.shape)
        read, write = (decl_buffer((count,), source.dtype, name) for name in ("source", "target"))
        element = TirVar("element", "int64")
        body = BufferStore(write, BufferLoad(read, [element]), [element])
        loop = For(element, const(0, "int64"), count, ForKind.SERIAL, body)
        return LetStmt(read.data, self.pointer(source, False), LetStmt(write.data, self.pointer(target, True), loop))

    # -- calls --

    def call(self, call: Call) -> _Value:
        op = call.op
        if isinstance(op, GlobalVar):
            return self.kernel(op, [self.value(a) for a in call.args])
        if isinstance(op, ExternFunc):
            handler = self._BY_NAME.get(op.global_symbol)
            return self.runtime_function(call) if handler is None else handler(self, call.args)
        if isinstance(op, Op):
            if op.name == "relax.call_builtin_with_ctx":
                func, args = call.args
                assert isinstance(func, ExternFunc) and isinstance(args, Tuple)
                if func.global_symbol == "vm.builtin.alloc_shape_heap":
                    return None
            handler = self._BY_OPERATOR.get(op.name)
            if handler is not None:
                return handler(self, call.args)
        raise NotNative(f"`{call}` needs the virtual machine")

    def kernel(self, callee: GlobalVar, args: list[_Value]) -> _Value:
        func = self.mod.functions.get(callee)
        if not isinstance(func, PrimFunc):
            raise NotNative(f"the graph function `{callee.name_hint}` is called")
        if func.attrs.get("tir.is_host_func"):
            return self.host_function(func, args)
        extra = kernel_params(func)
        self.kernels.add(callee)
        symbols: dict[TirVar, PrimExpr] = {}
        for param, value in zip(func.params, args, strict=True):
            if isinstance(value, _Tensor) and param in func.buffer_map:
                declared = func.buffer_map[param].shape
                pairs = zip(declared, value.shape, strict=True)
                symbols.update((extent, given) for extent, given in pairs if isinstance(extent, TirVar))
            elif isinstance(value, PrimExpr) and param not in func.buffer_map:
                symbols[param] = value
            else:
                raise NotNative(f"`{callee.name_hint}` gets an argument that is neither a tensor nor a number")
        written = written_buffers(func)

        def step() -> Stmt:
            values = []
            for param, value in zip(func.params, args, strict=True):
                if isinstance(value, _Tensor):
                    value = self.pointer(value, func.buffer_map[param].data in written)
                values.append(value)
            values += [symbols[v].astype(v.dtype) if symbols[v].dtype != v.dtype else symbols[v] for v in extra]
            call = Evaluate(TirCall("void", GlobalVar(direct_name(callee)), values))
            return self.on(next((v for v in args if isinstance(v, _Tensor)), None), call)

        self.steps.append(step)

    def on(self, tensor: _Tensor | None, stmt: Stmt) -> Stmt:
        """A statement on the device of a tensor; where the graph has one device, all statements are on it."""
        if not self.places or tensor is None or self.device_of(tensor)[0] == CPU:
            return stmt
        kind, number = self.device_of(tensor)
        return on_device(stmt, kind, const(number))

    def host_function(self, func: PrimFunc, args: list[_Value]) -> PrimExpr | None:
        """A function that computes symbolic extents from known ones.

        Returns its result, or else puts what it stores in the shape heap into `slots`, as expressions.
        """
        result = func.body.value if isinstance(func.body, Evaluate) else None
        if isinstance(result, TirCall) and isinstance(result.op, Op) and result.op.name == "tir.ret":
            return self.analyzer.simplify(substitute(result.args[0], dict(zip(func.params, args, strict=True))))
        stores = func.body.seq if isinstance(func.body, SeqStmt) else [func.body]
        load = _HeapLoads(self.slots)
        for store in stores:
            assert isinstance(store, BufferStore)
            self.slots[_int(store.indices[0])] = self.analyzer.simplify(load(store.value))

    def runtime_function(self, call: Call) -> None:
        """Calls a function of the runtime that writes its results to its arguments."""
        assert isinstance(call.op, ExternFunc)
        if self.binding in self.used:
            raise NotNative(f"the runtime function `{call.op.global_symbol}` returns an object")
        name, args = call.op.global_symbol, [self.value(a) for a in call.args]
        if any(module.implements_function(name) for module in self.mod.get_attr("external_mods", ())):
            raise NotNative(f"`{name}` is a function of an imported module")
        for value in args:
            if not isinstance(value, (_Tensor, PrimExpr, str)) or isinstance(value, DataType):
                raise NotNative(f"`{name}` gets an argument that is neither a tensor nor a number nor a text")

        tensors = [value for value in args if isinstance(value, _Tensor)]
        if len({value.device for value in tensors}) > 1:
            raise NotNative(f"`{name}` gets tensors on different devices")
        self.calls_runtime = True

        def step() -> Stmt:
            values = [self.packed_argument(v) for v in args]
            call = Evaluate(TirCall("int32", "tir.tvm_call_packed", [TirString(name), *values]))
            return self.on(tensors[0] if tensors else None, call)

        self.steps.append(step)

    def packed_argument(self, value: _Value) -> PrimExpr:
        if isinstance(value, str):
            return TirString(value)
        if not isinstance(value, _Tensor):
            return value
        shape = TirCall("handle", "tir.tvm_stack_make_shape", [e.astype("int64") for e in value.shape])
        zero, ndim = const(0, "int64"), const(len(value.shape), "int32")
        element = const(0, value.dtype)
        return TirCall(
            "handle", "tir.tvm_stack_make_array", [self.pointer(value, False), shape, const(0), ndim, element, zero]
        )

    # -- memory --

    def _alloc_storage(self, args: Sequence[Expr]) -> _Storage:
        extents, dtype, scope = self.value(args[0]), self.value(args[2]), self.value(args[3])
        if not isinstance(extents, list) or scope != "global":
            raise NotNative("a storage is not plain memory")
        device = _int(self.value(args[1]))
        if not 0 <= device < len(self.devices):
            if self.on_device:
                raise NotNative("a storage is on another device")
            device = 0
        size: PrimExpr = const(DataType(dtype).itemsize, "int64")
        for extent in extents:
            size = size * extent
        storage = _Storage(self.analyzer.simplify(size), device)
        self.storages.append(storage)
        return storage

    def _alloc_tensor(self, args: Sequence[Expr]) -> _Tensor:
        storage, offset, shape, dtype = map(self.value, args[:4])
        if not isinstance(storage, _Storage) or not isinstance(shape, list):
            raise NotNative("a tensor is allocated in an unknown storage")
        storage.tensors += 1
        return _Tensor(shape, DataType(dtype), storage=storage, offset=offset, device=storage.device)

    def _copy_to(self, args: Sequence[Expr]) -> None:
        """Copies a compact tensor to another, on whatever devices they are."""
        source, target = map(self.tensor, args)
        self.calls_runtime = True

        def step() -> Stmt:
            operands: list[PrimExpr] = []
            for tensor, is_written in ((target, True), (source, False)):
                operands += [self.pointer(tensor, is_written), *map(const, self.device_of(tensor))]
            size = _product(source.shape) * source.dtype.itemsize
            return Evaluate(TirCall("int32", "tir.tvm_call_packed", [TirString(COPY_BYTES), *operands, size]))

        self.steps.append(step)

    def _to_device(self, args: Sequence[Expr]) -> _Tensor:
        """A constant on a device: the table has its address there, so nothing is copied in a call."""
        wanted = _int(self.value(args[1])), _int(self.value(args[2]))
        if not isinstance(args[0], Constant) or wanted not in self.devices or self.value(args[3]) != "global":
            raise NotNative("a tensor of unknown shape is copied between devices")
        return self.constant(args[0], self.devices.index(wanted))

    def _nothing(self, args: Sequence[Expr]) -> None:
        return None

    def _call_tir_dyn(self, args: Sequence[Expr]) -> None:
        callee, values = args
        assert isinstance(callee, GlobalVar) and isinstance(values, Tuple)
        *tensors, shape = [self.value(v) for v in values.fields]
        self.kernel(callee, [*tensors, *shape])

    def _reshape(self, args: Sequence[Expr]) -> _Tensor:
        tensor, shape = self.tensor(args[0]), self.value(args[1])
        before, after = _product(tensor.shape), _product(shape)
        if not self.analyzer.can_prove_equal(before, after):
            self.require(before.equal(after), f"ValueError: {self.name}: a reshape changes the number of elements")
        return _Tensor(
            shape,
            tensor.dtype,
            tensor.storage,
            tensor.offset,
            tensor.buffer,
            tensor.constant,
            tensor.param,
            tensor.device,
        )

    # -- shapes --

    def _match_shape(self, args: Sequence[Expr]) -> None:
        value = self.value(args[0])
        shape = value.shape if isinstance(value, _Tensor) else value
        size, *rest = [self.value(a) for a in args[2:]]
        count = _int(size)
        if not isinstance(shape, (list, tuple)) and not hasattr(shape, "__len__"):
            raise NotNative("the shape of an unknown value is matched")
        if len(shape) != count:
            raise NotNative("a shape of another number of dimensions is matched")
        context = rest[2 * count] if len(rest) > 2 * count else ""
        for axis, extent in enumerate(shape):
            self.match(extent, _int(rest[2 * axis]), _int(rest[2 * axis + 1]), f"{context}shape[{axis}]")

    def _match_prim_value(self, args: Sequence[Expr]) -> None:
        value, _, code, operand, *rest = map(self.value, args)
        if not isinstance(value, PrimExpr):
            raise NotNative("an unknown number is matched")
        self.match(value.astype("int64"), _int(code), _int(operand), rest[0] if rest else "")

    def match(self, extent: PrimExpr, code: int, operand: int, what: str) -> None:
        if code == MatchShapeCode.STORE_TO_HEAP:
            self.slots[operand] = extent
            return
        if code == MatchShapeCode.NO_OP:
            return
        expected = const(operand, "int64") if code == MatchShapeCode.ASSERT_EQUAL_TO_IMM else self.slots[operand]
        if extent is not expected and not self.analyzer.can_prove_equal(extent, expected):
            number = operand if code == MatchShapeCode.ASSERT_EQUAL_TO_IMM else expected
            self.require(extent.equal(expected), f"ValueError: {what}: expected {number}, found another {extent}")

    def require(self, condition: PrimExpr, message: str) -> None:
        self.steps.append(lambda: AssertStmt(condition, message, Evaluate(const(0))))

    def _make_shape(self, args: Sequence[Expr]) -> list[PrimExpr]:
        size, *codes = [_int(self.value(a)) for a in args[1:]]
        return [self.made(codes[2 * axis], codes[2 * axis + 1]) for axis in range(size)]

    def _make_prim_value(self, args: Sequence[Expr]) -> PrimExpr:
        return self.made(*[_int(self.value(a)) for a in args[1:3]])

    def made(self, code: int, operand: int) -> PrimExpr:
        return const(operand, "int64") if code == MakeShapeCode.USE_IMM else self.slots[operand]

    def _shape_of(self, args: Sequence[Expr]) -> list[PrimExpr]:
        return list(self.tensor(args[0]).shape)

    def _check_tensor(self, args: Sequence[Expr]) -> None:
        """Checks nothing at run time: a native function checks its arguments, and all is known of other tensors."""
        tensor, ndim = self.tensor(args[0]), _int(self.value(args[1]))
        dtypes = [self.value(a) for a in args[2:-1]]
        if ndim not in (-1, len(tensor.shape)) or any(d not in ("void", tensor.dtype) for d in dtypes):
            raise NotNative("a check of a tensor fails always")

    _BY_OPERATOR: ClassVar[dict[str, Callable[..., _Value]]] = {
        "relax.null_value": _nothing,
        "relax.vm.alloc_storage": _alloc_storage,
        "relax.vm.alloc_tensor": _alloc_tensor,
        "relax.vm.kill_object": _nothing,
        "relax.vm.call_tir_dyn": _call_tir_dyn,
    }
    _BY_NAME: ClassVar[dict[str, Callable[..., _Value]]] = {
        "vm.builtin.match_shape": _match_shape,
        "vm.builtin.match_prim_value": _match_prim_value,
        "vm.builtin.make_shape": _make_shape,
        "vm.builtin.make_prim_value": _make_prim_value,
        "vm.builtin.shape_of": _shape_of,
        "vm.builtin.reshape": _reshape,
        "vm.builtin.copy_to": _copy_to,
        "vm.builtin.to_device": _to_device,
        "vm.builtin.check_tensor_info": _check_tensor,
        "vm.builtin.check_prim_value_info": _nothing,
        "vm.builtin.null_value": _nothing,
    }


class _Plan:
    """Collects the expressions that the plan function computes."""

    def __init__(self) -> None:
        self.exprs: list[PrimExpr] = []

    def place(self, expr: PrimExpr) -> Any:
        """An integer itself; of another expression `[index]`, where the plan function stores its value."""
        if isinstance(expr, IntImm):
            return expr.value
        for place, known in enumerate(self.exprs):
            if known is expr:
                return [place]
        self.exprs.append(expr)
        return [len(self.exprs) - 1]


class _HeapLoads(Mapper):
    """Replaces loads of the shape heap by the values of its slots."""

    def __init__(self, slots: dict[int, PrimExpr]):
        super().__init__()
        self.slots = slots

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return self.slots[_int(load.indices[0])].astype("int64")


def _used(seq: SeqExpr) -> set[Var]:
    """The variables of a sequence that are read; `kill_object` does not read its argument."""
    used = set(free_vars(seq.body))
    for block in seq.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, If):
                used.update(free_vars(value.cond), _used(value.true_branch), _used(value.false_branch))
            elif not (isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == "relax.vm.kill_object"):
                used.update(used_vars(binding))
    return used


def _int(value: Any) -> int:
    if isinstance(value, IntImm):
        return value.value
    raise NotNative(f"`{value}` is no number")


def _arena(name: str) -> Buffer:
    return decl_buffer((TirVar(f"{name}_size", "int64"),), "uint8", name, data_alignment=ALIGNMENT)


def _is_static(buffer: Buffer) -> bool:
    return all(isinstance(extent, IntImm) for extent in buffer.shape)


def _is_zero(expr: PrimExpr) -> bool:
    return isinstance(expr, IntImm) and expr.value == 0


def _product(extents: Sequence[PrimExpr]) -> PrimExpr:
    size: PrimExpr = const(1, "int64")
    for extent in extents:
        size = size * extent
    return size
