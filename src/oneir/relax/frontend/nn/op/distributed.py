"""Communication of several workers."""

from __future__ import annotations

from .... import op as graph_op
from ..core import Tensor, wrap_nested


def ccl_allreduce(x: Tensor, op_type: str = "sum", in_group: bool = True, name: str = "ccl_allreduce") -> Tensor:
    """The "sum", "prod", "min", "max" or "avg" of the tensors of all workers."""
    return wrap_nested(graph_op.ccl.allreduce(x._expr, op_type, in_group), name)


def ccl_allgather(x: Tensor, num_workers: int, name: str = "ccl_allgather") -> Tensor:
    """The tensors of all workers, one after the other."""
    return wrap_nested(graph_op.ccl.allgather(x._expr, num_workers), name)


def ccl_broadcast_from_worker0(x: Tensor, name: str = "broadcast_from_worker") -> Tensor:
    """The tensor of the first worker."""
    return wrap_nested(graph_op.ccl.broadcast_from_worker0(x._expr), name)
