"""What each ingredient of the recipe ``modern`` is worth, on validation parts alone.

    python benchmarks/ablation.py --data-folder data --out ablation.csv

Every row of the result is one training with one ingredient taken away. No test part is looked at.
What is in the file already is not trained again, so a stopped measurement goes on.
"""

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from layline.evaluation.evaluate import measure
from layline.evaluation.predictions import Predictions
from layline.training.assembly import assemble, parts_of
from layline.training.display import Reporter
from layline.training.distributed import make_accelerator
from layline.training.frozen import frozen_parts, trained_network
from layline.training.loop import Hooks, Loop, TrainingState
from layline.training.recipes import resolve_config
from layline.training.config import combine
from layline.utils.devices import Processes

Tree = dict[str, Any]
FOLDER, TUNED, FROZEN, PIXELS, TABLE = "folder", "fine-tuned", "frozen", "from scratch", "table"
LITE: Tree = {"backbone": {"name": "tf_efficientnet_lite0", "weights": "bundled"}}


def table(name: str) -> Tree:
    """Give the settings of a table."""
    options = {"label": "rank"}
    return {"data": {"source": "table", "root": f"tables/{name}.csv", "options": options}}


# name: situation, epochs, settings
DATA: dict[str, tuple[str, int, Tree]] = {
    "photo-quality": (PIXELS, 12, {"data": {"source": "photo-quality"}}),
    "retinamnist": (PIXELS, 20, {"data": {"source": "npz", "root": "retinamnist.npz"}}),
    "vehicle-damage3": (
        TUNED,
        5,
        combine(LITE, {"data": {"source": FOLDER, "root": "vehicle-damage3", "size": 64}}),
    ),
    "wine": (TABLE, 20, table("winequality-red")),
    "abalone": (TABLE, 20, table("abalone")),
    "vehicle-damage3 frozen": (
        FROZEN,
        20,
        combine(LITE, {"data": {"source": FOLDER, "root": "vehicle-damage3", "size": 160}}),
    ),
    "utkface8 frozen": (
        FROZEN,
        10,
        combine(LITE, {"data": {"source": FOLDER, "root": "utkface8", "size": 112}}),
    ),
}


def _without(*situations: str, **settings: Any) -> tuple[tuple[str, ...], Tree]:
    """Take an ingredient away, in these situations."""
    tree: Tree = {}
    for name, value in settings.items():
        section, key = name.split("__", 1)
        tree.setdefault(section, {})[key] = value
    return situations, tree


ALL = (PIXELS, TUNED, FROZEN, TABLE)
INGREDIENTS: dict[str, tuple[tuple[str, ...], Tree]] = {
    "modern": (ALL, {}),
    "constant rates": _without(*ALL, training__schedule="none", training__warmup_epochs=0),
    "decay on vectors and proxies": _without(*ALL, training__decay_vectors=True),
    "no clipping": _without(*ALL, training__clip=0),
    "no average of the weights": _without(*ALL, training__ema=0),
    "first of equal epochs": _without(*ALL, training__ties="first"),
    "decoding by the mode": _without(*ALL, training__decode="mode"),
    "one rate for all layers": _without(TUNED, training__layer_decay=1),
    "all layers from the start": _without(TUNED, training__head_epochs=0),
    "crops of 8 to 100 %": _without(TUNED, data__augmentation="crop"),
    "no augmentation": _without(PIXELS, TUNED, data__augmentation="none"),
    "shifts beside flips": _without(PIXELS, data__augmentation="shift"),
    "ratio kept, sides cut off": _without(TUNED, FROZEN, data__keep_ratio=True),
    "middle 87.5 % by the paper": _without(TUNED, FROZEN, data__crop=0.875),
    "one linear layer": _without(FROZEN, features__options={"hidden": 0, "dropout": 0}),
    "last stage only": _without(FROZEN, features__options={"all_stages": False}),
    "balanced classes": _without(PIXELS, FROZEN, TABLE, training__class_weight="balanced"),
    "classes by effective number": _without(
        PIXELS, FROZEN, TABLE, training__class_weight="effective"
    ),
    "paper": (ALL, {"recipe": "paper"}),
}


def jobs(names: list[str], methods: list[str], seeds: int) -> Iterator[tuple[str, str, str, int]]:
    """List what to train: data, ingredient taken away, method, seed."""
    for seed in range(seeds):
        for name in names:
            situation = DATA[name][0]
            for ingredient, (situations, _) in INGREDIENTS.items():
                for method in methods:
                    if situation in situations:
                        yield name, ingredient, method, seed


class _Best(Hooks):
    """Remember what the best epoch predicts."""

    found: Predictions

    def finish_epoch(
        self, state: TrainingState, is_best: bool, validated: Predictions | None
    ) -> None:
        """Keep the predictions of the best epoch."""
        if is_best and validated is not None:
            self.found = validated


def train(name: str, tree: Tree, method: str, seed: int, folder: Path) -> dict[str, float]:
    """Train once and give the best validation numbers."""
    _, epochs, settings = DATA[name]
    base: Tree = {
        "head": {"method": method},
        "training": {"epochs": epochs, "seed": seed, "patience": 0},
        "data": {"partition": seed, "workers": 0, "cache": True},
        "backbone": {"freeze": True} if DATA[name][0] == FROZEN else {},
    }
    root = settings["data"].get("root")
    place: Tree = {} if root is None else {"data": {"root": str(folder / root)}}
    config = resolve_config(base, settings, place, tree)
    accelerator = make_accelerator(config)
    run = assemble(config, Reporter(Console(quiet=True)), accelerator)
    parts = parts_of(config, run.dataset, run.model.description)
    if config.backbone.freeze:
        parts = frozen_parts(run, parts, Path("frozen"))
    options = replace(config.training.options(), workers=0)
    network = trained_network(run)
    processes = Processes(torch.device("cpu"))
    validation, hooks = parts["validation"], _Best()
    state = Loop(network, parts["train"], validation, options, processes, hooks).run()
    numbers = measure(validation.ranks, hooks.found, options.decode)
    chosen = numbers["by_decoding"][options.decode]
    return {
        **{key: chosen[key] for key in ("mae", "macro_mae", "accuracy")},
        "rps": numbers["rps"],
        "epoch": state.best_epoch,
    }


def main() -> None:
    """Train what is missing in the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-folder", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("ablation.csv"))
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--methods", nargs="+", default=["arc"])
    parser.add_argument("--only", nargs="+", default=list(INGREDIENTS), choices=list(INGREDIENTS))
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    done = set()
    if given.out.exists():
        with given.out.open() as file:
            done = {tuple(row.values())[:4] for row in csv.DictReader(file)}
    for name, ingredient, method, seed in jobs(given.data, given.methods, given.seeds):
        key = name, ingredient, method, str(seed)
        if key in done or ingredient not in given.only:
            continue
        begun = time.monotonic()
        found = train(name, INGREDIENTS[ingredient][1], method, seed, given.data_folder)
        seconds = round(time.monotonic() - begun, 1)
        row = dict(zip(("data", "without", "method", "seed"), key, strict=True)) | found
        row |= {"seconds": seconds}
        is_new = not given.out.exists()
        with given.out.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            if is_new:
                writer.writeheader()
            writer.writerow(row)
        print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
