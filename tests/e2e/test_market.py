# SPDX-License-Identifier: Apache-2.0
"""Markets of `tony allocate`: are the bids an equilibrium? The best response here is computed in another way than in the program."""

import json
import random
import subprocess

import pytest
from conftest import BIN


def ask(instance):
    done = subprocess.run([str(BIN / "tony"), "allocate"], input=json.dumps(instance), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def others(instance, bids, user):
    """The sum of the bids of all other users on each machine, with the reserve price."""
    return [instance.get("reserve", 0.0) + sum(row[j] for i, row in enumerate(bids) if i != user) for j in range(len(bids[0]))]


def utility(weights, bids, prices, machines):
    gains = (w * x / (x + y) if x > 0 else 0.0 for w, x, y in zip(weights, bids, prices))
    return sum(sorted(gains, reverse=True)[:machines])


def best_response(weights, prices, budget):
    """The bids with which the user gains most if the others bid y. The marginal utility of a bid x is w * y / (x +
    y)^2; bisection finds the level that uses up the budget."""
    def spend(worth):
        return [max(0.0, (w * y / worth) ** 0.5 - y) for w, y in zip(weights, prices)]
    low, high = 1e-15, max(w / y for w, y in zip(weights, prices) if w > 0) + 1.0
    for _ in range(300):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if sum(spend(middle)) > budget else (low, middle)
    return spend(high)


def random_gain(rng, weights, bids, prices, machines):
    """The largest gain by many random changes, each of which moves a part of a bid to another machine."""
    now = best = utility(weights, bids, prices, machines)
    used = [j for j, x in enumerate(bids) if x > 0]
    for _ in range(300):
        source, target, part = rng.choice(used), rng.randrange(len(bids)), rng.random() ** 2
        other = list(bids)
        other[source] -= part * bids[source]
        other[target] += part * bids[source]
        best = max(best, utility(weights, other, prices, machines))
    return best - now


def made(rng, users, machines, **extra):
    return {"kind": "market", "weights": [[rng.uniform(0.05, 1) for _ in range(machines)] for _ in range(users)], "budgets": [1.0] * users, **extra}


CASES = [(2, 2), (2, 10), (3, 5), (5, 8), (8, 20), (20, 30), (40, 12)]


@pytest.mark.parametrize("users, machines", CASES)
@pytest.mark.parametrize("extra", [{}, {"reserve": 0.01}, {"reserve": 0.5}], ids=["plain", "small-reserve", "large-reserve"])
def test_nobody_gains_by_other_bids(users, machines, extra):
    rng = random.Random(100 * users + machines)
    instance = made(rng, users, machines, **extra)
    instance["budgets"] = [rng.uniform(0.2, 3) for _ in range(users)]
    result = ask(instance)
    assert result["converged"] and 0 <= result["residual"] < 1e-6
    for i, row in enumerate(result["bids"]):
        assert min(row) >= 0 and sum(row) == pytest.approx(instance["budgets"][i], rel=1e-9)
        prices, weights = others(instance, result["bids"], i), instance["weights"][i]
        now = utility(weights, row, prices, machines)
        assert utility(weights, best_response(weights, prices, instance["budgets"][i]), prices, machines) <= now * (1 + 1e-6)
        assert random_gain(rng, weights, row, prices, machines) <= 1e-6 * now


@pytest.mark.parametrize("users, machines", CASES)
def test_bounds_for_equal_budgets(users, machines):
    """Uniformity is at least 1 / users and envy at least 2 sqrt 2 - 2; with two users efficiency is at least 3 / 4."""
    for seed in range(5):
        instance = made(random.Random(seed), users, machines)
        for row in instance["weights"]:  # the bounds are for users to whom all machines together are worth the same
            total = sum(row)
            row[:] = [w / total for w in row]
        result = ask(instance)
        bids, price = result["bids"], [sum(column) for column in zip(*result["bids"])]
        worth = [[sum(w * x / p for w, x, p in zip(weights, row, price)) for row in bids] for weights in instance["weights"]]
        own = [worth[i][i] for i in range(users)]
        efficiency = sum(own) / sum(max(column) for column in zip(*instance["weights"]))
        envy = min(own[i] / max(worth[i]) for i in range(users))
        assert result["efficiency"] == pytest.approx(efficiency, rel=1e-9)
        assert result["uniformity"] == pytest.approx(min(own) / max(own), rel=1e-9)
        assert result["envy"] == pytest.approx(envy, rel=1e-9)
        assert min(own) / max(own) >= 1 / users - 1e-9
        assert envy >= 2 * 2 ** 0.5 - 2 - 1e-9
        assert users != 2 or efficiency >= 0.75 - 1e-9


@pytest.mark.parametrize("users, machines", [(3, 5), (5, 8), pytest.param(8, 20, marks=pytest.mark.slow)])
def test_finite_parallelism(users, machines):
    """Each user bids on as many machines as it can use at most; other bids on the same machines, and one exchange of machines, gain nothing.

    Such a market need not have an equilibrium, so only the markets that converge are looked at.
    """
    converged = 0
    for seed in range(8):
        rng = random.Random(100 * users + seed)
        instance = made(rng, users, machines, reserve=0.01, parallel=[rng.randint(1, machines) for _ in range(users)])
        result = ask(instance)
        assert all(sum(row) == pytest.approx(1, rel=1e-9) for row in result["bids"])
        if result["converged"]:
            converged += 1
            nobody_gains_with_finite_parallelism(instance, result)
    print(f"{converged} of 8 markets converged")
    assert converged >= 4


def nobody_gains_with_finite_parallelism(instance, result):
    machines = len(instance["weights"][0])
    for i, row in enumerate(result["bids"]):
        limit, prices, weights = instance["parallel"][i], others(instance, result["bids"], i), instance["weights"][i]
        used = [j for j, x in enumerate(row) if x > 0]
        assert len(used) <= limit and sum(row) == pytest.approx(1, rel=1e-9)
        now = utility(weights, row, prices, limit)
        for out in [None, *used]:
            for new in [None] if out is None else [j for j in range(machines) if j not in used]:
                chosen = [j for j in used if j != out] + ([] if new is None else [new])
                bids = best_response([weights[j] for j in chosen], [prices[j] for j in chosen], 1.0)
                assert utility([weights[j] for j in chosen], bids, [prices[j] for j in chosen], limit) <= now * (1 + 1e-6)


def test_a_machine_wanted_by_one_user_needs_a_reserve():
    instance = {"kind": "market", "weights": [[1.0, 1.0], [0.0, 1.0]], "budgets": [1.0, 1.0], "reserve": 0.1}
    result = ask(instance)
    assert result["converged"] and result["bids"][1][0] == 0
    instance["reserve"] = 0.0
    assert sum(ask(instance)["bids"][0]) == pytest.approx(1)  # no equilibrium exists: the answer still spends the budget


def test_the_check_refuses_bids_that_are_no_equilibrium():
    weights, prices = [1.0, 3.0], [1.0, 1.0]
    now = utility(weights, [0.5, 0.5], prices, 2)
    assert utility(weights, best_response(weights, prices, 1.0), prices, 2) > now * 1.01
    assert random_gain(random.Random(1), weights, [0.5, 0.5], prices, 2) > 0.01 * now
