"""Models of language as `transformers` writes them, and PyTorch's layers of sequences, with one or two layers: built
natively, they compute what PyTorch computes.

Batches and lengths of sequences vary from call to call, or are known. Recurrent layers have as many steps as they were
exported with: PyTorch unrolls them.
"""

from __future__ import annotations

import pytest
import torch
from small_models import LANGUAGE_MODELS, SEQUENCE_LAYERS, assert_same, compiled, seeded
from torch.export import Dim

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*_check_is_size.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes self.*_flat_weights:UserWarning"),
]

BATCH, LENGTH = Dim("batch", min=1, max=64), Dim("length", min=2, max=64)


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(0, 99, shape)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_language_models_with_any_length(name) -> None:
    model = seeded(LANGUAGE_MODELS[name])
    function = compiled(model, tokens(2, 16), {0: BATCH, 1: LENGTH})
    assert_same(function, model, *(tokens(*shape) for shape in [(2, 16), (1, 5), (3, 64), (1, 2)]))


@pytest.mark.parametrize("name", ["bert, sdpa", "gpt2, sdpa"])
def test_language_models_of_one_length(name) -> None:
    model = seeded(LANGUAGE_MODELS[name])
    assert_same(compiled(model, tokens(1, 12)), model, tokens(1, 12))


@pytest.mark.parametrize("name", SEQUENCE_LAYERS)
def test_layers_with_any_batch(name) -> None:
    model = seeded(SEQUENCE_LAYERS[name])
    dims = {0: BATCH, 1: LENGTH} if name == "transformer encoder" else {0: BATCH}
    others = [(1, 4), (5, 4)] if len(dims) == 1 else [(1, 2), (5, 31)]
    function = compiled(model, torch.randn(3, 4, 32), dims)
    assert_same(function, model, *(torch.randn(*shape, 32) for shape in others))


@pytest.mark.parametrize("name", SEQUENCE_LAYERS)
def test_layers_of_one_shape(name) -> None:
    model = seeded(SEQUENCE_LAYERS[name])
    assert_same(compiled(model, torch.randn(2, 5, 32)), model, torch.randn(2, 5, 32))
