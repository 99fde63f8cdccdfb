"""The passes that shrink allocations to the parts that are used; `tir.analysis` publishes them."""

from __future__ import annotations

from ...ir.transform import Pass
from ..analysis.vtcm_compaction_passes import get_vtcm_compaction_passes
from .compact_buffer_allocation import CompactBufferAllocation
from .convert_blocks_to_opaque import ConvertBlocksToOpaque
from .flatten_buffer import FlattenBuffer
from .inject_software_pipeline import InjectSoftwarePipeline
from .lower_init_block import LowerInitBlock
from .lower_match_buffer import LowerMatchBuffer
from .lower_opaque_block import LowerOpaqueBlock
from .plan_and_update_buffer_allocation_location import PlanAndUpdateBufferAllocationLocation
from .simplify import Simplify
from .storage_rewrite import StorageRewrite
from .vectorize_loop import VectorizeLoop


@get_vtcm_compaction_passes.provide
def _vtcm_compaction_passes() -> list[Pass]:
    return [
        LowerInitBlock(),
        PlanAndUpdateBufferAllocationLocation(),
        ConvertBlocksToOpaque(),
        CompactBufferAllocation(),
        LowerMatchBuffer(),
        InjectSoftwarePipeline(),
        LowerOpaqueBlock(),
        FlattenBuffer(),
        Simplify(),
        VectorizeLoop(True),
        StorageRewrite(),
    ]
