"""From PyTorch to native code: two trained models classify 1,000 images of clothes.

    python -m examples.fashion_mnist.demo [--picture FILE.png]

Shows each model as a graph, before and after the pipeline, compiles it, classifies the images, compares with PyTorch,
and saves a picture of some images with what the CNN says of them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import oneir
from examples.fashion_mnist.models import CLASSES, CNN, MLP, as_input, load_images, load_model
from oneir import relax
from oneir.relax.frontend.torch import from_exported_program

console = Console()


def imported(model: MLP | CNN) -> oneir.IRModule:
    """The model as a graph, for any number of images."""
    example = torch.zeros(2, *model.input_shape)
    batch = torch.export.Dim("batch", min=1, max=1024)
    with torch.no_grad():
        program = torch.export.export(model, (example,), dynamic_shapes=({0: batch},))
    return from_exported_program(program, unwrap_unit_return_tuple=True)


def microseconds(call: Callable[[], object]) -> float:
    """The median time of a call."""
    times = []
    for _ in range(200):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def numpy_mlp(model: MLP) -> Callable[[np.ndarray], np.ndarray]:
    """The perceptron written in NumPy."""
    w1, b1, w2, b2 = (p.detach().numpy() for p in model.parameters())
    return lambda x: np.maximum(x @ w1.T + b1, 0) @ w2.T + b2


def show(title: str, text: str, lines: int = 24) -> None:
    """The beginning of a text under a title."""
    console.rule(title)
    shown = text.splitlines()
    rest = [f"... {len(shown) - lines} more lines"] if len(shown) > lines else []
    console.print("\n".join(line[: console.width] for line in shown[:lines] + rest), markup=False, highlight=False)


def run(name: str, table: Table) -> np.ndarray:
    """Compiles a model, fills its row of the table; returns what it says of each image."""
    model, (images, labels) = load_model(name), load_images()
    x = as_input(images, model)
    mod = imported(model)
    show(f"{name}: as imported", mod.script())
    show(f"{name}: after the pipeline", relax.get_pipeline("zero")(mod).script())
    start = time.perf_counter()
    with console.status(f"compiling {name}"):
        machine = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())
    seconds = time.perf_counter() - start
    classify = machine["main"]
    predictions = classify(oneir.runtime.tensor(x)).numpy().argmax(axis=1)
    with torch.inference_mode():
        reference = model(torch.from_numpy(x)).numpy().argmax(axis=1)
        one, one_torch = oneir.runtime.tensor(x[:1]), torch.from_numpy(x[:1])
        ours, torchs = microseconds(lambda: classify(one)), microseconds(lambda: model(one_torch))
    by_hand = f"{microseconds(lambda: numpy_mlp(model)(x[:1])):.0f}" if isinstance(model, MLP) else "-"
    same = int((predictions == reference).sum())
    table.add_row(
        name,
        f"{(predictions == labels).mean():.1%}",
        f"{(reference == labels).mean():.1%}",
        f"{same:,}",
        f"{seconds:.2f}",
        f"{ours:.0f}",
        f"{torchs:.0f}",
        by_hand,
    )
    assert same == len(labels), f"{name}: {len(labels) - same} predictions differ from PyTorch's"
    return predictions


def save_picture(path: Path, predictions: np.ndarray) -> None:
    """24 images under what the model says of them, in red where it is wrong."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    images, labels = load_images()
    figure, axes = plt.subplots(3, 8, figsize=(12, 5.4))
    for axis, image, label, prediction in zip(axes.flat, images, labels, predictions, strict=False):
        axis.imshow(image, cmap="gray_r")
        right = prediction == label
        title = CLASSES[prediction] if right else f"{CLASSES[prediction]}\n(is {CLASSES[label]})"
        axis.set_title(title, fontsize=8, color="black" if right else "red")
        axis.axis("off")
    figure.suptitle("Fashion-MNIST: what the compiled CNN says (red: it is wrong, and what it is)", color="black")
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, default=Path("build/fashion_mnist.png"), help="where to save it")
    options = parser.parse_args()
    table = Table(title="1,000 test images, and one image at a time")
    measured = ("same\nanswers", "compiled\nin s", "OneIR\nus", "PyTorch\nus", "NumPy\nus")
    for column in ("model", "accuracy", "PyTorch's", *measured):
        table.add_column(column, justify="left" if column == "model" else "right")
    run("mlp", table)
    predictions = run("cnn", table)
    console.print(table)
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    save_picture(options.picture, predictions)
    console.print(f"picture: {options.picture}")


if __name__ == "__main__":
    main()
