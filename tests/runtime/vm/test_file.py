"""Files of executables: what comes back, what is mapped, and that damaged and hostile ones are refused."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import oneir
from oneir.runtime import Module, Tensor, cpu, load_module, register_func, tensor
from oneir.runtime.error import LibraryError
from oneir.runtime.signature import Param, Signature
from oneir.runtime.vm import Cost, ExecBuilder, Executable, Note, VirtualMachine
from oneir.runtime.vm.file import write_executable
from oneir.script import tir as T
from oneir.version import __version__


@T.prim_func
def scale(A: T.Buffer((4,), "float32"), W: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    T.func_attr({"global_symbol": "scale"})
    for i in range(4):
        B[i] = A[i] * W[i]


SIGNATURE = Signature("main", (Param("x", dtype="float32", shape=(4,)),))


def program_with_kernel() -> ExecBuilder:
    ib = ExecBuilder()
    ib.declare_function("scale", cost=Cost(4, 48))
    with ib.function("main", num_inputs=1, param_names=["x"], signature=SIGNATURE):
        uint8 = oneir.DataType("uint8")
        ib.emit_call("vm.builtin.alloc_storage", [ib.vm_state(), (16,), ib.imm(0), uint8, "global"], ib.r(1))
        ib.emit_call("vm.builtin.alloc_tensor", [ib.r(1), ib.imm(0), (4,), oneir.DataType("float32")], ib.r(2))
        weight = ib.convert_constant(np.arange(4, dtype="float32"), "weight")
        ib.emit_call("scale", [ib.r(0), weight, ib.r(2)], note=Note("relax.multiply", "model.py:4"))
        ib.emit_ret(ib.r(2))
    return ib


def rich() -> ExecBuilder:
    """Every kind of instruction, argument and constant."""
    ib = ExecBuilder()
    with ib.function("inner", num_inputs=1):
        ib.emit_ret(ib.r(0))
    with ib.function("main", num_inputs=2):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call("test.file.collect", [ib.imm(-5), ib.f("inner"), ib.vm_state(), ib.void_arg()], ib.r(2))
        ib.emit_goto(2)
        ib.emit_call(
            "test.file.collect",
            [
                np.arange(6, dtype="int64").reshape(2, 3),
                np.array(2.5, ml_dtypes.bfloat16),
                np.zeros((0, 3), "bool"),
                (1, 2, 3),
                (),
                "text ü",
                oneir.DataType("float8_e4m3fn"),
                ib.convert_constant(float("nan")),
                ib.convert_constant(1 << 62),
                ib.r(1),
            ],
            ib.r(2),
        )
        ib.emit_ret(ib.r(2))
    return ib


@pytest.fixture(scope="module")
def built():
    return Executable(program_with_kernel().program(), oneir.build(scale))


@pytest.mark.parametrize("name", ["model.so", "model.o", "model.tar", "model.oneir"])
def test_kernels_constants_and_facts_come_back(built, tmp_path, name):
    path = tmp_path / name
    assert built.export_library(path) == str(path)
    loaded = load_module(path)
    assert isinstance(loaded, Executable)
    assert loaded.as_text() == built.as_text() and loaded.stats() == built.stats()
    assert loaded.program.functions == built.program.functions
    vm = VirtualMachine(loaded, cpu())
    x = np.array([1, 2, 3, 4], "float32")
    np.testing.assert_array_equal(vm["main"](x).numpy(), [0, 2, 6, 12])
    loaded.set_constant("weight", np.ones(4, "float32"))
    np.testing.assert_array_equal(vm["main"](x).numpy(), x)


def test_every_kind_of_value_comes_back(tmp_path):
    register_func("test.file.collect", lambda *args: args, override=True)
    path = tmp_path / "rich.bin"
    original = rich().get()
    original.export_library(path)
    loaded = load_module(path)
    assert loaded.library is None and loaded.as_text() == original.as_text()
    assert repr(loaded.program.functions) == repr(original.program.functions)
    vm = VirtualMachine(loaded, cpu())
    number, closure, machine, nothing = vm["main"](1, 0)
    assert (number, closure.func_name, machine, nothing) == (-5, "inner", vm, None)
    matrix, scalar, empty, shape, no_shape, text, dtype, nan, large, arg = vm["main"](0, 9)
    np.testing.assert_array_equal(matrix.numpy(), [[0, 1, 2], [3, 4, 5]])
    assert scalar.dtype == "bfloat16" and scalar.shape == () and float(scalar.numpy()) == 2.5
    assert empty.shape == (0, 3) and empty.dtype == "bool"
    assert type(shape) is type(no_shape) is oneir.runtime.ShapeTuple and shape == (1, 2, 3) and no_shape == ()
    assert text == "text ü" and type(text) is str
    assert dtype == "float8_e4m3fn" and type(dtype) is not str
    assert nan != nan and large == 1 << 62 and arg == 9


def test_a_loaded_executable_is_exported_again(built, tmp_path):
    built.export_library(tmp_path / "a.tar")
    load_module(tmp_path / "a.tar").export_library(tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no linker")
def test_a_shared_library_is_not_exported_again(built, tmp_path):
    built.export_library(tmp_path / "a.so")
    with pytest.raises(LibraryError, match="loaded from a shared library cannot be exported again"):
        load_module(tmp_path / "a.so").export_library(tmp_path / "b.so")


def test_other_files_are_told_apart(built, tmp_path):
    built.library.export_library(tmp_path / "kernels.tar")
    assert isinstance(load_module(tmp_path / "kernels.tar"), Module)
    (tmp_path / "text").write_text("x" * 1000)
    for name in ("text", "absent"):
        with pytest.raises(LibraryError, match=name):
            load_module(tmp_path / name)
    with pytest.raises(LibraryError, match="does not exist"):
        built.export_library(tmp_path / "no" / "model.tar")


def test_a_linker_of_the_users_choice(built, tmp_path):
    called = []

    def fcompile(out, files, **options):
        called.append((len(files), options))
        subprocess.run(["cc", "-shared", "-o", out, *files, "-lm"], check=True)

    if shutil.which("cc") is None:
        pytest.skip("no linker")
    built.export_library(tmp_path / "model.so", fcompile, workspace_dir=str(tmp_path), flag=1)
    assert called == [(2, {"flag": 1})]
    assert isinstance(load_module(tmp_path / "model.so"), Executable)


def test_large_constants_are_mapped_not_read(tmp_path):
    ib = ExecBuilder()
    value = np.random.default_rng(0).standard_normal(1 << 22).astype("float32")
    with ib.function("main"):
        ib.emit_call("vm.builtin.copy", [np.ones(3, "int8")], ib.r(0))
        ib.emit_call("vm.builtin.copy", [value], ib.r(1))
        ib.emit_ret(ib.r(1))
    path = tmp_path / "large.bin"
    ib.get().export_library(path)
    loaded = load_module(path)
    weight = loaded.constant(1)
    assert isinstance(weight, Tensor) and not weight.writable and weight.address % 128 == 0
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("large.bin")]
    starts = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps]
    assert any(begin <= weight.address < end for begin, end in starts)
    del loaded
    np.testing.assert_array_equal(VirtualMachine(load_module(path), cpu())["main"]().numpy(), value)
    np.testing.assert_array_equal(weight.numpy(), value)


def test_only_the_runtime_is_needed(built, tmp_path):
    path = tmp_path / "model.tar"
    built.export_library(path)
    script = (
        "import sys\n"
        "for name in ('ir', 'arith', 'tir', 'te', 'script', 'codegen', 'driver', 'relax'):\n"
        "    sys.modules['oneir.' + name] = None\n"
        "import importlib.util, types, pathlib\n"
        f"package = types.ModuleType('oneir'); package.__path__ = [{os.path.dirname(oneir.__file__)!r}]\n"
        "sys.modules['oneir'] = package\n"
        "import numpy as np\n"
        "from oneir.runtime import load_module, cpu, VirtualMachine\n"
        f"vm = VirtualMachine(load_module({str(path)!r}), cpu())\n"
        "print(vm['main'](np.ones(4, 'float32')).numpy().tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[0.0, 1.0, 2.0, 3.0]", done.stderr


# -- damage --


@pytest.fixture(scope="module")
def rich_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("rich") / "rich.bin"
    rich().get().export_library(path)
    return path.read_bytes()


def test_truncated_files(rich_file, tmp_path):
    path = tmp_path / "cut.bin"
    for size in [0, 1, 50, len(rich_file) // 2, len(rich_file) - 100, len(rich_file) - 1]:
        path.write_bytes(rich_file[:size])
        with pytest.raises(LibraryError, match=r"cut\.bin"):
            load_module(path)
        path.write_bytes(rich_file[len(rich_file) - size :])
        with pytest.raises(LibraryError, match=r"cut\.bin"):
            load_module(path)


def test_flipped_bits(rich_file, tmp_path):
    """Any one bit: of the program, the footer, or a small constant. Only bits of padding make no difference."""
    path = tmp_path / "flipped.bin"
    text = rich_file.index(b"\0")
    data = 4096 * (1 + text // 4096)
    source = random.Random(0)
    places = [source.randrange(text) for _ in range(60)]
    places += [source.randrange(data, data + 48) for _ in range(20)]
    places += [source.randrange(len(rich_file) - 72, len(rich_file)) for _ in range(60)]
    for place in places:
        damaged = bytearray(rich_file)
        damaged[place] ^= 1 << source.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(LibraryError):
            load_module(path)


def forge(tmp_path, change, data: bytes = b"\0" * 128) -> str:
    """A file with a right checksum whose program was changed."""
    program = {
        "format": 3,
        "functions": [
            ["vm", "main", ["x"], 2, [["call", 1, 1, [0], None], ["ret", 1]], None],
            ["packed", "vm.builtin.copy", None],
        ],
        "constants": [],
        "names": {},
        "devices": [],
    }
    change(program)
    text = json.dumps(program).encode()
    sizes = struct.pack("<QQQ", 0, len(text), len(data))
    padding = b"\0" * (-len(text) % 4096)
    digest = hashlib.blake2b(text + sizes, digest_size=32).digest()
    path = tmp_path / "forged.bin"
    path.write_bytes(text + padding + data + b"oneir-graph-1:::" + sizes + digest)
    return str(path)


def test_a_forged_file_that_keeps_the_rules_is_read(tmp_path):
    assert VirtualMachine(load_module(forge(tmp_path, lambda program: None)), cpu())["main"](5) == 5


def set_instructions(*instructions):
    def change(program):
        program["functions"][0][4] = list(instructions)

    return change


def set_constant(value):
    return lambda program: program["constants"].append(value)


def set_function(place, value):
    def change(program):
        program["functions"][0][place] = value

    return change


def set_place(*value):
    return lambda program: program.update(data=list(value))


DIGEST = hashlib.sha256(b"\0" * 4).hexdigest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_instructions(["call", 2, 1, [0], None], ["ret", 0]), r"there is no register r\(2\), only 2"),
        (set_instructions(["call", -1, 1, [0], None], ["ret", 0]), r"there is no register r\(-1\)"),
        (set_instructions(["call", 1, 2, [0], None], ["ret", 0]), "there is no function 2, only 2"),
        (set_instructions(["call", 1, -1, [0], None], ["ret", 0]), "there is no function -1"),
        (set_instructions(["call", 1, 1, [1], None], ["ret", 0]), r"register r\(1\) is read"),
        (set_instructions(["call", 1, 1, [(2 << 56)], None], ["ret", 0]), "there is no constant 0"),
        (set_instructions(["call", 1, 1, [(3 << 56) + 7], None], ["ret", 0]), "there is no function 7"),
        (set_instructions(["call", 1, 1, [9 << 60], None], ["ret", 0]), "is no argument"),
        (set_instructions(["call", 1, 1, ["0"], None], ["ret", 0]), "expected an instruction"),
        (set_instructions(["call", 1, 1, [0], ["a"]], ["ret", 0]), "expected a note"),
        (set_instructions(["goto", 0]), "a jump by 0 leads nowhere"),
        (set_instructions(["goto", 1 << 70], ["ret", 0]), "leads nowhere"),
        (set_instructions(["if", 0, -1], ["ret", 0]), "leads nowhere"),
        (set_instructions(["if", 0, 1]), "leads nowhere"),
        (set_instructions(["ret", 1]), r"register r\(1\) is read"),
        (set_instructions(["call", 1, 1, [0], None]), "the last instruction must return or jump"),
        (set_instructions(["halt"]), "expected an instruction, found"),
        (set_instructions(), "it has no instructions"),
        (set_function(3, 1 << 40), "registers do not fit"),
        (set_function(3, 0), "registers do not fit"),
        (set_function(2, [3]), "expected a function"),
        (set_function(5, ["main", []]), "its signature is of another number of parameters"),
        (set_function(5, ["main", [["x", "cow", None, None, None, False, 1, 1]]]), "expected a parameter"),
        (set_function(5, ["main", [["x", "tensor", "cow", None, None, False, 1, 1]]]), "'cow' is no dtype"),
        (set_function(5, ["main", [["x", "tensor", None, ["-" * 9999], None, False, 1, 1, None]]]), "expected a text"),
        (set_function(5, ["main", [["x", "tensor", None, None, None, False, 0, 1, None]]]), "expected a parameter"),
        (set_function(1, "vm.builtin.copy"), "two functions of the program have the same name"),
        (set_constant(["tensor", "float32", [1 << 40], 0, DIGEST]), "lies outside of 128 bytes"),
        (set_constant(["tensor", "float32", [1], 128, DIGEST]), "lies outside of 128 bytes"),
        (set_constant(["tensor", "float32", [1], -128, DIGEST]), "lies outside"),
        (set_constant(["tensor", "float32", [1], 4, DIGEST]), "lies outside"),
        (set_constant(["tensor", "float32", [0, 1 << 70], 0, DIGEST]), "expected a constant"),
        (set_constant(["tensor", "float32", [-1, -1], 0, DIGEST]), "expected a constant"),
        (set_constant(["tensor", "handle", [1], 0, DIGEST]), "cannot hold dtype"),
        (set_constant(["tensor", "float32", [2], 0, DIGEST]), "is damaged"),
        (set_constant(["dtype", "cow"]), "'cow' is no dtype"),
        (set_constant(["shape", ["n"]]), "expected a constant"),
        (lambda program: program["names"].update(weight=0), "the name 'weight' is of constant 0; there are 0"),
        (lambda program: program["names"].update(weight="0"), "expected the places of named constants"),
        (
            lambda program: program.update(format=4, oneir="9.9"),
            rf"it has the format 4 of OneIR 9\.9; this release, {__version__}, reads the format 3: export it again",
        ),
        (lambda program: program.update(devices=[[4, "0"]]), "expected a device, found .4, '0'."),
        (lambda program: program.update(devices=[[0, 0]]), "expected a device, found .0, 0."),
        (lambda program: program.update(format=1), "it has the format 1; this release"),
        (lambda program: program.pop("format"), "it has the format None; this release"),
        (set_place(-1, 1, None), "expected where the constants lie"),
        (set_place(0, 1, None), "expected where the constants lie, found .0, 1, None."),  # the file has no library
        (set_place(0, -1, "weights"), "expected where the constants lie"),
        (set_place(0, 1, "../weights"), "expected where the constants lie"),
        (set_place(0, 1, "/weights"), "expected where the constants lie"),
        (set_place(0, 1), "expected where the constants lie"),
        (lambda program: program.pop("constants"), "expected functions, constants, names and devices"),
    ],
)
def test_hostile_programs(tmp_path, change, message):
    with pytest.raises(LibraryError, match=rf"(?s)forged\.bin holds no proper program: .*{message}"):
        load_module(forge(tmp_path, change))


def test_hostile_sizes_and_nesting(tmp_path):
    path = tmp_path / "sizes.bin"
    for sizes in [(0, 0, 1 << 62), (1 << 63, 0, 0), (0, (1 << 64) - 1, (1 << 64) - 1)]:
        packed = struct.pack("<QQQ", *sizes)
        path.write_bytes(b"oneir-graph-1:::" + packed + hashlib.blake2b(packed, digest_size=32).digest())
        with pytest.raises(LibraryError, match="its parts do not add up to its size"):
            load_module(path)
    text = b"[" * 100_000
    sizes = struct.pack("<QQQ", 0, len(text), 0)
    digest = hashlib.blake2b(text + sizes, digest_size=32).digest()
    path.write_bytes(text + b"\0" * (-len(text) % 4096) + b"oneir-graph-1:::" + sizes + digest)
    with pytest.raises(LibraryError, match="holds no proper program"):
        load_module(path)


def test_a_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "model.bin"
    first = rich().get()
    first.export_library(path)
    loaded = load_module(path)
    ib = ExecBuilder()
    ib.convert_constant(tensor(np.zeros(3)))
    write_executable(path, ib.program(), b"", {})
    np.testing.assert_array_equal(loaded.constant(2).numpy(), [[0, 1, 2], [3, 4, 5]])
    assert os.listdir(tmp_path) == ["model.bin"]


def test_weights_beside_a_file(tmp_path):
    """A file may say that its constants lie in another one of its folder, which then has to have the right size."""

    def change(program):
        set_constant(["tensor", "float32", [1], 0, DIGEST])(program)
        set_place(8, 4, "weights")(program)

    for name, message in (("weights", "weights, cannot be read: No such file"), ("..", "Is a directory")):
        with pytest.raises(LibraryError, match=message):
            load_module(forge(tmp_path, set_place(8, 4, name)))
    path = forge(tmp_path, change, b"")
    (tmp_path / "weights").write_bytes(b"\1" * 8 + b"\0" * 5)
    with pytest.raises(LibraryError, match="weights has another size than the weights of"):
        load_module(path)
    (tmp_path / "weights").write_bytes(b"\1" * 8 + b"\0" * 4)
    assert load_module(path).constant(0).numpy().tolist() == [0.0]
    (tmp_path / "weights").write_bytes(b"\1" * 12)
    with pytest.raises(LibraryError, match="the constant of 4 bytes is damaged"):
        load_module(path)
