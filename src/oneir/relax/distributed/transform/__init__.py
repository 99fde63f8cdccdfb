"""The passes that make of a program over whole tensors the program that each worker runs, in their order:

PropagateSharding            # every tensor is placed, as those that annotate_sharding places ask for
LegalizeRedistribute         # tensors that change their place are gathered and cut
LowerGlobalViewToLocalView   # kernels compute parts; parts of sums are added up
LowerDistIR                  # parts are plain tensors, and worker 0's arguments are handed out
"""

from .legalize_redistribute import LegalizeRedistribute
from .lower_dist_ir import LowerDistIR
from .lower_global_view_to_local_view import LowerGlobalViewToLocalView
from .propagate_sharding import PropagateSharding

__all__ = ["LegalizeRedistribute", "LowerDistIR", "LowerGlobalViewToLocalView", "PropagateSharding"]
