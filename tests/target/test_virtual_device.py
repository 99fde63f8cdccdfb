"""Places of values, and targets that are given in several forms with one host."""

from __future__ import annotations

from typing import Any

import pytest

import oneir
from oneir.runtime.error import InvalidValue
from oneir.target import HostWithoutTarget, InvalidOption, Target, VirtualDevice


def test_what_is_left_open() -> None:
    nowhere = VirtualDevice()
    assert (nowhere.device_type, nowhere.virtual_device_id, nowhere.target, nowhere.memory_scope) == (-1, -1, None, "")
    assert repr(nowhere) == "VirtualDevice()"
    by_target = VirtualDevice(target="cuda")
    assert (by_target.dlpack_device_type(), by_target.virtual_device_id) == (2, -1)


def test_device_target_and_scope() -> None:
    place = VirtualDevice(oneir.cuda(1), Target("cuda"), "global.texture")
    assert (place.device_type, place.virtual_device_id, place.memory_scope) == (2, 1, "global.texture")
    assert place.target == Target("cuda")
    assert place == VirtualDevice(oneir.cuda(1), "cuda", "global.texture") != VirtualDevice(oneir.cuda(1), "cuda")
    assert len({place, VirtualDevice(oneir.cuda(1), "cuda", "global.texture")}) == 1
    with pytest.raises(InvalidValue, match=r'none of the kind that the target "cuda'):
        VirtualDevice(oneir.cpu(), "cuda")


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        ("llvm", ["llvm"]),
        ({"kind": "llvm"}, ["llvm"]),
        ({1: "llvm", 2: "cuda"}, ["llvm", "cuda"]),
        (["cuda", Target("llvm")], ["cuda", "llvm"]),
    ],
)
def test_several_targets(given: Any, kinds: list[str]) -> None:
    found = Target.canon_multi_target_and_host(given)
    assert [each.kind.name for each in found] == kinds
    hosted = Target.canon_multi_target_and_host(given, "c")
    assert [each.host for each in hosted] == [Target("c")] * len(kinds)
    assert Target.canon_multi_target(None) is None
    with pytest.raises(HostWithoutTarget, match="at least one"):
        Target.canon_multi_target_and_host([])


def test_the_first_host_is_everybodys() -> None:
    found = Target.canon_multi_target_and_host([Target("cuda", "llvm"), "opencl"])
    assert [each.host for each in found] == [Target("llvm")] * 2


def test_dictionaries_by_target_get_a_host() -> None:
    found, host = Target.canon_target_map_and_host({"cuda": 1, "llvm": 2}, "llvm")
    assert host == Target("llvm")
    assert {each.kind.name: value for each, value in found.items()} == {"cuda": 1, "llvm": 2}
    assert all(each.host == host for each in found)
    alone, nobody = Target.canon_target_map_and_host({"cuda": 1})
    assert nobody is None and list(alone) == [Target("cuda")]


@pytest.mark.parametrize(
    ("text", "dsp", "mve"),
    [
        ("llvm -mcpu=cortex-m55", True, True),
        ("c -mcpu=cortex-m7", True, False),
        ("c -mcpu=cortex-m3", False, False),
        ("llvm -mcpu=cortex-m55 -mattr=+nomve", True, False),
        ("llvm -mcpu=cortex-m55 -mattr=-dsp", False, True),
    ],
)
def test_features_of_microcontrollers(text: str, dsp: bool, mve: bool) -> None:
    target = Target(text)
    assert list(target.keys) == ["arm_cpu", "cpu"]
    assert (target.features.has_dsp, target.features.has_mve) == (dsp, mve)


def test_a_wrong_value_of_an_option_is_a_wrong_type_and_a_wrong_value() -> None:
    for error in (InvalidOption, TypeError, ValueError):
        with pytest.raises(error, match=r'"libs" of a llvm target is of type list\[str\]'):
            Target({"kind": "llvm", "libs": {"a": "b"}})
