"""Ordinal classification as scikit-learn knows it: ``fit``, ``predict``, ``transform``."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from layline import heads
from layline.data.labels import Array
from layline.data.loaders import mixed_seed
from layline.data.table_encoding import TableEncoding
from layline.estimator import scorers
from layline.estimator.inputs import Rows, fitted_rows
from layline.estimator.network import apply_in_batches, new_network, takes_table
from layline.estimator.parameters import (
    check_same_structure,
    chosen_device,
    structure_of,
    training_options,
)
from layline.estimator.parts import FitParts, Samples, given_validation, read_parts
from layline.estimator.training import BestInMemory, display, seeded
from layline.geometry.decoding import Decode, checked_decode, decode_name
from layline.heads.base import HasProxies
from layline.model.calibration import Calibration, apply_temperature
from layline.model.model import Network
from layline.training.optim import Options
from layline.training.trainer import Callback, EpochRecord, Trainer
from layline.utils.devices import Processes, has_double
from layline.utils.optional import require


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
        backbone: Name of the backbone, ``layline.backbones.names("table")``, or a module that maps
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
        head_learning_rate: AdamW's rate for the head. If not given 0.01, multiplied by the method's
            ``rate_factor`` with the recipe ``"modern"``.
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
        backbone_: The trained backbone module.
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
            ``backbone`` is a module.

    Note:
        The scorers of ``layline.scorers`` know the order of the classes. scikit-learn's own take
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

    # what reading X and y learns
    n_features_in_: int
    encoding_: TableEncoding | None
    _seed: int

    def __init__(
        self,
        method: str | type[heads.OrdinalHead] | Callable[..., heads.OrdinalHead] = (
            heads.DEFAULT_METHOD
        ),
        backbone: str | nn.Module | Callable[..., nn.Module] = "mlp",
        dim: int = 512,
        *,
        classes: Sequence[Any] | None = None,
        head_options: Mapping[str, Any] | None = None,
        hidden: Sequence[int] | None = None,
        recipe: str = "modern",
        epochs: int = 48,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        head_learning_rate: float | None = None,
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
        self.backbone = backbone
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
        given = given_validation(eval_set, X_val, y_val, sample_weight_val)
        before = self.__dict__.copy()
        try:
            with torch.inference_mode(False), torch.enable_grad():
                options = training_options(self, has_validation=given is not None)
                goes_on = bool(self.warm_start) and hasattr(self, "head_")
                if goes_on:
                    check_same_structure(self)
                else:
                    self._built_from = structure_of(self)
                device = chosen_device(self)
                parts = read_parts(
                    self, X, y, sample_weight, groups=groups, validation=given, goes_on=goes_on
                )
                self._train(parts, options, device, goes_on=goes_on)
        except BaseException:  # Ctrl-C too: a model that was fitted before stays as it was
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _train(
        self, parts: FitParts, options: Options, device: torch.device, *, goes_on: bool
    ) -> None:
        """Train a network, a new one or further the one that is fitted, and keep its best epoch."""
        past: list[EpochRecord] = self.history_ if goes_on else []
        seed = mixed_seed(self._seed, len(past)) if goes_on else self._seed
        with seeded(seed):
            if goes_on:  # copies: if this fails, the model stays as it was
                network = copy.deepcopy(Network(self.backbone_, self.head_)).to(device)
            else:
                network = new_network(self, parts.train, len(parts.classes), device)
            options = replace(options, generator=torch.Generator().manual_seed(seed))
            best = BestInMemory(network)
            callbacks: list[Callback] = [best, *([display(self.epochs)] if self.verbose else [])]
            keeps_dtype = self._takes_table and has_double(device)
            train = parts.train.as_part(parts.class_factors, keeps_dtype=keeps_dtype)
            validation = None
            if len(parts.validation):
                validation = parts.validation.as_part(parts.class_factors, keeps_dtype=keeps_dtype)
            processes = Processes(device)
            state = Trainer(network, train, validation, options, processes, callbacks).fit()
            best.restore()
        self._set_fitted(parts.classes, network.backbone, network.head)
        self.calibration_ = Calibration.fit(
            self._outcome(parts.validation) if self.recipe == "modern" else None,
            self._outcome(parts.calibration),
        )
        self.n_iter_ = len(state.history)
        self.best_epoch_ = len(past) + (state.best_epoch or self.n_iter_)
        self.history_: list[EpochRecord] = [
            *past,
            *({**record, "epoch": len(past) + record["epoch"]} for record in state.history),
        ]

    def _set_fitted(self, classes: Array, backbone: nn.Module, head: heads.OrdinalHead) -> None:
        """Keep what was trained."""
        self.classes_ = classes
        self.backbone_, self.head_ = backbone, head
        self._n_features_out = self.dim
        self.__dict__.pop("proxies_", None)  # of an earlier fit with another method
        if isinstance(head, HasProxies):
            self.proxies_ = head.proxies().detach().cpu().numpy()

    def predict(self, X: ArrayLike) -> Array:
        """Choose a label for each sample, by ``decode``."""
        ranks = apply_in_batches(self, self._checked_rows(X), self._decided)
        return np.asarray(self.classes_[ranks])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Give the probability of each class, a column each in the order of ``classes_``."""
        rows = self._checked_rows(X)
        scorers.warn_of_sorted_columns(self.classes_)
        return apply_in_batches(self, rows, lambda head, f: self._log_probs(head, f).exp())

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Give the logarithm of the probability of each class."""
        rows = self._checked_rows(X)
        scorers.warn_of_sorted_columns(self.classes_)
        return apply_in_batches(self, rows, self._log_probs)

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
        proba = apply_in_batches(self, rows, lambda head, f: self._log_probs(head, f).exp())
        decided = apply_in_batches(self, rows, self._decided)
        low, high = self.calibration_.ranges(proba, decided, coverage, by_class)
        return np.asarray(self.classes_[low]), np.asarray(self.classes_[high])

    def transform(self, X: ArrayLike) -> Array:
        """Compute the features, (n, dim)."""
        return apply_in_batches(self, self._checked_rows(X), lambda _, f: f)

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
        _require_file_libraries("OrdinalClassifier.save")
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
        _require_file_libraries("OrdinalClassifier.load")
        from layline.estimator.file import load_estimator

        return load_estimator(cls, path, device)

    @property
    def _takes_table(self) -> bool:
        """Whether X is a table, which is encoded and scaled, or what a module takes as it is."""
        return takes_table(self._built_from["backbone"])

    def _outcome(self, samples: Samples) -> tuple[Tensor, Tensor] | None:
        """Give the log probabilities of samples, before calibration, and their ranks."""
        if len(samples) == 0:
            return None
        log_probs = apply_in_batches(self, samples.rows, lambda head, f: head.log_probs(f))
        return torch.from_numpy(log_probs), torch.from_numpy(samples.ranks)

    def _log_probs(self, head: heads.OrdinalHead, features: Tensor) -> Tensor:
        return apply_temperature(head.log_probs(features), self.calibration_.temperature)

    def _decided(self, head: heads.OrdinalHead, features: Tensor) -> Tensor:
        decode = checked_decode(self.decode, head.num_classes)
        chosen = head.decisions(features, self._log_probs(head, features), decode)
        return chosen[decode_name(decode)]

    def _checked_rows(self, X: ArrayLike) -> Rows:
        check_is_fitted(self)
        return fitted_rows(self, X)


def _require_file_libraries(needed_by: str) -> None:
    for library in ("pydantic", "safetensors"):
        require(library, extra="images", needed_by=needed_by)
