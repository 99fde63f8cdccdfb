"""Native code that calls Python functions by name, and the exceptions that pass through it."""

from __future__ import annotations

import ctypes
import gc
import threading
import traceback
import weakref

import numpy as np
import pytest

from oneir.runtime import Tensor, callback, list_global_func_names, register_func, remove_global_func, tensor
from oneir.runtime.entry import make_entry
from oneir.runtime.error import NotRegistered, TypeMismatch
from oneir.runtime.llvm import compile_ir, link
from oneir.runtime.signature import Param, Signature

# Hands its own arguments to the packed function whose name is its context, and answers as that one does.
FORWARD = """
define i32 @forward(ptr %name, ptr %args, i32 %count, ptr %result) {
  %code = call i32 @oneir_call_packed(ptr %name, ptr %args, i32 %count, ptr %result)
  ret i32 %code
}
declare i32 @oneir_call_packed(ptr, ptr, i32, ptr)
"""
# Fails as a program does in which a callback raised in one thread, and a handler of signals then in the calling one.
INTERRUPTED = """
define i32 @interrupted(ptr %name, ptr %args, i32 %count, ptr %result) {
  %code = call i32 @oneir_call_packed(ptr %name, ptr %args, i32 0, ptr %result)
  %state = call i32 @PyGILState_Ensure()
  %kind = load ptr, ptr @PyExc_KeyboardInterrupt
  call void @PyErr_SetNone(ptr %kind)
  call void @PyGILState_Release(i32 %state)
  ret i32 %code
}
declare i32 @oneir_call_packed(ptr, ptr, i32, ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare void @PyErr_SetNone(ptr)
@PyExc_KeyboardInterrupt = external global ptr
"""
NAME = ctypes.create_string_buffer(b"tests.callback")


@pytest.fixture(scope="module")
def forward():
    """A Python callable whose native code calls the packed function `tests.callback` with its arguments."""
    library = link(compile_ir(FORWARD, name="forward"))
    signature = Signature("forward", (Param("A"),))
    return make_entry(library.symbol("forward"), signature, library, context=ctypes.addressof(NAME))


@pytest.fixture(autouse=True)
def clean():
    yield
    if "tests.callback" in list_global_func_names():
        remove_global_func("tests.callback")


def register(function):
    return register_func("tests.callback", function, override=True)


def test_arguments_arrive_and_numbers_return(forward):
    seen = []
    register(lambda *args: seen.append(args))
    assert forward(None, -5, True, 0.5, "grün", ctypes.c_void_p(9)) is None
    (args,) = seen
    assert args[:5] == (None, -5, True, 0.5, "grün") and args[5].value == 9
    assert [type(a) for a in args[:4]] == [type(None), int, bool, float]
    for result in (None, 7, -(2**63), 2.5, True, False):
        register(lambda result=result: result)
        assert forward() == result and type(forward()) is type(result)
    register(lambda: ctypes.c_void_p(8))
    assert forward().value == 8


def test_tensors_share_memory_with_the_caller(forward):
    @register
    def double(x, out):
        assert isinstance(x, Tensor) and x.dtype == "float32" and x.strides == (1, 2)
        out[:] = 2 * x.numpy()

    x, out = np.arange(6, dtype="f4").reshape(3, 2).T, tensor(np.zeros((2, 3), "f4"))
    forward(x, out)
    np.testing.assert_array_equal(out.numpy(), 2 * x)


def test_read_only_arrays_stay_read_only(forward):
    @register
    def write(x):
        x[:] = 1

    x = np.zeros(3)
    x.flags.writeable = False
    with pytest.raises(ValueError, match=r"read-only"):
        forward(x)
    assert not x.any()


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt, SystemExit, StopIteration])
def test_the_original_exception_arrives_with_its_traceback(forward, kind):
    error = kind("words")

    @register
    def culprit(*args):
        raise error

    with pytest.raises(kind) as caught:
        forward(np.zeros(2), 3)
    assert caught.value is error
    assert "culprit" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_an_unregistered_name_is_named_with_the_remedy(forward):
    with pytest.raises(NotRegistered, match=r"registered as 'tests.callback'. Register it first: .*@register_func"):
        forward(1)


def test_names_are_looked_up_at_each_call(forward):
    register(lambda: 1)
    assert forward() == 1
    register(lambda: 2)
    assert forward() == 2


@pytest.mark.parametrize("result", ["text", [1], np.zeros(2), 2**63])
def test_results_that_native_code_cannot_take(forward, result):
    register(lambda: result)
    with pytest.raises(TypeMismatch, match=r"'tests.callback' returned .* Return tensors by writing to an argument"):
        forward()


def test_callbacks_nest_and_run_in_many_threads(forward):
    @register
    def countdown(n, fail):
        if n:
            return forward(n - 1, fail)
        if fail:
            raise LookupError(threading.get_ident())
        return threading.get_ident()

    results = []

    def work():
        for _ in range(20):
            results.append(forward(3, False) == threading.get_ident())
            with pytest.raises(LookupError) as caught:
                forward(3, True)
            results.append(caught.value.args == (threading.get_ident(),))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 320 and all(results)


def test_of_a_handlers_exception_and_a_callbacks_the_handlers_is_raised_and_nothing_stays():
    class Refusal(Exception):
        pass

    def refuse():
        error = Refusal()
        gone.append(weakref.ref(error))
        raise error

    gone: list[weakref.ref[Refusal]] = []
    register(refuse)
    library = link(compile_ir(INTERRUPTED, name="interrupted"))
    function = make_entry(
        library.symbol("interrupted"), Signature("interrupted", ()), library, context=ctypes.addressof(NAME)
    )
    with pytest.raises(KeyboardInterrupt):
        function()
    gc.collect()
    assert gone[0]() is None and not callback._stashed
