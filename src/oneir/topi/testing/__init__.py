"""What operators compute, in NumPy: oracles of tests. Arrays in, arrays out, with plain loops over windows."""

from .convolution import (
    conv1d_ncw_python,
    conv1d_transpose_ncw_python,
    conv2d_backward_weight_python,
    conv2d_hwcn_python,
    conv2d_nchw_python,
    conv2d_nhwc_python,
    conv2d_transpose_nchw_python,
    conv2d_transpose_nhwc_python,
    conv3d_ncdhw_python,
    conv3d_ndhwc_python,
    conv3d_transpose_ncdhw_python,
    depthwise_conv2d_python_nchw,
    depthwise_conv2d_python_nchwc,
    depthwise_conv2d_python_nhwc,
    dilate_python,
    group_conv1d_ncw_python,
    group_conv1d_transpose_ncw_python,
)
from .images import (
    affine_grid_python,
    batch_to_space_nd_python,
    depth_to_space_python,
    grid_sample_python,
    resize1d_python,
    resize2d_python,
    resize3d_python,
    space_to_batch_nd_python,
    space_to_depth_python,
)
from .indexing import (
    gather_nd_python,
    gather_python,
    matrix_set_diag,
    one_hot,
    searchsorted_ref,
    sequence_mask,
    slice_axis_python,
    strided_set_python,
    strided_slice_python,
)
from .normalization import (
    batch_norm,
    group_norm_python,
    instance_norm_python,
    l2_normalize_python,
    layer_norm_python,
    log_softmax_python,
    lrn_python,
    rms_norm_python,
    softmax_python,
)
from .pooling import adaptive_pool, pool_grad_nchw, poolnd_python
from .products import attention_python, batch_matmul, dense, lstm_python, nll_loss
from .regions import (
    correlation_nchw_python,
    crop_and_resize_python,
    deformable_conv2d_nchw_python,
    deformable_conv2d_nhwc_python,
    reorg_python,
    roi_align_nchw_python,
    roi_align_nhwc_python,
    roi_pool_nchw_python,
)
