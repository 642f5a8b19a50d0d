"""What came out of a cell: its numbers, or why there are none."""

from dataclasses import asdict, dataclass, field
from typing import Any, Self

from layline.evaluation import DECODED, DISTRIBUTION

ON_DISTRIBUTIONS = (*DISTRIBUTION, "unimodality_rate")


@dataclass(frozen=True)
class Outcome:
    """The end of a cell.

    Attributes:
        wanted: Hash of what was asked for, see :class:`~layline.experiments.cells.Cell`.
        version: The code that ran.
        error: Why it failed, in a sentence that begins with the kind of error; empty if it did not.
        traceback: Where it failed.
        seconds: How long it took, this time.
        epoch: The epoch that was chosen.
        validation_mae: Its validation error, by the decoding of the run.
        samples: Test samples.
        numbers: The metrics of the test, by decoding.
    """

    wanted: str
    version: str
    error: str = ""
    traceback: str = ""
    seconds: float = 0.0
    epoch: int = 0
    validation_mae: float = float("nan")
    samples: int = 0
    numbers: dict[str, dict[str, float | None]] = field(default_factory=dict)

    @classmethod
    def of_test(cls, test: dict[str, Any], **about: Any) -> Self:
        """Take the metrics from the numbers of a run's ``test.json``."""
        same = {name: test[name] for name in ON_DISTRIBUTIONS}
        numbers = {
            decoding: {name: values[name] for name in DECODED} | same
            for decoding, values in test["by_decoding"].items()
        }
        return cls(epoch=test["epoch"], samples=test["samples"], numbers=numbers, **about)

    def as_json(self) -> dict[str, Any]:
        """Give it as plain values; JSON has no NaN."""
        values = asdict(self)
        if self.validation_mae != self.validation_mae:
            del values["validation_mae"]
        return values
