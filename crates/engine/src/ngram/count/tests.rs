use super::*;
use proptest::prelude::*;

const VOCAB: u32 = 6;

fn config(max_bytes: usize) -> CountConfig {
    CountConfig { vocab_size: VOCAB, tokenizer_fingerprint: "ab".repeat(32), max_bytes }
}

fn counted(order: u32, texts: &[(Vec<u32>, Vec<u32>)], max_bytes: usize) -> Table {
    let mut corpus = Corpus::new(order).unwrap();
    for (before, text) in texts {
        corpus.add(before, text).unwrap();
    }
    Table::read(corpus.table(&config(max_bytes)).unwrap()).unwrap()
}

fn hash(context: &[u32]) -> u64 {
    context.iter().rev().fold(NO_CONTEXT, |hash, &token| with_earlier(hash, token))
}

/// How often `token` stands in the counted part of a text with `context` before it, by looking everywhere.
fn by_definition(texts: &[(Vec<u32>, Vec<u32>)], context: &[u32], token: u32) -> u32 {
    let in_text = |(before, text): &(Vec<u32>, Vec<u32>)| {
        let whole = [before.as_slice(), text].concat();
        (before.len()..whole.len()).filter(|&at| whole[at] == token && whole[..at].ends_with(context)).count()
    };
    texts.iter().map(in_text).sum::<usize>() as u32
}

fn contexts(longest: usize) -> Vec<Vec<u32>> {
    let mut all = vec![vec![]];
    let mut last = all.clone();
    for _ in 0..longest {
        last = last.iter().flat_map(|c| (0..VOCAB).map(|t| [c.as_slice(), &[t]].concat())).collect();
        all.extend(last.clone());
    }
    all.split_off(1)
}

#[test]
fn prompts_are_followed_and_not_counted() {
    let table = counted(3, &[(vec![1, 2], vec![3, 3]), (vec![4], vec![5])], 10_000);
    let rows = |context: &[u32]| table.continuations(hash(context)).collect::<Vec<_>>();
    assert_eq!((rows(&[2]), rows(&[3]), rows(&[4])), (vec![(3, 1)], vec![(3, 1)], vec![(5, 1)]));
    // 2 follows 1 in a prompt; 4 begins another text.
    assert_eq!((rows(&[1]), rows(&[3, 4])), (vec![], vec![]));
    assert_eq!(table.head().counted, 3);
}

#[test]
fn the_most_useful_rows_stay() {
    // After 1 comes 2 nine times of ten, after (0, 1) always 3.
    let mut texts = vec![(vec![], vec![5, 1, 2]); 9];
    texts.extend(vec![(vec![], vec![0, 1, 3]); 9]);
    let all = counted(3, &texts, 10_000);
    assert_eq!(all.continuations(hash(&[0, 1])).collect::<Vec<_>>(), [(3, 9)]);
    let bytes = |rows: usize| (0..).find(|&bytes| rows_within(bytes, VOCAB) == rows).unwrap();
    let one = counted(3, &texts, bytes(1));
    let left: Vec<_> = contexts(2).into_iter().filter(|c| one.continuations(hash(c)).count() > 0).collect();
    // 1 after 5 and 1 after 0 would each guess nine tokens, all others fewer.
    assert_eq!((one.rows(), left.len()), (1, 1));
    assert!(left[0] == [0] || left[0] == [5], "{left:?}");
}

#[test]
fn what_cannot_be_counted_is_refused() {
    assert_eq!(Corpus::new(9).unwrap_err(), CountError::Order(9));
    let mut corpus = Corpus::new(2).unwrap();
    corpus.add(&[], &[VOCAB]).unwrap();
    let error = corpus.table(&config(1000)).unwrap_err();
    assert_eq!(error.to_string(), "the texts hold token 6; the vocabulary has 6");
    let mut config = config(1000);
    config.tokenizer_fingerprint = "x".into();
    assert!(matches!(Corpus::new(2).unwrap().table(&config), Err(CountError::Table(_))));
}

fn texts() -> impl Strategy<Value = Vec<(Vec<u32>, Vec<u32>)>> {
    let text = |len| prop::collection::vec(0..VOCAB, 0..len);
    prop::collection::vec((text(6), text(40)), 1..6)
}

proptest! {
    #[test]
    fn every_row_is_the_count_by_definition(texts in texts(), order in 2..5u32) {
        let table = counted(order, &texts, 1 << 20);
        for context in contexts(order as usize - 1) {
            let rows: Vec<_> = table.continuations(hash(&context)).collect();
            for &(token, count) in rows.iter().filter(|row| row.0 < VOCAB) {
                prop_assert_eq!(count, by_definition(&texts, &context, token));
            }
            // Together with what is left out they are the context's count.
            let total: u32 = rows.iter().map(|row| row.1).sum();
            let right: u32 = (0..VOCAB).map(|token| by_definition(&texts, &context, token)).sum();
            prop_assert!(rows.is_empty() || total == right, "{:?}: {} of {}", context, total, right);
        }
        for token in 0..VOCAB {
            // With room for everything nothing that was seen is unknown to the shortest context.
            let seen = (0..VOCAB).filter(|&next| by_definition(&texts, &[token], next) > 0).count();
            prop_assert_eq!(table.continuations(hash(&[token])).count(), seen);
        }
    }

    #[test]
    fn a_table_never_outgrows_its_bytes(texts in texts(), max_bytes in 140..600usize) {
        let mut corpus = Corpus::new(4).unwrap();
        for (before, text) in &texts {
            corpus.add(before, text).unwrap();
        }
        prop_assert!(corpus.table(&config(max_bytes)).unwrap().len() <= max_bytes);
    }
}
