//! Text out of blocks: stop strings and characters that lie across tokens and block borders.

use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_runtime::RuntimeConfig;
use foretoken_testkit::client::{Answer, generate, ids_request};
use foretoken_testkit::cluster::{Cluster, host};
use foretoken_testkit::table::{Table, TableModel};
use foretoken_testkit::vocabulary::named;
use foretoken_text::Tokenizer;

use crate::support::{CONTEXT, says, scripted};

/// Every pair of the letters a to e once.
const PAIRS: &str = "aabacadaebbcbdbeccdceddee";

fn pairs() -> Table {
    says(6, |text| u32::from(PAIRS.as_bytes()[(text.len() - 1) % PAIRS.len()] - b'a'))
}

fn assert_counts(answer: &Answer) {
    assert_eq!(answer.ledger().output_tokens as usize, answer.tokens.len());
}

/// sgl-project/sglang#31599, vllm-project/vllm#47616: a stop string at every place of every block against every
/// limit near it; no token, text or count behind the one that completes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_ends_the_answer_with_the_token_that_completes_it() {
    let cluster = scripted(5, pairs(), pairs()).await;
    for draft_len in [0, 1, 4, 8] {
        for start in 0..10 {
            let stop = PAIRS[start..start + 2].to_owned();
            for max_tokens in start + 1..start + 5 {
                let request = v1::GenerateRequest {
                    draft_len: Some(draft_len),
                    stop: vec![stop.clone(), "zz".into()],
                    ..ids_request(&[0], max_tokens as u32)
                };
                let answer = generate(&cluster.orchestrator, request).await.unwrap();
                assert_counts(&answer);
                let what = format!("{stop:?} at {start}, at most {max_tokens}, blocks of {draft_len}");
                if max_tokens >= start + 2 {
                    assert_eq!(answer.finished.finish_reason(), v1::FinishReason::Stop, "{what}");
                    assert_eq!(answer.tokens.len(), start + 2, "{what}");
                    assert_eq!(answer.text(), PAIRS[..start], "{what}");
                } else {
                    // What was held back belongs to the answer after all.
                    assert_eq!(answer.finished.finish_reason(), v1::FinishReason::Length, "{what}");
                    assert_eq!(answer.tokens.len(), start + 1, "{what}");
                    assert_eq!(answer.text(), PAIRS[..=start], "{what}");
                }
            }
        }
    }
}

/// vllm-project/vllm#47616: a stop string over many tokens and several blocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_longer_than_a_block_is_found() {
    let cluster = scripted(5, pairs(), pairs()).await;
    for draft_len in [0, 1, 2, 3, 8] {
        for (stop, text_len, tokens) in [(&PAIRS[3..17], 3, 17), (&PAIRS[0..20], 0, 20), ("eea", 23, 26)] {
            let request = v1::GenerateRequest {
                draft_len: Some(draft_len),
                stop: vec![stop.to_owned()],
                ..ids_request(&[0], 60)
            };
            let answer = generate(&cluster.orchestrator, request).await.unwrap();
            assert_counts(&answer);
            assert_eq!(
                (answer.text().len(), answer.tokens.len()),
                (text_len, tokens),
                "{stop:?} {draft_len}"
            );
            assert_eq!(answer.finished.finish_reason(), v1::FinishReason::Stop);
        }
    }
}

/// The character that byte-level vocabularies write for a byte.
fn byte_character(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let index = (0..byte).filter(|&other| !printable(other)).count() as u32;
    char::from_u32(256 + index).unwrap()
}

const WHOLE: &str = "🦀漢é🦀";

/// A vocabulary of `a` and the single bytes of [`WHOLE`]; a token's id is its byte's place.
fn bytes_vocabulary() -> (Tokenizer, Vec<u8>) {
    let mut bytes = vec![b'a'];
    WHOLE.bytes().for_each(|byte| {
        if !bytes.contains(&byte) {
            bytes.push(byte);
        }
    });
    let tokens: Vec<String> = bytes.iter().map(|&byte| byte_character(byte).to_string()).collect();
    (named(&tokens, false).unwrap(), bytes)
}

/// ai-dynamo/dynamo#12630, antonellof/ferrox#124: characters of two, three and four single-byte tokens, cut at every
/// place by blocks of every length.
#[tokio::test(flavor = "multi_thread")]
async fn a_character_split_over_tokens_and_blocks_comes_whole() {
    let (tokenizer, bytes) = bytes_vocabulary();
    let vocab_size = bytes.len();
    // As many letters a first as the prompt is long, then the characters.
    let id_of = move |byte: u8| bytes.iter().position(|&other| other == byte).unwrap() as u32;
    let table = says(vocab_size, move |text| {
        let letters = text.iter().take_while(|&&id| id == 1).count();
        let at = (text.len() - letters).checked_sub(letters);
        at.and_then(|at| WHOLE.as_bytes().get(at)).map_or(0, |&byte| id_of(byte))
    });
    let model = |name| {
        let model = TableModel::new(name, vocab_size, CONTEXT, table.clone());
        host(model, &tokenizer, &RuntimeConfig::default())
    };
    let drafts = vec![foretoken_draft_worker::Source::Model(model("draft"))];
    let cluster = Cluster::start(model("target"), drafts, Config::default()).await;
    for letters in 1..=6 {
        let text = format!("{}{WHOLE}", "a".repeat(letters));
        for draft_len in 0..=8 {
            let request = v1::GenerateRequest {
                draft_len: Some(draft_len),
                ..ids_request(&vec![1; letters], text.len() as u32)
            };
            let answer = generate(&cluster.orchestrator, request.clone()).await.unwrap();
            assert_eq!(answer.text(), text, "{letters} {draft_len}");
            assert!(
                answer.tokens.iter().all(|token| !token.text.contains('\u{fffd}')),
                "{:?}",
                answer.tokens
            );
            // Each character comes with the token that completes it.
            assert_eq!(answer.tokens[letters + 3].text, "🦀");
            assert_eq!(answer.tokens[letters + 6].text, "漢");

            // An answer that ends inside a character says so once, at its end.
            let cut = v1::GenerateRequest { max_tokens: Some(letters as u32 + 2), ..request };
            let answer = generate(&cluster.orchestrator, cut).await.unwrap();
            assert_eq!(answer.text(), format!("{}\u{fffd}", "a".repeat(letters)));
        }
    }
}
