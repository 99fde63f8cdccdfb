"""Trains the Transformer of `model.py` and writes the file beside it: `python -m examples.sorting.train`.

It sees random digits only, so there is no data to fetch. One thread of a CPU takes a few minutes.
"""

from __future__ import annotations

import torch
from torch import nn

from examples.sorting.model import DIGITS, LENGTH, WEIGHTS, Sorter, load_model
from oneir.runtime import save_param_dict_to_file

STEPS, BATCH, LARGEST_RATE = 4000, 256, 3e-3


def train(model: Sorter) -> None:
    """Adam, with a rate that rises and falls once, on the cross entropy; `model` is trained in place."""
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LARGEST_RATE, total_steps=STEPS)
    for step in range(1, STEPS + 1):
        digits = torch.randint(DIGITS, (BATCH, LENGTH))
        loss = nn.functional.cross_entropy(model(digits).flatten(0, 1), digits.sort(-1).values.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 500 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Sorter()
    train(model)
    save_param_dict_to_file({key: value.detach().numpy() for key, value in model.state_dict().items()}, WEIGHTS)
    # What counts is what the file holds, so it is read back.
    digits = torch.randint(DIGITS, (10_000, LENGTH))
    with torch.inference_mode():
        right = (load_model()(digits).argmax(-1) == digits.sort(-1).values).all(-1).sum()
    print(f"{int(right)} of {len(digits)} rows sorted right")


if __name__ == "__main__":
    main()
