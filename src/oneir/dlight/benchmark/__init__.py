"""How fast functions are at sampled extents, here or on another machine, and scripts that measure them.

benchmark(func, dym_var_sample={"n": 128}, target="llvm")    # ([((128, 64), "float32")], median, std), in seconds
benchmark_relax_func(mod, "main", target="llvm")             # a table of the kernels that a graph calls
extract_from_relax(mod, "model", "folder", target="llvm")    # a script for each
"""

from .extract import (
    extract_all_func_info_from_relax,
    extract_from_relax,
    extract_func_info_from_prim_func,
    extract_prim_func,
)
from .measure import benchmark, benchmark_prim_func, benchmark_relax_func, default_dym_var_sample_func
