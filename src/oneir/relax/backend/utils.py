"""What checks of matched patterns look at."""

from __future__ import annotations

from ..expr import DataflowVar
from ..transform.fuse_ops_by_pattern import PatternCheckContext


def has_leaking_intermediate_variables(context: PatternCheckContext) -> bool:
    """Whether anything but the last value of a match is used outside of it."""
    matched = context.matched_bindings.keys()
    output = context.value_to_bound_var[context.matched_expr]
    return any(
        not isinstance(var, DataflowVar) or any(user not in matched for user in context.var_usages[var])
        for var in matched
        if var is not output
    )
