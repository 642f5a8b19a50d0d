"""Warnings about a model in plain sentences, for the person who is about to use it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from layline.metrics import Ranks

FEW = 20  # samples of a class; with fewer, a 95 % interval of its recall is over 40 points wide
_MUCH_WORSE = 1.2  # times the validation error
_MAX_NAMED = 5  # classes in a sentence


def find_alarms(
    numbers: Mapping[str, Any], counts: Mapping[str, Sequence[int]], classes: Sequence[str]
) -> list[str]:
    """List what a person should know before using a model.

    Args:
        numbers: The numbers of ``test.json``. ``confusion`` is required; ``mae``, ``intervals``,
            ``validation``, ``run_test``, ``ranges`` and ``duplicates`` are used if present.
        counts: Samples by split and class; may be empty.
        classes: Names of the classes, lowest first.
    """
    confusion = np.asarray(numbers["confusion"])
    return [
        *_never_predicted(confusion, classes),
        *_confused_ends(confusion, classes),
        *_worse(numbers),
        *_low_coverage(numbers.get("ranges") or []),
        *_duplicates(numbers.get("duplicates") or {}, int(confusion.sum())),
        *_few_samples(confusion, counts, classes, str(numbers.get("part", "test"))),
    ]


def _never_predicted(confusion: Ranks, classes: Sequence[str]) -> list[str]:
    samples, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    missing = {
        name: int(samples[k]) for k, name in enumerate(classes) if samples[k] and not predicted[k]
    }
    if not missing:
        return []
    return [
        f"Never predicted: {_list_classes(missing)}. Train "
        "longer, add training samples, use balanced class weights if they are rare, or merge "
        "neighboring classes."
    ]


def _confused_ends(confusion: Ranks, classes: Sequence[str]) -> list[str]:
    last = len(confusion) - 1
    confused = [
        f"{confusion[true, predicted]} of {confusion[true].sum()} samples of “{classes[true]}” "
        f"predicted as “{classes[predicted]}”"
        for true, predicted in ((0, last), (last, 0))
        if last > 1 and confusion[true, predicted]
    ]
    if not confused:
        return []
    return [
        f"The two ends of the scale are confused: {' and '.join(confused)}. Look at these samples "
        "among the worst mistakes: their labels may be wrong, or the model misses something."
    ]


def _worse(numbers: Mapping[str, Any]) -> list[str]:
    """Compare the MAE with that on validation samples, and other data with the run's own test."""
    validation, own = numbers.get("validation") or {}, numbers.get("run_test") or {}
    interval, now = (numbers.get("intervals") or {}).get("mae"), numbers.get("mae")
    if interval is None or now is None:
        return []
    alarms = []
    if (before := validation.get("mae")) is not None:
        # the interval is widened, because the validation MAE varies, too
        ratio = numbers.get("samples", 0) / (validation.get("samples") or np.inf)
        reach = (now - interval[0]) * np.sqrt(1 + ratio)
        if now - before > reach and now > _MUCH_WORSE * before:
            alarms.append(
                f"Much worse on test than on validation samples: MAE {now:.3f} instead of "
                f"{before:.3f}, more than chance explains. The test samples differ in kind, or the "
                "validation split contains duplicates of training samples. Expect the test result."
            )
    if own.get("interval") is not None:
        before = own["mae"]
        if now - before > np.hypot(now - interval[0], own["interval"][1] - before):
            alarms.append(
                f"Worse than on the run's own test samples: MAE {now:.3f} instead of {before:.3f}, "
                "more than chance explains. These data differ in kind: look at the mistakes, "
                "calibrate on such data, or train further on some of them."
            )
    return alarms


def _low_coverage(ranges: Sequence[Mapping[str, Any]]) -> list[str]:
    low = [
        f"{each['measured']:.1%} instead of {each['coverage']:.0%} (by chance at least "
        f"{each['expected'][0]:.1%})"
        for each in ranges
        if each["measured"] < each["expected"][0]
    ]
    if not low:
        return []
    return [
        f"Ranges contain the true class too rarely: {', '.join(low)}. The test samples differ in "
        "kind from the calibration samples. Calibrate on data like those that the model will see."
    ]


def _duplicates(duplicates: Mapping[str, Any], samples: int) -> list[str]:
    alarms = []
    if leaked := int((duplicates.get("in_training") or {}).get("test", 0)):
        alarms.append(
            f"{leaked} of {samples} test images have a duplicate in the training split: the "
            "results are too good. Remove the duplicates, or draw a new split."
        )
    if contradicting := int(duplicates.get("contradicting") or 0):
        alarms.append(
            f"Duplicate images with different labels: {contradicting} groups. "
            "`layline data check` lists them."
        )
    return alarms


def _few_samples(
    confusion: Ranks, counts: Mapping[str, Sequence[int]], classes: Sequence[str], part: str
) -> list[str]:
    measured = counts.get(part, confusion.sum(axis=1).tolist())
    alarms = []
    for split, per_class, advice in (
        ("training ", counts.get("train", ()), "Add some."),
        ("" if part == "all" else f"{part} ", measured, "Their numbers are uncertain."),
    ):
        few = {k: n for k, n in zip(classes, per_class, strict=False) if n < FEW}
        if few:
            alarms.append(f"Fewer than {FEW} {split}samples: {_list_classes(few)}. {advice}")
    return alarms


def _list_classes(counts: Mapping[str, int]) -> str:
    """List classes with their counts; only the first ones of many."""
    names = [f"“{name}” ({count})" for name, count in counts.items()]
    if len(names) > _MAX_NAMED + 1:
        names[_MAX_NAMED:] = [f"{len(names) - _MAX_NAMED} more classes"]
    return ", ".join(names)
