"""Several threads that call one model at once, beside ONNX Runtime: `OMP_NUM_THREADS=2 python -m benchmarks.callers`.

Both have as many threads for their loops as OMP_NUM_THREADS says, and one program or session, which one to sixteen
threads of Python call without rest. They take turns, with a pause after each, since ONNX Runtime's threads spin for a
while; each figure is the median of the turns. `--write-docs` writes the table into docs/speed.md.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable

import onnxruntime

import oneir
from benchmarks.page import write_section
from benchmarks.zoo import MODELS, Subject
from oneir import relax
from oneir.bench.table import digits, table

CALLERS = (1, 2, 4, 8, 16)


def calls_per_second(call: Callable[[], object], callers: int, seconds: float) -> float:
    """How often threads call a function together, each again as soon as it returns."""
    counts = [0] * callers
    barrier = threading.Barrier(callers + 1)
    stop = threading.Event()

    def run(number: int) -> None:
        barrier.wait()
        while not stop.is_set():
            call()
            counts[number] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = time.perf_counter()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def contestants(name: str) -> dict[str, Callable[[], object]]:
    """A model in OneIR and in ONNX Runtime, as functions that run it on the same inputs."""
    subject = Subject(name, 1, 128)
    session = subject.session(oneir.runtime.num_threads())
    feeds = {entry.name: x for entry, x in zip(session.get_inputs(), subject.inputs(), strict=True)}
    main = relax.VirtualMachine(relax.build(subject.graph(), "llvm"), oneir.cpu())["main"]
    tensors = [oneir.runtime.tensor(x) for x in subject.inputs()]
    return {"OneIR": lambda: main(*tensors), "ONNX Runtime": lambda: session.run(None, feeds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["mlp", "mobilenet_v2", "deit_tiny"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn")
    parser.add_argument("--write-docs", action="store_true", help="write the table into docs/speed.md")
    options = parser.parse_args()
    rows: list[list[str]] = []
    for name in options.models:
        calls = contestants(name)
        for callers in CALLERS:
            found: dict[str, list[float]] = {contestant: [] for contestant in calls}
            for _ in range(options.rounds):
                for contestant, call in calls.items():
                    found[contestant].append(calls_per_second(call, callers, options.seconds))
                    time.sleep(0.05)
            ours, theirs = (statistics.median(values) for values in found.values())
            rows.append([name, str(callers), digits(ours), digits(theirs), f"{ours / theirs:.2f}"])
            print(*rows[-1], flush=True)
    text = table(
        ("Model", "Callers", "OneIR, calls/s", "ONNX Runtime, calls/s", "OneIR / ONNX Runtime"), rows, texts=(0,)
    )
    print(text)
    if options.write_docs:
        threads = oneir.runtime.num_threads()
        head = f"{threads} threads for loops in each, ONNX Runtime {onnxruntime.__version__}, {options.rounds} turns."
        write_section("benchmarks.callers --write-docs", f"{head}\n\n{text}")


if __name__ == "__main__":
    main()
