"""footprint: the kernels that a run calls and what they take together, counted by hand."""

from __future__ import annotations

import pytest

import oneir
from oneir import relax
from oneir.runtime.error import InvalidValue, NotRegistered
from oneir.runtime.vm import Footprint, footprint
from oneir.script import from_source

HEADER = "# from tvm.script import ir as I\n# from tvm.script import relax as R\n"


def built(text: str) -> relax.Executable:
    return relax.build(from_source(HEADER + text), "llvm")


def test_kernels_their_bytes_and_the_memory_between_them():
    executable = built("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 16), "float32")):
        with R.dataflow():
            product = R.matmul(x, w)
            shares = R.nn.softmax(product)
            sums = R.sum(shares, axis=[0])
            R.output(sums)
        return sums
""")
    # The product, its softmax (four loops in one kernel), the sums of its columns.
    product, shares = 4 * 16 * 4, 4 * 16 * 4
    moved = (4 * 8 * 4 + 8 * 16 * 4 + product) + (product + shares) + (shares + 16 * 4)
    found = footprint(executable.program)
    assert (found.kernels, found.bytes, found.allocated) == (3, moved, product + shares + 16 * 4)
    assert found.flops is not None and 2 * 4 * 8 * 16 < found.flops < 2 * 4 * 8 * 16 + 10 * 4 * 16


def test_a_saved_program_has_the_same(tmp_path):
    executable = built("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            out = R.exp(x)
            R.output(out)
        return out
""")
    executable.export_library(tmp_path / "model.so")
    loaded = oneir.runtime.load_module(tmp_path / "model.so")
    assert footprint(loaded.program) == footprint(executable.program) == Footprint(1, 32, 2 * 32 * 4, 32 * 4)


def test_what_depends_on_extents_is_not_known():
    executable = built("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")):
        with R.dataflow():
            sums = R.sum(x, axis=[1])
            shares = R.nn.softmax(sums)
            out = R.cumsum(shares, axis=0)
            R.output(out)
        return out
""")
    found = footprint(executable.program)
    assert found.kernels == 3 and found[1:] == (None, None, None)


def test_functions_without_one_course_are_refused():
    executable = built("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32"), yes: R.Tensor((), "bool")):
        if yes:
            y = R.exp(x)
        else:
            y = R.log(x)
        return y

    @R.function
    def twice(x: R.Tensor((4,), "float32"), yes: R.Tensor((), "bool")):
        cls = Module
        y = cls.main(x, yes)
        return y
""")
    with pytest.raises(InvalidValue, match="what `main` calls depends on the values of its arguments: it branches"):
        footprint(executable.program)
    with pytest.raises(InvalidValue, match="`twice` calls a function of the graph"):
        footprint(executable.program, "twice")
    with pytest.raises(NotRegistered, match="the program has no function 'forward'; it has main, twice"):
        footprint(executable.program, "forward")
