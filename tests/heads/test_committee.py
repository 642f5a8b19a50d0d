"""A committee is the mean of its members."""

import pytest
import torch

from layline.heads import DEFAULT_METHOD, HEADS, Classification, Committee, create, names
from layline.heads.base import HasProxies, OrdinalHead

# one of each kind of loss: by sample, comparing samples, and one that depends on their number
MEMBERS = ("ranking", "soft-poisson", "cdw", "poe", "gp-dnnor")
RANKS = torch.arange(12) % 5


def committee_of(*members, num_classes=5, dim=6):
    """Return a committee in double precision, and features for it."""
    head = create("committee", num_classes, dim, members=members).double().eval()
    return head, torch.randn(12, dim, dtype=torch.float64)


@pytest.mark.parametrize("members", [MEMBERS, ("classification",), None])
def test_losses_and_probabilities_are_means_of_those_of_the_members(members):
    head, features = committee_of(*members) if members else (create("committee", 5, 6), None)
    if features is None:  # the default members
        head, features = head.double().eval(), torch.randn(12, 6, dtype=torch.float64)
    weights = torch.rand(12, dtype=torch.float64)
    each = [member(features, RANKS, weights, reduction="none") for member in head.members]
    mean = torch.stack(each).mean(dim=0)
    torch.testing.assert_close(head(features, RANKS, weights, reduction="none"), mean)
    probs = torch.stack([member.predict_proba(features) for member in head.members]).mean(dim=0)
    torch.testing.assert_close(head.predict_proba(features), probs)
    assert torch.equal(head.predict(features), probs.argmax(dim=1))


def test_a_committee_of_one_head_is_that_head():
    head, features = committee_of("hard-semicircular")
    (member,) = head.members
    torch.testing.assert_close(head.log_probs(features), member.log_probs(features))
    torch.testing.assert_close(head.loss(features, RANKS), member.loss(features, RANKS))


@pytest.mark.parametrize("name", sorted({*names()} - {"committee"}))
def test_every_method_can_be_a_member(name):
    head, features = committee_of("classification", name)
    head.loss(features, RANKS).backward()
    first, second = head.members
    alone = create(name, 5, 6).double().eval()
    alone.load_state_dict(second.state_dict())
    alone.loss(features, RANKS).backward()
    for shared, own in zip(second.parameters(), alone.parameters(), strict=True):
        if own.grad is not None:
            torch.testing.assert_close(2 * shared.grad, own.grad)
    assert first.linear.weight.grad.any()


def test_it_has_the_proxies_of_its_first_member_with_proxies():
    head, _ = committee_of("ranking", "hard-linear", "soft-poisson")
    assert torch.equal(head.proxies(), head.members[1].proxies())
    assert isinstance(head, HasProxies)
    assert not isinstance(committee_of("ranking", "classification")[0], HasProxies)


def test_members_are_told_the_number_of_samples():
    head, _ = committee_of("classification", "gp-dnnor")
    head.set_num_data(123)
    assert head.members[1].num_data == 123


def test_its_parameters_decay_as_those_of_its_members():
    head, _ = committee_of(*MEMBERS)
    expected = {
        f"members.{place}.{name}"
        for place, member in enumerate(head.members)
        for name in member.no_weight_decay()
    }
    assert head.no_weight_decay() == expected


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ("ranking", "members must be a list of methods, got 'ranking'"),
        ((), r"members must be a list of methods, got \(\)"),
        (("ranking", "arcs"), "must be a known name.* 'arcs'"),
    ],
)
def test_wrong_members_are_named(members, message):
    with pytest.raises(ValueError, match=message):
        create("committee", 5, members=members)


def test_members_have_the_same_size():
    with pytest.raises(ValueError, match="members must be heads of the same size"):
        Committee([Classification(4, 8), Classification(5, 8)])


def test_the_default_method_is_a_committee_that_can_be_exported():
    assert DEFAULT_METHOD == "committee"
    head = create(DEFAULT_METHOD, 5, 6)
    assert isinstance(head, OrdinalHead)
    exporting = {type(create(name, 5, 6)) for name in names() if HEADS[name].exports}
    assert {type(member) for member in head.members} <= exporting
