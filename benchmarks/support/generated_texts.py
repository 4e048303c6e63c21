"""Generates distinct sentences, and documents that consist of them."""

WORDS, CHUNK_WORDS = 15, 150
"""The number of words in a sentence and in a chunk."""

SUBJECTS = ["harbour", "clinic", "library", "bakery", "quarry", "station", "orchard", "museum", "depot", "chapel"]
VERBS = ["opened", "stored", "repaired", "closed", "welcomed", "measured", "sold", "counted", "painted", "moved"]
THINGS = ["barrels", "letters", "engines", "lamps", "carpets", "bicycles", "windows", "maps", "ropes", "benches"]


def sentence(number: int) -> str:
    """Return a sentence of 15 words that is different for each number."""
    subject, verb, thing = SUBJECTS[number % 10], VERBS[number // 7 % 10], THINGS[number // 3 % 10]
    return f"In the year {1900 + number} the old {subject} on the hill {verb} about {number * 7} {thing} before noon."


def chunk(number: int) -> str:
    """Return ten sentences, starting with number ``10 * number``."""
    return " ".join(sentence(number * 10 + place) for place in range(CHUNK_WORDS // WORDS))
