"""Action spaces: vectors, distributions, random actions and codes."""

import gymnasium
import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Independent, Normal

from ssedb.actions import Box, Choices, action_space, from_data, to_data
from ssedb.errors import ConfigError

SEVERAL = Choices((3, 2, 4))
BOX = Box((-2.0, 0.0, -float("inf")), (2.0, 10.0, float("inf")))
SPACES = {"one": action_space(5), "several": SEVERAL, "box": BOX}
by_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)


def outputs_of(space, rows=7):
    numbers = space.width * (1 + isinstance(space, Box))  # a mean and a std, or a logit
    return torch.randn(rows, numbers, generator=torch.Generator().manual_seed(1)).double()


def drawn(space, outputs):
    torch.manual_seed(2)
    return space.draw(outputs, space.fill(outputs.new_empty(len(outputs), space.width)))


def distributions(space, outputs):
    if isinstance(space, Box):
        return [Independent(Normal(outputs[:, :3], outputs[:, 3:].exp()), 1)]
    return [Categorical(logits=part) for part in outputs.split(space.sizes, -1)]


def columns(space, actions):
    return list(actions.unbind(-1)) if space == SEVERAL else [actions]


@by_space
def test_evaluate_equals_torch_distributions(space):
    outputs = outputs_of(space)
    actions, _ = drawn(space, outputs)
    log_probs, entropies = space.evaluate(outputs, actions)
    plain = list(zip(distributions(space, outputs), columns(space, actions), strict=True))
    torch.testing.assert_close(log_probs, sum(d.log_prob(a) for d, a in plain))
    torch.testing.assert_close(entropies, sum(d.entropy() for d, _ in plain))


@by_space
def test_draw_returns_the_log_probabilities_of_evaluate(space):
    outputs = outputs_of(space)
    actions, log_probs = drawn(space, outputs)
    assert actions.shape == (7, *space.shape)
    torch.testing.assert_close(log_probs, space.evaluate(outputs, actions)[0])


def test_draws_of_several_choices_are_independent_and_follow_their_logits():
    outputs = torch.tensor([0.0, 1.0, 2.0, 0.0, 1.0, 0.5, 0.0, 0.0, 0.0]).expand(40_000, 9)
    actions, _ = drawn(SEVERAL, outputs)
    parts = zip(actions.unbind(-1), outputs[0].split(SEVERAL.sizes), strict=True)
    for choice, logits in parts:
        shares = torch.bincount(choice, minlength=len(logits)) / len(choice)
        torch.testing.assert_close(shares, logits.softmax(-1), atol=0.01, rtol=0)
    correlation = np.corrcoef(actions.T.numpy())
    assert np.abs(correlation - np.eye(3)).max() < 0.02


def test_draws_of_a_box_have_the_mean_and_the_std_of_the_outputs():
    mean, log_std = torch.tensor([0.5, 9.0, -3.0]), torch.tensor([0.0, -1.0, 1.0])
    actions, _ = drawn(BOX, torch.cat([mean, log_std]).expand(40_000, 6))
    torch.testing.assert_close(actions.mean(0), mean, atol=0.05, rtol=0)
    torch.testing.assert_close(actions.std(0).log(), log_std, atol=0.02, rtol=0)
    assert (actions[:, 1] > 10).any()  # what a policy draws is kept as it is


def test_vector_of_choices_is_their_one_hot_vectors_side_by_side():
    assert action_space(3).vector(torch.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert SEVERAL.vector(torch.tensor([[1, 0, 3]])).tolist() == [[0, 1, 0, 1, 0, 0, 0, 0, 1]]


def test_vector_of_a_box_is_the_action_within_the_bounds():
    actions = torch.tensor([[-3.0, 11.0, 99.0], [1.5, 2.0, -99.0]])
    within = [[-2.0, 10.0, 99.0], [1.5, 2.0, -99.0]]
    assert BOX.vector(actions).tolist() == within
    assert BOX.clip(actions).tolist() == within


def test_errors_are_cross_entropy_of_choices_and_squares_of_a_box():
    actions = torch.tensor([[2, 1, 0]])
    guess = torch.randn(1, 9, generator=torch.Generator().manual_seed(0)).double()
    parts = zip(guess[0].split(SEVERAL.sizes), actions[0], strict=True)
    expected = -sum(float(part.log_softmax(-1)[choice]) for part, choice in parts)
    assert float(SEVERAL.errors(guess, actions)) == pytest.approx(expected)
    # The first dimension counts from its bound, 2, not from 5.
    error = BOX.errors(torch.tensor([[1.0, 4.0, 0.0]]), torch.tensor([[5.0, 1.0, 2.0]]))
    assert error.tolist() == pytest.approx([(1 + 9 + 4) / 3])


@by_space
def test_likeliest_action_has_the_largest_log_probability(space):
    outputs = outputs_of(space)
    if space == BOX:  # a mean within the bounds, which is the mode
        outputs[:, 1] = outputs[:, 1].abs()
        outputs[:, 0].clamp_(-2, 2)
    best = space.likeliest(outputs)
    others = space.random(200, torch.Generator().manual_seed(0))
    for row, action in zip(outputs, best, strict=True):
        top = space.evaluate(row[None], action[None])[0]
        assert (space.evaluate(row.expand(200, -1), others)[0] <= top + 1e-9).all()


def test_likeliest_action_of_a_box_is_within_the_bounds():
    assert BOX.likeliest(torch.tensor([[7.0, -1.0, 50.0, 0, 0, 0]])).tolist() == [[2.0, 0.0, 50.0]]


def test_random_actions_of_a_box_fill_it_evenly_and_are_normal_without_bounds():
    actions = BOX.random(20_000, torch.Generator().manual_seed(0))
    assert actions[:, 0].min() >= -2
    assert actions[:, 0].max() <= 2
    torch.testing.assert_close(actions.mean(0), torch.tensor([0.0, 5.0, 0.0]), atol=0.1, rtol=0)
    stds = torch.tensor([4 / 12**0.5, 10 / 12**0.5, 1.0])
    torch.testing.assert_close(actions.std(0), stds, atol=0.05, rtol=0)


def test_middle_of_a_box_with_one_bound_is_inside_and_random_actions_leave_the_bound():
    box = Box((5.0, -float("inf"), -3.0), (float("inf"), -7.0, float("inf")))
    middle, half = box.scale(torch.device("cpu"))
    assert middle.tolist() == [6.0, -8.0, 0.0]
    assert half.tolist() == [1.0, 1.0, 1.0]
    actions = box.random(20_000, torch.Generator().manual_seed(0))
    assert torch.equal(box.clip(actions), actions)
    torch.testing.assert_close(actions.median(0).values, middle, atol=0.05, rtol=0)
    assert (actions.std(0) > 0.8).all()


def test_random_actions_of_several_choices_take_every_option():
    actions = SEVERAL.random(500, torch.Generator().manual_seed(0))
    assert [sorted(set(choice.tolist())) for choice in actions.unbind(-1)] == [
        [0, 1, 2],
        [0, 1],
        [0, 1, 2, 3],
    ]


def test_codes_tell_combinations_of_choices_and_halves_of_a_box_apart():
    grid = torch.cartesian_prod(*(torch.arange(size) for size in SEVERAL.sizes))
    assert sorted(SEVERAL.code(grid).tolist()) == list(range(SEVERAL.codes))
    assert action_space(5).code(torch.arange(5)).tolist() == [0, 1, 2, 3, 4]
    halves = torch.tensor([[-1.0, 4.0, -1.0], [1.0, 4.0, -1.0], [1.0, 6.0, 1.0]])
    assert BOX.code(halves).tolist() == [0, 1, 7]
    assert BOX.codes == 8


def test_codes_of_very_many_actions_stay_in_64_bits():
    many = Choices((100,) * 30)
    assert (many.code(torch.full((1, 30), 99)) < many.codes).all()
    wide = Box((-1.0,) * 100, (1.0,) * 100)
    assert (wide.code(torch.ones(1, 100)) < wide.codes).all()


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (gymnasium.spaces.Discrete(4, start=2), Choices((4,), single=True)),
        (gymnasium.spaces.MultiDiscrete([3, 2]), Choices((3, 2))),
        (gymnasium.spaces.MultiBinary(3), Choices((2, 2, 2))),
        (gymnasium.spaces.Box(-1, 2, (2,)), Box((-1.0, -1.0), (2.0, 2.0))),
        (gymnasium.spaces.Box(-1, 2, (1, 2)), Box((-1.0, -1.0), (2.0, 2.0))),
        (np.int64(4), Choices((4,), single=True)),
    ],
)
def test_action_space_of_gymnasium_spaces(space, expected):
    assert action_space(space) == expected
    assert action_space(expected) is expected


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (0, "num_actions=0: must be 1 or more"),
        (gymnasium.spaces.Text(3), "actions are Text"),
        (gymnasium.spaces.Box(0, 9, (2,), np.int64), "Box of floats"),
        (gymnasium.spaces.MultiDiscrete([[3, 2]]), "of one dimension"),
        (gymnasium.spaces.Box(0, 1, (0,)), "without a number to choose"),
        (gymnasium.spaces.Box(-1, np.array([1.0, -1.0])), "bounds that are equal leave no choice"),
    ],
)
def test_action_space_of_another_kind_is_refused(space, message):
    with pytest.raises(ConfigError, match=message):
        action_space(space)


@by_space
def test_space_is_restored_from_its_data(space):
    assert from_data(to_data(space)) == space
