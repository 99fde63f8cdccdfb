"""Damaged copies of files, and whether a reader survives them: it may refuse, and that with an error of ours."""

from __future__ import annotations

import copy
import json
import math
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oneir.runtime.error import OneIRError

COPIES = 2000 if os.environ.get("ONEIR_TEST_LONG") else 60
"""How many damaged copies of each kind of file are read."""
SECONDS = 20
"""Of the processor, after which reading a small file counts as endless; when it waits, after ten times as many."""
MEMORY = 2 << 30
"""What reading a small file may take, in bytes, besides what the process has."""
_EDGES = (0, 1, 0x7F, 0x80, 0xFF)
_DEEP = "too deep"
"""Stands for arrays within arrays, which Python would not write."""
_ODD = (
    *(None, True, "", "x", "x" * 100_000, [], {}, [None], {"": 0}, [1, "1"], _DEEP),
    *(0, 1, -1, 3, 1.5, 1e308, -0.0, 1 << 31, 1 << 63, -(1 << 63), 1 << 70, 10**400, math.nan, math.inf, -math.inf),
    *("../secret", "/etc/passwd", "\0", "\ud800", "model.safetensors", "1", "__class__", "{{ 7 * 7 }}"),
)
_CODE = (
    "compile",
    "exec",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "pickle.find_class",
    "subprocess.Popen",
)
"""Events that say that code runs (https://docs.python.org/3/library/audit_events.html)."""


def mutations(content: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """Copies with one to four changes each."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        data = bytearray(content)
        for _ in range(rng.integers(1, 5)):
            place = int(rng.integers(len(data) or 1))
            match rng.integers(6):
                case 0:
                    data[place : place + 1] = bytes([rng.integers(256)])
                case 1:
                    data[place : place + 1] = bytes([_EDGES[rng.integers(len(_EDGES))]])
                case 2:  # a count or an offset
                    data[place : place + 8] = int(rng.integers(1 << 62)).to_bytes(8, "little")
                case 3:
                    data[place : place + 4] = b"\xff" * 4
                case 4:
                    del data[place : place + int(rng.integers(1, 40))]
                case _:
                    data[place:place] = data[max(0, place - 20) : place]
        yield bytes(data)


def text_mutations(content: str, count: int, pieces: list[str], seed: int = 0) -> Iterator[str]:
    """Copies of a text in which pieces are put in, or parts are cut out, doubled or exchanged."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        text = content
        for _ in range(rng.integers(1, 4)):
            start = int(rng.integers(len(text) + 1))
            end = min(len(text), start + int(rng.integers(1, 30)))
            middle = [pieces[rng.integers(len(pieces))], "", text[start:end] * 2, text[start:end][::-1]]
            text = text[:start] + middle[rng.integers(4)] + text[end if rng.integers(2) else start :]
        yield text


def json_mutations(value: Any, count: int, seed: int = 0) -> Iterator[str]:
    """Texts of copies of a JSON object in which some values became others: of another type, huge, from another place.

    Values near the root change as often as those of long lists. Some keys are missing, some are there twice.
    """
    rng = np.random.default_rng(seed)
    for _ in range(count):
        changed = copy.deepcopy(value)
        for _ in range(rng.integers(1, 4)):
            holder, key = _place(changed, rng)
            match rng.integers(8):
                case 0:
                    del holder[key]
                case 1 | 2:
                    other, name = _place(changed, rng)
                    holder[key] = copy.deepcopy(other[name])
                case _:
                    holder[key] = copy.deepcopy(_ODD[rng.integers(len(_ODD))])
            if not changed:
                break
        text = json.dumps(changed).replace(json.dumps(_DEEP), "[" * 50_000 + "]" * 50_000)
        if isinstance(changed, dict) and changed and rng.integers(6) == 0:
            twice = json.dumps([*changed][rng.integers(len(changed))])
            text = f"{text[:-1]}, {twice}: {json.dumps(_ODD[rng.integers(len(_ODD))])}}}"
        yield text


def _place(value: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """An object or array somewhere in a value that is not empty, and one of its keys."""
    while True:
        keys = [*value] if isinstance(value, dict) else [*range(len(value))]
        key = keys[rng.integers(len(keys))]
        inner = value[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.integers(4) == 0:
            return value, key
        value = inner


def outcomes_alone(read: Callable[[], object], copies: Iterable[tuple[Path, bytes | str]], folder: Path) -> set[bool]:
    """Whether reading succeeds after a file has got each of some contents, in a process that is for this alone.

    It fails the test if reading raises any error but ours, dies, hangs, takes much memory, opens a file that is not in
    this folder, or runs code. What it needs is imported already. The process is one for all copies, since a fork of
    one that has imported much takes longer than reading does.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            for report in _reports(read, copies, folder.resolve()):
                os.write(writer, report.encode("utf-8", "replace")[:60_000] + b"\0")
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        *reports, rest = pipe.read().split("\0")
    signalled = -os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for number, report in enumerate(reports):
        if report not in ("read", "refused", "over"):
            pytest.fail(f"copy {number}: {report}")
    if reports[-1:] != ["over"]:
        pytest.fail(f"copy {len(reports)}: the process ended by {signal.Signals(signalled).name} {rest}")
    return {report == "read" for report in reports[:-1]}


def _reports(read: Callable[[], object], copies: Iterable[tuple[Path, bytes | str]], folder: Path) -> Iterator[str]:
    """What becomes of reading each copy, and "over" behind the last; this process is for it alone."""
    watching, seen = False, list[str]()

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if not watching:
            return
        outside = event == "open" and not (
            isinstance(arguments[0], (str, bytes)) and Path(os.fsdecode(arguments[0])).resolve().is_relative_to(folder)
        )
        if outside or event in _CODE:
            seen.append(f"{event} {arguments[:1]}")

    for ending in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(ending, signal.SIG_DFL)  # which ends the process wherever it is
    sys.addaudithook(watch)
    try:
        for path, content in copies:
            written(path, content)
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(10 * SECONDS)
            watching = True
            try:
                read()
                report = "read"
            except OneIRError:
                report = "refused"
            finally:
                watching = False
            yield f"what was read did {seen}" if seen else report
            seen.clear()
        yield "over"
    except BaseException:
        yield traceback.format_exc()


def survives(attempt: Callable[[], object]) -> bool:
    """Whether an attempt succeeds; any error but ours fails the test."""
    try:
        attempt()
    except OneIRError:
        return False
    return True


def refused(message: str, attempt: Callable[[], object]) -> None:
    """Asks that an attempt fails with our error and this message (a regular expression)."""
    with pytest.raises(OneIRError, match=message):
        attempt()


def written(path: Path, content: bytes | str) -> Path:
    """The path, with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
