"""Snapshots of a layout, and the similarities of the proxies."""

import numpy as np
import pytest
import torch
from scipy.special import softmax

from layline import heads
from layline.training.similarities_file import write_proxies
from layline.training.snapshot import Snapshot, chosen_samples, take_snapshot


def taken(method="hard-linear", dim=6, index=None):
    torch.manual_seed(0)
    head = heads.create(method, 4, dim)
    features, ranks = torch.randn(30, dim), torch.arange(30) % 4
    return take_snapshot(features, ranks, head.predict(features), head, index), features, head


@pytest.mark.parametrize("method", ["hard-linear", "classification"])
def test_it_comes_back_from_its_file(tmp_path, method):
    before, *_ = taken(method, index=torch.arange(30))
    before.save(tmp_path / "layouts" / "test.npz")
    after = Snapshot.load(tmp_path / "layouts" / "test.npz")
    for name, value in vars(before).items():
        np.testing.assert_array_equal(getattr(after, name), value)
    assert (after.proxies is None) == (method == "classification")


def test_the_same_one_has_the_same_bytes(tmp_path):
    for name in ("a.npz", "b.npz"):
        taken()[0].save(tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_in_two_dimensions_it_is_exact():
    found, features, head = taken(dim=2)
    np.testing.assert_array_equal(found.points, features.numpy())
    np.testing.assert_array_equal(found.proxies, head.proxies().detach().numpy())
    assert found.explained == 1


@pytest.mark.parametrize("method", heads.HEADS)
def test_every_head_has_one(method):
    found, *_ = taken(method)
    assert found.points.shape == (30, 2)
    assert np.isfinite(found.points).all()
    assert 0 < found.explained <= 1


def test_all_samples_are_drawn_if_they_are_few():
    assert chosen_samples(5, 5, seed=0).tolist() == [0, 1, 2, 3, 4]
    assert chosen_samples(5, 0, seed=0).tolist() == []


def test_of_many_the_seed_chooses_some_in_their_order():
    first, again, other = (chosen_samples(500, 20, seed) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() == sorted(set(first.tolist()))
    assert len(first) == 20
    assert first.tolist() != other.tolist()


def test_proxies_have_their_similarities_beside_what_they_are_held_to(tmp_path):
    _, _, head = taken("soft-poisson")
    write_proxies(tmp_path / "proxies.npz", head)
    with np.load(tmp_path / "proxies.npz", allow_pickle=False) as arrays:
        found = dict(arrays)
    gaps = ((found["proxies"][:, None] - found["proxies"]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(found["q"], softmax(-np.log1p(gaps), axis=1), rtol=1e-5)
    np.testing.assert_allclose(found["u"].sum(axis=1), 1, rtol=1e-6)
    assert found["u"].argmax(axis=1).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("method", "arrays"),
    [("hard-linear", {"proxies", "q"}), ("proxy-anchor", {"proxies"}), ("coral", None)],
)
def test_what_a_head_does_not_have_is_not_written(tmp_path, method, arrays):
    path = tmp_path / "proxies.npz"
    write_proxies(path, heads.create(method, 4, 6))
    assert path.exists() == (arrays is not None)
    if arrays is not None:
        with np.load(path, allow_pickle=False) as found:
            assert set(found) == arrays
