"""Functions, containers and errors of `tvm_ffi`, as a library uses them that is written for it: a registry of kernels."""

import numpy as np
import tvm
import tvm_ffi
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tir as T


@tvm_ffi.register_error
class NoSuchKernel(RuntimeError):
    pass


@tvm_ffi.register_global_func("library.scale")
def scale(x, factor, out):
    out.copyfrom(x.numpy() * factor.numpy())


@tvm_ffi.register_global_func("library.find")
def find(name):
    kernel = tvm_ffi.get_global_func(name, allow_missing=True)
    if kernel is None:
        raise NoSuchKernel(f"the library has no kernel {name}")
    return kernel


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), factor: R.Tensor((4,), "float32")):
        n = T.int64()
        with R.dataflow():
            scaled = R.call_dps_packed("library.scale", (x, factor), out_sinfo=R.Tensor((n, 4), "float32"))
            result = R.add(scaled, x)
            R.output(result)
        return result


settings = tvm_ffi.convert({"factors": [1, 2, 3, 4], "name": "library.scale"})
assert isinstance(settings, tvm_ffi.Map) and isinstance(settings["factors"], tvm_ffi.Array)
assert tvm_ffi.structural_equal(settings["factors"], tvm_ffi.convert([1, 2, 3, 4]))

x, factor = np.random.randn(3, 4).astype("float32"), np.array(list(settings["factors"]), "float32")
out = tvm.runtime.tensor(np.zeros((3, 4), "float32"))
find_kernel = tvm_ffi.get_global_func("library.find")
find_kernel(settings["name"])(tvm.runtime.tensor(x), tvm.runtime.tensor(factor), out)
np.testing.assert_allclose(out.numpy(), x * factor, rtol=1e-6)

vm = tvm.relax.VirtualMachine(tvm.compile(Module, target="llvm"), tvm.cpu())
result = vm["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(factor)).numpy()
np.testing.assert_allclose(result, x * factor + x, rtol=1e-6)

try:
    find_kernel("library.rotate")
except NoSuchKernel as error:
    assert "no kernel library.rotate" in str(error)
else:
    raise AssertionError("a kernel that does not exist was found")
