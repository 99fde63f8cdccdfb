"""The functions of `topi.vision` by position, which are the same."""

from __future__ import annotations

from typing import Any

from .. import vision
from ..vision import nms as nms


def __getattr__(name: str) -> Any:
    return getattr(vision, name)
