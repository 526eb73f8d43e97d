"""The built-in task: a GPT-style decoder on token files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import nn

from gradientmail.training.data.shards import Format
from gradientmail.training.decoder import Decoder, Shape
from gradientmail.training.schedule import WarmupCosine
from gradientmail.training.sequences import HeldOut, TokenSequences
from gradientmail.training.task import Setting, Task, TaskError

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]


def task(
    setting: Setting,
    *,
    train: str,
    held_out: str | None = None,
    held_out_sequences: Count = 64,
    format: Format = "auto",
    shuffle: bool = True,
    vocabulary: Annotated[int, Field(ge=1, le=65_536)] = 50_257,
    context: Count = 1024,
    layers: Count = 12,
    heads: Count = 12,
    width: Count = 768,
    dropout: Share = 0.0,
    tied: bool = True,
    positions: Literal["rotary", "learned"] = "rotary",
    learning_rate: Annotated[float, Field(gt=0)] = 6e-4,
    final_learning_rate: Annotated[float | None, Field(ge=0)] = None,
    warmup_steps: Annotated[int | None, Field(ge=0)] = None,
    weight_decay: Annotated[float, Field(ge=0)] = 0.1,
    beta1: Share = 0.9,
    beta2: Share = 0.95,
    epsilon: Annotated[float, Field(gt=0)] = 1e-8,
    compile: bool = False,
) -> Task:
    """Return a decoder that learns `train`, token files as `setting.corpus` opens them, evaluated on `held_out`.

    Sequences are shuffled within windows by the setting's seed, unless `shuffle` is false; see TokenSequences.
    The learning rate rises over `warmup_steps` (2 % of the steps, if left out) and falls to
    `final_learning_rate` (a tenth of `learning_rate`) at the run's last step. Raises TaskError or CorpusError.
    """
    shape = Shape(vocabulary, context, layers, heads, width, dropout, tied, positions)
    check_shape(shape)
    sequences = TokenSequences(
        setting.corpus(train, vocabulary=vocabulary, form=format), context, setting.seed if shuffle else None
    )
    evaluate = None
    if held_out is not None:
        corpus = setting.corpus(held_out, vocabulary=vocabulary, form=format)
        evaluate = HeldOut(TokenSequences(corpus, context), held_out_sequences, setting)
    model = build_model(shape, setting, compiled=compile)
    return Task(
        model=model,
        optimizer=torch.optim.AdamW(
            decay_groups(model.parameters(), weight_decay),
            lr=learning_rate,
            betas=(beta1, beta2),
            eps=epsilon,
            fused=setting.device.type == "cuda",
        ),
        schedule=WarmupCosine(
            peak=learning_rate,
            final=learning_rate / 10 if final_learning_rate is None else final_learning_rate,
            warmup=setting.steps // 50 if warmup_steps is None else warmup_steps,
            steps=setting.steps,
        ),
        sequences=sequences,
        context=context,
        available=sequences.available,
        evaluate=evaluate,
    )


def check_shape(shape: Shape) -> None:
    """Raise TaskError if the width does not fit the heads."""
    unit = shape.heads * (2 if shape.positions == "rotary" else 1)
    if shape.width % unit:
        raise TaskError(
            f"width is {shape.width} and heads is {shape.heads}: with {shape.positions} positions the width must be a "
            f"multiple of {unit}, as {max(1, shape.width // unit) * unit} is"
        )


def build_model(shape: Shape, setting: Setting, *, compiled: bool = False) -> Decoder:
    """Return a decoder on the setting's device; its parameters depend on the shape and the seed alone."""
    model = Decoder(shape)
    model.initialize(torch.Generator().manual_seed(setting.seed))
    model.to(setting.device)
    if compiled:
        model.compile()
    return model


def decay_groups(parameters: Iterable[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Return optimizer groups: weight decay for matrices, none for the gains of norms."""
    chosen = [parameter for parameter in parameters if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in chosen if parameter.dim() >= 2], "weight_decay": weight_decay},
        {"params": [parameter for parameter in chosen if parameter.dim() < 2], "weight_decay": 0.0},
    ]
