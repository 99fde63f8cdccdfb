"""VMShapeLower: symbolic shapes become numbers in a heap, which the program fills, computes with and reads.

    def main(x: R.Tensor(("n", 4))):         heap = R.call_builtin_with_ctx("vm.builtin.alloc_shape_heap", ...)
        ... R.shape([n, n * 2]) ...     ->   _ = R.call_packed("vm.builtin.match_shape", x, heap, ...)
                                             _ = cls.shape_func(heap)
                                             s = R.call_packed("vm.builtin.make_shape", heap, ...)

Each symbolic expression of a function has a slot of the heap. Arguments, and what `match_cast` asserts, are checked and
fill the slots of variables; a `shape_func`, a TensorIR function of its own, computes the expressions that became known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.expr import IntImm, PrimExpr
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.structural import structural_digest
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import WellFormedError
from ...runtime.vm.builtins import MakeShapeCode, MatchShapeCode
from ...tir.buffer import decl_buffer
from ...tir.expr import BufferLoad
from ...tir.function import PrimFunc
from ...tir.stmt import BufferStore, Stmt, flat_seq
from ...tir.stmt_functor import substitute
from ..analysis.struct_info import tir_vars_in_struct_info
from ..expr import (
    Call,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
)
from ..expr_functor import PyExprMutator
from ..normalize import merge_blocks
from ..op import call_builtin_with_ctx, null_value
from ..struct_info import (
    VOID,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    is_base_of,
)

NOTHING = TupleStructInfo([])


class VMShapeLower(ModulePass):
    """Lowers symbolic shapes. With `emit_err_ctx`, checks say of which argument they are.

    Raises `WellFormedError` for a symbolic expression whose variables have no value.
    """

    emit_err_ctx: bool = True

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        lower = _Lower(mod, self.emit_err_ctx)
        for var, func in mod.functions_items():
            if isinstance(func, Function):
                lower.builder_.update_func(var, lower.lower(func, var.name_hint))
        return lower.builder_.get()


@dataclass(slots=True)
class _Match:
    """Extents that a tensor or shape must have, or the value of a number."""

    value: Expr
    is_number: bool
    extents: Sequence[PrimExpr]
    text: StringImm


class _Slot:
    """The place of one symbolic expression in the heap."""

    def __init__(self, expr: PrimExpr, index: int):
        self.expr, self.index = expr, index
        self.known = False


class _Slots:
    """The slots of one function, in the order in which the function mentions their expressions."""

    def __init__(self) -> None:
        self.by_var: dict[TirVar, _Slot] = {}
        self.by_digest: dict[bytes, _Slot] = {}
        self.all: list[_Slot] = []

    def of(self, expr: PrimExpr) -> _Slot:
        table: dict[Any, _Slot]
        if isinstance(expr, TirVar):
            table, key = self.by_var, expr
        else:
            table, key = (
                self.by_digest,
                structural_digest(expr) + repr([id(v) for v in tir_vars_in_struct_info(expr)]).encode(),
            )
        slot = table.get(key)
        if slot is None:
            slot = table[key] = _Slot(expr, len(self.all))
            self.all.append(slot)
        return slot


class _Collector(PyExprMutator):
    """Gives every symbolic expression of a function its slot."""

    def __init__(self, slots: _Slots):
        super().__init__()
        self.slots = slots

    def visit_prim_expr(self, op: PrimExpr) -> PrimExpr:
        if op.dtype.is_int and not isinstance(op, IntImm):
            self.slots.of(op)
        return op

    def visit_function_(self, op: Function) -> Expr:
        return op


class _Lower(PyExprMutator):
    def __init__(self, mod: IRModule, context: bool):
        super().__init__(mod)
        self.context = context

    # -- one function --

    def lower(self, func: Function, name: str) -> Function:
        self.slots = _Slots()
        self.unchecked: list[_Match] = []
        self.fields: dict[Expr, Expr] = {}
        collector = _Collector(self.slots)
        for param in func.params:
            collector.visit_struct_info(param.struct_info)
        collector.visit_expr(func.body)
        collector.visit_struct_info(func.ret_struct_info)
        builder = self.builder_
        builder.begin_scope(func.params)
        builder.begin_binding_block()
        self.heap = builder.emit(self.make_heap(), "shape_heap")
        self.scope_name = name
        inputs = int(func.attrs.get("num_input", len(func.params)))
        pending: list[_Match] = []
        for position, param in enumerate(func.params):
            context = f"in {name}: argument `{param.name}`: "
            # What stands behind the inputs are weights: they are bound once, and static ones are not checked each time.
            pending += self.check(param, param.struct_info, context, trusted=False, static=position < inputs)
        self.match(pending)
        start = builder.end_block()
        body = self.visit_expr(func.body)
        assert isinstance(body, SeqExpr)
        builder.begin_binding_block()
        result = body.body
        info = func.ret_struct_info
        self.match(self.check(result, info, f"in {name}: result: "))
        end = builder.end_block()
        builder.end_scope()
        blocks = merge_blocks([start, *body.blocks, end])
        return Function(func.params, SeqExpr(blocks, result), info, func.is_pure, func.attrs, func.span)

    def make_heap(self) -> Call:
        if not self.slots.all:
            return null_value()
        size = PrimValue(len(self.slots.all))
        info = TensorStructInfo(None, "int64", ndim=1)
        return call_builtin_with_ctx("vm.builtin.alloc_shape_heap", [size], sinfo_args=[info])

    def packed(self, name: str, *args: Any, info: StructInfo = NOTHING) -> Call:
        return Call(ExternFunc(name), [a if isinstance(a, Expr) else PrimValue(a) for a in args], sinfo_args=[info])

    # -- checks --

    def check(
        self, value: Expr, info: StructInfo, context: str, *, trusted: bool = True, static: bool = True
    ) -> list[_Match]:
        """Checks what does not depend on extents: the kind of a value, dtypes, numbers of dimensions.

        Returns what is to be matched. What is known of the value already is not checked if it is `trusted`; tensors of
        static shape are checked if `static`.
        """
        known = value.struct_info_ if trusted or isinstance(value, TupleGetItem) else None
        if trusted and known is not None and is_base_of(info, known, self.builder_.analyzer):
            return []
        text = StringImm(context if self.context else "")
        if isinstance(info, TupleStructInfo):
            if not trusted or not isinstance(known, TupleStructInfo):
                self.emit("check_tuple_info", value, len(info.fields), text)
            fields = [(self.field(value, i), field) for i, field in enumerate(info.fields)]
            return [m for v, field in fields for m in self.check(v, field, context, trusted=trusted, static=static)]
        if isinstance(info, FuncStructInfo):
            if not isinstance(known, FuncStructInfo):
                self.emit("check_func_info", value, text)
            return []
        extents = _extents(info)
        if isinstance(info, TensorStructInfo):
            if not static and all(isinstance(e, IntImm) for e in extents or ()):
                return []
            if not (trusted and known is not None and _is_of_kind(known, info)):
                self.emit("check_tensor_info", value, info.ndim, DataTypeImm(info.dtype), text)
        elif isinstance(info, ShapeStructInfo):
            if not (trusted and known is not None and _is_of_kind(known, info)):
                self.emit("check_shape_info", value, info.ndim, text)
        elif isinstance(info, PrimStructInfo) and not (trusted and known is not None and _is_of_kind(known, info)):
            self.emit("check_prim_value_info", value, DataTypeImm(info.dtype), text)
        return [] if extents is None else [_Match(value, isinstance(info, PrimStructInfo), extents, text)]

    def field(self, value: Expr, index: int) -> Expr:
        """A field of a value; `operand` gives it a name once it is used."""
        if isinstance(value, Tuple):
            return value.fields[index]
        if isinstance(value.struct_info_, TupleStructInfo):
            return TupleGetItem(value, index)
        return self.packed("vm.builtin.tuple_getitem", value, index, info=ObjectStructInfo())

    def operand(self, value: Expr) -> Expr:
        """A value as an argument: a field gets one name for all its uses."""
        if isinstance(value, TupleGetItem):
            known = self.fields.get(value)
            if known is None:
                tuple_value = self.operand(value.tuple_value)
                known = self.builder_.normalize_argument(TupleGetItem(tuple_value, value.index))
                self.fields[value] = known
            return known
        if isinstance(value, Call):
            known = self.fields.get(value)
            if known is None:
                args = [self.operand(value.args[0]), *value.args[1:]]
                known = self.fields[value] = self.builder_.normalize_argument(value.replace(args=args))
            return known
        return value

    def emit(self, function: str, value: Expr, *args: Any) -> None:
        self.builder_.emit(self.packed(f"vm.builtin.{function}", self.operand(value), *args), "_")

    def match(self, pending: list[_Match]) -> None:
        """Stores the extents that define variables, computes what is known by that, and checks all others."""
        self.unchecked += self.run_matches(pending)
        if self.compute():
            # What was compared to an expression before it could be computed is compared now.
            self.unchecked = self.run_matches(self.unchecked)

    def run_matches(self, pending: list[_Match]) -> list[_Match]:
        """Emits the matches; returns those in which an extent could not be compared yet."""
        left = []
        for item in pending:
            codes = [self.match_code(e) for e in item.extents]
            flat = [number for code in codes for number in code]
            undecided = [code == MatchShapeCode.NO_OP for code, _ in codes]
            if any(undecided):
                left.append(item)
            if item.is_number and not all(undecided):
                self.emit("match_prim_value", item.value, self.heap, *flat, item.text)
            elif not item.is_number and not (undecided and all(undecided)):
                self.emit("match_shape", item.value, self.heap, len(codes), *flat, item.text)
        return left

    def match_code(self, extent: PrimExpr) -> tuple[int, int]:
        if isinstance(extent, IntImm):
            return MatchShapeCode.ASSERT_EQUAL_TO_IMM, extent.value
        slot = self.slots.of(extent)
        if slot.known:
            return MatchShapeCode.ASSERT_EQUAL_TO_LOAD, slot.index
        if isinstance(extent, TirVar):
            slot.known = True
            return MatchShapeCode.STORE_TO_HEAP, slot.index
        return MatchShapeCode.NO_OP, 0

    # -- computed extents --

    def compute(self) -> bool:
        """Calls a function that computes all expressions whose variables are known by now, if there are any."""
        ready = [
            s for s in self.slots.all if not s.known and not isinstance(s.expr, TirVar) and self.computable(s.expr)
        ]
        if not ready:
            return False
        heap = decl_buffer((IntImm("int64", len(self.slots.all)),), "int64", "H")
        values: dict[TirVar, PrimExpr] = {}
        for slot in self.slots.all:
            if isinstance(slot.expr, TirVar) and slot.known:
                loaded = BufferLoad(heap, [IntImm("int64", slot.index)])
                values[slot.expr] = loaded if slot.expr.dtype == "int64" else loaded.astype(slot.expr.dtype)
        stores: list[Stmt] = []
        for slot in ready:
            value = substitute(slot.expr, values)
            value = value if value.dtype == "int64" else value.astype("int64")
            stores.append(BufferStore(heap, value, [IntImm("int64", slot.index)]))
            slot.known = True
        handle = TirVar("h", "handle")
        func = PrimFunc([handle], flat_seq(stores), None, {handle: heap}, {"tir.is_host_func": True})
        self.builder_.emit(Call(self.builder_.add_func(func, "shape_func"), [self.heap]), "_")
        return True

    def computable(self, expr: PrimExpr) -> bool:
        return all(self.slots.of(v).known for v in tir_vars_in_struct_info(expr))

    # -- the body --

    def visit_match_cast_(self, binding: MatchCast) -> None:
        value = self.visit_expr(binding.value)
        context = f"in {self.scope_name}: match_cast of `{binding.var.name}`: "
        self.match(self.check(value, binding.struct_info, context))
        super().visit_match_cast_(binding)

    def visit_if_(self, op: If) -> Expr:
        # What becomes known in one branch is not known behind it, nor in the other.
        known, unchecked = [s.known for s in self.slots.all], self.unchecked

        def restore() -> None:
            self.unchecked = unchecked
            for slot, was in zip(self.slots.all, known, strict=True):
                slot.known = was

        true_branch = self.visit_with_new_scope(op.true_branch)
        restore()
        false_branch = self.visit_with_new_scope(op.false_branch)
        restore()
        if true_branch is op.true_branch and false_branch is op.false_branch:
            return op
        return If(op.cond, true_branch, false_branch, span=op.span)

    def visit_shape_expr_(self, op: ShapeExpr) -> Expr:
        if all(isinstance(v, IntImm) for v in op.values):
            return op
        codes = [number for v in op.values for number in self.make_code(v)]
        info = ShapeStructInfo(ndim=len(op.values))
        return self.packed("vm.builtin.make_shape", self.heap, len(op.values), *codes, info=info)

    def visit_prim_value_(self, op: PrimValue) -> Expr:
        if not op.value.dtype.is_int or isinstance(op.value, IntImm):
            return op
        code, operand = self.make_code(op.value)
        return self.packed("vm.builtin.make_prim_value", self.heap, code, operand, info=op.struct_info)

    def make_code(self, value: PrimExpr) -> tuple[int, int]:
        if isinstance(value, IntImm):
            return MakeShapeCode.USE_IMM, value.value
        slot = self.slots.of(value)
        if not slot.known:
            unknown = [v.name for v in tir_vars_in_struct_info(value) if not self.slots.of(v).known]
            names = " and ".join(f"`{n}`" for n in unknown)
            raise WellFormedError(
                f"in {self.scope_name}: `{value}` has no value, since {names} has none: "
                "give it one by the shape of a parameter or a match_cast"
            )
        return MakeShapeCode.LOAD_SHAPE, slot.index

    def visit_struct_info(self, info: StructInfo) -> StructInfo:
        return info

    def visit_function_(self, op: Function) -> Expr:
        return op


def _is_of_kind(known: StructInfo, info: StructInfo) -> bool:
    """Whether a value of which `known` is known needs no check that it is one of `info`, but for its extents."""
    if type(info) is not type(known):
        return False
    if isinstance(info, TensorStructInfo) and isinstance(known, TensorStructInfo):
        return info.ndim in (-1, known.ndim) and info.dtype in (VOID, known.dtype)
    if isinstance(info, ShapeStructInfo) and isinstance(known, ShapeStructInfo):
        return info.ndim in (-1, known.ndim)
    return True


def _extents(info: StructInfo) -> Sequence[PrimExpr] | None:
    """What is compared with numbers when the program runs."""
    if isinstance(info, TensorStructInfo):
        return info.extents
    if isinstance(info, PrimStructInfo):
        return [info.value] if info.value is not None and info.dtype.is_int else None
    return info.values if isinstance(info, ShapeStructInfo) else None
