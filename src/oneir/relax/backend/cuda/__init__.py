"""What GPUs of NVIDIA's have of their own: the parts of the pipeline of a target of this kind."""

from ...pipeline import (
    dataflow_lower_passes,
    finalize_passes,
    get_default_pipeline,
    legalize_passes,
    library_dispatch_passes,
)
from . import cublas, cudnn
