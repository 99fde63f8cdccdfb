"""Small helpers with which graphs are put together in tests and tutorials."""

from . import ast_printer, lib_comparator, nn, runtime_builtin, transform, vm
from .ast_printer import dump_ast
from .attention import get_relax_attention_module, get_relax_stacked_attention_module
from .lib_comparator import LibCompareVMInstrument
from .matmul import get_relax_matmul_module
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
