"""One module in your own loop.

If you have a network, a training loop and ordered labels, replace the last linear layer and the
cross entropy with a head of Layline. The rest of the loop stays as it is.
"""

import torch
from torch import nn

from layline import ConstrainedProxies, heads, metrics
from layline.geometry import Cosine, Free, Poisson

torch.manual_seed(0)

# The data are synthetic: twenty noisy, nonlinear measurements of a hidden score, which is divided
# into eight grades. The label of a sample is its *rank*, an integer from 0 to 7.


def measurements(samples):
    """Generate measurements and the ranks of the hidden scores."""
    score = torch.rand(samples)
    waves, phases = torch.linspace(0.5, 3, 20), torch.linspace(0, 9, 20)
    x = torch.sin(torch.pi * score[:, None] * waves + phases)
    return x + 1.2 * torch.randn(samples, 20), (score * 8).long()


(x, ranks), (x_test, ranks_test) = measurements(2000), measurements(1000)

# ## Network and head
# The network can be any module that returns vectors of dimension d. The head has one *proxy* per
# class in the same space. The proxies are learned, so pass the parameters of the head to the
# optimizer. They need a higher learning rate than those of the network.

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
# With ranks, the head returns the loss. `sample_weight=` weights the samples.

for epoch in range(12):
    for batch in torch.randperm(len(x)).split(64):
        loss = head(network(x[batch]), ranks[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if epoch % 4 == 3:
        print(f"epoch {epoch + 1:2}  loss {loss.item():.3f}")

# ## Predictions
# Without ranks, the head returns log probabilities, so it can be the last module of an
# `nn.Sequential`. Choose how they become a rank: the mode has the highest accuracy, the median the
# lowest absolute error.

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
# The proxies of `arc` are on a semicircle, and their angles are learned: classes that are easy to
# separate are further apart.

print(head.layout.angles().rad2deg().round().int().tolist())

# ## Other methods
# All methods have the same interface; `layline methods` lists them. You can also compose a head
# from a layout, a similarity and a smoothing:

other = ConstrainedProxies(Free(8, 32), Cosine(10.0), Poisson(0.11), alpha=5.0)
print(f"loss at the start {other(network(x), ranks).item():.3f}")
