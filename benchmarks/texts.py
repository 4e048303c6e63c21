"""Sentences, and documents made of them, of which no two are alike."""

WORDS, CHUNK_WORDS = 15, 150
"""Words of a sentence, and of a chunk."""

SUBJECTS = ["harbour", "clinic", "library", "bakery", "quarry", "station", "orchard", "museum", "depot", "chapel"]
VERBS = ["opened", "stored", "repaired", "closed", "welcomed", "measured", "sold", "counted", "painted", "moved"]
THINGS = ["barrels", "letters", "engines", "lamps", "carpets", "bicycles", "windows", "maps", "ropes", "benches"]


def sentence(number: int) -> str:
    """A sentence of 15 words that no other number gives."""
    subject, verb, thing = SUBJECTS[number % 10], VERBS[number // 7 % 10], THINGS[number // 3 % 10]
    return f"In the year {1900 + number} the old {subject} on the hill {verb} about {number * 7} {thing} before noon."


def chunk(number: int) -> str:
    """Ten sentences: those from ten times ``number`` on."""
    return " ".join(sentence(number * 10 + place) for place in range(CHUNK_WORDS // WORDS))
