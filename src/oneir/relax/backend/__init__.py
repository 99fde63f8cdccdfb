"""What compilers and libraries of others need to take part: the patterns that they know, and helpers for checks; and
what kinds of targets have of their own: parts of their pipelines, kernels, libraries.
"""

from . import adreno, cpu_generic, cuda, gpu_generic, metal, rocm
from .dispatch_sampling import DispatchSampling
from .dispatch_sort_scan import DispatchSortScan
from .pattern_registry import get_pattern, get_patterns_with_prefix, register_patterns
