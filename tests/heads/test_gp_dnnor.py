from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy import stats

from layline import OrdinalClassifier
from layline.heads import create


def trained(num_classes=4, dim=5, **options):
    """Make a head whose process is no longer the prior."""
    head = create("gp-dnnor", num_classes, dim, **options).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return head


def divergence(head):
    return head._divergence(torch.float64).item()


def test_the_process_is_that_of_the_textbook():
    """u = L ε with ε ~ N(m, S), and f given u by conditioning, with full covariances."""
    head = trained(inducing_points=6, latent_dim=3)
    x, softplus = torch.randn(7, 5).double(), torch.nn.functional.softplus
    lengths, variance = softplus(head.raw_lengths), softplus(head.raw_variance)

    def kernel(a, b):
        scaled = (a[:, None] - b) / lengths
        return variance * torch.exp(-0.5 * scaled.square().sum(dim=-1))

    latent, unit = head.linear(x), torch.eye(6).double()
    k_uu, k_fu = kernel(head.points, head.points) + 1e-6 * unit, kernel(latent, head.points)
    root = torch.linalg.cholesky(k_uu)
    mean_u = root @ head.mean
    cov_u = root @ head.factor.tril() @ head.factor.tril().T @ root.T
    a = k_fu @ torch.linalg.inv(k_uu)
    mean, var = head._posterior(x)
    torch.testing.assert_close(mean, a @ mean_u, rtol=0, atol=1e-8)
    expected = variance + 1e-6 + (a @ (cov_u - k_uu) @ a.T).diagonal()
    torch.testing.assert_close(var, expected, rtol=0, atol=1e-8)
    q = torch.distributions.MultivariateNormal(mean_u, cov_u)
    p = torch.distributions.MultivariateNormal(torch.zeros(6).double(), k_uu)
    assert divergence(head) == pytest.approx(torch.distributions.kl_divergence(q, p).item())


def test_probabilities_and_the_bound_are_averages_over_the_process():
    head, x = trained(num_data=50), torch.randn(4, 5).double()
    cuts, noise = (value.detach().numpy() for value in head._likelihood(torch.float64))
    edges = np.r_[-np.inf, cuts, np.inf]
    probs = head.predict_proba(x).detach().numpy()
    z = np.linspace(-9, 9, 4001)
    density = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    bound = divergence(head) / 50
    for i, (mean, variance) in enumerate(zip(*head._posterior(x), strict=True)):
        f = (mean.item() + np.sqrt(variance.item()) * z)[:, None]
        label = stats.norm(f, noise)
        # of two differences, the one that does not subtract numbers near one
        cells = np.where(edges[:-1] > f, -np.diff(label.sf(edges)), np.diff(label.cdf(edges)))
        np.testing.assert_allclose(probs[i], density @ cells, rtol=0, atol=1e-7)
        bound -= density @ np.log(cells[:, i]) / 4  # sample i has the rank i
    assert head.loss(x, torch.arange(4)).item() == pytest.approx(bound, abs=1e-4)  # 20 nodes


@pytest.mark.parametrize("num_classes", [2, 5, 101])
def test_all_ranks_are_equally_probable_at_the_start(num_classes):
    head = create("gp-dnnor", num_classes, 6).double()
    probs = head.predict_proba(torch.randn(4, 6).double())
    torch.testing.assert_close(probs, torch.full_like(probs, 1 / num_classes), rtol=1e-4, atol=0)
    assert divergence(head) == pytest.approx(0, abs=1e-9)


def test_the_number_of_training_samples_divides_the_divergence():
    x, ranks = torch.randn(4, 5).double(), torch.arange(4)
    head, fixed = trained(), trained(num_data=10)
    for each, set_to, expected in ((head, 300, 300), (fixed, 300, 10)):
        each.set_num_data(set_to)
        with_it = each.loss(x, ranks).item()
        each.num_data = 10**15
        difference = with_it - each.loss(x, ranks).item()
        assert difference == pytest.approx(divergence(each) / expected, rel=1e-9)


def test_training_sets_the_number_of_samples():
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = OrdinalClassifier("gp-dnnor", dim=4, hidden=(8,), epochs=1, random_state=0)
    model.fit(x, np.arange(60) % 3)
    assert 30 <= model.head_.num_data <= 60


def test_threads_predict_the_same_and_change_no_parameter():
    head = trained().float().eval()
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    batches = [torch.randn(50, 5) for _ in range(40)]
    expected = [head.predict_proba(x) for x in batches]
    with ThreadPoolExecutor(4) as pool:
        for ours, alone in zip(pool.map(head.predict_proba, batches), expected, strict=True):
            assert torch.equal(ours, alone)
    assert all(tensor.equal(before[name]) for name, tensor in head.state_dict().items())


def test_single_precision_suffices_where_a_device_has_no_double(monkeypatch):
    head, x, ranks = trained(dim=20), torch.randn(30, 20).double(), torch.arange(30) % 4
    expected = head.predict_proba(x)
    monkeypatch.setattr("layline.heads.gp_dnnor.widest_float", lambda device: torch.float32)
    monkeypatch.setattr("layline.geometry.layouts.has_double", lambda device: False)
    torch.testing.assert_close(head.predict_proba(x), expected, rtol=0, atol=2e-3)
    head.loss(x, ranks).backward()
    assert all(parameter.grad.isfinite().all() for parameter in head.parameters())
