"""Placements: how a tensor lies on a mesh of workers.

Placement.from_text("S[0], R")  # rows divided along the mesh's first dimension, the same along its second
"""

from __future__ import annotations

import re
from enum import IntEnum

from ..ir.container import Array
from ..ir.global_info import DeviceMesh
from ..ir.node import Node, as_array, attr
from ..runtime.error import InvalidValue


class PlacementSpecKind(IntEnum):
    """What happens to a tensor along a dimension of a mesh."""

    kSharding = 0
    """an axis is divided, in equal parts, in the order of the workers"""
    kReplica = 1
    """all workers hold the same"""


class PlacementSpec(Node, key="relax.distributed.PlacementSpec"):
    """How a tensor lies along one dimension of a mesh: `axis` is the one that is divided, -1 for none."""

    axis: int

    @property
    def kind(self) -> PlacementSpecKind:
        """Whether an axis is divided."""
        return PlacementSpecKind.kReplica if self.axis < 0 else PlacementSpecKind.kSharding

    @staticmethod
    def sharding(axis: int) -> PlacementSpec:
        """An axis is divided. Raises `InvalidValue` for a negative one."""
        if axis < 0:
            raise InvalidValue(f"the axis that a placement divides is counted from 0, found {axis}")
        return PlacementSpec(axis)

    @staticmethod
    def replica() -> PlacementSpec:
        """All workers hold the same."""
        return PlacementSpec(-1)

    def __str__(self) -> str:
        return "R" if self.axis < 0 else f"S[{self.axis}]"


class Placement(Node, key="relax.distributed.Placement"):
    """How a tensor lies on a mesh: one `PlacementSpec` for each dimension of the mesh. Compares by value."""

    dim_specs: Array[PlacementSpec] = attr(converter=as_array)

    @staticmethod
    def from_text(text: str) -> Placement:
        """The placement that a text such as "S[0], R" means. Raises `InvalidValue` for any other text."""
        specs = []
        for part in text.split(",") if text.strip() else ():
            found = re.fullmatch(r"\s*(?:R|S\[\s*(\d+)\s*\])\s*", part)
            if found is None:
                raise InvalidValue(f'a placement is a text such as "S[0], R", found {text!r}')
            axis = found.group(1)
            specs.append(PlacementSpec.replica() if axis is None else PlacementSpec.sharding(int(axis)))
        return Placement(specs)

    @staticmethod
    def of_axes(axes: dict[int, int], mesh: DeviceMesh) -> Placement:
        """The placement that divides, along each of some dimensions of a mesh, an axis: `axes[dimension]`."""
        dims = range(len(mesh.shape))
        return Placement([PlacementSpec.sharding(axes[d]) if d in axes else PlacementSpec.replica() for d in dims])

    @property
    def axes(self) -> dict[int, int]:
        """The axis that is divided along each dimension of the mesh, where there is one."""
        return {d: spec.axis for d, spec in enumerate(self.dim_specs) if spec.axis >= 0}

    def parts(self, mesh: DeviceMesh) -> dict[int, int]:
        """In how many parts axes are divided. Raises `InvalidValue` for a mesh of another number of dimensions."""
        if len(self.dim_specs) != len(mesh.shape):
            raise InvalidValue(
                f'the placement "{self}" is for a mesh of {len(self.dim_specs)} dimensions, found {len(mesh.shape)}'
            )
        parts: dict[int, int] = {}
        for dim, axis in self.axes.items():
            parts[axis] = parts.get(axis, 1) * mesh.shape[dim]
        return parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placement) and self.axes == other.axes and len(self.dim_specs) == len(other.dim_specs)

    def __hash__(self) -> int:
        return hash((len(self.dim_specs), *self.axes.items()))

    def __str__(self) -> str:
        return ", ".join(map(str, self.dim_specs))
