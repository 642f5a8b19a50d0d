"""A number of things in words: one of them is no plural."""


def amount(count: int, noun: str) -> str:
    """Write a number with its noun, as in ``1 run`` and ``2 runs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
