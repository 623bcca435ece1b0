//! What passes report reaches who runs a pipeline.

use planish_ir::text::{no_files, parse};
use planish_passes::pad::VocabularyPadding;
use planish_passes::{Half, HalfPrecision, Logits, Note, ONNX, Options, Padding, Pipeline, Stage, last_notes};

const GRAPH: &str = "graph \"g\" {
    input %input_ids: i64[b, s]
    input %q: f32[b, s, 6]
    weight @table = uniform(1) : f32[6, 4]
    weight @up = uniform(2) : f32[6, 4]
    weight @down = uniform(3) : f32[4, 6]
    %x = embedding(@table, %input_ids) : f32[b, s, 4]
    %u = linear(%x, @up) : f32[b, s, 6]
    %r = relu(%u) : f32[b, s, 6]
    %d = linear(%r, @down) : f32[b, s, 4]
    %y = linear(%d, @table) : f32[b, s, 6]
    %w = softmax(%q) : f32[b, s, 6]
    output logits = %y
    output probabilities = %w
}";

fn stages(explain: bool) -> Vec<Stage> {
    let mut graph = parse(GRAPH, &no_files).unwrap();
    let padding = Padding { vocabulary: Some(8), features: Some(8), ..Padding::default() };
    let precision = Some(HalfPrecision::new(Half::F16).into());
    let options = Options { explain, padding, precision, ..Options::new(&ONNX, 20) };
    Pipeline::new(options).run(&mut graph, &mut |_, _| {}).unwrap()
}

#[test]
fn a_pipeline_hands_out_what_its_passes_report() {
    let stages = stages(true);
    let notes: Vec<&Note> = last_notes(&stages).collect();
    let [Note::Missed(miss), Note::Halved(report), Note::Vocabulary(vocabulary), Note::Features(features)] = notes[..]
    else {
        panic!("{notes:?}")
    };
    assert_eq!((miss.rule, &*miss.at), ("attention", "w"));
    assert_eq!((report.half, report.part.bytes), (Half::F16, 1.0));
    assert_eq!(*vocabulary, VocabularyPadding { size: 6, padded: 8, logits: Some(Logits::Sliced) });
    assert_eq!((&*features.at, features.size, features.padded, features.given), ("d", 6, 8, false));
}

#[test]
fn misses_are_reported_when_an_explanation_is_asked_for() {
    let missed = |stage: &Stage| stage.notes.iter().any(|note| matches!(note, Note::Missed(_)));
    assert!(!stages(false).iter().any(missed));
    assert!(stages(true).iter().any(missed));
}
