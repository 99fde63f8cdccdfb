"""Random decisions, which the trace records: numbers, tile sizes, places to compute at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import IntImm, as_expr, as_int
from ...runtime.error import InvalidValue
from ..block_scope import INLINE, ROOT, StmtSRef
from ..stmt import For
from .base import ScheduleBase
from .blockize import lowest_common
from .compute_at import can_compute_at
from .conditions import as_block, as_loop
from .domain import loops_above
from .inline import can_compute_inline
from .instruction import InstructionKind
from .lookup import consumers_of
from .random_engine import RandomEngine
from .random_variable import BlockRV, ExprRV, LoopRV
from .state import ScheduleState


def sample_categorical(
    state: ScheduleState, rng: RandomEngine, candidates: list[int], probs: list[float], decision: int | None
) -> tuple[int, IntImm]:
    if len(candidates) != len(probs) or not candidates:
        raise InvalidValue(
            f"expected a probability for each of one or more candidates, found {len(candidates)} candidates and "
            f"{len(probs)} probabilities"
        )
    if decision is None:
        decision = rng.position([float(p) for p in probs])
    elif not 0 <= int(decision) < len(candidates):
        raise InvalidValue(f"the decision {decision} is not the position of one of {len(candidates)} candidates")
    return int(candidates[int(decision)]), IntImm("int32", int(decision))


def tile(rng: RandomEngine, extent: int, parts: int) -> list[int]:
    """Numbers whose product is the extent, any way of distributing its prime factors being as likely as another."""
    factors = [1] * parts
    rest, prime = extent, 2
    while rest > 1:
        if prime * prime > rest:
            prime = rest
        while rest % prime == 0:
            factors[rng.below(parts)] *= prime
            rest //= prime
        prime += 1
    return factors


def _adapted(decision: Sequence[Any], extent: int) -> list[int]:
    """Recorded tile sizes for a loop whose extent may have changed since; the outermost takes what is left."""
    factors = [int(f) for f in decision]
    for i in range(len(factors) - 1, 0, -1):
        if factors[i] <= 0 or extent % factors[i] != 0:
            factors[i] = extent
        extent //= factors[i]
    return [extent, *factors[1:]]


def _checked_parts(n: int) -> int:
    if n < 1:
        raise InvalidValue(f"a loop is tiled into one or more parts, found n = {n}")
    return n


def _extent(state: ScheduleState, sref: StmtSRef) -> int | None:
    loop: For = as_loop(state, sref)
    return as_int(loop.extent)


def sample_perfect_tile(
    state: ScheduleState,
    rng: RandomEngine,
    loop: StmtSRef,
    n: int,
    max_innermost_factor: int,
    decision: Sequence[int] | None,
) -> tuple[list[Any], list[int]]:
    extent = _extent(state, loop)
    if extent is None:
        # The outermost factor is inferred when the loop is split.
        return _numbers([-1] + [1] * (n - 1))
    if decision is not None:
        return _numbers(_adapted(decision, extent))
    limit = extent if max_innermost_factor == -1 else max_innermost_factor
    for _ in range(1000):
        factors = tile(rng, extent, _checked_parts(n))
        if factors[-1] <= limit:
            return _numbers(factors)
    inner = max(d for d in range(1, limit + 1) if extent % d == 0)
    return _numbers([extent // inner, *[1] * (n - 2), inner] if n > 1 else [extent])


def sample_partitioned_tile(
    state: ScheduleState,
    rng: RandomEngine,
    loop: StmtSRef,
    n: int,
    partition_pos: int,
    innerpart_factor: int,
    decision: Sequence[int] | None,
) -> tuple[list[Any], list[int]]:
    extent = _extent(state, loop)
    if extent is None:
        return _numbers([-1] + [1] * (n - 1))
    if decision is not None:
        return _numbers(_adapted(decision, extent))
    if not 0 <= partition_pos < _checked_parts(n):
        raise InvalidValue(f"partition_pos is one of the {n} parts, found {partition_pos}")
    if extent % innerpart_factor != 0:
        return _numbers(tile(rng, extent, n))
    factors = tile(rng, extent // innerpart_factor, n)
    for i, factor in enumerate(tile(rng, innerpart_factor, n - partition_pos)):
        factors[partition_pos + i] *= factor
    return _numbers(factors)


def _numbers(factors: list[int]) -> tuple[list[Any], list[int]]:
    return [as_expr(f) for f in factors], factors


def sample_compute_location(
    state: ScheduleState, rng: RandomEngine, block: StmtSRef, decision: int | None
) -> tuple[StmtSRef, int]:
    places = compute_locations(state, block)
    if decision is None:
        chosen = list(places)[rng.below(len(places))]
    else:
        # A recorded location that no longer exists is replaced by the next outer one.
        chosen = max([i for i in places if i <= int(decision)], default=min(places))
    return places[chosen], chosen


def compute_locations(state: ScheduleState, block: StmtSRef) -> dict[int, StmtSRef]:
    """The locations where a block can be computed: inlined (-2), unmoved (-1), or a loop around all its consumers."""
    as_block(state, block)
    places: dict[int, StmtSRef] = {-2: INLINE} if can_compute_inline(state, block) else {}
    places[-1] = ROOT
    consumers = consumers_of(state, block) if block.parent is not None else []
    if not consumers:
        return places
    boundary = lowest_common(consumers) if len(consumers) > 1 else consumers[0].parent
    loops = list(loops_above(consumers[0].parent))[::-1]
    if boundary not in loops:
        return places
    for i, loop in enumerate(loops[: loops.index(boundary) + 1]):
        extent = loop.stmt.extent
        if not (isinstance(extent, IntImm) and extent.value == 1) and can_compute_at(state, block, loop, True):
            places[i] = loop
    return places


SAMPLE_CATEGORICAL = InstructionKind(
    "SampleCategorical",
    "sample_categorical",
    sample_categorical,
    (),
    ("candidates", "probs"),
    pure=True,
    decides=True,
)
SAMPLE_PERFECT_TILE = InstructionKind(
    "SamplePerfectTile",
    "sample_perfect_tile",
    sample_perfect_tile,
    ("loop",),
    ("n", "max_innermost_factor"),
    pure=True,
    decides=True,
    returns_list=True,
)
SAMPLE_PARTITIONED_TILE = InstructionKind(
    "SamplePartitionedTile",
    "sample_partitioned_tile",
    sample_partitioned_tile,
    ("loop",),
    ("n", "partition_pos", "innerpart_factor"),
    pure=True,
    decides=True,
    returns_list=True,
)
SAMPLE_COMPUTE_LOCATION = InstructionKind(
    "SampleComputeLocation",
    "sample_compute_location",
    sample_compute_location,
    ("block",),
    pure=True,
    decides=True,
)


def _enter_postproc(state: ScheduleState) -> None:
    """Changes nothing: only marks in the trace where post-processing begins."""


ENTER_POSTPROC = InstructionKind("EnterPostproc", "enter_postproc", _enter_postproc)


class Sampling(ScheduleBase):
    """The part of a schedule that samples decisions. A given `decision` is used instead of a random one."""

    def sample_categorical(self, candidates: list[int], probs: list[float], decision: int | None = None) -> ExprRV:
        """One of several numbers, with the given probabilities. The decision is its position.

            unrolled = sch.sample_categorical([0, 16, 64], [0.5, 0.25, 0.25])
            sch.annotate(loop, "pragma_auto_unroll_max_step", unrolled)

        With `decision=1` it is always 16. There must be as many probabilities as candidates, and at least one. Raises
        `InvalidValue` otherwise.
        """
        return self.apply(SAMPLE_CATEGORICAL, [], [list(candidates), list(probs)], decision)[0]

    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16, decision: list[int] | None = None
    ) -> list[ExprRV | None]:
        """`n` factors of a loop's extent, the last at most `max_innermost_factor` (any, if that is -1).

            # for i in range(64): ...
            factors = sch.sample_perfect_tile(i, n=3, max_innermost_factor=8)  # decided, say, as [4, 2, 8]
            sch.split(i, factors)

        becomes

            for i_0, i_1, i_2 in T.grid(4, 2, 8): ...

        A loop of symbolic extent gets None, which `split` infers, and ones.
        """
        return self._inferred(self.apply(SAMPLE_PERFECT_TILE, [loop], [n, max_innermost_factor], decision))

    def sample_partitioned_tile(
        self,
        loop: LoopRV,
        n: int,
        partition_pos: int = 0,
        innerpart_factor: int = 1,
        decision: list[int] | None = None,
    ) -> list[ExprRV | None]:
        """`n` factors of a loop's extent; the product of those from `partition_pos` on is a multiple of
        `innerpart_factor`, if the extent is.

            # for i in range(64): ...
            factors = sch.sample_partitioned_tile(i, n=3, partition_pos=1, innerpart_factor=16)
            sch.split(i, factors)  # decided, say, as [2, 8, 4], where 8 * 4 is a multiple of 16

        A loop of symbolic extent gets None, which `split` infers, and ones.
        """
        found = self.apply(SAMPLE_PARTITIONED_TILE, [loop], [n, partition_pos, innerpart_factor], decision)
        return self._inferred(found)

    def _inferred(self, factors: list[ExprRV]) -> list[ExprRV | None]:
        """Factors as `split` takes them: None is inferred."""
        return [None if as_int(self.get(factor)) == -1 else factor for factor in factors]

    def sample_compute_location(self, block: BlockRV | str, decision: int | None = None) -> LoopRV:
        """A loop into which a block can be moved, or a mark that `compute_at` understands as staying (-1) or being
        inlined (-2).

            place = sch.sample_compute_location("B")  # decided, say, as 0: the outermost loop around the reader of B
            sch.compute_at("B", place)

        The decision is the position of the loop among those around the block's readers, or the mark.
        """
        return self.apply(SAMPLE_COMPUTE_LOCATION, [self._block(block)], (), decision)[0]

    def enter_postproc(self) -> None:
        """Marks in the trace where postprocessing begins, which `remove_postproc` leaves out."""
        self.apply(ENTER_POSTPROC, [])
