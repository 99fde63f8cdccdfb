"""`oneir.script.relax.distributed` by its other published name: one module object."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("oneir.script.relax.distributed")
