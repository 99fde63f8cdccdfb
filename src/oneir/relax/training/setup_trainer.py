"""SetupTrainer: a model, its loss, its gradients and an optimizer, in one module."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import InvalidValue
from ..analysis import well_formed
from ..expr import Function, SeqExpr, Tuple
from ..struct_info import StructInfo
from ..transform import DecomposeOpsForInference, DecomposeOpsForTraining, Gradient, LegalizeOps
from .loss import Loss
from .optimizer import Optimizer
from .utils import AppendLoss

BACKBONE = "backbone"
BACKBONE_LOSS = "backbone_loss"
ADJOINT = "backbone_loss_adjoint"
OPTIMIZER = "optimizer"


class SetupTrainer(ModulePass, opt_level=0):
    """Makes of a module with the function `backbone` one that a `Trainer` trains.

        backbone(inputs..., parameters..., states...) -> results..., new states...

    The module's attributes `param_num` and `state_num` say how many there are of each; states are what training
    maintains beside parameters, such as the moments of batch normalization. The functions that are added:

        backbone_loss(inputs..., parameters..., states..., targets...) -> loss, new states...
        backbone_loss_adjoint(the same) -> (loss, new states...), gradients of the parameters
        optimizer(parameters, gradients, optimizer states) -> new parameters, new optimizer states

    and the attributes `input_num` and `optim_state`, the optimizer's first state. `loss_args` are what the loss is
    called with: struct info of results, then of targets. Operators are legalized unless `legalize` is False. Raises
    `InvalidValue` for a module that is none of these.
    """

    loss: Loss
    optimizer: Optimizer
    loss_args: Sequence[StructInfo]
    legalize: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss_args", tuple(self.loss_args))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        params, states = self._counts(mod)
        inputs = len(mod[BACKBONE].params) - params - states
        # Each loss has parameters of its own.
        make_loss: Any = self.loss
        loss: Function = make_loss(*self.loss_args)
        mod = AppendLoss(BACKBONE, loss, self.loss.num_backbone_outputs, BACKBONE_LOSS)(mod)
        # Batch normalization computes one thing in inference and another in training.
        mod = DecomposeOpsForInference(BACKBONE)(mod)
        mod = DecomposeOpsForTraining(BACKBONE_LOSS)(mod)
        trained = list(mod[BACKBONE_LOSS].params[inputs : inputs + params])
        mod = Gradient(BACKBONE_LOSS, trained)(mod)
        optimizer = copy.copy(self.optimizer).init(trained)
        update = optimizer.get_function().with_attr("global_symbol", OPTIMIZER)
        mod = mod.replace(functions={**mod.functions, GlobalVar(OPTIMIZER): update})
        mod = mod.with_attrs({"input_num": inputs, "optim_state": optimizer.state})
        return LegalizeOps()(mod) if self.legalize else mod

    def _counts(self, mod: IRModule) -> tuple[int, int]:
        """How many parameters and states the model has."""
        if not well_formed(mod):
            raise InvalidValue("SetupTrainer: the module is not well-formed; relax.analysis.well_formed says why")
        if BACKBONE not in mod:
            raise InvalidValue(f"SetupTrainer: the module has no function `{BACKBONE}`, which is the model to train")
        counts: list[int] = []
        for name in ("param_num", "state_num"):
            if not isinstance(mod.attrs.get(name), int):
                raise InvalidValue(f"SetupTrainer: the module needs an integer as its attribute `{name}`")
            counts.append(mod.attrs[name])
        params, states = counts
        func = mod[BACKBONE]
        if len(func.params) < params + states:
            raise InvalidValue(
                f"SetupTrainer: `{BACKBONE}` has {len(func.params)} parameters, which are fewer than {params} trained "
                f"ones and {states} states"
            )
        result = func.body.body if isinstance(func.body, SeqExpr) else func.body
        if states and (not isinstance(result, Tuple) or len(result.fields) <= states):
            raise InvalidValue(f"SetupTrainer: `{BACKBONE}` must return a tuple of its results and {states} new states")
        return params, states
