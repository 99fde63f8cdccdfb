"""`script.parser.core`: texts with their places, syntax trees, and reading what has no decorator."""

from __future__ import annotations

import ast
import inspect

import pytest

from oneir import IRModule, script, tir
from oneir.runtime.error import ParseError, TypeMismatch
from oneir.script import parser
from oneir.script import tir as T
from oneir.script.parser.core import diagnostics, doc, doc_core, entry, utils

SIZE = 4


def plain(x):
    return x + SIZE


def test_texts_have_places():
    source = diagnostics.Source(plain)
    assert (source.source_name, source.start_column) == (inspect.getsourcefile(plain), 0)
    assert source.full_source.splitlines()[source.start_line - 1] == "def plain(x):"
    tree = source.as_ast()
    assert isinstance(tree, doc_core.Module) and isinstance(tree.body[0], doc.FunctionDef)
    assert isinstance(tree.body[0].body[0], doc_core.Return) and doc.to_doc(tree) is doc.from_doc(tree) is tree
    assert diagnostics.Source(" x").source == " x"
    with pytest.raises(TypeMismatch, match="expected a function, a class or a text, found int"):
        diagnostics.Source(3)
    with pytest.raises(AttributeError, match="has no attribute 'parse'"):
        vars(doc_core)["__getattr__"]("parse")
    assert isinstance(doc.parse("x = 1"), ast.Module)


def test_the_package_offers_what_reads():
    assert parser.parse is entry.parse and parser.ir_module is script.ir_module
    with pytest.raises(AttributeError, match=r"module 'oneir\.script\.parser' has no attribute 'read'"):
        vars(parser)["__getattr__"]("read")


def test_what_is_read():
    text = "@T.prim_func\ndef f(a: T.handle):\n    A = T.match_buffer(a, (N,))\n    A[0] = 1.0"
    func = entry.parse(text, {"T": T, "N": 8})
    assert isinstance(func, tir.PrimFunc) and int(func.buffer_map[func.params[0]].shape[0]) == 8
    module = entry.parse(
        f"@I.ir_module\nclass M:\n{''.join('    ' + line + chr(10) for line in text.splitlines())}", {"N": 8}
    )
    assert isinstance(module, IRModule)
    with pytest.raises(ParseError, match="N"):
        entry.parse(text, {"T": T})


def test_what_functions_see():
    inner = 3

    def function():
        return inner

    class Class:
        def method(self):
            return inner

    for seen in (utils.inspect_function_capture(function), utils.inspect_class_capture(Class)):
        assert seen["inner"] == 3 and seen["SIZE"] == SIZE
