"""Access paths underline and annotate one occurrence of a node, where its identity would mean all."""

from __future__ import annotations

import itertools

import pytest

from oneir.ir.access_path import AccessPath
from oneir.ir.module import IRModule
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.script.highlight import cprint

ROOT = AccessPath.root()


@T.prim_func
def func(A: T.Buffer((8, 4), "float32"), n: T.int32):
    for i in range(8):
        A[i, 0] = A[i, n]
        A[i, n] = A[i, 0]


def underlined(node, path, **options):
    """The stretches of text with carets below them."""
    found = []
    lines = node.script(path_to_underline=[path], **options).splitlines()
    for code, carets in itertools.pairwise(lines):
        if carets.strip() and not carets.strip("^ "):
            found.append("".join(c for c, mark in zip(code, carets.ljust(len(code)), strict=False) if mark == "^"))
    return found


def test_one_occurrence_is_underlined():
    store = ROOT.attr("body").attr("body").attr("seq").array_item(0)
    assert underlined(func, store.attr("value")) == ["A[i, n]"]
    assert underlined(func, store.attr("value").attr("indices").array_item(1)) == ["n"]
    assert underlined(func, ROOT.attr("buffer_map").map_item(func.params[0]).attr("shape").array_item(1)) == ["4"]


def test_a_statement_is_underlined_with_its_body():
    assert underlined(func, ROOT.attr("body")) == ["for i in range(8):", "A[i, 0] = A[i, n]", "A[i, n] = A[i, 0]"]
    mod = IRModule({"f": func})
    path = ROOT.attr("functions").map_item(mod.get_global_var("f"))
    assert underlined(mod, path)[:2] == ["@T.prim_func", 'def f(A: T.Buffer((8, 4), "float32"), n: T.int32):']


def test_what_has_no_text_stands_for_the_part_around_it():
    index = ROOT.attr("body").attr("body").attr("seq").array_item(1).attr("indices")
    assert underlined(func, index.array_item_missing(2)) == ["A[i, n] = A[i, 0]"]
    assert underlined(func, ROOT.attr("body").attr("extent").attr("value")) == ["8"]


def test_a_path_leads_to_a_comment():
    store = ROOT.attr("body").attr("body").attr("seq").array_item(1)
    text = func.script(path_to_annotate={store: "here", ROOT.attr("body"): "loop"})
    assert "        A[i, n] = A[i, 0]  # here\n" in text + "\n" and "    # loop\n    for i in range(8):\n" in text


def test_a_prefix_is_a_name():
    with pytest.raises(
        InvalidValue, match="tir_prefix names a dialect in the text: expected an identifier, found '2T'"
    ):
        func.script(tir_prefix="2T")


def test_cprint_prints_programs_and_texts(capsys):
    cprint(func)
    cprint("x = 1", style="dark")
    assert capsys.readouterr().out == func.script() + "\nx = 1\n"
