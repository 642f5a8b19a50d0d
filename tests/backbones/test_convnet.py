import json

import pytest
import torch

from layline import backbones, heads
from layline.backbones import ConvNet


def images(n=4, height=32, width=32):
    return torch.randint(0, 256, (n, 3, height, width), dtype=torch.uint8)


@pytest.mark.parametrize(("height", "width"), [(16, 16), (17, 30), (28, 28), (64, 48), (97, 16)])
def test_images_of_any_size_become_features(height, width):
    out = ConvNet(5)(images(height=height, width=width))
    assert out.shape == (4, 5)
    assert out.isfinite().all()


@pytest.mark.parametrize(("channels", "depth"), [(1, 1), (5, 2), (32, 3), (8, 4)])
def test_channels_double_from_block_to_block(channels, depth):
    net = ConvNet(2, channels=channels, depth=depth)
    assert net.width == channels * 2 ** (depth - 1)
    assert net.body(images()).shape == (4, net.width)


def test_the_order_of_channels_in_memory_does_not_matter():
    net, x = ConvNet(3).eval(), images()
    torch.testing.assert_close(net(x), net(x.contiguous(memory_format=torch.channels_last)))


def test_weights_and_gradients_are_contiguous_so_that_any_format_saves_them():
    net = ConvNet(3)
    net(images()).sum().backward()
    assert all(tensor.is_contiguous() for tensor in net.state_dict().values())
    assert all(parameter.grad.is_contiguous() for parameter in net.parameters())


def test_activations_keep_their_scale_at_the_start():
    body = ConvNet(3).body(images(32))
    assert 0.1 < body.mean() < 2


def test_a_network_is_rebuilt_from_its_options():
    net = ConvNet(3, channels=6, depth=2, size=40, mean=(0.1, 0.2, 0.3), crop=0.9).eval()
    again = backbones.create(net.name, 3, **json.loads(json.dumps(net.options))).eval()
    again.load_state_dict(net.state_dict())
    assert again.input == net.input
    assert torch.equal(again(images_ := images()), net(images_))


def test_it_learns_to_tell_levels_of_contrast_apart():
    ranks = torch.arange(48) % 3
    noise = torch.randn(48, 3, 16, 16) * (10 + 20 * ranks[:, None, None, None])
    x = (128 + noise).clamp(0, 255).byte()
    net, head = ConvNet(2, channels=8), heads.create("hard-linear", 3, 2)
    optimiser = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=0.01)
    for _ in range(30):
        optimiser.zero_grad()
        head.loss(net(x), ranks).backward()
        optimiser.step()
    assert (head.predict(net(x)) == ranks).float().mean() > 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 0}, "dim must be an integer, at least 1, got 0"),
        ({"channels": 0}, "channels must be an integer, at least 1, got 0"),
        ({"depth": 1.5}, "depth must be an integer, at least 1, got 1.5"),
        ({"size": 7}, "images must be at least 8×8 pixels, got 7×7: a convnet of depth 3 halves"),
        ({"depth": 64}, "depth must be at most 16, got 64: every block halves the images"),
        ({"depth": 10**30}, "depth must be at most 16"),
    ],
)
def test_a_wrong_argument_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ConvNet(**{"dim": 2, **arguments})


def test_images_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match="at least 8×8 pixels, got 32×6"):
        ConvNet(2)(images(height=32, width=6))


def test_an_unknown_option_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"option of convnet must be .* did you mean channels"):
        backbones.create("convnet", 2, chanels=4)
