"""The kernels of a model for a kind of target: how weights lie and are multiplied, and attention over pages.

kernels = kernels_for(Target("cuda"))
kernels.layout(FORMS["Q4_0"], "float32").product(n, k)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...target.cpu import cpu_info
from ...target.target import Target
from ...tir import PrimFunc
from . import attention, gpu_attention
from .forms import FORMS, FloatForm, Form
from .panel_forms import PanelForm
from .row_forms import RowForm

Layout = PanelForm | RowForm


def _row_form(form: Form, activations: str) -> RowForm:
    assert activations == "float32", activations
    return RowForm(form)


@dataclass(frozen=True)
class KernelSet:
    """What a model takes its kernels from. `attention` says what the functions of attention compute."""

    layout: Callable[[Form, str], Layout]
    """How the arrays of a weight in a form lie, and the kernels that read them, for rows that become "int8" or
    "float32".
    """
    forms: Mapping[str, Form]
    """The forms that weights are kept in; others are float32, in no layout of a `KernelSet`."""
    activations: Sequence[str]
    """What rows may become that meet digits; the first is what they become where nothing is asked for."""
    kv_dtypes: Sequence[str]
    """What the elements of pages may be."""
    rotate_and_store: Callable[..., PrimFunc]
    paged_attention: Callable[..., PrimFunc]


PROCESSORS = KernelSet(
    layout=PanelForm,
    forms=FORMS,
    activations=("int8", "float32"),
    kv_dtypes=("float32", "float16", "int8"),
    rotate_and_store=attention.rotate_and_store,
    paged_attention=attention.paged_attention,
)
DEVICES = KernelSet(
    layout=_row_form,
    forms={"F32": FloatForm("F32", "float32"), **FORMS},
    activations=("float32",),
    kv_dtypes=("float32", "float16"),
    rotate_and_store=gpu_attention.rotate_and_store,
    paged_attention=gpu_attention.paged_attention,
)
"""Those for devices with blocks of threads."""


def kernels_for(target: Target) -> KernelSet:
    """The kernels of models that are compiled for a target."""
    if "gpu" in target.keys:
        return DEVICES
    info = cpu_info(target)
    return replace(
        PROCESSORS,
        layout=partial(PanelForm, in_pairs=info.byte_dots == "avx2"),
        paged_attention=partial(
            attention.paged_attention, most_lanes=attention.value_lanes(info), most_scores=attention.score_rows(info)
        ),
    )
