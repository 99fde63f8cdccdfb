"""LowerDeviceKernelLaunch: calls of functions of other targets become launches.

Module.main_kernel(A, B, n)   ->   T.call_packed("main_kernel", A, B, n, n // 64, 64)

def main_kernel(A, B, n):          def main_kernel(A, B, n):
                                       T.func_attr({"calling_conv": 2, "global_symbol": "main_kernel",
                                                    "tir.kernel_launch_params": ["blockIdx.x", "threadIdx.x"]})
    T.attr(bx, "thread_extent", n // 64)
    T.attr(tx, "thread_extent", 64)
    ...                                ...

The extents are those of the kernel's thread axes, in the caller's terms, then, where the kernel uses memory of the
scope "shared.dyn", its bytes.
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import Call, GlobalVar, PrimExpr, StringImm, Var, const
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...ir.type import PointerType
from ...ir.visitor import Mapper, Visitor
from ...runtime.error import WellFormedError
from ...target.target import Target
from ..analysis import undefined_vars
from ..function import PrimFunc
from ..stmt import Allocate, AttrStmt, LetStmt
from ..stmt_functor import substitute
from .split_host_device import IS_GLOBAL

KERNEL_LAUNCH = 2
"""The calling convention of functions that are launched on a device."""
LAUNCH_PARAMS = "tir.kernel_launch_params"
"""The attribute that lists what a launch passes after the arguments: thread axes, in order, and dynamic memory."""
DYNAMIC_SHARED = "tir.use_dyn_shared_memory"
"""The entry of `LAUNCH_PARAMS` for the bytes of dynamic shared memory."""


class LowerDeviceKernelLaunch(ModulePass, name="tir.LowerDeviceKernelLaunch"):
    """Writes calls between functions of different targets as launches, or, between two of one kind, as calls of C.

    Raises `WellFormedError` for a kernel whose grid depends on what only the kernel computes.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        functions = {var: f for var, f in mod.functions.items() if isinstance(f, PrimFunc)}
        kernels = {var: _Launch(var, f) for var, f in functions.items() if f.attrs.get(IS_GLOBAL)}
        if not kernels:
            return mod
        called: dict[GlobalVar, _Launch] = {}
        new: dict[Any, Any] = dict(mod.functions)
        for var, func in functions.items():
            target = func.attrs.get("target")
            if target is not None:
                # A function for a device that a host drives runs on the host, now that its kernels are apart.
                new[var] = func.with_body(_Calls(target.host or target, kernels, called)(func.body))
        for var, launch in called.items():
            new[var] = launch.kernel(new[var])
        return mod.replace(functions=new) if called else mod


class _Launch(Visitor):
    """What the launch of a kernel passes besides its arguments."""

    def __init__(self, var: GlobalVar, func: PrimFunc):
        super().__init__()
        self.var, self.func = var, func
        self.symbol = str(func.attrs.get("global_symbol", var.name_hint))
        self.axes: dict[str, PrimExpr] = {}
        self.dynamic: PrimExpr | None = None
        self.lets: dict[Var, PrimExpr] = {}
        self(func.body)

    @property
    def target(self) -> Target:
        return self.func.attrs["target"]

    @property
    def params(self) -> list[str]:
        """The names of what is passed after the arguments."""
        return [*self.axes, *([] if self.dynamic is None else [DYNAMIC_SHARED])]

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        if node.attr_key == "thread_extent":
            self.axes.setdefault(node.node.thread_tag, substitute(node.value, self.lets))
        self.generic_visit(node)

    def visit_LetStmt(self, node: LetStmt) -> None:
        self.lets[node.var] = substitute(node.value, self.lets)
        self.generic_visit(node)

    def visit_Allocate(self, node: Allocate) -> None:
        annotation = node.buffer_var.type_annotation
        if isinstance(annotation, PointerType) and annotation.storage_scope == "shared.dyn":
            if self.dynamic is not None:
                raise WellFormedError(
                    f"`{self.symbol}` allocates dynamic shared memory more than once; "
                    "run MergeSharedMemoryAllocations before LowerDeviceKernelLaunch"
                )
            size: PrimExpr = const(node.dtype.itemsize)
            for extent in node.extents:
                size = ops.multiply(size, ops.cast("int32", extent))
            self.dynamic = substitute(size, self.lets)
        self.generic_visit(node)

    def extents(self, args: Any) -> list[PrimExpr]:
        """What is passed after the arguments, in terms of these."""
        values = dict(zip(self.func.params, args, strict=True))
        found = [
            substitute(e, values) for e in [*self.axes.values(), *([] if self.dynamic is None else [self.dynamic])]
        ]
        inner = [v for e in [*self.axes.values(), self.dynamic] if e is not None for v in undefined_vars(e)]
        for var in inner:
            if var not in values:
                raise WellFormedError(
                    f"the launch of `{self.symbol}` needs `{var.name}`, which only the kernel knows; "
                    "extents of thread axes must be made of arguments and constants"
                )
        return found

    def kernel(self, func: PrimFunc) -> PrimFunc:
        """The function as it is launched."""
        for key, value in {
            "calling_conv": KERNEL_LAUNCH,
            LAUNCH_PARAMS: self.params,
            "global_symbol": self.symbol,
            IS_GLOBAL: True,
        }.items():
            func = func.with_attr(key, value)
        return func


class _Calls(Mapper):
    """Rewrites the calls in a function for `target`; `called` gets the kernels that are launched."""

    def __init__(self, target: Target, kernels: dict[GlobalVar, _Launch], called: dict[GlobalVar, _Launch]):
        super().__init__()
        self.target, self.kernels, self.called = target, kernels, called

    def visit_Call(self, node: Call) -> Any:
        node = self.generic_visit(node)
        launch = self.kernels.get(node.op) if isinstance(node.op, GlobalVar) else None
        if launch is None or launch.target == self.target:
            return node
        if launch.target.get_target_device_type() == self.target.get_target_device_type():
            return Call(node.dtype, "tir.call_extern", [StringImm(launch.symbol), *node.args], span=node.span)
        self.called[launch.var] = launch
        return Call(
            node.dtype, "tir.tvm_call_packed", [StringImm(launch.symbol), *node.args, *launch.extents(node.args)]
        )
