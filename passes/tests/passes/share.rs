//! What `share-weights` reads of the files that contain weights.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use planish_ir::ops::Linear;
use planish_ir::weight::StoredRange;
use planish_ir::{DType, Graph, Origin, Shape, TensorType, Weight, WeightSource};
use planish_passes::clean::SHARE_WEIGHTS;
use planish_passes::{ONNX, Options, PassError};

/// A file of numbers that notes the sizes of what is read.
#[derive(Debug)]
struct Noted {
    bytes: Vec<u8>,
    read: Mutex<Vec<usize>>,
}

impl WeightSource for Noted {
    fn name(&self) -> &str {
        "noted.bin"
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read.lock().unwrap().push(buffer.len());
        let at = usize::try_from(offset).unwrap();
        let range = self.bytes.get(at..at + buffer.len());
        buffer.copy_from_slice(range.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn file_path(&self) -> Option<&Path> {
        None
    }
}

/// Numbers of which no two beside each other are the same.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let weight = Weight::uniform(DType::F32, vec![count], seed).unwrap();
    weight.read_numbers().unwrap().into_iter().map(|n| n as f32).collect()
}

fn transposed(matrix: &[f32], rows: usize) -> Vec<f32> {
    let columns = matrix.len() / rows;
    (0..columns).flat_map(|j| (0..rows).map(move |i| matrix[i * columns + j])).collect()
}

/// Linear layers one after another, whose weights [out, in] are one after another in a file.
struct Layers {
    graph: Graph,
    file: Arc<Noted>,
}

impl Layers {
    fn new(weights: &[(Vec<f32>, [usize; 2])], missing: usize) -> Self {
        let all: Vec<u8> = weights.iter().flat_map(|(w, _)| w.iter().flat_map(|n| n.to_le_bytes())).collect();
        let bytes = all[..all.len() - missing].to_vec();
        let file = Arc::new(Noted { bytes, read: Mutex::default() });
        let origin = |tensor: usize| Origin::Tensor { file: "noted.bin".into(), name: format!("w{tensor}").into() };
        let mut graph = Graph::new("layers");
        let ty = TensorType::new(DType::F32, Shape::of(&[2, i64::try_from(weights[0].1[1]).unwrap()]));
        let mut x = graph.add_input("x", ty, Origin::default());
        let mut offset = 0;
        for (i, (numbers, shape)) in weights.iter().enumerate() {
            let range = StoredRange { source: Arc::clone(&file) as Arc<dyn WeightSource>, offset };
            let weight = Weight::stored(DType::F32, shape.to_vec(), range).unwrap();
            offset += 4 * numbers.len() as u64;
            let weight = graph.add_weight(&format!("w{i}"), weight, origin(i));
            x = graph.emit(Linear::new(x, weight, None), "x", Origin::default()).unwrap()[0];
        }
        graph.add_output("y", x);
        Self { graph, file }
    }

    fn share(&mut self) -> Result<usize, PassError> {
        Ok((SHARE_WEIGHTS.run)(&mut self.graph, &Options::new(&ONNX, 20))?.changed)
    }

    /// How many bytes were read at once, and at all.
    fn read(&self) -> [usize; 2] {
        let read = self.file.read.lock().unwrap();
        [read.iter().copied().max().unwrap_or(0), read.iter().sum()]
    }
}

#[test]
fn a_matrix_larger_than_a_tile_is_its_transpose_up_to_the_last_element() {
    let [rows, columns] = [2000, 300];
    let table = numbers(rows * columns, 1);
    let head = transposed(&table, rows);
    let pair = |head: Vec<f32>| [(table.clone(), [rows, columns]), (head, [columns, rows])];
    let mut tied = Layers::new(&pair(head.clone()), 0);
    assert_eq!(tied.share().unwrap(), 1);
    assert_eq!(tied.share().unwrap(), 0);
    let [most, all] = tied.read();
    assert!(most <= 512 << 10 && all < 2 * 4 * rows * columns + 100, "{most} of {all}");

    let mut last = head;
    *last.last_mut().unwrap() += 1.0;
    assert_eq!(Layers::new(&pair(last), 0).share().unwrap(), 0);
}

#[test]
fn a_vector_longer_than_a_piece_is_the_same_up_to_the_last_element() {
    let matrix = numbers(512 * 512, 1);
    let mut near = matrix.clone();
    *near.last_mut().unwrap() += 1.0;
    let all = [matrix.clone(), near, matrix].map(|m| (m, [512, 512]));
    let mut layers = Layers::new(&all, 0);
    assert_eq!(layers.share().unwrap(), 1);
    assert!(layers.read()[0] <= 512 << 10);
}

#[test]
fn of_weights_that_differ_a_few_elements_are_read() {
    let layers: Vec<_> = (0..24).map(|seed| (numbers(300 * 300, seed), [300, 300])).collect();
    let mut layers = Layers::new(&layers, 0);
    assert_eq!(layers.share().unwrap(), 0);
    assert_eq!(layers.read(), [4, 4 * 24]);

    let mut alone = Layers::new(&[(numbers(300, 1), [30, 10]), (numbers(600, 1), [20, 30])], 0);
    assert_eq!(alone.share().unwrap(), 0);
    assert_eq!(alone.read(), [0, 0]);
}

/// Large constants may be equal for no other reason, so they are not read to find out. Small ones are shared.
#[test]
fn of_large_constants_a_few_elements_are_read() {
    let constant = |size: usize| vec![0.5; size * size];
    let mut large = Layers::new(&[1025; 3].map(|size| (constant(size), [size, size])), 0);
    assert_eq!(large.share().unwrap(), 0);
    let samples = 4 * (3 * 8 + 8);
    let [most, all] = large.read();
    assert!(most == 4 && all <= samples, "{most} of {all}");

    let mut small = Layers::new(&[100; 3].map(|size| (constant(size), [size, size])), 0);
    assert_eq!(small.share().unwrap(), 2);

    // One other element among those that are compared is enough.
    let mut near = constant(1025);
    near[64 * 1025 + 64] = 1.0;
    let mut tied = Layers::new(&[(near.clone(), [1025, 1025]), (near, [1025, 1025])], 0);
    assert_eq!(tied.share().unwrap(), 1);
}

#[test]
fn what_cannot_be_read_is_named() {
    let matrix = numbers(256 * 256, 1);
    let mut cut = Layers::new(&[(matrix.clone(), [256, 256]), (matrix, [256, 256])], 4);
    let error = chain(cut.share().unwrap_err());
    assert_eq!(
        error,
        "cannot read the weight `w1` (tensor `w1` of noted.bin): cannot read 262144 bytes at offset 262144 of noted.bin: \
         unexpected end of file"
    );
}

/// An error and its causes.
fn chain(error: PassError) -> String {
    let mut error: Option<&dyn std::error::Error> = Some(&error);
    let mut all = Vec::new();
    while let Some(e) = error {
        all.push(e.to_string());
        error = e.source();
    }
    all.join(": ")
}
