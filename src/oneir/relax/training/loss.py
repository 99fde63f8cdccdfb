"""Losses: each, called with what is known of its arguments, is a function of a graph.

    CrossEntropyLoss("sum")(relax.TensorStructInfo((n, 10), "float32"), relax.TensorStructInfo((n,), "int64"))

`AppendLoss` puts such a function behind a model.
"""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.error import InvalidValue, TypeMismatch
from .. import op
from ..block_builder import BlockBuilder
from ..expr import Expr, Function, Var
from ..struct_info import StructInfo, TensorStructInfo

Argument = Var | StructInfo
"""A parameter of a loss: a variable, of whose name and struct info it gets a new one, or struct info alone."""


def _parameter(argument: Argument, name: str) -> Var:
    if isinstance(argument, Var):
        return Var(argument.name, argument.struct_info)
    if not isinstance(argument, StructInfo):
        raise TypeMismatch(f"a loss is called with variables or struct info, found {argument!r} as its {name}")
    return Var(name, argument)


class Loss:
    """Base of losses. A subclass calls `super().__init__` with the name of its function.

    The first `num_backbone_outputs` parameters of the function are what a model gives; the others are targets.
    `reduction` says what becomes of the losses of a batch: "mean", "sum", or "none", which leaves them as they are.
    """

    def __init__(self, loss_name: str, num_backbone_outputs: int, reduction: str = "mean"):
        if reduction not in ("mean", "sum", "none"):
            raise InvalidValue(f'{loss_name}: expected the reduction "mean", "sum" or "none", found {reduction!r}')
        self._loss_name = loss_name
        self._num_backbone_outputs = num_backbone_outputs
        self._reduction = reduction

    @property
    def num_backbone_outputs(self) -> int:
        """How many results of a model the loss takes."""
        return self._num_backbone_outputs

    def _with_reduction(self, expr: Expr) -> Expr:
        """The losses, reduced."""
        if self._reduction == "none":
            return expr
        return op.sum(expr) if self._reduction == "sum" else op.mean(expr)

    def _function(self, params: list[Var], emit: Callable[[BlockBuilder], Expr]) -> Function:
        """The function of some parameters whose result is what `emit` emits and returns."""
        builder = BlockBuilder()
        with builder.function(self._loss_name, params):
            with builder.dataflow():
                loss = builder.emit_output(emit(builder))
            builder.emit_func_output(loss)
        return builder.get()[self._loss_name]


class L1Loss(Loss):
    """The absolute difference of predictions and targets."""

    def __init__(self, reduction: str = "mean"):
        super().__init__("l1_loss", 1, reduction)

    def __call__(self, predictions: Argument, targets: Argument) -> Function:
        a, b = _parameter(predictions, "predictions"), _parameter(targets, "targets")
        return self._function([a, b], lambda builder: self._with_reduction(op.abs(op.subtract(a, b))))


class MSELoss(Loss):
    """The squared difference of predictions and targets."""

    def __init__(self, reduction: str = "mean"):
        super().__init__("mse_loss", 1, reduction)

    def __call__(self, predictions: Argument, targets: Argument) -> Function:
        a, b = _parameter(predictions, "predictions"), _parameter(targets, "targets")

        def emit(builder: BlockBuilder) -> Expr:
            difference = builder.emit(op.subtract(a, b))
            return self._with_reduction(op.multiply(difference, difference))

        return self._function([a, b], emit)


class CrossEntropyLoss(Loss):
    """-log(softmax(predictions)) at the targets, which are classes; weighted by class if there are weights.

    Targets that are `ignore_index` do not count. Of "mean", the divisor is the sum of the weights of those that do.
    """

    def __init__(self, reduction: str = "mean", ignore_index: int = -100):
        super().__init__("cross_entropy_loss", 1, reduction)
        self.ignore_index = ignore_index

    def __call__(self, predictions: Argument, targets: Argument, weights: Argument | None = None) -> Function:
        logits, classes = _parameter(predictions, "predictions"), _parameter(targets, "targets")
        weight = None if weights is None else _parameter(weights, "weights")

        def emit(builder: BlockBuilder) -> Expr:
            logs = builder.emit(op.nn.log_softmax(logits))
            return op.nn.nll_loss(logs, classes, weight, self._reduction, self.ignore_index)

        return self._function([p for p in (logits, classes, weight) if p is not None], emit)


class CategoricalCrossEntropyLoss(Loss):
    """-log(softmax(predictions)) * targets, where targets are rows of integers, 1 at the class.

    With an `ignore_index` of at least 0, targets of that class do not count.
    """

    def __init__(self, reduction: str = "mean", ignore_index: int = -100):
        super().__init__("categorical_cross_entropy_loss", 1, reduction)
        self.ignore_index = ignore_index

    def __call__(self, predictions: Argument, targets: Argument, weights: Argument | None = None) -> Function:
        logits, rows = _parameter(predictions, "predictions"), _parameter(targets, "targets")
        weight = None if weights is None else _parameter(weights, "weights")
        info, of = rows.struct_info, logits.struct_info
        if not isinstance(info, TensorStructInfo) or not info.dtype.is_int or info.extents is None:
            raise TypeMismatch(f"{self._loss_name}: the targets are integers of a known shape, found {info}")
        if not isinstance(of, TensorStructInfo):
            raise TypeMismatch(f"{self._loss_name}: the predictions are a tensor, found {of}")
        batch, dtype = info.extents[0], of.dtype

        def emit(builder: BlockBuilder) -> Expr:
            logs = builder.emit(op.nn.log_softmax(logits))
            if self.ignore_index >= 0:
                classes = builder.emit(op.reshape(op.argmax(rows, axis=1), (batch,)))
                return op.nn.nll_loss(logs, classes, weight, self._reduction, self.ignore_index)
            losses = builder.emit(op.multiply(op.negative(logs), op.astype(rows, dtype)))
            if weight is not None:
                losses = builder.emit(op.multiply(losses, weight))
            return self._with_reduction(losses)

        return self._function([p for p in (logits, rows, weight) if p is not None], emit)
