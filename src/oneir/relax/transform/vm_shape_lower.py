"""VMShapeLower: symbolic shapes become numbers in a heap, which the program fills, computes with and reads.

    def main(x: R.Tensor(("n", 4))):         heap = R.call_builtin_with_ctx("vm.builtin.alloc_shape_heap", ...)
        ... R.shape([n, n * 2]) ...     ->   _ = R.call_packed("vm.builtin.match_shape", x, heap, ...)
                                             _ = cls.shape_func(heap)
                                             s = R.call_packed("vm.builtin.make_shape", heap, ...)

Each symbolic expression of a function has a slot of the heap. Arguments, and what `match_cast` asserts, are checked and
fill the slots of variables; a `shape_func`, a TensorIR function of its own, computes the expressions that became known.
"""

from __future__ import annotations

from typing import Any

from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.structural import structural_digest
from ...ir.transform import ModulePass, Pass, PassInfo
from ...runtime.error import WellFormedError
from ...runtime.vm.builtins import MakeShapeCode, MatchShapeCode
from ...tir.buffer import decl_buffer
from ...tir.expr import BufferLoad
from ...tir.function import PrimFunc
from ...tir.stmt import BufferStore, Stmt, flat_seq
from ...tir.stmt_functor import substitute
from ..analysis.struct_info import is_base_of, tir_vars_in_struct_info
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
    VarBinding,
)
from ..expr_functor import PyExprMutator
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
)

NOTHING = TupleStructInfo([])


def VMShapeLower(*, emit_err_ctx: bool = True) -> Pass:
    """A pass that lowers symbolic shapes. `emit_err_ctx`: checks say of which argument they are."""
    return ModulePass(lambda mod, ctx: _transform(mod, emit_err_ctx), PassInfo(0, "VMShapeLower"))


def _transform(mod: IRModule, context: bool) -> IRModule:
    lower = _Lower(mod, context)
    for var, func in mod.functions_items():
        if isinstance(func, Function):
            lower.builder_.update_func(var, lower.lower(func, var.name_hint))
    return lower.builder_.get()


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
        self.unchecked: list[tuple[Expr, StructInfo, str]] = []
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
        where = f"in {name}: argument"
        for param in func.params:
            self.check(param, param.struct_info, f"{where} `{param.name}`: ", trusted=None)
        for param in func.params:
            self.match(param, param.struct_info, f"{where} `{param.name}`: ")
        self.compute()
        start = builder.end_block()
        body = self.visit_expr(func.body)
        assert isinstance(body, SeqExpr)
        builder.begin_binding_block()
        result = body.body
        info = func.ret_struct_info
        if result.struct_info_ is not None and not is_base_of(info, result.struct_info, builder.analyzer):
            self.check(result, info, f"in {name}: result: ", trusted=result.struct_info)
            self.match(result, info, f"in {name}: result: ")
        end = builder.end_block()
        builder.end_scope()
        blocks = [b for b in (start, *body.blocks, end) if b.bindings]
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

    def check(self, value: Expr, info: StructInfo, context: str, trusted: StructInfo | None) -> None:
        """Checks what does not depend on extents: the kind of a value, dtypes, numbers of dimensions."""
        text = StringImm(context if self.context else "")
        if trusted is not None and _is_of_kind(trusted, info):
            return
        if isinstance(info, TensorStructInfo):
            dtype: list[Expr] = [DataTypeImm(info.dtype)] if info.dtype != VOID else [StringImm("")]
            self.emit(self.packed("vm.builtin.check_tensor_info", value, info.ndim, *dtype, text))
        elif isinstance(info, ShapeStructInfo):
            self.emit(self.packed("vm.builtin.check_shape_info", value, info.ndim, text))
        elif isinstance(info, PrimStructInfo):
            self.emit(self.packed("vm.builtin.check_prim_value_info", value, DataTypeImm(info.dtype), text))
        elif isinstance(info, FuncStructInfo):
            self.emit(self.packed("vm.builtin.check_func_info", value, text))
        elif isinstance(info, TupleStructInfo):
            known = trusted.fields if isinstance(trusted, TupleStructInfo) else None
            if known is None:
                self.emit(self.packed("vm.builtin.check_tuple_info", value, len(info.fields), text))
            for i, field in enumerate(info.fields):
                if type(field) is not ObjectStructInfo:
                    self.check(self.field(value, i), field, context, known[i] if known is not None else None)

    def field(self, value: Expr, index: int) -> Expr:
        if isinstance(value, Tuple):
            return value.fields[index]
        return self.builder_.normalize_argument(TupleGetItem(value, index))

    def emit(self, call: Call) -> None:
        self.builder_.emit(call, "_")

    def match(self, value: Expr, info: StructInfo, context: str) -> None:
        """Stores the extents that define variables, and checks all others."""
        if isinstance(info, TupleStructInfo):
            for i, field in enumerate(info.fields):
                if _has_extents(field):
                    self.match(self.field(value, i), field, context)
            return
        text = StringImm(context if self.context else "")
        if isinstance(info, PrimStructInfo):
            if info.value is not None and info.dtype.is_int:
                code, operand = self.match_code(info.value)
                self.emit(self.packed("vm.builtin.match_prim_value", value, self.heap, code, operand, text))
                if code == MatchShapeCode.NO_OP:
                    self.unchecked.append((value, info, context))
            return
        extents = _extents(info)
        if extents is None:
            return
        codes = [number for extent in extents for number in self.match_code(extent)]
        self.emit(self.packed("vm.builtin.match_shape", value, self.heap, len(extents), *codes, text))
        if MatchShapeCode.NO_OP in codes[::2]:
            self.unchecked.append((value, info, context))

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

    def compute(self) -> None:
        """Calls a function that computes all expressions whose variables are known by now."""
        ready = [
            s for s in self.slots.all if not s.known and not isinstance(s.expr, TirVar) and self.computable(s.expr)
        ]
        if not ready:
            return
        heap = decl_buffer((len(self.slots.all),), "int64", "H")
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
        self.emit(Call(self.builder_.add_func(func, "shape_func"), [self.heap]))
        # What was compared to an expression before it could be computed is compared now.
        unchecked, self.unchecked = self.unchecked, []
        for value, info, context in unchecked:
            self.match(value, info, context)

    def computable(self, expr: PrimExpr) -> bool:
        return all(self.slots.of(v).known for v in tir_vars_in_struct_info(expr))

    # -- the body --

    def visit_match_cast_(self, binding: MatchCast) -> None:
        value = self.visit_expr(binding.value)
        context = f"in {self.scope_name}: match_cast of `{binding.var.name}`: "
        info = binding.struct_info
        self.check(value, info, context, trusted=value.struct_info_)
        self.match(value, info, context)
        self.compute()
        # From here on the cast is a name of the value, known to be what was checked.
        self.builder_.emit_normalized(VarBinding(binding.var, value, binding.span))

    def visit_if_(self, op: If) -> Expr:
        # What becomes known in one branch is not known behind it, nor in the other.
        known = [s.known for s in self.slots.all]

        def restore() -> None:
            for slot, was in zip(self.slots.all, known, strict=True):
                slot.known = was

        true_branch = self.visit_with_new_scope(op.true_branch)
        restore()
        false_branch = self.visit_with_new_scope(op.false_branch)
        restore()
        if true_branch is op.true_branch and false_branch is op.false_branch:
            return op
        return If(op.cond, true_branch, false_branch, span=op.span)

    def visit_shape_(self, op: ShapeExpr) -> Expr:
        if all(isinstance(v, IntImm) for v in op.values):
            return op
        codes = [number for v in op.values for number in self.make_code(v)]
        info = ShapeStructInfo(ndim=len(op.values))
        return self.packed("vm.builtin.make_shape", self.heap, len(op.values), *codes, info=info)

    def visit_prim_value_(self, op: PrimValue) -> Expr:
        if not op.value.dtype.is_int or isinstance(op.value, IntImm):
            return op
        code, operand = self.make_code(op.value)
        info = PrimStructInfo(op.value.dtype)
        return self.packed("vm.builtin.make_prim_value", self.heap, code, operand, info=info)

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
    if isinstance(info, TupleStructInfo) or type(info) is not type(known):
        return False
    if isinstance(info, TensorStructInfo) and isinstance(known, TensorStructInfo):
        return info.ndim in (-1, known.ndim) and info.dtype in (VOID, known.dtype)
    return True


def _extents(info: StructInfo) -> Array[PrimExpr] | None:
    if isinstance(info, TensorStructInfo):
        return info.extents
    return info.values if isinstance(info, ShapeStructInfo) else None


def _has_extents(info: StructInfo) -> bool:
    if isinstance(info, TupleStructInfo):
        return any(map(_has_extents, info.fields))
    if isinstance(info, PrimStructInfo):
        return info.value is not None
    return _extents(info) is not None
