"""The process of a worker: `python -m oneir.runtime.disco.process FACTS`, as `ProcessSession` starts it."""

from __future__ import annotations

import json
import sys
from typing import Any

from ..pool import num_threads, set_num_threads
from .link import FileMemory, socket_link
from .worker import Worker


def main(facts: dict[str, Any]) -> None:
    """Serves a session until it ends. The workers of a machine share its processors."""
    peers = {int(rank): socket_link(number) for rank, number in facts["peers"].items()}
    memory = FileMemory(facts["files"], facts["rank"])
    worker = Worker(facts["rank"], facts["num_workers"], facts["num_groups"], peers, memory)
    set_num_threads(max(1, num_threads() // facts["num_workers"]))
    worker.serve(socket_link(facts["control"]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
