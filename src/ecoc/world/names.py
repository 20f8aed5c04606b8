"""Readable categories, titles and usual prices for the items of a world."""

import numpy as np
from numpy.typing import NDArray

# category | usual price, then its styles, then its products. No product is in two categories, so titles are unique.
_SHELVES = """
Coffee & tea | 24
  Copper, Enamel, Glass, Cast-iron, Stoneware, Matte, Travel, Double-walled
  pour-over kettle, teapot, moka pot, burr grinder, coffee press, matcha set, tea infuser, cold-brew jug
Kitchen | 35
  Carbon-steel, Ceramic, Bamboo, Non-stick, Forged, Silicone, Olive-wood, Induction
  frying pan, chef's knife, chopping board, stock pot, mixing bowl, rolling pin, spice rack, griddle
Books | 15
  Illustrated, Pocket, Signed, Annotated, Collected, Linen-bound, Large-print, Anniversary
  ghost stories, sea voyages, travel atlas, crime novel, poems, history of maps, cookbook, essays
Running | 70
  Lightweight, Reflective, Trail, Cushioned, Merino, Windproof, Breathable, Winter
  running shoes, running jacket, running tights, hydration vest, race belt, ankle socks, head torch, running cap
Garden | 28
  Heirloom, Galvanised, Terracotta, Cedar, Hand-forged, Solar, Self-watering, Folding
  watering can, tomato seeds, raised bed, pruning shears, garden lantern, planter, bird feeder, compost bin
Toys | 22
  Wooden, Magnetic, Plush, Musical, Glow-in-the-dark, Wind-up, Painted, Giant
  building blocks, train set, puzzle, dinosaur, kite, marble run, spinning top, puppet theatre
Audio | 90
  Wireless, Studio, Vintage, Waterproof, Noise-cancelling, Portable, Hi-fi, Walnut
  headphones, bookshelf speaker, turntable, earbuds, microphone, soundbar, radio, record cleaner
Cycling | 60
  Aluminium, Tubeless, Titanium, Leather, Quick-release, Aero, Touring, Gravel
  saddle, bike pump, pannier bag, cycling helmet, handlebar tape, bike lock, pedals, bottle cage
Skin care | 18
  Oat, Rosehip, Unscented, Overnight, Green-clay, Aloe, Cica, Vitamin
  face cream, cleansing balm, hand lotion, sunscreen, face mask, serum, lip balm, toner
Board games | 32
  Cooperative, Two-player, Legacy, Tabletop, Deluxe, Party, Strategy, Card-driven
  island quest, railway tycoon, castle siege, market traders, space colony, word duel, detective club, farm builder
Lighting | 45
  Brass, Paper, Dimmable, Smoked-glass, Tripod, Rattan, Opal, Industrial
  desk lamp, pendant light, floor lamp, wall sconce, string lights, night light, reading light, table lantern
Pets | 19
  Chew-proof, Orthopaedic, Catnip, Grain-free, Washable, Feather, Braided, Cosy
  dog bed, cat tunnel, dog lead, pet bowl, scratching post, treat jar, fetch toy, cat hammock
Stationery | 12
  Dotted, Recycled, Letterpress, Refillable, Leatherbound, Brushed, Gilded, Japanese
  notebook, fountain pen, desk planner, pencil case, greeting cards, sketchbook, washi tape, rollerball
Camping | 85
  Ultralight, Insulated, Two-person, Canvas, Down, Collapsible, Rugged, All-season
  tent, sleeping bag, camp stove, hammock, dry bag, camp chair, water filter, picnic blanket
Photography | 120
  Compact, Retro, Weather-sealed, Instant, Mirrorless, Padded, Wide-angle, Macro
  camera, lens, tripod, camera strap, photo printer, light meter, filter kit, photo album
Bedding | 55
  Percale, Sateen, Washed-linen, Quilted, Cooling, Weighted, Brushed-cotton, Feather-soft
  duvet cover, pillow, fitted sheet, blanket, mattress topper, bedspread, pillowcase pair, throw
Music making | 110
  Beginner's, Rosewood, Electric, Acoustic, Semi-hollow, Maple, Handmade, Concert
  ukulele, guitar, cajon, harmonica, keyboard stand, violin bow, kalimba, metronome
Fitness | 40
  Adjustable, Cork, Foam, Cast, Resistance, Anti-slip, Doorway, Knurled
  yoga mat, kettlebell, pull-up bar, skipping rope, foam roller, dumbbell pair, balance board, exercise bands
Bags | 65
  Waxed, Roll-top, Suede, Packable, Weekend, Quilted-nylon, Cabin-size, Recycled-sail
  backpack, tote, messenger bag, wash bag, wallet, suitcase, belt bag, laptop sleeve
Watches | 150
  Automatic, Diver's, Minimal, Chronograph, Field, Skeleton, Sapphire, Two-tone
  wristwatch, smartwatch, pocket watch, watch strap, watch winder, travel clock, alarm clock, watch roll
Snacks | 9
  Smoked, Salted, Dark-chocolate, Wasabi, Honey-roast, Sea-salt, Crunchy, Spiced
  almonds, popcorn, seaweed crisps, oat biscuits, trail mix, fudge, rice crackers, dried mango
Tools | 48
  Cordless, Ratchet, Tempered, Laser, Insulated-grip, Stubby, Heavy-duty, Folding-blade
  drill, screwdriver set, spirit level, tape measure, hand saw, socket wrench, work light, tool roll
Baby | 26
  Organic, Muslin, Knitted, Stackable, Hooded, Spill-proof, Soft-sole, Breathable-mesh
  swaddle, baby carrier, teether, bib, bath towel, stacking cups, crib shoes, sleep sack
Office | 130
  Ergonomic, Standing, Mesh, Height-adjustable, Wall-mounted, Quiet, Felt, Walnut-top
  desk chair, monitor arm, desk, keyboard, footrest, desk mat, whiteboard, filing cabinet
Cheese & deli | 14
  Aged, Truffle, Farmhouse, Cave-ripened, Alpine, Peppered, Marinated, Goat's-milk
  gouda, brie, olives, salami, chutney, feta, fig spread, crackers
"""

_COLOURS = """
forest green, midnight blue, sand, charcoal, ivory, terracotta red, mustard, sage, plum, rust, sky blue, blush, black,
olive, teal, burgundy, slate, coral, lavender, amber
"""
_COLOUR_NAMES = [colour.strip() for colour in _COLOURS.split(",")]


def _shelves() -> list[tuple[str, float, list[str], list[str]]]:
    lines = [line.strip() for line in _SHELVES.strip().splitlines()]
    heads = [line.split(" | ") for line in lines[0::3]]
    styles, products = ([line.split(", ") for line in lines[first::3]] for first in (1, 2))
    return [(name, float(price), a, b) for (name, price), a, b in zip(heads, styles, products, strict=True)]


SHELVES = _shelves()


def category_names(topics: int) -> list[str]:
    """A different name per topic; names used again get a number."""
    rounds = [divmod(topic, len(SHELVES)) for topic in range(topics)]
    return [SHELVES[shelf][0] + (f" {turn + 1}" if turn else "") for turn, shelf in rounds]


def usual_prices(topics: int) -> NDArray[np.float64]:
    """Usual price of the category of each topic. [topics]."""
    return np.array([SHELVES[topic % len(SHELVES)][1] for topic in range(topics)])


def item_titles(topic: NDArray[np.int32], rng: np.random.Generator) -> list[str]:
    """A unique title per item: style and product; once these are used up, also a colour, then a number."""
    titles = [""] * len(topic)
    shelf_of_item = topic % len(SHELVES)
    for shelf, (_, _, styles, products) in enumerate(SHELVES):
        items = np.flatnonzero(shelf_of_item == shelf)
        plain = [f"{style} {product}" for style in styles for product in products]
        order = rng.permutation(len(plain))
        for place, item in enumerate(items):
            turn, which = divmod(place, len(plain))
            titles[item] = plain[order[which]] + _variant(turn)
    return titles


def _variant(turn: int) -> str:
    """What distinguishes items of one name: nothing, a colour, or a colour and a number."""
    if turn == 0:
        return ""
    number, colour = divmod(turn - 1, len(_COLOUR_NAMES))
    return f", {_COLOUR_NAMES[colour]}" + (f" no. {number + 1}" if number else "")
