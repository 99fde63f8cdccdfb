"""A cache of compiled code on disk, shared by all processes of a user.

    key = cache_key("kernel", text, cpu)
    data = get(key)
    if data is None:
        data = compile(...)
        put(key, data)

Entries are files, named by key, in `ONEIR_CACHE_DIR` or the user's cache directory; `ONEIR_CACHE_DIR=""` turns the
cache off. The cache raises no errors: what cannot be read is a miss, and what cannot be written is not kept. Writers
make files in the folder `writing` and move them in one step, so readers see whole entries; each has a checksum, and a
damaged one is removed. What a killed writer left in the folder is removed an hour later, when a process first uses the
cache. When all entries together exceed `MAX_BYTES`, the least recently used are removed. `find` and `put_file` are for
entries that are mapped into memory, which have checksums of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from ..version import __version__

MAX_BYTES = 4 << 30

_MAGIC = b"oneir\x00c1"
_DIGEST_BYTES = 16
# Looking at every file costs more than a write does, so each process sweeps after this many bytes of its own, and once
# at its first write.
_SWEEP_EVERY = 1 << 25
_bytes_until_sweep = 0
_WRITING = "writing"
_ABANDONED_SECONDS = 3600
_visited: set[Path] = set()
"""The folders whose leftovers this process has removed."""


def cache_key(*parts: str | bytes) -> str:
    """A hex digest of `parts`, of this release and of the LLVM in use; different lists of parts have different keys."""
    from .llvm import llvm_version

    digest = hashlib.blake2b(digest_size=20)
    for part in (__version__, llvm_version(), *parts):
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def cache_dir() -> Path | None:
    """Where entries are, whether or not it exists yet; None when the cache is switched off."""
    chosen = os.environ.get("ONEIR_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen else None
    try:
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        return None
    return Path(base) / "oneir"


def get(key: str) -> bytes | None:
    """The data stored under `key`, or None."""
    path = _path(key)
    if path is None:
        return None
    try:
        content = path.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + _DIGEST_BYTES
    data = content[start:]
    if content[:start] != _MAGIC + _checksum(data):
        remove(key)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the time of the last use decides who is evicted
    return data


def put(key: str, data: bytes) -> None:
    """Store `data` under `key`; silently does nothing where the directory cannot be written."""
    put_file(key, [_MAGIC + _checksum(data), data])


def find(key: str) -> Path | None:
    """The file that `put_file` stored under `key`, or None. Whoever finds it damaged calls `remove`."""
    path = _path(key)
    try:
        if path is not None:
            os.utime(path)
        return path
    except OSError:
        return None


def remove(key: str) -> None:
    """Remove what is stored under `key`."""
    path = _path(key)
    if path is not None:
        with contextlib.suppress(OSError):
            path.unlink()


def holds(nbytes: int) -> bool:
    """Whether an entry of that many bytes may be kept: the cache is on, and that is no more than a quarter of it."""
    return cache_dir() is not None and nbytes <= MAX_BYTES // 4


def put_file(key: str, parts: Iterable[bytes | memoryview]) -> bool:
    """Store a file of those contents under `key`; false where it cannot be written or takes too much space."""
    global _bytes_until_sweep
    path = _path(key)
    parts = list(parts)
    size = sum(memoryview(part).nbytes for part in parts)
    if path is None or not holds(size):
        return False
    temporary = None
    try:
        folder = path.parent / _WRITING
        folder.mkdir(parents=True, exist_ok=True)
        if size > shutil.disk_usage(folder).free // 4:
            return False
        descriptor, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(parts)
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return False
    _bytes_until_sweep -= size
    if _bytes_until_sweep <= 0:
        _bytes_until_sweep = min(_SWEEP_EVERY, MAX_BYTES // 4)
        evict(path.parent)
    return True


def evict(directory: Path, max_bytes: int | None = None) -> None:
    """Removes the least recently used entries until the rest fits, with room to grow."""
    limit = MAX_BYTES if max_bytes is None else max_bytes
    entries = []
    try:
        with os.scandir(directory) as files:
            for file in files:
                with contextlib.suppress(OSError):
                    status = file.stat()
                    if file.is_file():
                        entries.append((status.st_mtime, status.st_size, file.path))
    except OSError:
        return
    entries.sort(reverse=True)
    total = sum(size for _, size, _ in entries)
    # Once over the limit, go down to three quarters of it, so that sweeping stays rare.
    limit = limit if total <= limit else limit * 3 // 4
    kept = 0
    for _, size, path in entries:
        kept += size
        if kept > limit:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _path(key: str) -> Path | None:
    directory = cache_dir()
    if directory is None:
        return None
    if directory not in _visited:
        _visited.add(directory)
        _remove_abandoned(directory / _WRITING)
    return directory / key


def _remove_abandoned(folder: Path) -> None:
    """Removes what was begun an hour ago or more, and not finished."""
    try:
        with os.scandir(folder) as files:
            old = [file.path for file in files if time.time() - file.stat().st_mtime > _ABANDONED_SECONDS]
    except OSError:
        return
    for path in old:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
