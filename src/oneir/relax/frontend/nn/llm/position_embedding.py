"""Rotary position embeddings: queries and keys turned by angles that grow with their position.

    q, k, v = llama_rope(qkv, total_seq_len, 10000.0, 1.0, num_q_heads=8, num_kv_heads=2, rope_scaling={})

Element `d` of a head, of `d_range` that are turned, has the angle `position * frequency(d)`. The functions
`rope_freq_*` differ in the frequencies. Each gives the cosine and the sine of the angle, of dtype `dtype`, and what the
variables in them stand for: a `tir.Let` each, the last of them outermost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .....ir import operators as ops
from .....ir.expr import Let, PrimExpr, Range, Var, as_expr, const
from .....runtime.error import InvalidValue, ShapeMismatch
from .....tir import op as tir_op
from .....tir.analysis.block_access_region import get_block_read_write_region
from .....tir.buffer import Buffer, decl_buffer
from .....tir.expr import BufferLoad, IterVar
from .....tir.function import PrimFunc
from .....tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, Stmt
from ..op import tensor_ir_op
from ..tensor import Tensor

Turn = tuple[PrimExpr, PrimExpr, dict[Var, PrimExpr]]

# 2 would say that it computes element by element, which lets it be fused into others; 8 is opaque.
_ATTRS = {"op_pattern": 8, "tir.noalias": True}


def _exponent(d: Any, d_range: int) -> PrimExpr:
    """What the base is raised to: elements `d` and `d + d_range // 2` turn together."""
    return d * 2 % d_range / const(d_range, "float32")


def _turn(angle: PrimExpr, dtype: str, name: str = "freq", scale: float = 1.0) -> Turn:
    var = Var(name, "float32")
    cos, sin = (ops.cast(dtype, tir_op.cos(var) * scale), ops.cast(dtype, tir_op.sin(var) * scale))
    return cos, sin, {var: angle}


def rope_freq_default(s: Any, d: Any, d_range: int, theta: float, dtype: str) -> Turn:
    """theta ** (-2d / d_range)"""
    return _turn(s / tir_op.power(theta, _exponent(d, d_range)), dtype)


def rope_freq_gptj(s: Any, d: Any, d_range: int, theta: float, dtype: str) -> Turn:
    """As the default, where the elements that turn together are neighbours."""
    exponent = 2 * (d // 2) % d_range / const(d_range, "float32")
    return _turn(s / tir_op.power(theta, exponent), dtype)


def _stretch_long_waves(
    s: Any,
    exponent: PrimExpr,
    theta: float,
    dtype: str,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> Turn:
    """Frequencies of waves longer than the original context over `low_freq_factor` are divided by `factor`, those
    shorter than it over `high_freq_factor` kept, and those in between interpolated.
    """
    original = Var("orig_freq", "float32")
    if high_freq_factor == low_freq_factor:
        wave = const(2 * math.pi, "float32") / original
        longest = const(original_max_position_embeddings / low_freq_factor, "float32")
        angle = s * tir_op.if_then_else(ops.greater(wave, longest), original / factor, original)
    else:
        steepness = 1.0 / (high_freq_factor - low_freq_factor)
        alpha = original_max_position_embeddings / (2 * math.pi) * steepness
        beta = low_freq_factor * steepness
        smooth = ops.maximum(0.0, ops.minimum(1.0, alpha * original - beta))
        angle = s * ((1.0 - smooth) * original * (1.0 / factor) + smooth * original)
    cos, sin, names = _turn(angle, dtype, "smoothed_freq")
    return cos, sin, {**names, original: const(1, "float32") / tir_op.power(theta, exponent)}


def rope_freq_llama3(
    s: Any,
    d: Any,
    d_range: int,
    theta: float,
    dtype: str,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> Turn:
    """As the default, with low frequencies divided by `factor`, by the rule of Llama 3.1."""
    bounds = (factor, low_freq_factor, high_freq_factor, original_max_position_embeddings)
    return _stretch_long_waves(s, _exponent(d, d_range), theta, dtype, *bounds)


def rope_freq_llama4(
    s: Any,
    d: Any,
    d_range: int,
    theta: float,
    dtype: str,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> Turn:
    """As `rope_freq_llama3`, where the elements that turn together are neighbours."""
    bounds = (factor, low_freq_factor, high_freq_factor, original_max_position_embeddings)
    return _stretch_long_waves(s, 2 * (d // 2) / const(d_range, "float32"), theta, dtype, *bounds)


def rope_freq_longrope(
    s: Any,
    d: Any,
    d_range: int,
    theta: float,
    dtype: str,
    max_position_embeddings: int,
    original_max_position_embeddings: int,
    ext_factors: Buffer | None = None,
) -> Turn:
    """As the default, divided by `ext_factors`, of shape (d_range // 2,) and float32. Cosine and sine are multiplied by
    a number that grows with how much longer the context is than the original one.
    """
    longer = max_position_embeddings / original_max_position_embeddings
    scale = math.sqrt(1 + math.log(longer) / math.log(original_max_position_embeddings)) if longer > 1.0 else 1.0
    divisor = tir_op.power(theta, _exponent(d, d_range))
    if ext_factors is not None:
        divisor = ext_factors[d % (d_range // 2)] * divisor
    return _turn(s / divisor, dtype, scale=scale)


def yarn_find_correction_dim(num_rotations: int, d: Any, theta: float, max_position_embeddings: int) -> Any:
    """Which of `d` elements turns `num_rotations` times within the context, as a fraction."""
    return d * math.log(max_position_embeddings / (num_rotations * 2 * math.pi)) / (2 * math.log(theta))


def yarn_find_correction_range(
    low_rot: int, high_rot: int, d: Any, theta: float, max_position_embeddings: int
) -> tuple[PrimExpr, PrimExpr]:
    """The first and the last of `d` elements that turn between `high_rot` and `low_rot` times within the context."""
    low = tir_op.floor(yarn_find_correction_dim(low_rot, d, theta, max_position_embeddings))
    high = tir_op.ceil(yarn_find_correction_dim(high_rot, d, theta, max_position_embeddings))
    return ops.maximum(low, 0), ops.minimum(high, d - 1)


def rope_freq_yarn(
    s: Any,
    d: Any,
    d_range: int,
    theta: float,
    dtype: str,
    original_max_position_embeddings: int,
    scaling_factor: float,
    beta_fast: int,
    beta_slow: int,
) -> Turn:
    """As the default for elements that turn more than `beta_fast` times within the original context, divided by
    `scaling_factor` for those that turn less than `beta_slow` times, and interpolated in between.
    """
    low, high = yarn_find_correction_range(beta_fast, beta_slow, d_range, theta, original_max_position_embeddings)
    high = tir_op.if_then_else(ops.equal(low, high), high + 0.001, high)
    ramp = ops.maximum(ops.minimum((d % (d_range // 2) - low) / (high - low), 1.0), 0.0)
    kept = const(1, "float32") - ops.cast("float32", ramp)
    frequency = const(1, "float32") / tir_op.power(theta, _exponent(d, d_range))
    return _turn(s * (frequency / scaling_factor * (1 - kept) + frequency * kept), dtype)


_LLAMA = {name: name for name in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")}
# For each type of scaling, the function and where its parameters are in a configuration.
_SCALINGS: dict[str, tuple[Callable[..., Turn], dict[str, str]]] = {
    "gptj": (rope_freq_gptj, {}),
    "llama3": (rope_freq_llama3, _LLAMA),
    "llama4": (rope_freq_llama4, _LLAMA),
    "longrope": (
        rope_freq_longrope,
        {name: name for name in ("max_position_embeddings", "original_max_position_embeddings")},
    ),
    "yarn": (
        rope_freq_yarn,
        {
            "original_max_position_embeddings": "original_max_position_embeddings",
            "scaling_factor": "factor",
            "beta_fast": "beta_fast",
            "beta_slow": "beta_slow",
        },
    ),
}


def switch_rope_freq_func(rope_scaling: dict[str, Any]) -> Callable[..., Turn]:
    """The function of s, d, d_range, theta and dtype that a model's configuration `rope_scaling` asks for."""
    if "rope_type" not in rope_scaling:
        return rope_freq_default
    kind = rope_scaling["rope_type"]
    if kind not in _SCALINGS:
        raise InvalidValue(f"Unsupported RoPE scaling type: {kind}; expected one of {', '.join(_SCALINGS)}")
    function, keys = _SCALINGS[kind]
    if missing := [key for key in keys.values() if key not in rope_scaling]:
        raise InvalidValue(f"rope_scaling of type {kind!r} has no {', '.join(missing)}")
    return partial(function, **{name: rope_scaling[key] for name, key in keys.items()})


def rotated(
    load: Callable[[Any], PrimExpr], d: Any, turn: Turn, half: int | None, compute: str, dtype: str
) -> PrimExpr:
    """Element `d` of a head after the turn. It turns together with the element `half` away; None says the neighbour."""
    cos, sin, names = turn
    if half is None:
        other = tir_op.if_then_else(ops.equal(d % 2, 0), -load(d + 1), load(d - 1))
    else:
        other = tir_op.if_then_else(ops.less(d, half), -load(d + half), load(d - half))
    value = ops.cast(dtype, cos * ops.cast(compute, load(d)) + sin * ops.cast(compute, other))
    for var, meaning in names.items():
        value = Let(var, meaning, value)
    return value


class _FusedRope:
    """A TensorIR function that splits `qkv` into queries, keys and values, and turns the first two.

    `qkv` has the shape (*rows, num_q_heads + 2 * num_kv_heads, head_dim), and so have the results, each with its heads.
    """

    def __init__(self, rows: Sequence[Any], num_q_heads: int, num_kv_heads: int, head_dim: Any, dtype: str):
        self.extents = [*rows, num_q_heads + 2 * num_kv_heads, head_dim]
        self.heads = (num_q_heads, num_kv_heads)
        self.qkv, self.q, self.k, self.v = (
            decl_buffer([*rows, heads, head_dim], dtype, name)
            for name, heads in (
                ("qkv", self.extents[-2]), ("q", num_q_heads), ("k", num_kv_heads), ("v", num_kv_heads)
            )
        )  # fmt: skip

    def function(
        self,
        inputs: Sequence[Buffer],
        last: Buffer | Var,
        names: Sequence[str],
        condition: Callable[[Var], PrimExpr],
        turned: Callable[[list[Var], Var, Var], PrimExpr],
        symbol: str | None = None,
    ) -> PrimFunc:
        """The function of `qkv`, `inputs`, the results and `last`.

        `names` are the names of the indices, `condition(d)` says whether an element turns, and `turned(row, head, d)`
        what it becomes.
        """
        extents = [as_expr(extent) for extent in self.extents]
        axes = [Var(name, extent.dtype) for name, extent in zip(names, extents, strict=True)]
        block_vars = [IterVar(Range(0, n), axis, IterVar.DataPar) for n, axis in zip(extents, axes, strict=True)]
        body = self._body(axes, condition, turned)
        given = [self.qkv, *inputs, self.q, self.k, self.v]
        buffers = [*given, last] if isinstance(last, Buffer) else given
        params: list[Var] = [Var(f"var_{b.name}", "handle") for b in given]
        params.append(Var(last.name, "handle") if isinstance(last, Buffer) else last)
        block = Block(block_vars, (), (), "llama_fused_rope", body)
        reads, writes = get_block_read_write_region(block, {b.data: b for b in buffers})
        loops = [Var(f"iters_{i}", extent.dtype) for i, extent in enumerate(extents)]
        stmt: Stmt = BlockRealize(loops, True, block.replace(reads=reads, writes=writes))
        for loop, extent in reversed(list(zip(loops, extents, strict=True))):
            stmt = For(loop, 0, extent, ForKind.SERIAL, stmt)
        root = BlockRealize((), True, Block((), (), (), "root", stmt))
        attrs = _ATTRS if symbol is None else {"global_symbol": symbol, **_ATTRS}
        return PrimFunc(params, root, None, dict(zip(params, buffers, strict=False)), attrs)

    def _body(
        self, axes: list[Var], condition: Callable[[Var], PrimExpr], turned: Callable[[list[Var], Var, Var], PrimExpr]
    ) -> Stmt:
        *row, h, d = axes
        queries, keys = self.heads
        same = BufferLoad(self.qkv, axes)

        def store(to: Buffer, before: int, value: PrimExpr) -> Stmt:
            return BufferStore(to, value, [*row, h - before if before else h, d])

        def kept_or_turned() -> PrimExpr:
            return tir_op.if_then_else(condition(d), turned(row, h, d), same)

        key_or_value = IfThenElse(
            ops.less(h, queries + keys),
            store(self.k, queries, kept_or_turned()),
            store(self.v, queries + keys, same),
        )
        return IfThenElse(ops.less(h, queries), store(self.q, 0, kept_or_turned()), key_or_value)


def llama_rope(
    qkv: Tensor,
    total_seq_len: Var,
    theta: float,
    scale: float,
    num_q_heads: int,
    num_kv_heads: int,
    rope_scaling: dict[str, Any],
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys, turned, and values, of a `qkv` of shape (batch, seq, q heads + 2 * kv heads, head_dim).

    The tokens are the last ones of `total_seq_len`. Positions are multiplied by `scale`. Only the first `rotary_dim`
    elements of a head turn, by default all.
    """
    batch, seq, fused_heads, head_dim = qkv.shape
    if fused_heads != num_q_heads + 2 * num_kv_heads:
        raise ShapeMismatch(
            f"llama_rope expects qkv of {num_q_heads} + 2 * {num_kv_heads} heads, found the shape {qkv.shape}"
        )
    dtype, turning = qkv.dtype, head_dim if rotary_dim is None else rotary_dim
    frequencies = switch_rope_freq_func(rope_scaling)
    half = None if rope_scaling.get("rope_type") == "gptj" else turning // 2
    rows = [Var("batch_size", "int64"), Var("seq_len", "int64")]
    total = Var("total_seq_len", "int64")
    rope = _FusedRope(rows, num_q_heads, num_kv_heads, head_dim, dtype)

    def turned(row: list[Var], h: Var, d: Var) -> PrimExpr:
        position = (row[1] + (total - rows[1])) * const(scale, "float32")
        turn = frequencies(position, d, turning, theta, dtype)
        return rotated(lambda i: rope.qkv[(*row, h, i)], d, turn, half, dtype, dtype)

    func = rope.function([], total, "bshd", lambda d: ops.less(d, turning), turned)
    out = [Tensor.placeholder((batch, seq, n, head_dim), dtype) for n in (num_q_heads, num_kv_heads, num_kv_heads)]
    q, k, v = tensor_ir_op(func, "llama_rope", [qkv, total_seq_len], out)
    return q, k, v


def _rope_with_position_map(
    theta: float,
    scale: float,
    head_dim: int,
    num_q_heads: int,
    num_kv_heads: int,
    dtype: str,
    rope_scaling: dict[str, Any],
    rotary_dim: int | None,
    neighbours: bool,
) -> PrimFunc:
    turning = head_dim if rotary_dim is None else rotary_dim
    frequencies = switch_rope_freq_func(rope_scaling)
    half = None if neighbours or rope_scaling.get("rope_type") == "gptj" else turning // 2
    with_factors = rope_scaling.get("rope_type") == "longrope"
    index_dtype = "int64" if with_factors else "int32"
    seq = Var("seq_len", index_dtype)
    rope = _FusedRope([seq], num_q_heads, num_kv_heads, head_dim, dtype)
    offset = Var("position_map_elem_offset", index_dtype)
    positions = decl_buffer((seq,), "int32", "position_map", elem_offset=offset)
    factors = decl_buffer((turning // 2,), "float32", "ext_factors") if with_factors else None
    apply = Var("apply_rope", "int64")

    def turned(row: list[Var], h: Var, d: Var) -> PrimExpr:
        position = positions[row[0]] * const(scale, "float32")
        options = {} if factors is None else {"ext_factors": factors}
        turn = frequencies(position, d, turning, theta, "float32", **options)
        return rotated(lambda i: rope.qkv[(*row, h, i)], d, turn, half, "float32", dtype)

    if factors is not None:
        return rope.function(
            [positions], factors, "shd", lambda d: ops.less(d, turning), turned, "fused_rope_longrope_scaling"
        )
    return rope.function(
        [positions], apply, "shd", lambda d: ops.logical_and(ops.greater(apply, 0), ops.less(d, turning)), turned
    )


def llama_rope_with_position_map(
    theta: float,
    scale: float,
    head_dim: int,
    num_q_heads: int,
    num_kv_heads: int,
    dtype: str,
    rope_scaling: dict[str, Any],
    rotary_dim: int | None = None,
) -> PrimFunc:
    """The TensorIR function of qkv (seq, q heads + 2 * kv heads, head_dim), the position of each row (seq,) of int32,
    the results q, k and v, and an int64 `apply_rope`: nothing turns where it is 0.

    With scaling of the type "longrope", the last parameter is instead `ext_factors`, of shape (rotary_dim // 2,) and
    float32. It computes in float32.
    """
    shape = (head_dim, num_q_heads, num_kv_heads, dtype)
    return _rope_with_position_map(theta, scale, *shape, rope_scaling, rotary_dim, neighbours=False)


def llama4_rope_with_position_map(
    theta: float,
    scale: float,
    head_dim: int,
    num_q_heads: int,
    num_kv_heads: int,
    dtype: str,
    rope_scaling: dict[str, Any],
    rotary_dim: int | None = None,
) -> PrimFunc:
    """As `llama_rope_with_position_map`, where the elements that turn together are neighbours."""
    shape = (head_dim, num_q_heads, num_kv_heads, dtype)
    return _rope_with_position_map(theta, scale, *shape, rope_scaling, rotary_dim, neighbours=True)
