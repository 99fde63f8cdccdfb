"""TVMScript: programs written as Python, and programs shown as Python.

from oneir.script import ir as I, relax as R, tir as T
"""

from __future__ import annotations

from . import printer as printer
from . import tir as tir

from . import ir as ir  # isort: skip
from . import relax as relax  # isort: skip
from .parser.module import from_source as from_source
from .parser.module import ir_module as ir_module

from . import highlight as highlight  # isort: skip
from . import ir_builder as ir_builder  # isort: skip
