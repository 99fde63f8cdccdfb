"""Trainer: runs a module of `SetupTrainer`, and keeps its parameters and states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.expr import IntImm
from ...ir.module import IRModule
from ...runtime.device import Device
from ...runtime.error import InvalidValue, NotInitialized
from ...runtime.tensor import Tensor, tensor
from ...runtime.vm import VirtualMachine
from ..expr import Var
from ..struct_info import TensorStructInfo
from .setup_trainer import ADJOINT, BACKBONE, OPTIMIZER

Array = np.ndarray | Tensor


class Trainer:
    """Trains the model of `train_mod`, which `SetupTrainer` made and `vm` runs, on a device.

    With `zero_init_param_state`, parameters and states begin as zeros; otherwise they are loaded or initialized first.
    """

    def __init__(self, train_mod: IRModule, vm: VirtualMachine, device: Device, zero_init_param_state: bool = True):
        attrs = train_mod.attrs
        self.mod = train_mod.without_attr("optim_state")
        self.vm = vm
        self.device = device
        self._optim_state = [state.copyto(device) for state in attrs["optim_state"]]
        self._input_num = int(attrs["input_num"])
        params_end = self._input_num + int(attrs["param_num"])
        variables = list(train_mod[ADJOINT].params)
        self._param_vars: list[Var] = variables[self._input_num : params_end]
        self._state_vars: list[Var] = variables[params_end : params_end + int(attrs["state_num"])]
        self._params: list[Tensor | None] = [None] * len(self._param_vars)
        self._states: list[Tensor | None] = [None] * len(self._state_vars)
        if zero_init_param_state:
            self.zero_init_params()
            self.zero_init_states()

    # -- values --

    def xaiver_uniform_init_params(self) -> None:
        """Fills parameters with numbers up to sqrt(6 / sum of the shape), as Glorot and Bengio (2010) propose.

        Shapes must be known.
        """
        self._params = []
        for var in self._param_vars:
            shape, dtype = _shape(var)
            values = np.sqrt(6.0 / np.sum(shape)) * np.random.uniform(-1.0, 1.0, shape)
            self._params.append(self._on_device(values.astype(dtype)))

    def zero_init_params(self) -> None:
        """Fills parameters with zeros. Shapes must be known."""
        self._params = [self._on_device(np.zeros(*_shape(var))) for var in self._param_vars]

    def zero_init_states(self) -> None:
        """Fills states with zeros. Shapes must be known."""
        self._states = [self._on_device(np.zeros(*_shape(var))) for var in self._state_vars]

    def load_params(self, params: Sequence[Array] | Mapping[str, Array]) -> None:
        """Sets all parameters by a list, or some by their names in the model."""
        self._load(self._params, self._param_vars, params, "parameter")

    def load_states(self, states: Sequence[Array] | Mapping[str, Array]) -> None:
        """Sets all states by a list, or some by their names in the model."""
        self._load(self._states, self._state_vars, states, "state")

    def export_params(self) -> dict[str, Tensor | None]:
        """The parameters by their names."""
        return {var.name: value for var, value in zip(self._param_vars, self._params, strict=True)}

    def export_states(self) -> dict[str, Tensor | None]:
        """The states by their names."""
        return {var.name: value for var, value in zip(self._state_vars, self._states, strict=True)}

    def _load(self, into: list[Tensor | None], variables: Sequence[Var], values: Any, what: str) -> None:
        if isinstance(values, Mapping):
            places = {var.name: i for i, var in enumerate(variables)}
            unknown = [name for name in values if name not in places]
            if unknown:
                raise InvalidValue(f"the model has no {what} {unknown[0]!r}; it has {', '.join(places) or 'none'}")
            for name, value in values.items():
                into[places[name]] = self._on_device(value)
        elif isinstance(values, (list, tuple)):
            if len(values) != len(into):
                raise InvalidValue(f"the model has {len(into)} {what}s, found {len(values)}")
            into[:] = [self._on_device(value) for value in values]
        else:
            raise InvalidValue(f"expected a list or a dictionary of {what}s, found {type(values).__name__}")

    def _on_device(self, value: Any) -> Tensor:
        return value.copyto(self.device) if isinstance(value, Tensor) else tensor(np.asarray(value), self.device)

    # -- running --

    def predict(self, *input_instances: Array) -> Any:
        """What the model gives, without its new states."""
        result = self.vm[BACKBONE](*self._arguments(input_instances))
        if not self._state_vars:
            return result
        results = list(result)[: -len(self._state_vars)]
        return results[0] if len(results) == 1 else results

    def update(self, input_instances: Array | Sequence[Array], targets: Array | Sequence[Array]) -> Tensor:
        """One step of training: new parameters, states and optimizer states. Returns the loss before it."""
        inputs = _listed(input_instances)
        results, grads = self.vm[ADJOINT](*self._arguments(inputs), *map(self._on_device, _listed(targets)))
        if self._state_vars:
            loss, *states = results
            self._states = states
        else:
            loss = results
        params, self._optim_state = self.vm[OPTIMIZER](tuple(self._params), grads, tuple(self._optim_state))
        self._params = list(params)
        return loss

    def _arguments(self, inputs: Sequence[Array]) -> list[Tensor | None]:
        values = (*zip(self._param_vars, self._params, strict=True), *zip(self._state_vars, self._states, strict=True))
        for var, value in values:
            if value is None:
                raise NotInitialized(f"`{var.name}` has no value yet: load or initialize parameters and states first")
        if len(inputs) != self._input_num:
            raise InvalidValue(f"the model has {self._input_num} inputs, found {len(inputs)}")
        return [*map(self._on_device, inputs), *self._params, *self._states]


def _listed(values: Any) -> list[Array]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _shape(var: Var) -> tuple[list[int], str]:
    """The shape and dtype of a variable."""
    info = var.struct_info
    extents = info.extents if isinstance(info, TensorStructInfo) else None
    shape = [e.value for e in extents or () if isinstance(e, IntImm)]
    if not isinstance(info, TensorStructInfo) or extents is None or len(shape) != len(extents):
        raise InvalidValue(f"the shape of `{var.name}` must be known to fill it, found {info}")
    return shape, str(info.dtype)
