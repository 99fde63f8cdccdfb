"""ONNX's own tests of operators: one for each operator that can be imported; all of them in the long run."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.conformance.onnx import compare, node_tests, operator_of, run
from benchmarks.conformance.outcome import CONSTANT, FAILED, PASSED, UNSUPPORTED, table
from oneir.relax.frontend.onnx.registry import registered

NAMES = """
abs acos_example acosh_example adagrad adam add ai_onnx_ml_array_feature_extractor ai_onnx_ml_binarizer and2d
argmax_no_keepdims_example argmin_no_keepdims_example asin_example asinh_example atan_example atanh_example
averagepool_2d_precomputed_pads batchnorm_example bitcast_float32_to_int32 bitshift_right_uint8 bitwise_and_i32_2d
bitwise_not_2d bitwise_or_i32_2d bitwise_xor_i32_2d cast_FLOAT_to_FLOAT16 castlike_FLOAT_to_FLOAT16 ceil_example
clip_example col2im compress_0 concat_1d_axis_0 constant constantofshape_float_ones basic_conv_with_padding
convinteger_without_padding convtranspose cos_example cosh_example cumprod_1d cumsum_1d basic_deform_conv_with_padding
depthtospace_example dequantizelinear det_2d dft_opset19 div_example dropout_default dynamicquantizelinear
einsum_transpose elu_example equal erf exp_example expand_dim_changed eyelike_without_dtype flatten_axis0
floor_example gather_0 gather_elements_0 gathernd_example_int32 gelu_tanh_1 gemm_default_zero_bias globalaveragepool
globalmaxpool greater greater_equal gridsample group_normalization_example gru_defaults hardmax_example
hardsigmoid_example hardswish identity if instancenorm_example isinf isnan layer_normalization_4d_axis0
leakyrelu_example less less_equal log_example logsoftmax_example_1 loop11 l2normalization_axis_0 lppool_1d_default lrn
lstm_defaults matmul_2d matmulinteger max_example maxpool_2d_uint8 maxunpool_export_without_output_shape mean_example
melweightmatrix min_example mod_mixed_sign_float64 momentum mul_example neg_example nonmaxsuppression_suppress_by_IOU
nonzero_example onehot_without_axis optional_get_element_tensor optional_has_element_empty_no_input_name_tensor_input
or2d constant_pad pow_example prelu_example qlinearconv qlinearmatmul_2D_uint8_float32 quantizelinear
range_float_type_positive_delta reciprocal_example reduce_log_sum_desc_axes reduce_log_sum_exp_do_not_keepdims_example
reduce_l1_do_not_keepdims_example reduce_l2_do_not_keepdims_example reduce_max_do_not_keepdims_example
reduce_mean_do_not_keepdims_example reduce_min_do_not_keepdims_example reduce_prod_do_not_keepdims_example
reduce_sum_do_not_keepdims_example reduce_sum_square_do_not_keepdims_example relu reshape_reordered_all_dims
resize_upsample_scales_nearest reversesequence_time rms_normalization_4d_axis0 simple_rnn_defaults
roialign_aligned_false round scan_sum scatter_without_axis scatter_elements_without_axis scatternd selu_example
shape_example sigmoid_example sign sin_example sinh_example size_example slice softmax_example softplus_example
spacetodepth split_equal_parts_1d_opset13 sqrt_example squeeze stft sub_example sum_example tan_example tanh_example
tensorscatter thresholdedrelu_example tile top_k transpose_default triu unique_sorted_without_axis unsqueeze_axis_0
upsample_nearest where_example xor2d affine_grid_2d attention_4d blackmanwindow causal_conv_with_state_basic celu
center_crop_pad_crop flexattention hammingwindow hannwindow linear_attention_linear mvn mish nllloss_NC
rotary_embedding shrink_hard sce_none softsign_example swiglu swish not_2d split_to_sequence_1 slice_neg_steps
gru_batchwise lstm_with_peepholes maxpool_with_argmax_2d_precomputed_pads averagepool_2d_ceil
resize_upsample_scales_cubic resize_tf_crop_and_resize sequence_insert_at_back sequence_map_identity_1_sequence
string_concat string_split_basic strnormalizer_nostopwords_nochangecase regex_full_match_basic
ai_onnx_ml_label_encoder_string_int tfidfvectorizer_tf_batch_uniandbigrams_skip5 cast_FLOAT4E2M1_to_FLOAT
ai_onnx_ml_tree_ensemble_single_tree ai_onnx_ml_tree_ensemble_set_membership quantizelinear_float4e2m1
"""

REFUSED = {
    "Bernoulli": "bernoulli",
    "ImageDecoder": "image_decoder_decode_png_rgb",
}
WITHOUT_TESTS = {
    "ConcatFromSequence",
    "GlobalLpPool",
    "Multinomial",
    "Optional",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceLength",
    "SimplifiedLayerNormalization",
    "StopGradient",
}
"""Operators of which ONNX has no test of their own, or none that could pass: test_onnx_models.py has what there is."""


@pytest.mark.parametrize("name", NAMES.split())
def test_operator(name: str):
    outcome = run(f"test_{name}")
    assert outcome.status in (PASSED, CONSTANT), outcome.reason


def test_every_converter_has_a_test():
    tested = {operator_of(f"test_{name}") for name in NAMES.split()} | set(REFUSED) | WITHOUT_TESTS
    own = [(domain, name) for domain, name in registered() if domain != "com.microsoft"]  # test_onnx_contrib.py
    converted = {f"{domain}.{name}" if domain else name for domain, name in own}
    assert converted <= tested, sorted(converted - tested)


@pytest.mark.parametrize(("operator", "name"), REFUSED.items())
def test_refused(operator: str, name: str):
    outcome = run(f"test_{name}")
    assert (outcome.operator, outcome.status) == (operator, UNSUPPORTED) and outcome.reason


def test_comparing_sees_differences():
    x = np.array([1.0, 2.0], np.float32)
    compare([x], [x * (1 + 5e-4)], 1e-3, 0)
    for found, message in (
        ([x, x], "expected 1 outputs"),
        ([x.astype(np.float64)], "expected dtype float32"),
        ([x[:1]], r"expected shape \(2,\)"),
        ([x * 1.01], "Not equal to tolerance"),
    ):
        with pytest.raises(AssertionError, match=message):
            compare(found, [x], 1e-3, 0)


@pytest.mark.long
def test_all_operators():
    outcomes = [run(name) for name in node_tests()]
    passed = sum(o.status in (PASSED, CONSTANT) for o in outcomes)
    assert passed >= 1750, table(outcomes)
    wrong = [f"{o.test}: {o.reason}" for o in outcomes if o.status == FAILED]
    assert len(wrong) <= 40, "\n".join(wrong)
