"""Objects as JSON."""

from __future__ import annotations

from ...ir.json import load_json as from_json_graph_str
from ...ir.json import save_json as to_json_graph_str

__all__ = ["from_json_graph_str", "to_json_graph_str"]
