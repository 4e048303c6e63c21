"""The encoder: a BERT or MPNet in which evidence does not attend to the claim, so that the states of the evidence can
be cached and reused.

Evidence tokens attend to their own window; claim tokens attend to the claim and to all its windows, as in a prefix
language model (Raffel et al. 2020, section 3.2.1) or in DeFormer (Cao et al. 2020), but in every layer. With
``prefix=False``, the same weights form a plain cross-encoder with full attention, which serves as the baseline.

A batch has no padding: its tokens are concatenated, and attention is computed part by part.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from judges.training.data.batching import CLAIM_TOKENS, Batch
from judges.training.data.datasets import Target

LABELS: Final = ("entailment", "neutral", "contradiction")
DROPOUT: Final = 0.1
"""The dropout rate for each sublayer's output in training, as in BERT (Devlin et al. 2019, A.2)."""
BUCKETS: Final = 32
"""The number of buckets into which MPNet sorts relative positions."""
_FARTHEST: Final = 128
"""The distance beyond which MPNet treats all relative positions alike."""
_MASKED: Final = -1e4
_POSITIONS: Final = 512


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """The ranges [start, end) of a batch's query tokens and of the key tokens that they attend to, and the bias that is
    added to their scores: (heads, queries, keys), or None.
    """

    queries: tuple[int, int]
    keys: tuple[int, int]
    bias: Tensor | None


class Layer(nn.Module):
    """One transformer layer of BERT (post-norm), over the tokens of a batch."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float, epsilon: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, epsilon)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.end_norm = nn.LayerNorm(width, epsilon)

    def forward(self, states: Tensor, parts: Sequence[AttentionBlock], rows: Tensor | None = None) -> Tensor:
        """Return the states (tokens, width) after attention by ``parts``, or only those of ``rows`` if given."""
        attended = cast(Tensor, _Attention.apply(self.qkv(states), parts, self.heads))  # type: ignore[no-untyped-call]
        if rows is not None:
            states, attended = states[rows], attended[rows]
        middle = self.norm(states + self._drop(self.out(attended)))
        return torch.as_tensor(self.end_norm(middle + self._drop(self.down(functional.gelu(self.up(middle))))))

    def thaw(self) -> None:
        """Make the layer trainable. If it has adapters, only the adapters, biases and norms are trained."""
        for module in self.children():
            adapted = hasattr(module, "low")
            for name, value in module.named_parameters():
                value.requires_grad_(not adapted or name != "weight")

    def _drop(self, states: Tensor) -> Tensor:
        return _drop(states, self.dropout) if self.training else states


class Judge(nn.Module):
    """The probabilities that evidence entails, is neutral to, or contradicts a claim."""

    def __init__(
        self,
        *,
        vocabulary: int = 30522,
        width: int = 384,
        layers: int = 6,
        heads: int = 12,
        inner: int = 1536,
        relative: bool = False,
        epsilon: float = 1e-12,
        dropout: float = DROPOUT,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.epsilon = epsilon
        self.frozen = 0
        """The number of lowest layers that are frozen."""
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(_POSITIONS, width)
        self.kinds = nn.Embedding(2, width)
        self.relative = nn.Embedding(BUCKETS, heads) if relative else None
        self.norm = nn.LayerNorm(width, epsilon)
        self._stack = [Layer(width, heads, inner, dropout, epsilon) for _ in range(layers)]
        self.layers = nn.ModuleList(self._stack)
        self.pool = nn.Linear(2 * width, width)
        self.classify = nn.Linear(width, len(LABELS))
        self.words.weight.requires_grad_(False)
        if self.relative is not None:
            self.relative.weight.requires_grad_(False)

    def freeze(self, layers: int) -> None:
        """Freeze the embeddings and the lowest ``layers`` layers, which reduces their cost to a third. With 0,
        everything is trained except matrices with adapters. Call this again after ``train()``, because frozen layers
        don't use dropout.
        """
        self.frozen = layers
        for module in (self.positions, self.kinds, self.norm, *self._stack[:layers]):
            module.requires_grad_(not layers)
            module.train(self.training and not layers)
        for layer in self._stack[layers:]:
            layer.thaw()

    def halved(self) -> "Judge":
        """Return a copy that computes in bfloat16, except for the head. It is three times as fast on CPUs that support
        bfloat16."""
        half = copy.deepcopy(self).to(torch.bfloat16)
        for module in (half.pool, half.classify):
            module.float()
        return half

    def forward(self, batch: Batch, *, prefix: bool = True) -> Tensor:
        """Return the logits (claims, 3) for the claims of all groups, in order."""
        if not prefix:
            batch = batch.repeated(_POSITIONS - CLAIM_TOKENS)
        kind = torch.from_numpy(batch.kinds)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            states = self.embed(torch.from_numpy(batch.ids), torch.from_numpy(batch.positions), kind)
        parts = self._parts(batch) if prefix else self._plain_parts(batch)
        *lower, last = self._stack
        for number, layer in enumerate(lower):
            with torch.set_grad_enabled(torch.is_grad_enabled() and number >= self.frozen):
                states = layer(states, parts)
        lengths = torch.from_numpy(batch.lengths)
        begins = torch.from_numpy(batch.starts)
        ends = lengths.cumsum(0)
        owner = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        rows = torch.arange(len(owner)) + (begins - ends + lengths)[owner]
        # Nothing reads the states of the evidence after the last layer.
        claim_blocks = [block for block in parts if block.queries != block.keys or not prefix]
        return self._logits(last(states, claim_blocks, rows), owner, ends - lengths, lengths)

    def embed(self, ids: Tensor, positions: Tensor, kinds: Tensor) -> Tensor:
        """Return the states of tokens, from their ids, their positions, and whether they belong to evidence."""
        return torch.as_tensor(self.norm(self.words(ids) + self.positions(positions) + self.kinds(kinds)))

    def distances(self, queries: int, keys: int) -> Tensor:
        """Return the bias added to attention scores within one text: (heads, queries, keys)."""
        if self.relative is None:
            return self.norm.weight.new_zeros(self.heads, queries, keys)
        apart = torch.arange(keys)[None] - torch.arange(queries)[:, None]
        return self.relative.weight.detach()[bucket(apart)].permute(2, 0, 1).contiguous()

    def far(self) -> Tensor:
        """Return the bias added to attention scores from claim to evidence, which have no relative position:
        (heads,)."""
        if self.relative is None:
            return self.norm.weight.new_zeros(self.heads)
        return self.relative.weight.detach()[bucket(torch.tensor(_FARTHEST))]

    def _parts(self, batch: Batch) -> list[AttentionBlock]:
        longest = max(length for group in batch.groups for length in (*group.windows, *group.claims))
        near, far = self.distances(longest, longest), self.far()
        parts: list[AttentionBlock] = []
        start = 0
        for group in batch.groups:
            evidence_start = start
            for length in group.windows:
                bias = near[:, :length, :length] if self.relative is not None else None
                parts.append(AttentionBlock((start, start + length), (start, start + length), bias))
                start += length
            evidence, own = start - evidence_start, sum(group.claims)
            bias = near.new_full((self.heads, own, evidence + own), _MASKED)
            bias[:, :, :evidence] = far[:, None, None]
            place = 0
            for length in group.claims:
                end = place + length
                bias[:, place:end, evidence + place : evidence + end] = near[:, :length, :length]
                place = end
            parts.append(AttentionBlock((start, start + own), (evidence_start, start + own), bias))
            start += own
        return parts

    def _plain_parts(self, batch: Batch) -> list[AttentionBlock]:
        parts: list[AttentionBlock] = []
        start = 0
        for group in batch.groups:
            length = sum(group.windows) + sum(group.claims)
            bias = None
            if self.relative is not None:
                places = torch.from_numpy(batch.positions[start : start + length])
                apart = places[None] - places[:, None]
                bias = self.relative.weight.detach()[bucket(apart)].permute(2, 0, 1).contiguous()
            parts.append(AttentionBlock((start, start + length), (start, start + length), bias))
            start += length
        return parts

    def _logits(self, states: Tensor, owner: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
        """Return the logits, from each claim's first state and the mean of its states. ``states`` contains only the
        states of claims."""
        states = states.to(self.pool.weight.dtype)
        mean = states.new_zeros(len(starts), states.shape[1]).index_add(0, owner, states) / lengths[:, None]
        pooled = torch.tanh(self.pool(torch.cat((states[starts], mean), dim=-1)))
        return torch.as_tensor(self.classify(pooled))


class _Attention(torch.autograd.Function):
    """Attention part by part, over (tokens, 3 x width) queries, keys and values."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, parts: Sequence[AttentionBlock], heads: int) -> Tensor:
        tokens, width = qkv.shape[0], qkv.shape[1] // 3
        split = qkv.view(tokens, 3, heads, width // heads)
        scale = (width // heads) ** -0.5
        out = qkv.new_zeros(tokens, heads, width // heads)
        kept: list[Tensor] = []
        for part in parts:
            query, key, value = _of(split, part)
            if part.bias is None:
                scores = torch.bmm(query, key.transpose(1, 2)).mul_(scale)
            else:
                scores = torch.baddbmm(part.bias, query, key.transpose(1, 2), alpha=scale)
            weights = scores.softmax(-1)
            out[slice(*part.queries)] = torch.bmm(weights, value).transpose(0, 1)
            kept.append(weights)
        ctx.save_for_backward(qkv, *kept)
        ctx.parts, ctx.heads = parts, heads
        return out.view(tokens, width)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        qkv, *kept = ctx.saved_tensors
        tokens, width = qkv.shape[0], qkv.shape[1] // 3
        shape = (tokens, 3, ctx.heads, width // ctx.heads)
        split, given = qkv.view(shape), gradients[0].reshape(tokens, ctx.heads, -1)
        scale = shape[-1] ** -0.5
        found = qkv.new_zeros(shape)
        for part, weights in zip(ctx.parts, kept, strict=True):
            query, key, value = _of(split, part)
            above = given[slice(*part.queries)].transpose(0, 1)
            scores = torch._softmax_backward_data(torch.bmm(above, value.transpose(1, 2)), weights, -1, qkv.dtype)
            queries, keys = slice(*part.queries), slice(*part.keys)
            found[queries, 0] += torch.bmm(scores, key).transpose(0, 1)
            found[keys, 1] += torch.bmm(scores.transpose(1, 2), query).transpose(0, 1)
            found[keys, 2] += torch.bmm(weights.transpose(1, 2), above).transpose(0, 1)
        found[:, :2] *= scale
        return found.view(tokens, 3 * width), None, None


def _of(split: Tensor, part: AttentionBlock) -> tuple[Tensor, Tensor, Tensor]:
    """Return the queries, keys and values of a part as (heads, tokens, size)."""
    queries, keys = slice(*part.queries), slice(*part.keys)
    return split[queries, 0].transpose(0, 1), split[keys, 1].transpose(0, 1), split[keys, 2].transpose(0, 1)


def _drop(states: Tensor, share: float) -> Tensor:
    """Dropout from random bytes. ``nn.Dropout`` draws eight times as much random data, which takes a fifth of the time
    of a step.
    """
    if not share:
        return states
    count = states.numel()
    noise = torch.empty((count + 7) // 8, dtype=torch.int64).random_(-(2**63), None).view(torch.uint8)[:count]
    kept = (noise >= round(256 * share)).view(states.shape)
    return states * kept.to(states.dtype).mul_(1 / (1 - round(256 * share) / 256))


def bucket(apart: Tensor) -> Tensor:
    """Return the T5 buckets that MPNet uses, for key position minus query position."""
    half = BUCKETS // 2
    distance = apart.abs()
    exact = half // 2
    far = (
        exact + (torch.log(distance.float().clamp_min(1) / exact) / math.log(_FARTHEST / exact) * (half - exact)).long()
    )
    return (apart > 0).long() * half + torch.where(distance < exact, distance, far.clamp_max(half - 1))


def loss(logits: Tensor, targets: Tensor, priors: Tensor | None = None) -> Tensor:
    """Return the mean cross-entropy. With two-class labels, "entailed" is compared with the sum of the other two
    classes. ``priors`` are the log-odds of "entailed" predicted from each claim's word overlap alone. They are added to
    the model's own logits, so that the model learns only the part that overlap doesn't predict (product of experts,
    Clark et al. 2019, "Don't take the easy way out"). At run time, the combiner's wording measures take the place of
    the priors.
    """
    logits = logits.float()
    if priors is not None:
        logits = logits + functional.pad(priors[..., None], (0, len(LABELS) - 1))
    logs = functional.log_softmax(logits, dim=-1)
    exact = logs.gather(-1, targets.clamp(0, 2)[..., None])[..., 0]
    either = torch.logsumexp(logs[..., Target.NEUTRAL :], dim=-1)
    return -torch.where(targets == Target.OTHER, either, exact).mean()


_BERT: Final = {
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "out": ("attention.output.dense",),
    "norm": ("attention.output.LayerNorm",),
}
_MPNET: Final = {
    "qkv": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    "out": ("attention.attn.o",),
    "norm": ("attention.LayerNorm",),
}
_BOTH: Final = {"up": ("intermediate.dense",), "down": ("output.dense",), "end_norm": ("output.LayerNorm",)}
_RELATIVE: Final = "encoder.relative_attention_bias.weight"


def from_base(folder: Path, *, dropout: float = DROPOUT) -> Judge:
    """Return a judge with the weights of a BERT or MPNet in ``folder`` (``model.safetensors``) and a new head. The
    first two positions of an MPNet are never used. Its vocabulary also contains ``[CLS]`` and ``[SEP]``, which get the
    embeddings of its ``<s>`` and ``</s>``, so that id 0 is padding in both models.
    """
    named = {
        name.removeprefix("bert.").removeprefix("mpnet."): tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    count = 1 + max(int(name.split(".")[2]) for name in named if name.startswith("encoder.layer."))
    vocabulary, width = named["embeddings.word_embeddings.weight"].shape
    inner = named["encoder.layer.0.intermediate.dense.weight"].shape[0]
    relative = named.get(_RELATIVE)
    judge = Judge(
        vocabulary=vocabulary,
        width=width,
        layers=count,
        heads=width // 32 if relative is None else relative.shape[1],
        inner=inner,
        relative=relative is not None,
        epsilon=1e-12 if relative is None else 1e-5,
        dropout=dropout,
    )
    state = {
        "words.weight": named["embeddings.word_embeddings.weight"],
        "positions.weight": named["embeddings.position_embeddings.weight"][-_POSITIONS:],
        **_pair("norm", named, ["embeddings.LayerNorm"]),
    }
    if relative is None:
        state["kinds.weight"] = named["embeddings.token_type_embeddings.weight"]
    else:
        state |= {
            "relative.weight": relative,
            "kinds.weight": torch.zeros(2, width),
            "words.weight": _as_bert(state["words.weight"]),
        }
    names = _BOTH | (_BERT if relative is None else _MPNET)
    for number in range(count):
        for here, there in names.items():
            state |= _pair(f"layers.{number}.{here}", named, [f"encoder.layer.{number}.{one}" for one in there])
    judge.load_state_dict(state, strict=False)
    return judge


_PAD, _CLS, _SEP = 0, 105, 106
"""MPNet's vocabulary also has untrained entries for BERT's ``[CLS]`` and ``[SEP]``. They get the embeddings of ``<s>``
and ``</s>``. This frees id 0 (``<s>``) for padding, as in BERT."""


def _as_bert(words: Tensor) -> Tensor:
    words = words.clone()
    words[[_CLS, _SEP]] = words[[0, 2]]
    words[_PAD] = 0
    return words


def _pair(here: str, weights: Mapping[str, Tensor], there: Sequence[str]) -> dict[str, Tensor]:
    """Return the weight and bias of one module, stacked if there are several."""
    return {f"{here}.{kind}": torch.cat([weights[f"{one}.{kind}"] for one in there]) for kind in ("weight", "bias")}
