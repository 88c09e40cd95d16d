"""Algorithm 1: `Trainer.iterate`, and the updates it is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from ssedb import ppo
from ssedb.actions import to_data
from ssedb.bonuses import make_bonus
from ssedb.bonuses.base import Bonus, Context, observes, require_result
from ssedb.collect.environments import learner_device, make_collector, training_envs
from ssedb.collect.rollout import Rollout
from ssedb.collect.scores import Scores
from ssedb.config import TrainConfig
from ssedb.engine import make_engine
from ssedb.engine.distributed import ALONE, Group
from ssedb.envs.base import Env
from ssedb.errors import ConfigError
from ssedb.networks import ActorCritic
from ssedb.normalize import RewardNorm
from ssedb.record import Metrics, Record, guards, require_finite, require_finite_tensors
from ssedb.updates import bonus_step, descend, train_bonus

Minibatches = list[tuple[Tensor, Tensor]]
"""Indices (t, env) of the minibatches of one pass over a rollout."""


class Trainer:
    """A policy and a bonus model that learn from what the policy collects."""

    def __init__(
        self,
        config: TrainConfig,
        env: Env | Sequence[Env] | None = None,
        group: Group = ALONE,
        seed_key: int = 0,
        on_step: Callable[[int], None] = lambda steps: None,
        on_minibatch: Callable[[], None] = lambda: None,
    ) -> None:
        """Make environments, engine, collector, policy and bonus model.

        Args:
            config: the run's settings.
            env: environments to train in, or pools of them; those of the settings unless given.
            group: the processes that share the run.
            seed_key: derives the environments' seeds from the run's; see `env_of`.
            on_step: called with the run's steps after each step of all environments.
            on_minibatch: called after each optimizer step.
        """
        self.config = config
        self.on_step = on_step
        self.on_minibatch = on_minibatch
        torch.manual_seed(config.seed)
        device = learner_device(config, group)
        if env is None:
            env = training_envs(config, seed_key, device, group)
        envs = [env] if isinstance(env, Env) else env
        self.engine = make_engine(
            device,
            "eager" if config.deterministic else config.engine,
            precision=config.precision,
            seed=config.seed,
            overlap=envs[0].on_host,
            group=group,
        )
        self.collector = make_collector(envs, config.rollout_steps, self.engine, self._count_step)
        self._make_models()
        self._wrap_steps()
        recent = config.reward_scale == "recent"
        self.reward_norm = RewardNorm(config.num_envs, config.gamma, self.device, recent)
        self.scores = Scores(config.num_envs)
        self.steps = self.updates = 0
        self.reached = 0  # the step that the environments are at, within a rollout too
        self.bonus_task = self.engine.background(iter(()), Metrics)  # nothing to wait for yet
        self._record: Record | None = None  # of the last iteration, until its metrics are returned

    def _make_models(self) -> None:
        """Make the policy, the bonus model and their optimizers: line 1 of Algorithm 1."""
        config = self.config
        obs_shape, num_actions = self.rollout.obs_shape, self.env.num_actions
        sizes = config.policy_channels, config.policy_width, config.policy_layers
        self.policy = self.engine.prepare(ActorCritic(obs_shape, num_actions, *sizes))
        self.bonus: Bonus = self.engine.prepare(
            make_bonus(config.bonus, obs_shape, num_actions, **config.bonus_options)
        )
        states_kept = self.collector.keep_states() if self.bonus.uses_context else False
        if self.bonus.needs_states and not states_kept:
            raise ConfigError(
                f"{config.env} does not tell its true states, which {config.bonus} needs; "
                + ("use --counted frames" if "counted" in config.bonus_options else "use Rooms")
            )
        self.learns = config.extrinsic_coef > 0 or (
            config.intrinsic_coef > 0 and self.bonus.gives_reward
        )
        if not self.learns:  # without a reward, PPO would follow the value's errors
            self.policy.make_uniform()
        adam = partial(self.engine.adam, eps=config.adam_eps)
        self.policy_adam = adam(self.policy, config.learning_rate)
        self.bonus_adam = adam(self.bonus, config.bonus_learning_rate)

    def _wrap_steps(self) -> None:
        """Let the engine decide how the steps of an iteration run."""
        wrap, capturable = self.engine.wrap, self.bonus.capturable
        self.ppo_loss = self.engine.compile(ppo.ppo_loss)
        self.reward_step = wrap(self._reward, capturable=capturable)
        self.observe_step = wrap(self._observe, capturable=False)
        self.policy_step = wrap(self._policy_step)
        self.bonus_step = wrap(self._bonus_step, background=True, capturable=capturable)
        self.diagnose_step = wrap(self._diagnose, capturable=False)

    @property
    def device(self) -> torch.device:
        """Where everything learns."""
        return self.engine.device

    @property
    def env(self) -> Env:
        """The environments, or the first pool of them."""
        return self.collector.env

    @property
    def rollout(self) -> Rollout:
        """The last rollout."""
        return self.collector.rollout

    def fit_observations(self, seen: tuple[Tensor, Tensor]) -> None:
        """Fix the scale of observations by what `look_around` returned, a mean and a std."""
        for module in (self.policy, self.bonus):
            module.normalize.set(*seen)

    def iterate(self) -> Metrics | None:
        """Run one iteration of Algorithm 1; docs/engine.md quotes its lines.

        Returns:
            The metrics of this iteration. An engine that updates the bonus model while the next
            rollout is collected returns those of the iteration before instead, or None where
            nothing is pending; `finish` returns what is.
        """
        config, began = self.config, time.perf_counter()
        rollout = self.collector.collect(self.policy.act)  # lines 3 to 5
        previous = self._metrics(self.bonus_task.wait())  # line 9 of the last iteration ends here
        bonus = self.intrinsic_rewards(rollout)  # line 6, [T, N]
        self.observe_step(rollout=rollout)  # for bonuses that count or remember
        scaled = self.scale_rewards(bonus)
        extrinsic = rollout.rewards.clamp(-1, 1)
        rewards = config.intrinsic_coef * scaled + config.extrinsic_coef * extrinsic
        advantages, returns = ppo.advantages_and_returns(
            rewards, rollout.values, config.gamma, config.gae_lambda
        )
        epochs = self.draw_minibatches(rollout)
        record = _new_record(rollout, bonus, scaled, returns)
        standardized = ppo.normalize_advantages(advantages)
        self.update_policy(rollout, epochs, standardized, returns, record)  # line 8
        self._count_iteration(record)
        self.bonus_task = self.engine.background(  # line 9; the engine advances the iterator
            self.update_bonus(rollout, epochs, record),
            result=partial(self._summarize, rollout, epochs, record),
        )
        record.seconds = time.perf_counter() - began
        return self._metrics(self.bonus_task.wait()) if self.bonus_task.waited else previous

    def finish(self) -> Metrics | None:
        """End the bonus update of the last iteration; return its metrics if nobody has them yet."""
        began = time.perf_counter()
        metrics = self.bonus_task.wait()
        if self._record is not None:  # no rollout has covered the wait
            self._record.seconds += time.perf_counter() - began
        return self._metrics(metrics)

    @torch.no_grad()
    def intrinsic_rewards(self, rollout: Rollout) -> Tensor:
        """Return the bonus of every transition, [T, N]."""
        rewards = torch.zeros_like(rollout.rewards)
        for t, envs in rollout.groups(self.config.minibatch_envs):
            rewards[t, envs] = self.reward_step(t, envs, rollout=rollout)
        return rewards

    def scale_rewards(self, bonus: Tensor) -> Tensor:
        """Return the bonus [T, N] divided by its scale, if there is one."""
        return bonus if self.config.reward_scale == "none" else self.reward_norm(bonus)

    def draw_minibatches(self, rollout: Rollout) -> list[Minibatches]:
        """Draw minibatches for every pass; PPO and the bonus model share them."""
        passes = max(self.config.ppo_epochs, self.config.bonus_epochs)
        return [list(rollout.minibatches(self.config.minibatch_envs)) for _ in range(passes)]

    def update_policy(
        self,
        rollout: Rollout,
        epochs: list[Minibatches],
        advantages: Tensor,
        returns: Tensor,
        record: Record,
    ) -> None:
        """Train the policy and its value by PPO; `advantages` and `returns` are [T, N]."""
        if not self.learns:
            return
        for t, envs in chain(*epochs[: self.config.ppo_epochs]):
            record.add(**self.policy_step(t, envs, advantages, returns, rollout=rollout))
            self.on_minibatch()

    def update_bonus(
        self, rollout: Rollout, epochs: list[Minibatches], record: Record
    ) -> Iterator[None]:
        """Train the bonus model, a minibatch each time the iterator is advanced."""
        passes = epochs[: self.config.bonus_epochs]
        wrap = partial(self.engine.wrap, capturable=False)
        for metrics in train_bonus(
            self.bonus, lambda minibatch: self.bonus_step(*minibatch, rollout=rollout), passes, wrap
        ):
            record.add(**metrics)
            self.on_minibatch()
            yield

    def _reward(self, t: Tensor, envs: Tensor, rollout: Rollout) -> Tensor:
        rewards = self.bonus.reward(*self._experience(t, envs, rollout))
        return require_result(self.bonus, "reward", rewards, envs.shape)

    def _observe(self, rollout: Rollout) -> None:
        """Show every transition to a bonus that counts or remembers."""
        if observes(self.bonus):
            for t, envs in rollout.groups(self.config.minibatch_envs):
                ends = {"mask": ~rollout.dones[t, envs]} if self.bonus.uses_mask else {}
                self.bonus.observe(*self._experience(t, envs, rollout), **ends)

    def _policy_step(
        self, t: Tensor, envs: Tensor, advantages: Tensor, returns: Tensor, rollout: Rollout
    ) -> dict[str, Tensor]:
        """Take one step of PPO on a minibatch; return metrics."""
        outputs, values = self.policy(rollout.stacks(t, envs))
        loss, metrics = self.ppo_loss(
            outputs,
            values,
            rollout.actions[t, envs],
            rollout.log_probs[t, envs],
            advantages[t, envs],
            returns[t, envs],
            clip=self.config.clip,
            entropy_coef=self.config.entropy_coef,
            space=self.policy.actions,
        )
        return {**metrics, "policy_gradient": descend(loss, self.policy_adam)}

    def _bonus_step(self, t: Tensor, envs: Tensor, rollout: Rollout) -> dict[str, Tensor]:
        """Take one step of the bonus model on a minibatch; return metrics."""
        mask = ~rollout.dones[t, envs] if self.config.mask_boundaries else None
        return bonus_step(self.bonus, self.bonus_adam, rollout.transitions(t, envs), mask)

    def _diagnose(self, t: Tensor, envs: Tensor, rollout: Rollout) -> dict[str, Tensor]:
        return self.bonus.diagnostics(*rollout.transitions(t, envs))

    def _experience(self, t: Tensor, envs: Tensor, rollout: Rollout) -> tuple[Any, ...]:
        """Return transitions and, for a bonus that uses it, their context."""
        transitions = rollout.transitions(t, envs)
        if not self.bonus.uses_context:
            return transitions
        states = None if rollout.states is None else rollout.states[t, envs]
        return (*transitions, Context(rollout.episodes[t, envs], states))

    def _count_step(self, t: int) -> None:
        self.reached = self.steps + (t + 1) * self.config.num_envs
        self.on_step(self.reached)

    def _count_iteration(self, record: Record) -> None:
        self.steps += self.config.rollout_size
        self.updates += 1
        counters = {"steps": self.steps, "updates": self.updates}
        record.about = {**counters, **self.collector.metrics()}
        self._record = record

    def _summarize(self, rollout: Rollout, epochs: list[Minibatches], record: Record) -> Metrics:
        """Add the scores and copy the metrics from the device; may run on a worker thread."""
        scores = self.scores.add(rollout.rewards.cpu().numpy(), rollout.dones.cpu().numpy())
        record.add(**self.diagnose_step(*epochs[-1][-1], rollout=rollout))
        return {**scores, **record.means(self.engine.mean)}

    def _metrics(self, summary: Metrics) -> Metrics | None:
        """Return all metrics of the last iteration, whose bonus update is done, once."""
        record, self._record = self._record, None
        if record is None:
            return None
        rate = round(self.config.rollout_size / record.seconds, 1)
        return require_finite({**record.about, "sps": rate, **summary}, record)

    def close(self) -> None:
        """Let go of the environments and of threads."""
        self.collector.close()
        self.engine.close()

    def require_finite_weights(self) -> None:
        """Raise TrainingError if weights or buffers are spoiled, before they are saved."""
        self.bonus_task.wait()
        for name, module in (("policy", self.policy), ("bonus", self.bonus)):
            require_finite_tensors(module, name, self.updates)

    SAVED = ("policy", "bonus", "policy_adam", "bonus_adam", "reward_norm", "scores", "engine")

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the run; all processes that share the run must call this."""
        self.bonus_task.wait()
        return {
            "steps": self.steps,
            "updates": self.updates,
            **{name: getattr(self, name).state_dict() for name in self.SAVED},
            "actions": to_data(self.policy.actions),
            **self.collector.state_dict(),
            "rng": torch.get_rng_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a checkpoint into a new trainer; CUDA graphs of a used one hold its old tensors."""
        if self.updates:
            raise RuntimeError(f"this trainer has made {self.updates} updates; load into a new one")
        self.steps = self.reached = state["steps"]
        self.updates = state["updates"]
        for name in self.SAVED:
            getattr(self, name).load_state_dict(state[name])
        for adam in (self.policy_adam, self.bonus_adam):
            self.engine.adopt(adam)
        self.collector.load_state_dict(state)
        if not self.collector.continued:
            self.scores.forget_unfinished()
        torch.set_rng_state(state["rng"].cpu())


def _new_record(rollout: Rollout, bonus: Tensor, scaled: Tensor, returns: Tensor) -> Record:
    """Return the metrics known before the updates; bonus, scaled and returns are [T, N]."""
    record = Record()
    record.add(**guards(rollout.frames, rollout.rewards, rollout.values))
    record.add(bonus_raw=bonus.mean(), bonus_raw_std=bonus.std(correction=0))
    record.add(bonus=scaled.mean())
    record.add(explained_variance=ppo.explained_variance(rollout.values[:-1], returns))
    return record
