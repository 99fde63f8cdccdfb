"""InferFragment: the sizes and orders of matrices in tensor cores, next to the memory that holds them.

    with T.attr(A.data, "fragment_shape", "16, 16, 16"):
        with T.attr(A.data, "fragment_layout", "row_major"):
            A = T.allocate([256], "float16", "wmma.matrix_a")

They are read off `tvm_load_matrix_sync`, `tvm_store_matrix_sync` and `tvm_fill_fragment`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir.expr import Call, IntImm, StringImm, Var
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, post_order_visit
from ...runtime.error import WellFormedError
from ..function import PrimFunc
from ..stmt import Allocate, AttrStmt, Stmt
from .pass_base import PrimFuncPass

_COPIES = (Op.get("tir.tvm_load_matrix_sync"), Op.get("tir.tvm_store_matrix_sync"))
_FILL = Op.get("tir.tvm_fill_fragment")
_PRODUCTS = (Op.get("tir.tvm_mma_sync"), Op.get("tir.tvm_bmma_sync"))
_OPERANDS = ("wmma.matrix_a", "wmma.matrix_b")


@dataclass(frozen=True)
class _Fragment:
    """The sizes m, n and k of the products that matrices take part in, and the order of their elements, "" if none."""

    sizes: tuple[int, int, int]
    layout: str


class InferFragment(PrimFuncPass):
    """Puts the attributes "fragment_shape" and "fragment_layout" around the allocations of matrices in tensor cores.

    A matrix of sums has a layout only if it is filled before it is loaded or stored. Raises `WellFormedError` where
    two calls say different things of a matrix, where a product takes matrices of different sizes, and where it takes
    one that is neither loaded nor filled.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        fragments = _fragments(func.body)
        return func.with_body(_Annotate(fragments)(func.body)) if fragments else func


def _fragments(body: Stmt) -> dict[Var, _Fragment]:
    """What the calls of a function say of its matrices."""
    found: dict[Var, _Fragment] = {}
    products: list[Call] = []

    def note(node: Any) -> None:
        if not isinstance(node, Call):
            return
        if node.op in _PRODUCTS:
            products.append(node)
        elif node.op in _COPIES or node.op is _FILL:
            _note(found, node)

    post_order_visit(body, note)
    for call in products:
        known = [_known(found, call.args[place]) for place in (0, 2, 4, 6)]
        if len({fragment.sizes for fragment in known}) > 1:
            sizes = ", ".join(f"`{call.args[p]}` of {f.sizes}" for p, f in zip((0, 2, 4, 6), known, strict=True))
            raise WellFormedError(f"a product of matrices takes those of one size, found {sizes}")
    return found


def _note(found: dict[Var, _Fragment], call: Call) -> None:
    data, *numbers = call.args[:4]
    sizes = tuple(n.value for n in numbers if isinstance(n, IntImm))
    if not isinstance(data, Var) or len(sizes) != 3:
        raise WellFormedError(f"expected a matrix and the three constant sizes of its product, found `{call}`")
    operand = getattr(data.type_annotation, "storage_scope", "") in _OPERANDS
    if call.op is _FILL:
        layout = "row_major"
    else:
        order = call.args[7]
        layout = order.value if operand and isinstance(order, StringImm) else ""
    known = found.setdefault(data, _Fragment(sizes, layout))
    if known.sizes != sizes or (operand and call.op is not _FILL and known.layout != layout):
        raise WellFormedError(
            f"the matrix `{data}` is one of {known.sizes} {known.layout} in one call and of {sizes} {layout} in another"
        )


def _known(found: dict[Var, _Fragment], data: Any) -> _Fragment:
    if data not in found:
        raise WellFormedError(
            f"the matrix `{data}` is part of a product, but neither loaded (tvm_load_matrix_sync) nor filled "
            "(tvm_fill_fragment)"
        )
    return found[data]


class _Annotate(Mapper):
    def __init__(self, fragments: dict[Var, _Fragment]) -> None:
        super().__init__()
        self.fragments = fragments

    def visit_Allocate(self, node: Allocate) -> Any:
        new = self.generic_visit(node)
        fragment = self.fragments.get(node.buffer_var)
        if fragment is None:
            return new
        sizes = ", ".join(map(str, fragment.sizes))
        new = AttrStmt(node.buffer_var, "fragment_shape", StringImm(sizes), new)
        if fragment.layout:
            new = AttrStmt(node.buffer_var, "fragment_layout", StringImm(fragment.layout), new)
        return new
