"""Files of tests that are also programs: `if __name__ == "__main__": oneir.testing.main()`."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs pytest on the file that calls, with the arguments of the command line, and exits with its status."""
    import pytest

    caller = sys._getframe(1).f_code.co_filename
    raise SystemExit(pytest.main([caller, *sys.argv[1:]]))
