"""The packed functions named `tir.analysis.NAME`, under the published name of the module that has them.

tir.analysis._ffi_api._identify_memcpy(func.body)
"""

from ...runtime.registry import functions_under

__getattr__ = functions_under("tir.analysis")
