"""The cache of keys and values in pages, as modules use it: an object whose functions are those of the runtime.

    cache = PagedKVCache.create_generic("mha", max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, 0, ...)
    o = cache.attention_with_fused_qkv(layer_id, qkv, num_qo_heads, sm_scale)

Which tokens of which sequences a call of the model is about is said before it, by `vm.builtin.kv_state_begin_forward`
(`runtime/vm/paged_kv_cache.py`). The kernels are functions of the program, so they are compiled with it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from .....runtime.error import InvalidValue, TypeMismatch, UnsupportedError
from .....target.target import Target
from .....tir.function import PrimFunc
from .... import op as graph_op
from ....expr import Expr, PrimValue, ShapeExpr, StringImm, Tuple, TupleGetItem, Var
from ....script_kernels import (
    _attention_decode_cpu,
    _attention_prefill_cpu,
    _attention_prefill_ragged_cpu,
    _compact_kv_copy_cpu,
    _copy_single_page_cpu,
    _kv_cache_debug_get_kv,
    _kv_cache_transpose_append,
    _merge_state_inplace_cpu,
    tree_attn_cpu,
    tree_attn_with_paged_kv_cache_cpu,
)
from ....struct_info import ObjectStructInfo, TensorStructInfo, TupleStructInfo
from ..tensor import Object, Tensor, current_builder
from .position_embedding import llama_rope_with_position_map

__all__ = [
    "AttnKind",
    "FlashInferPagedKVCache",
    "PagedKVCache",
    "RopeMode",
    "TIRPagedKVCache",
    "_attention_decode_cpu",
    "_attention_prefill_cpu",
    "_attention_prefill_ragged_cpu",
    "_compact_kv_copy",
    "_compact_kv_copy_cpu",
    "_copy_single_page",
    "_copy_single_page_cpu",
    "_kv_cache_debug_get_kv",
    "_kv_cache_transpose_append",
    "_merge_state_inplace",
    "_merge_state_inplace_cpu",
    "check_thread_limits",
    "get_max_num_threads_per_block",
    "llama_rope_with_position_map",
    "tree_attn_cpu",
    "tree_attn_with_paged_kv_cache_cpu",
]


def get_max_num_threads_per_block(target: Target) -> int:
    """How many threads a block of a target may have; at most 256 where it does not say."""
    return int(target.attrs.get("max_num_threads", 256))


def check_thread_limits(target: Target, bdx: int, bdy: int, bdz: int, gdz: int) -> None:
    """Raises `InvalidValue` unless a block of `bdx * bdy * bdz` threads, in grids of depth `gdz`, suits a target."""
    most = get_max_num_threads_per_block(target)
    if bdx * bdy * bdz > most:
        raise InvalidValue(f"{target.kind.name} max num threads exceeded: {bdx}*{bdy}*{bdz}>{most}")
    if target.kind.name == "webgpu" and gdz != 1:
        raise InvalidValue(f"webgpu: expected grids of depth 1, found {gdz}")


def _copy_single_page(num_heads: int, page_size: Any, head_dim: int, dtype: str, target: Target) -> PrimFunc:
    """`_copy_single_page_cpu`, whose loops the schedules of any target serve."""
    return _copy_single_page_cpu(num_heads, page_size, head_dim, dtype)


def _compact_kv_copy(num_heads: int, head_dim: int, dtype: str, target: Target, page_size: int = 16) -> PrimFunc:
    """`_compact_kv_copy_cpu`, whose loops the schedules of any target serve."""
    return _compact_kv_copy_cpu(num_heads, head_dim, dtype, page_size)


def _merge_state_inplace(num_heads: int, head_dim: int, v_dtype: str, target: Target, global_symbol: str) -> PrimFunc:
    """`_merge_state_inplace_cpu` as `global_symbol`, whose loops the schedules of any target serve."""
    return _merge_state_inplace_cpu(v_dtype).with_attr("global_symbol", global_symbol)


class AttnKind(enum.IntEnum):
    """How a layer attends: MHA to all positions, MLA to what is compressed, MHA_SLIDING to a window of positions."""

    MHA = 0
    MLA = 1
    MHA_SLIDING = 3


class RopeMode(enum.IntEnum):
    """Where the cache turns queries and keys: nowhere, before keys go into pages, or in the kernels of attention."""

    NONE = 0
    NORMAL = 1
    INLINE = 2


def _emit(call: Expr) -> Var:
    return current_builder().emit(call)


class PagedKVCache(Object):
    """A cache in pages. Rows of queries are (batch, length, heads, head_dim), of `batch * length` tokens in all."""

    @staticmethod
    def create_generic(
        attn_kind: str | Sequence[str],
        max_batch_size: Any,
        max_total_seq_len: Any,
        prefill_chunk_size: Any,
        page_size: Any,
        support_sliding_window: Any,
        num_hidden_layers: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        qk_head_dim: int,
        v_head_dim: int,
        rope_mode: RopeMode,
        rope_scale: float,
        rope_theta: float,
        dtype: str,
        mla_original_qk_head_dim: int = 0,
        mla_original_v_head_dim: int = 0,
        rotary_dim: int | None = None,
        rope_scaling: dict[str, Any] | None = None,
        rope_ext_factors: Sequence[float] | None = None,
        layer_partition: Sequence[int] | None = None,
        enable_disaggregation: bool = False,
        name: str = "paged_kv_cache",
    ) -> TIRPagedKVCache:
        """The cache of the current target: `TIRPagedKVCache`, with what models seldom say by default."""
        factors = None if rope_ext_factors is None else Tensor.from_const(_float32(rope_ext_factors))._expr
        return TIRPagedKVCache(
            attn_kind=attn_kind,
            max_batch_size=max_batch_size,
            max_total_seq_len=max_total_seq_len,
            prefill_chunk_size=prefill_chunk_size,
            page_size=page_size,
            support_sliding_window=support_sliding_window,
            layer_partition=ShapeExpr(list(layer_partition or [0, num_hidden_layers])),
            num_hidden_layers=num_hidden_layers,
            num_attention_heads=num_attention_heads,
            num_key_value_heads=num_key_value_heads,
            qk_head_dim=qk_head_dim,
            v_head_dim=v_head_dim,
            mla_original_qk_head_dim=mla_original_qk_head_dim,
            mla_original_v_head_dim=mla_original_v_head_dim,
            rope_mode=rope_mode,
            rope_scale=rope_scale,
            rope_theta=rope_theta,
            rope_scaling=rope_scaling or {},
            rope_ext_factors=factors,
            rotary_dim=rotary_dim or qk_head_dim,
            enable_disaggregation=enable_disaggregation,
            dtype=dtype,
            target=Target.current(allow_none=True) or Target("llvm"),
            name=name,
        )

    def attention_with_fused_qkv(self, layer_id: int, qkv: Tensor, num_qo_heads: int, sm_scale: float) -> Tensor:
        """Stores the keys and values of the new tokens, and gives the attention of their queries.

        `qkv` has the shape (batch, length, query heads + 2 * key heads, head_dim).
        """
        b, s, heads, d = qkv.shape
        rows = qkv.reshape(b * s, heads, d)
        name = "vm.builtin.attention_kv_cache_attention_with_fused_qkv"
        args = Tuple([self._expr, PrimValue(layer_id), PrimValue(float(sm_scale)), rows._expr])
        out = TensorStructInfo((b * s, num_qo_heads, d), qkv.dtype)
        return Tensor(_expr=_emit(graph_op.call_dps_packed(name, args, out))).reshape(b, s, num_qo_heads, d)

    def _with_lse(self, name: str, args: list[Expr], shape: tuple[Any, ...], dtype: str) -> tuple[Tensor, Tensor]:
        b, s, heads, d = shape
        out = [TensorStructInfo((b * s, heads, d), dtype), TensorStructInfo((b * s, heads), "float32")]
        both = _emit(graph_op.call_dps_packed(f"vm.builtin.attention_kv_cache_{name}", Tuple(args), out))
        o, lse = (Tensor(_expr=_emit(TupleGetItem(both, i))) for i in range(2))
        return o.reshape(b, s, heads, d), lse.reshape(b, s, heads)

    def self_attention(self, layer_id: int, q: Tensor, k: Tensor, v: Tensor, sm_scale: float) -> tuple[Tensor, Tensor]:
        """The attention of the new tokens to each other, and the logarithms of its sums of weights, to the base 2."""
        b, s, heads, _ = q.shape
        rows = [x.reshape(b * s, x.shape[2], x.shape[3])._expr for x in (q, k, v)]
        args = [self._expr, PrimValue(layer_id), PrimValue(float(sm_scale)), *rows]
        return self._with_lse("self_attention", args, (b, s, heads, v.shape[3]), q.dtype)

    def cross_attention(self, layer_id: int, q: Tensor, v_head_dim: int, sm_scale: float) -> tuple[Tensor, Tensor]:
        """The attention of the new tokens to those that the cache had before, and the logarithms of its sums."""
        b, s, heads, d = q.shape
        args = [self._expr, PrimValue(layer_id), PrimValue(float(sm_scale)), q.reshape(b * s, heads, d)._expr]
        return self._with_lse("cross_attention", args, (b, s, heads, v_head_dim), q.dtype)

    def append_mla_kv(self, layer_id: int, kv: Tensor) -> PagedKVCache:
        """Stores compressed keys and values (batch, length, 1, qk_head_dim) of the new tokens."""
        b, s, _, d = kv.shape
        call = graph_op.call_pure_packed(
            "vm.builtin.attention_kv_cache_append_mla_kv",
            self._expr,
            PrimValue(layer_id),
            kv.reshape(b * s, d)._expr,
            sinfo_args=[ObjectStructInfo()],
        )
        return PagedKVCache(_expr=call, _name="paged_kv_cache")

    def merge_attn_output_inplace(
        self, o_self_attn: Tensor, lse_self_attn: Tensor, o_cross_attn: Tensor, lse_cross_attn: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Makes two results, of attention to different positions, one; the first one and its logarithms get it."""
        b, s, heads, d = o_self_attn.shape
        outs = [o.reshape(b * s, heads, d)._expr for o in (o_self_attn, o_cross_attn)]
        sums = [lse.reshape(b * s, heads)._expr for lse in (lse_self_attn, lse_cross_attn)]
        both = _emit(
            graph_op.call_pure_packed(
                "vm.builtin.attention_kv_cache_merge_attn_output_inplace",
                self._expr,
                outs[0],
                sums[0],
                outs[1],
                sums[1],
                sinfo_args=[TupleStructInfo([outs[0].struct_info, sums[0].struct_info])],
            )
        )
        o, lse = (Tensor(_expr=_emit(TupleGetItem(both, i))) for i in range(2))
        return o.reshape(b, s, heads, d), lse.reshape(b, s, heads)

    def get_query_positions(self, total_length: Any) -> Tensor:
        """The positions, in their sequences, of all `total_length` new tokens, as int32."""
        name = "vm.builtin.attention_kv_cache_get_query_positions"
        info = TensorStructInfo((total_length,), "int32")
        return Tensor(_expr=_emit(graph_op.call_pure_packed(name, self._expr, sinfo_args=[info])))


def _float32(values: Sequence[float]) -> Any:
    import numpy as np

    return np.asarray(values, "float32")


class FlashInferPagedKVCache(PagedKVCache):
    """The cache on FlashInfer's kernels, which is a library of CUDA that is not used here: it raises an error."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise UnsupportedError(
            "FlashInferPagedKVCache needs the library FlashInfer, which OneIR does not call; use TIRPagedKVCache"
        )


def _kinds(attn_kind: str | Sequence[str], layers: int) -> list[int]:
    names = [attn_kind] * layers if isinstance(attn_kind, str) else list(attn_kind)
    if len(names) != layers:
        raise InvalidValue(f"expected a kind of attention for each of the {layers} layers, found {len(names)}")
    unknown = [name for name in names if name.upper() not in AttnKind.__members__]
    if unknown:
        raise InvalidValue(f"expected attention of the kind mha, mla or mha_sliding, found {unknown[0]!r}")
    if any(name.upper() == "MLA" for name in names):
        raise UnsupportedError("TIRPagedKVCache: there are no kernels for attention of the kind mla")
    return [int(AttnKind[name.upper()]) for name in names]


class TIRPagedKVCache(PagedKVCache):
    """The cache on kernels that are compiled with the program.

    `max_batch_size`, `max_total_seq_len`, `prefill_chunk_size`, `page_size` and `support_sliding_window` are numbers,
    or variables of the function that creates the cache; kernels are made for pages of 16 where it is a variable.
    `layer_partition` is a shape; only one part is supported.
    """

    def __init__(
        self,
        attn_kind: str | Sequence[str],
        max_batch_size: Any,
        max_total_seq_len: Any,
        prefill_chunk_size: Any,
        page_size: Any,
        support_sliding_window: Any,
        layer_partition: ShapeExpr,
        num_hidden_layers: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        qk_head_dim: int,
        v_head_dim: int,
        mla_original_qk_head_dim: int,
        mla_original_v_head_dim: int,
        rope_mode: RopeMode,
        rope_scale: float,
        rope_theta: float,
        rope_scaling: dict[str, Any],
        rope_ext_factors: Expr | None,
        rotary_dim: int,
        enable_disaggregation: bool,
        dtype: str,
        target: Target,
        name: str = "paged_kv_cache",
    ):
        if target.kind.name != "llvm":
            raise UnsupportedError(
                f"TIRPagedKVCache has kernels of attention for processors: expected the target llvm, found {target}"
            )
        if qk_head_dim != v_head_dim:
            raise UnsupportedError(
                f"expected keys and values of one size where both are in pages, found {qk_head_dim} and {v_head_dim}"
            )
        kinds = _kinds(attn_kind, num_hidden_layers)
        heads, kv_heads, d, scaling = num_attention_heads, num_key_value_heads, qk_head_dim, rope_scaling
        size = page_size if isinstance(page_size, int) else 16
        builder = current_builder()

        def function(func: PrimFunc, hint: str) -> Expr:
            # Named by the module, so that a model may have several caches.
            return builder.add_func(func.without_attr("global_symbol"), hint)

        def backend(func: PrimFunc, hint: str) -> Expr:
            return Tuple([StringImm("tir"), function(func, hint)])

        if not isinstance(rope_ext_factors, (Expr, type(None))):
            raise TypeMismatch(f"expected rope_ext_factors as an expression or None, found {rope_ext_factors!r}")
        paged = (kv_heads, heads, d, dtype)
        limits = [max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, support_sliding_window]
        rope = llama_rope_with_position_map(rope_theta, rope_scale, d, heads, kv_heads, dtype, scaling, rotary_dim)
        args: list[Any] = [
            ShapeExpr(limits),
            layer_partition,
            PrimValue(heads),
            PrimValue(kv_heads),
            PrimValue(d),
            PrimValue(v_head_dim),
            ShapeExpr(kinds),
            PrimValue(bool(enable_disaggregation)),
            PrimValue(int(rope_mode)),
            PrimValue(rope_scale),
            PrimValue(rope_theta),
            Tuple([]) if rope_ext_factors is None else rope_ext_factors,
            graph_op.zeros((), dtype),
            function(_kv_cache_transpose_append(kv_heads, d, dtype, size), "kv_cache_transpose_append"),
            Tuple([]),
            backend(
                _attention_prefill_ragged_cpu(kv_heads, heads, d, v_head_dim, dtype, scaling),
                "tir_attention_prefill_ragged_cpu",
            ),
            backend(_attention_prefill_cpu(*paged, False, scaling, size), "tir_attention_prefill_cpu"),
            backend(_attention_decode_cpu(*paged, False, scaling, size), "tir_attention_decode_cpu"),
            backend(_attention_prefill_cpu(*paged, True, scaling, size), "tir_attention_prefill_cpu_sliding_window"),
            backend(_attention_decode_cpu(*paged, True, scaling, size), "tir_attention_decode_cpu_sliding_window"),
            backend(
                tree_attn_with_paged_kv_cache_cpu(*paged, scaling, size),
                "tir_attention_prefill_with_tree_mask_with_paged_kv_cache_cpu",
            ),
            backend(tree_attn_cpu(*paged, scaling), "tir_attention_prefill_with_tree_mask_cpu"),
            Tuple([]),
            Tuple([function(_merge_state_inplace_cpu(dtype), "tir_attention_merge_state_cpu")]),
            function(rope, "tir_split_rotary"),
            function(_copy_single_page_cpu(kv_heads, page_size, d, dtype), "kv_cache_copy_single_page_cpu"),
            function(_kv_cache_debug_get_kv(num_hidden_layers, kv_heads, d, dtype), "kv_cache_debug_get_kv"),
            function(_compact_kv_copy_cpu(kv_heads, d, dtype, size), "kv_cache_compact_kv_copy_cpu"),
        ]
        create = "vm.builtin.paged_attention_kv_cache_create"
        super().__init__(_expr=graph_op.call_pure_packed(create, *args, sinfo_args=[ObjectStructInfo()]), _name=name)
