"""What loops and graphs share: nodes, expressions, modules, passes.

mod = IRModule({"main": func})
mod = transform.Sequential([...])(mod)
"""

from ..runtime import object_generic
from . import analysis as analysis
from . import transform as transform
from .attrs import Attrs, AttrsHolder, DictAttrs, make_node
from .base import deprecated
from .container import Array, Map
from .dtype import DataType
from .env_func import EnvFunc
from .expr import BaseExpr, GlobalVar, PrimExpr, Range, RelaxExpr, const
from .global_info import DummyGlobalInfo, GlobalInfo, VDevice
from .json import load_json, save_json
from .module import BaseFunc, CallingConv, IRModule
from .node import Node
from .op import Op, register_intrin_lowering, register_op_attr
from .span import SequentialSpan, SourceMap, SourceName, Span
from .structural import (
    assert_structural_equal,
    get_first_structural_mismatch,
    structural_equal,
    structural_hash,
)
from .type import FuncType, PointerType, PrimType, TensorMapType, TupleType, Type

object_generic.make_const.provide(const)
object_generic.make_array.provide(Array)
object_generic.save_json.provide(save_json)
object_generic.load_json.provide(load_json)

__all__ = [
    "Array",
    "Attrs",
    "AttrsHolder",
    "BaseExpr",
    "BaseFunc",
    "CallingConv",
    "DataType",
    "DictAttrs",
    "DummyGlobalInfo",
    "EnvFunc",
    "FuncType",
    "GlobalInfo",
    "GlobalVar",
    "IRModule",
    "Map",
    "Node",
    "Op",
    "PointerType",
    "PrimExpr",
    "PrimType",
    "Range",
    "RelaxExpr",
    "SequentialSpan",
    "SourceMap",
    "SourceName",
    "Span",
    "TensorMapType",
    "TupleType",
    "Type",
    "VDevice",
    "assert_structural_equal",
    "deprecated",
    "get_first_structural_mismatch",
    "load_json",
    "make_node",
    "register_intrin_lowering",
    "register_op_attr",
    "save_json",
    "structural_equal",
    "structural_hash",
    "transform",
]
