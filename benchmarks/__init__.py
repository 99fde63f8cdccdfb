"""Benchmarks, each run as `python -m benchmarks.NAME`. They print figures and judge nothing but ratios within one run.

The numerical libraries that they compare with run on one thread unless a benchmark asks for more; the variables that
say so must be set before NumPy is imported. They use the kernels that they choose for this processor, not those of one
that the environment names.
"""

import os

for _variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
for _variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(_variable, None)
