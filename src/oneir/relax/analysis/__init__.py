"""Analyses of graphs: queries that passes are built on, and those that users call."""

from ..struct_info import BaseCheckResult, struct_info_base_check
from .bindings import get_var2val, name_to_binding, udchain
from .compile_time import computable_at_compile_time
from .estimate_memory_usage import estimate_memory_usage
from .layout_transforms import suggest_layout_transforms
from .memory_plan import MemoryPlan, plan_memory
from .purity import contains_impure_call
from .recursion import detect_recursion
from .remove_unused import remove_all_unused
from .reshape_pattern import has_reshape_pattern
from .struct_info import (
    collect_non_negative_expressions,
    definable_tir_vars_in_struct_info,
    derive_call_ret_struct_info,
    erase_to_well_defined,
    get_static_type,
    struct_info_lca,
    tir_vars_in_struct_info,
)
from .symbolic_vars import defined_symbolic_vars, free_symbolic_vars
from .variables import all_global_vars, all_vars, bound_vars, free_vars, post_order_visit
from .well_formed import verify_well_formed, well_formed
