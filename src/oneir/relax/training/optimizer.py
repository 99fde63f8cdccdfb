"""Optimizers: each makes the function of a graph that computes new parameters from gradients.

    optimizer = SGD(0.1).init([weight, bias])
    mod["SGD"] = optimizer.get_function()
    ...
    params, state = vm["SGD"](params, gradients, optimizer.state)

The function takes and gives tuples: parameters, gradients, states.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from ...ir.container import is_sequence
from ...ir.expr import IntImm
from ...runtime.error import InvalidValue, NotInitialized
from ...runtime.tensor import Tensor, tensor
from ..block_builder import BlockBuilder
from ..expr import Constant, Expr, Function, Tuple, TupleGetItem, Var, const
from ..op.binary import add, divide, multiply, subtract
from ..op.unary import sqrt
from ..struct_info import TensorStructInfo, TupleStructInfo


def _one_minus(value: float) -> float:
    """1 - value as it is written: 0.1 for 0.9, where the difference of the floats is not."""
    return float(1 - Decimal(str(value)))


class Optimizer:
    """Base of optimizers. `name` is that of the function.

    `init` sets `param_list`, `dtype`, which is that of all parameters, and `state`, the first state: the number of
    steps, then `_numbers`, then for each of `_moments` a tensor of zeros for each parameter.
    """

    _numbers: tuple[str, ...] = ()
    """States that are one number, which begins as 1."""
    _moments: tuple[str, ...] = ()
    """States that each parameter has one of."""

    def __init__(self, name: str):
        self.name = name
        self.param_list: list[Var] | None = None
        self.dtype: str | None = None
        self.state: tuple[Tensor, ...] | None = None

    def init(self, params: Var | Sequence[Var]) -> Optimizer:
        """Takes parameters, tensors of one float dtype and known shape. Returns the optimizer itself.

        Raises `InvalidValue` for anything else, and for one that is given twice.
        """
        listed: list[Any] = list(params) if is_sequence(params) else [params]
        dtypes = {_checked(p).dtype for p in listed}
        if len(dtypes) > 1:
            raise InvalidValue(f"{self.name}: all parameters have one dtype, found {', '.join(sorted(dtypes))}")
        for position, param in enumerate(listed):
            if param in listed[:position]:
                raise InvalidValue(f"{self.name}: the parameter `{param.name}` is given twice")
        self.param_list, self.dtype = listed, dtypes.pop() if dtypes else "float32"
        ones = [tensor(np.ones((), self.dtype)) for _ in self._numbers]
        zeros = [tensor(np.zeros(_shape(p), self.dtype)) for _ in self._moments for p in listed]
        self.state = (tensor(np.zeros((), "int64")), *ones, *zeros)
        return self

    def get_function(self) -> Function:
        """The function `(params, gradients, states) -> (new params, new states)`.

        Raises `NotInitialized` before `init`.
        """
        if self.param_list is None or self.dtype is None or self.state is None:
            raise NotInitialized(
                f"the optimizer {self.name} has no parameters yet: call init(params) before get_function()"
            )
        infos = [_checked(p) for p in self.param_list]
        count = len(infos)
        scalars = [TensorStructInfo((), "int64"), *(TensorStructInfo((), self.dtype) for _ in self._numbers)]
        params = Var("params", TupleStructInfo(infos))
        gradients = Var("gradients", TupleStructInfo(infos))
        states = Var("optim_states", TupleStructInfo([*scalars, *(i for _ in self._moments for i in infos)]))
        builder = BlockBuilder()
        with builder.function(self.name, [params, gradients, states]):
            with builder.dataflow():
                steps = builder.emit(TupleGetItem(states, 0), "num_steps")
                new_steps = builder.emit(add(steps, const(1, "int64")), "num_steps_new")
                numbers = [
                    builder.emit(self._next_number(name, TupleGetItem(states, 1 + i)), name)
                    for i, name in enumerate(self._numbers)
                ]
                new_params: list[Expr] = []
                new_moments: list[list[Expr]] = [[] for _ in self._moments]
                for i, param in enumerate(self.param_list):
                    value = builder.emit(TupleGetItem(params, i), param.name)
                    grad = builder.emit(TupleGetItem(gradients, i), f"{param.name}_grad")
                    places = [len(scalars) + k * count + i for k in range(len(self._moments))]
                    moments = [
                        builder.emit(TupleGetItem(states, place), f"{param.name}_{name}")
                        for name, place in zip(self._moments, places, strict=True)
                    ]
                    new_value, moments = self._step(builder, value, grad, moments, numbers)
                    new_params.append(builder.emit(new_value, f"{param.name}_new"))
                    for all_of_kind, moment in zip(new_moments, moments, strict=True):
                        all_of_kind.append(moment)
                out = builder.emit_output(Tuple(new_params), "params_new")
                moved = [moment for all_of_kind in new_moments for moment in all_of_kind]
                out_states = builder.emit_output(Tuple([new_steps, *numbers, *moved]), "optim_states_new")
            builder.emit_func_output(Tuple([out, out_states]))
        return builder.get()[self.name]

    def _number(self, value: float) -> Constant:
        assert self.dtype is not None
        return const(value, self.dtype)

    def _decayed(self, builder: BlockBuilder, value: Var, grad: Var, weight_decay: float) -> Var:
        """The gradient, with that of the decay of weights."""
        if not weight_decay:
            return grad
        return builder.emit(add(multiply(self._number(weight_decay), value), grad), f"{value.name}_grad_new")

    def _next_number(self, name: str, value: Expr) -> Expr:
        raise NotImplementedError

    def _step(
        self, builder: BlockBuilder, value: Var, grad: Var, moments: Sequence[Var], numbers: Sequence[Var]
    ) -> tuple[Expr, Sequence[Expr]]:
        """The new value of a parameter and its new moments."""
        raise NotImplementedError(f"the optimizer {self.name} has no method `get_function`")


def _checked(param: Var) -> TensorStructInfo:
    info = param.struct_info_ if isinstance(param, Var) else None
    if not isinstance(info, TensorStructInfo) or not info.dtype.is_float:
        raise InvalidValue(
            f"parameters of optimizers are variables that hold tensors of floats, found `{param}`: {info}"
        )
    return info


def _shape(param: Var) -> list[int]:
    extents = _checked(param).extents
    shape = [e.value for e in extents or () if isinstance(e, IntImm)]
    if extents is None or len(shape) != len(extents):
        raise InvalidValue(f"the state of an optimizer needs the shape of `{param.name}`, found {param.struct_info}")
    return shape


class SGD(Optimizer):
    """Stochastic gradient descent: `param - lr * (grad + weight_decay * param)`. The state is `(steps,)`."""

    def __init__(self, lr: float, weight_decay: float = 0):
        super().__init__("SGD")
        self.lr, self.weight_decay = float(lr), float(weight_decay)

    def _step(
        self, builder: BlockBuilder, value: Var, grad: Var, moments: Sequence[Var], numbers: Sequence[Var]
    ) -> tuple[Expr, Sequence[Expr]]:
        grad = self._decayed(builder, value, grad, self.weight_decay)
        return subtract(value, multiply(self._number(self.lr), grad)), ()


class MomentumSGD(Optimizer):
    """Stochastic gradient descent with momentum. The state is `(steps, velocity of each parameter...)`.

    velocity = momentum * velocity + (1 - dampening) * grad; with `nesterov`, `grad + momentum * velocity` takes its
    place in the step `param - lr * velocity`.
    """

    _moments = ("v",)

    def __init__(
        self, lr: float, momentum: float, dampening: float = 0, weight_decay: float = 0, nesterov: bool = False
    ):
        super().__init__("MomentumSGD")
        self.lr, self.momentum, self.dampening = float(lr), float(momentum), float(dampening)
        self.weight_decay, self.nesterov = float(weight_decay), nesterov

    def _step(
        self, builder: BlockBuilder, value: Var, grad: Var, moments: Sequence[Var], numbers: Sequence[Var]
    ) -> tuple[Expr, Sequence[Expr]]:
        grad = self._decayed(builder, value, grad, self.weight_decay)
        momentum = self._number(self.momentum)
        added = multiply(self._number(_one_minus(self.dampening)), grad) if self.dampening else grad
        velocity = builder.emit(add(multiply(momentum, moments[0]), added), f"{value.name}_v_new")
        step = velocity
        if self.nesterov:
            step = builder.emit(add(grad, multiply(momentum, velocity)), f"{value.name}_g_nest")
        return subtract(value, multiply(self._number(self.lr), step)), [velocity]


class Adam(Optimizer):
    """Adam. The state is `(steps, betas[0] ** steps, betas[1] ** steps, first moments..., second moments...)`.

    D. Kingma and J. Ba, "Adam: A Method for Stochastic Optimization" (2015).
    """

    _numbers = ("beta1_prod", "beta2_prod")
    _moments = ("m", "v")

    def __init__(
        self, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0
    ):
        super().__init__("Adam")
        self.lr, self.betas = float(lr), (float(betas[0]), float(betas[1]))
        self.eps, self.weight_decay = float(eps), float(weight_decay)

    def _next_number(self, name: str, value: Expr) -> Expr:
        return multiply(value, self._number(self.betas[self._numbers.index(name)]))

    def _step(
        self, builder: BlockBuilder, value: Var, grad: Var, moments: Sequence[Var], numbers: Sequence[Var]
    ) -> tuple[Expr, Sequence[Expr]]:
        grad = self._decayed(builder, value, grad, self.weight_decay)
        averages = [
            builder.emit(
                add(multiply(self._number(beta), moment), multiply(self._number(_one_minus(beta)), power)),
                f"{value.name}_{name}_new",
            )
            for name, beta, moment, power in zip(
                self._moments, self.betas, moments, (grad, multiply(grad, grad)), strict=True
            )
        ]
        # Moments begin as 0, to which the first averages are biased.
        first, second = (
            builder.emit(divide(average, subtract(self._number(1), product)), f"{value.name}_{name}_hat")
            for name, average, product in zip(self._moments, averages, numbers, strict=True)
        )
        step = divide(first, add(sqrt(second), self._number(self.eps)))
        return subtract(value, multiply(self._number(self.lr), step)), averages
