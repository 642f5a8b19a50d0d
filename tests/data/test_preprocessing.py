"""How images become squares, against torchvision used directly and against plain arithmetic."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layline.data.preprocessing import AUGMENTATIONS, INTERPOLATIONS, ImagePreprocessing

PAPER = ImagePreprocessing(224, 256)


def photograph(height=90, width=130, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def tensor(pixels):
    return torch.from_numpy(pixels).permute(2, 0, 1)


def columns(height, width):
    """An image whose red says the column, and whose green says the row, in parts of 250."""
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[..., 0] = np.linspace(0, 250, width)
    pixels[..., 1] = np.linspace(0, 250, height)[:, None]
    return pixels


@pytest.fixture(scope="module")
def v2():
    from torchvision.transforms import v2

    return v2


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("keep_ratio", [False, True])
@pytest.mark.parametrize("shape", [(90, 130), (300, 200), (256, 256)])
def test_a_test_image_is_resized_and_its_center_cropped(v2, shape, keep_ratio, interpolation):
    """The authors' code resizes the shorter side, the paper both."""
    pixels, sides = photograph(*shape), [256] if keep_ratio else [256, 256]
    mode = v2.InterpolationMode(interpolation)
    image = v2.functional.resize(tensor(pixels), sides, mode, antialias=True)
    found = ImagePreprocessing(224, 256, keep_ratio, interpolation).for_testing(pixels)
    assert torch.equal(found, v2.functional.center_crop(image, [224, 224]))


@pytest.mark.parametrize("shape", [(2, 60000), (60000, 2)])
def test_a_strip_does_not_grow_beyond_measure(shape):
    pixels = np.zeros((*shape, 3), dtype=np.uint8)
    pixels[shape[0] // 2 - 1 : shape[0] // 2 + 1, shape[1] // 2 - 1 : shape[1] // 2 + 1] = 255
    image = ImagePreprocessing(224, 256, keep_ratio=True).for_testing(pixels)
    assert image.shape == (3, 224, 224)
    assert (image > 100).all()  # the two white pixels in the middle


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
@given(seed=st.integers(0, 2**63 - 1), height=st.integers(1, 60), width=st.integers(1, 60))
def test_the_same_seed_gives_the_same_image_and_leaves_the_global_generator_alone(
    augmentation, seed, height, width
):
    preprocessing, pixels = ImagePreprocessing(24, 28), photograph(height, width)
    before = torch.get_rng_state()
    first = preprocessing.for_training(pixels, augmentation, seed)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert torch.equal(preprocessing.for_training(pixels, augmentation, seed), first)
    assert (first.dtype, first.shape) == (torch.uint8, (3, 24, 24))


@pytest.mark.parametrize(("augmentation", "least"), [("crop", 0.08), ("mild", 0.5)])
def test_a_training_image_is_torchvisions_random_resized_crop_and_flip(v2, augmentation, least):
    pixels = photograph()
    how = v2.Compose(
        [
            v2.RandomResizedCrop(224, scale=(least, 1), ratio=(3 / 4, 4 / 3), antialias=True),
            v2.RandomHorizontalFlip(0.5),
            *([v2.ColorJitter(0.2, 0.2, 0.2)] if augmentation == "mild" else []),
        ]
    )
    for seed in range(10):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            expected = how(tensor(pixels))
        assert torch.equal(PAPER.for_training(pixels, augmentation, seed), expected)


def test_a_shift_moves_by_up_to_an_eighth_and_mirrors_the_edge():
    preprocessing, pixels = ImagePreprocessing(32, 32), columns(32, 32)
    padded = np.pad(pixels, ((4, 4), (4, 4), (0, 0)), mode="reflect")
    windows = {(y, x): padded[y : y + 32, x : x + 32] for y in range(9) for x in range(9)}
    places = {window.tobytes(): (*at, False) for at, window in windows.items()}
    places |= {window[:, ::-1].tobytes(): (*at, True) for at, window in windows.items()}
    images = (preprocessing.for_training(pixels, "shift", seed) for seed in range(600))
    seen = {places[image.permute(1, 2, 0).contiguous().numpy().tobytes()] for image in images}
    assert {y for y, _, _ in seen} == {x for _, x, _ in seen} == set(range(9))
    assert {flip for _, _, flip in seen} == {True, False}


@pytest.mark.parametrize(("part", "at_least"), [(0.5, 366), (0.08, 915), (1.0, 259)])
def test_the_smallest_part_decides_how_many_pixels_are_decoded(part, at_least):
    assert ImagePreprocessing(224, 256, smallest_part=part).at_least == at_least
    assert ImagePreprocessing(32, 64, smallest_part=part).at_least >= 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be an integer, at least 1, got 0"),
        ({"resize": 223}, "resize must be an integer, at least 224, got 223"),
        ({"interpolation": "cubic"}, "did you mean bicubic"),
        ({"smallest_part": 0}, "smallest_part must be a finite number above 0, got 0"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        ImagePreprocessing(**{"size": 224, "resize": 256} | arguments)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@given(
    height=st.integers(9, 300),
    width=st.integers(9, 300),
    keep=st.booleans(),
    seed=st.integers(0, 9),
)
def test_pillow_alone_makes_the_same_square(interpolation, height, width, keep, seed):
    """On noise, which is the worst for rounding; torch itself rounds differently by processor."""
    pixels = photograph(height, width, seed)
    preparation = ImagePreprocessing(40, 46, keep_ratio=keep, interpolation=interpolation)
    square = preparation.square(pixels)
    expected = preparation.for_testing(pixels).permute(1, 2, 0).numpy()
    assert square.shape == (40, 40, 3)
    assert square.dtype == np.uint8
    off = np.abs(square.astype(int) - expected)
    assert off.max() <= 2
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        assert (off > 0).mean() < 0.05
