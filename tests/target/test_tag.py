"""Tags: their configurations, and those that a user registers."""

from __future__ import annotations

import pytest

from oneir.runtime import llvm
from oneir.runtime.error import InvalidValue, NotRegistered
from oneir.target import Target, cpu_info, list_tags, register_tag, resolve
from oneir.target.tag_configs import configs


def llvm_options(target):
    triple, cpu, features = resolve(target)
    return {"triple": triple, "cpu": cpu, "features": features, "abi": target.attrs.get("mabi", "")}


def test_a_tag_stands_for_its_configuration():
    a100 = Target("nvidia/nvidia-a100")
    assert a100.tag == "nvidia/nvidia-a100" and a100.export()["tag"] == "nvidia/nvidia-a100"
    assert (a100.arch, a100.max_shared_memory_per_block, a100.attrs["registers_per_block"]) == ("sm_80", 49152, 65536)
    assert a100 == Target({**a100.export(), "tag": ""})
    assert list_tags()["raspberry-pi/4b-aarch64"].host.mcpu == "cortex-a72"
    assert Target("aws/cpu/c5.9xlarge").attrs["num-cores"] == 18
    assert Target("apple/m1-gpu").host.mtriple == "arm64-apple-macos"


@pytest.mark.parametrize(
    ("tag", "vector_bytes", "l1_kib", "l2_kib", "cores"),
    [
        ("raspberry-pi/2b", 16, 32, 512, 4),
        ("raspberry-pi/5-aarch64", 16, 64, 512, 4),
        ("nvidia/jetson-tx2/cpu", 16, 32, 1024, 4),
        ("nvidia/jetson-agx-orin-64gb/cpu", 16, 64, 512, 12),
        ("aws/graviton3", 32, 64, 1024, 4),
        ("fujitsu/a64fx", 64, 64, 8192, 48),
        ("riscv/visionfive-2", 4, 32, 2048, 4),
        ("riscv/banana-pi-f3", 32, 32, 512, 8),
        ("wasm/simd", 16, 32, 256, 1),
        ("x86-64/v3", 32, 32, 256, 4),
    ],
)
def test_tags_of_processors_say_what_schedules_follow(tag, vector_bytes, l1_kib, l2_kib, cores):
    info = cpu_info(Target(tag))
    assert (info.vector_bytes, info.l1_bytes >> 10, info.l2_bytes >> 10) == (vector_bytes, l1_kib, l2_kib)
    assert info.num_cores == cores


def test_every_tag_of_a_processor_is_one_that_llvm_knows():
    for target in list_tags().values():
        if target.kind.name == "llvm":
            assert llvm.compile_ir("define void @f() { ret void }", name=target.tag, **llvm_options(target))


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
