"""The passes after which a function's allocations have the sizes that they take on a machine."""

from __future__ import annotations

from ...ir.transform import Pass


def get_vtcm_compaction_passes() -> list[Pass]:
    """The passes that bring allocations of `global.vtcm`, and others, to what is used of them.

    `calculate_allocated_bytes` of what they give says how much memory a function takes.
    """
    from .. import transform

    return [
        transform.LowerInitBlock(),
        transform.PlanAndUpdateBufferAllocationLocation(),
        transform.ConvertBlocksToOpaque(),
        transform.CompactBufferAllocation(),
        transform.LowerMatchBuffer(),
        transform.InjectSoftwarePipeline(),
        transform.LowerOpaqueBlock(),
        transform.FlattenBuffer(),
        transform.Simplify(),
        transform.VectorizeLoop(True),
        transform.StorageRewrite(),
    ]
