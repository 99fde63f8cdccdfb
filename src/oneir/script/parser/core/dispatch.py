"""What new dialects are written with: methods for the statements under a decorator, and for operators of their values.

    def kernel(function):                       # the decorator
        return parse(function, utils.inspect_function_capture(function))

    kernel.dispatch_token = "kernel"

    @dispatch.register("kernel", "FunctionDef")
    def read_function(parser, node):
        with parser.with_dispatch_token("kernel"), parser.var_table.with_frame(), T.prim_func():
            T.func_name(node.name)
            parser.visit_body(node.body)

What is registered under "default" is for statements that a dialect says nothing about.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeVar

ParseMethod = Callable[..., Any]
"""Reads a node with a parser: `method(parser, node)`."""
OpMethod = Callable[..., Any]
"""The value of an operator, from those of its operands."""

M = TypeVar("M", bound=Callable[..., Any])

ParseVTable: dict[tuple[str, str], ParseMethod] = {}
"""The methods that read nodes, by token and name of the node's class."""
OpVTable: dict[tuple[type, type[ast.AST], int], OpMethod] = {}
"""The methods of operators, by type and place of an operand."""


def register(token: str, type_name: str) -> Callable[[M], M]:
    """A decorator of the method that reads nodes of a class, such as "For", in functions of a token.

    Beside classes of syntax nodes, `type_name` may be "tvm_annotation" (`method(parser, expr)` gives the value of an
    annotation), "tvm_declare_function", and "enter_token" (`method(parser)`, whose result that of "exit_token" gets,
    `method(parser, result)`). What was registered before is replaced.
    """

    def registered(method: M) -> M:
        ParseVTable[token, type_name] = method
        return method

    return registered


def get(token: str, type_name: str, default: ParseMethod | None = None) -> ParseMethod | None:
    """The method that is registered for a token and a class of nodes, else `default`."""
    return ParseVTable.get((token, type_name), default)


def register_op(operand_type: type, op_node_type: type[ast.AST], operand_index: int) -> Callable[[M], M]:
    """A decorator of what computes an operator (`ast.Add`) of values whose operand at that place has a type.

    A value's type is the attribute `_dispatch_type` of its class, else its class. Of two operands with a method, the
    left one's is called.
    """

    def registered(method: M) -> M:
        OpVTable[operand_type, op_node_type, operand_index] = method
        return method

    return registered


def get_op(
    operand_type: type, op_node_type: type[ast.AST], operand_index: int, default: OpMethod | None = None
) -> OpMethod | None:
    """The method that is registered for an operator and the type of an operand, else `default`."""
    return OpVTable.get((operand_type, op_node_type, operand_index), default)
