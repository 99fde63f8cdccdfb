"""What became of tests that are run one by one in another process, and how a page tells it."""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import re
import sys
import time
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PASSED, CONSTANT, FAILED, UNSUPPORTED = "passed", "passed with constants", "failed", "unsupported"
EXCLUDED = "excluded"
"""The test says nothing: it cannot be exported, or the reference itself gives other results each time."""


@dataclass(frozen=True)
class Outcome:
    """What became of a test; `operator` is the row of the table that it counts in."""

    test: str
    operator: str
    status: str
    reason: str = ""
    seconds: float = 0.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of a command that runs tests: which, for how long, and whether it writes their page in docs/."""
    parser.add_argument("patterns", nargs="*", help="regular expressions for names of tests; all tests without one")
    parser.add_argument("--missing", action="store_true", help="leave out tests that an earlier run did")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no test after these minutes")
    parser.add_argument("--longest", type=float, default=900, help="the seconds that a test may take")
    parser.add_argument("--write-docs", action="store_true", help="write the page in docs/; needs all outcomes")


def run_all(
    names: Sequence[str], run: Callable[[str], Outcome], row: Callable[[str], str], kept: str, options: Namespace
) -> tuple[list[Outcome], list[Outcome]]:
    """Runs tests one after the other in another process, which is replaced if it dies or takes too long.

    `options` are those of `add_options`. `row(name)` is the table's row of a test whose process died. Outcomes are kept
    in build/`kept`.json as they come, in place of those of an earlier run. Returns the outcomes of the tests that were
    asked for, and all that are kept; both in the order of `names`.
    """
    path = ROOT / "build" / f"{kept}.json"
    known = {x["test"]: Outcome(**x) for x in json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}
    asked = [n for n in names if not options.patterns or any(re.search(p, n) for p in options.patterns)]
    left = [n for n in asked if not (options.missing and n in known)]
    pool, began = _one_worker(), time.perf_counter()
    for i, name in enumerate(left):
        if time.perf_counter() - began > 60 * options.minutes:
            break
        try:
            known[name] = pool.submit(run, name).result(options.longest)
        except (BrokenProcessPool, TimeoutError) as error:
            died = isinstance(error, BrokenProcessPool)
            why = "the process died" if died else f"it took more than {options.longest:g} s"
            known[name] = Outcome(name, row(name), FAILED, why)
            for process in multiprocessing.active_children():
                process.kill()
            pool = _one_worker()
        _save([known[n] for n in names if n in known], path)
        if (i + 1) % 10 == 0 or i + 1 == len(left):
            print(f"{i + 1} of {len(left)}, {time.perf_counter() - began:.0f} s", file=sys.stderr)
    pool.shutdown()
    absent = [n for n in names if n not in known]
    if options.write_docs and absent:
        raise SystemExit(f"--write-docs: {len(absent)} tests have no outcome yet; run the command with --missing")
    return [known[n] for n in asked if n in known], [known[n] for n in names if n in known]


def _one_worker() -> ProcessPoolExecutor:
    """A process that is replaced now and then, so that what tests leave in its memory does not add up."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=50)


def _save(outcomes: Sequence[Outcome], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps([asdict(o) for o in outcomes], indent=1), encoding="utf-8")


def table(outcomes: Sequence[Outcome]) -> str:
    """A table in Markdown: how the tests of each operator went, and why not."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.operator].append(outcome)
    lines = ["| operator | tests | passed | failed | unsupported | why |", "| --- | --- | --- | --- | --- | --- |"]
    for operator, group in sorted(groups.items(), key=lambda item: item[0].lower()):
        counts = Counter(o.status for o in group)
        reasons = Counter(_short(o) for o in group if o.reason)
        passed = str(counts[PASSED] + counts[CONSTANT])
        if counts[CONSTANT]:
            passed += f" ({counts[CONSTANT]} with constants)"
        why = "; ".join(reason if n == 1 else f"{reason} ({n})" for reason, n in reasons.most_common(3))
        lines.append(
            f"| {operator} | {len(group)} | {passed} | {counts[FAILED] or ''} | {counts[UNSUPPORTED] or ''} | {why} |"
        )
    return "\n".join(lines)


def refusal(text: str) -> str:
    """Why a model is refused, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return (lines[0] if lines else text.splitlines()[0])[:300]


def failure(error: Exception) -> str:
    """An error, in one line, without the files of modules."""
    text = re.sub(r" from '[^']*\.py'", "", f"{type(error).__name__}: {error}")
    return " ".join(text.split())[:300]


def _short(outcome: Outcome) -> str:
    """A reason as it stands in a table."""
    if outcome.status in (UNSUPPORTED, EXCLUDED):
        return outcome.reason.split("; these can")[0].replace("|", "/")
    kind, _, text = outcome.reason.partition(": ")
    if kind != "AssertionError":
        return f"{kind}: {text[:80]}".replace("|", "/")
    return "numbers differ" if "tolerance" in text or "not equal" in text or "not close" in text else text[:80]
