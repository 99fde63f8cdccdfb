"""Making tensor expressions.

A = placeholder((n, m), name="A")
k = reduce_axis((0, m), "k")
B = compute((n,), lambda i: tir.sum(A[i, k], axis=k), name="B")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.expr import ExprOp, Range, SizeVar, Var, as_expr
from ..ir.expr import const as const
from ..ir.operators import same_expr
from ..ir.visitor import post_order_visit
from ..runtime.error import InvalidValue, TypeMismatch
from ..tir.buffer import decl_buffer
from ..tir.expr import IterVar, Reduce, expr_array
from ..tir.function import PrimFunc
from ..tir.stmt import Evaluate, Stmt
from .tag import current_tag
from .tensor import ComputeOp, ExternOp, PlaceholderOp, ScanOp, Tensor


def placeholder(shape: Any, dtype: str | None = None, name: str = "placeholder") -> Tensor:
    """A tensor given from outside, float32 unless said otherwise."""
    return PlaceholderOp(name, shape=_shape(shape), dtype=dtype or "float32").output(0)


def _shape(shape: Any) -> Any:
    return shape if isinstance(shape, (list, tuple)) else (shape,)


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: list[str] | None = None,
) -> Any:
    """The tensor whose element at indices (i, j, ...) is `fcompute(i, j, ...)`.

    A function that returns a tuple gives several tensors of one shape. The indices are named after the function's
    parameters; those of `*args` are i0, i1, ... (ax0, ax1, ... of `*ax`) unless `varargs_names` names them.

    Raises `TypeMismatch` where the function takes another number of indices than the shape has, and `InvalidValue`
    where only some outputs are reductions, or not all the same one, or a reduction is part of an expression.
    """
    shape = expr_array(_shape(shape))
    names = _index_names(fcompute, len(shape), varargs_names)
    axis = [IterVar(Range(extent), n, IterVar.DataPar) for n, extent in zip(names, shape, strict=True)]
    body = fcompute(*(iv.var for iv in axis))
    values = expr_array(body if isinstance(body, (list, tuple)) else (body,))
    first = values[0]
    reduce_axis = first.axis if isinstance(first, Reduce) else ()
    if any(isinstance(v, Reduce) != isinstance(first, Reduce) for v in values):
        raise InvalidValue(f"`{name}`: either all outputs are reductions or none is")
    _check_reductions(name, values)
    op = ComputeOp(name, current_tag(tag), attrs or {}, axis, reduce_axis, values)
    outputs = [op.output(i) for i in range(op.num_outputs)]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _check_reductions(name: str, values: Sequence[Any]) -> None:
    """A reduction is a whole output, and those of several outputs are one reduction of a tuple."""
    first = values[0]

    def nested(node: Any) -> None:
        if isinstance(node, Reduce):
            raise InvalidValue(
                f"`{name}`: a reduction is all that a compute does; found one inside of an expression, {node}. Make it "
                "a compute of its own, and read the result"
            )

    for value in values:
        for part in (*value.source, value.condition) if isinstance(value, Reduce) else (value,):
            post_order_visit(part, nested)
        if isinstance(first, Reduce) and not _same_reduction(first, value):
            raise InvalidValue(
                f"`{name}`: the outputs of a compute are those of one reduction; found {first} and {value}. Make each "
                "a compute of its own"
            )


def _same_reduction(a: Reduce, b: Any) -> bool:
    alike = [(a.source, b.source), (a.axis, b.axis)]
    return (
        a.combiner is b.combiner
        and same_expr(a.condition, b.condition)
        and all(len(x) == len(y) and all(p is q for p, q in zip(x, y, strict=True)) for x, y in alike)
    )


def _index_names(fcompute: Callable[..., Any], ndim: int, varargs_names: list[str] | None) -> list[str]:
    """A name for each index, from the parameters of the function."""
    names, star = [], None
    for parameter in inspect.signature(fcompute).parameters.values():
        if parameter.kind == parameter.VAR_POSITIONAL:
            star = parameter.name
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            if parameter.default is parameter.empty:
                names.append(parameter.name)
        else:
            raise InvalidValue(f"the function of a compute takes indices by position, found the parameter {parameter}")
    if star is not None:
        missing = ndim - len(names)
        if varargs_names is not None and len(varargs_names) != missing:
            raise InvalidValue(f"expected {missing} names for *{star}, found {len(varargs_names)}")
        stem = star if star == "ax" else "i"
        names += varargs_names if varargs_names is not None else [f"{stem}{i}" for i in range(missing)]
    if len(names) != ndim:
        raise TypeMismatch(f"the function of a compute takes {len(names)} indices, the shape has {ndim} dimensions")
    return names


def scan(
    init: Any,
    update: Any,
    state_placeholder: Any,
    inputs: Any = None,
    name: str = "scan",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """A recurrence over the first dimension.

    `init` gives the first states, `update` each later one from earlier ones, which it reads through
    `state_placeholder`. Raises `InvalidValue` unless these are as many tensors each.
    """
    inits, updates, states = (
        list(v) if isinstance(v, (list, tuple)) else [v] for v in (init, update, state_placeholder)
    )
    if not len(inits) == len(updates) == len(states):
        raise InvalidValue(
            f"`{name}`: expected as many init, update and state tensors, "
            f"found {len(inits)}, {len(updates)}, {len(states)}"
        )
    begin, end = inits[0].shape[0], updates[0].shape[0]
    axis = IterVar(Range(begin, end), f"{name}.idx", IterVar.Ordered)
    op = ScanOp(name, current_tag(tag), attrs or {}, axis, inits, updates, states, inputs or ())
    outputs = [op.output(i) for i in range(op.num_outputs)]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def extern(
    shape: Any,
    inputs: Any,
    fcompute: Callable[..., Any],
    name: str = "extern",
    dtype: Any = None,
    in_buffers: Any = None,
    out_buffers: Any = None,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Tensors that a statement or a call of a library fills.

    `fcompute(inputs, outputs)` gets buffers and returns a statement or an expression. `shape` is one shape, or a list
    of shapes for several outputs; `dtype` likewise, by default the inputs' common one.

    Raises `TypeMismatch` where the function returns something else, and `InvalidValue` where the numbers of buffers or
    dtypes do not fit, or no dtype follows from the inputs.
    """
    several = isinstance(shape, (list, tuple)) and len(shape) > 0 and isinstance(shape[0], (list, tuple))
    shapes = list(shape) if several else [_shape(shape)]
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    dtypes = _extern_dtypes(dtype, inputs, len(shapes), name)
    ins = list(in_buffers) if in_buffers else [decl_buffer(t.shape, t.dtype, t.op.name) for t in inputs]
    if len(ins) != len(inputs):
        raise InvalidValue(f"`{name}`: expected a buffer for each of the {len(inputs)} inputs, found {len(ins)}")
    if out_buffers:
        outs = list(out_buffers)
    else:
        outs = [decl_buffer(s, d, name) for s, d in zip(shapes, dtypes, strict=True)]
    body = fcompute(ins, outs)
    if isinstance(body, ExprOp):
        body = Evaluate(as_expr(body))
    if not isinstance(body, Stmt):
        raise TypeMismatch(f"`{name}`: the function must return a statement or an expression, found {body!r}")
    op = ExternOp(name, current_tag(tag), attrs or {}, inputs, ins, outs, body)
    outputs = [op.output(i) for i in range(op.num_outputs)]
    return outputs[0] if len(outputs) == 1 else outputs


def _extern_dtypes(dtype: Any, inputs: list[Tensor], count: int, name: str) -> list[str]:
    if dtype is None:
        found = {t.dtype for t in inputs}
        if len(found) != 1:
            raise InvalidValue(f"`{name}`: give dtype; the inputs have {sorted(found) or 'none'}")
        return [found.pop()] * count
    dtypes = [dtype] if isinstance(dtype, str) else list(dtype)
    if len(dtypes) != count:
        raise InvalidValue(f"`{name}`: expected {count} dtypes, found {len(dtypes)}")
    return dtypes


def extern_primfunc(input_tensors: list[Tensor], primfunc: PrimFunc, **kwargs: Any) -> Any:
    """The outputs of a function whose first parameters are the given tensors.

    The parameters that follow are outputs. Raises `InvalidValue` for parameters that are no tensors.
    """
    buffers = [primfunc.buffer_map.get(p) for p in primfunc.params]
    if len(input_tensors) > len(buffers) or any(b is None for b in buffers):
        raise InvalidValue(
            f"expected a function of tensors only, {len(input_tensors)} of them inputs, found {primfunc.params}"
        )
    given = {
        param: decl_buffer(tensor.shape, tensor.dtype, tensor.op.name)
        for param, tensor in zip(primfunc.params, input_tensors, strict=False)
    }
    func, count = primfunc.specialize(given), len(input_tensors)
    ins, outs = ([func.buffer_map[p] for p in func.params[part]] for part in (slice(count), slice(count, None)))
    return extern(
        [list(b.shape) for b in outs],
        input_tensors,
        lambda i, o: func.body,
        dtype=[b.dtype for b in outs],
        in_buffers=ins,
        out_buffers=outs,
        **{"name": primfunc.attrs.get("global_symbol", "extern"), **kwargs},
    )


def var(name: str = "tindex", dtype: str = "int32", span: Any = None) -> Var:
    """A variable."""
    return Var(name, dtype, span=span)


def size_var(name: str = "size", dtype: str = "int32", span: Any = None) -> SizeVar:
    """A variable that is never negative."""
    return SizeVar(name, dtype, span=span)


def thread_axis(dom: Any = None, tag: str = "", name: str = "", span: Any = None) -> IterVar:
    """The index of a thread, "threadIdx.x" for instance. Raises `InvalidValue` without such a tag."""
    if isinstance(dom, str):
        dom, tag = None, dom
    if not tag:
        raise InvalidValue('a thread axis needs a tag, such as "threadIdx.x"')
    extent = Range(dom) if isinstance(dom, (int, ExprOp)) else dom
    return IterVar(extent, name or tag, IterVar.ThreadIndex, tag, span=span)


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "", span: Any = None) -> IterVar:
    """A variable to reduce over; `dom` is (begin, end)."""
    return IterVar(dom, name, IterVar.CommReduce, thread_tag, span=span)
