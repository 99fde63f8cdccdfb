"""What passes ask of graphs."""

from .struct_info import (
    BaseCheckResult,
    collect_non_negative_expressions,
    definable_tir_vars_in_struct_info,
    derive_call_ret_struct_info,
    erase_to_well_defined,
    get_static_type,
    struct_info_base_check,
    struct_info_lca,
    tir_vars_in_struct_info,
)
