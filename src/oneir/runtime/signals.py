"""Signals while native code runs: how Ctrl-C ends a kernel.

Python handles signals in its main thread, between bytecodes; native code is none. So graphs between their kernels, and
parallel loops between their pieces, call

    int32_t oneir_poll_signals(void)

which lets Python handle what has come if the last time was 0.2 s ago, and returns 0 unless a handler has raised. Then
its exception stays with the thread, and every caller returns the error, up to the entry through which Python came
(entry.ll), which raises it. In other threads nothing happens. A look takes about 5 ns: the coarse clock of the system
is read, no signal handler is replaced.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading

from .clock import now_ir
from .llvm import LoadedObject, add_symbol
from .once import once
from .resident import resident

_POLL = """
@main.thread = internal global i64 0
@last.look = internal global i64 0 ; written by the main thread only

declare i64 @pthread_self()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()

define void @oneir_set_main_thread(i64 %thread) {
  store i64 %thread, ptr @main.thread
  ret void
}

define i64 @oneir_coarse_time() {
  %now = call i64 @now()
  ret i64 %now
}

define i1 @oneir_is_main_thread() {
  %self = call i64 @pthread_self()
  %main = load i64, ptr @main.thread
  %is.main = icmp eq i64 %self, %main
  ret i1 %is.main
}

define i32 @oneir_poll_signals() {
  %now = call i64 @now()
  %raised = tail call i32 @oneir_poll_signals_at(i64 %now)
  ret i32 %raised
}

; The same for who has read the clock: if 0.2 s have passed since the last look, and this is the main thread,
; last.look = now, and return PyErr_CheckSignals(), under the GIL; else return 0.
define i32 @oneir_poll_signals_at(i64 %now) {
  %last = load atomic i64, ptr @last.look monotonic, align 8
  %passed = sub i64 %now, %last
  %due = icmp ugt i64 %passed, 200000000
  br i1 %due, label %who, label %nothing
who:
  %is.main = call i1 @oneir_is_main_thread()
  br i1 %is.main, label %look, label %nothing
look:
  store atomic i64 %now, ptr @last.look monotonic, align 8
  %state = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %state)
  ret i32 %raised
nothing:
  ret i32 0
}
"""

# Where the runtime cannot tell threads apart, native code is not interrupted.
_NEVER = """
define void @oneir_set_main_thread(i64 %thread) {
  ret void
}
define i64 @oneir_coarse_time() {
  ret i64 0
}
define i1 @oneir_is_main_thread() {
  ret i1 false
}
define i32 @oneir_poll_signals() {
  ret i32 0
}
define i32 @oneir_poll_signals_at(i64 %now) {
  ret i32 0
}
"""


def poll_ir(system: str) -> str:
    """The code as LLVM IR, for an operating system as `sys.platform` names it."""
    return now_ir(system, coarse=True) + _POLL if system in ("linux", "darwin") else _NEVER


@once
def _code() -> LoadedObject:
    text = poll_ir(sys.platform)
    code = resident("the poll of signals", lambda: text, text)
    _tell_main_thread(code)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=functools.partial(_tell_main_thread, code))
    return code


def _tell_main_thread(code: LoadedObject) -> None:
    thread = threading.main_thread().ident
    ctypes.CFUNCTYPE(None, ctypes.c_uint64)(code.symbol("oneir_set_main_thread"))(thread)


def signals_address(name: str) -> int:
    """The address of one of the functions."""
    return _code().symbol(name)


for _name in ("oneir_poll_signals", "oneir_poll_signals_at", "oneir_is_main_thread", "oneir_coarse_time"):
    add_symbol(_name, functools.partial(signals_address, _name))
