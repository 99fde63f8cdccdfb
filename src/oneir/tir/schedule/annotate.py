"""Annotations of blocks and loops."""

from __future__ import annotations

from typing import Any

from ..block_scope import StmtSRef
from .base import ScheduleBase
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import BlockRV, LoopRV
from .state import ScheduleState


def annotate(state: ScheduleState, sref: StmtSRef, value: Any, key: str) -> None:
    if key not in sref.stmt.annotations:
        replace_annotations(state, sref, {**sref.stmt.annotations, key: value})


def unannotate(state: ScheduleState, sref: StmtSRef, key: str) -> None:
    if key not in sref.stmt.annotations:
        kind = "block" if hasattr(sref.stmt, "name_hint") else "loop"
        raise PrimitiveError(state.mod, f"The {kind} {{0}} does not have the annotation `{key}`", sref.stmt)
    replace_annotations(state, sref, {k: v for k, v in sref.stmt.annotations.items() if k != key})


def replace_annotations(state: ScheduleState, sref: StmtSRef, annotations: dict[str, Any]) -> None:
    """Gives a block or a loop other annotations."""
    old = sref.stmt
    new = old.replace(annotations=annotations)
    state.replace(sref, new, {old: new} if hasattr(old, "name_hint") else None)


ANNOTATE = InstructionKind(
    "Annotate",
    "annotate",
    annotate,
    ("block_or_loop", "ann_val"),
    ("ann_key",),
    order=("block_or_loop", "ann_key", "ann_val"),
)
UNANNOTATE = InstructionKind("Unannotate", "unannotate", unannotate, ("block_or_loop",), ("ann_key",))


class Annotate(ScheduleBase):
    """The part of a schedule that annotates."""

    def annotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str, ann_val: Any) -> None:
        """Annotates a block or a loop: a number, a string, a list or a dict, under a key.

        An annotation that is already there under the key stays; `unannotate` it first to give another value.

        for i in range(8): ...     ->     for i in T.serial(8, annotations={"pragma_auto_unroll": 16}): ...
        """
        self.apply(ANNOTATE, [block_or_loop, ann_val], [ann_key])

    def unannotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str) -> None:
        """Removes an annotation. Raises `ScheduleError` if there is none under the key.

        for i in T.serial(8, annotations={"pragma_auto_unroll": 16}): ...     ->     for i in range(8): ...
        """
        self.apply(UNANNOTATE, [block_or_loop], [ann_key])
