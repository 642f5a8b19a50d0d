"""Learning curves and similarities of proxies."""

import numpy as np
import pytest

from layline.reports.figures.learning import curves
from layline.reports.figures.similarities import similarity_figures

HISTORY = [{"epoch": 1, "a": 3.0, "b": 2.0}, {"epoch": 2, "a": 1.0}]


def test_a_number_that_is_missing_leaves_a_gap():
    first, second = curves(HISTORY, {"a": "one", "b": "two"}, 2, "Both")["data"]
    assert (first["x"], first["y"], first["name"]) == ([1, 2], [3.0, 1.0], "one")
    assert second["y"] == [2.0, None]
    assert first["line"].get("dash") != second["line"].get("dash")  # not by hue alone


def test_the_kept_epoch_is_marked():
    layout = curves(HISTORY, {"a": "one"}, 2, "One")["layout"]
    assert layout["shapes"][0]["x0"] == layout["shapes"][0]["x1"] == 2
    assert layout["annotations"][0]["text"] == "kept: 2"


def test_a_single_epoch_is_a_point():
    (trace,) = curves(HISTORY[:1], {"a": "one"}, 1, "One")["data"]
    assert "markers" in trace["mode"]


@pytest.mark.parametrize("num_classes", [2, 10, 40])
def test_q_and_u_share_a_scale_and_their_difference_is_centred(num_classes):
    rng = np.random.default_rng(0)
    q, u = rng.dirichlet(np.ones(num_classes), (2, num_classes))
    found = similarity_figures(q, u, [str(k) for k in range(num_classes)])
    heat = {name: figure["data"][0] for name, figure in found.items()}
    assert set(heat) == {"q", "u", "difference"}
    assert heat["q"]["zmax"] == heat["u"]["zmax"] == max(q.max(), u.max())
    assert heat["difference"]["zmin"] == -heat["difference"]["zmax"]
    np.testing.assert_allclose(heat["difference"]["z"], q - u, atol=1e-5)
    assert ("texttemplate" in heat["q"]) == (num_classes <= 10)


def test_without_a_smoothing_there_is_q_alone():
    assert set(similarity_figures(np.eye(3), None, ["a", "b", "c"])) == {"q"}
