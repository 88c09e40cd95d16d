"""Scores against a count by hand."""

import numpy as np

from ssedb.collect.scores import Scores


def test_scores_of_episodes_continue_across_rollouts():
    scores = Scores(2)
    first = scores.add(
        np.array([[1.0, 10.0], [2.0, 20.0]]), np.array([[False, False], [False, True]])
    )
    assert first == {
        "score": 30.0,
        "score_rollout": 30.0,
        "score_rollout_best": 30.0,
        "score_best": 30.0,
        "episodes": 1,
    }
    second = scores.add(np.array([[4.0, 1.0]]), np.array([[True, False]]))
    assert second == {
        "score": 18.5,
        "score_rollout": 7.0,
        "score_rollout_best": 7.0,
        "score_best": 30.0,
        "episodes": 2,
    }


def test_scores_of_a_new_episode_begin_at_zero():
    scores = Scores(2)
    ends = np.array([[True, False], [True, True]])
    row = scores.add(np.array([[3.0, 1.0], [5.0, 1.0]]), ends)
    assert (row["score"], row["episodes"]) == ((3 + 5 + 2) / 3, 3)
    assert row["score_best"] == row["score_rollout_best"] == 5.0


def test_scores_without_an_episode_are_none_and_negative_ones_count():
    scores = Scores(1)
    nothing = scores.add(np.array([[1.0]]), np.array([[False]]))
    assert nothing["score"] is None
    assert nothing["score_rollout"] is None
    assert scores.add(np.array([[-5.0]]), np.array([[True]]))["score_best"] == -4.0


def test_best_score_is_kept_through_worse_rollouts_and_a_checkpoint():
    scores = Scores(1)
    for reward in (5.0, 2.0):
        row = scores.add(np.array([[reward]]), np.array([[True]]))
    assert (row["score_best"], row["score_rollout_best"]) == (5.0, 2.0)
    twin = Scores(1)
    twin.load_state_dict(scores.state_dict())
    assert twin.add(np.array([[1.0]]), np.array([[True]]))["score_best"] == 5.0


def test_mean_score_counts_only_the_last_hundred_episodes():
    scores = Scores(1)
    for value in range(150):
        row = scores.add(np.array([[float(value)]]), np.array([[True]]))
    assert row["score"] == np.mean(range(50, 150))
    twin = Scores(1)
    twin.load_state_dict(scores.state_dict())
    assert twin.summary() == scores.summary()


def test_scores_of_unfinished_episodes_are_forgotten():
    scores = Scores(2)
    scores.add(np.array([[7.0, 3.0]]), np.array([[False, True]]))
    scores.forget_unfinished()
    row = scores.add(np.array([[1.0, 2.0]]), np.array([[True, True]]))
    assert (row["score_rollout"], row["score"], row["episodes"]) == (1.5, 2.0, 3)
