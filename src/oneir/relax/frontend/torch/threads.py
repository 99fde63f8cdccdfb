"""The threads of PyTorch's own operators, on which the loops of programs run too where both take turns.

Each OpenMP thread spins for milliseconds after an operator, on a processor that a worker of ours would need: a training
step on two processors took 1.4 times as long with two pools as with one.
"""

from __future__ import annotations

import ctypes

from ....runtime.once import once
from ....runtime.pool import use_team


@once
def share_threads() -> bool:
    """Lets loops of the main thread run on PyTorch's threads from now on; False if they are not OpenMP's."""
    import torch

    if "ATen parallel backend: OpenMP" not in torch.__config__.parallel_info():
        return False
    # Symbols are looked up in the libraries that this one is linked with: the one OpenMP of several that PyTorch calls.
    library = ctypes.CDLL(torch._C.__file__)
    try:
        parallel, number = library.GOMP_parallel, library.omp_get_thread_num
    except AttributeError:
        return False
    use_team(*(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (parallel, number)))
    return True
