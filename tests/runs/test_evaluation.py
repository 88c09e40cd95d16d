"""A trained agent plays whole episodes; the video is one a player can read."""

import errno
import itertools
import json
import os
import re
import shutil
import tempfile

import numpy as np
import pytest
import torch

import ssedb
from ssedb.collect import environments
from ssedb.networks import ActorCritic
from ssedb.runs import checkpoint, evaluation
from ssedb.runs.evaluation import evaluate, run_episodes, write_video
from tests.toy import SIDE, Sides, tiny_config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    ssedb.train(
        tiny_config(out, steps=256, obs_norm_steps=100, noise="random-box", max_episode_steps=50)
    )
    return out


def test_evaluation_runs_the_episodes_asked_for_and_records_one(run):
    av = pytest.importorskip("av")
    result = evaluate(run, 3, video=True, seed=7)
    assert len(result.scores) == 3
    assert max(result.lengths) <= 50
    assert json.loads((run / "eval.json").read_text())["scores"] == result.scores
    with av.open(str(result.video)) as file:
        frames = [f.to_ndarray(format="gray") for f in file.decode(video=0)]
    assert len(frames) == result.lengths[0]
    assert frames[0].shape == (176, 176)
    assert evaluate(run, 3, seed=7).scores == result.scores  # and again the same


def test_evaluation_writes_stills_from_the_first_to_the_last_frame(run):
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    result = evaluate(run, 1, stills=4, seed=7)
    picture = imread(result.stills)
    side = 44  # of the small Rooms
    assert picture.shape[:2] == (2 * side, 2 * (4 * side + 3 * evaluation.GAP))
    assert json.loads((run / "eval.json").read_text())["stills"] == str(result.stills)
    with pytest.raises(ssedb.ConfigError, match="stills=101: must be 0 to 100"):
        evaluate(run, 1, stills=101)


def test_stills_are_evenly_spaced_in_their_own_gray(tmp_path):
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    frames = [torch.full((4, 4), 10 * i, dtype=torch.uint8) for i in range(5)]
    picture = imread(evaluation.write_stills(tmp_path / "stills.png", frames, 3))
    columns = (255 * picture[0, :, 0]).round().astype(int).tolist()
    assert columns == [0] * 8 + [255] * 4 + [20] * 8 + [255] * 4 + [40] * 8
    few = imread(evaluation.write_stills(tmp_path / "few.png", frames[:2], 3))
    assert few.shape[1] == 2 * (2 * 4 + evaluation.GAP)


def test_evaluation_runs_one_episode_in_each_environment():
    class Uneven(Sides):
        """Env i ends after 3 + i steps; every step earns 1."""

        def act(self, actions):
            self.age += self.age == 0
            return torch.ones(self.num_envs)

        def step(self, actions):
            step = super().step(actions)
            step.dones = self.count() >= torch.arange(3, 3 + self.num_envs)
            return step

        def count(self):
            self.total = getattr(self, "total", 0) + 1
            return self.total

    torch.manual_seed(0)
    policy = ActorCritic((4, SIDE, SIDE), 2, (4, 4, 4), 8, ("relu",))
    scores, lengths = run_episodes(Uneven(4, episode=10**6), policy)
    assert lengths == [3, 4, 5, 6]
    assert scores == [3.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize("seed", range(3))
def test_evaluation_draws_actions_from_the_policy(seed):
    """3200 draws of a policy that takes action 1 in 30%; the bound is five standard deviations."""

    class Noting(Sides):
        def act(self, actions):
            taken.append(actions)
            return super().act(actions)

    taken = []
    torch.manual_seed(seed)
    policy = ActorCritic((4, SIDE, SIDE), 2, (4, 4, 4), 8, ("relu",))
    with torch.no_grad():
        policy.policy.weight.zero_()
        policy.policy.bias.copy_(torch.tensor([0.7, 0.3]).log())
    run_episodes(Noting(16, episode=200), policy)
    actions = torch.cat(taken).double()
    assert len(actions) == 3200
    assert abs(actions.mean() - 0.3) < 5 * (0.3 * 0.7 / 3200) ** 0.5


@pytest.fixture
def played(run, monkeypatch):
    """Evaluate in batches of two; return each episode's first frames and each batch's actions."""

    def evaluate_in_pairs(episodes, seed):
        firsts, actions = [], []

        def noting(*args, **kwargs):
            env = env_of(*args, **kwargs)
            reset, step = env.reset, env.step
            taken = []
            actions.append(taken)
            env.reset = lambda: firsts.append(reset()) or firsts[-1]
            env.step = lambda chosen: taken.append(chosen.clone()) or step(chosen)
            return env

        monkeypatch.setattr(environments, "env_of", noting)
        assert len(evaluate(run, episodes, seed=seed).scores) == episodes
        return torch.cat(firsts), [torch.stack(taken) for taken in actions]

    env_of = environments.env_of
    monkeypatch.setattr(evaluation, "MOST_ENVS", 2)
    return evaluate_in_pairs


def test_evaluation_begins_every_batch_afresh(played):
    firsts, actions = played(6, seed=7)
    assert len({frame.numpy().tobytes() for frame in firsts}) == 6  # boxes of their own
    assert len(actions) == 3
    for one, other in itertools.combinations(actions, 2):
        shared = min(len(one), len(other))
        assert (
            one[:shared] == other[:shared]
        ).float().mean() < 0.7  # drawn apart; of five actions 0.2 are alike by chance


def test_evaluation_with_the_same_seed_alone_is_the_same(played):
    (frames, (actions,)), (same_frames, (same,)), (other_frames, (other,)) = (
        played(2, seed=seed) for seed in (7, 7, 8)
    )
    assert torch.equal(frames, same_frames)
    assert torch.equal(actions, same)
    assert not torch.equal(frames, other_frames)
    assert (actions[:20] == other[:20]).float().mean() < 0.7


def test_video_shows_the_frames(tmp_path):
    av = pytest.importorskip("av")
    frames = [torch.full((84, 84), value, dtype=torch.uint8) for value in (20, 120, 220)]
    frames[1][:42] = 0
    write_video(tmp_path / "deep" / "film.mp4", frames)
    with av.open(str(tmp_path / "deep" / "film.mp4")) as file:
        shown = [f.to_ndarray(format="gray") for f in file.decode(video=0)]
    assert [int(np.median(f[200:])) for f in shown] == pytest.approx([20, 120, 220], abs=6)
    assert np.median(shown[1][:100]) < 8


def test_video_that_finds_no_space_leaves_the_older_one(tmp_path, monkeypatch):
    pytest.importorskip("av")
    path = tmp_path / "film.mp4"
    frames = [torch.zeros(84, 84, dtype=torch.uint8)]
    write_video(path, frames)
    older = path.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*film\.mp4'"):
        write_video(path, frames * 2)
    assert path.read_bytes() == older
    assert [*tmp_path.iterdir()] == [path]


def test_evaluation_with_a_mistake_ends_in_one_line(run, tmp_path):
    with pytest.raises(ssedb.ConfigError, match="episodes=0: must be 1 or more"):
        evaluate(run, 0)
    with pytest.raises(ssedb.ConfigError, match="holds no run"):
        evaluate(tmp_path, 1)


def test_evaluation_of_a_checkpoint_that_does_not_fit_ends_in_one_line(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    config = (folder / "config.toml").read_text()
    assert "policy_width = 32" in config
    (folder / "config.toml").write_text(config.replace("policy_width = 32", "policy_width = 16"))
    with pytest.raises(
        ssedb.ConfigError,
        match=r"is of a run with policy_width=32, and its config\.toml says 16; put back .*$",
    ) as caught:
        evaluate(folder, 1)
    assert "\n" not in str(caught.value)


def test_evaluation_into_a_read_only_folder_is_refused_before_it_runs(run, monkeypatch):
    def refuse(dir):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(
        ssedb.ConfigError, match=r"cannot write to .*run: Permission denied; choose a path"
    ):
        evaluate(run, 1)


def test_agent_when_loaded_acts_as_its_checkpoint(run):
    state = checkpoint.load_latest(run / "checkpoints")[0]["policy"]
    before = torch.get_rng_state()
    agent = ssedb.load(str(run), device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    assert (agent.steps, agent.config.noise) == (256, "random-box")
    assert all(
        torch.equal(weights, state[name]) for name, weights in agent.policy.state_dict().items()
    )
    stacks = torch.randint(
        0, 256, (600, 4, 44, 44), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    likeliest = agent.policy(stacks)[0].argmax(-1)
    assert torch.equal(agent.act(stacks, greedy=True), likeliest)
    assert agent.act(stacks[5], greedy=True).shape == ()
    assert agent.act(stacks[5].numpy(), greedy=True) == likeliest[5]
    same = stacks[:1].expand(600, -1, -1, -1)
    torch.manual_seed(3)
    drawn = agent.act(same)
    torch.manual_seed(3)
    assert torch.equal(agent.act(same), drawn)
    # Shares of 600 draws lie within 5 standard deviations, 0.1, of the probabilities.
    shares = torch.bincount(drawn, minlength=agent.num_actions) / 600
    assert shares.tolist() == pytest.approx(
        agent.policy(stacks[:1])[0].softmax(-1)[0].tolist(), abs=0.1
    )
    assert (shares > 0).sum() > 1


@pytest.mark.parametrize(
    ("obs", "said"),
    [
        (
            torch.zeros(2, 4, 84, 84),
            "obs is float32 [2, 4, 84, 84]; act takes uint8 [N, 4, 44, 44] or [4, 44, 44]",
        ),
        (np.zeros((84, 84), np.uint8), "obs is uint8 [84, 84]; act takes"),
    ],
)
def test_agent_of_another_shape_names_what_it_sees(run, obs, said):
    with pytest.raises(ssedb.ConfigError, match=re.escape(said)):
        ssedb.load(run, device="cpu").act(obs)


def test_train_from_python_resumes_a_run(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    assert ssedb.resume(folder, steps=512).steps == 512
    assert ssedb.load(folder).steps == 512
    assert ssedb.evaluate(folder, episodes=1, device="cpu").steps == 512
    with pytest.raises(ssedb.ConfigError, match="a run with seed=0, not 1"):
        ssedb.resume(folder, seed=1)


def test_agent_of_another_environment_is_refused(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(config.replace('env = "rooms-tiny"', 'env = "pong"'))
    with pytest.raises(ssedb.ConfigError, match=r"is of rooms-tiny but its config.toml says pong"):
        ssedb.load(folder)
