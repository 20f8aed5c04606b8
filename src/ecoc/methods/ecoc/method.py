"""ECoC: efficient continuous control (arXiv 2408.08047); docs/equations.md §2.

    L        = beta L_BC + L_TD + alpha L_REG + dc L_DC
    L_TD     = sum_j mean (Q_j(s, i) - y)^2,  y from the lagged networks and xi
    L_REG    = sum_j mean [explored Q_j - Q_j(s, i)]                                      `conservatism`
    L_BC     = rank the logged item first                                                 `imitation`
    L_DC     = mean -min_j Q_j(stop(state branch), pi(s)): the actor turns towards value

One backward for all of them: what a loss must not reach is detached where it is used. The defaults are what works
(docs/method.md argues each); the presets keep the paper's values.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ecoc.batch import Batch, TrainSequences
from ecoc.encoders import PredictionTask
from ecoc.errors import InputError
from ecoc.losses.conservatism import conservatism_loss
from ecoc.losses.returns import Transitions, lambda_returns
from ecoc.losses.sampling import sample_pool
from ecoc.methods.base import BuildContext, Loss, Method
from ecoc.methods.behaviour_loss import BehaviourLoss
from ecoc.methods.ecoc.cluster_index import ClusterIndex
from ecoc.methods.ecoc.config import ECoCConfig
from ecoc.methods.ecoc.exploration import effective_support, log_weights, sample_one
from ecoc.methods.ecoc.step import Columns, Scene, of_branches
from ecoc.methods.targets import Targets
from ecoc.policies.base import Policy
from ecoc.policies.critic import Critic, SeparateCritic, SharedCritic, TowerCritic, clipped, q_all, q_of
from ecoc.policies.value_policy import ValuePolicy

_ALL_UP_TO = 1000  # items; up to here xi enumerates, which is about as fast as a pool and has no noise
_LARGEST_MERIT = 20.0  # weight of a logged item in advantage-weighted L_BC
_GUARDED = 4096  # histories the diversity guard looks at


class ECoC(Method):
    """A cloned policy with a critic that learns its long-term value."""

    policy: ValuePolicy
    needs_next = True
    finalizes = syncs_rows = True

    class Config(ECoCConfig):
        """Settings of ECoC."""

    def __init__(self, config: Config, parts: BuildContext) -> None:
        super().__init__(config, parts)
        self.config = config
        self.policy = ValuePolicy(parts.make_encoder(), parts.encoder.init)
        self.bc = BehaviourLoss(config, parts.dims.items)
        self.policy.critic = _critic(config, parts)
        if config.control:
            dim = parts.encoder.dim
            self.policy.head = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        self.policy.rank_by, self.policy.w, self.policy.m = config.rank_by, config.w, config.m
        self.behind = Targets(self.policy, config.tau, warmup=config.tau_warmup)
        self.lagged, self.averaged = {"policy": self.behind}, self.behind
        self.xi = config.xi if config.xi != "auto" else "all" if parts.dims.items <= _ALL_UP_TO else "pool"
        self.index = None
        if self.xi == "topk" and parts.dims.items >= config.index_from:
            self.index = ClusterIndex(parts.dims.items, parts.encoder.dim, every=config.index_every)
        self._bound = float("inf")

    def sparse_parameters(self) -> set[str]:
        if (self.xi != "pool" and self.index is None) or not self.bc.touches_sparse_rows(self.policy.encoder):
            return set()
        return {"policy.table"} | ({"policy.critic.items"} if self.config.critic == "tower" else set())

    def clip_group(self, name: str) -> str:
        # The behaviour tower is the supervised model to the last bit: not even clipping may tie it to the critic.
        return "critic" if self.config.critic == "tower" and name.startswith(("policy.critic.", "policy.head.")) else ""

    def decays(self, name: str) -> bool:
        return self.config.decay_actor or name.startswith("policy.critic.")

    def fit_statistics(self, sessions: TrainSequences) -> None:
        super().fit_statistics(sessions)
        self.bc.fit_statistics(sessions)
        if sessions.rewards is not None and len(sessions.rewards) and self.config.gamma < 1:
            self._bound = float(abs(sessions.rewards).max()) / (1 - self.config.gamma)

    def loss(self, batch: Batch) -> Loss:
        config, parts = self.config, dict[str, Tensor]()
        with self.clock("encode"):
            items = self.policy.item_vectors()
            task = self.policy.prediction_task(batch, items)
        if not config.awr:  # before anything else is drawn, as in supervised training
            with self.clock("loss"):
                parts["bc"] = config.beta * self._bc(task.states, task.target, items)
        with self.clock("encode"):
            mu = self._mu(batch, task)  # [B, L, d]
        with self.clock("critic"):
            scene = self._scene(batch, mu, items)
        if config.alpha:
            with self.clock("conserve"):
                nu, logged = scene.explorers
                parts["reg"] = config.alpha * conservatism_loss(
                    nu, scene.actions, logged, scene.near, form=config.reg, detach=config.reg_weights == "detach"
                )
        with self.clock("target"), torch.no_grad():
            aim = self._aim(batch, mu, scene)  # [N']
        with self.clock("critic"):
            q = (self.policy.critic.value(scene.nu) + scene.advantage).index_select(1, scene.moves.kept())  # [J, N']
            parts["td"] = (q - aim).square().sum(0).mean() if len(aim) else q.sum()
        with self.clock("control"):
            parts |= self._control(scene)
            if config.awr:
                states = task.states if task.all_states is not None else scene.mu
                parts["bc"] = config.beta * self._bc(states, scene.moves.item, items, self._merit(scene))
        parts |= task.extra
        total = torch.stack([part.reshape(()) for part in parts.values()]).sum()
        return Loss(total, parts, self._look(scene, q, aim) if self.collect_diagnostics else {})

    def _scene(self, batch: Batch, mu: Tensor, items: Tensor) -> Scene:
        critic, moves = self.policy.critic, Transitions.of(batch)
        nu = of_branches(moves.current, critic.states(self.policy, batch.history, mu))
        current = moves.current(mu)
        columns = self._columns(moves, current, items)
        table = critic.table(self.policy)
        actions, logged = columns.actions(critic, table, moves.item, sparse=self._sparse)
        advantage = q_of(nu, logged)
        some = self._some(len(moves.item))
        current = current if some is None else current.index_select(0, some)
        with torch.no_grad():
            near = log_weights(self._logits(current, columns, items), self.xi, self.config.n1)
        return Scene(moves, columns, items, nu, advantage, some, current, actions, near)

    def _some(self, count: int) -> Tensor | None:
        """A random choice of the states in which actions are explored; weighing every logged item needs all."""
        most = self.config.explorers
        return None if self.config.awr or not most or count <= most else torch.randperm(count)[:most]

    @property
    def _sparse(self) -> bool:
        return self.policy.encoder.sparse

    def _bc(self, states: Tensor, target: Tensor, items: Tensor, weight: Tensor | None = None) -> Tensor:
        return self.bc(states, target, items, sparse=self._sparse, weight=weight)

    def _mu(self, batch: Batch, task: PredictionTask) -> Tensor:
        """Mu at all positions; an encoder that is taught by another task than the next item encodes them anew."""
        reaches_mu = self.config.critic == "shared" or self.config.dc or self.config.distil or self.config.awr
        with torch.set_grad_enabled(bool(reaches_mu)):
            return self.policy.states_of(task, batch.history)

    def _columns(self, moves: Transitions, mu: Tensor, items: Tensor) -> Columns:
        """All items, those an index finds near, or a pool: half the targets of this step, half from the catalogue."""
        if self.index is not None:
            return Columns(self.index.near(mu, items, self.config.candidates), None)
        if self.xi != "pool":
            return Columns(None, None)
        half = self.config.pool // 2
        chosen = moves.item[torch.randperm(len(moves.item))[:half]]
        pool = sample_pool(chosen, self.bc.frequency, self.config.pool - half, in_batch=True)
        return Columns(pool.items, pool.correction)

    def _logits(self, mu: Tensor, columns: Columns, items: Tensor) -> Tensor:
        """The policy's logits of the columns, [N, K]."""
        rows = columns.rows(items, sparse=self._sparse)
        if self.config.kappa:
            return columns.corrected(self.config.kappa * normalize(mu, dim=1) @ normalize(rows, dim=1).T)
        return columns.corrected(mu @ rows.T)

    def _aim(self, batch: Batch, mu: Tensor, scene: Scene) -> Tensor:
        """y: what the critic should say of whole transitions, from the lagged networks, [N']."""
        config, lagged, moves = self.config, self.behind.copy, scene.moves.whole()
        is_online, leader = config.next_from == "online", self.policy.critic
        # A tower reads mu from outside: the actor's own, already there, saves a pass of the lagged encoder.
        own_items = leader.items if is_online and isinstance(leader, TowerCritic) else None
        self.behind.sync_rows(scene.touched(batch.history.items), own_items)
        critic, table = lagged.critic, lagged.critic.table(lagged)
        behind = lagged.states(batch.history) if own_items is None else mu
        nu = clipped(critic.states(lagged, batch.history, behind), config.clip)
        worth, ahead = critic.value(nu), of_branches(moves.next, nu)
        guide, items = (mu, scene.items) if is_online else (behind, lagged.item_vectors())
        logits = self._logits(moves.next(guide), scene.columns, items)
        if self.xi == "topk":
            near = log_weights(logits, "topk", config.n1)
            logits = logits if near is None else logits + near
        actions, logged = scene.columns.actions(critic, table, moves.item)
        value = moves.next(worth) + self._value_ahead(logits, ahead, actions)
        own = torch.zeros_like(value)  # not looked at without a trace
        if config.trace:
            own = moves.current(worth) + q_of(of_branches(moves.current, nu), logged).amin(0)
        return lambda_returns(moves, value, own, config.gamma, config.trace)

    def _value_ahead(self, logits: Tensor, states: Tensor, actions: Tensor) -> Tensor:
        """Value of s' under the lagged policy: expected over all columns, or at one item drawn; [N']."""
        if self.config.backup == "expected":
            share = logits.softmax(1)
            value = (share * q_all(states, actions).amin(0)).sum(1)
            surprise = torch.special.entr(share).sum(1) if self.config.entropy else 0.0
        else:
            drawn = sample_one(logits)
            value = q_of(states, actions[:, drawn]).amin(0)
            surprise = -logits.log_softmax(1).gather(1, drawn[:, None]).squeeze(1) if self.config.entropy else 0.0
        return value + self.config.entropy * surprise

    def _control(self, scene: Scene) -> dict[str, Tensor]:
        """L_DC and the other ways to move the actor by the critic, each off unless its weight is set."""
        config, policy, parts = self.config, self.policy, dict[str, Tensor]()
        if config.dc:
            direction = policy.critic.h(normalize(scene.mu, dim=1), frozen=True)  # [A, n, d]
            q = q_of(clipped(scene.explorers[0].detach(), config.clip), direction)
            parts["dc"] = -config.dc * (q.amin(0) if config.dc_q == "least" else q[0]).mean()
        if config.distil or config.control:
            taught = scene.explored().detach()  # [n, K]
        if config.distil:
            teacher = taught if scene.near is None else taught.masked_fill(scene.near == -torch.inf, -torch.inf)
            logits = self._logits(scene.mu, scene.columns, scene.items)
            parts["distil"] = config.distil * _cross_entropy(teacher, logits)
        if config.control and policy.head is not None:
            diagnostics, items = scene.mu.detach(), scene.items.detach()
            teacher = self._logits(diagnostics, scene.columns, items) + config.w * taught
            turned = self._logits(diagnostics + policy.head(diagnostics), scene.columns, items)
            parts["control"] = config.control * _cross_entropy(teacher, turned)
        return parts

    @torch.no_grad()
    def _merit(self, scene: Scene) -> Tensor:
        """exp((Q(s, i) - mean Q near pi(s)) / (awr std)), clipped: logged items better than the policy count more."""
        gain = scene.advantage.mean(0) - (scene.share() * scene.explored()).sum(1)
        return (gain / (self.config.awr * gain.std(correction=0).clamp(min=1e-6))).exp().clamp(max=_LARGEST_MERIT)

    @torch.no_grad()
    def _look(self, scene: Scene, q: Tensor, aim: Tensor) -> dict[str, Tensor]:
        """Diagnostics of a step."""
        policy, share, explored = self.policy, scene.share(), scene.explored()
        worth = policy.critic.value(scene.explorers[0])
        logits = self._logits(scene.mu, Columns(scene.columns.items, None), scene.items)  # as the policy ranks
        best = logits.argmax(1, keepdim=True)
        first = (logits + (policy.w * explored if policy.rank_by == "blend" else 0)).argmax(1)
        logged = normalize(scene.items[scene.logged()], dim=1)
        return {
            "q/logged": q.sum() / max(1, q.numel()),  # there may be no whole transition
            "q/explored": (worth + (share * explored).sum(1)).mean(),
            "q/policy": (worth + explored.gather(1, best).squeeze(1)).mean(),
            "td_error": (q - aim).abs().sum() / max(1, q.numel()),
            "mu_norm": scene.mu.norm(dim=1).mean(),
            "cosine": (normalize(scene.mu, dim=1) * logged).sum(1).mean(),
            "support": effective_support(share).mean(),
            "lag": self._lag(),
            "distinct": torch.tensor(float(len(set(first.tolist())))),
            "states": torch.tensor(float(len(first))),
            "whole": torch.tensor(q.shape[1] / max(1, len(scene.moves.item))),
        }

    def _lag(self) -> Tensor:
        """How far the lagged critic is from the critic, relative to its size; item tables left out."""
        mine = dict(self.policy.critic.named_parameters())
        theirs = dict(self.behind.copy.critic.named_parameters())
        names = [name for name in mine if name != "items"]
        distance = torch.stack([(mine[name] - theirs[name]).square().sum() for name in names]).sum()
        return (distance / torch.stack([mine[name].square().sum() for name in names]).sum()).sqrt()

    def warnings(self, diagnostics: dict[str, float]) -> dict[str, str]:
        found = {}
        largest = max(abs(diagnostics.get(f"q/{name}", 0.0)) for name in ("logged", "explored", "policy"))
        if self._bound == 0:
            found["rewards"] = "all rewards are 0: there is no value to learn; act by policy"
        elif largest > 2 * self._bound:
            found["q"] = (
                f"Q is {largest:.3g}, more than twice what rewards allow ({self._bound:.3g}): it diverges; raise"
                " method.alpha, lower method.gamma or train.lr"
            )
        if diagnostics.get("support", 9.0) < 1.5 and self.policy.items > 10:
            found["xi"] = "xi explores fewer than 1.5 items a state: it collapsed onto the policy's favourite"
        if diagnostics.get("whole", 1.0) == 0:
            found["outcomes"] = (
                "no transition's outcome lies in its window, so the critic learns nothing: use longer windows"
                " (encoder.length) or act by policy"
            )
        if (
            diagnostics.get("states", 0.0) >= 100
            and diagnostics["distinct"] <= 0.01 * diagnostics["states"]
            and self.policy.items > 10
        ):
            found["lists"] = (
                f"the first places of {diagnostics['states']:.0f} lists hold {diagnostics['distinct']:.0f} items:"
                " lists collapse; lower method.w"
            )
        return found

    def finalize(self, policy: Policy, batches: Iterable[Batch]) -> None:
        """Charge items that crowd the lists."""
        if not isinstance(policy, ValuePolicy) or self.config.rank_by != "blend" or self.config.guard >= 1:
            return
        queries, count = [], 0
        for batch in batches:
            queries.append(policy.ranked_by("blend").query(batch.history))
            count += len(queries[-1])
            if count >= _GUARDED:
                break
        policy.fit_diversity_penalty(torch.cat(queries), self.config.guard)

    def describe(self) -> dict[str, str]:
        config = self.config
        near = {
            "all": f"every one of {self.policy.items:,} items, weighted by the policy",
            "pool": f"a pool of {config.pool:,} items a step, weighted by the policy",
            "gumbel": f"{config.n1:,} items drawn without replacement",
            "cdf": f"{config.n1:,} items drawn with replacement",
            "topk": f"the {config.n1:,} items nearest to the policy"
            + (f", among {config.candidates:,} that an index finds" if self.index is not None else ""),
        }
        return {"loss": self.bc.choice(), "exploration": near[self.xi]}


def _cross_entropy(teacher: Tensor, logits: Tensor) -> Tensor:
    """Mean of -sum softmax(teacher) log softmax(logits)."""
    return -(teacher.softmax(1) * logits.log_softmax(1)).sum(1).mean()


def _critic(config: ECoCConfig, parts: BuildContext) -> Critic:
    """The critic a config asks for."""
    dim = parts.encoder.dim
    common = 1 if config.critic == "separate" else 2
    heads = common if config.heads is None else config.heads
    if config.critic == "shared" and heads == 1:
        raise InputError("method.heads = 1: with a shared state branch the two critics would be one; choose 2")
    if config.critic == "tower" and config.dc:
        raise InputError(
            "method.dc: the tower critic's actions live in its own item space, where the actor has no direction;"
            " choose method.critic = shared or separate, or act by blend"
        )
    shape = {"heads": heads, "hidden": config.hidden, "dueling": config.dueling}
    if config.critic == "shared":
        return SharedCritic(dim, config.critic_grad, **shape)
    if config.critic == "separate":
        return SeparateCritic(parts.make_encoder, dim, **shape)
    dropout = parts.encoder.dropout if config.critic_dropout is None else config.critic_dropout
    encoder = parts.make_encoder(feedback=parts.dims.feedback > 0, dropout=dropout)
    return TowerCritic(encoder, parts.encoder.init, **shape)
