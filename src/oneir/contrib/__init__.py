"""Tools of other makers that OneIR works with, each in a module of its own."""

from __future__ import annotations

from . import cc as cc
from . import emcc as emcc  # which links WebAssembly
from . import hipcc as hipcc  # which compiles for AMD's GPUs
from . import ndk as ndk  # which links for Android
from . import nvcc as nvcc  # which compiles for CUDA devices
from . import popen_pool as popen_pool
from . import tar as tar
from . import tvmjs as tvmjs  # which shards weights for browsers
from . import utils as utils
from . import xcode as xcode  # which links for Apple's systems
