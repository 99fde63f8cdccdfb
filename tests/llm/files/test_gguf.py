"""GGUF files, written by the `gguf` package: metadata and tensors as they were given; damaged ones are refused."""

from __future__ import annotations

import struct

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from hostile import mutations, refused, survives, written

from oneir.llm.files.blocks import dequantize
from oneir.llm.files.gguf import GGUFFile
from oneir.runtime.error import InvalidValue


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A file with metadata of every type and tensors of several formats, and the tensors."""
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -100)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -30000)
    writer.add_uint32("a.u32", 4_000_000_000)
    writer.add_int32("a.i32", -2_000_000_000)
    writer.add_float32("a.f32", 0.5)
    writer.add_uint64("a.u64", 1 << 63)
    writer.add_int64("a.i64", -(1 << 62))
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "Zürich ▁")
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.floats", [0.25, 4.0])
    writer.add_array("a.texts", ["", "é", "abc"])
    rng = np.random.default_rng(0)
    tensors = {
        "f32": rng.standard_normal((2, 3, 4)).astype(np.float32),
        "f16": rng.standard_normal((5,)).astype(np.float16),
        "i32": np.arange(6, dtype=np.int32).reshape(3, 2),
    }
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    for name in ("Q4_0", "Q8_0", "BF16"):
        weights = rng.standard_normal((3, 64)).astype(np.float32)
        tensors[name] = quants.quantize(weights, GGMLQuantizationType[name])
        writer.add_tensor(name, tensors[name], raw_dtype=GGMLQuantizationType[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, tensors


def test_metadata_are_what_was_written(model):
    metadata = GGUFFile(model[0]).metadata
    got = {key[2:]: value for key, value in metadata.items() if key.startswith("a.")}
    arrays = {key: got.pop(key).tolist() for key in ("ints", "floats")}
    assert arrays == {"ints": [1, -2, 3], "floats": [0.25, 4.0]}
    expected = {"u8": 200, "i8": -100, "u16": 60000, "i16": -30000, "u32": 4_000_000_000, "i32": -2_000_000_000}
    expected |= {"f32": 0.5, "u64": 1 << 63, "i64": -(1 << 62), "f64": 0.1, "bool": True}
    assert got == expected | {"text": "Zürich ▁", "texts": ["", "é", "abc"]}
    assert {key: type(value) for key, value in got.items()}["bool"] is bool


def test_tensors_are_views_of_the_file(model):
    path, tensors = model
    file = GGUFFile(path)
    assert [*file.tensors] == [*tensors] and file.version == 3
    for name, array in tensors.items():
        tensor = file.tensors[name]
        assert tensor.data.tobytes() == array.tobytes() and not tensor.data.flags.writeable
        assert tensor.data.base is not None
    assert file.tensors["f32"][:2] == ((2, 3, 4), "F32")
    assert file.tensors["Q4_0"][:2] == ((3, 64), "Q4_0")
    bf16 = file.tensors["BF16"].data.view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(dequantize(file.tensors["BF16"].data, "BF16"), bf16)


def test_the_reader_of_the_package_agrees(model):
    reader = gguf.GGUFReader(model[0])
    file = GGUFFile(model[0])
    assert [tensor.name for tensor in reader.tensors] == [*file.tensors]
    for tensor in reader.tensors:
        assert file.tensors[tensor.name].data.tobytes() == tensor.data.tobytes()


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(tensors=0, entries=0, version=3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries)


def info(name="w", shape=(32,), kind=0, offset=0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def test_version_2_and_nested_arrays(tmp_path):
    inner = struct.pack("<IQ", 4, 2) + struct.pack("<II", 7, 8)
    content = header(entries=1, version=2) + text("k") + struct.pack("<IIQ", 9, 9, 1) + inner
    (value,) = GGUFFile(written(tmp_path / "n.gguf", content)).metadata["k"]
    assert value.tolist() == [7, 8]


def test_an_alignment_of_its_own(tmp_path):
    content = header(tensors=1, entries=1) + text("general.alignment") + struct.pack("<II", 4, 64) + info(shape=(2,))
    content += b"\0" * (-len(content) % 64) + struct.pack("<2f", 1, 2)
    tensor = GGUFFile(written(tmp_path / "a.gguf", content)).tensors["w"]
    assert tensor.data.view(np.float32).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"GGU", "expected 4 more bytes, found 3; the file may be cut short"),
        (b"PK\x03\x04" + bytes(40), "begins with the letters GGUF"),
        (header(version=1), "expected version 2 or 3 of GGUF, little endian, found 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "little endian, found 50331648"),
        (header(entries=1 << 60), "expected 8 more bytes, found 0"),
        (header(entries=1) + struct.pack("<Q", 1 << 60), "expected 1152921504606846976 more bytes, found 0"),
        (header(entries=1) + text("k") + struct.pack("<I", 13), "found number 13, 0 arrays deep"),
        (header(entries=1) + text("k") + struct.pack("<IIQ", 9, 4, 1 << 61), "expected 9223372036854775808 more bytes"),
        (header(entries=1) + text("k") + struct.pack("<IIQ", 9, 8, 1 << 58), "expected 2305843009213693952 more bytes"),
        (header(entries=1) + text("k") + struct.pack("<IIQ", 9, 9, 1 << 58), "more bytes"),
        (header(entries=1) + text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9, "4 arrays deep"),
        (header(entries=1) + text("k") + struct.pack("<IIQQ", 9, 8, 1, 99), "string 0 of 1 of an array goes past"),
        (header(entries=1) + struct.pack("<Q", 1) + b"\xff", "expected text in UTF-8"),
        (header(entries=2) + (text("k") + struct.pack("<IB", 0, 1)) * 2, "the metadata 'k' are there twice"),
        (header(tensors=1) + info(shape=(1,) * 5), "at most 4 dimensions of the tensor 'w', found 5"),
        (header(tensors=1) + info(shape=(1 << 40, 1 << 40)), "is said to have the shape"),
        (header(tensors=1) + info(), "'w', F32 of shape .32,., takes 128 bytes from 0 on, of 0 that follow the header"),
        (header(tensors=1) + info(offset=1 << 63) + bytes(256), "takes 128 bytes from 9223372036854775808 on"),
        (header(tensors=1) + info(shape=(33,), kind=2), "rows of whole blocks of 32 for Q4_0, found"),
        (header(tensors=2) + info(shape=(0,)) * 2, "the tensor 'w' is there twice"),
        (header(entries=1) + text("general.alignment") + struct.pack("<II", 4, 0), "expected a power of two"),
        (header(entries=1) + text("general.alignment") + struct.pack("<II", 4, 48), "found 48"),
    ],
)
def test_damaged_files_are_refused(content, message, tmp_path):
    path = written(tmp_path / "bad.gguf", content)
    with pytest.raises(InvalidValue, match=message) as error:
        GGUFFile(path)
    assert str(error.value).startswith(str(path))


def test_what_is_no_file_is_refused(tmp_path):
    refused("expected a file, found none", lambda: GGUFFile(tmp_path / "none.gguf"))
    refused("expected a file, found a folder", lambda: GGUFFile(tmp_path))


def test_formats_that_are_not_read_are_named(tmp_path):
    content = header(tensors=2) + info(shape=(256,), kind=16) + info("x", kind=1000)
    tensors = GGUFFile(written(tmp_path / "iq.gguf", content)).tensors
    assert tensors["w"].format == "IQ2_XXS" and tensors["x"].format == "number 1000"
    refused("weights in the format number 1000 are not read", lambda: dequantize(tensors["x"].data, "number 1000"))


def test_mutated_files_are_read_or_refused(model, monkeypatch):
    content = model[0].read_bytes()
    header_size = content.index(b"BF16") + 64  # where a change does the most

    def read_all():
        for tensor in GGUFFile("m.gguf").tensors.values():
            if tensor.data.size:
                assert dequantize(tensor.data, tensor.format).nbytes <= 64 * len(content)

    outcomes = set()
    for mutated in mutations(content[:header_size], 2000):
        in_memory = np.frombuffer(mutated + content[header_size:], np.uint8)
        monkeypatch.setattr("oneir.llm.files.gguf.map_file", lambda path, data=in_memory: data)
        outcomes.add(survives(read_all))
    assert outcomes == {True, False}
