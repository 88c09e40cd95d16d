"""The real emulator: frames, episodes, seeds, sticky actions."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import ssedb
from ssedb.envs import atari, timeout
from ssedb.envs.atari import AtariEnv
from ssedb.envs.frames import to_agent_frames
from ssedb.envs.noisy import NoisyEnv
from ssedb.noises import make_noise
from ssedb.runs.loop import resume

NOOP, RIGHT, LEFT = 0, 2, 3  # of Breakout


def play(env, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    frames = [env.reset()]
    rewards, dones = [], []
    for _ in range(steps):
        step = env.step(torch.randint(env.num_actions, (env.num_envs,), generator=generator))
        frames.append(step.frames.clone())
        rewards.append(step.rewards)
        dones.append(step.dones)
    env.close()
    return torch.stack(frames), torch.stack(rewards), torch.stack(dones)


def test_atari_frames_are_single_gray_and_84(tmp_path):
    env = ssedb.make_env("alien", num_envs=3)
    frames = env.reset()
    assert (frames.shape, frames.dtype) == ((3, 84, 84), torch.uint8)
    assert env.num_actions == 18
    assert env.restorable
    step = env.step(torch.zeros(3, dtype=torch.int64))
    assert (step.frames.shape, step.rewards.dtype, step.dones.dtype) == (
        (3, 84, 84),
        torch.float32,
        torch.bool,
    )
    env.close()


@pytest.mark.parametrize("noise", ["none", "random-box", "pixel", "sticky"])
@pytest.mark.parametrize("fidelity", ["paper", "released"])
def test_atari_with_the_same_seed_has_the_same_episodes(noise, fidelity):
    first, second, other = (
        play(ssedb.make_env("boxing", 1, noise=noise, fidelity=fidelity, seed=seed), 20)[0]
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, second)
    if noise != "none":
        assert not torch.equal(first, other)
    assert first.shape == (21, 1, 84, 84)


def test_atari_environments_differ_and_neighbouring_seeds_share_none():
    first, second = (play(ssedb.make_env("breakout", 2, seed=seed), 60)[0] for seed in (0, 1))
    assert not torch.equal(first[:, 0], first[:, 1])
    assert not torch.equal(first[:, 1], second[:, 0])


def test_atari_end_begins_again_in_the_same_step_and_keeps_the_last_frame():
    env = ssedb.make_env("breakout", 2, max_episode_steps=30, noop_max=0)
    first = env.reset()
    for t in range(30):
        step = env.step(torch.full((2,), t % 4))
        assert step.dones.all() == (t == 29)
    assert step.final_frames is not None
    assert torch.equal(step.frames, first)  # no no-ops: every episode begins alike
    assert not torch.equal(step.final_frames(), step.frames)
    env.close()


def test_atari_scores_are_not_clipped():
    _, rewards, _ = play(ssedb.make_env("alien", 2, seed=0), 100)
    assert rewards.max() >= 10


def test_atari_raw_frames_shrink_to_nearly_the_emulators_own():
    small = AtariEnv("breakout", 2, seed=5).reset()
    raw = AtariEnv("breakout", 2, seed=5, raw=True).reset()
    assert raw.shape == (2, 210, 160, 3)
    difference = (to_agent_frames(raw).float() - small.float()).abs()
    assert difference.mean() < 4  # another filter, the same picture


def paddle_moves(env: AtariEnv | NoisyEnv, cycles: int = 40) -> torch.Tensor:
    """Return how far Breakout's paddle went, in pixels, for one step to the middle and six of rest.

    Four frames move it by about 22 pixels.
    """

    def place(frames):
        paddle = (frames[:, 190, 8:152, 0] > 150).float()
        return (paddle * torch.arange(144)).sum(1) / paddle.sum(1)

    rest = torch.full((env.num_envs,), NOOP)
    env.reset()
    for _ in range(4):
        frames = env.step(rest).frames
    before, moves = place(frames), []
    for _ in range(cycles):
        to_right = before < 70
        env.step(torch.where(to_right, RIGHT, LEFT))
        for _ in range(6):
            frames = env.step(rest).frames
        after = place(frames)
        clear_of_walls = (before > 25) & (before < 115)
        moves.append(((after - before) * torch.where(to_right, 1, -1))[clear_of_walls])
        before = after
    env.close()
    return torch.cat(moves)


def assert_share(condition: torch.Tensor, probability: float) -> None:
    assert abs(condition.float().mean().item() - probability) < 4 * np.sqrt(
        probability * (1 - probability) / len(condition)
    )


def test_sticky_by_frame_decides_at_every_emulated_frame():
    """Late by k frames with probability 0.75 * 0.25^k, then as long too long.

    So less than 4 frames in a fifth of the cases.
    """
    exact = paddle_moves(AtariEnv("breakout", 1, raw=True, noop_max=0), 10)
    assert ((exact > 20) & (exact < 25)).all()
    moves = paddle_moves(AtariEnv("breakout", 8, raw=True, noop_max=0, frame_sticky=0.25))
    assert len(moves) > 200
    assert_share((moves > 20) & (moves < 25), 0.6)
    assert_share((moves > 1) & (moves < 20), 0.2 - 0.25**4)
    assert (moves.abs() < 1).float().mean() < 0.02  # all four frames late: 0.25^4


def test_sticky_by_step_decides_once_for_all_four_frames():
    env = NoisyEnv(AtariEnv("breakout", 8, raw=True, noop_max=0), make_noise("sticky"), seed=1)
    env.noise_state.agent_frames = lambda frames: frames  # the picture as it is
    moves = paddle_moves(env)
    assert len(moves) > 200
    assert_share(moves.abs() < 1, 0.25)
    assert_share((moves > 20) & (moves < 25), 0.75 * 0.75)
    assert not ((moves > 1) & (moves < 20)).any()


def test_make_env_picks_the_variant_of_sticky(monkeypatch):
    made = []
    monkeypatch.setattr(
        "ssedb.envs.atari.AtariEnv", lambda *a, **k: made.append(k) or AtariEnv(*a, **k)
    )
    for fidelity in ("paper", "released"):
        env = ssedb.make_env("breakout", 1, noise="sticky", fidelity=fidelity)
        made[-1]["variant"] = env.noise_state.noise.variant
        env.close()
    assert [(k["frame_sticky"], k["noop_max"], k["variant"]) for k in made] == [
        (0.0, 30, "step"),
        (0.25, 0, "frame"),
    ]


@pytest.mark.parametrize("game", ["montezuma_revenge", "Pong", "ALE/SpaceInvaders-v5"])
def test_atari_other_games_work(game):
    env = ssedb.make_env(game, 2, seed=0)
    assert env.reset().float().std() > 0
    env.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(noise="fog"), "noise='fog': use one of none"),
        (dict(fidelity="mine"), "fidelity='mine'"),
        (dict(num_envs=0), "num_envs=0"),
        (dict(num_envs="8"), "num_envs='8': must be a whole number"),
        (dict(num_envs=True), "num_envs=True: must be a whole number"),
        (
            dict(noise="sticky", noise_variant="foo"),
            "noise_variant='foo': Sticky has the variants step, frame; use one of them",
        ),
        (dict(seed=-1), "seed=-1: must be 0 or more"),
        (dict(strength=float("nan")), "strength=nan"),
        (dict(noise="sticky", strength=9), "at most 4 for Sticky"),
    ],
)
def test_atari_with_bad_settings_is_refused(settings, message):
    with pytest.raises(ssedb.ConfigError, match=message):
        ssedb.make_env("alien", **{"num_envs": 1, **settings})


def test_atari_error_in_the_emulator_is_raised_by_step():
    env = AtariEnv("breakout", 2)
    env.reset()

    def fail():
        raise RuntimeError("the cartridge is gone")

    env.ale.recv = fail
    with pytest.raises(RuntimeError, match="the cartridge is gone"):
        env.step(torch.zeros(2, dtype=torch.int64))


def test_reset_discards_an_answer_that_nobody_has_received():
    env, calm = AtariEnv("breakout", 1, seed=3), AtariEnv("breakout", 1, seed=3)
    expected = calm.reset()
    for _ in range(5):
        env.reset()
        env.send(np.zeros(1, np.int64))
    assert torch.equal(env.reset(), expected)


def test_step_waits_for_all_answers_on_one_thread(monkeypatch):
    env, threads = AtariEnv("breakout", 2), set()
    answer = env.recv
    monkeypatch.setattr(env, "recv", lambda: threads.add(threading.current_thread()) or answer())
    env.reset()
    for _ in range(3):
        env.step(torch.zeros(2, dtype=torch.int64))
    assert len(threads) == 1


def test_step_of_stuck_emulators_times_out(monkeypatch):
    monkeypatch.setattr(timeout, "TIME_OUT", 0.5)
    going_on = threading.Event()
    env = AtariEnv("breakout", 2)
    env.reset()
    monkeypatch.setattr(env.ale, "recv", going_on.wait)
    with pytest.raises(ssedb.TrainingError, match=r"the environments have not answered for 0\.5 s"):
        env.step(torch.zeros(2, dtype=torch.int64))
    going_on.set()


STUCK = """
import sys
from ale_py.vector_env import AtariVectorEnv
from ssedb import cli
from ssedb.envs import timeout

timeout.TIME_OUT, answer, answered = 2.0, AtariVectorEnv.recv, 0

def recv(env):
    global answered
    answered += 1
    if answered > 30:
        answer(env)
    return answer(env)  # the second time nothing was sent, and the emulators never answer

AtariVectorEnv.recv = recv
sys.exit(cli.main(sys.argv[1:]))
"""


def test_train_with_stuck_emulators_ends_and_can_be_resumed(tmp_path):
    command = "train --env breakout --preset rooms --bonus count --steps 2000"
    command += " --num-envs 1 --minibatch-envs 1 --rollout-steps 8 --obs-norm-steps 8"
    command += " --checkpoint-minutes 0"
    flags = [*command.split(), "--out", str(tmp_path / "run")]
    run = subprocess.run(
        [sys.executable, "-c", STUCK, *flags], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 1, run.stderr
    assert "ssedb: the environments have not answered for 2 s" in run.stderr
    assert "Traceback" not in run.stderr
    result = resume(tmp_path / "run", steps=40)
    assert result.finished


def test_emulator_after_many_episodes_gets_a_new_seed(monkeypatch):
    monkeypatch.setattr(atari, "EPISODES_PER_SEED", 5)
    env = AtariEnv("alien", 2, seed=3, max_steps=1)
    first = [env.reset()] + [env.step(torch.zeros(2, dtype=torch.int64)).frames for _ in range(14)]
    assert env.state_dict()["seedings"].tolist() == [2, 2]
    assert env.state_dict()["episodes"].tolist() == [5, 5]
    seeded = [torch.stack(first[i : i + 5]) for i in (0, 5, 10)]  # frames tell the no-ops
    assert not torch.equal(seeded[0], seeded[1])
    assert not torch.equal(seeded[1], seeded[2])
    repeated = [env.reset()]
    repeated += [env.step(torch.zeros(2, dtype=torch.int64)).frames for _ in range(14)]
    assert torch.equal(torch.stack(first), torch.stack(repeated))
