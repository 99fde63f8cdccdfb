"""A session with this process: files, functions, devices and modules, as a session with another one would have them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import oneir
from oneir import rpc, te
from oneir.rpc.base import random_key, split_random_key
from oneir.runtime.error import InvalidValue, NotRegistered


def test_a_module_is_uploaded_and_runs(tmp_path: Path) -> None:
    x = te.placeholder((4,), name="x")
    y = te.compute(x.shape, lambda i: x[i] + 1.0, name="y")
    path = tmp_path / "add.tar"
    oneir.compile(te.create_prim_func([x, y]).with_attr("global_symbol", "add")).export_library(path)
    session = rpc.LocalSession()
    session.upload(str(path))
    function = session.load_module("add.tar")["add"]
    given = oneir.runtime.tensor(np.arange(4, dtype="float32"), session.cpu())
    result = oneir.runtime.tensor(np.zeros(4, "float32"), session.cpu())
    function(given, result)
    np.testing.assert_array_equal(result.numpy(), [1, 2, 3, 4])


def test_files_come_back_and_go(tmp_path: Path) -> None:
    session = rpc.LocalSession()
    (tmp_path / "b.bin").write_bytes(b"file")
    session.upload(str(tmp_path / "b.bin"))
    session.upload(bytearray(b"content"), "a/c.bin")
    assert session.download("b.bin") == b"file"
    assert session.download("a/c.bin") == b"content"
    assert session.listdir() == "a,b.bin"
    session.remove("b.bin")
    session.remove("b.bin")
    assert session.listdir() == "a"
    with pytest.raises(InvalidValue, match=r"no file 'b\.bin' has been uploaded; there are: a"):
        session.download("b.bin")
    with pytest.raises(InvalidValue, match="pass target="):
        session.upload(b"content")
    with pytest.raises(InvalidValue, match=r"lie in its own folder; found the name '\.\./x'"):
        session.upload(b"content", "../x")


def test_registered_functions_are_called() -> None:
    oneir.register_global_func("test.rpc.add", lambda a, b: a + b)
    try:
        assert rpc.LocalSession().get_function("test.rpc.add")(2, 3) == 5
    finally:
        oneir.runtime.remove_global_func("test.rpc.add")
    with pytest.raises(NotRegistered):
        rpc.LocalSession().get_function("test.rpc.add")


def test_keys_are_unique() -> None:
    random.seed(3)
    first = random_key("10.0.0.1:80")
    random.seed(3)
    second = random_key("10.0.0.1:80", cmap={first})
    assert first != second
    assert [split_random_key(key)[0] for key in (first, second)] == ["10.0.0.1:80"] * 2
    with pytest.raises(InvalidValue, match="expected a key of a name, ':' and a number, found 'name'"):
        split_random_key("name")
