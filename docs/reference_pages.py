"""The pages of the site that are read off declarations: the grammar of programs, and every option there is.

`docs/site_pages.py` adds them to the site.
"""

from __future__ import annotations

import importlib
import inspect
import re

from oneir.cli import explain
from oneir.ir.node import Field, Node
from oneir.runtime.error import OneIRError

FACT = re.compile(r'^\w+: Fact\[([^\n]+)\] = Fact\("(\w+)"\)\n(?:"""(.*?)""")?', re.MULTILINE | re.DOTALL)

# What stands in a program, from the whole to its parts, and the package whose nodes each part is.
PARTS = {
    "Modules and functions": ["ir.IRModule", "relax.expr.Function", "tir.PrimFunc"],
    "Statements of loops": ["tir.Stmt"],
    "Expressions of loops": ["ir.PrimExpr"],
    "Expressions of graphs": ["relax.expr.Expr"],
    "Bindings and blocks of graphs": ["relax.expr.Binding", "relax.expr.BindingBlock"],
    "Struct info": ["relax.struct_info.StructInfo"],
    "Types": ["ir.Type"],
}


def node_class(path: str) -> type[Node]:
    """The class at a path below `oneir`."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"oneir.{module}"), name)


def members(base: type[Node]) -> list[type[Node]]:
    """The public node classes below a class that stand in programs: not those whose docstrings call them a base."""
    found, pending = set(), [base]
    while pending:
        cls = pending.pop()
        if not cls.__name__.startswith("_") and not (inspect.getdoc(cls) or "").startswith("Base"):
            found.add(cls)
        pending += [sub for sub in cls.__subclasses__() if sub.__module__.startswith("oneir.")]
    return sorted(found - {base}, key=lambda cls: cls.__name__)


def field_text(cls: type, field: Field) -> str:
    """One field as the grammar writes it: its name with `!` if it defines variables, and its type."""
    declared = (vars(c).get("__annotations__", {}).get(field.name) for c in cls.__mro__)
    binds = "!" if field.kind == "binder" or field.defines else ""
    return f"{field.name}{binds}: {next(filter(None, declared), 'Any')}"


def production(cls: type[Node]) -> str:
    """`For(loop_var!: Var, min: PrimExpr, ...)`."""
    fields = [f for f in cls.init_fields if f.kind in ("child", "attr", "binder")]
    return f"{cls.__name__}({', '.join(field_text(cls, f) for f in fields)})"


def grammar_page() -> str:
    lines = [
        "# The grammar of programs\n",
        "Every node that may stand in a program, with its fields, as the sources declare them. `name!` is a field that",
        "defines the variables in it. What may stand where after each stage of a compilation is narrower:",
        "`driver/specs.py` says it.\n",
    ]
    for title, bases in PARTS.items():
        lines.append(f"## {title}\n")
        for path in bases:
            base = node_class(path)
            classes = [base] if path.endswith(("IRModule", "Function", "PrimFunc")) else members(base)
            if len(classes) > 1:
                lines.append(f"`{base.__name__}` is one of\n")
            for cls in classes:
                says = (inspect.getdoc(cls) or "").partition("\n")[0]
                where = cls.__module__.removeprefix("oneir.").replace(".", "/")
                lines.append(f"- `#!python {production(cls)}`\n\n    {says} *in `{where}.py`*\n")
    return "\n".join(lines)


def facts() -> list[tuple[str, str, str, str]]:
    """The declared facts of operators: key, type, meaning, file."""
    found = []
    for name in ("relax.operator_facts", "tir.op", "ir.op"):
        module = importlib.import_module(f"oneir.{name}")
        source = inspect.getsource(module)
        for match in re.finditer(FACT, source):
            meaning = " ".join((match[3] or "").split())
            found.append((match[2], match[1], meaning, name.replace(".", "/") + ".py"))
    return found


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def options_page() -> str:
    from oneir.ir.transform import PassContext
    from oneir.target.kinds import COMMON, KINDS

    lines = ["# Options and facts\n", "All that is declared by name, read off the sources.\n"]
    lines += ["## Options of `PassContext`\n", "`PassContext(config={...})`; another key is an error.\n"]
    lines += ["| option | type |", "| --- | --- |"]
    lines += [f"| `{key}` | {info['type']} |" for key, info in sorted(PassContext.list_configs().items())]
    lines += [
        "\n## Options of targets\n",
        "Every kind has " + ", ".join(f"`{name}`" for name in COMMON) + ". Their own:\n",
    ]
    lines += ["| kind | options |", "| --- | --- |"]
    for name, kind in sorted(KINDS.items()):
        own = [f"`{key}`: {cell(str(of))}" for key, of in kind.options.items() if key not in COMMON]
        lines.append(f"| `{name}` | {', '.join(own)} |")
    lines += ["\n## Facts of operators\n", "What passes look up on an operator, instead of its name.\n"]
    lines += ["| key | type | meaning | file |", "| --- | --- | --- | --- |"]
    lines += [f"| `{key}` | `{cell(of)}` | {cell(meaning)} | `{file}` |" for key, of, meaning, file in facts()]
    return "\n".join([*lines, ""])


def linked(text: str) -> str:
    """A text in which the pages that it names by their paths, `docs/install.md`, are links from reference/."""
    return re.sub(r"\bdocs/([\w/-]+)\.md", r"[\1](../\1.md)", text)


def errors_page() -> str:
    """Each class of errors by its name, which links and `oneir explain` use; special ones below what they are."""
    lines = [
        "# Errors\n",
        "Every error is a `oneir.OneIRError`. Most derive from Python's class for the same mistake as well, so",
        "`except ValueError` works. A message ends with the name under which its causes and cures stand here;",
        "`oneir explain NAME` prints the same.\n",
    ]
    every = list(explain.error_classes().values())
    direct = [cls for cls in every if OneIRError in cls.__bases__]
    for kind in (OneIRError, *sorted(direct, key=lambda cls: cls.__name__)):
        special = [cls for cls in every if kind is not OneIRError and kind in cls.__mro__[1:]]
        for level, cls in (("##", kind), *(("###", cls) for cls in special)):
            also = explain.title(cls).partition(", ")[2]
            lines += [f"{level} {cls.__name__}\n", f"*{also[0].upper()}{also[1:]}.*\n" if also else ""]
            lines.append(linked(inspect.getdoc(cls) or "") + "\n")
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """The pages, by their paths in the site's sources."""
    return {
        "reference/grammar.md": grammar_page(),
        "reference/options.md": options_page(),
        "reference/errors.md": errors_page(),
    }
