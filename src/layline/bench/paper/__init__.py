"""The paper's tables and figures by name. To add one: a line in ``REPRODUCTIONS``."""

from layline.bench.paper import numbers
from layline.bench.paper.figures import LayoutGrid, Sweep
from layline.bench.paper.tables import Method, PaperGrid, Reproduction

_MAIN = {
    "Classification": "classification",
    "Regression": "regression",
    "Ranking": "ranking",
    "CNNPOR": "cnnpor",
    "GP-DNNOR": "gp-dnnor",
    "SORD": "sord",
    "POEs": "poe",
    "UPL, Euclidean Distance": "unconstrained",
    "UPL, Cosine Similarity": "unconstrained-cosine",
    "CPL, Hard-Linear, Euclidean Distance": "hard-linear",
    "CPL, Hard-Semicircular, Cosine Similarity": "hard-semicircular",
    "CPL, Soft-Poisson, Euclidean Distance": "soft-poisson",
    "CPL, Soft-Poisson, Cosine Similarity": "soft-poisson-cosine",
    "CPL, Soft-Binomial, Euclidean Distance": "soft-binomial",
    "CPL, Soft-Binomial, Cosine Similarity": "soft-binomial-cosine",
}
_SHORT = {
    "H-L": "hard-linear",
    "H-S": "hard-semicircular",
    "S-P": "soft-poisson",
    "S-B": "soft-binomial",
}
_SOFT = {name: _SHORT[name] for name in ("S-P", "S-B")}
_SHAPES = {"P": "poisson", "B": "binomial", "E": "exponential", "T": "triangular"}
_NEGATIVE = {"similarity": "negative-euclidean"}
_FACES = ("adience",)

REPRODUCTIONS: dict[str, Reproduction] = {
    "table-historical-adience": PaperGrid.of(
        "All methods on Historical Color and Adience Face",
        numbers.HISTORICAL_ADIENCE,
        {row: Method(name) for row, name in _MAIN.items()},
    ),
    "table-aesthetics": PaperGrid.of(
        "All methods on the four categories of Image Aesthetics",
        numbers.AESTHETICS,
        {row: Method(_MAIN[row]) for row in numbers.AESTHETICS.printed.rows},
    ),
    "figure-scale": Sweep(
        "The scale s of the cosine, Hard-Semicircular",
        _FACES,
        "s",
        "scale",
        range(2, 11, 2),
        {"H-S": _SHORT["H-S"]},
    ),
    "figure-tau": Sweep(
        "The temperature τ of the unimodal distributions, Soft-CPL",
        _FACES,
        "τ",
        "tau",
        (0.07, 0.09, 0.11, 0.13, 0.15, 0.17),
        _SOFT,
    ),
    "figure-alpha": Sweep(
        "The weight α of the unimodal loss, Soft-CPL", _FACES, "α", "alpha", range(0, 13, 2), _SOFT
    ),
    "figure-dimension": Sweep(
        "The dimension d of features and proxies",
        _FACES,
        "d",
        "dim",
        tuple(2**power for power in range(12)),
        _SHORT,
        drawn=("mae",),
    ),
    "figure-layouts": LayoutGrid(
        "Backbone and proxies in two dimensions, and how they got there", _FACES, _SHORT
    ),
    "table-unimodal": PaperGrid.of(
        "Four unimodal distributions for Soft-CPL",
        numbers.UNIMODAL,
        {
            f"{similarity} ({letter})": Method(f"soft-{shape}{ending}")
            for similarity, ending in {"Euc": "", "Cos": "-cosine"}.items()
            for letter, shape in _SHAPES.items()
        },
    ),
    "table-negative-euclidean": PaperGrid.of(
        "Student-t similarity and negative Euclidean distance",
        numbers.NEGATIVE_EUCLIDEAN,
        {
            row: Method(_SHORT[row.split()[0]], _NEGATIVE if row.endswith(numbers.DAGGER) else {})
            for row in numbers.NEGATIVE_EUCLIDEAN.printed.rows
        },
    ),
    "table-norm": PaperGrid.of(
        "Hard-Linear with a learned and with a fixed length of v0",
        numbers.NORM,
        {
            row: Method("hard-linear", {} if norm == "v0" else {"norm": float(norm)})
            for row in numbers.NORM.printed.rows
            for norm in [row.split()[-1]]
        },
    ),
}

__all__ = ["REPRODUCTIONS", "Reproduction"]
