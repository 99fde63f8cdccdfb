"""The command line: `python -m benchmarks.conformance onnx|torch [PATTERN ...] [--write-docs]`."""

from __future__ import annotations

import argparse
import re
from importlib import import_module

from .outcome import EXCLUDED, FAILED, run_all, table


def main() -> None:
    """Runs the tests of a suite whose names match, prints a table of them, and may write the suite's page in docs/."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformance", description=__doc__)
    parser.add_argument("suite", choices=["onnx", "torch"])
    parser.add_argument("patterns", nargs="*", help="regular expressions for names of tests; all tests without one")
    parser.add_argument("--write-docs", action="store_true", help="write the page in docs/; runs all tests")
    options = parser.parse_args()
    if options.write_docs and options.patterns:
        parser.error("--write-docs needs all tests: leave out the patterns")
    # Each suite needs its own framework.
    suite = import_module(f".{options.suite}", __package__)
    names = [n for n in suite.names() if not options.patterns or any(re.search(p, n) for p in options.patterns)]
    kept = f"{options.suite}_conformance" if not options.patterns else f"{options.suite}_conformance_part"
    outcomes = run_all(names, suite.run, suite.operator_of, kept)
    print(table([o for o in outcomes if o.status != EXCLUDED]))
    for outcome in outcomes:
        if outcome.status == FAILED:
            print(f"{outcome.test}: {outcome.reason}")
    print(suite.summary(outcomes))
    if options.write_docs:
        suite.PAGE.write_text(suite.page(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main()
