"""The file of a model: one ``.safetensors``, read without running anything that is in it.

The header has a description from which the model is rebuilt; the tensors are then filled in.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from layline import model_description
from layline.files import whole_file
from layline.heads import HEADS
from layline.model import ModelSpec, OrdinalModel
from layline.registry import find

Tensors = dict[str, torch.Tensor]
_KEY = "layline"
_PICKLES = (b"PK", b"\x80")  # PyTorch's own files, new and old


def save(model: OrdinalModel, path: Path) -> None:
    """Write a model; the file is whole or it is not there."""
    # copies: safetensors refuses tensors that share memory or are not contiguous
    tensors = {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in model.state_dict().items()
    }
    with whole_file(path) as part:
        try:
            save_file(tensors, part, metadata={_KEY: model_description.describe(model.spec)})
        except SafetensorError as error:  # a full disk comes as this
            raise OSError(None, str(error)) from error


def load(path: str | Path, device: str | torch.device = "cpu") -> OrdinalModel:
    """Read a model that was trained before; nothing in the file is executed.

    Args:
        path: A ``.safetensors`` file, or the folder of a run, whose best model is taken.
        device: Where to put the model.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        path = path / "best.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"path must be a model file, got {path}: it is not there")
    text, tensors = _read(path)
    try:
        model = _rebuilt(model_description.read(text), tensors)
    except ImportError:  # a library that the method needs
        raise
    except Exception as error:  # whoever wrote the description may have written anything
        why = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(f"{path} must describe its model: {why}") from error
    return model.to(device).eval()


def _read(path: Path) -> tuple[str, Tensors]:
    """Read the description and the tensors."""
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            if text is None:
                raise ValueError(
                    f"{path} must be a model of Layline, got another safetensors file: as weights "
                    "of a backbone it goes to --weights"
                )
            return text, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        what = "a pickle, which can run code" if _is_pickle(path) else f"a damaged one: {error}"
        raise ValueError(f"{path} must be a whole .safetensors file, got {what}") from None


def _is_pickle(path: Path) -> bool:
    """Tell a pickle among files that cannot be read; a sound file may begin with the same bytes."""
    with path.open("rb") as file:
        return file.read(2).startswith(_PICKLES)


def _rebuilt(spec: ModelSpec, tensors: Tensors) -> OrdinalModel:
    with torch.random.fork_rng(devices=[]):  # weights are drawn, and thrown away
        if "meta" not in find("method", spec.method, HEADS).limits:
            with torch.device("meta"):  # costs no memory, however absurd the numbers are
                _check_tensors(spec.build().state_dict(), tensors)
        model = spec.build()
    model.load_state_dict(tensors)
    return model


def _check_tensors(expected: Tensors, found: Tensors) -> None:
    for name in sorted({*expected, *found}):
        wanted, got = _kind(expected.get(name)), _kind(found.get(name))
        if wanted != got:
            raise ValueError(f"the tensor {name} must be {wanted}, got {got}")


def _kind(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "absent"
    numbers = "numbers" if tensor.is_floating_point() else str(tensor.dtype)
    return f"{numbers} of shape {tuple(tensor.shape)}"
