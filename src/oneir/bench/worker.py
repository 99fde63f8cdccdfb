"""The parent side of a contestant's process: starts it, sends commands, and kills it after a timeout."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import contestant


class Failed(Exception):
    """A contestant's reason why there is no result."""


class Worker:
    """A process that waits for commands; it computes only while one is carried out."""

    def __init__(self, environment: Mapping[str, str], log: Path, patience: float):
        self.log, self.patience = log, patience
        # The process finds what this one finds, and nothing more: -P keeps the folder of the file out of it.
        command = [sys.executable, "-P", contestant.__file__]
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                env={**environment, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def ask(self, command: str, **arguments: Any) -> Any:
        """The answer to a command; raises `Failed` where it fails, ends or takes longer than `patience` seconds."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps([command, arguments]).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self._last_words()) from None
        if not select.select([process.stdout], [], [], self.patience)[0]:
            self.close()
            raise Failed(f"took more than {self.patience:.0f} s")
        line = process.stdout.readline()
        if not line:
            raise Failed(self._last_words())
        answer, failure = json.loads(line)
        if failure:
            raise Failed(failure)
        return answer

    def _last_words(self) -> str:
        status = self._process.wait()
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f"ended with status {status}: {lines[-1] if lines else 'it said nothing'}"

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
