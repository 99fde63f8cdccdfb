"""What tests written for the published API declare with `oneir.testing`: pytest runs a file of such tests."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import oneir
from oneir import arith, testing, tir
from oneir.ir.structural import StructuralMismatch
from oneir.rpc.tracker import Tracker
from oneir.runtime.error import (
    AssertionFailure,
    InternalError,
    InvalidValue,
    NotRegistered,
    ShapeMismatch,
    TypeMismatch,
)
from oneir.script import tir as T
from oneir.tir.transform import Simplify

pytest_plugins = ["pytester"]


def outcomes(pytester, text: str, *options: str) -> tuple[dict[str, int], str]:
    """What became of the tests of a file, and what pytest printed."""
    pytester.makepyfile(textwrap.dedent(text))
    result = pytester.runpytest("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", "-vs", *options)
    return result.parseoutcomes(), result.stdout.str()


def test_parameters(pytester):
    found, text = outcomes(
        pytester,
        """
        import oneir.testing as t

        size = t.parameter(1, 16)
        kind = t.parameter(by_dict={"small": (1, 2), "large": (3, 4)})
        shape, dtype = t.parameters(((4,), "int8"), ((2, 2), "float32"))
        calls = []

        @t.fixture(cache_return_value=True)
        def doubled(size):
            calls.append(size)
            return [size * 2]

        def test_both(size, kind): print("both", size, kind)
        def test_together(shape, dtype): print("together", shape, dtype)
        def test_one_of_them(dtype): print("one", dtype)

        class TestMembers:
            a, b = t.parameters((1, 2), (3, 4), ids=["first", "second"])
            def test_member(self, a, b): print("member", a, b)

        def test_cached(doubled, kind):
            assert doubled == [calls[-1] * 2]
            doubled.append(None)  # a copy: the next test does not see it

        def test_calls(): assert calls == [1, 16]

        @t.skip_parameterizations("16", reason="slow")
        @t.xfail_parameterizations("1", reason="wrong")
        def test_marked(request, size): assert False
        """,
    )
    assert found == {"passed": 15, "skipped": 1, "xfailed": 1}, text
    assert text.count("both ") == 4 and text.count("member ") == 2
    assert "together (4,) int8" in text and "together (2, 2) float32" in text and text.count("together ") == 2
    assert "test_both[1-small]" in text and "test_member[first]" in text


def test_targets(pytester, monkeypatch):
    monkeypatch.setenv("TVM_TEST_TARGETS", "llvm")
    found, text = outcomes(
        pytester,
        """
        import oneir.testing as t

        @t.parametrize_targets("llvm", "hexagon")
        def test_given(target, dev): print("given", target, dev)

        def test_all(target, dev): print("all", target, dev)

        @t.exclude_targets("llvm")
        def test_none(target): assert False

        @t.known_failing_targets("llvm")
        def test_failing(target): assert target != "llvm"

        @t.requires_package("no_such_package")
        def test_package(): assert False

        @t.requires_hexagon()
        def test_hexagon(): assert False

        @t.requires_llvm
        @t.uses_gpu
        @t.requires_package("numpy", "pytest")
        @t.skip_if_32bit(reason="wide")
        def test_here(): pass

        @t.requires_nccl(support_required="optional")
        def test_optional(): pass

        def test_marks():
            assert [mark.name for mark in t.requires_llvm.marks()] == ["llvm"]
            assert [mark.name for mark in t.requires_cublas.marks("optional")] == ["gpu", "cuda", "cublas"]
        """,
        "--strict-markers",
        "-p",
        "oneir.testing.plugin",
    )
    assert "given llvm cpu" in text and "all llvm cpu" in text, text
    assert "OneIR does not call Hexagon" in text or found["skipped"] >= 3
    assert "failed" not in found and found["xfailed"] == 1 and found["passed"] >= 5


def test_requirements():
    with pytest.raises(InvalidValue, match="there is no feature 'abacus'"):
        testing.Feature.require("abacus")
    with pytest.raises(InvalidValue, match="expected support_required to be one of"):
        testing.requires_llvm.marks("sometimes")
    with pytest.raises(InvalidValue, match="either values, perhaps with ids, or by_dict"):
        testing.parameter(1, by_dict={"one": 1})
    with pytest.raises(InvalidValue, match=r"sets of values of one size, found \[1, 2\]"):
        testing.parameters((1,), (2, 3))


class TestZeros(testing.CompareBeforeAfter):
    """A pass given as it is, and functions without decorators."""

    transform = Simplify()

    def before(A: T.Buffer((16,), "int32")):
        A[0] = A[1] * 0 + 1 + 2

    def expected(A: T.Buffer((16,), "int32")):
        A[0] = 3


class TestModules(testing.CompareBeforeAfter):
    """Methods that give the pass and a module, and a class of functions."""

    def transform(self):
        return Simplify()

    def before(self):
        @T.prim_func
        def f(A: T.Buffer((16,), "int32")):
            A[0] = A[1] * 1

        return oneir.IRModule({"f": f})

    class Expected:
        def f(A: T.Buffer((16,), "int32")):
            A[0] = A[1]


class TestErrors(testing.CompareBeforeAfter):
    """A class of errors that the pass must raise."""

    transform = oneir.ir.transform.module_pass(lambda mod, context: {}["missing"], opt_level=0)
    expected = KeyError

    def before(A: T.Buffer((16,), "int32")):
        A[0] = 1


class TestPrivateResult(testing.CompareBeforeAfter):
    """A pass that makes a new function, without a name: it is its body that is compared."""

    def transform(self):
        def private(mod, context):
            return oneir.IRModule({"main": oneir.tir.PrimFunc([], mod["main"].body)})

        return oneir.ir.transform.module_pass(private, opt_level=0)

    def before():
        T.evaluate(1)

    def expected():
        T.evaluate(1)


def test_comparison_can_fail():
    func = TestModules().test_compare
    before = oneir.IRModule({"f": T.prim_func(_one)})
    with pytest.raises(StructuralMismatch, match=r"A\[0\] = 2"):
        func(before, oneir.IRModule({"f": T.prim_func(_two)}), Simplify())
    with pytest.raises(AssertionFailure, match="expected ValueError from"):
        func(before, ValueError, Simplify())


def _one(A: T.Buffer((16,), "int32")):
    A[0] = 1


def _two(A: T.Buffer((16,), "int32")):
    A[0] = 2


def test_gradients_are_compared_with_differences():
    a, b = np.array([1.0, 2.0]), np.array([[3.0]])
    testing.check_numerical_grads(lambda x, y: (x**3).sum() * y[0, 0], [a, b], [9 * a**2, [[9.0]]])
    testing.check_numerical_grads(lambda y, x: (x**3).sum() * y[0, 0], {"x": a, "y": b}, {"x": 9 * a**2})
    with pytest.raises(AssertionFailure, match=r"the gradient of `0` is .* expected 36"):
        testing.check_numerical_grads(lambda x: 3 * (x**3).sum(), [a], [4 * a**2])
    with pytest.raises(ShapeMismatch, match=r"the gradient of `0` has the shape \(1, 2\), expected \(2,\)"):
        testing.check_numerical_grads(lambda x: x.sum(), [a], [np.ones((1, 2))])


def test_transformed_constraints():
    x, y, n = tir.Var("x", "int32"), tir.Var("y", "int32"), tir.Var("n", "int32")
    ranges = {x: oneir.ir.Range(0, 6), y: oneir.ir.Range(0, 6)}
    problem = arith.IntConstraints([x, y], ranges, [x == y * 2])
    solved = arith.IntConstraints([n], {n: oneir.ir.Range(0, 3)}, [])
    good = arith.IntConstraintsTransform(problem, solved, {x: n * 2, y: n}, {n: y})
    testing.check_int_constraints_trans_consistency(good)
    bad = arith.IntConstraintsTransform(problem, solved, {x: n * 2, y: n}, {n: x})
    with pytest.raises(AssertionFailure, match=r"is .* for"):
        testing.check_int_constraints_trans_consistency(bad)


def test_functions_by_name():
    assert oneir.get_global_func("testing.echo")((1, "two")) == (1, "two")
    assert testing.nop(1, 2) is None and testing.identity_cpp(3) == 3
    assert testing.device_test(oneir.cpu(2), 1, 2) == oneir.cpu(2)
    with pytest.raises(InvalidValue, match="expected device 1"):
        testing.device_test(oneir.cpu(2), 1, 1)
    calls = []
    assert testing.test_wrap_callback(lambda: calls.append(1))() is None and calls == [1]
    testing.test_check_eq_callback("mine")(1, 1)
    with pytest.raises(AssertionFailure, match="mine: expected 1 == 2"):
        testing.test_check_eq_callback("mine")(1, 2)
    with pytest.raises(KeyError, match="gone"):
        testing.test_raise_error("KeyError", "gone")
    with pytest.raises(InvalidValue, match="expect x and y to be equal"):
        testing.ErrorTest(1, 2)
    with pytest.raises(InternalError, match="cannot reach here"):
        testing.ErrorTest(1, 1)
    value = object()
    assert testing.object_use_count(value) >= 1
    module = testing.FrontendTestModule()
    module["__add_function"]("twice", lambda x: 2 * x)
    assert module["twice"](4) == 8
    with pytest.raises(NotRegistered, match="no function 'thrice'; it has twice"):
        module["thrice"]


def test_strings_and_ranges():
    assert [testing.strtobool(word) for word in ("Yes", "0", "on", "F")] == [1, 0, 1, 0]
    with pytest.raises(InvalidValue, match="found 'maybe'"):
        testing.strtobool("maybe")
    assert testing.get_dtype_range("int8") == (-128, 127) and testing.get_dtype_range("bool") == (0, 1)
    assert testing.get_dtype_range("float16") == (-65504.0, 65504.0)


@pytest.mark.parametrize("where", ["here", "there"])
def test_modules_are_run_from_files(where):
    @T.prim_func
    def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i] + 1.0

    module, args = oneir.build(main, target="llvm"), [np.arange(4, dtype="float32"), np.zeros(4, "float32")]
    if where == "here":
        found, times = testing.local_run(module, "cpu", args)
        with pytest.raises(InvalidValue, match="expected output_format"):
            testing.local_run(module, "cpu", args, export_func=lambda mod, path: None)
    else:

        class Address:
            tracker_host, tracker_key = "127.0.0.1", "board"

        with (
            Tracker(port=0) as tracker,
            oneir.rpc.Server(port=0, key="board", tracker_addr=("127.0.0.1", tracker.port)),
        ):
            Address.tracker_port = tracker.port
            found, times = testing.rpc_run(module, "cpu", args, rpc_config=Address)
    np.testing.assert_array_equal(found[1], [1, 2, 3, 4])
    assert times.mean > 0


def test_what_only_other_processors_have_is_lacking_and_no_error(pytester):
    found, _ = outcomes(
        pytester,
        """
        import oneir.testing as t

        @t.requires_x86_avx512
        @t.requires_aarch64_sve
        def test_nowhere(): raise AssertionError
        """,
        "-p",
        "oneir.testing.plugin",  # which declares the marks
    )
    assert found == {"skipped": 1}


def test_targets_of_all_tests_of_a_class(pytester):
    found, text = outcomes(
        pytester,
        """
        import oneir.testing as t

        class TestHere:
            pytestmark = t.parametrize_targets("llvm", "hexagon")

            def test_target(self, target): print("one", target)
            def test_device(self, target, dev): print("two", target, dev)
        """,
        "-p",
        "oneir.testing.plugin",
    )
    assert found == {"passed": 2, "skipped": 2}
    assert "one llvm" in text and "two llvm cpu:0" in text


class TestStatedFunction:
    """What a class states is a fixture for tests that are not comparisons, too."""

    def func(A: T.Buffer((16,), "int32")):
        A[0] = 7

    func = testing.CompareBeforeAfter._normalize_before(func)  # as a class that collects such tests does

    def test_it_is_parsed(self, func):
        assert func.body.value.value == 7


def test_what_states_nothing():
    with pytest.raises(TypeMismatch, match=r"CompareBeforeAfter: expected a function, .* found int"):
        testing.CompareBeforeAfter._normalize_before(3)
