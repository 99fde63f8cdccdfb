"""Transformations of TensorIR functions, one pass a file."""

from .bind_target import BindTarget
from .convert_blocks_to_opaque import ConvertBlocksToOpaque
from .flatten_buffer import FlattenBuffer
from .legalize_float_compute import BF16ComputeLegalize, FP8ComputeLegalize
from .legalize_float_storage import BF16StorageLegalize, FP8StorageLegalize
from .loop_partition import LoopPartition, LoopPartitionConfig
from .lower_init_block import LowerInitBlock
from .lower_intrin import LowerIntrin
from .lower_match_buffer import LowerMatchBuffer
from .lower_opaque_block import LowerOpaqueBlock
from .lower_tvm_builtin import LowerTVMBuiltin
from .make_packed_api import MakePackedAPI
from .narrow_index import ForceNarrowIndexToInt32, NarrowDataType
from .pass_base import PrimFuncPass, prim_func_pass
from .remove_no_op import RemoveNoOp
from .rewrite_unsafe_select import RewriteUnsafeSelect
from .simplify import Simplify, SimplifyConfig
from .storage_rewrite import StorageRewrite
from .unroll_loop import UnrollLoop, UnrollLoopConfig
from .vectorize_loop import VectorizeLoop
