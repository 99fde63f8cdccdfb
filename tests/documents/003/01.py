import numpy as np
import tvm
from tvm import relax
