//! What parts of a graph compute, by values within it.

use planish_eval::{Tensor, evaluate};
use planish_models::{LoadOptions, Task};
use serde_json::json;

use crate::support::{Draft, LENIENT, Stored, assert_says, task, text};

/// Values of a graph by their names, on one row of ids 3, 4, 5 ... without padding.
pub(crate) fn values(draft: &Draft, options: LoadOptions, tokens: usize, names: &[&str]) -> Vec<Tensor> {
    let mut graph = draft.load(options).unwrap().parts.remove(0).graph;
    for name in names {
        let value = graph.values().find(|(_, value)| value.name == *name).unwrap_or_else(|| panic!("{name}")).0;
        graph.add_output(&format!("value of {name}"), value);
    }
    let input = |value: &planish_ir::ValueId| {
        let (own, ty) = (graph.value(*value).name.as_str(), graph.ty(*value));
        let count = i64::try_from(tokens).unwrap();
        let ids: Vec<i64> = match own {
            "input_ids" => (3..3 + count).collect(),
            "attention_mask" => vec![1; tokens],
            "position_ids" => (0..count).collect(),
            "token_type_ids" => vec![0; tokens],
            _ => {
                let size = |at: usize| usize::try_from(ty.shape[at].as_constant().unwrap()).unwrap();
                return (own, Tensor::new(vec![1, size(1), 0, size(3)], Vec::<f32>::new()).unwrap());
            }
        };
        (own, Tensor::new(vec![1, tokens], ids).unwrap())
    };
    let inputs: Vec<(&str, Tensor)> = graph.inputs().iter().map(input).collect();
    let outputs = evaluate(&graph, &inputs).unwrap();
    let find = |name: &&str| outputs.iter().find(|(own, _)| *own == format!("value of {name}")).unwrap().1.clone();
    names.iter().map(find).collect()
}

fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    // The series of Maclaurin.
    let terms = (1..100).scan(x, |term, n| {
        *term *= -x * x / f64::from(n);
        Some(*term / f64::from(2 * n + 1))
    });
    2.0 / std::f64::consts::PI.sqrt() * (x + terms.sum::<f64>())
}

#[test]
fn activations_compute_what_their_names_say() {
    let soft = |x: f64| x.exp().ln_1p();
    let mean = 707_107.0 / 1e6;
    let tanh_gelu = |x: f64| x / 2.0 * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x.powi(3))).tanh());
    let gelu = |x: f64| x / 2.0 * (1.0 + erf(x / 2f64.sqrt()));
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    type Named<'a> = (&'a str, &'a dyn Fn(f64) -> f64);
    let functions: [Named<'_>; 16] = [
        ("gelu", &gelu),
        ("gelu_10", &|x| gelu(x).clamp(-10.0, 10.0)),
        ("gelu_fast", &tanh_gelu),
        ("gelu_pytorch_tanh", &tanh_gelu),
        ("hardswish", &|x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
        ("laplace", &|x| (1.0 + erf((x - mean) / (0.282_095 * 2f64.sqrt()))) / 2.0),
        ("leaky_relu", &|x| if x < 0.0 { 0.01 * x } else { x }),
        ("mish", &|x| x * soft(x).tanh()),
        ("quick_gelu", &|x| x * sigmoid(1.702 * x)),
        ("relu", &|x| x.max(0.0)),
        ("relu2", &|x| x.max(0.0).powi(2)),
        ("relu6", &|x| x.clamp(0.0, 6.0)),
        ("sigmoid", &sigmoid),
        ("sqrtsoftplus", &|x| soft(x).sqrt()),
        ("swish", &|x| x * sigmoid(x)),
        ("tanh", &f64::tanh),
    ];
    // A bias makes some operands large.
    let bias: Vec<u8> = (0..80).flat_map(|i| ((i as f32 - 40.0) / 3.0).to_le_bytes()).collect();
    for (name, function) in functions {
        let mut draft = Draft::of("bert").with("hidden_act", json!(name));
        draft.tensors.get_mut("encoder.layer.0.intermediate.dense.bias").unwrap().bytes.clone_from(&bias);
        let names = ["encoder.layer.0.intermediate.dense", "encoder.layer.0.activation"];
        let found = values(&draft, LENIENT, 3, &names);
        assert!(found[0].to_f64().iter().any(|x| *x < -10.0) && found[0].to_f64().iter().any(|x| *x > 10.0));
        for (x, y) in found[0].to_f64().into_iter().zip(found[1].to_f64()) {
            let expected = function(x);
            assert!((y - expected).abs() < 1e-5 * expected.abs().max(1.0), "{name}: {x} becomes {y}, not {expected}");
        }
    }
    let linear = Draft::of("bert").with("hidden_act", json!("linear")).load(LENIENT).unwrap();
    assert!(!linear.parts[0].graph.to_string().contains("encoder.layer.0.activation"));
    let message = Draft::of("bert").with("hidden_act", json!("xielu")).error(LENIENT);
    assert_says(&message, &["`hidden_act` is \"xielu\"", "quick_gelu"]);
}

/// Each head is normalized, and has a weight of its own.
#[test]
fn norms_with_a_weight_for_each_head() {
    let listed = |draft: Draft, of: &str, heads: usize| {
        (0..heads).fold(draft, |draft, head| {
            let weight = Stored::ramp(&[16]).scaled(head as f32 + 1.0);
            draft
                .tensor(&format!("model.layers.0.self_attn.{of}_layernorm.norms.{head}.weight"), weight.clone())
                .tensor(&format!("model.layers.1.self_attn.{of}_layernorm.norms.{head}.weight"), weight)
        })
    };
    let together = |draft: Draft, of: &str, heads: usize| {
        let rows = (0..heads).map(|head| Stored::ramp(&[16]).scaled(head as f32 + 1.0).bytes);
        let weight = Stored { bytes: rows.collect::<Vec<_>>().concat(), shape: vec![heads, 16], ..Stored::ramp(&[1]) };
        draft
            .tensor(&format!("model.layers.0.self_attn.{of}_norm.weight"), weight.clone())
            .tensor(&format!("model.layers.1.self_attn.{of}_norm.weight"), weight)
    };
    let stablelm = listed(listed(Draft::of("stablelm").with("qk_layernorm", json!(true)), "q", 4), "k", 2);
    let cohere = together(together(Draft::of("cohere").with("use_qk_norm", json!(true)), "q", 4), "k", 2);
    for (draft, norm) in [(stablelm, "layernorm"), (cohere, "norm")] {
        for of in ["q", "k"] {
            let module = |name: &str| format!("layers.0.self_attn.{of}_{name}");
            let (before, after) = (module("proj"), module(&format!("{norm}.merge")));
            let found = values(&draft, LENIENT, 4, &[&before, &after]);
            let (before, after) = (found[0].to_f64(), found[1].to_f64());
            let heads = before.len() / 4 / 16;
            for (at, (x, y)) in before.chunks(16).zip(after.chunks(16)).enumerate() {
                let mean = x.iter().sum::<f64>() / 16.0;
                let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 16.0;
                for (i, (x, y)) in x.iter().zip(y).enumerate() {
                    let weight = (i as f64 / 16.0 - 0.5) * (at % heads + 1) as f64;
                    let expected = (x - mean) / (variance + 1e-5).sqrt() * weight;
                    assert!((y - expected).abs() < 1e-4, "{norm} {of}: {y}, not {expected}");
                }
            }
        }
    }
}

/// Tokens see those after them, in layers with windows half a window.
#[test]
fn gemma_3_in_both_directions() {
    const KEY: &str = "use_bidirectional_attention";
    let attentions = |draft: &Draft| {
        let graph = text(&draft.load(task(Task::FeatureExtraction)).unwrap(), "model");
        graph.lines().filter(|line| line.contains("= attention(")).map(str::to_owned).collect::<Vec<_>>()
    };
    let [sliding, full] = <[String; 2]>::try_from(attentions(&Draft::of("gemma3").with(KEY, json!(true)))).unwrap();
    assert!(sliding.contains("window = 3") && !sliding.contains("causal = true"), "{sliding}");
    assert!(!full.contains("window") && !full.contains("causal = true"), "{full}");
    let [sliding, full] = <[String; 2]>::try_from(attentions(&Draft::of("gemma3"))).unwrap();
    assert!(sliding.contains("window = 4") && [&sliding, &full].iter().all(|line| line.contains("causal = true")));
    let message = Draft::of("gemma3").with(KEY, json!(true)).error(LENIENT);
    assert_says(
        &message,
        &["`use_bidirectional_attention` is true", "choose another task, such as feature-extraction"],
    );
}

#[test]
fn heads_of_eurobert() {
    let draft = |pooling: &str| {
        Draft::of("eurobert")
            .with("classifier_pooling", json!(pooling))
            .tensor("dense.weight", Stored::ramp(&[64, 64]))
            .tensor("dense.bias", Stored::ramp(&[64]))
            .tensor("classifier.weight", Stored::ramp(&[2, 64]))
            .tensor("classifier.bias", Stored::ramp(&[2]))
    };
    // Of one token all three are the same.
    let of = |pooling: &str, value: &str, tokens| {
        values(&draft(pooling), task(Task::TextClassification), tokens, &[value]).remove(0)
    };
    let [first, mean, late] = [("bos", "classifier"), ("mean", "classifier"), ("late", "classifier.mean")]
        .map(|(pooling, value)| [1, 3].map(|tokens| of(pooling, value, tokens)));
    for (a, b) in [(&first[0], &mean[0]), (&first[0], &late[0])] {
        assert_eq!(a.shape(), [1, 2]);
        assert!(a.to_f64().iter().zip(b.to_f64()).all(|(a, b)| (a - b).abs() < 1e-5));
    }
    let far = |a: &Tensor, b: &Tensor| a.to_f64().iter().zip(b.to_f64()).any(|(a, b)| (a - b).abs() > 1e-5);
    assert!(far(&first[1], &mean[1]) && far(&mean[1], &late[1]));
    assert_says(&draft("max").error(task(Task::TextClassification)), &["expected \"bos\", \"mean\" or \"late\""]);
    let graph = text(&draft("late").load(task(Task::TokenClassification)).unwrap(), "model");
    assert_says(&graph, &["f32[batch_size, sequence_length, 2]"]);
}
