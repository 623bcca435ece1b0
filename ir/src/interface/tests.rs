use super::*;

/// The roles of a part by texts.
fn part(role: &str, inputs: &[(&str, &str)], outputs: &[(&str, &str)]) -> PartInterface {
    PartInterface {
        role: role.parse().unwrap(),
        inputs: inputs.iter().map(|(name, role)| ((*name).to_owned(), role.parse().unwrap())).collect(),
        outputs: outputs.iter().map(|(name, role)| ((*name).to_owned(), role.parse().unwrap())).collect(),
        symbols: BTreeMap::new(),
    }
}

#[test]
fn roles_are_texts_and_texts_are_roles() {
    for text in ["token-ids", "encoder-mask", "use-cache", "other", "cache.growing(2).11.key", "cache.encoder.0.value"]
    {
        assert_eq!(text.parse::<InputRole>().unwrap().to_string(), text);
    }
    for text in ["logits", "sentence-embedding", "other", "cache.convolution.1.state", "cache.recurrent.3.state"] {
        assert_eq!(text.parse::<OutputRole>().unwrap().to_string(), text);
    }
    for text in ["model", "encoder", "first-step", "next-step", "vision-encoder"] {
        assert_eq!(text.parse::<PartRole>().unwrap().to_string(), text);
    }
    for text in ["rows", "past", "encoder-tokens", "other"] {
        assert_eq!(text.parse::<SymbolRole>().unwrap().to_string(), text);
    }
    let error = "cache.growing.1.key".parse::<InputRole>().unwrap_err();
    assert_eq!(error.to_string(), "`growing.1.key` is no cache entry that this version knows");
    assert_eq!(
        "ids".parse::<InputRole>().unwrap_err().to_string(),
        "`ids` is no role of an input that this version knows"
    );
}

#[test]
fn outputs_feed_the_inputs_of_later_parts() {
    let interface = Interface {
        parts: vec![
            (
                "encoder".to_owned(),
                part("encoder", &[("ids", "token-ids"), ("mask", "mask")], &[("states", "hidden-states")]),
            ),
            (
                "first".to_owned(),
                part(
                    "first-step",
                    &[("ids", "decoder-token-ids"), ("encoder_mask", "encoder-mask"), ("states", "encoder-states")],
                    &[("k", "cache.growing(2).0.key"), ("cross", "cache.encoder.0.key"), ("logits", "logits")],
                ),
            ),
            (
                "next".to_owned(),
                part(
                    "next-step",
                    &[
                        ("ids", "decoder-token-ids"),
                        ("encoder_mask", "encoder-mask"),
                        ("past", "cache.growing(2).0.key"),
                        ("past_cross", "cache.encoder.0.key"),
                    ],
                    &[("k", "cache.growing(2).0.key")],
                ),
            ),
        ],
    };
    let feeds: Vec<String> = interface
        .feeds()
        .iter()
        .map(|Feed { from, to }| format!("{}.{} -> {}.{}", from.0, from.1, to.0, to.1))
        .collect();
    assert_eq!(feeds, ["encoder.states -> first.states", "first.k -> next.past", "first.cross -> next.past_cross"]);
    assert_eq!(interface.shared("next", "encoder_mask"), Some(("encoder", "mask")));
    assert_eq!(interface.shared("next", "ids"), Some(("first", "ids")));
    assert_eq!(interface.shared("first", "ids"), None);
    assert_eq!(interface.part("next").unwrap().present("growing(2).0.key".parse().unwrap()), Some("k"));
}
