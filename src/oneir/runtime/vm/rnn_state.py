"""States of recurrent models: for each sequence, layer and kind of state one tensor, and the last ones of it.

A step reads the state of its sequences (`rnn_state_get`) and writes the next one (`rnn_state_set`), by kernels that the
state is created with. The last states are kept, so that single tokens can be taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..error import InvalidValue, TypeMismatch
from ..registry import register_func
from ..tensor import Tensor, empty, tensor
from .kv_state import KVState, expect, expect_step


@dataclass
class _Sequence:
    slot: int
    place: int = 0
    """Where in the history the state is."""
    length: int = 0
    steps_back: int = 0
    """How many states before it are there."""


class RNNState(KVState):
    """States of `layers` layers, each of the kinds that `init_values` are one of, for up to `most` sequences.

    Storage of a kind is (most, history, *shape). `gets` and `sets` are kernels of it, slots and places of the history
    (batch,) of int32, and the states (batch, *shape); the second ones write to the place behind the given one.
    """

    def __init__(
        self,
        layers: int,
        most: int,
        history: int,
        gets: Sequence[Callable[..., Any]],
        sets: Sequence[Callable[..., Any]],
        init_values: Sequence[Tensor],
    ):
        if not len(gets) == len(sets) == len(init_values):
            raise InvalidValue(
                "vm.builtin.rnn_state_create: expected kernels that get and set each kind of state, found "
                f"{len(gets)} and {len(sets)} for {len(init_values)}"
            )
        if history < 1 or most < 1:
            raise InvalidValue("vm.builtin.rnn_state_create: expected at least one sequence and one state of each")
        self._most, self._history, self._gets, self._sets = most, history, gets, sets
        self._init, self._device = list(init_values), init_values[0].device
        self._storage = [
            [empty((most, history, *v.shape), v.dtype, v.device) for v in init_values] for _ in range(layers)
        ]
        self._sequences: dict[int, _Sequence] = {}
        self._step: tuple[list[_Sequence], list[int], Tensor, Tensor] | None = None

    def _of(self, sequence: int) -> _Sequence:
        if sequence not in self._sequences:
            raise InvalidValue(f"the sequence {sequence} has no state; there are {sorted(self._sequences)}")
        return self._sequences[sequence]

    def _free_slot(self, sequence: int) -> int:
        if sequence in self._sequences:
            raise InvalidValue(f"the sequence {sequence} has a state already")
        taken = {other.slot for other in self._sequences.values()}
        if len(taken) == self._most:
            raise InvalidValue(f"there are {self._most} sequences already: remove one first")
        return next(slot for slot in range(self._most) if slot not in taken)

    def _part(self, storage: Tensor, *place: int) -> Tensor:
        """What storage has at a slot, or at a slot and a place, as a view."""
        shape = storage.shape[len(place) :]
        index = int(np.ravel_multi_index(place, storage.shape[: len(place)]))
        size = storage.nbytes // int(np.prod(storage.shape[: len(place)]))
        return storage._create_view(shape, relative_byte_offset=index * size)

    def clear(self) -> None:
        self._sequences, self._step = {}, None

    def add_sequence(self, sequence: int) -> None:
        new = _Sequence(self._free_slot(sequence))
        for storages in self._storage:
            for storage, value in zip(storages, self._init, strict=True):
                self._part(storage, new.slot, 0).copyfrom(value)
        self._sequences[sequence] = new

    def remove_sequence(self, sequence: int) -> None:
        self._of(sequence)
        del self._sequences[sequence]

    def _back(self, sequence: int, count: int) -> _Sequence:
        """A sequence as it was some tokens before."""
        found = self._of(sequence)
        if not 0 <= count <= found.steps_back:
            raise InvalidValue(
                f"cannot take back {count} tokens of the sequence {sequence}: {found.steps_back} states before are kept"
            )
        place = (found.place - count) % self._history
        return replace(found, place=place, length=found.length - count, steps_back=found.steps_back - count)

    def fork_sequence(self, parent: int, child: int, position: int = -1) -> None:
        found = self._back(parent, self._of(parent).length - position if position >= 0 else 0)
        slot = self._free_slot(child)
        for storages in self._storage:
            for storage in storages:
                self._part(storage, slot).copyfrom(self._part(storage, found.slot))
        self._sequences[child] = replace(found, slot=slot)

    def popn(self, sequence: int, count: int) -> None:
        self._sequences[sequence] = self._back(sequence, count)

    def begin_forward(
        self, sequences: Sequence[int], lengths: Sequence[int], parents: Sequence[int] | None = None
    ) -> None:
        expect_step(sequences, lengths)
        if parents is not None:
            raise InvalidValue("states of recurrent models have no trees of tokens")
        found = [self._of(s) for s in sequences]
        slots, places = (
            tensor(np.array(v, "int32"), self._device) for v in ([s.slot for s in found], [s.place for s in found])
        )
        self._step = (found, list(lengths), slots, places)

    def end_forward(self) -> None:
        if self._step is None:
            return
        for sequence, length in zip(*self._step[:2], strict=True):
            sequence.length += length
            sequence.place = (sequence.place + 1) % self._history
            # Several tokens are one state: there is none in between to go back to.
            sequence.steps_back = min(sequence.steps_back + 1, self._history - 1) if length == 1 else 0
        self._step = None

    def _kernel_args(self, layer: int, state: int) -> tuple[Tensor, Tensor, Tensor]:
        if self._step is None:
            raise InvalidValue("a state outside of a step: call vm.builtin.kv_state_begin_forward first")
        return self._of_layer(layer, state), self._step[2], self._step[3]

    def _of_layer(self, layer: int, state: int) -> Tensor:
        if not (0 <= layer < len(self._storage) and 0 <= state < len(self._init)):
            raise InvalidValue(
                f"there are {len(self._storage)} layers with {len(self._init)} states each, found the state {state} of "
                f"layer {layer}"
            )
        return self._storage[layer][state]

    def get(self, layer: int, state: int, out: Tensor) -> None:
        """Writes the states of the step's sequences to `out`."""
        self._gets[state](*self._kernel_args(layer, state), out)

    def set(self, layer: int, state: int, value: Tensor) -> None:
        """Keeps the states that the step's sequences have after it."""
        self._sets[state](*self._kernel_args(layer, state), value)

    def read(self, layer: int, state: int, sequence: int) -> Tensor:
        """A copy of the state of a sequence."""
        found = self._of(sequence)
        return self._part(self._of_layer(layer, state), found.slot, found.place).copyto(self._device)


@register_func("vm.builtin.rnn_state_create")
def create(
    num_layers: int, max_sequences: int, max_history: int, f_gets: Any, f_sets: Any, init_values: Any
) -> RNNState:
    """States of `num_layers` layers, of which the last `max_history` are kept."""
    if not all(map(callable, [*f_gets, *f_sets])):
        raise TypeMismatch("vm.builtin.rnn_state_create: expected kernels that get and set states")
    return RNNState(num_layers, max_sequences, max_history, list(f_gets), list(f_sets), list(init_values))


@register_func("vm.builtin.rnn_state_get")
def get(state: object, layer: int, state_id: int, out: Tensor) -> Tensor:
    """Writes the states of the step's sequences to `out`."""
    expect(state, RNNState, "rnn_state_get").get(layer, state_id, out)
    return out


@register_func("vm.builtin.rnn_state_set")
def set_state(state: object, layer: int, state_id: int, value: Tensor) -> RNNState:
    """Keeps the states that the step's sequences have after it."""
    checked: RNNState = expect(state, RNNState, "rnn_state_set")
    checked.set(layer, state_id, value)
    return checked


@register_func("vm.builtin.rnn_state_debug_get")
def debug_get(state: object, layer: int, state_id: int, sequence: int) -> Tensor:
    """A copy of the state of a sequence."""
    return expect(state, RNNState, "rnn_state_debug_get").read(layer, state_id, sequence)
