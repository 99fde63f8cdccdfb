"""Every loop-level function of the five reference documents parses, each as it was published.

`tests/documents` holds their texts: 000 and 003 as printed, 001 in the old spelling of annotations, 002 without
indentation (restored there), 004 in both hand-written and printed style.
"""

from __future__ import annotations

import re

import pytest
from published import loop_functions

from oneir.ir import assert_structural_equal
from oneir.script import from_source
from oneir.tir.function import PrimFunc
from oneir.tir.stmt import BlockRealize, For

_DOCUMENTS = ["000", "001", "002", "003", "004"]
_FUNCTIONS = [(f"{d}-{i}", text) for d in _DOCUMENTS for i, text in enumerate(loop_functions(d))]


def test_all_documents_are_here():
    assert {name.split("-")[0] for name, _ in _FUNCTIONS} == set(_DOCUMENTS)


@pytest.mark.parametrize(("name", "text"), _FUNCTIONS, ids=[name for name, _ in _FUNCTIONS])
def test_function_parses(name: str, text: str):
    func = from_source(text, check_well_formed=False)
    assert isinstance(func, PrimFunc)
    written = re.search(r"def (\w+)", text)
    assert written is not None
    assert ("global_symbol" in func.attrs) == ("private=True" not in text)
    root = func.body
    assert isinstance(root, BlockRealize) and root.block.name_hint == "root"
    assert not root.block.reads and not root.block.writes
    assert len(root.block.alloc_buffers) == text.count("T.alloc_buffer")
    loops = [root.block.body] if isinstance(root.block.body, For) else list(root.block.body.seq)
    assert len(loops) == text.count(" T.grid(") == text.count("with T.block(") - text.count('T.block("root")')
    assert [b.name for b in func.buffer_map.values()] == re.findall(r"(\w+): T\.Buffer", text)
    for loop, declared in zip(loops, re.findall(r"for (.*?) in T\.grid", text), strict=True):
        names = []
        while isinstance(loop, For):
            names.append(loop.loop_var.name)
            loop = loop.body
        assert ", ".join(names) == declared
        block = loop.block
        assert block.reads and len(block.writes) == 1
        assert (block.init is not None) == any(v.iter_type == 2 for v in block.iter_vars)


def _named(document: str, name: str) -> list[PrimFunc]:
    """Every version of a function of that name in a document."""
    texts = [text for key, text in _FUNCTIONS if key.startswith(document) and f"def {name}(" in text]
    return [from_source(text, check_well_formed=False) for text in texts]


@pytest.mark.parametrize("name", ["linear0", "linear1", "relu0"])
def test_written_and_printed_versions_are_one_program(name: str):
    """The printed versions state what each block reads and writes; for the written ones it is inferred."""
    written, printed, *_ = _named("004", name)
    assert_structural_equal(written, printed)
    (older, *_) = _named("001", name)
    assert_structural_equal(older, printed)
