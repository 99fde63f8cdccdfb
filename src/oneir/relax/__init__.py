"""Graphs of operators over tensors, and the program that runs them.

bb = relax.BlockBuilder()
x = relax.Var("x", relax.TensorStructInfo((n, 4), "float32"))
with bb.function("main", [x]):
    with bb.dataflow():
        out = bb.emit_output(relax.op.nn.relu(x))
    bb.emit_func_output(out)
mod = bb.finalize()
"""

from ..runtime.vm import ExecBuilder, Executable, VirtualMachine, VMInstrumentReturnKind
from . import analysis, frontend, op, transform, utils, vm
from .binding_rewrite import DataflowBlockRewrite
from .block_builder import BlockBuilder
from .emit_te import TEPlaceholderOp, te_tensor
from .expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExprWithOp,
    ExternFunc,
    Function,
    Id,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    const,
    extern,
    get_shape_of,
    make_shape,
)
from .pipeline import get_default_pipeline, get_pipeline, register_pipeline
from .struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .ty import DynTensorType, ObjectType, PackedFuncType, ShapeType, TensorType
from .vm_build import VMExecutable, build
