"""Which blocks are an attention: products of queries and keys, their softmax, and products with values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import GE, GT, LE, LT, Call, Cast, Div, FloatImm, PrimExpr, Sub, Var, as_int, const
from ...ir.op import Op
from ...ir.visitor import Mapper
from ...tir.analysis import get_block_read_write_region
from ...tir.analysis.variables import variables
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import BufferLoad, IterVar, Select
from ...tir.schedule import Schedule
from ...tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, SeqStmt, Stmt
from ...tir.stmt_functor import loads
from .contraction import is_contraction, operands, without_cast
from .leaves import Leaf, extent_of, leaves, plain_schedule, reduces
from .recomputation import stays_small
from .values import Loaded, at_values, root_block

_HALVES = ("float16", "bfloat16")
_EXP, _SQRT, _ISNAN = Op.get("tir.exp"), Op.get("tir.sqrt"), Op.get("tir.isnan")


def _plain(indices: Sequence[PrimExpr], axes: Sequence[IterVar]) -> bool:
    """Whether indices are a batch's, a row's and a column's axes, in order; those of extent 1 may be 0."""
    if len(axes) < 3 or len(indices) != len(axes):
        return False
    pairs = zip(indices, axes, strict=True)
    return all(index is iv.var or (as_int(index) == 0 and as_int(extent_of(iv)) == 1) for index, iv in pairs)


@dataclass(slots=True)
class Chain:
    """The blocks of an attention in order, by name."""

    scores: str
    softmax: list[str]
    result: str


def inline_elementwise_blocks(sch: Schedule) -> None:
    """Inlines elementwise blocks, but not softmax weights: a product would compute each exponential again and again."""
    while any(_inline(sch, leaf) for leaf in leaves(sch) or ()):
        pass


def _inline(sch: Schedule, leaf: Leaf) -> bool:
    consumers = sch.get_consumers(leaf.handle)
    if leaf.reduces or not consumers or not isinstance(leaf.block.body, BufferStore) or _is_weight(sch, leaf):
        return False
    if not stays_small(leaf.block, [sch.get(consumer) for consumer in consumers]):
        return False
    sch.compute_inline(leaf.handle)
    return True


def _is_weight(sch: Schedule, leaf: Leaf) -> bool:
    """Whether a block computes softmax weights: from a reduction that is no product, for another reduction."""
    producers = [sch.get(p) for p in sch.get_producers(leaf.handle)]
    consumers = [sch.get(c) for c in sch.get_consumers(leaf.handle)]
    after = any(reduces(p) and operands(p) is None for p in producers)
    return after and any(reduces(c) for c in consumers)


def chain_of(found: list[Leaf]) -> Chain | None:
    """The parts of an attention; None for other functions."""
    names = [leaf.block.name_hint for leaf in found]
    kinds = [(leaf.reduces, is_contraction(leaf)) for leaf in found]
    product, reduction, elementwise = (True, True), (True, False), (False, False)
    if kinds[:6] != [product, reduction, elementwise, reduction, elementwise, product] or len(found) > 7:
        return None
    if any(leaf.reduces or not isinstance(leaf.block.body, BufferStore) for leaf in found[6:]):
        return None
    for leaf in found[:6]:
        kinds_of_axes = [iv.iter_type for iv in leaf.block.iter_vars]
        reducing = kinds_of_axes.count(IterVar.CommReduce)
        if reducing > 1 or (reducing and kinds_of_axes[-1] != IterVar.CommReduce):
            return None
    for leaf in (found[0], found[5]):
        store = leaf.block.body
        if not isinstance(store, BufferStore) or not _plain(store.indices, leaf.block.iter_vars[:-1]):
            return None
    return Chain(names[0], names[1:5], names[5])


# -- what is computed --


@dataclass
class Parts:
    """An attention as functions of indices: of those of the batch, and of those of a query, a key or an element."""

    batch: list[PrimExpr]
    queries: PrimExpr
    keys: PrimExpr
    depth: PrimExpr
    """The length of queries and keys."""
    width: PrimExpr
    """The length of values and results."""
    query: Callable[[Sequence[PrimExpr], PrimExpr, PrimExpr], BufferLoad]
    key: Callable[[Sequence[PrimExpr], PrimExpr, PrimExpr], BufferLoad]
    value: Callable[[Sequence[PrimExpr], PrimExpr, PrimExpr], BufferLoad]
    score: Callable[[Sequence[PrimExpr], PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    """The argument of the softmax, from the product of a query and a key: scaled, masked."""
    reach: Callable[[Sequence[PrimExpr], PrimExpr], PrimExpr] | None
    """How many keys, from the first on, a query sees; the scores of others are not asked for. None: all."""
    safe: bool
    """Whether weights that are NaN count as 0."""
    store: Callable[[Sequence[PrimExpr], PrimExpr, PrimExpr, PrimExpr], Stmt]
    """Stores an element of the result."""


def parts_of(sch: Schedule) -> Parts | None:
    """The parts of an attention; None for other functions. Inlines its elementwise blocks."""
    inline_elementwise_blocks(sch)
    sch = plain_schedule(sch.mod["main"])
    found = leaves(sch) or []
    chain = chain_of(found)
    if chain is None:
        return None
    scores, _, exponentials, _, weights, result = (leaf.block for leaf in found[:6])
    products, sums = operands(scores), operands(result)
    safe = _divides(weights)
    argument = _argument(scores, exponentials)
    if products is None or sums is None or argument is None or safe is None:
        return None
    row, column = scores.iter_vars[-3].var, scores.iter_vars[-2].var
    # Of a single query, or a single key, the factors do not use the axis.
    query, key = products[::-1] if _uses(products[0], column) or _uses(products[1], row) else products
    if _uses(query, column) or _uses(key, row):
        return None
    values = [load for load in sums if load.buffer is not _writes(weights)]
    store = _store_of(sch, found)
    if len(values) != 1 or store is None:
        return None
    argument, condition = argument
    reach = None if condition is None else _reach_of(condition, [iv.var for iv in exponentials.iter_vars])
    if condition is not None and reach is None:
        argument = Select(condition, argument, const(float("-inf"), argument.dtype))
    zero = const(0, row.dtype)
    dtype = _writes(scores).dtype
    wide = decl_buffer(list(_writes(scores).shape), "float32" if dtype in _HALVES else dtype, "products")
    argument = _Multiplied()(_Widened({_writes(scores): wide})(argument))
    return Parts(
        [extent_of(iv) for iv in scores.iter_vars[:-3]],
        extent_of(scores.iter_vars[-3]),
        extent_of(scores.iter_vars[-2]),
        extent_of(scores.iter_vars[-1]),
        extent_of(result.iter_vars[-2]),
        lambda at, i, k: at_values(scores, query, [*at, i, zero, k]),
        lambda at, j, k: at_values(scores, key, [*at, zero, j, k]),
        lambda at, j, d: at_values(result, values[0], [*at, zero, d, j]),
        lambda at, i, j, product: at_values(exponentials, Loaded(wide, product)(argument), [*at, i, j]),
        None if reach is None else lambda at, i: at_values(exponentials, reach, [*at, i, zero]),
        safe,
        store,
    )


def _uses(load: BufferLoad, var: Var) -> bool:
    return any(var in variables(index) for index in load.indices)


def _writes(block: Block) -> Buffer:
    assert isinstance(block.body, BufferStore)
    return block.body.buffer


def _divides(weights: Block) -> bool | None:
    """Whether a block that divides exponentials by their sums puts 0 in place of NaN; None for another block."""
    body = weights.body
    assert isinstance(body, BufferStore)
    value, safe = body.value, False
    if isinstance(value, Select) and isinstance(value.condition, Call) and value.condition.op is _ISNAN:
        asked, instead, value, safe = value.condition.args[0], value.true_value, value.false_value, True
        if getattr(instead, "value", None) != 0 or not ops.same_expr(asked, value):
            return None
    loaded = isinstance(value, Div) and all(isinstance(without_cast(x), BufferLoad) for x in (value.a, value.b))
    return safe if loaded else None


def _argument(scores: Block, exponentials: Block) -> tuple[PrimExpr, PrimExpr | None] | None:
    """What softmax is computed of, over the axes of the block of exponentials, and where a mask lets it be seen."""
    exponential = exponentials.body
    if not isinstance(exponential, BufferStore):
        return None
    call, condition = exponential.value, None
    if isinstance(call, Select) and getattr(call.false_value, "value", None) == 0:  # as causal masks are written
        call, condition = call.true_value, call.condition
    difference = call.args[0] if isinstance(call, Call) and call.op is _EXP else None
    if not isinstance(difference, Sub):
        return None
    argument = difference.a
    found = [load for load in loads(argument) if load.buffer is _writes(scores)]
    plain = all(
        _plain(indices, exponentials.iter_vars) for indices in (exponential.indices, *(x.indices for x in found))
    )
    if not found or not plain or not isinstance(without_cast(difference.b), BufferLoad):
        return None
    if condition is not None:
        argument = _Where(condition)(argument)
    return argument, condition


class _Where(Mapper):
    """What an expression is where a condition holds."""

    def __init__(self, condition: PrimExpr):
        super().__init__()
        self.condition = condition

    def visit_Select(self, select: Select) -> PrimExpr:
        return (
            self.visit(select.true_value)
            if ops.same_expr(select.condition, self.condition)
            else self.generic_visit(select)
        )


class _Widened(Mapper):
    """Computes in float32 what is computed in half precision; some buffers are others, of float32."""

    def __init__(self, buffers: Mapping[Buffer, Buffer]):
        super().__init__()
        self.buffers = buffers

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        if load.buffer in self.buffers:
            return BufferLoad(self.buffers[load.buffer], load.indices)
        return ops.cast("float32", load) if load.dtype in _HALVES else load

    def visit_FloatImm(self, number: FloatImm) -> PrimExpr:
        return const(number.value, "float32") if number.dtype in _HALVES else number

    def visit_Cast(self, cast: Cast) -> PrimExpr:
        return ops.cast("float32" if cast.dtype in _HALVES else cast.dtype, self.visit(cast.value))

    def visit_Call(self, call: Call) -> PrimExpr:
        new = self.generic_visit(call)
        return new.replace(dtype="float32") if call.dtype in _HALVES else new


class _Multiplied(Mapper):
    """Divisions by constants become products, which take a tenth of the time."""

    def visit_Div(self, div: Div) -> PrimExpr:
        number, power = div.b, 1.0
        if isinstance(number, Call) and number.op is _SQRT:
            number, power = number.args[0], 0.5
        if not isinstance(number, FloatImm) or number.value <= 0:
            return self.generic_visit(div)
        return self.visit(div.a) * const(1 / number.value**power, div.dtype)


def _reach_of(condition: PrimExpr, axes: Sequence[Var]) -> PrimExpr | None:
    """How many keys, from the first on, a condition `key <= query + offset` holds for; None for other conditions."""
    *_, row, column = axes
    if isinstance(condition, (LE, LT)):
        small, large, more = condition.a, condition.b, isinstance(condition, LE)
    elif isinstance(condition, (GE, GT)):
        small, large, more = condition.b, condition.a, isinstance(condition, GE)
    else:
        return None
    reach = Analyzer().simplify(large - small + column + (1 if more else 0))
    return None if column in variables(reach) else ops.cast(row.dtype, reach)


def _store_of(sch: Schedule, found: list[Leaf]) -> Callable[..., Stmt] | None:
    """How an element of the result is stored: with what the last block does to it, if there is one after it."""
    block = found[5].block
    result = _writes(block)
    axes = block.iter_vars[:-1]
    if len(found) == 6:
        return lambda at, i, d, value: BufferStore(result, ops.cast(result.dtype, value), [*at, i, d])
    # The block that follows is inlined into one that copies from a parameter, which stands for the sums.
    sums = decl_buffer(list(result.shape), result.dtype, "sums")
    new = [Var(f"v{n}", iv.var.dtype) for n, iv in enumerate(axes)]
    iter_vars = [iv.replace(var=var) for iv, var in zip(axes, new, strict=True)]
    copy = BufferStore(result, BufferLoad(sums, new), new)
    loops = [Var(f"i{n}", iv.var.dtype) for n, iv in enumerate(axes)]
    plain = Block(iter_vars, [], [], "copy", copy)
    reads, writes = get_block_read_write_region(plain, {buffer.data: buffer for buffer in (sums, result)})
    body: Stmt = BlockRealize(loops, True, plain.replace(reads=reads, writes=writes))
    for var, iv in reversed(list(zip(loops, axes, strict=True))):
        body = For(var, const(0, var.dtype), extent_of(iv), ForKind.SERIAL, body)
    func = sch.mod["main"]
    handle = Var("sums", "handle")
    last = sch.get(found[6].loops[0])
    small = func.replace(
        params=[*func.params, handle],
        buffer_map={**func.buffer_map, handle: sums},
        body=root_block(SeqStmt([body, last]), [result]),
    )
    inner = Schedule(small)
    inner.reverse_compute_inline(inner.get_block(found[6].block.name_hint))
    merged = inner.get(inner.get_block("copy"))
    stored = merged.body
    if not isinstance(stored, BufferStore):
        return None

    def store(at: Sequence[PrimExpr], i: PrimExpr, d: PrimExpr, value: PrimExpr) -> Stmt:
        return at_values(merged, Loaded(sums, value)(stored), [*at, i, d])

    return store
