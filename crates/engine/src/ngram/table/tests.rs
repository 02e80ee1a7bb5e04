use super::*;
use proptest::prelude::*;

fn head(vocab_size: u32) -> Head {
    Head { order: 4, vocab_size, counted: 1 << 40, tokenizer_fingerprint: "0123456789abcdef".repeat(4) }
}

fn context(tokens: &[u32]) -> u64 {
    tokens.iter().rev().fold(NO_CONTEXT, |context, &token| with_earlier(context, token))
}

fn encoded() -> Vec<u8> {
    let row = |tokens: &[u32], token, count| Row { context: context(tokens), token, count };
    let rows =
        vec![row(&[1], 2, 9), row(&[1], 3, 10), row(&[1], 100, 4), row(&[7, 1], 2, 1), row(&[2], 0, 700)];
    Table::encode(&head(100), rows).unwrap()
}

fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - CHECKSUM_BYTES);
    let checksum = Sha256::digest(&bytes);
    bytes.extend(checksum);
    bytes
}

#[test]
fn what_was_written_is_read() {
    let table = Table::read(encoded()).unwrap();
    assert_eq!((table.head(), table.rows()), (&head(100), 5));
    let rows = |tokens: &[u32]| table.continuations(context(tokens)).collect::<Vec<_>>();
    assert_eq!(rows(&[1]), [(3, 10), (2, 9), (100, 4)]);
    assert_eq!(rows(&[7, 1]), [(2, 1)]);
    assert_eq!(rows(&[2]), [(0, 704)]);
    assert_eq!(rows(&[1, 7]), []);
}

#[test]
fn an_empty_table_is_a_table() {
    let table = Table::read(Table::encode(&head(1 << 20), Vec::new()).unwrap()).unwrap();
    assert_eq!(table.rows(), 0);
    assert_eq!(table.continuations(context(&[1])).count(), 0);
}

#[test]
fn every_truncation_and_every_flipped_bit_is_refused() {
    let bytes = encoded();
    for len in 0..bytes.len() {
        let error = Table::read(bytes[..len].to_vec()).unwrap_err();
        assert!(matches!(error, TableError::NotATable | TableError::Length { .. }), "{len}: {error}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Table::read(damaged).is_err(), "bit {bit}");
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(matches!(Table::read(longer), Err(TableError::Length { .. })));
}

#[test]
fn what_contradicts_itself_is_refused_by_name() {
    let changed = |at: usize, to: u8| {
        let mut bytes = encoded();
        bytes[at] = to;
        Table::read(resealed(bytes)).unwrap_err().to_string()
    };
    assert!(changed(8, 2).contains("version 2"));
    assert!(changed(12, 1).contains("order"));
    assert!(changed(20, 9).contains("buckets"));
    assert!(changed(36, b'X').contains("fingerprint"));
    assert!(changed(HEAD_BYTES, 6).contains("bucket ends"));
    let columns = Columns::new(100, 5);
    assert!(changed(columns.tokens(), 101).contains("outside the vocabulary"));
    assert!(Table::encode(&Head { order: 9, ..head(4) }, Vec::new()).is_err());
}

#[test]
fn counts_are_exact_while_small_and_close_above() {
    for count in 0..32 {
        assert_eq!(count_of(code_of(count)), count);
    }
    for count in (32..600_000).step_by(7) {
        let read = count_of(code_of(count));
        let limit = count.min(507_904);
        assert!(read.abs_diff(limit) * 32 <= limit, "{count} is read as {read}");
    }
    assert_eq!(count_of(code_of(u32::MAX)), 507_904);
    assert!((0..u8::MAX).all(|code| count_of(code) < count_of(code + 1)));
}

#[test]
fn a_file_of_so_many_rows_is_no_larger_than_told() {
    for (max_bytes, vocab_size) in [(4_000_000, 49_152), (4_000_000, 150_000), (200, 100), (0, 100)] {
        let rows = rows_within(max_bytes, vocab_size);
        let size = |rows| Columns::new(vocab_size, rows).end() + CHECKSUM_BYTES;
        assert!(rows == 0 || size(rows) <= max_bytes);
        assert!(size(rows + 1) > max_bytes);
    }
}

proptest! {
    #[test]
    fn any_rows_are_found_again(
        rows in prop::collection::btree_map((any::<u64>(), 0..70_000u32), 1..16u32, 0..200),
        vocab_size in prop_oneof![Just(70_000u32)],
    ) {
        let rows: Vec<_> = rows.into_iter().map(|((context, token), count)| Row { context, token, count }).collect();
        let table = Table::read(Table::encode(&head(vocab_size), rows.clone()).unwrap()).unwrap();
        for row in rows {
            prop_assert!(table.continuations(row.context).any(|found| found == (row.token, row.count)));
        }
    }
}
