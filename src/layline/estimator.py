"""Ordinal classification as scikit-learn knows it: ``fit``, ``predict``, ``transform``."""

import copy
import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Self, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike
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
from layline import heads, metrics
from layline.arguments import check_integer, check_known
from layline.calibration import Calibration, tempered
from layline.data.base import Partition, listed
from layline.data.labels import (
    Array,
    categorical_order,
    checked_weight,
    order_classes,
    ranks_of,
    weigh_classes,
)
from layline.data.loading import RowBatches
from layline.data.splits import stratified_holdout, with_calibration
from layline.data.table import TableEncoding
from layline.devices import Processes, check_device, has_double
from layline.evaluation import EVALUATION_FACTOR, Part, Predictions
from layline.geometry.decoding import Decode, checked_decode, decode_name
from layline.heads.base import HasProxies
from layline.model import Network
from layline.optional import require
from layline.plugins import is_reference
from layline.training.loop import Display, Hooks, Loop, TrainingState
from layline.training.optimisation import MODERN, Options, usual_warmup

if TYPE_CHECKING:
    import pandas as pd

_FIT_LOCK = threading.RLock()
_LARGEST = float(np.finfo(np.float32).max)


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
        device: Where to train, as PyTorch names it.
        random_state: Seed or generator. A seed gives the same result again, bit for bit, and
            touches no global generator. None draws one number from NumPy's global generator.
        verbose: 1 shows progress on stderr.

    Attributes:
        classes_: The labels, lowest first. Columns of ``predict_proba`` are in this order.
        features_: The trained features module.
        head_: The trained head.
        proxies_: The proxies, (K, d), for heads that have them.
        history_: One dict per epoch: ``epoch``, ``train_loss`` and, if samples were held out,
            ``validation_loss``, ``validation_mae`` and ``validation_accuracy``.
        best_epoch_: The epoch that was kept, counted from 1.
        calibration_: The temperature that ``predict_proba`` is brought to, fitted to the samples
            held out (recipe ``"modern"``, 20 samples at least), and what ranges are made from.
        n_features_in_: Number of columns of X.
        feature_names_in_: Names of the columns, if X had names in ``fit``.
        encoding_: How the columns of a data frame become numbers; None if X was an array, or
            ``features`` is a module.

    Note:
        Scorers that read the columns of ``predict_proba``, such as ``"neg_log_loss"``, take labels
        to be in sorted order, and meta-estimators that encode labels themselves, such as
        ``BaggingClassifier``, sort them. If ``classes`` says otherwise, give ranks as y instead.

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

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train features and head.

        Args:
            X: One row per sample: an array, or a data frame. For named features its missing
                values and its columns of texts, categories and booleans are encoded as in
                ``layline train table``, by what the rows that are not held out have.
            y: One label per sample.
            sample_weight: How much each sample counts. One of weight 0 is as if it were not there.
        """
        before = self.__dict__.copy()
        try:
            with torch.inference_mode(False), torch.enable_grad():
                return self._fit(X, y, sample_weight)
        except BaseException:  # Ctrl-C too: a model that was fitted before stays as it was
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        options, device = self._checked_options(), check_device(self.device)
        self._named = isinstance(self.features, str) or _makes_table_features(self.features)
        x, labels = self._training_data(X, y)
        check_classification_targets(labels)
        weight = checked_weight(sample_weight, len(labels))
        counted = weight > 0
        if not counted.all():
            x, labels, weight = x[counted], labels[counted], weight[counted]
        order = categorical_order(y) if self.classes is None else self.classes
        classes, ranks = order_classes(labels, order)
        loss_weight = weight * weigh_classes(self.class_weight, classes, ranks, weight)[ranks]

        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        rows, held_out = stratified_holdout(
            ranks, self.validation_fraction, np.random.default_rng(seed)
        )
        if self.validation_fraction > 0 and len(held_out) == 0:
            warnings.warn(
                "validation_fraction needs a class with two samples, got one sample of each: "
                "nothing is held out, and the last epoch is kept",
                stacklevel=3,  # where fit was called
            )
        rows, kept_apart = self._kept_apart(ranks, rows, seed)
        self.encoding_ = TableEncoding.fit(x, rows) if _is_frame(x) else None
        x = self._encoded(x, np.flatnonzero(counted))
        seen, unseen = (self._tensor(x[part], device) for part in (rows, held_out))
        train = _part(seen, ranks[rows], loss_weight[rows])
        validation = _part(unseen, ranks[held_out], loss_weight[held_out]) if len(unseen) else None

        with _seeded(seed):
            features = self._built_features(seen, torch.from_numpy(weight[rows]), device)
            head = heads.create(
                self.method, num_classes=len(classes), dim=self.dim, **(self.head_options or {})
            )
            network = Network(features, head.float().to(device))
            options = replace(
                options,
                generator=torch.Generator().manual_seed(seed),
                fused=device.type in ("cpu", "cuda"),
            )
            hooks = _BestInMemory(network)
            if self.verbose:
                hooks.display = _display(self.epochs)
            state = Loop(network, train, validation, options, Processes(device), hooks).run()
            hooks.restore_best()
        self.classes_ = classes
        self.features_, self.head_ = features, head
        self.calibration_ = Calibration.fit(
            self._outcome(x, ranks, held_out) if self.recipe == "modern" else None,
            self._outcome(x, ranks, kept_apart),
        )
        self.history_, self.best_epoch_ = state.history, state.best_epoch or len(state.history)
        self._n_features_out = self.dim
        self.__dict__.pop("proxies_", None)  # of an earlier fit with another method
        if isinstance(head, HasProxies):
            self.proxies_ = head.proxies().detach().cpu().numpy()
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Choose a label for each sample, by ``decode``."""
        ranks = self._apply_in_batches(self._checked_rows(X), self._decided)
        return np.asarray(self.classes_[ranks])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Give the probability of each class, a column each in the order of ``classes_``."""
        return self._apply_in_batches(
            self._checked_rows(X), lambda head, f: self._log_probs(head, f).exp()
        )

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

    def _kept_apart(self, ranks: Array, rows: Array, seed: int) -> tuple[Array, Array]:
        """Divide the rows to train on: those that stay, and those for calibration."""
        fraction = self.calibration_fraction
        if fraction is None:
            fraction = self.validation_fraction if self.recipe == "modern" else 0.0
        nothing = np.zeros(0, dtype=np.int64)
        parts, _ = with_calibration(Partition(rows, nothing, nothing), ranks, fraction, seed)
        return parts.train, parts.calibration

    def _outcome(self, x: Array, ranks: Array, rows: Array) -> tuple[Tensor, Tensor] | None:
        """Give the log probabilities of some rows of X, before calibration, and their ranks."""
        if len(rows) == 0:
            return None
        log_probs = self._apply_in_batches(x[rows], lambda head, f: head.log_probs(f))
        return torch.from_numpy(log_probs), torch.from_numpy(ranks[rows])

    def _log_probs(self, head: heads.OrdinalHead, features: Tensor) -> Tensor:
        return tempered(head.log_probs(features), self.calibration_.temperature)

    def _decided(self, head: heads.OrdinalHead, features: Tensor) -> Tensor:
        decode = checked_decode(self.decode, head.num_classes)
        chosen = head.decisions(features, self._log_probs(head, features), decode)
        return chosen[decode_name(decode)]

    def _checked_rows(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        return self._new_data(X)

    @torch.no_grad()
    def _apply_in_batches(
        self, rows: Array, function: Callable[[heads.OrdinalHead, Tensor], Tensor]
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
        for start in range(0, len(rows), size):
            # copied: a module that works in place must not change X
            x = self._tensor(rows[start : start + size].copy(), device).to(device)
            vectors = features(x)
            _check_rows("features", vectors, start)
            outputs.append(function(head, vectors).cpu().numpy())
        return np.concatenate(outputs)

    def _checked_options(self) -> Options:
        """Check every parameter that can be judged without data."""
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
        if self.patience is not None and fraction == 0:
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
        self, X: ArrayLike, y: ArrayLike
    ) -> "tuple[Array, Array] | tuple[pd.DataFrame, Array]":
        """Check X and y. A data frame stays one until it can be encoded."""
        if self._named and _is_frame(X):
            frame = self._checked_frame(X, reset=True)
            return frame, check_X_y(np.zeros((len(frame), 1)), y, estimator=self)[1]
        x, labels = validate_data(self, X, y, reset=True, **self._array_options())
        _check_finite(x, getattr(self, "feature_names_in_", None))
        return x, labels

    def _new_data(self, X: ArrayLike) -> Array:
        """Check X, and encode it where a data frame was fitted."""
        if self._named and _is_frame(X) and self.encoding_ is not None:
            return self._encoded(self._checked_frame(X, reset=False))
        x: Array = validate_data(self, X, reset=False, **self._array_options())
        _check_finite(x, getattr(self, "feature_names_in_", None))
        if self.encoding_ is None:
            return x
        if self.encoding_.categorical:
            raise ValueError(
                f"X must be a data frame like that of fit, got an array: the column "
                f"{self.encoding_.categorical[0].name!r} has categories"
            )
        pandas = require("pandas", extra="images", needed_by="a model that was fitted on a frame")
        return self._encoded(pandas.DataFrame(x, columns=self._column_names()))

    def _checked_frame(self, X: "pd.DataFrame", reset: bool) -> "pd.DataFrame":
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X.set_axis(self._column_names(), axis=1)

    def _array_options(self) -> dict[str, Any]:
        """Give the options with which scikit-learn checks an array."""
        return {
            # whole numbers keep their digits in a table, and take half the memory in images
            "dtype": [np.float64, np.float32] if self._named else [np.float32, np.float64],
            "allow_nd": not self._named,
            "ensure_all_finite": False,  # checked afterwards, to say where
        }

    def _column_names(self) -> list[str]:
        """Name the columns of X; those of a frame whose names are numbers by their places."""
        places = [f"x{place}" for place in range(self.n_features_in_)]
        return list(getattr(self, "feature_names_in_", places))

    def _encoded(self, x: "Array | pd.DataFrame", places: Array | None = None) -> Array:
        """Turn a data frame into numbers; an array is as it has to be.

        Args:
            x: The rows, as they were checked.
            places: Which rows of X they are; all of them if not given.
        """
        if not _is_frame(x) or self.encoding_ is None:
            return np.asarray(x)
        places = np.arange(len(x)) if places is None else places
        values = self.encoding_.apply(x, [f"row {place}" for place in places])
        _check_finite(values, self.encoding_.columns)
        # as an array of that dtype would be
        return values.astype(np.float32) if (x.dtypes == np.float32).all() else values

    def _tensor(self, rows: Array, device: torch.device) -> Tensor:
        """Make a tensor of rows: in their own dtype for named features, in float32 for modules."""
        dtype = rows.dtype if self._named and has_double(device) else np.float32
        return torch.from_numpy(np.require(rows, dtype, ["C", "W"]))

    @staticmethod
    def _scaled(module: nn.Module, x: Tensor, weight: Tensor, device: torch.device) -> nn.Module:
        """Let features of a table learn the scale of the columns."""
        if not isinstance(module, feature_registry.TableFeatures):
            raise ValueError(
                f"features must be for tables, got {type(module).__name__}: names are "
                f"{', '.join(feature_registry.names('table'))}"
            )
        return module.float().fit_scale(x, weight).to(device)

    def _built_features(self, x: Tensor, weight: Tensor, device: torch.device) -> nn.Module:
        if isinstance(self.features, str):
            options = {} if self.hidden is None else {"hidden": self.hidden}
            named = feature_registry.create(
                self.features, dim=self.dim, in_features=x.shape[1], **options
            )
            return self._scaled(named, x, weight, device)
        if not isinstance(self.features, nn.Module):
            made = _made(self.features, {"dim": self.dim, "in_features": x.shape[1]})
            if self._named:
                return self._scaled(made, x, weight, device)
            module = made.float().to(device)
        else:
            module = copy.deepcopy(self.features).float().to(device)
        try:
            with torch.no_grad():
                output = module.eval()(x[:2].to(device))
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


def _makes_table_features(features: Any) -> bool:
    """Tell a class of features that take a table as the named ones do."""
    return isinstance(features, type) and issubclass(features, feature_registry.TableFeatures)


def _made(make: Callable[..., nn.Module], known: Mapping[str, Any]) -> nn.Module:
    """Call what makes a module with as much of what is known as it takes."""
    try:
        takes = [*inspect.signature(make).parameters.values()]
    except ValueError:  # a class of Python itself, which is none
        takes = []
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in takes)
    names = {each.name for each in takes}
    given = {name: value for name, value in known.items() if takes_any or name in names}
    module = make(**given)
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"features must make an nn.Module, got {type(module).__name__} from {make!r}"
        )
    return module


def _is_frame(X: Any) -> "TypeGuard[pd.DataFrame]":
    """Tell whether X is a data frame of pandas, which only then has to be installed."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(X, pandas.DataFrame)


def _part(x: Tensor, ranks: Array, weight: Array) -> Part:
    scaled = weight / weight.max()
    # near one they fit into float32, and the lightest must not become zero there
    scaled = np.maximum(scaled / scaled.mean(), np.finfo(np.float32).tiny)
    weights = torch.tensor(scaled, dtype=torch.float32)
    return Part(RowBatches(x.numpy()), torch.from_numpy(ranks), weights)


class _BestInMemory(Hooks):
    """Remember the weights of the best epoch of a network."""

    advice = ", or standardise X"

    def __init__(self, network: Network) -> None:
        self._network = network
        self._best: dict[str, Any] = {}

    def finish_epoch(
        self, state: TrainingState, is_best: bool, validated: Predictions | None
    ) -> None:
        """Keep the weights of the best epoch on the CPU, where they do not fill the device."""
        if is_best:
            self._best = {
                name: value.detach().to("cpu", copy=True)
                if isinstance(value, Tensor)
                else copy.deepcopy(value)
                for name, value in self._network.state_dict().items()
            }

    def restore_best(self) -> None:
        """Put the network back into its best epoch; the last one if nothing was validated."""
        if self._best:
            self._network.load_state_dict(self._best)
        self._network.eval()


class _PlainDisplay(Display):
    """A line on stderr per epoch, where rich is not installed."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs

    def show_epoch(self, state: TrainingState) -> None:
        """Show a finished epoch, the last one of the history."""
        sys.stderr.write(state.describe(self._epochs) + "\n")


def _display(epochs: int) -> Display:
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return _PlainDisplay(epochs)
    from layline.training.display import LiveDisplay

    return LiveDisplay(epochs, Console(stderr=True))


def negative_mae(
    estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Score an estimator by its mean absolute error in ranks, negated: higher is better.

    It is a scorer, to be given as ``scoring=negative_mae``. The rank of a label is its place in
    ``estimator.classes_``, so labels may be strings, and a pipeline or a search will do.

    Args:
        estimator: Fitted, with ``classes_`` in order.
        X: Samples to predict.
        y: Their labels.
        sample_weight: How much each sample counts.
    """
    classes = np.asarray(estimator.classes_)
    truth, predicted = ranks_of(y, classes), ranks_of(estimator.predict(X), classes)
    return -metrics.mean_absolute_error(truth, predicted, sample_weight=sample_weight)


def _check_finite(X: Array, names: Sequence[str] | None) -> None:
    """Refuse an array with a value that float32 cannot hold, naming its row and column."""
    if X.size == 0:
        raise ValueError(f"X must hold values, got the shape {X.shape}: a side of it is zero")
    # NaN fails both comparisons, and no array of the size of X is made
    if X.min() >= -_LARGEST and X.max() <= _LARGEST:
        return
    row, *place = map(int, np.unravel_index(np.argmin(np.abs(X) <= _LARGEST), X.shape))
    value = X[(row, *place)]
    where = f"column {place[0]}" if len(place) == 1 else f"position {tuple(place)}"
    if names is not None:
        where += f" ({names[place[0]]!r})"
    got, cure = f"{value:g}", "rescale it, float32 cannot hold it"
    if np.isnan(value):
        got, cure = "NaN", "fill or drop missing values, sklearn.impute fills them"
    elif np.isinf(value):
        cure = "clip or drop it"
    raise ValueError(f"X must be finite in float32, got {got} in row {row}, {where}: {cure}")


def _check_rows(what: str, values: Tensor, start: int) -> None:
    """Refuse values that are not finite by their rows of X, the first of which is ``start``."""
    finite = values.isfinite().all(dim=1)
    if not finite.all():
        rows = (start + torch.nonzero(~finite)[:, 0]).tolist()
        raise ValueError(
            f"{what} must be finite, got NaN or infinity for row {listed(rows)} of X: "
            "is it far from everything that was seen in training?"
        )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed PyTorch's generators for a while. All threads share them, so one fit at a time."""
    with _FIT_LOCK, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
