"""The metrics as tables show them: title with unit, which end is better, and how many digits."""

from dataclasses import dataclass

from layline.registry import find


@dataclass(frozen=True)
class Measure:
    """How one metric stands in tables.

    Attributes:
        title: With the unit.
        lower_is_better: Whether an error, rather than a success.
        decoded: Whether it depends on how a distribution becomes a rank.
        digits: After the decimal point.
        scale: What the metric is multiplied with to be in the unit of the title.
    """

    title: str
    lower_is_better: bool
    decoded: bool
    digits: int = 3
    scale: float = 1.0

    def shown(self, value: float) -> float:
        """Give a metric in the unit of the title, rounded as it is written."""
        return float(f"{value * self.scale:.{self.digits}f}")


MEASURES = {
    "mae": Measure("MAE", lower_is_better=True, decoded=True),
    "macro_mae": Measure("Macro MAE", lower_is_better=True, decoded=True),
    "accuracy": Measure("Accuracy (%)", lower_is_better=False, decoded=True, digits=2, scale=100.0),
    "within_one": Measure(
        "Within one (%)", lower_is_better=False, decoded=True, digits=2, scale=100.0
    ),
    "qwk": Measure("QWK", lower_is_better=False, decoded=True),
    "rps": Measure("RPS", lower_is_better=True, decoded=False),
    "ece": Measure("ECE", lower_is_better=True, decoded=False),
    "unimodality_rate": Measure(
        "Unimodal (%)", lower_is_better=False, decoded=False, digits=2, scale=100.0
    ),
}


def measure_of(metric: str) -> Measure:
    """Look a metric up by its column in a frame of runs."""
    return find("metric", metric, MEASURES)
