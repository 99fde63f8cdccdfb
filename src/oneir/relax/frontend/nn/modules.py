"""Layers and effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.expr import Var as TirVar
from ....runtime.error import InvalidValue, TypeMismatch
from ... import op as graph_op
from ...block_builder import BlockBuilder
from ...expr import PrimValue, ShapeExpr, Var
from ...struct_info import ObjectStructInfo, TensorStructInfo
from . import op
from .core import Module, ModuleList
from .effects import IOEffect as IOEffect
from .tensor import Effect, Parameter, Tensor, current_builder, get_default_dtype


class KVCache(Effect):
    """Keys or values of an attention, which grow by one method call after the other.

    `unit_shape` is the shape of one element, such as [heads, head_dim]; `init_seq_len` how many fit at first.
    """

    def __init__(self, init_seq_len: int, unit_shape: Sequence[int], dtype: str | None = None):
        self.init_seq_len = init_seq_len
        self.unit_shape = [int(i) for i in unit_shape]
        self.dtype = dtype or get_default_dtype()
        self.cache: Any = None

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        shape = ShapeExpr([self.init_seq_len, *self.unit_shape])
        args = [graph_op.zeros(shape, self.dtype), shape, PrimValue(0)]
        create = "vm.builtin.attention_kv_cache_create"
        return [builder.emit(graph_op.call_pure_packed(create, *args, sinfo_args=[ObjectStructInfo()]), name_hint)]

    def create(self, name_hint: str) -> list[Var]:
        return [Var(name_hint, ObjectStructInfo())]

    def set_state(self, state_vars: list[Var]) -> None:
        (self.cache,) = state_vars

    def finalize(self) -> list[Var]:
        state, self.cache = self.cache, None
        return [state]

    def to(self, dtype: str | None = None) -> None:
        self.dtype = dtype or self.dtype

    def view(self, seq_len: TirVar) -> Tensor:
        """The first `seq_len` elements, of shape [seq_len, *unit_shape]."""
        shape = ShapeExpr([seq_len, *self.unit_shape])
        info = TensorStructInfo(shape, self.dtype)
        view = "vm.builtin.attention_kv_cache_view"
        call = graph_op.call_pure_packed(view, self.cache, shape, sinfo_args=[info])
        return Tensor(_expr=current_builder().emit(call))

    def append(self, new_element: Tensor) -> None:
        """Adds elements, of shape [n, *unit_shape]."""
        if new_element.dtype != self.dtype:
            raise TypeMismatch(f'KVCache has been set to use dtype "{self.dtype}", but got "{new_element.dtype}"')
        call = graph_op.call_inplace_packed(
            "vm.builtin.attention_kv_cache_append",
            self.cache,
            new_element._expr,
            inplace_indices=[0],
            sinfo_args=[ObjectStructInfo()],
        )
        self.cache = current_builder().emit(call)


class ReLU(Module):
    """max(x, 0)"""

    def forward(self, x: Tensor) -> Tensor:
        return op.relu(x)


class SiLU(Module):
    """x * sigmoid(x)"""

    def forward(self, x: Tensor) -> Tensor:
        return op.silu(x)


class GELU(Module):
    """x * P(X <= x) for a standard normal X."""

    def forward(self, x: Tensor) -> Tensor:
        return op.gelu(x)


class Identity(Module):
    """x itself."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Linear(Module):
    """x @ weight.T + bias, over the last dimension of x. The weight has the shape (out_features, in_features).

    With `out_dtype`, the product and the bias have that dtype.
    """

    def __init__(
        self,
        in_features: Any,
        out_features: Any,
        bias: bool = True,
        dtype: str | None = None,
        out_dtype: str | None = None,
    ):
        self.in_features, self.out_features, self.out_dtype = in_features, out_features, out_dtype
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), out_dtype or dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        x = op.matmul(x, op.permute_dims(self.weight), out_dtype=self.out_dtype)
        return x if self.bias is None else x + self.bias

    def to(self, dtype: str | None = None) -> None:
        self.weight.to(dtype)
        # With an out_dtype, the bias is added to a product of that dtype.
        if self.bias is not None and self.out_dtype is None:
            self.bias.to(dtype)
        if dtype is not None and isinstance(vars(self).get("dtype"), str):
            self.dtype = dtype


class _Convolution(Module):
    """What convolutions of all ranks share; `kernel_size` is of each spatial dimension, or one for all."""

    rank: int
    transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ):
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel_size
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        kernel = [kernel_size] * self.rank if isinstance(kernel_size, int) else list(kernel_size)
        first, second = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        self.weight = Parameter((first, second // groups, *kernel), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None


class Conv1D(_Convolution):
    """A convolution over (batch, channels, width)."""

    rank = 1

    def forward(self, x: Tensor) -> Tensor:
        return op.conv1d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv2D(_Convolution):
    """A convolution over (batch, channels, height, width), or as `data_layout` says."""

    rank = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        data_layout: str = "NCHW",
    ):
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias=bias, dtype=dtype
        )
        self.data_layout = data_layout

    def forward(self, x: Tensor) -> Tensor:
        return op.conv2d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups, self.data_layout
        )


class Conv3D(_Convolution):
    """A convolution over (batch, channels, depth, height, width), or as `data_layout` says."""

    rank = 3

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        data_layout: str = "NCDHW",
    ):
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias=bias, dtype=dtype
        )
        self.data_layout = data_layout

    def forward(self, x: Tensor) -> Tensor:
        return op.conv3d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups, self.data_layout
        )


class ConvTranspose1D(_Convolution):
    """The transpose of a convolution over (batch, channels, width)."""

    rank, transposed = 1, True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ):
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias=bias, dtype=dtype
        )
        self.output_padding = output_padding

    def forward(self, x: Tensor) -> Tensor:
        return op.conv1d_transpose(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.dilation, self.groups
        )


class LayerNorm(Module):
    """Normalization over the last dimension, which is `normalized_shape` long."""

    def __init__(
        self, normalized_shape: int, eps: float = 1e-5, elementwise_affine: bool = True, dtype: str | None = None
    ):
        self.normalized_shape, self.eps, self.elementwise_affine = normalized_shape, eps, elementwise_affine
        self.weight = Parameter((normalized_shape,), dtype) if elementwise_affine else None
        self.bias = Parameter((normalized_shape,), dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        return op.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """x divided by the root of its mean square over `axes`, times the weight."""

    def __init__(
        self,
        hidden_size: int,
        axes: int | list[int],
        epsilon: float = 1e-5,
        bias: bool = True,
        dtype: str | None = None,
    ):
        self.axes, self.epsilon = axes, epsilon
        self.weight = Parameter((hidden_size,), dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        out = op.rms_norm(x, self.weight, self.axes, self.epsilon)
        return out if self.bias is None else op.add(out, self.bias)


class GroupNorm(Module):
    """Normalization over groups of channels and the dimensions after them."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, dtype: str | None = None
    ):
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Parameter((num_channels,), dtype) if affine else None
        self.bias = Parameter((num_channels,), dtype) if affine else None

    def forward(self, x: Tensor, channel_axis: int = 1, axes: list[int] | None = None) -> Tensor:
        return op.group_norm(x, self.num_groups, self.weight, self.bias, self.eps, channel_axis, axes)


class Embedding(Module):
    """A row of the weight, of shape (num, dim), for each index."""

    def __init__(self, num: Any, dim: Any, dtype: str | None = None):
        self.num, self.dim = num, dim
        self.weight = Parameter((num, dim), dtype)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 1:
            return op.take(self.weight, x, axis=0)
        return op.reshape(op.take(self.weight, op.reshape(x, [-1]), axis=0), [*x.shape, self.dim])


def _silu_or_none(what: str, name: str | None) -> SiLU | None:
    if name not in (None, "silu"):
        raise InvalidValue(f'TimestepEmbedding: expected {what}="silu", found {name!r}')
    return None if name is None else SiLU()


class TimestepEmbedding(Module):
    """Two linear layers over the embedding of a diffusion's time."""

    def __init__(
        self,
        in_channels: int,
        time_embed_dim: int,
        act_fn: str = "silu",
        out_dim: int | None = None,
        post_act_fn: str | None = None,
        cond_proj_dim: int | None = None,
    ):
        self.linear_1 = Linear(in_channels, time_embed_dim)
        self.cond_proj = None if cond_proj_dim is None else Linear(cond_proj_dim, in_channels, bias=False)
        self.act = _silu_or_none("act_fn", act_fn)
        self.linear_2 = Linear(time_embed_dim, time_embed_dim if out_dim is None else out_dim)
        self.post_act = _silu_or_none("post_act_fn", post_act_fn)

    def forward(self, sample: Tensor, condition: Tensor | None = None) -> Tensor:
        if condition is not None:
            if self.cond_proj is None:
                raise InvalidValue("TimestepEmbedding: a condition is given, but cond_proj_dim was not")
            sample = sample + self.cond_proj(condition)
        sample = self.linear_1(sample)
        if self.act is not None:
            sample = self.act(sample)
        sample = self.linear_2(sample)
        return sample if self.post_act is None else self.post_act(sample)


class Timesteps(Module):
    """The sines and cosines of a diffusion's time."""

    def __init__(self, num_channels: int, flip_sin_to_cos: bool = False, downscale_freq_shift: float = 1):
        self.num_channels = num_channels
        self.flip_sin_to_cos = flip_sin_to_cos
        self.downscale_freq_shift = downscale_freq_shift

    def forward(self, x: Tensor) -> Tensor:
        return op.get_timestep_embedding(x, self.num_channels, self.flip_sin_to_cos, self.downscale_freq_shift)


class Attention(Module):
    """Attention of `heads` heads over (batch, length, query_dim), to itself or to other states."""

    def __init__(
        self,
        query_dim: int,
        cross_attention_dim: int | None = None,
        heads: int = 8,
        dim_head: int = 64,
        bias: bool = False,
        norm_num_groups: int | None = None,
        out_bias: bool = True,
        scale_qk: bool = True,
    ):
        self.query_dim = query_dim
        self.cross_attention_dim = cross_attention_dim or query_dim
        self.heads, self.dim_head, self.scale_qk = heads, dim_head, scale_qk
        self.scale = dim_head**-0.5 if scale_qk else 1.0
        self.inner_dim = dim_head * heads
        self.to_q = Linear(query_dim, self.inner_dim, bias=bias)
        self.to_k = Linear(self.cross_attention_dim, self.inner_dim, bias=bias)
        self.to_v = Linear(self.cross_attention_dim, self.inner_dim, bias=bias)
        self.group_norm = None if norm_num_groups is None else GroupNorm(norm_num_groups, query_dim)
        self.to_out = ModuleList([Linear(self.inner_dim, query_dim, bias=out_bias)])

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        **cross_attention_kwargs: Any,
    ) -> Tensor:
        if attention_mask is not None:
            raise InvalidValue("nn.Attention takes no attention mask; use nn.op.scaled_dot_product_attention's parts")
        if self.group_norm is not None:
            hidden_states = self.group_norm(hidden_states, channel_axis=2, axes=[1])
        attended = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        query, key, value = self.to_q(hidden_states), self.to_k(attended), self.to_v(attended)
        heads = [0, -1, self.heads, self.dim_head]
        query, key, value = op.reshape(query, heads), op.reshape(key, heads), op.reshape(value, heads)
        scale = None if self.scale_qk else self.scale
        attention = op.scaled_dot_product_attention(query, key, value, is_causal=False, scale=scale)
        return self.to_out[0](op.reshape(attention, [0, -1, self.inner_dim]))
