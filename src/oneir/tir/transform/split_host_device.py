"""SplitHostDevice: what is marked as the device's becomes a function of its own, which the host's function calls.

def main(A, B):                                    def main(A, B):
    T.attr(T.target("opencl"), "target", 0)   ->       Module.main_kernel(A.data, B.data, n)
    ...
                                                   def main_kernel(A_data, B_data, n):  # target: opencl
                                                       ...

Parameters are the variables that the statement uses and does not define: pointers first, each group by its name.
"""

from __future__ import annotations

from typing import Any

from ...ir.container import EMPTY, Array
from ...ir.expr import Call, GlobalVar, Var, const
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...ir.type import VOID_TYPE, PrimType
from ...ir.visitor import Mapper, Visitor
from ...target.target import Target
from ..analysis import undefined_vars
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..op import ret
from ..stmt import AssertStmt, AttrStmt, BufferStore, DeclBuffer, Evaluate, LetStmt, Stmt, flat_seq
from ..stmt_functor import renew_defs

IS_GLOBAL = "tir.is_global_func"


class SplitHostDevice(ModulePass, name="tir.SplitHostDevice"):
    """Takes the regions that `AnnotateDeviceRegions` marked out into functions with the device's target.

    Their names are those of their functions, then `_kernel`, then a number where there are several.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        functions: dict[Any, Any] = dict(mod.functions)
        names = {var.name_hint for var in mod.functions}
        for var, func in mod.functions.items():
            if isinstance(func, PrimFunc):
                splitter = _Splitter(str(func.attrs.get("global_symbol", var.name_hint)), names)
                body = splitter(func.body)
                if splitter.kernels:
                    functions[var] = func.with_body(body)
                    functions |= splitter.kernels
        return mod.replace(functions=functions) if len(functions) > len(mod.functions) else mod


class _Splitter(Mapper):
    """Replaces regions by calls; `names` are the names that the module has, to which those of kernels are added."""

    def __init__(self, symbol: str, names: set[str]):
        super().__init__()
        self.symbol, self.names = symbol, names
        self.kernels: dict[GlobalVar, PrimFunc] = {}

    def visit_AttrStmt(self, node: AttrStmt) -> Stmt:
        if node.attr_key != "target" or not isinstance(node.node, Target):
            return self.generic_visit(node)
        return self.split(node.body, node.node)

    def split(self, body: Stmt, device: Target) -> Stmt:
        """The call of a new function of that body."""
        params = sorted(undefined_vars(body), key=lambda var: (not var.dtype.is_handle, var.name))
        # A processor reports errors; kernels of other devices return nothing.
        reports = "cpu" in device.keys
        inner = flat_seq([body, Evaluate(ret(const(0)))]) if reports else body
        for buffer in _undeclared(body, set(params)):
            inner = DeclBuffer(buffer, inner)
        attrs = {"target": device, "tir.noalias": True, IS_GLOBAL: True}
        kernel = PrimFunc(Array(params), inner, PrimType("int32") if reports else VOID_TYPE, EMPTY, attrs)
        var = GlobalVar(self._fresh_name())
        self.kernels[var] = renew_defs(kernel)
        if not reports:
            return Evaluate(Call("void", var, params))
        code = Var("kernel_error_code", "int32")
        succeeded = AssertStmt(code.equal(const(0)), "Error executing compute kernel", Evaluate(0))
        return LetStmt(code, Call("int32", var, params), succeeded)

    def _fresh_name(self) -> str:
        name, count = f"{self.symbol}_kernel", 0
        while name in self.names:
            count += 1
            name = f"{self.symbol}_kernel_{count}"
        self.names.add(name)
        return name


class _Buffers(Visitor):
    """The buffers that are used, and those that are declared, in the order of their first appearance."""

    def __init__(self) -> None:
        super().__init__()
        self.used: dict[Buffer, None] = {}
        self.declared: set[Buffer] = set()

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.used[node.buffer] = None
        self.generic_visit(node)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.used[node.buffer] = None
        self.generic_visit(node)

    def visit_DeclBuffer(self, node: DeclBuffer) -> None:
        self.declared.add(node.buffer)
        self.generic_visit(node)


def _undeclared(body: Stmt, pointers: set[Var]) -> list[Buffer]:
    """The buffers at pointers from outside that a statement uses and declares nowhere."""
    buffers = _Buffers()
    buffers(body)
    return [buffer for buffer in buffers.used if buffer not in buffers.declared and buffer.data in pointers]
