"""Photographs in folders, one for each grade.

From a folder of images to a model that grades new ones, says how sure it is, and knows which of
them a person should see. Everything here can be done by the command as well: `layline train
photos` and `layline predict`.
"""

import textwrap
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

import layline

# ## The photographs
# So that this page runs anywhere, it draws its own: metal plates with more and more rust, in
# folders that are called after their grade. With photographs of your own, this part is not
# needed.

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
# One call: it recognises the folders, splits the images, checks them, trains, keeps the best
# epoch of a validation part and tests it once. The names of these grades have an order that is
# known; where it is not, `classes=` says it. A small network and few epochs keep this page quick:
# without `features` and `epochs` it would take a pretrained network, and as many epochs as fit into
# ten minutes. A fifth of the training images is kept apart for the ranges below.

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

# ## What it is worth
# The numbers are those of the test part, which had no say in anything. Their intervals tell how
# far another test part of the same size might be off, and alarms say in words what is wrong, if
# anything is. With as few samples as here, an alarm may be chance.

for name in ("accuracy", "mae", "qwk"):
    low, high = run.metrics["intervals"][name]
    print(f"{name:9} {run.metrics[name]:.3f}  ({low:.3f} to {high:.3f})")
for alarm in run.metrics["alarms"]:
    print(textwrap.fill(alarm, 88))

# `run.report` is a page with all of it, pictures included: open it in a browser.

# ## New photographs
# The model reads files, folders, arrays and Pillow images. A probability is calibrated: of the
# samples that get 0.8, about 80 % are right.

new = [plate(rust) for rust in (0.05, 0.3, 0.5, 0.7, 0.95)]
model = run.model
grades, probabilities = model.predict(new), model.predict_proba(new)

# A range holds the true grade of at least 90 % of new photographs of the same kind, whatever the
# model is worth. Where it is wide, a person should look.

low, high = model.predict_range(new, coverage=0.9)
for row in zip(grades, probabilities.max(axis=1), low, high, strict=True):
    print("{:9} {:.2f}   {} to {}".format(*row))

# ## Later
# The model is one file that runs no code when it is loaded.

again = layline.load(place / "run")
assert (again.predict(new) == grades).all()
