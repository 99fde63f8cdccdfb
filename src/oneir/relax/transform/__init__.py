"""Passes over graphs, one a file."""

from .annotate_tir_op_pattern import AnnotateTIROpPattern
from .call_tir_rewrite import CallTIRRewrite
from .fold_constant import FoldConstant
from .fuse_ops import FuseOps
from .fuse_tir import FuseTIR
from .kill_after_last_use import KillAfterLastUse
from .legalize_ops import LegalizeOps
from .lower_alloc_tensor import LowerAllocTensor
from .lower_runtime_builtin import LowerRuntimeBuiltin, VMBuiltinLower
from .normalize_global_var import NormalizeGlobalVar
from .pass_base import DataflowBlockPass, FunctionPass, dataflowblock_pass, function_pass
from .static_plan_block_memory import StaticPlanBlockMemory
from .vm_shape_lower import VMShapeLower
