"""What an exported model costs and what it loses, against ``layline predict`` with the run.

    python benchmarks/export.py RUN PHOTOS
    python benchmarks/export.py --heads

The two commands take turns on the same images, start-up and decoding included; once more on one
image, which is all start-up; and once more the prediction alone, in one process. The heads are
compared in onnxruntime with weights and features that are random.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime
import torch

from layline.data.index import find_bad
from layline.data.loaders import ImageBatches
from layline.data.table_encoding import NumericColumn, TableEncoding
from layline.heads import HEADS
from layline.model.description import ModelDescription
from layline.model.model_file import load
from layline.model.onnx_export import Graph, export, to_onnx, traced
from layline.model.onnx_runtime import OnnxModel
from layline.utils.allocator import keep_freed_memory

CLASSES, COLUMNS, DIM = 8, 16, 32


def main() -> None:
    """Measure what was asked for."""
    keep_freed_memory()  # as the command does
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("photos", nargs="?", type=Path)
    parser.add_argument("--heads", action="store_true", help="Compare every head instead.")
    parser.add_argument("--repetitions", type=int, default=5)
    given = parser.parse_args()
    if given.heads:
        compare_heads()
    elif given.run and given.photos:
        with tempfile.TemporaryDirectory() as folder:
            compare_model(given.run, given.photos, Path(folder), given.repetitions)
    else:
        parser.error("give RUN and PHOTOS, or --heads")


def compare_model(run: Path, photos: Path, folder: Path, repetitions: int) -> None:
    """Print size, time and differences of one model."""
    made = export(run, folder / "model.onnx")
    export(run, folder / "model.pt2", "torch")
    print(f"{made.samples} {made.checked_on}: probabilities differ by {made.difference:.1e}")
    print("\nsize")
    for path in (run / "best.safetensors", folder / "model.onnx", folder / "model.pt2"):
        print(f"  {path.name:20}{path.stat().st_size / 1e6:8.2f} MB")
    models = {"run": run, "onnx": folder / "model.onnx"}
    one = next(path for path in sorted(photos.rglob("*")) if path.is_file())
    for what, samples in ((f"all of {photos.name}", photos), ("one image", one)):
        calls = {
            name: lambda model=model, name=name, samples=samples: predict(
                model, samples, folder / f"{name}.csv"
            )
            for name, model in models.items()
        }
        show(f"layline predict, {what}", medians(calls, repetitions))
        if samples is photos:
            compare_files(folder / "run.csv", folder / "onnx.csv")
    model, opened = load(run).eval(), OnnxModel(folder / "model.onnx")
    images = opened.read(photos)
    bad = {each.index for each in find_bad(images)}
    images = images.subset(np.array([i for i in range(len(images)) if i not in bad]))
    levels(model, opened, images)
    few = images.subset(np.arange(min(64, len(images))))
    inputs = opened.spec.inputs
    squares = np.stack([inputs.square(inputs.load(few, i)) for i in range(len(few))])
    name, tensor = opened.metadata.input_name, torch.from_numpy(squares).permute(0, 3, 1, 2)

    @torch.inference_mode()
    def by_torch() -> None:
        model(tensor)

    calls = {"run": by_torch, "onnx": lambda: opened._session.run(None, {name: squares})}
    show(f"the network alone, {len(few)} prepared images", medians(calls, repetitions))


def predict(model: Path, samples: Path, out: Path) -> None:
    """Call the command in a process of its own."""
    command = [sys.executable, "-m", "layline", "predict", model, samples]
    subprocess.run([*map(str, command), "--out", str(out), "--skip-bad"], check=True, stderr=-3)


def medians(calls: dict, repetitions: int) -> dict[str, float]:
    """Time calls in turns, after one of each."""
    seconds = {name: [] for name in calls}
    for turn in range(repetitions + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}


def show(what: str, seconds: dict[str, float]) -> None:
    """Print times, and their ratio."""
    print(f"\n{what}")
    for name, value in seconds.items():
        print(f"  {name:8}{value:8.3f} s")
    print(f"  onnx takes {seconds['onnx'] / seconds['run']:.2f} of the time")


def compare_files(own: Path, other: Path) -> None:
    """Print how far two files of predictions differ."""
    rows = [list(csv.DictReader(path.open(newline=""))) for path in (own, other)]
    shares = [
        np.array([[float(row[name]) for name in row if name.startswith("p_")] for row in part])
        for part in rows
    ]
    same = np.mean([a["predicted"] == b["predicted"] for a, b in zip(*rows, strict=True)])
    difference = np.abs(shares[0] - shares[1])
    print(
        f"  {len(rows[0])} images: the same class for {same:.2%}, probabilities differ by at most "
        f"{difference.max():.1e}, by {difference.mean():.1e} on average"
    )


def levels(model, opened: OnnxModel, images) -> None:
    """Print how far Pillow's squares are from those of torchvision."""
    batches = ImageBatches(images, model.description.inputs)
    largest, differ, count = 0, 0, 0
    for index in range(0, len(images), max(1, len(images) // 500)):
        torchs = batches.__getitems__([(index, 0)])[0][0].permute(1, 2, 0).numpy()
        inputs = opened.spec.inputs
        square = inputs.square(inputs.load(images, index))
        off = np.abs(torchs.astype(int) - square)
        largest, differ = max(largest, int(off.max())), differ + int((off > 0).sum())
        count += off.size
    print(f"\npreparation: at most {largest} grey level off, {differ / count:.3%} of the values")


class Several(torch.nn.Module):
    """Many heads on the same features."""

    def __init__(self, graphs: list[Graph]) -> None:
        super().__init__()
        self.graphs = torch.nn.ModuleList(graphs)

    def forward(self, x):
        """Give all outputs."""
        vectors = self.graphs[0].features(x)
        return tuple(output for graph in self.graphs for output in graph.answers(vectors))


def compare_heads() -> None:
    """Print for every head how far onnxruntime is from torch, also far from all proxies."""
    torch.manual_seed(0)
    names = [name for name, spec in HEADS.items() if spec.exports]
    encoding = TableEncoding(tuple(NumericColumn(str(i), 0.0, False) for i in range(COLUMNS)), ())
    specs = [
        ModelDescription(
            backbone="mlp",
            method=name,
            dim=DIM,
            classes=tuple(map(str, range(CLASSES))),
            inputs=encoding,
            backbone_options={"in_features": COLUMNS},
            decode=HEADS[name].decode,
        )
        for name in names
    ]
    models = [spec.build().eval() for spec in specs]
    for model in models:
        model.backbone = models[0].features
    rows = torch.randn(1000, COLUMNS, dtype=torch.float64) * torch.logspace(-1, 2, 1000)[:, None]
    kinds = ("log_probs", "probs", "rank")
    program = traced(Several([Graph(model, None).eval() for model in models]), rows)
    proto = to_onnx(program, "row", [f"{name} {kind}" for name in names for kind in kinds])
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    found = session.run(None, {"row": rows.numpy()})
    print("largest differences, and ranks that differ\n")
    print(f"{'method':28}{'log P':>10}{'P':>10}{'ranks':>7}")
    worst = 0.0
    for place, (name, model) in enumerate(zip(names, models, strict=True)):
        log_probs, probs, rank = found[len(kinds) * place :][: len(kinds)]
        with torch.no_grad():
            features = model.backbone(rows)
            expected = model.head.log_probs(features).numpy()
            decided = model.head.predict(features, model.description.decode).numpy()
        off = float(np.abs(np.exp(expected) - probs).max())
        ranks = int((decided != rank).sum())
        print(f"{name:28}{np.abs(expected - log_probs).max():10.1e}{off:10.1e}{ranks:7}")
        worst = max(worst, off)
    print(f"\n{len(names)} of {len(HEADS)} heads, a probability differs by at most {worst:.1e}")


if __name__ == "__main__":
    main()
