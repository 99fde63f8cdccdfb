"""Graphs as what they are made of: `Call(op=Op(name="relax.add"), args=[Var(name_hint="x"), ...])`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...ir.attrs import DictAttrs
from ...ir.container import is_mapping, is_sequence
from ...ir.dtype import DataType
from ...ir.expr import FloatImm, GlobalVar, IntImm, PrimExpr
from ...ir.node import Node
from ...ir.op import Op
from ..expr import Call, Expr, Function
from ..struct_info import (
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
)


def dump_ast(
    node: Any,
    indent_str: str = "    ",
    include_struct_info_annotations: bool = True,
    include_call_attrs: bool = True,
) -> str:
    """The structure of an expression, binding, block or function as text, with the names of classes and fields."""
    return ASTPrinter(indent_str, include_struct_info_annotations, include_call_attrs).visit_expr(node)


class ASTPrinter:
    """Writes structures; `include_struct_info_annotations` adds what is known of each expression."""

    def __init__(
        self,
        indent_str: str = "    ",
        include_struct_info_annotations: bool = True,
        include_call_attrs: bool = True,
    ):
        self.indent_str = indent_str
        self.include_struct_info_annotations = include_struct_info_annotations
        self.include_call_attrs = include_call_attrs

    def visit_expr(self, value: Any) -> str:
        """The text of a node, a container or a plain value."""
        if isinstance(value, PrimExpr):
            return f"PrimExpr(value=`{value}`)"
        if isinstance(value, DictAttrs):
            return self.visit_expr(value.values_by_name)
        if isinstance(value, Node):
            fields = [f"{name}={self.visit_expr(part)}" for name, part in self._fields(value)]
            return self._listed(f"{type(value).__name__}(", fields, ")")
        if is_sequence(value):
            return self._listed("[", [self.visit_expr(item) for item in value], "]")
        if is_mapping(value):
            items = [f"{self.visit_expr(key)}: {self.visit_expr(item)}" for key, item in value.items()]
            return self._listed("{", items, "}")
        return json.dumps(value) if isinstance(value, str) and not isinstance(value, DataType) else str(value)

    visit_struct_info_ = visit_type_ = visit_expr

    def _listed(self, opening: str, parts: Sequence[str], closing: str) -> str:
        if len(parts) < 2 and not any("\n" in part for part in parts):
            return opening + "".join(parts) + closing
        indented = ("\n" + ",\n".join(parts)).replace("\n", "\n" + self.indent_str)
        return f"{opening}{indented}\n{closing}"

    def _fields(self, node: Node) -> list[tuple[str, Any]]:
        """The fields of a node that say something, by their published names."""
        if isinstance(node, StructInfo):
            return _struct_info_fields(node)
        if isinstance(node, Op):
            return [("name", node.name)]
        if isinstance(node, GlobalVar):
            return [("name_hint", node.name_hint)]
        given = [(f.alias, getattr(node, f.name)) for f in node.init_fields if f.kind != "meta"]
        fields = [(name, value) for name, value in given if name != "struct_info" or not isinstance(node, Expr)]
        silent = {"attrs"} if isinstance(node, Call) and not self.include_call_attrs else set()
        silent |= {name for name, value in fields if name in ("attrs", "sinfo_args") and len(value) == 0}
        fields = [(name, value) for name, value in fields if name not in silent]
        info = getattr(node, "struct_info_", None)
        if self.include_struct_info_annotations and info is not None and not isinstance(node, Function):
            fields.append(("struct_info", info))
        return fields


def _struct_info_fields(info: StructInfo) -> list[tuple[str, Any]]:
    if isinstance(info, TensorStructInfo):
        shape = ("ndim", info.ndim) if info.shape is None else ("shape", info.shape)
        return [("dtype", info.dtype), shape, *([] if info.vdevice is None else [("vdevice", info.vdevice)])]
    if isinstance(info, ShapeStructInfo):
        return [("ndim", info.ndim), *([] if info.values is None else [("values", info.values)])]
    if isinstance(info, PrimStructInfo):
        return (
            [("dtype", info.dtype)]
            if info.value is None or isinstance(info.value, (IntImm, FloatImm))
            else [("value", info.value)]
        )
    if isinstance(info, FuncStructInfo):
        return [("params", info.params), ("ret", info.ret), ("purity", info.purity)]
    return [(f.alias, getattr(info, f.name)) for f in info.init_fields if f.kind != "meta"]
