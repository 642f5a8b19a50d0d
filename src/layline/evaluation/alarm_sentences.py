"""What is wrong with a model, in words for the person who is about to use it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from layline.evaluation.inputs import Ints

FEW = 20  # samples of a class: the interval of a share is then wider than forty points
MUCH_WORSE = 1.2  # times the validation error
_NAMED = 5  # classes in a sentence


def alarms(
    numbers: Mapping[str, Any], counts: Mapping[str, Sequence[int]], classes: Sequence[str]
) -> list[str]:
    """Say in sentences what a person should know before using a model.

    Validation counts as much better than test if the test MAE is more than a fifth above it, and
    further than chance takes it: beyond the interval of the test MAE, widened for the validation
    samples, which vary too.

    Args:
        numbers: As in ``test.json``: ``confusion``, and as far as they are there ``mae`` with
            ``intervals``, ``validation`` with its ``mae`` and ``samples``, ``run_test`` with the
            ``mae`` and its ``interval`` where the model was tested after training, ``ranges``
            with the ``coverage`` wanted, the one ``measured`` and the ones to be ``expected``, and
            ``copies`` of images, as in ``environment.json``.
        counts: Samples by part and class, as in ``environment.json``; may be empty.
        classes: Names of the classes, lowest first.
    """
    confusion = np.asarray(numbers["confusion"])
    return [
        *_never_predicted(confusion, classes),
        *_confused_ends(confusion, classes),
        *_worse_than_validation(numbers),
        *_worse_elsewhere(numbers),
        *_failed_ranges(numbers.get("ranges") or []),
        *_copied(numbers.get("copies") or {}, int(confusion.sum())),
        *_few_samples(confusion, counts, classes, str(numbers.get("part", "test"))),
    ]


def _never_predicted(confusion: Ints, classes: Sequence[str]) -> list[str]:
    samples, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    is_absent = (samples > 0) & (predicted == 0)
    absent = {name: int(samples[k]) for k, name in enumerate(classes) if is_absent[k]}
    if not absent:
        return []
    found, are = ("this class", "it is") if len(absent) == 1 else ("these classes", "they are")
    return [
        f"Never predicted: {_named(absent)}. The model cannot find {found}: train longer, add "
        f"training samples, train with --class-weight balanced if {are} rare, or join neighbouring "
        "classes."
    ]


def _confused_ends(confusion: Ints, classes: Sequence[str]) -> list[str]:
    if len(confusion) < 3:
        return []
    up, down = int(confusion[0, -1]), int(confusion[-1, 0])
    if up + down == 0:
        return []
    low, high = f"“{classes[0]}”", f"“{classes[-1]}”"
    parts = [
        f"{count} of {samples} {_samples(samples)} of {here} taken for {there}"
        for count, samples, here, there in (
            (up, int(confusion[0].sum()), low, high),
            (down, int(confusion[-1].sum()), high, low),
        )
        if count
    ]
    return [
        f"The two ends of the scale are confused: {' and '.join(parts)}. Look at them among the "
        "worst mistakes: either their labels are wrong, or the model misses something that matters."
    ]


def _worse_than_validation(numbers: Mapping[str, Any]) -> list[str]:
    validation = numbers.get("validation") or {}
    intervals = numbers.get("intervals") or {}
    interval, before, now = intervals.get("mae"), validation.get("mae"), numbers.get("mae")
    if interval is None or before is None or now is None:
        return []
    tested, validated = numbers.get("samples", 0), validation.get("samples") or np.inf
    reach = (now - interval[0]) * np.sqrt(1 + tested / validated)
    if now - before <= reach or now <= MUCH_WORSE * before:
        return []
    more = f"{now / before - 1:.0%} higher" if before > 0 else "higher"
    return [
        f"Much worse on the test than on the validation samples: the MAE is {now:.3f} after "
        f"{before:.3f}, {more}, which chance does not explain. The test samples are of another "
        "kind, or copies of training samples are in the validation part: expect the test number, "
        "and see how the data were split."
    ]


def _worse_elsewhere(numbers: Mapping[str, Any]) -> list[str]:
    """Compare other data with the test of the run: further apart than chance takes both."""
    before = numbers.get("run_test") or {}
    here, there = (numbers.get("intervals") or {}).get("mae"), before.get("interval")
    now, own = numbers.get("mae"), before.get("mae")
    if here is None or there is None or now is None or own is None:
        return []
    if now - own <= np.hypot(now - here[0], there[1] - own):
        return []
    return [
        f"Worse here than where it was trained: the MAE is {now:.3f} after {own:.3f} on the run's "
        "own test samples, which chance does not explain. These data are of another kind: look at "
        "the mistakes, calibrate on such data, or go on training on some of them with "
        "layline train DATA --from RUN."
    ]


def _failed_ranges(ranges: Sequence[Mapping[str, Any]]) -> list[str]:
    failed = [each for each in ranges if each["measured"] < each["expected"][0]]
    if not failed:
        return []
    said = ", ".join(
        f"{each['measured']:.1%} at {each['coverage']:.0%} (by chance not below "
        f"{each['expected'][0]:.1%})"
        for each in failed
    )
    return [
        f"Ranges hold the truth too rarely: {said}. The test samples are of another kind than "
        "those that the ranges were made with: calibrate on data of the kind that the model will "
        "see, with layline calibrate RUN --root DATA."
    ]


def _copied(copies: Mapping[str, Any], samples: int) -> list[str]:
    found = []
    leaked = int((copies.get("with_copy_in_training") or {}).get("test", 0))
    if leaked:
        found.append(
            f"Of {samples} test images {leaked} {'has' if leaked == 1 else 'have'} a copy in "
            "training: the numbers are too good. Leave the copies out, or split anew."
        )
    contradicting = int(copies.get("contradicting") or 0)
    if contradicting:
        found.append(
            f"Copies of one image with different labels: {contradicting} "
            f"group{'' if contradicting == 1 else 's'}. layline data check lists them."
        )
    return found


def _few_samples(
    confusion: Ints, counts: Mapping[str, Sequence[int]], classes: Sequence[str], measured: str
) -> list[str]:
    parts = {
        "training ": (counts.get("train", ()), "Little can be learned of so few: add some."),
        {"train": "training ", "all": ""}.get(measured, f"{measured} "): (
            counts.get(measured, confusion.sum(axis=1).tolist()),
            "Their numbers are rough: see the intervals, or test with more.",
        ),
    }
    found = []
    for part, (per_class, cure) in parts.items():
        few = {
            name: int(count) for name, count in zip(classes, per_class, strict=False) if count < FEW
        }
        if few:
            found.append(f"Fewer than {FEW} {part}samples: {_named(few, short=True)}. {cure}")
    return found


def _named(counts: Mapping[str, int], short: bool = False) -> str:
    """List classes with their samples; of many, the first ones."""
    words = [
        f"“{name}” ({count}{'' if short else ' ' + _samples(count)})"
        for name, count in counts.items()
    ]
    rest = f" and {len(words) - _NAMED} more classes" if len(words) > _NAMED + 1 else ""
    return ", ".join(words[:_NAMED] if rest else words) + rest


def _samples(count: int) -> str:
    return "sample" if count == 1 else "samples"
