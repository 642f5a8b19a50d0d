"""What a user would take instead: baselines of ``layline bench``, each as its own library says.

========================  ===============  ========================================================
``peers.py:…``            main setting     what it is
========================  ===============  ========================================================
``logistic_regression``   C                scikit-learn, multinomial
``SoftmaxMLP``            learning_rate    scikit-learn, softmax network
``GradientBoosting``      learning_rate    LightGBM, classification
``RankRegression``        learning_rate    LightGBM, regression on the rank; no probabilities
``all_threshold``         alpha            skordinal, linear, one slope and K-1 thresholds
``Coral``, ``Corn``       learning_rate    coral-pytorch, networks with K-1 binary tasks
``Triangular``            learning_rate    dlordinal, softmax network with soft labels
``KappaCLM``              learning_rate    dlordinal, cumulative link network, weighted kappa loss
========================  ===============  ========================================================

What is from a library's documentation is named with its page; all else is our reading. For all
networks that is: columns standardised by the rows that are trained on, the body that our own
methods had in version 0.2.0 (see :func:`body_widths`) with ReLU and no dropout, shuffled
batches of which the last may be smaller, epochs and batch size as the grid says. Where
a documentation chooses the epoch on samples of its own, a share ``validation`` of the training part
is kept for that, stratified; the validation part of the bench is not seen. One thread
computes, and ``random_state`` decides everything.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from coral_pytorch.dataset import (
    corn_label_from_logits,
    levels_from_labelbatch,
    proba_to_label,
)
from coral_pytorch.layers import CoralLayer
from coral_pytorch.losses import coral_loss, corn_loss
from dlordinal.losses import TriangularLoss, WKLoss
from dlordinal.output_layers import CLM
from lightgbm import LGBMClassifier, LGBMRegressor
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from layline.data.splits import stratified_holdout
from layline.heads.cumulative import log_probs_from_conditional, log_probs_from_cumulative

Criterion = Callable[[Tensor, Tensor], Tensor]
_FROZEN = 500  # tables have fewer columns, frozen features have more


def body_widths(columns: int, hidden: Sequence[int] | None = None) -> tuple[int, ...]:
    """Give the widths of the hidden layers, by default those of our version 0.2.0.

    Two of 128 for a table; one of 512 for frozen features. An estimator is not told which of both
    it gets: from 500 columns on they are taken for frozen features.
    """
    if hidden is not None:
        return tuple(hidden)
    return (512,) if columns >= _FROZEN else (128, 128)


def logistic_regression(C: float = 1.0) -> Pipeline:
    """Make scikit-learn's ``LogisticRegression`` on standardised columns.

    Documented (scikit-learn, API of ``LogisticRegression``): C, the inverse of the penalty, is 1;
    scaled columns help its solver. Ours: 1000 iterations at most, so that it converges.
    """
    return make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))


@dataclass(eq=False, repr=False)  # for scikit-learn: what is given is an attribute, unchanged
class SoftmaxMLP(ClassifierMixin, BaseEstimator):
    """scikit-learn's ``MLPClassifier`` on standardised columns.

    Documented (scikit-learn, API of ``MLPClassifier`` and the guide to its neural networks): Adam
    at 0.001, at most 200 epochs in batches of at most 200, an end after ten epochs without a lower
    training loss, scaled columns. Ours: the widths.

    Attributes:
        learning_rate: Of Adam.
        epochs: At most.
        batch_size: Samples in a step, or ``auto``.
        hidden: Widths of the hidden layers, see :func:`body_widths`.
        random_state: Seed.
    """

    learning_rate: float = 1e-3
    epochs: int = 200
    batch_size: int | str = "auto"
    hidden: Sequence[int] | None = None
    random_state: int | None = None

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Train the network."""
        batch_size = self.batch_size
        network = MLPClassifier(
            hidden_layer_sizes=body_widths(np.shape(X)[1], self.hidden),
            learning_rate_init=self.learning_rate,
            max_iter=self.epochs,
            batch_size=batch_size if isinstance(batch_size, str) else min(batch_size, len(X)),
            random_state=self.random_state,
        )
        with catch_warnings():  # the epochs are all that were asked for
            simplefilter("ignore", ConvergenceWarning)
            self.pipeline_ = make_pipeline(StandardScaler(), network).fit(X, y)
        self.classes_ = self.pipeline_.classes_
        return self

    def predict_proba(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Give a column of probabilities for each rank of the training samples."""
        found: NDArray[np.float64] = self.pipeline_.predict_proba(X)
        return found

    def predict(self, X: NDArray[Any]) -> NDArray[np.int64]:
        """Give the most probable rank."""
        found: NDArray[np.int64] = self.pipeline_.predict(X)
        return found


def all_threshold(alpha: float = 1.0) -> Pipeline:
    """Make skordinal's ``LogisticAT`` on standardised columns.

    Documented (skordinal, API of ``LogisticAT``): an L2 penalty alpha of 1 on the slopes only,
    standardised columns; its own label is the median of its distribution. It has no random state,
    as it needs none.
    """
    from skordinal.classifiers import LogisticAT

    return make_pipeline(StandardScaler(), LogisticAT(alpha=alpha))


@dataclass(eq=False, repr=False)
class GradientBoosting(ClassifierMixin, BaseEstimator):
    """LightGBM's classification.

    Documented (LightGBM, API of ``LGBMClassifier``): a learning rate of 0.1 and 100 trees for each
    class. Ours: on frozen features a tree sees a tenth of the columns, which takes a tenth of the
    time.

    Attributes:
        learning_rate: How much of each tree counts.
        n_estimators: Number of trees for each class.
        random_state: Seed.
    """

    learning_rate: float = 0.1
    n_estimators: int = 100
    random_state: int | None = None

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Fit trees to the classes."""
        x = np.asarray(X)
        self.trees_ = LGBMClassifier(
            learning_rate=self.learning_rate,
            n_estimators=self.n_estimators,
            colsample_bytree=0.1 if x.shape[1] >= _FROZEN else 1.0,
            random_state=self.random_state,
            n_jobs=1,
            deterministic=True,
            force_row_wise=True,
            verbose=-1,
        )
        self.trees_.fit(x, np.asarray(y))
        self.classes_ = self.trees_.classes_
        return self

    def predict_proba(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Predict the probability of each class that was seen."""
        # the booster itself: the estimator misses the names of columns that an array has not
        found = np.asarray(self.trees_.booster_.predict(np.asarray(X), num_threads=1))
        return found if found.ndim == 2 else np.stack([1 - found, found], axis=1)

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Predict the most probable class."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


@dataclass(eq=False, repr=False)
class RankRegression(RegressorMixin, BaseEstimator):
    """LightGBM's regression on the rank; the bench rounds it.

    Documented (LightGBM, API of ``LGBMRegressor``): a learning rate of 0.1 and 100 trees; for
    results that can be repeated ``deterministic`` and ``force_row_wise`` (its page of parameters).

    Attributes:
        learning_rate: How much of each tree counts.
        n_estimators: Number of trees.
        random_state: Seed.
    """

    learning_rate: float = 0.1
    n_estimators: int = 100
    random_state: int | None = None

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Fit trees to the ranks."""
        self.trees_ = LGBMRegressor(
            learning_rate=self.learning_rate,
            n_estimators=self.n_estimators,
            random_state=self.random_state,
            n_jobs=1,
            deterministic=True,
            force_row_wise=True,
            verbose=-1,
        )
        self.trees_.fit(np.asarray(X), np.asarray(y, dtype=np.float64))
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Predict a rank that is not rounded."""
        # the booster itself: the estimator misses the names of columns that an array has not
        return np.asarray(self.trees_.booster_.predict(np.asarray(X), num_threads=1))


@dataclass(eq=False, repr=False)
class Network(ClassifierMixin, BaseEstimator, ABC):
    """A network on standardised columns, trained by Adam.

    Attributes:
        learning_rate: Of Adam.
        epochs: Times that it goes over the training samples, at most.
        batch_size: Samples in a step.
        hidden: Widths of the hidden layers, see :func:`body_widths`.
        validation: Share of the training samples that is kept to choose or end the training; 0
            trains on all of them for all epochs.
        num_classes: K; the highest rank that is seen, and one more, if not given.
        random_state: Seed.
    """

    learning_rate: float = 1e-3
    epochs: int = 30
    batch_size: int = 32
    hidden: Sequence[int] | None = None
    validation: float = 0.1
    num_classes: int | None = None
    random_state: int | None = None

    @abstractmethod
    def _output(self, width: int, num_classes: int) -> nn.Module:
        """Make what follows the body."""

    @abstractmethod
    def _criterion(self, num_classes: int) -> Criterion:
        """Make the loss of outputs and targets."""

    @abstractmethod
    def _proba(self, outputs: Tensor) -> Tensor:
        """Turn outputs into probabilities (n, K)."""

    @abstractmethod
    def labels(self, outputs: Tensor) -> Tensor:
        """Turn outputs into ranks, as the library does."""

    @abstractmethod
    def _watch(self, network: nn.Module, optimiser: torch.optim.Optimizer) -> "Watch":
        """Make what looks at the samples that are kept for validation."""

    def _targets(self, ranks: Tensor, num_classes: int) -> Tensor:
        """Turn ranks into what the loss wants."""
        return ranks

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Train the network."""
        seed = 0 if self.random_state is None else self.random_state
        x, ranks = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.int64)
        num_classes = self.num_classes or max(int(ranks.max()) + 1, 2)
        self.classes_ = np.arange(num_classes)
        train, kept = stratified_holdout(ranks, self.validation, np.random.default_rng(seed))
        self.scaler_ = StandardScaler().fit(x[train])
        columns, truth = self._columns(x).float(), torch.from_numpy(ranks)
        targets = self._targets(truth, num_classes)
        with _one_thread(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            widths = [x.shape[1], *body_widths(x.shape[1], self.hidden)]
            layers = [part for sizes in pairwise(widths) for part in (nn.Linear(*sizes), nn.ReLU())]
            network = nn.Sequential(*layers, self._output(widths[-1], num_classes))
            optimiser = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
            criterion, watch = self._criterion(num_classes), self._watch(network, optimiser)
            chosen = torch.from_numpy(train)
            for _ in range(self.epochs):
                losses = []
                for places in torch.randperm(len(chosen)).split(self.batch_size):
                    batch = chosen[places]
                    optimiser.zero_grad()
                    loss = criterion(network(columns[batch]), targets[batch])
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
                    losses.append(loss.item() * len(batch))
                if len(kept) == 0:
                    continue
                with torch.no_grad():
                    outputs = network(columns[kept])
                    held_out = float(criterion(outputs, targets[kept]))
                mae = float((self.labels(outputs) - truth[kept]).abs().double().mean())
                if watch.after_epoch(sum(losses) / len(chosen), held_out, mae):
                    break
            watch.finish()
        self.network_ = network.double()  # small probabilities are differences of large ones
        return self

    def _columns(self, x: NDArray[Any]) -> Tensor:
        return torch.from_numpy(self.scaler_.transform(np.asarray(x, dtype=np.float64)))

    @torch.no_grad()
    def outputs(self, X: NDArray[Any]) -> Tensor:
        """Compute what the network gives, before it becomes a label or a probability."""
        with _one_thread():
            found: Tensor = self.network_(self._columns(X))
        return found

    def predict_proba(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Give a column of probabilities for each rank, also for one without training samples."""
        proba = self._proba(self.outputs(X)).clamp_min(0)
        found: NDArray[np.float64] = (proba / proba.sum(dim=1, keepdim=True)).numpy()
        return found

    def predict(self, X: NDArray[Any]) -> NDArray[np.int64]:
        """Give the library's own labels; the bench decodes the probabilities instead."""
        found: NDArray[np.int64] = self.labels(self.outputs(X)).numpy()
        return found


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Watch(ABC):
    """What looks at the samples that are kept for validation after each epoch."""

    @abstractmethod
    def after_epoch(self, train_loss: float, held_out_loss: float, held_out_mae: float) -> bool:
        """Tell whether to stop."""

    @abstractmethod
    def finish(self) -> None:
        """Choose the weights, now that no epoch follows."""


class BestEpoch(Watch):
    """Go over all epochs, and keep the weights of that with the lowest MAE, the first of equals."""

    def __init__(self, network: nn.Module) -> None:
        self._network, self._lowest, self._weights = network, float("inf"), {}

    def after_epoch(self, train_loss: float, held_out_loss: float, held_out_mae: float) -> bool:
        """Remember the weights if they are the best."""
        if held_out_mae < self._lowest:
            self._lowest = held_out_mae
            self._weights = deepcopy(self._network.state_dict())
        return False

    def finish(self) -> None:
        """Go back to the best weights."""
        if self._weights:
            self._network.load_state_dict(self._weights)


class EarlyStopping(Watch):
    """Stop after five epochs without a lower loss; halve the rate after three that learn nothing.

    Lower is by more than 1e-4 of it. The weights are those of the last epoch.
    """

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self._rate = ReduceLROnPlateau(optimiser, factor=0.5, patience=3)
        self._lowest, self._waited = float("inf"), 0

    def after_epoch(self, train_loss: float, held_out_loss: float, held_out_mae: float) -> bool:
        """Count the epochs since the best one."""
        self._rate.step(train_loss)
        is_lower = held_out_loss < self._lowest - 1e-4 * abs(self._lowest) or np.isinf(self._lowest)
        self._lowest = held_out_loss if is_lower else self._lowest
        self._waited = 0 if is_lower else self._waited + 1
        return self._waited >= 5

    def finish(self) -> None:
        """Keep the last weights."""


@dataclass(eq=False, repr=False)
class Coral(Network):
    """coral-pytorch's CORAL.

    Documented (tutorial "A Multilayer Perceptron for Ordinal Regression using CORAL -- Cement
    Dataset"): Linear and ReLU, ``CoralLayer`` as the last one, ``levels_from_labelbatch``,
    ``coral_loss``, ``proba_to_label`` of the sigmoids; standardised columns; Adam at 0.01, batches
    of 32, 200 epochs; a tenth of the training samples, stratified, chooses the epoch by its MAE.
    The tutorial without Lightning has 0.05, batches of 128 and 20 epochs, and chooses none.

    Ours: probabilities are differences of P(y > k), sorted first, as its biases are free, and taken
    of logarithms, as a plain difference of small ones would be zero. Its label is their median.
    """

    learning_rate: float = 0.01
    epochs: int = 200

    def _output(self, width: int, num_classes: int) -> nn.Module:
        return CoralLayer(width, num_classes)

    def _criterion(self, num_classes: int) -> Criterion:
        return coral_loss

    def _targets(self, ranks: Tensor, num_classes: int) -> Tensor:
        return levels_from_labelbatch(ranks, num_classes)

    def _proba(self, outputs: Tensor) -> Tensor:
        return log_probs_from_cumulative(outputs).exp()

    def labels(self, outputs: Tensor) -> Tensor:
        """Count the P(y > k) above one half."""
        return proba_to_label(outputs.sigmoid())

    def _watch(self, network: nn.Module, optimiser: torch.optim.Optimizer) -> Watch:
        return BestEpoch(network)


@dataclass(eq=False, repr=False)
class Corn(Network):
    """coral-pytorch's CORN.

    Documented (tutorial "A Multilayer Perceptron for Ordinal Regression using CORN -- Cement
    Dataset", and the API of ``corn_loss`` for K-1 outputs): Linear and ReLU, ``corn_loss``,
    ``corn_label_from_logits``, P(y > k) as the product of the sigmoids up to k; standardised
    columns; Adam at 0.005, batches of 64, 200 epochs; a tenth of the training samples, stratified,
    chooses the epoch by its MAE.

    Ours: probabilities are differences of P(y > k), which never rise with k, by logarithms; its
    label is their median.
    """

    learning_rate: float = 0.005
    epochs: int = 200
    batch_size: int = 64

    def _output(self, width: int, num_classes: int) -> nn.Module:
        return nn.Linear(width, num_classes - 1)

    def _criterion(self, num_classes: int) -> Criterion:
        return lambda outputs, ranks: corn_loss(outputs, ranks, num_classes)

    def _proba(self, outputs: Tensor) -> Tensor:
        return log_probs_from_conditional(outputs).exp()

    def labels(self, outputs: Tensor) -> Tensor:
        """Count the P(y > k) above one half."""
        return corn_label_from_logits(outputs)

    def _watch(self, network: nn.Module, optimiser: torch.optim.Optimizer) -> Watch:
        return BestEpoch(network)


@dataclass(eq=False, repr=False)
class Triangular(Network):
    """dlordinal's soft labels from triangular distributions.

    Documented (README and the tutorial ``losses_with_skorch_tutorial``): as many outputs as
    classes, ``TriangularLoss`` of a ``CrossEntropyLoss``, which takes the place of the deprecated
    ``TriangularCrossEntropyLoss``; Adam at 0.001; labels by the arg max, probabilities by a
    softmax; batches of 200, 30 epochs at most, a tenth of the training samples ends it after five
    epochs without a lower loss, and the rate is halved after three.

    Ours: dlordinal has no estimator of its own for this and shows skorch's, in whose place there is
    a plain loop with what skorch does by default: the weights of the last epoch, the rate by the
    training loss. Their network is one for images.
    """

    batch_size: int = 200

    def _output(self, width: int, num_classes: int) -> nn.Module:
        return nn.Linear(width, num_classes)

    def _criterion(self, num_classes: int) -> Criterion:
        return TriangularLoss(nn.CrossEntropyLoss(), num_classes)

    def _proba(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(dim=1)

    def labels(self, outputs: Tensor) -> Tensor:
        """Choose the largest output."""
        return outputs.argmax(dim=1)

    def _watch(self, network: nn.Module, optimiser: torch.optim.Optimizer) -> Watch:
        return EarlyStopping(optimiser)


@dataclass(eq=False, repr=False)
class KappaCLM(Triangular):
    """dlordinal's cumulative link layer with its loss by quadratic weighted kappa.

    Documented (API of ``CLM`` and of ``WKLoss``): one output into ``CLM`` with the link "logit",
    whose rows are probabilities; ``WKLoss`` of probabilities, quadratic. Both name Vargas et al.
    (2020), "Cumulative link models for deep ordinal classification", as where they are from. No
    page shows them together.

    Ours: the training is that of :class:`Triangular`.
    """

    def _output(self, width: int, num_classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, 1), CLM(num_classes, "logit"))

    def _criterion(self, num_classes: int) -> Criterion:
        return WKLoss(num_classes)

    def _proba(self, outputs: Tensor) -> Tensor:
        return outputs
