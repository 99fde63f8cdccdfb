"""Clocks for native code, as LLVM IR: `i64 @now()`, the nanoseconds since some fixed time."""

from __future__ import annotations

_LINUX = """
declare i32 @clock_gettime(i32, ptr)
define internal i64 @now() {
  %time = alloca { i64, i64 }, align 16
  %ignored = call i32 @clock_gettime(i32 CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr { i64, i64 }, ptr %time, i32 0, i32 1
  %rest = load i64, ptr %rest.at
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %rest
  ret i64 %sum
}
"""

_MACOS = """
declare i64 @clock_gettime_nsec_np(i32)
define internal i64 @now() {
  %time = call i64 @clock_gettime_nsec_np(i32 CLOCK)
  ret i64 %time
}
"""


def now_ir(system: str, coarse: bool = False) -> str:
    """The clock of "linux" or "darwin"; a coarse one costs less, and is right to some milliseconds."""
    if system == "linux":  # CLOCK_MONOTONIC_COARSE, CLOCK_MONOTONIC
        return _LINUX.replace("CLOCK", "6" if coarse else "1")
    return _MACOS.replace("CLOCK", "9" if coarse else "8")  # CLOCK_UPTIME_RAW_APPROX, CLOCK_UPTIME_RAW
