"""The host side of graphs: lowered graph functions as bytecode, and as native functions."""

from .bytecode import emit_bytecode
