import subprocess
import sys

import pytest

COMPILE_ALL = """
import torch
from layline.heads import create, names

features, ranks = torch.randn(40, 8, requires_grad=True), torch.arange(40) % 5
for name in names():
    head = create(name, 5, 8)
    torch.compiler.reset()
    for function in (head.loss, lambda f, r: head.log_probs(f), lambda f, r: head.predict(f)):
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(features, ranks), function(features, ranks))
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
