"""A model made of several: ordered candidates, retries, failover, circuit breakers, rate limits.

Until the first part of a reply has been yielded, a failed call is retried here, on the same model
or the next, and the caller only sees `FailedOver`. If no model answers, all are asked again after a
wait, for minutes: before each wait the caller sees `RetryScheduled`, and may leave. After the first
part, nothing is retried here: the caller may have started a tool from that part, and only the
caller can record the tokens that were paid for. It gets the `ProviderFailed` and decides whether to
call again; a model whose streams broke twice in a row is then tried last. `Stalled` is not a part
of a reply.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

import msgspec
from msgspec import Struct, field

from mainspring.capabilities.providers.circuit_breaker import BreakerSettings, CircuitBreaker
from mainspring.capabilities.providers.rate_limit import (
    CallSlot,
    RateLimiter,
    RateLimitSettings,
)
from mainspring.capabilities.providers.retry import (
    REQUEST_AT_FAULT,
    OutagePolicy,
    RetryPolicy,
    Timing,
    outage_attempts,
    outage_delay,
    retry_delay,
)
from mainspring.capabilities.providers.routing_rules import (
    ModelCandidate,
    Role,
    Routing,
    RoutingTask,
)
from mainspring.capabilities.providers.token_estimate import request_tokens
from mainspring.core.errors import InvalidInput, ProviderFailed
from mainspring.core.model import (
    Delta,
    FailedOver,
    Reply,
    Request,
    RetryScheduled,
    Stalled,
)

_MAX_BROKEN_STREAMS = 2  # in a row, before another model is tried
_PROBE_SECONDS = 1.0  # the pause that an error names if no other is known


class RouterSettings(Struct, frozen=True, kw_only=True):
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    outage: OutagePolicy = field(default_factory=OutagePolicy)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    pace: RateLimitSettings = field(default_factory=RateLimitSettings)
    """Limits of a provider that `paces` does not name."""
    paces: Mapping[str, RateLimitSettings] = field(default_factory=dict[str, RateLimitSettings])


class _CandidateFailures(Struct):
    """The failure of each candidate in one round, for the event and for the final error."""

    failures: dict[str, ProviderFailed] = field(default_factory=dict[str, ProviderFailed])
    is_answered: bool = False

    @property
    def requested_seconds(self) -> float:
        """The shortest wait after which one of them may answer, as far as they have said."""
        waits = [item.retry_after_seconds for item in self.failures.values() if item.retryable]
        return min((seconds or 0.0 for seconds in waits), default=0.0)

    def summary(self) -> ProviderFailed:
        """The only failure itself, or one error that combines all."""
        if len(self.failures) == 1:
            return next(iter(self.failures.values()))
        retryable = [failure for failure in self.failures.values() if failure.retryable]
        kind = (retryable or list(self.failures.values()))[-1].kind
        waits = [
            failure.retry_after_seconds
            for failure in self.failures.values()
            if failure.retry_after_seconds is not None
        ]
        reasons = "; ".join(str(failure) for failure in self.failures.values())
        return ProviderFailed(
            "no model answered", kind, reasons, retry_after_seconds=min(waits, default=None)
        )


class Router:
    """All models of a process. Itself the model of the role `main`; a session takes a `route`."""

    def __init__(
        self, routing: Routing, settings: RouterSettings | None = None, timing: Timing | None = None
    ) -> None:
        self._routing = routing
        self.settings = settings or RouterSettings()
        self.timing = timing or Timing()
        self._breakers: dict[str, CircuitBreaker] = {}
        self._paces: dict[str, RateLimiter] = {}

    def route(self, routing_task: RoutingTask | None = None) -> ModelRoute:
        """A model for one thread. It keeps its choice, and reports when another model answers."""
        return ModelRoute(self, routing_task or RoutingTask())

    def drill(self, role: Role = "main") -> ModelRoute:
        """Treat the first model of the role as down: the second answers every call.

        Raises:
            InvalidInput: the role has no second model.
        """
        first, *fallbacks = self._routing.candidates(role)
        if not fallbacks:
            raise InvalidInput(
                f"{role} has one model, {first.id}: there is nothing to fail over to"
            )
        return ModelRoute(
            self, RoutingTask(role=role), candidates=tuple(fallbacks), drilled=first.id
        )

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        async with aclosing(self.route().stream(request)) as items:
            async for item in items:
                yield item

    def breaker(self, candidate_id: str) -> CircuitBreaker:
        if candidate_id not in self._breakers:
            breaker = CircuitBreaker(self.settings.breaker, self.timing.clock)
            self._breakers[candidate_id] = breaker
        return self._breakers[candidate_id]

    def pace(self, provider: str) -> RateLimiter:
        if provider not in self._paces:
            settings = self.settings.paces.get(provider, self.settings.pace)
            self._paces[provider] = RateLimiter(settings, self.timing)
        return self._paces[provider]

    async def choose(
        self, routing_task: RoutingTask, request: Request
    ) -> tuple[ModelCandidate, ...]:
        return await self._routing.choose(routing_task, request)

    def candidates(self, role: Role = "main") -> tuple[str, ...]:
        """Ids in order; reserve money for the most expensive, since any may answer."""
        return tuple(candidate.id for candidate in self._routing.candidates(role))


class ModelRoute:
    """One thread's route to its models. The choice is made once, so prompt caches stay useful."""

    def __init__(
        self,
        router: Router,
        routing_task: RoutingTask,
        *,
        candidates: Sequence[ModelCandidate] = (),
        drilled: str | None = None,
    ) -> None:
        self._router = router
        self._routing_task = routing_task
        self._candidates = tuple(candidates)
        self._current = drilled
        """The model that answered last, or that should answer first."""
        self._drilled = drilled
        self._broken_streams: dict[str, int] = {}

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Like `Model.stream`; `Reply.model` is the candidate's id.

        Raises:
            ProviderFailed: the error of the model whose stream broke, or one for all failed models.
        """
        async with aclosing(self._attempts(request)) as attempts:
            async for attempt in attempts:
                if isinstance(attempt, RetryScheduled):
                    yield attempt
                    continue
                try:
                    async for item in attempt.items:
                        if self._current != attempt.candidate.id and not isinstance(item, Stalled):
                            yield self._failover_event(attempt)
                        yield attempt.receive(item)
                        if attempt.is_answered:
                            break
                except ProviderFailed as failure:
                    attempt.failure = failure

    async def _attempts(self, request: Request) -> AsyncGenerator[_Attempt | RetryScheduled, None]:
        """Calls, one after the other until one is answered; the caller reads each to its end."""
        if not self._candidates:
            self._candidates = await self._router.choose(self._routing_task, request)
        if self._current is None:
            self._current = self._candidates[0].id
        timing = self._router.timing
        began, number = timing.clock(), 0
        while True:
            number += 1
            failures = _CandidateFailures()
            async with aclosing(self._round(request, failures)) as attempts:
                async for attempt in attempts:
                    yield attempt
            if failures.is_answered:
                return
            wait = self._wait_after(failures, number, timing.clock() - began)
            if wait is None:
                raise _with_attempts(failures.summary(), number)
            yield wait
            await timing.sleep(wait.seconds)

    async def _round(
        self, request: Request, failures: _CandidateFailures
    ) -> AsyncGenerator[_Attempt, None]:
        """Ask each candidate until one answers."""
        candidates = sorted(self._candidates, key=self._is_shaky)
        is_any_admitting = any(self._router.breaker(item.id).is_admitting for item in candidates)
        for candidate in candidates:
            attempts = self._ask(candidate, request, failures, is_only=not is_any_admitting)
            async with aclosing(attempts):
                async for attempt in attempts:
                    yield attempt
            if candidate.id not in failures.failures:
                failures.is_answered = True
                return

    def _wait_after(
        self, failures: _CandidateFailures, number: int, waited: float
    ) -> RetryScheduled | None:
        failure, policy = failures.summary(), self._router.settings.outage
        seconds = outage_delay(
            failure,
            number,
            policy=policy,
            rng=self._router.timing.random,
            requested_seconds=failures.requested_seconds,
            waited_seconds=waited,
        )
        if seconds is None:
            return None
        return RetryScheduled(
            model=failure.provider,
            kind=failure.kind,
            reason=str(failure).removeprefix(f"{failure.provider}: "),
            attempt=number + 1,
            attempts=outage_attempts(failure, policy),
            seconds=seconds,
            waited_seconds=waited,
            limit_seconds=policy.limit_seconds,
        )

    def _is_shaky(self, model_candidate: ModelCandidate) -> bool:
        return self._broken_streams.get(model_candidate.id, 0) >= _MAX_BROKEN_STREAMS

    async def _ask(
        self,
        model_candidate: ModelCandidate,
        request: Request,
        candidate_failures: _CandidateFailures,
        *,
        is_only: bool,
    ) -> AsyncGenerator[_Attempt, None]:
        """Call one candidate with its retries; if it yields nothing, its failure is recorded.
        `is_only`: no other candidate can be called."""
        breaker = self._router.breaker(model_candidate.id)
        admission = breaker.admit(is_only=is_only)
        if admission is None:
            candidate_failures.failures[model_candidate.id] = _breaker_open(
                model_candidate, breaker
            )
            return
        try:
            attempts = self._retries(model_candidate, request, candidate_failures)
            async with aclosing(attempts):
                async for attempt in attempts:
                    attempt.refusals = candidate_failures
                    yield attempt
            admission.succeed()
            self._broken_streams.clear()
        except _CandidateFailed as candidate_failed:
            admission.fail(candidate_failed.failure)
            candidate_failures.failures[model_candidate.id] = candidate_failed.failure
        except ProviderFailed as failure:
            if failure.kind not in REQUEST_AT_FAULT:
                admission.fail(failure)
                self._broken_streams[model_candidate.id] = (
                    self._broken_streams.get(model_candidate.id, 0) + 1
                )
            raise
        finally:
            admission.release()

    def _is_last(self, model_candidate: ModelCandidate, failures: _CandidateFailures) -> bool:
        """Whether no other candidate is left in this round."""
        return not any(
            self._router.breaker(other.id).state != "open"
            for other in self._candidates
            if other is not model_candidate and other.id not in failures.failures
        )

    async def _retries(
        self, model_candidate: ModelCandidate, request: Request, failures: _CandidateFailures
    ) -> AsyncGenerator[_Attempt, None]:
        timing, pace = self._router.timing, self._router.pace(model_candidate.provider)
        request = msgspec.structs.replace(request, model=model_candidate.name)
        number = 0
        while True:
            number += 1
            async with (
                pace.slot(request_tokens(request) if pace.counts_tokens else 0) as slot,
                aclosing(model_candidate.model.stream(request)) as items,
            ):
                attempt = _Attempt(model_candidate, items, slot)
                yield attempt
            if attempt.is_answered:
                return
            failure = attempt.failure or _no_reply(model_candidate)
            if attempt.has_yielded or failure.kind in REQUEST_AT_FAULT:
                raise failure
            seconds = None
            if not self._is_last(model_candidate, failures):
                seconds = retry_delay(
                    failure,
                    number,
                    retry_policy=self._router.settings.retry_policy,
                    rng=timing.random,
                )
            if seconds is None:
                raise _CandidateFailed(
                    _with_attempts(failure, number, model_candidate.id)
                ) from failure
            await timing.sleep(seconds)

    def _failover_event(self, attempt: _Attempt) -> FailedOver:
        before, now = self._current or "", attempt.candidate.id
        self._current = now
        refusal = attempt.refusals.failures.get(before)
        if refusal is not None:
            reason = str(refusal)
        elif before == self._drilled:
            reason = "drill"
        else:
            reason = f"{now} answers again"
        return FailedOver(from_model=before, to_model=now, reason=reason)


class _Attempt(Struct):
    """One call of one candidate. Its reader records here how it ended."""

    candidate: ModelCandidate
    items: AsyncGenerator[Delta | Reply, None]
    slot: CallSlot
    refusals: _CandidateFailures = field(default_factory=_CandidateFailures)
    """Why the candidates before it did not answer."""
    has_yielded: bool = False
    """Whether a part of a reply was yielded."""
    is_answered: bool = False
    failure: ProviderFailed | None = None

    def receive(self, item: Delta | Reply) -> Delta | Reply:
        if isinstance(item, Reply):
            usage = item.usage
            self.is_answered = True
            self.slot.used = (
                usage.input_tokens + usage.cache_creation_input_tokens + usage.output_tokens
            )
            return msgspec.structs.replace(item, model=self.candidate.id)
        self.has_yielded = self.has_yielded or not isinstance(item, Stalled)
        return item


def _no_reply(model_candidate: ModelCandidate) -> ProviderFailed:
    return ProviderFailed(model_candidate.provider, "malformed", "the stream ended without a reply")


class _CandidateFailed(Exception):
    """A candidate gave nothing and will not be tried again in this call."""

    def __init__(self, failure: ProviderFailed) -> None:
        super().__init__(str(failure))
        self.failure = failure


def _with_attempts(
    failure: ProviderFailed, attempts: int, model_id: str | None = None
) -> ProviderFailed:
    """The failure after so many attempts; of this model, if it has only its provider's name."""
    attempts_text = f" ({attempts} attempts)" if attempts > 1 else ""
    what = str(failure).removeprefix(f"{failure.provider}: ")
    return ProviderFailed(
        model_id or failure.provider,
        failure.kind,
        what + attempts_text,
        retry_after_seconds=failure.retry_after_seconds,
    )


def _breaker_open(
    model_candidate: ModelCandidate, circuit_breaker: CircuitBreaker
) -> ProviderFailed:
    seconds, failure = circuit_breaker.seconds_left, circuit_breaker.opened_by
    why = "" if failure is None else str(failure).removeprefix(f"{failure.provider}: ")
    return ProviderFailed(
        model_candidate.id,
        "overloaded" if failure is None else failure.kind,
        f"left alone for another {seconds:.0f} s after: {why}",
        retry_after_seconds=seconds or _PROBE_SECONDS,
    )
