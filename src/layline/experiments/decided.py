"""Settings that are not the user's to choose, because the grid of runs chooses them."""

from collections.abc import Mapping
from typing import Any


def check_free(settings: Mapping[str, Any], decided: Mapping[str, str]) -> None:
    """Refuse settings that would be overruled: their user would believe that they hold.

    Args:
        settings: By section, such as ``{"training": {"seed": 3}}``.
        decided: The settings that are decided elsewhere, as ``training.seed``, each with where.
    """
    for name, cure in decided.items():
        section, key = name.split(".")
        values = settings.get(section, {})
        if not isinstance(values, Mapping):  # else the grid's own settings would replace it
            raise ValueError(
                f"{section}: must be a section of settings, got {values!r}: set {section}.KEY=VALUE"
            )
        if key in values:
            raise ValueError(f"{name} must not be set, got {values[key]!r}: {cure}")
