"""Small helpers with which graphs are put together in tests and tutorials."""

from . import ast_printer, nn, runtime_builtin, transform, vm
from .ast_printer import dump_ast
from .nn import (
    Linear,
    LogSoftmax,
    Module,
    Parameter,
    Placeholder,
    ReLU,
    Sequential,
    checkpoint,
    emit,
    emit_checkpoint,
    emit_checkpoint_sequential,
    emit_te,
    init_params,
)
