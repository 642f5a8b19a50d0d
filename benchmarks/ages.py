"""Write utkface-ages.csv: the age in years of each face of UTKFace, from its file name.

python benchmarks/ages.py DATA/utkface8 DATA/utkface-ages.csv

Ages above 90, of which there are few faces, are 90.
"""

import csv
import sys
from pathlib import Path

OLDEST = 90


def main(folder: Path, file: Path) -> None:
    """Write a line for each image below the folder, with its path relative to the file."""
    images = sorted(folder.rglob("*.jpg"))
    with file.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines)
        writer.writerow(["image", "age"])
        for image in images:
            age = min(int(image.name.split("_")[0]), OLDEST)
            writer.writerow([image.relative_to(file.parent).as_posix(), age])
    print(f"{file}: {len(images)} images")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
