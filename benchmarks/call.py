"""What it costs to call a compiled function from Python: `python -m benchmarks.call`.

Prints microseconds per call with three tensors, three NumPy arrays and three PyTorch tensors. The function checks its
arguments as compiled functions do and then does next to nothing, so that the time is that of the call.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from oneir.runtime import tensor
from oneir.runtime.entry import make_entry
from oneir.runtime.llvm import compile_ir, link
from oneir.runtime.signature import Param, Signature

CALLS = 20_000
REPEATS = 7

CHECKED_FUNCTION = """
%Failure = type { ptr, ptr }
@kind = internal constant [11 x i8] c"ValueError\\00"
@message = internal constant [15 x i8] c"unfit argument\\00"
@failure = internal constant %Failure { ptr @kind, ptr @message }

; A float32 tensor of shape (n, n) on the CPU: its n, or -1.
define internal i64 @extent(ptr %value, i1 %written) {
start:
  %code = load i32, ptr %value
  %is.tensor = icmp eq i32 %code, 7
  br i1 %is.tensor, label %look, label %unfit
look:
  %flags.at = getelementptr i8, ptr %value, i64 4
  %tensor.at = getelementptr i8, ptr %value, i64 8
  %flags = load i32, ptr %flags.at
  %t = load ptr, ptr %tensor.at
  %data = load i64, ptr %t
  %device.at = getelementptr i8, ptr %t, i64 8
  %device = load i32, ptr %device.at
  %ndim.at = getelementptr i8, ptr %t, i64 16
  %ndim = load i32, ptr %ndim.at
  %dtype.at = getelementptr i8, ptr %t, i64 20
  %dtype = load i32, ptr %dtype.at
  %locked = icmp ne i32 %flags, 0
  %forbidden = and i1 %locked, %written
  %allowed = xor i1 %forbidden, true
  %low = and i64 %data, 3
  %aligned = icmp eq i64 %low, 0
  %on.cpu = icmp eq i32 %device, 1
  %two = icmp eq i32 %ndim, 2
  %float32 = icmp eq i32 %dtype, 73730
  %a = and i1 %on.cpu, %two
  %b = and i1 %float32, %aligned
  %c = and i1 %a, %b
  %d = and i1 %c, %allowed
  br i1 %d, label %layout, label %unfit
layout:
  %shape.at = getelementptr i8, ptr %t, i64 24
  %shape = load ptr, ptr %shape.at
  %strides.at = getelementptr i8, ptr %t, i64 32
  %strides = load ptr, ptr %strides.at
  %n = load i64, ptr %shape
  %m.at = getelementptr i64, ptr %shape, i64 1
  %m = load i64, ptr %m.at
  %s0 = load i64, ptr %strides
  %s1.at = getelementptr i64, ptr %strides, i64 1
  %s1 = load i64, ptr %s1.at
  %square = icmp eq i64 %n, %m
  %row = icmp eq i64 %s0, %m
  %column = icmp eq i64 %s1, 1
  %e = and i1 %square, %row
  %f = and i1 %e, %column
  br i1 %f, label %fit, label %unfit
fit:
  ret i64 %n
unfit:
  ret i64 -1
}

; C[0, 0] = A[0, 0] + B[0, 0]
define i32 @corner(ptr %context, ptr %args, i32 %count, ptr %result) {
start:
  %three = icmp eq i32 %count, 3
  br i1 %three, label %look, label %unfit
look:
  %b.at = getelementptr i8, ptr %args, i64 16
  %c.at = getelementptr i8, ptr %args, i64 32
  %na = call i64 @extent(ptr %args, i1 false)
  %nb = call i64 @extent(ptr %b.at, i1 false)
  %nc = call i64 @extent(ptr %c.at, i1 true)
  %positive = icmp sgt i64 %na, 0
  %same.b = icmp eq i64 %na, %nb
  %same.c = icmp eq i64 %na, %nc
  %same = and i1 %same.b, %same.c
  %fine = and i1 %same, %positive
  br i1 %fine, label %run, label %unfit
run:
  %ta.at = getelementptr i8, ptr %args, i64 8
  %tb.at = getelementptr i8, ptr %args, i64 24
  %tc.at = getelementptr i8, ptr %args, i64 40
  %ta = load ptr, ptr %ta.at
  %tb = load ptr, ptr %tb.at
  %tc = load ptr, ptr %tc.at
  %pa = load ptr, ptr %ta
  %pb = load ptr, ptr %tb
  %pc = load ptr, ptr %tc
  %x = load float, ptr %pa
  %y = load float, ptr %pb
  %z = fadd float %x, %y
  store float %z, ptr %pc
  ret i32 0
unfit:
  %payload.at = getelementptr i8, ptr %result, i64 8
  store i32 64, ptr %result
  store ptr @failure, ptr %payload.at
  ret i32 -1
}
"""


def checked_function() -> Callable[..., None]:
    """A function of three square float32 matrices of one size, checked natively."""
    library = link(compile_ir(CHECKED_FUNCTION, name="corner"))
    square = [Param(name, dtype="float32", shape=("n", "n"), writable=name == "C", alignment=4) for name in "ABC"]
    return make_entry(library.symbol("corner"), Signature("corner", tuple(square)), library)


def microseconds(function: Callable[..., None], *args: object) -> float:
    """The time of one call, in the best of several runs."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(CALLS):
            function(*args)
        best = min(best, time.perf_counter() - start)
    return best / CALLS * 1e6


def main() -> None:
    """Print the table."""
    function = checked_function()
    arrays = [np.ones((16, 16), "float32") for _ in range(3)]
    kinds = {
        "three prepared tensors": [tensor(array) for array in arrays],
        "three NumPy arrays": arrays,
        "three PyTorch tensors": [torch.from_numpy(array) for array in arrays],
    }
    for name, args in kinds.items():
        function(*args)
        assert np.asarray(args[2])[0, 0] == 2
        print(f"{name:24} {microseconds(function, *args):6.3f} µs")


if __name__ == "__main__":
    main()
