"""Exports the two models of `examples/fashion_mnist` as programs that stand alone, for the examples beside this file.

    python -m examples.deploy.export build

The folder then has, of the MLP, an object file, a static library and a header, and an object file of WebAssembly in
`wasm`; of the CNN a shared library, a header and the weights in a file of their own; and the test images and labels, a
byte for each pixel and each label.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import oneir
from examples.fashion_mnist.demo import imported
from examples.fashion_mnist.models import load_images, load_model


def export(folder: Path) -> list[Path]:
    """Writes all files into a folder, which is made if there is none; returns their paths."""
    (folder / "wasm").mkdir(parents=True, exist_ok=True)
    mlp = oneir.compile(imported(load_model("mlp")))
    mlp.export_library(folder / "mlp.o", header=folder / "mlp.h")
    mlp.export_library(folder / "libmlp.a", header=folder / "mlp.h")
    wasm = oneir.compile(imported(load_model("mlp")), target="llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128")
    wasm.export_library(folder / "wasm" / "mlp.o", header=folder / "wasm" / "mlp.h")
    cnn = oneir.compile(imported(load_model("cnn")))
    cnn.export_library(folder / "libcnn.so", header=folder / "cnn.h", weights=folder / "cnn.weights", threads=True)
    images, labels = load_images()
    images.tofile(folder / "images.bin")
    labels.tofile(folder / "labels.bin")
    return sorted(path for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Exports into the folder that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the files are written")
    folder = parser.parse_args().folder
    for path in export(folder):
        print(f"{path.stat().st_size:9,} {path.relative_to(folder)}")


if __name__ == "__main__":
    main()
