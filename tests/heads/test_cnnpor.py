import numpy as np
import pytest
import torch

from layline.heads import create


def by_hand(head, features, ranks, weights):
    """Cross entropy and the hinge over all pairs of adjacent classes, in plain loops."""
    x, y = features.detach().numpy(), ranks.numpy()
    scores = x @ head.linear.weight.detach().numpy().T + head.linear.bias.detach().numpy()
    logits, g = scores[:, :-1], scores[:, -1]
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    entropy = -sum(w * log_p[i, y[i]] for i, w in enumerate(weights)) / sum(weights)
    hinge = total = 0.0
    for i in range(len(y)):
        for j in range(len(y)):
            if y[i] == y[j] + 1:
                pair = weights[i] * weights[j]
                hinge += pair * max(0.0, head.margin - (g[i] - g[j]))
                total += pair
    return entropy + head.lam * (hinge / total if total else 0.0)


@pytest.mark.parametrize("options", [{}, {"lam": 0.3, "margin": 2.5}, {"lam": 0.0}])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_that_of_the_formula(options, weighted):
    head = create("cnnpor", 4, 6, **options).double()
    features, ranks = torch.randn(15, 6).double(), torch.randint(4, (15,))
    weights = torch.rand(15).double() if weighted else None
    plain = [1.0] * 15 if weights is None else weights.tolist()
    expected = by_hand(head, features, ranks, plain)
    assert head.loss(features, ranks, weights).item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("ranks", [[2], [0, 0, 0], [0, 2, 0, 2]])
def test_without_adjacent_classes_only_the_cross_entropy_is_left(ranks):
    head, ranks = create("cnnpor", 4, 6).double(), torch.tensor(ranks)
    features = torch.randn(len(ranks), 6).double()
    expected = torch.nn.functional.nll_loss(head.log_probs(features), ranks)
    assert head.loss(features, ranks).item() == pytest.approx(expected.item(), abs=1e-12)
