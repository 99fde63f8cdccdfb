"""Chat templates: jinja2 programs that come with a model and write messages as the text that it was trained on.

    renderer = TemplateRenderer()
    renderer.render("{% for m in messages %}...{% endfor %}", {"messages": [{"role": "user", "content": "Hello"}]})

A template is a program of a stranger. It runs in jinja2's immutable sandbox, and that in a process of its own
(`template_worker.py`), which the system lets neither open files nor use more than seconds and some memory.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path

from ...runtime.error import InvalidValue, UnsupportedError
from ...runtime.once import new_lock

_WORKER = Path(__file__).with_name("template_worker.py")


class TemplateRenderer:
    """The process that renders templates. It starts with the first rendering, and ends with this object."""

    def __init__(self):
        self._lock = new_lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def render(self, template: str, variables: Mapping[str, object]) -> str:
        """The text that a template makes of variables, which are what JSON can express.

        Raises `InvalidValue` for a template that is wrong, that raises an exception (many do, of roles in an order that
        the model does not know), that takes more than one to two seconds of processor time, half a gigabyte or 16
        million characters; `UnsupportedError` if jinja2 is missing.
        """
        try:
            request = json.dumps({"template": template, "variables": {**variables}})
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValue(f"the variables of a chat template are what JSON can express: {error}") from None
        with self._lock:
            if self._process is None or self._owner != os.getpid():
                self._start()
            return self._ask(request)

    def _start(self) -> None:
        if importlib.util.find_spec("jinja2") is None:
            raise UnsupportedError('chat templates need jinja2: pip install "oneir[llm]"')
        # -P: the worker's folder is no place to import from.
        command = [sys.executable, "-P", str(_WORKER)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is for its parent, which ends it
        )
        self._owner = os.getpid()
        weakref.finalize(self, _stop, self._process, self._owner)

    def _ask(self, request: str) -> str:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self._process = None
            _stop(process, self._owner)
            late = process.returncode == -signal.SIGXCPU
            raise InvalidValue(f"the chat template {'took too long' if late else 'ended its process'}; use another one")
        found = json.loads(answer)
        if "error" in found:
            raise InvalidValue(f"the chat template failed: {found['error']}")
        return found["text"]


def _stop(process: subprocess.Popen[str], owner: int) -> None:
    """Ends a worker. A child of fork leaves its parent's alone."""
    if owner != os.getpid():
        return
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # of what was not written yet
                pipe.close()
    process.wait()
