"""Document 003: a model from PyTorch and from `nn.Module`, transformed, compiled for the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def set_up(names: dict[str, Any]) -> None:
    """The document imports all that it uses."""


def check_03_parameters_are_detached(names, printed):
    assert list(names["params_from_torch"]) == ["main"]
    shapes = [p.shape for p in names["params_from_torch"]["main"]]
    assert shapes == [(256, 784), (256,), (10, 256), (10,)]


def check_04_the_parameters_are_named(names, printed):
    named = [(name, tuple(p.shape)) for name, p in names["params_from_relax"]]
    assert named == [("fc1.weight", (256, 784)), ("fc1.bias", (256,)), ("fc2.weight", (10, 256)), ("fc2.bias", (10,))]


def check_04_modules_need_not_call_the_base(names, printed):
    nn = names["nn"]

    class Model(nn.Module):
        def __init__(self) -> None:
            self.layers = nn.ModuleList([nn.Linear(8, 4), nn.Linear(4, 2, bias=False)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    mod, params = Model().export_tvm({"forward": {"x": nn.spec.Tensor((1, 8), "float32")}})
    assert [name for name, _ in params] == ["layers.0.weight", "layers.0.bias", "layers.1.weight"]
    assert "layers_1_weight: R.Tensor((2, 4)" in mod.script()


def check_07_a_function_that_is_not_there(names, printed):
    with pytest.raises(Exception, match="forward"):
        names["mod_from_torch"]["forward"]


def check_11_the_result_is_that_of_numpy(names, printed):
    w1, b1, w2, b2 = (p.numpy() for p in names["params_from_torch"]["main"])
    wanted = np.maximum(names["raw_data"] @ w1.T + b1, 0) @ w2.T + b2
    np.testing.assert_allclose(names["cpu_out"], wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.fromstring(printed.strip("[]\n "), sep=" "), wanted[0], atol=1e-6)


def check_11_a_tensor_is_copied(names, printed):
    """`tvm.runtime.tensor` takes tensors as well, and copies them."""
    tvm, dev = names["tvm"], names["dev"]
    weight = names["params_from_torch"]["main"][0]
    copied = tvm.runtime.tensor(weight, dev)
    np.testing.assert_array_equal(copied.numpy(), weight.numpy())
    copied.copyfrom(np.zeros((256, 784), "float32"))
    assert weight.numpy().any() and not copied.numpy().any()


def check_11_an_argument_of_another_shape_is_refused(names, printed):
    tvm, vm = names["tvm"], names["vm"]
    wrong = tvm.runtime.tensor(np.zeros((2, 784), "float32"))
    with pytest.raises(tvm.error.OneIRError, match=r"`x`"):
        vm["main"](wrong, *names["params_from_torch"]["main"])
