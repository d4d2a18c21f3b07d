"""How often the estimator of T-local optima errs, as its samples grow, where every optimum is known.

    python benchmarks/optima.py [--problems N]

Optima of depth 1, 3 and 20 are planted into the exact values of two small worlds. With exact dynamics and the
true best state none is missed or taken for less deep than it is, so the first table has no such columns:
"false" are states taken for optima that are none, "too deep" optima taken for deeper than they are, by
"excess" steps on average, up to the horizon. The second table shows optima that are missed where the best of
some random states stands for the best of all, with the sequences and the horizon of the paper.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from gridworld import Grid
from planted import OPEN, ROOMS, error_rates

WORLDS = {"open": OPEN, "rooms": ROOMS}
DEPTHS = (1, 3, 20)
SEQUENCES = (1, 2, 5, 10, 20, 50, 200, 1000)
POOLS = (1, 3, 10, 30, 100, 300)
HORIZON, PLANNED = 30, 15


def sequence_table(grid: Grid, count: int) -> None:
    print(f"{'sequences':>10}   false" + "".join(f"   depth {d:<2}: too deep  excess" for d in DEPTHS))
    for sequences in SEQUENCES:
        others = 20 if sequences <= 50 else 2  # beyond, hardly any is false
        rates = [
            error_rates(grid, depth, sequences=sequences, horizon=HORIZON, count=count, others=others)
            for depth in DEPTHS
        ]
        assert all(rate.missed == rate.too_shallow == 0 for rate in rates)
        false = sum(rate.false for rate in rates) / len(rates)
        columns = "".join(f"{rate.too_deep:>21.1%}{rate.excess:>8.1f}" for rate in rates)
        print(f"{sequences:>10}{false:>8.1%}{columns}")


def pool_table(grid: Grid, count: int) -> None:
    print("random states" + "".join(f"   depth {depth:<2}: missed" for depth in DEPTHS))
    for pool in POOLS:
        missed = [
            error_rates(grid, depth, sequences=50, horizon=PLANNED, pool=pool, count=count, others=0).missed
            for depth in DEPTHS
        ]
        print(f"{pool:>13}" + "".join(f"{share:>19.1%}" for share in missed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=40, help="planted optima per figure")
    count = parser.parse_args().problems
    for name, plan in WORLDS.items():
        grid = Grid(plan)
        print(f"{name}: {len(grid)} cells, horizon {HORIZON}, the best state known")
        sequence_table(grid, count)
        print(f"{name}: horizon {PLANNED}, 50 sequences, the best state that of random ones")
        pool_table(grid, count)


if __name__ == "__main__":
    main()
