"""Graphs of operators over tensors, and the program that runs them.

bb = relax.BlockBuilder()
x = relax.Var("x", relax.TensorStructInfo((n, 4), "float32"))
with bb.function("main", [x]):
    with bb.dataflow():
        out = bb.emit_output(relax.op.nn.relu(x))
    bb.emit_func_output(out)
mod = bb.finalize()
"""

from ..ir.expr import GlobalVar
from ..ir.span import Span
from ..ir.type import FuncType, TupleType, Type
from ..runtime.vm import ExecBuilder, Executable, VirtualMachine, VMFuncScope, VMInstrumentReturnKind
from ..runtime.vm import builder as exec_builder
from ..runtime.vm.program import SpecialReg, VMFuncKind
from . import analysis, backend, distributed, dpl, frontend, op, training, transform, utils, vm
from .base_py_module import BasePyModule
from .binding_rewrite import DataflowBlockRewrite
from .block_builder import BlockBuilder, DataflowScope, FunctionScope, TestingScope
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
from .expr_functor import ExprFunctor, PyExprMutator, PyExprVisitor
from .graph_svg import graph_svg
from .op import call_dps_packed, call_pure_packed, call_tir, call_tir_inplace, call_tir_with_grad
from .pipeline import (
    dataflow_lower_passes,
    default_build_pipeline,
    finalize_passes,
    get_default_pipeline,
    get_pipeline,
    legalize_passes,
    library_dispatch_passes,
    register_pipeline,
    static_shape_tuning_pipeline,
    zero_pipeline,
)
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
from .utils import args_converter, convert_to_expr, copy_with_new_vars, gen_call_tir_inputs, metadata_partitioner
from .vm_build import VMExecutable, build
