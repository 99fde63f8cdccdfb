"""Passes over graphs, one a file."""

from .normalize_global_var import NormalizeGlobalVar
from .pass_base import DataflowBlockPass, FunctionPass, dataflowblock_pass, function_pass
