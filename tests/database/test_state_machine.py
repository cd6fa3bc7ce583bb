"""The database against a dictionary and brute force, over many small histories."""

import hashlib
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from blocks import plan_of_blocks
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tiers import examples

import fpdb
from fpdb import Database, Document, Grams, Recipe
from fpdb.documents import groups
from fpdb.documents.prepare import BATCH
from fpdb.fingerprint.sketches import least_estimate
from fpdb.models import Key
from fpdb.storage import number_pages
from fpdb.tables import Bands, Plan, levels, sorted_pages
from fpdb.tables.bits import to_array, to_ints
from fpdb.tables.plan import choose_plan, home_plan, nested_plan

TINY = Recipe("tiny", clean=(), segment="whitespace", grams=Grams(minimum=3))
WORDS = [f"w{number}" for number in range(40)]
SHORT_TEXTS = [
    "",
    "one",
    "two words",
    "no few words",
    "no FEW words ",
    "two two two",
    "drei kurze Wörter",
]
METAS: list[Any] = [None, {}, {"title": "A"}, [1, 2.5, None, True], "plain", 0]

PLANS: dict[str, Plan] = {
    "home only": home_plan(64, 0, 32),
    "home only for k=1": home_plan(64, 1, 8),
    "choose 1": choose_plan(64, 3),
    "choose 1 of five": choose_plan(64, 4),
    "fewer blocks than k": choose_plan(64, 3, blocks=2),
    "choose 2": choose_plan(64, 2, choose=2),
    "nested": nested_plan(64, 1),
    "sizes by hand": plan_of_blocks((5, 1, 40, 18), 2),
    "32 bits": choose_plan(32, 3),
    "32 bits, choose 2": choose_plan(32, 2, choose=2),
    "128 bits": choose_plan(128, 3),
    "128 bits, choose 2": choose_plan(128, 2, choose=2),
    "128 bits, nested": nested_plan(128, 1),
    "128 bits, home only": home_plan(128, 2, 7),
}
# Each plan with either kind of keys, and with pages of the usual size or of 200 bytes; and some
# where texts are found by their similarity.
CASES = [
    *(
        (name, ("text", "integer")[number % 2], small, None)
        for small in (False, True)
        for number, name in enumerate(PLANS, start=small)
    ),
    ("choose 1", "text", True, 0.7),
    ("choose 1", "integer", True, 0.8),
    ("32 bits", "integer", True, 0.8),
    ("128 bits", "text", True, 0.7),
]


class Kept(NamedTuple):
    """What the model knows of a document; `number` is None if the text is short."""

    number: int | None
    digest: str
    meta: Any
    sketch: bytes = b""
    characters: int = 0

    @property
    def text(self) -> tuple[int | None, str, bytes]:
        return self.number, self.digest, self.sketch


class Groups(dict[Key, Key]):
    """The keepers of documents, by the definition of groups; `ids` has the ids of documents."""

    def __init__(self, share: Callable[[Key, Key], float], least: float) -> None:
        super().__init__()
        self.share, self.least = share, least
        self.ids: dict[Key, int] = {}
        self.unchecked: set[Key] = set()

    def decide(self, key: Key, candidates: Iterable[Key]) -> None:
        """Put a document into the group of the candidate that it resembles most."""
        keepers = [other for other in candidates if self.get(other) == other != key]
        similar = [(-self.share(key, other), self.ids[other], other) for other in keepers]
        self[key] = min((near for near in similar if -near[0] >= self.least), default=(0, 0, key))[
            2
        ]

    def leave(self, key: Key) -> None:
        """Take a document out; the oldest member of its group takes the place of a keeper."""
        self.unchecked.discard(key)
        if self.pop(key) == key:
            members = sorted((own for own in self if self[own] == key), key=self.ids.__getitem__)
            self.unchecked.update(members[1:])
            self.unchecked.difference_update(members[:1])
            self.update(dict.fromkeys(members, *members[:1]))

    def check(self, candidates: Callable[[Key], Iterable[Key]]) -> None:
        """Check some members against their new keepers."""
        for key in sorted(self.unchecked, key=self.ids.__getitem__)[: groups.CHECKED]:
            self.unchecked.discard(key)
            if self.share(key, self[key]) < self.least:
                self.decide(key, candidates(key))


class Model(dict[Key, Kept]):
    """What a database should hold, searched by counting the bits of everything."""

    def __init__(self, bits: int, similarity: float | None, bands: Bands | None) -> None:
        super().__init__()
        self.bits = bits
        self.similarity = similarity
        self.bands = bands
        self.next_id = 0
        self.groups = Groups(self.share, least_estimate(similarity or 1.0))

    def near(self, number: int, k: int) -> list[tuple[int, Key]]:
        """All (distance, key) within k, sorted."""
        placed = [(key, kept.number) for key, kept in self.items() if kept.number is not None]
        found = ((own ^ number).bit_count() for _, own in placed)
        return sorted(
            (apart, key) for apart, (key, _) in zip(found, placed, strict=True) if apart <= k
        )

    def same_text(self, digest: str) -> list[tuple[int, Key]]:
        """All short documents with the same words."""
        return sorted(
            (0, key)
            for key, kept in self.items()
            if digest and kept.number is None and kept.digest == digest
        )

    def compared(self, one: Kept, other: Kept) -> tuple[float, bool]:
        """How similar two texts are, and whether they agree in a band or are equal."""
        assert self.bands
        if (one.number is None) != (other.number is None):
            return -1.0, False
        if one.digest and one.digest == other.digest:
            return 1.0, True
        if not (one.sketch and other.sketch and one.number is not None):
            return -1.0, False
        bins = ("".join(f"{byte:02x}"[::-1] for byte in kept.sketch) for kept in (one, other))
        same = [nibble == its for nibble, its in zip(*bins, strict=True)]
        width = self.bands.bins
        starts = range(0, width * self.bands.count, width)
        agree = any(all(same[start : start + width]) for start in starts)
        return max(0.0, 1 - (256 - sum(same)) / 256 / (1 - 1 / 16)), agree

    def share(self, key: Key, other: Key) -> float:
        """How similar the texts of two documents are."""
        return self.compared(self[key], self[other])[0]

    def candidates(self, key: Key) -> list[Key]:
        """All documents with which a document is compared."""
        return [other for other in self if self.compared(self[key], self[other])[1]]

    def similar(self, text: Kept) -> list[tuple[int, Key]]:
        """All (distance, key) of equal texts, and of similar ones that agree in a band."""
        assert self.similarity
        found = []
        for key, kept in self.items():
            if kept.number is None or text.number is None:
                continue
            share, agree = self.compared(text, kept)
            if agree and share >= least_estimate(self.similarity):
                found.append((-share, (kept.number ^ text.number).bit_count(), key))
        return [entry[1:] for entry in sorted(found)]

    def check_groups(self) -> None:
        """Check some members of groups, as each write does."""
        if self.similarity:
            self.groups.check(self.candidates)

    def forget(self, key: Key) -> bool:
        """Delete a document, and say whether it was there."""
        if key in self and self.similarity:
            self.groups.leave(key)
        return self.pop(key, None) is not None

    def found(self, asked: Kept, k: int) -> list[tuple[int, Key]]:
        """What a text, or a ready fingerprint, finds."""
        if asked.number is None:
            return self.same_text(asked.digest)
        if self.similarity is None or not asked.digest:
            return self.near(asked.number, k)
        return self.similar(asked)

    def add(self, key: Key, kept: Kept, k: int, *, skip: bool) -> tuple[str, list[Any]]:
        """Add as the database should; give the status and what it resembles."""
        self.check_groups()
        old = self.get(key)
        if old and not kept.digest and kept.number is not None and kept.number == old.number:
            # A ready fingerprint of a text takes nothing from what is stored of it.
            kept = old._replace(meta=old.meta if kept.meta is None else kept.meta)
        if old == kept:
            return "unchanged", []
        found: list[tuple[int, Key]] = []
        if skip:
            found = [entry for entry in self.found(kept, k) if entry[1] != key]
            if found and old is None:
                return "duplicate", found
        if old is None:
            self.next_id += 1
            self.groups.ids[key] = key if isinstance(key, int) else self.next_id
        elif self.similarity and old.text != kept.text:
            self.groups.leave(key)
        self[key] = kept
        if self.similarity and key not in self.groups:
            self.groups.decide(key, self.candidates(key))
        status = "short" if kept.number is None else "added" if old is None else "replaced"
        return status, found


class Machine(RuleBasedStateMachine):
    """One history of a database, its handles, and the model beside it."""

    plan: Plan
    keys: str
    similarity: float | None
    largest: int  # how many documents one burst adds at most

    @initialize(seed=st.integers(0, 2**32 - 1))
    def create(self, seed: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="fpdb-test-"))
        self.path = self.directory / "db"
        self.bits = self.plan.bits
        self.recipe = TINY.with_bits(self.bits)
        options: dict[str, Any] = {"k": self.plan.k, "keys": self.keys, "plan": self.plan}
        options |= {"recipe": self.recipe, "similarity": self.similarity}
        options |= dict.fromkeys(["passages", "groups"], self.similarity is not None)
        self.handles = [fpdb.create(self.path, **options)]
        self.model = Model(self.bits, self.similarity, self.handles[0].plan.bands)
        self.dice = random.Random(seed)
        top = 2**self.bits - 1
        self.bases = [self.dice.getrandbits(self.bits) for _ in range(6)] + [0, top]

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            for handle in self.handles:
                handle.close()
            shutil.rmtree(self.directory)

    # What the rules draw with a seed of their own, so that bursts stay cheap.

    def handle(self, dice: random.Random) -> Database:
        return dice.choice(self.handles)

    def number(self, dice: random.Random) -> int:
        number = dice.choice(self.bases)
        for _ in range(dice.randrange(7)):
            number ^= 1 << dice.randrange(self.bits)
        return number if dice.random() < 0.85 else dice.getrandbits(self.bits)

    def key(self, dice: random.Random) -> Key:
        number = dice.randrange(1500)
        if self.keys == "integer":
            return {0: 2**64 - 1, 1: 2**63, 2: 2**32}.get(number, number)
        # Digits come first, so that long keys sort as they are.
        return f"{number:04d}{'ü' * 300 if number % 100 == 7 else '/page'}"

    def text(self, dice: random.Random) -> str:
        if dice.random() < 0.25:
            return dice.choice(SHORT_TEXTS)
        words = list(WORDS)
        for _ in range(dice.randrange(4)):
            words[dice.randrange(len(words))] = dice.choice("abcdefgh")
        return " ".join(words)

    def document(self, dice: random.Random) -> tuple[Document, Kept]:
        key, meta = self.key(dice), dice.choice(METAS)
        if dice.random() < 0.6:
            number = self.number(dice)
            return Document(key, meta=meta, fingerprint=number), Kept(number, "", meta)
        text = self.text(dice)
        return Document(key, text, meta), self.kept(text, meta)

    def kept(self, text: str, meta: Any) -> Kept:
        batch = self.recipe.batch([text])
        number = None if batch.short[0] else to_ints(batch.fingerprints)[0]
        sketch = (
            self.recipe.batch([text], sketches=True).sketches[0].tobytes()
            if self.similarity
            else b""
        )
        digest = hashlib.sha256(text.encode()).hexdigest()
        if number is None:
            words = text.lower().split()
            digest = " ".join(words) if len(words) > 2 else text.strip()
        return Kept(number, digest, meta, sketch, len(text))

    def expect_added(self, added: fpdb.Added, document: Document, kept: Kept, skip: bool) -> None:
        status, found = self.model.add(document.key, kept, self.plan.k, skip=skip)
        assert (added.key, added.status) == (document.key, status)
        assert [(match.distance, match.key) for match in added.matches] == found
        assert added.matches.complete
        if self.similarity:
            kin = found[0][1] if status == "duplicate" else document.key
            assert added.group == self.model.groups[kin]
        assert (added.id is None) == (status == "duplicate")

    # Rules

    @rule(dice=st.randoms(use_true_random=False), skip=st.booleans())
    def add(self, dice: random.Random, skip: bool) -> None:
        key, text, meta = self.key(dice), self.text(dice), dice.choice(METAS)
        added = self.handle(dice).add(key, text, meta, skip_duplicates=skip)
        self.expect_added(added, Document(key, text, meta), self.kept(text, meta), skip)

    @rule(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([1, 0.05, 0]), skip=st.booleans())
    def add_many(self, seed: int, share: float, skip: bool) -> None:
        dice = random.Random(seed)
        pairs = [self.document(dice) for _ in range(1 + round(share * self.largest))]
        results = self.handle(dice).add_many(
            [document for document, _ in pairs], skip_duplicates=skip
        )
        for added, (document, kept) in zip(results, pairs, strict=True):
            self.expect_added(added, document, kept, skip)

    @rule(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([1, 0.05, 0]))
    def add_fingerprints(self, seed: int, share: float) -> None:
        dice = random.Random(seed)
        keys = [self.key(dice) for _ in range(1 + round(share * self.largest))]
        numbers = [self.number(dice) for _ in keys]
        given: Any = to_array(numbers, self.bits) if dice.random() < 0.5 else numbers
        changed = self.handle(dice).add_fingerprints(keys, given)
        last = {key: Kept(number, "", None) for key, number in zip(keys, numbers, strict=True)}
        if self.keys == "integer":
            last = dict(sorted(last.items()))
        # New ones are written together, before the others.
        unchecked = self.model.groups.unchecked
        waiting, new = unchecked.copy(), [key for key in last if key not in self.model]
        unchecked.clear()
        statuses = [self.model.add(key, last[key], self.plan.k, skip=False)[0] for key in new]
        unchecked.update(waiting)
        statuses += [
            self.model.add(key, kept, self.plan.k, skip=False)[0]
            for key, kept in last.items()
            if key not in new
        ]
        assert changed == len(last) - statuses.count("unchanged")

    @precondition(lambda self: self.model)
    @rule(seed=st.integers(0, 2**32 - 1))
    def change_only_the_metadata(self, seed: int) -> None:
        dice = random.Random(seed)
        key = dice.choice(list(self.model))
        old, meta = self.model[key], {"seed": seed}
        if old.digest or old.number is None:
            return
        (added,) = self.handle(dice).add_many([Document(key, meta=meta, fingerprint=old.number)])
        assert added.status == ("unchanged" if old.meta == meta else "replaced")
        self.model.check_groups()
        self.model[key] = old._replace(meta=meta)

    @precondition(lambda self: self.model)
    @rule(seed=st.integers(0, 2**32 - 1))
    def delete(self, seed: int) -> None:
        dice = random.Random(seed)
        key = dice.choice([*self.model, self.key(dice)])
        self.model.check_groups()
        assert self.handle(dice).delete(key) is self.model.forget(key)
        assert self.handle(dice).get(key) is None

    @rule(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.05, 0.5, 0.98, 1]))
    def delete_many(self, seed: int, share: float) -> None:
        dice = random.Random(seed)
        keys = [key for key in self.model if dice.random() < share]
        keys += [self.key(dice) for _ in range(3)] + keys[:2]
        dice.shuffle(keys)
        assert self.handle(dice).delete_many(keys) == self.forget_many(keys)

    @rule(seed=st.integers(0, 2**32 - 1))
    def delete_a_neighbourhood(self, seed: int) -> None:
        """What lies together in the tables goes together, so that pages empty and merge."""
        dice = random.Random(seed)
        centre = dice.choice(self.bases)
        keys = [key for _, key in self.model.near(centre, self.bits // 6)]
        assert self.handle(dice).delete_many(keys) == self.forget_many(keys) == len(keys)

    def forget_many(self, keys: list[Key]) -> int:
        there = 0
        for start in range(0, len(keys), BATCH):
            self.model.check_groups()
            there += sum(map(self.model.forget, keys[start : start + BATCH]))
        return there

    @rule(seed=st.integers(0, 2**32 - 1), more=st.sampled_from([-2, -1, 0, 1, 2, 3, 20, 128]))
    def query_fingerprint(self, seed: int, more: int) -> None:
        dice = random.Random(seed)
        k, limit = min(max(self.plan.k + more, 0), self.bits), dice.choice([None, 1, 3, 10_000])
        for _ in range(5):
            number, handle = self.number(dice), self.handle(dice)
            expected = self.model.near(number, k)
            self.expect_matches(
                handle.query_fingerprint(number, k=k, limit=limit), expected[:limit]
            )
            if more == 0:
                self.expect_matches(handle.query_fingerprint(number), expected)

    @rule(dice=st.randoms(use_true_random=False), limit=st.sampled_from([None, 1, 2]))
    def query(self, dice: random.Random, limit: int | None) -> None:
        texts = [self.text(dice) for _ in range(3)]
        handle = self.handle(dice)
        for text, matches in zip(texts, handle.query_many(texts, limit=limit), strict=True):
            kept = self.kept(text, None)
            self.expect_matches(matches, self.model.found(kept, self.plan.k)[:limit])
            assert handle.query(text, limit=limit) == matches

    def expect_matches(self, matches: fpdb.Matches, expected: list[tuple[int, Key]]) -> None:
        assert [(match.distance, match.key) for match in matches] == expected
        assert matches.complete
        for match in matches:
            assert match.meta == self.model[match.key].meta

    @rule()
    def open_another_handle(self) -> None:
        if len(self.handles) < 3:
            self.handles.append(fpdb.open(self.path))

    @rule()
    def reopen(self) -> None:
        for handle in self.handles:
            handle.close()
        self.handles = [fpdb.open(self.path, k=self.plan.k)]

    @rule(seed=st.integers(0, 2**32 - 1))
    def get(self, seed: int) -> None:
        dice = random.Random(seed)
        handle = self.handle(dice)
        for key in [self.key(dice), *list(self.model)[:3]]:
            kept, found = self.model.get(key), handle.get(key)
            assert (key in handle) is (kept is not None)
            if kept is None:
                assert found is None
            else:
                assert (found.key, found.fingerprint, found.meta, found.short) == (
                    key,
                    kept.number,
                    kept.meta,
                    kept.number is None,
                )

    @invariant()
    def it_agrees_with_the_model(self) -> None:
        if not hasattr(self, "handles"):
            return
        handle = self.handles[-1]
        assert len(handle) == len(self.model)
        assert list(handle) == sorted(self.model)
        assert list(handle.check()) == []
        stats = handle.stats()
        assert stats.documents == len(self.model)
        assert stats.short == sum(kept.number is None for kept in self.model.values())
        if self.similarity:
            kept = self.model.groups
            assert {document.key: document.group for document in handle.scan()} == kept
            for key in list(kept)[:3]:
                members = sorted(own for own in kept if kept[own] == kept[key] != own)
                keeper, others = handle.group(key)
                assert (keeper, sorted(others)) == (kept[key], members)
                assert list(others) == sorted(others, key=kept.ids.__getitem__)


@pytest.mark.hypothesis  # it isn't marked by itself, as @given isn't used
@pytest.mark.parametrize(("name", "keys", "small", "similarity"), CASES)
def test_any_history_agrees_with_brute_force(
    name: str, keys: str, small: bool, similarity: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small:
        # Pages of a dozen rows split and merge all the time.
        monkeypatch.setattr(number_pages, "LARGEST", 200)
        monkeypatch.setattr(sorted_pages, "LARGEST", 200)
        monkeypatch.setattr(levels, "_LEAST", 0)
    monkeypatch.setattr(groups, "CHECKED", 3)
    machine = type("Machine", (Machine,), {})
    machine.plan, machine.keys, machine.largest = PLANS[name], keys, 120 if small else 1200
    machine.similarity = similarity
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(3),
            stateful_step_count=20,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        ),
    )
