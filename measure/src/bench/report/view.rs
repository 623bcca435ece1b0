//! What a report is of: its contestants, and the cells that can be compared with each other.

use super::svg::Shape;
use crate::bench::document::{Cell, Document, Status, Workload};
use crate::bench::figures::Batches;
use crate::bench::ratio::Ratio;

/// An artifact in a precision on a runtime, of one document.
pub(super) struct Contestant<'a> {
    /// A short name: A, B, ...
    pub(super) key: String,
    /// The artifact; the runtime, the precision and the document where that tells contestants apart.
    pub(super) label: String,
    /// The artifact; the document where there are several.
    pub(super) name: String,
    pub(super) model: &'a str,
    pub(super) runtime: &'a str,
    pub(super) precision: &'a str,
    /// The place of the artifact among those of the report, and of the runtime.
    pub(super) colour: usize,
    pub(super) runtime_index: usize,
    document: usize,
}

impl Contestant<'_> {
    pub(super) fn shape(&self) -> Shape {
        Shape::of(self.runtime_index)
    }
}

/// A cell with the place of its contestant.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) contestant: usize,
    pub(super) document: usize,
    pub(super) cell: &'a Cell,
}

/// Cells of contestants that run the same thing.
pub(super) struct Group<'a> {
    /// What they run, in words.
    pub(super) title: String,
    pub(super) entries: Vec<Entry<'a>>,
}

/// A report's documents, in terms of contestants.
pub(super) struct View<'a> {
    pub(super) documents: &'a [(&'a str, &'a Document)],
    pub(super) contestants: Vec<Contestant<'a>>,
    /// In the order of the documents.
    pub(super) entries: Vec<Entry<'a>>,
    /// By workload, part, sequence length and batch size.
    pub(super) groups: Vec<Group<'a>>,
}

impl<'a> View<'a> {
    pub(super) fn new(documents: &'a [(&'a str, &'a Document)]) -> Self {
        let mut contestants: Vec<Contestant<'a>> = Vec::new();
        let (mut artifacts, mut runtimes) = (Vec::new(), Vec::new());
        let mut entries = Vec::new();
        let all = documents.iter().enumerate().flat_map(|(at, (_, of))| of.cells.iter().map(move |cell| (at, cell)));
        for (document, cell) in all {
            let (model, runtime, precision) = (cell.model.id.as_str(), cell.backend.as_str(), cell.precision.as_str());
            let same = |c: &Contestant<'_>| {
                (c.document, c.model, c.runtime, c.precision) == (document, model, runtime, precision)
            };
            let contestant = contestants.iter().position(same).unwrap_or_else(|| {
                contestants.push(Contestant {
                    key: key(contestants.len()),
                    label: String::new(),
                    name: match documents {
                        [_] => model.to_owned(),
                        _ => format!("{}: {model}", documents[document].0),
                    },
                    model,
                    runtime,
                    precision,
                    colour: place(&mut artifacts, (document, model, precision)),
                    runtime_index: place(&mut runtimes, runtime),
                    document,
                });
                contestants.len() - 1
            });
            entries.push(Entry { contestant, document, cell });
        }
        let labels: Vec<String> = contestants.iter().map(|of| label(of, &contestants)).collect();
        contestants.iter_mut().zip(labels).for_each(|(of, label)| of.label = label);
        let groups = groups(&entries);
        Self { documents, contestants, entries, groups }
    }

    /// The contestant of an entry.
    pub(super) fn contestant(&self, entry: &Entry<'_>) -> &Contestant<'a> {
        &self.contestants[entry.contestant]
    }

    /// How many times as fast an entry is as the first contestant's that runs the same; `None` where one of the two has no
    /// speed.
    pub(super) fn speedup(&self, entry: &Entry<'_>) -> Option<Ratio> {
        let group =
            self.groups.iter().find(|of| of.entries.iter().any(|other| std::ptr::eq(other.cell, entry.cell)))?;
        let base = group.entries.iter().find(|other| other.contestant == 0)?;
        match entry.document == base.document {
            true => Ratio::of_rounds(entry.cell, base.cell),
            false => Ratio::of_runs(entry.cell.latency_ms.as_ref()?, base.cell.latency_ms.as_ref()?),
        }
    }

    /// The geometric mean of the speed-ups of a contestant, and of how many shapes it is.
    pub(super) fn mean_speedup(&self, contestant: usize) -> Option<(Ratio, usize)> {
        let ratios: Vec<Ratio> = self.of(contestant).filter_map(|entry| self.speedup(entry)).collect();
        Some((Ratio::geometric_mean(&ratios)?, ratios.len()))
    }

    /// The entries of a contestant.
    pub(super) fn of(&self, contestant: usize) -> impl Iterator<Item = &Entry<'a>> {
        self.entries.iter().filter(move |entry| entry.contestant == contestant)
    }

    /// The largest of a figure of a contestant's cells.
    pub(super) fn largest(&self, contestant: usize, figure: impl Fn(&Cell) -> Option<u64>) -> Option<u64> {
        self.of(contestant).filter_map(|entry| figure(entry.cell)).max()
    }

    /// Whether cells of a contestant have such a status.
    pub(super) fn count(&self, contestant: usize, status: Status) -> usize {
        self.of(contestant).filter(|entry| entry.cell.status == status).count()
    }
}

/// A, B, ..., Z, AA, AB, ...
fn key(index: usize) -> String {
    let letter = char::from(b'A' + u8::try_from(index % 26).unwrap_or(0));
    if index < 26 { letter.to_string() } else { key(index / 26 - 1) + &letter.to_string() }
}

/// The place of a thing among those that were seen; a new one is the last.
fn place<T: PartialEq>(seen: &mut Vec<T>, thing: T) -> usize {
    seen.iter().position(|of| *of == thing).unwrap_or_else(|| {
        seen.push(thing);
        seen.len() - 1
    })
}

fn label(of: &Contestant<'_>, all: &[Contestant<'_>]) -> String {
    let mut label = of.name.clone();
    if all.iter().any(|other| other.name == of.name && other.precision != of.precision) {
        label = format!("{label} {}", of.precision);
    }
    if all.iter().any(|other| other.runtime != of.runtime) {
        label = format!("{label} · {}", of.runtime);
    }
    label
}

/// The cells that run the same, in the order of workloads, parts, sequence lengths and batch sizes.
fn groups<'a>(entries: &[Entry<'a>]) -> Vec<Group<'a>> {
    let mut parts = Vec::new();
    let mut sorted: Vec<_> = Vec::new();
    for entry in entries {
        let shape = &entry.cell.shape;
        let part = place(&mut parts, &shape.part);
        let order = (entry.cell.workload as u8, part, shape.seq, shape.batch, shape.tokens, shape.past);
        sorted.push(((order, variant(entry.cell)), *entry));
    }
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let same = sorted.chunk_by(|a, b| a.0 == b.0);
    same.map(|chunk| Group {
        title: chunk.first().map_or_else(String::new, |(_, entry)| what(entry.cell)),
        entries: chunk.iter().map(|(_, entry)| *entry).collect(),
    })
    .collect()
}

/// What tells cells of one shape apart that do not run the same: how texts are put into batches, or what is generated.
pub(in super::super) fn variant(cell: &Cell) -> String {
    let batches = cell.padding.map(|padding| match padding.batches {
        Batches::Arrival => "in order of arrival".to_owned(),
        Batches::Buckets => "in buckets of similar length".to_owned(),
    });
    // What is known of a cell before it runs, so that one that fails is the same cell.
    let generated = cell.shape.tokens.filter(|_| cell.workload == Workload::Generate);
    let generated = generated.map(|count| format!("{count} new tokens"));
    [batches, generated].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What a cell runs, in words.
pub(in super::super) fn what(cell: &Cell) -> String {
    let shape = &cell.shape;
    let mut words = Vec::new();
    match cell.workload {
        Workload::Encode => {}
        Workload::Lengths => words.push("texts of different lengths".to_owned()),
        Workload::Generate => words.push("generate".to_owned()),
        Workload::Load => words.push("load".to_owned()),
    }
    words.extend(shape.part.clone());
    words.push(match shape.seq {
        Some(seq) => format!("batch {} × {seq} tokens", shape.batch),
        None => format!("batch {}", shape.batch),
    });
    words.extend(Some(variant(cell)).filter(|of| !of.is_empty()));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::CellShape;
    use crate::bench::document::examples::{cell, document};

    fn on(backend: &str, precision: &str, of: Cell) -> Cell {
        Cell { backend: backend.to_owned(), precision: precision.to_owned(), ..of }
    }

    #[test]
    fn contestants_are_told_apart_by_as_little_as_that_takes() {
        let labels = |documents: &[(&str, &Document)]| {
            View::new(documents).contestants.iter().map(|of| of.label.clone()).collect::<Vec<_>>()
        };
        let one = document(vec![cell("a", 8, Some(1)), cell("b", 8, Some(2)), cell("a", 16, Some(1))]);
        assert_eq!(labels(&[("", &one)]), ["a", "b"]);
        let two = document(vec![cell("a", 8, Some(1)), on("trt", "f32", cell("a", 8, Some(1)))]);
        assert_eq!(labels(&[("", &two)]), ["a · ort", "a · trt"]);
        let three = document(vec![cell("a", 8, Some(1)), on("ort", "int8", cell("a", 8, Some(1)))]);
        assert_eq!(labels(&[("", &three)]), ["a f32", "a int8"]);
        assert_eq!(labels(&[("x.json", &one), ("y.json", &one)]), ["x.json: a", "x.json: b", "y.json: a", "y.json: b"]);
        assert_eq!([0, 25, 26, 27, 52, 702].map(key), ["A", "Z", "AA", "AB", "BA", "AAA"]);
    }

    #[test]
    fn an_artifact_has_a_colour_and_a_runtime_a_shape() {
        let of = document(vec![
            cell("a", 8, Some(1)),
            cell("b", 8, Some(1)),
            on("trt", "f32", cell("b", 8, Some(1))),
            on("trt", "f32", cell("a", 8, Some(1))),
        ]);
        let view = [("", &of)];
        let view = View::new(&view);
        let looks = view.contestants.iter().map(|of| (of.colour, of.shape()));
        let (round, square) = (Shape::Circle, Shape::Square);
        assert_eq!(looks.collect::<Vec<_>>(), [(0, round), (1, round), (1, square), (0, square)]);
    }

    #[test]
    fn groups_are_cells_that_run_the_same() {
        let step = |of: Cell| {
            let shape = CellShape { part: Some("step".to_owned()), tokens: Some(1), past: 8, ..of.shape };
            Cell { shape, ..of }
        };
        let of = document(vec![
            cell("a", 16, Some(40)),
            cell("a", 8, Some(20)),
            step(cell("a", 8, Some(3))),
            cell("b", 8, Some(10)),
            cell("b", 16, Some(10)),
            step(cell("b", 8, None)),
            cell("c", 4, Some(1)),
        ]);
        let view = [("", &of)];
        let view = View::new(&view);
        let titles: Vec<(&str, usize)> = view.groups.iter().map(|of| (of.title.as_str(), of.entries.len())).collect();
        let expected = [
            ("batch 2 × 4 tokens", 1),
            ("batch 2 × 8 tokens", 2),
            ("batch 2 × 16 tokens", 2),
            ("step, batch 2 × 8 tokens", 2),
        ];
        assert_eq!(titles, expected);
        let (mean, shapes) = view.mean_speedup(1).unwrap();
        assert!((mean.value - 8f64.sqrt()).abs() < 1e-9 && shapes == 2, "{mean:?}");
        let of = |index| view.mean_speedup(index).map(|(mean, shapes)| (mean.value, shapes));
        assert_eq!((of(0), of(2)), (Some((1.0, 3)), None));
        assert_eq!((view.count(1, Status::Failed), view.count(1, Status::Measured)), (1, 2));
    }
}
