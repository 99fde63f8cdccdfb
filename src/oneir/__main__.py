"""`python -m oneir` is `oneir`."""

import sys

from .cli.main import main

sys.exit(main())
