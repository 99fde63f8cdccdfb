"""Transformations of TensorIR functions, one pass a file."""

import sys

from . import vtcm_compaction_passes
from .annotate_device_regions import AnnotateDeviceRegions
from .annotate_entry_func import AnnotateEntryFunc
from .annotate_irregular_loop import AnnotateIrregularLoop
from .apply import Apply
from .bind_target import BindTarget
from .bind_unbound_statements import BindUnboundStatements
from .collapse_parallel_loops import CollapseParallelLoops
from .combine_context_call import CombineContextCall
from .common_subexpr_elim import CommonSubexprElimTIR
from .compact_buffer_allocation import CompactBufferAllocation
from .convert_blocks_to_opaque import ConvertBlocksToOpaque
from .convert_for_loops_to_serial import ConvertForLoopsToSerial
from .convert_ssa import ConvertSSA
from .decorate_device_scope import DecorateDeviceScope
from .default_gpu_schedule import DefaultGPUSchedule
from .exact_extremes import ExactExtremes
from .exact_moments import ExactMoments
from .extract_prim_func_constants import ExtractPrimFuncConstants
from .filter import Filter
from .flatten_buffer import FlattenBuffer
from .hoist_expression import (
    HoistedConditionals,
    HoistedLetBindings,
    HoistExpression,
    HoistExpressionConfig,
    HoistIfThenElse,
    HoistIfThenElseConfig,
)
from .hoist_first_iteration import HoistFirstIteration
from .infer_fragment import InferFragment
from .inject_double_buffer import InjectDoubleBuffer, InjectDoubleBufferConfig
from .inject_permuted_layout import InjectPermutedLayout
from .inject_ptx_async_copy import InjectPTXAsyncCopy
from .inject_ptx_ldg32 import InjectPTXLDG32
from .inject_rolling_buffer import InjectRollingBuffer
from .inject_software_pipeline import InjectSoftwarePipeline
from .inject_virtual_thread import InjectVirtualThread
from .inline_private_functions import InlinePrivateFunctions
from .instrument_bound_checkers import InstrumentBoundCheckers
from .instrument_profile_intrinsics import InstrumentProfileIntrinsics
from .legalize_float_compute import BF16ComputeLegalize, FP8ComputeLegalize, HalfComputeLegalize
from .legalize_float_storage import BF16StorageLegalize, FP8StorageLegalize, HalfStorageLegalize
from .lift_thread_binding import LiftThreadBinding
from .loop_partition import LoopPartition, LoopPartitionConfig
from .lower_async_dma import LowerAsyncDMA
from .lower_auto_copy import LowerAutoCopy
from .lower_cross_thread_reduction import LowerCrossThreadReduction
from .lower_custom_datatypes import LowerCustomDatatypes
from .lower_device_kernel_launch import LowerDeviceKernelLaunch
from .lower_device_storage_access_info import LowerDeviceStorageAccessInfo
from .lower_init_block import LowerInitBlock
from .lower_intrin import LowerIntrin
from .lower_match_buffer import LowerMatchBuffer
from .lower_opaque_block import LowerOpaqueBlock
from .lower_thread_allreduce import LowerThreadAllreduce
from .lower_tvm_builtin import LowerTVMBuiltin
from .lower_vtcm_alloc import LowerVtcmAlloc
from .lower_warp_memory import LowerWarpMemory
from .make_internal_api import MakeInternalAPI
from .make_packed_api import MakePackedAPI
from .make_unpacked_api import MakeUnpackedAPI
from .manifest_shared_memory_local_stage import ManifestSharedMemoryLocalStage
from .mark_reductions import MarkReductions
from .merge_shared_memory_allocations import MergeSharedMemoryAllocations
from .multiply_reciprocals import MultiplyReciprocals
from .narrow_index import ForceNarrowIndexToInt32, NarrowDataType
from .pass_base import PrimFuncPass, prim_func_pass
from .plan_and_update_buffer_allocation_location import PlanAndUpdateBufferAllocationLocation
from .pointer_value_type_rewrite import PointerValueTypeRewrite
from .reduce_branching_through_overcompute import (
    ReduceBranchingThroughOvercompute,
    ReduceBranchingThroughOvercomputeConfig,
)
from .remove_assume import RemoveAssume
from .remove_no_op import RemoveNoOp, RemoveNoOpConfig
from .remove_store_undef import RemoveStoreUndef
from .remove_weight_layout_rewrite_block import RemoveWeightLayoutRewriteBlock
from .renormalize_split_pattern import RenormalizeSplitPattern
from .rewrite_unsafe_select import RewriteUnsafeSelect
from .simplify import Simplify, SimplifyConfig
from .skip_assert import SkipAssert
from .split_arg_extremes import SplitArgExtremes
from .split_host_device import SplitHostDevice
from .storage_rewrite import StorageRewrite
from .thread_sync import ThreadSync
from .transform_mma_buffer_layout import TransformMmaBufferLayout
from .unify_thread_binding import UnifyThreadBinding
from .unroll_loop import UnrollLoop, UnrollLoopConfig
from .use_assume_to_reduce_branches import UseAssumeToReduceBranches
from .vectorize_loop import VectorizeLoop
from .verify_memory import VerifyMemory
from .verify_vtcm_limit import VerifyVTCMLimit
from .wide_accumulators import WideAccumulators

transform = sys.modules[__name__]
"""The module that is published as the place of the passes."""

__all__ = [
    "AnnotateDeviceRegions",
    "AnnotateEntryFunc",
    "AnnotateIrregularLoop",
    "Apply",
    "BF16ComputeLegalize",
    "BF16StorageLegalize",
    "BindTarget",
    "BindUnboundStatements",
    "CollapseParallelLoops",
    "CombineContextCall",
    "CommonSubexprElimTIR",
    "CompactBufferAllocation",
    "ConvertBlocksToOpaque",
    "ConvertForLoopsToSerial",
    "ConvertSSA",
    "DecorateDeviceScope",
    "DefaultGPUSchedule",
    "ExactExtremes",
    "ExactMoments",
    "ExtractPrimFuncConstants",
    "FP8ComputeLegalize",
    "FP8StorageLegalize",
    "Filter",
    "FlattenBuffer",
    "ForceNarrowIndexToInt32",
    "HalfComputeLegalize",
    "HalfStorageLegalize",
    "HoistExpression",
    "HoistExpressionConfig",
    "HoistFirstIteration",
    "HoistIfThenElse",
    "HoistIfThenElseConfig",
    "HoistedConditionals",
    "HoistedLetBindings",
    "InferFragment",
    "InjectDoubleBuffer",
    "InjectDoubleBufferConfig",
    "InjectPTXAsyncCopy",
    "InjectPTXLDG32",
    "InjectPermutedLayout",
    "InjectRollingBuffer",
    "InjectSoftwarePipeline",
    "InjectVirtualThread",
    "InlinePrivateFunctions",
    "InstrumentBoundCheckers",
    "InstrumentProfileIntrinsics",
    "LiftThreadBinding",
    "LoopPartition",
    "LoopPartitionConfig",
    "LowerAsyncDMA",
    "LowerAutoCopy",
    "LowerCrossThreadReduction",
    "LowerCustomDatatypes",
    "LowerDeviceKernelLaunch",
    "LowerDeviceStorageAccessInfo",
    "LowerInitBlock",
    "LowerIntrin",
    "LowerMatchBuffer",
    "LowerOpaqueBlock",
    "LowerTVMBuiltin",
    "LowerThreadAllreduce",
    "LowerVtcmAlloc",
    "LowerWarpMemory",
    "MakeInternalAPI",
    "MakePackedAPI",
    "MakeUnpackedAPI",
    "ManifestSharedMemoryLocalStage",
    "MarkReductions",
    "MergeSharedMemoryAllocations",
    "MultiplyReciprocals",
    "NarrowDataType",
    "PlanAndUpdateBufferAllocationLocation",
    "PointerValueTypeRewrite",
    "PrimFuncPass",
    "ReduceBranchingThroughOvercompute",
    "ReduceBranchingThroughOvercomputeConfig",
    "RemoveAssume",
    "RemoveNoOp",
    "RemoveNoOpConfig",
    "RemoveStoreUndef",
    "RemoveWeightLayoutRewriteBlock",
    "RenormalizeSplitPattern",
    "RewriteUnsafeSelect",
    "Simplify",
    "SimplifyConfig",
    "SkipAssert",
    "SplitArgExtremes",
    "SplitHostDevice",
    "StorageRewrite",
    "ThreadSync",
    "TransformMmaBufferLayout",
    "UnifyThreadBinding",
    "UnrollLoop",
    "UnrollLoopConfig",
    "UseAssumeToReduceBranches",
    "VectorizeLoop",
    "VerifyMemory",
    "VerifyVTCMLimit",
    "WideAccumulators",
    "prim_func_pass",
    "vtcm_compaction_passes",
]
