"""Passes over graphs, one a file."""

from .adjust_matmul_order import AdjustMatmulOrder
from .allocate_workspace import AllocateWorkspace
from .alter_op_impl import AlterOpImpl
from .annotate_tir_op_pattern import AnnotateTIROpPattern
from .attach_attr_layout_free_buffers import AttachAttrLayoutFreeBuffers
from .attach_external_modules import AttachExternModules
from .attach_global_symbol import AttachGlobalSymbol
from .bind_params import BindParams
from .bind_symbolic_vars import BindSymbolicVars
from .bound_indices import BoundIndices
from .bundle_model_params import BundleModelParams
from .call_tir_rewrite import CallTIRRewrite
from .canonicalize_bindings import CanonicalizeBindings
from .combine_parallel_matmul import CombineParallelMatmul
from .compute_prim_value import ComputePrimValue
from .convert_layout import ConvertLayout
from .convert_to_dataflow import ConvertToDataflow
from .dataflow_use_inplace_calls import DataflowUseInplaceCalls
from .dead_code_elimination import DeadCodeElimination
from .decompose_einsum import DecomposeEinsum
from .decompose_ops import DecomposeOpsForInference, DecomposeOpsForTraining
from .eliminate_common_subexpr import EliminateCommonSubexpr
from .expand_matmul_of_sum import ExpandMatmulOfSum
from .expand_tuple_arguments import ExpandTupleArguments
from .fast_math import FastMathTransform
from .fold_batchnorm import FoldBatchnorm
from .fold_batchnorm_to_conv2d import FoldBatchnormToConv2D
from .fold_constant import FoldConstant
from .fold_padding import FoldPadding
from .fold_requantization import FoldRequantization
from .fuse_attention import FuseAttention
from .fuse_dequantize import FuseDequantizeMatmul, FuseDequantizeTake
from .fuse_ops import FuseOps
from .fuse_ops_by_pattern import FuseOpsByPattern, FusionPattern, PatternCheckContext
from .fuse_tir import FuseTIR
from .fuse_transpose_matmul import FuseTransposeMatmul
from .gradient import Gradient
from .inline_functions import InlinePrivateFunctions
from .integer_products import IntegerProducts
from .kill_after_last_use import KillAfterLastUse
from .lambda_lift import LambdaLift
from .lazy_get_input import LazyGetInput
from .lazy_set_output import LazySetOutput
from .lazy_transform_params import LazyTransformParams
from .legalize_ops import LegalizeOps
from .lift_transform_params import LiftTransformParams
from .lower_alloc_tensor import LowerAllocTensor
from .lower_runtime_builtin import LowerRuntimeBuiltin, VMBuiltinLower
from .merge_composite_functions import MergeCompositeFunctions
from .normalize import Normalize
from .normalize_global_var import NormalizeGlobalVar
from .optimize_layout_transform import OptimizeLayoutTransform
from .pass_base import DataflowBlockPass, FunctionPass, dataflowblock_pass, function_pass
from .place_kernels import PlaceKernels
from .realize_vdevice import RealizeVDevice
from .remove_purity_checking import RemovePurityChecking
from .remove_redundant_reshape import RemoveRedundantReshape
from .remove_unused_outputs import RemoveUnusedOutputs
from .remove_unused_parameters import RemoveUnusedParameters
from .reorder_permute_dims_after_concat import ReorderPermuteDimsAfterConcat
from .reorder_take_after_matmul import ReorderTakeAfterMatmul
from .resolve_outputs import resolve_outputs
from .rewrite_cuda_graph import RewriteCUDAGraph
from .rewrite_dataflow_reshape import RewriteDataflowReshape
from .run_codegen import RunCodegen
from .scatter_rows import ScatterRows
from .split_call_tir_by_pattern import SplitCallTIRByPattern
from .split_conv_transpose import SplitConvTranspose
from .split_layout_rewrite_preproc import SplitLayoutRewritePreproc
from .static_plan_block_memory import StaticPlanBlockMemory
from .to_mixed_precision import ToMixedPrecision
from .to_non_dataflow import ToNonDataflow
from .topological_sort import TopologicalSort
from .update_param_struct_info import UpdateParamStructInfo
from .update_vdevice import UpdateVDevice
from .vm_shape_lower import VMShapeLower
