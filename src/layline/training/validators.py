"""What a setting refuses beyond a wrong type."""

from collections.abc import Collection
from typing import Any

from pydantic import AfterValidator, BeforeValidator

from layline.registry import check_known


def known(names: Collection[str]) -> BeforeValidator:
    """Refuse what is not among the names."""

    def check(value: Any) -> Any:
        check_known("value", value, names)
        return value

    return BeforeValidator(check)


def without(**elsewhere: str) -> AfterValidator:
    """Refuse options that are settings of their own.

    Args:
        **elsewhere: What to do instead, by option.
    """

    def check(options: dict[str, Any]) -> dict[str, Any]:
        for name, cure in elsewhere.items():
            if name in options:
                raise ValueError(f"must not have {name}: {cure}")
        return options

    return AfterValidator(check)
