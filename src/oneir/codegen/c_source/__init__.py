"""Code for devices as text in languages of the C family."""

from . import backend as backend  # registers the back ends
from .cuda import CUDA
from .dialect import Dialect
from .emitter import KernelEmitter, source_of
from .hip import HIP
from .metal import METAL
from .opencl import OPENCL
from .wgsl import Wgsl
