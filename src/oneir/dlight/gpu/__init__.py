"""Default schedules for GPUs."""

from .attention import Attention
from .base import GPUScheduleRule
from .fallback import Fallback
from .few_rows import FewRows
from .gemv import GEMV
from .general_reduction import GeneralReduction
from .low_batch_gemv import LowBatchGEMV
from .matmul import Matmul
from .matmul_packed_rows import MatmulPackedRows
from .matmul_parts import MatmulInParts
from .matmul_tensorization import MatmulInt8Tensorization, MatmulTensorization
from .matmul_warpgroup import MatmulWarpgroup
from .reduction import Reduction
from .rmsnorm import RMSNorm
from .transpose import Transpose
