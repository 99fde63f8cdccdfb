"""Programs over tensors that workers hold together: a program is written as for one worker, says how a few tensors are
placed, and passes make of it what each worker runs. docs/distributed.md shows how.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import global_info
from ...ir.expr import Range
from ...ir.global_info import DeviceMesh
from .. import struct_info
from ..placement import Placement, PlacementSpec, PlacementSpecKind
from ..struct_info import DTensorStructInfo
from . import infer, transform

__all__ = [
    "DTensorStructInfo",
    "DeviceMesh",
    "Placement",
    "PlacementSpec",
    "PlacementSpecKind",
    "device_mesh",
    "global_info",
    "infer",
    "struct_info",
    "transform",
]


def device_mesh(shape: Sequence[int], device_ids: Sequence[int] | Range) -> DeviceMesh:
    """Workers as a grid; `DeviceMesh` says what the arguments mean."""
    return DeviceMesh(shape, device_ids)
