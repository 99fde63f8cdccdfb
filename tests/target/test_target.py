"""`Target`: how it is written, what it knows, and what it refuses."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest

from oneir.runtime.error import InvalidValue, NotRegistered, OneIRError, TypeMismatch
from oneir.target import Target, list_tags
from oneir.target.kinds import KINDS

# Written by hand: the codes of DLPack.
DEVICE_TYPES = {
    "llvm": 1,
    "c": 1,
    "hybrid": 1,
    "test": 1,
    "composite": 1,
    "cuda": 2,
    "nvptx": 2,
    "opencl": 4,
    "vulkan": 7,
    "metal": 8,
    "rocm": 10,
    "ext_dev": 12,
    "webgpu": 15,
    "hexagon": 16,
}


def test_text_gives_typed_options():
    target = Target("llvm -mcpu=znver3 -mattr=+avx2,-fma -num-cores=4 -fast-math -device=arm_cpu --model=box")
    assert target.kind.name == "llvm"
    assert dict(target.attrs) == {
        "device": "arm_cpu",
        "fast-math": True,
        "mattr": ["+avx2", "-fma"],
        "mcpu": "znver3",
        "model": "box",
        "num-cores": 4,
    }
    assert type(target.attrs["num-cores"]) is int and target.attrs["fast-math"] is True
    assert (target.mcpu, target.mattr, target.model, target.device_name) == (
        "znver3",
        ["+avx2", "-fma"],
        "box",
        "arm_cpu",
    )


def test_text_dictionary_and_json_are_three_spellings_of_one_target():
    text = Target("cuda -arch=sm_80 -max_threads_per_block=512")
    config = {"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 512}
    assert text == Target(config) == Target('{"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 512}')
    assert text == Target("cuda -max_threads_per_block 512 -arch sm_80")
    assert hash(text) == hash(Target(config))
    assert text != Target("cuda -arch=sm_80") and text != Target("nvptx") and text != "cuda"


def test_keys_are_those_given_then_the_device_then_those_of_the_kind():
    assert Target("llvm").keys == ["cpu"]
    assert Target("opencl -device=mali").keys == ["mali", "opencl", "gpu"]
    assert Target("cuda -keys=tensor_core,gpu").keys == ["tensor_core", "gpu", "cuda"]
    assert Target("llvm -mtriple=aarch64-linux-gnu").keys == ["arm_cpu", "cpu"]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_can_be_made_anywhere(name):
    target = Target(name)
    assert target.get_target_device_type() == DEVICE_TYPES[name]
    assert Target(str(target)) == target and name in Target.list_kinds()


def test_the_tested_kinds_are_all_kinds():
    assert set(KINDS) == set(DEVICE_TYPES)


def test_every_tag_reads_back_from_its_text_and_from_its_dictionary():
    for name, target in list_tags().items():
        assert Target(str(target)) == target, name
        assert Target(target.export()) == target and Target(target.export()).tag == name


@pytest.mark.parametrize(
    "config",
    [
        {"kind": "llvm", "cl-opt": ["-a=b,c", "d\\e", "two words", "it's"]},
        {"kind": "llvm", "model": "a 'quoted' \"name\"", "libs": ["mkl", "dnnl"]},
        {"kind": "composite", "devices": ["llvm -mattr=+avx2,+fma", {"kind": "cuda", "host": "llvm"}]},
        {"kind": "cuda", "host": {"kind": "llvm", "mattr": ["+avx2", "+fma"]}},
        {"kind": "vulkan", "supports_float16": True, "supports_int8": False},
    ],
)
def test_text_keeps_what_is_hard_to_write(config):
    target = Target(config)
    assert Target(str(target)) == target
    assert Target(target.export()) == target
    assert pickle.loads(pickle.dumps(target)) == target and copy.deepcopy(target) == target


def test_devices_of_a_composite_target_are_targets():
    devices = Target({"kind": "composite", "devices": ["llvm", {"kind": "cuda"}]}).attrs["devices"]
    assert [device.kind.name for device in devices] == ["llvm", "cuda"]


def test_the_host_is_given_in_any_way():
    expected = Target("cuda", host=Target("llvm -mcpu=znver3"))
    assert expected.host == Target("llvm -mcpu=znver3")
    assert Target("cuda", "llvm -mcpu=znver3") == expected
    assert Target("cuda").with_host("llvm -mcpu=znver3") == expected
    assert Target({"kind": "cuda", "host": "llvm -mcpu=znver3"}) == expected
    assert Target(expected, host="c").host == Target("c") and Target(expected) == expected
    assert Target("cuda").host is None and expected != Target("cuda")


def test_contexts_nest_and_are_of_one_thread():
    assert Target.current() is None
    outer, inner = Target("llvm"), Target("cuda")
    seen = []
    with outer:
        with inner, outer:
            assert Target.current() is outer
        assert Target.current(allow_none=False) is outer and Target.target_or_current(None) is outer
        assert Target.target_or_current("cuda") == inner
        thread = threading.Thread(target=lambda: seen.append(Target.current()))
        thread.start()
        thread.join()
    assert seen == [None] and Target.current() is None


def test_a_context_is_left_when_an_error_passes():
    with pytest.raises(ZeroDivisionError), Target("llvm"):
        _ = 1 // 0
    assert Target.current() is None


def test_limits_of_gpus():
    cuda = Target("cuda")
    assert (cuda.max_num_threads, cuda.thread_warp_size, cuda.max_shared_memory_per_block) == (1024, 32, 49152)
    assert (cuda.max_block_size_x, cuda.max_block_size_y, cuda.max_function_args) == (1024, 1024, -1)
    assert Target("vulkan -max_block_size_x=128").max_block_size_x == 128
    assert Target("metal").max_function_args == 31 and Target("rocm").thread_warp_size == 64
    assert Target("nvidia/nvidia-a100").l2_cache_size_bytes == 40 * 1024 * 1024 and cuda.l2_cache_size_bytes == 0
    assert Target("hexagon -vtcm-capacity=4096").vtcm_capacity == 4096


def test_what_gpus_can_do():
    assert Target("cuda -arch=sm_61").supports_integer_dot_product
    assert not Target("cuda -arch=sm_60").supports_integer_dot_product
    assert Target("vulkan -supports_integer_dot_product").supports_integer_dot_product
    assert Target("vulkan -supports_cooperative_matrix=1").supports_cooperative_matrix
    assert not Target("vulkan").supports_cooperative_matrix
    assert Target("vulkan").attrs["supports_float32"] is True


def test_device_type_can_be_overridden():
    assert Target("llvm -target_device_type=2").get_target_device_type() == 2


def test_merging_a_target_with_its_host():
    assert Target.canon_target(None) is None and Target.canon_target("llvm") == Target("llvm")
    assert Target.canon_target_and_host("cuda", "llvm") == (Target("cuda", "llvm"), Target("llvm"))
    assert Target.canon_target_and_host(None) == (None, None)
    with pytest.raises(InvalidValue, match="Target host is not empty when target is empty"):
        Target.canon_target_and_host(None, "llvm")


def test_kinds_list_their_options():
    assert KINDS["llvm"].options["mattr"] == "list[str]" and KINDS["cuda"].options["max_num_threads"] == "int"


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("lvm", NotRegistered, r'no target kind or tag "lvm"\. Did you mean "llvm"\?'),
        ("nvidia/nvidia-a10000", NotRegistered, r'Did you mean "nvidia/nvidia-a100'),
        ({"kind": "cuba"}, NotRegistered, r'no target kind "cuba"\. Did you mean "cuda"\?'),
        ("llvm -mcpuu=a", InvalidValue, r'kind llvm have no option "mcpuu"\. Did you mean "mcpu"\?'),
        ({"kind": "cuda", "mattr": []}, InvalidValue, r'kind cuda have no option "mattr"'),
        ("llvm -num-cores=many", TypeMismatch, r'"num-cores" of a llvm target is of type int; found \'many\''),
        ({"kind": "llvm", "num-cores": True}, TypeMismatch, r"type int; found True"),
        ({"kind": "llvm", "num-cores": 1.5}, TypeMismatch, r"type int; found 1\.5"),
        ({"kind": "llvm", "mcpu": 3}, TypeMismatch, r"type str; found 3"),
        ("llvm -fast-math=maybe", TypeMismatch, r"type bool; found 'maybe'"),
        ({"kind": "llvm", "mattr": [1]}, TypeMismatch, r"type list\[str\]; found \[1\]"),
        ({"kind": "cuda", "host": 1}, TypeMismatch, r"type Target; found 1"),
        ("llvm mcpu=a", InvalidValue, r"'mcpu=a' where an option was expected"),
        ("llvm -mcpu=a -mcpu=b", InvalidValue, r"gives -mcpu twice"),
        ("llvm -mcpu='a", InvalidValue, r"no closing quotation"),
        ("", InvalidValue, r"it is empty"),
        ('{"kind": ', InvalidValue, r"is not valid JSON"),
        ('{"arch": "sm_80"}', InvalidValue, r"names no kind"),
        ({"arch": "sm_80"}, InvalidValue, r"names no kind"),
        ("cuda -arch=80", InvalidValue, r'an architecture such as sm_90; found "80"'),
        ("rocm -mcpu=sm_80", InvalidValue, r"an architecture such as gfx90"),
        (3, TypeMismatch, r"found int: 3"),
        (None, TypeMismatch, r"found NoneType"),
    ],
)
def test_refusals(target, error, message):
    with pytest.raises(error, match=message) as raised:
        Target(target)
    assert isinstance(raised.value, OneIRError)


def test_refusals_of_what_a_target_does_not_say():
    with pytest.raises(InvalidValue, match='"llvm -keys=cpu" has no max_num_threads'):
        _ = Target("llvm").max_num_threads
    with pytest.raises(InvalidValue, match="No target is set here"):
        Target.current(allow_none=False)
    with pytest.raises(AttributeError, match="A target is immutable"):
        Target("llvm").host = None
    with pytest.raises(TypeError):
        Target("llvm").attrs["mcpu"] = "a"


def test_features_of_a_kind_and_unknown_ones():
    assert Target("test").features.is_test is True
    assert Target("cuda").features.is_test is None
    assert not hasattr(Target("test").features, "__fields__")
