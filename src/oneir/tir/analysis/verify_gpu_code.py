"""Whether kernels keep within the limits of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.dtype import DataType
from ...ir.expr import Cast, IntImm
from ...ir.visitor import Visitor
from ...runtime.error import InvalidValue
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..stmt import Allocate, AttrStmt, BufferStore

_LIMITS = (
    "max_local_memory_per_block",
    "max_shared_memory_per_block",
    "max_threads_per_block",
    "max_thread_x",
    "max_thread_y",
    "max_thread_z",
    "max_vthread",
    "max_vector_bytes",
    "max_kernels",
)
_THREADS = {f"threadIdx.{axis}": f"max_thread_{axis}" for axis in "xyz"}


class _Kernels(Visitor):
    """Collects the threads and memory of one kernel after the other, and the limits that they exceed."""

    def __init__(self, limits: Mapping[str, int]):
        super().__init__()
        self.limits = limits
        self.violations: list[str] = []
        self.kernels = 0
        self.depth = 0
        self.threads: dict[str, int] = {}
        self.memory: dict[str, int] = {"local": 0, "shared": 0}

    def limit(self, name: str, found: int, what: str) -> None:
        """Notes what exceeds a limit."""
        allowed = self.limits.get(name)
        if allowed is not None and found > allowed:
            self.violations.append(f"{what} is {found}, where {name} is {allowed}")

    def visit_AttrStmt(self, stmt: AttrStmt) -> None:
        if stmt.attr_key not in ("thread_extent", "virtual_thread") or not isinstance(stmt.node, IterVar):
            self.generic_visit(stmt)
            return
        if self.depth == 0:
            self.kernels += 1
            self.threads, self.memory = {}, {"local": 0, "shared": 0}
        self._thread(stmt.node.thread_tag if stmt.attr_key == "thread_extent" else "vthread", stmt.value)
        self.depth += 1
        self.visit(stmt.body)
        self.depth -= 1
        if self.depth == 0:
            self._leave_kernel()

    def _thread(self, tag: str, extent: Any) -> None:
        if not isinstance(extent, IntImm):
            return
        if tag.startswith("vthread"):
            self.limit("max_vthread", extent.value, f"the number of virtual threads ({tag})")
        elif tag in _THREADS:
            known = self.threads.setdefault(tag, extent.value)
            if known != extent.value:
                self.violations.append(f"{tag} has the extent {known} and the extent {extent.value} in one kernel")
            self.limit(_THREADS[tag], extent.value, f"the extent of {tag}")

    def _leave_kernel(self) -> None:
        threads = 1
        for extent in self.threads.values():
            threads *= extent
        self.limit("max_threads_per_block", threads, "the number of threads in a block")
        for scope, used in self.memory.items():
            self.limit(f"max_{scope}_memory_per_block", used, f"the {scope} memory of a block, in bytes,")

    def visit_Allocate(self, stmt: Allocate) -> None:
        self.generic_visit(stmt)
        scope = getattr(stmt.buffer_var.type_annotation, "storage_scope", "")
        nbytes = stmt.dtype.itemsize
        for extent in stmt.extents:
            nbytes *= extent.value if isinstance(extent, IntImm) else 0
        if scope in self.memory:
            self.memory[scope] += nbytes
        self._vector(stmt.dtype)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self._vector(load.dtype)
        self.generic_visit(load)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self._vector(store.value.dtype)
        self.generic_visit(store)

    def visit_Cast(self, cast: Cast) -> None:
        self._vector(cast.dtype)
        self.generic_visit(cast)

    def _vector(self, dtype: DataType) -> None:
        if not dtype.is_scalar:
            self.limit("max_vector_bytes", dtype.itemsize, "the size of a vector, in bytes,")


def gpu_code_violations(func: PrimFunc, constraints: Mapping[str, Any]) -> list[str]:
    """The limits that a function exceeds, as messages."""
    for name in constraints:
        if name not in _LIMITS:
            raise InvalidValue(f"no limit of kernels is called {name!r}; there are {', '.join(_LIMITS)}")
    kernels = _Kernels({name: int(limit) for name, limit in constraints.items()})
    kernels(func.body)
    kernels.limit("max_kernels", kernels.kernels, "the number of kernels")
    return kernels.violations


def verify_gpu_code(func: PrimFunc, constraints: Mapping[str, Any]) -> bool:
    """Whether the kernels of a lowered function keep within limits.

    `constraints` maps names to numbers: `max_local_memory_per_block` and `max_shared_memory_per_block` (bytes),
    `max_threads_per_block`, `max_thread_x`, `max_thread_y`, `max_thread_z`, `max_vthread`, `max_vector_bytes`,
    `max_kernels`. A thread index must have one extent all over a kernel. Extents that are not constant count as 0.
    """
    return not gpu_code_violations(func, constraints)
