"""The process in which chat templates run: it can open no file, has little memory, and little time for each request.

A line of JSON in, `{"template": ..., "variables": ...}`, a line of JSON out, `{"text": ...}`. What goes wrong is
answered by `{"error": ...}`; a request that takes too much processor time ends the process. The file runs by its path
and imports nothing of this package.
"""

from __future__ import annotations

import codecs
import importlib
import json
import resource
import sys
import time
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_MEMORY = 1 << 29
_SECONDS = 1
_LONGEST_TEXT = 1 << 24
_IMPORTED_LATE = ("jinja2.constants", "jinja2.debug", "pprint")
"""What jinja2 imports while it compiles or renders, when no file can be opened any more."""


class Generation(Extension):
    """`{% generation %}`, which marks what the assistant says for those who train, stands for what is in it."""

    def __init__(self, environment: jinja2.Environment):
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class PublicNamespace(Namespace):
    """A template's `namespace()`, which keeps no name that Python could give a meaning to."""

    def __init__(*arguments: Any, **names: Any):
        self, *rest = arguments  # so that a template may name an attribute `self`
        values = dict(*rest, **names)
        for name in values:
            _check_public(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)


def _check_public(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.TemplateRuntimeError(f"a namespace keeps no name with an underscore in front, found {name!r}")


def _make_dict(*arguments: Any, **names: Any) -> dict:
    """`dict()` without the attributes of the class."""
    return dict(*arguments, **names)


def _to_json(value: Any, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
    """JSON as it is: jinja2's own filter would escape what HTML reserves."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateRuntimeError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _environment() -> jinja2.Environment:
    """What chat templates are written for: transformers' environment."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "dict": _make_dict,
        "namespace": PublicNamespace,
    }
    return environment


def _rendered(template: jinja2.Template, variables: dict) -> str:
    pieces, length = [], 0
    for piece in template.generate(variables):
        pieces.append(piece)
        length += len(piece)
        if length > _LONGEST_TEXT:
            raise ValueError(f"the text has more than {_LONGEST_TEXT} characters")
    return "".join(pieces)


def main() -> None:
    """Serves requests until there are no more."""
    for name in _IMPORTED_LATE:
        importlib.import_module(name)
    codecs.lookup("unicode_escape")
    time.tzset()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    environment = _environment()
    compiled: dict[str, jinja2.Template] = {}
    for line in iter(sys.stdin.readline, ""):
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + 1 + _SECONDS, resource.RLIM_INFINITY))
        try:
            request = json.loads(line)
            template = request["template"]
            if template not in compiled:
                compiled[template] = environment.from_string(template)
            answer = {"text": _rendered(compiled[template], request["variables"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
