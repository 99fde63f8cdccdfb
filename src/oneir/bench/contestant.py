"""A process in which one contestant runs one model, on command; and the list of contestants.

Commands are lines of JSON on its input, answers are lines of JSON on its output; `worker.py` is the other end. The file
is run by its path, and imports nothing of this package until it is needed: what that brings would count as memory of
every contestant.

All contestants compute in float32, with as many threads as the process's OMP_NUM_THREADS says.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Run = Callable[[], Any]
"""A call that runs a model on its inputs, and returns its results as the library has them."""


class Subject(Protocol):
    """A model with inputs. Everything is made when it is asked for: each contestant asks for something else."""

    def call(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The module of PyTorch, and what to call it with."""
        ...

    def inputs(self) -> list[np.ndarray]:
        """The tensors that it takes, in order."""
        ...

    def exact(self) -> Any:
        """What the results are compared with: what PyTorch computes in float64, if it can."""
        ...

    def save_onnx(self, path: Path) -> None:
        """Writes the model in ONNX."""
        ...

    def graph(self) -> Any:
        """The model as an IRModule, as imported."""
        ...


@dataclass(frozen=True)
class Case:
    """A model and the folder for what is made of it.

    `maker` is "module:name" of what makes the `Subject` when it is called with `arguments`, which are values of JSON.
    `target` is what OneIR compiles for.
    """

    maker: str
    arguments: tuple[Any, ...]
    folder: Path
    target: str = "llvm"

    @staticmethod
    def from_fields(fields: list[Any]) -> Case:
        """The case out of its `fields`, which can be sent to another process."""
        maker, arguments, folder, target = fields
        return Case(maker, tuple(arguments), Path(folder), target)

    @property
    def fields(self) -> list[Any]:
        return [self.maker, list(self.arguments), str(self.folder), self.target]

    def subject(self) -> Subject:
        module, _, name = self.maker.partition(":")
        return getattr(importlib.import_module(module), name)(*self.arguments)

    @property
    def inputs(self) -> list[np.ndarray]:
        """The inputs, which `save_inputs` saved."""
        return load_arrays(self.folder / "inputs.npz")

    def save_inputs(self, arrays: list[np.ndarray]) -> None:
        np.savez(self.folder / "inputs.npz", *arrays)


def load_arrays(path: Path) -> list[np.ndarray]:
    """The arrays that `numpy.savez` wrote, in their order."""
    with np.load(path) as saved:
        return [saved[f"arr_{i}"] for i in range(len(saved.files))]


def threads() -> int:
    """With how many threads this process computes."""
    return int(os.environ["OMP_NUM_THREADS"])


def arrays_of(result: Any) -> list[np.ndarray]:
    """The tensors of a result, one after the other, floats as float64."""
    if isinstance(result, Mapping):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [array for part in result for array in arrays_of(part)]
    if hasattr(result, "is_floating_point") and result.is_floating_point():
        result = result.double()
    array = result.numpy() if hasattr(result, "numpy") else np.asarray(result)
    return [array if array.dtype.kind in "biuc" else array.astype("float64")]


# -- prepared once for a model, each in a process of its own; the result is the time that counts, in seconds --


def reference(case: Case) -> float:
    """Saves the inputs, and what PyTorch computes from them in float64."""
    subject = case.subject()
    case.save_inputs(subject.inputs())
    start = time.perf_counter()
    exact = arrays_of(subject.exact())
    np.savez(case.folder / "reference.npz", *exact)
    return time.perf_counter() - start


def onnx_file(case: Case) -> float:
    """Saves the model in ONNX: as PyTorch's exporter writes it, unless it is an ONNX model."""
    subject = case.subject()
    start = time.perf_counter()
    subject.save_onnx(case.folder / "model.onnx")
    return time.perf_counter() - start


def compiled_by_oneir(case: Case) -> float:
    """Saves the model as OneIR compiles it."""
    from oneir.relax import build

    graph = case.subject().graph()
    start = time.perf_counter()
    build(graph, case.target).export_library(case.folder / "model.so")
    return time.perf_counter() - start


# -- loaded in the process that is measured --


def oneir(case: Case) -> Run:
    from oneir.runtime import cpu, load_module, tensor
    from oneir.runtime.vm import VirtualMachine

    function = VirtualMachine(load_module(case.folder / "model.so"), cpu())["main"]
    inputs = [tensor(x) for x in case.inputs]
    return lambda: function(*inputs)


def eager(case: Case) -> Run:
    import torch

    torch.set_num_threads(threads())
    module, args, kwargs = case.subject().call()

    @torch.inference_mode()
    def run() -> Any:
        return module(*args, **kwargs)

    return run


def inductor(case: Case) -> Run:
    """`torch.compile`, told that weights do not change, so that it may lay them out as it likes."""
    import torch

    torch.set_num_threads(threads())
    config: Any = importlib.import_module("torch._inductor.config")
    config.freezing = True
    module, args, kwargs = case.subject().call()
    compiled = torch.compile(module, dynamic=False)

    @torch.no_grad()
    def run() -> Any:
        return compiled(*args, **kwargs)

    return run


def onnx_runtime(case: Case) -> Run:
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads(), 1
    session = onnxruntime.InferenceSession(case.folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    feeds = {entry.name: x for entry, x in zip(session.get_inputs(), case.inputs, strict=True)}
    return lambda: session.run(None, feeds)


def openvino(case: Case) -> Run:
    openvino = importlib.import_module("openvino")
    # Its own choice of precision may be bfloat16.
    config = {"INFERENCE_NUM_THREADS": threads(), "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(case.folder / "model.onnx", "CPU", config)
    request, inputs = compiled.create_infer_request(), case.inputs
    return lambda: request.infer(inputs, share_inputs=True, share_outputs=True)


@dataclass(frozen=True)
class Peer:
    """A contestant.

    `packages` are those that it needs, its own first; `prepare` makes its files; `compiles` says that its first run
    compiles.
    """

    name: str
    packages: tuple[str, ...]
    load: Callable[[Case], Run]
    prepare: Callable[[Case], float] | None = None
    compiles: bool = False

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [package for package in self.packages if importlib.util.find_spec(package) is None]


PEERS = {
    "oneir": Peer("OneIR", ("oneir",), oneir, compiled_by_oneir),
    "eager": Peer("PyTorch eager", ("torch",), eager),
    "inductor": Peer("Inductor", ("torch",), inductor, compiles=True),
    "onnxruntime": Peer("ONNX Runtime", ("onnxruntime", "onnx", "onnxscript"), onnx_runtime, onnx_file),
    "openvino": Peer("OpenVINO", ("openvino", "onnx", "onnxscript"), openvino, onnx_file),
}


# -- language models: one sequence of tokens, which are given and not chosen --


class Decoder(Protocol):
    """A language model with what it keeps of one sequence."""

    def run(self, tokens: list[int], start: int) -> object:
        """Computes tokens at positions from `start` on, and the logits after the last one; later ones are forgotten."""
        ...


class OneIRDecoder:
    """A folder or a GGUF file, with pages for `context` tokens."""

    def __init__(self, path: Path, context: int, target: str | None = None):
        from oneir.llm.engine.runner import Piece
        from oneir.llm.runtime.loader import load_runner

        self.runner, _, _ = load_runner(path, context=context, max_batch_size=1, target=target)
        self.pages, self._piece = list(range(self.runner.num_pages)), Piece

    def run(self, tokens: list[int], start: int) -> None:
        for first in range(0, len(tokens), self.runner.max_tokens):
            part = tokens[first : first + self.runner.max_tokens]
            self.runner.run([self._piece(part, start + first, self.pages)])


class LlamaCppDecoder:
    """A GGUF file in llama.cpp, on processors."""

    def __init__(self, path: Path, context: int, threads: int):
        llama_cpp = importlib.import_module("llama_cpp")
        self.model = llama_cpp.Llama(
            str(path),
            n_ctx=context,
            n_batch=512,
            n_ubatch=512,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )

    def run(self, tokens: list[int], start: int) -> None:
        self.model.n_tokens = start
        self.model.eval(tokens)


DECODERS: dict[str, tuple[str, str, Callable[..., Decoder]]] = {
    "oneir": ("OneIR", "oneir.llm.runtime.loader", OneIRDecoder),
    "llama.cpp": ("llama.cpp", "llama_cpp", lambda path, context: LlamaCppDecoder(path, context, threads())),
}
"""Who runs language models: what people call it, what it imports, and how it loads one."""


PREPARATIONS = {function.__name__: function for function in (reference, onnx_file, compiled_by_oneir)}


class _Commands:
    """What the process can do; each method is a command."""

    run: Run
    decoder: Decoder

    def prepare(self, what: str, case: list[Any]) -> float:
        return PREPARATIONS[what](Case.from_fields(case))

    def load(self, peer: str, case: list[Any]) -> float:
        """Loads the model and runs it once; returns the seconds of that, without importing the package.

        For a contestant that compiles in its first run, returns the seconds of that run.
        """
        importlib.import_module("oneir.runtime.vm" if peer == "oneir" else PEERS[peer].packages[0])
        start = time.perf_counter()
        self.run = PEERS[peer].load(Case.from_fields(case))
        if PEERS[peer].compiles:
            start = time.perf_counter()
        self.run()
        return time.perf_counter() - start

    def error(self, case: list[Any]) -> float:
        """The largest difference from the reference, as a part of the largest element of the result that has it."""
        exact = load_arrays(Case.from_fields(case).folder / "reference.npz")
        found = arrays_of(self.run())
        shapes = [[list(y.shape) for y in ys] for ys in (found, exact)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"the results have the shapes {shapes[0]}, the reference {shapes[1]}")
        pairs = [(f.astype("float64"), e.astype("float64")) for f, e in zip(found, exact, strict=True) if e.size]
        return max((float(np.abs(f - e).max() / (np.abs(e).max() or 1.0)) for f, e in pairs), default=0.0)

    def turn(self, seconds: float) -> list[float]:
        """The median and the shortest time of one run, over about so many seconds of runs, at least three."""
        self.run()
        times: list[float] = []
        end = time.perf_counter() + seconds
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            self.run()
            times.append(time.perf_counter() - start)
        return [statistics.median(times), min(times)]

    def peak_memory(self) -> int | None:
        """The most memory that the process has had, in bytes, where the system tells it."""
        # What getrusage gives counts what the parent had before this process began.
        status = Path("/proc/self/status")
        peak = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(), re.MULTILINE) if status.exists() else None
        return int(peak[1]) * 1024 if peak else None

    def load_decoder(self, peer: str, path: str, context: int, target: str | None = None) -> float:
        """Loads a language model and computes one token; returns the seconds of that, without importing the package.

        OneIR compiles it for a target, if there is one.
        """
        _, package, load = DECODERS[peer]
        importlib.import_module(package)
        start = time.perf_counter()
        self.decoder = load(Path(path), context, *([] if target is None else [target]))
        self.decoder.run([1], 0)
        return time.perf_counter() - start

    def read(self, prompt: list[int], seconds: float, processor_time: bool = False) -> list[float]:
        """The seconds that a prompt takes, again and again for about so long, at least once.

        They are those of the clock, or those that this process had a processor.
        """
        return self._timed(lambda: self.decoder.run(prompt, 0), seconds, processor_time)

    def answer(self, tokens: list[int], start: int, seconds: float, processor_time: bool = False) -> list[float]:
        """The seconds that each of these tokens takes after what was read up to `start`, as `read` tells them."""

        def follow() -> None:
            for place, token in enumerate(tokens, start):
                self.decoder.run([token], place)

        return [time / len(tokens) for time in self._timed(follow, seconds, processor_time)]

    @staticmethod
    def _timed(run: Run, seconds: float, processor_time: bool) -> list[float]:
        clock, times = time.process_time if processor_time else time.perf_counter, list[float]()
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            start = clock()
            run()
            times.append(clock() - start)
        return times

    def read_speed(self) -> float:
        """The bytes a second that reading memory reaches at this moment."""
        from oneir.bench.roofline import machine_speed

        return machine_speed(0.05).bandwidth

    def profile(self, case: list[Any], rounds: int) -> dict[str, Any]:
        """Where OneIR's time goes, and what the machine can do, as values of JSON."""
        from oneir.bench.kernels import profile

        made = Case.from_fields(case)
        return profile(made.subject().graph(), made.inputs, rounds)


def main() -> None:
    # What libraries print goes elsewhere than the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    commands = _Commands()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer, failure = getattr(commands, name)(**arguments), None
        except Exception as error:  # whatever a contestant raises is its result
            answer, failure = None, f"{type(error).__name__}: {str(error).strip() or 'no reason given'}"
        print(json.dumps([answer, failure]), file=answers, flush=True)


if __name__ == "__main__":
    main()
