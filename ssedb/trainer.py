"""Algorithm 1: explore, pay the agent its bonus, improve the policy and the bonus model, begin again."""

from __future__ import annotations

import copy
import math
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssedb import checkpoint, engine, parallel, ppo
from ssedb.analysis.maps import MapLog
from ssedb.bonuses import make_bonus
from ssedb.bonuses.base import Bonus, Context
from ssedb.config import TrainConfig
from ssedb.envs import make_env
from ssedb.envs.base import Env
from ssedb.envs.noisy import NoisyEnv
from ssedb.errors import ConfigError, TrainingError
from ssedb.networks import ActorCritic
from ssedb.normalize import RewardNorm
from ssedb.parallel import ALONE, Team
from ssedb.progress import Progress, silent
from ssedb.rollout import Rollout, collect, random_agent_statistics
from ssedb.runlog import OtherProcess, RunFolder
from ssedb.scores import Scores

OBS_NORM_ENVS = 8
"""Environments of the random agent: few, so that its steps reach deep into the episodes."""


class Trainer:
    """All that learns, and one method that makes it learn."""

    def __init__(self, config: TrainConfig, env: Env | None = None, progress: Progress = silent, team: Team = ALONE) -> None:
        self.config, self.progress, self.team = config, progress, team
        self.device = engine.pick_device(config.device)
        engine.tune_allocator()
        torch.manual_seed(config.seed)
        with team:
            self.env = env or env_of(config, config.num_envs // team.size, stream=0, device=self.device)
            frames = self.env.reset()
            self.env.stagger()
            self.env.merge(team)
            self.played = Rollout(config.rollout_steps, self.env.num_envs, (frames.shape[1], frames.shape[2]), self.device)
        self.played.begin(frames)
        self.rollout = self.played.whole(team)  # what all have played; of one process, the same
        self.advantages, self.returns = (torch.zeros_like(self.rollout.rewards) for _ in range(2))
        obs_shape, num_actions = self.rollout.obs_shape, self.env.num_actions
        self.policy = ActorCritic(
            obs_shape, num_actions, config.policy_channels, config.policy_width, config.policy_layers
        ).to(self.device)
        self.bonus = make_bonus(config.bonus, obs_shape, num_actions, **config.bonus_options).to(self.device)
        if team.size > 1 and not self.bonus.deterministic:
            raise ConfigError(f"bonus {config.bonus!r} draws at random when it pays; train it in one process")
        self.learns = config.extrinsic_coef > 0 or (config.intrinsic_coef > 0 and self.bonus.pays)
        if not self.learns:  # advantages that are nothing but the value's errors would make the policy drift
            self.policy.make_uniform()
        if self.bonus.uses_context and self.env.true_states() is not None:
            self.played.states = torch.zeros_like(self.played.actions)
        elif self.bonus.needs_states:
            raise ConfigError(
                f"{config.env} does not tell its true states, which {config.bonus} counts; use --counted frames"
            )
        self.fast = engine.is_fast(config.engine, self.device) and team.size == 1
        self.act, self.pay, self.learn = self.policy.act, self._pay, self._learn
        if self.fast:
            replay = engine.Replayer()
            self.act = replay(self.policy.act)
            if self.bonus.replayable:
                self.pay, self.learn = replay(self._pay), replay(self._learn)
        self.policy_adam = self._adam(self.policy)
        self.bonus_adam = self._adam(self.bonus)
        self.reward_norm = RewardNorm(config.num_envs, config.gamma, self.device)
        self.scores = Scores(config.num_envs)
        self.steps = self.updates = 0
        self._splits = False  # not known yet

    def fit_observations(self) -> None:
        """Fixes the observations' scale by what a random agent sees, in environments of its own."""

        def look_around() -> tuple[Tensor, Tensor]:
            env = env_of(self.config, min(OBS_NORM_ENVS, self.config.num_envs), stream=1, device=self.device)
            mean, std = random_agent_statistics(env, self.config.obs_norm_steps, self.config.seed)
            env.close()
            return mean.cpu(), std.cpu()

        self.progress.phase(f"a random agent looks around for {self.config.obs_norm_steps:,} steps")
        mean, std = self.team.from_first(look_around)
        for module in (self.policy, self.bonus):
            module.normalize.set(mean, std)

    def iterate(self) -> dict[str, Any]:
        """One turn of Algorithm 1; returns its metrics."""
        config, team, began = self.config, self.team, time.perf_counter()
        metrics: dict[str, list[Tensor]] = defaultdict(list)

        with team:
            collect(self.played, self.env, self.act, lambda t: self.progress.step(self.steps + (t + 1) * config.num_envs))
        self.env.merge(team)
        self.rollout = rollout = self.played.whole(team)
        bonus = self.intrinsic_rewards()  # [T, N]
        self.take_in()
        paid = self.reward_norm(bonus) if config.normalize_bonus else bonus
        rewards = config.intrinsic_coef * paid + config.extrinsic_coef * rollout.rewards.clamp(-1, 1)
        advantages, returns = ppo.advantages_and_returns(rewards, rollout.values, config.gamma, config.gae_lambda)
        self.advantages.copy_(ppo.normalize_advantages(advantages))
        self.returns.copy_(returns)

        for epoch in range(max(config.ppo_epochs, config.bonus_epochs)):
            for t, envs in rollout.minibatches(config.minibatch_envs):
                if team.size > 1 and not self._splits:
                    self.check_split(t, envs)
                policy, bonus_too = epoch < config.ppo_epochs and self.learns, epoch < config.bonus_epochs
                if policy or bonus_too:
                    figures = self.learn(team.mine(t), team.mine(envs), policy=policy, bonus=bonus_too)
                    for name, value in figures.items():
                        metrics[name].append(value)
                self.progress.learn()
            if epoch < config.bonus_epochs:
                self.bonus.after_epoch()

        self.bonus.after_rollout()
        self.steps += config.rollout_size
        self.updates += 1
        metrics |= {"bonus_raw": [bonus.mean()], "bonus_raw_std": [bonus.std(correction=0)], "bonus": [paid.mean()]}
        metrics |= {"explained_variance": [ppo.explained_variance(rollout.values[:-1], returns)]}
        figures = self.bonus.diagnostics(*self.transitions(rollout.stacks(t, envs), t, envs))
        metrics |= {name: [value] for name, value in figures.items()}
        scores = self.scores.add(rollout.rewards.cpu().numpy(), rollout.dones.cpu().numpy())
        self.played.carry_over()
        numbers = [torch.stack(values).double().mean().item() for values in metrics.values()]
        means = dict(zip(metrics, team.mean(torch.tensor(numbers, dtype=torch.float64)).tolist(), strict=True))
        sps = config.rollout_size / (time.perf_counter() - began)
        return {"steps": self.steps, "updates": self.updates, "sps": round(sps, 1), **scores, **self.env.metrics(), **means}

    @torch.no_grad()
    def intrinsic_rewards(self) -> Tensor:
        """The bonus of every transition of the rollout, [T, N]; several processes take turns."""
        rewards = torch.zeros_like(self.rollout.rewards)
        for number, (t, n) in enumerate(self.rollout.groups(self.config.minibatch_envs)):
            if number % self.team.size == self.team.rank:
                rewards[t, n] = self.pay(t, n)
        return self.team.sum(rewards)

    def _pay(self, t: Tensor, envs: Tensor) -> Tensor:
        return self.bonus.reward(*self.experience(t, envs))

    def take_in(self) -> None:
        """What a bonus counts or remembers, it takes in once its rewards are paid."""
        if type(self.bonus).take_in is not Bonus.take_in:
            for t, n in self.rollout.groups(self.config.minibatch_envs):
                self.bonus.take_in(*self.experience(t, n))

    def _learn(self, t: Tensor, envs: Tensor, *, policy: bool, bonus: bool) -> dict[str, Tensor]:
        """One step of PPO, of the bonus model, or of both, on a minibatch; returns figures for the log."""
        figures: dict[str, Tensor] = {}
        obs = self.rollout.stacks(t, envs)
        if policy:
            figures |= self.update_policy(obs, t, envs)
        if bonus:
            figures |= self.update_bonus(obs, t, envs)
        return figures

    def update_policy(self, obs: Tensor, t: Tensor, envs: Tensor) -> dict[str, Tensor]:
        logits, values = self.policy(obs)
        loss, figures = ppo.ppo_loss(
            logits,
            values,
            self.rollout.actions[t, envs],
            self.rollout.log_probs[t, envs],
            self.advantages[t, envs],
            self.returns[t, envs],
            clip=self.config.clip,
            entropy_coef=self.config.entropy_coef,
        )
        self._descend(loss, self.policy_adam)
        return figures

    def update_bonus(self, obs: Tensor, t: Tensor, envs: Tensor) -> dict[str, Tensor]:
        with self.team:
            loss, figures = self._bonus_loss(obs, t, envs)
        if loss.requires_grad:
            self._descend(loss, self.bonus_adam)
        self.bonus.after_step()
        return {"bonus_loss": loss.detach(), **figures}

    def _bonus_loss(self, obs: Tensor, t: Tensor, envs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        mask = ~self.rollout.dones[t, envs] if self.config.mask_boundaries else None
        return self.bonus.loss(*self.transitions(obs, t, envs), mask)

    @torch.no_grad()
    def check_split(self, t: Tensor, envs: Tensor) -> None:
        """Several processes: the bonus's loss on a minibatch must be the mean of their losses on their rows of it."""
        before = copy.deepcopy(self.bonus.state_dict())

        def loss(team: Team) -> Tensor:
            mine = team.mine(t), team.mine(envs)
            devices = [self.device] if self.device.type == "cuda" else []
            with team, torch.random.fork_rng(devices):  # with the noise that the first update will draw
                return team.mean(self._bonus_loss(self.rollout.stacks(*mine), *mine)[0])

        whole, parts = loss(ALONE), loss(self.team)
        self.bonus.load_state_dict(before)
        self._splits = torch.allclose(whole, parts, rtol=1e-3, equal_nan=True)
        if not self._splits:
            raise ConfigError(
                f"bonus {self.config.bonus!r} does not split over processes: its loss is {whole:.4g} on a minibatch and "
                f"{parts:.4g} on the parts of it; train it in one process, or see docs/parallel.md"
            )

    def _descend(self, loss: Tensor, adam: torch.optim.Optimizer) -> None:
        """A step down the mean of all processes' losses."""
        adam.zero_grad(set_to_none=True)
        loss.backward()
        self.team.average_gradients(adam.param_groups[0]["params"])
        adam.step()

    def transitions(self, obs: Tensor, t: Tensor, envs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(obs, actions, next_obs), what a bonus knows."""
        return obs, self.rollout.actions[t, envs], self.rollout.stacks(t + 1, envs)

    def experience(self, t: Tensor, envs: Tensor) -> tuple[Any, ...]:
        """Transitions and, for a bonus that uses it, their context."""
        transitions = self.transitions(self.rollout.stacks(t, envs), t, envs)
        if not self.bonus.uses_context:
            return transitions
        states = None if self.rollout.states is None else self.rollout.states[t, envs]
        return (*transitions, Context(self.rollout.episodes[t, envs], states))

    def _adam(self, module: torch.nn.Module) -> torch.optim.Optimizer:
        # An optimiser needs something to hold, even for a bonus that learns nothing by gradient.
        trained = [p for p in module.parameters() if p.requires_grad] or [
            torch.nn.Parameter(torch.zeros(1, device=self.device))
        ]
        return torch.optim.Adam(
            trained, lr=self.config.learning_rate, eps=self.config.adam_eps, fused=True, capturable=self.fast
        )

    def check_weights(self) -> None:
        """A checkpoint must not hold what the last step has spoiled."""
        for name, module in (("policy", self.policy), ("bonus", self.bonus)):
            norms = [parameter.norm() for parameter in module.parameters()]
            if norms and not torch.stack(norms).isfinite().all():
                raise TrainingError(f"the weights of the {name} are not finite after update {self.updates}; not saved")

    def state_dict(self) -> dict[str, Any]:
        """The state of the run, the same however many processes it runs on; they must ask for it together."""
        return {
            "steps": self.steps,
            "updates": self.updates,
            "policy": self.policy.state_dict(),
            "bonus": self.bonus.state_dict(),
            "policy_adam": self.policy_adam.state_dict(),
            "bonus_adam": self.bonus_adam.state_dict(),
            "reward_norm": self.reward_norm.state_dict(),
            "rollout": self.rollout.state_dict(),
            "env": parallel.each(self.env.state_dict(), self.env.per_env, self.team.gather),
            "scores": self.scores.state_dict(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps, self.updates = state["steps"], state["updates"]
        for name in ("policy", "bonus", "policy_adam", "bonus_adam", "reward_norm", "scores"):
            getattr(self, name).load_state_dict(state[name])
        self.env.load_state_dict(parallel.each(state["env"], self.env.per_env, self.team.mine))
        if self.env.restorable:
            with self.team:
                self.played.load_state_dict(state["rollout"])
            self.played.carry_over()
        else:
            episodes = self.team.mine(state["rollout"]["episodes"]).to(self.device)
            self.played.episodes[0] = episodes + self.config.num_envs
            self.scores.forget_unfinished()
        torch.set_rng_state(state["rng"].cpu())
        if self.device.type == "cuda" and state["cuda_rng"] is not None:
            torch.cuda.set_rng_state(state["cuda_rng"].cpu(), self.device)


@dataclass(frozen=True)
class TrainResult:
    """What came out of a run."""

    out: Path
    steps: int
    finished: bool
    summary: dict[str, Any]


def train(config: TrainConfig, progress: Progress = silent) -> TrainResult:
    """Trains from the beginning into `config.out`."""
    return train_in(RunFolder.create(config), progress) if parallel.rank() == 0 else train_along()


def resume(path: Path | str, progress: Progress = silent, **overrides: Any) -> TrainResult:
    """Goes on with the run in `path`; overrides may be `steps` or `device`."""
    return train_in(RunFolder.reopen(Path(path), **overrides), progress) if parallel.rank() == 0 else train_along()


def train_along() -> TrainResult:
    """Takes part, under torchrun, in the run of the first process, which keeps the folder and the display."""
    return train_in(OtherProcess())


def train_in(run: RunFolder, progress: Progress = silent) -> TrainResult:
    """Trains in an open run folder until its steps are done, or a signal asks to stop."""
    trainer = None
    try:
        with parallel.join() as team, ExitStack() as later:
            config = run.config = team.from_first(lambda: run.config)
            device = engine.pick_device(config.device)
            if team.size > 1 and device.type == "cuda":
                torch.cuda.set_device(device)
            later.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
            later.enter_context(progress)
            trainer, resumed = _set_up(run, progress, team)
            progress.start(trainer.steps, config)
            run.start_logging(resumed)
            maps = MapLog(run.path, trainer)
            maps.record()
            stopping = later.enter_context(stop_on_signals(progress))  # before this there is nothing to save
            row: dict[str, Any] = {}
            saved_at, stop = time.monotonic(), False
            while trainer.steps < config.steps and not stop:
                row = trainer.iterate()
                _check_finite(row, run)
                run.log(row)
                maps.record()
                progress.log(row)
                counters = {"steps": trainer.steps, "updates": trainer.updates}
                due = team.any(time.monotonic() - saved_at >= 60 * config.checkpoint_minutes)
                stop = team.any(stopping())
                if due or trainer.steps >= config.steps or stop:
                    trainer.check_weights()
                    run.save_checkpoint(trainer.state_dict(), counters)
                    saved_at = time.monotonic()
            finished = trainer.steps >= config.steps
            summary = {"finished": finished, **trainer.scores.summary(), "last": row, "device": str(trainer.device)}
            summary |= {"machine": engine.machine(trainer.device)}
            if row:
                run.write_summary({"steps": trainer.steps, **summary})
        return TrainResult(config.out, trainer.steps, finished, summary)
    finally:
        if trainer is not None:
            trainer.env.close()
        run.close()


def _set_up(run: RunFolder, progress: Progress, team: Team) -> tuple[Trainer, dict[str, int] | None]:
    """A fresh trainer, or one that goes on from the run's newest whole checkpoint."""
    config = run.config
    saved = team.from_first(lambda: checkpoint.load_latest(run.checkpoints))
    if saved is None:
        trainer = Trainer(config, progress=progress, team=team)
        trainer.fit_observations()
        if not run.has_metrics:
            return trainer, None
        progress.note("no checkpoint yet; the run begins again")
        return trainer, {"steps": 0, "updates": 0}
    state, _, complaints = saved
    for complaint in complaints:
        progress.note(f"{complaint}; going on from the one before it")
    # Emulators that cannot be restored start new episodes; another stream keeps them from replaying the first ones.
    device = engine.pick_device(config.device)
    with team:
        env = env_of(config, config.num_envs // team.size, 2 + state["updates"], device)
    trainer = Trainer(config, env, progress, team)
    try:
        trainer.load_state_dict(state)
    except (KeyError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ConfigError(
            f"the checkpoint in {run.path} does not fit its config.toml: {reason}; put the file back"
        ) from None
    progress.note(f"resumed at step {trainer.steps:,}" + ("" if trainer.env.restorable else "; episodes begin afresh"))
    return trainer, {"steps": trainer.steps, "updates": trainer.updates}


def env_of(config: TrainConfig, num_envs: int, stream: int, device: torch.device) -> NoisyEnv:
    """The run's environment; each stream has randomness of its own."""
    return make_env(
        config.env,
        num_envs,
        noise=config.noise,
        strength=config.noise_strength,
        seed=int(np.random.SeedSequence([config.seed, stream]).generate_state(1)[0]),
        device=str(device),
        max_episode_steps=config.max_episode_steps,
        noop_max=config.noop_max,
        sticky=config.sticky,
        pixel_noise=config.pixel_noise,
        box_noise=config.box_noise,
    )


def _check_finite(row: dict[str, Any], run: RunFolder) -> None:
    bad = [name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
    if bad:
        raise TrainingError(
            f"{bad[0]} is {row[bad[0]]} after update {row['updates']}; what was saved in {run.path} before is intact"
        )


@contextmanager
def stop_on_signals(progress: Progress = silent) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM asks to stop after this update; the second stops at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        progress.note("stopping after this update, with a checkpoint; once more stops at once")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
