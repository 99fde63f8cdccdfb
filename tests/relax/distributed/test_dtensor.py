"""Distributed tensors as a type: meshes, placements, what is known of a value, and how scripts say it."""

import pytest

from oneir import relax
from oneir.error import ParseError
from oneir.ir import Range, assert_structural_equal, load_json, save_json, structural_equal
from oneir.relax.distributed import DeviceMesh, DTensorStructInfo, Placement, PlacementSpec, device_mesh
from oneir.runtime.error import InvalidValue, TypeMismatch
from oneir.script import from_source
from oneir.script import ir as I
from oneir.script import relax as R


@I.ir_module
class Module:
    I.module_global_infos({"mesh": [R.device_mesh((2, 2), I.Range(0, 4)), R.device_mesh((2,), [1, 0])]})

    @R.function
    def main(
        x: R.DTensor((8, 6), "float32", "mesh[0]", "S[0], R"),
        rows: R.DTensor(("n", 4), "float32", "mesh[1]", "R"),
        some: R.DTensor(ndim=2, device_mesh="mesh[1]", placement="S[1]"),
    ) -> R.DTensor((8, 6), "float32", "mesh[0]", "R, R"):
        one = R.dist.const(1, R.DTensor((), "float32", "mesh[0]", "R, R"))
        y = R.dist.redistribute(x, "mesh[0]", "R, R")
        return y


def test_a_script_prints_with_its_meshes_by_name_and_reads_back():
    text = Module.script()
    assert (
        'I.module_global_infos({"mesh": [R.device_mesh((2, 2), I.Range(0, 4)), R.device_mesh((2,), [1, 0])]})' in text
    )
    assert 'x: R.DTensor((8, 6), "float32", "mesh[0]", "S[0], R")' in text
    assert 'rows: R.DTensor(("n", 4), "float32", "mesh[1]", "R")' in text
    assert 'some: R.DTensor(device_mesh="mesh[1]", placement="S[1]", ndim=2)' in text
    assert 'R.dist.const(1.0, R.DTensor((), "float32", "mesh[0]", "R, R"))' in text
    assert 'R.dist.redistribute(x, device_mesh="mesh[0]", placement="R, R")' in text
    assert_structural_equal(from_source(text), Module)
    assert_structural_equal(load_json(save_json(Module)), Module)
    assert relax.analysis.well_formed(Module)


def test_a_mesh_that_no_module_declares_prints_as_it_is():
    info = DTensorStructInfo(relax.TensorStructInfo((4,), "float32"), device_mesh((2,), Range(0, 2)), "S[0]")
    assert str(info).endswith('R.DTensor((4,), "float32", R.device_mesh((2,), I.Range(0, 2)), "S[0]")')


def test_each_worker_holds_its_part():
    whole = relax.TensorStructInfo((8, 6), "float32")
    info = DTensorStructInfo(whole, DeviceMesh((2, 3), Range(0, 6)), "S[0], S[1]")
    assert info.local == relax.TensorStructInfo((4, 2), "float32")
    assert DTensorStructInfo(whole, DeviceMesh((2, 2), Range(0, 4)), "S[0], S[0]").local.extents[0].value == 2


def test_placements_compare_by_value_and_read_back():
    for text in ("R", "S[0]", "R, S[1]", "S[2], S[0], R", ""):
        assert str(Placement.from_text(text)) == text
    assert Placement([PlacementSpec.sharding(1), PlacementSpec.replica()]) == Placement.from_text(" S[ 1 ],R")
    assert Placement.from_text("R, R") != Placement.from_text("R")


def test_one_is_a_base_of_another_on_the_same_mesh_with_the_same_placement():
    mesh = DeviceMesh((2,), Range(0, 2))
    whole, less = relax.TensorStructInfo((4, 4), "float32"), relax.TensorStructInfo(None, "float32", ndim=2)
    info = DTensorStructInfo(whole, mesh, "S[0]")
    assert info.is_base_of(DTensorStructInfo(whole, DeviceMesh((2,), Range(0, 2)), "S[0]"))
    assert DTensorStructInfo(less, mesh, "S[0]").is_base_of(info)
    assert not info.is_base_of(DTensorStructInfo(less, mesh, "S[0]"))
    assert not info.is_base_of(DTensorStructInfo(whole, mesh, "S[1]"))
    assert not info.is_base_of(DTensorStructInfo(whole, DeviceMesh((2,), [1, 0]), "S[0]"))
    assert not info.is_base_of(whole) and not whole.is_base_of(info)
    assert relax.ObjectStructInfo().is_base_of(info)
    assert structural_equal(info, DTensorStructInfo(whole, DeviceMesh((2,), Range(0, 2)), "S[0]"))
    assert not structural_equal(info, DTensorStructInfo(whole, mesh, "R"))


def test_what_two_have_in_common_keeps_the_place_if_it_is_one():
    mesh = DeviceMesh((2,), Range(0, 2))
    a, b = (DTensorStructInfo(relax.TensorStructInfo((n, 4), "float32"), mesh, "S[1]") for n in (2, 3))
    common = DTensorStructInfo(relax.TensorStructInfo(None, "float32", ndim=2), mesh, "S[1]")
    assert relax.analysis.struct_info_lca(a, b) == common
    assert relax.analysis.struct_info_lca(a, a.replace(placement="R")) == relax.ObjectStructInfo()


@pytest.mark.parametrize(
    ("shape", "devices", "message"),
    [
        ((2, 2), Range(0, 3), r"a device mesh of shape \(2, 2\) needs 4 devices, found 3"),
        ((0,), [], r"a device mesh of shape \(0\) needs 0 devices, found 0"),
        ((2,), [1, 1], r"a device stands in two places of a mesh: \[1, 1\]"),
    ],
)
def test_a_mesh_has_one_device_for_each_place(shape, devices, message):
    with pytest.raises(InvalidValue, match=message):
        DeviceMesh(shape, devices)


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ("S[2]", r'the placement "S\[2\]" divides axis 2 of a tensor of 2 dimensions'),
        ("S[1]", r'the placement "S\[1\]" divides axis 1 among 4 workers, but its extent 6 is no multiple of 4'),
        ("R, R", r'the placement "R, R" is for a mesh of 2 dimensions, found 1'),
        ("S0", r"a placement is a text such as \"S\[0\], R\", found 'S0'"),
    ],
)
def test_a_placement_fits_the_tensor_and_the_mesh(placement, message):
    with pytest.raises(InvalidValue, match=message):
        DTensorStructInfo(relax.TensorStructInfo((8, 6), "float32"), DeviceMesh((4,), Range(0, 4)), placement)


def test_a_mesh_must_be_declared():
    with pytest.raises(ParseError, match=r"the module declares no device mesh 'mesh\[1\]'"):
        from_source(Module.script().replace(", R.device_mesh((2,), [1, 0])", ""))
    with pytest.raises(InvalidValue, match="can only be written in a script"):
        relax.Var("x", R.DTensor((4,), "float32", "mesh[0]", "R"))


def test_replicas_become_parts():
    mesh = DeviceMesh((4,), Range(0, 4))
    x = relax.Var("x", DTensorStructInfo(relax.TensorStructInfo((8, 6), "float32"), mesh, "R"))
    builder = relax.BlockBuilder()
    part = builder.normalize(relax.op.distributed.redistribute_replica_to_shard(x, 4, 0))
    assert part.struct_info == x.struct_info.replace(placement="S[0]")
    whole = builder.normalize(relax.op.ccl.allgather(relax.Var("p", part.struct_info), 4))
    assert whole.struct_info == x.struct_info
    with pytest.raises(InvalidValue, match="the extent 6 of axis 1 is no multiple of the 4 workers"):
        builder.normalize(relax.op.distributed.redistribute_replica_to_shard(x, 4, 1))
    with pytest.raises(InvalidValue, match='expected a tensor "R" on a mesh of 4 workers'):
        builder.normalize(relax.op.distributed.redistribute_replica_to_shard(relax.Var("p", part.struct_info), 4, 0))
    with pytest.raises(TypeMismatch, match="call_tir_local_view gives distributed tensors, found"):
        relax.op.distributed.call_tir_local_view(relax.GlobalVar("f"), [x], x.struct_info.tensor_sinfo)
