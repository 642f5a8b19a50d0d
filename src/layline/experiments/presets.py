"""What to repeat the paper's experiments with: its own data and recipe, or small stand-ins."""

from layline.experiments.preset import Preset
from layline.experiments.stands import PAPER_DATA, Stand, at_most

_MOST = 10  # partitions of a data set of the paper


def _small_stand(levels: int, distortion: str) -> Stand:
    return Stand("photo-quality", 2, {"levels": levels, "distortion": distortion})


PRESETS: dict[str, Preset] = {
    "small": Preset(
        "embedded photo quality and a small convnet: minutes on two cores, other numbers",
        {
            "historical-color": _small_stand(5, "all"),
            "adience": _small_stand(8, "all"),
            "nature": _small_stand(6, "all"),
            "animals": _small_stand(4, "all"),
            "urban": _small_stand(5, "noise"),
            "people": _small_stand(7, "noise"),
        },
        {
            "data": {"augmentation": "flip", "workers": 0},
            "features": {"name": "convnet", "weights": "none", "options": {"channels": 16}},
            # from scratch, in so few steps, the paper's rates would be too low
            "training": {
                "epochs": 8,
                "batch_size": 16,
                "learning_rate": 0.003,
                "head_learning_rate": 0.03,
                "schedule": "cosine",
                "device": "cpu",
            },
        },
        {
            "photo-quality": {
                "size": 32,
                "per_class": 60,
                "validation_per_class": 20,
                "test_per_class": 40,
            }
        },
        # in two dimensions free proxies find their order at a high rate only, and a line shrinks
        # at it: see docs/decisions/lines-from-scratch.md
        {
            method: {"training": {"epochs": 48, "head_learning_rate": rate}}
            for method, rate in {
                "hard-linear": 0.01,
                "hard-semicircular": 0.1,
                "soft-poisson": 0.1,
                "soft-binomial": 0.1,
            }.items()
        },
    ),
    "paper": Preset(
        "the paper's data and recipe: VGG-16 from ImageNet, 48 epochs; wants a GPU",
        {
            name: Stand(source, at_most(_MOST, source), options)
            for name, (source, options) in PAPER_DATA.items()
        },
        # of a run: the paper's recipe is the default of every setting
        {"features": {"name": "vgg16", "weights": "imagenet"}, "data": {"size": 224}},
    ),
}
