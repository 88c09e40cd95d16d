"""What only a GPU can show. Run with `-m gpu`."""

import pytest
import torch

import ssedb
from ssedb.envs.noise import pixel_noise, random_boxes
from ssedb.runlog import read_metrics
from ssedb.trainer import Trainer, resume
from tests.toy import TINY_OPTIONS, Grid, tiny_config, transitions

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def test_the_bonus_is_the_same_on_both_devices():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    bonus = ssedb.make_bonus("db", (4, 36, 36), 4, **TINY_OPTIONS)
    batch = transitions(Grid(16), 20)
    on_cpu = bonus.reward(*batch)
    on_gpu = bonus.cuda().reward(*(x.cuda() for x in batch))
    torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("noise", [random_boxes, pixel_noise])
@pytest.mark.parametrize("released", [False, True])
def test_noise_works_there(noise, released):
    reading = {random_boxes: ("fill", "wrap"), pixel_noise: ("add", "zeros")}[noise][released]
    frames = torch.zeros(64, 210, 160, 3, dtype=torch.uint8, device="cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    noisy, mask = noise(frames, 1.0, generator, reading, want_mask=True)
    assert noisy.device.type == "cuda"
    assert torch.equal(noisy[~mask], frames[~mask])
    assert noisy.float().std() > 0


@pytest.mark.parametrize("noise", ["random-box", "pixel"])
def test_train_and_resume(tmp_path, noise):
    config = tiny_config(tmp_path / "run", noise=noise, fidelity="released", device="cuda", steps=512, obs_norm_steps=100)
    assert ssedb.train(config).finished
    assert resume(tmp_path / "run", steps=1024).steps == 1024
    assert len(read_metrics(tmp_path / "run")) == 4


@pytest.mark.parametrize("env", ["breakout", "rooms-small"])
def test_a_run_can_move_to_the_other_device_and_back(tmp_path, env):
    config = tiny_config(tmp_path / "run", env=env, noise="clouds", device="cpu", steps=256, obs_norm_steps=100)
    assert ssedb.train(config).finished
    assert resume(tmp_path / "run", steps=512, device="cuda").steps == 512
    assert resume(tmp_path / "run", steps=768, device="cpu").steps == 768


def test_rooms_are_the_same_on_both_devices():
    from ssedb.envs.rooms import RoomsEnv

    here, there = RoomsEnv(64), RoomsEnv(64, device="cuda")
    assert torch.equal(here.reset(), there.reset().cpu())
    generator = torch.Generator().manual_seed(0)
    for _ in range(600):
        actions = torch.randint(5, (64,), generator=generator)
        first, second = here.step(actions), there.step(actions.cuda())
        assert torch.equal(first.frames, second.frames.cpu())
        assert torch.equal(first.rewards, second.rewards.cpu())
        assert torch.equal(first.dones, second.dones.cpu())
    assert here.metrics() == pytest.approx(there.metrics())


def test_maps_and_episodes_work_there(tmp_path):
    pytest.importorskip("scipy")
    from ssedb.analysis.episode import play_episode, read_episode
    from ssedb.analysis.maps import read_maps

    run = tmp_path / "run"
    ssedb.train(tiny_config(run, env="rooms-small", noise="random-box", device="cuda", steps=512, obs_norm_steps=64))
    assert [row["steps"] for row in read_maps(run)] == [0, 256, 512]
    episode = play_episode(run, device="cuda")
    here, there = read_episode(episode, run, "cpu"), read_episode(episode, run, "cuda")
    torch.testing.assert_close(torch.tensor(there.bonus), torch.tensor(here.bonus), rtol=1e-2, atol=1e-2)


def test_the_probe_runs_there(tmp_path):
    pytest.importorskip("matplotlib")
    from ssedb.analysis.probe import probe_run

    ssedb.train(
        tiny_config(tmp_path / "run", env="rooms-small", noise="random-box", device="cuda", steps=256, obs_norm_steps=64)
    )
    result, picture = probe_run(tmp_path / "run", transitions=256, draws=3)
    assert 0 <= result.bonus_noise_share <= 1
    assert picture.exists()


@pytest.fixture
def exact():
    """Sums in float32 and in the same order each time."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = before


@pytest.mark.parametrize("bonus", ssedb.list_bonuses())
def test_replaying_gives_the_numbers_of_the_plain_path(exact, tmp_path, bonus):
    weights, rows = [], []
    for engine in ("eager", "fast"):
        config = tiny_config(tmp_path, env="rooms-small", preset="rooms", bonus=bonus, bonus_options={}, noise="random-box",
                             device="cuda", engine=engine, obs_norm_steps=64)  # fmt: skip
        trainer = Trainer(config)
        trainer.fit_observations()
        rows.append([trainer.iterate() for _ in range(5)])
        weights.append({**trainer.policy.state_dict(), **trainer.bonus.state_dict()})
    for name, value in weights[0].items():
        torch.testing.assert_close(
            weights[1][name], value, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
    for plain, fast in zip(*rows, strict=True):
        assert {k: v for k, v in fast.items() if k != "sps"} == pytest.approx(
            {k: v for k, v in plain.items() if k != "sps"}, rel=1e-3
        )


def test_two_replays_draw_differently(tmp_path):
    trainer = Trainer(
        tiny_config(tmp_path, env="rooms-small", preset="rooms", device="cuda", engine="fast", bonus_options={})
    )
    obs = trainer.rollout.obs(0)
    actions = [trainer.act(obs)[0] for _ in range(40)]
    assert len({tuple(a.tolist()) for a in actions[5:]}) > 10
    t, envs = trainer.rollout.indices(torch.arange(4, device="cuda"))
    draws = [float(trainer.learn(t, envs, policy=False, bonus=True)["i_pred"]) for _ in range(12)]
    assert len(set(draws[5:])) == len(draws[5:])
