"""Tags: their configurations, and those that a user registers."""

from __future__ import annotations

import pytest

from oneir.runtime.error import InvalidValue, NotRegistered
from oneir.target import (
    Target,
    list_tags,
    register_tag,
)
from oneir.target.tag_configs import configs


def test_a_tag_stands_for_its_configuration():
    a100 = Target("nvidia/nvidia-a100")
    assert a100.tag == "nvidia/nvidia-a100" and a100.export()["tag"] == "nvidia/nvidia-a100"
    assert (a100.arch, a100.max_shared_memory_per_block, a100.attrs["registers_per_block"]) == ("sm_80", 49152, 65536)
    assert a100 == Target({**a100.export(), "tag": ""})
    assert list_tags()["raspberry-pi/4b-aarch64"].host.mcpu == "cortex-a72"
    assert Target("aws/cpu/c5.9xlarge").attrs["num-cores"] == 18
    assert Target("apple/m1-gpu").host.mtriple == "arm64-apple-macos"


def test_a_registered_tag_is_known(monkeypatch):
    monkeypatch.setitem(configs, "mine/box", {})  # takes the tag away again, however the test ends
    del configs["mine/box"]
    made = register_tag("mine/box", {"kind": "llvm", "num-cores": 7})
    assert made == Target("mine/box") == Target("llvm -num-cores=7") and made.tag == "mine/box"
    with pytest.raises(InvalidValue, match='The tag "mine/box" is taken: it is "llvm -keys=cpu -num-cores=7"'):
        register_tag("mine/box", {"kind": "c"})
    assert register_tag("mine/box", {"kind": "c"}, override=True) == Target("c") == list_tags()["mine/box"]
    with pytest.raises(NotRegistered, match='no target kind "d"'):
        register_tag("mine/other", {"kind": "d"})
    assert "mine/other" not in list_tags()
