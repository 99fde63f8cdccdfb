"""The passes after which a function's allocations have their final sizes."""

from __future__ import annotations

from ...ir.transform import Pass
from ...runtime.hook import Hook

get_vtcm_compaction_passes: Hook[[], list[Pass]] = Hook("get_vtcm_compaction_passes", "oneir.tir.transform")
"""The passes that bring allocations of `global.vtcm`, and others, to what is used of them.

`calculate_allocated_bytes` of what they give says how much memory a function takes.
"""
