"""Transformations of TensorIR functions, one pass a file."""

from .bind_target import BindTarget
from .convert_blocks_to_opaque import ConvertBlocksToOpaque
from .flatten_buffer import FlattenBuffer
from .lower_init_block import LowerInitBlock
from .lower_intrin import LowerIntrin
from .lower_match_buffer import LowerMatchBuffer
from .lower_opaque_block import LowerOpaqueBlock
from .lower_tvm_builtin import LowerTVMBuiltin
from .make_packed_api import MakePackedAPI
from .pass_base import PrimFuncPass, prim_func_pass
from .unroll_loop import UnrollLoop, UnrollLoopConfig
from .vectorize_loop import VectorizeLoop
