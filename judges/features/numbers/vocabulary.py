"""The vocabulary of quantities, as data: number words, scales, units, currencies, months, weekdays, and the words that
limit a number. It covers English, German, French and Spanish, and the Chinese and Japanese counters that follow a
number."""

from decimal import Decimal
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _table(*rows: tuple[str, object]) -> dict[str, str]:
    return {word: str(value) for words, value in rows for word in words.split()}


NUMBER_WORDS: Final[dict[str, int]] = {
    word: int(value)
    for word, value in _table(
        ("zero null cero", 0),
        ("two zwei deux dos", 2),
        ("three drei trois tres", 3),
        ("four vier quatre cuatro", 4),
        ("five fünf cinq cinco", 5),
        ("six sechs seis", 6),
        ("seven sieben sept siete", 7),
        ("eight acht huit ocho", 8),
        ("nine neun neuf nueve", 9),
        ("ten zehn dix diez", 10),
        ("eleven elf onze", 11),
        ("twelve zwölf douze doce", 12),
        ("thirteen dreizehn treize trece", 13),
        ("fourteen vierzehn quatorze catorce", 14),
        ("fifteen fünfzehn quinze quince", 15),
        ("sixteen sechzehn seize dieciséis", 16),
        ("seventeen siebzehn diecisiete", 17),
        ("eighteen achtzehn dieciocho", 18),
        ("nineteen neunzehn diecinueve", 19),
        ("twenty zwanzig vingt veinte", 20),
        ("thirty dreißig trente treinta", 30),
        ("forty vierzig quarante cuarenta", 40),
        ("fifty fünfzig cinquante cincuenta", 50),
        ("sixty sechzig soixante sesenta", 60),
        ("seventy siebzig setenta", 70),
        ("eighty achtzig ochenta", 80),
        ("ninety neunzig noventa", 90),
    ).items()
}
ONE: Final = _words("one a an ein eine einen einem einer un une una uno")
"""Words that are numbers only before a unit or a scale. Elsewhere, they are articles or pronouns."""

ORDINAL_WORDS: Final[dict[str, int]] = {
    word: int(value)
    for word, value in _table(
        ("first erste ersten erster premier première primer primera", 1),
        ("second zweite zweiten deuxième segundo segunda", 2),
        ("third dritte dritten troisième tercer tercera", 3),
        ("fourth vierte vierten quatrième cuarto cuarta", 4),
        ("fifth fünfte fünften cinquième quinto quinta", 5),
        ("sixth sechste sechsten sixième", 6),
        ("seventh siebte siebten septième", 7),
        ("eighth achte achten huitième", 8),
        ("ninth neunte neunten neuvième", 9),
        ("tenth zehnte zehnten dixième", 10),
    ).items()
}
ORDINAL_SUFFIXES: Final = _words("st nd rd th er ère ème e")
NAMED_TIMES: Final[dict[str, tuple[Decimal, ...]]] = {
    **dict.fromkeys(("noon", "midday", "midi", "mediodía"), (Decimal(720),)),
    **dict.fromkeys(("midnight", "mitternacht", "minuit", "medianoche"), (Decimal(0), Decimal(1440))),
}
"""Named times of day, in minutes after midnight. Midnight may be the beginning or the end of a day."""
HOW_OFTEN: Final = _words("times twice thrice once mal zweimal dreimal fois veces")
TIMES_WORDS: Final[dict[str, int]] = {
    "twice": 2,
    "thrice": 3,
    "zweimal": 2,
    "dreimal": 3,
    "viermal": 4,
    "fünfmal": 5,
}

SCALES: Final[dict[str, Decimal]] = dict.fromkeys(("dozen", "dutzend", "douzaine", "docena"), Decimal(12)) | {
    word: Decimal(10) ** int(power)
    for word, power in _table(
        ("hundred hundert hundreds", 2),
        ("thousand tausend mille mil thousands 千", 3),
        ("万 萬", 4),
        ("lakh lakhs", 5),
        ("million millions mn mio millionen millón millones", 6),
        ("crore crores", 7),
        ("億 亿", 8),
        ("billion billions bn mrd milliarde milliarden milliard milliards", 9),
        ("trillion trillions tn trn billionen", 12),
    ).items()
}
AND: Final = _words("and und et y")
"""Words that join the hundreds to the rest of a number in words, or the two ends of a range."""
BETWEEN: Final = _words("between zwischen entre")
SUFFIX_SCALES: Final[dict[str, Decimal]] = {
    "k": Decimal(10) ** 3,
    "K": Decimal(10) ** 3,
    "m": Decimal(10) ** 6,
    "M": Decimal(10) ** 6,
    "B": Decimal(10) ** 9,
    "b": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
}
"""Abbreviated scales. They are recognised after an amount of money, or directly after a number that counts something.
"Seat 1B" and "2,700K" are not such numbers.
"""

CURRENCIES: Final[dict[str, str]] = _table(
    ("€ eur euro euros", "EUR"),
    ("$ usd us$ dollar dollars dólares", "USD"),
    ("£ gbp sterling", "GBP"),
    ("¥ jpy yen 円 日元", "JPY"),
    ("cny rmb yuan 元", "CNY"),
    ("₹ inr rupee rupees", "INR"),
    ("chf franc francs franken rappen", "CHF"),
    ("sek nok dkk krona kroner kronor", "KR"),
    ("pln zloty", "PLN"),
    ("cad", "CAD"),
    ("aud", "AUD"),
)

PERCENT: Final = _words("% percent pct prozent")
POINTS: Final = _words("pp prozentpunkte prozentpunkten prozentpunkt")
BASIS_POINTS: Final = _words("bp bps basispunkte basispunkten")

UNITS: Final[dict[str, tuple[str, Decimal]]] = {
    word: (dimension, Decimal(factor))
    for dimension, words, factor in (
        ("mass", "mg milligram milligrams milligramm", "0.001"),
        ("mass", "µg μg mcg microgram micrograms", "0.000001"),
        ("mass", "g gram grams gramm grammes gramos", "1"),
        ("mass", "kg kilo kilos kilogram kilograms kilogramm kilogrammes", "1000"),
        ("mass", "t tonne tonnes tonnen toneladas", "1000000"),
        ("ounce", "lb lbs pound pounds", "16"),
        ("ounce", "oz ounce ounces", "1"),
        ("length", "mm millimetre millimetres millimeter millimeters", "0.001"),
        ("length", "cm centimetre centimetres centimeter centimeters zentimeter", "0.01"),
        ("length", "m metre metres meter meters metern mètre mètres metro metros", "1"),
        ("length", "km kilometre kilometres kilometer kilometers kilomètres kilómetros", "1000"),
        ("inch", "mile miles mi meilen", "63360"),
        ("inch", "ft foot feet", "12"),
        ("inch", "yard yards yd", "36"),
        ("inch", "inch inches zoll", "1"),
        ("area", "m2 sqm quadratmeter", "1"),
        ("area", "km2 quadratkilometer", "1000000"),
        ("area", "ha hectare hectares hektar", "10000"),
        ("acre", "acre acres", "1"),
        ("volume", "ml millilitre millilitres milliliter milliliters", "0.001"),
        ("volume", "cl", "0.01"),
        ("volume", "dl", "0.1"),
        ("volume", "l litre litres liter liters litern litros", "1"),
        ("volume", "m3 kubikmeter", "1000"),
        ("gallon", "gallon gallons", "1"),
        ("duration", "ms millisecond milliseconds millisekunden", "0.001"),
        ("duration", "s sec secs second seconds sekunde sekunden seconde secondes segundo segundos 秒", "1"),
        ("duration", "min mins minute minutes minuten minuto minutos 分 分钟 分間", "60"),
        ("duration", "h hr hrs hour hours stunde stunden heure heures hora horas 小时 時間", "3600"),
        ("duration", "d day days tag tage tagen jour jours día días 天 日", "86400"),
        ("duration", "week weeks woche wochen semaine semaines semana semanas 周 週間", "604800"),
        ("duration", "fortnight fortnights", "1209600"),
        ("months", "month months monat monate monaten mois mes meses ヶ月 か月", "1"),
        ("months", "quarter quarters quartal quartale", "3"),
        ("months", "year years yr yrs jahr jahre jahren ans année années año años", "12"),
        ("months", "decade decades", "120"),
        ("power", "w watt watts", "1"),
        ("power", "kw kilowatt kilowatts", "1000"),
        ("power", "mw megawatt megawatts", "1000000"),
        ("power", "gw gigawatt gigawatts", "1000000000"),
        ("energy", "wh", "1"),
        ("energy", "kwh", "1000"),
        ("energy", "mwh", "1000000"),
        ("energy", "gwh", "1000000000"),
        ("calories", "kcal calories", "1"),
        ("data", "kb kilobytes", "1000"),
        ("data", "mb megabyte megabytes", "1000000"),
        ("data", "gb gigabyte gigabytes", "1000000000"),
        ("data", "tb terabyte terabytes", "1000000000000"),
        ("frequency", "hz hertz", "1"),
        ("frequency", "khz", "1000"),
        ("frequency", "mhz", "1000000"),
        ("frequency", "ghz", "1000000000"),
        ("decibel", "db decibel decibels dezibel", "1"),
        ("voltage", "v volt volts", "1"),
        ("current", "amp amps ampere amperes", "1"),
        ("degree", "° degree degrees grad degrés grados", "1"),
        ("celsius", "°c celsius", "1"),
        ("fahrenheit", "°f fahrenheit", "1"),
        ("kmh", "kmh", "1"),
        ("mph", "mph", "1"),
        ("times", "times mal fois veces", "1"),
    )
    for word in words.split()
}
SQUARES: Final = _words("square sq carrés quadrat")
CUBES: Final = _words("cubic cu")

PERIODS: Final[dict[str, tuple[str, Decimal]]] = {
    "annually": ("months", Decimal(12)),
    "yearly": ("months", Decimal(12)),
    "annual": ("months", Decimal(12)),
    "annum": ("months", Decimal(12)),
    "jährlich": ("months", Decimal(12)),
    "monthly": ("months", Decimal(1)),
    "monatlich": ("months", Decimal(1)),
    "weekly": ("duration", Decimal(604800)),
    "wöchentlich": ("duration", Decimal(604800)),
    "daily": ("duration", Decimal(86400)),
    "täglich": ("duration", Decimal(86400)),
    "hourly": ("duration", Decimal(3600)),
}
SHORT_FORMS: Final[dict[str, str]] = {
    short: form
    for forms in (
        "request req reqs",
        "message msg msgs",
        "connection conn conns",
        "transaction txn txns tx",
        "operation op ops",
        "developer dev devs",
        "organization org orgs",
        "application app apps",
        "repository repo repos",
        "configuration config configs",
        "administrator admin admins",
        "database db dbs",
        "document doc docs",
        "parameter param params",
        "specification spec specs",
        "account acct accts",
        "information info",
        "average avg",
        "government govt",
        "quantity qty",
        "management mgmt",
        "authentication auth",
    )
    for form, *shorts in [forms.split()]
    for short in shorts
}
"""Abbreviations used next to a number in tables and replies ("1000 req/min")."""
PER: Final = _words("per a an each every pro je im am par por al à /")

MONTHS: Final[dict[str, int]] = {
    word: int(value)
    for word, value in _table(
        ("january jan januar jänner janvier enero", 1),
        ("february feb februar février febrero", 2),
        ("march mar märz mars marzo", 3),
        ("april apr avril abril", 4),
        ("may mai mayo", 5),
        ("june jun juni juin junio", 6),
        ("july jul juli juillet julio", 7),
        ("august aug août agosto", 8),
        ("september sep sept septembre septiembre", 9),
        ("october oct oktober okt octobre octubre", 10),
        ("november nov novembre noviembre", 11),
        ("december dec dezember dez décembre diciembre", 12),
    ).items()
}
AMBIGUOUS_MONTHS: Final = _words("may march mar mars sept")
"""Months that are also other words. They are read as months only next to a number or after a preposition."""
BEFORE_MONTH: Final = _words(
    "in of since until till by from to before after during im seit bis en de depuis desde hasta"
)
BEFORE_YEAR: Final = BEFORE_MONTH | _words("year years fy jahr année año ( [ between and for")

WEEKDAYS: Final[dict[str, int]] = {
    word: int(value)
    for word, value in _table(
        ("monday mondays montag montags lundi lunes", 1),
        ("tuesday tuesdays dienstag dienstags mardi martes", 2),
        ("wednesday wednesdays mittwoch mittwochs mercredi miércoles", 3),
        ("thursday thursdays donnerstag donnerstags jeudi jueves", 4),
        ("friday fridays freitag freitags vendredi viernes", 5),
        ("saturday saturdays samstag samstags sonnabend samedi sábado sábados", 6),
        ("sunday sundays sonntag sonntags dimanche domingo domingos", 7),
    ).items()
}

CENTS: Final = "cents"
"""Words for a hundredth of a currency unit."""
THROUGH: Final = _words("to - until till through thru bis à hasta")
"""Words between the two ends of a range."""
BEFORE_DECADE: Final = _words("the his her their its early mid late over under")
"""Words before "90s" that indicate years, not seconds."""
BEFORE_SPAN: Final = _words(
    "for in within over after than least most about nearly almost around lasted lasts took takes under"
)
"""Words before "a decade" that indicate a length of time rather than a frequency."""
FRACTIONS: Final[dict[str, int]] = {
    word: int(value)
    for word, value in _table(("thirds", 3), ("fifths", 5), ("sixths", 6), ("eighths", 8), ("tenths", 10)).items()
}
CLOCK: Final = _words("uhr o'clock oclock 点 時 时")
"""Words that indicate a time of day after a number or between hours and minutes."""
CLOCK_PREPOSITIONS: Final = _words("à at um vers")
REFERENCES: Final = _words(
    "art article no nr number nummer fig figure abs absatz satz section sec chapter page p para paragraph § clause "
    "lit table step version phase level grade class room gate platform line route floor highway appendix annex "
    "episode volume vol seat apartment apt suite flat row exit terminal stage flight type"
)

APPROXIMATE: Final = _words(
    "about around approximately approx roughly nearly almost some circa ca ~ ≈ etwa rund ungefähr fast environ presque "
    "alrededor unos unas casi"
)
AT_LEAST: Final = _words(
    "over above exceed exceeds exceeded exceeding least minimum min ≥ > mindestens über moins mínimo supera beyond"
)
AT_MOST: Final = _words("under below most maximum max ≤ < höchstens maximal unter jusqu'à hasta máximo within")
OR_MORE: Final = _words("more greater older higher above over up longer later mehr älter")
OR_LESS: Final = _words("less fewer younger lower below under shorter earlier weniger jünger")
"""Words after a number and "or" that make it a bound."""
MORE_THAN: Final = _words("more greater higher longer larger mehr plus más")
LESS_THAN: Final = _words("less fewer lower shorter smaller weniger moins menos")
THAN: Final = _words("than als que de")
CHANGED: Final = _words(
    "rose risen rise rises rising raised raises raise grew grown grow grows growing increased increases increase "
    "increasing climbed climbs fell fallen fall falls falling dropped drops drop dropping declined declines decline "
    "decreased decreases decrease decreasing reduced reduces reduce reducing lowered lowers lower shrank shrunk "
    "shrinks improved improves exceeded exceeds exceed up down longer shorter higher gestiegen gesunken gefallen "
    "erhöht gesenkt"
)
"""Words before "by" and a quantity that make the quantity the amount of a change."""
MOVED: Final = CHANGED | _words("went moved revised changed cut extended postponed")
"""Words before "from … to …" that make it a change, not a range."""
CHANGES: Final = _words("increase rise growth decrease fall drop decline reduction difference anstieg rückgang")
"""Words before "of" and a quantity that make the quantity the amount of a change."""
NO_NOUNS: Final = _words(
    "the is are was were at with but who which that when while it he she they we as if so because has had have will "
    "would can could on"
)
"""Words that may follow a number but are not the noun that the number counts."""
NOT: Final = _words("not no never nicht pas")

UNTIL: Final = _words("until till to by before through bis jusqu'à jusqu'au hasta avant antes")
BEFORE: Final = _words("before avant antes vor")
AFTER: Final = _words("after nach après después")
"""Words before a date or time that mean "some time after"."""
ERAS: Final = _words("AD BC CE BCE")
"""Abbreviations that must be written in capitals."""
NAMING_PREFIXES: Final = _words("mid pre post sub top non under over early late ex all anti semi")
"""Prefixes before a hyphen and a number: mid-1990s, under-18."""
FROM: Final = _words("from since after starting ab seit von nach dès depuis desde")
JOINERS: Final = _words("x × to and or - , bis und oder à et ou a y o by")

CJK_DIGITS: Final[dict[str, int]] = {
    "一": 1,
    "二": 2,
    "两": 2,
    "三": 3,
    "四": 4,
    "五": 5,
    "六": 6,
    "七": 7,
    "八": 8,
    "九": 9,
}
CJK_MULTIPLES: Final[dict[str, int]] = {"十": 10, "百": 100}
