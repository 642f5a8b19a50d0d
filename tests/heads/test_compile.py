import subprocess
import sys

import pytest

COMPILE_ALL = """
import torch
from layline.heads import create, names

features, ranks = torch.randn(40, 8, requires_grad=True), torch.arange(40) % 5
traced = set()
for name in names():
    head = create(name, 5, 8)
    parts = (getattr(head, part, None) for part in ("layout", "similarity", "smoothing"))
    kind = (type(head), *(type(part) for part in parts))
    if kind in traced:  # heads of one kind differ in their options only
        continue
    traced.add(kind)
    torch.compiler.reset()
    function = lambda f, r: (head.loss(f, r), head.log_probs(f), head.predict(f))
    # aot_eager also traces the backward pass
    backend = "aot_eager" if name in ("hard-linear", "arc", "gp-dnnor") else "eager"
    results = []
    for each in (torch.compile(function, backend=backend, fullgraph=True), function):
        torch.manual_seed(0)  # for the losses that draw random numbers
        results.append(each(features, ranks))
    torch.testing.assert_close(*results)
    print(name)
"""


@pytest.mark.slow
def test_every_head_compiles_without_a_break_in_the_graph():
    """In a process of its own: the shape checks of the tests are not made for the compiler."""
    result = subprocess.run(
        [sys.executable, "-c", COMPILE_ALL], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "hard-linear" in result.stdout
