"""RewriteDataflowReshape: which loops are a reshape."""

from __future__ import annotations

from oneir.relax.transform import RewriteDataflowReshape
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def flatten(A: T.Buffer((2, 4), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("b"):
                v = T.axis.spatial(8, i)
                B[v] = A[v // 4, v % 4]

    @T.prim_func(private=True)
    def transpose(A: T.Buffer((2, 4), "float32"), B: T.Buffer((4, 2), "float32")):
        for i, j in T.grid(4, 2):
            with T.sblock("b"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[w, v]

    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((8,), "float32"):
        cls = Before
        with R.dataflow():
            a = R.call_tir(cls.transpose, (x,), out_sinfo=R.Tensor((4, 2), "float32"))
            b = R.call_tir(cls.flatten, (x,), out_sinfo=R.Tensor((8,), "float32"))
            c = R.exp(b)
            gv = R.call_tir(cls.flatten, (x,), out_sinfo=R.Tensor((8,), "float32"))
            gv1 = R.add(c, gv)
            R.output(gv, gv1)
        d = R.call_tir(cls.flatten, (x,), out_sinfo=R.Tensor((8,), "float32"))
        return R.add(R.add(gv, gv1), d)


def test_only_what_the_block_keeps_to_itself_becomes_a_reshape() -> None:
    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def flatten(A: T.Buffer((2, 4), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                with T.sblock("b"):
                    v = T.axis.spatial(8, i)
                    B[v] = A[v // 4, v % 4]

        @T.prim_func(private=True)
        def transpose(A: T.Buffer((2, 4), "float32"), B: T.Buffer((4, 2), "float32")):
            for i, j in T.grid(4, 2):
                with T.sblock("b"):
                    v, w = T.axis.remap("SS", [i, j])
                    B[v, w] = A[w, v]

        @R.function
        def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((8,), "float32"):
            cls = Expected
            with R.dataflow():
                a = R.call_tir(cls.transpose, (x,), out_sinfo=R.Tensor((4, 2), "float32"))
                b = R.reshape(x, R.shape([8]))
                c = R.exp(b)
                gv = R.call_tir(cls.flatten, (x,), out_sinfo=R.Tensor((8,), "float32"))
                gv1 = R.add(c, gv)
                R.output(gv, gv1)
            d = R.call_tir(cls.flatten, (x,), out_sinfo=R.Tensor((8,), "float32"))
            return R.add(R.add(gv, gv1), d)

    check_pass(RewriteDataflowReshape(), Before, Expected)


def test_symbolic_extents() -> None:
    @I.ir_module
    class Symbolic:
        @T.prim_func(private=True)
        def flatten(a: T.handle, b: T.handle):
            n = T.int64()
            A = T.match_buffer(a, (n, T.int64(4)), "float32")
            B = T.match_buffer(b, (n * T.int64(4),), "float32")
            for i in range(n * T.int64(4)):
                with T.sblock("b"):
                    v = T.axis.spatial(n * T.int64(4), i)
                    B[v] = A[v // T.int64(4), v % T.int64(4)]

        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n * 4",), "float32"):
            n = T.int64()
            cls = Symbolic
            with R.dataflow():
                a = R.call_tir(cls.flatten, (x,), out_sinfo=R.Tensor((n * 4,), "float32"))
                gv = R.exp(a)
                R.output(gv)
            return gv

    after = RewriteDataflowReshape()(Symbolic)
    assert after["main"].body.blocks[0].bindings[0].value.op.name == "relax.reshape"
