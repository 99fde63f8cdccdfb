"""The classes of the attributes of calls: what a call holds besides its arguments, by name.

    if isinstance(call.attrs, op_attrs.Conv2DAttrs):
        height, width = call.attrs.strides

Every call of an operator has attributes of that operator's class, whoever makes it. The docstrings name the operators,
then the attributes. Operators that stand in none have `OpAttrs`, mostly without attributes.
"""

from __future__ import annotations

from ..expr import OpAttrs

# -- calls of functions, and devices --


class CallTIRWithGradAttrs(OpAttrs):
    """Of call_tir_with_grad: te_grad_name, te_grad_kwargs."""


class CallTIRInplaceAttrs(OpAttrs):
    """Of call_tir_inplace: inplace_indices."""


class CallInplacePackedAttrs(OpAttrs):
    """Of call_inplace_packed: inplace_indices."""


class ToVDeviceAttrs(OpAttrs):
    """Of to_vdevice: dst_vdevice."""


class HintOnDeviceAttrs(OpAttrs):
    """Of hint_on_device: dst_vdevice."""


# -- creation, dtypes and quantization --


class InitAttrs(OpAttrs):
    """Of full, ones, zeros, eye, those of another tensor's shape, arange and hamming_window: dtype."""


class AstypeAttrs(OpAttrs):
    """Of astype: dtype."""


class WrapParamAttrs(OpAttrs):
    """Of wrap_param: dtype."""


class QuantizeAttrs(OpAttrs):
    """Of quantize and dequantize: axis, out_dtype."""


# -- products --


class MatmulAttrs(OpAttrs):
    """Of matmul: out_dtype."""


class EinsumAttrs(OpAttrs):
    """Of einsum: subscripts."""


# -- indices, gathers and scatters --


class TakeAttrs(OpAttrs):
    """Of take; its gradient has only the axis: axis, mode."""


class StridedSliceAttrs(OpAttrs):
    """Of strided_slice: assume_inbound."""


class GatherElementsAttrs(OpAttrs):
    """Of gather_elements: axis."""


class GatherNDAttrs(OpAttrs):
    """Of gather_nd: batch_dims."""


class MeshgridAttrs(OpAttrs):
    """Of meshgrid: indexing."""


class OneHotAttrs(OpAttrs):
    """Of one_hot: depth, axis."""


class IndexPutAttrs(OpAttrs):
    """Of index_put: accumulate."""


class ScatterElementsAttrs(OpAttrs):
    """Of scatter_elements: axis, reduction."""


class ScatterNDAttrs(OpAttrs):
    """Of scatter_nd: reduction."""


class SliceScatterAttrs(OpAttrs):
    """Of slice_scatter: axis."""


# -- forms of tensors --


class ConcatAttrs(OpAttrs):
    """Of concat: axis."""


class ExpandDimsAttrs(OpAttrs):
    """Of expand_dims: axis."""


class FlipAttrs(OpAttrs):
    """Of flip: axis."""


class LayoutTransformAttrs(OpAttrs):
    """Of layout_transform: index_map, pad_value, axis_separators, input_axis_separators."""


class PermuteDimsAttrs(OpAttrs):
    """Of permute_dims: axes."""


class RepeatAttrs(OpAttrs):
    """Of repeat: repeats, axis."""


class SplitAttrs(OpAttrs):
    """Of split: indices_or_sections, axis."""


class SqueezeAttrs(OpAttrs):
    """Of squeeze: axis."""


class StackAttrs(OpAttrs):
    """Of stack: axis."""


class TileAttrs(OpAttrs):
    """Of tile: repeats."""


# -- reductions, scans, sorts and samples --


class ArgmaxArgminAttrs(OpAttrs):
    """Of argmax and argmin: axis, keepdims."""


class StatisticalAttrs(OpAttrs):
    """Of max, min, sum, prod, mean, std and variance: axis, keepdims."""


class ScanopAttrs(OpAttrs):
    """Of cumsum and cumprod: axis, dtype, exclusive."""


class SortAttrs(OpAttrs):
    """Of sort: axis, descending."""


class ArgsortAttrs(OpAttrs):
    """Of argsort: axis, descending, dtype."""


class TopKAttrs(OpAttrs):
    """Of topk: k, axis, ret_type, largest, dtype."""


class MultinomialFromUniformAttrs(OpAttrs):
    """Of multinomial_from_uniform: dtype."""


# -- layers --


class Conv1DAttrs(OpAttrs):
    """Of nn.conv1d: strides, padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype."""


class Conv2DAttrs(OpAttrs):
    """Of nn.conv2d: strides, padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype."""


class Conv3DAttrs(OpAttrs):
    """Of nn.conv3d: strides, padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype."""


class Conv1DTransposeAttrs(OpAttrs):
    """Of nn.conv1d_transpose:

    strides, padding, output_padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype.
    """


class Conv2DTransposeAttrs(OpAttrs):
    """Of nn.conv2d_transpose:

    strides, padding, output_padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype.
    """


class Pool1DAttrs(OpAttrs):
    """Of nn.max_pool1d and nn.avg_pool1d:

    pool_size, strides, dilation, padding, ceil_mode, count_include_pad, layout, out_layout.
    """


class Pool2DAttrs(OpAttrs):
    """Of nn.max_pool2d, nn.avg_pool2d and their gradients:

    pool_size, strides, dilation, padding, ceil_mode, count_include_pad, layout, out_layout.
    """


class Pool3DAttrs(OpAttrs):
    """Of nn.max_pool3d and nn.avg_pool3d:

    pool_size, strides, dilation, padding, ceil_mode, count_include_pad, layout, out_layout.
    """


class AdaptivePool1DAttrs(OpAttrs):
    """Of nn.adaptive_avg_pool1d: output_size, layout, out_layout."""


class AdaptivePool2DAttrs(OpAttrs):
    """Of nn.adaptive_avg_pool2d: output_size, layout, out_layout."""


class AdaptivePool3DAttrs(OpAttrs):
    """Of nn.adaptive_avg_pool3d: output_size, layout, out_layout."""


class AttentionAttrs(OpAttrs):
    """Of nn.attention, with a bias, without NaN, and nn.attention_var_len: scale, causal_mask, window_size."""


class BatchNormAttrs(OpAttrs):
    """Of nn.batch_norm: axis, epsilon, center, scale, momentum, training."""


class LayerNormAttrs(OpAttrs):
    """Of nn.layer_norm: axes, epsilon, center, scale."""


class GroupNormAttrs(OpAttrs):
    """Of nn.group_norm: num_groups, channel_axis, axes, epsilon, center, scale."""


class InstanceNormAttrs(OpAttrs):
    """Of nn.instance_norm: channel_axis, axes, epsilon, center, scale."""


class RMSNormAttrs(OpAttrs):
    """Of nn.rms_norm: axes, epsilon."""


class DropoutAttrs(OpAttrs):
    """Of nn.dropout: rate."""


class LeakyReluAttrs(OpAttrs):
    """Of nn.leakyrelu: alpha."""


class PReluAttrs(OpAttrs):
    """Of nn.prelu: axis."""


class SoftplusAttrs(OpAttrs):
    """Of nn.softplus: beta, threshold."""


class SoftmaxAttrs(OpAttrs):
    """Of nn.softmax and nn.log_softmax: axis."""


class NLLLossAttrs(OpAttrs):
    """Of nn.nll_loss and its gradient: reduction, ignore_index."""


class PadAttrs(OpAttrs):
    """Of nn.pad: pad_width, pad_value, pad_mode."""


class PixelShuffleAttrs(OpAttrs):
    """Of nn.pixel_shuffle: upscale_factor."""


# -- images --


class Resize2DAttrs(OpAttrs):
    """Of image.resize2d:

    roi, layout, method, coordinate_transformation_mode, rounding_method, cubic_alpha, cubic_exclude,
    extrapolation_value, out_dtype.
    """


class AllClassNonMaximumSuppressionAttrs(OpAttrs):
    """Of vision.all_class_non_max_suppression: output_format."""


# -- several workers --


class AllReduceAttrs(OpAttrs):
    """Of ccl.allreduce: op_type, in_group."""


class AllGatherAttrs(OpAttrs):
    """Of ccl.allgather: num_workers, in_group."""


class ScatterCollectiveAttrs(OpAttrs):
    """Of ccl.scatter_from_worker0: num_workers, axis."""
