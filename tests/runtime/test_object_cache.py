"""The cache on disk: what was put is found, damage and many writers do no harm, and its size stays bounded."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oneir.runtime import object_cache


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    chosen = tmp_path / "cache"
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(chosen))
    return chosen


def test_put_then_get():
    assert object_cache.get("a1") is None
    object_cache.put("a1", b"data")
    object_cache.put("b2", b"")
    assert object_cache.get("a1") == b"data"
    assert object_cache.get("b2") == b""
    object_cache.put("a1", b"newer")
    assert object_cache.get("a1") == b"newer"


def test_keys_tell_lists_of_parts_apart():
    keys = {
        object_cache.cache_key("ab", "c"),
        object_cache.cache_key("a", "bc"),
        object_cache.cache_key("abc"),
        object_cache.cache_key(),
    }
    assert len(keys) == 4
    assert object_cache.cache_key("x", b"y") == object_cache.cache_key("x", "y")


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d[:5], lambda d: d[:-1] + b"X", lambda d: b""])
def test_a_damaged_entry_is_a_miss_and_goes(directory, damage):
    object_cache.put("a1", b"some object code")
    path = directory / "a1"
    path.write_bytes(damage(path.read_bytes()))
    assert object_cache.get("a1") is None
    assert not path.exists()


def test_the_longest_unused_entries_are_evicted(directory):
    for age, name in enumerate(["newest", "middle", "oldest"]):
        object_cache.put(name, bytes(1000))
        os.utime(directory / name, (1e9 - age, 1e9 - age))
    object_cache.get("oldest")  # used just now, so `middle` is the one unused for longest
    object_cache.evict(directory, max_bytes=3000)  # three entries and their headers are more than that; two fit in 3/4
    assert object_cache.get("middle") is None
    assert object_cache.get("newest") is not None
    assert object_cache.get("oldest") is not None


def test_the_first_write_of_a_process_sweeps(directory, monkeypatch):
    monkeypatch.setattr(object_cache, "MAX_BYTES", 4000)
    monkeypatch.setattr(object_cache, "_bytes_until_sweep", 0)
    for number in range(20):
        object_cache.put(f"k{number}", bytes(900))
    assert sum(file.stat().st_size for file in directory.iterdir() if file.is_file()) <= 4000 + 2000
    assert object_cache.get("k19") == bytes(900)


def test_an_entry_larger_than_the_cache_is_not_stored(monkeypatch):
    monkeypatch.setattr(object_cache, "MAX_BYTES", 100)
    object_cache.put("big", bytes(101))
    assert object_cache.get("big") is None


def test_what_a_dead_writer_left_goes_after_an_hour(directory):
    object_cache.put("a1", b"data")
    for name, age in (("dead", 3700), ("alive", 3500)):
        leftover = directory / "writing" / name
        leftover.write_bytes(b"half")
        os.utime(leftover, (time.time() - age, time.time() - age))
    code = "from oneir.runtime import object_cache; assert object_cache.get('a1') == b'data'"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert [file.name for file in (directory / "writing").iterdir()] == ["alive"]


def test_a_user_without_a_home_has_no_cache(monkeypatch):
    def fail():
        raise RuntimeError("Could not determine home directory.")

    for name in ("ONEIR_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", fail)
    object_cache.put("a1", b"data")
    assert object_cache.get("a1") is None and not object_cache.holds(1)


def test_switched_off(monkeypatch):
    monkeypatch.setenv("ONEIR_CACHE_DIR", "")
    object_cache.put("a1", b"data")
    assert object_cache.cache_dir() is None
    assert object_cache.get("a1") is None


def test_a_directory_that_cannot_exist_is_no_cache(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path / "file" / "cache"))
    object_cache.put("a1", b"data")
    assert object_cache.get("a1") is None


def test_many_processes_write_and_read_the_same_keys(directory):
    code = """
import sys
from oneir.runtime import object_cache
writer = int(sys.argv[1])
for turn in range(60):
    key = f"shared{turn % 3}"
    object_cache.put(key, bytes([writer]) * (1000 + turn))
    found = object_cache.get(key)
    assert found is None or (len(set(found)) == 1 and 1000 <= len(found) < 1060), found
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, str(number)]) for number in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    assert sorted(file.name for file in directory.iterdir()) == ["shared0", "shared1", "shared2", "writing"]
    assert not list((directory / "writing").iterdir())
    assert all(object_cache.get(f"shared{number}") is not None for number in range(3))
