"""Collectives of the workers of a session."""

from __future__ import annotations

from .... import op as graph_op
from ..tensor import Tensor, wrap_nested


def ccl_allreduce(x: Tensor, op_type: str = "sum", in_group: bool = True, name: str = "ccl_allreduce") -> Tensor:
    """The "sum", "prod", "min", "max" or "avg" of the tensors of all workers, on each of them."""
    return wrap_nested(graph_op.ccl.allreduce(x._expr, op_type, in_group), name)


def ccl_allgather(x: Tensor, num_workers: int, in_group: bool = True, name: str = "ccl_allgather") -> Tensor:
    """The tensors of so many workers, one after the other along the first axis, on each of them."""
    return wrap_nested(graph_op.ccl.allgather(x._expr, num_workers, in_group), name)


def ccl_broadcast_from_worker0(x: Tensor, name: str = "broadcast_from_worker") -> Tensor:
    """Worker 0's tensor, on all workers."""
    return wrap_nested(graph_op.ccl.broadcast_from_worker0(x._expr), name)
