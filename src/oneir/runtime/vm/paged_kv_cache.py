"""The cache of keys and values in pages that `relax.frontend.nn.llm.PagedKVCache` is at run time.

Which page has what is told by page tables (`pages.py`); what is computed, by kernels that the cache is created with. A
step stores its keys and values before it attends, so attention reads pages only: those of a sequence that was forked
are in the tables of both, and are copied before one of them writes there.

A window of a sequence ends with its last token: what it leaves is dropped when the step ends, and positions are counted
anew through what is kept. Where only some layers have windows, nothing is dropped, and those layers look at less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..error import InvalidValue, ShapeMismatch, UnsupportedError
from ..tensor import Tensor, empty, tensor
from .kv_state import KVState, expect_step
from .pages import LEFT, Pages, PageTable

MHA_SLIDING = 3
NORMAL, INLINE = 1, 2
Kernel = Callable[..., Any]


@dataclass
class _Sequence:
    table: PageTable
    window: int = 0
    """How many tokens are kept, 0 for all of them; `sinks` of them are the first ones."""
    sinks: int = 0
    dropped: int = 0
    """How many tokens behind the sinks are not kept any more."""
    tree: list[int] = field(default_factory=list[int])
    """The parents of the last tokens, if they were given and no leaf has been accepted since."""

    @property
    def kept(self) -> int:
        return self.table.length - self.dropped

    @property
    def branches(self) -> bool:
        """Whether the tree is more than a chain."""
        return _branches(self.tree)


def _branches(tree: list[int]) -> bool:
    return tree != [*range(-1, len(tree) - 1)]


class _Part(NamedTuple):
    """What of a sequence a kernel is to see: pages, how much of the last is full, and where its window begins."""

    pages: list[int]
    last: int
    begin: int
    sinks: int


class _Places(NamedTuple):
    """The arguments of kernels that say where the positions of a step's sequences are, as tensors of int32."""

    indptr: Tensor
    pages: Tensor
    lengths: Tensor
    key_offsets: Tensor


class _Step(NamedTuple):
    """What kernels need to know of a step. `kernel_kind` is "decode", "prefill" or "tree"."""

    kernel_kind: str
    rows: int
    indptr: Tensor
    positions: Tensor
    key_begins: Tensor
    """The position of the first new token of each sequence."""
    stored_at: Tensor
    places: _Places
    sliding: _Places | None
    before: _Places
    tree_indptr: Tensor | None
    tree_order: Tensor | None
    q: Tensor
    k: Tensor
    v: Tensor
    lse: Tensor


@dataclass(frozen=True)
class Kernels:
    """What the cache calls; those of attention by whether there are windows."""

    append: Kernel
    ragged: Kernel
    prefill: tuple[Kernel, Kernel]
    decode: tuple[Kernel, Kernel]
    tree: Kernel
    merge: Kernel
    split_rotary: Kernel
    copy_page: Kernel
    debug: Kernel
    compact: Kernel


@dataclass(frozen=True)
class CacheConfig:
    """What a cache is for. Its sequences may have `capacity` tokens, a step `chunk` new ones."""

    max_sequences: int
    capacity: int
    chunk: int
    page_size: int
    window: bool
    kinds: tuple[int, ...]
    first_layer: int
    heads: int
    kv_heads: int
    head_dim: int
    rope: int
    rope_scale: float
    rope_theta: float


class PagedKVCache(KVState):
    """Keys and values of sequences, in a tensor of pages (num_pages, 2, kv_heads, page_size, head_dim) for each layer.

    A longer rotary embedding has `rope_factors`, a tensor of float32. `like` is a tensor whose dtype and device the
    cache has.
    """

    def __init__(self, config: CacheConfig, kernels: Kernels, rope_factors: Tensor | None, like: Tensor):
        self.config, self._kernels, self._factors = config, kernels, rope_factors
        self._dtype, self._device = like.dtype, like.device
        self._num_pages = -(-config.capacity // config.page_size)
        self._pages = Pages(self._num_pages, config.page_size)
        shape = (self._num_pages, 2, config.kv_heads, config.page_size, config.head_dim)
        self._memory = [empty(shape, self._dtype, self._device) for _ in config.kinds]
        self._sequences: dict[int, _Sequence] = {}
        self._begun: list[_Sequence] = []
        self._step: _Step | None = None
        # Where windows move, so do the positions of keys: they are turned when they are read.
        self._rope = INLINE if config.window and config.rope == NORMAL else config.rope
        self._sliding = MHA_SLIDING in config.kinds

    # Sequences -------------------------------------------------------------------------------------------------------

    def _of(self, sequence: int) -> _Sequence:
        if sequence not in self._sequences:
            raise InvalidValue(f"the sequence {sequence} is not in the cache; there are {sorted(self._sequences)}")
        return self._sequences[sequence]

    def _accepted(self, sequence: int, purpose: str) -> _Sequence:
        """A sequence whose tree has been cut down to a chain."""
        found = self._of(sequence)
        if found.branches:
            raise InvalidValue(
                f"the sequence {sequence} cannot be {purpose}: its last tokens are a tree; accept a leaf of it with "
                "attention_kv_cache_commit_accepted_token_tree_nodes"
            )
        return found

    def clear(self) -> None:
        for sequence in self._sequences.values():
            sequence.table.clear()
        self._sequences, self._begun, self._step = {}, [], None

    def _expect_new(self, sequence: int) -> None:
        if sequence in self._sequences:
            raise InvalidValue(f"the sequence {sequence} is in the cache already")
        if len(self._sequences) == self.config.max_sequences:
            raise InvalidValue(f"the cache has its {self.config.max_sequences} sequences already: remove one first")

    def add_sequence(self, sequence: int) -> None:
        self._expect_new(sequence)
        self._sequences[sequence] = _Sequence(PageTable(self._pages))

    def remove_sequence(self, sequence: int) -> None:
        self._of(sequence).table.clear()
        del self._sequences[sequence]

    def fork_sequence(self, parent: int, child: int, position: int = -1) -> None:
        found = self._accepted(parent, "forked")
        self._expect_new(child)
        if found.window:
            raise InvalidValue(f"the sequence {parent} has a window, so it cannot be forked")
        if not -1 <= position <= found.table.length:
            raise InvalidValue(
                f"the sequence {parent} of {found.table.length} tokens cannot be forked at position {position}"
            )
        table = found.table.fork()
        if position >= 0:
            table.pop(table.length - position)
        self._sequences[child] = _Sequence(table)

    def popn(self, sequence: int, count: int) -> None:
        found = self._accepted(sequence, "shortened")
        if found.dropped:
            raise InvalidValue(f"the sequence {sequence} has a window that has moved, so it cannot be shortened")
        if not 0 <= count <= found.table.length:
            raise InvalidValue(f"cannot drop {count} tokens of the sequence {sequence}, which has {found.table.length}")
        found.table.pop(count)

    def enable_window(self, sequence: int, window: int, sinks: int) -> None:
        """From the next step on, only the first `sinks` tokens and the last ones are kept, `window` in all."""
        if not self.config.window and not self._sliding:
            raise InvalidValue("the cache was created without support_sliding_window")
        found = self._accepted(sequence, "given a window")
        if not 0 <= sinks < window:
            raise InvalidValue(f"expected a window larger than its sinks, found {window} with {sinks}")
        found.window, found.sinks = window, sinks

    @property
    def is_empty(self) -> bool:
        """Whether there are no sequences."""
        return not self._sequences

    @property
    def available_pages(self) -> int:
        """How many pages no sequence has."""
        return self._pages.available

    @property
    def total_length(self) -> int:
        """How many tokens all sequences have; those that share pages count each."""
        return sum(sequence.kept for sequence in self._sequences.values())

    # Steps -----------------------------------------------------------------------------------------------------------

    def begin_forward(
        self, sequences: Sequence[int], lengths: Sequence[int], parents: Sequence[int] | None = None
    ) -> None:
        expect_step(sequences, lengths)
        if sum(lengths) > self.config.chunk:
            raise InvalidValue(
                f"expected at most {self.config.chunk} new tokens in a step, as the cache was created for, found "
                f"{sum(lengths)}"
            )
        found = [self._of(s) if parents is not None else self._accepted(s, "continued") for s in sequences]
        trees = self._trees(found, lengths, parents)
        needed = sum(s.table.needed(n) for s, n in zip(found, lengths, strict=True))
        if needed > self._pages.available:
            raise InvalidValue(
                f"the step needs {needed} pages of {self.config.page_size} tokens, and {self._pages.available} are "
                "left: remove sequences first"
            )
        before = [s.table.length for s in found]
        for sequence, count, start in zip(found, lengths, before, strict=True):
            copy = sequence.table.append(count)
            if copy is not None:
                for memory in self._memory:
                    self._kernels.copy_page(memory, copy.source, copy.target, start % self.config.page_size)
        for sequence, tree in zip(found, trees, strict=True):
            sequence.tree = tree
        self._begun = found
        self._step = self._prepare(found, list(lengths), before)

    def _trees(self, found: list[_Sequence], lengths: Sequence[int], parents: Sequence[int] | None) -> list[list[int]]:
        """The trees at the ends of the sequences with their new tokens; none where tokens are a chain by themselves."""
        if parents is None:
            return [[] for _ in found]
        if len(parents) != sum(lengths):
            raise InvalidValue(f"expected the parent of each of {sum(lengths)} new tokens, found {len(parents)}")
        trees, begin = [], 0
        for sequence, count in zip(found, lengths, strict=True):
            tree = [*sequence.tree, *parents[begin : begin + count]]
            begin += count
            wrong = [parent for node, parent in enumerate(tree) if not -1 <= parent < node]
            if wrong:
                raise InvalidValue(f"expected parents to come before their children, or to be -1, found {tree}")
            trees.append(tree)
        if any(map(_branches, trees)) and (self._rope == INLINE or any(s.window for s in found)):
            raise UnsupportedError("trees of tokens need keys that are turned before they go into pages, and no window")
        return trees

    def _prepare(self, found: list[_Sequence], lengths: list[int], before: list[int]) -> _Step:
        rows, config = sum(lengths), self.config
        positions: list[int] = []
        stored_at: list[int] = []
        for s, start, count in zip(found, before, lengths, strict=True):
            tree_begin = s.table.length - len(s.tree)
            depths = _depths(s.tree)
            new = range(start, start + count)
            positions += [tree_begin + depths[i - tree_begin] if s.tree else i - s.dropped for i in new]
            stored_at += [self._place(s, i) for i in new]
        tree = any(s.branches for s in found)
        kind = "tree" if tree else "decode" if rows == len(found) else "prefill"
        # Sequences without a tree of their own are among those that have one as trees of what is new.
        trees = [s.tree or [*range(-1, n - 1)] for s, n in zip(found, lengths, strict=True)] if tree else []
        row_shape = (config.kv_heads, config.head_dim)
        return _Step(
            kind,
            rows,
            self._int32(np.cumsum([0, *lengths])),
            self._int32(positions),
            self._int32([start - s.dropped for s, start in zip(found, before, strict=True)]),
            self._int32(stored_at),
            self._places([self._part(s, s.table.length, s.dropped) for s in found], [0] * len(found)),
            self._sliding_places(found, before) if self._sliding and any(s.window for s in found) else None,
            self._places(
                [self._part(s, start, s.dropped) for s, start in zip(found, before, strict=True)], [0] * len(found)
            ),
            self._int32(np.cumsum([0, *map(len, trees)])) if tree else None,
            self._int32(np.concatenate([_walk(nodes) for nodes in trees])) if tree else None,
            empty((rows, config.heads, config.head_dim), self._dtype, self._device),
            empty((rows, *row_shape), self._dtype, self._device),
            empty((rows, *row_shape), self._dtype, self._device),
            empty((rows, config.heads), "float32", self._device),
        )

    def _int32(self, values: object) -> Tensor:
        return tensor(np.asarray(values, "int32"), self._device)

    def _place(self, sequence: _Sequence, index: int) -> int:
        """Where token `index` of a sequence is, counted from its first one."""
        size = self.config.page_size
        return sequence.table.numbers[index // size] * size + index % size

    def _part(self, sequence: _Sequence, length: int, dropped: int) -> _Part:
        """The first `length` tokens of a sequence, without `dropped` of them behind the sinks."""
        size = self.config.page_size
        pages = sequence.table.numbers[: -(-length // size)]
        kept = [page for page in pages if page != LEFT]
        begin = sequence.sinks + dropped - (len(pages) - len(kept)) * size if dropped else 0
        return _Part(kept, (length - 1) % size + 1 if length else 0, begin, sequence.sinks if dropped else 0)

    def _places(self, parts: list[_Part], key_offsets: list[int], window: bool | None = None) -> _Places:
        last = [part.last for part in parts]
        windowed = [last, [part.begin for part in parts], [part.sinks for part in parts]]
        return _Places(
            self._int32(np.cumsum([0, *(len(part.pages) for part in parts)])),
            self._int32([page for part in parts for page in part.pages] or [0]),
            self._int32(windowed if (self.config.window if window is None else window) else last),
            self._int32(key_offsets),
        )

    def _sliding_places(self, found: list[_Sequence], before: list[int]) -> _Places:
        """What layers with windows see, of sequences of which nothing is dropped."""
        dropped = [max(start - s.window, 0) if s.window else 0 for s, start in zip(found, before, strict=True)]
        parts = [self._part(s, s.table.length, left) for s, left in zip(found, dropped, strict=True)]
        return self._places(parts, dropped, window=True)

    def end_forward(self) -> None:
        for sequence in self._begun:
            if sequence.window and not self._sliding and sequence.kept > sequence.window:
                sequence.dropped = sequence.table.length - sequence.window
                sequence.table.slide(sequence.window - sequence.sinks + 1, sequence.sinks)
        self._begun, self._step = [], None

    def commit(self, sequences: Sequence[int], leaves: Sequence[int]) -> None:
        """Keeps of each tree the path to a leaf, by its number in the tree, or nothing (-1)."""
        if len(sequences) != len(leaves):
            raise InvalidValue(f"expected a leaf for each of {len(sequences)} sequences, found {len(leaves)}")
        moves: list[list[tuple[int, int]]] = []
        for number, leaf in zip(sequences, leaves, strict=True):
            sequence = self._of(number)
            if not -1 <= leaf < max(len(sequence.tree), 1):
                raise InvalidValue(
                    f"the sequence {number} has a tree of {len(sequence.tree)} tokens: there is no leaf {leaf}"
                )
        for number, leaf in zip(sequences, leaves, strict=True):
            sequence = self._of(number)
            path = _path(sequence.tree, leaf)
            begin = sequence.table.length - len(sequence.tree)
            moves.append(
                [
                    (self._place(sequence, begin + node), self._place(sequence, begin + i))
                    for i, node in enumerate(path)
                    if node != i
                ]
            )
            sequence.table.pop(len(sequence.tree) - len(path))
            sequence.tree = []
        pairs = [pair for of_sequence in moves for pair in of_sequence]
        if pairs:
            indptr = self._int32(np.cumsum([0, *map(len, moves)]))
            both = self._int32(np.array(pairs).T)
            for memory in self._memory:
                self._kernels.compact(memory, indptr, both, len(moves))

    # What models compute ---------------------------------------------------------------------------------------------

    def _current(self, layer: int, **rows: tuple[Tensor, int, int]) -> tuple[_Step, int]:
        """The step, and the number of a layer here; checks the shapes of tensors of rows: (rows, heads, head_dim)."""
        if self._step is None:
            raise InvalidValue("attention outside of a step: call vm.builtin.kv_state_begin_forward first")
        local = layer - self.config.first_layer
        if not 0 <= local < len(self._memory):
            raise InvalidValue(f"the cache has {len(self._memory)} layers, found the layer {layer}")
        for name, (value, heads, head_dim) in rows.items():
            if value.shape != (self._step.rows, heads, head_dim) or value.dtype != self._dtype:
                raise ShapeMismatch(
                    f"expected {name} of shape {(self._step.rows, heads, head_dim)} and dtype {self._dtype} in this "
                    f"step, found {value.shape} and {value.dtype}"
                )
        return self._step, local

    def _rotation(self, sm_scale: float) -> tuple[Any, ...]:
        return int(self._rope == INLINE), float(self.config.rope_scale), float(self.config.rope_theta), float(sm_scale)

    def attend(self, layer: int, sm_scale: float, qkv: Tensor, out: Tensor) -> None:
        """Stores keys and values of the step's tokens, and computes the attention of their queries."""
        c = self.config
        step, local = self._current(
            layer,
            qkv=(qkv, c.heads + 2 * c.kv_heads, c.head_dim),
            out=(out, c.heads, c.head_dim),
        )
        last = self._factors if self._factors is not None else int(self._rope == NORMAL)
        self._kernels.split_rotary(qkv, step.positions, step.q, step.k, step.v, last)
        memory = self._memory[local]
        self._kernels.append(memory, step.k, step.v, step.stored_at)
        sliding = step.sliding is not None and c.kinds[local] == MHA_SLIDING
        places = step.sliding if step.sliding is not None and sliding else step.places
        self._paged(step, step.kernel_kind, memory, places, c.window or sliding, step.q, out, step.lse, True, sm_scale)

    def _paged(
        self,
        step: _Step,
        kind: str,
        memory: Tensor,
        places: _Places,
        window: bool,
        q: Tensor,
        out: Tensor,
        lse: Tensor,
        causal: bool,
        sm_scale: float,
    ) -> None:
        where = (*places, step.positions, out, lse)
        rotation = self._rotation(sm_scale)
        if kind == "decode":
            self._kernels.decode[window](q, memory, *where, *rotation)
        elif kind == "prefill":
            self._kernels.prefill[window](q, step.indptr, memory, *where, int(causal), *rotation)
        else:
            self._kernels.tree(q, step.indptr, memory, *where, *rotation, step.tree_indptr, step.tree_order)

    def attend_to_new(
        self, layer: int, sm_scale: float, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor
    ) -> None:
        """The attention of the step's tokens to each other, each to those before it. Nothing is stored."""
        c = self.config
        step, _ = self._current(layer, q=(q, c.heads, c.head_dim), k=(k, c.kv_heads, c.head_dim))
        if step.kernel_kind == "tree":
            raise UnsupportedError("self_attention: the tokens of the step are a tree; use attention_with_fused_qkv")
        indptr, rotation = step.indptr, self._rotation(sm_scale)
        self._kernels.ragged(q, indptr, k, v, indptr, step.positions, step.key_begins, out, lse, 1, *rotation)

    def attend_to_old(self, layer: int, sm_scale: float, q: Tensor, out: Tensor, lse: Tensor) -> None:
        """The attention of the step's tokens to those that the cache had before."""
        c = self.config
        step, local = self._current(layer, q=(q, c.heads, c.head_dim), out=(out, c.heads, c.head_dim))
        memory = self._memory[local]
        self._paged(step, "prefill", memory, step.before, c.window, q, out, lse, False, sm_scale)

    def merge(self, out: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> tuple[Tensor, Tensor]:
        """Makes two results one; the first has it."""
        self._kernels.merge(out, lse, other, other_lse)
        return out, lse

    def query_positions(self) -> Tensor:
        """The positions of the step's tokens, as int32."""
        return self._current(self.config.first_layer)[0].positions

    def read(self, sequence: int, start: int, end: int, keys: Tensor, values: Tensor) -> None:
        """Copies keys and values of what is kept of a sequence to tensors (layers, end - start, kv_heads, head_dim)."""
        found = self._of(sequence)
        if not 0 <= start <= end <= found.kept:
            raise InvalidValue(
                f"the sequence {sequence} keeps {found.kept} tokens: there are none from {start} to {end}"
            )
        sinks = found.sinks if found.dropped else 0
        places = [self._place(found, i if i < sinks else i + found.dropped) for i in range(start, end)]
        if places:
            where = self._int32(places)
            for local, memory in enumerate(self._memory):
                self._kernels.debug(memory, where, keys, values, local)


def _depths(tree: list[int]) -> list[int]:
    depths: list[int] = []
    for parent in tree:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return depths


def _path(tree: list[int], leaf: int) -> list[int]:
    """The nodes from a root to a leaf."""
    path: list[int] = []
    while leaf >= 0 and tree:
        path.append(leaf)
        leaf = tree[leaf]
    return path[::-1]


def _walk(tree: list[int]) -> np.ndarray:
    """The place of each node, and that behind its last descendant, in a walk that goes down first."""
    sizes = [1] * len(tree)
    for node in range(len(tree) - 1, -1, -1):
        if tree[node] >= 0:
            sizes[tree[node]] += sizes[node]
    free = [0, *(0 for _ in tree)]  # for the roots, and then for the children of each node, the next place
    order = np.zeros((len(tree), 2), "int32")
    for node, parent in enumerate(tree):
        place = free[parent + 1]
        free[parent + 1] += sizes[node]
        free[node + 1] = place + 1
        order[node] = place, place + sizes[node]
    return order
