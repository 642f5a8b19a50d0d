"""Cross-validation: predict each training sample by a network that has not seen it.

With few labels, validation and calibration splits would take a fifth of them and still be too small
to be of use. Instead, the model is trained on all labels for a fixed number of epochs. Networks
that are trained in the same way on all folds except one predict the samples of that fold. These
predictions give the temperature, the ranges and an estimate of the error. They are slightly
pessimistic, because each network has seen fewer samples than the model.
"""

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.data.dataset import Indices
from layline.data.loaders import mixed_seed
from layline.evaluation.predictions import Split, predict_split
from layline.model.model import Network
from layline.training.optim import Options
from layline.training.trainer import Callback, Trainer
from layline.utils.devices import Processes

Outcomes = tuple[Float[Tensor, "n K"], Int[Tensor, " n"]]  # log probabilities and true ranks


def predict_out_of_fold(
    initial: Network,
    train: Split,
    fold_of: Indices,
    options: Options,
    processes: Processes,
    callbacks: Sequence[Callback] = (),
    progress: Callable[[int], None] = lambda done: None,
) -> Outcomes:
    """Predict the samples of each fold by a network that is trained on the others.

    Args:
        initial: The network before training; it is copied.
        train: The training samples.
        fold_of: The fold of each sample; -1 for samples that are only trained on.
        options: Options of the trainer, the same as those of the model.
        processes: The processes that train together.
        callbacks: Callbacks of each training, such as one that stops it.
        progress: Called with the number of finished folds.
    """
    log_probs, ranks = [], []
    for fold in range(fold_of.max(initial=-1) + 1):
        network, number = copy.deepcopy(initial), fold + 1
        own = replace(options, seed=mixed_seed(options.seed, number))
        if options.generator is not None:
            own = replace(own, generator=torch.Generator().manual_seed(own.seed))
        seen = train.take(torch.from_numpy((fold_of != fold).nonzero()[0]))
        trainer = Trainer(network, seen, None, own, processes, callbacks)
        trainer.fit()
        held_out = train.take(torch.from_numpy((fold_of == fold).nonzero()[0]))
        batches = held_out.batches(processes, options.batch_size, options.workers)
        with nullcontext() if trainer.average is None else trainer.average.applied():
            predicted = predict_split(network, held_out, batches, processes, full_precision=True)
        log_probs.append(predicted.log_probs)
        ranks.append(held_out.ranks)
        progress(number)
    if not ranks:  # no class has two samples
        return torch.zeros(0, initial.head.num_classes), torch.zeros(0, dtype=torch.int64)
    return torch.cat(log_probs), torch.cat(ranks)
