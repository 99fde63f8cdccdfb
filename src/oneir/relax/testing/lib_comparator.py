"""A machine's kernels beside those of another library, call by call.

vm = relax.VirtualMachine(relax.build(mod, "llvm"), cpu())
vm.set_instrument(LibCompareVMInstrument(other_library, cpu()))
vm["main"](x)  # raises where a kernel of the other library gives something else
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.device import Device
from ...runtime.tensor import Tensor, empty


class LibCompareVMInstrument:
    """An instrument that runs each kernel again as the function of the same name in `mod`, on `device`.

    `mod` has `implements_function` and `get_function`: a compiled module, or an executable of a graph. The function is
    called with copies of the inputs, and its output, the last argument, must be what the kernel gave, but for `rtol`
    and `atol`; else an `AssertionError` is raised. Calls with other arguments than tensors, functions of the machine
    itself, and what `mod` lacks are not compared. `verbose` prints a line for each call.
    """

    def __init__(self, mod: Any, device: Device, verbose: bool = True, rtol: float = 1e-5, atol: float = 1e-5) -> None:
        self.mod = mod
        self.device = device
        self.verbose = verbose
        self.rtol = rtol
        self.atol = atol
        self.counter = 0

    def compare(
        self, name: str, ref_args: Sequence[Tensor], new_args: Sequence[Tensor], ret_indices: Sequence[int]
    ) -> None:
        """Calls the function with `new_args` and compares the arguments at `ret_indices` with `ref_args`."""
        self.mod.get_function(name, query_imports=True)(*new_args)
        for index in ret_indices:
            np.testing.assert_allclose(
                new_args[index].numpy(),
                ref_args[index].numpy(),
                rtol=self.rtol,
                atol=self.atol,
                err_msg=f"call {self.counter}, {name}",
            )
        self._say(f"is the same, call {self.counter}", name)
        self.counter += 1

    def skip_instrument(self, func: Callable[..., Any], name: str, before_run: bool, ret_val: Any, *args: Any) -> bool:
        """Whether a call is left out; for subclasses."""
        return False

    def __call__(self, func: Callable[..., Any], name: str, before_run: bool, ret_val: Any, *args: Any) -> None:
        if before_run or name.startswith("vm.builtin.") or not all(isinstance(arg, Tensor) for arg in args):
            return
        if not self.mod.implements_function(name, True):
            self._say("is not in the module", name)
            return
        if self.skip_instrument(func, name, before_run, ret_val, *args):
            return
        *inputs, output = args
        copies = [arg.copyto(self.device) for arg in inputs]
        result = empty(output.shape, output.dtype, self.device)
        self.compare(name, args, [*copies, result], [len(inputs)])

    def _say(self, what: str, name: str) -> None:
        if self.verbose:
            print(f"{name} {what}")
