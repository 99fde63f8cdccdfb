"""Programs of graphs at run time: bytecode, the machine that executes it, and files of both.

ib = ExecBuilder()
with ib.function("main", num_inputs=1):
    ib.emit_call("vm.builtin.shape_of", args=[ib.r(0)], dst=ib.r(1))
    ib.emit_ret(ib.r(1))
VirtualMachine(ib.get(), cpu())["main"](x)
"""

from __future__ import annotations

from . import (
    builtins,
    cuda_graph,
    kv_cache,
    kv_state,
    linalg,
    paged_kv_functions,
    rnn_state,
    sampling,
    sequence,
    signal,
    strings,
    tensor_cache,
)
from .builder import ExecBuilder, VMFuncScope
from .executable import Executable, NativeFunction, VMExecutable
from .footprint import Footprint, footprint
from .interpreter import Closure
from .machine import VirtualMachine, VMInstrumentReturnKind
from .program import (
    Arg,
    ArgKind,
    Call,
    Cost,
    Goto,
    If,
    Note,
    PackedFunction,
    Program,
    Ret,
    SpecialReg,
    VMFuncKind,
    VMFunction,
)
from .storage import Storage

__all__ = [
    "Arg",
    "ArgKind",
    "Call",
    "Closure",
    "Cost",
    "ExecBuilder",
    "Executable",
    "Footprint",
    "Goto",
    "If",
    "NativeFunction",
    "Note",
    "PackedFunction",
    "Program",
    "Ret",
    "SpecialReg",
    "Storage",
    "VMExecutable",
    "VMFuncKind",
    "VMFuncScope",
    "VMFunction",
    "VMInstrumentReturnKind",
    "VirtualMachine",
    "footprint",
]
