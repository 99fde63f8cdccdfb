"""The operator inventory, written in tensor expressions.

A, B = te.placeholder((4, 1), name="A"), te.placeholder((4, 8), name="B")
te.create_prim_func([A, B, topi.add(A, B)]).show()
"""

from . import tag
