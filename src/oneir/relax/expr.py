"""Graph expressions: variables, calls, tuples, shapes, constants, conditions, functions and their bindings.

    x = Var("x", TensorStructInfo((n, 4), "float32"))
    y = Call(Op.get("relax.exp"), [x])

A function's body is a `SeqExpr`: blocks of bindings, then the result. In a `DataflowBlock` nothing has a side effect,
and its `DataflowVar`s are not seen outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..ir.attrs import DictAttrs, as_dict_attrs
from ..ir.container import Array
from ..ir.dtype import DataType
from ..ir.expr import FloatImm, GlobalVar, PrimExpr, RelaxExpr, as_expr
from ..ir.expr import IntImm as _IntImm
from ..ir.expr import StringImm as _TirStringImm
from ..ir.module import BaseFunc
from ..ir.node import Node, as_array, attr, binder, child, derived, meta
from ..ir.op import Fact, Op
from ..ir.operators import call_global
from ..ir.span import SequentialSpan, Span
from ..runtime.dtype import numpy_dtype
from ..runtime.error import InvalidValue, TypeMismatch
from ..runtime.hook import Hook
from ..runtime.tensor import Tensor, tensor
from .struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_extents,
    make_shape_expr,
    tensor_struct_info_of,
)

Expr = RelaxExpr
"""Base of graph expressions."""


class Id(Node, shared=True):
    """What makes a variable itself; variables made from one `Id` stand for one value."""

    name_hint: str


graph_operator: Hook[..., Expr] = Hook("graph_operator", "oneir.relax.op")
"""The call of an operator, `graph_operator("add", x, y)`: Python's operators make calls of those of `relax.op`."""

inspect_tensor: Hook[[Expr, str], Any] = Hook("inspect_tensor", "oneir.relax.op")
"""What an attribute of a tensor is when the program runs: `inspect_tensor(x, "ndim")`."""

bind_params: Hook[[Any, Mapping[Any, Any]], Function] = Hook("bind_params", "oneir.relax.transform.bind_params")
bind_symbolic_vars: Hook[[Any, Mapping[Any, Any]], Function] = Hook(
    "bind_symbolic_vars", "oneir.relax.transform.bind_symbolic_vars"
)


class ExprWithOp(RelaxExpr):
    """Python's operators over graph expressions; each makes a call of the operator of that name."""

    def __add__(self, other: Any) -> Expr:
        return graph_operator("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return graph_operator("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return graph_operator("subtract", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return graph_operator("subtract", other, self)

    def __mul__(self, other: Any) -> Expr:
        return graph_operator("multiply", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return graph_operator("multiply", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return graph_operator("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return graph_operator("divide", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return graph_operator("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return graph_operator("floor_divide", other, self)

    def __mod__(self, other: Any) -> Expr:
        return graph_operator("floor_mod", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return graph_operator("floor_mod", other, self)

    def __pow__(self, other: Any) -> Expr:
        return graph_operator("power", self, other)

    def __rpow__(self, other: Any) -> Expr:
        return graph_operator("power", other, self)

    def __neg__(self) -> Expr:
        return graph_operator("negative", self)

    def __lt__(self, other: Any) -> Expr:
        return graph_operator("less", self, other)

    def __le__(self, other: Any) -> Expr:
        return graph_operator("less_equal", self, other)

    def __gt__(self, other: Any) -> Expr:
        return graph_operator("greater", self, other)

    def __ge__(self, other: Any) -> Expr:
        return graph_operator("greater_equal", self, other)

    def astype(self, dtype: str) -> Expr:
        """The tensor converted to another dtype."""
        return graph_operator("astype", self, dtype)

    def _inspected(self, name: str) -> Any:
        if not isinstance(self.struct_info_, TensorStructInfo):
            raise AttributeError(f"`{self}` is not known to be a tensor, so it has no {name}: {self.struct_info_}")
        return inspect_tensor(self, name)

    @property
    def dtype(self) -> Any:
        """The dtype of a tensor when the program runs: `x.dtype.type_code`, `x.dtype.bits`, `x.dtype.lanes`."""
        return self._inspected("dtype")

    @property
    def ndim(self) -> Expr:
        """The number of dimensions of a tensor when the program runs."""
        return self._inspected("ndim")

    @property
    def shape(self) -> Any:
        """The extents of a tensor when the program runs: `x.shape[axis]`."""
        return self._inspected("shape")

    @property
    def strides(self) -> Any:
        """The strides of a tensor when the program runs, in elements: `x.strides[axis]`."""
        return self._inspected("strides")

    @property
    def byte_offset(self) -> Expr:
        """The bytes before the first element of a tensor when the program runs."""
        return self._inspected("byte_offset")

    @property
    def elem_offset(self) -> Expr:
        """The elements before the first element of a tensor when the program runs."""
        return self._inspected("elem_offset")

    def __call__(self, *args: Any, attrs: Mapping[str, Any] | None = None) -> Call:
        """A call of a value that is a function."""
        return Call(self, [as_graph_expr(a) for a in args], attrs)

    def __getitem__(self, index: int) -> Expr:
        """A field of a tuple."""
        return TupleGetItem(self, index)

    def __iter__(self) -> Iterator[Expr]:
        info = getattr(self, "struct_info_", None)
        if not isinstance(info, TupleStructInfo):
            raise TypeMismatch(f"only a tuple can be iterated over; `{self}` has struct info {info}")
        return iter([self[i] for i in range(len(info.fields))])


class Var(ExprWithOp, shared=True):
    """A variable: an object of its own, whatever its name."""

    name: str = attr(alias="name_hint")
    struct_info_: Any = attr(default=None, defines=True, alias="struct_info")
    vid: Id = derived()
    is_variable: ClassVar[bool] = True

    def __init__(
        self, name_hint: str | Id, struct_info: StructInfo | None = None, span: Span | SequentialSpan | None = None
    ):
        if not isinstance(name_hint, (str, Id)):
            raise TypeMismatch(f"the name of a variable is a str, found {name_hint!r}")
        if struct_info is not None and not isinstance(struct_info, StructInfo):
            struct_info = as_struct_info(struct_info)
        self.vid = Id(name_hint) if isinstance(name_hint, str) else name_hint
        self.name = self.vid.name_hint
        self.struct_info_ = struct_info
        self.span = span

    @property
    def name_hint(self) -> str:
        """The variable's name."""
        return self.name


class DataflowVar(Var, shared=True, init=False):
    """A variable seen only inside its dataflow block."""


def as_struct_info(value: Any) -> StructInfo:
    """What stands for struct info (such as `R.Tensor` called with its arguments) as struct info.

    Raises `TypeMismatch` for anything else.
    """
    if isinstance(value, StructInfo):
        return value
    convert = getattr(value, "as_struct_info", None)
    if convert is None:
        raise TypeMismatch(f"expected struct info, such as R.Tensor((2, 3), 'float32'), found {value!r}")
    return convert()


class Call(ExprWithOp):
    """`op` (an operator, a function of the module, an external function, a variable) applied to `args`.

    `attrs` are the compile-time arguments of an operator. `sinfo_args` say what the call gives, for operators that
    cannot know, such as `call_tir`.
    """

    op: Any = child()
    args: Array[Expr] = child(converter=as_array)
    attrs: DictAttrs = attr(default=None)
    sinfo_args: Array[StructInfo] = child(default=(), converter=as_array)

    def __init__(
        self,
        op: Any,
        args: Any,
        attrs: Mapping[str, Any] | DictAttrs | None = None,
        sinfo_args: Any = None,
        span: Span | SequentialSpan | None = None,
    ):
        self.op = Op.get(op) if isinstance(op, str) else op
        if not isinstance(self.op, (Op, Expr)):
            raise TypeMismatch(f"expected an operator or a function to call, found {op!r}")
        self.args = Array(args)
        for a in self.args:
            if not isinstance(a, Expr):
                raise TypeMismatch(f"the arguments of a graph call are graph expressions, found {a!r}")
        self.attrs = as_op_attrs(attrs, self.op)
        infos = () if sinfo_args is None else (sinfo_args,) if isinstance(sinfo_args, StructInfo) else sinfo_args
        self.sinfo_args = Array(as_struct_info(s) for s in infos)
        self.span = span
        self.struct_info_ = None


class OpAttrs(DictAttrs):
    """The compile-time arguments of an operator's call, by name: `call.attrs.axis`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values_by_name[name]
        except KeyError:
            raise AttributeError(f"the call has no attribute {name!r}; it has {', '.join(self) or 'none'}") from None


TAttrs: Fact[type[OpAttrs]] = Fact("TAttrs")
"""The class of the attributes of an operator's calls, one of `relax.op.op_attrs`; every registered operator has it."""

_NO_ATTRS = OpAttrs()


def as_op_attrs(attrs: Mapping[str, Any] | DictAttrs | None, op: Any) -> OpAttrs:
    """Attributes of a call of `op`, or none, in the operator's class."""
    cls = TAttrs.of(op) or OpAttrs
    if isinstance(attrs, OpAttrs) and type(attrs) is cls:
        return attrs
    if not attrs and cls is OpAttrs:
        return _NO_ATTRS
    return cls(as_dict_attrs(attrs).values_by_name)


class If(ExprWithOp):
    """The value of `true_branch` if `cond` holds, else that of `false_branch`."""

    cond: Expr = child()
    true_branch: SeqExpr = child(converter=lambda body: as_seq_expr(body))
    false_branch: SeqExpr = child(converter=lambda body: as_seq_expr(body))

    def _derive(self) -> None:
        self.struct_info_ = None


_ANY_FUNCTION = FuncStructInfo.opaque_func(ret=ObjectStructInfo(), purity=False)


class Tuple(ExprWithOp):
    """Several values as one."""

    fields: Array[Expr] = child(converter=lambda fields: Array(as_graph_expr(f) for f in fields))

    def _derive(self) -> None:
        infos: list[Any] = [getattr(f, "struct_info_", None) for f in self.fields]
        # A function of the module is a value whatever is known of it.
        functions = [isinstance(f, GlobalVar) for f in self.fields]
        infos = [_ANY_FUNCTION if i is None and f else i for i, f in zip(infos, functions, strict=True)]
        self.struct_info_ = None if None in infos else TupleStructInfo(infos)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> Expr:
        return self.fields[index]

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.fields)


class TupleGetItem(ExprWithOp):
    """One value of a tuple. A negative index counts from the end, where the tuple's length is known."""

    tuple_value: Expr = child()
    index: int = attr(converter=int)

    def _derive(self) -> None:
        self.struct_info_ = None
        info = getattr(self.tuple_value, "struct_info_", None)
        if info is None or type(info) is ObjectStructInfo:
            if self.index < 0:
                raise InvalidValue(f"field {self.index} of `{self.tuple_value}`: the length of the tuple is not known")
            return
        if not isinstance(info, TupleStructInfo):
            raise TypeMismatch(f"expected a tuple to take field {self.index} of, found `{self.tuple_value}`: {info}")
        if not -len(info.fields) <= self.index < len(info.fields):
            # IndexError ends Python's iteration and unpacking.
            raise TupleIndexError(f"field {self.index} of a tuple of {len(info.fields)}: {info}")
        self.index %= len(info.fields)
        self.struct_info_ = info.fields[self.index]


class TupleIndexError(InvalidValue, IndexError):
    """An index outside of a tuple."""


class ShapeExpr(ExprWithOp):
    """A shape, its extents integers or expressions over symbolic variables."""

    values: Array[PrimExpr] = child(converter=lambda values: as_extents(values), defines=True)

    def _derive(self) -> None:
        self.struct_info_ = ShapeStructInfo(self.values)

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


@make_shape_expr.provide
def _shape_expr(extents: Any) -> ShapeExpr:
    return ShapeExpr(extents)


def make_shape(shape: Any) -> ShapeExpr:
    """A shape from a list or tuple of extents."""
    if isinstance(shape, (list, tuple)):
        return ShapeExpr(shape)
    raise TypeMismatch(f"expected a list or tuple of extents, found {shape!r}")


class Constant(ExprWithOp, key="relax.expr.Constant"):
    """A tensor that is known while compiling. Its data is referred to, not copied.

    By its `name`, that of the parameter it is bound to, it can be replaced in the compiled program.
    """

    data: Tensor = attr()
    name: str = meta(default="")

    def __init__(
        self,
        data: Tensor,
        struct_info: StructInfo | None = None,
        span: Span | SequentialSpan | None = None,
        *,
        name: str = "",
    ):
        self.data = data if isinstance(data, Tensor) else tensor(data)
        self.name = name
        self.struct_info_ = tensor_struct_info_of(self.data) if struct_info is None else struct_info
        self.span = span


class PrimValue(ExprWithOp):
    """A number outside of tensors; an integer is int64."""

    value: PrimExpr = child(converter=lambda value: as_extent_or_number(value))

    def _derive(self) -> None:
        self.struct_info_ = PrimStructInfo(value=self.value)


def as_extent_or_number(value: Any) -> PrimExpr:
    """A number as an expression: Python's integers are int64, its floats float64."""
    if isinstance(value, bool):
        return _IntImm("bool", int(value))
    if isinstance(value, int):
        return _IntImm("int64", value)
    if isinstance(value, float):
        return FloatImm("float64", value)
    return as_expr(value)


class StringImm(ExprWithOp):
    """A text."""

    value: str = attr()

    def _derive(self) -> None:
        self.struct_info_ = ObjectStructInfo()


class DataTypeImm(ExprWithOp):
    """A dtype as a value."""

    value: DataType = attr(converter=DataType)

    def _derive(self) -> None:
        self.struct_info_ = ObjectStructInfo()


class Binding(Node):
    """Base of bindings: a variable that is given a value."""

    if TYPE_CHECKING:
        var: Var
        value: Expr


class VarBinding(Binding):
    """`var` is `value`."""

    var: Var = binder()
    value: Expr = child()
    span: Span | SequentialSpan | None = meta(default=None)


class MatchCast(Binding):
    """`var` is `value`, of which `struct_info` is asserted.

    Symbolic variables in `struct_info` that are not known yet take their values from it.
    """

    var: Var = binder()
    struct_info: StructInfo = binder()
    value: Expr = child()
    span: Span | SequentialSpan | None = meta(default=None)

    def __init__(self, var: Var, value: Expr, struct_info: StructInfo, span: Span | SequentialSpan | None = None):
        self.var, self.value, self.struct_info, self.span = var, value, struct_info, span


class BindingBlock(Node):
    """Bindings, one after the other."""

    bindings: Array[Binding] = child(converter=as_array)
    span: Span | SequentialSpan | None = meta(default=None)


class DataflowBlock(BindingBlock):
    """Bindings without side effects: a piece of a computational graph."""


class SeqExpr(ExprWithOp):
    """Blocks of bindings, then the value."""

    blocks: Array[BindingBlock] = child(converter=as_array)
    body: Expr = child()

    def _derive(self) -> None:
        self.struct_info_ = getattr(self.body, "struct_info_", None)


def as_seq_expr(body: Expr) -> SeqExpr:
    """An expression as the body of a function or branch."""
    return body if isinstance(body, SeqExpr) else SeqExpr((), body)


OUTPUT_NAMES = "output_names"
"""The attribute of functions that has the names of the results, where a model gives them names."""

_NO_BODY: Any = None


class Function(BaseFunc, ExprWithOp):
    """A function over graph values. Symbolic variables in the struct info of the parameters are its own."""

    params: Array[Var] = binder(converter=as_array)
    ret_struct_info: StructInfo = attr()
    body: SeqExpr = child()
    is_pure: bool = attr()
    attrs: DictAttrs = attr(default=None, converter=as_dict_attrs)
    struct_info_: Any = derived()

    def __init__(
        self,
        params: Any,
        body: Expr | None,
        ret_struct_info: StructInfo | None = None,
        is_pure: bool = True,
        attrs: Mapping[str, Any] | DictAttrs | None = None,
        span: Span | SequentialSpan | None = None,
    ):
        self.params = Array(params)
        for p in self.params:
            if not isinstance(p, Var):
                hint = ""
                if hasattr(p, "op"):
                    hint = "; for a tensor expression, declare relax.Var(name, relax.TensorStructInfo(shape, dtype))"
                raise TypeMismatch(f"the parameters of a graph function are relax.Var, found {p!r}{hint}")
            if p.struct_info_ is None:
                raise InvalidValue(f"the parameter `{p.name}` has no struct info: say relax.Var(name, struct_info)")
        self.body = as_seq_expr(body) if body is not None else _NO_BODY
        if ret_struct_info is None:
            ret_struct_info = getattr(self.body, "struct_info_", None)
        if ret_struct_info is None:
            raise InvalidValue("the struct info of the function's result is not known: pass ret_struct_info")
        self.ret_struct_info = as_struct_info(ret_struct_info)
        self.is_pure = bool(is_pure)
        self.attrs = as_dict_attrs(attrs)
        self.span = span
        self.struct_info_ = FuncStructInfo([p.struct_info_ for p in self.params], self.ret_struct_info, self.is_pure)

    @staticmethod
    def create_empty(
        params: Any,
        ret_struct_info: StructInfo,
        is_pure: bool = True,
        attrs: Mapping[str, Any] | None = None,
        span: Span | SequentialSpan | None = None,
    ) -> Function:
        """A function whose body is not there yet: its signature, for calls that stand before its definition."""
        return Function(params, None, ret_struct_info, is_pure, attrs, span)

    def bind_symbolic_vars(self, binding_map: Mapping[Any, Any]) -> Function:
        """The function with some of its symbolic variables, given by name or object, replaced by values."""
        return bind_symbolic_vars(self, binding_map)

    def bind_params(self, binding_map: Mapping[Any, Any]) -> Function:
        """The function with some of its parameters, given by name or object, replaced by values."""
        return bind_params(self, binding_map)

    def __call__(self, *args: Any, attrs: Mapping[str, Any] | None = None) -> Any:
        raise TypeMismatch(
            "a relax Function is not called directly: build it and run it with VirtualMachine, "
            "or call it through its GlobalVar or a variable inside of a program"
        )


class ExternFunc(BaseFunc, ExprWithOp):
    """A function of the runtime, by the name under which it is registered."""

    global_symbol: str
    attrs: DictAttrs = attr(default=None, converter=as_dict_attrs)
    struct_info_: Any = derived(saved=True)

    def __init__(
        self,
        global_symbol: str,
        struct_info: StructInfo | None = None,
        span: Span | SequentialSpan | None = None,
        *,
        attrs: Mapping[str, Any] | DictAttrs | None = None,
    ):
        if not isinstance(global_symbol, str):
            raise TypeMismatch(f"an external function is named by a str, found {global_symbol!r}")
        self.global_symbol, self.attrs, self.span = global_symbol, as_dict_attrs(attrs), span
        self.struct_info_ = FuncStructInfo.opaque_func() if struct_info is None else struct_info


def extern(name: str, struct_info: StructInfo | None = None, span: Span | SequentialSpan | None = None) -> ExternFunc:
    """The function of the runtime that is registered as `name`."""
    return ExternFunc(name, struct_info, span)


def const(value: Any, dtype: Any = None) -> Constant:
    """A constant tensor from a number, a list, a NumPy array or a tensor.

    Without a dtype, Python's integers become int32 and its floats float32; arrays keep their own. `dtype` may also be a
    `DynTensorType` or a `TensorStructInfo`, of which the dtype counts.
    """
    dtype = getattr(dtype, "dtype", dtype) if not isinstance(dtype, str) else dtype
    if isinstance(value, Constant):
        value = value.data
    if isinstance(value, Tensor) and dtype in (None, value.dtype):
        return Constant(value)
    if not isinstance(value, (np.ndarray, np.generic)):
        python = not hasattr(value, "__array__") and not hasattr(value, "__dlpack__")
        value = value.numpy() if hasattr(value, "numpy") and not python else np.asarray(value)
        if python and dtype is None:
            dtype = {"int64": "int32", "float64": "float32"}.get(str(value.dtype))
    if dtype is not None:
        value = np.asarray(value).astype(numpy_dtype(dtype))
    return Constant(tensor(np.asarray(value)))


def _update_struct_info(expr: Expr, struct_info: StructInfo | None) -> None:
    """States what is known about the value of an expression, under the published name of `Expr.set_struct_info`."""
    expr.set_struct_info(struct_info)


def as_graph_expr(value: Any) -> Expr:
    """What stands for a graph value as an expression: numbers become `PrimValue`, lists and tuples tuples.

    Raises `TypeMismatch` for anything else, tensor expressions for instance.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, (list, tuple)):
        return Tuple(value)
    if isinstance(value, _TirStringImm):
        raise TypeMismatch(f"the text {value} of a loop may be meant as relax.StringImm or relax.PrimValue; say which")
    if isinstance(value, (bool, int, float, PrimExpr)) or hasattr(value, "__prim_expr__"):
        return PrimValue(value)
    if isinstance(value, (Tensor, np.ndarray)):
        return const(value)
    if isinstance(value, np.generic):
        return PrimValue(value.item())
    hint = ""
    if type(value).__module__.startswith("oneir.te"):
        hint = "; tensor expressions are no graph values: declare relax.Var(name, relax.TensorStructInfo(shape, dtype))"
    raise TypeMismatch(f"expected a graph expression, found {value!r} of type {type(value).__name__}{hint}")


def get_shape_of(expr: Expr) -> Expr:
    """The shape of a tensor: its extents where they are known, else a call of `shape_of`."""
    info = expr.struct_info
    if not isinstance(info, TensorStructInfo):
        raise TypeMismatch(f"expected a tensor, found `{expr}` with struct info {info}")
    return info.shape if info.shape is not None else graph_operator("shape_of", expr)


@call_global.provide
def _call_global(var: GlobalVar, args: Any) -> Call:
    return Call(var, [as_graph_expr(a) for a in args])
