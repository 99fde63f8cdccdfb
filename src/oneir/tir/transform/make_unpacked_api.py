"""MakeUnpackedAPI: public functions take data pointers and numbers, check nothing and return an error code.

    def main(a: T.Buffer((16, 16)), n: T.int32):        def main(A: T.handle, n: T.int32) -> T.int32:
        ...                                      ->         T.attr("default", "device_id", 0)
                                                            T.attr("default", "device_type", 1)
                                                            ...
                                                            return 0

It is for programs that are called as C functions. Our own programs are made with `MakePackedAPI` and `MakeInternalAPI`,
whose functions know the device that they were called for and hand on errors.
"""

from __future__ import annotations

from typing import Any

from ...ir.container import EMPTY, Array
from ...ir.expr import Call, GlobalVar, StringImm, const
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...ir.type import PrimType
from ...ir.visitor import Mapper
from ...runtime.error import InternalError
from ...target.target import Target
from ..function import PrimFunc
from ..op import ret
from ..stmt import AttrStmt, Evaluate, Stmt, flat_seq
from .make_packed_api import device_type_of
from .pass_base import PrimFuncPass
from .split_host_device import IS_GLOBAL


class MakeUnpackedAPI(PrimFuncPass):
    """Makes the C signature of public functions; calls of them evaluate to their error code.

    Afterwards, their target is their host. Private functions, those that have a calling convention and kernels of
    devices stay as they are.

    Raises:
        InternalError: a public function has no target.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        public = {var for var, func in mod.functions.items() if isinstance(func, PrimFunc) and _is_public(func)}
        functions: dict[Any, Any] = {}
        for var, func in mod.functions.items():
            functions[var] = _unpacked(func, public) if isinstance(func, PrimFunc) and var in public else func
        return mod.replace(functions=functions) if public else mod


def _is_public(func: PrimFunc) -> bool:
    attrs = func.attrs
    if attrs.get("global_symbol") is None or attrs.get("calling_conv") or attrs.get(IS_GLOBAL):
        return False
    if attrs.get("target") is None:
        raise InternalError("MakeUnpackedAPI required the function to be annotated with tvm::attr::kTarget")
    return True


def _unpacked(func: PrimFunc, public: set[GlobalVar]) -> PrimFunc:
    target: Target = func.attrs["target"]
    body: Stmt = flat_seq([_Calls(public)(func.body), Evaluate(ret(const(0)))])
    if func.buffer_map:
        body = AttrStmt(StringImm("default"), "device_type", const(device_type_of(func)), body)
        body = AttrStmt(StringImm("default"), "device_id", const(0), body)
    params = [func.buffer_map[p].data if p in func.buffer_map else p for p in func.params]
    attrs = {**func.attrs.values_by_name, "target": target.host or target}
    return PrimFunc(Array(params), body, PrimType("int32"), EMPTY, attrs, span=func.span)


class _Calls(Mapper):
    """Calls of public functions take data pointers where they took descriptions of tensors."""

    def __init__(self, public: set[GlobalVar]):
        super().__init__()
        self.public = public

    def visit_Call(self, node: Call) -> Any:
        node = self.generic_visit(node)
        if node.op not in self.public:
            return node
        return Call("int32", node.op, [_pointer(arg) for arg in node.args])


def _pointer(arg: Any) -> Any:
    described = isinstance(arg, Call) and isinstance(arg.op, Op) and arg.op.name == "tir.tvm_stack_make_array"
    return arg.args[0] if described else arg
