"""Models are compiled from copies that were pickled, as large ones are in other processes: so every kind can be."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from oneir.llm.runtime import program


@pytest.fixture(autouse=True)
def compiled_from_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(function: Callable[..., object], *arguments: object) -> None:
        copied, others = pickle.loads(pickle.dumps((function, arguments)))
        copied(*others)

    monkeypatch.setattr(program, "_LARGE", 0)
    monkeypatch.setattr(program, "apart", call)
