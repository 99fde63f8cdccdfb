"""Models in WebAssembly against onnxruntime-web, in Node: `python -m benchmarks.web --packages FOLDER`.

FOLDER is where `npm install onnxruntime-web` was called. Both run with one thread, in one process, turn by turn;
printed is a table in Markdown of the medians. onnxruntime-web gets the model as PyTorch exports it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import torch

import oneir
from benchmarks.zoo import MODELS, Subject
from oneir.driver.web import export_web

ROW = "| {model} | {oneir:.3f} | {ort:.3f} | {ratio:.2f} | {difference:.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web", description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, help="the folder with node_modules/onnxruntime-web")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["mlp", "fashion_cnn", "mobilenet_v2"])
    parser.add_argument("--any-batch", action="store_true", help="compile for a batch of any size, and run one image")
    parser.add_argument("--rounds", type=int, default=5, help="turns that each gets")
    options = parser.parse_args()
    peer = options.packages.resolve() / "node_modules/onnxruntime-web/dist/ort.wasm.min.mjs"
    if not peer.is_file():
        parser.error(f"there is no {peer}; call npm install onnxruntime-web in {options.packages}")
    print(
        "| model | OneIR, ms | onnxruntime-web, ms | times as fast | largest difference |\n"
        "| --- | --- | --- | --- | --- |"
    )
    for name in options.models:
        with tempfile.TemporaryDirectory() as temporary:
            folder, subject = Path(temporary), Subject(name, 2 if options.any_batch else 1, 64)
            extents = {0: torch.export.Dim("batch", max=4096)} if options.any_batch else {}
            export_web(oneir.compile(subject.graph(extents), target="wasm/simd"), folder, "model")
            subject.save_onnx(folder / "model.onnx", extents)
            (folder / "compare.mjs").write_text(Path(__file__).with_name("web.mjs").read_text())
            command = ["node", "compare.mjs", str(peer), str(options.rounds)]
            found = json.loads(subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True).stdout)
        print(ROW.format(model=name, ratio=found["ort"] / found["oneir"], **found), flush=True)


if __name__ == "__main__":
    main()
