"""Programs in processes of their own that need not import PyTorch first, which takes more of a processor than most programs.

    done = forked.run([sys.executable, "program.py", "--check"], cwd=folder)

One process for each process of tests has imported OneIR and PyTorch with its exporter, and does nothing else than to fork
for each program: what a program imports, registers or changes, no other one sees.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def run(
    command: Sequence[str | Path], cwd: str | Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run` gives of a program of this Python, with what it prints: `[sys.executable, file, *arguments]`
    or `[sys.executable, "-m", module, *arguments]`.
    """
    python, *arguments = map(str, command)
    assert python == sys.executable
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("out", "err")]
        request = {
            "arguments": arguments,
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "files": list(map(str, files)),
        }
        server = _server()
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        return subprocess.CompletedProcess(command, status, *(file.read_text() for file in files))


@functools.cache
def _server() -> subprocess.Popen[str]:
    """It ends where what it reads ends, as this process does."""
    command = [sys.executable, __file__]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return server


def _serve() -> list[str]:
    """Answers requests with the status of a child for each; returns in a child, with the arguments of its program."""
    while line := sys.stdin.readline():
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.chdir(request["cwd"])
            os.environ.clear()
            os.environ.update(request["env"])
            for number, file in enumerate([os.devnull, *request["files"]]):
                opened = os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o600)
                os.dup2(opened, number)
                os.close(opened)
            return request["arguments"]
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.exit()


if __name__ == "__main__":
    for name in ("oneir", "torch._dynamo", "torch.export._trace"):
        importlib.import_module(name)
    gc.freeze()  # the collector of a child need not look at what was imported, nor copy its pages
    first, *rest = _serve()
    if first == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")
