"""How a program states the legalization of an operator.

@register_legalize("relax.my_op")
def legalize_my_op(builder, call):
    return builder.call_te(topi.exp, call.args[0])
"""

from __future__ import annotations

from typing import Any

from ....ir.op import register_op_attr
from ...operator_facts import CallRewrite, FLegalize


def register_legalize(op_name: str, legal_func: CallRewrite | None = None) -> Any:
    """States what `LegalizeOps` makes of the calls of an operator; a decorator when the function is left out."""
    return register_op_attr(op_name, FLegalize.key, legal_func)
