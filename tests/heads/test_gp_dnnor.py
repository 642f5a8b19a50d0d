import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from layline.heads import create


def trained(num_classes=4, dim=5, **options):
    """A head whose process is no longer the prior."""
    head = create("gp-dnnor", num_classes, dim, **options).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return head


def likelihood(head):
    cuts, noise = head._likelihood()
    return np.r_[-np.inf, cuts.detach().numpy(), np.inf], noise.item()


def test_the_process_is_the_textbook_one():
    """Whitened: u = L ε with ε ~ N(m, S), and f given u by conditioning."""
    head = trained()
    x = torch.randn(7, 5).double()
    mean, variance, divergence = head._posterior(x)
    process, kernel = head.process, head.process.prior.kernel
    points = process.strategy.inducing_points
    latent = head.linear(x)
    k_uu = kernel(points).to_dense() + process.strategy.jitter_val * torch.eye(64).double()
    a = torch.linalg.solve_triangular(
        torch.linalg.cholesky(k_uu), kernel(points, latent).to_dense(), upper=False
    )
    q = process.strategy._variational_distribution
    m, root = q.variational_mean, q.chol_variational_covar.tril()
    torch.testing.assert_close(mean, a.T @ m, rtol=0, atol=1e-8)
    prior = kernel(latent).to_dense().diagonal() + process.strategy.jitter_val
    expected = prior - a.square().sum(0) + (root.T @ a).square().sum(0)
    torch.testing.assert_close(variance, expected, rtol=0, atol=1e-8)
    log_det = root.diagonal().abs().log().sum()
    kl = 0.5 * (root.square().sum() + m.square().sum() - 64) - log_det
    torch.testing.assert_close(divergence, kl, rtol=1e-10, atol=0)


def test_probabilities_are_the_likelihood_averaged_over_the_process():
    head = trained()
    x = torch.randn(5, 5).double()
    mean, variance, _ = (value.detach().numpy() for value in head._posterior(x))
    edges, noise = likelihood(head)
    probs = head.predict_proba(x).detach().numpy()
    for i, k in np.ndindex(5, 4):

        def density(f, k=k, i=i):
            cell = stats.norm.cdf((edges[k + 1] - f) / noise) - stats.norm.cdf(
                (edges[k] - f) / noise
            )
            return cell * stats.norm.pdf(f, mean[i], np.sqrt(variance[i]))

        assert probs[i, k] == pytest.approx(
            integrate.quad(density, -15, 15, limit=200)[0], abs=1e-7
        )


def test_the_loss_is_the_variational_bound():
    head = trained(num_data=50)
    x, ranks = torch.randn(4, 5).double(), torch.arange(4)
    mean, variance, divergence = (value.detach().numpy() for value in head._posterior(x))
    edges, noise = likelihood(head)
    each = []
    for i, k in enumerate(ranks.tolist()):

        def expected(f, k=k, i=i):
            upper, lower = (edges[k + 1] - f) / noise, (edges[k] - f) / noise
            if lower > 0:
                upper, lower = -lower, -upper
            log_cell = stats.norm.logcdf(upper) + np.log1p(
                -np.exp(stats.norm.logcdf(lower) - stats.norm.logcdf(upper))
            )
            return log_cell * stats.norm.pdf(f, mean[i], np.sqrt(variance[i]))

        spread = 9 * np.sqrt(variance[i])
        each.append(-integrate.quad(expected, mean[i] - spread, mean[i] + spread, limit=200)[0])
    bound = np.mean(each) + divergence / 50
    assert head.loss(x, ranks).item() == pytest.approx(bound, abs=1e-4)  # 20 nodes


@pytest.mark.parametrize("num_classes", [2, 5, 101])
def test_all_ranks_are_equally_probable_at_the_start(num_classes):
    head = create("gp-dnnor", num_classes, 6).double()
    probs = head.predict_proba(torch.randn(4, 6).double())
    torch.testing.assert_close(probs, torch.full_like(probs, 1 / num_classes), rtol=1e-4, atol=0)
    assert head._posterior(torch.randn(4, 6).double())[2].item() == pytest.approx(0, abs=1e-9)


def test_far_from_what_it_knows_it_says_what_the_prior_says():
    head = trained()
    mean, variance, _ = head._posterior(1e6 * torch.randn(3, 5).double())
    scale = head.process.prior.kernel.outputscale.item()
    torch.testing.assert_close(mean, torch.zeros(3).double(), rtol=0, atol=1e-10)
    torch.testing.assert_close(variance, torch.full((3,), scale).double(), rtol=0, atol=1e-5)


def test_cut_points_stay_in_order_whatever_the_parameters():
    head = create("gp-dnnor", 8, 4)
    with torch.no_grad():
        for parameter in (head.first_cut, head.raw_gaps, head.raw_noise):
            parameter.copy_(50 * torch.randn_like(parameter))
    cuts, noise = head._likelihood()
    assert (cuts.diff() > 0).all()
    assert noise > 0


def test_what_was_kept_from_an_earlier_call_is_not_used_after_a_change():
    """gpytorch keeps factors of the kernel in evaluation mode."""
    head = trained().eval()
    x = torch.randn(3, 5).double()
    before = head.predict_proba(x)
    with torch.no_grad():
        head.process.strategy.inducing_points.mul_(3)
    assert not torch.allclose(before, head.predict_proba(x))


@pytest.mark.parametrize("num_data", [10, 1000])
def test_the_prior_counts_less_the_more_samples_there_are(num_data):
    head = trained(num_data=num_data)
    x, ranks = torch.randn(4, 5).double(), torch.arange(4)
    with_it = head.loss(x, ranks)
    head.num_data = 10**15
    assert (with_it - head.loss(x, ranks)).item() == pytest.approx(
        head._posterior(x)[2].item() / num_data, rel=1e-9
    )


@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_random(training):
    head = trained().train(training)
    x, ranks = torch.randn(100, 5).double(), torch.arange(100) % 4
    state = torch.get_rng_state()
    assert head.loss(x, ranks).item() == head.loss(x, ranks).item()
    assert torch.equal(head.predict_proba(x), head.predict_proba(x))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("option", ["num_data", "inducing_points", "latent_dim"])
def test_a_wrong_option_is_named_with_its_value(option):
    with pytest.raises(ValueError, match=f"{option} must be an integer, at least 1, got 0"):
        create("gp-dnnor", 4, 6, **{option: 0})


def test_fewer_features_than_latent_dimensions_are_enough():
    assert create("gp-dnnor", 3, 2).process.strategy.inducing_points.shape == (64, 2)


@pytest.mark.slow
def test_it_makes_no_warning():
    code = "from layline.heads import create; create('gp-dnnor', 3, 4)"
    command = [sys.executable, "-W", "error", "-c", code]
    assert subprocess.run(command, capture_output=True, check=False).stderr == b""
