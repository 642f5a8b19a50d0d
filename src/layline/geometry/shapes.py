"""Shapes of tensors: n samples, K classes, features of length d. Tests check them."""

from jaxtyping import Float, Int
from torch import Tensor

Scalar = Float[Tensor, ""]
Features = Float[Tensor, "n d"]
Proxies = Float[Tensor, "K d"]
Ranks = Int[Tensor, " n"]
PerSample = Float[Tensor, " n"]
PerClass = Float[Tensor, "n K"]
