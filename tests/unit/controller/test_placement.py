"""Who goes where: slots on nodes without GPUs, bundles with them."""

from __future__ import annotations

import pytest

from relax.arguments.groups import ClusterSettings
from relax.controller.placement import plan
from relax.controller.seats import HERE, Seats, choose_seats
from relax.errors import ArgumentError


def settings(**changes) -> ClusterSettings:
    return ClusterSettings(**({"actor_num_gpus_per_node": 2} | changes))


def test_without_gpus_ranks_fill_the_nodes_and_engines_go_round():
    places = plan(settings(actor_num_nodes=3), has_gpu=False, trainers=6, engines=4)
    assert [slot.node for slot in places.trainers] == [0, 0, 1, 1, 2, 2]
    assert [slot.node for slot in places.engines] == [0, 1, 2, 0]
    assert places.bundles == ()


def test_on_one_node_everything_is_on_it():
    places = plan(settings(), has_gpu=False, trainers=2, engines=3)
    assert {slot.node for slot in (*places.trainers, *places.engines)} == {0}


def test_with_gpus_each_has_bundles_of_its_own():
    told = settings(rollout_num_gpus_per_engine=2)
    places = plan(told, has_gpu=True, trainers=2, engines=2)
    assert places.bundles == (1, 1, 2, 2)
    assert [slot.bundle for slot in places.trainers] == [0, 1]
    assert [(slot.bundle, slot.gpus) for slot in places.engines] == [(2, 2), (3, 2)]


def test_colocated_two_share_the_gpu_of_a_bundle():
    places = plan(settings(colocate=True), has_gpu=True, trainers=2, engines=1)
    assert places.bundles == (1, 1)
    assert [slot.gpus for slot in (*places.trainers, *places.engines)] == [0.5] * 3
    with pytest.raises(ArgumentError, match="--rollout-num-gpus-per-engine 2"):
        plan(
            settings(colocate=True, rollout_num_gpus_per_engine=2),
            has_gpu=True,
            trainers=2,
            engines=1,
        )


def test_a_private_ray_needs_no_node_and_no_environment():
    seats = choose_seats(settings(), None, environment={"OMP_NUM_THREADS": "1"})
    assert isinstance(seats, Seats)
    assert seats.others == []
    seat = seats.spread(5)
    assert seat.node == HERE
    assert seat.options == {"num_cpus": 0, "max_restarts": 0}
