"""Training: losses, optimizers, and what makes a trainer of a model and these.

trained = training.SetupTrainer(
    training.loss.MSELoss(reduction="sum"), training.optimizer.SGD(0.001), [predictions, targets]
)(model)
vm = relax.VirtualMachine(relax.build(trained, "llvm"), oneir.cpu())
trainer = training.Trainer(trained, vm, oneir.cpu(), zero_init_param_state=False)
trainer.xaiver_uniform_init_params()
loss = trainer.update([inputs], [targets])
"""

from . import loss, optimizer, utils
from .setup_trainer import SetupTrainer
from .trainer import Trainer
from .utils import AppendLoss, register_te_gradient

__all__ = ["AppendLoss", "SetupTrainer", "Trainer", "loss", "optimizer", "register_te_gradient", "utils"]
