"""Photographs in folders, one for each grade.

This page trains a model on a folder of images and grades new ones, with a probability and a range
for each. The commands `layline train photos` and `layline predict` do the same.
"""

import textwrap
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

import layline

# ## The photographs
# This page draws its own images, so that it runs anywhere: metal plates with more and more rust,
# in a folder for each grade. Skip this part if you have photographs.

rng = np.random.default_rng(0)
place = Path(mkdtemp())
GRADES = ["none", "slight", "moderate", "severe"]


def plate(rust):
    """Draw a metal plate, with rust on about that share of it."""
    metal = rng.normal(150, 12, (48, 48, 1)) + rng.normal(0, 6, (48, 48, 3))
    image = Image.fromarray(metal.clip(0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    for _ in range(rng.poisson(60 * rust)):
        x, y, size = *rng.integers(0, 48, 2), rng.uniform(1, 4)
        colour = tuple(int(part) for part in rng.normal((130, 70, 35), 15).clip(0, 255))
        pen.ellipse((x - size, y - size, x + size, y + size), fill=colour)
    return image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5)))


for rank, grade in enumerate(GRADES):
    folder = place / "photos" / grade
    folder.mkdir(parents=True)
    for number in range(150):
        plate((rank + rng.uniform()) / 4).save(folder / f"{number:03}.png")

# ## Training
# One call reads and checks the images, splits them, trains, keeps the epoch with the lowest
# validation error and tests it once. Layline knows the order of these grades; for other names, pass
# it as `classes=`. A small network and few epochs keep this page quick. Without `backbone` and
# `epochs`, Layline uses a pretrained network and chooses the number of epochs. A fifth of the
# training images is held out for the ranges below.

run = layline.train(
    place / "photos",
    backbone="convnet",
    epochs=8,
    dim=16,
    calibration=0.2,
    workers=0,
    out=place / "run",
    verbose=False,
)
print(*sorted(path.name for path in run.folder.glob("*.*")))

# ## Results
# The metrics are those of the test split, which is used for nothing else. The intervals show how
# much they vary between test splits of this size. Alarms describe problems in the results. With as
# few samples as here, an alarm may be chance.

for name in ("accuracy", "mae", "qwk"):
    low, high = run.metrics["intervals"][name]
    print(f"{name:9} {run.metrics[name]:.3f}  ({low:.3f} to {high:.3f})")
for alarm in run.metrics["alarms"]:
    print(textwrap.fill(alarm, 88))

# `run.report` is an HTML page with all results and figures.

# ## New photographs
# The model takes files, folders, arrays and Pillow images. Probabilities are calibrated: about 80 %
# of the predictions with a probability of 0.8 are correct.

new = [plate(rust) for rust in (0.05, 0.3, 0.5, 0.7, 0.95)]
model = run.model
grades, probabilities = model.predict(new), model.predict_proba(new)

# A range contains the true grade of a new photograph of the same kind with a probability of at
# least 90 %, however accurate the model is. A person should check the images with wide ranges.

low, high = model.predict_range(new, coverage=0.9)
for row in zip(grades, probabilities.max(axis=1), low, high, strict=True):
    print("{:9} {:.2f}   {} to {}".format(*row))

# ## Loading the model
# The model is one file. Loading it executes no code from it.

again = layline.load(place / "run")
assert (again.predict(new) == grades).all()
