r"""Plain classification: a linear layer and cross entropy. It knows nothing of the order.

.. math:: P(f) = \operatorname{softmax}(W f + b), \qquad L(f, k^*) = -\log P_{k^*}(f)
"""

from layline.heads.softmax import SoftmaxHead


class Classification(SoftmaxHead):
    """The baseline that every ordinal method must beat.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
    """

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim)
