"""Losses, optimizers and trainers, against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import oneir
from oneir import relax
from oneir.relax.training import AppendLoss, SetupTrainer, Trainer
from oneir.relax.training.loss import CategoricalCrossEntropyLoss, CrossEntropyLoss, L1Loss, MSELoss
from oneir.relax.training.optimizer import SGD, Adam, MomentumSGD, Optimizer
from oneir.script import ir as I
from oneir.script import relax as R

FLOATS = relax.TensorStructInfo((4, 3), "float32")
CLASSES = relax.TensorStructInfo((4,), "int64")
WEIGHTS = relax.TensorStructInfo((3,), "float32")


def evaluate(func: relax.Function, *arrays: np.ndarray) -> np.ndarray:
    name = func.attrs["global_symbol"]
    vm = relax.VirtualMachine(relax.build(oneir.IRModule({name: func}), "llvm"), oneir.cpu())
    return vm[name](*map(oneir.runtime.tensor, arrays)).numpy()


@pytest.fixture
def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    classes = np.array([2, 0, 1, 2])
    return {
        "a": rng.normal(size=(4, 3)).astype("float32"),
        "b": rng.normal(size=(4, 3)).astype("float32"),
        "classes": classes,
        "rows": np.eye(3, dtype="int64")[classes],
        "weights": rng.uniform(0.5, 2, 3).astype("float32"),
    }


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_differences(reduction: str, data: dict[str, np.ndarray]) -> None:
    a, b = torch.tensor(data["a"]), torch.tensor(data["b"])
    found = evaluate(L1Loss(reduction)(FLOATS, FLOATS), data["a"], data["b"])
    np.testing.assert_allclose(found, F.l1_loss(a, b, reduction=reduction), rtol=1e-5)
    found = evaluate(MSELoss(reduction)(FLOATS, FLOATS), data["a"], data["b"])
    np.testing.assert_allclose(found, F.mse_loss(a, b, reduction=reduction), rtol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_cross_entropy(reduction: str, data: dict[str, np.ndarray]) -> None:
    a, classes, weights = (torch.tensor(data[k]) for k in ("a", "classes", "weights"))
    loss = CrossEntropyLoss(reduction, ignore_index=1)
    found = evaluate(loss(FLOATS, CLASSES), data["a"], data["classes"])
    np.testing.assert_allclose(found, F.cross_entropy(a, classes, reduction=reduction, ignore_index=1), rtol=1e-5)
    found = evaluate(loss(FLOATS, CLASSES, WEIGHTS), data["a"], data["classes"], data["weights"])
    expected = F.cross_entropy(a, classes, weights, reduction=reduction, ignore_index=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_categorical_cross_entropy(data: dict[str, np.ndarray]) -> None:
    a, classes, weights = (torch.tensor(data[k]) for k in ("a", "classes", "weights"))
    rows = relax.TensorStructInfo((4, 3), "int64")
    for ignored in (-100, 2):
        func = CategoricalCrossEntropyLoss("sum", ignored)(FLOATS, rows, WEIGHTS)
        expected = F.cross_entropy(a, classes, weights, reduction="sum", ignore_index=ignored)
        np.testing.assert_allclose(evaluate(func, data["a"], data["rows"], data["weights"]), expected, rtol=1e-5)
    with pytest.raises(TypeError, match=r"the targets are integers of a known shape, found"):
        CategoricalCrossEntropyLoss()(FLOATS, FLOATS)


def test_unknown_reduction() -> None:
    with pytest.raises(ValueError, match=r'expected the reduction "mean", "sum" or "none", found \'max\''):
        MSELoss("max")


OPTIMIZERS: list[tuple[Optimizer, Any]] = [
    (SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    (SGD(0.1, 0.02), lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.02)),
    (Adam(0.1), lambda p: torch.optim.Adam(p, 0.1)),
    (Adam(0.1, (0.8, 0.9), 1e-6, 0.05), lambda p: torch.optim.Adam(p, 0.1, (0.8, 0.9), 1e-6, 0.05)),
]


@pytest.mark.parametrize(("ours", "theirs"), OPTIMIZERS, ids=["sgd", "decay", "adam", "adam_decay"])
def test_optimizers_do_as_those_of_pytorch(ours: Optimizer, theirs: Any) -> None:
    compare(ours, theirs)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum(nesterov: bool) -> None:
    dampening = 0.0 if nesterov else 0.3
    # PyTorch takes the first gradient undamped; so the velocity begins as that gradient.
    ours = MomentumSGD(0.1, 0.9, dampening, 0.02, nesterov)
    compare(
        ours,
        lambda p: torch.optim.SGD(p, 0.1, 0.9, dampening, 0.02, nesterov),
        lambda state, grads: None if nesterov else [g * dampening / 0.9 for g in grads],
    )


def compare(ours: Optimizer, theirs: Any, first_velocity: Any = None) -> None:
    shapes = [(2, 3), (4,)]
    params = [relax.Var(n, relax.TensorStructInfo(s, "float64")) for n, s in zip("pq", shapes, strict=True)]
    ours.init(params)
    func = ours.get_function()
    vm = relax.VirtualMachine(relax.build(oneir.IRModule({ours.name: func}), "llvm"), oneir.cpu())
    rng = np.random.default_rng(2)
    values = [rng.normal(size=s) for s in shapes]
    tensors = [torch.tensor(v, requires_grad=True) for v in values]
    optimizer = theirs(tensors)
    held, state = tuple(map(oneir.runtime.tensor, values)), tuple(ours.state)
    for step in range(4):
        grads = [rng.normal(size=s) for s in shapes]
        velocity = first_velocity(state, grads) if first_velocity and step == 0 else None
        if velocity is not None:
            decayed = [g + 0.02 * v for g, v in zip(grads, values, strict=True)]
            velocity = [v / g * d for v, g, d in zip(velocity, grads, decayed, strict=True)]
            state = (state[0], *map(oneir.runtime.tensor, velocity))
        for t, g in zip(tensors, grads, strict=True):
            t.grad = torch.tensor(g)
        optimizer.step()
        held, state = vm[ours.name](held, tuple(map(oneir.runtime.tensor, grads)), state)
        for found, expected in zip(held, tensors, strict=True):
            np.testing.assert_allclose(found.numpy(), expected.detach(), rtol=1e-9)
    assert state[0].numpy() == 4


def test_optimizers_refuse_what_they_cannot_take() -> None:
    x = relax.Var("x", FLOATS)
    with pytest.raises(RuntimeError, match=r"the optimizer SGD has no parameters yet: call init\(params\)"):
        SGD(0.1).get_function()
    with pytest.raises(ValueError, match=r"the parameter `x` is given twice"):
        SGD(0.1).init([x, x])
    with pytest.raises(ValueError, match=r"all parameters have one dtype, found float32, float64"):
        SGD(0.1).init([x, relax.Var("y", relax.TensorStructInfo((3,), "float64"))])
    with pytest.raises(ValueError, match=r"tensors of floats, found `y`.*int64"):
        SGD(0.1).init(relax.Var("y", CLASSES))


@I.ir_module
class Model:
    I.module_attrs({"param_num": 2, "state_num": 1})

    @R.function
    def backbone(
        x: R.Tensor((4, 5), "float32"),
        w: R.Tensor((5, 3), "float32"),
        b: R.Tensor((3,), "float32"),
        seen: R.Tensor((), "float32"),
    ):
        with R.dataflow():
            out = R.add(R.matmul(x, w), b)
            new = R.add(seen, R.const(4, "float32"))
            R.output(out, new)
        return (out, new)


def test_a_loss_behind_a_model() -> None:
    mod = AppendLoss("backbone", MSELoss("sum")(FLOATS, FLOATS), 1)(Model)
    func = mod["backbone_loss"]
    assert relax.analysis.well_formed(mod)
    assert [p.name for p in func.params] == ["x", "w", "b", "seen", "targets"]
    assert len(func.body.blocks) == 1
    with pytest.raises(TypeError, match=r"AppendLoss: the loss takes .*\(4, 7\).*`backbone` gives"):
        wrong = relax.TensorStructInfo((4, 7), "float32")
        AppendLoss("backbone", MSELoss()(wrong, wrong))(Model)
    with pytest.raises(ValueError, match=r"the loss takes 3 results, `backbone` has 2"):
        AppendLoss("backbone", MSELoss()(FLOATS, FLOATS), 3)(Model)


def test_a_loss_behind_a_model_of_symbolic_shape() -> None:
    @I.ir_module
    class Symbolic:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
            n = oneir.script.tir.int64()
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            return y

    info = Symbolic["main"].ret_struct_info
    mod = AppendLoss("main", L1Loss("sum")(info, info))(Symbolic)
    assert relax.analysis.well_formed(mod)
    x, t = mod["main_loss"].params
    assert x.struct_info.shape[0].same_as(t.struct_info.shape[0])


def test_training_lowers_the_loss_as_in_pytorch() -> None:
    trained = SetupTrainer(MSELoss(), Adam(0.05), [FLOATS, FLOATS])(Model)
    assert trained.attrs["input_num"] == 1
    vm = relax.VirtualMachine(relax.build(trained, "llvm"), oneir.cpu())
    trainer = Trainer(trained, vm, oneir.cpu(), zero_init_param_state=False)
    rng = np.random.default_rng(7)
    x, w, b, t = (rng.normal(size=s).astype("float32") for s in ((4, 5), (5, 3), (3,), (4, 3)))
    with pytest.raises(RuntimeError, match=r"`w` has no value yet"):
        trainer.predict(x)
    trainer.load_params({"w": w, "b": b})
    trainer.zero_init_states()
    np.testing.assert_allclose(trainer.predict(x).numpy(), x @ w + b, rtol=1e-5)

    weights, bias = torch.tensor(w, requires_grad=True), torch.tensor(b, requires_grad=True)
    optimizer = torch.optim.Adam([weights, bias], 0.05)
    for _ in range(5):
        loss = F.mse_loss(torch.tensor(x) @ weights + bias, torch.tensor(t))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(trainer.update(x, t).numpy(), loss.detach(), rtol=1e-4)
    np.testing.assert_allclose(trainer.export_params()["w"].numpy(), weights.detach(), rtol=1e-3, atol=1e-4)
    assert trainer.export_states()["seen"].numpy() == 20
    with pytest.raises(ValueError, match=r"the model has no parameter 'v'; it has w, b"):
        trainer.load_params({"v": w})
    with pytest.raises(ValueError, match=r"the model has 1 inputs, found 2"):
        trainer.predict(x, x)


def test_trainer_needs_to_know_its_parameters() -> None:
    with pytest.raises(ValueError, match=r"needs an integer as its attribute `state_num`"):
        SetupTrainer(MSELoss(), SGD(0.1), [FLOATS, FLOATS])(Model.without_attr("state_num"))
    with pytest.raises(ValueError, match=r"no function `backbone`"):
        SetupTrainer(MSELoss(), SGD(0.1), [FLOATS, FLOATS])(oneir.IRModule({}))


def test_batch_normalization_trains() -> None:
    @I.ir_module
    class Net:
        I.module_attrs({"param_num": 2, "state_num": 2})

        @R.function
        def backbone(
            x: R.Tensor((4, 3, 5, 5), "float32"),
            gamma: R.Tensor((3,), "float32"),
            beta: R.Tensor((3,), "float32"),
            mean: R.Tensor((3,), "float32"),
            var: R.Tensor((3,), "float32"),
        ):
            with R.dataflow():
                n = R.nn.batch_norm(x, gamma, beta, mean, var, axis=1)
                out = n[0]
                new_mean = n[1]
                new_var = n[2]
                R.output(out, new_mean, new_var)
            return (out, new_mean, new_var)

    info = relax.TensorStructInfo((4, 3, 5, 5), "float32")
    trained = SetupTrainer(MSELoss("sum"), SGD(0.01), [info, info])(Net)
    trainer = Trainer(trained, relax.VirtualMachine(relax.build(trained, "llvm"), oneir.cpu()), oneir.cpu())
    rng = np.random.default_rng(1)
    x, t = (rng.normal(size=(4, 3, 5, 5)).astype("float32") for _ in range(2))
    trainer.load_params([np.ones(3, "float32"), np.zeros(3, "float32")])
    trainer.load_states([np.zeros(3, "float32"), np.ones(3, "float32")])
    net = torch.nn.BatchNorm2d(3)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for _ in range(3):
        loss = F.mse_loss(net(torch.tensor(x)), torch.tensor(t), reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(trainer.update(x, t).numpy(), loss.detach(), rtol=1e-4)
    found = trainer.export_params()
    np.testing.assert_allclose(found["gamma"].numpy(), net.weight.detach(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found["beta"].numpy(), net.bias.detach(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(trainer.export_states()["mean"].numpy(), net.running_mean, rtol=1e-3, atol=1e-5)
