"""The schedule: a program that is transformed step by step, and the trace of the steps.

sch = tir.Schedule(mod)
i, j, k = sch.get_loops(sch.get_block("matmul"))
i0, i1 = sch.split(i, [None, 32])
sch.parallel(i0)
sch.mod.show()
"""

from __future__ import annotations

from ...runtime.error import ScheduleError as ScheduleError
from .access import Access
from .annotate import Annotate
from .blockize import Blockize
from .cache import Cache
from .cache_index import CacheIndex
from .compute_at import ComputeAt
from .copy_at import CopyAt
from .decompose_padding import DecomposePadding
from .inline import Inline
from .layout import Layout
from .lookup import Lookup
from .loop_kind import LoopKind
from .loops import Loops
from .pad_einsum import PadEinsum
from .random_variable import BlockRV, ExprRV, LoopRV
from .reduction import Reductions
from .reindex import Reindex
from .reorder import Reorder
from .rolling_buffer import RollingBuffer
from .sampling import Sampling
from .split_fuse import SplitFuse
from .storage import Storage
from .tensorize import Tensorize

__all__ = ["BlockRV", "ExprRV", "LoopRV", "Schedule"]


class Schedule(
    Lookup,
    SplitFuse,
    Reorder,
    Loops,
    LoopKind,
    Annotate,
    Inline,
    ComputeAt,
    Cache,
    CacheIndex,
    Storage,
    Reductions,
    Blockize,
    Tensorize,
    Layout,
    Reindex,
    Sampling,
    DecomposePadding,
    PadEinsum,
    CopyAt,
    Access,
    RollingBuffer,
):
    """Transforms the functions of a module, and records how.

    Parameters
    ----------
    mod: a `PrimFunc` or an `IRModule`.
    seed: where random choices start; they differ each time without one.
    debug_mask: "all", or a number other than 0, checks the handles after each change; "none" does not.
    error_render_level: what errors show: "detail", with the program, "fast", the reason only, or "none".
    enable_check: whether to check conditions that need an analysis of the program.

    A primitive that cannot be applied raises a `ScheduleError` and changes nothing.
    """
