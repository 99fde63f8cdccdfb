"""DecomposeOpsForInference and DecomposeOpsForTraining: which operators become what."""

from __future__ import annotations

from oneir import relax
from oneir.relax.transform import DecomposeOpsForInference, DecomposeOpsForTraining
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


@I.ir_module
class Norm:
    @R.function
    def main(
        x: R.Tensor((2, 3, 4), "float32"),
        gamma: R.Tensor((3,), "float32"),
        beta: R.Tensor((3,), "float32"),
        mean: R.Tensor((3,), "float32"),
        var: R.Tensor((3,), "float32"),
    ) -> R.Tuple(R.Tensor((2, 3, 4), "float32"), R.Tensor((3,), "float32"), R.Tensor((3,), "float32")):
        y = R.nn.batch_norm(x, gamma, beta, mean, var, axis=1, epsilon=0.01, momentum=0.25, training=False)
        return y


def test_batch_norm_in_inference() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 3, 4), "float32"),
            gamma: R.Tensor((3,), "float32"),
            beta: R.Tensor((3,), "float32"),
            mean: R.Tensor((3,), "float32"),
            var: R.Tensor((3,), "float32"),
        ) -> R.Tuple(R.Tensor((2, 3, 4), "float32"), R.Tensor((3,), "float32"), R.Tensor((3,), "float32")):
            a = R.expand_dims(mean, axis=[0, 2])
            b = R.subtract(x, a)
            c = R.expand_dims(var, axis=[0, 2])
            d = R.add(c, R.const(0.01, "float32"))
            e = R.sqrt(d)
            f = R.divide(b, e)
            g = R.expand_dims(gamma, axis=[0, 2])
            h = R.multiply(f, g)
            i = R.expand_dims(beta, axis=[0, 2])
            j = R.add(h, i)
            y = (j, mean, var)
            return y

    check_pass(DecomposeOpsForInference(), Norm, Expected)
    check_pass(DecomposeOpsForInference("main"), Norm, Expected)
    assert DecomposeOpsForInference("other")(Norm) is Norm


def test_batch_norm_in_training_moves_the_moments() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 3, 4), "float32"),
            gamma: R.Tensor((3,), "float32"),
            beta: R.Tensor((3,), "float32"),
            mean: R.Tensor((3,), "float32"),
            var: R.Tensor((3,), "float32"),
        ) -> R.Tuple(R.Tensor((2, 3, 4), "float32"), R.Tensor((3,), "float32"), R.Tensor((3,), "float32")):
            m = R.mean(x, axis=[0, 2], keepdims=False)
            v = R.variance(x, axis=[0, 2], keepdims=False)
            a = R.expand_dims(m, axis=[0, 2])
            b = R.subtract(x, a)
            c = R.expand_dims(v, axis=[0, 2])
            d = R.add(c, R.const(0.01, "float32"))
            e = R.sqrt(d)
            f = R.divide(b, e)
            g = R.expand_dims(gamma, axis=[0, 2])
            h = R.multiply(f, g)
            i = R.expand_dims(beta, axis=[0, 2])
            j = R.add(h, i)
            norm = (j, m, v)
            out = norm[0]
            k = R.multiply(R.const(0.75, "float32"), mean)
            l = R.multiply(R.const(0.25, "float32"), m)
            new_mean = R.add(k, l)
            n = R.multiply(R.const(0.75, "float32"), var)
            o = R.multiply(R.const(0.25, "float32"), v)
            new_var = R.add(n, o)
            y = (out, new_mean, new_var)
            return y

    # The program was written for inference, so its numbers are others.
    check_pass(DecomposeOpsForTraining(), Norm, Expected, numbers=False)


def test_layer_norm_stays_in_inference_only() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 4), "float32"), gamma: R.Tensor((4,), "float32"), beta: R.Tensor((4,), "float32")
        ) -> R.Tensor((2, 4), "float32"):
            y = R.nn.layer_norm(x, gamma, beta, axes=[1], epsilon=0.01, scale=False)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 4), "float32"), gamma: R.Tensor((4,), "float32"), beta: R.Tensor((4,), "float32")
        ) -> R.Tensor((2, 4), "float32"):
            a = R.mean(x, axis=[1], keepdims=True)
            b = R.subtract(x, a)
            c = R.variance(x, axis=[1], keepdims=True)
            d = R.add(c, R.const(0.01, "float32"))
            e = R.sqrt(d)
            f = R.divide(b, e)
            y = R.add(f, beta)
            return y

    check_pass(DecomposeOpsForInference(), Before, Before)
    check_pass(DecomposeOpsForTraining(), Before, Expected)


def test_a_tensor_as_a_shape_gets_symbolic_extents() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((6,), "float32"), s: R.Tensor((2,), "int64")) -> R.Tensor(ndim=2, dtype="float32"):
            shape = R.tensor_to_shape(s)
            y = R.reshape(x, shape)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((6,), "float32"), s: R.Tensor((2,), "int64")) -> R.Tensor(ndim=2, dtype="float32"):
            a = T.int64()
            b = T.int64()
            gv = R.call_pure_packed("vm.builtin.tensor_to_shape", s, sinfo_args=(R.Shape(ndim=2),))
            y1 = R.match_cast(gv, R.Shape([a, b]))
            shape: R.Shape([a, b]) = R.shape([a, b])
            y: R.Tensor((a, b), "float32") = R.reshape(x, shape)
            return y

    check_pass(DecomposeOpsForInference(), Before, Expected, numbers=False)


def test_a_shape_of_unknown_length_stays() -> None:
    s = relax.Var("s", relax.TensorStructInfo(None, "int64", ndim=1))
    builder = relax.BlockBuilder()
    with builder.function("main", [s]):
        builder.emit_func_output(builder.emit(relax.op.tensor_to_shape(s)))
    mod = builder.get()
    assert DecomposeOpsForInference()(mod) is mod
