"""Gradient: what the function of gradients is like, its options, checkpoints, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax, te
from oneir.error import TVMError
from oneir.relax.transform import Gradient
from oneir.script import ir as I
from oneir.script import relax as R


@I.ir_module
class Product:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32"), n: R.Tensor((3,), "int64")):
        with R.dataflow():
            a = R.multiply(x, y)
            b = R.multiply(a, x)
            c = R.sum(b)
            R.output(a, c)
        return (a, c)


def run(mod: oneir.IRModule, *arrays: np.ndarray, name: str = "main_adjoint") -> list:
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())

    def plain(value: object) -> object:
        return value.numpy() if isinstance(value, oneir.runtime.Tensor) else [plain(v) for v in value]

    return plain(vm[name](*map(oneir.runtime.tensor, arrays)))


def test_gradients_of_chosen_variables() -> None:
    main = Product["main"]
    a = main.body.blocks[0].bindings[0].var
    mod = Gradient("main", [main.params[1], a], target_index=1)(Product)
    assert relax.analysis.well_formed(mod)
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(2, 3)).astype("float32") for _ in range(2))
    (product, total), (to_y, to_a) = run(mod, x, y, np.zeros(3, "int64"))
    np.testing.assert_allclose(product, x * y)
    np.testing.assert_allclose(total, (x * y * x).sum(), rtol=1e-5)
    np.testing.assert_allclose(to_y, x * x, rtol=1e-6)
    np.testing.assert_allclose(to_a, x, rtol=1e-6)


def test_the_function_itself_stays_and_shares_no_variable() -> None:
    main = Product["main"]
    mod = Gradient("main", main.params[0], target_index=1)(Product)
    assert mod["main"] is main
    adjoint = mod["main_adjoint"]
    assert adjoint.attrs["global_symbol"] == "main_adjoint"
    assert not set(relax.analysis.all_vars(adjoint)) & set(relax.analysis.all_vars(main))


def test_text() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, w)
                c = R.sum(b)
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main_adjoint(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, w)
                c = R.sum(b)
                dc = R.ones(R.shape([]), dtype="float32")
                db = R.broadcast_to(dc, R.shape([4]))
                da = db
                dw = db
                dx = R.multiply(da, a)
                dx_out = dx
                dw_out = dw
                R.output(c, dx_out, dw_out)
            return (c, (dx_out, dw_out))

    oneir.ir.assert_structural_equal(Gradient("main")(Before)["main_adjoint"], Expected["main_adjoint"], True)


def test_tuples() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(t: R.Tuple(R.Tensor((3,), "float32"), R.Tensor((3,), "float32")), z: R.Tensor((3,), "float32")):
            with R.dataflow():
                u = ((t[0], z), t)
                v = u[0]
                w = u[1]
                p = R.multiply(v[0], v[1])
                q = R.multiply(p, w[0])
                s = R.sum(q)
                R.output(s)
            return s

    mod = Gradient("main")(Module)
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())
    a, b, z = (np.arange(3, dtype="float32") + k for k in (1, 2, 3))
    _, ((to_a, to_b), to_z) = vm["main_adjoint"](
        (oneir.runtime.tensor(a), oneir.runtime.tensor(b)), oneir.runtime.tensor(z)
    )
    np.testing.assert_allclose(to_a.numpy(), 2 * a * z, rtol=1e-6)
    np.testing.assert_allclose(to_b.numpy(), np.zeros(3))
    np.testing.assert_allclose(to_z.numpy(), a * a, rtol=1e-6)


def checkpointed() -> oneir.IRModule:
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            marked = builder.emit(relax.op.grad.start_checkpoint(x), "start")
            value = marked
            for _ in range(3):
                value = builder.emit(relax.op.sin(value), "step")
            ended = builder.emit(relax.op.grad.end_checkpoint(value), "end")
            out = builder.emit_output(relax.op.sum(relax.op.exp(ended)))
        builder.emit_func_output(out)
    return builder.get()


def test_what_lies_in_a_checkpoint_is_computed_again() -> None:
    mod = Gradient("main")(checkpointed())
    text = mod["main_adjoint"].script()
    assert "checkpoint" not in text
    # The gradient of the last sine needs the sine before it, so two of three are computed a second time.
    assert text.count("R.sin(") == 3 + 2
    assert text.count("R.exp(") == 1
    x = np.array([0.3, -1.2, 2.0], "float32")
    _, (found,) = run(mod, x)
    s1, s2 = np.sin(x), np.sin(np.sin(x))
    np.testing.assert_allclose(found, np.exp(np.sin(s2)) * np.cos(s2) * np.cos(s1) * np.cos(x), rtol=1e-5)


def test_a_variable_of_a_checkpoint_may_be_wanted() -> None:
    before = checkpointed()
    start, *_, end = (b.var for b in before["main"].body.blocks[0].bindings if "checkpoint" in str(b.value))
    x = np.array([0.3, -1.2, 2.0], "float32")
    _, (to_start, to_end) = run(Gradient("main", [start, end])(before), x)
    third = np.sin(np.sin(np.sin(x)))
    np.testing.assert_allclose(to_end, np.exp(third), rtol=1e-5)
    assert to_start.shape == (3,)


def test_products_of_transposed_matrices_need_no_transposition_of_results() -> None:
    @I.ir_module
    class Linear:
        @R.function
        def main(x: R.Tensor((5, 3), "float32"), w: R.Tensor((4, 3), "float32")):
            with R.dataflow():
                t = R.permute_dims(w)
                y = R.matmul(x, t)
                s = R.sum(R.multiply(y, y))
                R.output(s)
            return s

    mod = Gradient("main")(Linear)
    # That of the weight is dy^T @ x, that of the data dy @ w.
    assert mod["main_adjoint"].script().count("R.permute_dims(") == 2
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(5, 3)).astype("float32"), rng.normal(size=(4, 3)).astype("float32")
    _, (to_x, to_w) = run(mod, x, w)
    grad = 2 * x @ w.T
    np.testing.assert_allclose(to_x, grad @ w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(to_w, grad.T @ x, rtol=1e-4, atol=1e-5)


def test_registered_gradient_of_a_kernel() -> None:
    @relax.training.register_te_gradient("test_gradient.scaled")
    def scaled_gradient(output_grad: te.Tensor, x: te.Tensor, factor: float) -> list[te.Tensor]:
        return [te.compute(x.shape, lambda *i: output_grad[i] * factor, name="scaled_gradient")]

    def scaled(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: x[i] * oneir.tir.const(3, "float32"), name="scaled")

    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            options = {"factor": oneir.tir.const(3, "float32")}
            call = builder.call_te_with_grad(scaled, x, te_grad_name="test_gradient.scaled", te_grad_kwargs=options)
            out = builder.emit_output(relax.op.sum(builder.emit(call)))
        builder.emit_func_output(out)
    mod = Gradient("main")(builder.get())
    assert "call_tir_with_grad" not in mod["main_adjoint"].script()
    # The function that names its gradient is there for the pass only.
    alone = mod.replace(functions={v: f for v, f in mod.functions.items() if v.name_hint != "main"})
    _, (found,) = run(alone, np.ones(4, "float32"))
    np.testing.assert_array_equal(found, np.full(4, 3, "float32"))


def test_what_does_not_depend_on_what_is_wanted_needs_no_gradient() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
            with R.dataflow():
                a = R.sort(y)
                s = R.sum(R.multiply(a, x))
                R.output(s)
            return s

    _, (found,) = run(Gradient("main", Module["main"].params[0])(Module), np.ones(3, "float32"), np.float32([3, 1, 2]))
    np.testing.assert_array_equal(found, np.float32([1, 2, 3]))
    with pytest.raises(NotImplementedError, match=r"no gradient is known of `R.sort\("):
        Gradient("main")(Module)


def test_refusals() -> None:
    main = Product["main"]
    with pytest.raises(ValueError, match=r"the module has no function 'other'"):
        Gradient("other")(Product)
    with pytest.raises(TVMError, match=r"`n` has.*int64.*name the others in require_grads"):
        Gradient("main", target_index=1)(Product)
    with pytest.raises(TypeError, match=r"a variable that holds one float, found `a`"):
        Gradient("main", main.params[0])(Product)
    with pytest.raises(ValueError, match=r"target_index is 2, but `main` has 2 results"):
        Gradient("main", main.params[0], target_index=2)(Product)
    stranger = relax.Var("stranger", relax.TensorStructInfo((2,), "float32"))
    with pytest.raises(ValueError, match=r"`stranger` in require_grads is no variable of the function `main`"):
        Gradient("main", [stranger])(Product)

    @I.ir_module
    class NoBlock:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            s = R.sum(x)
            return s

    with pytest.raises(TypeError, match=r"one dataflow block.*ConvertToDataflow"):
        Gradient("main")(NoBlock)
