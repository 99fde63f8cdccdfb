"""The packed functions named `arith.NAME`, under the published name of the module that has them.

arith._ffi_api.DomainTouched(stmt, buffer, True, False)
"""

from ..runtime.registry import functions_under

__getattr__ = functions_under("arith")
