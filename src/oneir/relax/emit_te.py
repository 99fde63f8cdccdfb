"""From graph values to tensor expressions and back: what `BlockBuilder.call_te` does.

A graph function over tensors of struct info becomes a TensorIR function over placeholders, and a `call_tir` of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import FunctionType
from typing import Any

from ..ir.container import Array
from ..ir.expr import BinaryOpExpr, FloatImm, IntImm, PrimExpr
from ..ir.expr import Var as TirVar
from ..ir.visitor import Visitor
from ..runtime.error import InvalidValue, TypeMismatch
from ..te import Tensor, compute
from ..te.create_prim_func import create_prim_func
from ..te.tensor import ComputeOp, PlaceholderOp
from ..tir.function import PrimFunc
from ..tir.stmt_functor import substitute
from .analysis.struct_info import tir_vars_in_struct_info
from .expr import Constant, DataTypeImm, Expr, ShapeExpr, StringImm, Tuple, TupleGetItem, Var, as_graph_expr
from .struct_info import PrimStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo


class TEPlaceholderOp(PlaceholderOp, shared=True):
    """The operation of a tensor that stands for a graph value."""

    value: Any = None


def te_tensor(value: Expr, tir_var_map: Mapping[TirVar, PrimExpr] | None = None, name: str = "rxplaceholder") -> Tensor:
    """A placeholder for a graph tensor of known shape, its symbolic variables replaced by those of the map.

    Raises `TypeMismatch` for anything else.
    """
    info = value.struct_info
    if not isinstance(info, TensorStructInfo) or info.extents is None:
        raise TypeMismatch(
            f"a tensor expression needs a tensor of known shape, found `{value}` with struct info {info}"
        )
    return TEPlaceholderOp(
        name, shape=_replaced(info.extents, tir_var_map or {}), dtype=info.dtype, value=value
    ).output(0)


def _replaced(values: Sequence[PrimExpr], mapping: Mapping[TirVar, PrimExpr]) -> list[PrimExpr]:
    return [substitute(v, mapping) for v in values]


class _Arguments:
    """Turns the arguments of a call into those of the TE function, and remembers what its kernel takes: tensors, and
    numbers that are known only when it runs.
    """

    def __init__(self) -> None:
        self.parameters: list[Tensor | TirVar] = []
        self.values: list[Expr] = []
        self.inner: dict[TirVar, PrimExpr] = {}
        self.outer: dict[TirVar, TirVar] = {}

    def rename(self, info: StructInfo | PrimExpr) -> None:
        """Gives each symbolic variable one of the kernel's own."""
        for var in tir_vars_in_struct_info(info):
            if var not in self.inner:
                new = TirVar(var.name, var.type_annotation)
                self.inner[var], self.outer[new] = new, var

    def convert(self, value: Any) -> Any:
        if isinstance(value, Expr):
            return self.expression(value)
        if isinstance(value, (list, tuple)):
            return [self.convert(v) for v in value] if not isinstance(value, tuple) else tuple(map(self.convert, value))
        if isinstance(value, dict):
            return {k: self.convert(v) for k, v in value.items()}
        if isinstance(value, StructInfo):
            raise TypeMismatch(f"struct info cannot be an argument of a tensor expression, found {value}")
        if isinstance(value, PrimExpr):
            return self.number(value)
        if isinstance(value, Tensor):
            raise TypeMismatch(
                f"expected a graph value, found the tensor expression `{value.name}`: "
                f'declare relax.Var("{value.name}", relax.TensorStructInfo(shape, dtype)) instead of te.placeholder'
            )
        return value

    def number(self, value: PrimExpr) -> PrimExpr:
        self.rename(value)
        return substitute(value, self.inner)

    def expression(self, value: Expr) -> Any:
        if isinstance(value, (StringImm, DataTypeImm)):
            return value.value
        if isinstance(value, Tuple):
            return [self.expression(f) for f in value.fields]
        info = value.struct_info
        if isinstance(info, TensorStructInfo):
            self.rename(info)
            name = value.name if isinstance(value, Var) else self.letter()
            made = te_tensor(value, self.inner, name)
            return self.parameter(made, value)
        if isinstance(info, ShapeStructInfo) and info.values is not None:
            return [self.number(v) for v in info.values]
        if isinstance(info, PrimStructInfo) and info.value is not None:
            return self.number(info.value)
        if isinstance(info, PrimStructInfo) and info.dtype is not None:
            name = value.name if isinstance(value, Var) else self.letter()
            return self.parameter(TirVar(name, info.dtype), value)
        if isinstance(info, TupleStructInfo):
            return [self.expression(TupleGetItem(value, i)) for i in range(len(info.fields))]
        raise TypeMismatch(f"`{value}` cannot be an argument of a tensor expression; its struct info is {info}")

    def parameter(self, made: Any, value: Expr) -> Any:
        self.parameters.append(made)
        self.values.append(value)
        return made

    def letter(self) -> str:
        """How a parameter that has no name of its own is called: by the letter of its position."""
        position = len(self.parameters)
        return chr(ord("A") + position) if position < 26 else f"input{position}"


class _Unbound(Visitor):
    """The symbolic variables that a TE function uses and no shape of an argument or a result gives."""

    def __init__(self) -> None:
        super().__init__()
        self.used: dict[TirVar, None] = {}
        self.bound: set[TirVar] = set()

    def visit_Var(self, var: TirVar) -> None:
        if isinstance(var, TirVar):
            self.used[var] = None

    def visit_IterVar(self, iter_var: Any) -> None:
        self.bound.add(iter_var.var)
        self.visit(iter_var.dom)

    def visit_TEPlaceholderOp(self, op: TEPlaceholderOp) -> None:
        for extent in op.shape:
            self.visit(extent)


def gen_call_tir_inputs(
    func: Callable[..., Any], *args: Any, **kwargs: Any
) -> tuple[PrimFunc, list[Expr], list[StructInfo], ShapeExpr | None]:
    """The function, arguments, result and symbolic arguments of the `call_tir` that computes a TE function.

    `primfunc_attrs` are attributes for the function; `primfunc_name_hint` is left for the caller. Raises `TypeMismatch`
    for an argument that has no tensor expression and for a result that is none.
    """
    func_attrs = kwargs.pop("primfunc_attrs", None)
    kwargs.pop("primfunc_name_hint", None)
    arguments = _Arguments()
    te_args = [arguments.convert(_graph_argument(a)) for a in args]
    te_kwargs = {key: arguments.convert(value) for key, value in kwargs.items()}
    made = func(*te_args, **te_kwargs)
    outputs = [_own(t, arguments.parameters) for t in (made if isinstance(made, (list, tuple, Array)) else [made])]
    for output in outputs:
        if not isinstance(output, Tensor):
            name = getattr(func, "__name__", func)
            raise TypeMismatch(f"the function `{name}` of emit_te must return tensor expressions, found {output!r}")
    unbound = _unbound_variables(arguments, outputs)
    # A kernel that comes with its schedule has chosen the dtypes of its indices.
    index_dtype = None if func_attrs and func_attrs.get("tir.is_scheduled") else "int64"
    prim_func = create_prim_func([*arguments.parameters, *outputs, *unbound], index_dtype).without_attr("global_symbol")
    if func_attrs:
        prim_func = prim_func.with_attrs(func_attrs)
    infos: list[StructInfo] = [TensorStructInfo(_replaced(o.shape, arguments.outer), o.dtype) for o in outputs]
    tir_vars = ShapeExpr([arguments.outer[v] for v in unbound]) if unbound else None
    return prim_func, arguments.values, infos, tir_vars


def graph_values(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Expr]:
    """The tensors among the arguments of a TE function, in the order in which its kernel takes them."""
    arguments = _Arguments()
    for value in [*args, *kwargs.values()]:
        arguments.convert(_graph_argument(value))
    return arguments.values


def key_of(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable | None:
    """A key that is equal where a TE function makes the same kernel, up to names; None if that is not known.

    It is for the functions of operators, which compute what they give from their arguments alone. Extents may be
    variables, and what is computed from two numbers.
    """
    own = isinstance(func, FunctionType) and func.__module__.startswith(_OPERATORS)
    if not own or "<locals>" in func.__qualname__:
        return None
    try:
        return func, _key(args), tuple([(name, _key(value)) for name, value in kwargs.items()])
    except _UnknownKey:
        return None


_OPERATORS = tuple(f"{__name__.split('.')[0]}.{name}." for name in ("topi", "relax.op"))


class _UnknownKey(Exception):
    """Nothing says which arguments are equal to this one."""


def _key(value: Any) -> Hashable:
    if value is None or isinstance(value, (bool, int, str)):
        return type(value), value
    if isinstance(value, float):
        return float, value.hex()
    if isinstance(value, (list, tuple)):
        return tuple([_key(v) for v in value])
    if isinstance(value, (IntImm, FloatImm)):
        return str(value.dtype), _key(value.value)
    if isinstance(value, TirVar):
        return TirVar, value
    if isinstance(value, BinaryOpExpr):
        return type(value), _key(value.a), _key(value.b)
    if isinstance(value, (StringImm, DataTypeImm)):
        return _key(value.value)
    if isinstance(value, Tuple):
        return _key(tuple(value.fields))
    info = value.struct_info if isinstance(value, Expr) else None
    if isinstance(info, TensorStructInfo) and info.extents is not None:
        return Tensor, str(info.dtype), _key(tuple(info.extents))
    if isinstance(info, ShapeStructInfo) and info.values is not None:
        return _key(tuple(info.values))
    if isinstance(info, PrimStructInfo) and info.value is not None:
        return _key(info.value)
    raise _UnknownKey


def _graph_argument(value: Any) -> Any:
    """NumPy arrays and runtime tensors as constants; anything else as it is."""
    return as_graph_expr(value) if hasattr(value, "__dlpack__") and not isinstance(value, (Expr, Constant)) else value


def _own(output: Any, inputs: list[Tensor | TirVar]) -> Any:
    """An output that is an input as a tensor of its own, since a function writes what it returns."""
    if isinstance(output, Tensor) and isinstance(output.op, PlaceholderOp):
        if not any(isinstance(i, Tensor) and output.op is i.op for i in inputs):
            raise InvalidValue(f"the placeholder `{output.name}` is returned but is none of the function's arguments")
        return compute(output.shape, lambda *i: output(*i), name="T_identity")
    return output


def _unbound_variables(arguments: _Arguments, outputs: list[Tensor]) -> list[TirVar]:
    if not arguments.outer:
        return []
    found = _Unbound()
    for output in outputs:
        found(output)
        if isinstance(output.op, ComputeOp):
            found(output.op)
    tensors = [p for p in arguments.parameters if isinstance(p, Tensor)]
    for tensor in (*tensors, *outputs):
        for extent in tensor.shape:
            found(extent)
        found.bound.update(e for e in tensor.shape if isinstance(e, TirVar))
    return [v for v in found.used if v not in found.bound and v in arguments.outer]
