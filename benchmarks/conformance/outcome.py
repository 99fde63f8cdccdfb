"""What became of tests that are run one by one in another process, and how a page tells it."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
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


def run_all(names: Sequence[str], run: Callable[[str], Outcome], row: Callable[[str], str], kept: str) -> list[Outcome]:
    """Runs tests one after the other in another process, which is replaced if it dies.

    `row(name)` is the table's row of a test whose process died. Outcomes are written to build/`kept`.json as they come.
    """
    outcomes: list[Outcome] = []
    pool = _one_worker()
    began = time.perf_counter()
    for name in names:
        try:
            outcomes.append(pool.submit(run, name).result())
        except BrokenProcessPool:
            outcomes.append(Outcome(name, row(name), FAILED, "the process died"))
            pool = _one_worker()
        if len(outcomes) % 10 == 0 or len(outcomes) == len(names):
            _save(outcomes, ROOT / "build" / f"{kept}.json")
            print(f"{len(outcomes)} of {len(names)}, {time.perf_counter() - began:.0f} s", file=sys.stderr)
    pool.shutdown()
    return outcomes


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
    """An error, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _short(outcome: Outcome) -> str:
    """A reason as it stands in a table."""
    if outcome.status in (UNSUPPORTED, EXCLUDED):
        return outcome.reason.split("; these can")[0].replace("|", "/")
    kind, _, text = outcome.reason.partition(": ")
    if kind != "AssertionError":
        return f"{kind}: {text[:80]}".replace("|", "/")
    return "numbers differ" if "tolerance" in text or "not equal" in text or "not close" in text else text[:80]
