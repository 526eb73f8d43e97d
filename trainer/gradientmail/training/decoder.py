"""A GPT-style decoder: pre-norm blocks of causal self-attention and a GELU network (Radford et al. 2019).

Positions are rotary (Su et al., arXiv 2104.09864) or learned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder."""

    vocabulary: int
    context: int
    """The longest sequence, in tokens."""
    layers: int
    heads: int
    width: int
    """Size of the residual stream; a multiple of the heads, and of twice the heads for rotary positions."""
    dropout: float = 0.0
    tied: bool = True
    """Whether the output layer shares the token embedding's parameters."""
    positions: Literal["rotary", "learned"] = "rotary"


class Decoder(nn.Module):
    """`model(x, y)` takes tokens and targets of shape (batch, time) and returns the mean cross-entropy in nats."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.context, shape.width) if shape.positions == "learned" else None
        self.dropout = nn.Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, bias=False)
        self.output = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.output.weight = self.embedding.weight

    def logits(self, tokens: Tensor) -> Tensor:
        """Return scores of shape (batch, time, vocabulary) for the token after each."""
        state = self.embedding(tokens)
        if self.position is not None:
            state = state + self.position.weight[: tokens.shape[1]]
        state = self.dropout(state)
        for block in self.blocks:
            state = block(state)
        scores: Tensor = self.output(self.norm(state))
        return scores

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss over all targets, computed in float32."""
        scores = self.logits(tokens)
        return F.cross_entropy(scores.float().flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw all parameters anew: normal with deviation 0.02, less for the layers that add to the residual stream."""
        residual = 0.02 / math.sqrt(2 * self.shape.layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue
            deviation = residual if name.endswith((".merge.weight", ".contract.weight")) else 0.02
            nn.init.normal_(parameter, std=deviation, generator=generator)


class Block(nn.Module):
    """Attention and a two-layer network, each on a normalized copy of the residual stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.width, bias=False)
        self.attention = Attention(shape)
        self.network_norm = nn.LayerNorm(shape.width, bias=False)
        self.network = Network(shape)

    def forward(self, state: Tensor) -> Tensor:
        """Return the residual stream after this block."""
        state = state + self.attention(self.attention_norm(state))
        added: Tensor = state + self.network(self.network_norm(state))
        return added


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.rate = shape.dropout
        self.project = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.merge = nn.Linear(shape.width, shape.width, bias=False)
        self.dropout = nn.Dropout(shape.dropout)
        self.rotation = Rotation(shape) if shape.positions == "rotary" else None

    def forward(self, state: Tensor) -> Tensor:
        """Return what each position gathers from itself and those before it."""
        batch, time, width = state.shape
        heads = self.project(state).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        if self.rotation is not None:
            query, key = self.rotation(query), self.rotation(key)
        mixed = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, dropout_p=self.rate if self.training else 0.0
        )
        gathered: Tensor = self.dropout(self.merge(mixed.transpose(1, 2).reshape(batch, time, width)))
        return gathered


class Rotation(nn.Module):
    """Rotates pairs of features by angles that grow with the position."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, shape: Shape, base: float = 10_000.0) -> None:
        super().__init__()
        half = shape.width // shape.heads // 2
        frequencies = base ** -(torch.arange(half, dtype=torch.float32) / half)
        angles = torch.outer(torch.arange(shape.context, dtype=torch.float32), frequencies)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return features of shape (batch, heads, time, size), rotated."""
        time = features.shape[-2]
        cosine, sine = self.cosine[:time], self.sine[:time]
        first, second = features.float().chunk(2, dim=-1)
        turned = torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)
        return turned.type_as(features)


class Network(nn.Module):
    """A layer four times as wide, GELU, and a layer back."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.expand = nn.Linear(shape.width, 4 * shape.width, bias=False)
        self.contract = nn.Linear(4 * shape.width, shape.width, bias=False)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, state: Tensor) -> Tensor:
        """Return the network's addition to the residual stream."""
        addition: Tensor = self.dropout(self.contract(F.gelu(self.expand(state))))
        return addition
