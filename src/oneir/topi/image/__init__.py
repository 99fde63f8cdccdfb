"""Operators on images: resizing, cropping, sampling, morphology."""

from . import resize_table as resize_table
from .dilation2d import dilation2d_nchw, dilation2d_nhwc
from .grid_sample import affine_grid, grid_sample
from .resize import (
    can_convert_multiply_to_intdiv,
    crop_and_resize,
    get_1d_indices,
    get_1d_pixel,
    get_2d_indices,
    get_2d_pixel,
    get_3d_indices,
    get_3d_pixel,
    get_closest_index,
    get_inx,
    resize1d,
    resize2d,
    resize3d,
)
