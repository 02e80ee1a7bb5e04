use super::super::count::{Corpus, CountConfig};
use super::*;
use proptest::prelude::*;

const VOCAB: u32 = 8;

fn table(texts: &[&[u32]]) -> Arc<Table> {
    let mut corpus = Corpus::new(4).unwrap();
    for text in texts {
        corpus.add(&[], text).unwrap();
    }
    let config = CountConfig { vocab_size: VOCAB, tokenizer_fingerprint: "0".repeat(64), max_bytes: 1 << 16 };
    Arc::new(Table::read(corpus.table(&config).unwrap()).unwrap())
}

fn guesser(texts: &[&[u32]], text: &[u32]) -> Guesser {
    let mut guesser = Guesser::new(NgramConfig::default(), Some(table(texts)));
    guesser.follow(text, 0);
    guesser
}

#[test]
fn the_texts_own_repetition_goes_before_the_table() {
    let text = [1, 2, 3, 1, 2];
    let mut guesser = guesser(&[&[1, 2, 4]], &text);
    assert!(matches!(guesser.guess(&text), Some(Guess::LookUp(3))));
    // No run of two repeats here: the table speaks.
    let text = [5, 1, 2];
    guesser.follow(&text, 0);
    let guess = guesser.guess(&text).unwrap();
    assert!(matches!(guess, Guess::Table(_)));
    assert_eq!(guess.argmax(), 4);
}

#[test]
fn nothing_known_is_no_guess() {
    let text = [6, 7];
    assert!(guesser(&[&[1, 2, 3]], &text).guess(&text).is_none());
    let mut without = Guesser::new(NgramConfig::default(), None);
    without.follow(&text, 0);
    assert!(without.guess(&text).is_none());
}

#[test]
fn a_longer_context_outweighs_a_shorter_one() {
    // After 1: 2 three times, 3 twice; after 0 1: always 3.
    let texts: [&[u32]; 5] = [&[5, 1, 2], &[6, 1, 2], &[7, 1, 2], &[0, 1, 3], &[0, 1, 3]];
    for (text, next) in [([4, 1], 2), ([0, 1], 3)] {
        assert_eq!(guesser(&texts, &text).guess(&text).unwrap().argmax(), next);
    }
    // 3 after 0 1 by hand: (2 + 2/5)/(2 + 1), and 2 the rest.
    let mut guesser = guesser(&texts, &[0, 1]);
    let Some(Guess::Table(candidates)) = guesser.guess(&[0, 1]) else { panic!("no guess") };
    let weights = candidates.weights();
    assert_eq!((weights[0].0, weights[1].0), (2, 3));
    assert!((weights[1].1 - 0.8).abs() < 1e-12 && (weights[0].1 - 0.2).abs() < 1e-12, "{weights:?}");
}

#[test]
fn the_lattice_follows_the_temperature() {
    let texts: [&[u32]; 5] = [&[1, 2], &[1, 2], &[1, 2], &[1, 2], &[1, 3]];
    let mut guesser = guesser(&texts, &[1]);
    let shape = LatticeShape::default();
    let guess = guesser.guess(&[1]).unwrap();
    let shares = |temperature| guess.lattice(temperature, shape).prob(3);
    assert!((shares(1.0) - 0.2).abs() < 1e-3);
    assert!((shares(0.5) - 1.0 / 17.0).abs() < 1e-3);
    assert_eq!(shares(1e-3), 0.0);
    assert!(shares(100.0) > 0.49);
}

#[test]
fn a_look_up_is_one_hot_at_any_temperature() {
    let lattice = Guess::LookUp(5).lattice(0.7, LatticeShape::default());
    assert_eq!((lattice.ids(), lattice.prob(5)), ([5].as_slice(), 1.0));
}

proptest! {
    #[test]
    fn a_lattice_holds_the_likeliest_and_nothing_unknown(
        texts in prop::collection::vec(prop::collection::vec(0..VOCAB, 1..40), 1..8),
        text in prop::collection::vec(0..VOCAB, 1..4),
        temperature in 0.01..10.0f64,
    ) {
        let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        let mut guesser = Guesser::new(NgramConfig { max_places: 0, ..NgramConfig::default() }, Some(table(&texts)));
        guesser.follow(&text, 0);
        let Some(guess) = guesser.guess(&text) else { return Ok(()) };
        let lattice = guess.lattice(temperature, LatticeShape::default());
        prop_assert!(lattice.prob(guess.argmax()) > 0.0);
        let Guess::Table(candidates) = guess else { panic!("look-up is off") };
        let sum: f64 = candidates.weights().iter().map(|weight| weight.1).sum();
        prop_assert!(sum <= 1.0 + 1e-9, "{}", sum);
        for &id in lattice.ids() {
            prop_assert!(candidates.weights().iter().any(|weight| weight.0 == id));
        }
    }

    /// What is guessed depends on the text as it stands, not on what was in it and was rejected.
    #[test]
    fn nothing_is_proposed_from_rejected_text(
        steps in prop::collection::vec((0..6usize, prop::collection::vec(0..4u32, 1..8)), 1..10),
    ) {
        let table = table(&[&[0, 1, 2, 3, 0, 2]]);
        let mut guesser = Guesser::new(NgramConfig::default(), Some(Arc::clone(&table)));
        let mut text: Vec<u32> = Vec::new();
        for (rejected, more) in steps {
            text.truncate(text.len().saturating_sub(rejected));
            let agreed = text.len();
            text.extend(more);
            guesser.follow(&text, agreed);
            let mut fresh = Guesser::new(NgramConfig::default(), Some(Arc::clone(&table)));
            fresh.follow(&text, 0);
            let (guess, right) = (guesser.guess(&text), fresh.guess(&text));
            prop_assert_eq!(format!("{guess:?}"), format!("{right:?}"));
            if let Some(Guess::LookUp(token)) = guess {
                // It stands in the text as it is, behind the text's own last two tokens.
                let end = &text[text.len() - 2..];
                prop_assert!(text.windows(3).any(|run| &run[..2] == end && run[2] == token));
            }
        }
    }
}
