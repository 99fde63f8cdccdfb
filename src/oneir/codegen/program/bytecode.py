"""Lowered graph functions as bytecode of the virtual machine.

Every binding becomes an instruction or none; every variable is a register. `oneir.runtime.vm` executes the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from ...ir.expr import FloatImm, GlobalVar, IntImm, PrimExpr
from ...ir.module import IRModule
from ...ir.op import Op
from ...relax.analysis.placement import placed_devices
from ...relax.analysis.struct_info import callee_name
from ...relax.analysis.variables import post_order_visit
from ...relax.expr import (
    OUTPUT_NAMES,
    Binding,
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
from ...relax.op.vm import kill_object
from ...relax.struct_info import PrimStructInfo, StructInfo, TensorStructInfo
from ...runtime.dtype import DTypeName
from ...runtime.error import CompileError, OneIRError
from ...runtime.object import ShapeTuple
from ...runtime.signature import Extent, Param, Signature
from ...runtime.tensor import compact
from ...runtime.vm.builder import ExecBuilder
from ...runtime.vm.program import Arg, Cost, Note, Program, VMFuncKind
from ...tir.analysis import estimate_tir_bytes, estimate_tir_flops
from ...tir.function import PrimFunc
from ...tir.transform.make_packed_api import _extent as extent_text


class ProgramBuilder:
    """A builder of a program of graphs, `builder`, and which of its constants are those of the graphs."""

    def __init__(self, builder: ExecBuilder | None = None):
        self.builder = ExecBuilder() if builder is None else builder
        self._of_graph: dict[int, int] = {}

    def program(self) -> Program:
        """The program; see `ExecBuilder.program`."""
        return self.builder.program()

    def constant(self, expr: Constant) -> int:
        """A graph's constant as an operand. It keeps its name, unless another tensor has that name already."""
        word = self._of_graph.get(id(expr.data))
        if word is None:
            name = None if self.builder.has_constant(expr.name) else expr.name
            word = self._of_graph[id(expr.data)] = self.builder.convert_constant(compact(expr.data), name or None)
        return word

    def place_of_constant(self, expr: Constant) -> int:
        """The index of a graph's constant in the program."""
        return Arg.from_word(self.constant(expr)).value


def emit_bytecode(
    mod: IRModule, device_type: int = 1, builder: ExecBuilder | None = None, checked: bool = True
) -> ProgramBuilder:
    """A builder, by default a new one, with all graph functions of a lowered module and its kernels by their symbols.

    Functions expect tensors on devices of `device_type`, as DLPack numbers them, unless their struct info says another.
    Arguments are compared with what is known of parameters, unless `checked` is False: then what the functions
    themselves check is all.
    """
    made = ProgramBuilder(builder)
    made.builder.devices = placed_devices(mod)
    for var, func in mod.functions_items():
        if isinstance(func, Function):
            made.builder.declare_function(symbol_of(var, func), VMFuncKind.VM_FUNC)
    for _, func in mod.functions_items():
        if isinstance(func, PrimFunc) and "global_symbol" in func.attrs:
            made.builder.declare_function(func.attrs["global_symbol"], VMFuncKind.PACKED_FUNC, cost_of(func))
    for var, func in mod.functions_items():
        if isinstance(func, Function):
            name = symbol_of(var, func)
            signature = signature_of_graph(name, func, device_type, bool(made.builder.devices)) if checked else None
            _Emitter(made, mod, name, func, signature).emit()
    return made


def symbol_of(var: GlobalVar, func: Any) -> str:
    """The name of a function in the program."""
    return func.attrs.get("global_symbol", var.name_hint)


def cost_of(func: PrimFunc) -> Cost | None:
    """Floating-point operations and bytes of one call; None where extents are unknown, and for shape functions."""
    if func.attrs.get("tir.is_host_func"):
        return Cost()
    size = estimate_tir_bytes(func)
    if size is None:
        return None
    try:
        return Cost(float(estimate_tir_flops(func)), float(size))
    except OneIRError:  # loops whose operations cannot be counted ahead
        return Cost(0, float(size))


def signature_of_graph(name: str, func: Function, device_type: int = 1, is_placed: bool = False) -> Signature:
    """The signature of a graph function; see `emit_bytecode`. `is_placed`: the number of a device matters, too."""
    infos = [param.struct_info for param in func.params]
    pairs = zip(names_of_params(func), infos, strict=True)
    params = tuple(_param(n, info, device_type, is_placed) for n, info in pairs)
    return Signature(name, params, tuple(map(str, func.attrs.get(OUTPUT_NAMES, ()))))


def names_of_params(func: Function) -> list[str]:
    """The names of parameters in signatures: their own, made unique as the printer does."""
    names: dict[str, None] = {}
    repeats = Counter[str]()
    for param in func.params:
        name = param.name
        while name in names:
            repeats[param.name] += 1
            name = f"{param.name}_{repeats[param.name]}"
        names[name] = None
    return list(names)


def _param(name: str, info: StructInfo, device_type: int, is_placed: bool) -> Param:
    if isinstance(info, TensorStructInfo):
        shape = None if info.extents is None else tuple(_extent(e) for e in info.extents)
        if shape is None and info.ndim >= 0:
            shape = (None,) * info.ndim
        if info.vdevice is not None:
            device_type = info.vdevice.target.get_target_device_type()
        number = info.vdevice.vdevice_id if is_placed and info.vdevice is not None else None
        dtype = None if info.dtype == "void" else str(info.dtype)
        return Param(name, "tensor", dtype, shape, device_type=device_type, device_id=number)
    if isinstance(info, PrimStructInfo):
        kind = "float" if info.dtype.is_float else "bool" if info.dtype.is_bool else "int"
        return Param(name, kind, str(info.dtype))
    return Param(name, "handle")


def _extent(expr: PrimExpr) -> Extent:
    return extent_text(expr)


class _Emitter:
    """Emits one function."""

    def __init__(self, builder: ProgramBuilder, mod: IRModule, name: str, func: Function, signature: Signature | None):
        self.constants, self.builder = builder, builder.builder
        self.mod, self.name, self.func = mod, name, func
        self.signature = signature
        self.registers: dict[Var, int] = {}
        self.count = 0
        self._killed: set[Expr] | None = None

    def emit(self) -> None:
        ib, params = self.builder, self.func.params
        with ib.function(self.name, len(params), names_of_params(self.func), self.signature):
            for param in params:
                self.registers[param] = self.new()
            ib.emit_ret(ib.r(self.sequence(self.func.body)))

    def killed(self) -> set[Expr]:
        """The variables whose registers the function gives back."""
        if self._killed is None:
            found: set[Expr] = set()

            def visit(expr: Expr) -> None:
                if isinstance(expr, Call) and expr.op is kill_object.op:
                    found.add(expr.args[0])

            post_order_visit(self.func, visit)
            self._killed = found
        return self._killed

    def copied(self, value: Var) -> int:
        """A register of its own for the value of a variable."""
        dst = self.new()
        self.builder.emit_call("vm.builtin.copy", [self.builder.r(self.registers[value])], dst)
        return dst

    def new(self) -> int:
        self.count += 1
        return self.count - 1

    def sequence(self, seq: SeqExpr) -> int:
        """Emits the bindings; returns the register of the result."""
        for block in seq.blocks:
            for binding in block.bindings:
                self.bind(binding)
        return self.register(seq.body)

    def bind(self, binding: Binding) -> None:
        value, var = binding.value, binding.var
        if isinstance(value, Var):
            # What gives back a register leaves the other names of its value alone.
            killed = not self.killed().isdisjoint((value, var))
            self.registers[var] = self.copied(value) if killed else self.registers[value]
        elif isinstance(value, If):
            self.registers[var] = self.condition(value)
        elif isinstance(value, Call):
            self.registers[var] = self.call(value, binding)
        else:
            self.registers[var] = self.register(value)

    # -- values --

    def register(self, expr: Expr) -> int:
        """The register that holds a value."""
        if isinstance(expr, Var):
            if expr not in self.registers:
                raise CompileError(f"in `{self.name}`: the variable `{expr.name}` has no value here")
            return self.registers[expr]
        dst, ib = self.new(), self.builder
        if isinstance(expr, Tuple):
            ib.emit_call("vm.builtin.make_tuple", [self.argument(f) for f in expr.fields], dst)
        elif isinstance(expr, TupleGetItem):
            ib.emit_call("vm.builtin.tuple_getitem", [self.argument(expr.tuple_value), ib.imm(expr.index)], dst)
        else:
            ib.emit_call("vm.builtin.copy", [self.argument(expr)], dst)
        return dst

    def argument(self, expr: Expr) -> int:
        """An expression as an argument of an instruction."""
        ib = self.builder
        if isinstance(expr, Constant):
            return self.constants.constant(expr)
        if isinstance(expr, StringImm):
            return ib.convert_constant(expr.value)
        if isinstance(expr, DataTypeImm):
            return ib.convert_constant(DTypeName(str(expr.value)))
        if isinstance(expr, ShapeExpr):
            return ib.convert_constant(ShapeTuple([self.number(v) for v in expr.values]))
        if isinstance(expr, PrimValue):
            return ib.convert_constant(self.number(expr.value))
        if isinstance(expr, GlobalVar):
            return ib.f(symbol_of(expr, self.callee(expr)))
        if isinstance(expr, ExternFunc):
            ib.declare_function(expr.global_symbol)
            return ib.f(expr.global_symbol)
        if isinstance(expr, Function):
            raise CompileError(f"in `{self.name}`: a local function is not lowered; run LambdaLift first")
        return ib.r(self.register(expr))

    def callee(self, var: GlobalVar) -> Any:
        func = self.mod.functions.get(var)
        if func is None:
            raise CompileError(f"in `{self.name}`: the module has no function `{var.name_hint}`")
        return func

    def number(self, value: PrimExpr) -> Any:
        if not isinstance(value, (IntImm, FloatImm)):
            raise CompileError(f"in `{self.name}`: `{value}` is not lowered; run VMShapeLower first")
        return value.value

    # -- calls --

    def call(self, call: Call, binding: Binding) -> int:
        op, ib = call.op, self.builder
        dst = self.new()
        span = call.span or getattr(binding, "span", None)
        note = Note(callee_name(op).removeprefix("relax."), None if span is None else str(span).rsplit(":", 1)[0])
        if isinstance(op, Op):
            emit = self._BY_OPERATOR.get(op.name)
            if emit is None:
                raise CompileError(
                    f"in `{self.name}`: the operator {op.name} is not lowered; LegalizeOps lowers operators whose "
                    "shapes are known, and LowerRuntimeBuiltin what the runtime does"
                )
            emit(self, call, dst, note)
        elif isinstance(op, ExternFunc):
            ib.emit_call(op.global_symbol, self.arguments(call.args), dst, note)
        elif isinstance(op, GlobalVar):
            ib.emit_call(symbol_of(op, self.callee(op)), self.arguments(call.args), dst, note)
        else:
            args = [ib.vm_state(), self.argument(op), *self.arguments(call.args)]
            ib.emit_call("vm.builtin.invoke_closure", args, dst, note)
        return dst

    def arguments(self, args: Any) -> list[int]:
        return [self.argument(a) for a in args]

    def _with_machine(self, call: Call, dst: int, note: Note) -> None:
        func, args = call.args
        assert isinstance(func, ExternFunc) and isinstance(args, Tuple)
        self.builder.emit_call(func.global_symbol, [self.builder.vm_state(), *self.arguments(args.fields)], dst, note)

    def _alloc_storage(self, call: Call, dst: int, note: Note) -> None:
        self.builder.emit_call(
            "vm.builtin.alloc_storage", [self.builder.vm_state(), *self.arguments(call.args)], dst, note
        )

    def _alloc_tensor(self, call: Call, dst: int, note: Note) -> None:
        self.builder.emit_call("vm.builtin.alloc_tensor", self.arguments(call.args[:4]), dst, note)

    def _null_value(self, call: Call, dst: int, note: Note) -> None:
        self.builder.emit_call("vm.builtin.null_value", [], dst, note)

    def _kill_object(self, call: Call, dst: int, note: Note) -> None:
        self.builder.emit_call("vm.builtin.null_value", [], self.register(call.args[0]), note)

    def _call_tir_dyn(self, call: Call, dst: int, note: Note) -> None:
        func, args = call.args
        assert isinstance(args, Tuple)
        self.builder.emit_call("vm.builtin.call_tir_dyn", self.arguments([func, *args.fields]), dst, note)

    _BY_OPERATOR: ClassVar[dict[str, Callable[..., None]]] = {
        "relax.call_builtin_with_ctx": _with_machine,
        "relax.null_value": _null_value,
        "relax.vm.alloc_storage": _alloc_storage,
        "relax.vm.alloc_tensor": _alloc_tensor,
        "relax.vm.kill_object": _kill_object,
        "relax.vm.call_tir_dyn": _call_tir_dyn,
    }

    # -- branches --

    def condition(self, expr: If) -> int:
        ib, result, cond = self.builder, self.new(), self.new()
        ib.emit_call("vm.builtin.read_if_cond", [self.argument(expr.cond)], cond)
        branch = ib.position
        ib.emit_if(ib.r(cond), 2)
        ib.emit_call("vm.builtin.copy", [ib.r(self.sequence(expr.true_branch))], result)
        leave = ib.position
        ib.emit_goto(1)
        ib.set_jump(branch, ib.position)
        ib.emit_call("vm.builtin.copy", [ib.r(self.sequence(expr.false_branch))], result)
        ib.set_jump(leave, ib.position)
        return result
