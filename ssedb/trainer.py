"""Algorithm 1: explore, pay the agent its bonus, improve the policy and the bonus model, begin again."""

from __future__ import annotations

import copy
import math
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssedb import engine, parallel, ppo
from ssedb.bonuses import make_bonus
from ssedb.bonuses.base import Bonus, Context
from ssedb.collect.rollout import STACK, Player, Rollout, random_agent_statistics
from ssedb.collect.scores import Scores
from ssedb.config import TrainConfig
from ssedb.envs import make_env
from ssedb.envs.base import Env
from ssedb.envs.frames import SIDE
from ssedb.envs.names import pools_of
from ssedb.envs.noisy import NoisyEnv
from ssedb.envs.pools import Pools
from ssedb.errors import Blamed, ConfigError, TrainingError
from ssedb.networks import ActorCritic
from ssedb.normalize import RewardNorm
from ssedb.parallel import ALONE, Team
from ssedb.runs.progress import Progress, silent
from ssedb.threads import Courier

OBS_NORM_ENVS = 8
"""Environments of the random agent: few, so that its steps reach deep into the episodes."""


class Trainer:
    """All that learns, and one method that makes it learn."""

    def __init__(
        self,
        config: TrainConfig,
        env: Env | None = None,
        progress: Progress = silent,
        team: Team = ALONE,
        stream: int = 0,
    ) -> None:
        """In an environment of its own, of that stream of the run's randomness, unless it is given one."""
        self.config, self.progress, self.team = config, progress, team
        self.device, fast = _place(config, team)
        torch.manual_seed(config.seed)
        with team:
            self.env = env or training_env(
                config, config.num_envs // team.size, stream, self.device
            )
            frames = self.env.reset()
            self.env.stagger()
            self.env.merge(team)
            self.engine = engine.Engine(
                self.device,
                fast=fast,
                overlap=self.env.on_host,
                precision=config.precision,
                seed=config.seed,
            )
            self.env.prepare(self.engine)
            # One that is learned from while the next is played needs a place of its own.
            shape = (frames.shape[1], frames.shape[2])
            self._stretches = [
                Rollout(config.rollout_steps, self.env.num_envs, shape, self.device)
                for _ in range(2 if self.engine.overlaps else 1)
            ]
        self.played = self._stretches[0]
        self._before: Rollout | None = None  # what the next goes on from
        self.played.begin(frames)
        self.rollout = self.played.whole(team)  # what all have played; of one process, the same
        self.advantages, self.returns = (torch.zeros_like(self.rollout.rewards) for _ in range(2))
        obs_shape, num_actions = self.rollout.obs_shape, self.env.num_actions
        self.policy = ActorCritic(
            obs_shape,
            num_actions,
            config.policy_channels,
            config.policy_width,
            config.policy_layers,
        ).to(self.device)
        self.bonus = make_bonus(config.bonus, obs_shape, num_actions, **config.bonus_options).to(
            self.device
        )
        if team.size > 1 and not self.bonus.deterministic:
            raise ConfigError(
                f"bonus {config.bonus!r} draws at random when it pays; train it in one process"
            )
        self.learns = config.extrinsic_coef > 0 or (config.intrinsic_coef > 0 and self.bonus.pays)
        if (
            not self.learns
        ):  # advantages that are nothing but the value's errors would make the policy drift
            self.policy.make_uniform()
        if self.bonus.uses_context and self.env.true_states() is not None:
            for stretch in self._stretches:
                stretch.states = torch.zeros_like(stretch.actions)
        elif self.bonus.needs_states:
            raise ConfigError(
                f"{config.env} does not tell its true states, which {config.bonus} counts; use --counted frames"
            )
        replayable = self.bonus.replayable
        self.player = Player(self.env, self.policy.act, self.engine.ready)
        self.pay = self.engine.ready(self._pay, replayable=replayable)
        self.take_in = self.engine.ready(self._take_in, replayable=False)
        self.after_rollout = self.engine.ready(self._after_rollout, replayable=False)
        self.learn_policy = self.engine.ready(self._learn_policy)
        self.learn_bonus = self.engine.ready(self._learn_bonus, aside=True, replayable=replayable)
        self.diagnose = self.engine.ready(self._diagnose, replayable=False)
        self.policy_adam = self._adam(self.policy, config.learning_rate)
        self.bonus_adam = self._adam(self.bonus, config.bonus_learning_rate)
        self.reward_norm = RewardNorm(
            config.num_envs, config.gamma, self.device, recent=config.reward_scale == "recent"
        )
        self.scores = Scores(config.num_envs)
        self.steps = self.updates = 0
        self.reached = 0  # the step that the environments are at, within a rollout too
        self._splits = False  # not known yet
        self._turn: _Turn | None = None  # the one whose bonus model may be learning still
        self._clerk = (
            Courier(self.device) if self.engine.overlaps else None
        )  # writes a turn up while the next is played
        self._writing: Future[dict[str, Any]] | None = None

    def fit_observations(self, seen: tuple[Tensor, Tensor] | None = None) -> None:
        """Fix the observations' scale by the mean and std that a random agent has seen, or now looks around for."""
        mean, std = seen or look_around(self.config, self.progress, self.team)
        for module in (self.policy, self.bonus):
            module.normalize.set(mean, std)

    def iterate(self) -> dict[str, Any]:
        """One turn of Algorithm 1; returns its metrics."""
        row = self.advance()
        return self.finish() or row  # type: ignore[return-value]

    def advance(self) -> dict[str, Any] | None:
        """One turn of Algorithm 1. Returns its metrics, or where the bonus model learns on beside the next rollout, those of
        the turn before (None in the first)."""
        config, team, began = self.config, self.team, time.perf_counter()
        half = config.rollout_steps // 2
        pace = math.ceil(
            config.bonus_epochs * config.num_envs / config.minibatch_envs / max(half, 1)
        )

        def on_step(t: int) -> None:
            self.reached = self.steps + (t + 1) * config.num_envs
            self.progress.step(self.reached)
            if self._turn is None:
                return
            if (
                t < half
            ):  # the emulators are busy; all of it before the first step would keep them waiting for the host
                for _ in islice(self._turn.rest, pace):
                    pass
            elif self._clerk is not None:
                self._learn_on()
                turn, self._turn = self._turn, None
                self._writing = self._clerk.submit(partial(self._metrics, turn))

        rollout = self.play(on_step)
        row = self._written()
        self.engine.join()
        bonus = self.intrinsic_rewards()  # [T, N]
        self.take_in()
        paid = bonus if config.reward_scale == "none" else self.reward_norm(bonus)
        rewards = config.intrinsic_coef * paid + config.extrinsic_coef * rollout.rewards.clamp(
            -1, 1
        )
        advantages, returns = ppo.advantages_and_returns(
            rewards, rollout.values, config.gamma, config.gae_lambda
        )
        self.advantages.copy_(ppo.normalize_advantages(advantages))
        self.returns.copy_(returns)

        passes = max(config.ppo_epochs, config.bonus_epochs)
        epochs = [list(rollout.minibatches(config.minibatch_envs)) for _ in range(passes)]
        turn = _Turn(rollout, epochs)
        turn.add(
            bonus_raw=bonus.mean(),
            bonus_raw_std=bonus.std(correction=0),
            bonus=paid.mean(),
            explained_variance=ppo.explained_variance(rollout.values[:-1], returns),
        )
        for minibatches in epochs[: config.ppo_epochs] if self.learns else []:
            for t, envs in minibatches:
                turn.add(**self.learn_policy(team.mine(t), team.mine(envs), rollout=rollout))
                self.progress.learn()
        self.steps += config.rollout_size
        self.updates += 1
        self._before, self.played = (
            self.played,
            self._stretches[self._stretches.index(self.played) - 1],
        )  # the other one
        turn.about = {
            "steps": self.steps,
            "updates": self.updates,
            **self.env.metrics(),
        }  # before the worlds go on
        turn.rest = self._rest_of(turn)
        turn.seconds = time.perf_counter() - began
        self._turn = turn
        return row if self.engine.overlaps else self.finish()

    def _rest_of(self, turn: _Turn) -> Iterator[None]:
        """What is left of a turn when the policy has learned: the bonus model learns, a minibatch at a time."""
        team, rollout = self.team, turn.rollout
        # Not earlier: to read them is to wait for the device, which had the policy to teach.
        turn.scores = self.scores.add(rollout.rewards.cpu().numpy(), rollout.dones.cpu().numpy())
        for minibatches in turn.epochs[: self.config.bonus_epochs]:
            for t, envs in minibatches:
                with self.engine.aside():
                    if team.size > 1 and not self._splits:
                        self.check_split(t, envs, rollout)
                    turn.add(**self.learn_bonus(team.mine(t), team.mine(envs), rollout=rollout))
                if not self.engine.overlaps:  # or a display would show two things at once
                    self.progress.learn()
                yield
            with self.engine.aside():
                self.bonus.after_epoch()
        with self.engine.aside():
            self.after_rollout()

    def settle(self) -> None:
        """Does what is left of the last turn; what is called from now on waits for the bonus model."""
        self._learn_on()
        self.engine.join()

    def _learn_on(self) -> None:
        for _ in self._turn.rest if self._turn is not None else ():
            pass

    def finish(self) -> dict[str, Any] | None:
        """Ends the last turn; returns its metrics, unless they were returned before."""
        if self._turn is None:
            return self._written()
        began = time.perf_counter()
        self.settle()
        self.engine.wait()
        turn, self._turn = self._turn, None
        turn.seconds += time.perf_counter() - began  # the next rollout did not cover it
        return self._metrics(turn)

    def _metrics(self, turn: _Turn) -> dict[str, Any]:
        """Waits for the device, in any thread."""
        with self.engine.beside():
            turn.add(**self.diagnose(*turn.epochs[-1][-1], rollout=turn.rollout))
            means = turn.means(self.team)
        sps = round(self.config.rollout_size / turn.seconds, 1)
        row = {**turn.about, "sps": sps, **turn.scores, **means}
        for name, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise TrainingError(f"{name} is {value} after update {row['updates']}")
        return row

    def _written(self) -> dict[str, Any] | None:
        """The metrics that the clerk was asked for, once."""
        row = None if self._writing is None else self._writing.result()
        self._writing = None
        return row

    def play(self, on_step: Callable[[int], None] = lambda t: None) -> Rollout:
        """Explores for a rollout; returns it, with the parts of all processes."""
        if self._before is not None:
            self.played.go_on_from(self._before)
        with self.team:
            self.player.play(self.played, on_step)
        self.env.merge(self.team)
        self.rollout = self.played.whole(self.team)
        return self.rollout

    @torch.no_grad()
    def intrinsic_rewards(self) -> Tensor:
        """The bonus of every transition of the rollout, [T, N]; several processes take turns."""
        rewards = torch.zeros_like(self.rollout.rewards)
        for number, (t, n) in enumerate(self.rollout.groups(self.config.minibatch_envs)):
            if number % self.team.size == self.team.rank:
                rewards[t, n] = self.pay(t, n, rollout=self.rollout)
        return self.team.sum(rewards)

    def _pay(self, t: Tensor, envs: Tensor, rollout: Rollout) -> Tensor:
        return self._of_shape(
            "reward", self.bonus.reward(*self.experience(t, envs, rollout)), envs.shape
        )

    def _of_shape(self, method: str, value: Any, shape: tuple[int, ...]) -> Tensor:
        """Return what a method of the bonus gave; name the bonus if it has another shape."""
        if isinstance(value, Tensor) and value.shape == shape:
            return value
        given = (
            f"shape {list(value.shape)}"
            if isinstance(value, Tensor)
            else f"a {type(value).__name__}"
        )
        said = f"{type(self.bonus).__name__}.{method} gave {given}, not a tensor of shape {list(shape)}"
        raise Blamed(said, "".join(traceback.format_stack()))

    def _take_in(self) -> None:
        """What a bonus counts or remembers, it takes in once its rewards are paid."""
        if type(self.bonus).take_in is not Bonus.take_in:
            for t, n in self.rollout.groups(self.config.minibatch_envs):
                self.bonus.take_in(*self.experience(t, n, self.rollout))

    def _after_rollout(self) -> None:
        self.bonus.after_rollout()

    def _learn_policy(self, t: Tensor, envs: Tensor, rollout: Rollout) -> dict[str, Tensor]:
        """One step of PPO on a minibatch; returns figures for the log."""
        logits, values = self.policy(rollout.stacks(t, envs))
        loss, figures = ppo.ppo_loss(
            logits,
            values,
            rollout.actions[t, envs],
            rollout.log_probs[t, envs],
            self.advantages[t, envs],
            self.returns[t, envs],
            clip=self.config.clip,
            entropy_coef=self.config.entropy_coef,
        )
        self._descend(loss, self.policy_adam)
        return figures

    def _learn_bonus(self, t: Tensor, envs: Tensor, rollout: Rollout) -> dict[str, Tensor]:
        """One step of the bonus model on a minibatch; returns figures for the log."""
        with self.team:
            loss, figures = self._bonus_loss(t, envs, rollout)
        if loss.requires_grad:
            self._descend(loss, self.bonus_adam)
        self.bonus.after_step()
        return {"bonus_loss": loss.detach(), **figures}

    def _diagnose(self, t: Tensor, envs: Tensor, rollout: Rollout) -> dict[str, Tensor]:
        return self.bonus.diagnostics(*self.transitions(t, envs, rollout))

    def _bonus_loss(
        self, t: Tensor, envs: Tensor, rollout: Rollout
    ) -> tuple[Tensor, dict[str, Tensor]]:
        mask = ~rollout.dones[t, envs] if self.config.mask_boundaries else None
        loss, figures = self.bonus.loss(*self.transitions(t, envs, rollout), mask)
        return self._of_shape("loss", loss, ()), figures

    @torch.no_grad()
    def check_split(self, t: Tensor, envs: Tensor, rollout: Rollout) -> None:
        """Several processes: the bonus's loss on a minibatch must be the mean of their losses on their rows of it."""
        before = copy.deepcopy(self.bonus.state_dict())

        def loss(team: Team) -> Tensor:
            mine = team.mine(t), team.mine(envs)
            devices = [self.device] if self.device.type == "cuda" else []
            with (
                team,
                torch.random.fork_rng(devices),
            ):  # with the noise that the first update will draw
                return team.mean(self._bonus_loss(*mine, rollout)[0])

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

    def transitions(
        self, t: Tensor, envs: Tensor, rollout: Rollout
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(obs, actions, next_obs), what a bonus knows."""
        return rollout.stacks(t, envs), rollout.actions[t, envs], rollout.stacks(t + 1, envs)

    def experience(self, t: Tensor, envs: Tensor, rollout: Rollout) -> tuple[Any, ...]:
        """Transitions and, for a bonus that uses it, their context."""
        transitions = self.transitions(t, envs, rollout)
        if not self.bonus.uses_context:
            return transitions
        states = None if rollout.states is None else rollout.states[t, envs]
        return (*transitions, Context(rollout.episodes[t, envs], states))

    def _adam(self, module: torch.nn.Module, rate: float) -> torch.optim.Optimizer:
        # An optimiser needs something to hold, even for a bonus that learns nothing by gradient.
        trained = [p for p in module.parameters() if p.requires_grad] or [
            torch.nn.Parameter(torch.zeros(1, device=self.device))
        ]
        return torch.optim.Adam(
            trained, lr=rate, eps=self.config.adam_eps, fused=True, capturable=self.engine.fast
        )

    def close(self) -> None:
        """Lets go of the environments."""
        if self._writing is not None:
            wait([self._writing], timeout=1)  # a process must not end amid it
        self.env.close()

    def check_weights(self) -> None:
        """A checkpoint must not hold what the last step has spoiled."""
        self.settle()
        for name, module in (("policy", self.policy), ("bonus", self.bonus)):
            norms = [parameter.norm() for parameter in module.parameters()]
            if norms and not torch.stack(norms).isfinite().all():
                raise TrainingError(
                    f"the weights of the {name} are not finite after update {self.updates}"
                )

    def state_dict(self) -> dict[str, Any]:
        """The state of the run, the same however many processes it runs on; they must ask for it together."""
        self.settle()
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
            "engine": self.engine.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """For a trainer that has not been used: its recordings would go on with what they were recorded with."""
        if self.updates:
            raise RuntimeError(f"this trainer has made {self.updates} updates; load into a new one")
        self.steps, self.updates = state["steps"], state["updates"]
        self.reached = self.steps
        for name in ("policy", "bonus", "policy_adam", "bonus_adam", "reward_norm", "scores"):
            getattr(self, name).load_state_dict(state[name])
        for adam in (self.policy_adam, self.bonus_adam):
            for group in adam.param_groups:
                group["capturable"] = self.engine.fast  # whatever engine saved it
        self.env.load_state_dict(parallel.each(state["env"], self.env.per_env, self.team.mine))
        if self.env.restorable:
            with self.team:
                self.played.load_state_dict(state["rollout"])
            self._before = self.played
        else:
            episodes = self.team.mine(state["rollout"]["episodes"]).to(self.device)
            self.played.episodes[0] = episodes + self.config.num_envs
            self.scores.forget_unfinished()
        torch.set_rng_state(state["rng"].cpu())
        self.engine.load_state_dict(state.get("engine", {}))


def look_around(
    config: TrainConfig, progress: Progress = silent, team: Team = ALONE
) -> tuple[Tensor, Tensor]:
    """Return the mean picture [4, H, W] and the std of what a random agent sees, in environments of its own.

    A run does so before it makes those it trains in: to close one may take away what all of the process share.
    """

    device, _ = _place(config, team)

    def look() -> tuple[Tensor, Tensor]:
        env = env_of(config, min(OBS_NORM_ENVS, config.num_envs), stream=1, device=device)
        progress.phase(f"a random agent looks around for {config.obs_norm_steps:,} steps")
        try:
            mean, std = random_agent_statistics(env, config.obs_norm_steps, config.seed)
        finally:
            env.close()
        return mean.cpu(), std.cpu()

    return team.from_first(look)


class _Turn:
    """What is known of a turn while it goes on. Figures stay on the device until `means`."""

    def __init__(self, rollout: Rollout, epochs: list[list[tuple[Tensor, Tensor]]]) -> None:
        self.rollout, self.epochs = rollout, epochs  # kept: what learns aside still reads them
        self.rest: Iterator[None] = iter(())  # what is left to do
        self.seconds = 0.0
        self.about: dict[str, Any] = {}
        self.scores: dict[str, Any] = {}
        self.figures: dict[str, list[Tensor]] = defaultdict(list)

    def add(self, **figures: Tensor) -> None:
        for name, value in figures.items():
            self.figures[name].append(value)

    def means(self, team: Team) -> dict[str, float]:
        """The mean of every figure, over all processes; waits for the device once."""
        means = torch.stack(
            [torch.stack(values).double().mean() for values in self.figures.values()]
        )
        return dict(zip(self.figures, team.mean(means.cpu()).tolist(), strict=True))


def _place(config: TrainConfig, team: Team) -> tuple[torch.device, bool]:
    """Return the device to learn on, and whether it replays CUDA graphs; raise ConfigError where the run does not fit."""
    device = engine.pick_device(config.device)
    fast = engine.is_fast(config.engine, device) and team.size == 1
    _require_room(config, config.num_envs // team.size, device)
    if device.index is not None:
        torch.cuda.set_device(device)  # streams and events are of the current one
    engine.tune_allocator()
    return device, fast


def _require_room(config: TrainConfig, num_envs: int, device: torch.device) -> None:
    """A number with too many zeros is told before anything is made."""
    frames, there = (
        (config.rollout_steps + STACK) * num_envs * SIDE**2 / 2**30,
        engine.memory(device) / 2**30,
    )
    if frames > there:
        raise ConfigError(
            f"num_envs={config.num_envs}: the frames of {config.rollout_steps} steps would take {frames:,.0f} GiB, and "
            f"there are {there:,.0f}; use fewer environments or a smaller --rollout-steps"
        )


def env_of(
    config: TrainConfig, num_envs: int, stream: int, device: torch.device, part: int = 0
) -> NoisyEnv:
    """The run's environment; each stream, and each part of it, has randomness of its own."""
    return make_env(
        config.env,
        num_envs,
        noise=config.noise,
        strength=config.noise_strength,
        seed=int(np.random.SeedSequence([config.seed, stream]).generate_state(part + 1)[part]),
        device=str(device),
        max_episode_steps=config.max_episode_steps,
        noop_max=config.noop_max,
        sticky=config.sticky,
        pixel_noise=config.pixel_noise,
        box_noise=config.box_noise,
        env_kwargs=config.env_kwargs,
        env_workers=config.env_workers,
        shard=(parallel.current().rank, parallel.current().size),
    )


def training_env(config: TrainConfig, num_envs: int, stream: int, device: torch.device) -> Env:
    """The same for training: emulators come in pools."""
    pools = pools_of(config.env, num_envs)
    parts = [env_of(config, num_envs // pools, stream, device, part) for part in range(pools)]
    return parts[0] if pools == 1 else Pools(parts)
