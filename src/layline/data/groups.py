r"""Groups: what must stay in one part, such as the images of a patient.

A column names the group of each sample, or a regular expression finds it in the path. Where neither
is given and a column, or the beginning of the file names, looks like a patient, a subject, a user
or a case, a note says so: a model that meets a patient again looks better than it is.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from layline.data.dataset import format_list
from layline.data.splits import part_named
from layline.utils.errors import UserError

_WORDS = ("patient", "subject", "user", "person", "case", "study", "participant", "individual")
_SHORT = ("pat", "subj", "sub", "p", "s", "id")  # only at the beginning of a file name with digits
# columns of labels may end in "id" as well
_LABELS = frozenset({"label", "class", "grade", "rank", "target", "category", "stage"})
_FEWEST = 3  # groups, or there would be none for each part
_NUMBERED = re.compile(rf"({'|'.join((*_WORDS, *_SHORT))})([-_ ]?)\d+(?![a-z0-9])", re.IGNORECASE)


def groups_by(pattern: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Find the group of each sample in its path.

    Args:
        pattern: A regular expression that is searched for; its first group that takes part names
            the group of the sample, or else the whole match does.
        paths: From the root of the data, with forward slashes.
    """
    try:
        found = [re.search(pattern, path) for path in paths]
    except (re.error, TypeError) as error:
        raise UserError(
            f"group_by must be a regular expression, got {pattern!r}: {error}"
        ) from None
    names = [
        "" if match is None else next((part for part in match.groups() if part), match[0])
        for match in found
    ]
    without = [path for path, name in zip(paths, names, strict=True) if not name]
    if without:
        raise UserError(
            f"group_by must match every path, got '{pattern}' without a match in {len(without):,} "
            f"of {len(paths):,}, such as {format_list(without[:3])}: change it, or move them away"
        )
    return tuple(names)


def describe_groups(groups: Sequence[Hashable] | None, noun: str) -> tuple[str, ...]:
    """Say how many groups there are; nothing where there are none.

    Args:
        groups: That of each sample.
        noun: What the samples are, in the plural.
    """
    if not groups:
        return ()
    counts = Counter(groups)
    text = f"{len(counts):,} groups in {len(groups):,} {noun}"
    if len(counts) == len(groups):
        return (f"{text}: each is a group of its own, so grouping changes nothing",)
    return (f"{text}, the largest has {max(counts.values()):,}",)


def looks_like_group(name: str) -> bool:
    """Tell whether the name of a column is that of a person or a case, or ends in ``id``."""
    words = _words(name)
    own = {word.removesuffix("id") for word in words} | {word.removesuffix("s") for word in words}
    if own & {*_WORDS}:
        return True
    return len(words) > 1 and words[-1] == "id" and not _LABELS & {*words}


def suggest_columns(
    columns: Mapping[str, Sequence[str]], labels: Sequence[str], splits: Sequence[str] | None
) -> tuple[str, ...]:
    """Name the columns that look like a group and are not used as one.

    Args:
        columns: The cells of those that have no other use.
        labels: Of each sample; a column that only repeats them is none.
        splits: The part of each sample, if the data say it.
    """
    notes = []
    for name, cells in columns.items():
        different = len({*cells})
        if not (looks_like_group(name) and _FEWEST <= different < len(cells)):
            continue
        if different == len({*labels}) == len({*zip(cells, labels, strict=True)}):
            continue
        crossing = _crossing(cells, splits) if splits is not None else 0
        across = f", and {crossing:,} of them are in several parts of the split" if crossing else ""
        notes.append(
            f"The column {name!r} looks like a group ({different:,} values in {len(cells):,} rows) "
            f"and is not used as one{across}: --group {_quoted(name)} keeps its samples in one part"
        )
    return tuple(notes)


def suggest_pattern(paths: Sequence[str]) -> tuple[str, ...]:
    """Say that file or folder names begin like those of patients, if all of them do.

    Only names such as ``patient_12`` or ``p012_left.jpg`` count, with one word for all of them:
    dates, cameras and running numbers at the beginning of names mean nothing.
    """
    spelled: Counter[tuple[str, str]] = Counter()
    for path in paths:
        for part in path.split("/"):
            if match := _NUMBERED.match(part):
                spelled[match[1], match[2]] += 1
                break
    if not spelled:
        return ()
    ((word, mark), count), *_ = spelled.most_common(1)
    if count < len(paths):
        return ()
    pattern = rf"\b{word}{mark}\d+"
    groups = groups_by(pattern, paths)
    if not _FEWEST <= len({*groups}) < len(groups):
        return ()
    return (
        f"The names look like groups ({len({*groups}):,} such as {groups[0]!r} in {len(paths):,} "
        f"images): --group-by '{pattern}' keeps the images of each in one part",
    )


def _words(name: str) -> list[str]:
    """Cut the name of a column into words: ``patient_id``, ``PatientID`` and ``patientId``."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return [word.casefold() for word in re.split(r"[\W_]+", apart) if word]


def _crossing(groups: Iterable[str], splits: Iterable[str]) -> int:
    """Count the groups that are in several parts."""
    parts = defaultdict(set)
    for group, split in zip(groups, splits, strict=True):
        parts[group].add(part_named(split))
    return sum(len(found) > 1 for found in parts.values())


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else f"'{name}'"
