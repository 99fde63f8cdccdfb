"""Every published name of `T`, of the loop-level operators and of `I` is there."""

from __future__ import annotations

import pytest

from oneir.script import ir as I
from oneir.script import tir as T
from oneir.tir import op, op_vendor, reduction

T_NAMES = """
buffer buffer_decl prim_func arg func_name func_attr func_ret match_buffer block init where reads writes block_attr
alloc_buffer axis serial parallel vectorized unroll thread_binding grid Assert LetStmt Let let realize allocate
allocate_const attr While If Then Else decl_buffer launch_thread env_thread buffer_store evaluate func_gen boolean
handle void var ptr buffer_var min max iter_var comm_reducer index_map target Range meta_var abs acos acosh address_of
asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil clz copysign cos cosh erf exp exp2
exp10 floor ceildiv floordiv floormod fmod hypot if_then_else infinity isfinite isinf isnan isnullptr ldexp likely log
log1p log2 log10 lookup_param max_value min_value nearbyint nextafter popcount pow q_multiply_shift
q_multiply_shift_per_axis ret continue_loop break_loop round rsqrt shift_left shift_right sigmoid sin sinh sqrt tan
tanh thread_return trunc truncdiv truncmod tvm_access_ptr tvm_throw_last_error tvm_stack_alloca tvm_stack_make_shape
tvm_stack_make_array call_packed call_cpacked call_packed_lowered call_cpacked_lowered tvm_tuple
handle_add_byte_offset tvm_struct_set tvm_thread_invariant tvm_thread_allreduce tvm_load_matrix_sync tvm_mma_sync
tvm_bmma_sync tvm_fill_fragment tvm_store_matrix_sync ptx_wait_group ptx_commit_group ptx_cp_async_barrier
ptx_init_barrier_thread_count ptx_arrive_barrier ptx_arrive_barrier_expect_tx ptx_wait_barrier
make_filled_simdgroup_matrix simdgroup_load simdgroup_store simdgroup_multiply_accumulate create_barriers assume undef
TVMBackendAllocWorkspace TVMBackendFreeWorkspace start_profile_intrinsic end_profile_intrinsic anylist_getitem
anylist_resetitem anylist_setitem_call_packed anylist_setitem_call_cpacked vscale ignore_loop_partition reinterpret
call_extern call_intrin call_llvm_intrin call_llvm_pure_intrin call_pure_extern ptx_mma ptx_mma_sp ptx_ldmatrix
ptx_cp_async ptx_cp_async_bulk mma_store mma_fill vectorlow vectorhigh vectorcombine get_active_lane_mask dp4a
"""
OP_NAMES = """
call_packed_lowered call_cpacked_lowered call_packed call_cpacked call_intrin call_pure_extern call_extern
call_llvm_intrin call_llvm_pure_intrin tvm_stack_alloca tvm_stack_make_shape tvm_stack_make_array assume undef
call_tir start_profile_intrinsic end_profile_intrinsic tvm_tuple handle_add_byte_offset tvm_struct_get tvm_struct_set
address_of lookup_param tvm_thread_allreduce tvm_thread_invariant tvm_storage_sync tvm_warp_shuffle
tvm_warp_shuffle_up tvm_warp_shuffle_down tvm_warp_activemask type_annotation tvm_access_ptr tvm_throw_last_error
tvm_load_matrix_sync tvm_mma_sync tvm_bmma_sync tvm_fill_fragment tvm_store_matrix_sync ptx_mma ptx_mma_sp mma_store
mma_fill ptx_ldmatrix ptx_cp_async ptx_cp_async_bulk ptx_commit_group ptx_wait_group ptx_cp_async_barrier
ptx_init_barrier_thread_count ptx_arrive_barrier ptx_arrive_barrier_expect_tx ptx_wait_barrier create_barriers
make_filled_simdgroup_matrix simdgroup_load simdgroup_store simdgroup_multiply_accumulate vectorlow vectorhigh
vectorcombine dp4a ret thread_return continue_loop break_loop any all trace min_value max_value infinity reinterpret
exp exp2 exp10 erf tanh sigmoid log log2 log10 log1p tan cos cosh acos acosh sin sinh asin asinh atan atanh atan2 sqrt
rsqrt clz floor ceil trunc abs bitwise_and bitwise_not bitwise_or bitwise_xor round nearbyint nextafter hypot copysign
ldexp likely isnan isnullptr isfinite isinf power pow popcount q_multiply_shift q_multiply_shift_per_axis shift_left
shift_right fmod if_then_else div indexdiv indexmod truncdiv truncmod floordiv logaddexp floormod ceildiv comm_reducer
TVMBackendAllocWorkspace TVMBackendFreeWorkspace anylist_getitem anylist_resetitem anylist_setitem_call_packed
anylist_setitem_call_cpacked vscale get_active_lane_mask get_vscale_expr ignore_loop_partition
"""
I_NAMES = """
ir_module module_attrs module_get_attr module_set_attr module_global_infos lookup_vdevice vdevice dummy_global_info
GlobalVar Range meta_var
"""


@pytest.mark.parametrize("name", T_NAMES.split())
def test_member_of_T(name: str):
    assert callable(getattr(T, name)) or name == "axis"


def test_operators():
    missing = [name for name in OP_NAMES.split() if not any(hasattr(m, name) for m in (op, op_vendor, reduction))]
    assert missing == []


def test_members_of_I():
    assert [name for name in I_NAMES.split() if not hasattr(I, name)] == []


def test_dtypes_with_lanes():
    for element in ("int8", "uint16", "float32", "float64", "float8_e5m2", "float4_e2m1fn"):
        for lanes in (2, 4, 8, 16, 32, 64):
            assert getattr(T, f"{element}x{lanes}")().dtype == f"{element}x{lanes}"


def test_listing_names_the_operators():
    assert {"exp", "ptx_mma", "grid", "Buffer"} <= set(dir(T))


def test_names_that_are_no_dtype_are_refused():
    for name in ("float31x0", "_private", "int", "floatx4"):
        assert not hasattr(T, name)
