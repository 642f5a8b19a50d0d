"""Pretrained networks in local caches and on the Hugging Face hub, found out within seconds.

The libraries that fetch files try again and again where there is no network, for more than a
minute. So the caches are looked at first, and the hub is asked once whether it answers.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import torch

from layline.utils.errors import UserError
from layline.utils.torchvision_import import import_timm

PREFIX = "hf-hub:"
TIMEOUT = 3.0  # seconds for one question to the hub, the search for its address included

_HUB_NAME = re.compile(rf"{PREFIX}(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
_WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Place:
    """Where the weights of a network are kept for everybody.

    Attributes:
        repo: Of the Hugging Face hub, as ``owner/name``; empty if they are not there.
        revision: Of the repository; None for its newest.
        files: What they may be called there, the best first.
        url: Where they are beside the hub; empty if nowhere.
        torch_file: What the cache of PyTorch calls them, with wildcards; empty if it has none.
    """

    repo: str = ""
    revision: str | None = None
    files: tuple[str, ...] = _WEIGHT_FILES
    url: str = ""
    torch_file: str = ""

    @property
    def address(self) -> str:
        """What to ask whether they can be had."""
        if not self.repo:
            return self.url
        from huggingface_hub import constants

        return f"{constants.ENDPOINT}/{self.repo}/resolve/{self.revision or 'main'}/config.json"

    @property
    def host(self) -> str:
        """Who is asked."""
        return urlsplit(self.address).hostname or "nowhere"


@dataclass(frozen=True)
class HubModel:
    """A network of the hub, as its repository describes it.

    Attributes:
        architecture: timm's name for it, with which it is built.
        arguments: What timm is told beside.
        config: Its pretrained configuration: input, number of classes, place of the weights.
    """

    architecture: str
    arguments: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


def is_hub_name(name: str) -> bool:
    """Tell whether a name is that of a repository of the hub, such as ``hf-hub:owner/name``."""
    return name.startswith(PREFIX)


def split_hub_name(name: str) -> tuple[str, str | None]:
    """Give the repository and the revision, or refuse the name."""
    match = _HUB_NAME.fullmatch(name)
    if match is None:
        raise UserError(
            f"features must be {PREFIX}owner/name for a network of the hub, got {name!r}"
        )
    return match["repo"], match["revision"]


def find_hub_model(name: str) -> HubModel:
    """Find out what a name of the hub stands for: from timm, the local cache or the hub.

    Args:
        name: ``hf-hub:owner/name``, with ``@revision`` if it is not the newest.
    """
    if known := _name_by_timm(name):
        return HubModel(known)
    repo, revision = split_hub_name(name)
    file = cached_file(Place(repo, revision, ("config.json",)))
    if file is None:
        reason = why_out_of_reach(Place(repo, revision))
        if reason:
            raise OSError(
                f"features must be in the local cache or on a hub that answers, got {name!r}: "
                f"{reason}; choose a name of timm, such as tf_efficientnet_lite0"
            )
        from huggingface_hub import hf_hub_download

        file = Path(hf_hub_download(repo, "config.json", revision=revision))
    return _read_config(json.loads(file.read_text(encoding="utf-8")), name)


def _name_by_timm(name: str) -> str | None:
    """Give timm's own name for a network of its repositories, which it knows without the hub."""
    repo, revision = split_hub_name(name)
    owner, _, model = repo.partition("/")
    known = import_timm(name).models.is_model_pretrained(model)
    return model if owner == "timm" and revision is None and known else None


def _read_config(content: Any, name: str) -> HubModel:
    """Read a ``config.json`` as timm writes it; older ones have no part for the configuration."""
    repo = name.removeprefix(PREFIX)
    architecture = content.get("architecture") if isinstance(content, Mapping) else None
    if not isinstance(architecture, str) or not import_timm(name).is_model(architecture):
        raise UserError(
            f"features must be a network of timm, got {name!r}: its config.json names "
            f"{architecture or 'no architecture'}"
        )
    config = dict(content.get("pretrained_cfg") or content)
    for key in ("architecture", "num_features", "labels", "model_args"):
        config.pop(key, None)
    arguments = dict(content.get("model_args") or {})
    for each in (arguments, content):
        config["num_classes"] = each.get("num_classes", config.get("num_classes", 1000))
    arguments.pop("num_classes", None)
    config |= {"hf_hub_id": repo, "source": "hf-hub"}
    return HubModel(architecture, arguments, config)


def place_of(name: str) -> Place:
    """Tell where the weights of a network are kept.

    Args:
        name: timm's name, or ``hf-hub:owner/name``.
    """
    if is_hub_name(name):
        known = _name_by_timm(name)
        if known is None:
            return Place(*split_hub_name(name))
        name = known
    config = import_timm(name).get_pretrained_cfg(name)
    url = config.url if isinstance(config.url, str) else ""
    torch_file = Path(urlsplit(url).path).name
    if config.tag == "tv_in1k":  # torchvision's weights, which it may have fetched itself
        torch_file = f"{name.partition('.')[0]}-????????.pth"
    repo, _, revision = (config.hf_hub_id or "").partition("@")
    files = (config.hf_hub_filename,) if config.hf_hub_filename else _WEIGHT_FILES
    return Place(repo, revision or None, files, url, torch_file)


def cached_file(place: Place) -> Path | None:
    """Find weights on this machine, in the cache of the hub or of PyTorch. Nobody is asked."""
    from huggingface_hub import try_to_load_from_cache

    for file in place.files if place.repo else ():
        found = try_to_load_from_cache(place.repo, file, revision=place.revision)
        if isinstance(found, str):
            return Path(found)
    if place.torch_file:
        folder = Path(torch.hub.get_dir(), "checkpoints")
        return next(iter(sorted(folder.glob(place.torch_file))), None)
    return None


def why_out_of_reach(place: Place) -> str:
    """Ask once, for a few seconds at most, whether weights can be fetched.

    Returns:
        Why they cannot; nothing if they can.
    """
    from huggingface_hub import constants

    if not place.address:
        return "timm knows no weights of it"
    if place.repo and constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    answers: list[str] = []

    def ask() -> None:
        answers.append(_ask(place.address))

    # a thread, as no time-out ends the search for an address; a daemon, as nobody waits for it
    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    problem = answers[0] if answers else f"no answer within {TIMEOUT:g} seconds"
    return f"{place.host} is out of reach ({problem})" if problem else ""


def _ask(address: str) -> str:
    """Send one request; give what is wrong, or nothing."""
    from huggingface_hub import get_session

    try:  # with the proxies and certificates that downloads use, but without any token
        status = get_session().head(address, timeout=TIMEOUT).status_code
    except Exception as error:  # each library on the way has its own
        return str(error).partition("\n")[0].rstrip(".") or type(error).__name__
    # 401 may be a private network, which a download with the user's token can have
    return f"it answers {status}" if status >= 400 and status != 401 else ""
