"""What the server of a language model gives several clients: `python -m benchmarks.llm_serve [--file MODEL.gguf]`.

A model of TinyLlama's shape with random weights (benchmarks.llm) is served by `oneir serve`, in a process of its own.
Printed are the tokens a second that one client gets and that eight get together, whose answers follow prompts of 16
tokens, in turns; how long the first token takes behind a prefix of 1,000 tokens that the server has not had, and behind
one that it has; and by how many MB the server grows by 1,000 requests of all lengths, some of which leave at once.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from benchmarks.llm import MODELS, write_gguf
from benchmarks.measure import verdict

CLIENTS, TOGETHER = 8, 2.5
"""So many clients get this many times the tokens of one."""
PREFIX, SHARE = 1000, 0.10
"""Tokens of a prefix, and the part of the time to the first token that is left where the server has had it."""
REQUESTS, GROWTH = 1000, 8.0
"""Requests, and the MB by which the server may grow by them."""
CONTEXT, VOCAB = 1200, 32000


class Server:
    """`oneir serve` of a file."""

    def __init__(self, path: Path):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "oneir", "serve", str(path), "--name", "model", "--port", str(self.port)]
        command += ["--batch", str(CLIENTS), "--context", str(CONTEXT)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise RuntimeError(f"the server ended with {self.process.returncode}") from None
                time.sleep(0.1)

    def ask(self, prompt: Sequence[int], tokens: int, leave: bool = False) -> int:
        """The tokens of an answer; with `leave`, the client is gone before there is one."""
        body = {"model": "model", "prompt": list(prompt), "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        if leave:
            connection.close()
            return 0
        response = connection.getresponse()
        found = json.loads(response.read())
        connection.close()
        if response.status != 200:
            raise RuntimeError(f"status {response.status}: {found}")
        return found["usage"]["completion_tokens"]

    def metric(self, name: str) -> float:
        """A number that the server gives of itself."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def memory(self) -> float:
        """The MB that it has of its own: what it maps of files can be given back."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1e3

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def prompt(rng: random.Random, length: int) -> list[int]:
    """Random tokens."""
    return [rng.randrange(3, VOCAB) for _ in range(length)]


def together(server: Server, rng: random.Random, tokens: int, rounds: int) -> None:
    """Prints what one client gets, and what several get."""
    rates: dict[int, list[float]] = {1: [], CLIENTS: []}
    with ThreadPoolExecutor(CLIENTS) as clients:
        for _ in range(rounds):
            for count, found in rates.items():
                prompts = [prompt(rng, 16) for _ in range(count)]
                begin = time.perf_counter()
                got = sum(clients.map(lambda one: server.ask(one, tokens), prompts))
                found.append(got / (time.perf_counter() - begin))
    one, several = map(statistics.median, rates.values())
    judged = verdict(several / one, TOGETHER, True)
    print(f"1 client {one:.1f} token/s, {CLIENTS} clients {several:.1f}: {several / one:.2f} x: {judged}", flush=True)


def prefixes(server: Server, rng: random.Random, rounds: int) -> None:
    """Prints how long a first token takes, with a prefix that is new and with one that is known."""
    seconds: list[list[float]] = [[], []]
    for _ in range(rounds):
        prefix = prompt(rng, PREFIX)
        for found in seconds:
            given = [*prefix, *prompt(rng, 8)]
            begin = time.perf_counter()
            server.ask(given, 1)
            found.append(time.perf_counter() - begin)
    new, known = map(statistics.median, seconds)
    line = f"first token behind {PREFIX} new tokens {1e3 * new:.0f} ms, behind known ones {1e3 * known:.0f} ms"
    print(f"{line}: {known / new:.1%}: {verdict(known / new, SHARE, False)}", flush=True)


def soak(server: Server, rng: random.Random) -> None:
    """Prints how much memory requests leave behind."""
    for _ in range(CLIENTS * CONTEXT // PREFIX + 2):  # all pages are used once
        server.ask(prompt(rng, PREFIX), 1)
    given = [(prompt(rng, rng.randint(1, 40)), rng.randint(1, 6), rng.random() < 0.2) for _ in range(REQUESTS)]
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(lambda one: server.ask(*one), given[: REQUESTS // 10]))
        before = server.memory()
        list(clients.map(lambda one: server.ask(*one), given))
    while server.metric("oneir_requests_running") or server.metric("oneir_requests_waiting"):
        time.sleep(0.1)
    grown, held = server.memory() - before, server.metric("oneir_pages_used")
    line = f"{before:.1f} MB, {grown:+.1f} MB after {REQUESTS} requests: {verdict(grown, GROWTH, False)}"
    print(f"{line}; {held:.0f} pages are held: {verdict(held, 0, False)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="a GGUF file of 32,000 tokens, in place of random weights")
    parser.add_argument("--layers", type=int, default=6, help="of the model with random weights (6)")
    parser.add_argument("--tokens", type=int, default=32, help="of an answer (32)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of one and of several clients (3)")
    options = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "model.gguf"
        if options.file is None:
            write_gguf(path, replace(MODELS["tinyllama"], layers=options.layers), "q4_0")
        server = Server(path)
        try:
            server.ask(prompt(rng, 16), 4)
            together(server, rng, options.tokens, options.rounds)
            prefixes(server, rng, options.rounds)
            soak(server, rng)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
