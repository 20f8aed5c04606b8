"""ECoC: efficient continuous control (arXiv 2408.08047); docs/equations.md §2.

    L = beta L_BC + L_TD + alpha L_REG + dc L_DC

`ECoC.loss` reads in the order of this equation; `behaviour_loss`, `td_target`, `critic_loss`, `conservatism_loss` and
`actor_loss` are its terms, and a subclass may replace any of them. One backward pass serves all terms: a term that must
not reach a network reads a detached tensor. The defaults are argued in docs/method.md; presets hold the paper's values.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ecoc.batch import Batch, TrainSequences
from ecoc.encoders import PredictionTask
from ecoc.errors import InputError
from ecoc.losses.conservatism import conservatism_loss
from ecoc.losses.returns import Transitions, lambda_returns, td_targets
from ecoc.losses.sampling import effective_support, sample_pool
from ecoc.methods.base import BuildContext, Loss, Method
from ecoc.methods.behaviour_loss import BehaviourLoss
from ecoc.methods.ecoc.candidates import Candidates
from ecoc.methods.ecoc.cluster_index import ClusterIndex
from ecoc.methods.ecoc.config import ECoCConfig
from ecoc.methods.ecoc.exploration import log_weights, sample_one
from ecoc.methods.ecoc.step import StepTensors, per_branch
from ecoc.methods.targets import Targets
from ecoc.policies.base import Policy
from ecoc.policies.critic import Critic, SeparateCritic, SharedCritic, TowerCritic, clipped, q_all, q_of
from ecoc.policies.value_policy import ValuePolicy, ValueQuery

_ALL_UP_TO = 1000  # items; up to here xi enumerates, which is about as fast as a pool and has no noise
_PENALTY_HISTORIES = 4096  # training histories whose lists decide the diversity penalty


class ECoC(Method):
    """A cloned policy with a critic that learns its long-term value."""

    policy: ValuePolicy
    target_policy: Targets[ValuePolicy]
    needs_next = True
    finalizes = syncs_rows = True

    class Config(ECoCConfig):
        """Settings of ECoC."""

    def __init__(self, config: Config, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        self.policy = ValuePolicy(context.make_encoder(), context.encoder.init)
        self.bc = BehaviourLoss(config, context.dims.items)
        self.policy.critic = _critic(config, context)
        if config.control:
            dim = context.encoder.dim
            self.policy.head = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        self.policy.rank_by, self.policy.w, self.policy.m = config.rank_by, config.w, config.m
        self.target_policy = Targets(self.policy, config.tau, warmup=config.tau_warmup)
        self.lagged = {"policy": self.target_policy}
        self.xi = config.xi if config.xi != "auto" else "all" if context.dims.items <= _ALL_UP_TO else "pool"
        self.index = None
        if self.xi == "topk" and context.dims.items >= config.index_from:
            self.index = ClusterIndex(context.dims.items, context.encoder.dim, every=config.index_every)
        # whether a gradient of the critic's terms reaches the actor
        self._reaches_actor = config.critic == "shared" or config.dc > 0 or config.distil > 0
        self._largest_return = float("inf")

    def sparse_parameters(self) -> set[str]:
        if (self.xi != "pool" and self.index is None) or not self.bc.touches_sparse_rows(self.policy.encoder):
            return set()
        return {"policy.table"} | ({"policy.critic.items"} if self.config.critic == "tower" else set())

    def clip_group(self, name: str) -> str:
        # With a tower critic the actor equals supervised training bit for bit: clipping must not tie it to the critic.
        return "critic" if self.config.critic == "tower" and name.startswith(("policy.critic.", "policy.head.")) else ""

    def decays(self, name: str) -> bool:
        return self.config.decay_actor or _is_critic(name)

    def fit_statistics(self, sessions: TrainSequences) -> None:
        super().fit_statistics(sessions)
        self.bc.fit_statistics(sessions)
        if sessions.rewards is not None and len(sessions.rewards) and self.config.gamma < 1:
            self._largest_return = float(abs(sessions.rewards).max()) / (1 - self.config.gamma)

    def loss(self, batch: Batch) -> Loss:
        """L = beta L_BC + L_TD + alpha L_REG + dc L_DC, and the optional terms; docs/equations.md §2.1."""
        parts: dict[str, Tensor] = {}
        with self.clock("encode"):
            items = self.policy.item_vectors()
            task = self.policy.encoder.prediction_task(items, batch)
        with self.clock("loss"):  # before anything else is drawn, as in supervised training
            parts["bc"] = self.config.beta * self.behaviour_loss(task, items)
        with self.clock("encode"), torch.set_grad_enabled(self._reaches_actor):
            mu = self.policy.states_of(task, batch.history)  # [B, L, d]
        with self.clock("critic"):
            step = self.step_tensors(batch, mu, items)
        critic_parts, target = self._critic_parts(step)
        parts |= critic_parts
        with self.clock("control"):
            parts |= self.actor_loss(step)
        parts |= task.extra
        return Loss(_sum(parts), parts, self.diagnostics(step, target) if self.collect_diagnostics else {})

    def turns(self) -> tuple[Callable[[str], bool], ...]:
        if self.config.optimise == "together":
            return super().turns()
        # The critic's turn also moves the actor if a share of the critic's gradient reaches it.
        is_free = self._critic_moves_actor()
        return (lambda name: is_free or _is_critic(name), lambda name: not _is_critic(name))

    def _critic_moves_actor(self) -> bool:
        return self.config.critic == "shared" and self.config.critic_grad > 0

    def turn_losses(self, batch: Batch) -> Iterator[Loss]:
        """First L_TD + alpha L_REG for the critic, then beta L_BC + dc L_DC for the actor, by the moved critic."""
        if self.config.optimise == "together":
            yield self.loss(batch)
            return
        items, task, mu = self._encode(batch)
        with self.clock("critic"):
            step = self.step_tensors(batch, mu, items)
        parts, target = self._critic_parts(step)
        yield Loss(_sum(parts), parts, self.diagnostics(step, target) if self.collect_diagnostics else {})
        if self._critic_moves_actor():
            items, task, mu = self._encode(batch)
        with self.clock("loss"):
            parts = {"bc": self.config.beta * self.behaviour_loss(task, items)}
        with self.clock("control"):
            with torch.no_grad():
                nu = per_branch(step.transitions.current, self.policy.critic_states(batch.history, mu, items))
            step = replace(step, mu=step.explored(step.transitions.current(mu)), explored_nu=step.explored(nu, 1))
            parts |= {**self.actor_loss(step), **task.extra}
        yield Loss(_sum(parts), parts)

    def _critic_parts(self, step: StepTensors) -> tuple[dict[str, Tensor], Tensor]:
        """Alpha L_REG and L_TD, and the targets of L_TD."""
        parts = {}
        if self.config.alpha:
            with self.clock("conserve"):
                parts["reg"] = self.config.alpha * self.conservatism_loss(step)
        with self.clock("target"), torch.no_grad():
            target = self.td_target(step)
        with self.clock("critic"):
            parts["td"] = self.critic_loss(step, target)
        return parts, target

    def _encode(self, batch: Batch) -> tuple[Tensor, PredictionTask, Tensor]:
        """The actor's item vectors [V, d], its training task and its states [B, L, d]."""
        with self.clock("encode"):
            items = self.policy.item_vectors()
            task = self.policy.encoder.prediction_task(items, batch)
            return items, task, self.policy.states_of(task, batch.history)

    def step_tensors(self, batch: Batch, mu: Tensor, items: Tensor) -> StepTensors:
        """What the terms read: transitions, candidates, the critic's vectors, and what xi explores (§2.2, §2.3)."""
        policy, transitions, sparse = self.policy, Transitions.of(batch), self.policy.encoder.sparse
        nu = per_branch(transitions.current, policy.critic_states(batch.history, mu, items))
        current = transitions.current(mu)
        candidates = self.candidates(transitions, current, items)
        table = policy.critic.table(items)
        actions, logged = candidates.action_vectors(policy.critic, table, transitions.item, sparse=sparse)
        advantage = q_of(nu, logged)
        explored_rows, explored_nu, explored_advantage = None, nu, advantage
        count, most = len(transitions.item), self.config.explorers
        if most and count > most:
            explored_rows = torch.randperm(count)[:most]
            current = current.index_select(0, explored_rows)
        with torch.no_grad():
            weights = log_weights(candidates.logits(current, items), self.xi, self.config.n1)
        if explored_rows is not None:
            explored_nu, explored_advantage = (x.index_select(1, explored_rows) for x in (nu, advantage))
        return StepTensors(
            history=batch.history,
            transitions=transitions,
            candidates=candidates,
            items=items,
            all_mu=mu,
            nu=nu,
            advantage=advantage,
            actions=actions,
            explored_rows=explored_rows,
            mu=current,
            explored_nu=explored_nu,
            explored_advantage=explored_advantage,
            exploration_weights=weights,
        )

    def candidates(self, transitions: Transitions, mu: Tensor, items: Tensor) -> Candidates:
        """All items, those an index finds near mu [N, d], or a pool: half targets of this step, half uniform draws."""
        if self.index is not None:
            return Candidates(self.index.nearest(mu, items, self.config.candidates), None)
        if self.xi != "pool":
            return Candidates(None, None)
        half = self.config.pool // 2
        chosen = transitions.item[torch.randperm(len(transitions.item))[:half]]
        pool = sample_pool(chosen, self.bc.frequency, self.config.pool - half, in_batch=True)
        return Candidates(pool.items, pool.correction)

    def behaviour_loss(self, task: PredictionTask, items: Tensor) -> Tensor:
        """L_BC: the logged item should be ranked first; docs/equations.md §2.1."""
        return self.bc(task.states, task.target, items, sparse=self.policy.encoder.sparse)

    def conservatism_loss(self, step: StepTensors) -> Tensor:
        """L_REG = sum_j mean [explored Q_j - Q_j(s, i)]: no explored action above the logged one (§2.1)."""
        return conservatism_loss(
            step.explored_nu, step.actions, step.explored_advantage, step.exploration_weights, form=self.config.reg
        )

    def td_target(self, step: StepTensors) -> Tensor:
        """y_k = c_k + sum_{u > k} (gamma trace)^(u - k) (c_u - q_u), c = r + gamma (1 - done) v(s'), [N'] (§2.1).

        v and q are of the lagged critic; the actor that explores at s' is the lagged or the online one.
        """
        config, target, transitions = self.config, self.target_policy.copy, step.transitions.whole()
        is_online, critic = config.next_from == "online", self.policy.critic
        rows = step.rows_read()
        if is_online and isinstance(critic, TowerCritic):
            # A tower has its own items and reads mu from outside: the online mu saves a pass of the lagged encoder.
            self.target_policy.sync_rows(rows, critic.items)
            mu, items = step.all_mu, step.items
        else:
            self.target_policy.sync_rows(rows)
            mu, items = target.states(step.history), target.item_vectors()
        nu = clipped(target.critic_states(step.history, mu, items), config.clip)  # [S, B, L, d]
        value = target.critic.value(nu)  # V, [B, L]
        actions, logged = step.candidates.action_vectors(target.critic, target.critic.table(items), transitions.item)
        mu, items = (step.all_mu, step.items) if is_online else (mu, items)
        logits = step.candidates.logits(transitions.next(mu), items)
        next_value = transitions.next(value) + self.next_advantage(logits, per_branch(transitions.next, nu), actions)
        if not config.trace:
            return td_targets(transitions.reward, transitions.done, next_value, config.gamma)
        logged_value = transitions.current(value) + q_of(per_branch(transitions.current, nu), logged).amin(0)
        return lambda_returns(transitions, next_value, logged_value, config.gamma, config.trace)

    def next_advantage(self, logits: Tensor, nu: Tensor, actions: Tensor) -> Tensor:
        """v(s') - V(s'), [N']: sum_i pi(i|s') min_j nu_j . h_j(i), or at one drawn item, plus entropy (§2.1)."""
        if self.xi == "topk":
            nearest = log_weights(logits, "topk", self.config.n1)
            logits = logits if nearest is None else logits + nearest
        if self.config.backup == "expected":
            share = logits.softmax(1)
            advantage = (share * q_all(nu, actions).amin(0)).sum(1)
            surprise = torch.special.entr(share).sum(1) if self.config.entropy else 0.0
        else:
            drawn = sample_one(logits)
            advantage = q_of(nu, actions[:, drawn]).amin(0)
            surprise = -logits.log_softmax(1).gather(1, drawn[:, None]).squeeze(1) if self.config.entropy else 0.0
        return advantage + self.config.entropy * surprise

    def critic_loss(self, step: StepTensors, target: Tensor) -> Tensor:
        """L_TD = sum_j mean (Q_j(s, i) - y)^2 over whole transitions; docs/equations.md §2.1."""
        q = self._logged_q(step)
        return (q - target).square().sum(0).mean() if len(target) else q.sum()

    def _logged_q(self, step: StepTensors) -> Tensor:
        """Q_j(s, i) of the whole transitions, [J, N']."""
        return (self.policy.critic.value(step.nu) + step.advantage).index_select(1, step.transitions.whole_rows())

    def actor_loss(self, step: StepTensors) -> dict[str, Tensor]:
        """The terms by which the critic moves the actor, each off unless its weight is set; docs/equations.md §2.1.

        dc       L_DC = mean -min_j Q_j(stop(state branch), pi(s))
        distil   cross-entropy of the policy over the explored items to softmax(Q)
        control  cross-entropy of (mu + G(mu)) . M to mu . M + w Q, for the head G alone
        """
        config, policy, parts = self.config, self.policy, dict[str, Tensor]()
        if config.dc:
            action = policy.critic.h(step.mu, frozen=True)  # [A, n, d]
            q = q_of(clipped(step.explored_nu.detach(), config.clip), action)
            parts["dc"] = -config.dc * (q.amin(0) if config.dc_q == "least" else q[0]).mean()
        if config.distil:
            q, weights = step.candidate_advantages().detach(), step.exploration_weights
            teacher = q if weights is None else q.masked_fill(weights == -torch.inf, -torch.inf)
            logits = step.candidates.logits(step.mu, step.items, sparse=policy.encoder.sparse)
            parts["distil"] = config.distil * _cross_entropy(teacher, logits)
        if config.control and policy.head is not None:
            mu, items = step.mu.detach(), step.items.detach()
            teacher = step.candidates.logits(mu, items) + config.w * step.candidate_advantages().detach()
            turned = step.candidates.logits(mu + policy.head(mu), items)
            parts["control"] = config.control * _cross_entropy(teacher, turned)
        return parts

    @torch.no_grad()
    def diagnostics(self, step: StepTensors, target: Tensor) -> dict[str, Tensor]:
        """Figures of a step that show whether the critic and xi behave."""
        policy, share, advantage = self.policy, step.exploration_shares(), step.candidate_advantages()
        q, value = self._logged_q(step), policy.critic.value(step.explored_nu)
        logits = Candidates(step.candidates.items, None).logits(step.mu, step.items)  # as the policy ranks
        best = logits.argmax(1, keepdim=True)
        first = (logits + (policy.w * advantage if policy.rank_by == "blend" else 0)).argmax(1)
        logged = normalize(step.items[step.logged_items()], dim=1)
        return {
            "q/logged": q.sum() / max(1, q.numel()),  # there may be no whole transition
            "q/explored": (value + (share * advantage).sum(1)).mean(),
            "q/policy": (value + advantage.gather(1, best).squeeze(1)).mean(),
            "td_error": (q - target).abs().sum() / max(1, q.numel()),
            "mu_norm": step.mu.norm(dim=1).mean(),
            "cosine": (normalize(step.mu, dim=1) * logged).sum(1).mean(),
            "support": effective_support(share).mean(),
            "lag": self._lag(),
            "distinct": torch.tensor(float(len(set(first.tolist())))),
            "states": torch.tensor(float(len(first))),
            "whole": torch.tensor(q.shape[1] / max(1, len(step.transitions.item))),
        }

    def _lag(self) -> Tensor:
        """Distance between the lagged critic and the critic, relative to the critic's norm; item tables left out."""
        online = dict(self.policy.critic.named_parameters())
        lagged = dict(self.target_policy.copy.critic.named_parameters())
        names = [name for name in online if name != "items"]
        distance = torch.stack([(online[name] - lagged[name]).square().sum() for name in names]).sum()
        return (distance / torch.stack([online[name].square().sum() for name in names]).sum()).sqrt()

    def warnings(self, diagnostics: dict[str, float]) -> dict[str, str]:
        warnings = {}
        largest = max(abs(diagnostics.get(f"q/{name}", 0.0)) for name in ("logged", "explored", "policy"))
        if self._largest_return == 0:
            warnings["rewards"] = "all rewards are 0: there is no value to learn; rank by policy"
        elif largest > 2 * self._largest_return:
            warnings["q"] = (
                f"Q is {largest:.3g}, more than twice the largest possible return ({self._largest_return:.3g}): the"
                " critic diverges; raise method.alpha, lower method.gamma or train.lr"
            )
        if diagnostics.get("support", 9.0) < 1.5 and self.policy.items > 10:
            warnings["xi"] = "xi explores fewer than 1.5 items per state: it collapsed onto the policy's first item"
        if diagnostics.get("whole", 1.0) == 0:
            warnings["outcomes"] = (
                "no transition's next state lies in its window, so the critic learns nothing: use longer windows"
                " (encoder.length) or rank by policy"
            )
        states, distinct = diagnostics.get("states", 0.0), diagnostics.get("distinct", 0.0)
        if states >= 100 and distinct <= 0.01 * states and self.policy.items > 10:
            warnings["lists"] = (
                f"the first places of {states:.0f} lists hold {distinct:.0f} distinct items: the lists collapse;"
                " lower method.w"
            )
        return warnings

    def finalize(self, policy: Policy, batches: Iterable[Batch]) -> None:
        """Fit the diversity penalty on training histories; docs/equations.md §2.6."""
        if not isinstance(policy, ValuePolicy) or self.config.rank_by != "blend" or self.config.guard >= 1:
            return
        queries, count = [], 0
        for batch in batches:
            queries.append(policy.ranked_by("blend").value_query(batch.history))
            count += len(queries[-1])
            if count >= _PENALTY_HISTORIES:
                break
        policy.fit_diversity_penalty(ValueQuery.join(queries), self.config.guard)

    def describe(self) -> dict[str, str]:
        config = self.config
        exploration = {
            "all": f"all {self.policy.items:,} items, weighted by the policy",
            "pool": f"a pool of {config.pool:,} items per step, weighted by the policy",
            "gumbel": f"{config.n1:,} items drawn without replacement",
            "cdf": f"{config.n1:,} items drawn with replacement",
            "topk": f"the {config.n1:,} items nearest to the policy"
            + (f", among {config.candidates:,} that an index finds" if self.index is not None else ""),
        }
        return {"loss": self.bc.describe(), "exploration": exploration[self.xi]}


def _is_critic(name: str) -> bool:
    return name.startswith("policy.critic.")


def _sum(parts: dict[str, Tensor]) -> Tensor:
    return torch.stack([part.reshape(()) for part in parts.values()]).sum()


def _cross_entropy(teacher: Tensor, logits: Tensor) -> Tensor:
    """Mean of -sum softmax(teacher) log softmax(logits)."""
    return -(teacher.softmax(1) * logits.log_softmax(1)).sum(1).mean()


def _critic(config: ECoCConfig, context: BuildContext) -> Critic:
    """The critic that the settings choose."""
    dim = context.encoder.dim
    heads = (1 if config.critic == "separate" else 2) if config.heads is None else config.heads
    if config.critic == "shared" and heads == 1:
        raise InputError("method.heads = 1: with a shared state branch the two critics would be one; choose 2")
    if config.critic == "tower" and config.dc:
        raise InputError(
            "method.dc: the actions of a tower critic are directions in its own item table, where the actor has none;"
            " choose method.critic = shared or separate, or rank by blend"
        )
    shape = {"heads": heads, "hidden": config.hidden, "dueling": config.dueling}
    if config.critic == "shared":
        return SharedCritic(dim, config.critic_grad, **shape)
    if config.critic == "separate":
        return SeparateCritic(context.make_encoder, dim, **shape)
    return TowerCritic(context.make_encoder(feedback=context.dims.feedback > 0), context.encoder.init, **shape)
