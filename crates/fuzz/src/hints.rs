//! What a client may post to the admin port.

use everwarm_proxy::hint;

/// Whatever is taken for a hint says something that a governor can act upon.
pub fn check(data: &[u8]) {
    match hint::parse(data) {
        Ok(hint) => {
            let ms = hint.expected_ms.unwrap_or(0.0);
            assert!((0.0..=86_400_000.0).contains(&ms), "{hint:?}");
            let _ = everwarm_units::Span::from_ms(ms);
            assert!((0.0..=1.0).contains(&hint.confidence.unwrap_or(0.0)), "{hint:?}");
        }
        Err(why) => assert!(why.contains("expected a JSON object such as"), "{why}"),
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "",
        "{}",
        "{\"source\": \"key-stroke\", \"expected_ms\": 300, \"confidence\": 0.9}",
        "{\"source\":\"schedule\",\"expected_ms\":null}",
        "{\"confidence\":1e-3}",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}
