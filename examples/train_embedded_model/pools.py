"""What people put into requests: names, cities, paths, dates, ids. Every pool gives values that training never sees.

Names, companies and the like come from Faker; words that no list has are made of syllables, so that a model cannot
know them and has to copy.
"""

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from faker import Faker
from train_embedded_model.zones import ZONES

_HELD_OUT = 7
"""One value of so many is held out."""
_SIZE = 1500


@dataclass(frozen=True, slots=True)
class Value:
    """An argument as JSON has it, and as people say it."""

    json: Any
    spoken: str


def plain(value: Any) -> Value:
    """A value that is said as it is written."""
    return Value(value, str(value))


def held_out(text: str, one_of: int = _HELD_OUT) -> bool:
    """Whether a text is for the evaluation alone. Stable over versions of Python."""
    return zlib.crc32(text.encode()) % one_of == 0


class Pools:
    """Draws values. `test` draws only those that training never sees, where a pool is a list."""

    def __init__(self, rng: random.Random, *, test: bool) -> None:
        self.rng, self.test = rng, test

    def draw(self, pool: str) -> Value:
        """A value of that pool."""
        if pool in _LISTS:
            return self._list(_LISTS[pool])
        if pool in _MADE:
            made: Value = _MADE[pool](self)
            return made
        return plain(self.pick(pool))

    def text(self, pool: str) -> str:
        """A value of that pool, as it is said."""
        return self.draw(pool).spoken

    def pick(self, pool: str) -> str:
        """An entry of a list of texts, or a made-up word now and then where anything may be named."""
        known, unseen = _entries(pool)
        if pool in _NAMING and self.rng.random() < _NAMING[pool]:
            made = self.made_word()
            return made.capitalize() if pool in _CAPITAL else made
        return self.rng.choice(unseen if self.test else known)

    def made_word(self) -> str:
        """A word that is in no dictionary."""
        rng = self.rng
        while True:
            made = "".join(_syllable(rng) for _ in range(rng.choice((2, 2, 2, 3, 3))))
            if held_out(made) == self.test:
                return made

    def _list(self, pool: str) -> Value:
        count = self.rng.choice((1, 2, 2, 2, 3, 3, 4))
        parts: list[Value] = []
        while len(parts) < count:
            part = self.draw(pool)
            if part.json not in [each.json for each in parts]:
                parts.append(part)
        spoken = [part.spoken for part in parts]
        last = self.rng.choice((" and ", " and ", ", ", " & ")) if count == 2 else self.rng.choice((" and ", ", "))
        return Value([part.json for part in parts], ", ".join(spoken[:-1]) + (last if count > 1 else "") + spoken[-1])


def _syllable(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.5:
        return rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou")
    if kind < 0.8:
        return rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") + rng.choice("nrlstkmx")
    return rng.choice(("tr", "pl", "st", "gr", "br", "cl", "sh", "ch", "dr", "fl", "qu")) + rng.choice("aeiou")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.replace("_", " ") for word in text.split())


_NOUNS = _words("""
apple anchor arrow atlas autumn bag ball band bank basket bath beach bean bear bed bell bench bicycle bird blanket board
boat body bone book boot bottle bowl box branch bread brick bridge brush bucket building bus butter button cabin cable
cake camera camp candle canvas cap car card carpet castle cat ceiling chain chair chalk chart cheese chest church circle
clay cloth cloud coat coffee coin comb computer cook copper corn corner cotton couch country cover cow cream crown cup
curtain cushion desk diamond dinner dish doctor dog door dream dress drill drum dust eagle ear earth egg elbow engine
envelope eye fabric face factory family farm feather fence field film finger fire fish flag floor flour flower fork
forest fountain fox frame friend frog fruit furniture garage garden gate ghost gift glass glove goat gold grain grape
grass guitar hammer hand harbor hat heart hill holiday honey hook horse hospital hotel house ice ink island jacket jar
jewel juice kettle key king kitchen kite knife ladder lake lamp leaf leather lemon letter library light lion lock magnet
map market mask match meadow meal meat medal milk mirror monkey moon morning mountain mouse mud museum mushroom nail
napkin needle nest net night nose nut oak ocean office oil onion orange oven owl page paint palace pan paper park party
path peach pear pearl pen pencil pepper phone piano picture pillow pin pipe plane plant plate pocket pond pool port post
pot potato powder present price prison pump purse queen rabbit radio rail rain ribbon rice ring river road robot rock
roof room root rope rose rug sail salad salt sand sauce scale scarf school scissors screen sea seat seed shadow sheep
shelf shell ship shirt shoe shop shoulder sign silk silver sink sister skirt sky sleep smoke snake snow soap sock sofa
soup spade spider spoon spring square stamp star station steel stone stool storm stove straw stream street string sugar
summer sun sweater sword table tail tape tea teacher team tent theater thread ticket tiger tile tin toast toe tomato
tongue tool tooth towel tower town toy train tray tree truck trumpet tunnel turtle umbrella uncle valley van vase vest
village violin voice wagon wall wallet watch water wave wheel whistle window wine wing winter wolf wood wool word yard
shopping groceries birthday rent budget travel ideas recipe wifi dentist gym homework project passwords packing errands
taxes insurance garage contacts goals reading movies songs gifts trip laundry cleaning repairs plumber car_keys address
""")
_ADJECTIVES = _words("""
red blue green yellow black white small big old new fresh dry wet cold warm hot sweet bitter quiet loud soft hard round
flat long short heavy light dark bright clean broken empty full cheap rare plain sharp slow quick early late spare
wooden golden silver local second third final private public monthly weekly daily annual quarterly
""")
_FOODS = _words("""
bread pasta rice soup salad pizza cheese apples bananas oranges tomatoes potatoes carrots onions garlic chicken beef
fish salmon tuna eggs milk butter yogurt honey chocolate cookies pancakes
waffles noodles sushi curry tacos burgers lasagna
risotto stew lentils beans mushrooms spinach broccoli cabbage pumpkin strawberries blueberries cherries grapes lemons
mango pineapple coconut almonds walnuts olives tofu omelette sandwiches dumplings falafel hummus couscous porridge
""")
_ANIMALS = _words("""
dog cat horse cow sheep goat pig rabbit hamster parrot canary turtle snake lizard frog fish goldfish shark whale dolphin
penguin eagle owl hawk sparrow duck goose swan chicken lion tiger bear wolf fox deer elephant giraffe zebra monkey
gorilla panda koala kangaroo otter beaver squirrel hedgehog mouse bat bee butterfly ant spider crab octopus seal
""")
_PLANTS = _words("""
rose tulip daisy lily orchid sunflower lavender basil mint thyme rosemary parsley oak maple birch pine willow cactus
fern ivy bamboo violet jasmine tomato pepper cucumber strawberry lemon_tree olive_tree apple_tree moss clover iris peony
""")
_SPORTS = _words("""
football basketball tennis baseball hockey volleyball rugby cricket golf swimming cycling running rowing sailing skiing
boxing judo karate badminton squash climbing handball fencing archery surfing gymnastics wrestling
""")
_LANGUAGES = _words("""
English German French Spanish Italian Portuguese Dutch Swedish Danish Norwegian Finnish Polish Czech Greek Turkish
Russian Ukrainian Arabic Hebrew Hindi Bengali Chinese Japanese Korean Thai Vietnamese Indonesian Swahili Latin Welsh
""")
_CURRENCIES = _words("USD EUR GBP JPY CHF CAD AUD NZD SEK NOK DKK PLN CZK HUF TRY INR CNY KRW SGD BRL MXN ZAR AED")
_COLORS = _words("""
red blue green yellow orange purple pink brown black white grey silver gold turquoise violet beige cyan magenta maroon
navy olive teal indigo crimson lavender amber coral ivory
""")
_TOPICS = _words("""
climate_change electric_cars solar_energy machine_learning gardening world_history space_travel healthy_food local_news
football politics the_economy music_theory ancient_rome deep_sea_life quantum_physics home_schooling remote_work
coffee housing vaccines chess photography volcanoes robotics cheap_flights bird_watching renewable_energy tax_law
modern_art public_transport sleep startups cyber_security nutrition mental_health wild_bees recycling open_source
""")
_TAGS = _words("""
urgent work home personal draft review later important archive todo done idea family finance health music bug feature
backend frontend docs internal public private sale new old test beta stable
""")
_REPOS = _words(
    "website backend api-server mobile-app docs infra tools billing search-engine parser core shop-frontend"
)
_BRANCHES = _words("main develop release/1.2 feature/login fix/typo hotfix/crash staging feature/search test/ci docs")
_EXTENSIONS = _words("txt md csv json pdf png jpg py js html xml yaml toml log sql docx xlsx zip mp3 mp4 conf rs go")
_MONTHS = _words("January February March April May June July August September October November December")
_DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_UNITS_LENGTH = _words("meters kilometers miles feet inches centimeters yards millimeters")
_UNITS_WEIGHT = _words("grams kilograms pounds ounces tons stones milligrams")


@cache
def _faker(entries: str) -> Faker:
    # One for each list: with one for all, a list's entries would depend on the lists made before it in this process.
    faker = Faker("en_US")
    faker.seed_instance(f"2026 {entries}")
    return faker


def _many(make: Callable[[], str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(make() for _ in range(_SIZE)))


@cache
def _dictionary() -> tuple[str, ...]:
    words = {word for word in _faker("word").get_words_list() if word.isalpha()}
    return tuple(sorted(words | {noun for noun in _NOUNS if " " not in noun}))


def _phrases(least: int, most: int) -> Callable[[], tuple[str, ...]]:
    def make() -> tuple[str, ...]:
        rng = random.Random(most)

        def one() -> str:
            words = [rng.choice(_ADJECTIVES), rng.choice(_NOUNS)]
            words += [rng.choice(_dictionary()) for _ in range(rng.randint(least, most) - 2)]
            return " ".join(words[: max(least, 1)] if most < 2 else words)

        return _many(one)

    return make


def _sentences() -> tuple[str, ...]:
    rng = random.Random(5)
    faker = _faker("sentence")

    def one() -> str:
        kind = rng.random()
        noun, other = rng.choice(_NOUNS), rng.choice(_NOUNS)
        if kind < 0.3:
            return faker.sentence(nb_words=rng.randint(3, 7)).rstrip(".")
        if kind < 0.5:
            return f"the {rng.choice(_ADJECTIVES)} {noun} is in the {other}"
        if kind < 0.65:
            return (
                f"{rng.choice(('buy', 'bring', 'fix', 'sell', 'clean', 'order', 'return'))} the {noun} and the {other}"
            )
        if kind < 0.8:
            return f"{faker.first_name()} will be here at {rng.randint(1, 12)}"
        return (
            f"{rng.choice(('I need', 'we have', 'please bring', 'there is'))} {rng.choice(('a', 'the', 'one'))} {noun}"
        )

    return _many(one)


_SOURCES: dict[str, Callable[[], tuple[str, ...]]] = {
    "city": lambda: tuple(dict.fromkeys((*ZONES, *ZONES, *_many(_faker("city").city)[:500]))),
    "country": lambda: _many(_faker("country").country),
    "person": lambda: _many(_faker("person").name),
    "first_name": lambda: _many(_faker("first_name").first_name),
    "email": lambda: _many(_faker("email").email),
    "url": lambda: _many(_faker("url").uri),
    "domain": lambda: _many(_faker("domain").domain_name),
    "word": _dictionary,
    "noun": lambda: _NOUNS,
    "phrase": _phrases(2, 4),
    "query": _phrases(1, 4),
    "title": lambda: tuple(text.title() for text in _phrases(2, 3)()),
    "sentence": _sentences,
    "topic": lambda: _TOPICS,
    "color": lambda: _COLORS,
    "language": lambda: _LANGUAGES,
    "currency": lambda: _CURRENCIES,
    "product": _phrases(2, 2),
    "food": lambda: _FOODS,
    "animal": lambda: _ANIMALS,
    "plant": lambda: _PLANTS,
    "company": lambda: _many(_faker("company").company),
    "team": lambda: _many(lambda: f"{_faker('team').city()} {_faker('team').random_element(_ANIMALS).title()}s"),
    "sport": lambda: _SPORTS,
    "song": lambda: tuple(text.title() for text in _phrases(2, 3)()),
    "artist": lambda: _many(_faker("artist").name),
    "movie": lambda: tuple(f"The {text}".title() for text in _phrases(2, 2)()),
    "book": lambda: tuple(text.title() for text in _phrases(2, 4)()),
    "street": lambda: _many(_faker("street").street_address),
    "zone": lambda: tuple(dict.fromkeys(ZONES.values())),
    "ip": lambda: _many(_faker("ip").ipv4),
    "phone": lambda: _many(lambda: _faker("phone").numerify("+## ### #######")),
    "branch": lambda: _BRANCHES,
    "repo": lambda: _REPOS,
    "tag": lambda: _TAGS,
    "month": lambda: _MONTHS,
    "weekday": lambda: _DAYS,
    "unit_length": lambda: _UNITS_LENGTH,
    "unit_weight": lambda: _UNITS_WEIGHT,
}
_SHORT = {"month", "weekday", "unit_length", "unit_weight", "branch", "repo", "currency"}
"""Of these all are known to training: they are what they are."""
_NAMING = {
    "word": 0.35, "noun": 0.2, "tag": 0.25, "repo": 0.4, "branch": 0.3, "first_name": 0.2, "city": 0.12,
    "company": 0.1, "team": 0.2, "song": 0.15, "product": 0.1, "movie": 0.1, "query": 0.1, "phrase": 0.08,
}  # fmt: skip
_CAPITAL = {"first_name", "city", "company", "team", "song", "movie"}
_LISTS = {"words": "word", "numbers": "integer", "files": "file", "emails": "email", "names": "first_name", "ids": "id"}


@cache
def _entries(pool: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those for training, and those for the evaluation alone."""
    entries = _SOURCES[pool]()
    if pool in _SHORT:
        return entries, entries
    return tuple(e for e in entries if not held_out(e)), tuple(e for e in entries if held_out(e)) or entries


_NUMBER_WORDS = _words("zero one two three four five six seven eight nine ten eleven twelve")


def _integer(low: int, high: int, worded: float = 0.0) -> Callable[[Pools], Value]:
    def draw(pools: Pools) -> Value:
        rng = pools.rng
        top = rng.choice((20, 100, high)) if high - low > 1000 else high
        number = rng.randint(low, top)
        if number < len(_NUMBER_WORDS) and rng.random() < worded:
            return Value(number, _NUMBER_WORDS[number])
        return plain(number)

    return draw


def _number(pools: Pools) -> Value:
    rng = pools.rng
    if rng.random() < 0.35:
        return plain(rng.randint(0, 500))
    return plain(round(rng.uniform(0, rng.choice((1, 10, 100, 1000))), rng.choice((1, 2))))


def _path(pools: Pools) -> Value:
    rng = pools.rng
    parts = [pools.pick(rng.choice(("noun", "word", "tag"))).replace(" ", "_") for _ in range(rng.choice((1, 2, 2, 3)))]
    begin = rng.choice(("/", "/home/", "/tmp/", "/var/", "~/", "./", "", "", "src/", "docs/"))
    return plain(begin + "/".join(parts) + "." + rng.choice(_EXTENSIONS))


def _file(pools: Pools) -> Value:
    rng = pools.rng
    name = pools.pick(rng.choice(("noun", "word"))).replace(" ", "_")
    if rng.random() < 0.3:
        name += rng.choice(("_", "-")) + pools.pick("noun").replace(" ", "_")
    return plain(f"{name}.{rng.choice(_EXTENSIONS)}")


def _folder(pools: Pools) -> Value:
    rng = pools.rng
    parts = [pools.pick(rng.choice(("noun", "word", "tag"))).replace(" ", "_") for _ in range(rng.choice((1, 1, 2, 3)))]
    begin = rng.choice(("/", "/home/", "/tmp/", "/var/", "/srv/", "~/", "./", ""))
    return plain(begin + "/".join(parts) + rng.choice(("", "", "", "/")))


def _date(pools: Pools) -> Value:
    rng = pools.rng
    year, month, day = rng.randint(2019, 2031), rng.randint(1, 12), rng.randint(1, 28)
    kind = rng.random()
    if kind < 0.7:
        return plain(f"{year}-{month:02d}-{day:02d}")
    if kind < 0.85:
        return plain(f"{_MONTHS[month - 1]} {day}")
    return plain(
        rng.choice(("tomorrow", "today", "next Monday", "next week", "yesterday", f"{day} {_MONTHS[month - 1]}"))
    )


def _time(pools: Pools) -> Value:
    rng = pools.rng
    minute = rng.choice((0, 15, 30, 45)) if rng.random() < 0.5 else rng.randint(0, 59)
    return plain(f"{rng.randint(0, 23):02d}:{minute:02d}")


def _datetime(pools: Pools) -> Value:
    rng = pools.rng
    day = f"{rng.randint(2019, 2031)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    return plain(day + rng.choice((" ", "T", " ")) + _time(pools).spoken)


def _id(pools: Pools) -> Value:
    rng = pools.rng
    kind = rng.random()
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(2, 6)))
    if kind < 0.3:
        return plain(digits)
    letters = "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(rng.randint(1, 3)))
    if kind < 0.75:
        return plain(f"{letters}{rng.choice(('-', '-', '', '_', '#'))}{digits}")
    return plain(f"{pools.pick('noun').replace(' ', '_')}_{digits}")


def _code(pools: Pools) -> Value:
    rng = pools.rng
    return plain("".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(rng.randint(3, 7))))


def _hash(pools: Pools) -> Value:
    return plain("".join(pools.rng.choice("0123456789abcdef") for _ in range(pools.rng.choice((7, 7, 8, 10, 12)))))


def _ticker(pools: Pools) -> Value:
    return plain("".join(pools.rng.choice("ABCDEFGHIKLMNOPRSTUVWX") for _ in range(pools.rng.randint(2, 4))))


def _room(pools: Pools) -> Value:
    rng = pools.rng
    if rng.random() < 0.5:
        rooms = (
            "kitchen",
            "bedroom",
            "living room",
            "bathroom",
            "office",
            "garage",
            "hallway",
            "nursery",
            "attic",
            "cellar",
        )
        return plain(rng.choice(rooms))
    return plain(rng.choice(("", "B", "A", "C-")) + str(rng.randint(1, 599)))


def _zone_of_city(pools: Pools) -> Value:
    city = pools.rng.choice(tuple(ZONES))
    return Value(ZONES[city], city)


def _sum(pools: Pools) -> Value:
    rng = pools.rng
    a, b, c = (str(rng.randint(0, rng.choice((20, 999, 9999)))) for _ in range(3))
    first, second = rng.choice("+-*/"), rng.choice("+-*/")
    forms = (f"{a} {first} {b}", f"{a}{first}{b}", f"{a} {first} {b} {second} {c}", f"({a} {first} {b}) {second} {c}")
    return plain(rng.choice(forms))


_MADE: dict[str, Callable[[Pools], Value]] = {
    "integer": _integer(0, 9999),
    "small": _integer(1, 30, worded=0.15),
    "number": _number,
    "price": lambda pools: plain(round(pools.rng.uniform(1, pools.rng.choice((20, 200, 2000))), 2)),
    "percent": _integer(1, 100),
    "year": _integer(1950, 2035),
    "path": _path,
    "file": _file,
    "folder": _folder,
    "date": _date,
    "time": _time,
    "datetime": _datetime,
    "id": _id,
    "code": _code,
    "hash": _hash,
    "ticker": _ticker,
    "room": _room,
    "zone_of_city": _zone_of_city,
    "sum": _sum,
}
POOLS = frozenset((*_SOURCES, *_MADE, *_LISTS))
