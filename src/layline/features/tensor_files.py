"""Reading a file of tensors without running code from it."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from layline.optional import require

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")

_WRAPPERS = ("state_dict", "model_state_dict", "model")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file, by name.

    Args:
        path: A file that ends in one of ``SUFFIXES``.
    """
    read = _read_safetensors if path.suffix.lower() == ".safetensors" else _read_torch
    content = read(path)
    while isinstance(content, Mapping):
        inner = [content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping)]
        if not inner:
            break
        content = inner[0]
    items = content.items() if isinstance(content, Mapping) else ()
    tensors = {name: value for name, value in items if isinstance(value, Tensor)}
    if not tensors:
        raise _refusal(path, "it holds none by name, save model.state_dict()")
    return tensors


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    safetensors = require("safetensors.torch", extra="images", needed_by="reading .safetensors")
    try:
        tensors: dict[str, Tensor] = safetensors.load_file(path)
    except OSError:
        raise
    except Exception as error:  # the library has more kinds than its own
        raise _refusal(path, "it is damaged, or something else under this name") from error
    return tensors


def _read_torch(path: Path) -> Any:
    with warnings.catch_warnings():
        # what torch remarks on such files, the errors below say
        warnings.filterwarnings("ignore", "Detected pickle protocol", UserWarning)
        warnings.filterwarnings("ignore", ".*looks like a TorchScript archive", UserWarning)
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except OSError:
            raise
        except Exception as error:  # a damaged pickle may fail anywhere
            reason = "it is damaged, or something else under this name"
            if "TorchScript" in str(error) or _is_pickle(path, error):
                reason = "reading it would run code from it, save model.state_dict() instead"
            raise _refusal(path, reason) from error


def _is_pickle(path: Path, error: Exception) -> bool:
    """Tell a pickle that asks for more than tensors from a file that is not one."""
    with path.open("rb") as file:
        return isinstance(error, UnpicklingError) and file.read(2)[:1] in (b"\x80", b"P")


def _refusal(path: Path, reason: str) -> ValueError:
    return ValueError(f"weights must be a file of tensors, got {path}: {reason}")
