"""The reference interpreter: a small, slow, obviously right executor of TensorIR at every stage of lowering.

    interpret(func, a, b)                  # writes into b, as compiled code would
    interpret(mod, a, b, entry="kernel")
    tolerances(func, a, b)                 # how far each element of a and b may be off afterwards

Besides giving values, it checks what native code cannot afford to, and raises `InterpreterError` saying what, where,
and in which iteration: accesses out of bounds, reads of memory that was never written, accesses that a block does not
declare, conflicts between the iterations of parallel, vectorized and thread-bound loops, barriers that not all threads
reach.

`run.py` is where it starts, `statements.py` where it goes on; `arithmetic.py` says what operations do.
"""

from __future__ import annotations

from .run import interpret, tolerances

__all__ = ["interpret", "tolerances"]
