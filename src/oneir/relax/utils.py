"""Published names of what is defined in other modules."""

from __future__ import annotations

from .copy_function import copy_with_new_vars
from .emit_te import gen_call_tir_inputs
from .expr import as_graph_expr as convert_to_expr
from .metadata_text import metadata_partitioner

__all__ = ["convert_to_expr", "copy_with_new_vars", "gen_call_tir_inputs", "metadata_partitioner"]
