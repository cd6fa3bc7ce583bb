"""Made texts that are much alike: pages of one template, and versions of a text."""

# Words of a template, and the most of each page.
TEMPLATE, OWN = 50, 10
VERSIONS, SENTENCES = 50, 30


def _vocabulary():
    return [f"word{number}" for number in range(20_000)]


def template(chance, count):
    """Make short pages that share most of their words, with words of their own in the middle."""
    words = _vocabulary()
    shared = chance.choices(words, k=TEMPLATE)
    head, tail = shared[: TEMPLATE // 2], shared[TEMPLATE // 2 :]
    for _ in range(count):
        yield " ".join([*head, *chance.choices(words, k=chance.randint(1, OWN)), *tail])


def versions(chance, count):
    """Make texts in 50 versions, each with a sentence or two unlike the one before."""
    words = _vocabulary()
    for _ in range(count // VERSIONS):
        sentences = [chance.choices(words, k=12) for _ in range(SENTENCES)]
        for _ in range(VERSIONS):
            for place in chance.sample(range(SENTENCES), chance.randint(1, 2)):
                sentences[place] = chance.choices(words, k=12)
            yield " ".join(word for sentence in sentences for word in sentence)
