"""A student learns from a teacher's probabilities, although their vocabularies number the same tokens differently."""

import math
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from judges.training.data.batching import Encoder, Item, collate
from judges.training.data.datasets import Target

torch = pytest.importorskip("torch", reason="torch is not installed")
distillation = pytest.importorskip("judges.training.encoder.distillation", reason="onnx is not installed")

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "gate", "is", "red"]
LOGITS = [[2.0, 0.0, -1.0], [0.5, 1.5, 0.0]]


def tokenizer(tokens: list[str]) -> Tokenizer:
    return Tokenizer(models.WordPiece({token: place for place, token in enumerate(tokens)}, unk_token="[UNK]"))


def test_ids_are_matched_by_their_tokens() -> None:
    shifted = tokenizer(["<mask>", *TOKENS])
    assert distillation.matching(tokenizer(TOKENS), shifted).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_vocabulary_without_a_token_is_rejected() -> None:
    with pytest.raises(ValueError, match="lacks 'red'"):
        distillation.matching(tokenizer(TOKENS), tokenizer(TOKENS[:-1]))


def test_teacher_reads_its_own_ids() -> None:
    seen: list[Any] = []

    class Judge:
        def eval(self) -> "Judge":
            return self

        def __call__(self, batch: Any) -> Any:
            seen.append(batch)
            return torch.tensor(LOGITS[:1])

    item = Item(([4, 5, 6, 7],), (([5, 6, 7], Target.ENTAILED),))
    batch = collate([item], Encoder(tokenizer(TOKENS)))
    ids = distillation.matching(tokenizer(TOKENS), tokenizer(["<mask>", *TOKENS]))
    assert distillation.Teacher(Judge(), ids).logits(batch).tolist() == LOGITS[:1]
    assert seen[0].ids.tolist() == (batch.ids + 1).tolist()
    assert seen[0].positions is batch.positions


def test_loss_of_a_student_that_agrees_is_the_share_of_its_cross_entropy() -> None:
    logits = torch.tensor(LOGITS)
    targets = torch.tensor([int(Target.ENTAILED), int(Target.NEUTRAL)])
    rows = [math.log(sum(map(math.exp, row))) - row[place] for row, place in zip(LOGITS, (0, 1), strict=True)]
    found = distillation.distilled_loss(logits, logits, targets)
    assert float(found) == pytest.approx((1 - distillation.SHARE) * sum(rows) / 2)


def test_loss_grows_with_the_distance_from_the_teacher() -> None:
    logits, targets = torch.tensor(LOGITS), torch.tensor([0, 1])
    near = distillation.distilled_loss(logits, torch.tensor([[2.5, 0.0, -1.0], [0.5, 1.5, 0.0]]), targets)
    far = distillation.distilled_loss(logits, torch.tensor([[-2.5, 0.0, 3.0], [0.5, 1.5, 0.0]]), targets)
    assert float(distillation.distilled_loss(logits, logits, targets)) < float(near) < float(far)
