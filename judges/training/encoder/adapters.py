"""Low-rank adapters: frozen matrices whose updates are products of two small matrices (LoRA, Hu et al. 2021).

The gradients of the large matrices are never computed, and the trained part of an encoder with 110 million parameters
takes 15 MB instead of 340 MB.
"""

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from judges.training.encoder.model import Judge

_MATRICES = ("qkv", "out", "up", "down")


class Adapted(nn.Module):
    """A linear layer with a frozen ``weight`` (out, in), a trained ``bias``, and the trained update ``high @ low``,
    which starts at 0.
    """

    def __init__(self, given: nn.Linear, rank: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(given.weight.detach(), requires_grad=False)
        self.bias = nn.Parameter(given.bias.detach())
        self.low = nn.Parameter(torch.randn(rank, given.in_features) * given.in_features**-0.5)
        self.high = nn.Parameter(torch.zeros(given.out_features, rank))

    def forward(self, states: Tensor) -> Tensor:
        """Return the transformed states (tokens, out)."""
        return torch.addmm(functional.linear(states, self.weight, self.bias), states @ self.low.T, self.high.T)

    def merged(self) -> nn.Linear:
        """Return an equivalent ordinary layer."""
        plain = nn.Linear(self.weight.shape[1], self.weight.shape[0])
        plain.weight = nn.Parameter((self.weight + self.high @ self.low).detach())
        plain.bias = nn.Parameter(self.bias.detach().clone())
        return plain


def adapt(judge: Judge, rank: int, *, frozen: int) -> Judge:
    """Add adapters of ``rank`` to the matrices of all layers except the lowest ``frozen`` ones, which are not trained
    at all. Changes the judge in place and returns it.
    """
    for layer in judge.layers[frozen:]:
        for name in _MATRICES:
            setattr(layer, name, Adapted(cast(nn.Linear, getattr(layer, name)), rank))
    judge.freeze(frozen)
    return judge


def merge(judge: Judge) -> Judge:
    """Return a copy of ``judge`` as an ordinary model, with the updates merged into the matrices."""
    judge = copy.deepcopy(judge)
    for layer in judge.layers:
        for name in _MATRICES:
            if isinstance(module := getattr(layer, name), Adapted):
                setattr(layer, name, module.merged())
    return judge


def state(judge: Judge) -> dict[str, Tensor]:
    """Return the parameters to store in a checkpoint of ``judge``, by name: the trained ones if it has adapters,
    otherwise all."""
    if not any(isinstance(module, Adapted) for module in judge.modules()):
        return judge.state_dict()
    return {name: value.detach() for name, value in judge.named_parameters() if value.requires_grad}
