"""What whole models take, on record: kernels called in a run, bytes that they move, memory of intermediates and results.

No machine enters into these numbers, so they show what a change of a pass does to every model. Each model goes through the
default pipeline for the target below. When a change is meant to move a number, put the table that the failing test
prints in place of RECORD; when it is not, the change did something to whole models that its own tests do not see.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from small_models import ATTENTION, IMAGE_MODELS, bert, gpt2, seeded
from torch import nn

import oneir
from examples.fashion_mnist.models import load_model
from oneir import relax
from oneir.codegen.program.bytecode import emit_bytecode
from oneir.driver.graph import lower_graph
from oneir.relax.frontend.torch import from_exported_program
from oneir.runtime.vm import footprint
from oneir.target import Target

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*_check_is_size.*:FutureWarning"),
]

TARGET = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v4"

# model: kernels called in a run, bytes that they read and write, bytes of memory for intermediates and results
RECORD: dict[str, tuple[int, int, int]] = {
    "mlp": (2, 819_344, 1_064),
    "clothes": (6, 605_328, 125_480),
    "resnet": (16, 136_488, 20_500),
    "mobilenet": (55, 1_406_408, 61_460),
    "unet": (18, 214_584, 27_648),
    "vit": (32, 283_432, 14_356),
    "bert": (28, 212_096, 12_288),
    "gpt2": (33, 350_016, 24_768),
}


def image(name: str) -> tuple[Callable[[], nn.Module], torch.Tensor]:
    build, shape = IMAGE_MODELS[name]
    return build, torch.zeros(1, *shape)


TOKENS = torch.zeros(1, 16, dtype=torch.int64)
MODELS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "mlp": (lambda: load_model("mlp"), torch.zeros(1, 784)),
    "clothes": image("clothes"),
    "resnet": image("resnet"),
    "mobilenet": image("mobilenet"),
    "unet": image("unet"),
    "vit": image("vit, sdpa"),
    "bert": (lambda: bert("sdpa"), TOKENS),
    "gpt2": (lambda: gpt2("sdpa"), TOKENS),
}


def measured(build: Callable[[], nn.Module], example: torch.Tensor) -> tuple[int, int, int]:
    """The row of a model. The kernels need not be compiled for it."""
    with torch.no_grad():
        program = torch.export.export(seeded(build), (example,))
    lowered = lower_graph(
        from_exported_program(program, unwrap_unit_return_tuple=True), Target(TARGET), None, "default"
    )
    found = footprint(emit_bytecode(lowered).program())
    assert found.bytes is not None and found.allocated is not None
    return found.kernels, int(found.bytes), found.allocated


def table(found: dict[str, tuple[int, int, int]]) -> str:
    """The rows as they stand in this file."""
    cells = {name: f"({kernels}, {moved:_}, {memory:_})" for name, (kernels, moved, memory) in found.items()}
    return "".join(f'    "{name}": {text},\n' for name, text in cells.items())


def changes(name: str, found: tuple[int, int, int]) -> str:
    """What of a model is not as recorded, in a line; nothing where all is."""
    units = ("kernels", "bytes moved", "bytes of memory")
    pairs = zip(units, RECORD.get(name, (0, 0, 0)), found, strict=True)
    moved = [f"{before:,} -> {after:,} {unit}" for unit, before, after in pairs if before != after]
    return f"{name}: {', '.join(moved)}\n" if moved else ""


def test_models_take_what_is_on_record(caplog: pytest.LogCaptureFixture) -> None:
    found = {name: measured(*model) for name, model in MODELS.items()}
    caplog.clear()  # pages of PyTorch's, which would follow the message
    if different := "".join(changes(name, numbers) for name, numbers in found.items()):
        pytest.fail(f"{different}If that is what the change is for, RECORD becomes\n{table(found)}", pytrace=False)


@pytest.mark.parametrize("attention", ATTENTION)
def test_memory_of_attention_grows_with_the_length_and_not_its_square(attention: str) -> None:
    short, long = (measured(lambda: bert(attention), torch.zeros(1, n, dtype=torch.int64))[2] for n in (128, 512))
    assert long == 4 * short


def test_a_change_is_told_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECORD, "bert", (28, 100_000, 4_096))
    assert changes("bert", (28, 100_000, 4_096)) == ""
    assert changes("bert", (30, 99_000, 4_096)) == "bert: 28 -> 30 kernels, 100,000 -> 99,000 bytes moved\n"


def test_the_speed_of_a_product_is_told() -> None:
    """The ratio to NumPy's is printed (`pytest -s`) and not judged: it depends on the machine."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((384, 384)).astype("float32") for _ in range(2))
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo(a.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit_output(relax.op.matmul(x, relax.const(b)))
        builder.emit_func_output(product)
    ours = relax.VirtualMachine(relax.build(builder.get(), "llvm"), oneir.cpu())["main"]
    np.testing.assert_allclose(ours(a).numpy(), a @ b, rtol=1e-3, atol=1e-3)

    def shortest(call: Callable[[], object]) -> float:
        times = []
        for _ in range(10):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times)

    ratio = shortest(lambda: a @ b) / shortest(lambda: ours(a))
    print(f"\na product of 384×384 matrices: {ratio:.2f} times the speed of NumPy's")
