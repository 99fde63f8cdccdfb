"""Analyses of TensorIR: the regions that blocks access, estimates of work and memory, well-formedness."""

from ...ir.operators import same_expr as expr_deep_equal
from . import _ffi_api as _ffi_api  # a name of the published API
from .block_access_region import domain_touched, get_block_access_region, get_block_read_write_region
from .calculate_allocated_bytes import calculate_allocated_bytes
from .detect_buffer_access_lca import detect_buffer_access_lca
from .estimate_tir_bytes import estimate_tir_bytes
from .estimate_tir_flops import estimate_tir_flops
from .find_anchor_block import find_anchor_block
from .identify_memcpy import identify_memcpy
from .oob_checker import OOBChecker
from .purity import assert_pure_function, is_pure_function
from .undefined_vars import undefined_vars
from .verify_gpu_code import verify_gpu_code
from .verify_memory import verify_memory
from .verify_ssa import verify_ssa
from .verify_well_formed import verify_well_formed
from .vtcm_compaction_passes import get_vtcm_compaction_passes

__all__ = [
    "OOBChecker",
    "assert_pure_function",
    "calculate_allocated_bytes",
    "detect_buffer_access_lca",
    "domain_touched",
    "estimate_tir_bytes",
    "estimate_tir_flops",
    "expr_deep_equal",
    "find_anchor_block",
    "get_block_access_region",
    "get_block_read_write_region",
    "get_vtcm_compaction_passes",
    "identify_memcpy",
    "is_pure_function",
    "undefined_vars",
    "verify_gpu_code",
    "verify_memory",
    "verify_ssa",
    "verify_well_formed",
]
