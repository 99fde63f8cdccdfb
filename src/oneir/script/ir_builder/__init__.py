"""Programs built by calls: the vocabularies of scripts, acting at once.

    with IRBuilder() as builder:
        with T.prim_func():
            T.func_name("double")
            A = T.arg("A", T.Buffer((8,), "float32"))
            with T.serial(8) as i:
                T.buffer_store(A, A[i] * 2, [i])
    func = builder.get()

What scripts write as statements of Python is a call here: `with T.serial(8) as i:`, `T.buffer_store`, `R.emit`.
"""

from __future__ import annotations

from . import ir as ir
from . import relax as relax
from . import tir as tir
from .base import IRBuilder as IRBuilder
from .base import IRBuilderFrame as IRBuilderFrame
