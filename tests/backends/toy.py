"""A back end in one file: it writes C for loops over flat buffers, and lets the interpreter run them.

It shows what a back end has to say, and that saying it takes one registration: no other file knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from oneir.codegen import Backend, register_backend
from oneir.dlight import ScheduleRule
from oneir.ir import IRModule, load_json, save_json
from oneir.ir import expr as e
from oneir.ir.transform import Pass
from oneir.runtime.error import CompileError
from oneir.runtime.module import DeferredFunctions, Module, Sources
from oneir.runtime.signature import Signature
from oneir.target import Target
from oneir.testing import interpret
from oneir.tir import (
    Allocate,
    AttrStmt,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    For,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    transform,
)

_OPERATORS = {
    e.Add: "+",
    e.Sub: "-",
    e.Mul: "*",
    e.Div: "/",
    e.FloorDiv: "/",
    e.FloorMod: "%",
    e.LT: "<",
    e.LE: "<=",
    e.EQ: "==",
    e.And: "&&",
}


class Toy(Backend):
    """C, interpreted."""

    kind: ClassVar[str] = "hybrid"
    formats: ClassVar[Mapping[str, str]] = {"c": "C code of the kernels"}
    calls_kernels: ClassVar[bool] = False

    def schedule_rules(self, target: Target) -> Sequence[ScheduleRule]:
        return []

    def lowering_passes(self, target: Target) -> list[Pass]:
        return [
            transform.PlanAndUpdateBufferAllocationLocation(),
            transform.LowerInitBlock(),
            transform.ConvertBlocksToOpaque(),
            transform.CompactBufferAllocation(),
            transform.LowerMatchBuffer(),
            transform.LowerOpaqueBlock(),
            transform.FlattenBuffer(),
            transform.Simplify(),
        ]

    def write(self, mod: IRModule) -> str:
        functions = [_function(var.name_hint, func) for var, func in mod.functions_items()]
        return "\n".join([*functions, f"// {save_json(mod)}"])

    def compile(self, text: str, target: Target) -> bytes:
        return text.encode()

    def show(self, text: str, target: Target, fmt: str) -> str:
        return text.rpartition("// ")[0]

    def load(
        self,
        objects: Sequence[bytes],
        signatures: dict[str, Signature],
        sources: Sources | None = None,
        deferred: DeferredFunctions | None = None,
    ) -> Module:
        return ToyModule(objects, signatures, sources)


class ToyModule(Module):
    """Functions that the interpreter runs."""

    def __init__(self, objects: Sequence[bytes], signatures: dict[str, Signature], sources: Sources | None):
        super().__init__(lambda: None, signatures, objects, sources)
        self.functions: dict[str, Any] = {}
        for code in objects:
            module = load_json(code.decode().rpartition("// ")[2])
            self.functions |= {f.attrs["global_symbol"]: module for f in module.functions.values()}

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        return lambda *args: interpret(self.functions[name], *args, entry=name)


def _function(name: str, func: Any) -> str:
    assert isinstance(func, PrimFunc)
    params = [f"{b.dtype}* {b.data.name}" for b in (func.buffer_map.get(p) for p in func.params) if b is not None]
    return f"void {name}({', '.join(params)}) {{\n{_indented(_stmt(func.body))}\n}}"


def _stmt(node: Any) -> str:
    match node:
        case SeqStmt():
            return "\n".join(map(_stmt, node.seq))
        case For():
            i = node.loop_var.name
            head = f"for (int {i} = {_expr(node.min)}; {i} < {_expr(node.min + node.extent)}; ++{i})"
            return f"{head} {{\n{_indented(_stmt(node.body))}\n}}"
        case IfThenElse(else_case=None):
            return f"if ({_expr(node.condition)}) {{\n{_indented(_stmt(node.then_case))}\n}}"
        case BufferStore():
            return f"{node.buffer.data.name}[{_expr(node.indices[0])}] = {_expr(node.value)};"
        case Allocate():
            return f"{node.dtype} {node.buffer_var.name}[{_expr(node.extents[0])}];\n{_stmt(node.body)}"
        case DeclBuffer() | AttrStmt():
            return _stmt(node.body)
    raise CompileError(f"the toy back end writes no {type(node).__name__}")


def _expr(node: Any) -> str:
    match node:
        case e.IntImm() | e.FloatImm():
            return str(node.value)
        case e.Var():
            return node.name
        case BufferLoad():
            return f"{node.buffer.data.name}[{_expr(node.indices[0])}]"
        case e.Max():
            return f"max({_expr(node.a)}, {_expr(node.b)})"
        case e.Cast():
            return f"({node.dtype}){_expr(node.value)}"
        case _ if type(node) in _OPERATORS:
            return f"({_expr(node.a)} {_OPERATORS[type(node)]} {_expr(node.b)})"
    raise CompileError(f"the toy back end writes no {type(node).__name__}: {node}")


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())


register_backend(Toy())
