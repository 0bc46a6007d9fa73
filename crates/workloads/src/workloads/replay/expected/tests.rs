#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use proptest::prelude::*;

proptest! {
    /// Compares with a model that stores the writer of each byte.
    #[test]
    fn each_byte_is_from_who_wrote_it_last(
        turns in proptest::collection::vec((0_u64..60, 0_u64..30, 0_u8..4), 0..40),
    ) {
        let laid = LaidOut { file: 3, unit: 7, bytes: 40 };
        let mut file_model = FileModel::laid_out(laid);
        let mut model: Vec<Option<u64>> = vec![None; 200];
        model[..40].fill(Some(0));
        for (generation, (offset, bytes, kind)) in (1..).zip(turns) {
            let index = |at: u64| usize::try_from(at).unwrap();
            match kind {
                0 => {
                    file_model.truncate(offset);
                    model[index(offset)..].fill(None);
                }
                1 => {
                    let mut at = offset;
                    for piece in file_model.read(offset, bytes, 100).unwrap() {
                        prop_assert_eq!(piece.offset, at);
                        prop_assert!(piece.bytes > 0);
                        at += piece.bytes;
                        let known = &model[index(piece.offset)..index(at)];
                        if let Some(written) = piece.from {
                            prop_assert!(written.offset <= piece.offset && at <= written.offset + written.bytes);
                            let is_laid = written.file == 3 && written.offset % 7 == 0 && written.bytes == 7.min(40 - written.offset);
                            prop_assert!(written.generation > 0 || is_laid, "{:?}", written);
                        }
                        let from = piece.from.map(|written| written.generation);
                        prop_assert!(known.iter().all(|byte| *byte == from), "{:?} {:?}", piece, known);
                    }
                    prop_assert_eq!(at, offset + bytes);
                }
                _ => {
                    file_model.write(Written { file: 0, offset, bytes, generation });
                    model[index(offset)..index(offset + bytes)].fill(Some(generation));
                }
            }
        }
    }
}

#[test]
fn what_a_large_file_holds_costs_no_memory_and_too_many_parts_are_refused() {
    let list = List::parse(
        "- open old\n- read old 1000000000000000 4096\n- write old 1000000000000000 10\n\
         - read old 999999999999999 4096\n- truncate old 1000000000000020\n- read old 1000000000000000 4096\n",
    )
    .unwrap();
    let expected = Expected::of(&list, 1 << 20).unwrap();
    let from = |line: usize| {
        let pieces = expected.of_line(line).iter();
        pieces
            .map(|piece| (piece.bytes, piece.from.map(|written| written.generation)))
            .collect::<Vec<_>>()
    };
    assert_eq!(from(1), [(4096, Some(0))]);
    assert_eq!(from(3), [(1, Some(0)), (10, Some(3)), (4085, Some(0))]);
    assert_eq!(from(5), [(10, Some(3)), (10, Some(0)), (4076, None)]);
    let block = expected.of_line(1)[0].from.unwrap();
    assert_eq!(block.offset, (1_000_000_000_000_000 >> 20) << 20);
    let parts = expected.reads.iter().map(|pieces| pieces.len()).sum();
    assert!(Expected::within(&list, 1 << 20, parts).is_ok());
    let error = Expected::within(&list, 1 << 20, parts - 1).unwrap_err();
    assert!(matches!(error, TaskError::Unsupported { .. }), "{error:?}");
}

#[test]
fn files_keep_what_they_hold_under_another_name() {
    let list = List::parse(
        "- create a\n- write a 0 10\n- rename a b\n- read b 0 10\n- close b\n- open b\n- read b 0 10\n- close b\n\
         - delete b\n- create b\n- read b 0 5\n- close b\n- open d/x\n- read d/x 0 4\n- close d/x\n\
         - rename d e\n- open d/x\n- read d/x 0 4\n",
    )
    .unwrap();
    let expected = Expected::of(&list, 1 << 20).unwrap();
    let from = |line: usize| {
        let pieces = expected.of_line(line).iter();
        pieces
            .map(|piece| piece.from.map(|written| (written.file, written.generation)))
            .collect::<Vec<_>>()
    };
    assert_eq!(from(3), [Some((0, 2))]);
    assert_eq!(from(6), [Some((0, 2))]);
    assert_eq!(from(10), [None]);
    // Laid out: the second entry that the list expects, after its directory.
    assert_eq!(from(13), [Some((1, 0))]);
    assert_eq!(from(17), [], "nobody knows what is there after that");
}
