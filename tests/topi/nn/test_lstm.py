"""Long short-term memory computes what PyTorch computes, and what its equations say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch

rng = np.random.default_rng(28)
STEPS, BATCH, IN, HIDDEN = 5, 2, 3, 4


def array(*shape):
    return (rng.standard_normal(shape) * 0.5).astype("float32")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def equations(x, wi, wh, bias=0.0, h=None, c=None, proj=None, peepholes=None):
    h = np.zeros((BATCH, wh.shape[1])) if h is None else h
    c = np.zeros((BATCH, HIDDEN)) if c is None else c
    hs, cs = [], []
    for step in x:
        i, f, g, o = np.split(step @ wi.T + h @ wh.T + bias, 4, axis=1)
        if peepholes:
            i, f = i + peepholes[0] * c, f + peepholes[1] * c
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        if peepholes:
            o = o + peepholes[2] * c
        h = sigmoid(o) * np.tanh(c)
        h = h if proj is None else h @ proj.T
        hs.append(h)
        cs.append(c)
    return np.stack(hs), np.stack(cs)


def check(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_against_pytorch():
    model = torch.nn.LSTM(IN, HIDDEN)
    x, h, c = array(STEPS, BATCH, IN), array(BATCH, HIDDEN), array(BATCH, HIDDEN)
    weights = [p.detach().numpy() for p in model.parameters()]
    found = run(topi.nn.lstm, x, *weights, h, c)
    hs, (_, last) = model(torch.tensor(x), (torch.tensor(h)[None], torch.tensor(c)[None]))
    check([found[0], found[1][-1]], [hs.detach().numpy(), last.detach().numpy()[0]])


def test_in_reverse():
    x, wi, wh = array(STEPS, BATCH, IN), array(4 * HIDDEN, IN), array(4 * HIDDEN, HIDDEN)
    check(run(lambda *t: topi.nn.lstm(*t, reverse=True), x, wi, wh), equations(x[::-1], wi, wh))


def test_another_order_of_the_gates():
    x, wi, wh = array(STEPS, BATCH, IN), array(4 * HIDDEN, IN), array(4 * HIDDEN, HIDDEN)
    moved = [np.concatenate([np.split(w, 4)[k] for k in (2, 0, 3, 1)]) for w in (wi, wh)]
    check(run(lambda *t: topi.nn.lstm(*t, weight_layout="GIOF"), x, *moved), equations(x, wi, wh))


def test_a_projection_and_weights_of_the_cell():
    x, wi, wh, proj = array(STEPS, BATCH, IN), array(4 * HIDDEN, IN), array(4 * HIDDEN, 2), array(2, HIDDEN)
    peepholes = [array(BATCH, HIDDEN) for _ in range(3)]
    found = run(
        lambda x, wi, wh, proj, i, f, o: topi.nn.lstm(x, wi, wh, proj=proj, p_i=i, p_f=f, p_o=o),
        x,
        wi,
        wh,
        proj,
        *peepholes,
    )
    check(found, equations(x, wi, wh, proj=proj, peepholes=peepholes))


def test_other_activations():
    x, wi, wh = array(1, BATCH, IN), array(4 * HIDDEN, IN), array(4 * HIDDEN, HIDDEN)
    same = dict.fromkeys(("f_act", "g_act", "h_act"), lambda v: v)
    i, _, g, o = np.split(x[0] @ wi.T, 4, axis=1)
    check(run(lambda *t: topi.nn.lstm(*t, **same), x, wi, wh), [(o * i * g)[None], (i * g)[None]])


def test_refusals():
    x, wi, wh = te.placeholder((5, 2, 3)), te.placeholder((16, 3)), te.placeholder((16, 4))
    with pytest.raises(InvalidValue, match="expected a weight layout of the letters I, F, G and O, found 'IFGG'"):
        topi.nn.lstm(x, wi, wh, weight_layout="IFGG")
    with pytest.raises(ShapeMismatch, match=r"four times the hidden size .* found the shapes \(14, 3\) and \(16, 4\)"):
        topi.nn.lstm(x, te.placeholder((14, 3)), wh)
    with pytest.raises(ShapeMismatch, match=r"nn.lstm: expected Xs of 3 dimensions"):
        topi.nn.lstm(te.placeholder((5, 3)), wi, wh)
