use super::*;
use std::collections::HashSet;

/// (seed, sample index, position, epoch, purpose, word), from an implementation of the formula that shares no code
/// with this one. If these change, every seed changes its meaning: that must never happen.
#[rustfmt::skip]
const GOLDEN: [(u64, u32, u64, u64, Purpose, u64); 15] = [
    (0x0, 0x0, 0x0, 0x0, Purpose::Draft, 0xb0989daa1897208f),
    (0x0, 0x0, 0x0, 0x0, Purpose::Accept, 0x21e8259ec524fe09),
    (0x0, 0x0, 0x0, 0x0, Purpose::Repair, 0x13a0614de4c3126a),
    (0x0, 0x0, 0x0, 0x0, Purpose::Bonus, 0xc5430aa88c3c6445),
    (0x0, 0x0, 0x0, 0x0, Purpose::Plain, 0xd9fe637232f29084),
    (0x2a, 0x1, 0x11, 0x3, Purpose::Draft, 0x782b0c8ee36953b0),
    (0x2a, 0x1, 0x11, 0x3, Purpose::Accept, 0x16009142933bf68e),
    (0x2a, 0x1, 0x11, 0x3, Purpose::Repair, 0x41ba562da3730fcd),
    (0x2a, 0x1, 0x11, 0x3, Purpose::Bonus, 0x394733e2762044d8),
    (0x2a, 0x1, 0x11, 0x3, Purpose::Plain, 0xccdf1b53b4707e94),
    (0xffffffffffffffff, 0xffffffff, 0x10000000000, 0x10000000000, Purpose::Draft, 0x27ed68f775c0153f),
    (0xffffffffffffffff, 0xffffffff, 0x10000000000, 0x10000000000, Purpose::Accept, 0x0471d9b0fbbfdd89),
    (0xffffffffffffffff, 0xffffffff, 0x10000000000, 0x10000000000, Purpose::Repair, 0xc2de2273fcede050),
    (0xffffffffffffffff, 0xffffffff, 0x10000000000, 0x10000000000, Purpose::Bonus, 0x435410cb47ac21dd),
    (0xffffffffffffffff, 0xffffffff, 0x10000000000, 0x10000000000, Purpose::Plain, 0xac98e1e10d650da0),
];

#[test]
fn a_seed_means_the_same_for_ever() {
    for (seed, sample, position, epoch, purpose, word) in GOLDEN {
        let key = RequestKeys::new(seed, sample).purpose(purpose);
        assert_eq!(key.word(position, epoch), word, "{seed} {sample} {position} {epoch} {purpose:?}");
        assert_eq!(key.coin(position, epoch), (word >> 11) as f64 / 2f64.powi(53));
    }
}

#[test]
fn a_verifier_makes_the_same_coins_from_what_it_is_handed() {
    let keys = RequestKeys::new(42, 1);
    let verifier = VerifierKeys::from_bytes(keys.verifier().to_bytes());
    assert_eq!(verifier, keys.verifier());
    for (key, purpose) in [
        (verifier.repair(), Purpose::Repair),
        (verifier.bonus(), Purpose::Bonus),
        (verifier.plain(), Purpose::Plain),
        (verifier.noise(), Purpose::Noise),
    ] {
        assert_eq!(key, keys.purpose(purpose));
        assert_eq!(CoinKey::from_bytes(key.to_bytes()), key);
    }
}

#[test]
fn no_two_coins_are_the_same_one() {
    let far = [0, 1, 2, 3, 4, 255, 1 << 16, 1 << 32, (1 << 32) + 1, (1 << 40) - 1, 1 << 40, u64::MAX];
    let mut seen = HashSet::new();
    let mut made = 0;
    for (seed, sample) in [(0, 0), (0, 1), (1, 0), (1 << 32, 0)] {
        let keys = RequestKeys::new(seed, sample);
        let all = [
            Purpose::Draft,
            Purpose::Accept,
            Purpose::Repair,
            Purpose::Bonus,
            Purpose::Plain,
            Purpose::Noise,
        ];
        for purpose in all {
            let key = keys.purpose(purpose);
            for position in far {
                for epoch in far {
                    seen.insert(key.word(position, epoch));
                    made += 1;
                }
            }
        }
    }
    assert_eq!(seen.len(), made);
}

#[test]
fn keys_of_all_owners_differ() {
    let keys = RequestKeys::new(7, 0);
    let all = [
        keys.accept().to_bytes(),
        keys.draft().to_bytes(),
        keys.verifier().to_bytes(),
        keys.verifier().repair().to_bytes(),
        keys.verifier().bonus().to_bytes(),
        keys.verifier().plain().to_bytes(),
        keys.verifier().noise().to_bytes(),
    ];
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), all.len());
}

#[test]
fn coins_are_uniform() {
    let key = RequestKeys::new(3, 0).accept();
    let mut bins = [0u32; 64];
    let n = 64_000;
    for i in 0..n {
        let coin = key.coin(i % 1000, i / 1000);
        assert!((0.0..1.0).contains(&coin));
        bins[(coin * 64.0) as usize] += 1;
    }
    let chi: f64 = bins.iter().map(|&b| (f64::from(b) - 1000.0).powi(2) / 1000.0).sum();
    // 63 degrees of freedom; 130 is exceeded with probability 1e-6. The seed is fixed.
    assert!(chi < 130.0, "chi-square {chi}");
}

#[test]
fn debug_shows_no_key() {
    let keys = RequestKeys::new(42, 1);
    let shown = format!("{keys:?} {:?} {:?}", keys.accept(), keys.verifier());
    assert_eq!(shown, "RequestKeys(hidden) CoinKey(hidden) VerifierKeys(hidden)");
}
