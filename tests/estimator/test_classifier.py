"""What a fitted estimator does."""

import copy
import functools
import pickle
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from layline.estimator import OrdinalClassifier, negative_mae


def quick(method="hard-linear", **changes):
    small = {"dim": 8, "hidden": (16,), "epochs": 3, "learning_rate": 1e-2, "random_state": 0}
    if not isinstance(changes.get("backbone", "mlp"), str):
        del small["hidden"]  # a module has its own layers
    return OrdinalClassifier(method, **{**small, **changes})


def samples(n=120, num_classes=4, noise=0.4, seed=0):
    """Classes along a line, blurred."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % num_classes
    return y[:, None] * np.ones(3) + noise * rng.normal(size=(n, 3)), y


@functools.cache
def plain_fit(num_classes=4):
    """What others are compared with; nobody fits it again."""
    return quick().fit(*samples(num_classes=num_classes))


def weights_of(model):
    modules = model.backbone_, model.head_
    return [p.detach().numpy() for module in modules for p in module.state_dict().values()]


def same(a, b):
    pairs = zip(weights_of(a), weights_of(b), strict=True)
    return a.history_ == b.history_ and all(np.array_equal(p, q) for p, q in pairs)


# what comes out


@pytest.mark.parametrize("method", ["hard-linear", "soft-poisson", "classification"])
def test_the_fitted_estimator_has_what_it_promises(method):
    X, y = samples()
    model = quick(method, epochs=20).fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.n_features_in_ == 3
    assert model.predict(X).shape == (120,)
    assert model.predict_proba(X).shape == (120, 4)
    assert model.transform(X).shape == (120, 8)
    assert model.get_feature_names_out().tolist() == [f"ordinalclassifier{i}" for i in range(8)]
    assert isinstance(model.backbone_, nn.Module)
    assert isinstance(model.head_, nn.Module)
    assert not model.backbone_.training
    assert not model.head_.training
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert model.score(X, y) > 0.7


def test_proxies_are_there_for_heads_that_have_them():
    X, y = samples()
    model = quick("hard-linear").fit(X, y)
    assert model.proxies_.shape == (4, 8)
    assert isinstance(model.proxies_, np.ndarray)
    model.set_params(method="classification").fit(X, y)
    assert not hasattr(model, "proxies_")


@pytest.mark.parametrize("decode", ["mode", "median", "mean"])
def test_a_label_is_decoded_from_the_probabilities(decode):
    X, y = samples(noise=1.5)
    model = quick("classification", decode=decode).fit(X, y)
    proba = model.predict_proba(X)
    expected = {
        "mode": proba.argmax(axis=1),
        "median": (proba.cumsum(axis=1) < 0.5).sum(axis=1),
        "mean": np.rint(proba @ np.arange(4)),
    }
    np.testing.assert_array_equal(model.predict(X), expected[decode])


def test_the_best_epoch_is_the_first_with_the_lowest_validation_mae():
    X, y = samples(noise=2.0)
    model = quick(epochs=20).fit(X, y)
    maes = [record["validation_mae"] for record in model.history_]
    assert len(maes) == 20
    assert model.best_epoch_ == 1 + maes.index(min(maes))


def test_the_restored_weights_are_those_of_the_best_epoch():
    X, y = samples(noise=2.0)
    model = quick(epochs=20, recipe="paper").fit(X, y)
    assert 1 < model.best_epoch_ < 20
    shorter = quick(epochs=model.best_epoch_, recipe="paper").fit(X, y)
    assert shorter.best_epoch_ == model.best_epoch_
    assert shorter.history_ == model.history_[: model.best_epoch_]
    for ours, theirs in zip(weights_of(model), weights_of(shorter), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_without_validation_the_last_epoch_is_kept():
    model = quick(validation_fraction=0).fit(*samples())
    assert model.best_epoch_ == len(model.history_) == 3
    assert set(model.history_[0]) == {"epoch", "train_loss"}


def test_patience_stops_early():
    X, y = samples(noise=2.0)
    model = quick(epochs=100, patience=3).fit(X, y)
    assert len(model.history_) == model.best_epoch_ + 3 < 100


def test_a_result_does_not_depend_on_the_other_samples_of_its_batch():
    X, y = samples()
    model = quick(batch_size=5).fit(X, y)
    for method in (model.predict_proba, model.transform):
        one_by_one = np.concatenate([method(X[i : i + 1]) for i in range(20)])
        np.testing.assert_allclose(method(X)[:20], one_by_one, rtol=1e-9, atol=1e-12)


def test_time_stamps_are_told_apart():
    seconds = np.repeat(np.arange(4), 30)[:, None] + np.random.default_rng(0).normal(
        scale=0.1, size=(120, 1)
    )
    y = np.arange(120) // 30
    model = quick(epochs=20).fit(1.7e9 + seconds, y)
    assert model.score(1.7e9 + seconds, y) > 0.95


# the order of the classes


def test_strings_follow_the_given_order():
    X, y = samples(num_classes=3)
    names = np.array(["low", "mid", "high"])
    model = quick(classes=["low", "mid", "high"]).fit(X, names[y])
    assert model.classes_.tolist() == ["low", "mid", "high"]
    plain = plain_fit(num_classes=3)
    np.testing.assert_array_equal(model.predict(X), names[plain.predict(X)])
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert same(model, plain)


def test_without_an_order_labels_are_sorted_with_a_warning():
    X, y = samples(num_classes=3)
    cure = re.escape("classes=['low', 'mid', 'high']")
    with pytest.warns(UserWarning, match=cure) as said:
        model = quick().fit(X, np.array(["low", "mid", "high"])[y])
    assert said[0].filename == __file__
    assert model.classes_.tolist() == ["high", "low", "mid"]


@pytest.mark.parametrize("order", [(3, 2, 1, 0), np.array([3, 2, 1, 0]), [3.0, 2.0, 1.0, 0.0]])
def test_the_order_may_be_any_sequence(order):
    X, y = samples()
    assert quick(classes=order).fit(X, y).classes_.tolist() == [3, 2, 1, 0]


def test_an_absent_class_is_named_and_still_has_a_column():
    X, y = samples()
    there = y != 2
    with pytest.warns(UserWarning, match="classes has labels that never occur in y: 2"):
        model = quick(classes=[0, 1, 2, 3]).fit(X[there], y[there])
    proba = model.predict_proba(X)
    assert proba.shape == (len(X), 4)
    assert (proba[:, 2] > 0).all()
    assert model.proxies_.shape == (4, 8)


def test_one_sample_per_class_is_trained_on_with_a_warning():
    X, y = samples(n=4)
    with pytest.warns(UserWarning, match="nothing is held out, and the last epoch is kept"):
        model = quick().fit(X, y)
    assert model.best_epoch_ == 3
    assert "validation_mae" not in model.history_[0]


# weights


def test_a_sample_of_weight_zero_is_not_there():
    X, y = samples()
    weight = np.random.default_rng(1).integers(0, 3, size=len(y)).astype(float)
    there = weight > 0
    assert same(
        quick().fit(X, y, sample_weight=weight),
        quick().fit(X[there], y[there], sample_weight=weight[there]),
    )


def test_a_class_without_weight_is_no_class():
    X, y = samples()
    assert quick().fit(X, y, sample_weight=(y != 3)).classes_.tolist() == [0, 1, 2]


def test_the_scale_of_weights_does_not_matter():
    X, y = samples()
    weight = 1.0 + y
    plain = quick().fit(X, y, sample_weight=weight)
    assert same(plain, quick().fit(X, y, sample_weight=2.0**1021 * weight))
    assert same(plain_fit(), quick().fit(X, y, sample_weight=np.full(len(y), 7.0)))


def test_the_lightest_weights_do_not_vanish():
    X, y = samples()
    few = np.arange(len(y)) < 8  # so that most batches have light samples only
    model = quick(batch_size=4).fit(X, y, sample_weight=np.where(few, 1.0, 1e-300))
    assert np.isfinite(model.history_[-1]["train_loss"])


def test_an_integer_weight_is_that_many_samples():
    # exact only without batches and without validation, which a repeated sample may be split over
    X, y = samples(n=40)
    weight = np.random.default_rng(0).integers(0, 4, size=len(y))
    settings = {"validation_fraction": 0, "batch_size": 1000, "epochs": 4}
    weighted = quick(**settings).fit(X, y, sample_weight=weight)
    repeated = quick(**settings).fit(X.repeat(weight, axis=0), y.repeat(weight))
    np.testing.assert_allclose(
        weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-3, atol=1e-5
    )


def test_class_weights_are_sample_weights_in_training_and_in_validation():
    X, y = samples(noise=1.0)
    settings = {"backbone": nn.Linear(3, 8)}
    by_class = quick(**settings, class_weight={1: 3.0, 2: 0.5}).fit(X, y)
    by_sample = quick(**settings).fit(X, y, sample_weight=np.array([1, 3, 0.5, 1])[y])
    assert same(by_class, by_sample)
    assert not same(by_class, quick(**settings).fit(X, y))


def test_an_ordered_categorical_brings_its_order():
    X, y = samples(num_classes=3)
    words = ["low", "mid", "high"]
    series = pd.Series(pd.Categorical([words[i] for i in y], categories=words, ordered=True))
    model = quick().fit(X, series)
    assert model.classes_.tolist() == words
    assert same(model, plain_fit(num_classes=3))
    assert quick().fit(X, pd.DataFrame({"grade": series})["grade"]).classes_.tolist() == words
    with pytest.warns(UserWarning, match="y has strings"):
        unordered = quick().fit(X, series.cat.as_unordered())
    assert unordered.classes_.tolist() == sorted(words)
    assert quick(classes=words[::-1]).fit(X, series).classes_.tolist() == words[::-1]


def test_balanced_is_what_scikit_learn_means():
    X, y = samples()
    there = (y != 0) | (np.arange(len(y)) % 3 == 0)
    X, y = X[there], y[there]
    by_hand = dict(enumerate(compute_class_weight("balanced", classes=np.unique(y), y=y)))
    assert same(quick(class_weight="balanced").fit(X, y), quick(class_weight=by_hand).fit(X, y))


@pytest.mark.parametrize("method", ["hard-linear", "classification"])
def test_balanced_weights_raise_the_recall_of_a_rare_class(method):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [300, 300, 20])
    X = y[:, None] + rng.normal(scale=0.8, size=(620, 2))

    def recall(class_weight):
        model = quick(method, epochs=10, class_weight=class_weight).fit(X, y)
        return (model.predict(X[y == 2]) == 2).mean()

    assert recall("balanced") > recall(None) + 0.1


# randomness


def test_the_seed_decides_everything():
    X, y = samples()
    first, again, other = (quick(random_state=seed).fit(X, y) for seed in (1, 1, 2))
    assert same(first, again)
    assert not same(first, other)


def test_a_generator_is_used_up_as_in_scikit_learn():
    X, y = samples()
    generator = np.random.RandomState(0)
    model = quick(random_state=generator)
    first = copy.deepcopy(model.fit(X, y))
    assert not same(first, model.fit(X, y))
    assert same(first, quick(random_state=np.random.RandomState(0)).fit(X, y))


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 8)

    def forward(self, x):
        return nn.functional.dropout(self.linear(x), 0.5, self.training)


@pytest.mark.parametrize("backbone", ["mlp", Dropping()])
def test_a_seeded_fit_leaves_the_global_generators_alone(features):
    X, y = samples()
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    first = quick(features=features).fit(X, y)
    assert torch.equal(torch.get_rng_state(), torch_before)
    np.testing.assert_equal(np.random.get_state(), numpy_before)  # noqa: NPY002
    torch.rand(3)  # nor does the fit depend on them
    assert same(first, quick(features=features).fit(X, y))


class Dawdling(Dropping):
    def forward(self, x):
        time.sleep(1e-4)  # another thread's turn
        return super().forward(x)


def test_fits_in_threads_do_not_disturb_each_other():
    X, y = samples()
    given, before = Dawdling(), torch.get_rng_state()
    models = [quick(features=given, random_state=seed) for seed in (1, 2, 1, 2)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda model: model.fit(X, y), models))
    assert torch.equal(torch.get_rng_state(), before)
    assert same(models[0], models[2])
    assert same(models[1], models[3])
    assert same(models[0], quick(features=given, random_state=1).fit(X, y))


# modules as features


class TinyConvNet(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.last = nn.Linear(4, dim)

    def forward(self, x):
        assert x.dtype == torch.float32
        return self.last(self.body(x))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_images_of_a_module_of_ones_own(dtype):
    rng = np.random.default_rng(0)
    y = np.arange(66) % 3
    X = (40 * y[:, None, None, None] + rng.uniform(0, 40, size=(66, 3, 8, 8))).astype(dtype)
    given = TinyConvNet()
    before = copy.deepcopy(given.state_dict())
    model = quick(features=given, epochs=15).fit(X, y)
    assert model.transform(X).shape == (66, 8)
    assert model.score(X, y) > 0.7
    assert model.backbone_ is not given
    assert all(torch.equal(value, before[name]) for name, value in given.state_dict().items())
    assert given.training


def test_a_given_module_starts_from_its_own_weights():
    X, y = samples()
    given = nn.Linear(3, 8)
    rate = {"learning_rate": 1e-12, "weight_decay": 0}
    model = quick(features=given, **rate, epochs=1).fit(X, y)
    torch.testing.assert_close(model.backbone_.weight, given.weight)


def test_embeddings_need_no_features_of_their_own():
    X, y = samples()
    model = quick(features=nn.Identity(), dim=3, epochs=20, recipe="paper").fit(X, y)
    np.testing.assert_array_equal(model.transform(X), X.astype(np.float32))
    assert model.score(X, y) > 0.5


def test_a_lazy_module_finds_its_own_width():
    X, y = samples()
    assert quick(features=nn.LazyLinear(8)).fit(X, y).features_.in_features == 3


def test_a_module_of_another_precision_is_trained_in_float32():
    X, y = samples()
    model = quick(features=nn.Linear(3, 8).double()).fit(X, y)
    assert model.backbone_.weight.dtype == torch.float32


def test_the_default_precision_of_torch_does_not_matter():
    X, y = samples()
    plain = plain_fit()
    torch.set_default_dtype(torch.float64)
    try:
        model = quick().fit(X, y)
    finally:
        torch.set_default_dtype(torch.float32)
    assert model.head_.layout.proxies().dtype == torch.float32
    assert model.predict(X).shape == plain.predict(X).shape


def test_a_module_that_works_in_place_does_not_change_x():
    X, y = samples(noise=2.0)
    X = X.astype(np.float32)
    before = X.copy()
    model = quick(features=nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 8))).fit(X, y)
    model.predict(X)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize(
    "kind",
    [
        lambda X: X[:, ::-1][:, ::-1],
        lambda X: X[::-1][::-1],
        np.asfortranarray,
        lambda X: X.astype(">f8"),
        lambda X: X.tolist(),
        lambda X: X.astype(object),
    ],
)
def test_it_does_not_matter_how_x_lies_in_memory(kind):
    X, y = samples()
    assert same(plain_fit(), quick().fit(kind(X), y))
    found = plain_fit().predict_proba(kind(X))
    np.testing.assert_array_equal(found, plain_fit().predict_proba(X))


@pytest.mark.parametrize("kind", [list, tuple, pd.Series, pd.Categorical, lambda y: y.astype("O")])
def test_it_does_not_matter_how_labels_are_kept(kind):
    X, y = samples(num_classes=3)
    names = np.array(["1st", "2nd", "3rd"])[y]
    model = quick().fit(X, kind(names))
    assert same(model, plain_fit(num_classes=3))
    assert model.classes_.tolist() == ["1st", "2nd", "3rd"]


# company


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("backbone", ["mlp", nn.Linear(3, 8)])
def test_a_copy_predicts_the_same(twin, features):
    X, y = samples()
    model = quick(features=features).fit(X, y)
    np.testing.assert_array_equal(twin(model).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("backbone", ["mlp", nn.Linear(3, 8)])
def test_a_clone_is_unfitted_and_fits_the_same(features):
    X, y = samples()
    model = quick(features=features).fit(X, y)
    twin = clone(model)
    assert not hasattr(twin, "classes_")
    assert same(twin.fit(X, y), model)


def test_a_pipeline_can_be_searched_over_methods():
    X, y = samples(num_classes=3)
    names = np.array(["low", "mid", "high"])
    pipeline = make_pipeline(StandardScaler(), quick(classes=["low", "mid", "high"], epochs=5))
    search = GridSearchCV(
        pipeline,
        {"ordinalclassifier__method": ["hard-linear", "soft-poisson", "classification"]},
        scoring=negative_mae,
        cv=2,
        error_score="raise",
    ).fit(X, names[y])
    assert set(names) == set(search.predict(X))
    assert negative_mae(search, X, names[y]) > -0.5
    assert (search.cv_results_["mean_test_score"] <= 0).all()


@pytest.mark.slow
def test_cross_validation_in_parallel_gives_the_same():
    X, y = samples()
    alone, together = (
        cross_val_score(quick(epochs=4), X, y, cv=2, scoring=negative_mae, n_jobs=jobs)
        for jobs in (None, 2)
    )
    np.testing.assert_array_equal(alone, together)


@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names:UserWarning")
@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_dataframe_column_names_consistency,
        estimator_checks.check_transformer_get_feature_names_out,
        estimator_checks.check_transformer_get_feature_names_out_pandas,
        estimator_checks.check_set_output_transform,
        estimator_checks.check_set_output_transform_pandas,
        estimator_checks.check_global_output_transform_pandas,
        estimator_checks.check_inplace_ensure_writeable,
    ],
)
def test_data_frames_are_welcome(check):
    check("OrdinalClassifier", quick(epochs=2))


def test_a_data_frame_gives_what_its_values_give():
    X, y = samples()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = quick().fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(model.predict(frame), plain_fit().predict(X))


def test_negative_mae_counts_ranks():
    class Always:
        classes_ = np.array(["low", "mid", "high"])

        def predict(self, X):
            return np.full(len(X), "low")

    y = ["low", "mid", "high", "high"]
    assert negative_mae(Always(), np.zeros((4, 1)), y) == -5 / 4
    assert negative_mae(Always(), np.zeros((4, 1)), y, sample_weight=[1, 1, 0, 0]) == -1 / 2


@pytest.mark.slow
def test_the_core_will_do_and_progress_is_shown_without_rich():
    """A fit needs none of the libraries that runs on disk need."""
    extras = "accelerate", "pydantic", "rich", "safetensors", "pandas", "timm", "torchvision", "PIL"
    extras += ("natsort",)
    code = f"""
import sys
sys.modules |= dict.fromkeys({extras!r})
from sklearn.datasets import load_iris
from layline import OrdinalClassifier
X, y = load_iris(return_X_y=True)
OrdinalClassifier(dim=4, epochs=2, random_state=0, verbose=1).fit(X, y).predict(X)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    first, second = done.stderr.splitlines()
    assert re.match(r"epoch 1/2  loss \S+  val loss \S+  val MAE \S+  accuracy \S+  best", first)
    assert second.startswith("epoch 2/2")


@pytest.mark.parametrize(("verbose", "lines"), [(0, 0), (1, 3)])
def test_progress_goes_to_stderr(capsys, verbose, lines):
    quick(verbose=verbose).fit(*samples())
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == lines
    assert captured.out == ""


@pytest.mark.parametrize("by_class", [False, True])
def test_ranges_hold_the_truth_as_often_as_they_promise(by_class):
    X, y = samples(4000, num_classes=3, noise=1.0)
    names = np.array(["low", "mid", "top"])
    model = quick("arc", epochs=2, calibration_fraction=0.5, classes=names)
    model.fit(X[:2000], names[y[:2000]])
    low, high, decided = (
        np.searchsorted(names, labels)
        for labels in (
            *model.predict_range(X[2000:], coverage=0.8, by_class=by_class),
            model.predict(X[2000:]),
        )
    )
    assert ((low <= decided) & (decided <= high)).all()
    held = (low <= y[2000:]) & (y[2000:] <= high)
    shares = [held[y[2000:] == k].mean() for k in range(3)] if by_class else [held.mean()]
    assert min(shares) >= 0.72  # 0.8 but for the luck of 900 samples, 300 of a class
    assert (high - low).mean() < 2


def test_nothing_is_kept_apart_without_validation_or_for_the_paper():
    X, y = samples()
    for model in (quick(validation_fraction=0), quick(recipe="paper")):
        model.fit(X, y)
        assert len(model.calibration_.scores) == 0
        with pytest.raises(ValueError, match=r"calibration_fraction=0\.1"):
            model.predict_range(X)


def test_probabilities_and_decisions_follow_the_temperature():
    X, y = samples(600, noise=1.0)
    model = quick(epochs=2, decode="median").fit(X, y)
    assert model.calibration_.temperature != 1
    proba = model.predict_proba(X)
    expected = model.classes_[(proba.cumsum(axis=1) >= 0.5).argmax(axis=1)]
    assert np.array_equal(model.predict(X), expected)


def test_a_decision_can_follow_from_costs():
    X, y = samples(600, noise=1.0)
    costs = np.ones((4, 4)) - np.eye(4)
    costs[3, :3] = 50  # the highest class must not be missed
    careful, plain = (quick(decode=decode).fit(X, y) for decode in (costs, "mode"))
    found = [np.mean(model.predict(X)[y == 3] == 3) for model in (careful, plain)]
    assert found[0] > found[1]
    with pytest.raises(ValueError, match="row for each true class"):
        quick(decode=np.ones((3, 3))).fit(X, y)


@pytest.mark.parametrize("wrong", [-0.1, 1, "0.1"])
def test_a_share_to_keep_apart_is_below_one(wrong):
    with pytest.raises(ValueError, match=r"calibration_fraction must be a number in \[0, 1\)"):
        quick(calibration_fraction=wrong).fit(*samples())
