r"""Groups: samples that must stay in one split, such as the images of a patient.

A column names the group of each sample, or a regular expression finds it in the path. If neither is
given and a column or the file names look like patients, subjects or cases, a note says so: a model
that meets a patient again in the test split looks better than it is.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence

from layline.data.dataset import format_list
from layline.data.splits import split_named
from layline.utils.errors import UserError

_WORDS = ("patient", "subject", "user", "person", "case", "study", "participant", "individual")
_SHORT = ("pat", "subj", "sub", "p", "s", "id")  # only at the beginning of a file name with digits
_LABELS = frozenset({"label", "class", "grade", "rank", "target", "category", "stage"})
_FEWEST = 3  # groups, one for each split
_NUMBERED = re.compile(rf"({'|'.join((*_WORDS, *_SHORT))})([-_ ]?)\d+(?![a-z0-9])", re.IGNORECASE)


def find_groups(pattern: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Find the group of each sample in its path.

    Args:
        pattern: A regular expression; its first group that matches names the group of the sample,
            or else the whole match does.
        paths: Paths from the root of the data, with forward slashes.
    """
    try:
        matches = [re.search(pattern, path) for path in paths]
    except (re.error, TypeError) as error:
        raise UserError(f"group_by is not a regular expression: {pattern!r} ({error}).") from None
    names = [
        "" if match is None else next((part for part in match.groups() if part), match[0])
        for match in matches
    ]
    without = [path for path, name in zip(paths, names, strict=True) if not name]
    if without:
        raise UserError(
            f"group_by '{pattern}' does not match {len(without):,} of {len(paths):,} paths, such "
            f"as {format_list(without[:3])}."
        )
    return tuple(names)


def describe_groups(groups: Sequence[Hashable] | None) -> tuple[str, ...]:
    """Return a note with the number of groups, if there are any."""
    if not groups:
        return ()
    counts = Counter(groups)
    text = f"{len(counts):,} groups in {len(groups):,} samples"
    if len(counts) == len(groups):
        return (f"{text}: every sample is a group of its own.",)
    return (f"{text}; the largest has {max(counts.values()):,}.",)


def looks_like_group(name: str) -> bool:
    """Check whether a column is named like a person or a case, or ends in ``id``."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    words = [word.casefold() for word in re.split(r"[\W_]+", apart) if word]
    own = {word.removesuffix("id") for word in words} | {word.removesuffix("s") for word in words}
    if own & {*_WORDS}:
        return True
    return len(words) > 1 and words[-1] == "id" and not _LABELS & {*words}


def suggest_columns(
    columns: Mapping[str, Sequence[str]], labels: Sequence[str], splits: Sequence[str] | None
) -> tuple[str, ...]:
    """Return notes about columns that look like groups and are not used.

    Args:
        columns: The cells of columns without another use.
        labels: The label of each sample; a column that repeats them is no group.
        splits: The split of each sample, if the data prescribe it.
    """
    notes = []
    for name, cells in columns.items():
        different = len({*cells})
        if not (looks_like_group(name) and _FEWEST <= different < len(cells)):
            continue
        if different == len({*labels}) == len({*zip(cells, labels, strict=True)}):
            continue
        found = defaultdict(set)
        for cell, split in zip(cells, splits or [], strict=False):
            found[cell].add(split_named(split))
        crossing = sum(len(each) > 1 for each in found.values())
        across = f" {crossing:,} of its values occur in several splits." if crossing else ""
        notes.append(
            f"Column {name!r} looks like a group ({different:,} values in {len(cells):,} rows)."
            f"{across} Set group to {name!r} to keep its samples in one split."
        )
    return tuple(notes)


def suggest_pattern(paths: Sequence[str]) -> tuple[str, ...]:
    """Return a note if all file or folder names begin like those of patients.

    Only names such as ``patient_12`` or ``p012_left.jpg`` count, with the same word in all of them.
    """
    spelled: Counter[tuple[str, str]] = Counter()
    for path in paths:
        matches = (_NUMBERED.match(part) for part in path.split("/"))
        if match := next(filter(None, matches), None):
            spelled[match[1], match[2]] += 1
    if not spelled:
        return ()
    ((word, mark), count), *_ = spelled.most_common(1)
    if count < len(paths):
        return ()
    pattern = rf"\b{word}{mark}\d+"
    groups = find_groups(pattern, paths)
    if not _FEWEST <= len({*groups}) < len(groups):
        return ()
    return (
        f"The file names look like groups ({len({*groups}):,}, such as {groups[0]!r}). Set "
        f"group_by to '{pattern}' to keep the images of each in one split.",
    )
