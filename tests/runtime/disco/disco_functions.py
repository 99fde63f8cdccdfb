"""Functions that workers of sessions call in the tests; `import_python_module` registers them in their processes."""

from __future__ import annotations

import os
import threading

import numpy as np

from oneir.runtime import ShapeTuple, Tensor, disco, get_global_func, register_func, tensor
from oneir.runtime.dtype import numpy_dtype

released = threading.Event()


@register_func("tests.disco.describe")
def describe(*args: object) -> str:
    """The types and values of the arguments."""
    return ", ".join(f"{type(arg).__name__} {arg!r}" for arg in args)


@register_func("tests.disco.make")
def make(values: bytes, dtype: str, shape: ShapeTuple) -> Tensor:
    """A tensor that differs from worker to worker: each takes one of the equal parts of `values`."""
    rank = get_global_func("runtime.disco.worker_rank")()
    array = np.frombuffer(values, numpy_dtype(dtype))
    size = int(np.prod(shape))
    return tensor(array[rank * size : (rank + 1) * size].reshape(shape))


@register_func("tests.disco.sized_by_rank")
def sized_by_rank() -> Tensor:
    """A tensor of as many items as the worker's rank says, and one more."""
    return tensor(np.zeros(get_global_func("runtime.disco.worker_rank")() + 1, "float32"))


@register_func("tests.disco.fail_on")
def fail_on(rank: int) -> None:
    """Raises an error in one worker."""
    if get_global_func("runtime.disco.worker_rank")() == rank:
        raise ValueError("a reason of its own")


@register_func("tests.disco.exit_on")
def exit_on(rank: int) -> None:
    """Ends the process of one worker, as a crash would."""
    if get_global_func("runtime.disco.worker_rank")() == rank:
        os._exit(3)


@register_func("tests.disco.pid")
def pid() -> int:
    """The process of the worker."""
    return os.getpid()


@register_func("tests.disco.wait")
def wait() -> None:
    """Waits until `released` is set."""
    released.wait()


@register_func("tests.disco.nested")
def nested() -> float:
    """What a session of the worker's own computes."""
    with disco.ThreadedSession(2) as session:
        session.init_ccl("cpu")
        x, y = session.empty((1,), "float32"), session.empty((1,), "float32")
        session.copy_to_worker_0(np.array([3], "float32"), x)
        session.broadcast_from_worker0(x, x)
        session.allreduce(x, y)
        return y.debug_get_from_remote(1).numpy().item()
