//! Reading a model without its weights. The encoding of a message is walked from the file, and all of it is
//! kept but the elements of large tensors, of which only the place is noted: memory follows what is
//! not weights.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use planish_ir::WeightSource;
use prost::Message;
use prost::encoding::{encode_key, encode_varint};

use super::ImportError;
use crate::files::external_data;
use crate::proto::{LeftBytes, ModelProto, TENSOR_EXTERNAL_DATA, TENSOR_RAW_DATA, TensorProto};

/// Elements of up to so many bytes are read at once: shapes, scalars, short vectors.
const KEPT_BYTES: u64 = 1024;

/// Weights from so many bytes on become external data: a smaller one is read sooner than it is mapped.
const OUTSIDE_BYTES: u64 = 64 << 10;

/// What a file begins with that stands for another one.
const LFS_POINTER: [u8; 23] = *b"version https://git-lfs";

/// The tag of `TensorProto::left`, and what no tag of the format reaches.
const LEFT: u32 = 60001;

/// How deep messages may lie in each other: graphs in attributes of nodes of graphs.
const MAX_DEPTH: usize = 64;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// A file that weights are ranges of: the model itself, or external data.
#[derive(Debug)]
pub struct WeightFile {
    path: PathBuf,
    name: String,
    file: File,
    /// The size of the file.
    pub bytes: u64,
}

impl WeightFile {
    /// Opens a regular file.
    ///
    /// # Errors
    /// When it cannot be opened, or is something else.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (file, bytes) = planish_files::open(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { path: path.to_owned(), name, file, bytes })
    }
}

impl WeightSource for WeightFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn file_path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

/// The messages that are walked into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Function,
}

impl Kind {
    /// The message in a field.
    fn child(self, tag: u32) -> Option<Kind> {
        Some(match (self, tag) {
            (Kind::Model, 7) | (Kind::Attribute, 6 | 11) => Kind::Graph,
            (Kind::Model, 25) => Kind::Function,
            (Kind::Graph, 1) | (Kind::Function, 7) => Kind::Node,
            (Kind::Graph, 5) | (Kind::Attribute, 5 | 10) => Kind::Tensor,
            (Kind::Node, 5) | (Kind::Function, 11) => Kind::Attribute,
            _ => return None,
        })
    }
}

/// The model in a file, large tensors left where they are.
pub(super) fn read(file: &WeightFile) -> Result<ModelProto, ImportError> {
    let mut head = [0; LFS_POINTER.len()];
    if file.read_at(0, &mut head).is_ok() && head == LFS_POINTER {
        let message = "this is a pointer of Git LFS and not the model: `git lfs pull` fetches that".to_owned();
        return Err(ImportError::File { path: file.path.clone(), message });
    }
    let mut walk = Walk { file, at: 0, buffer: Vec::new(), start: 0, outside: false, other_files: false };
    let mut bytes = Vec::new();
    walk.message(file.bytes, Kind::Model, 0, &mut bytes)?;
    ModelProto::decode(bytes.as_slice()).map_err(|e| walk.malformed(format!("this is not an ONNX model: {e}")))
}

/// The encoding of the model in a file, in which the large weights of the graph are external data in that file. `None` of a
/// model with external data in other files, whose places are relative to the folder in which the model was found.
///
/// # Errors
/// When it cannot be read, or is no model.
pub fn weights_outside(file: &WeightFile) -> Result<Option<Vec<u8>>, ImportError> {
    let mut walk = Walk { file, at: 0, buffer: Vec::new(), start: 0, outside: true, other_files: false };
    let mut bytes = Vec::new();
    walk.message(file.bytes, Kind::Model, 0, &mut bytes)?;
    Ok((!walk.other_files).then_some(bytes))
}

/// Where weights of the graph are in a model: model, graph, tensor.
const WEIGHT_DEPTH: usize = 2;

struct Walk<'a> {
    file: &'a WeightFile,
    /// Whether large weights become external data. Else their places are noted.
    outside: bool,
    /// Whether a tensor has external data.
    other_files: bool,
    /// The next byte.
    at: u64,
    /// Bytes of the file from `start` on.
    buffer: Vec<u8>,
    start: u64,
}

impl Walk<'_> {
    fn malformed(&self, message: String) -> ImportError {
        ImportError::File { path: self.file.path.clone(), message }
    }

    /// Copies the fields of a message that ends before `end`.
    fn message(&mut self, end: u64, kind: Kind, depth: usize, out: &mut Vec<u8>) -> Result<(), ImportError> {
        if depth > MAX_DEPTH {
            return Err(self.malformed(format!("messages are nested more than {MAX_DEPTH} deep")));
        }
        while self.at < end {
            let key = self.varint(end)?;
            let (tag, wire) = (u32::try_from(key >> 3).unwrap_or(u32::MAX), key & 7);
            let kept = tag < LEFT;
            match wire {
                0 => {
                    let value = self.varint(end)?;
                    if kept {
                        encode_varint(key, out);
                        encode_varint(value, out);
                    }
                }
                1 | 5 => {
                    let bytes = self.take(if wire == 1 { 8 } else { 4 }, end)?;
                    if kept {
                        encode_varint(key, out);
                        out.extend_from_slice(&bytes);
                    }
                }
                2 => {
                    self.other_files |= kind == Kind::Tensor && tag == TENSOR_EXTERNAL_DATA;
                    let length = self.varint(end)?;
                    if length > end - self.at {
                        return Err(self.cut_short(length));
                    }
                    if !kept {
                        self.at += length;
                    } else if self.outside && kind == Kind::Tensor && tag == TENSOR_RAW_DATA {
                        if length < OUTSIDE_BYTES || depth != WEIGHT_DEPTH {
                            encode_varint(key, out);
                            encode_varint(length, out);
                            out.extend_from_slice(&self.take(length, end)?);
                        } else {
                            let place = TensorProto {
                                external_data: external_data(&self.file.name, self.at, length),
                                data_location: 1,
                                ..TensorProto::default()
                            };
                            place.encode(out).map_err(|error| self.malformed(error.to_string()))?;
                            self.at += length;
                        }
                    } else if kind == Kind::Tensor && tag == TENSOR_RAW_DATA && length > KEPT_BYTES {
                        let left = LeftBytes { offset: self.at, length };
                        prost::encoding::message::encode(LEFT, &left, out);
                        self.at += length;
                    } else if let Some(child) = kind.child(tag) {
                        let mut inside = Vec::new();
                        self.message(self.at + length, child, depth + 1, &mut inside)?;
                        encode_key(tag, prost::encoding::WireType::LengthDelimited, out);
                        encode_varint(inside.len() as u64, out);
                        out.append(&mut inside);
                    } else {
                        encode_varint(key, out);
                        encode_varint(length, out);
                        out.extend_from_slice(&self.take(length, end)?);
                    }
                }
                _ => {
                    return Err(self.malformed(format!(
                        "this is not an ONNX model: unknown wire type {wire} at byte {}",
                        self.at
                    )));
                }
            }
        }
        Ok(())
    }

    fn cut_short(&self, length: u64) -> ImportError {
        self.malformed(format!(
            "the file is truncated or no ONNX model: {length} bytes should follow byte {}, of {} in all",
            self.at, self.file.bytes
        ))
    }

    fn varint(&mut self, end: u64) -> Result<u64, ImportError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(end)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.malformed(format!("this is not an ONNX model: a number of more than 64 bits at byte {}", self.at)))
    }

    /// The next byte.
    fn byte(&mut self, end: u64) -> Result<u8, ImportError> {
        if self.at >= end {
            return Err(self.cut_short(1));
        }
        let buffered = self.at.checked_sub(self.start).and_then(|from| self.buffer.get(usize::try_from(from).ok()?));
        match buffered {
            Some(byte) => {
                self.at += 1;
                Ok(*byte)
            }
            None => Ok(self.take(1, end)?[0]),
        }
    }

    /// The next bytes.
    fn take(&mut self, length: u64, end: u64) -> Result<Vec<u8>, ImportError> {
        if length > end - self.at {
            return Err(self.cut_short(length));
        }
        let mut out = Vec::new();
        while (out.len() as u64) < length {
            if !(self.start..self.start + self.buffer.len() as u64).contains(&self.at) {
                let size = usize::try_from(self.file.bytes - self.at).unwrap_or(usize::MAX).min(BUFFER_BYTES);
                self.buffer.resize(size, 0);
                self.start = self.at;
                let read = self.file.read_at(self.at, &mut self.buffer);
                read.map_err(|source| ImportError::Read { path: self.file.path.clone(), source })?;
            }
            // The buffer is at most 64 KiB.
            let from = usize::try_from(self.at - self.start).unwrap_or(0);
            let wanted = usize::try_from(length).unwrap_or(usize::MAX) - out.len();
            let part = &self.buffer[from..self.buffer.len().min(from.saturating_add(wanted))];
            out.extend_from_slice(part);
            self.at += part.len() as u64;
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::proto::{AttributeProto, GraphProto, NodeProto};

    fn read_back(model: &ModelProto) -> ModelProto {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        fs::write(&path, model.encode_to_vec()).unwrap();
        read(&WeightFile::open(&path).unwrap()).unwrap()
    }

    fn with_tensor(bytes: usize) -> ModelProto {
        let raw_data = (0..bytes).map(|i| i as u8).collect::<Vec<u8>>().into();
        let tensor = TensorProto { name: "w".to_owned(), raw_data, ..TensorProto::default() };
        let graph = GraphProto { name: "g".to_owned(), initializer: vec![tensor], ..GraphProto::default() };
        ModelProto { ir_version: 8, producer_name: "p".to_owned(), graph: Some(graph), ..ModelProto::default() }
    }

    #[test]
    fn small_tensors_are_read() {
        let model = with_tensor(1024);
        assert_eq!(read_back(&model), model);
    }

    /// Also where they are longer than what is read at a time.
    #[test]
    fn large_tensors_are_left_where_they_are() {
        for bytes in [1025, 3 * BUFFER_BYTES] {
            let model = with_tensor(bytes);
            let encoded = model.encode_to_vec();
            let read = read_back(&model);
            let tensor = &read.graph.as_ref().unwrap().initializer[0];
            let left = tensor.left.unwrap();
            assert!(tensor.raw_data.is_empty());
            let (from, length) = (usize::try_from(left.offset).unwrap(), usize::try_from(left.length).unwrap());
            assert_eq!(encoded[from..from + length], model.graph.unwrap().initializer[0].raw_data);
        }
    }

    #[test]
    fn large_weights_of_the_graph_become_external_data_of_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        let large = usize::try_from(OUTSIDE_BYTES).unwrap();
        for (bytes, is_outside) in [(2000, false), (large - 1, false), (large, true), (3 * large, true)] {
            // A constant in a node stays, however large it is.
            let value = with_tensor(2 * large).graph.unwrap().initializer.pop();
            let attribute = AttributeProto { t: value, ..AttributeProto::default() };
            let node = NodeProto { attribute: vec![attribute], ..NodeProto::default() };
            let mut model = with_tensor(bytes);
            model.graph.as_mut().unwrap().node.push(node);
            let encoded = model.encode_to_vec();
            fs::write(&path, &encoded).unwrap();
            let found = weights_outside(&WeightFile::open(&path).unwrap()).unwrap().unwrap();
            let mut found = ModelProto::decode(found.as_slice()).unwrap();
            let tensor = &mut found.graph.as_mut().unwrap().initializer[0];
            assert_eq!(tensor.data_location, i32::from(is_outside));
            if is_outside {
                let entry = |at: usize| tensor.external_data[at].value.clone();
                assert_eq!(entry(0), "model.onnx");
                let (from, length): (usize, usize) = (entry(1).parse().unwrap(), entry(2).parse().unwrap());
                tensor.raw_data = encoded[from..from + length].to_vec().into();
                (tensor.external_data, tensor.data_location) = (Vec::new(), 0);
            }
            assert_eq!(found, model);
        }
    }

    #[test]
    fn a_model_with_external_data_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        let mut model = with_tensor(usize::try_from(OUTSIDE_BYTES).unwrap());
        let other = TensorProto { external_data: external_data("weights", 0, 4), ..TensorProto::default() };
        model.graph.as_mut().unwrap().initializer.push(other);
        fs::write(&path, model.encode_to_vec()).unwrap();
        assert_eq!(weights_outside(&WeightFile::open(&path).unwrap()).unwrap(), None);
    }

    /// A file cannot say where its own elements are: the field is the reader's.
    #[test]
    fn ranges_that_a_file_makes_up_are_dropped() {
        let mut model = with_tensor(4);
        model.graph.as_mut().unwrap().initializer[0].left = Some(LeftBytes { offset: 0, length: 4 });
        assert_eq!(read_back(&model), with_tensor(4));
    }
}
