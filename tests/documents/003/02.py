import torch
from torch import nn
from torch.export import export
from tvm.relax.frontend.torch import from_exported_program
