"""`python -m oneir.cli` is `oneir`."""

import sys

from .main import main

sys.exit(main())
