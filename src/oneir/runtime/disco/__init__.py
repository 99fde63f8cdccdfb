"""Sessions: one controller, and several workers that do the same work on different tensors.

    with ProcessSession(num_workers=2) as session:
        session.init_ccl("cpu")
        x, y = session.empty((4,), "float32"), session.empty((4,), "float32")
        session.broadcast_from_worker0(x, x)
        session.allreduce(x, y, "sum")

The controller gives orders and does not wait for them: what a call returns is a `DRef`, which stands for the result of
each worker. `runtime.disco.NAME` are the functions that programs call on workers.
"""

from __future__ import annotations

from .collective import REDUCTIONS as REDUCE_OPS
from .session import DModule, DPackedFunc, DRef, ProcessSession, Session, ThreadedSession

__all__ = [
    "REDUCE_OPS",
    "DModule",
    "DPackedFunc",
    "DRef",
    "ProcessSession",
    "Session",
    "ThreadedSession",
]
