"""Work in a process of its own, whose memory the system gets back with it.

    apart(compile_to, source, path)

A compiler leaves behind what no program gives back: objects between others, tables of LLVM, pages of its code. Beside
the weights of a language model that is memory which the model could do without.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Callable

from ...runtime.error import ExecutionError

_WORKER = """
import os, pickle, sys
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
sys.path[:] = pickle.load(sys.stdin.buffer)
error = None
try:
    function, arguments = pickle.load(sys.stdin.buffer)
    function(*arguments)
except Exception as raised:
    error = raised
pickle.dump(error, answers)
answers.flush()
"""


def apart(function: Callable[..., object], *arguments: object) -> None:
    """Calls a function of a module in another process, and raises what it raises.

    Arguments are what can be pickled. Raises `ExecutionError` where the process ends before the function does.
    """
    request = pickle.dumps(sys.path) + pickle.dumps((function, arguments))
    # A session of its own: Ctrl-C is for this process, which then ends the other one.
    command = [sys.executable, "-c", _WORKER]
    done = subprocess.run(command, input=request, stdout=subprocess.PIPE, check=False, start_new_session=True)
    if done.returncode:
        code = done.returncode
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with {code}"
        advice = "; if it was killed, there may be too little memory" if code == -signal.SIGKILL else ""
        raise ExecutionError(f"the process of {function.__name__} ended {how}{advice}")
    error = pickle.loads(done.stdout)
    if error is not None:
        raise error
