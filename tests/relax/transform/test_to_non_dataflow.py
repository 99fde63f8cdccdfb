"""ToNonDataflow: no dataflow block is left, and neighbours become one block."""

from __future__ import annotations

from oneir import relax
from oneir.relax.transform import ToNonDataflow
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


def test_blocks_and_variables_become_ordinary() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.exp(x)
            with R.dataflow():
                b = R.add(a, x)
                c = R.match_cast(b, R.Tensor((4,), "float32"))
                d = R.add(c, b)
                R.output(d)
            return d

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.exp(x)
            b = R.add(a, x)
            c = R.match_cast(b, R.Tensor((4,), "float32"))
            d = R.add(c, b)
            return d

    after = check_pass(ToNonDataflow(), Before, Expected)
    assert len(after["main"].body.blocks) == 1


def test_a_block_of_outputs_only_becomes_ordinary_too() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                R.output(a)
            return a

    after = ToNonDataflow()(Before)
    assert type(after["main"].body.blocks[0]) is relax.BindingBlock


def test_a_variable_keeps_its_identity() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(a)
                R.output(b)
            return b

    old = Before["main"].body.blocks[0].bindings[0].var
    new = ToNonDataflow()(Before)["main"].body.blocks[0].bindings[0].var
    assert isinstance(old, relax.DataflowVar) and not isinstance(new, relax.DataflowVar)
    assert new.vid is old.vid


def test_branches_and_local_functions() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            if c:
                with R.dataflow():
                    a = R.exp(x)
                    b = R.exp(a)
                    R.output(b)
                y = b
            else:
                y = x
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            if c:
                a = R.exp(x)
                b = R.exp(a)
                y = b
            else:
                y = x
            return y

    check_pass(ToNonDataflow(), Before, Expected)


def test_nothing_to_do() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.exp(x)

    check_pass(ToNonDataflow(), Module, Module)
