"""LowerWarpMemory: memory of a warp becomes registers of its threads.

    W = T.alloc_buffer((4, 32, 8), scope="warp")         W = T.alloc_buffer((4, 8), scope="local")
    W[i, tx, 3] = x                                ->    W[i, 3] = x
    y = W[i, (tx + 1) % 32, 3]                           y = T.tvm_warp_shuffle(mask, W[i, 3], (tx + 1) % 32, 32, 32)

The last dimension but one (the only one of a buffer with one dimension) counts the threads of a warp.

Buffers of the scopes "wmma" hold matrices of 16 rows and 16 columns. Which thread holds what is up to the tensor
intrinsics, which take the address of the first element of a matrix: it becomes that of the thread's own registers.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import Call, IntImm, PrimExpr, Range, Var
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...runtime.error import InvalidValue, WellFormedError
from ..buffer import Buffer, decl_buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..op_vendor import tvm_warp_activemask, tvm_warp_shuffle
from ..stmt import AttrStmt, Block, BufferRegion, BufferStore, For
from .analyzed import AnalyzedMapper, uses
from .pass_base import PrimFuncPass

_LANE_TAG = "threadIdx.x"
_MATRIX = 16
_ADDRESS_OF = Op.get("tir.address_of")


class LowerWarpMemory(PrimFuncPass):
    """Gives each thread its part of buffers of the scope "warp"; other threads' elements are read by shuffles.

    It is for opaque blocks. Raises `InvalidValue` for a buffer whose threads are not a warp's, and for functions
    without a target; `WellFormedError` for a store to another thread's element, and for a load from another thread
    whose element differs between threads.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        target: Any = func.attrs.get("target")
        if target is None:
            raise InvalidValue(
                "LowerWarpMemory needs the target of the function, for the size of a warp; apply BindTarget before"
            )
        return func.with_body(_Lower(int(target.attrs.get("thread_warp_size", 1)))(func.body))


class _Lower(AnalyzedMapper):
    def __init__(self, warp_size: int):
        super().__init__(Analyzer())
        self.warp_size = warp_size
        self.lane: PrimExpr | None = None
        self.lane_vars: set[Var] = set()
        self.local: dict[Buffer, Buffer] = {}
        self.matrices: dict[Buffer, Buffer] = {}

    def visit_For(self, node: For) -> Any:
        if node.thread_binding is None or node.thread_binding.thread_tag != _LANE_TAG:
            return super().visit_For(node)
        outer = self.lane, self.lane_vars
        self.enter(node.loop_var, node.extent)
        new = super().visit_For(node)
        self.lane, self.lane_vars = outer
        return new

    def enter(self, thread: Var, extent: PrimExpr) -> None:
        whole = isinstance(extent, IntImm) and extent.value <= self.warp_size
        self.lane = thread if whole else ops.floormod(thread, self.warp_size)
        self.lane_vars = {thread}

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        if isinstance(node.node, IterVar) and node.node.thread_tag == _LANE_TAG:
            self.enter(node.node.var, node.value)
        return super().visit_AttrStmt(node)

    def visit_Block(self, node: Block) -> Any:
        for buffer in node.alloc_buffers:
            if buffer.scope() == "warp":
                self.local[buffer] = self.registers(buffer)
            elif buffer.scope().startswith("wmma."):
                self.matrices[buffer] = self.of_matrices(buffer)
        return super().visit_Block(node)

    def registers(self, buffer: Buffer) -> Buffer:
        """A thread's part of a buffer."""
        axis = max(0, len(buffer.shape) - 2)
        threads = buffer.shape[axis] if buffer.shape else None
        if not isinstance(threads, IntImm) or threads.value != self.warp_size or buffer.strides:
            raise InvalidValue(
                f"the buffer `{buffer.name}` of a warp has the shape {tuple(buffer.shape)}; expected {self.warp_size}, "
                f"the threads of a warp, as the dimension {axis}"
            )
        shape = [dim for place, dim in enumerate(buffer.shape) if place != axis] or [IntImm("int32", 1)]
        return decl_buffer(shape, str(buffer.dtype), buffer.name, scope="local")

    def of_matrices(self, buffer: Buffer) -> Buffer:
        """A thread's part of a buffer of matrices."""
        *outer, rows, columns = buffer.shape if len(buffer.shape) > 1 else (0, 0)
        sizes = [size.value if isinstance(size, IntImm) else 0 for size in (rows, columns)]
        if not all(size and size % _MATRIX == 0 for size in sizes) or buffer.strides:
            raise InvalidValue(
                f"the matrices `{buffer.name}` have the shape {tuple(buffer.shape)}; expected rows and columns of "
                f"{_MATRIX} or a multiple of it"
            )
        shape = [*outer, *(size // _MATRIX for size in sizes), _MATRIX * _MATRIX // self.warp_size]
        return decl_buffer(shape, str(buffer.dtype), buffer.name, scope="local")

    def visit_Call(self, node: Call) -> Any:
        load = node.args[0] if node.op is _ADDRESS_OF else None
        if not isinstance(load, BufferLoad) or load.buffer not in self.matrices:
            return super().visit_Call(node)
        *outer, row, column = [self.visit(index) for index in load.indices]
        for index in (row, column):
            if not self.analyzer.can_prove_equal(ops.floormod(index, _MATRIX), 0):
                raise WellFormedError(f"`{load}` is not the first element of a matrix of {_MATRIX} rows and columns")
        place = [self.analyzer.simplify(ops.floordiv(index, _MATRIX)) for index in (row, column)]
        return node.replace(args=Array([BufferLoad(self.matrices[load.buffer], [*outer, *place, 0])]))

    def visit_Buffer(self, buffer: Buffer) -> Any:
        return self.local.get(buffer) or self.matrices.get(buffer, buffer)

    def visit_BufferRegion(self, node: BufferRegion) -> Any:
        if node.buffer in self.matrices:
            return BufferRegion.full(self.matrices[node.buffer])
        if node.buffer not in self.local:
            return self.generic_visit(node)
        region = [self.visit(part) for part in node.region]
        region.pop(max(0, len(region) - 2))
        return BufferRegion(self.local[node.buffer], region or [Range(0, 1)])

    def split(self, indices: Any) -> tuple[PrimExpr, list[PrimExpr]]:
        """The index of the thread, and those of its element."""
        found = [self.visit(index) for index in indices]
        thread = found.pop(max(0, len(found) - 2))
        return thread, found or [IntImm("int32", 0)]

    def own(self, thread: PrimExpr) -> bool:
        """Whether an index is always that of the running thread."""
        return self.lane is not None and self.analyzer.can_prove_equal(thread, ops.cast(thread.dtype, self.lane))

    def visit_BufferStore(self, node: BufferStore) -> Any:
        self.refuse_matrices(node)
        if node.buffer not in self.local:
            return self.generic_visit(node)
        thread, indices = self.split(node.indices)
        if not self.own(thread):
            raise WellFormedError(f"a thread can store only its own elements of `{node.buffer.name}`: {node}")
        return node.replace(buffer=self.local[node.buffer], value=self.visit(node.value), indices=Array(indices))

    def refuse_matrices(self, node: BufferStore | BufferLoad) -> None:
        """Raises for an element of a matrix that no intrinsic accesses."""
        if node.buffer in self.matrices:
            raise WellFormedError(
                f"only tensor intrinsics access matrices in registers; `{node.buffer.name}` is accessed by {node}: "
                "tensorize its block"
            )

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        self.refuse_matrices(node)
        if node.buffer not in self.local:
            return self.generic_visit(node)
        thread, indices = self.split(node.indices)
        load = BufferLoad(self.local[node.buffer], indices, span=node.span)
        if self.own(thread):
            return load
        if any(uses(index, self.lane_vars) for index in indices):
            raise WellFormedError(
                f"`{node}` reads an element of another thread, whose number differs between the threads that read"
            )
        return tvm_warp_shuffle(tvm_warp_activemask(), load, thread, self.warp_size, self.warp_size)
