"""Trains such an adapter on a CPU: ``python -m specdec_demo_model.train --out FOLDER``.

The functions take any causal language model; only the command at the end knows the demo model.
"""

from __future__ import annotations

import itertools
import math
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer

from specdec.errors import SpecdecError
from specdec_demo_model import bfcl, forms
from specdec_demo_model.paths import CHAT_TEMPLATE
from specdec_demo_model.quiet import quiet
from specdec_demo_model.weights import find_weights, read_base

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

    from specdec_demo_model.forms import Encoded

BATCH = 6
PEAK_RATE = 6e-4
LONGEST = 850  # tokens; longer examples cost much and are few
_IGNORED = -100  # the label that cross_entropy skips


def add_adapter(model: PreTrainedModel, rank: int = 16) -> PeftModel:
    """`model` with a fresh LoRA adapter on its attention and feed-forward projections."""
    from peft import LoraConfig, PeftModel, TaskType, get_peft_model

    config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules=[
            *("q_proj", "k_proj", "v_proj", "o_proj"),
            *("gate_proj", "up_proj", "down_proj"),
        ],
    )
    with warnings.catch_warnings():
        # peft asks transformers for attributes under their old names.
        warnings.simplefilter("ignore", FutureWarning)
        adapted = get_peft_model(model, config)
    assert isinstance(adapted, PeftModel)
    return adapted


def train(
    model: PeftModel,
    examples: Sequence[Encoded],
    *,
    steps: int,
    pad_id: int,
    batch: int = BATCH,
    peak_rate: float = PEAK_RATE,
    seed: int = 0,
    report: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Trains the adapter in place: AdamW, a short warm-up, then a cosine down to zero.

    Args:
        model: What `add_adapter` returned.
        examples: Encoded prompts and answers; gone through again when they run out.
        steps: How many batches.
        pad_id: What fills the shorter rows of a batch; never attended to.
        batch: Examples in a step.
        peak_rate: The highest learning rate.
        seed: Of the order of the examples.
        report: Called after each step with its number, from 1, and its loss.

    Returns:
        The loss of every step.

    Raises:
        SpecdecError: If there are no examples.
    """
    if not examples:
        raise SpecdecError("no training example is short enough")
    optimizer = torch.optim.AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=peak_rate,
        weight_decay=0.0,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    device = next(model.parameters()).device
    model.train()
    losses = []
    for step, rows in enumerate(itertools.islice(_batches(examples, batch, seed), steps), 1):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = _loss(model, rows, pad_id, device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(loss.item())
        if report is not None:
            report(step, losses[-1])
    model.eval()
    return losses


def save(model: PeftModel, folder: Path) -> None:
    """Writes the adapter in float16, as peft reads it."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.half()
    # "auto" would ask the hub about the base model's vocabulary, which no adapter here touches.
    model.save_pretrained(str(folder), save_embedding_layers=False)


def _rate(step: int, steps: int) -> float:
    warm_up = max(1, steps // 20)
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def _batches(examples: Sequence[Encoded], batch: int, seed: int) -> Iterator[Sequence[Encoded]]:
    order = random.Random(seed)
    while True:
        shuffled = order.sample(examples, len(examples))
        for start in range(0, len(shuffled), batch):
            yield shuffled[start : start + batch]


def _loss(
    model: PeftModel, rows: Sequence[Encoded], pad_id: int, device: torch.device
) -> torch.Tensor:
    # Padding goes left, so that the answers end together and the wide output layer runs only
    # over the last columns.
    width, answer = max(len(row.ids) for row in rows), max(row.answer for row in rows)
    pads = [width - len(row.ids) for row in rows]
    ids = [[pad_id] * pad + list(row.ids) for pad, row in zip(pads, rows, strict=True)]
    seen = [[0] * pad + [1] * len(row.ids) for pad, row in zip(pads, rows, strict=True)]
    labels = [[_IGNORED] * (answer - row.answer) + list(row.ids[-row.answer :]) for row in rows]
    mask = torch.tensor(seen, device=device)
    logits = model(
        input_ids=torch.tensor(ids, device=device),
        attention_mask=mask,
        position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
        logits_to_keep=answer + 1,
        use_cache=False,
    ).logits[:, :-1]
    return torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1),
        torch.tensor(labels, device=device).flatten(),
        ignore_index=_IGNORED,
    )


def main(
    out: Annotated[Path, typer.Option(help="Folder for the adapter; made if absent.")],
    steps: Annotated[int, typer.Option(min=1, help="Batches of six examples.")] = 175,
    threads: Annotated[int, typer.Option(min=1, help="Threads for torch.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the order of the examples.")] = 0,
) -> None:
    """Train a tool-calling adapter for the demo model from the data of bfcl-eval."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    try:
        data, weights = bfcl.find_data(), find_weights()
        out.mkdir(parents=True, exist_ok=True)  # before the long part, not after it
        examples, kept = bfcl.split(bfcl.read_examples(data))
        random.Random(seed).shuffle(examples)
        with quiet():
            model, tokenizer = read_base(weights)
        tokenizer.chat_template = CHAT_TEMPLATE.read_text(encoding="utf-8")
        encoded = forms.encode(examples, tokenizer, longest=LONGEST, seed=seed)
        typer.echo(f"{len(encoded)} examples to train on, {len(kept)} held out")
        adapted = add_adapter(model)
        train(
            adapted,
            encoded,
            steps=steps,
            pad_id=int(tokenizer.pad_token_id),
            seed=seed,
            report=lambda step, loss: typer.echo(f"step {step}/{steps}  loss {loss:.3f}"),
        )
        save(adapted, out)
    except (SpecdecError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"adapter written to {out}")


if __name__ == "__main__":
    typer.run(main)
