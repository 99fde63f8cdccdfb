"""External modules: C++ sources and object files, called from exported modules."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.relax.frontend import nn
from oneir.relax.transform import AttachExternModules
from oneir.runtime.error import CompileError, InvalidValue, LibraryError, TypeMismatch, UnsupportedError

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")

SOURCE = """
#include <tvm/ffi/function.h>
#include <vector>

namespace {
int scaled_sum(DLTensor* a, DLTensor* b, double scale, DLTensor* c) {
  auto *x = static_cast<float*>(a->data), *y = static_cast<float*>(b->data), *z = static_cast<float*>(c->data);
  int64_t count = 1;
  for (int i = 0; i < c->ndim; ++i) count *= c->shape[i];
  std::vector<float> sums(count);
  for (int64_t i = 0; i < count; ++i) sums[i] = x[i] + y[i];
  for (int64_t i = 0; i < count; ++i) z[i] = static_cast<float>(scale) * sums[i];
  return 0;
}
int64_t length(const char* text, bool twice, int64_t more) {
  int64_t n = 0;
  while (text[n]) ++n;
  return (twice ? 2 * n : n) + more;
}
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(ext_scaled_sum, scaled_sum);
TVM_DLL_EXPORT_TYPED_FUNC(ext_length, length);
"""

SYMBOLS = {"ext_scaled_sum": lambda a, b, scale: nn.Tensor.placeholder(a.shape, a.dtype)}


class Model(nn.Module):
    def __init__(self, external: nn.ExternModule):
        self.external = external

    def forward(self, x: nn.Tensor, y: nn.Tensor) -> nn.Tensor:
        return nn.op.relu(self.external["ext_scaled_sum"](x, y, 0.5))


def export(external: nn.ExternModule) -> tuple:
    spec = {"forward": {"x": nn.spec.Tensor(("n", 4), "float32"), "y": nn.spec.Tensor(("n", 4), "float32")}}
    return Model(external).export_tvm(spec, allow_extern=True)


@needs_compiler
@pytest.mark.parametrize("from_file", [False, True])
def test_a_model_calls_compiled_code(tmp_path: Path, from_file: bool) -> None:
    source: str | Path = SOURCE
    if from_file:
        source = tmp_path / "code.cpp"
        source.write_text(SOURCE)
    mod, _, externals = export(nn.SourceModule(SYMBOLS, source, "cpp"))
    attached = AttachExternModules(externals)(mod)
    vm = relax.VirtualMachine(relax.build(attached, "llvm"), oneir.cpu())
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((3, 4)).astype("float32") for _ in range(2))
    result = vm["forward"](*map(oneir.runtime.tensor, (x, y))).numpy()
    np.testing.assert_allclose(result, np.maximum((x + y) * np.float32(0.5), 0), rtol=1e-6)


@needs_compiler
def test_an_object_file_and_what_its_functions_expect(tmp_path: Path) -> None:
    path = tmp_path / "code.o"
    nn.SourceModule({}, SOURCE, "cpp").compile(path)
    module = nn.ObjectModule({"ext_length": None, "ext_scaled_sum": None}, path).load()
    assert module["ext_length"]("four", True, 1) == 9
    assert module["ext_length"]("four", False, -1) == 3
    with pytest.raises(TypeMismatch, match="expects 3 arguments, found 1"):
        module["ext_length"]("four")
    with pytest.raises(TypeMismatch, match=r"argument 2 `arg2` of `ext_length`: expected an integer"):
        module["ext_length"]("four", True, "1")
    with pytest.raises(TypeMismatch, match=r"argument 0 `arg0` of `ext_scaled_sum`: expected a tensor"):
        module["ext_scaled_sum"](1, 2, 3.0, 4)
    with pytest.raises(LibraryError, match="does not export missing"):
        nn.ObjectModule({"ext_length": None, "missing": None}, path).load()


@needs_compiler
def test_what_the_compiler_says_is_shown() -> None:
    with pytest.raises(CompileError, match=r"(?s)failed:.*main\.cpp.*error"):
        nn.SourceModule(SYMBOLS, "int f( {\n", "cpp").load()


def test_without_a_compiler_it_is_said_what_to_do() -> None:
    with pytest.raises(CompileError, match=r"no compiler was found, looked for no-such-compiler. What to do: install"):
        nn.SourceModule(SYMBOLS, SOURCE, "cpp", compiler="no-such-compiler").load()


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidValue, match="there is no file"):
        nn.ObjectModule({}, tmp_path / "none.o")
    with pytest.raises(InvalidValue, match='expected the source format "cpp" or "cu", found \'rs\''):
        nn.SourceModule({}, SOURCE, "rs")
    with pytest.raises(UnsupportedError, match='the output format is "obj"'):
        nn.SourceModule({}, SOURCE, "cpp", output_format="wasm")
    with pytest.raises(UnsupportedError, match="use SourceModule or ObjectModule"):
        AttachExternModules([nn.ExternModule({})])(oneir.IRModule())
    with pytest.raises(TypeMismatch, match=r"expected an ExternModule, found 'a\.o'"):
        AttachExternModules(["a.o"])(oneir.IRModule())
    monkeypatch.delenv("TVM_HOME", raising=False)
    with pytest.raises(InvalidValue, match="TVM_HOME names the folder that has 3rdparty"):
        nn.SourceModule.get_includes(["cutlass/include"])


def test_no_external_modules_change_nothing() -> None:
    mod = oneir.IRModule()
    assert AttachExternModules([])(mod) is mod


def test_options_name_the_headers() -> None:
    (folder,) = nn.SourceModule.get_includes()
    assert (folder / "tvm/ffi/function.h").is_file()
    assert nn.SourceModule.get_compile_options("cpp") == ["-I", str(folder), "-c", "-O3", "-std=c++17", "-fPIC"]
