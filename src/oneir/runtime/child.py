"""Processes of this interpreter that answer questions of this one.

    with Child("from oneir.runtime.llvm import compile_ir as answer") as child:
        data = child.ask(("define i32 @next(i32 %x) { ... }",))    # compile_ir(text), over there

Questions and answers are pickled. The process ends with this one, or earlier.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

_LOOP = """
import pickle, signal, sys, types
signal.signal(signal.SIGINT, signal.SIG_IGN)
questions, answers = sys.stdin.buffer, sys.stdout.buffer
sys.path[:], folders, code = pickle.load(questions)
for name, folder in folders.items():
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [folder]
exec(code)
given = None  # it has started
while True:
    pickle.dump(given, answers)
    answers.flush()
    try:
        question = pickle.load(questions)
    except EOFError:
        break
    given = answer(*question)
"""


class Child:
    """A process that calls `answer`, which `code` defines, with the arguments of each question.

    One thread uses it at a time. `bare` says that of oneir, `code` needs modules of `oneir.runtime` only: importing the
    packages themselves would take half a second. Raises `OSError` where no process can be started: an application that
    contains Python is no interpreter.
    """

    def __init__(self, code: str, bare: bool = False):
        if not _is_python():
            raise OSError(f"{sys.executable or 'this program'} is no interpreter of Python")
        command = [sys.executable, "-I", "-S", "-c", _LOOP]
        runtime = Path(__file__).parent
        folders = {"oneir": str(runtime.parent), "oneir.runtime": str(runtime)} if bare else {}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._end = weakref.finalize(self, _end, self._process)
        try:
            self._exchange((sys.path, folders, code))
        except (OSError, EOFError) as error:
            self.close()
            raise OSError(f"{sys.executable} does not start") from error

    def ask(self, *question: object) -> Any:
        """The answer. Raises `OSError` or `EOFError` if the process has ended, and `PicklingError` for a question that
        cannot be sent.
        """
        return self._exchange(question)

    def _exchange(self, question: object) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        data = pickle.dumps(question)
        self._process.stdin.write(data)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)

    def status(self) -> int:
        """The status with which the process ended; waits for its end."""
        return self._process.wait()

    def close(self) -> None:
        """Ends the process."""
        self._end()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _is_python() -> bool:
    """Whether this program's file is an interpreter of Python, rather than an application that contains one."""
    return not getattr(sys, "frozen", False) and "py" in Path(sys.executable or "").name
