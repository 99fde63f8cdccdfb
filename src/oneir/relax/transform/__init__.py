"""Passes over graphs, one a file."""

from .normalize_global_var import NormalizeGlobalVar
