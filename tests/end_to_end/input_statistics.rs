//! Statistics of the inputs of linear layers: against what the interpreter computes, over shards and threads, and from
//! data and tables that are wrong.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use planish::calibrate::{CalibrateOptions, Calibration, Measure, ProductOptions, calibrate, products};
use planish::data::DataOptions;
use planish::source::SourceModel;
use planish_eval::{Tensor, evaluate};
use planish_models::LoadOptions;
use planish_passes::calibration::{Gram, RowId};
use planish_passes::observe::{OBSERVE_INPUTS, observed_tensor};
use planish_passes::{InputStatistics, ORT, Options, Pipeline};
use serde_json::Value;

use crate::calibrate::{Silent, planish_calibrate, stored_inputs, with_tokenizer};
use crate::support::{Done, Draft, golden, numbered, planish, repository, scratch, tensors, text};

const BERT: [&str; 3] = ["input_ids", "attention_mask", "token_type_ids"];

fn only_inputs() -> CalibrateOptions {
    CalibrateOptions { measure: Measure::Inputs, strict: true, ..CalibrateOptions::default() }
}

/// The inputs of linear layers of a golden's first part on its stored inputs, as the interpreter computes them.
fn interpreted(name: &str, inputs: &[&str]) -> BTreeMap<String, Tensor> {
    let model = SourceModel::open(&golden(name)).unwrap().load(LoadOptions::default()).unwrap();
    let mut graph = model.parts[0].graph.clone();
    let options = Options::new(&ORT, 20);
    Pipeline::new(options.clone()).raise(&mut graph, &mut Vec::new(), &mut |_, _| {}).unwrap();
    OBSERVE_INPUTS.apply(&mut graph, &options).unwrap();
    let given = numbered(&golden(name).join("io.safetensors"), "in.");
    let given: Vec<(&str, Tensor)> =
        given.iter().filter(|(n, _)| inputs.contains(&n.as_str())).map(|(n, t)| (n.as_str(), t.clone())).collect();
    let outputs = evaluate(&graph, &given).unwrap();
    outputs.into_iter().filter_map(|(name, t)| Some((observed_tensor(&name)?.to_owned(), t))).collect()
}

/// The rows of a tensor that are tokens by a mask, with what they are; all rows where it has another number of them.
fn rows<'a>(tensor: &'a Tensor, mask: &[bool]) -> Vec<(RowId, &'a [f32])> {
    let (shape, elements) = (tensor.shape(), tensor.as_f32().unwrap());
    let columns = *shape.last().unwrap();
    let (count, samples) = (elements.len() / columns, shape[0]);
    let each = count / samples;
    let counts = |row: usize| count != mask.len() || mask[row];
    let id = |row: usize| RowId { sample: (row / each) as u64, token: (row % each) as u64 };
    elements.chunks(columns).enumerate().filter(|(row, _)| counts(*row)).map(|(row, x)| (id(row), x)).collect()
}

#[track_caller]
fn assert_near(what: &str, got: f64, want: f64) {
    assert!((got - want).abs() <= 2e-5 * want.abs().max(1.0), "{what}: {got} is not {want}");
}

#[track_caller]
fn assert_of_rows(what: &str, statistics: &InputStatistics, rows: &[(RowId, &[f32])]) {
    assert_eq!(statistics.tokens, rows.len() as u64, "{what}");
    for (j, column) in statistics.columns.iter().enumerate() {
        let elements = || rows.iter().map(|(_, row)| f64::from(row[j]));
        assert_near(what, column.min.into(), elements().fold(f64::INFINITY, f64::min));
        assert_near(what, column.max.into(), elements().fold(f64::NEG_INFINITY, f64::max));
        assert_near(what, column.mean(statistics.tokens), elements().sum::<f64>() / rows.len() as f64);
    }
    assert_eq!(statistics.histogram.total(), (rows.len() * statistics.columns.len()) as u64);
    assert_eq!(statistics.rows.len(), rows.len(), "all rows are in the sample of a small data set");
    for sampled in statistics.rows.rows() {
        let (_, row) = rows.iter().find(|(id, _)| *id == sampled.id).unwrap();
        let largest = row.iter().fold(0f32, |a, x| a.max(x.abs()));
        for (got, want) in sampled.values().zip(*row) {
            assert!((got - want).abs() <= 1e-3 * largest.max(1e-3), "{what}, {:?}: {got} is not {want}", sampled.id);
        }
    }
}

#[test]
fn statistics_are_those_of_the_tokens_that_the_interpreter_computes() {
    let folder = scratch();
    let models: [(&str, &[&str]); 2] = [("bert", &BERT), ("vit", &["pixel_values"])];
    for (name, inputs) in models {
        let data = stored_inputs(name, inputs, folder.path());
        let mask = tensors(&data)
            .remove("attention_mask")
            .map_or_else(Vec::new, |mask| mask.bytes.chunks(8).map(|id| id[0] != 0).collect::<Vec<bool>>());
        let expected = interpreted(name, inputs);
        let model = SourceModel::open(&golden(name)).unwrap();
        let table = calibrate(&model, &data, &only_inputs(), &Silent).unwrap();
        assert_eq!(table.table().parts().count(), 0, "ranges were not asked for");
        let (part, inputs) = table.table().inputs().next().unwrap();
        assert_eq!(inputs.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (value, statistics) in inputs {
            assert_of_rows(value, statistics, &rows(&expected[value], &mask));
            assert_eq!(table.table().input(part, value), Some(statistics));
        }
    }
}

/// Tokens and columns of each input, by part and value.
fn tokens(table: &Calibration, part: &str) -> BTreeMap<String, u64> {
    let (_, inputs) = table.table().inputs().find(|(name, _)| *name == part).unwrap();
    inputs.iter().map(|(value, statistics)| (value.clone(), statistics.tokens)).collect()
}

#[test]
fn padding_does_not_count_in_any_part() {
    let folder = scratch();
    let data = folder.path().join("lines.txt");
    fs::write(&data, "w5 w7 w9\nw3\nw11 w100\n").unwrap();
    for (name, vocabulary) in [("bert", 131), ("gpt2", 137)] {
        let model = SourceModel::open(&with_tokenizer(name, vocabulary, folder.path())).unwrap();
        let table = calibrate(&model, &data, &only_inputs(), &Silent).unwrap();
        // With the token that each text begins with; the pooler takes one token of each text.
        let counts = tokens(&table, "model");
        assert!(counts.values().all(|count| *count == 9 || *count == 3), "{name}: {counts:?}");
        assert!(counts.values().filter(|count| **count == 9).count() >= 8, "{name}: {counts:?}");
        let data_options = DataOptions { batch: Some(NonZeroUsize::MIN), ..DataOptions::default() };
        let alone = CalibrateOptions { data: data_options, ..only_inputs() };
        let alone = calibrate(&model, &data, &alone, &Silent).unwrap();
        for (part, inputs) in table.table().inputs() {
            for (value, statistics) in inputs {
                let other = alone.table().input(part, value).unwrap();
                for (a, b) in statistics.columns.iter().zip(&other.columns) {
                    assert_near(value, a.min.into(), b.min.into());
                    assert_near(value, a.mean(statistics.tokens), b.mean(other.tokens));
                }
            }
        }
    }
    let t5 = SourceModel::open(&with_tokenizer("t5", 127, folder.path())).unwrap();
    let table = calibrate(&t5, &data, &only_inputs(), &Silent).unwrap();
    assert!(tokens(&table, "encoder_model").values().all(|count| *count == 9));
    // The decoder has a start token more: 5, 3 and 4 tokens of which the first part has 3 at most.
    let decoder = tokens(&table, "decoder_model");
    assert!(decoder.values().all(|count| [3 + 3 + 3, 9].contains(count)), "{decoder:?}");
    let rest = tokens(&table, "decoder_with_past_model");
    assert!(rest.values().any(|count| *count == 2 + 1), "{rest:?}");
}

/// Runs the binary on some data with `--measure` and more; the table.
fn table_of(model: &Path, data: &Path, to: &Path, more: &[&str]) -> Done {
    let fixed = ["calibrate", text(model), "--data", text(data), "-o", text(to)];
    planish(fixed.into_iter().chain(more.iter().copied()))
}

fn merge(tables: &[&Path], to: &Path) -> Done {
    let fixed = ["calibrate", "-o", text(to), "--merge"];
    planish(fixed.into_iter().chain(tables.iter().map(|table| text(table))))
}

/// A golden, lines of words, and the tables of three shards of them.
struct Sharded {
    folder: tempfile::TempDir,
    model: PathBuf,
    data: PathBuf,
    shards: Vec<PathBuf>,
}

impl Sharded {
    fn new(name: &str, vocabulary: i64) -> Self {
        let folder = scratch();
        let model = with_tokenizer(name, vocabulary, folder.path());
        let data = folder.path().join("lines.txt");
        let line = |i: usize| (0..i % 7 + 1).map(|j| format!("w{}", (i * 13 + j * 7) % 120 + 2)).collect::<Vec<_>>();
        fs::write(&data, (0..29).map(|i| line(i).join(" ") + "\n").collect::<String>()).unwrap();
        let shard = |k: usize| {
            let table = folder.path().join(format!("shard-{k}.json"));
            let done = table_of(&model, &data, &table, &["--batch", "4", "--shard", &format!("{k}/3")]).succeeds();
            assert!(done.stdout.contains(&format!("shard {k} of 3")), "{}", done.stdout);
            table
        };
        let shards = (1..=3).map(shard).collect();
        Self { folder, model, data, shards }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

#[test]
fn tables_of_shards_make_the_table_of_one_run() {
    for (name, vocabulary) in [("bert", 131), ("t5", 127)] {
        let run = Sharded::new(name, vocabulary);
        let (whole, merged) = (run.path("whole.json"), run.path("merged.json"));
        table_of(&run.model, &run.data, &whole, &["--batch", "4"]).succeeds();
        for order in [[0, 1, 2], [2, 0, 1]] {
            merge(&order.map(|i| run.shards[i].as_path()), &merged).succeeds();
            assert!(fs::read(&merged).unwrap() == fs::read(&whole).unwrap(), "{name}: other bytes");
        }
        // More shards than batches: some have nothing.
        let many: Vec<PathBuf> = (1..=9).map(|k| run.path(&format!("many-{k}.json"))).collect();
        for (k, table) in many.iter().enumerate() {
            table_of(&run.model, &run.data, table, &["--batch", "4", "--shard", &format!("{}/9", k + 1)]).succeeds();
        }
        merge(&many.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &merged).succeeds();
        assert!(fs::read(&merged).unwrap() == fs::read(&whole).unwrap(), "{name}: other bytes");
    }
}

#[test]
fn tables_that_do_not_belong_together_are_refused() {
    let run = Sharded::new("bert", 131);
    let [a, b, c] = [0, 1, 2].map(|i| run.shards[i].as_path());
    let to = run.path("merged.json");
    let refused = |tables: &[&Path], parts: &[&str]| {
        merge(tables, &to).exits(1, parts);
        assert!(!to.exists());
    };
    refused(&[a, c], &["shards are missing", "there is shard 1, 3 of 3, and not 2"]);
    refused(&[a], &["there is shard 1 of 3, and not 2, 3"]);
    refused(&[a, b, b, c], &["cannot merge", "shard-2.json", "both tables have shard 2 of 3"]);
    let other = run.path("other.json");
    table_of(&run.model, &run.data, &other, &["--batch", "4", "--shard", "2/4"]).succeeds();
    refused(&[a, &other], &["the tables are of shards of 3 and of 4"]);
    table_of(&run.model, &run.data, &other, &["--batch", "4"]).succeeds();
    refused(&[a, &other], &["a table that is not of a shard has all of the data already"]);
    table_of(&run.model, &run.data, &other, &["--batch", "8", "--shard", "2/3"]).succeeds();
    refused(&[a, &other], &["the tables are of different options: batch is 4 and 8"]);
    let lines = run.path("lines2.txt");
    fs::write(&lines, "w3\nw4\n").unwrap();
    table_of(&run.model, &lines, &other, &["--batch", "4", "--shard", "2/3"]).succeeds();
    refused(&[a, &other], &["the tables are of different data: lines.txt (BLAKE3 ", "and lines2.txt (BLAKE3 "]);
    let mut changed = Draft::of("bert");
    changed.tensors.values_mut().next().unwrap().bytes[0] ^= 1;
    let model = changed.write(run.path("changed"));
    crate::support::write_tokenizer(&model, 131);
    table_of(&model, &run.data, &other, &["--batch", "4", "--shard", "2/3"]).succeeds();
    refused(&[a, &other], &["the tables are of different models: bert for", "and changed for", "(BLAKE3 "]);

    let out = run.path("out");
    let compile = |table: &Path| {
        let half = ["--target", "onnx", "--fp16", "--calibrate", text(table)];
        planish(["compile", text(&run.model), "-o", text(&out)].into_iter().chain(half))
    };
    compile(a).exits(1, &["shard-1.json does not fit", "there is shard 1 of 3, and not 2, 3", "--merge"]);
    compile(&other).exits(1, &["the table was made for changed, whose model.safetensors differs", "BLAKE3 "]);
    table_of(&run.model, &run.data, &other, &["--measure", "inputs"]).succeeds();
    compile(&other).exits(1, &["it was made with `--measure inputs`", "planish calibrate --measure ranges"]);
    let mut old: Value = serde_json::from_slice(&fs::read(a).unwrap()).unwrap();
    old["schema"] = 1.into();
    fs::write(&other, old.to_string()).unwrap();
    compile(&other).exits(1, &["it is of format planish-calibration, schema 1", "this planish reads schema 2"]);
    old["schema"] = 2.into();
    let inputs = old["inputs"]["model"].as_object_mut().unwrap();
    let (name, first) = inputs.iter_mut().next().unwrap();
    first["tokens"] = 1.into();
    let message = format!("the statistics of `{name}` are not valid");
    fs::write(&other, old.to_string()).unwrap();
    compile(&other).exits(1, &[&message]);
}

#[test]
fn arguments_of_shards_and_merging_are_checked() {
    for wrong in ["0/3", "4/3", "1", "1/0", "a/b", "/", "-1/2"] {
        let done = planish(["calibrate", "model", "--data", "x.txt", &format!("--shard={wrong}")]);
        done.exits(2, &["expected K/N, such as 3/8"]);
    }
    planish(["calibrate"]).exits(2, &["MODEL", "--data"]);
    planish(["calibrate", "model", "--merge", "a.json"]).exits(2, &["cannot be used with"]);
    planish(["calibrate", "--merge", "a.json", "--samples", "3"]).exits(2, &["cannot be used with"]);
    planish(["calibrate", "--merge", "/nowhere/a.json"]).exits(1, &["cannot read /nowhere/a.json"]);
}

#[test]
fn threads_and_runs_do_not_change_a_table() {
    let folder = scratch();
    let minilm = repository().join(".deps/minilm");
    let data = folder.path().join("sentences.txt");
    fs::copy(repository().join("fixtures/data/sentences.txt"), &data).unwrap();
    let on = |threads: &str| {
        let table = folder.path().join(format!("{threads}.json"));
        table_of(&minilm, &data, &table, &["--samples", "24", "--threads", threads]).succeeds();
        fs::read(table).unwrap()
    };
    let one = on("1");
    for threads in ["2", "3", "5"] {
        assert!(on(threads) == one, "{threads} threads give other bytes");
    }
    let shards = ["1/2", "2/2"].map(|shard| {
        let table = folder.path().join(format!("{}.json", shard.replace('/', "-")));
        table_of(&minilm, &data, &table, &["--samples", "24", "--shard", shard]).succeeds();
        table
    });
    let merged = folder.path().join("merged.json");
    merge(&[&shards[1], &shards[0]], &merged).succeeds();
    assert!(fs::read(&merged).unwrap() == one, "two shards give other bytes");
    assert!(one.len() < 5 << 20, "{} bytes", one.len());
}

#[test]
fn values_that_are_not_finite_are_named() {
    let folder = scratch();
    let data = stored_inputs("bert", &BERT, folder.path());
    for (bad, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let mut broken = Draft::of("bert");
        let named = |name: &str| name.ends_with("layer.1.attention.output.LayerNorm.bias");
        let (_, bias) = broken.tensors.iter_mut().find(|(name, _)| named(name)).unwrap();
        bias.bytes[4..8].copy_from_slice(&bad.to_le_bytes());
        let model = broken.write(folder.path().join(shown));
        let (done, table) = planish_calibrate(&model, &data, &["--measure", "inputs"]);
        let column = format!("column 1 is {shown} at token 0 of sample 0");
        done.exits(1, &["samples 1 to 3", "is an input of a layer that INT8 cannot hold", "LayerNorm", &column]);
        assert!(!table.exists());
    }
}

#[test]
fn bad_data_is_named_or_left_out() {
    let folder = scratch();
    let bert = with_tokenizer("bert", 131, folder.path());
    let path = |name: &str| folder.path().join(name);
    let run = |name: &str, bytes: &[u8], more: &[&str]| {
        fs::write(path(name), bytes).unwrap();
        planish_calibrate(&bert, &path(name), more).0
    };
    run("empty.txt", b"", &[]).exits(1, &["empty.txt contains no text"]);
    let lines = b"{\"text\": \"w3 w4\"}\n{\"text\": \"w5\"}\n{oops\n{\"text\": \"w6\"}\n";
    run("lines.jsonl", lines, &[]).exits(1, &["lines.jsonl, line 3", "this is not JSON", "--skip-bad"]);
    let done = run("lines.jsonl", lines, &["--skip-bad"]).succeeds();
    assert!(
        done.stdout.contains("3 samples") && done.stdout.contains("1 bad records were left out"),
        "{}",
        done.stdout
    );
    let table = Calibration::read(&path("lines.table.json")).unwrap();
    assert_eq!((table.samples, table.skipped), (3, 1));
    let table = run("rows.csv", b"id,text\n1,w3 w4\n2,w5\n3,w6\n", &[]).succeeds().stdout;
    assert!(table.contains("3 samples of rows.csv"), "{table}");

    // The model has 32 positions.
    let long = (0..50).map(|i| format!("w{}", i + 2)).collect::<Vec<_>>().join(" ");
    run("long.txt", long.as_bytes(), &["--measure", "inputs"]).succeeds();
    let table = Calibration::read(&path("long.table.json")).unwrap();
    assert!(tokens(&table, "model").values().all(|count| *count == 32 || *count == 1));
    run("long.txt", long.as_bytes(), &["--max-length", "50"])
        .exits(1, &["--max-length 50 is more than the 32 tokens of the model"]);
}

/// The sums of a golden's inputs, with rows changed before.
fn summed(data: &Path, wanted: &[(String, String)], threads: u16) -> Vec<(String, Gram)> {
    let model = SourceModel::open(&golden("bert")).unwrap();
    let double = |_: &str, value: &str, rows: &mut [f32], columns: usize| {
        assert!(rows.len().is_multiple_of(columns), "{value}");
        rows.iter_mut().for_each(|x| *x *= 2.0);
    };
    let options = ProductOptions { inputs: wanted, transform: &double, experts: &[] };
    let mut sums = Vec::new();
    let mut visit = |_: &str, value: &str, gram: Gram| {
        sums.push((value.to_owned(), gram));
        Ok(())
    };
    let run = CalibrateOptions { threads: Some(threads), ..only_inputs() };
    products(&model, data, &run, &options, &Silent, &mut visit).unwrap();
    sums
}

#[test]
fn products_are_those_of_all_tokens() {
    let folder = scratch();
    let data = stored_inputs("bert", &BERT, folder.path());
    let mask: Vec<bool> = tensors(&data)["attention_mask"].bytes.chunks(8).map(|id| id[0] != 0).collect();
    let expected = interpreted("bert", &BERT);
    let wanted: Vec<(String, String)> = expected.keys().rev().map(|v| ("model".to_owned(), v.clone())).collect();
    let sums = summed(&data, &wanted, 1);
    assert_eq!(sums.iter().map(|(value, _)| value).collect::<Vec<_>>(), expected.keys().rev().collect::<Vec<_>>());
    for (value, gram) in &sums {
        let rows = rows(&expected[value], &mask);
        let (n, matrix) = (gram.columns(), gram.matrix());
        assert_eq!(gram.rows(), rows.len() as u64);
        for i in 0..n {
            for j in 0..n {
                let want: f64 = rows.iter().map(|(_, x)| 4.0 * f64::from(x[i]) * f64::from(x[j])).sum();
                assert!((matrix[i * n + j] - want).abs() <= 1e-3 * want.abs().max(1.0), "{value}, {i}, {j}");
            }
        }
    }
    assert_eq!(summed(&data, &wanted, 3), sums, "the same bits on three threads");
    let nothing = [("model".to_owned(), "nothing".to_owned())];
    let model = SourceModel::open(&golden("bert")).unwrap();
    let options = ProductOptions { inputs: &nothing, transform: &|_, _, _, _| {}, experts: &[] };
    let error = products(&model, &data, &only_inputs(), &options, &Silent, &mut |_, _, _| Ok(())).unwrap_err();
    assert!(error.to_string().contains("`nothing` of model is not an input of a linear layer"), "{error}");
}

#[test]
fn files_that_are_not_parquet_say_so() {
    let folder = scratch();
    let data = folder.path().join("a.parquet");
    fs::write(&data, b"x").unwrap();
    let reason =
        if cfg!(feature = "parquet") { "a.parquet is not a Parquet file" } else { "was built without Parquet" };
    planish_calibrate(&golden("bert"), &data, &[]).0.exits(1, &[reason]);
}
