"""Any network of timm by name, its last layer mapped to ``dim``."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from layline.arguments import check_integer
from layline.features.base import ImageFeatures, InputSpec
from layline.features.timm_models import build_network, check_model, own_input, unsuited


class Pretrained(ImageFeatures):
    """Map images to features with a network that timm knows.

    It is made with random weights; ``layline.features.weights`` fills it. The last layer is taken
    out of the network, and always begins as a fresh ``nn.Linear``.

    Args:
        model: timm's name, such as ``vgg16`` or ``resnet18.a1_in1k``.
        dim: Dimension d of the features.
        size: Height and width that images are resized to, if not the model's own.
        mean: Of each channel, where white is 1, if not the model's own.
        std: Deviation of each channel, likewise.
        interpolation: How images are resized, if not in the model's own way.
        crop: Share of the resized image's side that the central crop keeps.
    """

    def __init__(
        self,
        model: str,
        dim: int,
        *,
        size: int | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        interpolation: str | None = None,
        crop: float = 0.875,
    ) -> None:
        check_integer("dim", dim, 1, "it is the length of a feature")
        check_model(model)
        own = own_input(model)
        super().__init__(
            InputSpec(
                own.size if size is None else size,
                own.mean if mean is None else mean,
                own.std if std is None else std,
                own.interpolation if interpolation is None else interpolation,
                crop,
            )
        )
        self.name = model
        self.network = self._build(num_classes=dim)
        self.classifier, self.last = _without_last(self.network, model, dim)
        self.last.reset_parameters()  # some networks begin with zeros, where a cosine has no slope
        if self.input.size != own.size:
            self._probe()

    def body(self, x: Shaped[Tensor, "n 3 rows columns"]) -> Float[Tensor, "n width"]:
        """Compute what timm calls the features before the classifier."""
        maps = self.network.forward_features(self.normalised(x))
        vectors: Tensor = self.network.forward_head(maps, pre_logits=True)
        return vectors

    def names_elsewhere(self) -> dict[str, str]:
        """Give the names of tensors here, by timm's."""
        names = {name: f"network.{name}" for name in self.network.state_dict()}
        return names | {f"{self.classifier}.{name}": f"last.{name}" for name in ("weight", "bias")}

    def fetched(self) -> dict[str, Tensor]:
        """Download the weights that timm has for this network, under timm's names."""
        tensors: dict[str, Tensor] = self._build(pretrained=True).state_dict()
        return tensors

    def translated(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Let timm turn the tensors of a file by the network's authors into its own.

        Raises:
            Exception: Of many kinds, if they are not such tensors.
        """
        inside = {"state_dict": dict(tensors), "url": None, "file": None, "hf_hub_id": None}
        network = self._build(pretrained=True, pretrained_cfg_overlay=inside)
        translated: dict[str, Tensor] = network.state_dict()
        return translated

    def _build(self, **arguments: Any) -> Any:
        return build_network(self.name, self.input.size, **arguments)

    @torch.no_grad()
    def _probe(self) -> None:
        """Try one image of the size that was asked for."""
        training = self.training
        try:
            self.eval()(torch.zeros(1, 3, self.input.size, self.input.size))  # type: ignore[arg-type]
        except (AssertionError, RuntimeError) as error:
            raise unsuited(self.name, self.input.size, error) from error
        finally:
            self.train(training)


def _without_last(network: Any, model: str, dim: int) -> tuple[str, nn.Linear]:
    """Take the last layer out of a network, and give its name there."""
    last = network.get_classifier()
    names = [name for name, module in network.named_modules() if module is last]
    if not isinstance(last, nn.Linear) or last.out_features != dim or not names:
        raise ValueError(
            f"features must end in one linear layer, got {model!r}, which ends in "
            f"{type(last).__name__}: choose another model"
        )
    parent, _, child = names[0].rpartition(".")
    setattr(network.get_submodule(parent), child, nn.Identity())
    return names[0], last
