"""Whole models against other compilers and libraries: `python -m benchmarks.models [--models NAME ...]`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from benchmarks.zoo import MODELS


def environment(threads: int) -> dict[str, str]:
    """The variables of a process that computes with so many threads, and with all that the processor can do."""
    own = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    return own | {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "OPENBLAS", "MKL")}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seq", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--rounds", type=int, default=7, help="turns that each contestant gets")
    parser.add_argument("--profile", choices=MODELS, help="list the kernels of a model by their time instead")
    return parser.parse_args()


PROFILE = "import sys; from benchmarks.model_profile import profile; print(profile({!r}, {}, {}, {}))"


def main() -> None:
    options = arguments()
    if options.profile:
        for threads in options.threads:
            print(f"{options.profile}, batch {options.batch}, {threads} threads")
            code = PROFILE.format(options.profile, options.batch, options.seq, options.rounds)
            subprocess.run([sys.executable, "-c", code], env=environment(threads), check=True)


if __name__ == "__main__":
    main()
