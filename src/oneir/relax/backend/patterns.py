"""Patterns of what compilers and libraries of others often know, with names for their parts.

pattern, parts = make_matmul_pattern(with_bias=True, activation="relax.nn.relu", transposed_rhs=True)
mod = FuseOpsByPattern([("mine.matmul", pattern, parts)])(mod)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...arith import Analyzer
from ...ir.attrs import DictAttrs
from ...ir.expr import PrimExpr
from ...runtime.error import UnsupportedError
from ..dpl.pattern import DFPattern, GlobalVarPattern, TuplePattern, is_const, is_op, is_tuple_get_item, wildcard
from ..expr import Call, Constant, Expr
from ..op.manipulate import reshape
from ..op.nn.attention import attention
from ..struct_info import ShapeStructInfo, TensorStructInfo

Parts = dict[str, DFPattern]
Found = Mapping[DFPattern, Expr]

_ROLES = ("query", "key", "value")


def _with_bias_and_activation(
    root: DFPattern, parts: Parts, with_bias: bool, activation: str | None
) -> tuple[DFPattern, Parts]:
    result = root
    if with_bias:
        parts["bias"] = wildcard()
        result = is_op("relax.add")(result, parts["bias"])
    return (is_op(activation)(result) if activation else result), parts


def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> tuple[DFPattern, Parts]:
    """A call of an operator of two tensors, then the sum with a bias, then an activation, where they are asked for.

    Parts: lhs, rhs, root (the call), bias.
    """
    parts: Parts = {"lhs": wildcard(), "rhs": wildcard()}
    parts["root"] = is_op(op_name)(parts["lhs"], parts["rhs"])
    return _with_bias_and_activation(parts["root"], parts, with_bias, activation)


def make_residual_block_pattern(
    node_output: DFPattern | tuple[DFPattern, Mapping[str, DFPattern]],
    binary_op: str = "relax.add",
    activation: str | None = None,
) -> tuple[DFPattern, Parts]:
    """What matches `node_output` and another tensor, in either order, combined, then an activation.

    Parts: those of `node_output`, if it comes with some, and residual.
    """
    output, parts = node_output if isinstance(node_output, tuple) else (node_output, {})
    residual, combine = wildcard(), is_op(binary_op)
    result: DFPattern = combine(output, residual) | combine(residual, output)
    return (is_op(activation)(result) if activation else result), {**parts, "residual": residual}


def make_conv2d_pattern(with_bias: bool = False, activation: str | None = None) -> tuple[DFPattern, Parts]:
    """A 2D convolution. Parts: input, weight, root (the convolution), bias."""
    parts: Parts = {"input": wildcard(), "weight": wildcard()}
    parts["root"] = is_op("relax.nn.conv2d")(parts["input"], parts["weight"])
    return _with_bias_and_activation(parts["root"], parts, with_bias, activation)


def _matmul(transposed_rhs: bool) -> Parts:
    lhs, rhs = wildcard(), wildcard()
    factor = is_op("relax.permute_dims")(rhs) if transposed_rhs else rhs
    return {"lhs": lhs, "rhs": rhs, "root": is_op("relax.matmul")(lhs, factor)}


def make_matmul_pattern(
    with_bias: bool = False, activation: str | None = None, transposed_rhs: bool = False
) -> tuple[DFPattern, Parts]:
    """A product of matrices. Parts: lhs, rhs (before its transposition), root (the product), bias."""
    parts = _matmul(transposed_rhs)
    return _with_bias_and_activation(parts["root"], parts, with_bias, activation)


def make_attention_pattern(with_bias: bool = False, var_len: bool = False) -> tuple[DFPattern, Parts]:
    """Attention as one operator.

    Parts: query, key, value, and bias; or, for sequences of several lengths in one tensor, seqstart_q, seqstart_k,
    max_seqlen_q and max_seqlen_k.
    """
    name, extra = "relax.nn.attention", []
    if with_bias:
        name, extra = "relax.nn.attention_bias", ["bias"]
    elif var_len:
        name, extra = "relax.nn.attention_var_len", ["seqstart_q", "seqstart_k", "max_seqlen_q", "max_seqlen_k"]
    parts: Parts = {part: wildcard() for part in ("query", "key", "value", *extra)}
    return is_op(name)(*parts.values()), parts


def make_stacked_attention_pattern(
    start_op: str, with_bias: bool = False, layout: str = "BS3NH"
) -> tuple[DFPattern, Parts]:
    """Attention whose query, key and value are cut from one tensor, by `start_op`: "split" or "strided_slice".

    In the layout "BS3NH", pieces are reshaped; in "SBN3H", they and the result are transposed.

    Parts: stacked_qkv; split, or strided_slice_query, _key and _value; query_reshape_list, key_ and value_, or
    q_transpose, k_ and v_; bias.
    """
    parts: Parts = {"stacked_qkv": wildcard()}
    if start_op == "split":
        parts["split"] = is_op("relax.split")(parts["stacked_qkv"])
        pieces = [is_tuple_get_item(parts["split"], i) for i in range(3)]
    elif start_op == "strided_slice":
        pieces = [is_op("relax.strided_slice")(parts["stacked_qkv"], varg_default_wildcard=True) for _ in _ROLES]
        parts.update({f"strided_slice_{role}": piece for role, piece in zip(_ROLES, pieces, strict=True)})
    else:
        raise UnsupportedError(f'expected start_op "split" or "strided_slice", found {start_op!r}')
    if layout == "BS3NH":
        shapes = [wildcard() for _ in _ROLES]
        parts.update({f"{role}_reshape_list": shape for role, shape in zip(_ROLES, shapes, strict=True)})
        arguments: list[DFPattern] = [is_op("relax.reshape")(p, s) for p, s in zip(pieces, shapes, strict=True)]
    elif layout == "SBN3H":
        arguments = [is_op("relax.permute_dims")(piece) for piece in pieces]
        parts.update({f"{role[0]}_transpose": a for role, a in zip(_ROLES, arguments, strict=True)})
    else:
        raise UnsupportedError(f'expected the layout "BS3NH" or "SBN3H", found {layout!r}')
    if with_bias:
        parts["bias"] = wildcard()
        arguments.append(parts["bias"])
    result = is_op("relax.nn.attention_bias" if with_bias else "relax.nn.attention")(*arguments)
    return (is_op("relax.permute_dims")(result) if layout == "SBN3H" else result), parts


def make_layer_norm_pattern() -> tuple[DFPattern, Parts]:
    """Layer normalization with scale and shift; no parts."""
    return is_op("relax.nn.layer_norm")(wildcard(), wildcard(), wildcard()), {}


def make_rms_norm_pattern() -> tuple[DFPattern, Parts]:
    """A `call_tir` with two tensors, as root-mean-square normalization is. Parts: gv, inp, rms_norm (the call)."""
    gv, inp = GlobalVarPattern(), wildcard()
    call = is_op("relax.call_tir")(gv, TuplePattern([inp, wildcard()]))
    return call, {"gv": gv, "inp": inp, "rms_norm": call}


def make_matmul_dequantize_pattern(transposed_rhs: bool = False) -> tuple[DFPattern, Parts]:
    """A product that is dequantized by constants. Parts: lhs, rhs, root (the product), scale, zp."""
    parts = _matmul(transposed_rhs)
    parts.update(scale=is_const(), zp=is_const())
    return is_op("relax.dequantize")(parts["root"], parts["scale"], parts["zp"]), parts


def make_matmul_multiply_pattern(transposed_rhs: bool = False) -> tuple[DFPattern, Parts]:
    """A product, times a product of two scales of shape (1,), as another dtype.

    Parts: lhs, rhs, root (the product of matrices), scaleA, scaleB.
    """
    parts = _matmul(transposed_rhs)
    parts.update(scaleA=wildcard(), scaleB=wildcard())
    scale = is_op("relax.multiply")(parts["scaleA"].has_shape((1,)), parts["scaleB"].has_shape((1,)))
    return is_op("relax.astype")(is_op("relax.multiply")(parts["root"], scale)), parts


class _Operand:
    """Query, key or value of attention that is written out, before they become matrices of (batch, rows, columns).

    "BSNH": a tensor (batch, rows, heads, width), whose heads become batches by a transposition and a reshape. "BSH":
    one of three dimensions, which is one head. Keys are transposed last; keys and values may be repeated first.
    """

    def __init__(self, layout: str, transposed: bool, repeated: bool):
        self.layout, self.transposed = layout, transposed
        self.raw: DFPattern = wildcard()
        self.repeat = is_op("relax.repeat")(self.raw) if repeated else None
        self.heads: DFPattern = self.raw if self.repeat is None else self.repeat
        self.matrices = self.heads
        if layout == "BSNH":
            self.permuted, self.shape = is_op("relax.permute_dims")(self.heads), wildcard()
            self.matrices = is_op("relax.reshape")(self.permuted, self.shape)
        self.pattern = is_op("relax.permute_dims")(self.matrices) if transposed else self.matrices

    def read(self, found: Found) -> Expr | None:
        """The operand as (batch, rows, heads, width); None where what was found is something else."""
        heads = _extents(found[self.heads])
        if heads is None or (self.transposed and _axes(found[self.pattern], 3) != [0, 2, 1]):
            return None
        if self.layout == "BSH":
            if len(heads) != 3 or self.repeat is not None:
                return None
            return reshape(found[self.raw], [heads[0], heads[1], 1, heads[2]])
        if len(heads) != 4 or _axes(found[self.permuted], 4) != [0, 2, 1, 3]:
            return None
        batch, rows, count, width = heads
        if not _same(_extents(found[self.matrices]), [batch * count, rows, width]):
            return None
        if self.repeat is not None and _attrs(found[self.repeat])["axis"] not in (2, -2):
            return None
        return found[self.raw]


def _extents(expr: Expr) -> list[PrimExpr] | None:
    info = expr.struct_info
    extents = info.extents if isinstance(info, TensorStructInfo) else None
    return None if extents is None else list(extents)


def _attrs(call: Expr) -> DictAttrs:
    assert isinstance(call, Call)
    return call.attrs


def _axes(call: Expr, ndim: int) -> list[int]:
    """The axes of a transposition, counted from the front."""
    axes = _attrs(call)["axes"]
    return list(range(ndim))[::-1] if axes is None else [int(axis) % ndim for axis in axes]


def _same(a: Sequence[PrimExpr | int] | None, b: Sequence[PrimExpr | int]) -> bool:
    analyzer = Analyzer()
    return a is not None and len(a) == len(b) and all(map(analyzer.can_prove_equal, a, b))


def _bias_of_heads(bias: Expr, batch: Any, heads: Any, rows: Any, keys: Any) -> Expr | None:
    """A bias of scores (batch * heads, rows, keys) as one of scores (batch, heads, rows, keys)."""
    found = _extents(bias)
    shapes = [
        ([batch * heads, rows, keys], [batch, heads, rows, keys]),
        ([batch * heads, 1, keys], [batch, heads, 1, keys]),
        ([1, rows, keys], [1, 1, rows, keys]),
        ([rows, keys], [1, 1, rows, keys]),
        ([1, 1, keys], [1, 1, 1, keys]),
        ([1, keys], [1, 1, 1, keys]),
        ([keys], [1, 1, 1, keys]),
    ]
    return next((reshape(bias, new) for old, new in shapes if _same(found, old)), None)


def make_attention_rewrite_pattern(
    qkv_layout: str, out_layout: str, with_bias: bool, with_cast: bool, with_kv_repeat: bool = False
) -> tuple[DFPattern, Callable[[Expr, Found], Expr]]:
    """Attention that is written out in matrices, and the function, for `rewrite_call`, that makes it `R.nn.attention`.

    Layouts are "BSNH", where heads become batches and, in the result, heads again, and "BSH", of tensors of three
    dimensions. With `with_cast`, the softmax is computed in another dtype and its argument scaled by a converted
    constant; with `with_kv_repeat`, heads of key and value are repeated first. What is no attention stays as it is.
    """
    for layout in (qkv_layout, out_layout):
        if layout not in ("BSNH", "BSH"):
            raise UnsupportedError(f'expected the layout "BSNH" or "BSH", found {layout!r}')
    operands = [_Operand(qkv_layout, role == "key", with_kv_repeat and role != "query") for role in _ROLES]
    astype = is_op("relax.astype")
    scale, bias = is_const(), wildcard()
    product = is_op("relax.matmul")(operands[0].pattern, operands[1].pattern)
    scores: DFPattern = is_op("relax.multiply")(product, astype(scale) if with_cast else scale)
    if with_bias:
        scores = is_op("relax.add")(scores, bias)
    softmax = is_op("relax.nn.softmax")(astype(scores) if with_cast else scores)
    result = is_op("relax.matmul")(astype(softmax) if with_cast else softmax, operands[2].pattern)
    shape = wildcard()
    reshaped = is_op("relax.reshape")(result, shape)
    output = is_op("relax.permute_dims")(reshaped) if out_layout == "BSNH" else result

    def rewriter(original: Expr, found: Found) -> Expr:
        query, key, value = (operand.read(found) for operand in operands)
        number = found[scale]
        assert isinstance(number, Constant)
        if query is None or key is None or value is None or number.data.numpy().size != 1:
            return original
        if _attrs(found[softmax])["axis"] not in (-1, 2):
            return original
        extents, columns = _extents(found[operands[0].heads]), _extents(found[softmax])
        assert extents is not None and columns is not None
        batch, rows, heads = (*extents[:2], extents[2] if qkv_layout == "BSNH" else 1)
        added = _bias_of_heads(found[bias], batch, heads, rows, columns[2]) if with_bias else None
        if with_bias and added is None:
            return original
        fused = attention(query, key, value, added, float(number.data.numpy().item()))
        if out_layout == "BSH":
            # Where heads are batches in the result, they are no heads of one row.
            whole = _extents(found[result])
            return original if whole is None or not _same([heads], [1]) else reshape(fused, whole)
        info = found[shape].struct_info
        apart = info.values if isinstance(info, ShapeStructInfo) else None
        if apart is None or _axes(found[output], 4) != [0, 2, 1, 3] or not _same(list(apart)[:3], [batch, heads, rows]):
            return original
        return fused

    return output, rewriter
