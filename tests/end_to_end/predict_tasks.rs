//! Predictions of other tasks than embeddings: against what the interpreter computes of one text at a time.

use std::fs;

use serde_json::{Value, json};

use crate::evaluate::{IDS, LINES, assert_near, graph, interpreted, interpreted_pair};
use crate::labels::scoring;
use crate::predict::{compiled, lines, run, write};
use crate::support::{Done, Draft, scratch, word};

fn softmax(logits: &[f64]) -> Vec<f64> {
    let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
    logits.iter().map(|logit| logit.exp() / sum).collect()
}

fn top(row: &[f64]) -> usize {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()
}

#[test]
fn texts_have_labels_and_scores() {
    let folder = scratch();
    let (model, artifact) = compiled(&Draft::of("bert-classify"), folder.path());
    let exact = graph(&model);
    let records: Vec<Value> = LINES.lines().map(|line| json!({"name": line, "text": line})).collect();
    let data = write(folder.path(), &records);
    let found = lines(&run(&artifact, &data, &["--id", "name"]).exits(0, &[]));
    for ((ids, line), record) in IDS.iter().zip(&found).zip(&records) {
        let scores = softmax(&interpreted(&exact, ids, "logits")[0]);
        let label = format!("LABEL_{}", top(&scores));
        assert_eq!((&line["label"], &line["id"]), (&json!(label), &record["name"]));
        assert_near(line["score"].as_f64().unwrap(), scores[top(&scores)], 1e-4);
        for (class, score) in scores.iter().enumerate() {
            assert_near(line["scores"][format!("LABEL_{class}")].as_f64().unwrap(), *score, 1e-4);
        }
    }
    let mut config = Draft::of("bert-classify").config;
    config["problem_type"] = json!("multi_label_classification");
    fs::write(artifact.join("config.json"), config.to_string()).unwrap();
    for (ids, line) in IDS.iter().zip(lines(&run(&artifact, &data, &[]).exits(0, &[]))) {
        let scores: Vec<f64> = interpreted(&exact, ids, "logits")[0].iter().map(|v| 1.0 / (1.0 + (-v).exp())).collect();
        let likely = (0..3).filter(|class| scores[*class] > 0.5).map(|class| json!(format!("LABEL_{class}")));
        assert_eq!(line["labels"], json!(likely.collect::<Vec<_>>()));
        assert_near(line["score"].as_f64().unwrap(), scores[top(&scores)], 1e-4);
    }
}

#[test]
fn pairs_have_scores() {
    let folder = scratch();
    let draft = scoring();
    let (model, artifact) = compiled(&draft, folder.path());
    let exact = graph(&model);
    let texts: Vec<&str> = LINES.lines().collect();
    let logit = |query: usize, document: usize| {
        // The template of pairs has no token that a text begins with.
        let (query, document) = (&IDS[query][1..], &IDS[document][1..]);
        interpreted_pair(&exact, &[query, document].concat(), query.len(), "logits")[0][0]
    };
    let pair = |query: usize, document: usize| json!({"query": texts[query], "document": texts[document]});
    let data = write(folder.path(), &[pair(0, 1), pair(2, 3), pair(3, 0)]);
    let logits = [logit(0, 1), logit(2, 3), logit(3, 0)];
    let scores = |done: &Done| lines(done).iter().map(|line| line["score"].as_f64().unwrap()).collect::<Vec<_>>();
    let done = run(&artifact, &data, &[]).exits(0, &["pairs of texts are read from query,document"]);
    for (found, logit) in scores(&done).iter().zip(logits) {
        assert_near(*found, 1.0 / (1.0 + (-logit).exp()), 1e-4);
    }
    let activation = |class: &str| {
        let mut config = draft.config.clone();
        config["sentence_transformers"] = json!({"activation_fn": class});
        fs::write(artifact.join("config.json"), config.to_string()).unwrap();
    };
    activation("torch.nn.modules.linear.Identity");
    for (found, logit) in scores(&run(&artifact, &data, &[]).exits(0, &[])).iter().zip(logits) {
        assert_near(*found, logit, 1e-3);
    }
    activation("torch.nn.modules.activation.Tanh");
    run(&artifact, &data, &[])
        .exits(1, &["`sentence_transformers.activation_fn` is \"torch.nn.modules.activation.Tanh\""]);
    activation("torch.nn.modules.linear.Identity");
    // A prompt comes before the first text of a pair.
    let first = texts[0].split_once(' ').unwrap();
    let prompts = json!({"prompts": {"query": format!("{} ", first.0)}, "default_prompt_name": "query"});
    fs::write(artifact.join("config_sentence_transformers.json"), prompts.to_string()).unwrap();
    let data = write(folder.path(), &[json!({"query": first.1, "document": texts[1]})]);
    assert_near(scores(&run(&artifact, &data, &[]).exits(0, &[]))[0], logits[0], 1e-3);
    fs::remove_file(artifact.join("config_sentence_transformers.json")).unwrap();
    // A query with several documents is a pair for each.
    let data = write(folder.path(), &[json!({"id": "q", "query": texts[0], "documents": [texts[1], "", texts[2]]})]);
    let found = lines(&run(&artifact, &data, &[]).exits(0, &[]));
    assert_eq!(
        found.iter().map(|line| (&line["id"], &line["document"])).collect::<Vec<_>>(),
        [(&json!("q"), &json!(0)), (&json!("q"), &json!(1)), (&json!("q"), &json!(2))]
    );
    assert_near(found[2]["score"].as_f64().unwrap(), logit(0, 2), 1e-3);
}

#[test]
fn tokens_and_words_have_labels() {
    let folder = scratch();
    let mut draft = Draft::of("bert-classify");
    draft.config["architectures"] = json!(["BertForTokenClassification"]);
    draft.config["id2label"] = json!({"0": "O", "1": "PER", "2": "LOC"});
    draft.tensors.retain(|name, _| !name.contains("pooler"));
    let (model, artifact) = compiled(&draft, folder.path());
    let exact = graph(&model);
    let words: Vec<Vec<&str>> = LINES.lines().map(|line| line.split(' ').collect()).collect();
    let as_texts: Vec<Value> = words.iter().map(|words| json!({"text": words.join("  ")})).collect();
    let as_lists: Vec<Value> = words.iter().map(|words| json!({"text": words})).collect();
    let [texts, lists] =
        [as_texts, as_lists].map(|records| lines(&run(&artifact, &write(folder.path(), &records), &[]).exits(0, &[])));
    let mut labelled = 0;
    for (at, ids) in IDS.iter().enumerate() {
        let rows = interpreted(&exact, ids, "logits");
        let mut expected = Vec::new();
        let mut start = 0;
        for (word, row) in words[at].iter().zip(&rows[1..]) {
            if top(row) > 0 {
                expected.push((["O", "PER", "LOC"][top(row)], *word, start, softmax(row)[top(row)]));
            }
            start += word.len() + 2;
        }
        labelled += expected.len();
        let [in_text, in_list] = [&texts, &lists].map(|all| all[at]["tokens"].as_array().unwrap());
        assert_eq!((in_text.len(), in_list.len()), (expected.len(), expected.len()));
        for (index, (label, word, start, score)) in expected.iter().enumerate() {
            let token = &in_text[index];
            assert_eq!((&token["label"], &token["text"]), (&json!(label), &json!(word)));
            assert_eq!((&token["start"], &token["end"]), (&json!(start), &json!(start + word.len())));
            assert_near(token["score"].as_f64().unwrap(), *score, 1e-4);
            let number = usize::try_from(in_list[index]["word"].as_u64().unwrap()).unwrap();
            assert_eq!((&in_list[index]["label"], words[at][number]), (&json!(label), *word));
        }
    }
    assert!(labelled > 2, "{labelled} tokens have a label");
}

#[test]
fn questions_have_answers() {
    let folder = scratch();
    let (model, artifact) = compiled(&Draft::of("distilbert-qa"), folder.path());
    let exact = graph(&model);
    let texts: Vec<&str> = LINES.lines().collect();
    let pairs = [[1, 0], [0, 3], [3, 2]];
    let record = |[question, context]: [usize; 2]| json!({"question": texts[question], "context": texts[context]});
    let data = write(folder.path(), &pairs.map(record));
    for ([question, context], line) in pairs.iter().zip(lines(&run(&artifact, &data, &[]).exits(0, &[]))) {
        let (own, other) = (&IDS[*question][1..], &IDS[*context][1..]);
        let ids = [own, other].concat();
        let of = |output: &str| softmax(&interpreted_pair(&exact, &ids, own.len(), output)[0][own.len()..]);
        let (starts, ends) = (of("start_logits"), of("end_logits"));
        let spans = (0..other.len()).flat_map(|first| (first..other.len()).map(move |last| (first, last)));
        let (first, last) =
            spans.max_by(|a, b| (starts[a.0] * ends[a.1]).total_cmp(&(starts[b.0] * ends[b.1]))).unwrap();
        let words: Vec<&str> = texts[*context].split(' ').collect();
        let answer = words[first..=last].join(" ");
        let start = words[..first].iter().map(|word| word.len() + 1).sum::<usize>();
        assert_eq!(line["answer"], json!(answer));
        assert_eq!((&line["start"], &line["end"]), (&json!(start), &json!(start + answer.len())));
        assert_near(line["score"].as_f64().unwrap(), starts[first] * ends[last], 1e-4);
    }
}

#[test]
fn masked_tokens_are_filled() {
    let folder = scratch();
    let (model, artifact) = compiled(&Draft::of("bert-mlm"), folder.path());
    fs::write(artifact.join("tokenizer_config.json"), r#"{"mask_token": {"content": "w9"}}"#).unwrap();
    let exact = graph(&model);
    let data = write(folder.path(), &[json!({"text": "w5 w9 w20 w9"}), json!({"text": "w3"})]);
    let found = lines(&run(&artifact, &data, &["--top", "2"]).exits(0, &[]));
    let rows = interpreted(&exact, &[1, 5, 9, 20, 9], "logits");
    for (mask, position, start) in [(0, 2, 3), (1, 4, 10)] {
        let (mask, row) = (&found[0]["masks"][mask], &rows[position]);
        assert_eq!((&mask["start"], &mask["end"]), (&json!(start), &json!(start + 2)));
        let best = top(row);
        assert_eq!((&mask["tokens"][0]["id"], mask["tokens"].as_array().unwrap().len()), (&json!(best), 2));
        assert_eq!(mask["tokens"][0]["token"], json!(word(i64::try_from(best).unwrap())));
        assert_near(mask["tokens"][0]["score"].as_f64().unwrap(), softmax(row)[best], 1e-4);
    }
    assert_eq!(found[1]["masks"], json!([]));
}
