"""The dataflow pattern language: what pieces of a graph look like, finding them, and replacing them.

x = wildcard()
pattern = is_op("relax.add")(x, x)
func = rewrite_call(pattern, lambda expr, found: R.multiply(found[x], R.const(2.0)), func)
"""

from .context import PatternContext
from .pattern import (
    AndPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataflowVarPattern,
    DataTypePattern,
    DFConstraint,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    FunctionPattern,
    GlobalVarPattern,
    NotPattern,
    OrPattern,
    PatternSeq,
    PrimArrPattern,
    SameShapeConstraint,
    ShapePattern,
    StructInfoPattern,
    TupleGetItemPattern,
    TuplePattern,
    UnorderedTuplePattern,
    VarPattern,
    WildcardPattern,
    has_attr,
    has_dtype,
    is_call_dps_packed,
    is_call_packed,
    is_call_tir,
    is_const,
    is_dfv,
    is_expr,
    is_gv,
    is_op,
    is_shape,
    is_tuple,
    is_tuple_get_item,
    is_var,
    make_fused_bias_activation_pattern,
    register_df_node,
    reject,
    wildcard,
)
from .rewrite import (
    ExprPatternRewriter,
    OrRewriter,
    PatternMatchingRewriter,
    TupleRewriter,
    rewrite_bindings,
    rewrite_call,
)
