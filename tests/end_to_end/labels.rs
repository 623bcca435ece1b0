//! Evaluation with labels: against labels that follow from what the interpreter computes.

use std::fs;
use std::path::{Path, PathBuf};

use planish::artifact::evaluation::{Evaluation, LabelFigure, LabelMetric};
use serde_json::{Value, json};

use crate::evaluate::{IDS, LINES, assert_near, dot, evaluated, graph, interpreted, interpreted_pair, run};
use crate::support::{Draft, planish_compile, scratch, write_tokenizer};

/// A model in a folder, compiled, with records as data.
struct Prepared {
    model: PathBuf,
    out: PathBuf,
    data: PathBuf,
}

fn prepared(draft: &Draft, more: &[&str], folder: &Path) -> Prepared {
    let model = draft.write(folder.join("source"));
    write_tokenizer(&model, 131);
    let out = folder.join("out");
    planish_compile(&model, &out, more).exits(0, &[]);
    Prepared { model, out, data: folder.join("data.jsonl") }
}

impl Prepared {
    fn evaluated(&self, records: &[Value], more: &[&str]) -> Evaluation {
        self.write(records);
        evaluated(&self.out, &self.data, more)
    }

    fn write(&self, records: &[Value]) {
        let lines: Vec<String> = records.iter().map(|record| format!("{record}\n")).collect();
        fs::write(&self.data, lines.concat()).unwrap();
    }
}

/// A figure, of which both sides have the same.
#[track_caller]
fn figure(report: &Evaluation, metric: LabelMetric) -> LabelFigure {
    let found = report.labels.iter().find(|of| of.metric == metric).unwrap_or_else(|| panic!("{report}"));
    assert_near(found.artifact, found.reference, 1e-6);
    *found
}

fn top(row: &[f64]) -> usize {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()
}

/// A golden with one label instead of three.
pub(crate) fn scoring() -> Draft {
    let mut draft = Draft::of("bert-classify");
    draft.config["id2label"] = json!({"0": "LABEL_0"});
    draft.config["label2id"] = json!({"LABEL_0": 0});
    for name in ["classifier.weight", "classifier.bias"] {
        let tensor = draft.tensors.get_mut(name).unwrap();
        let bytes = tensor.bytes.len() / tensor.shape[0];
        tensor.shape[0] = 1;
        tensor.bytes.truncate(bytes);
    }
    draft
}

#[test]
fn classes_are_counted_by_name_and_by_number() {
    let folder = scratch();
    let prepared = prepared(&Draft::of("bert-classify"), &[], folder.path());
    let exact = graph(&prepared.model);
    let classes: Vec<usize> = IDS.iter().map(|ids| top(&interpreted(&exact, ids, "logits")[0])).collect();
    // The last one of the labels is another one.
    let labels = [classes[0], classes[1], classes[2], (classes[3] + 1) % 3];
    let texts = LINES.lines().zip(labels);
    let named: Vec<Value> =
        texts.clone().map(|(text, label)| json!({"text": text, "label": format!("LABEL_{label}")})).collect();
    let numbered: Vec<Value> = texts.map(|(text, label)| json!({"text": text, "label": label})).collect();
    for records in [&named, &numbered] {
        let report = prepared.evaluated(records, &["--label", "label"]);
        let accuracy = figure(&report, LabelMetric::Accuracy);
        assert_eq!((accuracy.artifact, accuracy.count), (75.0, 4));
        let interval = accuracy.interval.unwrap();
        // statsmodels.stats.proportion.proportion_confint(3, 4, method="wilson")
        assert_near(interval.low, 30.064184258240136, 1e-9);
        assert_near(interval.high, 95.44127391902995, 1e-9);
        assert!(figure(&report, LabelMetric::MacroF1).artifact < 100.0);
    }
    let done = run(&prepared.out, &prepared.data, &["--label", "label", "--require", "accuracy=75,f1=1"]).exits(0, &[]);
    assert!(done.stdout.contains("| accuracy ") && done.stdout.contains("| 75.00 % "), "{}", done.stdout);
    run(&prepared.out, &prepared.data, &["--label", "label", "--require", "accuracy=80"])
        .exits(3, &["accuracy is 75.000000, at least 80 required"]);
    run(&prepared.out, &prepared.data, &["--require", "accuracy=80"]).exits(2, &["this evaluation has no `accuracy`"]);
    run(&prepared.out, &prepared.data, &["--label", "class"])
        .exits(1, &["there is no `class`, but `text`, `label`; --field names the member with the text, and --label that with the label"]);
    prepared.write(&[json!({"text": "w5", "label": "good"})]);
    run(&prepared.out, &prepared.data, &["--label", "label"])
        .exits(1, &["the label `good` is no class of the model, which are 0 to 2, or LABEL_0, LABEL_1, LABEL_2"]);
}

#[test]
fn both_texts_of_a_pair_are_read_at_once() {
    let folder = scratch();
    let prepared = prepared(&Draft::of("bert-classify"), &[], folder.path());
    let exact = graph(&prepared.model);
    let pairs = [[0, 1], [1, 2], [2, 3], [3, 0]];
    let record = |[first, second]: [usize; 2]| {
        // Without the token that a single text begins with: the template of pairs has none.
        let (first_ids, second_ids) = (&IDS[first][1..], &IDS[second][1..]);
        let ids = [first_ids, second_ids].concat();
        let label = top(&interpreted_pair(&exact, &ids, first_ids.len(), "logits")[0]);
        let lines: Vec<&str> = LINES.lines().collect();
        json!({"a": lines[first], "b": lines[second], "label": label})
    };
    let report = prepared.evaluated(&pairs.map(record), &["--field", "a,b", "--label", "label"]);
    assert_eq!(figure(&report, LabelMetric::Accuracy).artifact, 100.0);
    assert_eq!((report.samples, report.tokens), (4, Some(36)));
    assert!(report.outputs.iter().all(|of| of.relative_error < 1e-4), "{report}");
    for (fields, message) in [("a,b,c", "--field: `a,b,c` is not"), ("a,a", "`a` is named twice")] {
        run(&prepared.out, &prepared.data, &["--field", fields, "--label", "label"]).exits(1, &[message]);
    }
}

#[test]
fn similarities_of_embeddings_are_ranked_as_the_labels() {
    let folder = scratch();
    let prepared = prepared(&Draft::of("bert"), &[], folder.path());
    let exact = graph(&prepared.model);
    let embedding = |ids: &[i64]| -> Vec<f64> {
        let rows = interpreted(&exact, ids, "last_hidden_state");
        (0..rows[0].len()).map(|at| rows.iter().map(|row| row[at]).sum::<f64>() / rows.len() as f64).collect()
    };
    let lines: Vec<&str> = LINES.lines().collect();
    let pairs = [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]];
    let cosine = |[one, other]: [usize; 2]| {
        let (one, other) = (embedding(IDS[one]), embedding(IDS[other]));
        dot(&one, &other) / (dot(&one, &one) * dot(&other, &other)).sqrt()
    };
    let record = |pair: [usize; 2]| json!({"a": lines[pair[0]], "b": lines[pair[1]], "score": cosine(pair)});
    let more = ["--field", "a,b", "--label", "score", "--batch", "3"];
    let report = prepared.evaluated(&pairs.map(record), &more);
    let found = figure(&report, LabelMetric::Spearman);
    assert_near(found.artifact, 1.0, 1e-9);
    assert_eq!((found.count, report.samples, report.read.unwrap().texts), (5, 5, 5));
    let reversed = |pair: [usize; 2]| json!({"a": lines[pair[0]], "b": lines[pair[1]], "score": -cosine(pair)});
    let report = prepared.evaluated(&pairs.map(reversed), &more);
    assert_near(figure(&report, LabelMetric::Spearman).artifact, -1.0, 1e-9);
}

#[test]
fn a_single_logit_is_compared_by_values_and_ranks() {
    let folder = scratch();
    let prepared = prepared(&scoring(), &["--target", "onnx", "--bf16"], folder.path());
    let lines: Vec<&str> = LINES.lines().collect();
    let records: Vec<Value> = lines.iter().map(|line| json!({"text": line})).collect();
    let report = prepared.evaluated(&records, &[]);
    let scores = report.scores.unwrap();
    assert!(scores.count == 4 && scores.mean_difference > 0.0, "{scores:?}");
    assert!(scores.largest_difference >= scores.mean_difference && scores.deviation > 0.0, "{scores:?}");
    assert!(report.predictions.is_none() && report.labels.is_empty());
    let done = run(&prepared.out, &prepared.data, &["--require", "ranks=0.1"]).exits(0, &[]);
    assert!(done.stdout.contains("scores: 4 of them, difference "), "{}", done.stdout);

    // A query and its documents: the relevance follows the scores, or is against them.
    let exact = graph(&prepared.model);
    let score = |other: usize| {
        let ids = [&IDS[0][1..], &IDS[other][1..]].concat();
        interpreted_pair(&exact, &ids, IDS[0].len() - 1, "logits")[0][0]
    };
    let mut order = [1, 2, 3];
    order.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
    let documents = order.map(|at| lines[at]);
    let flat = |relevance: [i64; 3]| {
        let record = |(document, relevance)| json!({"q": lines[0], "d": document, "r": relevance});
        documents.iter().zip(relevance).map(record).collect::<Vec<Value>>()
    };
    let more = ["--field", "q,d", "--label", "r"];
    for (relevance, ndcg, rank) in [([2, 1, 0], 1.0, 1.0), ([0, 0, 1], 0.5, 1.0 / 3.0)] {
        let listed = [json!({"q": lines[0], "d": documents, "r": relevance})];
        for records in [&listed[..], &flat(relevance)] {
            let report = prepared.evaluated(records, &more);
            let found = report.labels.iter().find(|of| of.metric == LabelMetric::Ndcg10).unwrap();
            assert_near(found.reference, ndcg, 1e-9);
            assert_eq!(found.count, 1);
            let found = report.labels.iter().find(|of| of.metric == LabelMetric::Mrr10).unwrap();
            assert_near(found.reference, rank, 1e-9);
        }
    }
    // With other queries for each document the scores are compared with the labels.
    let own: Vec<Value> = lines.iter().enumerate().map(|(at, line)| json!({"q": line, "d": "w9", "r": at})).collect();
    let report = prepared.evaluated(&own, &more);
    assert_eq!(report.labels.iter().map(|of| of.metric).collect::<Vec<_>>(), [LabelMetric::Spearman]);
    prepared.write(&[json!({"text": "w5", "label": "good"})]);
    run(&prepared.out, &prepared.data, &["--label", "label"]).exits(1, &["the label `good` is not a number"]);
}

#[test]
fn words_have_labels_of_their_own() {
    let folder = scratch();
    let mut draft = Draft::of("bert-classify");
    draft.config["architectures"] = json!(["BertForTokenClassification"]);
    draft.config["id2label"] = json!({"0": "O", "1": "B-X", "2": "I-X"});
    draft.config["label2id"] = json!({"O": 0, "B-X": 1, "I-X": 2});
    draft.tensors.retain(|name, _| !name.contains("pooler"));
    let prepared = prepared(&draft, &[], folder.path());
    let exact = graph(&prepared.model);
    let names = ["O", "B-X", "I-X"];
    let mut wrong = 0;
    let mut record = |(line, ids): (&str, &&[i64])| {
        // The first row is of the token that a text begins with.
        let mut tags: Vec<&str> = interpreted(&exact, ids, "logits")[1..].iter().map(|row| names[top(row)]).collect();
        if wrong == 0 {
            tags[0] = names[(names.iter().position(|name| *name == tags[0]).unwrap() + 1) % 3];
            wrong += 1;
        }
        json!({"tokens": line.split(' ').collect::<Vec<_>>(), "tags": tags})
    };
    let records: Vec<Value> = LINES.lines().zip(&IDS).map(&mut record).collect();
    let more = ["--field", "tokens", "--label", "tags"];
    let report = prepared.evaluated(&records, &more);
    let accuracy = figure(&report, LabelMetric::Accuracy);
    assert_eq!(accuracy.count, 18);
    assert_near(accuracy.artifact, 100.0 * 17.0 / 18.0, 1e-9);
    assert!(figure(&report, LabelMetric::EntityF1).artifact < 100.0);
    let done = run(&prepared.out, &prepared.data, &more).exits(0, &[]);
    assert!(done.stdout.contains("| F1 of entities "), "{}", done.stdout);
    run(&prepared.out, &prepared.data, &[&more[..2], &["--documents"]].concat())
        .exits(1, &["--documents is for texts, and not for pairs or words"]);
    run(&prepared.out, &prepared.data, &[&more[..], &["--documents"]].concat())
        .exits(2, &["'--label <NAME>' cannot be used with '--documents'"]);
}

/// Labels of which a text may have several are compared one by one, at a sigmoid of 0.5.
#[test]
fn a_text_may_have_several_labels() {
    let folder = scratch();
    let mut draft = Draft::of("bert-classify");
    draft.config["problem_type"] = json!("multi_label_classification");
    let prepared = prepared(&draft, &[], folder.path());
    let records: Vec<Value> = LINES.lines().map(|line| json!({"text": line, "label": 1})).collect();
    let report = prepared.evaluated(&records, &[]);
    let predictions = report.predictions.unwrap();
    assert_eq!((predictions.count, predictions.top1_agreement), (records.len() as u64, 100.0));
    assert!(predictions.mean_divergence.abs() < 1e-6);
    run(&prepared.out, &prepared.data, &["--label", "label"])
        .exits(1, &["--label is for one label of each text", "`problem_type`", "multi_label_classification"]);
}

#[test]
fn labels_are_for_models_that_have_them() {
    let folder = scratch();
    let model = Draft::of("gpt2").write(folder.path().join("source"));
    write_tokenizer(&model, 137);
    let out = folder.path().join("out");
    planish_compile(&model, &out, &[]).exits(0, &[]);
    let data = folder.path().join("data.jsonl");
    fs::write(&data, json!({"text": "w5 w7", "label": 1}).to_string()).unwrap();
    run(&out, &data, &["--label", "label"]).exits(1, &["--label is for classification, for embeddings"]);
    let lines = folder.path().join("lines.txt");
    fs::write(&lines, LINES).unwrap();
    run(&out, &lines, &["--label", "label"]).exits(1, &["--label is for .jsonl, .csv and .parquet files"]);
}
