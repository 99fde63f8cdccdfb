"""Attributes with defaults, for tests of nodes that are made by their type keys."""

from __future__ import annotations

from typing import Any, ClassVar

from ..ir.attrs import Attrs
from ..ir.container import Array
from ..ir.expr import PrimExpr
from ..ir.node import attr, child
from ..tir.expr import expr_array


class TestAttrs(Attrs, key="attrs.TestAttrs"):
    """What `ir.make_node("attrs.TestAttrs", name="x", padding=(1, 2))` gives."""

    __test__: ClassVar[bool] = False  # it is no class of tests

    name: str = ""
    axis: int = attr(default=10)
    padding: Array[PrimExpr] = child(default=(0, 0), converter=expr_array)
    func: Any = attr(default=None)
