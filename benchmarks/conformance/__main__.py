"""The command line: `python -m benchmarks.conformance onnx|torch [PATTERN ...] [--missing] [--write-docs]`."""

from __future__ import annotations

import argparse
from importlib import import_module

from .outcome import EXCLUDED, FAILED, add_options, run_all, table


def main() -> None:
    """Runs the tests of a suite whose names match, prints a table of them, and may write the suite's page in docs/."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformance", description=__doc__)
    parser.add_argument("suite", choices=["onnx", "torch"])
    add_options(parser)
    options = parser.parse_args()
    # Each suite needs its own framework.
    suite = import_module(f".{options.suite}", __package__)
    outcomes, kept = run_all(suite.names(), suite.run, suite.operator_of, f"{options.suite}_conformance", options)
    print(table([o for o in outcomes if o.status != EXCLUDED]))
    for outcome in outcomes:
        if outcome.status == FAILED:
            print(f"{outcome.test}: {outcome.reason}")
    print(suite.summary(outcomes))
    if options.write_docs:
        suite.PAGE.write_text(suite.page(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
