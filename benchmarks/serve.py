"""What a served model answers in a second: `python -m benchmarks.serve [MODEL.onnx] [--concurrency 1 8 64]`.

OneIR and ONNX Runtime stand behind the same server, each in a process of its own, and take turns; clients are in a
third one. Printed are requests a second, the median and the 99th percentile of their times, the time of processors that
the server had for each, and the ratio of both servers' rates. With `--soak N`, memory of OneIR's server is printed
before and after N further requests: the exit code is 1 if it has grown by more than `GROWTH` MB.
Needs onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import oneir
from benchmarks.measure import verdict
from oneir.driver.load import Results
from oneir.runtime.signature import Param
from oneir.runtime.tensor import wrap_array
from oneir.serving.app import Served, create_app
from oneir.serving.http import listen
from oneir.serving.runner import Runner

GROWTH = 8.0
"""MB by which a server may grow after it has answered its first requests."""
FIRST = 1000
"""Requests before memory is looked at."""

# -- servers ----------------------------------------------------------------------------------------------------------


class OnnxRuntime:
    """A session of ONNX Runtime as what a runner calls."""

    def __init__(self, path: str, threads: int):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [Param(i.name, "tensor", "float32", tuple(i.shape)) for i in self.session.get_inputs()]
        self.names = tuple(output.name for output in self.session.get_outputs())
        self.executable = SimpleNamespace(natives={})
        self.entry = "main"

    def __call__(self, *arrays: np.ndarray) -> Results:
        feeds = {param.name: array for param, array in zip(self.inputs, arrays, strict=True)}
        return Results(map(wrap_array, self.session.run(None, feeds)), self.names)


def serve(kind: str, path: str, port: int, batch: int, threads: int) -> None:
    """Serves a model until the process is told to stop."""
    oneir.runtime.set_num_threads(threads)
    model: Any = oneir.load(path) if kind == "oneir" else OnnxRuntime(path, threads)
    app = create_app([Served("model", Runner(model, max_batch=batch))])
    listen(app, "127.0.0.1", port, log_requests=False)


class Server:
    """A server in a process of its own."""

    def __init__(self, kind: str, options: argparse.Namespace):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "benchmarks.serve", options.model, "--serve", kind, "--port", str(self.port)]
        command += ["--batch", str(options.batch), "--threads", str(options.threads)]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise RuntimeError(f"the server of {kind} ended with {self.process.returncode}") from None
                time.sleep(0.1)
        raise RuntimeError(f"the server of {kind} did not begin")

    def memory(self) -> float:
        """The MB that it has now."""
        [line] = [x for x in Path(f"/proc/{self.process.pid}/status").read_text().splitlines() if x.startswith("VmRSS")]
        return int(line.split()[1]) / 1e3

    def processor_seconds(self) -> float:
        """How long it has had a processor so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Tells it to stop, and waits until it has."""
        self.process.send_signal(signal.SIGTERM)
        if (code := self.process.wait(60)) not in (0, -signal.SIGTERM):
            raise RuntimeError(f"a server ended with {code}")


# -- clients ----------------------------------------------------------------------------------------------------------


def request(inputs: list[Param]) -> bytes:
    """A request of one row, whose tensors are bytes."""
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal([e if isinstance(e, int) else 1 for e in param.shape or ()], "float32") for param in inputs
    ]
    tensors = [
        {"name": p.name, "datatype": "FP32", "shape": x.shape, "parameters": {"binary_data_size": x.nbytes}}
        for p, x in zip(inputs, arrays, strict=True)
    ]
    header = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
    body = b"".join([header, *(x.tobytes() for x in arrays)])
    head = "POST /v2/models/model/infer HTTP/1.1\r\nhost: localhost\r\n"
    head += f"content-length: {len(body)}\r\ninference-header-content-length: {len(header)}\r\n\r\n"
    return head.encode() + body


async def client(port: int, content: bytes, until: float, count: int, times: list[float]) -> None:
    """Sends a request as soon as the one before is answered, for a time, or so many."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while count and time.perf_counter() < until:
        start = time.perf_counter()
        writer.write(content)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = next(x for x in head.lower().splitlines() if x.startswith(b"content-length"))
        await reader.readexactly(int(length.split(b":")[1]))
        times.append(time.perf_counter() - start)
        count -= 1
    writer.close()


def ask(port: int, content: bytes, concurrency: int, seconds: float, count: int = 1 << 60) -> tuple[float, list[float]]:
    """Requests a second of so many clients at once, and the seconds of each."""
    times: list[float] = []

    async def all_clients() -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(client(port, content, until, count, times) for _ in range(concurrency)))

    start = time.perf_counter()
    asyncio.run(all_clients())
    return len(times) / (time.perf_counter() - start), times


# -- the whole --------------------------------------------------------------------------------------------------------


def perceptron(path: Path) -> None:
    """Writes three layers, 784-1024-1024-10, for any number of rows."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng, sizes = np.random.default_rng(0), (784, 1024, 1024, 10)
    nodes, weights, value = [], [], "x"
    for i, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        weight = rng.standard_normal((rows, columns), "float32") / np.float32(np.sqrt(rows))
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes += [
            helper.make_node("MatMul", [value, f"w{i}"], [f"a{i}"]),
            helper.make_node("Relu", [f"a{i}"], [f"r{i}"]),
        ]
        value = f"r{i}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", sizes[0]])
    y = helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n", sizes[-1]])
    graph = helper.make_graph(nodes, "perceptron", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def compare(options: argparse.Namespace) -> None:
    """Prints a line for each number of clients and kind of server."""
    kinds = ("oneir", "onnxruntime")
    content = request(OnnxRuntime(options.model, 1).inputs)
    servers = {kind: Server(kind, options) for kind in kinds}
    for server in servers.values():
        ask(server.port, content, 8, 60, 20)
    print(f"{'clients':>7} {'server':<12} {'requests/s':>10} {'median ms':>10} {'p99 ms':>8} {'CPU ms each':>12}")
    for concurrency in options.concurrency:
        rates: dict[str, list[float]] = {kind: [] for kind in kinds}
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        spent = dict.fromkeys(kinds, 0.0)
        for _ in range(options.rounds):
            for kind in kinds:
                before = servers[kind].processor_seconds()
                rate, found = ask(servers[kind].port, content, concurrency, options.seconds)
                spent[kind] += servers[kind].processor_seconds() - before
                rates[kind].append(rate)
                times[kind] += found
        for kind in kinds:
            median, last = np.percentile(np.array(times[kind]) * 1e3, [50, 99])
            line = f"{concurrency:>7} {kind:<12} {np.median(rates[kind]):>10.0f} {median:>10.2f} {last:>8.2f}"
            print(f"{line} {spent[kind] * 1e3 / len(times[kind]):>12.3f}")
        ratio = np.median([a / b for a, b in zip(*rates.values(), strict=True)])
        print(f"{'':>7} {'ratio':<12} {ratio:>10.2f}")
    for server in servers.values():
        server.stop()


def soak(options: argparse.Namespace) -> bool:
    """Prints memory before and after many requests; returns whether it stays as it is."""
    content = request(OnnxRuntime(options.model, 1).inputs)
    server = Server("oneir", options)
    ask(server.port, content, 8, 600, FIRST // 8)
    before = server.memory()
    ask(server.port, content, 8, 3600, options.soak // 8)
    grown = server.memory() - before
    met = verdict(grown, GROWTH, at_least=False)
    print(f"{before:.1f} MB after {FIRST} requests, {grown:+.1f} MB after {options.soak} more  {met}")
    server.stop()
    return grown <= GROWTH


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="an ONNX model of float32 inputs (a perceptron, 784-1024-1024-10)")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 64], metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each server (3)")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of each turn (3)")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="the most rows of a run (32)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--soak", type=int, default=0, metavar="N")
    parser.add_argument("--serve", choices=["oneir", "onnxruntime"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.model, options.port, options.batch, options.threads)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if options.model is None:
            options.model = str(Path(folder) / "perceptron.onnx")
            perceptron(Path(options.model))
        if options.soak:
            return 0 if soak(options) else 1
        compare(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
