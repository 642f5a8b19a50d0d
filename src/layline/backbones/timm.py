"""Any network of timm by name, its classifier replaced by a last layer to ``dim``.

Networks of the Hugging Face hub have the name ``hf-hub:owner/name``. Their configuration is read
from the hub or the local cache; a saved model contains it and is rebuilt without the hub.
"""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from layline.backbones.base import (
    ImageBackbone,
    InputSpec,
    KernelOptions,
    check_dropout,
    make_last_layer,
)
from layline.utils.validation import UserError, check_integer, require

HUB_PREFIX = "hf-hub:"
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")  # their names on the hub


def import_timm() -> Any:
    """Import timm, or raise an error with the extra to install."""
    return require("timm", extra="images", needed_by="a network of timm")


def is_hub_name(name: str) -> bool:
    """Return whether a name is that of a repository of the hub, such as ``hf-hub:owner/name``."""
    return name.startswith(HUB_PREFIX)


def check_hub(hub_id: str, *files: str) -> None:
    """Raise an OSError if none of the files is cached and the hub does not answer within seconds.

    A download without a connection would take a minute: huggingface_hub repeats its requests.
    """
    import huggingface_hub as hub

    repo, _, at = hub_id.partition("@")
    revision = at or None
    for file in files:
        if isinstance(hub.try_to_load_from_cache(repo, file, revision=revision), str):
            return
    try:
        url = hub.hf_hub_url(repo, "config.json", revision=revision)
        hub.get_hf_file_metadata(url, timeout=3.0)
    except hub.errors.HfHubHTTPError:
        return  # the hub answers; the download reports what is wrong with the repository
    except Exception as error:  # each HTTP library has its own
        raise OSError(f"the Hugging Face hub is not reachable ({first_line(error)})") from error


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, without a full stop."""
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__


class TimmBackbone(ImageBackbone):
    """Map images to features with a network of timm.

    The classifier is removed from the network, together with the dropout in front of it.

    Args:
        model: timm's name, such as ``vgg16`` or ``resnet18.a1_in1k``, or ``hf-hub:owner/name``.
        dim: Dimension d of the features.
        architecture: timm's name of a network of the hub; by default read from the hub.
        arguments: timm's arguments of a network of the hub.
        drop_rate: Dropout in front of the last layer, and wherever else timm has it for this
            network; by default 0.5 for a VGG, as published.
        drop_path_rate: Rate of stochastic depth.
        hidden: Units of a hidden layer before the last Linear; zero for none.
        dropout: Dropout rate in front of each Linear of the last layer, by default ``drop_rate``.
        all_stages: Also give the last layer the average-pooled maps of every stage. The first
            stages see blur and texture, which the output of a frozen body no longer contains.
        kernel: Options of a :class:`KernelLayer` instead.
        **spec: Fields of :class:`InputSpec`, by default the model's own.
    """

    def __init__(
        self,
        model: str,
        dim: int,
        *,
        architecture: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        drop_rate: float | None = None,
        drop_path_rate: float | None = None,
        hidden: int = 0,
        dropout: float | None = None,
        all_stages: bool = False,
        kernel: KernelOptions | None = None,
        **spec: Any,
    ) -> None:
        check_integer("dim", dim, 1)
        given = {"drop_rate": drop_rate, "drop_path_rate": drop_path_rate, "dropout": dropout}
        rates = {name: rate for name, rate in given.items() if rate is not None}
        for name, rate in rates.items():
            check_dropout(name, rate)
        hub: dict[str, Any] = {}
        if not is_hub_name(model):
            architecture, arguments = model, {}
        elif architecture is None:
            architecture, arguments, hub = _read_hub_config(model)
        arguments = dict(arguments or {})
        _check_architecture(model, architecture, arguments)
        own = _default_input(architecture, hub)
        super().__init__(replace(own, **{k: v for k, v in spec.items() if v is not None}))
        self.name, self._rates = model, rates
        self._architecture, self._arguments = architecture, arguments
        self.network = self._build(architecture, num_classes=dim)
        self.classifier, width = _remove_classifier(self.network, model)
        own_dropout = _remove_dropout(self.network)
        self.all_stages = all_stages and hasattr(self.network, "forward_intermediates")
        if self.all_stages or self.input.size != own.size:
            width = self._measure_width()
        rate = own_dropout if dropout is None else dropout
        self.last = make_last_layer(width, dim, hidden, rate, kernel)

    def set_last_layer(
        self,
        dim: int,
        hidden: int = 0,
        dropout: float = 0.0,
        kernel: KernelOptions | None = None,
        all_stages: bool = False,
    ) -> None:
        """Replace the last layer; see the arguments of the class."""
        self.all_stages = all_stages and hasattr(self.network, "forward_intermediates")
        self._rates["dropout"] = dropout
        self.last = make_last_layer(self._measure_width(), dim, hidden, dropout, kernel)

    @property
    def options(self) -> dict[str, Any]:
        """The options for ``create(name, dim, **options)`` that rebuild it, as plain JSON."""
        options = super().options | self._rates
        if is_hub_name(self.name):
            options |= {"architecture": self._architecture, "arguments": dict(self._arguments)}
        return options | ({"all_stages": True} if self.all_stages else {})

    def body(self, x: Shaped[Tensor, "n 3 rows columns"]) -> Float[Tensor, "n width"]:
        """Compute the pooled features before the classifier, of all stages if wanted."""
        images = self.normalize(x)
        if not self.all_stages:
            maps = self.network.forward_features(images)
            vectors: Tensor = self.network.forward_head(maps, pre_logits=True)
            return vectors
        maps, stages = self.network.forward_intermediates(images)
        means = [stage.mean(dim=(-2, -1)) for stage in stages]
        return torch.cat([*means, self.network.forward_head(maps, pre_logits=True)], dim=-1)

    def timm_names(self) -> dict[str, str]:
        """Return our name of each tensor by timm's."""
        names = {name: f"network.{name}" for name in self.network.state_dict()}
        if isinstance(self.last, nn.Linear):  # timm has no hidden layer there
            names |= {f"{self.classifier}.{name}": f"last.{name}" for name in ("weight", "bias")}
        return names

    def download(self) -> dict[str, Tensor]:
        """Load timm's pretrained weights from its cache or the hub, under timm's names."""
        hub_id = self.name.removeprefix(HUB_PREFIX)
        if not is_hub_name(self.name):
            hub_id = import_timm().get_pretrained_cfg(self.name).hf_hub_id
        if hub_id:
            check_hub(hub_id, *WEIGHT_FILES)
        tensors: dict[str, Tensor] = self._build(self.name, pretrained=True).state_dict()
        return {k: v for k, v in tensors.items() if not k.startswith(f"{self.classifier}.")}

    def _build(self, name: str, **arguments: Any) -> Any:
        timm = import_timm()
        config = timm.get_pretrained_cfg(self._architecture)
        options: dict[str, Any] = {name: v for name, v in self._rates.items() if name != "dropout"}
        if self._architecture.startswith("vgg"):
            options.setdefault("drop_rate", 0.5)  # as published
        if config.fixed_input_size and self.input.size != config.input_size[-1]:
            options["img_size"] = self.input.size
        try:
            return timm.create_model(name, **self._arguments, **arguments, **options)
        except (TypeError, AssertionError, RuntimeError) as error:
            message = f"Cannot build {self.name} with {options}: {first_line(error)}"
            raise UserError(message) from error

    @torch.no_grad()
    def _measure_width(self) -> int:
        """Count the units of the body's output with one image, which also tries the size."""
        size = self.input.size or 224
        self.network.eval()
        try:
            return self.body(torch.zeros(1, 3, size, size)).shape[1]
        except (AssertionError, RuntimeError) as error:
            message = f"{self.name} does not take size {size}: {first_line(error)}"
            raise UserError(message) from error
        finally:
            self.network.train()

    def _groups(self, coarse: bool) -> Iterable[list[nn.Parameter]]:
        """Return the parameters of the body by timm's layers or stages."""
        if not hasattr(self.network, "group_matcher"):
            return super()._groups(coarse)
        from timm.models import group_parameters

        names = group_parameters(self.network, self.network.group_matcher(coarse=coarse))
        return [[self.network.get_parameter(name) for name in names[key]] for key in sorted(names)]


def _check_architecture(model: str, architecture: Any, arguments: Mapping[str, Any]) -> None:
    """Raise an error if a file or a repository would make timm load something else."""
    if not import_timm().is_model(architecture):
        raise UserError(f"{model} is not a network of timm: {architecture!r} is unknown")
    reserved = {*inspect.signature(import_timm().create_model).parameters, "num_classes"}
    if taken := sorted(reserved & set(arguments)):
        raise UserError(f"arguments of {model} must not contain {taken[0]!r}")


def _read_hub_config(name: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Read the architecture, arguments and configuration of a network of the hub."""
    repo = name.removeprefix(HUB_PREFIX)
    try:
        check_hub(repo, "config.json")
        config, architecture, arguments = import_timm().models.load_model_config_from_hf(repo)
    except (KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{name} is not a network of timm: its config.json is different") from error
    except Exception as error:
        raise OSError(f"Cannot load {name}: {first_line(error)}.") from error
    return architecture, {k: v for k, v in (arguments or {}).items() if k != "num_classes"}, config


def _default_input(architecture: str, hub: Mapping[str, Any]) -> InputSpec:
    """Return the input that a model was made for."""
    config = import_timm().get_pretrained_cfg(architecture).to_dict() | hub
    channels, height, width = config["input_size"]
    if channels != 3 or height != width:
        raise UserError(f"{architecture} does not take square RGB images; choose another network.")
    return InputSpec(height, *(config[k] for k in ("mean", "std", "interpolation", "crop_pct")))


def _remove_classifier(network: Any, model: str) -> tuple[str, int]:
    """Remove the classifier of a network; return its name and its number of inputs."""
    last = network.get_classifier()
    names = [name for name, module in network.named_modules() if module is last]
    if not isinstance(last, nn.Linear) or not names:
        raise UserError(f"{model} does not end in one linear layer; choose another network.")
    network.set_submodule(names[0], nn.Identity())
    return names[0], last.in_features


def _remove_dropout(network: Any) -> float:
    """Remove the dropout in front of the classifier, a module or a number; return its rate."""
    modules = dict(network.named_modules())
    for name in ("head_drop", "head.drop", "head.dropout"):
        if isinstance(modules.get(name), nn.Dropout):
            network.set_submodule(name, nn.Identity())
            return float(modules[name].p)
    rate, network.drop_rate = getattr(network, "drop_rate", 0.0), 0.0
    return float(rate or 0.0)
