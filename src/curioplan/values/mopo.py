"""MOPO (Yu et al., 2020): MBPO that is wary of what its model does not know."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from curioplan.data.relabel import Batch
from curioplan.errors import ConfigError
from curioplan.values.mbpo import MBPO, MBPOConfig


@dataclass(frozen=True)
class MOPOConfig(MBPOConfig):
    """MOPO: MBPO with a penalty on the uncertainty of the model."""

    algo: str = field(default="mopo", init=False)
    penalty: float = 0.1
    """Weight λ of the uncertainty that is taken off every imagined reward."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        super().__post_init__()
        if not self.penalty >= 0:
            raise ConfigError(f"penalty must be at least 0, not {self.penalty}.")


class MOPO(MBPO):
    """MBPO whose imagined rewards are r − λ u(s, a), u(s, a) = ‖max_m σ_m(s, a)‖.

    σ_m is the standard deviation that member m of the model predicts, elite or not, in units of the deviation
    of changes in the data, so that λ means the same in every environment; the maximum is taken in each
    dimension of the state, then the norm over them. (The norm of the most uncertain single member, as in the
    original, is at most that.) Values under a penalty may fall below 0, which a sigmoid cannot say; targets
    are therefore

        y = clip(r − λ u + γ (1 − terminal) V'(s'; g), 0, 1):

    a goal that is not worth its uncertainty is worth nothing. Real transitions bear no penalty.
    """

    Config = MOPOConfig
    config: MOPOConfig

    def rewards(self, reached: Tensor, uncertainty: Tensor) -> Tensor:
        """Penalised rewards r − λ u."""
        return reached - self.config.penalty * uncertainty

    def targets(self, batch: Batch) -> Tensor:
        """TD3's targets of the penalised rewards, clipped to [0, 1]."""
        return super().targets(batch).clamp_(0, 1)
