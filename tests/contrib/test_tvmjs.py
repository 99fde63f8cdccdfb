"""Weights in shards: what is written is read again, by Python and by the machine's builtins, and files are checked."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from oneir.contrib import tvmjs
from oneir.runtime import cpu, get_global_func, tensor
from oneir.runtime.error import InvalidValue, NotRegistered, TypeMismatch

RNG = np.random.default_rng(0)


def weights() -> dict[str, np.ndarray]:
    return {
        "w_0": RNG.standard_normal((30, 40)).astype("float32"),
        "w_1": RNG.integers(-9, 9, (7,), dtype="int8"),
        "w_2": RNG.standard_normal((3, 5)).astype("float16"),
        "half": RNG.standard_normal((4, 4)).astype(ml_dtypes.bfloat16),
        "scalar": np.array(3.5, "float64"),
        "none": np.zeros((0, 3), "float32"),
    }


def dump(folder: Path, params: Any, **options: Any) -> dict[str, Any]:
    tvmjs.dump_tensor_cache(params, folder, show_progress=False, **options)
    return json.loads((folder / "tensor-cache.json").read_text())


def test_raw_tensors_are_read_as_they_were(tmp_path: Path):
    params = weights()
    dump(tmp_path / "new" / "folder", params, encode_format="raw", meta_data=lambda: {"model": "tiny"})
    found, metadata = tvmjs.load_tensor_cache(tmp_path / "new" / "folder", cpu())
    assert metadata == {"model": "tiny"} and list(found) == list(params)
    for name, value in params.items():
        assert found[name].dtype == value.dtype.name and found[name].shape == value.shape
        np.testing.assert_array_equal(found[name].numpy(), value)


def test_float32_is_rounded_to_bfloat16_and_read_in_either_dtype(tmp_path: Path):
    edges = np.array([1.0, 1.00390625, 1.01171875, 3.4e38, -3.4e38, np.inf, -0.0, 1e-40], "float32")
    params = {**weights(), "edges": edges}
    dump(tmp_path, {name: tensor(value) for name, value in params.items()})
    found, _ = tvmjs.load_tensor_cache(tmp_path)
    stored, _ = tvmjs.load_tensor_cache(tmp_path / "tensor-cache-b16.json")
    with np.errstate(over="ignore"):
        wanted = params["w_0"].astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(stored["w_0"].numpy(), wanted)
    np.testing.assert_array_equal(found["w_0"].numpy(), wanted.astype("float32"))
    largest = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    nearest = edges.astype(ml_dtypes.bfloat16).astype("float32")
    nearest[3:5] = largest, -largest  # numbers do not become infinite
    np.testing.assert_array_equal(found["edges"].numpy(), nearest)
    assert np.signbit(found["edges"].numpy()[6])
    nans = np.array([0x7F800001, 0xFFC00000], "uint32").view("float32")  # one whose upper half is that of infinity
    dump(tmp_path, {"nans": nans})
    assert np.isnan(tvmjs.load_tensor_cache(tmp_path)[0]["nans"].numpy()).all()
    np.testing.assert_array_equal(found["w_1"].numpy(), params["w_1"])


def test_shards_are_no_larger_than_asked_for_and_have_their_digests(tmp_path: Path):
    params = {f"p_{i}": np.full((n,), i, "uint8") for i, n in enumerate((600_000, 400_000, 100_000, 2_000_000, 5))}
    records = dump(tmp_path, iter(params.items()), shard_cap_mb=1)["records"]
    assert [[r["name"] for r in shard["records"]] for shard in records] == [["p_0", "p_1"], ["p_2"], ["p_3"], ["p_4"]]
    for shard in records:
        content = (tmp_path / shard["dataPath"]).read_bytes()
        assert len(content) == shard["nbytes"] and hashlib.md5(content).hexdigest() == shard["md5sum"]
    found, _ = tvmjs.load_tensor_cache(tmp_path)
    assert all(np.array_equal(found[name].numpy(), value) for name, value in params.items())


def test_a_folder_is_updated(tmp_path: Path):
    params = weights()
    dump(tmp_path, params, encode_format="raw", meta_data={"kept": 1})
    changes = {"w_0": params["w_0"] * 2, "w_3": np.arange(4)}
    after = dump(tmp_path, changes, encode_format="raw", update_if_exists=True)
    found, metadata = tvmjs.load_tensor_cache(tmp_path)
    assert metadata == {"kept": 1}
    for name, value in {**params, **changes}.items():
        np.testing.assert_array_equal(found[name].numpy(), value)
    for shard in after["records"]:
        assert hashlib.md5((tmp_path / shard["dataPath"]).read_bytes()).hexdigest() == shard["md5sum"]
    with pytest.raises(InvalidValue, match="'w_1' of 8 bytes cannot take the place of one of 7"):
        dump(tmp_path, {"w_1": np.zeros(8, "int8")}, encode_format="raw", update_if_exists=True)


def test_what_cannot_be_written_is_refused(tmp_path: Path):
    with pytest.raises(InvalidValue, match='encode_format must be "raw" or "f32-to-bf16", found \'zip\''):
        dump(tmp_path, {}, encode_format="zip")
    with pytest.raises(InvalidValue, match="there are two tensors 'a'"):
        dump(tmp_path, iter([("a", np.zeros(1)), ("a", np.zeros(1))]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("records"), "has no list of records"),
        (lambda d: d["records"][0].update(nbytes=3), "has 4807 bytes where 3 are expected"),
        (lambda d: d["records"][0].update(dataPath="../x.bin"), "'../x.bin' does not lie beside it"),
        (lambda d: d["records"][0].update(format="zip"), "expected the dataPath, nbytes and records of a raw-shard"),
        (lambda d: d["records"][0]["records"][0].update(shape=[31, 40]), r"takes 4960 bytes; found 4800 from byte 0"),
        (lambda d: d["records"][0]["records"][1].update(byteOffset=4801), r"found 7 from byte 4801 of 4807"),
        (lambda d: d["records"][0]["records"][1].update(shape=[-7]), "expected a name, a shape, a dtype and a place"),
    ],
)
def test_what_does_not_fit_its_description_is_refused(tmp_path: Path, change: Any, message: str):
    params = weights()
    description = dump(tmp_path, {name: params[name] for name in ("w_0", "w_1")}, encode_format="raw")
    change(description)
    (tmp_path / "tensor-cache.json").write_text(json.dumps(description))
    with pytest.raises(InvalidValue, match=message):
        tvmjs.load_tensor_cache(tmp_path)


def test_what_is_no_json_is_refused(tmp_path: Path):
    (tmp_path / "tensor-cache.json").write_text("{")
    with pytest.raises(InvalidValue, match="is no JSON"):
        tvmjs.load_tensor_cache(tmp_path)


def test_the_machine_keeps_tensors_by_name(tmp_path: Path):
    cache = {name: get_global_func(f"vm.builtin.tensor_cache.{name}") for name in ("load", "get", "update", "remove")}
    by_prefix = get_global_func("vm.builtin.param_array_from_cache")
    by_name = get_global_func("vm.builtin.param_array_from_cache_by_name")
    unpacked = get_global_func("vm.builtin.param_array_from_cache_by_name_unpacked")
    params = weights()
    dump(tmp_path, params, encode_format="raw")
    (tmp_path / "tensor-cache.json").rename(tmp_path / "ndarray-cache.json")  # as it was called before
    try:
        cache["load"](str(tmp_path), cpu().device_type, 0)
        for found, wanted in ((by_prefix("w", -1), 3), (by_prefix("w", 2), 2)):
            assert len(found) == wanted
            for i, value in enumerate(found):
                np.testing.assert_array_equal(value.numpy(), params[f"w_{i}"])
        for found in (by_name(["half", "scalar"]), unpacked("half", "scalar")):
            np.testing.assert_array_equal(found[0].numpy(), params["half"])
            np.testing.assert_array_equal(found[1].numpy(), params["scalar"])
        with pytest.raises(NotRegistered, match="no tensor 'w_3' is in the cache"):
            by_prefix("w", 4)
        other = tensor(np.ones(2))
        with pytest.raises(InvalidValue, match="a tensor 'half' is in the cache already"):
            cache["update"]("half", other)
        with pytest.raises(TypeMismatch, match="expected a Tensor to keep as 'half', found list"):
            cache["update"]("half", [1], True)
        cache["update"]("half", other, True)
        assert cache["get"]("half") is other
        cache["remove"]("half")
        assert cache["get"]("half") is None and cache["get"]("scalar") is not None
    finally:
        get_global_func("vm.builtin.tensor_cache.clear")()
    assert cache["get"]("scalar") is None
