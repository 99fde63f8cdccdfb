"""Front ends: programs of graphs from models that other libraries, or PyTorch-like modules of our own, describe."""

from .common import detach_params
