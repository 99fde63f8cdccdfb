"""Models as `transformers` writes them, with two layers: built natively, they compute what PyTorch computes.

Batches vary from call to call, or are known.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_models import IMAGE_MODELS, assert_same, compiled, seeded
from torch.export import Dim

import oneir
from examples.fashion_mnist.models import load_model
from oneir.runtime.error import OneIRError

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*_check_is_size.*:FutureWarning"),
]

BATCH = Dim("batch", min=1, max=64)


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
