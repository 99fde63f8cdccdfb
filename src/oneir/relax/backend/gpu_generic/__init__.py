"""What devices with threads have of their own: the parts of the pipeline of a target of this kind, and kernels."""

from ...pipeline import (
    dataflow_lower_passes,
    finalize_passes,
    get_default_pipeline,
    legalize_passes,
    library_dispatch_passes,
)
from .cumsum import gpu_2d_continuous_cumsum
from .sampling import generic_get_sample_index, gpu_multinomial_from_uniform
