#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
use super::*;
use benchmesh_testing::hostile::{damaged, withstands};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use proptest::prelude::*;
use std::io::Write;

fn of(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    for value in values {
        histogram.record(*value);
    }
    histogram
}

fn reference(values: &[u64]) -> hdrhistogram::Histogram<u64> {
    let mut histogram = hdrhistogram::Histogram::new_with_bounds(1, HIGHEST_NS, 2).unwrap();
    for value in values {
        histogram.record(*value).unwrap();
    }
    histogram
}

/// The smallest value that at least a share `q` of the values do not exceed.
fn exact_quantile(sorted: &[u64], q: f64) -> u64 {
    let rank = (q * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted[rank.min(sorted.len()) - 1]
}

#[test]
fn the_scale_is_hdrhistograms() {
    let empty = reference(&[]);
    assert_eq!(empty.distinct_values(), SLOTS);
    for shift in 0..42 {
        for value in [1_u64 << shift, (1 << shift) + 1, (3 << shift) - 1] {
            let value = value.min(HIGHEST_NS);
            assert_eq!(highest_of(slot_of(value)), empty.highest_equivalent(value));
        }
    }
    assert_eq!(slot_of(0), 0);
    assert!(slot_of(HIGHEST_NS) < SLOTS);
}

#[test]
fn sums_are_exact_and_long_values_saturate() {
    let histogram = of(&[1, 2, HIGHEST_NS, HIGHEST_NS + 1, 2 * HIGHEST_NS]);
    assert_eq!(histogram.count(), 5);
    assert_eq!(histogram.saturated(), 2);
    assert_eq!(histogram.min_ns(), 1);
    assert_eq!(histogram.max_ns(), 2 * HIGHEST_NS);
    assert_eq!(histogram.sum, u128::from(HIGHEST_NS) * 4 + 4);
    assert_eq!(histogram.quantile(1.0), 2 * HIGHEST_NS);
    assert_eq!(histogram.quantile(0.0), 1);
}

#[test]
fn an_empty_histogram_answers_zero() {
    let empty = Histogram::new();
    assert_eq!(
        (empty.min_ns(), empty.max_ns(), empty.quantile(0.5)),
        (0, 0, 0)
    );
    assert_eq!((empty.mean_ns(), empty.stddev_ns()), (0.0, 0.0));
    assert_eq!(Histogram::from_blob(&empty.to_blob()), Ok(empty));
}

#[test]
fn mean_and_deviation_are_those_of_the_values() {
    let histogram = of(&[2, 4, 4, 4, 5, 5, 7, 9]);
    assert_eq!(histogram.mean_ns(), 5.0);
    assert_eq!(histogram.stddev_ns(), 2.0);
}

/// A compressed blob around any inner bytes.
fn wrap(inner: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(inner).unwrap();
    let body = encoder.finish().unwrap();
    let mut blob = 0x1c84_9314_u32.to_be_bytes().to_vec();
    blob.extend((body.len() as u32).to_be_bytes());
    blob.extend(body);
    blob
}

fn inner(length: u32, digits: u32, highest: u64, counts: &[u8]) -> Vec<u8> {
    let mut inner = 0x1c84_9313_u32.to_be_bytes().to_vec();
    inner.extend(length.to_be_bytes());
    inner.extend(0_u32.to_be_bytes());
    inner.extend(digits.to_be_bytes());
    inner.extend(1_u64.to_be_bytes());
    inner.extend(highest.to_be_bytes());
    inner.extend(1_f64.to_be_bytes());
    inner.extend(counts);
    inner
}

#[test]
fn hostile_blobs_are_refused() {
    let check = |blob: Vec<u8>, part: &str| {
        let error = Histogram::from_v2_deflate(&blob).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    check(vec![], "ends before its cookie");
    check(vec![0; 40], "not a compressed V2");
    check(wrap(&[]), "ends before its inner cookie");
    check(wrap(&vec![0; 1 << 25]), "larger than its scale");
    check(
        wrap(&inner(u32::MAX, 2, HIGHEST_NS, &[])),
        "ends before its counts",
    );
    check(
        wrap(&inner(0, 5, HIGHEST_NS, &[])),
        "significant digits is 5",
    );
    check(wrap(&inner(0, 2, u64::MAX, &[])), "highest value is");
    check(
        wrap(&inner(1, 2, HIGHEST_NS, &[0x80])),
        "ends before its last count",
    );
    let skip_all = [0xff; 9];
    check(
        wrap(&inner(
            10,
            2,
            HIGHEST_NS,
            &[skip_all.as_slice(), &[2]].concat(),
        )),
        "larger",
    );
    let mut cut = of(&[1, 2, 3]).to_v2_deflate();
    cut.truncate(cut.len() - 3);
    check(cut, "ends before its compressed part");
    let mut flipped = of(&[1, 2, 3]).to_v2_deflate();
    flipped[8] ^= 0xff;
    check(flipped, "damaged");
}

#[test]
fn sums_that_contradict_the_counts_are_refused() {
    let blob = of(&[100, 1_000_000]).to_blob();
    let check = |change: fn(&mut Blob), part: &str| {
        let mut changed = blob.clone();
        change(&mut changed);
        let error = Histogram::from_blob(&changed).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    check(|b| b.count = 3, "count");
    check(|b| b.min_ns = 99_000, "min");
    check(|b| b.max_ns = u64::MAX, "max");
    check(|b| b.saturated = 1, "saturated");
    check(|b| b.sum_ns = f64::NAN, "sum");
    check(|b| b.sum_ns = 3e6, "sum");
    check(|b| b.sum_squares_ns2 = -1.0, "squares");
    check(|b| b.sum_squares_ns2 = f64::INFINITY, "squares");
}

/// Values over the whole scale, not only large ones.
fn latencies() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec((0_u32..42, any::<u64>()), 1..400).prop_map(|pairs| {
        pairs
            .into_iter()
            .map(|(bits, value)| (value & ((2 << bits) - 1)).min(HIGHEST_NS))
            .collect()
    })
}

/// Decompresses a blob's contents and wraps them again.
fn framed(inner: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(inner).unwrap();
    let packed = packed.finish().unwrap();
    let length = u32::try_from(packed.len()).unwrap();
    let cookie = 0x1c84_9314_u32;
    [
        &cookie.to_be_bytes()[..],
        &length.to_be_bytes()[..],
        &packed,
    ]
    .concat()
}

fn unframed(blob: &[u8]) -> Vec<u8> {
    let mut inner = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(&blob[8..]), &mut inner)
        .unwrap();
    inner
}

/// A decoded histogram survives another round trip, and its quantiles are in order.
fn check_read(histogram: &Histogram) -> Result<(), TestCaseError> {
    let again = Histogram::from_v2_deflate(&histogram.to_v2_deflate()).unwrap();
    prop_assert_eq!(&again.counts, &histogram.counts);
    let quantiles = [0.0, 0.5, 0.99, 1.0].map(|q| histogram.quantile(q));
    prop_assert!(quantiles.is_sorted(), "{quantiles:?}");
    let mut sum = histogram.clone();
    sum.add(histogram);
    Ok(())
}

#[test]
fn damaged_histograms_are_refused_or_whole() {
    let blobs: Vec<Vec<u8>> = [
        vec![],
        vec![1],
        vec![5_000; 90],
        (0..3000).map(|n| n * n).collect(),
    ]
    .iter()
    .map(|values: &Vec<u64>| of(values).to_v2_deflate())
    .collect();
    let inner = blobs.iter().map(|blob| unframed(blob)).collect();
    let inputs = prop_oneof![
        1 => damaged(blobs, 64 << 10),
        3 => damaged(inner, 64 << 10).prop_map(|inner| framed(&inner)),
    ];
    withstands(inputs, 4 << 20, |blob| {
        match Histogram::from_v2_deflate(&blob) {
            Ok(histogram) => check_read(&histogram),
            Err(error) => {
                prop_assert!(!error.to_string().is_empty());
                Ok(())
            }
        }
    });
}

proptest! {
    #[test]
    fn quantiles_are_within_one_percent(mut values in latencies(), q in 0.0_f64..=1.0) {
        let histogram = of(&values);
        values.sort_unstable();
        for q in [q, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = exact_quantile(&values, q);
            let answer = histogram.quantile(q);
            prop_assert!(answer >= exact && answer as f64 <= exact as f64 * 1.01, "{exact} {answer}");
        }
    }

    #[test]
    fn blobs_are_compatible_with_hdrhistogram(values in latencies()) {
        let ours = of(&values);
        let theirs: hdrhistogram::Histogram<u64> =
            Deserializer::new().deserialize(&mut ours.to_v2_deflate().as_slice()).unwrap();
        prop_assert_eq!(&theirs, &reference(&values));
        let mut blob = Vec::new();
        V2DeflateSerializer::new().serialize(&theirs, &mut blob).unwrap();
        let back = Histogram::from_v2_deflate(&blob).unwrap();
        prop_assert_eq!(&back.counts, &ours.counts);
        let travelled = Histogram::from_blob(&ours.to_blob()).unwrap();
        prop_assert_eq!(travelled.to_blob(), ours.to_blob());
    }

    #[test]
    fn sums_equal_recording_all_values(a in latencies(), b in latencies()) {
        let mut sum = of(&a);
        sum.add(&of(&b));
        prop_assert_eq!(&sum, &of(&[a, b].concat()));
        sum.clear();
        prop_assert_eq!(sum, Histogram::new());
    }

    #[test]
    fn decoding_arbitrary_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Histogram::from_v2_deflate(&bytes);
        let _ = Histogram::from_v2_deflate(&wrap(&bytes));
        let length = bytes.len() as u32;
        let _ = Histogram::from_v2_deflate(&wrap(&inner(length, 2, HIGHEST_NS, &bytes)));
    }
}
