import math

import pytest
import torch
from coral_pytorch.dataset import corn_label_from_logits
from coral_pytorch.losses import corn_loss
from dlordinal.losses import CORNLoss

from layline.heads import HEADS, create


def head_and_batch(num_classes=6, n=200):
    head = create("corn", num_classes, 8).double()
    with torch.no_grad():
        head.linear.weight.normal_()
        head.linear.bias.normal_(mean=2.0)  # or few would get past the first questions
    return head, torch.randn(n, 8).double(), torch.randint(num_classes, (n,))


def logits_of(head, features):
    return features @ head.linear.weight.T + head.linear.bias


def questions(ranks, num_classes):
    """How many conditional tasks each sample takes part in."""
    return (ranks + 1).clamp(max=num_classes - 1).double()


def test_loss_is_the_sum_over_the_questions_a_sample_is_asked():
    head, features, ranks = head_and_batch(n=30)
    total = 0.0
    for z, y in zip(logits_of(head, features).tolist(), ranks.tolist(), strict=True):
        for k in range(5):
            if y >= k:
                yes = 1 / (1 + math.exp(-z[k]))
                total -= math.log(yes if y > k else 1 - yes)
    assert head.loss(features, ranks).item() == pytest.approx(total / 30, rel=1e-10)


@pytest.mark.parametrize("num_classes", [2, 6, 101])
@pytest.mark.parametrize("library", ["coral-pytorch", "dlordinal"])
def test_the_published_number_is_ours_over_the_mean_number_of_questions(num_classes, library):
    """Both libraries divide by the questions asked in the batch, we by its samples."""
    head, features, ranks = head_and_batch(num_classes)
    logits = logits_of(head, features)
    if library == "coral-pytorch":
        theirs = corn_loss(logits, ranks, num_classes)
    else:
        theirs = CORNLoss(num_classes)(logits, ranks)
    ours = head.loss(features, ranks)
    mean = questions(ranks, num_classes).mean()
    torch.testing.assert_close(ours / mean, theirs, rtol=1e-10, atol=0)
    gradient, other = (torch.autograd.grad(x, head.linear.weight)[0] for x in (ours, theirs))
    torch.testing.assert_close(gradient / mean, other, rtol=1e-9, atol=1e-12)


def test_the_published_number_of_a_weighted_batch_is_that_of_the_repeated_one():
    head, features, ranks = head_and_batch(n=30)
    weights = torch.randint(4, (30,))
    repeated = ranks.repeat_interleave(weights)
    theirs = corn_loss(logits_of(head, features.repeat_interleave(weights, 0)), repeated, 6)
    ours = head.loss(features, ranks, sample_weight=weights)
    mean = (weights * questions(ranks, 6)).sum() / weights.sum()
    torch.testing.assert_close(ours / mean, theirs, rtol=1e-10, atol=0)


def test_a_samples_loss_does_not_depend_on_its_company_as_the_published_one_does():
    head, features, ranks = head_and_batch(n=2)
    ranks = torch.tensor([0, 5])
    logits = logits_of(head, features)
    alone = [head.loss(features[i, None], ranks[i, None]) for i in (0, 1)]
    torch.testing.assert_close(head.loss(features, ranks), sum(alone) / 2)
    theirs = [corn_loss(logits[i, None], ranks[i, None], 6) for i in (0, 1)]
    shares = questions(ranks, 6) / questions(ranks, 6).sum()  # 1 to 5, not 1 to 1
    torch.testing.assert_close(
        corn_loss(logits, ranks, 6), shares[0] * theirs[0] + shares[1] * theirs[1]
    )


@pytest.mark.parametrize("num_classes", [2, 6, 101])
def test_the_median_is_the_label_of_coral_pytorch(num_classes):
    head, features, _ = head_and_batch(num_classes)
    theirs = corn_label_from_logits(logits_of(head, features))
    assert len(theirs.unique()) >= min(num_classes, 5)
    assert torch.equal(head.predict(features, decode="median"), theirs)
    assert HEADS["corn"].decode == "median"


def test_exceedance_is_the_cumulative_product_and_the_loss_its_likelihood():
    head, features, ranks = head_and_batch()
    probs = head.predict_proba(features)
    above = 1 - probs.cumsum(dim=-1)[:, :-1]
    product = logits_of(head, features).sigmoid().cumprod(dim=-1)
    torch.testing.assert_close(above, product, rtol=0, atol=1e-12)
    likelihood = probs[torch.arange(len(ranks)), ranks].log().mean()
    torch.testing.assert_close(head.loss(features, ranks), -likelihood, rtol=1e-10, atol=0)
