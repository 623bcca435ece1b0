use super::*;
use crate::bench::document::examples::{cell, document};

/// The same without samples and with so wide an interval.
fn known_only(of: Cell, ci95: Option<[f64; 2]>) -> Cell {
    let latency_ms = of.latency_ms.clone().map(|latency| super::super::Latency { ci95, ..latency });
    Cell { samples_ns: Vec::new(), latency_ms, ..of }
}

fn verdicts(diff: &Diff) -> Vec<(&str, Verdict)> {
    diff.cells.iter().map(|of| (of.id.model.as_str(), of.verdict)).collect()
}

#[test]
fn cells_are_compared_by_their_intervals() {
    let a = document(vec![
        cell("same", 8, Some(100)),
        cell("slower", 8, Some(100)),
        cell("faster", 8, Some(100)),
        cell("slower-without-samples", 8, Some(100)),
        cell("uncertain", 8, Some(100)),
        cell("few", 8, Some(100)),
        cell("broken", 8, Some(100)),
        cell("never", 8, None),
        cell("gone", 8, Some(100)),
    ]);
    let b = document(vec![
        cell("new", 8, Some(1)),
        cell("slower", 8, Some(110)),
        cell("same", 8, Some(101)),
        cell("faster", 8, Some(50)),
        known_only(cell("slower-without-samples", 8, Some(110)), Some([109.0, 111.0])),
        known_only(cell("uncertain", 8, Some(110)), Some([90.0, 130.0])),
        known_only(cell("few", 8, Some(300)), None),
        cell("broken", 8, None),
        cell("never", 8, Some(1)),
    ]);
    let diff = Diff::of(("a.json", &a), ("b.json", &b), 0.02);
    let expected = [
        ("same", Verdict::Same),
        ("slower", Verdict::Slower),
        ("faster", Verdict::Faster),
        ("slower-without-samples", Verdict::Slower),
        ("uncertain", Verdict::Same),
        ("few", Verdict::Unknown),
        ("broken", Verdict::Broken),
        ("never", Verdict::NotMeasured),
    ];
    assert_eq!(verdicts(&diff), expected);
    let names = |of: &[CellId]| of.iter().map(|id| id.model.clone()).collect::<Vec<_>>();
    assert_eq!((names(&diff.only_a), names(&diff.only_b)), (vec!["gone".to_owned()], vec!["new".to_owned()]));
    let regressions = diff.regressions();
    assert_eq!(regressions.len(), 3, "{regressions:?}");
    assert!(regressions[0].starts_with("slower (ort, f32), batch 2 × 8 tokens: 110 ms, 100 ms before; +10.0 % (95%"));
    assert_eq!(regressions[2], "broken (ort, f32), batch 2 × 8 tokens: it has no speed: y: not finite");
    let text = diff.to_string();
    for expected in [
        "only in a.json: gone (ort, f32), batch 2 × 8 tokens\nonly in b.json: new (ort, f32), batch 2 × 8 tokens\n",
        "8 cells in both; beyond 2 % and significant: 2 slower, 1 faster; 1 failed now and not before; 1 with too few",
        "| few                    | ort     | f32  | batch 2 × 8 tokens |       100 |      300 | +200.0 % |",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(diff.warnings.is_empty(), "{:?}", diff.warnings);
}

#[test]
fn a_change_within_the_threshold_is_none() {
    let of = |ms| document(vec![cell("a", 8, Some(ms))]);
    let verdict = |threshold| Diff::of(("a", &of(100)), ("b", &of(110)), threshold).cells[0].verdict;
    assert_eq!((verdict(0.05), verdict(0.099), verdict(0.101)), (Verdict::Slower, Verdict::Slower, Verdict::Same));
    let verdict = |threshold| Diff::of(("a", &of(110)), ("b", &of(100)), threshold).cells[0].verdict;
    assert_eq!((verdict(0.05), verdict(0.101)), (Verdict::Faster, Verdict::Same));
}

#[test]
fn other_machines_and_conditions_are_said() {
    let (a, mut b) = (document(vec![cell("x", 8, Some(1))]), document(vec![cell("x", 8, Some(1))]));
    b.env.cpu.model = "Another".to_owned();
    b.env.cpu.governor = Some("powersave".to_owned());
    b.env.runtimes.insert("onnxruntime".to_owned(), "1.32.0".to_owned());
    b.cells[0].options.threads = 4;
    let expected = [
        "the machines differ in the processor: a.json has A CPU, and b.json has Another",
        "the machines differ in the frequency governor: a.json has unknown, and b.json has powersave",
        "the versions of onnxruntime differ: a.json has 1.31.1, and b.json has 1.32.0",
        "x (ort, f32), batch 2 × 8 tokens: it had as many threads as the runtime chooses, and idle threads sleep before, \
         now it has 4 threads, and idle threads sleep",
    ];
    assert_eq!(Diff::of(("a.json", &a), ("b.json", &b), 0.02).warnings, expected);
}

#[test]
fn other_runs_of_a_model_are_other_cells() {
    let a = document(vec![cell("x", 8, Some(1))]);
    let mut b = document(vec![cell("x", 8, Some(1)), cell("x", 16, Some(1))]);
    b.cells[0].precision = "fp16".to_owned();
    let diff = Diff::of(("a", &a), ("b", &b), 0.02);
    assert_eq!((diff.cells.len(), diff.only_a.len(), diff.only_b.len()), (0, 1, 2));
    let json = serde_json::to_value(&diff).unwrap();
    assert_eq!(json["only_a"][0]["shape"]["seq"], 8);
    assert_eq!(json["schema"], DIFF_SCHEMA);
}
