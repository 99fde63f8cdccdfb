"""verify_memory: a device's memory is accessed by its threads."""

from __future__ import annotations

from oneir.script import tir as T
from oneir.target import Target
from oneir.tir.analysis import verify_memory


@T.prim_func
def serial(A: T.Buffer((8,), "float32")):
    for i in range(8):
        A[i] = T.float32(0)


@T.prim_func
def threaded(A: T.Buffer((8,), "float32")):
    for i in T.thread_binding(8, thread="threadIdx.x"):
        A[i] = T.float32(0)


def test_the_processor_reaches_everything():
    assert verify_memory(serial)
    assert verify_memory(serial.with_attr("target", Target("llvm")))


def test_a_device_needs_threads():
    assert not verify_memory(serial.with_attr("target", Target("cuda")))
    assert verify_memory(threaded.with_attr("target", Target("cuda")))
