"""Rewrite rules written as identities, compiled to Python functions.

    "x - (x // y) * y -> x % y"
    "(x * c1) // c2 -> x * (c1 // c2) where c2 > 0 and c1 % c2 == 0"

In a pattern `x`, `y`, `z` stand for any expression, the same name for the same expression; `c1`, `c2`, `c3` stand for
integer constants. On the right, arithmetic between constants is done at once and everything else is built by the
simplifier, so it arrives simplified. After `where` stands a Python expression of the constants and queries of
the simplifier: `lo(x)`, `hi(x)`, `nonzero(x)`, `less(x, y)`, ... One rule covers all orders of commutative operands, as
written first; with `=>` in place of `->` it covers the order as written alone, where what comes out depends on it.
`x + c1` also matches `x - 3` with c1 = -3. A constant that does not fit its dtype makes the rule not apply.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from ..ir import expr as e
from ..ir.operators import same_expr
from ..runtime.error import InternalError

CLASSES: dict[type, type] = {
    ast.Add: e.Add,
    ast.Sub: e.Sub,
    ast.Mult: e.Mul,
    ast.FloorDiv: e.FloorDiv,
    ast.Mod: e.FloorMod,
    ast.Lt: e.LT,
    ast.LtE: e.LE,
    ast.Eq: e.EQ,
    ast.NotEq: e.NE,
    ast.And: e.And,
    ast.Or: e.Or,
    ast.Not: e.Not,
}
FUNCTIONS = {"min": e.Min, "max": e.Max, "truncdiv": e.Div, "truncmod": e.Mod, "select": e.Select}
FIELDS = {e.Not: ("a",), e.Select: ("condition", "true_value", "false_value")}
COMMUTATIVE = {e.Add, e.Mul, e.Min, e.Max, e.EQ, e.NE, e.And, e.Or}

_QUESTIONS = {
    "divisible",
    "equal",
    "extremum",
    "hi",
    "index",
    "less",
    "less_equal",
    "lo",
    "nonzero",
    "remainder",
    "varies",
    "whole",
}

Term: TypeAlias = "str | int | tuple[Any, ...]"
"""A parsed pattern: a name, a number, or a node class followed by its operands."""


Shape: TypeAlias = "type | tuple[type, type, type]"
"""The class of a node, or its class followed by those of its operands."""


class Query(str):
    """A number that comes from a query of the simplifier when a rule applies: `lo(x)`, `remainder(x, c1)`."""


class Overflow(Exception):
    """A constant computed by a rule that does not fit its dtype."""


def same(a: Any, b: Any) -> bool:
    """Whether two expressions are the same structure; quick where they differ near the root.

    `x - 1` and `x + -1` are the same, and so are `x - y * 2` and `x + y * -2`.
    """
    if a is b:
        return True
    kind: type[e.PrimExpr] = a.__class__
    if kind is not type(b):
        if type(b) is e.Sub:
            a, b = b, a
        return type(a) is e.Sub and type(b) is e.Add and _opposite(a.b, b.b) and same(a.a, b.a)
    if kind is e.IntImm:
        return a.value == b.value and a.dtype is b.dtype
    if isinstance(a, e.BinaryOpExpr):
        return a.dtype is b.dtype and same(a.a, b.a) and same(a.b, b.b)
    if isinstance(a, e.Var):
        return False
    if kind is e.Call and (len(a.args) != len(b.args) or not all(map(same, a.args, b.args))):
        return False
    return same_expr(a, b)


def _opposite(a: Any, b: Any) -> bool:
    """Whether two constants, or two expressions with constant factors, are seen to be each other's negation."""
    if type(a) is e.IntImm and type(b) is e.IntImm:
        return a.value == -b.value and a.dtype is b.dtype
    if type(b) is not e.Mul or type(b.b) is not e.IntImm:
        return False
    if type(a) is e.Mul and type(a.b) is e.IntImm:
        return a.b.value == -b.b.value and same(a.a, b.a)
    return b.b.value == -1 and same(a, b.a)


def fitting(value: int, dtype: Any) -> Any:
    """The constant, where it fits the dtype; `Overflow` where not."""
    bits = dtype.bits
    low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if dtype.code == "int" else (0, 1 << bits)
    if not low <= value < high:
        raise Overflow
    return e.const(value, dtype)


def parse_term(node: ast.expr) -> Term:
    """One side of a rule, from Python's syntax tree."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=value) if isinstance(value, int):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if isinstance(value, int):
            return -value
        case ast.UnaryOp(op=ast.Not(), operand=a):
            return (e.Not, parse_term(a))
        case ast.BinOp(left=a, op=op, right=b) if type(op) in CLASSES:
            return (CLASSES[type(op)], parse_term(a), parse_term(b))
        case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in CLASSES:
            return (CLASSES[type(op)], parse_term(a), parse_term(b))
        case ast.BoolOp(op=op, values=[a, b]):
            return (CLASSES[type(op)], parse_term(a), parse_term(b))
        case ast.Call(func=ast.Name(id=name)) if name in _QUESTIONS:
            return Query(f"s.{ast.unparse(node)}")
        case ast.Call(func=ast.Name(id=name), args=args):
            return (FUNCTIONS[name], *(parse_term(a) for a in args))
        case _:
            raise InternalError(f"not part of a rewrite rule: {ast.unparse(node)}")


def is_constant(term: Term) -> bool:
    """Whether a term is a number once the pattern has matched."""
    if isinstance(term, tuple):
        return all(is_constant(t) for t in term[1:])
    return not isinstance(term, str) or isinstance(term, Query) or term.lstrip("-")[0] == "c"


def variants(term: Term, ordered: bool = False) -> Iterator[Term]:
    """A pattern in all orders of its commutative operands, unless it is `ordered`, and with `x - c` for `x + c`.

    Constants stand last, except in minima and maxima, whose operands are left in the order in which they were written.
    """
    if not isinstance(term, tuple):
        yield term
        return
    head, *operands = term
    choices = list(itertools.product(*(list(variants(t, ordered)) for t in operands)))
    for chosen in choices:
        yield (head, *chosen)
        if head is e.Add and is_constant(chosen[1]) and isinstance(chosen[1], str):
            yield (e.Sub, chosen[0], "-" + chosen[1])
    for chosen in choices:
        if ordered or head not in COMMUTATIVE:
            continue
        if head in (e.Min, e.Max) or not any(is_constant(t) for t in chosen):
            yield (head, *reversed(chosen))


def renamed(term: Term, names: dict[str, str]) -> Term:
    """The pattern with its names numbered by first use: equal for patterns that match the same things."""
    if isinstance(term, tuple):
        return (term[0], *(renamed(t, names) for t in term[1:]))
    if isinstance(term, str) and not isinstance(term, Query):
        sign, name = ("-", term[1:]) if term[0] == "-" else ("", term)
        return sign + names.setdefault(name, f"{name[0] if name[0] == 'c' else 'v'}{len(names)}")
    return term


class Rule:
    """One rule in one order of its operands."""

    __slots__ = ("_function", "condition", "pattern", "replacement", "text")

    def __init__(self, text: str, pattern: tuple[Any, ...], replacement: Term, condition: str):
        self.text, self.pattern, self.replacement, self.condition = text, pattern, replacement, condition
        self._function: Callable[..., Any] | None = None

    @property
    def root(self) -> type:
        """The node class that the rule rewrites."""
        return self.pattern[0]

    def may_match(self, operands: tuple[Shape, ...]) -> bool:
        """Whether operands of these shapes can match."""
        return all(_may_be(term, found) for term, found in zip(self.pattern[1:], operands, strict=True))

    @property
    def function(self) -> Callable[..., Any]:
        """`f(simplifier, dtype, *operands)`: the replacement, or None."""
        if self._function is None:
            self._function = _compile(self)
        return self._function


def shape_of(expr: Any) -> Shape:
    """The class of an expression, with those of its operands if it has two."""
    if isinstance(expr, e.BinaryOpExpr):
        return expr.__class__, expr.a.__class__, expr.b.__class__
    return expr.__class__


def _may_be(term: Term, found: Shape) -> bool:
    head, *operands = found if isinstance(found, tuple) else (found,)
    if isinstance(term, tuple):
        return head is term[0] and all(_may_be(t, s) for t, s in zip(term[1:], operands, strict=False))
    if isinstance(term, str) and not is_constant(term):
        return True
    return head is e.IntImm


def rule_texts(table: str) -> list[str]:
    """The rules of a table: one a line, which goes on in indented lines. What follows a `#` is left out."""
    texts: list[str] = []
    for line in table.splitlines():
        text = line.split("#")[0].strip()
        if line.startswith(" "):
            texts[-1] += f" {text}"
        elif text:
            texts.append(text)
    return texts


def parse_rules(table: str) -> list[Rule]:
    """The rules of a table, in all orders of their operands."""
    rules: list[Rule] = []
    for text in rule_texts(table):
        identity, _, condition = text.partition(" where ")
        ordered = "=>" in identity
        left, _, right = identity.partition("=>" if ordered else "->")
        pattern = parse_term(ast.parse(left.strip(), mode="eval").body)
        assert isinstance(pattern, tuple)
        replacement = parse_term(ast.parse(right.strip(), mode="eval").body)
        seen: set[Term] = set()
        for variant in variants(pattern, ordered):
            assert isinstance(variant, tuple)
            if variant[0] is not pattern[0]:  # Here x - c is a sum already.
                continue
            names: dict[str, str] = {}
            key = (renamed(variant, names), renamed(replacement, names), condition and tuple(names))
            if key not in seen:
                seen.add(key)
                rules.append(Rule(text, variant, replacement, condition.strip()))
    return rules


def _ordered(term: Term) -> Term:
    """The term with commutative operands in one order, to compare terms by."""
    if not isinstance(term, tuple):
        return term
    operands = [_ordered(t) for t in term[1:]]
    return (term[0], *(sorted(operands, key=repr) if term[0] in COMMUTATIVE else operands))


def _compile(rule: Rule) -> Callable[..., Any]:
    """Writes the rule as straight-line Python: cheap checks of classes first, then equality of repeated names."""
    fields = FIELDS.get(rule.root, ("a", "b"))
    checks: list[str] = []
    equalities: list[str] = []
    bound: set[str] = set()

    whole: dict[Term, str] = {}

    def match(term: Term, path: str, known: bool) -> None:
        if isinstance(term, tuple):
            whole[_ordered(term)] = path
            if not known:
                checks.append(f"if type({path}) is not {term[0].__name__}: return None")
            for field, operand in zip(FIELDS.get(term[0], ("a", "b")), term[1:], strict=True):
                match(operand, f"{path}.{field}", False)
        elif isinstance(term, str) and not is_constant(term):
            if term in bound:
                equalities.append(f"if not same({term}, {path}): return None")
            else:
                bound.add(term)
                checks.append(f"{term} = {path}")
        else:
            if not known:
                checks.append(f"if type({path}) is not IntImm: return None")
            if isinstance(term, str):
                sign, name = ("-", term[1:]) if term[0] == "-" else ("", term)
                if name in bound:
                    checks.append(f"if {name} != {sign}{path}.value: return None")
                else:
                    bound.add(name)
                    checks.append(f"{name} = {sign}{path}.value")
            else:
                checks.append(f"if {path}.value != {int(term)}: return None")

    for field, term in zip(fields, rule.pattern[1:], strict=True):
        match(term, f"_{field}", True)
    if rule.condition:
        equalities.append(f"if not ({_condition(rule.condition)}): return None")
    body, constant = _build(rule.replacement)
    if isinstance(rule.replacement, tuple):
        # A node that exists already is reused.
        body = whole.get(_ordered(rule.replacement), body)
    result = f"fitting({body}, dtype)" if constant else body
    lines = [f"def rule(s, dtype, {', '.join('_' + f for f in fields)}):"]
    lines += [f"    {line}" for line in [*checks, *equalities, f"return {result}"]]
    scope: dict[str, Any] = {c.__name__: c for c in [*CLASSES.values(), *FUNCTIONS.values(), e.IntImm]}
    scope.update(same=same, fitting=fitting)
    exec(compile("\n".join(lines), f"<{rule.text}>", "exec"), scope)
    return scope["rule"]


def _condition(text: str) -> str:
    """The condition with its queries as method calls of the simplifier `s`."""
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _QUESTIONS:
            node.func.id = f"s.{node.func.id}"
    return ast.unparse(tree)


_PYTHON = {
    cls: symbol for symbol, cls in (("+", e.Add), ("-", e.Sub), ("*", e.Mul), ("//", e.FloorDiv), ("%", e.FloorMod))
}
_PYTHON_FUNCTION = {e.Min: "min", e.Max: "max"}


def _build(term: Term) -> tuple[str, bool]:
    """Python text that makes a replacement, and whether it makes a number rather than an expression."""
    if not isinstance(term, tuple):
        return str(term), is_constant(term)
    head, *operands = term
    parts = [_build(t) for t in operands]
    texts = [text for text, _ in parts]
    if all(constant for _, constant in parts):
        if head in _PYTHON:
            return f"({texts[0]} {_PYTHON[head]} {texts[1]})", True
        if head in _PYTHON_FUNCTION:
            return f"{_PYTHON_FUNCTION[head]}({', '.join(texts)})", True
    if head is e.Select:
        texts[1:] = (f"fitting({text}, dtype)" if constant else text for text, constant in parts[1:])
    if head in (e.Not, e.Select):
        return f"s.make_{head.__name__.lower()}({', '.join(texts)})", False
    (a, a_constant), (b, b_constant) = parts
    if a_constant:
        return f"s.with_constant_left({head.__name__}, {a}, {b})", False
    if b_constant:
        return f"s.with_constant({head.__name__}, {a}, {b})", False
    return f"s.binary({head.__name__}, {a}, {b})", False
