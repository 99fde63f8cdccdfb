"""Docs are written as Python that means what the tree says (Python's own parser is the oracle), and underlined."""

from __future__ import annotations

import ast
import itertools

import pytest

from oneir.ir.access_path import AccessPath
from oneir.runtime.error import InvalidValue, TypeMismatch
from oneir.script.printer import doc as d
from oneir.script.printer.doc_printer import to_python_script

a, b, c = (d.IdDoc(name) for name in "abc")
Kind = d.OperationKind
BINARY = [kind for kind in Kind if Kind._BinaryStart < kind < Kind._BinaryEnd]


def operation(kind, *operands):
    return d.OperationDoc(kind, operands)


def written_out(doc):
    """An expression with parentheses around every operation, so that nothing depends on how tightly they bind."""
    if isinstance(doc, d.IdDoc):
        return doc.name
    parts = [f"({written_out(part)})" for part in doc.operands]
    if doc.kind is Kind.IfThenElse:
        return f"{parts[1]} if {parts[0]} else {parts[2]}"
    text = to_python_script(operation(doc.kind, *[a] * len(parts)))
    symbol = text[:-1] if len(parts) == 1 else text[2:-2]
    return f"{symbol} {parts[0]}" if len(parts) == 1 else f" {symbol} ".join(parts)


def same_meaning(doc):
    return ast.dump(ast.parse(to_python_script(doc), mode="eval")) == ast.dump(ast.parse(written_out(doc), mode="eval"))


@pytest.mark.parametrize("outer", BINARY, ids=lambda kind: kind.name)
def test_parentheses_keep_the_grouping_of_binary_operators(outer):
    for inner in BINARY:
        for operands in ((operation(inner, a, b), c), (a, operation(inner, b, c))):
            if outer is inner and outer in (Kind.And, Kind.Or):  # Python's tree joins `a and b and c`
                continue
            assert same_meaning(operation(outer, *operands)), to_python_script(operation(outer, *operands))


def test_parentheses_around_unary_operators_and_conditionals():
    unary = (Kind.USub, Kind.Invert, Kind.Not)
    for inner, outer in itertools.product(unary, BINARY):
        assert same_meaning(operation(outer, operation(inner, a), b))
        assert same_meaning(operation(outer, a, operation(inner, b)))
        assert same_meaning(operation(inner, operation(outer, a, b)))
    choice = operation(Kind.IfThenElse, a, b, c)
    for place in range(3):
        operands = [a, b, c]
        operands[place] = choice
        assert same_meaning(operation(Kind.IfThenElse, *operands))
    assert to_python_script(choice.attr("x").call(a, key=choice)[a, b]) == (
        "(b if a else c).x(a, key=b if a else c)[a, b]"
    )


def test_atoms():
    for value in (None, True, -3, 0.1, 1e300, 'say "hi"\n', "back\\slash"):
        assert ast.literal_eval(to_python_script(d.LiteralDoc(value))) == value
    assert to_python_script(d.TupleDoc([a])) == "(a,)" and to_python_script(d.TupleDoc([])) == "()"
    assert to_python_script(d.DictDoc({a: b, c: d.ListDoc([a, b])})) == "{a: b, c: [a, b]}"
    assert to_python_script(a[()]) == "a[()]"
    assert to_python_script(a[d.SliceDoc(b, None, c), d.SliceDoc()]) == "a[b::c, :]"
    assert to_python_script(d.LambdaDoc([a, b], operation(Kind.Add, a, b))) == "lambda a, b: a + b"
    with pytest.raises(TypeMismatch, match="a LiteralDoc holds None, a str, an int, a float or a bool"):
        d.LiteralDoc([1])
    with pytest.raises(InvalidValue, match="the operation Add takes 2 operands, found 1"):
        to_python_script(operation(Kind.Add, a))
    with pytest.raises(RuntimeError, match="this IdDoc is an expression of a program"):
        list(a)


def test_statements():
    loop = d.ForDoc(d.TupleDoc([a, b]), c, [d.AssignDoc(a, b), d.ExprStmtDoc(c)])
    loop.comment = "first\nsecond"
    loop.body[0].comment = "third"
    branch = d.IfDoc(a, [], [d.AssertDoc(b, d.LiteralDoc("no")), d.WhileDoc(c, [])])
    func = d.FunctionDoc(
        d.IdDoc("f"), [d.AssignDoc(a, d.LiteralDoc(1), d.IdDoc("int"))], [b], d.LiteralDoc(None), [loop, branch]
    )
    func.comment = "Doc.\n\nMore."
    scope = d.ScopeDoc(a, b, [d.ReturnDoc(c)])
    script = to_python_script(d.ClassDoc(d.IdDoc("C"), [], [func, d.CommentDoc("x\ny"), scope]), indent_spaces=2)
    assert (
        script
        == '''class C:
  @b
  def f(a: int = 1) -> None:
    """
    Doc.

    More.
    """
    # first
    # second
    for a, b in c:
      a = b  # third
      c
    if a:
      pass
    else:
      assert b, "no"
      while c:
        pass

  # x
  # y
  with b as a:
    return c'''
    )
    ast.parse(script)


def test_what_cannot_be_written_is_refused():
    with pytest.raises(InvalidValue, match="a value, an annotation or both, found neither"):
        d.AssignDoc(a)
    with pytest.raises(InvalidValue, match="only a name can be annotated, found a TupleDoc"):
        d.AssignDoc(d.TupleDoc([a, b]), c, a)
    with pytest.raises(InvalidValue, match="found two empty ones"):
        d.IfDoc(a, [], [])
    stmt = d.ExprStmtDoc(a)
    stmt.comment = "one\ntwo"
    with pytest.raises(InvalidValue, match="the comment next to a statement is one line"):
        to_python_script(stmt)
    with pytest.raises(TypeMismatch, match="expected a doc that can stand here, found 3"):
        to_python_script(3)


def at(doc, *names):
    path = AccessPath.root()
    for name in names:
        path = path.attr(name)
    doc.source_paths = [*doc.source_paths, path]
    return doc


def test_the_longest_beginning_of_a_path_is_underlined():
    x, y = at(d.IdDoc("xx"), "body"), at(d.IdDoc("yy"), "body", "value")
    stmt = d.ExprStmtDoc(operation(Kind.Add, x, y))
    stmt.comment = "sum"
    path = AccessPath.root().attr("body")
    assert to_python_script(stmt, path_to_underline=[path]) == "xx + yy  # sum\n^^"
    assert to_python_script(stmt, path_to_underline=[path.attr("value").attr("b")]) == "xx + yy  # sum\n     ^^"
    both = to_python_script(stmt, path_to_underline=[path, path.attr("value")], print_line_numbers=True)
    assert both == "1 xx + yy  # sum\n  ^^   ^^"
    at(stmt, "body", "value")
    assert to_python_script(stmt, path_to_underline=[path.attr("value")]) == "xx + yy  # sum\n^^^^^^^"
    assert to_python_script(stmt, path_to_underline=[AccessPath.root().attr("other")]) == "xx + yy  # sum"
