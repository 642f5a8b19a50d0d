"""The scikit-learn estimator."""

import copy
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from layline import backbones, heads
from layline.backbones.kernel import KernelLayer
from layline.backbones.mlp import choose_layers
from layline.data.labels import Array
from layline.data.loaders import mixed_seed
from layline.data.tables import TableEncoding
from layline.estimator import inputs
from layline.estimator.inputs import FitData, Rows, Samples, to_tensor
from layline.evaluation.predictions import EVALUATION_FACTOR, Predictions
from layline.geometry.decoding import Decode, check_decode
from layline.heads.base import HasProxies
from layline.heads.joint_layout import count_coordinates
from layline.model.calibration import Calibration, apply_temperature
from layline.model.model import Network
from layline.training.cross_validation import Outcomes, predict_out_of_fold
from layline.training.gaussian_process import PLAIN, fit_closed_form, is_few
from layline.training.optim import (
    MODERN,
    InputKind,
    Options,
    choose_batch_size,
    choose_epochs,
    choose_learning_rate,
    default_head_rate,
    default_warmup,
)
from layline.training.trainer import Callback, EpochRecord, Trainer, describe_epoch
from layline.utils.devices import Processes, choose_device, has_double, one_thread
from layline.utils.validation import UserError, check_integer, check_known, require

# the parameters that a network is built from; a warm start cannot change them
STRUCTURE = ("method", "backbone", "dim", "hidden", "head_options")
_FIT_LOCK = threading.RLock()


class OrdinalClassifier(
    ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator
):
    """Classify samples into ordered classes with a backbone and an ordinal head.

    A stratified share of the samples is held out of training. The epoch with the lowest mean
    absolute error on them is kept. Small data are used whole, and a cross-validation calibrates.

    Args:
        method: Name of the head, one of ``layline.heads.names()``, or a reference such as
            ``my_package.heads:MyHead``; or a subclass of ``OrdinalHead``, or a function that makes
            a head from ``num_classes``, ``dim`` and ``head_options``. ``"auto"`` is
            ``"joint-layout"``, fitted in closed form, for at most 500 samples, and
            ``"committee"`` for more.
        backbone: Name of the backbone, one of ``layline.backbones.names("table")``, or a module
            that maps float32 inputs (n, ...) to (n, dim). A module is copied and trained further. A
            class or a function makes a new module in every fit; it may take ``dim`` and
            ``in_features``, the number of columns.
        dim: Dimension d of the features of a model that is trained.
        classes: The labels from lowest to highest. By default an ordered pandas Categorical keeps
            its order, and other labels are sorted, with a warning if strings have a different or
            unknown order. A label that never occurs in y can be listed.
        head_options: Options of the method, such as ``{"alpha": 2.0}``.
        hidden: Widths of the hidden layers of a named backbone; by default those of ``"mlp"``
            depend on the number of samples.
        recipe: ``"modern"``: learning rates with warm-up and cosine decay, gradient clipping,
            averaged weights, and ties between epochs broken by the loss; ``"paper"``: none of it.
        epochs: Number of passes over the training samples; by default, small data have more. If
            it is set, or ``hidden``, ``batch_size``, ``folds`` or a learning rate, the model is
            trained and not fitted in closed form.
        batch_size: Samples per step of AdamW; by default 16 to 512, by the number of samples.
        learning_rate: Learning rate of the backbone; by default 4e-3, or 3e-3 for large tables.
        head_learning_rate: Learning rate of the head; by default 0.01, times the method's
            ``rate_factor`` with the recipe ``"modern"``.
        weight_decay: Weight decay of AdamW.
        decode: How a predicted distribution becomes a label, in validation and in ``predict``:
            ``"median"`` (lowest absolute error), ``"mode"`` (most accurate, used in the paper),
            ``"mean"`` (lowest squared error), or a (K, K) matrix with the cost of each decision,
            one row for each true class.
        folds: Folds of a cross-validation that calibrates. Nothing is then held out of training,
            and the last epoch is kept. By default 3 for fewer than 1,000 samples with the recipe
            ``"modern"``, otherwise 0, for none. A model that is fitted in closed form predicts
            each sample without its label instead.
        validation_fraction: Share of the samples that is held out, without folds. If it is 0, or if
            each class has only one sample, the last epoch is kept.
        calibration_fraction: Share of the remaining samples that is used only for the ranges of
            :meth:`predict_range`; none if that would be fewer than nine samples. By default
            ``validation_fraction`` with the recipe ``"modern"``, otherwise 0.
        patience: Stop after this number of epochs without a lower validation error; None never
            stops early.
        class_weight: ``"balanced"``, ``"effective"`` (by the effective number of samples, less
            extreme), or a dict from labels to weights, by default 1. They multiply
            ``sample_weight`` in the training loss and in the validation error.
        device: Where to train, such as ``"cuda"``; ``"auto"`` is a GPU if there is one. Only the
            CPU gives bit-identical results for a seed.
        random_state: Seed or generator. A seed does not touch global generators.
        verbose: 1 writes a line per epoch to stderr.
        warm_start: Continue from the fitted weights when ``fit`` is called again, for ``epochs``
            further epochs, with the same classes, encoding and split. A calibration by
            cross-validation is kept.

    Attributes:
        method_: Name of the head that ``method`` stands for.
        classes_: The labels, lowest first; columns of ``predict_proba`` are in this order.
        backbone_: The trained backbone.
        head_: The trained head.
        proxies_: The proxies, (K, d), of heads that have them.
        history_: One dict per epoch: ``epoch``, ``train_loss`` and, with validation samples,
            ``validation_loss``, ``validation_mae``, ``validation_accuracy`` and ``validation_qwk``.
        best_epoch_: The epoch that was kept, counted from 1.
        n_iter_: Number of epochs of the last ``fit``.
        calibration_: The temperature of ``predict_proba``, fitted to held-out predictions (recipe
            ``"modern"``, at least 20 samples), and the scores for ranges.
        n_features_in_: Number of columns of X.
        feature_names_in_: Names of the columns, if X had names in ``fit``.
        encoding_: How the columns of a table become numbers; None if ``backbone`` is a module.

    Note:
        scikit-learn's own scorers and meta-estimators on probabilities assume that columns are in
        sorted order. Use ``layline.scorers``, or pass ranks as y and no ``classes``.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = OrdinalClassifier(dim=16, epochs=5, random_state=0).fit(X, y)
        >>> model.predict_proba(X).shape, model.transform(X).shape, model.proxies_.shape
        ((150, 3), (150, 16), (3, 16))
    """

    n_features_in_: int
    encoding_: TableEncoding | None
    _seed: int

    def __init__(
        self,
        method: str | type[heads.OrdinalHead] | Callable[..., heads.OrdinalHead] = heads.AUTO,
        backbone: str | nn.Module | Callable[..., nn.Module] = "mlp",
        dim: int = 128,
        *,
        classes: Sequence[Any] | None = None,
        head_options: Mapping[str, Any] | None = None,
        hidden: Sequence[int] | None = None,
        recipe: str = "modern",
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        head_learning_rate: float | None = None,
        weight_decay: float = 1e-2,
        decode: Decode = "median",
        folds: int | None = None,
        validation_fraction: float = 0.1,
        calibration_fraction: float | None = None,
        patience: int | None = 5,
        class_weight: str | Mapping[Any, float] | None = None,
        device: str | torch.device = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        warm_start: bool = False,
    ) -> None:
        self.method, self.backbone, self.dim = method, backbone, dim
        self.classes, self.class_weight = classes, class_weight
        self.head_options, self.hidden = head_options, hidden
        self.recipe, self.epochs, self.batch_size = recipe, epochs, batch_size
        self.learning_rate, self.head_learning_rate = learning_rate, head_learning_rate
        self.weight_decay, self.decode, self.patience = weight_decay, decode, patience
        self.folds, self.validation_fraction = folds, validation_fraction
        self.calibration_fraction = calibration_fraction
        self.device, self.random_state = device, random_state
        self.verbose, self.warm_start = verbose, warm_start

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = _is_table(self.backbone)
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
    ) -> Self:
        """Train the backbone and the head.

        Args:
            X: One row per sample: an array, a sparse matrix, or a data frame. For a named backbone,
                columns of text, categories and booleans are encoded as by ``layline train``, and
                missing values (NaN, in a frame or an array) are filled with the median of their
                column and marked. A sparse matrix and the input of a module must be finite.
            y: One label per sample.
            sample_weight: Weight of each sample. Samples of weight 0 are ignored.
            groups: The group of each row, such as a patient. A group is never divided between
                training, validation and calibration. Missing values are an error.
            X_val: Samples that select the epoch; then nothing of X is held out for it.
            y_val: Their labels.
            sample_weight_val: Their weights.
        """
        if (X_val is None) != (y_val is None):
            raise UserError("X_val and y_val must be given together.")
        validation = None if X_val is None else (X_val, y_val, sample_weight_val)
        before = self.__dict__.copy()
        try:
            self._check_parameters()
            resume = self.warm_start and hasattr(self, "head_")
            self._check_structure(resume)
            device = choose_device(str(self.device), needs_double=self._takes_table)
            if not resume:
                generator = check_random_state(self.random_state)
                self._seed = int(generator.randint(np.iinfo(np.int32).max))
                self.history_: list[EpochRecord] = []
            data = inputs.read_fit_data(self, X, y, sample_weight, groups, validation, resume)
            self.encoding_ = data.encoding
            closed = self._takes_closed_form(data.train)
            last = getattr(self.backbone_, "last", None) if resume else None
            if resume and closed != isinstance(last, KernelLayer):
                raise UserError(
                    "A warm start cannot change between a closed form and training. Name the "
                    "method and set epochs, or set warm_start=False."
                )
            method = heads.FEW_LABELS_METHOD if closed else heads.resolve_auto(self.method)
            self.method_, _ = heads.find(method)
            unseen: Outcomes | None
            if closed:
                network, unseen = self._fit_closed_form(data, device)
            else:
                options = self._make_options(len(data.train))
                network, unseen = self._train(data, options, device, resume)
            self._set_fitted(data.classes, network)
            self._calibrate(data, unseen, closed)
        except BaseException:  # an estimator that was fitted before stays as it was
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Predict a label for each sample, with ``decode``."""
        _, ranks = self._predict(X)
        return np.asarray(self.classes_[ranks])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Compute the probability of each class, with columns in the order of ``classes_``."""
        return np.exp(self._predict(X)[0])

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Compute the log probability of each class."""
        return self._predict(X)[0]

    def predict_range(
        self, X: ArrayLike, coverage: float = 0.9, by_class: bool = False
    ) -> tuple[Array, Array]:
        """Predict the lowest and the highest plausible label of each sample.

        The range contains the true label of a new sample from the same distribution with a
        probability of at least ``coverage``. With ``by_class`` this holds in every class; ranges
        are wider, and more calibration samples are needed.
        """
        check_is_fitted(self)
        self.calibration_.check(coverage, len(self.classes_), by_class)
        log_probs, ranks = self._predict(X)
        low, high = self.calibration_.ranges(np.exp(log_probs), ranks, coverage, by_class)
        return np.asarray(self.classes_[low]), np.asarray(self.classes_[high])

    def transform(self, X: ArrayLike) -> Array:
        """Compute the features, (n, dim)."""
        batches = self._run_network(inputs.read_rows(self, X))
        return np.concatenate([features.cpu().numpy() for features, _ in batches])

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to a ``.safetensors`` file, which contains no code.

        :meth:`load` reads the estimator, and :func:`layline.load` the model in it, which predicts
        data frames and CSV files, with the classes as strings. Columns without names are called
        x0, x1, … In the path, ``~`` is expanded.
        """
        check_is_fitted(self)
        _import_saving().save_estimator(self, Path(path).expanduser())

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device = "cpu") -> Self:
        """Read an estimator that :meth:`save` wrote; nothing in the file is executed."""
        estimator: Self = _import_saving().load_estimator(cls, path, device)
        return estimator

    @property
    def _takes_table(self) -> bool:
        return _is_table(self._built_from["backbone"])

    def _check_parameters(self) -> None:
        if isinstance(self.backbone, str):
            check_known("backbone", self.backbone, backbones.names("table"))
        elif not callable(self.backbone):  # a module is callable
            raise UserError(f"backbone must be a name or an nn.Module, got {self.backbone!r}")
        elif self.hidden is not None:
            raise UserError("hidden must be None if backbone is a module with its own layers.")
        for name in ("validation_fraction", "calibration_fraction"):
            share = getattr(self, name) or 0
            if not (isinstance(share, float | int) and 0 <= share < 1):
                raise UserError(f"{name} must be a number in [0, 1), got {share!r}")
        check_known("recipe", self.recipe, ("modern", "paper"))
        if self.folds is not None:
            check_integer("folds", self.folds, 0, "0 turns the cross-validation off")
            if self.folds == 1:
                raise UserError("folds must be 0 or at least 2, got 1")
        self._make_options(1)

    def _make_options(self, count: int) -> Options:
        """Return the options of the trainer for a number of training samples."""
        _, method = heads.find(heads.resolve_auto(self.method))
        size, epochs, rate = self.batch_size, self.epochs, self.learning_rate
        kind: InputKind = "table" if _is_table(self.backbone) else "features"
        if rate is None:
            rate = choose_learning_rate(count, kind) if self.recipe == "modern" else 4e-3
        if size is None:
            size = choose_batch_size(count, kind) if self.recipe == "modern" else 32
        else:
            check_integer("batch_size", size, 1)
        if epochs is None:
            epochs = choose_epochs(count, size, kind) if self.recipe == "modern" else 48
        check_integer("epochs", epochs, 1)
        head_rate = self.head_learning_rate
        if head_rate is None:
            head_rate = default_head_rate(method, self.recipe)
        modern = {**MODERN, "warmup_epochs": default_warmup(epochs)}
        return Options(
            epochs=epochs,
            batch_size=size,
            learning_rate=rate,
            head_learning_rate=head_rate,
            weight_decay=self.weight_decay,
            decode=self.decode,
            patience=self.patience,
            **(modern if self.recipe == "modern" else {}),
        )

    def _check_structure(self, resume: bool) -> None:
        """Remember what the network is built from; a warm start must not change it."""
        if not resume:
            self._built_from = {name: getattr(self, name) for name in STRUCTURE}
        for name, before in self._built_from.items():
            now = getattr(self, name)
            if before is not now and before != now:
                raise UserError(f"{name} must be {before!r} as before, or set warm_start=False.")

    @contextmanager
    def _training(self, seed: int) -> Iterator[None]:
        """Train with a seed, one fit at a time; PyTorch's generators are shared by all threads."""
        with (
            _FIT_LOCK,
            one_thread(self._takes_table),
            torch.random.fork_rng(devices=range(torch.cuda.device_count())),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            torch.manual_seed(seed)
            yield

    def _train(
        self, data: FitData, options: Options, device: torch.device, resume: bool
    ) -> tuple[Network, Outcomes | None]:
        """Train a new network, or the fitted one, and return it in its best epoch.

        With folds, the second result is the log probabilities and ranks of a cross-validation.
        """
        past = len(self.history_)
        seed = mixed_seed(self._seed, past) if resume else self._seed
        best = _BestWeights(self.verbose)
        with self._training(seed):
            if resume:
                network = copy.deepcopy(Network(self.backbone_, self.head_)).to(device)
            else:
                network = self._build_network(data.train, len(data.classes), device)
            train, validation = data.train.to_split(data.class_factors), None
            if len(data.validation):
                validation = data.validation.to_split(data.class_factors)
            processes, unseen = Processes(device), None
            initial = copy.deepcopy(network)
            generator = torch.Generator().manual_seed(seed)
            options = replace(options, seed=seed, generator=generator)
            state = Trainer(network, train, validation, options, processes, [best]).fit()
            network.load_state_dict(best.weights)
            if data.fold_of is not None and not resume:
                unseen = predict_out_of_fold(initial, train, data.fold_of, options, processes)
        self.n_iter_ = len(state.history)
        self.best_epoch_ = past + (state.best_epoch or self.n_iter_)
        records = [{**record, "epoch": past + record["epoch"]} for record in state.history]
        self.history_ = self.history_ + records
        return network.eval(), unseen

    def _takes_closed_form(self, train: Samples) -> bool:
        """Return whether the model is fitted in closed form: with few samples of a table.

        Parameters of training by gradient descent that are set choose it instead.
        """
        wanted = (self.hidden, self.epochs, self.batch_size, self.folds)
        rates = (self.learning_rate, self.head_learning_rate)
        options = set(self.head_options or {}) <= set(heads.options_of(heads.FEW_LABELS_METHOD))
        return bool(
            isinstance(self.method, str)
            and self.method in (heads.AUTO, heads.FEW_LABELS_METHOD)
            and isinstance(self.backbone, str)
            and self.backbone == backbones.MLP.name
            and all(each is None for each in (*wanted, *rates))
            and options
            and self.recipe == "modern"
            and isinstance(train.rows, np.ndarray)
            and is_few(len(train), is_table=True)
        )

    def _fit_closed_form(self, data: FitData, device: torch.device) -> tuple[Network, Outcomes]:
        """Fit a Gaussian process, and predict each training sample without its group."""
        train, count, options = data.train, len(data.classes), dict(self.head_options or {})
        dim, x = count_coordinates(count, **options), data.train.rows
        with self._training(self._seed):
            head = heads.create(self.method_, count, dim, **options)
            assert isinstance(head, heads.JointLayout)
            kernel = {"rows": len(x), "widths": head.widths}
            plain: Any = {**PLAIN, "kernel": kernel}
            backbone = backbones.MLP(x.shape[1], dim, **plain)
            backbone.fit_scale(inputs.column_blocks(x), torch.from_numpy(train.weight))
            network = Network(backbone, head).float().to(device)
            unseen = fit_closed_form(network, train.to_split(data.class_factors), data.groups)
        loss = float(torch.nn.functional.nll_loss(*unseen))
        self.history_, self.n_iter_, self.best_epoch_ = [{"epoch": 1, "train_loss": loss}], 1, 1
        return network.eval(), unseen

    def _build_network(self, samples: Samples, num_classes: int, device: torch.device) -> Network:
        make, x = self.backbone, samples.rows
        backbone: nn.Module
        if isinstance(make, str):
            options = choose_layers(len(samples)) if make == backbones.MLP.name else {}
            if self.hidden is not None:
                options["hidden"] = self.hidden
            backbone = backbones.create(make, dim=self.dim, in_features=x.shape[1], **options)
        elif isinstance(make, nn.Module):
            backbone = copy.deepcopy(make)
        else:
            backbone = _call_with_known(make, dim=self.dim, in_features=x.shape[1])
        backbone = backbone.float()
        if isinstance(backbone, backbones.TableBackbone) and self._takes_table:
            backbone.fit_scale(inputs.column_blocks(x), torch.from_numpy(samples.weight))
        else:
            _check_output(backbone, x, self.dim)
        options, method = dict(self.head_options or {}), heads.resolve_auto(self.method)
        head = heads.create(method, num_classes=num_classes, dim=self.dim, **options)
        return Network(backbone, head.float()).to(device)

    def _set_fitted(self, classes: Array, network: Network) -> None:
        self.classes_ = classes
        self.backbone_, self.head_ = network.backbone, network.head
        self._n_features_out = network.head.dim
        self.__dict__.pop("proxies_", None)  # of an earlier fit with a different method
        if isinstance(self.head_, HasProxies):
            self.proxies_ = self.head_.proxies().detach().cpu().numpy()

    def _calibrate(self, data: FitData, unseen: Outcomes | None, closed: bool) -> None:
        """Fit the temperature to the validation samples, and the ranges to the others.

        A closed form needs no temperature: its scales were fitted to the same predictions.
        """
        held_out = data.fold_of is None and len(data.validation) + len(data.calibration)
        if unseen is not None and len(unseen[1]) and not held_out:
            fits_temperature = self.recipe == "modern" and not closed
            self.calibration_ = Calibration.fit(unseen if fits_temperature else None, unseen)
            return
        if data.fold_of is not None:  # a warm start keeps the calibration
            return
        self.calibration_ = Calibration()  # none for the predictions below

        def predict(samples: Samples) -> tuple[Tensor, Tensor] | None:
            if len(samples) == 0:
                return None
            log_probs, _ = self._predict_rows(samples.rows)
            return torch.from_numpy(log_probs), torch.from_numpy(samples.ranks)

        validation = predict(data.validation) if self.recipe == "modern" else None
        self.calibration_ = Calibration.fit(validation, predict(data.calibration))

    @torch.no_grad()
    def _run_network(self, rows: Rows) -> Iterator[tuple[Tensor, heads.OrdinalHead]]:
        """Yield the features of rows, batch by batch, and the head.

        Both are in float64, where the device has it: in float32 the last digits of a sample's
        result would depend on the rest of its batch.
        """
        backbone, head = self.backbone_, self.head_
        device = next(head.parameters()).device
        if has_double(device):
            head = copy.deepcopy(head).double()
            backbone = copy.deepcopy(backbone).double() if self._takes_table else backbone
        size = EVALUATION_FACTOR * (self.batch_size or 64)
        for start in range(0, rows.shape[0], size):
            features = backbone(to_tensor(rows[start : start + size]).to(device))
            wrong = ~features.isfinite().all(dim=1)
            if wrong.any():
                row = start + int(wrong.int().argmax())
                raise UserError(f"The features of row {row} of X are not finite.")
            yield features, head

    def _predict(self, X: ArrayLike) -> tuple[Array, Array]:
        return self._predict_rows(inputs.read_rows(self, X))

    @torch.no_grad()
    def _predict_rows(self, rows: Rows) -> tuple[Array, Array]:
        """Compute calibrated log probabilities and decoded ranks in one pass."""
        decode = check_decode(self.decode, len(self.classes_))
        log_probs, ranks = [], []
        for features, head in self._run_network(rows):
            batch = apply_temperature(head.log_probs(features), self.calibration_.temperature)
            log_probs.append(batch.cpu().numpy())
            ranks.append(head.predict(features, decode, batch).cpu().numpy())
        return np.concatenate(log_probs), np.concatenate(ranks)


def _is_table(backbone: Any) -> bool:
    """Return whether a backbone takes the rows of a table, which are encoded and standardized."""
    is_class = isinstance(backbone, type) and issubclass(backbone, backbones.TableBackbone)
    return isinstance(backbone, str) or is_class


def _import_saving() -> Any:
    for library in ("pydantic", "safetensors"):
        require(library, extra="images", needed_by="the file of an OrdinalClassifier")
    from layline.estimator import saving

    return saving


class _BestWeights(Callback):
    """Keep the weights of the best epoch, and write a line per epoch if wanted."""

    def __init__(self, verbose: int) -> None:
        self.weights: dict[str, Any] = {}
        self._verbose = verbose

    def on_epoch_end(self, trainer: Trainer, validation: Predictions | None, is_best: bool) -> None:
        """Copy the weights if the epoch is the best so far."""
        if is_best:
            self.weights = {k: v.clone() for k, v in trainer.network.state_dict().items()}
        if self._verbose:
            sys.stderr.write(describe_epoch(trainer) + "\n")


def _call_with_known(make: Callable[..., nn.Module], **known: Any) -> nn.Module:
    """Call a function or a class with those of the known arguments that it takes."""
    parameters = inspect.signature(make).parameters
    if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        known = {name: value for name, value in known.items() if name in parameters}
    return make(**known)


def _check_output(backbone: nn.Module, x: Rows, dim: int) -> None:
    """Raise an error unless a module returns vectors of the right dimension for two rows."""
    with torch.no_grad():
        output = backbone.eval()(to_tensor(x[:2]))
    shape = tuple(getattr(output, "shape", ()))
    if shape != (2, dim):
        cure = f": pass dim={shape[1]}" if len(shape) == 2 else ""
        got = shape or type(output).__name__
        raise UserError(f"backbone must return (n, dim), here (2, {dim}), got {got}{cure}")
