"""Building and running graphs, under the names of earlier releases: `relax.vm.build`, `relax.vm.Executable`."""

from ..runtime.vm import Executable, VirtualMachine, VMInstrumentReturnKind
from .vm_build import build

__all__ = ["Executable", "VMInstrumentReturnKind", "VirtualMachine", "build"]
