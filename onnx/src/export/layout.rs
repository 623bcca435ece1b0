//! Where each byte of the output files goes. Sizes of weights are known before their values, so
//! the files are laid out first and then filled in parallel.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use planish_ir::weight::StoredRange;
use planish_ir::{DType, Weight};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::{ExportError, ExportOptions, Exported, Placement, data_type, types};
use crate::files::{self, File, NamedWeight, Segment, external_data, hard_link};
use crate::proto::{GRAPH_INITIALIZER, GraphProto, MODEL_GRAPH, ModelProto, TENSOR_RAW_DATA, TensorProto};

/// Weights below this many bytes stay in the model file: shape inference reads some of them there.
pub const INLINE_BYTES: u64 = 1024;

/// Where tensors begin in a file of their own, so that a runtime can map them.
const ALIGNMENT: u64 = 4096;

/// Weights of equal bytes go into a file of their own where this many bytes are then written once, because tensors within the
/// model file cannot share bytes.
const SHARED_BYTES: u64 = 1 << 18;

/// What protobuf can hold.
const PROTOBUF_BYTES: u64 = (1 << 31) - 1;

/// Lays out the model and writes it.
pub(super) fn write(
    model: &ModelProto,
    graph: GraphProto,
    weights: &[NamedWeight<'_>],
    name: &str,
    folder: &Path,
    options: &ExportOptions<'_>,
) -> Result<Exported, ExportError> {
    let model_name = format!("{name}.onnx");
    let data_name = format!("{model_name}{}", options.data_suffix);
    let total: u64 = weights.iter().map(|w| w.weight.bytes()).sum();
    let is_external = total > options.external_above || shared(weights) >= SHARED_BYTES;
    // The offsets of weights by their bytes.
    let mut written: HashMap<Weight, u64> = HashMap::new();
    let mut links: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut data = File::default();
    let mut body = Body::default();
    for initializer in weights {
        let bytes = initializer.weight.bytes();
        let linked = match options.placement {
            Placement::Link | Placement::LinkViews if bytes >= INLINE_BYTES => linkable(initializer.weight),
            _ => None,
        };
        if initializer.weight.dtype() == DType::String {
            body.text(initializer)?;
            continue;
        }
        if let Some((path, range)) = linked {
            let location = link_name(range.source.name());
            body.external(initializer, &location, range.offset);
            links.insert(location, path.to_owned());
        } else if is_external && bytes >= INLINE_BYTES {
            let next = data.length.next_multiple_of(ALIGNMENT);
            let offset = *written.entry(flat(initializer.weight)).or_insert(next);
            body.external(initializer, &data_name, offset);
            if offset == next {
                data.length = next;
                data.push(Segment::Weight(initializer));
            }
        } else {
            body.inline(initializer);
        }
    }

    let mut file = File::default();
    let graph = graph.encode_to_vec();
    let mut head = model.encode_to_vec();
    encode_key(MODEL_GRAPH, WireType::LengthDelimited, &mut head);
    encode_varint(graph.len() as u64 + body.length, &mut head);
    head.extend(graph);
    file.push(Segment::Bytes(head));
    body.segments.into_iter().for_each(|s| file.push(s));
    if file.length > PROTOBUF_BYTES {
        return Err(ExportError::TooLarge(file.length));
    }

    let mut exported = Exported { files: vec![(model_name.clone(), file.length)], linked: Vec::new() };
    for (link, path) in links {
        match hard_link(&path, &folder.join(&link)) {
            // By the export of another graph of the same weights.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            linked => {
                linked.map_err(|source| ExportError::Link { from: path.clone(), to: folder.to_owned(), source })?
            }
        }
        exported.linked.push(link);
    }
    files::write(&folder.join(model_name), &file, options.progress)?;
    if data.length > 0 {
        files::write(&folder.join(&data_name), &data, options.progress)?;
        exported.files.push((data_name, data.length));
    }
    Ok(exported)
}

/// A weight as one row, which is equal for weights of the same bytes in different shapes.
fn flat(weight: &Weight) -> Weight {
    weight.reshape(&[weight.elements()]).unwrap_or_else(|| weight.clone())
}

/// The bytes of weights whose bytes are those of another one before them.
fn shared(weights: &[NamedWeight<'_>]) -> u64 {
    let mut seen = HashSet::new();
    let large = weights.iter().map(|w| w.weight).filter(|w| w.bytes() >= INLINE_BYTES);
    large.filter(|weight| !seen.insert(flat(weight))).map(Weight::bytes).sum()
}

/// The file and range of a weight that is just that.
fn linkable(weight: &Weight) -> Option<(&Path, &StoredRange)> {
    let range = weight.as_stored()?;
    range.source.file_path().map(|path| (path, range))
}

/// What a weight file is called beside the model: by its own name, unless that is one of the files that are
/// written.
fn link_name(name: &str) -> String {
    if name.contains(".onnx") { format!("source-{name}") } else { name.to_owned() }
}

/// The initializers of the graph, encoded: the part of the model file that contains the weights.
#[derive(Default)]
struct Body<'g> {
    length: u64,
    segments: Vec<Segment<'g>>,
}

impl<'g> Body<'g> {
    fn push(&mut self, bytes: Vec<u8>) {
        self.length += bytes.len() as u64;
        self.segments.push(Segment::Bytes(bytes));
    }

    /// A tensor of text, which is in fields of its own.
    fn text(&mut self, initializer: &NamedWeight<'_>) -> Result<(), ExportError> {
        let weight = initializer.weight;
        let failed =
            |source| ExportError::Weight { name: initializer.name.clone(), origin: initializer.origin.clone(), source };
        let head = tensor(initializer);
        let tensor = types::tensor(&head.name, weight.dtype(), head.dims, &weight.read().map_err(failed)?);
        let mut bytes = Vec::new();
        prost::encoding::message::encode(GRAPH_INITIALIZER, &tensor, &mut bytes);
        self.push(bytes);
        Ok(())
    }

    /// A tensor whose bytes are here.
    fn inline(&mut self, initializer: &'g NamedWeight<'g>) {
        let tensor = tensor(initializer);
        let bytes = initializer.weight.bytes();
        let raw = key_len(TENSOR_RAW_DATA) as u64 + encoded_len_varint(bytes) as u64 + bytes;
        let mut head = Vec::new();
        encode_key(GRAPH_INITIALIZER, WireType::LengthDelimited, &mut head);
        encode_varint(tensor.encoded_len() as u64 + raw, &mut head);
        head.extend(tensor.encode_to_vec());
        encode_key(TENSOR_RAW_DATA, WireType::LengthDelimited, &mut head);
        encode_varint(bytes, &mut head);
        self.push(head);
        self.length += bytes;
        self.segments.push(Segment::Weight(initializer));
    }

    /// A tensor whose bytes are in another file.
    fn external(&mut self, initializer: &'g NamedWeight<'g>, location: &str, offset: u64) {
        let tensor = TensorProto {
            external_data: external_data(location, offset, initializer.weight.bytes()),
            data_location: 1,
            ..tensor(initializer)
        };
        let mut head = Vec::new();
        encode_key(GRAPH_INITIALIZER, WireType::LengthDelimited, &mut head);
        encode_varint(tensor.encoded_len() as u64, &mut head);
        head.extend(tensor.encode_to_vec());
        self.push(head);
    }
}

fn tensor(initializer: &NamedWeight<'_>) -> TensorProto {
    TensorProto {
        dims: initializer.weight.shape().iter().map(|&d| i64::try_from(d).unwrap_or(i64::MAX)).collect(),
        data_type: data_type(initializer.weight.dtype()),
        name: initializer.name.clone(),
        ..TensorProto::default()
    }
}
