"""One module in your own loop.

You have a network, a loop, and labels with an order. A Layline head takes the place of the last
linear layer and of the cross entropy; the rest of the loop stays as it is.
"""

import torch
from torch import nn

from layline import ConstrainedProxies, heads, metrics
from layline.geometry import Cosine, Free, Poisson

torch.manual_seed(0)

# The data of this page are made up: twenty measurements that bend around a hidden score, which is
# cut into eight grades. The label of a sample is its *rank*, an integer from 0 to 7.


def measurements(samples):
    """Make samples: what is measured, and the rank of the hidden score."""
    score = torch.rand(samples)
    waves, phases = torch.linspace(0.5, 3, 20), torch.linspace(0, 9, 20)
    x = torch.sin(torch.pi * score[:, None] * waves + phases)
    return x + 1.2 * torch.randn(samples, 20), (score * 8).long()


(x, ranks), (x_test, ranks_test) = measurements(2000), measurements(1000)

# ## Network and head
# The network may be anything that ends in d numbers. The head has one *proxy* for each class in
# the same space, in the order of the classes; where it lies is learned with the rest, so its
# parameters go to the optimiser. They like a higher rate than those of a network.

network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32))
head = heads.create("arc", num_classes=8, dim=32)
optimiser = torch.optim.AdamW(
    [
        {"params": network.parameters(), "lr": 3e-3},
        {"params": head.parameters(), "lr": 1e-2},
    ]
)
print(head)

# ## The loop
# With ranks, the head gives the loss. `sample_weight=` takes a weight for each sample.

for epoch in range(12):
    for batch in torch.randperm(len(x)).split(64):
        loss = head(network(x[batch]), ranks[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if epoch % 4 == 3:
        print(f"epoch {epoch + 1:2}  loss {loss.item():.3f}")

# ## Predictions
# Without ranks it gives log probabilities, so that it can end any `nn.Sequential`. How a rank is
# made of them is your choice: the mode has the fewest errors, the median the smallest absolute
# ones.

with torch.no_grad():
    features = network(x_test)
    probabilities = head(features).exp()
    for decode in ("mode", "median", "mean"):
        predicted = head.predict(features, decode)
        print(
            f"{decode:7} accuracy {metrics.accuracy(ranks_test, predicted):.3f}  "
            f"MAE {metrics.mean_absolute_error(ranks_test, predicted):.3f}"
        )
    score = metrics.ranked_probability_score(ranks_test, probabilities)
    print(f"ranked probability score {score:.3f}")

# ## Where the classes lie
# The proxies of `arc` stand on half a circle, and their angles were learned: neighbours that the
# data tell apart easily stand further from each other.

print(head.layout.angles().rad2deg().round().int().tolist())

# ## Another method
# Every method has the same contract, so that a comparison is a loop over names; `layline methods`
# lists them. Or put a head together from its parts:

other = ConstrainedProxies(Free(8, 32), Cosine(10.0), Poisson(0.11), alpha=5.0)
print(f"loss at the start {other(network(x), ranks).item():.3f}")
