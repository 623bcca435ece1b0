//! The tables of a sweep. `table.json` and `table.csv` have what does not depend on time, so they are the same byte for byte
//! whoever ran the jobs; `times.json` and `times.csv` have the rest.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use planish_artifact::files;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Job, JobResult, Merged, Status};
use crate::bench::significant;

/// The columns before those of figures.
const COLUMNS: [&str; 6] = ["id", "kind", "model", "form", "on", "status"];

/// A row of a table of figures.
#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    kind: &'static str,
    model: &'a str,
    form: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    on: Option<&'a str>,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
    figures: &'a Map<String, Value>,
}

impl<'a> Row<'a> {
    fn of(result: &'a JobResult, figures: &'a Map<String, Value>) -> Self {
        let Job { id, kind, model, form, on, .. } = &result.job;
        let code = result.code.filter(|code| *code != 0);
        Self { id, kind: kind.name(), model, form, on: on.as_deref(), status: result.status.name(), code, figures }
    }

    fn cells(&self) -> [&str; COLUMNS.len()] {
        [self.id, self.kind, self.model, self.form, self.on.unwrap_or_default(), self.status]
    }
}

/// A column of the printed table: its title, the figures of which it has the first that is there, and the worse of two of several parts.
type Column<'a> = (Cow<'a, str>, &'a [&'a str], fn(f64, f64) -> f64);

/// The columns after those that name the job, before those of times.
const SHOWN: [Column<'static>; 4] = [
    (
        Cow::Borrowed("cosine"),
        &["embeddings.mean_cosine", "predictions.mean_cosine", "verification.cosine", "accuracy.cos"],
        f64::min,
    ),
    (Cow::Borrowed("top-1 %"), &["predictions.top1_agreement"], f64::min),
    (Cow::Borrowed("perplexity"), &["perplexity.ratio"], f64::max),
    (Cow::Borrowed("max rel"), &["verification.max_rel", "accuracy.max_rel"], f64::max),
];

/// The figure of the columns of times.
const LATENCY: &str = "latency_ms.p50";

/// The figure of a result that a column shows; of a decoder, whose names begin with the part, the worse of prompt and step.
fn value(result: &JobResult, (_, names, worse): &Column<'_>) -> Option<f64> {
    let figures = || result.figures.iter().chain(&result.times);
    let of = |name: &&str| {
        let is_own = |own: &str| own == *name || own.split_once('.').is_some_and(|(_, of_part)| of_part == *name);
        let all = figures().filter(|(own, _)| is_own(own)).filter_map(|(_, value)| value.as_f64());
        all.reduce(worse)
    };
    names.iter().find_map(of)
}

impl Merged {
    /// Writes the tables into the output folder.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn write(&self, output: &Path) -> Result<()> {
        let exact = self.rows();
        let timed: Vec<Row> = self.0.iter().map(|result| Row::of(result, &result.times)).collect();
        let write = |name: &str, text: &[u8]| files::write(&output.join(name), text);
        write("table.json", (serde_json::to_string_pretty(&self.exact())? + "\n").as_bytes())?;
        write("table.csv", &csv(&exact)?)?;
        let ran: Vec<Value> = self.0.iter().map(|result| json!({"id": result.job.id, "ran": result.ran})).collect();
        let times = json!({"schema": 1, "rows": timed, "ran": ran});
        write("times.json", (serde_json::to_string_pretty(&times)? + "\n").as_bytes())?;
        write("times.csv", &csv(&timed)?)
    }

    fn rows(&self) -> Vec<Row<'_>> {
        self.0.iter().map(|result| Row::of(result, &result.figures)).collect()
    }

    /// What `table.json` has.
    #[must_use]
    pub fn exact(&self) -> Value {
        json!({"schema": 1, "rows": self.rows()})
    }

    /// The table for a person.
    #[must_use]
    pub fn text(&self) -> String {
        // Decoders have a time of the prompt and one of a step.
        let timed = self.0.iter().flat_map(|result| result.times.keys());
        let timed: BTreeSet<&str> = timed.map(String::as_str).filter(|name| name.ends_with(LATENCY)).collect();
        let title =
            |name: &str| format!("{} ms", name.trim_end_matches(LATENCY).trim_end_matches('.')).trim().to_owned();
        let timed: Vec<([&str; 1], String)> = timed.into_iter().map(|name| ([name], title(name))).collect();
        let times =
            timed.iter().map(|(name, title)| (Cow::Borrowed(title.as_str()), &name[..], f64::max as fn(_, _) -> _));
        let all = SHOWN.iter().cloned().chain(times);
        let shown: Vec<Column<'_>> =
            all.filter(|column| self.0.iter().any(|result| value(result, column).is_some())).collect();
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header(
            ["model", "form", "job", "on", "status"].into_iter().chain(shown.iter().map(|(title, ..)| title.as_ref())),
        );
        for result in &self.0 {
            let job = &result.job;
            let on = job.on.as_deref().unwrap_or_default();
            let named = [&job.model, &job.form, job.kind.name(), on, result.status.name()].map(str::to_owned);
            let numbers = shown.iter().map(|column| value(result, column).map_or_else(String::new, number));
            table.add_row(named.into_iter().chain(numbers));
        }
        table.column_iter_mut().skip(5).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        let failed = self.0.iter().filter(|result| result.status == Status::Failed);
        let failed: String = failed
            .map(|result| format!("{} failed: {}\n", result.job.title(), result.error.as_deref().unwrap_or_default()))
            .collect();
        format!("{table}\n{}{failed}", if failed.is_empty() { "" } else { "\n" })
    }
}

/// A number with a few digits: of one just below 1, such as a cosine, how far it is from 1.
fn number(value: f64) -> String {
    let from_one = 1.0 - value;
    match value {
        _ if from_one > 0.0 && from_one < 0.1 => format!("1 - {from_one:.1e}"),
        _ if value > 0.0 && value < 0.01 => format!("{value:.1e}"),
        _ => significant(value),
    }
}

/// A row for each job, and a column for each figure that any of them has.
fn csv(rows: &[Row]) -> Result<Vec<u8>> {
    let names: BTreeSet<&str> = rows.iter().flat_map(|row| row.figures.keys().map(String::as_str)).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS.iter().chain(&names))?;
    for row in rows {
        let figures = names.iter().map(|name| row.figures.get(*name).map(Value::to_string).unwrap_or_default());
        writer.write_record(row.cells().map(str::to_owned).into_iter().chain(figures))?;
    }
    Ok(writer.into_inner()?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::Jobs;
    use super::super::jobs::tests::planned;
    use super::super::result::tests::result;
    use super::*;

    #[test]
    fn times_and_places_are_not_in_the_table() {
        let (place, plan) = planned();
        let jobs = Jobs::of(&plan, None).unwrap();
        let tables = |seconds: f64, host: &str| {
            let mut results: Vec<JobResult> = jobs.jobs.iter().map(|job| result(job, Status::Done)).collect();
            for result in &mut results {
                (result.ran.seconds, result.ran.host) = (seconds, host.to_owned());
                result.times.insert("latency_ms.p50".to_owned(), seconds.into());
            }
            results[1].status = Status::Failed;
            let merged = Merged(results);
            merged.write(place.path()).unwrap();
            let files = ["table.json", "table.csv", "times.json", "times.csv"]
                .map(|name| fs::read_to_string(place.path().join(name)).unwrap());
            (files, merged.text())
        };
        let (one, text) = tables(1.25, "one");
        let (two, _) = tables(2.5, "two");
        assert_eq!(one[..2], two[..2]);
        assert_ne!(one[2..], two[2..]);
        assert!(one[1].starts_with("id,kind,model,form,on,status,cosine\n"), "{}", one[1]);
        assert!(one[2].contains("\"one\"") && one[3].lines().nth(1).unwrap().ends_with("1.25,1.5"), "{}", one[3]);
        assert!(text.contains("evaluate a f32, texts failed: ") && text.contains(" 1.25 |"), "{text}");
    }

    /// A decoder has a column for the time of the prompt and one for that of a step, and the worse of both accuracies.
    #[test]
    fn decoders_have_the_times_of_prompt_and_step() {
        let (_place, plan) = planned();
        let jobs = Jobs::of(&plan, None).unwrap();
        let mut of = result(&jobs.jobs[0], Status::Done);
        of.figures.clear();
        for (part, cosine, ms) in [("prompt", 0.75, 20.5), ("step", 0.5, 3.25)] {
            of.figures.insert(format!("{part}.accuracy.cos"), cosine.into());
            of.times.insert(format!("{part}.latency_ms.p50"), ms.into());
        }
        let text = Merged(vec![of]).text();
        let cells = |line: &str| line.split('|').skip(6).map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(cells(lines[0]), ["cosine", "prompt ms", "step ms", ""]);
        assert_eq!(cells(lines[2]), ["0.500", "20.5", "3.25", ""]);
    }
}
