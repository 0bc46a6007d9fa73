#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

#[test]
fn sizes_are_read_by_fios_rules() {
    let check = |text: &str, bytes: u64| assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
    check("4096", 4096);
    check("4k", 4096);
    check("4K", 4096);
    check("4KiB", 4096);
    check("4kib", 4096);
    check("4kB", 4000);
    check("4KB", 4000);
    check("1.5g", 3 << 29);
    check("1 MB", 1_000_000);
    check("2t", 2 << 40);
    check("1p", 1 << 50);
    check("7b", 7);
    check("0", 0);
}

#[test]
fn durations_are_read() {
    let check = |text: &str, nanos: u64| {
        assert_eq!(
            text.parse(),
            Ok(Span(Duration::from_nanos(nanos))),
            "{text}"
        );
    };
    check("30s", 30_000_000_000);
    check("30", 30_000_000_000);
    check("1.5s", 1_500_000_000);
    check("10m", 600_000_000_000);
    check("72h", 259_200_000_000_000);
    check("250ms", 250_000_000);
    check("5us", 5_000);
    check("2d", 172_800_000_000_000);
}

#[test]
fn nonsense_is_refused_by_name() {
    for text in [
        "",
        "k",
        "-4k",
        "4x",
        "4kk",
        "1..5k",
        "1.k",
        "99999999999999999999",
        "20000p",
        "4 k b",
        "é",
    ] {
        let error = text.parse::<Bytes>().unwrap_err();
        assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
    }
    assert!(
        "3 weeks"
            .parse::<Span>()
            .unwrap_err()
            .to_string()
            .contains("weeks")
    );
    assert!("9999999d".parse::<Span>().is_err());
}

#[test]
fn json_numbers_and_texts_are_read() {
    let bytes = |text: &str| serde_json::from_str::<Bytes>(text).map(|b| b.0).ok();
    assert_eq!(bytes("4096"), Some(4096));
    assert_eq!(bytes("\"4k\""), Some(4096));
    assert_eq!(bytes("-1"), None);
    assert_eq!(bytes("1.5"), None);
    assert_eq!(bytes("true"), None);
    let span = |text: &str| {
        serde_json::from_str::<Span>(text)
            .map(|s| s.0.as_secs())
            .ok()
    };
    assert_eq!(span("30"), Some(30));
    assert_eq!(span("\"2m\""), Some(120));
    assert_eq!(span("315360000"), Some(315_360_000));
    for longer in [
        "315360001",
        "9223372036854775807",
        "\"3651d\"",
        "\"99999999999h\"",
    ] {
        let refused = serde_json::from_str::<Span>(longer).map_err(|error| error.to_string());
        assert!(
            refused.is_err_and(|why| why.contains("at most 3650d")),
            "{longer}"
        );
    }
}

proptest! {
    #[test]
    fn display_and_parse_round_trip(bytes: u64, nanos in 0..=315_360_000_000_000_000_u64) {
        prop_assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        let span = Span(Duration::from_nanos(nanos));
        prop_assert_eq!(span.to_string().parse(), Ok(span));
    }

    #[test]
    fn parsing_arbitrary_text_never_panics(text in "\\PC*") {
        let _ = text.parse::<Bytes>();
        let _ = text.parse::<Span>();
    }
}

#[test]
fn sizes_for_people_have_three_digits() {
    for (bytes, shown) in [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (1 << 20, "1.00 MiB"),
        (1_572_864, "1.50 MiB"),
        (10_737_418_240, "10.0 GiB"),
        (1_073_700_000_000, "0.98 TiB"),
        (u64::MAX, "16384 PiB"),
    ] {
        assert_eq!(Bytes(bytes).about(), shown);
    }
}
