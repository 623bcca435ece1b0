//! Tests of recommendations.

use planish_artifact::evaluation::{Embeddings, Pooling};
use planish_artifact::manifest::File;
use planish_artifact::split::Split;

use super::super::document::ModelId;
use super::super::document::examples::cell;
use super::*;

fn of(id: &str, precision: &str, ms: u64, bytes: u64, neighbours: Option<f64>) -> Cell {
    let evaluation = neighbours.map(|kept| Evaluation {
        data: File { name: "texts.txt".to_owned(), bytes: 1, blake3: None },
        split: Split::HeldOut,
        samples: 200,
        tokens: None,
        runtime: "ort".to_owned(),
        embeddings: Some(Embeddings {
            pooling: Pooling::Mean,
            mean_cosine: 0.995,
            mean_cosine_ci95: None,
            least_cosine: 0.99,
            neighbours_kept: Some(kept),
            neighbours_kept_ci95: Some([kept - 3.0, kept + 1.0]),
            count: 200,
        }),
        predictions: None,
        perplexity: None,
        read: None,
        labels: Vec::new(),
        scores: None,
        outputs: Vec::new(),
    });
    let model = ModelId { id: id.to_owned(), file_bytes: Some(bytes * 1_000_000) };
    Cell { model, precision: precision.to_owned(), evaluation, ..cell(id, 8, Some(ms)) }
}

fn one(cells: &[Cell], limits: Option<&str>) -> Recommendation {
    let limits = limits.map(|limits| limits.parse().unwrap());
    let command = |id: &str| Some(format!("planish compile {id}"));
    let mut all = recommend(cells, limits.as_ref(), command);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn four() -> [Cell; 4] {
    [
        of("base", "f32", 100, 90, Some(100.0)),
        of("int8", "int8", 30, 58, Some(98.3)),
        of("coarse", "int4", 20, 20, Some(60.0)),
        of("small", "int8-weights", 30, 26, Some(97.0)),
    ]
}

#[test]
fn the_fastest_within_limits_is_chosen_and_the_smallest_of_ties() {
    let text = one(&four(), None).to_string();
    let expected =
        "choose small: 3.33x as fast as base, 97.0 % of neighbours kept (95% 94.0 to 98.0 %; 200 samples), 26.0 MB
  the rule: the fastest within cos=0.99,neighbours=90 (--max-loss); the smallest of those as fast within the intervals
  as fast within the intervals, and not smaller: int8
  faster, and left out: coarse (5.00x): neighbours is 60.000000, at least 90 required
  planish compile small";
    assert_eq!(text, expected);
    let choice = |limits| one(&four(), limits).choice.map(|of| of.id);
    assert_eq!(choice(Some("neighbours=50")).as_deref(), Some("coarse"));
    assert_eq!(choice(Some("neighbours=98")).as_deref(), Some("int8"));
    assert_eq!(choice(Some("neighbours=99")).as_deref(), Some("base"));
    let none = one(&four(), Some("cos=0.999"));
    assert!(none.choice.is_none() && none.refused.len() == 4);
    assert!(none.to_string().starts_with("choose none: no contestant is within cos=0.999"), "{none}");
    // A limit of a figure that the model does not have is reached by none.
    assert!(one(&four(), Some("top1=99")).to_string().contains("this evaluation has no `top1`"));
}

#[test]
fn without_data_quantized_forms_are_not_chosen() {
    let cells = [of("base", "f32", 100, 90, None), of("half", "fp16", 90, 45, None), of("int8", "int8", 30, 58, None)];
    let all = one(&cells, None);
    assert_eq!((all.choice.as_ref().unwrap().id.as_str(), &all.limits), ("half", &None));
    assert!(all.to_string().contains("faster, and left out: int8 (3.33x): its accuracy on data is not known"), "{all}");
}

#[test]
fn without_an_interval_the_fastest_is_chosen() {
    let short = |id: &str, ms: u64, bytes: u64| {
        let mut cell = of(id, "f32", ms, bytes, None);
        cell.samples_ns.truncate(3);
        cell.visits = vec![1; 3];
        cell
    };
    let all = one(&[short("base", 10, 90), short("small", 100, 45)], None);
    let choice = all.choice.unwrap();
    assert_eq!((choice.id.as_str(), choice.ties.len()), ("base", 0));
}

#[test]
fn runtimes_of_one_artifact_are_told_apart() {
    let on = |backend: &str, ms: u64| Cell { backend: backend.to_owned(), ..of("a", "f32", ms, 90, None) };
    let all = one(&[on("reference", 100), on("ort", 10)], None);
    assert!(all.to_string().starts_with("choose a (ort): 10.00x as fast as a (reference)"), "{all}");
    assert_eq!(one(&[on("ort", 10), on("reference", 100)], None).choice.unwrap().backend, "ort");
}

#[test]
fn what_failed_or_stands_alone_is_not_chosen() {
    let failed = Cell { status: Status::Failed, ..of("wrong", "f32", 1, 1, Some(100.0)) };
    let cells = [of("base", "f32", 100, 90, Some(100.0)), of("half", "fp16", 50, 45, Some(100.0)), failed.clone()];
    assert_eq!(one(&cells, None).choice.unwrap().id, "half");
    assert!(recommend(&cells[..1], None, |_| None).is_empty());
    assert!(recommend(&[cells[0].clone(), failed], None, |_| None).is_empty());
}
