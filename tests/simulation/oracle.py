"""What clients may expect, from what they asked and what they were told. It knows nothing of how a server works."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

Key = tuple[str, str]
"""A principal and the id of a session."""


@dataclass
class Claim:
    """Something a client asked for. `since` and `until` are when it asked and was answered; None: it never was."""

    since: float
    until: float | None = None
    refused: bool = False

    def answered(self, now: float) -> None:
        """It was done."""
        self.until = now

    def refuse(self, now: float) -> None:
        """It was not done, and the client knows."""
        self.until, self.refused = now, True

    @property
    def done(self) -> bool:
        """Whether the client knows that it was done."""
        return self.until is not None and not self.refused

    @property
    def perhaps(self) -> bool:
        """Whether it may have been done."""
        return not self.refused

    def may_follow(self, other: "Claim") -> bool:
        """Whether it may have come to pass after the other."""
        return self.perhaps and (self.until is None or self.until >= other.since)


@dataclass(eq=False)
class Said(Claim):
    """A turn, or a document put in place: words that must be in a session once it is answered."""

    words: tuple[str, ...] = ()
    keyed: str | None = None
    wipes: bool = False
    """Whether it puts itself in the place of all that was there."""


@dataclass(eq=False)
class Decided(Claim):
    """An answer to an approval."""

    pause: str = ""
    yes: bool = True
    remember: bool = False


@dataclass
class Oracle:
    """Remembers all claims of a history, and tells what does not agree with them."""

    now: Callable[[], float]
    said: dict[Key, list[Said]] = field(default_factory=lambda: defaultdict(list))
    wiped: dict[Key, list[Claim]] = field(default_factory=lambda: defaultdict(list))
    decided: dict[str, list[Decided]] = field(default_factory=lambda: defaultdict(list))
    cancelled: dict[str, list[Claim]] = field(default_factory=lambda: defaultdict(list))
    reasons: set[str] = field(default_factory=set)
    """Runs whose client went away while it was their reader."""
    left: set[Key] = field(default_factory=set)
    """Sessions of requests that were broken off before they had an answer."""
    replaced: set[Key] = field(default_factory=set)
    """Sessions into which clients brought what the model had said."""
    asked: Counter[str] = field(default_factory=Counter)
    """How often each word was sent without a key, and with one."""
    keyed: set[str] = field(default_factory=set)

    def say(self, key: Key, *words: str, keyed: str | None = None, wipes: bool = False) -> Said:
        """A client sends these words."""
        claim = Said(self.now(), words=words, keyed=keyed, wipes=wipes)
        self.said[key].append(claim)
        if not wipes:
            for word in words:
                if keyed is None:
                    self.asked[word] += 1
                else:
                    self.keyed.add(word)
        return claim

    def wipe(self, key: Key) -> Claim:
        """A client asks for a session's end."""
        claim = Claim(self.now())
        self.wiped[key].append(claim)
        return claim

    def decide(self, pause: str, *, yes: bool, remember: bool) -> Decided:
        """A client answers an approval."""
        claim = Decided(self.now(), pause=pause, yes=yes, remember=remember)
        self.decided[pause].append(claim)
        return claim

    def cancel(self, run: str) -> Claim:
        """A client cancels a run."""
        claim = Claim(self.now())
        self.cancelled[run].append(claim)
        return claim

    # What must be.

    def kept(self, key: Key) -> set[str]:
        """The words that a session must have."""
        words: set[str] = set()
        for claim in self.said[key]:
            if claim.done and not self._wiped_since(key, claim):
                words |= set(claim.words)
        return words

    def gone(self, key: Key) -> bool:
        """Whether the session must not be there: its end was told, and nobody can have made it again."""
        return any(wipe.done and not any(said.may_follow(wipe) for said in self.said[key]) for wipe in self.wiped[key])

    def _wiped_since(self, key: Key, claim: Said) -> bool:
        wipes = [*self.wiped[key], *(one for one in self.said[key] if one.wipes and one is not claim)]
        return any(wipe.may_follow(claim) for wipe in wipes)

    def effects(self, word: str) -> int:
        """How often an effect with this word may happen at most."""
        return self.asked[word] + (word in self.keyed)

    def decided_twice(self) -> list[str]:
        """The approvals of which more than one answer was taken."""
        return [pause for pause, claims in self.decided.items() if sum(claim.done for claim in claims) > 1]

    def may_remember(self, pause: str) -> bool:
        """Whether an answer to this approval may hold for the rest of its session."""
        return any(claim.yes and claim.remember and claim.perhaps for claim in self.decided[pause])

    def may_approve(self, pause: str) -> bool:
        """Whether somebody may have said yes."""
        return any(claim.yes and claim.perhaps for claim in self.decided[pause])

    def denied(self, pause: str) -> bool:
        """Whether a no was taken."""
        return any(claim.done and not claim.yes for claim in self.decided[pause])

    def cancel_told(self, run: str) -> float | None:
        """When it was first told that the run is cancelled."""
        return min(
            (claim.until for claim in self.cancelled[run] if claim.done and claim.until is not None), default=None
        )
