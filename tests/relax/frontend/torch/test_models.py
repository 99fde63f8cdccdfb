"""Models as `transformers` writes them, with two layers: built natively, they compute what PyTorch computes.

Batches, and for language models lengths of sequences, vary from call to call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_models import ATTENTION, IMAGE_MODELS, bert, gpt2, seeded
from torch import nn
from torch.export import Dim

import oneir
from examples.fashion_mnist.models import load_model
from oneir import relax
from oneir.relax.frontend.torch import from_exported_program
from oneir.runtime.error import OneIRError

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*_check_is_size.*:FutureWarning"),
]

BATCH, LENGTH = Dim("batch", min=1, max=64), Dim("length", min=2, max=64)


def compiled(model: nn.Module, example: torch.Tensor, dims: dict[int, Any] | None = None) -> Any:
    """The function that runs the imported model natively; extents of the input vary as `dims` say."""
    with torch.no_grad():
        program = torch.export.export(model, (example,), dynamic_shapes=None if dims is None else [dims])
    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    return relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())["main"]


def assert_same(function: Any, model: nn.Module, *inputs: torch.Tensor) -> None:
    """The function's results are those of the model, within a thousandth of the largest element."""
    for x in inputs:
        expected = model(x).numpy()
        found = function(oneir.runtime.tensor(x.numpy())).numpy()
        assert found.shape == expected.shape and found.dtype == expected.dtype
        # Results that are nearly all zeros would agree with anything.
        assert np.count_nonzero(expected) > expected.size / 2
        assert np.abs(found - expected).max() <= 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_image_models_with_any_batch(name) -> None:
    build, shape = IMAGE_MODELS[name]
    model = seeded(build)
    function = compiled(model, torch.randn(2, *shape), {0: BATCH})
    assert_same(function, model, torch.randn(1, *shape), torch.randn(3, *shape))


@pytest.mark.parametrize("name", ["resnet", "unet"])
def test_image_models_with_one_image(name) -> None:
    build, shape = IMAGE_MODELS[name]
    model = seeded(build)
    assert_same(compiled(model, torch.randn(1, *shape)), model, torch.randn(1, *shape))


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("build", [bert, gpt2])
def test_language_models_with_any_length(build, attention) -> None:
    model = seeded(lambda: build(attention))
    function = compiled(model, torch.randint(0, 99, (2, 16)), {0: BATCH, 1: LENGTH})
    shapes = [(2, 16), (1, 5), (3, 64), (1, 2)]
    assert_same(function, model, *(torch.randint(0, 99, shape) for shape in shapes))


@pytest.mark.parametrize("build", [bert, gpt2])
def test_language_models_of_one_length(build) -> None:
    model = seeded(lambda: build("sdpa"))
    assert_same(compiled(model, torch.randint(0, 99, (1, 12))), model, torch.randint(0, 99, (1, 12)))


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((2, 1, 27, 28), "float32", r"argument 0 `x` of `main`: expected shape .*28, 28\).*, found \(2, 1, 27, 28\)"),
        ((2, 1, 28, 28), "float64", r"argument 0 `x` of `main`: expected dtype float32, found float64"),
        ((1, 28, 28), "float32", r"argument 0 `x` of `main`: expected 4 dimensions, .*, found 3, shape"),
    ],
)
def test_other_images_than_exported_are_refused(shape, dtype, message) -> None:
    function = compiled(seeded(lambda: load_model("cnn")), torch.zeros(2, 1, 28, 28), {0: BATCH})
    with pytest.raises(OneIRError, match=message):
        function(oneir.runtime.tensor(np.zeros(shape, dtype)))
