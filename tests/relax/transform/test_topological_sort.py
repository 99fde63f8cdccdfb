"""TopologicalSort: four orders of one graph, each worked out by hand."""

from __future__ import annotations

import pytest

from oneir.ir.structural import assert_structural_equal
from oneir.relax.analysis import verify_well_formed
from oneir.relax.transform import TopologicalSort
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            one = R.const(1, "float32")
            a = R.exp(x)
            b = R.exp(y)
            aa = R.add(a, a)
            bb = R.add(b, one)
            unused = R.exp(b)
            ab = R.add(aa, bb)
            R.output(ab)
        return ab


@pytest.mark.parametrize(
    ("order", "direction", "expected"),
    [
        # As soon as something is ready, what it makes ready comes next.
        ("depth-first", "from-inputs", "a aa b unused one bb ab"),
        # All that the parameters make ready, then all that these make ready.
        ("breadth-first", "from-inputs", "one a b aa bb unused ab"),
        # The same from the result on, written down from the end: the last requirement is the first to be followed.
        ("depth-first", "from-outputs", "b unused a aa one bb ab"),
        ("breadth-first", "from-outputs", "one b a bb aa ab unused"),
    ],
)
def test_four_orders_of_one_graph(order: str, direction: str, expected: str) -> None:
    after = TopologicalSort(order, direction)(Module)
    assert [b.var.name for b in after["main"].body.blocks[0].bindings] == expected.split()


@pytest.mark.parametrize("order", ["depth-first", "breadth-first"])
@pytest.mark.parametrize("direction", ["from-inputs", "from-outputs"])
def test_every_order_is_valid_and_final(order: str, direction: str) -> None:
    after = TopologicalSort(order, direction)(Module)
    verify_well_formed(after)
    assert TopologicalSort(order, direction)(after) is after
    bindings = {b.var.name for b in Module["main"].body.blocks[0].bindings}
    assert {b.var.name for b in after["main"].body.blocks[0].bindings} == bindings


def test_a_value_used_twice_by_one_binding_does_not_multiply_the_work() -> None:
    from oneir import relax

    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for _ in range(200):
                value = builder.emit(relax.op.add(value, value))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    mod = builder.get()
    for order in ("depth-first", "breadth-first"):
        for direction in ("from-inputs", "from-outputs"):
            assert TopologicalSort(order, direction)(mod) is mod


def test_only_dataflow_blocks_are_sorted_and_local_functions_by_themselves() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            b = R.exp(y)
            a = R.exp(x)

            @R.function
            def inner(p: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                with R.dataflow():
                    c = R.exp(p)
                    d = R.add(p, a)
                    e = R.exp(c)
                    f = R.add(d, e)
                    R.output(f)
                return f

            z = inner(b)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            b = R.exp(y)
            a = R.exp(x)

            @R.function
            def inner(p: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                with R.dataflow():
                    c = R.exp(p)
                    e = R.exp(c)
                    d = R.add(p, a)
                    f = R.add(d, e)
                    R.output(f)
                return f

            z = inner(b)
            return z

    assert_structural_equal(TopologicalSort()(Before), Expected)


def test_orders_that_there_are_not_are_refused() -> None:
    with pytest.raises(InvalidValue, match="'depth-first' or 'breadth-first', found 'depth'"):
        TopologicalSort("depth")
    with pytest.raises(InvalidValue, match="'from-inputs' or 'from-outputs', found 'up'"):
        TopologicalSort("depth-first", "up")
