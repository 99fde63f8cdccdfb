"""What the parser knows, at one point, about the graph function that it is inside of, and the bindings made so far."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.expr import Var as TirVar
from ...ir.global_info import DeviceMesh, VDevice
from ...ir.span import Span
from ...relax.analysis.struct_info import erase_to_well_defined, tir_vars_in_struct_info
from ...relax.block_builder import BlockBuilder
from ...relax.expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    SeqExpr,
    TupleGetItem,
    Var,
    VarBinding,
    as_graph_expr,
)
from ...relax.normalize import is_leaf
from ...relax.struct_info import BaseCheckResult, StructInfo, struct_info_base_check
from ...runtime.error import InvalidValue, TypeMismatch


class WrongAnnotation(TypeMismatch):
    """What is annotated can not be true of the value."""


class FunctionState:
    """The parts of a function that were stated so far. A local function has a state of its own and the same builder."""

    def __init__(self, name: str, builder: BlockBuilder, pure: bool, global_infos: Mapping[str, Sequence[Any]]):
        self.name = name
        self.builder = builder
        self.pure = pure
        self.global_infos = global_infos
        self.params: list[Var] = []
        self.attrs: dict[str, Any] = {}
        self.ret_struct_info: StructInfo | None = None
        self.result: Expr | None = None
        self.symbols: dict[str, TirVar] = {}
        """The symbolic variables that this function declares."""
        self.branches = 0
        """How many conditions are around."""
        self.outputs: list[Var] | None = None
        """What `R.output` named in the dataflow block that is open."""

    # -- bindings --

    def bind(self, value: Any, info: StructInfo | None = None, name: str = "", span: Span | None = None) -> Var:
        """Binds a value to a new variable; `info`, if given, says what is to be known of it."""
        value = self.builder.normalize(as_graph_expr(value))
        known = self.builder.struct_info_of(value)
        if info is not None and info != known:
            # An annotation may say more or less than what is known of a value, but nothing else.
            if struct_info_base_check(info, known, self.builder.analyzer) is BaseCheckResult.FAIL_L0:
                raise WrongAnnotation(f"the annotation says {info}, but the value is {known}")
            if isinstance(value, (Call, If, TupleGetItem)):
                value.set_struct_info(info)
            known = info
        var = self.variable(name, known, span)
        self.append(VarBinding(var, value, span=span))
        return var

    def match_cast(self, value: Any, info: StructInfo, name: str = "", span: Span | None = None) -> Var:
        """Binds a value of which `info` is asserted when the program runs."""
        value = self.builder.normalize_argument(as_graph_expr(value))
        given = self.builder.struct_info_of(value)
        if struct_info_base_check(info, given, self.builder.analyzer) is BaseCheckResult.FAIL_L0:
            raise TypeMismatch(f"`{value}` can never be {info}: it is {given}")
        var = self.variable(name, info, span)
        self.append(MatchCast(var, value, info, span))
        return var

    def variable(self, name: str, info: StructInfo, span: Span | None) -> Var:
        """A variable of the block that is open."""
        dataflow = self.builder.current_block_is_dataflow()
        kind = DataflowVar if dataflow else Var
        return kind(name or self.builder.get_unique_name("lv" if dataflow else "gv"), info, span=span)

    def append(self, binding: Binding) -> None:
        """Adds a finished binding to the block that is open."""
        if self.outputs is not None:
            raise InvalidValue("R.output ends its dataflow block; nothing can be bound after it")
        self.builder.emit_normalized(binding)

    def vdevice(self, text: str) -> VDevice:
        """The device of the module that a text names: "llvm:0", or "llvm" for the first of its kind.

        The scope of its memory may follow: "opencl:1:global.texture".
        """
        kind, index, scope = [*text.split(":", 2), "", ""][:3]
        devices = [d for d in self.global_infos.get("vdevice", ()) if kind in ("vdevice", d.target.kind.name)]
        if (not index.isdigit() and index) or int(index or 0) >= len(devices):
            raise InvalidValue(
                f"the module has {len(devices)} devices of kind {kind!r}, found {text!r}; "
                "declare them with I.module_global_infos({'vdevice': [I.vdevice(...)]})"
            )
        device = devices[int(index or 0)]
        if scope and scope != device.memory_scope:
            raise InvalidValue(f"{text!r} means the device {kind}:{index} with {device.memory_scope!r} memory")
        return device

    def device_mesh(self, text: str) -> DeviceMesh:
        """The mesh of the module that a text names: "mesh[0]", the first of its global infos "mesh"."""
        name, _, index = text.removesuffix("]").partition("[")
        infos = self.global_infos.get(name, ())
        found = infos[int(index)] if index.isdigit() and int(index) < len(infos) else None
        if not isinstance(found, DeviceMesh):
            raise InvalidValue(
                f"the module declares no device mesh {text!r}; "
                "declare it with I.module_global_infos({'mesh': [R.device_mesh((2,), I.Range(0, 2))]})"
            )
        return found

    # -- blocks --

    def begin_dataflow(self) -> None:
        """Opens a dataflow block."""
        if self.builder.current_block_is_dataflow():
            raise InvalidValue("a dataflow block cannot stand in another one")
        self.builder.switch_block(True)

    def end_dataflow(self) -> None:
        """Closes the dataflow block."""
        self.builder.switch_block(False)
        self.outputs = None

    def output(self, variables: Sequence[Any]) -> None:
        """Says which variables of the dataflow block are seen outside of it."""
        if not self.builder.current_block_is_dataflow():
            raise InvalidValue("R.output names the outputs of a dataflow block: write it inside `with R.dataflow():`")
        if self.outputs is not None:
            raise InvalidValue("R.output is stated already for this dataflow block; name all outputs in one")
        for var in variables:
            if not isinstance(var, DataflowVar):
                raise TypeMismatch(f"R.output expects variables that are bound in its dataflow block, found `{var}`")
        self.outputs = list(variables)
        for var in self.outputs:
            # What uses the variable refers to this very object, so the object becomes what it would have been if the
            # outputs were stated first.
            outside: Any = Var
            var.__class__ = outside

    def begin_branch(self) -> None:
        """Opens a branch of a condition."""
        if self.builder.current_block_is_dataflow():
            raise InvalidValue("a condition cannot stand in a dataflow block")
        self.branches += 1
        self.builder.begin_scope()
        self.builder.begin_binding_block()

    def end_branch(self) -> tuple[str, SeqExpr, StructInfo]:
        """Closes a branch: the name of its last variable, its bindings and value, and what is known of that."""
        blocks = self.builder.end_blocks()
        self.builder.end_scope()
        self.branches -= 1
        last = blocks[-1].bindings[-1] if blocks else None
        if last is None or isinstance(last.var, DataflowVar):
            raise InvalidValue("a branch ends with the variable that gets its value: y = value")
        result: Expr = last.var
        if isinstance(last, VarBinding) and not isinstance(blocks[-1], DataflowBlock):
            rest = list(blocks[-1].bindings[:-1])
            if is_leaf(last.value):
                result = last.value
            else:
                result = Var(self.builder.get_unique_name("gv"), last.var.struct_info, last.var.span)
                rest.append(last.replace(var=result))
            blocks[-1:] = [blocks[-1].replace(bindings=rest)] if rest else []
        return last.var.name, SeqExpr(blocks, result), last.var.struct_info

    # -- functions --

    def begin_function(self) -> None:
        """Opens the body of the function, once its parameters are known."""
        self.builder.begin_scope(self.params)
        self.builder.begin_binding_block()

    def returns(self, value: Any) -> None:
        """Ends the body: the function returns a value."""
        if self.result is not None:
            raise InvalidValue(f"`{self.name}` has returned already; one value is returned, at the end")
        if self.branches:
            raise InvalidValue("a branch does not return; its last variable is its value: y = value")
        if self.builder.current_block_is_dataflow():
            raise InvalidValue("a function returns outside of its dataflow blocks; name the value in R.output")
        self.result = self.builder.normalize_argument(as_graph_expr(value))

    def end_function(self, private: bool, span: Span | None) -> Function:
        """The finished function."""
        result = self.result
        if result is None:
            raise InvalidValue(f"`{self.name}` returns nothing; end it with `return` and a value, R.tuple() for none")
        blocks = self.builder.end_blocks()
        self.builder.end_scope()
        for block in blocks:
            block.span = _covering(block)
        attrs = dict(self.attrs)
        if not private:
            attrs.setdefault("global_symbol", self.name)
        elif "global_symbol" in attrs:
            raise InvalidValue(f"`{self.name}` is private, so nothing outside can call it by a global_symbol")
        body = SeqExpr(blocks, result, span=span)
        return Function(self.params, body, self.result_struct_info(result), self.pure, attrs, span)

    def result_struct_info(self, result: Expr) -> StructInfo:
        """What is known of the result outside: what was declared, or what the body says where that is more."""
        own = {v for p in self.params for v in tir_vars_in_struct_info(p.struct_info)}
        found = self.builder.struct_info_of(result)
        declared = self.ret_struct_info
        if declared is not None:
            check = struct_info_base_check(declared, found, self.builder.analyzer)
            if check is BaseCheckResult.FAIL_L0:
                # The published parser takes such functions: what callers are told is what they get.
                text = f"`{self.name}` is declared to return {declared}, but returns {found}; the latter is taken"
                warnings.warn(text, stacklevel=2)
            elif check is not BaseCheckResult.PASS:
                return declared
        # A local function sees the symbolic variables around it; around any other there are none.
        around = self.builder.shape_variable if self.builder.in_block else lambda v: None
        return erase_to_well_defined(found, lambda v: v if v in own else around(v), lambda v: None)


def _covering(block: BindingBlock) -> Span | None:
    """The stretch of the source from the first binding of a block to its last."""
    first, last = (getattr(block.bindings[i], "span", None) for i in (0, -1))
    if first is None or last is None:
        return first or last
    return Span(first.source_name, first.line, last.end_line, first.column, last.end_column)
