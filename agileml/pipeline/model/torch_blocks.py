"""The layers of a small causal transformer in PyTorch, and their parts."""

import torch
from torch import nn


class TokenEmbedding(nn.Module):
    """Token and position."""

    def __init__(self, tokens: int, sequence: int, hidden: int) -> None:
        super().__init__()
        self.token = nn.Embedding(tokens, hidden)
        self.position = nn.Parameter(torch.zeros(sequence, hidden))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        embedded: torch.Tensor = self.token(numbers)
        return embedded + self.position[: numbers.shape[1]]


class CausalBlock(nn.Module):
    """Attention to earlier tokens, and a feed-forward layer."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(hidden)
        self.between = nn.LayerNorm(hidden)
        self.mixed = nn.Linear(hidden, 3 * hidden)
        self.joined = nn.Linear(hidden, hidden)
        self.wide = nn.Linear(hidden, 4 * hidden)
        self.narrow = nn.Linear(4 * hidden, hidden)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        samples, length, hidden = inputs.shape
        parts = self.mixed(self.before(inputs)).view(
            samples, length, 3, self.heads, hidden // self.heads
        )
        query, key, value = (parts[:, :, i].transpose(1, 2) for i in range(3))
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended: torch.Tensor = inputs + self.joined(
            seen.transpose(1, 2).reshape(samples, length, hidden)
        )
        narrowed: torch.Tensor = self.narrow(nn.functional.gelu(self.wide(self.between(attended))))

        return attended + narrowed


class AttentionPart(nn.Module):
    """Some heads of an attention layer on normalized inputs. The first part has the bias of the
    sum.
    """

    def __init__(self, hidden: int, heads: int, part: int, parts: int) -> None:
        super().__init__()
        self.heads = heads // parts
        self.size = hidden // heads
        inner = self.heads * self.size
        self.mixed = nn.Linear(hidden, 3 * inner)
        self.joined = nn.Linear(inner, hidden, bias=part == 0)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        samples, length, hidden = inputs.shape
        normal = nn.functional.layer_norm(inputs, (hidden,))
        mixed = self.mixed(normal).view(samples, length, 3, self.heads, self.size)
        query, key, value = (mixed[:, :, i].transpose(1, 2) for i in range(3))
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined: torch.Tensor = self.joined(seen.transpose(1, 2).reshape(samples, length, -1))
        return joined


class FeedForwardPart(nn.Module):
    """Some hidden units of a feed-forward layer on normalized inputs. The first part has the bias
    of the sum.
    """

    def __init__(self, hidden: int, inner: int, part: int, parts: int) -> None:
        super().__init__()
        own = inner // parts
        self.wide = nn.Linear(hidden, own)
        self.narrow = nn.Linear(own, hidden, bias=part == 0)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        normal = nn.functional.layer_norm(inputs, inputs.shape[-1:])
        narrowed: torch.Tensor = self.narrow(nn.functional.gelu(self.wide(normal)))
        return narrowed
