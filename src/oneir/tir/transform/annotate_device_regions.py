"""AnnotateDeviceRegions: marks what runs on the device of a function's target, and not on its host.

for a function whose target is {"kind": "opencl", "host": {"kind": "llvm"}}:

                                        with T.attr(T.target("opencl"), "target", 0):
T.attr(bx, "thread_extent", 8)   ->         T.attr(bx, "thread_extent", 8)
...                                         ...
"""

from __future__ import annotations

from ...ir.expr import const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ...target.target import Target
from ..function import PrimFunc
from ..stmt import AttrStmt, Stmt
from .pass_base import PrimFuncPass

DEVICE_SCOPES = ("thread_extent", "pipeline_exec_scope", "device_scope")
"""The attributes whose outermost statement is where a device takes over."""


class AnnotateDeviceRegions(PrimFuncPass):
    """Wraps each outermost statement that is bound to threads of a device in an attribute `target`.

    Functions whose target has no host are left as they are: they run in one place.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        target: Target | None = func.attrs.get("target")
        if target is None or target.host is None:
            return func
        return func.with_body(_Annotator(target.without_host())(func.body))


class _Annotator(Mapper):
    def __init__(self, device: Target):
        super().__init__()
        self.device = device

    def visit_AttrStmt(self, node: AttrStmt) -> Stmt:
        if node.attr_key == "target":
            return node
        if node.attr_key in DEVICE_SCOPES:
            return AttrStmt(self.device, "target", const(0), node)
        return self.generic_visit(node)
