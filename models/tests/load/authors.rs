//! Checkpoints and configurations as the code of a model's authors, or an older version of it, writes them.

use planish_models::{Loaded, Task};
use serde_json::{Value, json};

use crate::support::{
    Draft, LENIENT, STRICT, Stored, assert_meaning, assert_refused, assert_same, assert_says, golden, load_path,
    meaning, task, text,
};

/// The weight of a name in the graph.
fn weight(draft: &Draft, name: &str) -> Option<Vec<f64>> {
    meaning(&draft.load(STRICT).unwrap().parts[0].graph).1.remove(name)
}

/// The same with tensors of weights and biases of modules, by their outputs and inputs.
fn with_modules(draft: Draft, modules: &[(&str, &[usize])]) -> Draft {
    modules.iter().fold(draft, |draft, (module, shape)| {
        draft
            .tensor(&format!("{module}.weight"), Stored::ramp(shape))
            .tensor(&format!("{module}.bias"), Stored::ramp(&shape[..1]))
    })
}

const OF_MODEL: &str = "esm.rotary_embeddings.inv_freq";
const OF_STAR: &str = "esm.encoder.layer.*.attention.self.rotary_embeddings.inv_freq";

fn of_layer(layer: usize) -> String {
    OF_STAR.replace('*', &layer.to_string())
}

/// The golden of ESM with frequencies under some names.
fn esm(names: &[String], frequencies: &Stored) -> Draft {
    let mut draft = Draft::of("esm");
    draft.tensors.remove(OF_STAR).unwrap();
    names.iter().fold(draft, |draft, name| draft.tensor(name, frequencies.clone()))
}

#[test]
fn stored_frequencies_of_esm_count() {
    let plain: Vec<f32> = (0..6).map(|i| 10_000f32.powf(-(i as f32) / 6.0)).collect();
    // As 11 bits of a float16 have them.
    let rounded: Vec<f32> =
        plain.iter().map(|f| f32::from_bits((f.to_bits() + (1 << 12)) & !((1 << 13) - 1))).collect();
    assert!(rounded.iter().zip(&plain).skip(1).all(|(a, b)| a != b && (a / b - 1.0).abs() < 1e-3));
    let stored = Stored {
        bytes: rounded.iter().flat_map(|f| f.to_le_bytes()).collect(),
        ..Draft::of("esm").tensors[OF_STAR].clone()
    };
    let expected: Vec<f64> = rounded.iter().map(|f| f64::from(*f)).collect();
    let layouts = [
        vec![OF_MODEL.to_owned()],
        vec![OF_STAR.to_owned()],
        vec![of_layer(0), of_layer(1)],
        vec![OF_MODEL.to_owned(), of_layer(0), of_layer(1)],
    ];
    for names in layouts {
        let draft = esm(&names, &stored);
        assert_eq!(weight(&draft, "rotary_embeddings.inv_freq").unwrap(), expected, "{names:?}");
        assert_eq!(weight(&draft, "rotary_emb.inv_freq"), None, "{names:?}");
    }
    // Without stored ones they are computed.
    let computed = weight(&esm(&[], &stored), "rotary_emb.inv_freq").unwrap();
    assert!(computed.iter().zip(&plain).all(|(a, b)| (a / f64::from(*b) - 1.0).abs() < 1e-6), "{computed:?}");

    let differ = esm(&[of_layer(0)], &stored).tensor(&of_layer(1), stored.clone().scaled(2.0));
    assert_says(&differ.error(LENIENT), &[&of_layer(1), "differs from", &of_layer(0), "all layers"]);
    let long = esm(&[of_layer(0)], &Stored::ramp(&[7]));
    assert_says(&long.error(LENIENT), &[&of_layer(0), "the shape is [7], expected [6]"]);
}

#[test]
fn texts_have_no_limit_without_embeddings_of_positions() {
    let longest = |draft: Draft| draft.load(LENIENT).unwrap().max_positions;
    assert_eq!(longest(Draft::of("esm")), None);
    let table = "esm.embeddings.position_embeddings.weight";
    let absolute = Draft::of("esm").with("position_embedding_type", json!("absolute"));
    assert_eq!(longest(absolute.tensor(table, Stored::ramp(&[32, 48]))), Some(30));
    for name in ["deberta", "deberta-v2"] {
        let draft = |biased: bool| {
            let draft = Draft::of(name).with("position_biased_input", json!(biased));
            draft.tensor("embeddings.position_embeddings.weight", Stored::ramp(&[32, 48]))
        };
        assert_eq!([true, false].map(|biased| longest(draft(biased))), [Some(32), None], "{name}");
    }
}

/// The golden of GTE with a head for masked tokens, whose names have prefixes.
fn gte(base: &str, heads: &str) -> Draft {
    let mut draft = Draft::of("gte").renamed(|name| format!("{base}{name}"));
    draft.config["architectures"] = json!(["GteForMaskedLM"]);
    let modules: [(String, &[usize]); 2] = [("dense".to_owned(), &[48, 48]), ("norm".to_owned(), &[48])];
    let modules = modules.map(|(module, shape)| (format!("{heads}lm_head.{module}"), shape));
    let modules: Vec<(&str, &[usize])> = modules.iter().map(|(module, shape)| (module.as_str(), *shape)).collect();
    with_modules(draft, &modules).tensor(&format!("{heads}lm_head.decoder.bias"), Stored::ramp(&[131]))
}

#[test]
fn prefixes_of_gte() {
    for prefix in ["gte.", "new.", "new.gte."] {
        assert_same(&Draft::of("gte").renamed(|name| format!("{prefix}{name}")), "gte");
    }
    let original = gte("", "").load(STRICT).unwrap();
    for (base, heads) in [("gte.", ""), ("new.", ""), ("new.", "new."), ("new.gte.", "new.")] {
        assert_meaning(&gte(base, heads).load(STRICT).unwrap(), &original);
    }
    let mut partial = Draft::of("gte").renamed(|name| format!("new.{name}"));
    partial.tensors.remove("new.embeddings.word_embeddings.weight");
    assert_says(&partial.error(LENIENT), &["tensor `new.embeddings.word_embeddings.weight` is missing"]);
}

/// The golden of GTE with the configuration of its authors' code.
fn new() -> Draft {
    Draft::of("gte")
        .without("rope_parameters")
        .with("model_type", json!("new"))
        .with("architectures", json!(["NewModel"]))
        .with("rope_theta", json!(160_000))
        .with("rope_scaling", Value::Null)
        .with("layer_norm_type", json!("layer_norm"))
        .with("logn_attention_clip1", json!(false))
        .with("logn_attention_scale", json!(false))
        .with("pack_qkv", json!(true))
        .with("position_embedding_type", json!("rope"))
        .with("unpad_inputs", json!("true"))
        .with("use_memory_efficient_attention", json!("true"))
        .renamed(|name| format!("new.{name}"))
}

#[test]
fn the_type_new_is_gte() {
    assert_same(&new(), "gte");
    let coded = new().with("auto_map", json!({"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"}));
    let model = coded.load(LENIENT).unwrap();
    assert_eq!((model.architecture, model.warnings.len()), ("new", 1));
    assert_says(&model.warnings[0], &["the stock `new`"]);
    for (key, value) in [
        ("rope_scaling", json!({"type": "ntk", "factor": 2.0})),
        ("layer_norm_type", json!("rms_norm")),
        ("logn_attention_scale", json!(true)),
        ("pack_qkv", json!(false)),
        ("position_embedding_type", json!("absolute")),
    ] {
        assert_says(&new().with(key, value).error(LENIENT), &[key, "support"]);
    }
    assert_says(&new().without("rope_theta").error(LENIENT), &["`rope_theta` is missing"]);
}

/// The golden of NomicBERT with the configuration of its authors' code.
fn nomic() -> Draft {
    let pairs = [
        ("n_embd", "hidden_size"),
        ("n_head", "num_attention_heads"),
        ("n_inner", "intermediate_size"),
        ("n_layer", "num_hidden_layers"),
        ("n_positions", "max_position_embeddings"),
        ("layer_norm_epsilon", "layer_norm_eps"),
    ];
    let renamed = pairs.into_iter().fold(Draft::of("nomic-bert"), |draft, (older, key)| {
        let value = draft.config[key].clone();
        draft.without(key).with(older, value)
    });
    ["hidden_act", "head_dim", "rope_parameters", "pad_token_id"]
        .into_iter()
        .fold(renamed, Draft::without)
        .with("activation_function", json!("swiglu"))
        .with("rotary_emb_base", json!(1000))
        .with("rotary_emb_fraction", json!(1.0))
        .with("rotary_scaling_factor", Value::Null)
        .with("rotary_emb_scale_base", Value::Null)
        .with("scale_attn_weights", json!(true))
        .with("mlp_fc1_bias", json!(false))
        .with("prenorm", json!(false))
        .with("fused_bias_fc", json!(true))
        .with("use_flash_attn", json!(true))
        .with("summary_type", json!("cls_index"))
}

#[test]
fn older_keys_and_names_of_nomic_bert() {
    assert_same(&nomic(), "nomic-bert");
    assert_eq!(nomic().with("n_positions", json!(24)).load(STRICT).unwrap().max_positions, Some(24));
    let base = weight(&nomic().with("rotary_emb_base", json!(64.0)), "rotary_emb.inv_freq").unwrap();
    assert!((base[3] - 0.125).abs() < 1e-7, "{base:?}");
    for (name, activation) in [("swiglu", "= silu("), ("geglu", "= gelu(")] {
        let model = nomic().with("activation_function", json!(name)).load(STRICT).unwrap();
        assert_eq!(text(&model, "model").matches(activation).count(), 2, "{name}");
    }
    for name in ["gelu", "glu"] {
        let message = nomic().with("activation_function", json!(name)).error(LENIENT);
        assert_says(&message, &["`activation_function` is", "\"swiglu\" or \"geglu\"", "has a gate"]);
    }
    assert_says(&nomic().with("hidden_act", json!("gelu")).error(LENIENT), &["\"swiglu\"", "`hidden_act` is \"gelu\""]);
    for (key, value) in [
        ("prenorm", json!(true)),
        ("causal", json!(true)),
        ("parallel_block", json!(true)),
        ("use_rms_norm", json!(true)),
        ("qkv_proj_bias", json!(true)),
        ("mlp_fc1_bias", json!(true)),
        ("mlp_fc2_bias", json!(true)),
        ("rotary_emb_interleaved", json!(true)),
        ("rotary_emb_fraction", json!(0.5)),
        ("rotary_emb_fraction", json!(0)),
        ("rotary_scaling_factor", json!(2)),
        ("scale_attn_weights", json!(false)),
    ] {
        assert_refused("nomic-bert", key, value, &["support"]);
    }
    assert_says(&nomic().with("n_embd", json!("48")).error(LENIENT), &["`n_embd` is \"48\", expected an integer"]);
    assert_says(&nomic().with("n_embd", json!(50)).error(LENIENT), &["n_embd = 50"]);
    // Both names may be there, with one value.
    assert_same(&nomic().with("hidden_size", json!(48)).with("layer_norm_eps", json!(1e-12)), "nomic-bert");
    let parts = ["`n_embd` is 48, but `hidden_size` is 64", "both name the same setting"];
    assert_says(&nomic().with("hidden_size", json!(64)).error(LENIENT), &parts);

    let modules: &[(&str, &[usize])] =
        &[("cls.predictions.transform.dense", &[48, 48]), ("cls.predictions.transform.layer_norm", &[48])];
    let masked = |base: &str| -> Loaded {
        let draft = with_modules(Draft::of("nomic-bert").renamed(|name| format!("{base}{name}")), modules);
        draft.tensor("cls.predictions.decoder.bias", Stored::ramp(&[131])).load(task(Task::FillMask)).unwrap()
    };
    assert_same(&Draft::of("nomic-bert").renamed(|name| format!("bert.{name}")), "nomic-bert");
    for base in ["bert.", "nomic_bert."] {
        assert_meaning(&masked(base), &masked(""));
    }
}

#[test]
fn the_pooling_of_eurobert_has_an_older_name() {
    let modules: &[(&str, &[usize])] = &[("dense", &[64, 64]), ("classifier", &[2, 64])];
    let classifier = |draft: Draft| with_modules(draft, modules);
    let of = || task(Task::TextClassification);
    for pooling in ["bos", "mean", "late"] {
        let newer = classifier(Draft::of("eurobert").with("classifier_pooling", json!(pooling)));
        let older = Draft::of("eurobert").without("classifier_pooling").with("clf_pooling", json!(pooling));
        assert_meaning(&classifier(older).load(of()).unwrap(), &newer.load(of()).unwrap());
    }
    let both = classifier(Draft::of("eurobert").with("clf_pooling", json!("mean")));
    assert_says(&both.error(of()), &["`clf_pooling` is \"mean\", but `classifier_pooling` is \"late\""]);
    let other = classifier(Draft::of("eurobert").without("classifier_pooling").with("clf_pooling", json!("max")));
    assert_says(&other.error(of()), &["\"max\", expected \"bos\", \"mean\" or \"late\""]);
    // Other tasks have no pooling.
    assert_same(&Draft::of("eurobert").with("classifier_pooling", json!("max")), "eurobert");
}

#[test]
fn gpt_oss_has_yarn_by_default() {
    let yarn = json!({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
                      "original_max_position_embeddings": 4096, "rope_theta": 150_000.0});
    let expected = Draft::of("gpt-oss").with("rope_parameters", yarn).load(STRICT).unwrap();
    let none = Draft::of("gpt-oss").without("rope_parameters");
    assert_eq!(expected.max_positions, Some(131_072));
    for draft in [none.with("rope_parameters", Value::Null), Draft::of("gpt-oss").without("rope_parameters")] {
        let model = draft.load(STRICT).unwrap();
        assert_meaning(&model, &expected);
        assert_eq!(model.max_positions, expected.max_positions);
    }
    let null = || Draft::of("gpt-oss").without("rope_parameters").with("rope_scaling", Value::Null);
    let message = null().error(LENIENT);
    assert_says(&message, &["`rope_scaling` is null", "transformers 4", "plain", "transformers 5", "\"yarn\"", "32"]);
    assert_says(&null().without("transformers_version").error(LENIENT), &["`rope_scaling` is null"]);
    let plain = null().with("rope_theta", json!(10_000)).with("transformers_version", json!("4.57.6"));
    assert_same(&plain, "gpt-oss");
}

#[test]
fn keys_that_say_nothing_of_the_graph() {
    let of = Draft::of("gpt-oss").config["num_local_experts"].clone();
    assert_same(&Draft::of("gpt-oss").without("num_local_experts").with("num_experts", of), "gpt-oss");
    let message = Draft::of("gpt-oss").with("num_experts", json!(7)).error(LENIENT);
    assert_says(&message, &["`num_experts` is 7, but `num_local_experts` is 4"]);
    for (name, key) in [
        ("deberta", "cls_dropout"),
        ("deberta-v2", "cls_dropout"),
        ("rembert", "embedding_size"),
        ("rembert", "embedding_dropout_prob"),
    ] {
        assert_same(&Draft::of(name).with(key, json!(3)), name);
    }
    // ERNIE reads how many tasks there are where it has an embedding of them.
    let ernie = |uses: bool| {
        Draft::of("bert")
            .with("model_type", json!("ernie"))
            .with("task_type_vocab_size", json!(0))
            .with("use_task_id", json!(uses))
    };
    assert_meaning(&ernie(false).load(STRICT).unwrap(), &load_path(&golden("bert"), STRICT).unwrap());
    assert_says(&ernie(true).error(LENIENT), &["`task_type_vocab_size` is 0"]);
}
