"""Targets as text: options, lists and quotes, against dictionaries written by hand."""

from __future__ import annotations

import shlex

import pytest

from oneir.runtime.error import InvalidValue
from oneir.target.text import join_list, parse_options, print_option, split_list


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("llvm", {"kind": "llvm"}),
        ("llvm -mcpu=znver3 -num-cores 4", {"kind": "llvm", "mcpu": "znver3", "num-cores": "4"}),
        ("llvm -fast-math --mcpu=a", {"kind": "llvm", "fast-math": "true", "mcpu": "a"}),
        ('llvm -mattr="+a,+b c"', {"kind": "llvm", "mattr": "+a,+b c"}),
        ('{"kind": "cuda", "max_num_threads": 512}', {"kind": "cuda", "max_num_threads": 512}),
    ],
)
def test_options(text, config):
    assert parse_options(text) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("llvm 'open", "no closing quotation"),
        ("llvm mcpu", "'mcpu' where an option was expected"),
        ("llvm -mcpu=a -mcpu=b", "gives -mcpu twice"),
        ("{kind", "is not valid JSON"),
        ('{"arch": "sm_80"}', "names no kind"),
    ],
)
def test_refusals(text, message):
    with pytest.raises(InvalidValue, match=message):
        parse_options(text)


@pytest.mark.parametrize("elements", [[], ["a"], ["a", "b,c", "\\"], ["", ""], ["a b", '"']])
def test_lists(elements):
    assert split_list(join_list(elements)) == elements
    assert shlex.split(print_option("list", join_list(elements))) == [f"-list={join_list(elements)}"]
