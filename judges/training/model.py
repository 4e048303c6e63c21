"""The encoder: a BERT whose evidence does not see the claim, so that its states can be kept and used again.

Evidence tokens attend to their own window; claim tokens attend to the claim and to all windows put beside it, as in a
prefix language model (Raffel et al. 2020, section 3.2.1) or in DeFormer (Cao et al. 2020), but in every layer. With
``prefix=False`` the same weights make a plain cross-encoder, in which all attends to all: the one to compare with.
"""

from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from judges.training.batches import CLAIM_TOKENS, Batch
from judges.training.data import Target

LABELS: Final = ("entailment", "neutral", "contradiction")
_MASKED: Final = -1e4
_EPSILON: Final = 1e-12
DROPOUT: Final = 0.1
"""Share of what each sublayer adds that is left out in training, as BERT was trained (Devlin et al. 2019, A.2)."""


class Layer(nn.Module):
    """One transformer layer of BERT (post-norm), over evidence and claims."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = nn.Dropout(dropout)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, _EPSILON)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.end_norm = nn.LayerNorm(width, _EPSILON)

    def project(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as (rows, tokens, heads, size)."""
        rows, tokens, width = states.shape
        qkv = self.qkv(states).view(rows, tokens, 3, self.heads, width // self.heads)
        return qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]

    def finish(self, states: Tensor, attended: Tensor) -> Tensor:
        """What follows attention: projection, norm, feed-forward, norm. ``attended`` is (rows, heads, tokens, size)."""
        flat = attended.transpose(1, 2).flatten(2)
        middle = self.norm(states + self.dropout(self.out(flat)))
        return torch.as_tensor(self.end_norm(middle + self.dropout(self.down(functional.gelu(self.up(middle))))))


class Judge(nn.Module):
    """Probabilities that evidence entails, leaves open or contradicts a claim."""

    def __init__(
        self,
        *,
        vocabulary: int = 30522,
        width: int = 384,
        layers: int = 6,
        heads: int = 12,
        inner: int = 1536,
        dropout: float = DROPOUT,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(512, width)
        self.kinds = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, _EPSILON)
        self._stack = [Layer(width, heads, inner, dropout) for _ in range(layers)]
        self.layers = nn.ModuleList(self._stack)
        self.pool = nn.Linear(2 * width, width)
        self.classify = nn.Linear(width, len(LABELS))
        self.words.weight.requires_grad_(False)

    def forward(self, batch: Batch, *, prefix: bool = True) -> Tensor:
        """Logits (groups, claims of each, 3)."""
        windows = torch.from_numpy(batch.windows)
        claims = torch.from_numpy(batch.claims)
        places = torch.from_numpy(batch.places)
        return self._prefix(windows, claims, places) if prefix else self._plain(windows, claims, places)

    def embed(self, ids: Tensor, *, start: int, kind: int) -> Tensor:
        """States of (rows, tokens) ids whose first stands at position ``start``."""
        positions = torch.arange(start, start + ids.shape[1])
        return torch.as_tensor(self.norm(self.words(ids) + self.positions(positions) + self.kinds.weight[kind]))

    def _prefix(self, windows: Tensor, claims: Tensor, places: Tensor) -> Tensor:
        groups, each, length = claims.shape
        rows = claims.view(groups * each, length)
        seen = places >= 0
        index = places.clamp_min(0).flatten()
        evidence_mask = torch.where(windows > 0, 0.0, _MASKED)[:, None, None, :]
        cross_mask = torch.where(seen, 0.0, _MASKED)[:, None, None, None, :]
        own_mask = torch.where(claims > 0, 0.0, _MASKED)[:, :, None, None, :]
        evidence = self.embed(windows, start=CLAIM_TOKENS, kind=1)
        states = self.embed(rows, start=0, kind=0)
        for number, layer in enumerate(self._stack):
            e_query, e_key, e_value = layer.project(evidence)
            query, key, value = layer.project(states)
            shape = (groups, seen.shape[1], layer.heads, -1)
            far_key = e_key.flatten(0, 1)[index].view(shape).transpose(1, 2)
            far_value = e_value.flatten(0, 1)[index].view(shape).transpose(1, 2)
            attended = _attend(query, key, value, far_key, far_value, cross_mask, own_mask)
            states = layer.finish(states, attended)
            if number + 1 < len(self.layers):
                mine = _plainly(e_query, e_key, e_value, evidence_mask)
                evidence = layer.finish(evidence, mine)
        return self._logits(states, rows > 0).view(groups, each, -1)

    def _plain(self, windows: Tensor, claims: Tensor, places: Tensor) -> Tensor:
        groups, each, length = claims.shape
        room = 512 - CLAIM_TOKENS
        places = places[:, :room]
        evidence_ids = torch.where(places >= 0, windows.flatten()[places.clamp_min(0)], 0)
        evidence = self.embed(evidence_ids, start=CLAIM_TOKENS, kind=1).repeat_interleave(each, dim=0)
        rows = claims.view(groups * each, length)
        states = torch.cat((self.embed(rows, start=0, kind=0), evidence), dim=1)
        ids = torch.cat((rows, evidence_ids.repeat_interleave(each, dim=0)), dim=1)
        mask = torch.where(ids > 0, 0.0, _MASKED)[:, None, None, :]
        for layer in self._stack:
            states = layer.finish(states, _plainly(*layer.project(states), mask))
        return self._logits(states[:, :length], rows > 0).view(groups, each, -1)

    def _logits(self, states: Tensor, present: Tensor) -> Tensor:
        weights = present.to(states.dtype)[:, :, None]
        mean = (states * weights).sum(1) / weights.sum(1).clamp_min(1.0)
        pooled = torch.tanh(self.pool(torch.cat((states[:, 0], mean), dim=-1)))
        return torch.as_tensor(self.classify(pooled))


def _plainly(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Attention of all (rows, tokens, heads, size) to all of the same row, in the type of its arguments."""
    with torch.autocast("cpu", enabled=False):
        scores = (query.transpose(1, 2) * query.shape[-1] ** -0.5) @ key.permute(0, 2, 3, 1)
        return scores.add_(mask.to(scores.dtype)).softmax(-1) @ value.transpose(1, 2)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, far_key: Tensor, far_value: Tensor, far_mask: Tensor, own_mask: Tensor
) -> Tensor:
    """One softmax over the evidence of a group and over the claim itself. The claims of a group are taken together for
    the former, so that its keys are not copied for each."""
    groups, heads, far, size = far_key.shape
    rows, length = query.shape[:2]
    each = rows // groups
    with torch.autocast("cpu", enabled=False):
        own_query = query.transpose(1, 2) * size**-0.5
        together = own_query.view(groups, each, heads, length, size).transpose(1, 2)
        far_scores = together.reshape(groups, heads, each * length, size) @ far_key.transpose(-1, -2)
        far_scores = far_scores.view(groups, heads, each, length, far).add_(far_mask.to(far_scores.dtype))
        own_scores = (own_query @ key.permute(0, 2, 3, 1)).view(groups, each, heads, length, length)
        own_scores = own_scores.add_(own_mask.to(own_scores.dtype))
        weights = torch.cat((far_scores, own_scores.transpose(1, 2)), dim=-1).softmax(-1)
        from_far = weights[..., :far].reshape(groups, heads, each * length, far) @ far_value
        from_own = weights[..., far:].transpose(1, 2).reshape(rows, heads, length, length) @ value.transpose(1, 2)
        from_far = from_far.view(groups, heads, each, length, size).transpose(1, 2).reshape(rows, heads, length, size)
        return from_far + from_own


def loss(logits: Tensor, targets: Tensor, priors: Tensor | None = None) -> Tensor:
    """Mean cross-entropy; where two classes are told alone, that of "entailed" against the sum of the other two.
    Targets of -1 count for nothing.

    ``priors``: the log-odds of "entailed" that the words of each claim tell without being read. They are added to the
    model's own, so that it learns what they do not tell (product of experts, Clark et al. 2019, "Don't take the easy
    way out"); the combiner has them in its own measure of wording.
    """
    logits = logits.float()
    if priors is not None:
        logits = logits + functional.pad(priors[..., None], (0, len(LABELS) - 1))
    logs = functional.log_softmax(logits, dim=-1)
    wanted = targets.clamp(0, 2)
    exact = logs.gather(-1, wanted[..., None])[..., 0]
    either = torch.logsumexp(logs[..., Target.NEUTRAL :], dim=-1)
    gain = torch.where(targets == Target.OTHER, either, exact)
    present = targets >= 0
    return -(gain * present).sum() / present.sum().clamp_min(1)


def from_base(folder: Path) -> Judge:
    """A judge whose weights are those of a BERT in ``folder`` (``model.safetensors``), the head new."""
    weights = load_file(folder / "model.safetensors")
    named = {name.removeprefix("bert."): tensor for name, tensor in weights.items()}
    count = 1 + max(int(name.split(".")[2]) for name in named if name.startswith("encoder.layer."))
    vocabulary, width = named["embeddings.word_embeddings.weight"].shape
    inner = named["encoder.layer.0.intermediate.dense.weight"].shape[0]
    judge = Judge(vocabulary=vocabulary, width=width, layers=count, heads=width // 32, inner=inner)
    state = {
        "words.weight": named["embeddings.word_embeddings.weight"],
        "positions.weight": named["embeddings.position_embeddings.weight"],
        "kinds.weight": named["embeddings.token_type_embeddings.weight"],
        **_pair("norm", named, "embeddings.LayerNorm"),
    }
    for number in range(count):
        there, here = f"encoder.layer.{number}", f"layers.{number}"
        parts = [f"{there}.attention.self.{part}" for part in ("query", "key", "value")]
        for kind in ("weight", "bias"):
            state[f"{here}.qkv.{kind}"] = torch.cat([named[f"{part}.{kind}"] for part in parts])
        state |= _pair(f"{here}.out", named, f"{there}.attention.output.dense")
        state |= _pair(f"{here}.norm", named, f"{there}.attention.output.LayerNorm")
        state |= _pair(f"{here}.up", named, f"{there}.intermediate.dense")
        state |= _pair(f"{here}.down", named, f"{there}.output.dense")
        state |= _pair(f"{here}.end_norm", named, f"{there}.output.LayerNorm")
    judge.load_state_dict(state, strict=False)
    return judge


def _pair(here: str, weights: dict[str, Tensor], there: str) -> dict[str, Tensor]:
    return {f"{here}.{kind}": weights[f"{there}.{kind}"] for kind in ("weight", "bias")}
