//! The grid of a benchmark in shards: each has every Nth shape, with all contestants, since ratios are of one run. The documents of
//! all shards make that of the whole grid.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow, bail, ensure};
use planish_artifact::backend::RuntimeSettings;
use planish_artifact::evaluation::Requirements;
use planish_artifact::split::Split;
use planish_data::{DataOptions, Shard, Shards, described};
use serde::{Deserialize, Serialize};

use super::diff::differences;
use super::document::{Cell, Document, Status, Tool};
use super::environment::Environment;
use super::figures::Peaks;
use super::recommend::recommend;
use super::{BenchOptions, Contest, Entrant};

/// Which cells of a grid a document has, and what the grid is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GridShard {
    /// The shards that are here.
    pub shards: Shards,
    /// All shapes of the grid, as rows and tokens, in their order.
    pub shapes: Vec<(usize, usize)>,
    /// What takes part.
    pub contestants: Vec<GridContestant>,
    /// The options that decide what is measured and how long, by name.
    pub options: BTreeMap<String, String>,
}

/// A contestant of a grid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridContestant {
    /// How it is called.
    pub id: String,
    /// The BLAKE3 digest of the names, sizes and digests of its files.
    pub blake3: String,
    /// The command that makes it for good, where it was compiled for the benchmark.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
}

/// What measured a shard of a document that was merged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredShard {
    /// Which shard, from 1 on.
    pub shard: usize,
    /// How many cells it has: none where there are more shards than shapes.
    pub cells: usize,
    /// The program.
    pub tool: Tool,
    /// The machine.
    pub env: Environment,
    /// What it can do at most.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peaks: Option<Peaks>,
    /// The most memory that the process had resident, in bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_rss: Option<u64>,
}

/// The option that has the limits of the contestant to choose.
const LIMITS: &str = "max-loss";

impl GridShard {
    /// The shard of the grid of options whose sequence lengths are known.
    pub(super) fn new(contest: &Contest, options: &BenchOptions, shard: Shard) -> Result<Self> {
        let shapes = options.batch.iter().flat_map(|rows| options.sequence.iter().map(move |tokens| (*rows, *tokens)));
        let mut of: BTreeMap<String, String> = [
            ("interval", options.interval.to_string()),
            ("time", options.time.as_secs_f64().to_string()),
            ("iterations", options.iterations.to_string()),
            ("warmup", options.warmup.as_secs_f64().to_string()),
            ("threads", options.threads.to_string()),
            ("spin", options.spin.to_string()),
            ("transfers", options.transfers.to_string()),
            ("seed", options.seed.to_string()),
            ("peaks", options.peaks.to_string()),
            ("isolate", options.isolate.to_string()),
            ("operators", options.operators.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let names: Vec<&str> = contest.runtimes.iter().map(|of| of(&contest.settings).name()).collect();
        of.insert(
            "runtime".to_owned(),
            if names.is_empty() { "that of each target".to_owned() } else { names.join(",") },
        );
        let RuntimeSettings { openvino_precision, polling_us, engines, .. } = &contest.settings;
        let or_usual = |of: Option<String>| of.unwrap_or_else(|| "usual".to_owned());
        of.insert("openvino-precision".to_owned(), or_usual(openvino_precision.map(|of| of.to_string())));
        of.insert("polling".to_owned(), or_usual(polling_us.map(|of| of.to_string())));
        of.insert("cuda-graph".to_owned(), engines.cuda_graph.to_string());
        let references: Vec<String> = contest.references.iter().map(|of| of.display().to_string()).collect();
        of.insert("reference".to_owned(), references.join(", "));
        if let Some((path, how)) = &contest.data {
            let DataOptions { field, label, samples, split, .. } = how;
            let all = [
                ("data", format!("BLAKE3 {}", described(path)?.blake3.unwrap_or_default())),
                ("field", or_usual(field.clone())),
                ("label", or_usual(label.clone())),
                ("samples", samples.to_string()),
                ("held-out", (*split == Split::HeldOut).to_string()),
            ];
            of.extend(all.map(|(name, value)| (name.to_owned(), value)));
        }
        if let Some(limits) = &contest.limits {
            of.insert(LIMITS.to_owned(), limits.to_string());
        }
        Ok(Self {
            shards: shard.into(),
            shapes: shapes.collect(),
            contestants: contest.entrants.iter().map(GridContestant::of).collect(),
            options: of,
        })
    }

    /// The shapes of a shard.
    pub(super) fn own(&self, shard: Shard) -> Vec<(usize, usize)> {
        let own = self.shapes.iter().enumerate().filter(|(at, _)| shard.has(*at));
        own.map(|(_, shape)| *shape).collect()
    }

    /// The place of a cell's shape in the grid; that of the first shape of its rows where it takes no sequences.
    fn place(&self, cell: &Cell) -> usize {
        let is_its = |(rows, tokens): &(usize, usize)| {
            *rows == cell.shape.batch && cell.shape.seq.is_none_or(|seq| seq == *tokens)
        };
        self.shapes.iter().position(is_its).unwrap_or(usize::MAX)
    }

    /// Checks that another shard is one of the same grid.
    fn check(&self, other: &Self) -> Result<()> {
        let shapes = |of: &Self| {
            of.shapes.iter().map(|(rows, tokens)| format!("{rows} x {tokens}")).collect::<Vec<_>>().join(", ")
        };
        ensure!(
            self.shapes == other.shapes,
            "the shards are of different grids: {} and {}",
            shapes(self),
            shapes(other)
        );
        if self.contestants != other.contestants {
            let named = |of: &Self| {
                let one = |of: &GridContestant| {
                    format!("{} (BLAKE3 {})", of.id, of.blake3.chars().take(12).collect::<String>())
                };
                of.contestants.iter().map(one).collect::<Vec<_>>().join(", ")
            };
            bail!("the shards are of different contestants: {} and {}", named(self), named(other));
        }
        if self.options != other.options {
            let differ = planish_data::differences(&self.options, &other.options)?;
            bail!("the shards were measured with different options: {differ}");
        }
        Ok(())
    }
}

impl GridContestant {
    fn of(entrant: &Entrant) -> Self {
        let mut hasher = blake3::Hasher::new();
        for file in &entrant.artifact.manifest.files {
            let digest = file.blake3.as_deref().unwrap_or_default();
            hasher.update(format!("{}\n{}\n{digest}\n", file.name, file.bytes).as_bytes());
        }
        Self {
            id: entrant.label.clone(),
            blake3: hasher.finalize().to_hex().to_string(),
            command: entrant.command.clone(),
        }
    }
}

impl Document {
    /// The document of the whole grid, of the documents of its shards, which have names for messages. Its rows are in the order of one
    /// run; the machine is that of the first shard, and [`Document::measured`] has those of all.
    ///
    /// # Errors
    /// When one is of no shard, two are of different grids or of one shard, or shards are missing.
    pub fn merged(documents: Vec<(String, Self)>, args: Vec<String>) -> Result<Self> {
        let mut grid: Option<GridShard> = None;
        for (name, document) in &documents {
            let Some(own) = &document.shard else {
                bail!(
                    "{name} is not of a shard: `planish bench --set shard=K/N --json FILE` writes the documents to merge"
                );
            };
            own.shards.check().map_err(|problem| anyhow!("{name}: {problem}"))?;
            let open = document.cells.iter().filter(|cell| cell.status == Status::Unfinished).count();
            if open > 0 {
                let (cells, shards) = (document.cells.len(), &own.shards);
                bail!("{name}: {open} of {cells} cells of shard {shards} are not measured; run it again");
            }
            match &mut grid {
                None => grid = Some(own.clone()),
                Some(grid) => {
                    let context =
                        |error: anyhow::Error| error.context(format!("cannot merge {name} with the files before it"));
                    grid.check(own).map_err(context)?;
                    grid.shards.join(&own.shards, "files").map_err(|error| context(error.into()))?;
                }
            }
        }
        let Some(grid) = grid else { bail!("there is no file") };
        grid.shards.check_complete()?;
        Ok(joined(documents.into_iter().map(|(_, document)| document).collect(), &grid, args))
    }

    /// In what the machines of its shards and the versions of planish differ, in words.
    #[must_use]
    pub fn unlike(&self) -> Vec<String> {
        let mut with_cells = self.measured.iter().filter(|of| of.cells > 0);
        let Some(first) = with_cells.next() else { return Vec::new() };
        let name = |of: &MeasuredShard| format!("shard {}", of.shard);
        let unlike = |other: &MeasuredShard| {
            let versions = [first, other].map(|of| format!("{} by planish {}", name(of), of.tool.version));
            let version = (first.tool.version != other.tool.version).then(|| versions.join(", "));
            let machines = differences((&name(first), &first.env), (&name(other), &other.env));
            version.into_iter().chain(machines).collect::<Vec<_>>()
        };
        with_cells.flat_map(unlike).collect()
    }
}

/// The document of all shards.
fn joined(mut documents: Vec<Document>, grid: &GridShard, args: Vec<String>) -> Document {
    let number = |of: &Document| of.shard.as_ref().and_then(|of| of.shards.present.first().copied()).unwrap_or(0);
    documents.sort_by_key(number);
    let measured = documents.iter().map(|of| MeasuredShard {
        shard: number(of),
        cells: of.cells.len(),
        tool: of.tool.clone(),
        env: of.env.clone(),
        peaks: of.peaks,
        peak_rss: of.peak_rss,
    });
    let measured: Vec<MeasuredShard> = measured.collect();
    let first = measured.iter().find(|of| of.cells > 0).or(measured.first()).cloned();
    let mut cells: Vec<Cell> = Vec::new();
    for cell in documents.into_iter().flat_map(|of| of.cells) {
        // A model that takes no sequences has one cell for all shapes of its rows.
        let is_same = |of: &&Cell| {
            (&of.model.id, &of.backend, &of.shape, of.rounds)
                == (&cell.model.id, &cell.backend, &cell.shape, cell.rounds)
        };
        if !cells.iter().any(|of| is_same(&of)) {
            cells.push(cell);
        }
    }
    // Stable: the parts of a shape and the contestants at it stay as they are. What did not load is behind what did.
    let was_loaded = |cell: &Cell| cell.status == Status::Measured || cell.load.ms > 0.0;
    let contestant = |cell: &Cell| grid.contestants.iter().position(|of| of.id == cell.model.id);
    cells.sort_by_cached_key(|cell| {
        let unloaded = if was_loaded(cell) { None } else { Some(contestant(cell)) };
        (cell.rounds.unwrap_or(usize::MAX), unloaded, grid.place(cell))
    });
    let limits: Option<Requirements> = grid.options.get(LIMITS).and_then(|limits| limits.parse().ok());
    let command = |id: &str| grid.contestants.iter().find(|of| of.id == id)?.command.clone();
    let recommendations = recommend(&cells, limits.as_ref(), command);
    let env = first.as_ref().map_or_else(|| Environment::read([]), |of| of.env.clone());
    let mut document = Document::new(args, env, cells);
    document.peak_rss = measured.iter().filter_map(|of| of.peak_rss).max();
    document.recommendations = recommendations;
    document.measured = measured;
    if document.unlike().is_empty() {
        document.peaks = first.and_then(|of| of.peaks);
    }
    document
}
