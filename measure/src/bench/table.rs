//! The table of a benchmark, in Markdown: what differs between rows, as far as a terminal has room.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use planish_artifact::split::Split;

use super::columns::{ALWAYS, ARTIFACT, COLUMNS, Column, Rank, is_left_to_data};
use super::document::Cell;
use super::entrant::quoted;

/// The width of a narrow table in characters.
const WIDTH: usize = 100;

/// The most columns of the narrow table, but for those that it always has.
const MOST_COLUMNS: usize = 8;

/// The most characters of a name in a narrow table.
const NAME: usize = 34;

/// A table, with what is said above and below it.
pub struct Shown {
    /// The text.
    pub text: String,
    /// The names of columns that have something and are not shown, and are not said above either.
    pub left_out: Vec<&'static str>,
}

/// A column that is shown, with its text of each cell.
type Filled = (&'static Column, Vec<Option<String>>);

/// The cells as a table. A column that has nothing of any cell is left out. The wide one has all others. The narrow one has 100
/// columns of characters: what all rows have in common is said above, and what matters least is left out.
///
/// `vs base` is how many times as fast a cell is as the first artifact on its runtime at the same shape, with `~` where the
/// interval of that contains 1. `±CI` is half of the 95% interval of the median. `load MB` is
/// [`Memory::load_rss`](super::Memory::load_rss).
#[must_use]
pub fn table(cells: &[Cell], is_wide: bool) -> Shown {
    let text = |column: &'static Column| cells.iter().map(|cell| (column.text)(cell, cells)).collect::<Vec<_>>();
    let mut filled: Vec<Filled> = COLUMNS.iter().map(|column| (column, text(column))).collect();
    filled.retain(|(_, texts)| texts.iter().any(Option::is_some));
    let (mut above, mut left_out) = (String::new(), Vec::new());
    if !is_wide {
        if let Some((_, names)) = filled.iter_mut().find(|(column, _)| column.name == ARTIFACT) {
            shorten(names);
        }
        let alike = |(column, texts): &Filled| {
            let is_alike = texts.len() > 1 && texts.iter().all(|text| *text == texts[0]);
            is_alike && !ALWAYS.contains(&column.name) && column.rank != Rank::Wide && !is_left_to_data(column, cells)
        };
        let common: Vec<String> = filled
            .iter()
            .filter(|of| alike(of))
            .map(|(column, texts)| format!("{} {}", column.name, texts[0].as_deref().unwrap_or_default()))
            .collect();
        if !common.is_empty() {
            above = format!("All rows: {}\n\n", common.join("; "));
        }
        filled.retain(|of| !alike(of));
        left_out = narrowed(&mut filled, cells);
    }
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(filled.iter().map(|(column, _)| column.name));
    for at in 0..cells.len() {
        table.add_row(filled.iter().map(|(_, texts)| texts[at].as_deref().unwrap_or("-")));
    }
    for (column, (of, _)) in table.column_iter_mut().zip(&filled) {
        if !of.is_words {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    Shown { text: format!("{above}{table}\n{}", data(cells)), left_out }
}

/// Leaves out columns until a table has [`WIDTH`] at most: the names of those.
fn narrowed(filled: &mut Vec<Filled>, cells: &[Cell]) -> Vec<&'static str> {
    // A column has a bar and two spaces beside its text.
    let width = |(column, texts): &Filled| {
        let longest = texts.iter().flatten().map(|text| text.chars().count()).max().unwrap_or(1);
        longest.max(column.name.chars().count()) + 3
    };
    let mut order: Vec<usize> = (0..filled.len()).collect();
    order.sort_by_key(|at| filled[*at].0.rank);
    let (mut room, mut shown) = (WIDTH - 1, vec![false; filled.len()]);
    for at in order {
        let (column, width) = (filled[at].0, width(&filled[at]));
        let fits = column.rank != Rank::Wide && width <= room && !is_left_to_data(column, cells);
        let few = shown.iter().filter(|shown| **shown).count() < MOST_COLUMNS;
        if column.rank == Rank::Needed || fits && few {
            shown[at] = true;
            room = room.saturating_sub(width);
        }
    }
    let left_out =
        filled.iter().zip(&shown).filter(|(_, shown)| !**shown).map(|((column, _), _)| column.name).collect();
    let mut shown = shown.into_iter();
    filled.retain(|_| shown.next().unwrap_or(true));
    left_out
}

/// Cuts the beginnings of names that are long, such as those of folders, where the rest still tells them apart.
fn shorten(names: &mut [Option<String>]) {
    let cut = |name: &String| {
        let count = name.chars().count();
        match count > NAME {
            true => "…".chars().chain(name.chars().skip(count + 1 - NAME)).collect(),
            false => name.clone(),
        }
    };
    let short: Vec<Option<String>> = names.iter().map(|name| name.as_ref().map(cut)).collect();
    let is_clear = |one: usize, other: usize| (names[one] == names[other]) == (short[one] == short[other]);
    if (0..names.len()).all(|one| (0..one).all(|other| is_clear(one, other))) {
        names.clone_from_slice(&short);
    }
}

/// What accuracy on data is from, a line for each kind of samples.
fn data(cells: &[Cell]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for of in cells.iter().filter_map(|cell| cell.evaluation.as_ref()) {
        let (held_out, option) = match of.split {
            Split::HeldOut => (" that were held out", " --held-out"),
            Split::All | Split::Rest => ("", ""),
        };
        let mut line = format!("Accuracy on data: {} samples of {}{held_out}{}", of.samples, of.data.name, of.split);
        if let Some(predictions) = &of.predictions {
            line += &format!("; {} predictions", predictions.count);
        }
        if let Some(perplexity) = &of.perplexity {
            line += &format!("; windows of {} tokens, stride {}", perplexity.window, perplexity.stride);
        }
        let (name, samples) = (quoted(&of.data.name), of.samples);
        line += &format!(
            "; 95% intervals\nThe same: planish evaluate ARTIFACT --data {name}{option} --samples {samples}\n"
        );
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.is_empty() { String::new() } else { format!("\n{}", lines.concat()) }
}

/// What makes the figures of cells less certain: a line for each reason, with the cells that it is of.
#[must_use]
pub fn remarks(cells: &[Cell]) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<(&Cell, &str)>)> = Vec::new();
    for (cell, warning) in cells.iter().flat_map(|cell| cell.warnings.iter().map(move |warning| (cell, warning))) {
        // Reasons that differ in their numbers only are one.
        let kind: String = warning.chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect();
        match reasons.iter_mut().find(|(own, _)| *own == kind) {
            Some((_, cells)) => cells.push((cell, warning)),
            None => reasons.push((kind, vec![(cell, warning)])),
        }
    }
    let line = |(_, of): (String, Vec<(&Cell, &str)>)| {
        let name = |cell: &Cell| format!("{} ({}, {})", cell.model.id, cell.backend, cell.shape);
        match of.as_slice() {
            [] => String::new(),
            [(cell, warning)] => format!("{}: {warning}", name(cell)),
            [(cell, warning), ..] if of.iter().all(|(_, other)| other == warning) => {
                format!("{} of {} cells, such as {}: {warning}", of.len(), cells.len(), name(cell))
            }
            [(cell, warning), ..] => {
                format!(
                    "{} of {} cells have a warning such as that of {}: {warning}",
                    of.len(),
                    cells.len(),
                    name(cell)
                )
            }
        }
    };
    reasons.into_iter().map(line).collect()
}

/// Three significant digits, and all digits before the point.
pub(crate) fn significant(value: f64) -> String {
    let digits = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use planish_artifact::evaluation::{Embeddings, Evaluation, Pooling};
    use planish_artifact::manifest::File;

    use super::*;
    use crate::bench::document::examples::cell;
    use crate::bench::{CellShape, DeviceLatency, device_table};

    fn lines(cells: &[Cell], is_wide: bool) -> Vec<String> {
        table(cells, is_wide).text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_differs_is_shown_and_what_is_equal_is_said_above() {
        let mut cells = [
            cell("a", 8, Some(100)),
            cell("b|c", 8, Some(40)),
            cell("d", 8, Some(101)),
            cell("a", 16, None),
            cell("b|c", 16, Some(5)),
        ];
        // Its times differ between rounds by more than the medians do.
        cells[2].samples_ns.sort_unstable();
        let expected = [
            "All rows: runtime ort; prec f32; batch 2; load ms 12; cosine, random input 1.00000",
            "",
            r"| artifact | seq |   p50 ms ±CI | vs base | inf/s | tok/s | load MB |",
            r"|----------|-----|--------------|---------|-------|-------|---------|",
            r"| a        |   8 |    100 ±1.50 |   1.00x |  20.0 |   160 |     100 |",
            r"| b\|c     |   8 |  40.0 ±0.600 |   2.50x |  50.0 |   400 |      40 |",
            r"| d        |   8 |    101 ±1.52 |  ~0.99x |  19.8 |   158 |     101 |",
            r"| a        |  16 |       failed |       - |     - |     - |       - |",
            r"| b\|c     |  16 | 5.00 ±0.0750 |       - |   400 |  6400 |       5 |",
        ];
        assert_eq!(lines(&cells, false), expected);
        assert_eq!(table(&cells, false).left_out, ["p90"]);
        let wide = lines(&cells, true);
        let header = r"| artifact | runtime | prec | batch | seq |   p50 ms ±CI | vs base |  p90 | inf/s | tok/s | load ms | load MB | cosine, random input |";
        assert_eq!((wide.len(), wide[0].as_str(), table(&cells, true).left_out), (7, header, vec![]));
        // One row has nothing in common with others.
        assert!(lines(&cells[..1], false)[0].starts_with("| artifact | runtime |"));
    }

    #[test]
    fn a_table_fits_100_columns_whatever_its_names() {
        let mut cells: Vec<Cell> = ["f32", "fp16", "int8", "int8-weights"]
            .into_iter()
            .enumerate()
            .flat_map(|(at, form)| [8, 512].map(|seq| (at as u64, form, seq)))
            .map(|(at, form, seq)| cell(&format!("/a/folder/of/a/long/name/model-ort-{form}"), seq, Some(10 + at)))
            .collect();
        for (at, cell) in cells.iter_mut().enumerate() {
            cell.evaluation = Some(evaluation(90.0 + at as f64));
            cell.memory.peak_rss = Some(1 << (20 + at));
            cell.model.file_bytes = Some(1 << (20 + at));
            cell.shape.batch = at + 1;
        }
        let shown = table(&cells, false);
        let widest = shown.text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= WIDTH, "{widest}\n{}", shown.text);
        assert!(
            shown.text.contains("| …of/a/long/name/model-ort-int8-weights") || shown.text.contains("model-ort-int8")
        );
        assert!(shown.text.contains("90.0% (85-97)"), "{}", shown.text);
        assert!(
            shown.text.contains("Accuracy on data: 22 samples of texts.txt that were held out, every fifth sample")
        );
        assert!(!shown.text.contains("random input") && shown.left_out.contains(&"cosine, random input"));
        // Names that only their beginnings tell apart stay.
        for (at, cell) in cells.iter_mut().enumerate() {
            cell.model.id = format!("{at}{}", "n".repeat(40));
        }
        assert!(table(&cells, false).text.contains(&format!("| 0{} |", "n".repeat(40))));
    }

    fn evaluation(kept: f64) -> Evaluation {
        Evaluation {
            data: File { name: "texts.txt".to_owned(), bytes: 1, blake3: None },
            split: Split::HeldOut,
            samples: 22,
            tokens: None,
            runtime: "ort".to_owned(),
            embeddings: Some(Embeddings {
                pooling: Pooling::Mean,
                mean_cosine: kept / 100.0,
                mean_cosine_ci95: Some([kept / 100.0 - 0.001, kept / 100.0 + 0.001]),
                least_cosine: 0.9,
                neighbours_kept: Some(kept),
                neighbours_kept_ci95: Some([85.1, 97.0]),
                count: 22,
            }),
            predictions: None,
            perplexity: None,
            read: None,
            labels: Vec::new(),
            scores: None,
            outputs: Vec::new(),
        }
    }

    #[test]
    fn runs_of_a_model_are_told_apart() {
        let step = |id, ms| {
            let shape = CellShape { batch: 1, seq: Some(8), part: Some("step".to_owned()), tokens: Some(1), past: 8 };
            Cell { shape, ..cell(id, 8, ms) }
        };
        let cells = [cell("a", 8, Some(100)), step("a", Some(10)), step("b", Some(5)), step("c", None)];
        let lines: Vec<Vec<String>> = lines(&cells, true)
            .iter()
            .map(|line| line.split('|').map(|text| text.trim().to_owned()).collect())
            .collect();
        assert_eq!(lines[0][3..7], ["prec", "part", "batch", "seq"]);
        assert_eq!([&lines[2][4], &lines[3][4], &lines[4][4]], ["-", "step", "step"]);
        assert_eq!([&lines[3][8], &lines[4][8]], ["1.00x", "2.00x"]);
    }

    #[test]
    fn warnings_of_one_kind_are_one_line() {
        let with = |id: &str, warnings: &[&str]| Cell {
            warnings: warnings.iter().map(|of| (*of).to_owned()).collect(),
            ..cell(id, 8, Some(10))
        };
        let cells = [
            with("a", &["the interval is ±58%", "cold"]),
            with("b", &["the interval is ±7.5%"]),
            with("c", &["few samples"]),
            with("d", &["few samples"]),
        ];
        let expected = [
            "2 of 4 cells have a warning such as that of a (ort, 2 x 8): the interval is ±58%",
            "a (ort, 2 x 8): cold",
            "2 of 4 cells, such as c (ort, 2 x 8): few samples",
        ];
        assert_eq!(remarks(&cells), expected);
    }

    #[test]
    fn cells_on_a_device_have_a_table_of_their_own() {
        let run = |us| planish_runtimes::DeviceTimes {
            enqueue: Duration::from_micros(100),
            compute: Duration::from_micros(us),
            to_device: None,
            to_host: None,
            graph: true,
        };
        let device = DeviceLatency::of(&[run(1000), run(1010), run(1020)], Duration::from_millis(6));
        let cells = [cell("host", 8, Some(100)), Cell { device, ..cell("a|b", 8, Some(1)) }];
        let expected = [
            "Times by CUDA events, medians, without transfers, CUDA graphs:",
            r"| artifact | cell  | GPU compute ms |  p90 |  p99 | enqueue ms | H2D ms | D2H ms | latency ms | queries/s |",
            r"|----------|-------|----------------|------|------|------------|--------|--------|------------|-----------|",
            r"| a\|b     | 2 x 8 |           1.01 | 1.02 | 1.02 |      0.100 |      - |      - |       1.01 |       500 |",
        ];
        assert_eq!(device_table(&cells).unwrap().lines().collect::<Vec<_>>(), expected);
        assert_eq!(device_table(&cells[..1]), None);
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let shown = [1234.5, 99.95, 12.34, 1.234, 0.1234, 0.01234].map(significant);
        assert_eq!(shown, ["1234", "100.0", "12.3", "1.23", "0.123", "0.0123"]);
    }
}
