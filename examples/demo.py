"""The demo: grade the quality of photographs.

`make demo` runs this script. It trains the default method and a plain classifier on small
photographs that come with Layline, prints what both are worth and draws a picture. On two cores it
takes about a minute. A finished run in the folder `demo` is not trained again.

![the test images around the semicircle, and six with their range](../docs/images/demo.png)
"""

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

import layline
from layline import data
from layline.metrics import METRICS
from layline.reports.paper_figures import draw_plane

matplotlib.use("Agg")  # write the picture to a file, open no window
import matplotlib.pyplot as plt

# ## Training
# Both methods use the default recipe with fewer epochs. `layline train photo-quality --method
# committee --epochs 20 --out demo/committee` does the same.

OUT = Path("demo")
runs = {}
for method in ("committee", "classification"):
    folder = OUT / method
    if not (folder / "test.json").exists():
        resume = {"resume": folder} if (folder / "config.toml").exists() else {"out": folder}
        layline.train("photo-quality", method=method, epochs=20, workers=0, **resume)
    runs[method] = layline.Run(folder)

# ## What they are worth
# The numbers of the test images. A difference whose interval contains 0 may be chance.

SHOWN = ("accuracy", "mae", "within_one", "qwk", "rps", "unimodality_rate")
table = pd.DataFrame({method: [run.metrics[key] for key in SHOWN] for method, run in runs.items()})
table.index = [METRICS[key].label for key in SHOWN]
(pair,) = layline.compare([run.folder for run in reversed(runs.values())]).numbers["pairs"]
intervals = [pair["metrics"].get(key, {}).get("interval") for key in SHOWN]
table["95% interval of the difference"] = [
    "" if ends is None else f"{ends[0]:+.3f} to {ends[1]:+.3f}" for ends in intervals
]
print(table.to_string(float_format="{:.3f}".format))

# ## Ranges
# A range at 90 % contains the true grade of a new image with a probability of at least 90 %. This
# works with every method, the plain classifier included.

for method, run in runs.items():
    (at_90,) = (row for row in run.metrics["ranges"] if row["coverage"] == 0.9)
    print(
        f"{method}: ranges at 90% contain the true grade of {at_90['measured']:.1%} of the test "
        f"images and are {at_90['width']:.2f} grades wide on average"
    )

# ## Some images
# The first test image of each grade.

classes = list(runs["committee"].model.classes)
predictions = pd.read_csv(OUT / "committee" / "predictions.csv")
first = predictions.drop_duplicates("true").set_index("true").loc[classes].reset_index()
print(first[["path", "true", "predicted", "low", "high", "confidence"]].to_string(index=False))

# Images that a person should check: the model contradicts the label, or is least certain.

review = pd.read_json(OUT / "committee" / "review.json")
print(review.groupby("reason").head(2)[["reason", "name", "true", "predicted"]].to_string())

# ## The picture
# On the left the test images in the plane of the semicircle of `hard-semicircular`, a member of the
# committee. The direction from the center decides about its grade, so the proxies are drawn at the
# rim.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(11.2, 5), width_ratios=[1.15, 1], layout="constrained"
)
layout = np.load(OUT / "committee" / "layouts" / "test.npz")
rim = np.quantile(np.linalg.norm(layout["points"], axis=1), 0.9)
draw_plane(left, layout["points"], layout["ranks"], rim * layout["proxies"], len(classes))
left.set_title("The test images in the plane of the semicircle")
left.set_xlabel("Color: the true grade. Direction from the center: the grade by the semicircle.")

# On the right the first test image of each grade, with the range as a bar, the predicted grade as
# a dot and the true grade as a square.

dataset = data.read("photo-quality")
numbers = {name: number for number, name in enumerate(dataset.inputs.names)}
rank = {name: number for number, name in enumerate(classes)}
for row, image in enumerate(first.itertuples()):
    low, high = rank[image.low], rank[image.high]
    right.barh(row, high - low + 0.8, left=low - 0.4, height=0.5, color="0.85")
    right.scatter(rank[image.predicted], row, s=90, color="black")
    right.scatter(rank[image.true], row, s=240, marker="s", facecolors="none", edgecolors="black")
    box = right.inset_axes((-1.8, row - 0.45, 1.0, 0.9), transform=right.transData)
    box.imshow(dataset.inputs.load(numbers[image.path]))
    box.set_axis_off()
right.set_xlim(-0.6, len(classes) - 0.4)
right.set_ylim(len(classes) - 0.4, -0.6)
right.set_xticks(range(len(classes)), classes)
right.set_yticks([])
right.spines[["top", "right", "left"]].set_visible(False)
right.set_title("Range at 90 % (gray), prediction (●) and truth (□)")
figure.savefig(OUT / "demo.png", dpi=110)

print(f"{runs['committee'].report}: the report of the default method")
print(f"{OUT / 'demo.png'}: the picture")
print("Next: layline train PHOTOS, where PHOTOS has a folder of images for each grade")
