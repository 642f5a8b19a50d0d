"""Options of a composition go to the parts that know them."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def share_out(
    options: Mapping[str, Any], build: Mapping[str, Callable[..., Any]]
) -> dict[str, dict[str, Any]]:
    """Give each part the options that its builder takes by name."""
    takes = {
        part: set(inspect.signature(builder).parameters) - {"num_classes", "dim"}
        for part, builder in build.items()
    }
    known = sorted(set().union(*takes.values()))
    for option, value in options.items():
        if option not in known:
            raise ValueError(
                f"options must be those of the class and, for these parts, "
                f"{', '.join(known) or 'none'}, got {option}={value!r}"
            )
    return {part: {o: options[o] for o in options if o in takes[part]} for part in build}


def check_left_out(name: str, value: object, default: object) -> None:
    """Refuse an option of the unimodal loss where there is none."""
    if value != default:
        raise ValueError(
            f"{name} must be left out where there is no smoothing, got {value!r}: "
            "it belongs to the unimodal loss"
        )
