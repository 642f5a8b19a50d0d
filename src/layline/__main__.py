"""``python -m layline``, and ``accelerate launch -m layline`` for several processes."""

from layline.cli import main

main()
