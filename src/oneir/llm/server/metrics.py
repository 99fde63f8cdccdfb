"""Numbers for Prometheus: what the engine has done, and how long answers took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...serving.metrics import Histogram, head, line, responses, text
from ..engine.engine import Engine


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
        return text(self._lines())

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
            yield from head(f"oneir_{name}_total", "counter", what)
            yield line(f"oneir_{name}_total", value)
        gauges = {
            "requests_running": (engine.running, "Requests that run"),
            "requests_waiting": (engine.waiting, "Requests that wait"),
            "pages_used": (used, "Pages of the cache that requests hold"),
            "pages": (pages, "Pages of the cache"),
        }
        for name, (value, what) in gauges.items():
            yield from head(f"oneir_{name}", "gauge", what)
            yield line(f"oneir_{name}", value)
        yield from responses(self.responses)
        times = {
            "first_token_seconds": (self.first_token, "From a request to the first token of its answer"),
            "between_tokens_seconds": (self.between_tokens, "From a token to the next one"),
        }
        for name, (histogram, what) in times.items():
            yield from head(f"oneir_{name}", "histogram", what)
            yield from histogram.lines(f"oneir_{name}")
