"""Word lists for the features, in English, German, French and Spanish, with a few Chinese characters."""

import re
from collections.abc import Mapping
from typing import Final

SEPARATOR: Final = "\x1f"
"""The separator between the words of a run. A run also begins and ends with it."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    """Return the comma-separated phrases in the form in which they occur in a run."""
    return tuple(phrase.replace(" ", SEPARATOR) for phrase in text.split(","))


STOP: Final = _words(
    "a an the this that these those it its they them their he she his her him we us our you your i my me who "
    "whom whose "
    "which what where when while how and or but so then than as at by for from in into of on onto to with "
    "within over per "
    "about up down out off is are was were be been being am has have had having do does did done will would "
    "shall should "
    "there here also too very just both either own such same other another each any every all some most many "
    "several few "
    "one ones more less fewer if unless because since until till after before during between can could may "
    "might must need "
    "anywhere everywhere whole entire entirely ganz ganze ganzen gesamt gesamte tout toute todo toda "
    "however therefore thus according stated document documents source sources text context "
    "der die das den dem des ein eine einen einem einer eines und oder aber ist sind war waren wird werden "
    "wurde wurden hat "
    "haben hatte im in am an auf aus bei bis für mit nach seit von vom vor zu zum zur über unter durch um als "
    "wie auch nur "
    "es er sie ihr sein seine ihre man sich gibt dass wenn dafür heute dürfen darf kann können muss müssen "
    "sollte alle jede "
    "le la les l un une des du de d et ou mais est sont était étaient a ont avait dans en sur sous par pour "
    "avec au aux que "
    "qui ce cet cette ces il elle ils elles on ne se sa son ses leur leurs y "
    "el los las uno una unos unas y o pero es son era fue fueron ha han en con por para del al lo que se su "
    "sus este esta "
    "esto como más muy"
)
"""Stop words: ignored in comparisons of content, but kept in the verbatim run."""

LIGHT: Final = _words(
    "amount total cost price reach stand lie last equal come make get take give keep hold set go run put show "
    "say tell mean "
    "basis grundlage base exceed possible impossible available use provide offer require apply state report "
    "total value number figure limit part "
    "cover store measure people person currently only exact begin start long lange betragen beträgt beträgen "
    "liegen liegt "
    "kosten kostet dauer dauert reicht gelten gilt steht höhe atteint élève coûte dure compte s'élève alcanza "
    "cuesta dura "
    "asciende jahr tag monat année mois jour año mes día now new year month day always generally usually "
    "simply flat"
)
"""Words with a lower weight. Sentences that share such words may be about different things, and sentences that differ
only in such words may mean the same."""

NEGATIONS: Final = _words(
    "not no never without cannot neither nor none nobody nothing nowhere "
    "nicht kein keine keinen keinem keiner keines nie niemals ohne weder nichts niemand "
    "pas jamais aucun aucune sans ni nunca jamás ningún ninguna ninguno sin tampoco 不 没 無 无 未"
)
NOT_NEGATED: Final = _words(
    "only just but more less fewer later earlier longer sooner doubt matter nur mehr weniger später länger "
    "seulement sólo solo más"
)
"""Words that change the meaning of the negation before them ("not only", "no later than")."""

LONGER: Final = _words("longer mehr länger")
THAN: Final = _words("than als")
"""Words after "no longer" that make it a comparison ("no longer than"). Without such a word, "no longer" means that
something has ended."""

_COLOURS: Final = _words("red blue green yellow black white brown orange purple pink grey gray")
_PAIRS: Final = (
    "up down, more less, more fewer, most least, most fewest, many few, much little, man woman, men women, boy girl, "
    "boys girls, male female, males females, mother father, son daughter, sons daughters, "
    "brother sister, brothers sisters, husband wife, king queen, on off, above below, over under, before after, "
    "inside outside, left right, upper lower, north south, east west, northern southern, eastern western, early late, "
    "earlier later, first last, larger smaller, largest smallest, higher lower, highest lowest, longer shorter, "
    "longest shortest, better worse, best worst, older younger, oldest youngest, hot cold, warm cold, dry wet, "
    "same other, same different, public private, internal external, minimum maximum, positive negative, "
    "domestic foreign, urban rural, always never, often rarely, often seldom, both neither, buys sells, bought sold, "
    "import export, imports exports, with without, for against, left joined, sunrise sunset, summer winter, "
    "odd even, major minor, senior junior, upstream downstream, clockwise counterclockwise, voluntary mandatory, "
    "optional mandatory, optional required, temporary permanent, direct indirect, full empty, short long, high low"
)
_OPPOSED: Final = [tuple(pair.split()) for pair in _PAIRS.split(", ")]
OPPOSITES: Final[dict[str, frozenset[str]]] = {
    word: frozenset(
        [other for one, other in _OPPOSED if one == word]
        + [one for one, other in _OPPOSED if other == word]
        + [colour for colour in _COLOURS if word in _COLOURS and colour != word and {colour, word} != {"grey", "gray"}]
    )
    for word in {word for pair in _OPPOSED for word in pair} | _COLOURS
}
"""Words that give two otherwise equal sentences opposite meanings."""

EXCLUSIVES: Final = (
    (
        ("only", "solely", "exclusively"),
        (
            *("only", "sole", "solely", "exclusively", "exclusive", "just", "alone", "merely", "except", "limited"),
            *("restricted", "reserved", "without", "unless", "nothing", "none", "nobody"),
        ),
    ),
    (("always",), ("always", "all", "every", "each", "any", "anytime", "never", "whenever", "constantly")),
)
"""Words that strengthen a claim, each with its synonyms."""

TOTALS: Final = ("total", "altogether", "combined", "together", "all", "sum", "overall", "both", "totals", "totalling")
"""Words that indicate that a claim gives the total of values that the evidence lists separately."""
OFTEN: Final = ("each", "every", "per", "times", "twice", "je", "pro", "jede", "alle", "chaque", "par", "cada", "por")
"""Words that indicate that the evidence gives a part of what the claim gives as a whole."""
WAIVING: Final = ("waived", "waive", "waives", "exempt", "erlassen", "entfällt")
EXCEPTING: Final = _words("except excepting excluding but außer sauf excepto salvo")
EXCEPTIVES: Final = (
    "unless",
    "except",
    "until",
    "besides",
    "barring",
    "unlike",
    *_phrases("apart from,other than,aside from,exception of"),
)
"""Words that, when negated, affirm a statement."""
SHIFTING: Final = (
    *("free", "few", "hardly", "barely", "rarely", "seldom", "skip", "avoid", "refrain", "forget", "fail", "fails"),
    *(
        "failed",
        "failing",
        "failure",
        "lack",
        "lacks",
        "lacked",
        "lacking",
        "missing",
        "ban",
        "off",
        "exceed",
        "unlike",
    ),
    *("reverse", "otherwise", "optional", "unlimited", "instead", "nichts", "kaum", "selten", "statt", "rarement"),
    *_phrases("rather than,all but,or not,or without,out of,no later,no earlier,no more,no fewer"),
    *_phrases("no less,later than,earlier than,no one,ohne weiteres"),
)
"""Words that can replace a negation ("lacks" for "does not have"), so a sentence with a negation may mean the same as
one with such a word."""
JOINING: Final = _words("and or but while yet then und oder aber et ou mais y o pero")
"""Words before a verb or adjective that link it to the subject of the preceding verb."""
OPEN_ENDED: Final = _words("earlier later newer older onwards onward upwards lower higher")
"""Words after a version or number that mean that all earlier or later ones are included ("1.24 and earlier")."""
OF_THE_REST: Final = _words("smaller larger others other thereafter remaining rest excluded below under")
"""Words that indicate that a sentence is about what lies beyond a boundary."""
STANDING_FOR: Final = _words("is are was were does do did can has have will may")
"""Words that replace a verb at the end of a sentence: "the others do"."""
ROLES: Final = _words(
    "company employer plan policy bank lender borrower customer client buyer purchaser seller vendor supplier "
    "contractor consultant employee worker provider agreement contract insurer insured member trust fund "
    "issuer holder tenant lessee landlord lessor licensor licensee owner agency authority department office"
)
"""Capitalized nouns for roles. A document may use several of them for the same party."""
NOT_ALL: Final = _phrases("not all,not every,not always,not everyone")
BEFORE: Final = _words("before until till prior bevor bis avant antes hasta")
AFTER: Final = _words("after once following nachdem nach après después")
"""Conjunctions of time. A statement that is false before the event is true after it."""
DOUBTING: Final = _words(
    "myth misconception denied denies deny denying rejected rejects reject refuted refutes disputed disputes false "
    "untrue incorrect wrong doubted doubts falsely claim claims claimed allege alleges alleged allegation argument "
    "argued rumour rumor misleading unproven"
)
"""Words before "that" that report or deny a statement without asserting it."""
REFUTED: Final = _words("false untrue myth incorrect debunked")
"""Words after a statement that refute it."""
ATTRIBUTIVE: Final = _COLOURS | _words(
    "man woman men women boy girl boys girls male female males females upper lower left right north "
    "south east west northern southern eastern western first last larger smaller largest smallest longer shorter older "
    "younger public private internal external minimum maximum domestic foreign major minor senior junior summer winter "
    "short long temporary permanent"
)
"""The opposites that can also distinguish two things."""

CORRELATIVES: Final = _words("nor ni")
"""Words that, after the first half of a negation, are its second half ("neither … nor")."""
EITHER: Final = _words("or oder ou o")
"""Words before a negation that leave it open whether the statement is true ("little or no", "may or may not")."""

HEDGES: Final = _words(
    "might could would possibly probably likely perhaps maybe allegedly reportedly expected expects expect "
    "planned propose proposes proposed intend intends intended consider considers considering "
    "potentially soll sollen könnte könnten dürfte planen geplant voraussichtlich möglicherweise vielleicht "
    "pourrait pourraient prévoit prévoient prévu probablement podría podrían planea planean previsto "
    "probablemente"
)
INTENDING: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("plan", "plans", "planning"), frozenset({"to", "on"})),
    **dict.fromkeys(("aim", "aims", "hope", "hopes"), frozenset({"to"})),
    "plant": _words("die der das den eine einen ein"),
}
"""Hedges that count only before the listed words, because they have other meanings: a "plan" may also be a tariff."""
FUTURE: Final = ("will",)
AHEAD: Final = frozenset(FUTURE) | _words(
    "plan plans planned planning intend intends intended expect expects expected hope hopes hoped aim aims want wants "
    "propose proposes proposed scheduled set due going about agree agrees agreed promise promises promised pledge "
    "pledges pledged prepare prepares preparing"
)
"""Words before a verb, with or without "to", that show that the event has not happened yet."""
HEDGES_OF_VERBS: Final = AHEAD.difference(FUTURE) | _words("may might could")
BETWEEN: Final = _words("to be been also then soon later only now already not")
"""Words that may occur between a word in ``AHEAD`` and the verb."""
PERFECT: Final = _words("has have had was were 've")
PRESENT: Final = _words(
    "is are be being 's 're has have do does can may must should would will get gets stay stays stayed remain remains "
    "remained become becomes became need needs"
)
"""Words that mark a sentence in the present tense, in which a form in -ed is not a past event."""
QUALIFYING: Final = _words("who whose with without on under over aged holding living")
"""Words after a noun that narrow it to a part."""
NARROWING: Final = _words(
    "premium basic plus pro standard enterprise business team starter trial free paid gold silver platinum "
    "bronze vip family student senior junior adult minor new existing returning current former regular "
    "registered verified licensed certified insured selected eligible qualified authorised authorized annual "
    "yearly monthly weekly daily seasonal temporary permanent foreign domestic international local regional "
    "european national private public commercial residential corporate retail institutional online offline "
    "digital mobile large larger small smaller older younger male female pregnant married single disabled "
    "retired unemployed salaried full part evening day night weekend weekday morning summer winter peak early "
    "late advanced intermediate administrative technical medical legal financial clinical industrial electric "
    "electronic internal external direct indirect unused damaged defective used"
)
"""Words before a noun that narrow it to a part. A rule for premium users, for example, need not apply to all users."""
BEFORE_A_BORDER: Final = _words(
    "before until till below under first during within vor bis unter avant jusqu antes hasta"
)
BEYOND_A_BORDER: Final = _words("after from above over since beyond nach ab über seit après dès depuis después desde")
PERMITTING: Final = _words(
    "can able allowed permitted possible entitled eligible option optional "
    "kann können darf dürfen möglich erlaubt peut peuvent autorisé puede pueden posible permitido"
)
"""Words for a permission. A claim with such a word doesn't go beyond evidence in which something "may" be done."""
CONDITIONS: Final = _words(
    "if unless except only provided otherwise wenn falls sofern außer nur si sauf seulement excepto salvo solo sólo"
)
CONTRASTS: Final = _words(
    "but while whereas although though however aber während sondern mais tandis pero mientras sino"
)
"""Words that begin a new clause, as commas and semicolons do."""

LEANING: Final = _words(
    "it its this that these those they their them he she his her such also however therefore thus otherwise "
    "moreover "
    "furthermore additionally then so but and er sie es dies diese dieser dieses ihr ihre auch jedoch daher "
    "deshalb sonst "
    "außerdem il elle ils elles cela ce cette ces leur aussi donc cependant sinon ello esto este esta estos "
    "estas también "
    "además"
)
"""Words at the beginning of a sentence that refer to the preceding sentence."""

QUANTIFIERS: Final[dict[str, int]] = {
    word: level
    for level, words in (
        (
            4,
            "all every each always any alle jeder jede jedes sämtliche immer tous toutes chaque toujours "
            "todos todas cada",
        ),
        (3, "most mostly majority meisten mehrheit plupart mayoría"),
        (2, "many often viele oft beaucoup souvent muchos muchas"),
        (1, "some several few sometimes einige manche manchmal certains certaines quelques parfois algunos algunas"),
    )
    for word in words.split()
}

AT_ALL: Final = _phrases("at all")
"""A phrase that adds nothing to the meaning of a negation."""
SPANS: Final = _words(
    "time times moment second minute minutes hour hours day days night nights morning evening week weeks month months "
    "quarter year years"
)
"""Words after a quantifier that make it a frequency rather than a number of things."""
UNIVERSAL: Final = 4
"""The level of quantifiers that allow no exceptions."""
WHOLE: Final = _phrases("the whole,the entire,an entire")
"""Quantifiers that mean the same for a single thing."""

CONCEPTS: Final[dict[str, tuple[str, int]]] = {
    word: (concept, sign)
    for concept, positive, negative in (
        (
            "permit",
            "allow allows allowed allowing permit permits permitted permissible authorised authorized legal "
            "lawful erlaubt "
            "gestattet zulässig autorisé autorisée autorisés permis permise permitido permitida permite",
            "prohibit prohibits prohibited forbid forbids forbidden ban bans banned disallowed illegal "
            "unlawful verboten "
            "untersagt unzulässig interdit interdite interdits prohibido prohibida prohíbe",
        ),
        (
            "include",
            "include includes included including enthält enthalten inklusive inbegriffen inclut inclus "
            "comprend incluye incluido",
            "exclude excludes excluded excluding ausgeschlossen exklusive exclut exclus excluye excluido",
        ),
        (
            "open",
            "open opens opened geöffnet offen ouvert ouverte abierto abierta",
            "closed shut geschlossen fermé fermée cerrado cerrada",
        ),
        (
            "rise",
            "rise rises rose risen rising increase increases increased increasing grow grows grew grown "
            "growing growth gain "
            "gains gained climb climbed widen widened stieg gestiegen steigt zugenommen erhöht augmenté "
            "augmente hausse "
            "aumentó aumenta aumento subió",
            "fall falls fell fallen falling decrease decreases decreased decreasing decline declines declined "
            "drop drops "
            "dropped shrink shrank reduce reduced narrowed sank gesunken sinkt abgenommen gesenkt diminué "
            "diminue baisse "
            "baissé disminuyó disminuye bajó",
        ),
        (
            "size",
            "higher larger greater bigger höher größer supérieur mayor superior",
            "lower smaller niedriger kleiner inférieur menor inferior",
        ),
        (
            "accept",
            "accept accepts accepted approve approves approved angenommen genehmigt accepté approuvé aceptado aprobado",
            "reject rejects rejected deny denies denied refuse refused refuses abgelehnt refusé rejeté rechazado",
        ),
        (
            "succeed",
            "succeed succeeds succeeded successful passed bestanden réussi",
            "fail fails failed unsuccessful failing gescheitert échoué",
        ),
        (
            "enable",
            "enable enables enabled activated aktiviert activé activado",
            "disable disables disabled deactivated deaktiviert désactivé desactivado",
        ),
        (
            "oblige",
            "mandatory compulsory obligatory verpflichtend obligatoire obligatorio",
            "optional voluntary freiwillig facultatif opcional",
        ),
        ("price", "expensive dearer dear costlier teurer teuer cher caro", "cheap cheaper cheapest günstiger billiger"),
        ("safe", "safe sicher", "unsafe dangerous gefährlich"),
        ("can", "possible möglich posible", "impossible unmöglich imposible"),
        ("able", "able capable", "unable incapable"),
        ("valid", "valid gültig valable válido", "invalid ungültig inválido"),
        ("true", "true correct richtig wahr", "false incorrect wrong falsch"),
        ("public", "public öffentlich", "private privat"),
        ("indoors", "indoors inside", "outdoors outside"),
        ("win", "win wins won", "lose loses lost"),
        ("present", "present", "absent"),
        ("complete", "complete completed", "incomplete unfinished"),
        ("taxed", "taxable", "exempt"),
    )
    for sign, words in ((1, positive), (-1, negative))
    for word in words.split()
}
"""Words for a concept and its opposite. Both are matched as one concept, and the product of their signs is part of the
sentence's polarity."""

SYNONYMS: Final[dict[str, str]] = {
    word: f"={group.split()[0]}"
    for group in (
        "people person persons participant participants respondent respondents individual individuals",
        "buy buys bought buying purchase purchases purchased purchasing",
        "begin begins began begun start starts started starting commence commences commenced",
        "finish finishes finished end ends ended ending conclude concludes concluded",
        "help helps helped assist assists assisted assistance",
        "show shows showed shown demonstrate demonstrates demonstrated",
        "staff employee employees worker workers",
        "car cars vehicle vehicles automobile automobiles",
        "doctor doctors physician physicians",
        "big large huge",
        "quick quickly fast rapid rapidly swift swiftly",
        "repair repairs repaired fix fixes fixed",
        "firm firms company companies corporation",
        "get gets got receive receives received obtain obtains obtained",
        "ask asks asked request requests requested",
        "build builds built construct constructs constructed",
        "create creates created establish establishes established found founded",
        "launch launches launched introduce introduces introduced",
        "cancel cancels cancelled canceled terminate terminates terminated",
        "need needs needed require requires required",
        "choose chooses chose chosen select selects selected",
        "answer answers answered reply replies replied respond responds responded",
        "send sends sent dispatch dispatches dispatched",
        "child children kid kids",
        "film films movie movies",
        "illness illnesses disease diseases",
        "medicine medicines medication medications drug drugs",
        "trip trips journey journeys voyage",
        "house houses home homes",
        "area areas zone zones region regions",
        "customer customers client clients",
        "salary salaries wage wages",
        "leave leaves left depart departs departed departure",
        "arrive arrives arrived arrival",
        "licence licences license licenses licensed",
        "tenant tenants lessee lessees",
        "landlord landlords lessor lessors",
        "supplier suppliers vendor vendors",
        "buyer buyers purchaser purchasers",
    )
    for word in group.split()
}
"""Words treated as synonyms; words that are synonymous only in some contexts are left out."""

RELATORS: Final[dict[str, tuple[str, int]]] = {
    word: (relation, sign)
    for relation, sign, words in (
        ("than", 1, "than als que"),
        ("order", 1, "after nach nachdem après después"),
        ("order", -1, "before vor bevor avant antes"),
    )
    for word in words.split()
}
"""Words that relate two things. Swapping the two things changes the meaning."""
DEGREES: Final[dict[str, int]] = {
    word: sign
    for sign, words in (
        (1, "more higher larger greater longer older faster heavier dearer better later mehr höher größer plus más"),
        (
            -1,
            "less fewer lower smaller shorter younger slower lighter cheaper worse earlier weniger niedriger "
            "kleiner moins menos",
        ),
    )
    for word in words.split()
}

_IRREGULAR: Final = (
    "take took taken|rise rose risen|fall fell fallen|grow grew grown|lose lost|win won|"
    "pay paid|sell sold|hold held|begin began begun|build built|leave left|make made|give "
    "gave given|"
    "go went gone|send sent|keep kept|run ran|say said|find found|write wrote written|buy bought|bring brought|"
    "know knew known|see saw seen|lead led|become became|choose chose chosen|speak spoke spoken|break broke "
    "broken|"
    "mean meant|meet met|spend spent|tell told|teach taught|wear wore worn|drive drove driven|lie lay lain|"
    "child children|woman women|man men"
)
IRREGULAR: Final[dict[str, str]] = {
    form: forms.split()[0] for forms in _IRREGULAR.split("|") for form in forms.split()[1:]
}
SUFFIXES: Final = (
    *("ations", "ation", "ments", "ment", "ingly", "edly", "ings", "ing", "ied", "ies", "ed", "ly"),
    *("es", "en", "s", "e", "n"),
)
ABBREVIATIONS: Final = _words(
    "mr mrs ms dr prof st no nr art abs fig vol pp eg ie etc vs al ca approx inc ltd co corp dept est sec lit "
    "bzw z ggf str m av"
)
LEAD_IN: Final = re.compile(
    r"\s*(?:according to|as (?:stated|described|noted|mentioned|shown|given|per)(?: in| by)?|based on|laut|gemäß|selon"
    r"|d'après|según)\s(?:the |your |our |dem |der |den |le |la |les |el |los |las )?"
    r"(?:provided |given |retrieved )?(?:documents?|sources?|context|texts?|polic(?:y|ies)|articles?|reports?|passages?"
    r"|manual"
    r"|dokument\w?|quellen?|kontext|documentos?|fuentes?|contexto|contexte)\b,?\s",
    re.IGNORECASE,
)
"""Words before a claim that only name its source."""
