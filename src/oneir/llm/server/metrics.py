"""Numbers for Prometheus: what the engine has done, and how long answers took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from ..engine.engine import Engine

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """How many values were at most as large as each of some bounds."""

    def __init__(self, *bounds: float):
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Counts a value."""
        self._counts[next((i for i, bound in enumerate(self._bounds) if value <= bound), -1)] += 1
        self._sum += value

    def lines(self, name: str) -> Iterator[str]:
        """In Prometheus' text format."""
        totals = list(accumulate(self._counts))
        for bound, total in zip([*map(str, self._bounds), "+Inf"], totals, strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self._sum}"
        yield f"{name}_count {totals[-1]}"


class Metrics:
    """What a server counts. Only its event loop changes it."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self.responses: Counter[tuple[str, int]] = Counter()
        """By path and status."""
        self.first_token = Histogram(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
        """Seconds from a request to the first token of its answer."""
        self.between_tokens = Histogram(0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1)
        """Seconds for each further token."""

    def text(self) -> str:
        """All numbers in Prometheus' text format."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        engine, stats = self._engine, self._engine.stats
        used, pages = engine.pages
        counters = {
            "steps": (stats.steps, "Steps of the model"),
            "prompt_tokens": (stats.prompt_tokens, "Tokens of prompts"),
            "cached_prompt_tokens": (stats.cached_tokens, "Tokens of prompts that were found in the cache"),
            "generated_tokens": (stats.generated_tokens, "Tokens of answers"),
            "drafted_tokens": (stats.drafted_tokens, "Tokens that were guessed from repetitions"),
            "accepted_tokens": (stats.accepted_tokens, "Guesses that were right"),
            "preemptions": (stats.preemptions, "Requests that gave their pages to others and waited again"),
        }
        for name, (value, what) in counters.items():
            yield from (f"# HELP oneir_{name}_total {what}.", f"# TYPE oneir_{name}_total counter")
            yield f"oneir_{name}_total {value}"
        gauges = {
            "requests_running": (engine.running, "Requests that run"),
            "requests_waiting": (engine.waiting, "Requests that wait"),
            "pages_used": (used, "Pages of the cache that requests hold"),
            "pages": (pages, "Pages of the cache"),
        }
        for name, (value, what) in gauges.items():
            yield from (f"# HELP oneir_{name} {what}.", f"# TYPE oneir_{name} gauge", f"oneir_{name} {value}")
        yield from ("# HELP oneir_responses_total Responses.", "# TYPE oneir_responses_total counter")
        for (path, status), count in sorted(self.responses.items()):
            yield f'oneir_responses_total{{path="{path}",status="{status}"}} {count}'
        times = {
            "first_token_seconds": (self.first_token, "From a request to the first token of its answer"),
            "between_tokens_seconds": (self.between_tokens, "From a token to the next one"),
        }
        for name, (histogram, what) in times.items():
            yield from (f"# HELP oneir_{name} {what}.", f"# TYPE oneir_{name} histogram")
            yield from histogram.lines(f"oneir_{name}")
