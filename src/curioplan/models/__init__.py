"""Networks: the batched MLP, the running normaliser and the Gaussian dynamics ensemble."""

from curioplan.models.ensemble import GaussianEnsemble
from curioplan.models.mlp import BatchedMLP
from curioplan.models.normaliser import Normaliser

__all__ = ["BatchedMLP", "GaussianEnsemble", "Normaliser"]
