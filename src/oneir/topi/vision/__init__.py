"""Operators of object detection."""

from .nms import all_class_non_max_suppression, get_valid_counts
from .nms_util import (
    binary_search,
    calculate_overlap,
    collect_selected_indices,
    collect_selected_indices_and_scores,
    run_all_class_nms,
)
