"""Chat templates: what transformers renders, in a process that a template can neither leave nor hold up."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import pytest
import transformers
from hostile import COPIES, refused, survives, text_mutations
from tokenizers import Tokenizer, models

from oneir.llm.files.chat_template import TemplateRenderer

CHATML = """{%- if tools %}
{{- '<|im_start|>system\\n# Tools\\n' }}{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' and ns.last < 0 %}{% set ns.last = messages | length - 1 - loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
{%- if not message.content %}{% continue %}{% endif %}
{{- '<|im_start|>' + message['role'] + '\\n' + message.content | trim + '<|im_end|>' + '\\n' }}
{%- if message.tool_calls is defined %}{{ message.tool_calls[0].function.arguments | tojson(indent=2) }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}{% generation %}{{ ns.last }}{% endgeneration %}
{%- endif %}"""
TURNS = """{{ bos_token }}
{% for m in messages %}
{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate') }}
{% endif %}
[{{ m.role | upper }}] {{ m.content.split('</think>')[-1].lstrip('\\n') if m.content is string else m.content[0].text }}
{% endfor %}
{{ strftime_now('%Y') | length }} {{ dict(a=1, **{'b': 2}) | items | list }} {{ documents is none }}"""
MESSAGES = [
    {"role": "user", "content": " Wie heißt <du> & ihr? 🙂 "},
    {"role": "assistant", "content": "<think>x</think>\nIch"},
    {"role": "user", "content": [{"type": "text", "text": "Ende"}]},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "<ü>", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def renderer():
    return TemplateRenderer()


@pytest.fixture(scope="module")
def reference():
    backend = Tokenizer(models.BPE({"<s>": 0}, []))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize(("template", "messages"), [(CHATML, MESSAGES[:2]), (TURNS, MESSAGES)])
def test_texts_are_those_of_transformers(template, messages, prompt, tools, renderer, reference):
    call = {"function": {"name": "f", "arguments": {"a": [1, "ß"], "b": None}}}
    messages = [*messages[:-1], {**messages[-1], "tool_calls": [call]}]
    expected = reference.apply_chat_template(
        messages, tools, chat_template=template, add_generation_prompt=prompt, tokenize=False
    )
    variables = {"messages": messages, "tools": tools, "add_generation_prompt": prompt, "documents": None}
    assert renderer.render(template, {**variables, "bos_token": "<s>", "eos_token": "</s>"}) == expected


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for %}", "TemplateSyntaxError: "),
        ("{{ raise_exception('roles must alternate') }}", "TemplateRuntimeError: roles must alternate"),
        ("{{ messages[0].content.x.y }}", "UndefinedError"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ dict.__base__.x }}", "UndefinedError"),
        ("{% set ns = namespace(__class__=1) %}", "a namespace keeps no name with an underscore in front"),
        ("{% include '/etc/passwd' %}", "failed: "),
        ("{% import 'os' as os %}", "failed: "),
        ("{{ strftime_now.__globals__.x }}", "SecurityError"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "OverflowError: Range too big"),
        ("{{ 'x' * 10 ** 10 }}", "MemoryError"),
        ("{% set x = 'x' * 1000000 %}{% for i in range(100) %}{{ x }}{% endfor %}", "more than 16777216 characters"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ (" + "(" * 3000 + "1" + ")" * 3000 + ") }}", "failed: |ended its process"),
    ],
)
def test_templates_that_are_refused(template, message, renderer):
    refused(message, lambda: renderer.render(template, {"messages": [{"role": "user", "content": "x"}]}))
    assert renderer.render("{{ 1 + 1 }}", {}) == "2"


def test_a_template_that_does_not_end_is_ended(renderer):
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    refused("the chat template took too long; use another one", lambda: renderer.render(loop, {}))
    assert renderer.render("after", {}) == "after"


def test_the_process_can_open_no_file():
    # What runs in the process, if a template found a way out of the sandbox.
    renderer = TemplateRenderer()
    renderer.render("", {})
    assert renderer._process is not None
    limits = Path(f"/proc/{renderer._process.pid}/limits").read_text()
    assert "Max open files            0                    0" in limits


def test_variables_are_json(renderer):
    refused("are what JSON can express", lambda: renderer.render("", {"x": object()}))
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    refused("are what JSON can express", lambda: renderer.render("", {"x": deep}))
    assert renderer.render("{{ x }}", {"x": "\ud800\n\u2028"}) == "\ud800\n\u2028"


def test_threads_share_a_process(renderer):
    results: dict[int, str] = {}
    threads = [
        threading.Thread(target=lambda i=i: results.update({i: renderer.render("{{ i }}" * 20, {"i": i})}))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: str(i) * 20 for i in range(8)}


def test_the_process_ends_with_its_owner():
    renderer = TemplateRenderer()
    renderer.render("", {})
    assert renderer._process is not None
    pid = renderer._process.pid
    del renderer
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_mutated_templates_are_rendered_or_refused(renderer, tmp_path):
    pieces = ["{%", "%}", "{{", "}}", "{#", "|tojson", "|attr('__class__')", ".__init__", "range(99999)", "* 9999999"]
    pieces += ["{% for a in messages %}", "{% endfor %}", "{% include 'x' %}", "**", "self", "lipsum()", "cycler", "%r"]
    variables = {"messages": MESSAGES, "tools": TOOLS, "add_generation_prompt": True, "bos_token": "<s>"}
    pieces += ["{% set x = x ~ x %}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% extends '/etc/passwd' %}"]
    pieces += [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% import 'os' as os %}",
        "|map(attribute='__class__')",
    ]
    pieces += ["{% for a in range(9999) %}{% for b in range(9999) %}", "'x' * 99999999", "|center(99999999)", "|pprint"]
    pieces += [
        f"{{{{ cycler.__init__.__globals__.os.system('touch {tmp_path}/written') }}}}",
        "(" * 500,
        "{% if 1 %}" * 99,
    ]
    outcomes = set()
    for template in (*text_mutations(CHATML, COPIES, pieces), *text_mutations(TURNS, COPIES, pieces, seed=1)):

        def render(template=template):
            assert "root:" not in renderer.render(template, variables)  # of /etc/passwd

        outcomes.add(survives(render))
    assert outcomes == {True, False} and not any(tmp_path.iterdir())
