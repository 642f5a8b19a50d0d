"""Ordinal classification as scikit-learn knows it: ``fit``, ``predict``, ``transform``."""

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data
from torch import Tensor, nn

from layline import features as feature_registry
from layline import heads, scorers
from layline.arguments import check_integer, check_known
from layline.calibration import Calibration, tempered
from layline.data.base import Partition
from layline.data.labels import (
    Array,
    categorical_order,
    checked_weight,
    order_classes,
    ranks_of,
    weigh_classes,
)
from layline.data.loading import Batches, RowBatches, mixed_seed
from layline.data.splits import FEWEST_FOR_CALIBRATION, stratified_holdout, with_calibration
from layline.data.table import TableEncoding
from layline.devices import Processes, check_device, choose_device, has_double
from layline.estimator.inputs import (
    Rows,
    SparseBatches,
    Validation,
    as_pandas,
    check_finite,
    check_rows,
    checked_groups,
    column_blocks,
    dense,
    given_validation,
    is_frame,
)
from layline.estimator.network import made, takes_table
from layline.estimator.training import BestInMemory, display, seeded
from layline.evaluation import EVALUATION_FACTOR, Part
from layline.geometry.decoding import Decode, checked_decode, decode_name
from layline.heads.base import HasProxies
from layline.model import Network
from layline.optional import require
from layline.plugins import is_reference
from layline.training.loop import EpochRecord, Loop
from layline.training.optimisation import MODERN, Options, usual_warmup

if TYPE_CHECKING:
    import pandas as pd

# What a network is built from, and warm_start cannot change.
_STRUCTURE = ("method", "features", "dim", "hidden", "head_options")


class OrdinalClassifier(
    ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator
):
    """Classify into ordered classes: features, and an ordinal head on top of them.

    Part of the samples is held out of training, the same share of each class. The epoch with the
    lowest mean absolute error on them is kept.

    Args:
        method: Name of the head, one of ``layline.heads.names()``, or a place such as
            ``my_package.heads:MyHead``; or a subclass of ``OrdinalHead``, or a function that makes
            a head from ``num_classes``, ``dim`` and ``head_options``.
        features: Name of the features, ``layline.features.names("table")``, or a module that maps
            (n, ...) in float32 to (n, dim). A module is copied with its weights and trained
            further; the given one never changes. X may then have any number of dimensions. A class
            or a function makes the module anew in every fit, from ``dim`` and ``in_features``, the
            number of columns, as far as it takes them.
        dim: Dimension d of the features.
        classes: The labels from lowest to highest. Without it an ordered pandas Categorical
            keeps its order, and other labels are sorted: numbers as numbers, but strings by the
            alphabet, in which "high" comes before "low"; a warning says where that is not, or may
            not be, their order. A label listed here that never occurs is still predicted.
        head_options: Options of the method, such as ``{"alpha": 2.0}``.
        hidden: Widths of the hidden layers of the named features, if not their own choice.
        recipe: ``"modern"``: rates that warm up and fall to zero by a cosine, clipped gradients,
            an average of the weights, and the lowest loss where epochs are equal; or ``"paper"``:
            none of it.
        epochs: Passes over the training samples.
        batch_size: Most samples in a step of AdamW.
        learning_rate: AdamW's rate for the features.
        head_learning_rate: AdamW's rate for the head.
        weight_decay: AdamW's decay, for both.
        decode: How a distribution becomes a label, in validation and in ``predict``: ``"mode"``
            (most accurate), ``"median"`` (least absolute error), ``"mean"`` or ``"quadratic"``
            (least squared error), or a (K, K) matrix of what each decision costs, a row for each
            true class.
        validation_fraction: Share of the samples held out. With 0, or where each class has only
            one sample, nothing is held out and the last epoch is kept.
        calibration_fraction: Share of the other samples that is kept apart for the ranges of
            :meth:`predict_range`, and learned from by nothing; none where it would be fewer than
            nine samples. If not given as ``validation_fraction`` with the recipe ``"modern"``,
            else none.
        patience: Stop after so many epochs without a lower validation error.
        class_weight: ``"balanced"``, which makes all classes count the same, ``"effective"``, which
            goes part of that way (the effective number of samples), or a dict from labels to
            weights, 1 for those not in it. They multiply ``sample_weight``, in the training
            loss and in the validation error that the epoch is chosen by.
        device: Where to train, as PyTorch names it, or ``"auto"`` for a GPU if there is one. It is
            not the default: a seed gives the same bits on a CPU alone, and the processes of a
            search would share one GPU.
        random_state: Seed or generator. A seed gives the same result again, bit for bit, and
            touches no global generator. None draws one number from NumPy's global generator.
        verbose: 1 shows progress on stderr.
        warm_start: Go on from the fitted weights when ``fit`` is called again, for so many further
            epochs with rates of their own. What the columns were encoded and scaled by stays, and
            so do the classes. The same samples are held out again if X and y are the same.

    Attributes:
        classes_: The labels, lowest first. Columns of ``predict_proba`` are in this order.
        features_: The trained features module.
        head_: The trained head.
        proxies_: The proxies, (K, d), for heads that have them.
        history_: One dict per epoch: ``epoch``, ``train_loss`` and, if samples were held out,
            ``validation_loss``, ``validation_mae``, ``validation_accuracy`` and ``validation_qwk``.
        best_epoch_: The epoch that was kept, counted from 1.
        n_iter_: Epochs that the last ``fit`` made.
        calibration_: The temperature that ``predict_proba`` is brought to, fitted to the samples
            held out (recipe ``"modern"``, 20 samples at least), and what ranges are made from.
        n_features_in_: Number of columns of X.
        feature_names_in_: Names of the columns, if X had names in ``fit``.
        encoding_: How the columns of a data frame become numbers; None if X was an array, or
            ``features`` is a module.

    Note:
        The scorers of :mod:`layline.scorers` know the order of the classes. scikit-learn's own take
        the columns of ``predict_proba`` to be in sorted order; where one reads others, a warning
        says so. Meta-estimators that encode labels themselves, such as ``BaggingClassifier``, sort
        them: give ranks as y there, and no ``classes``.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = OrdinalClassifier(dim=16, epochs=5, random_state=0).fit(X, y)
        >>> model.predict_proba(X).shape, model.transform(X).shape, model.proxies_.shape
        ((150, 3), (150, 16), (3, 16))
    """

    def __init__(
        self,
        method: str | type[heads.OrdinalHead] | Callable[..., heads.OrdinalHead] = (
            heads.DEFAULT_METHOD
        ),
        features: str | nn.Module | Callable[..., nn.Module] = "mlp",
        dim: int = 512,
        *,
        classes: Sequence[Any] | None = None,
        head_options: Mapping[str, Any] | None = None,
        hidden: Sequence[int] | None = None,
        recipe: str = "modern",
        epochs: int = 48,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        head_learning_rate: float = 1e-2,
        weight_decay: float = 1e-2,
        decode: Decode = "mode",
        validation_fraction: float = 0.1,
        calibration_fraction: float | None = None,
        patience: int | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        device: str | torch.device = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        warm_start: bool = False,
    ) -> None:
        self.method = method
        self.features = features
        self.dim = dim
        self.classes = classes
        self.head_options = head_options
        self.hidden = hidden
        self.recipe = recipe
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.head_learning_rate = head_learning_rate
        self.weight_decay = weight_decay
        self.decode = decode
        self.validation_fraction = validation_fraction
        self.calibration_fraction = calibration_fraction
        self.patience = patience
        self.class_weight = class_weight
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        eval_set: Any = None,
        groups: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
    ) -> Self:
        """Train features and head.

        Args:
            X: One row per sample: an array, a sparse matrix, or a data frame. For named features
                its missing values and its columns of texts, categories and booleans are encoded as
                in ``layline train table``, by what the rows that are not held out have. A sparse
                matrix becomes dense one batch at a time.
            y: One label per sample.
            sample_weight: How much each sample counts. One of weight 0 is as if it were not there.
            eval_set: Samples to choose the epoch by, ``(X_val, y_val)`` or with weights as a third
                item; a list with one of these will do. Nothing of X is then held out for it.
            groups: What each row belongs to, such as a patient. Rows of a group are trained on,
                held out or kept apart together.
            X_val: With ``y_val`` another way to say ``eval_set``, which a pipeline can transform:
                ``Pipeline(…, transform_input=["X_val"])``.
            y_val: See ``X_val``.
            sample_weight_val: See ``X_val``.
        """
        validation = given_validation(eval_set, X_val, y_val, sample_weight_val)
        before = self.__dict__.copy()
        try:
            with torch.inference_mode(False), torch.enable_grad():
                return self._fit(X, y, sample_weight, validation, groups)
        except BaseException:  # Ctrl-C too: a model that was fitted before stays as it was
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        given: Validation | None,
        groups: ArrayLike | None,
    ) -> Self:
        options = self._checked_options(given is not None)
        goes_on = bool(self.warm_start) and hasattr(self, "head_")
        if goes_on:
            self._check_structure()
        self._named = isinstance(self.features, str) or takes_table(self.features)
        device = self._chosen_device()
        x, labels = self._training_data(X, y, goes_on)
        check_classification_targets(labels)
        weight = checked_weight(sample_weight, len(labels))
        group_of = checked_groups(groups, len(labels))
        counted = weight > 0
        if not counted.all():
            x, labels, weight = x[counted], labels[counted], weight[counted]
            group_of = None if group_of is None else group_of[counted]
        order = categorical_order(y) if self.classes is None else self.classes
        classes, ranks = order_classes(labels, self._known_order(order) if goes_on else order)
        factors = weigh_classes(self.class_weight, classes, ranks, weight)

        if not goes_on:
            self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        fraction = self.validation_fraction if given is None else 0.0
        own = [] if group_of is None else [group_of.tolist()]
        rng = np.random.default_rng(self._seed)
        rows, held_out = stratified_holdout(ranks, fraction, rng, *own)
        if fraction > 0 and len(held_out) == 0:
            warnings.warn(
                "validation_fraction needs a class with two samples, got one sample of each: "
                "nothing is held out, and the last epoch is kept",
                stacklevel=3,  # where fit was called
            )
        rows, kept_apart = self._kept_apart(ranks, rows, *own)
        if not goes_on:
            self.encoding_ = TableEncoding.fit(x, rows) if is_frame(x) else None
            x = self._encoded(x, np.flatnonzero(counted))
        seen = x[rows]
        train = self._part(seen, ranks[rows], weight[rows] * factors[ranks[rows]], device)
        x_val, ranks_val, weight_val = x[held_out], ranks[held_out], weight[held_out]
        if given is not None:
            x_val, ranks_val, weight_val = self._given_validation(given, classes)
        validation = None
        if len(ranks_val):
            validation = self._part(x_val, ranks_val, weight_val * factors[ranks_val], device)

        past: list[EpochRecord] = self.history_ if goes_on else []
        seed = mixed_seed(self._seed, len(past)) if goes_on else self._seed
        with seeded(seed):
            if goes_on:  # copies: if this fails, the model stays as it was
                network = copy.deepcopy(Network(self.features_, self.head_)).to(device)
            else:
                network = self._new_network(seen, weight[rows], len(classes), device)
            options = replace(
                options,
                generator=torch.Generator().manual_seed(seed),
                fused=device.type in ("cpu", "cuda"),
            )
            hooks = BestInMemory(network)
            if self.verbose:
                hooks.display = display(self.epochs)
            state = Loop(network, train, validation, options, Processes(device), hooks).run()
            hooks.restore_best()
        self._set_fitted(classes, network.features, network.head)
        self.calibration_ = Calibration.fit(
            self._outcome(x_val, ranks_val) if self.recipe == "modern" else None,
            self._outcome(x[kept_apart], ranks[kept_apart]),
        )
        self.n_iter_ = len(state.history)
        self.best_epoch_ = len(past) + (state.best_epoch or self.n_iter_)
        self.history_: list[EpochRecord] = [
            *past,
            *({**record, "epoch": len(past) + record["epoch"]} for record in state.history),
        ]
        return self

    def _new_network(
        self, seen: Rows, weight: Array, num_classes: int, device: torch.device
    ) -> Network:
        features = self._built_features(seen, torch.from_numpy(weight), device)
        options = self.head_options or {}
        head = heads.create(self.method, num_classes=num_classes, dim=self.dim, **options)
        return Network(features, head.float().to(device))

    def _set_fitted(self, classes: Array, features: nn.Module, head: heads.OrdinalHead) -> None:
        """Keep what was trained."""
        self.classes_ = classes
        self.features_, self.head_ = features, head
        self._built_from = {name: getattr(self, name) for name in _STRUCTURE}
        self._n_features_out = self.dim
        self.__dict__.pop("proxies_", None)  # of an earlier fit with another method
        if isinstance(head, HasProxies):
            self.proxies_ = head.proxies().detach().cpu().numpy()

    def predict(self, X: ArrayLike) -> Array:
        """Choose a label for each sample, by ``decode``."""
        ranks = self._apply_in_batches(self._checked_rows(X), self._decided)
        return np.asarray(self.classes_[ranks])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Give the probability of each class, a column each in the order of ``classes_``."""
        rows = self._checked_rows(X)
        scorers.warn_of_sorted_columns(self.classes_)
        return self._apply_in_batches(rows, lambda head, f: self._log_probs(head, f).exp())

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Give the logarithm of the probability of each class."""
        rows = self._checked_rows(X)
        scorers.warn_of_sorted_columns(self.classes_)
        return self._apply_in_batches(rows, self._log_probs)

    def predict_range(
        self, X: ArrayLike, coverage: float = 0.9, by_class: bool = False
    ) -> tuple[Array, Array]:
        """Give the lowest and the highest label that is possible for each sample.

        Of new samples of the same kind at least this share has its true label between the two, on
        average over such samples.

        Args:
            X: As for :meth:`predict`.
            coverage: That share.
            by_class: Keep to it in every class; ranges are wider, and more samples are needed.
        """
        check_is_fitted(self)
        self.calibration_.check(coverage, len(self.classes_), by_class)
        rows = self._checked_rows(X)
        proba = self._apply_in_batches(rows, lambda head, f: self._log_probs(head, f).exp())
        decided = self._apply_in_batches(rows, self._decided)
        low, high = self.calibration_.ranges(proba, decided, coverage, by_class)
        return np.asarray(self.classes_[low]), np.asarray(self.classes_[high])

    def transform(self, X: ArrayLike) -> Array:
        """Compute the features, (n, dim)."""
        return self._apply_in_batches(self._checked_rows(X), lambda _, f: f)

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one ``.safetensors`` file, which runs no code when read.

        :meth:`load` gives the estimator back, and :func:`layline.load` the model in it: there a
        data frame or a CSV file is predicted, and classes are called by their names, as texts.
        Columns without names are called x0, x1, … A cell that is missing there, in a column that
        never missed one, counts as the mean of the column.

        Args:
            path: A new file, or one to replace.
        """
        check_is_fitted(self)
        for library in ("pydantic", "safetensors"):
            require(library, extra="images", needed_by="OrdinalClassifier.save")
        from layline.estimator.file import save_estimator

        save_estimator(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device = "cpu") -> Self:
        """Read an estimator that :meth:`save` wrote; nothing in the file is executed.

        A model of a table that was trained by ``layline train`` becomes an estimator too, with the
        names of its classes as labels.

        Args:
            path: The ``.safetensors`` file, or the folder of a run.
            device: Where to put it.
        """
        for library in ("pydantic", "safetensors"):
            require(library, extra="images", needed_by="OrdinalClassifier.load")
        from layline.estimator.file import load_estimator

        return load_estimator(cls, path, device)

    def _check_structure(self) -> None:
        """Refuse to go on with another network than the one that is fitted."""
        for name in _STRUCTURE:
            before, now = self._built_from[name], getattr(self, name)
            if before is not now and before != now:
                raise ValueError(
                    f"{name} must be {before!r} as before with warm_start, got {now!r}: it goes on "
                    "from fitted weights, so set warm_start=False to begin anew"
                )

    def _known_order(self, order: Sequence[Any] | None) -> list[Any]:
        """Give the classes that are fitted; another order of them cannot go on."""
        known: list[Any] = self.classes_.tolist()
        if order is not None and list(order) != known:
            raise ValueError(
                f"classes must be {known} as before with warm_start, got {list(order)}: set "
                "warm_start=False to begin anew"
            )
        return known

    def _chosen_device(self) -> torch.device:
        if isinstance(self.device, str) and self.device == "auto":
            return choose_device("auto", needs_double=self._named)
        return check_device(self.device)

    def _given_validation(self, given: Validation, classes: Array) -> tuple[Rows, Array, Array]:
        """Check the samples that a user gives to choose the epoch by: rows, ranks and weights."""
        x = self._new_data(given.X)
        labels = self._checked_labels(x, given.y)
        unknown = [label for label in np.unique(labels).tolist() if label not in classes.tolist()]
        if unknown:
            raise ValueError(
                f"eval_set must have labels of y only, got {unknown[0]!r}: the classes are "
                f"{', '.join(map(str, classes.tolist()))}"
            )
        weight = checked_weight(given.sample_weight, len(labels))
        counted = weight > 0
        return x[counted], ranks_of(labels[counted], classes), weight[counted]

    def _kept_apart(
        self, ranks: Array, rows: Array, groups: list[Any] | None = None
    ) -> tuple[Array, Array]:
        """Divide the rows to train on: those that stay, and those for calibration."""
        fraction = self.calibration_fraction
        if fraction is None:
            fraction = self.validation_fraction if self.recipe == "modern" else 0.0
        nothing = np.zeros(0, dtype=np.int64)
        parts, notes = with_calibration(
            Partition(rows, nothing, nothing), ranks, fraction, self._seed, groups
        )
        if len(parts.calibration) == 0 and fraction * len(rows) >= FEWEST_FOR_CALIBRATION:
            warnings.warn(notes[0], stacklevel=4)  # where fit was called
        return parts.train, parts.calibration

    def _part(self, x: Rows, ranks: Array, weight: Array, device: torch.device) -> Part:
        scaled = weight / weight.max()
        # near one they fit into float32, and the lightest must not become zero there
        scaled = np.maximum(scaled / scaled.mean(), np.finfo(np.float32).tiny)
        weights = torch.tensor(scaled, dtype=torch.float32)
        samples: Batches
        if sparse.issparse(x):
            samples = SparseBatches(x, self._dtype(x, device))
        else:
            samples = RowBatches(self._tensor(x, device).numpy())
        return Part(samples, torch.from_numpy(ranks), weights)

    def _outcome(self, x: Rows, ranks: Array) -> tuple[Tensor, Tensor] | None:
        """Give the log probabilities of rows, before calibration, and their ranks."""
        if len(ranks) == 0:
            return None
        log_probs = self._apply_in_batches(x, lambda head, f: head.log_probs(f))
        return torch.from_numpy(log_probs), torch.from_numpy(ranks)

    def _log_probs(self, head: heads.OrdinalHead, features: Tensor) -> Tensor:
        return tempered(head.log_probs(features), self.calibration_.temperature)

    def _decided(self, head: heads.OrdinalHead, features: Tensor) -> Tensor:
        decode = checked_decode(self.decode, head.num_classes)
        chosen = head.decisions(features, self._log_probs(head, features), decode)
        return chosen[decode_name(decode)]

    def _checked_rows(self, X: ArrayLike) -> Rows:
        check_is_fitted(self)
        return self._new_data(X)

    @torch.no_grad()
    def _apply_in_batches(
        self, rows: Rows, function: Callable[[heads.OrdinalHead, Tensor], Tensor]
    ) -> Array:
        """Apply a function of the head and the features, batch by batch."""
        features, head = self.features_, self.head_
        device = next(head.parameters()).device
        if has_double(device):
            # in float32 the last digits of a sample's result would depend on its batch
            head = copy.deepcopy(head).double()
            features = copy.deepcopy(features).double() if self._named else features
        size = EVALUATION_FACTOR * self.batch_size
        outputs = []
        for start in range(0, rows.shape[0], size):
            # copied: a module that works in place must not change X
            x = self._tensor(dense(rows[start : start + size]), device).to(device)
            vectors = features(x)
            check_rows("features", vectors, start)
            outputs.append(function(head, vectors).cpu().numpy())
        return np.concatenate(outputs)

    def _checked_options(self, validated: bool) -> Options:
        """Check every parameter that can be judged without data.

        Args:
            validated: Whether there are samples to choose the epoch by beside X.
        """
        if not isinstance(self.features, str | nn.Module) and not callable(self.features):
            raise ValueError(
                f"features must be a name or an nn.Module, got {self.features!r}: names are "
                f"{', '.join(feature_registry.names('table'))}; what makes a module will do too"
            )
        if isinstance(self.features, str) and not is_reference(self.features):
            check_known("features", self.features, feature_registry.names("table"))
        heads.find(self.method)
        check_integer("dim", self.dim, 1, "it is the length of a feature")
        fraction, apart = self.validation_fraction, self.calibration_fraction
        if not (isinstance(fraction, Real) and 0 <= fraction < 1):
            raise ValueError(
                f"validation_fraction must be a number in [0, 1), got {fraction!r}: "
                "0 holds nothing out"
            )
        if apart is not None and not (isinstance(apart, Real) and 0 <= apart < 1):
            raise ValueError(
                f"calibration_fraction must be a number in [0, 1) or None, got {apart!r}: "
                "0 keeps nothing apart"
            )
        if self.patience is not None and fraction == 0 and not validated:
            raise ValueError(
                f"patience must be None if validation_fraction is 0, got {self.patience!r}: "
                "without validation there is nothing to wait for"
            )
        if self.hidden is not None and not isinstance(self.features, str):
            raise ValueError(
                f"hidden must be None if features is a module or makes one, got {self.hidden!r}: "
                "the module has its own layers"
            )
        if not isinstance(self.head_options, Mapping | None):
            raise ValueError(
                f"head_options must be a dict, got {self.head_options!r}: write {{'alpha': 2.0}}"
            )
        taken = sorted({"num_classes", "dim"} & set(self.head_options or {}))
        if taken:
            raise ValueError(
                f"head_options must be the method's own options, got {taken[0]!r}: "
                "dim is an argument of its own, and num_classes follows from the labels"
            )
        check_integer("verbose", self.verbose, 0)
        if not isinstance(self.warm_start, bool | np.bool_):
            raise ValueError(
                f"warm_start must be True or False, got {self.warm_start!r}: the epochs to go on "
                "for are epochs"
            )
        check_known("recipe", self.recipe, ("modern", "paper"))
        check_integer("epochs", self.epochs, 1)
        modern = MODERN | {"warmup_epochs": usual_warmup(self.epochs)}
        return Options(
            **(modern if self.recipe == "modern" else {}),
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            head_learning_rate=self.head_learning_rate,
            weight_decay=self.weight_decay,
            decode=self.decode,
            patience=self.patience,
        )

    def _training_data(
        self, X: ArrayLike, y: ArrayLike, goes_on: bool
    ) -> "tuple[Rows, Array] | tuple[pd.DataFrame, Array]":
        """Check X and y. A data frame stays one until it can be encoded."""
        X = as_pandas(X) if self._named else X
        if goes_on:
            x = self._new_data(X)
            return x, self._checked_labels(x, y)
        if self._named and is_frame(X):
            frame = self._checked_frame(X, reset=True)
            return frame, self._checked_labels(frame, y)
        x, labels = validate_data(self, X, y, reset=True, **self._array_options())
        check_finite(x, getattr(self, "feature_names_in_", None))
        return x, labels

    def _checked_labels(self, x: "Rows | pd.DataFrame", y: ArrayLike) -> Array:
        """Check y beside rows that were checked before."""
        labels: Array = check_X_y(np.zeros((x.shape[0], 1)), y, estimator=self)[1]
        return labels

    def _new_data(self, X: ArrayLike) -> Rows:
        """Check X, and encode it where a data frame was fitted."""
        X = as_pandas(X) if self._named else X
        if self._named and is_frame(X) and self.encoding_ is not None:
            return self._encoded(self._checked_frame(X, reset=False))
        x: Rows = validate_data(self, X, reset=False, **self._array_options())
        check_finite(x, getattr(self, "feature_names_in_", None))
        if self.encoding_ is None:
            return x
        if self.encoding_.categorical:
            raise ValueError(
                f"X must be a data frame like that of fit, got an array: the column "
                f"{self.encoding_.categorical[0].name!r} has categories"
            )
        pandas = require("pandas", extra="images", needed_by="a model that was fitted on a frame")
        return self._encoded(pandas.DataFrame(dense(x), columns=self._column_names()))

    def _checked_frame(self, X: "pd.DataFrame", reset: bool) -> "pd.DataFrame":
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X.set_axis(self._column_names(), axis=1)

    def _array_options(self) -> dict[str, Any]:
        """Give the options with which scikit-learn checks an array."""
        return {
            "accept_sparse": "csr",
            # whole numbers keep their digits in a table, and take half the memory in images
            "dtype": [np.float64, np.float32] if self._named else [np.float32, np.float64],
            "allow_nd": not self._named,
            "ensure_all_finite": False,  # checked afterwards, to say where
        }

    def _column_names(self) -> list[str]:
        """Name the columns of X; those of a frame whose names are numbers by their places."""
        places = [f"x{place}" for place in range(self.n_features_in_)]
        return list(getattr(self, "feature_names_in_", places))

    def _encoded(self, x: "Rows | pd.DataFrame", places: Array | None = None) -> Rows:
        """Turn a data frame into numbers; an array is as it has to be.

        Args:
            x: The rows, as they were checked.
            places: Which rows of X they are; all of them if not given.
        """
        if not is_frame(x) or self.encoding_ is None:
            return x
        places = np.arange(len(x)) if places is None else places
        values = self.encoding_.apply(x, [f"row {place}" for place in places])
        check_finite(values, self.encoding_.columns)
        # as an array of that dtype would be
        return values.astype(np.float32) if (x.dtypes == np.float32).all() else values

    def _tensor(self, rows: Array, device: torch.device) -> Tensor:
        """Make a tensor of rows: in their own dtype for named features, in float32 for modules."""
        return torch.from_numpy(np.require(rows, self._dtype(rows, device), ["C", "W"]))

    def _dtype(self, rows: Rows, device: torch.device) -> Any:
        return rows.dtype if self._named and has_double(device) else np.float32

    def _scaled(
        self, module: nn.Module, x: Rows, weight: Tensor, device: torch.device
    ) -> nn.Module:
        """Let features of a table learn the scale of the columns."""
        if not isinstance(module, feature_registry.TableFeatures):
            raise ValueError(
                f"features must be for tables, got {type(module).__name__}: names are "
                f"{', '.join(feature_registry.names('table'))}"
            )
        if sparse.issparse(x):
            module.float().fit_scale(column_blocks(x, self._dtype(x, device)), weight)
        else:
            module.float().fit_scale(self._tensor(x, device), weight)
        return module.to(device)

    def _built_features(self, x: Rows, weight: Tensor, device: torch.device) -> nn.Module:
        if isinstance(self.features, str):
            options = {} if self.hidden is None else {"hidden": self.hidden}
            named = feature_registry.create(
                self.features, dim=self.dim, in_features=x.shape[1], **options
            )
            return self._scaled(named, x, weight, device)
        if not isinstance(self.features, nn.Module):
            built = made(self.features, {"dim": self.dim, "in_features": x.shape[1]})
            if self._named:
                return self._scaled(built, x, weight, device)
            module = built.float().to(device)
        else:
            module = copy.deepcopy(self.features).float().to(device)
        try:
            with torch.no_grad():
                output = module.eval()(self._tensor(dense(x[:2]), device).to(device))
        except RuntimeError as error:
            raise ValueError(
                f"features must take X of shape (n, {', '.join(map(str, x.shape[1:]))}), "
                f"got an error for two rows: {error}"
            ) from error
        shape = tuple(output.shape) if isinstance(output, Tensor) else ()
        if shape != (2, self.dim):
            got = shape if isinstance(output, Tensor) else type(output).__name__
            cure = f"pass dim={shape[1]}" if len(shape) == 2 else "end it with nn.Flatten()"
            raise ValueError(
                f"features must give (n, dim), here (2, {self.dim}), got {got}: {cure}"
            )
        return module
