//! Graphs of planish as files: the text form, and the bytes of weights beside it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use planish_ir::weight::StoredRange;
use planish_ir::{Graph, Origin, Weight, WeightSource};
use planish_onnx::files::{File, NamedWeight, Segment, hard_link, write};
use planish_onnx::{ExportError, ImportOptions, Placement};
use planish_runtimes::{Format, graph_file};

use super::{EmitOptions, Emitted, Emitter};

/// Writes graphs in their text form.
pub struct GraphEmitter;

/// Weights of more elements than this are in a file of weights; others are in the text.
const INLINE_ELEMENTS: usize = 64;

/// Where weights begin in their file, so that a runtime can copy or map them: a multiple of this many bytes.
const ALIGNMENT: u64 = 256;

impl Emitter for GraphEmitter {
    fn format(&self) -> Format {
        Format::GRAPH
    }

    fn emit(&self, graph: &Graph, part: &str, folder: &Path, options: &EmitOptions<'_>) -> Result<Emitted> {
        let (text_name, data_name) = (format!("{part}.graph"), format!("{part}.weights"));
        let mut placing = Placing::new(folder, &data_name, options.placement);
        let mut placed = graph.clone();
        for (id, value, weight) in graph.weights() {
            let weight = placing.placed(weight, &value.origin, &value.name)?;
            placed.set_weight(id, weight).with_context(|| format!("the weight `{}` cannot be placed", value.name))?;
        }
        let mut text = String::new();
        for (key, value) in options.metadata {
            text += &format!("// {} = {}\n", serde_json::to_string(key)?, serde_json::to_string(value)?);
        }
        text += &placed.to_string();
        let path = folder.join(&text_name);
        fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        let mut files = vec![(text_name, text.len() as u64)];
        let Placing { written, mut linked, .. } = placing;
        if !written.is_empty() {
            let weights = written
                .iter()
                .map(|(weight, origin, name, offset)| (*offset, NamedWeight { name: name.clone(), weight, origin }));
            let weights: Vec<(u64, NamedWeight<'_>)> = weights.collect();
            let mut file = File::default();
            for (offset, named) in &weights {
                file.length = *offset;
                file.push(Segment::Weight(named));
            }
            write(&folder.join(&data_name), &file, options.progress)?;
            files.push((data_name, file.length));
        }
        linked.sort();
        Ok(Emitted { files, linked })
    }

    fn read(&self, file: &Path, options: &ImportOptions) -> Result<Graph> {
        if !options.is_empty() {
            bail!("--shapes, --inputs and --outputs take parts of ONNX graphs only, and {} is none", file.display());
        }
        Ok(graph_file::load(file)?)
    }

    fn copies(&self, _: &Weight) -> bool {
        // A weight that is transformed stays an expression of what is linked.
        false
    }
}

/// A file of weights by its name in the text, which nothing is read through.
#[derive(Debug)]
struct Named(String);

impl WeightSource for Named {
    fn name(&self) -> &str {
        &self.0
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this is the name of a file in a text"))
    }

    fn file_path(&self) -> Option<&Path> {
        None
    }
}

/// Decides where the weights of a graph go.
struct Placing<'a> {
    folder: &'a Path,
    placement: Placement,
    data: Arc<dyn WeightSource>,
    /// What goes to the file of weights, with its offset there.
    written: Vec<(Weight, Origin, String, u64)>,
    length: u64,
    /// The offsets of weights that are in that file.
    offsets: HashMap<Weight, u64>,
    /// The files that were linked, by the path of what they are links of.
    links: HashMap<PathBuf, Arc<dyn WeightSource>>,
    linked: Vec<String>,
}

impl<'a> Placing<'a> {
    fn new(folder: &'a Path, data_name: &str, placement: Placement) -> Self {
        Self {
            folder,
            placement,
            data: Arc::new(Named(data_name.to_owned())),
            written: Vec::new(),
            length: 0,
            offsets: HashMap::new(),
            links: HashMap::new(),
            linked: Vec::new(),
        }
    }

    /// A weight as the text has it.
    fn placed(&mut self, weight: &Weight, origin: &Origin, name: &str) -> Result<Weight> {
        if weight.elements() <= INLINE_ELEMENTS {
            let failed = |source| ExportError::Weight { name: name.to_owned(), origin: origin.clone(), source };
            let bytes = weight.read().map_err(failed)?;
            return Weight::inline(weight.dtype(), weight.shape().to_vec(), bytes)
                .with_context(|| format!("the weight `{name}` has other bytes than its type takes"));
        }
        if self.placement == Placement::Link && is_linkable(weight) {
            let mut failed = None;
            let linked = weight.expr().children().is_empty().then(|| self.leaf(weight, origin, name));
            let linked = match linked {
                Some(leaf) => Some(leaf?),
                None => self.expression(weight, origin, name, &mut failed),
            };
            if let Some(error) = failed {
                return Err(error);
            }
            if let Some(linked) = linked {
                return Ok(linked);
            }
        }
        self.written(weight, origin, name)
    }

    /// A transform of what is linked. `None` with or without an error where that is impossible.
    fn expression(
        &mut self,
        weight: &Weight,
        origin: &Origin,
        name: &str,
        failed: &mut Option<anyhow::Error>,
    ) -> Option<Weight> {
        weight.map(&mut |child| {
            if !child.expr().children().is_empty() {
                return self.expression(child, origin, name, failed);
            }
            match self.leaf(child, origin, name) {
                Ok(leaf) => Some(leaf),
                Err(error) => {
                    *failed = Some(error);
                    None
                }
            }
        })
    }

    /// What a weight is made of: a range of a file that is linked, or numbers.
    fn leaf(&mut self, leaf: &Weight, origin: &Origin, name: &str) -> Result<Weight> {
        let Some(range) = leaf.as_stored() else { return self.placed(leaf, origin, name) };
        let Some(path) = range.source.file_path() else { return self.written(leaf, origin, name) };
        let source = self.link(path, range.source.name())?;
        let stored = StoredRange { source, offset: range.offset };
        Weight::stored(leaf.dtype(), leaf.shape().to_vec(), stored).context("a range of a file does not fit 64 bits")
    }

    /// A weight in the file of weights; the same one is there once.
    fn written(&mut self, weight: &Weight, origin: &Origin, name: &str) -> Result<Weight> {
        let offset = match self.offsets.entry(weight.clone()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let offset = self.length.next_multiple_of(ALIGNMENT);
                self.length = offset.saturating_add(weight.bytes());
                self.written.push((weight.clone(), origin.clone(), name.to_owned(), offset));
                *new.insert(offset)
            }
        };
        let stored = StoredRange { source: Arc::clone(&self.data), offset };
        Weight::stored(weight.dtype(), weight.shape().to_vec(), stored)
            .with_context(|| format!("the weight `{name}` is text, or too large"))
    }

    /// Links a file of the source into the folder. Another file of that name may be there.
    fn link(&mut self, path: &Path, name: &str) -> Result<Arc<dyn WeightSource>> {
        if let Some(source) = self.links.get(path) {
            return Ok(Arc::clone(source));
        }
        let own = [".onnx", ".graph", ".weights"].iter().any(|ending| name.contains(ending));
        let name = if own { format!("source-{name}") } else { name.to_owned() };
        let mut link = name.clone();
        for at in 1.. {
            let place = self.folder.join(&link);
            match hard_link(path, &place) {
                Ok(()) => break,
                // By another part of the same weights.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_same(path, &place) => break,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => link = format!("{at}-{name}"),
                Err(source) => {
                    return Err(ExportError::Link { from: path.to_owned(), to: self.folder.to_owned(), source }.into());
                }
            }
        }
        self.linked.push(link.clone());
        let source: Arc<dyn WeightSource> = Arc::new(Named(link));
        self.links.insert(path.to_owned(), Arc::clone(&source));
        Ok(source)
    }
}

/// Whether some of a weight is in a file that can be linked.
fn is_linkable(weight: &Weight) -> bool {
    let mut found = false;
    weight.visit_leaves(&mut |leaf| found |= leaf.as_stored().is_some_and(|range| range.source.file_path().is_some()));
    found
}

/// Whether two paths lead to one file.
fn is_same(a: &Path, b: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    file(a).is_some_and(|own| file(b) == Some(own))
}
