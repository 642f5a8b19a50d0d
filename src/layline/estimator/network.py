"""The network of an estimator: features and head, as its parameters ask for them."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from layline import features as feature_registry


def takes_table(features: Any) -> bool:
    """Tell a class of features that take a table as the named ones do."""
    return isinstance(features, type) and issubclass(features, feature_registry.TableFeatures)


def made(make: Callable[..., nn.Module], known: Mapping[str, Any]) -> nn.Module:
    """Call what makes a module with as much of what is known as it takes."""
    try:
        takes = [*inspect.signature(make).parameters.values()]
    except ValueError:  # a class of Python itself, which is none
        takes = []
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in takes)
    names = {each.name for each in takes}
    given = {name: value for name, value in known.items() if takes_any or name in names}
    module = make(**given)
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"features must make an nn.Module, got {type(module).__name__} from {make!r}"
        )
    return module
