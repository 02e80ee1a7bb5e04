use super::super::count::{Corpus, CountConfig};
use super::super::table::{Head, Row};
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

/// Nothing is forbidden.
fn all(_: u32) -> bool {
    true
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
    assert!(matches!(guesser.guess(&text, all), Some(Guess::OneHot(3))));
    // No run of two repeats here: the table speaks.
    let text = [5, 1, 2];
    guesser.follow(&text, 0);
    let guess = guesser.guess(&text, all).unwrap();
    assert!(matches!(guess, Guess::Drawn(_)));
    assert_eq!(guess.argmax(), 4);
}

#[test]
fn nothing_known_is_no_guess() {
    let text = [6, 7];
    assert!(guesser(&[&[1, 2, 3]], &text).guess(&text, all).is_none());
    let mut without = Guesser::new(NgramConfig::default(), None);
    without.follow(&text, 0);
    assert!(without.guess(&text, all).is_none());
}

#[test]
fn a_longer_context_outweighs_a_shorter_one() {
    // After 1: 2 three times, 3 twice; after 0 1: always 3.
    let texts: [&[u32]; 5] = [&[5, 1, 2], &[6, 1, 2], &[7, 1, 2], &[0, 1, 3], &[0, 1, 3]];
    for (text, next) in [([4, 1], 2), ([0, 1], 3)] {
        assert_eq!(guesser(&texts, &text).guess(&text, all).unwrap().argmax(), next);
    }
    // By hand, after 1: (3 − 0.75)/5 and (2 − 0.75)/5; after 0 1, 3 came twice and 0.75 of 2 is left to that.
    let mut guesser = guesser(&texts, &[0, 1]);
    let Some(Guess::Drawn(candidates)) = guesser.guess(&[0, 1], all) else { panic!("no guess") };
    let weights = candidates.weights();
    assert_eq!((weights[0].0, weights[1].0), (2, 3));
    assert!((weights[1].1 - 0.71875).abs() < 1e-12 && (weights[0].1 - 0.16875).abs() < 1e-12, "{weights:?}");
}

#[test]
fn what_rows_leave_out_is_left_to_the_shorter_context() {
    let (short, long) = (with_earlier(NO_CONTEXT, 1), with_earlier(with_earlier(NO_CONTEXT, 1), 0));
    let row = |context, token, count| Row { context, token, count };
    // Twice the same token, as of contexts with equal hashes; and one that counts nothing.
    let rows =
        vec![row(short, 2, 2), row(short, 2, 1), row(short, 4, 0), row(long, 3, 1), row(long, VOCAB, 9)];
    let head = Head { order: 3, vocab_size: VOCAB, counted: 13, tokenizer_fingerprint: "0".repeat(64) };
    let table = Arc::new(Table::read(Table::encode(&head, rows).unwrap()).unwrap());
    let mut guesser = Guesser::new(NgramConfig::default(), Some(table));
    guesser.follow(&[0, 1], 0);
    let Some(Guess::Drawn(candidates)) = guesser.guess(&[0, 1], all) else { panic!("no guess") };
    // After 1: (2 − 0.75 + 1 − 0.75)/3; after 0 1, 9.75 of 10 are left to that.
    let [(2, usual), (3, own)] = candidates.weights() else { panic!("{candidates:?}") };
    assert!((usual - 0.975 * 0.5).abs() < 1e-12 && (own - 0.025).abs() < 1e-12, "{candidates:?}");
}

#[test]
fn the_lattice_follows_the_temperature() {
    let texts: [&[u32]; 5] = [&[1, 2], &[1, 2], &[1, 2], &[1, 2], &[1, 3]];
    let mut guesser = guesser(&texts, &[1]);
    let shape = LatticeShape::default();
    let guess = guesser.guess(&[1], all).unwrap();
    let shares = |temperature| guess.lattice(temperature, shape).prob(3);
    // 3.25 and 0.25 of 5 are their own.
    assert!((shares(1.0) - 1.0 / 14.0).abs() < 1e-3);
    assert!((shares(0.5) - 1.0 / 170.0).abs() < 1e-3);
    assert_eq!(shares(1e-3), 0.0);
    assert!(shares(100.0) > 0.49);
}

#[test]
fn a_repetition_is_one_hot_at_any_temperature() {
    let lattice = Guess::OneHot(5).lattice(0.7, LatticeShape::default());
    assert_eq!((lattice.ids(), lattice.prob(5)), ([5].as_slice(), 1.0));
}

/// What a guesser without a table says after a text.
fn repeated(text: &[u32], config: NgramConfig) -> Option<u32> {
    let mut guesser = Guesser::new(config, None);
    guesser.follow(text, 0);
    guesser.guess(text, all).map(|guess| guess.argmax())
}

#[test]
fn the_longest_repetition_speaks_and_among_equals_the_most_frequent() {
    let after = |text: &[u32]| repeated(text, NgramConfig::default());
    assert_eq!(after(&[7, 1, 2, 3, 9, 4, 2, 3, 8, 7, 1, 2, 3]), Some(9));
    assert_eq!(after(&[7, 1, 2, 9, 4, 1, 2, 8, 5, 1, 2, 8, 7, 1, 2]), Some(9));
    assert_eq!(after(&[1, 2, 3, 6, 1, 2, 3, 7, 1, 2, 4, 5, 1, 2]), Some(3));
}

#[test]
fn periods_run_on_past_the_end() {
    for period in [vec![5, 6], vec![1, 2, 3]] {
        let mut text = [period.as_slice(), &period].concat();
        for position in text.len()..20 {
            text.push(repeated(&text, NgramConfig::default()).unwrap());
            assert_eq!(text[position], period[position % period.len()]);
        }
    }
}

#[test]
fn one_equal_token_is_no_repetition() {
    let text = [1, 2, 3, 4, 1];
    assert_eq!(repeated(&text, NgramConfig::default()), None);
    assert_eq!(repeated(&text, NgramConfig { min_match: 1, ..NgramConfig::default() }), Some(2));
    // Nor does a shortest match of no token make one.
    let config = NgramConfig { min_match: 0, ..NgramConfig::default() };
    let mut guesser = Guesser::new(config, Some(table(&[&[1, 2]])));
    guesser.follow(&[1], 0);
    assert!(matches!(guesser.guess(&[1], all), Some(Guess::Drawn(_))));
}

#[test]
fn one_equal_token_outweighs_a_weak_table_only() {
    let text = [1, 3, 5, 1];
    let strong = vec![[1, 2].as_slice(); 10];
    let weak = vec![[1, 2].as_slice(), &[1, 4]];
    for (texts, next) in [(strong, 2), (weak, 3)] {
        let mut guesser = guesser(&texts, &text);
        let guess = guesser.guess(&text, all).unwrap();
        // It is drawn, so the table's tokens keep their chance.
        let lattice = guess.lattice(1.0, LatticeShape::default());
        assert!(matches!(guess, Guess::Drawn(_)) && lattice.prob(2) > 0.0 && lattice.prob(3) > 0.0);
        assert_eq!(guess.argmax(), next);
    }
}

#[test]
fn what_may_not_come_is_not_guessed() {
    let text = [1, 2, 3, 6, 1, 2, 3, 7, 1, 2, 4, 5, 1, 2];
    let mut guesser = guesser(&[&[0, 1], &[0, 1], &[0, 2]], &text);
    let mut repeated = |allowed: fn(u32) -> bool| guesser.guess(&text, allowed).map(|guess| guess.argmax());
    assert_eq!((repeated(all), repeated(|token| token != 3), repeated(|_| false)), (Some(3), Some(4), None));
    // Nor drawn: the rest have its chance.
    guesser.follow(&[0], 0);
    let lattice = guesser.guess(&[0], |token| token != 1).unwrap().lattice(1.0, LatticeShape::default());
    assert_eq!((lattice.ids(), lattice.prob(2)), ([2].as_slice(), 1.0));
    assert!(guesser.guess(&[0], |token| token > 2).is_none());
}

/// The weights by looking everywhere in the text: what each context of 1 to `longest` tokens says, the longest last.
fn by_definition(text: &[u32], longest: usize) -> Vec<(u32, f64)> {
    let mut weights = vec![0.0; VOCAB as usize];
    for len in 1..=longest.min(text.len()) {
        let followed = |token: u32| {
            let run = [&text[text.len() - len..], &[token]].concat();
            text.windows(len + 1).filter(|window| *window == run).count() as f64
        };
        let total: f64 = (0..VOCAB).map(followed).sum();
        if total == 0.0 {
            break;
        }
        let whole = if len == 1 { total + 2.0 } else { total };
        let kept: f64 = (0..VOCAB).map(|token| (followed(token) - 0.5).max(0.0)).sum();
        for (token, weight) in (0..).zip(&mut weights) {
            *weight = ((followed(token) - 0.5).max(0.0) + (whole - kept) * *weight) / whole;
        }
    }
    (0..).zip(weights).filter(|&(_, weight)| weight > 0.0).collect()
}

proptest! {
    #[test]
    fn the_texts_own_counts_are_mixed_by_the_definition(
        text in prop::collection::vec(0..3u32, 1..60),
        max_match in 1..6usize,
    ) {
        let config = NgramConfig { min_match: 1, max_match, max_places: usize::MAX };
        let mut guesser = Guesser::new(config, None);
        guesser.follow(&text, 0);
        let guessed = guesser.guess(&text, all).is_some();
        let right = by_definition(&text, max_match);
        prop_assert_eq!(guessed, !right.is_empty());
        let weights = guesser.candidates.weights();
        prop_assert_eq!(weights.len(), right.len());
        for (weight, right) in weights.iter().zip(&right) {
            prop_assert!(weight.0 == right.0 && (weight.1 - right.1).abs() < 1e-9, "{:?} {:?}", weight, right);
        }
    }

    #[test]
    fn a_lattice_holds_the_likeliest_and_nothing_unknown(
        texts in prop::collection::vec(prop::collection::vec(0..VOCAB, 1..40), 1..8),
        text in prop::collection::vec(0..VOCAB, 1..20),
        temperature in 0.01..10.0f64,
        max_places in 0..9usize,
    ) {
        let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        // Nothing is long enough to be a repetition: all is drawn.
        let config = NgramConfig { min_match: 9, max_match: 8, max_places };
        let mut guesser = Guesser::new(config, Some(table(&texts)));
        guesser.follow(&text, 0);
        let Some(guess) = guesser.guess(&text, all) else { return Ok(()) };
        let lattice = guess.lattice(temperature, LatticeShape::default());
        prop_assert!(lattice.prob(guess.argmax()) > 0.0);
        let Guess::Drawn(candidates) = guess else { panic!("no repetition") };
        let sum: f64 = candidates.weights().iter().map(|weight| weight.1).sum();
        prop_assert!(sum <= 1.0 + 1e-9, "{}", sum);
        prop_assert!(candidates.weights().iter().all(|weight| weight.1 > 0.0));
        prop_assert!(candidates.weights().is_sorted_by(|a, b| a.0 < b.0), "a token twice");
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
            let (guess, right) = (guesser.guess(&text, all), fresh.guess(&text, all));
            prop_assert_eq!(format!("{guess:?}"), format!("{right:?}"));
            if let Some(Guess::OneHot(token)) = guess {
                // The text's own last two tokens stand in it before.
                let end = &text[text.len() - 2..];
                prop_assert!(text[..text.len() - 1].windows(2).any(|run| run == end), "{}", token);
            }
        }
    }
}
