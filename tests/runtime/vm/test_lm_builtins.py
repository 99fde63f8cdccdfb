"""What language models call at run time besides kernels: older caches, states of recurrent models, choosing tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oneir
from oneir.runtime.error import InvalidValue, ShapeMismatch, TypeMismatch

RNG = np.random.default_rng(8)
array = oneir.nd.array


def builtin(name: str, *args: Any) -> Any:
    return oneir.get_global_func(f"vm.builtin.{name}")(*args)


@pytest.mark.parametrize("sinks", [0, 3])
def test_windows_take_the_places_of_the_oldest(sinks: int) -> None:
    """Row by row: the i-th row goes where the i-th place of the window is."""
    size, rows = 16, []
    cache = builtin("attention_kv_cache_create", array(np.full((2, 3), -1.0, "float32")), (4, 3), 0)
    model = np.zeros((size, 3), "float32")
    for _ in range(60):
        new = RNG.standard_normal((int(RNG.integers(1, size - sinks + 1)), 3)).astype("float32")
        if sinks:
            cache = builtin("attention_kv_cache_window_override_with_sinks", cache, array(new), size, sinks)
        else:
            cache = builtin("attention_kv_cache_window_override", cache, array(new), size)
        for row in new:
            place = len(rows) if len(rows) < size else sinks + (len(rows) - size) % (size - sinks)
            model[place] = row
            rows.append(row)
        filled = min(len(rows), size)
        np.testing.assert_array_equal(builtin("attention_kv_cache_view", cache).numpy(), model[:filled])
    with pytest.raises(ShapeMismatch, match=f"a window of 16 elements, {sinks} of which stay, cannot take 17 at once"):
        builtin("attention_kv_cache_window_override_with_sinks", cache, array(np.zeros((17, 3), "float32")), 16, sinks)


def test_a_window_goes_on_behind_the_rows_that_the_cache_was_made_with() -> None:
    first = np.arange(6, dtype="int32").reshape(3, 2)
    cache = builtin("attention_kv_cache_create", array(first), (5, 2), -1)
    cache = builtin("attention_kv_cache_append", cache, array(np.array([[6, 7]], "int32")))
    new = np.array([[8, 9], [10, 11], [12, 13]], "int32")
    view = builtin(
        "attention_kv_cache_view", builtin("attention_kv_cache_window_override", cache, array(new), 5)
    ).numpy()
    # The fifth place is free; the next two rows take the places of the oldest.
    assert view.tolist() == [[10, 11], [12, 13], [4, 5], [6, 7], [8, 9]]


def test_rows_are_replaced_and_dropped() -> None:
    caches = [builtin("attention_kv_cache_create", array(np.ones((4, 2), "int32")), (4, 2), -1) for _ in range(2)]
    new = np.arange(8, dtype="int32").reshape(4, 2)
    builtin("attention_kv_cache_update", caches[0], array(new))
    builtin("attention_kv_cache_array_popn", caches, 1)
    np.testing.assert_array_equal(builtin("attention_kv_cache_view", caches[0], (3, 2)).numpy(), new[:3])
    with pytest.raises(ShapeMismatch, match="holds 3 elements, found 4 to replace them"):
        builtin("attention_kv_cache_update", caches[0], array(new))
    with pytest.raises(InvalidValue, match="cannot drop 4 of 3 elements"):
        builtin("attention_kv_cache_array_popn", caches, 4)
    builtin("attention_kv_cache_array_clear", caches)
    assert builtin("attention_kv_cache_view", caches[1]).shape == (0, 2)


HISTORY = 4


def get(storage: Any, slots: Any, places: Any, out: Any) -> None:
    out.copyfrom(storage.numpy()[slots.numpy(), places.numpy()])


def put(storage: Any, slots: Any, places: Any, value: Any) -> None:
    changed = storage.numpy().copy()
    changed[slots.numpy(), (places.numpy() + 1) % HISTORY] = value.numpy()
    storage.copyfrom(changed)


def test_random_operations_on_states_equal_lists() -> None:
    layers, init = 2, [np.zeros((3, 2), "float32"), np.ones(5, "float16")]
    state = builtin("rnn_state_create", layers, 5, HISTORY, [get, get], [put, put], [array(x) for x in init])
    # Of each sequence, all states, the last of them those that can be gone back to; and how many tokens it has.
    model: dict[int, list[list[list[np.ndarray]]]] = {}
    back: dict[int, int] = {}
    length: dict[int, int] = {}
    done = set()
    for _ in range(3000):
        free = next(n for n in range(9) if n not in model)
        choice = RNG.random()
        if not model or (choice < 0.1 and len(model) < 5):
            builtin("kv_state_add_sequence", state, free)
            model[free], back[free], length[free] = [[init] * layers], 0, 0
            done.add("add")
            continue
        one = int(RNG.choice(list(model)))
        if choice < 0.2 and len(model) < 5:
            steps = int(RNG.integers(0, back[one] + 1))
            builtin("kv_state_fork_sequence", state, one, free, length[one] - steps if steps else -1)
            model[free], back[free] = model[one][: len(model[one]) - steps], back[one] - steps
            length[free] = length[one] - steps
            done.add("fork")
        elif choice < 0.35:
            steps = int(RNG.integers(0, back[one] + 1))
            builtin("kv_state_popn", state, one, steps)
            model[one] = model[one][: len(model[one]) - steps]
            back[one], length[one] = back[one] - steps, length[one] - steps
            done.add("pop")
            with pytest.raises(InvalidValue, match=f"{back[one]} states before are kept"):
                builtin("kv_state_popn", state, one, back[one] + 1)
        elif choice < 0.42:
            builtin("kv_state_remove_sequence", state, one)
            del model[one], back[one], length[one]
            done.add("remove")
        else:
            some = RNG.permutation(list(model))[: int(RNG.integers(1, 4))].tolist()
            counts = [int(RNG.choice([1, 1, 1, 4])) for _ in some]
            builtin("kv_state_begin_forward", state, tuple(some), tuple(counts))
            new: list[list[np.ndarray]] = []
            for layer in range(layers):
                new.append([])
                for kind, like in enumerate(init):
                    out = array(np.zeros((len(some), *like.shape), like.dtype))
                    builtin("rnn_state_get", state, layer, kind, out)
                    np.testing.assert_array_equal(out.numpy(), [model[n][-1][layer][kind] for n in some])
                    new[-1].append(RNG.standard_normal(out.shape).astype(like.dtype))
                    assert builtin("rnn_state_set", state, layer, kind, array(new[-1][-1])) is state
            builtin("kv_state_end_forward", state)
            for i, (number, count) in enumerate(zip(some, counts, strict=True)):
                model[number] = [*model[number], [[x[i] for x in of_layer] for of_layer in new]]
                back[number] = min(back[number] + 1, HISTORY - 1) if count == 1 else 0
                length[number] += count
            done.add("step")
        for number, states in model.items():
            for kind in range(2):
                found = builtin("rnn_state_debug_get", state, 1, kind, number).numpy()
                np.testing.assert_array_equal(found, states[-1][1][kind])
    assert done == {"add", "fork", "pop", "remove", "step"}


def test_states_that_there_are_not() -> None:
    state = builtin("rnn_state_create", 1, 1, 2, [get], [put], [array(np.zeros(2, "float32"))])
    with pytest.raises(InvalidValue, match=r"the sequence 1 has no state; there are \[\]"):
        builtin("kv_state_remove_sequence", state, 1)
    builtin("kv_state_add_sequence", state, 0)
    with pytest.raises(InvalidValue, match="there are 1 sequences already"):
        builtin("kv_state_add_sequence", state, 1)
    with pytest.raises(InvalidValue, match="outside of a step"):
        builtin("rnn_state_get", state, 0, 0, array(np.zeros((1, 2), "float32")))
    with pytest.raises(InvalidValue, match="1 layers with 1 states each, found the state 1 of layer 0"):
        builtin("rnn_state_debug_get", state, 0, 1, 0)
    with pytest.raises(TypeMismatch, match="rnn_state_get: expected a RNNState, found 4"):
        builtin("rnn_state_get", 4, 0, 0, None)


def sampled(probabilities: np.ndarray, top_p: float, uniform: float) -> int:
    """Token by token, from the most probable one on."""
    order = sorted(range(len(probabilities)), key=lambda i: -probabilities[i])
    nucleus, total = [], 0.0
    for token in order:
        if nucleus and total >= top_p:
            break
        nucleus.append(token)
        total += probabilities[token]
    reached = 0.0
    for token in nucleus:
        reached += probabilities[token]
        if uniform < reached / total:
            return token
    return nucleus[-1]


def test_tokens_of_the_most_probable_ones() -> None:
    for _ in range(300):
        logits = RNG.standard_normal(40).astype("float32") * 3
        temperature, top_p, uniform = float(RNG.uniform(0.2, 2)), float(RNG.uniform(0.01, 1.0)), float(RNG.random())
        weights = np.exp(logits.astype("float64") / temperature)
        wanted = sampled(weights / weights.sum(), top_p, uniform)
        assert builtin("sample_top_p_from_logits", array(logits[None, None]), temperature, top_p, uniform) == wanted
        probabilities = (weights / weights.sum()).astype("float32")
        found = builtin("sample_top_p_from_prob", array(probabilities[None]), top_p, uniform)
        assert found == sampled(probabilities.astype("float64"), top_p, uniform)
        assert builtin("sample_top_p_from_logits", array(logits), 0.0, top_p, uniform) == logits.argmax()


def test_one_token_for_each_row() -> None:
    prob = RNG.dirichlet(np.ones(10), 50).astype("float32")
    uniform = RNG.random((50, 1)).astype("float32")
    found = builtin("multinomial_from_uniform", array(prob), array(uniform)).numpy()
    wanted = [next((j for j in range(10) if prob[i, : j + 1].sum() > u), 9) for i, (u,) in enumerate(uniform)]
    assert found.dtype == np.int64 and found[:, 0].tolist() == wanted


def test_penalties_and_probabilities_in_place() -> None:
    logits = RNG.standard_normal((1, 20)).astype("float32")
    ids, counts = np.array([[3, 7, 19]], "int32"), np.array([[1, 4, 2]], "int32")
    given = array(logits)
    builtin("apply_repetition_penalty", given, array(ids), 1.5)
    wanted = logits.copy()
    for i in ids[0]:
        wanted[0, i] = wanted[0, i] / 1.5 if wanted[0, i] > 0 else wanted[0, i] * 1.5
    np.testing.assert_allclose(given.numpy(), wanted, rtol=1e-6)
    builtin("apply_presence_and_frequency_penalty", given, array(ids), array(counts), 0.25, 0.5)
    for i, n in zip(ids[0], counts[0], strict=True):
        wanted[0, i] -= 0.25 + n * 0.5
    np.testing.assert_allclose(given.numpy(), wanted, rtol=1e-5, atol=1e-6)
    builtin("apply_softmax_with_temperature", given, 0.7)
    weights = np.exp(wanted.astype("float64") / 0.7)
    np.testing.assert_allclose(given.numpy(), weights / weights.sum(), rtol=1e-5)
    # All logits far below 0: their largest is what the others are compared with.
    low = array(np.array([-2000.0, -2001.0], "float32"))
    builtin("apply_softmax_with_temperature", low, 1.0)
    np.testing.assert_allclose(low.numpy(), [0.7310586, 0.2689414], rtol=1e-5)


def test_what_cannot_be_sampled_is_refused() -> None:
    rows = array(np.zeros((2, 4), "float32"))
    with pytest.raises(ShapeMismatch, match=r"expected one row, found the shape \(2, 4\)"):
        builtin("sample_top_p_from_prob", rows, 0.9, 0.5)
    with pytest.raises(TypeMismatch, match="expected a tensor of float32, found a tensor of float64"):
        builtin("sample_top_p_from_logits", array(np.zeros(4)), 1.0, 0.9, 0.5)
    with pytest.raises(InvalidValue, match="all NaNs"):
        builtin("sample_top_p_from_prob", array(np.full(4, np.nan, "float32")), 0.9, 0.5)
    with pytest.raises(InvalidValue, match="expected tokens below 4, found 4 to 4"):
        builtin("apply_repetition_penalty", array(np.zeros(4, "float32")), array(np.array([4], "int32")), 2.0)
