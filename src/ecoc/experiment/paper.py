"""What the paper (arXiv 2408.08047) reports of imitation and cost, to stand beside what is measured here.

Seconds are of one epoch on one RTX 3090. `best baseline` is the best value per metric over SQN, PRL, SDAC+SR, SDAC+DC
and SA2C, with the time of the one that is best by NDCG@10; of the single baselines NDCG@10 is given.
"""

from dataclasses import dataclass

METRICS = ("hr@5", "hr@10", "mrr@10", "ndcg@10")
OURS = {"ECoC": "ecoc-paper"}  # which of our rows is meant
SAVINGS = {"yelp": 25.8, "tmall": 35.4, "rl4rs": 10.1}  # % of SQN's time that ECoC saves, mean over encoders
COSTS = {"yelp": (3.5, 4.0), "tmall": (3.0, 3.3), "rl4rs": (1.8, 2.0)}  # times the supervised encoder, least and most


@dataclass(frozen=True)
class Published:
    """One row of the paper's tables."""

    encoder: str
    method: str
    values: tuple[float | None, float | None, float | None, float]  # of METRICS
    seconds: float


RESULTS: dict[str, list[Published]] = {
    "yelp": [
        Published("no encoder", "neural_lcb", (0.0258, 0.0455, 0.0149, 0.0219), 80.3),
        Published("nextitnet", "supervised", (0.0225, 0.0396, 0.0132, 0.0193), 56.1),
        Published("nextitnet", "best baseline", (0.0246, 0.0436, 0.0142, 0.0210), 325.4),
        Published("nextitnet", "sqn", (None, None, None, 0.0200), 288.0),
        Published("nextitnet", "prl", (None, None, None, 0.0205), 347.0),
        Published("nextitnet", "sdac_sr", (None, None, None, 0.0208), 449.0),
        Published("nextitnet", "sdac_dc", (None, None, None, 0.0203), 458.0),
        Published("nextitnet", "sa2c", (None, None, None, 0.0210), 325.0),
        Published("nextitnet", "ECoC", (0.0262, 0.0467, 0.0152, 0.0224), 218.2),
        Published("sasrec", "supervised", (0.0263, 0.0466, 0.0152, 0.0228), 42.8),
        Published("sasrec", "best baseline", (0.0290, 0.0510, 0.0172, 0.0252), 350.5),
        Published("sasrec", "sqn", (None, None, None, 0.0232), 208.0),
        Published("sasrec", "prl", (None, None, None, 0.0245), 283.0),
        Published("sasrec", "sdac_sr", (None, None, None, 0.0252), 351.0),
        Published("sasrec", "sdac_dc", (None, None, None, 0.0242), 361.0),
        Published("sasrec", "sa2c", (None, None, None, 0.0248), 234.0),
        Published("sasrec", "ECoC", (0.0317, 0.0553, 0.0185, 0.0275), 150.7),
        Published("srgnn", "supervised", (0.0239, 0.0430, 0.0139, 0.0206), 136.3),
        Published("srgnn", "best baseline", (0.0268, 0.0476, 0.0158, 0.0231), 820.1),
        Published("srgnn", "sqn", (None, None, None, 0.0217), 736.0),
        Published("srgnn", "prl", (None, None, None, 0.0222), 904.0),
        Published("srgnn", "sdac_sr", (None, None, None, 0.0223), 1216.0),
        Published("srgnn", "sdac_dc", (None, None, None, 0.0210), 1237.0),
        Published("srgnn", "sa2c", (None, None, None, 0.0231), 820.0),
        Published("srgnn", "ECoC", (0.0290, 0.0519, 0.0173, 0.0253), 547.3),
    ],
    "tmall": [
        Published("no encoder", "neural_lcb", (0.1621, 0.2183, 0.1093, 0.1349), 296.7),
        Published("nextitnet", "supervised", (0.1296, 0.1775, 0.0827, 0.1050), 214.8),
        Published("nextitnet", "best baseline", (0.1718, 0.2274, 0.1129, 0.1399), 1867.8),
        Published("nextitnet", "sqn", (None, None, None, 0.1147), 1029.0),
        Published("nextitnet", "prl", (None, None, None, 0.1269), 1326.0),
        Published("nextitnet", "sdac_sr", (None, None, None, 0.1399), 1868.0),
        Published("nextitnet", "sdac_dc", (None, None, None, 0.1160), 1893.0),
        Published("nextitnet", "sa2c", (None, None, None, 0.1368), 1178.0),
        Published("nextitnet", "ECoC", (0.1861, 0.2471, 0.1225, 0.1519), 663.8),
        Published("sasrec", "supervised", (0.1567, 0.2095, 0.1024, 0.1284), 133.3),
        Published("sasrec", "best baseline", (0.1828, 0.2435, 0.1194, 0.1487), 782.4),
        Published("sasrec", "sqn", (None, None, None, 0.1364), 671.0),
        Published("sasrec", "prl", (None, None, None, 0.1445), 869.0),
        Published("sasrec", "sdac_sr", (None, None, None, 0.1480), 1096.0),
        Published("sasrec", "sdac_dc", (None, None, None, 0.1430), 1111.0),
        Published("sasrec", "sa2c", (None, None, None, 0.1487), 782.0),
        Published("sasrec", "ECoC", (0.1990, 0.2620, 0.1322, 0.1628), 438.3),
        Published("srgnn", "supervised", (0.1742, 0.2311, 0.1148, 0.1423), 460.9),
        Published("srgnn", "best baseline", (0.1948, 0.2567, 0.1287, 0.1587), 3832.5),
        Published("srgnn", "sqn", (None, None, None, 0.1518), 2149.0),
        Published("srgnn", "prl", (None, None, None, 0.1562), 2568.0),
        Published("srgnn", "sdac_sr", (None, None, None, 0.1587), 3833.0),
        Published("srgnn", "sdac_dc", (None, None, None, 0.1543), 3902.0),
        Published("srgnn", "sa2c", (None, None, None, 0.1574), 2356.0),
        Published("srgnn", "ECoC", (0.2149, 0.2796, 0.1421, 0.1745), 1370.2),
    ],
    "rl4rs": [
        Published("no encoder", "neural_lcb", (0.4834, 0.6449, 0.3267, 0.4016), 30.2),
        Published("nextitnet", "supervised", (0.4886, 0.6487, 0.3301, 0.4051), 31.5),
        Published("nextitnet", "best baseline", (0.5006, 0.6614, 0.3383, 0.4144), 113.3),
        Published("nextitnet", "sqn", (None, None, None, 0.4083), 68.0),
        Published("nextitnet", "prl", (None, None, None, 0.4121), 98.0),
        Published("nextitnet", "sdac_sr", (None, None, None, 0.4144), 113.0),
        Published("nextitnet", "sdac_dc", (None, None, None, 0.4089), 118.0),
        Published("nextitnet", "sa2c", (None, None, None, 0.4132), 81.0),
        Published("nextitnet", "ECoC", (0.5074, 0.6694, 0.3432, 0.4200), 62.4),
        Published("sasrec", "supervised", (0.4805, 0.6406, 0.3232, 0.3980), 28.4),
        Published("sasrec", "best baseline", (0.4893, 0.6509, 0.3303, 0.4058), 92.1),
        Published("sasrec", "sqn", (None, None, None, 0.4008), 59.0),
        Published("sasrec", "prl", (None, None, None, 0.4043), 76.0),
        Published("sasrec", "sdac_sr", (None, None, None, 0.4058), 92.0),
        Published("sasrec", "sdac_dc", (None, None, None, 0.4016), 97.0),
        Published("sasrec", "sa2c", (None, None, None, 0.4047), 67.0),
        Published("sasrec", "ECoC", (0.4980, 0.6579, 0.3365, 0.4122), 51.7),
        Published("srgnn", "supervised", (0.4914, 0.6521, 0.3325, 0.4077), 82.9),
        Published("srgnn", "best baseline", (0.5060, 0.6665, 0.3425, 0.4188), 194.7),
        Published("srgnn", "sqn", (None, None, None, 0.4150), 176.0),
        Published("srgnn", "prl", (None, None, None, 0.4176), 211.0),
        Published("srgnn", "sdac_sr", (None, None, None, 0.4187), 266.0),
        Published("srgnn", "sdac_dc", (None, None, None, 0.4129), 275.0),
        Published("srgnn", "sa2c", (None, None, None, 0.4188), 195.0),
        Published("srgnn", "ECoC", (0.5156, 0.6784, 0.3484, 0.4262), 159.1),
    ],
}
