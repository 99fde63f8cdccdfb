"""Analyses of blocks, for schedule rules."""

from .common_analysis import (
    BlockInfo,
    IterInfo,
    collect_block_iter_vars_used_in_access_region,
    collect_vars_used_in_prim_expr,
    detect_dominant_read,
    dominant_access,
    get_block_info,
    get_max_shared_memory_per_block,
    get_max_threads_per_block,
    get_root_block,
    is_broadcast_epilogue,
    normalize_prim_func,
)
from .gemm import get_reduction_blocks
from .gemv import get_reduction_expr, is_gemv, normalize
