use planish_ir::{DType, Dim, Shape, SymbolRole};

use super::*;

fn ty(dims: &[&str]) -> TensorType {
    let dim = |text: &&str| text.parse::<Dim>().unwrap();
    TensorType::new(DType::F32, Shape::new(dims.iter().map(dim).collect::<Vec<_>>()))
}

/// The roles of inputs and outputs by their names, of tensors of 4 dimensions.
fn roles(part: &str, inputs: &[&str], outputs: &[&str]) -> (Vec<String>, Vec<String>) {
    let any = ty(&["b", "4", "p", "8"]);
    let named = |names: &[&'static str]| names.iter().map(|name| (*name, Some(&any))).collect::<Vec<_>>();
    let leak = |names: &[&str]| names.iter().map(|name| &*(*name).to_owned().leak()).collect::<Vec<&'static str>>();
    let interface = infer(part_role(part), &named(&leak(inputs)), &named(&leak(outputs)));
    let inputs = inputs.iter().map(|name| interface.input(name).to_string()).collect();
    (inputs, outputs.iter().map(|name| interface.output(name).to_string()).collect())
}

#[test]
fn optimums_names_have_roles() {
    let (inputs, outputs) = roles(
        "decoder_with_past_model",
        &[
            "encoder_attention_mask",
            "input_ids",
            "past_key_values.0.decoder.key",
            "past_key_values.11.encoder.value",
            "encoder_hidden_states",
        ],
        &["logits", "present.0.decoder.key"],
    );
    assert_eq!(
        inputs,
        ["encoder-mask", "decoder-token-ids", "cache.growing(2).0.key", "cache.encoder.11.value", "encoder-states"]
    );
    assert_eq!(outputs, ["logits", "cache.growing(2).0.key"]);
    let (inputs, outputs) = roles(
        "model",
        &["input_ids", "attention_mask", "position_ids", "token_type_ids", "past_key_values.3.value", "x"],
        &["last_hidden_state", "pooler_output", "start_logits", "present.3.value", "y"],
    );
    assert_eq!(inputs, ["token-ids", "mask", "positions", "token-types", "cache.growing(2).3.value", "other"]);
    assert_eq!(outputs, ["hidden-states", "pooled", "start-logits", "cache.growing(2).3.value", "other"]);
    let (inputs, outputs) = roles("encoder_model", &["input_ids", "attention_mask"], &["last_hidden_state"]);
    assert_eq!((inputs.join(" "), outputs.join(" ")), ("token-ids mask".to_owned(), "hidden-states".to_owned()));
}

#[test]
fn names_of_transformers_js_have_roles() {
    let (inputs, outputs) = roles(
        "model",
        &[
            "inputs_embeds",
            "past_conv.0",
            "past_recurrent.2",
            "past_ssm.1",
            "past_key_values.4.key",
            "use_cache_branch",
        ],
        &["present_conv.0", "present_recurrent.2", "present_ssm.1", "present_conv.3.query", "inputs_embeds"],
    );
    assert_eq!(
        inputs,
        [
            "embeddings",
            "cache.convolution.0.state",
            "cache.recurrent.2.state",
            "cache.recurrent.1.state",
            "cache.growing(2).4.key",
            "use-cache"
        ]
    );
    assert_eq!(
        outputs,
        [
            "cache.convolution.0.state",
            "cache.recurrent.2.state",
            "cache.recurrent.1.state",
            "cache.convolution.3.query",
            "embeddings"
        ]
    );
    assert_eq!(part_role("vision_encoder"), PartRole::VisionEncoder);
    assert_eq!(part_role("embed_tokens"), PartRole::Embedder);
}

#[test]
fn names_of_pytorchs_exporter_have_roles() {
    let (inputs, outputs) = roles(
        "model",
        &["past_key_values.layers.0.keys", "past_key_values.layers.0.values", "past_key_values.1.key_value", "past_0"],
        &["present.layers.0.keys", "present_key_values.layers.0.values", "present_0"],
    );
    assert_eq!(
        inputs,
        [
            "cache.growing(2).0.key",
            "cache.growing(2).0.value",
            "cache.growing(2).1.key-and-value",
            "cache.growing(2).0.key-and-value"
        ]
    );
    assert_eq!(outputs, ["cache.growing(2).0.key", "cache.growing(2).0.value", "cache.growing(2).0.key-and-value"]);
    let combined = ty(&["2", "b", "h", "p", "8"]);
    let interface = infer(PartRole::Model, &[("past_0", Some(&combined))], &[]);
    assert_eq!(interface.input("past_0").to_string(), "cache.growing(3).0.key-and-value");
}

#[test]
fn names_of_onnxruntime_genai_have_roles() {
    let (inputs, outputs) = roles(
        "model",
        &["past_key_self_0", "past_value_cross_3", "past.2.conv", "past.2.recurrent", "audio_features"],
        &["present_key_self_0", "present_value_cross_3", "present.2.conv", "hidden_states"],
    );
    assert_eq!(
        inputs,
        [
            "cache.growing(2).0.key",
            "cache.encoder.3.value",
            "cache.convolution.2.state",
            "cache.recurrent.2.state",
            "features"
        ]
    );
    assert_eq!(
        outputs,
        ["cache.growing(2).0.key", "cache.encoder.3.value", "cache.convolution.2.state", "hidden-states"]
    );
}

#[test]
fn what_only_looks_like_a_cache_is_none() {
    let (inputs, outputs) =
        roles("model", &["past_values", "past_length", "past_key_values", "pastry.0", "past.0.1.key"], &["presents.0"]);
    assert!(inputs.iter().chain(&outputs).all(|role| role == "other"), "{inputs:?} {outputs:?}");
}

#[test]
fn symbols_count_by_name_and_else_by_place() {
    let ids = ty(&["n", "s"]);
    let (mask, keys) = (ty(&["n", "p + s"]), ty(&["n", "4", "p", "8"]));
    let image = ty(&["batch_size", "num_channels", "height", "w"]);
    let wave = ty(&["n", "t"]);
    let inputs = [
        ("input_ids", Some(&ids)),
        ("attention_mask", Some(&mask)),
        ("past_key_values.0.key", Some(&keys)),
        ("pixel_values", Some(&image)),
        ("input_values", Some(&wave)),
    ];
    let interface = infer(PartRole::Model, &inputs, &[]);
    let of = |symbol: &str| interface.symbol(symbol);
    assert_eq!([of("n"), of("s"), of("p")], [SymbolRole::Rows, SymbolRole::Tokens, SymbolRole::Past]);
    assert_eq!([of("batch_size"), of("num_channels")], [SymbolRole::Rows, SymbolRole::Channels]);
    assert_eq!([of("height"), of("w"), of("t")], [SymbolRole::Height, SymbolRole::Other, SymbolRole::Samples]);
    let encoded = ty(&["b", "encoder_sequence_length"]);
    let past = ty(&["b", "2", "past_decoder_sequence_length", "4"]);
    let inputs = [("encoder_attention_mask", Some(&encoded)), ("past_key_values.0.decoder.key", Some(&past))];
    let interface = infer(PartRole::NextStep, &inputs, &[]);
    assert_eq!(interface.symbol("encoder_sequence_length"), SymbolRole::EncoderTokens);
    assert_eq!(interface.symbol("past_decoder_sequence_length"), SymbolRole::Past);
}

#[test]
fn pictures_are_levels_of_three_colours() {
    let levels = TensorType { dtype: DType::U8, ..ty(&["n", "height", "width", "3"]) };
    let role = |ty: &TensorType| infer(PartRole::Model, &[("image", Some(ty))], &[]).input("image");
    assert_eq!(role(&levels), InputRole::Image);
    assert_eq!(role(&ty(&["n", "height", "width", "3"])), InputRole::Other);
    assert_eq!(role(&TensorType { dtype: DType::U8, ..ty(&["n", "3", "height", "width"]) }), InputRole::Other);
}
