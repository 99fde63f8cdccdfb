"""What a module may contain after each stage of a compilation, as a table of rules.

    violations("lowered", mod)   # ["`main`: a DataflowBlock, which stage `lowered` has made a plain block"]

A rule gets one node, or one function, and returns what is wrong with it, or None. The rules of graphs hold up to the
stage `planned`, those of kernels from `kernels` on.
`testing.VerifyStages` checks them while a module is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..ir.expr import Call as PrimCall
from ..ir.module import BaseFunc, IRModule
from ..ir.node import Node
from ..ir.op import Op
from ..ir.visitor import post_order_visit
from ..relax.expr import Call, DataflowBlock, Function
from ..relax.operator_facts import FLegalize, FLowerBuiltin
from ..relax.transform.legalize_ops import is_shape_known
from ..tir.expr import BufferLoad, ProducerLoad, Reduce
from ..tir.function import PrimFunc
from ..tir.stmt import Block, BlockRealize, BufferRealize, BufferStore, For, ForKind

Rule = Callable[[Node, BaseFunc], str | None]
"""What is wrong with a node of a function; None if nothing is."""


def _no(*classes: type[Node], why: str) -> Rule:
    """A rule against nodes of some classes."""

    def rule(node: Node, func: BaseFunc) -> str | None:
        return f"a {type(node).__name__}, {why}" if isinstance(node, classes) else None

    return rule


def _operator(node: Node) -> Op | None:
    return node.op if isinstance(node, (Call, PrimCall)) and isinstance(node.op, Op) else None


def _legal(node: Node, func: BaseFunc) -> str | None:
    op = _operator(node)
    if op is None or FLegalize.of(op) is None or not isinstance(node, Call):
        return None
    known = is_shape_known(node.struct_info) and all(is_shape_known(a.struct_info) for a in node.args)
    return f"{op.name} of known shapes, which stage `legalized` makes a kernel" if known else None


def _not_primitive(node: Node, func: BaseFunc) -> str | None:
    fused = isinstance(node, Function) and node.attrs.get("Primitive")
    return "a graph function of fused calls, which stage `fused` makes one kernel" if fused else None


def _only_loops(node: Node, func: BaseFunc) -> str | None:
    if isinstance(node, BaseFunc) and not isinstance(node, PrimFunc):
        return f"a {type(node).__name__}, where only PrimFuncs are compiled"
    return None


def _no_threads(node: Node, func: BaseFunc) -> str | None:
    if isinstance(node, For) and node.kind == ForKind.THREAD_BINDING:
        return f"the loop over `{node.loop_var.name}` is bound to a thread"
    return None


def _explicit_loops(node: Node, func: BaseFunc) -> str | None:
    if isinstance(node, For) and node.kind == ForKind.VECTORIZED:
        return f"the vectorized loop over `{node.loop_var.name}`, which stage `tir` makes vectors"
    return None


def _flat(node: Node, func: BaseFunc) -> str | None:
    if isinstance(node, (BufferLoad, BufferStore)) and len(node.indices) > 1:
        return f"an access of `{node.buffer.name}` by {len(node.indices)} indices, where memory is flat"
    return None


def _lowerable(node: Node, func: BaseFunc) -> str | None:
    op = _operator(node)
    if op is None or FLegalize.of(op) is None or FLowerBuiltin.of(op) is not None:
        return None
    return f"{op.name}, which is neither a kernel nor a call of the runtime"


def _runtime_only(node: Node, func: BaseFunc) -> str | None:
    op = _operator(node)
    if op is None or FLowerBuiltin.of(op) is None or op.name == _NOTHING:
        return None
    return f"{op.name}, which stage `planned` makes a call of the runtime"


_NOTHING = "relax.null_value"
"""The operator of the value None: lowering of shapes inserts it, and bytecode has an operand for it."""


def _written_out(node: Node, func: BaseFunc) -> str | None:
    op, target = _operator(node), func.attrs.get("target")
    kinds = ("default",) if target is None else (target.kind.name, "default")
    for kind in kinds:
        lower = None if op is None else op.attrs.get(f"{kind}.FLowerIntrinsic")
        if op is not None and lower is not None and lower(node) is not node:
            return f"{op.name}, which stage `tir` writes as what it computes"
    return None


def _no_call_tir(node: Node, func: BaseFunc) -> str | None:
    op = _operator(node)
    if op is not None and op.name.startswith("relax.call_tir"):
        return f"{op.name}, which stage `lowered` makes a call that writes its results"
    return None


_LEGALIZED: list[Rule] = [_legal]
_FUSED = [*_LEGALIZED, _not_primitive]
_NO_DATAFLOW = _no(DataflowBlock, why="which stage `lowered` makes a plain block")
_LOWERED: list[Rule] = [_not_primitive, _NO_DATAFLOW, _no_call_tir, _lowerable]
_PLANNED = [*_LOWERED, _runtime_only]
_KERNELS: list[Rule] = [_no(Reduce, ProducerLoad, why="which belongs to tensor expressions"), _no_threads]
_TIR = [
    *_KERNELS,
    _no(Block, BlockRealize, BufferRealize, why="which stage `tir` makes loops and memory"),
    _explicit_loops,
    _flat,
    _written_out,
]

SPECS: Mapping[str, Sequence[Rule]] = {
    "dispatched": [],
    "legalized": _LEGALIZED,
    "fused": _FUSED,
    "layouts": _FUSED,
    "lowered": _LOWERED,
    "planned": _PLANNED,
    "kernels": [_only_loops, *_KERNELS],
    "exact": [_only_loops, *_KERNELS],
    "scheduled": [_only_loops, *_KERNELS],
    "tir": [_only_loops, *_TIR],
}
"""The rules of each stage, by its name. A stage that is not here takes any module."""


def violations(stage: str, mod: IRModule) -> list[str]:
    """What breaks the rules of a stage in a module: messages, each with the name of the function."""
    rules = SPECS.get(stage, ())
    return [
        f"`{var.name_hint}`: {wrong}"
        for var, func in mod.functions_items()
        for node in _nodes(func)
        for rule in rules
        if (wrong := rule(node, func)) is not None
    ]


def _nodes(func: BaseFunc) -> Iterator[Node]:
    found: list[Node] = []
    post_order_visit(func, found.append)
    yield from (node for node in found if not isinstance(node, BaseFunc))
    yield func
