import json

import pytest
import torch

from layline import OrdinalClassifier, backbones
from layline.backbones import MLP, ConvNet, InputSpec


@pytest.mark.parametrize("name", backbones.names())
def test_features_are_the_last_layer_of_the_body(name):
    module = backbones.create(name, 6, **({"in_features": 3} if name == "mlp" else {})).eval()
    x = torch.rand(4, 3) if name == "mlp" else torch.randint(0, 256, (4, 3, 32, 32))
    assert module.name == name
    assert module.body(x).shape == (4, module.width)
    torch.testing.assert_close(module(x), module.last(module.body(x)))


def test_the_tensors_of_a_table_network_keep_their_names():
    assert set(MLP(3, 4, hidden=(5,)).state_dict()) == {
        "mean", "scale", "hidden.0.weight", "hidden.0.bias", "last.weight", "last.bias",
    }  # fmt: skip


@pytest.mark.parametrize("hidden", [(), (5,), (7, 6)])
def test_a_table_network_is_rebuilt_from_its_options(hidden):
    module = MLP(3, 4, hidden=hidden)
    again = backbones.create(module.name, 4, **json.loads(json.dumps(module.options)))
    again.load_state_dict(module.state_dict())
    assert torch.equal(again(x := torch.rand(2, 3)), module(x))


def test_the_estimator_takes_features_for_tables_only():
    assert backbones.names("table") == ("mlp",)
    assert backbones.names("image") == ("convnet",)
    with pytest.raises(ValueError, match="features must be a known name, got 'convnet': known are"):
        OrdinalClassifier(backbone="convnet").fit([[0.0], [1.0]], [0, 1])


def test_white_and_black_are_measured_against_mean_and_deviation():
    net = ConvNet(2, mean=(0.1, 0.2, 0.3), std=(0.2, 0.5, 1.0))
    white = net.normalised(torch.full((1, 3, 8, 8), 255, dtype=torch.uint8))
    black = net.normalised(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    torch.testing.assert_close(white[0, :, 0, 0], torch.tensor([4.5, 1.6, 0.7]))
    torch.testing.assert_close(black[0, :, 0, 0], torch.tensor([-0.5, -0.4, -0.3]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_bytes_and_floats_give_the_same_in_the_precision_of_the_weights(dtype):
    net = ConvNet(2).to(dtype)
    x = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    assert net.normalised(x).dtype == dtype
    assert torch.equal(net.normalised(x), net.normalised(x.double()))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_network_gets_its_pixels_in_the_order_that_is_quick_on_a_cpu(dtype):
    net = ConvNet(2, mean=(0.1, 0.2, 0.3))
    x = torch.randint(0, 256, (2, 3, 8, 8)).to(dtype)
    quick = net.normalised(x)
    assert quick.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(quick, net.normalised(x.contiguous(memory_format=torch.channels_last)))


def test_the_statistics_are_options_and_not_weights():
    assert not {"mean", "std"} & set(ConvNet(2).state_dict())


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 1, 8, 8), (1, 8, 8, 3)])
def test_images_of_a_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"images must have the shape \(n, 3, height, width\)"):
        ConvNet(2).normalised(torch.zeros(shape))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be an integer, at least 1, got 0"),
        ({"mean": 0.5}, "mean must be three finite numbers, got 0.5: one per channel"),
        ({"mean": (0.5, 0.5)}, r"mean must be three finite numbers, got \(0.5, 0.5\)"),
        ({"mean": (0, 0, float("nan"))}, "mean must be three finite numbers"),
        ({"std": ("a", "b", "c")}, "std must be three finite numbers"),
        ({"std": (1, 0, 1)}, "std must be a finite number above 0, got 0"),
        ({"interpolation": "bicubi"}, "got 'bicubi': did you mean bicubic"),
        ({"crop": 0}, "crop must be a finite number above 0, got 0"),
        ({"crop": 1.5}, "crop must be at most 1, got 1.5"),
    ],
)
def test_a_wrong_preparation_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        InputSpec(**arguments)


def test_specs_are_equal_whatever_sequence_they_came_from():
    assert InputSpec(mean=[0.5, 0.5, 0.5]) == InputSpec()
    assert hash(InputSpec(std=[1, 1, 1])) == hash(InputSpec(std=(1.0, 1.0, 1.0)))
