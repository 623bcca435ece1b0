//! How sessions of ONNX Runtime are made.

use std::path::Path;

use cudarc::driver::CudaStream;
use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use planish_onnx::WeightFile;

use crate::ort::{OptimizationLevel, OrtOptions, Provider, cuda, placement};

/// How a session is made; on a device it runs in the order of the stream.
pub(super) fn configured(
    environment: &Environment,
    provider: Provider,
    threads: usize,
    options: OrtOptions,
    stream: Option<&CudaStream>,
) -> Result<SessionBuilder, ort::Error> {
    let level = match options.optimization {
        OptimizationLevel::Disabled => GraphOptimizationLevel::Disable,
        OptimizationLevel::Basic => GraphOptimizationLevel::Level1,
        OptimizationLevel::Extended => GraphOptimizationLevel::Level2,
        OptimizationLevel::All => GraphOptimizationLevel::All,
    };
    let mut builder = Session::builder(environment)?
        .with_optimization_level(level)?
        .with_intra_threads(threads)?
        .with_inter_threads(1)?
        .with_intra_op_spinning(options.spin)?
        .with_memory_pattern(!options.varied_shapes)?;
    if let Some(microseconds) = options.spin_us.filter(|_| options.spin) {
        builder = builder.with_config_entry("session.intra_op.spin_duration_us", microseconds.to_string())?;
    }
    if options.fast_start {
        builder = builder.with_config_entry("session.prepack.enable_parallel", "1")?;
    }
    if options.unrounded_products {
        builder = builder.with_config_entry("session.qdq_matmulnbits_accuracy_level", "1")?;
    }
    if provider == Provider::Cuda {
        builder = placement::recorded(cuda::registered(builder, stream)?)?;
    }
    let disabled = provider.disabled_for_compiled();
    if options.compiled && !disabled.is_empty() {
        builder = builder.with_disabled_optimizers(disabled.join(";"))?;
    }
    Ok(builder)
}

/// Files from this size on are worth mapping.
pub(super) const MAPPED_BYTES: u64 = 16 << 20;

/// Loads a file. Weights in a file of at least `mapped` bytes are mapped from there, where that is said: ONNX Runtime maps
/// external data, and reads a file with the weights in it as a whole before it copies them.
pub(super) fn committed(mut builder: SessionBuilder, path: &Path, mapped: Option<u64>) -> Result<Session, ort::Error> {
    match mapped.and_then(|least| outside(path, least)) {
        Some((model, folder)) => builder.with_config_entry(EXTERNAL_FOLDER, folder)?.commit_from_memory(&model),
        None => builder.commit_from_file(path),
    }
}

/// A model of at least so many bytes with its weights as external data in its file, and the folder of the file. `None` where
/// that cannot be: ONNX Runtime then loads the file, or says why it does not.
fn outside(path: &Path, least: u64) -> Option<(Vec<u8>, String)> {
    // ONNX Runtime takes no external data through a link that leads out of the folder, as those of the hub's cache do.
    let path = path.canonicalize().ok()?;
    let folder = path.parent()?.to_str()?.to_owned();
    let name_is_text = path.to_str().is_some();
    let file = WeightFile::open(&path).ok().filter(|file| name_is_text && file.bytes >= least)?;
    Some((planish_onnx::weights_outside(&file).ok()??, folder))
}

/// The setting that names the folder of external data for models from memory.
const EXTERNAL_FOLDER: &str = "session.model_external_initializers_file_folder_path";

#[cfg(test)]
mod tests {
    use planish_onnx::proto::{DataType, GraphProto, TensorProto};
    use planish_testing::onnx;
    use prost::Message;

    use super::*;
    use ort::session::SessionInputValue;
    use planish_eval::Tensor;

    use crate::find::Search;
    use crate::ort::LIBRARY;
    use crate::ort::library;
    use crate::ort::tensor::OrtValue;

    /// Whether ONNX Runtime makes `Add` and `LayerNormalization` one node under these options.
    fn fuses_residual(options: OrtOptions) -> bool {
        let loaded = library::load(&Search::of_process(&LIBRARY, None)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let optimized = folder.path().join("optimized.onnx");
        configured(&loaded.environment, Provider::Cpu, 0, options, None)
            .unwrap()
            .with_optimized_model_path(&optimized)
            .unwrap()
            .commit_from_file(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/onnx/residual.onnx"))
            .unwrap();
        let name = b"SkipLayerNormalization";
        std::fs::read(optimized).unwrap().windows(name.len()).any(|bytes| bytes == name)
    }

    /// A model of a product with a weight, of whose rows one is looked up: 128 KiB, which is enough to be mapped. ONNX Runtime
    /// repacks the weights of products, and leaves tables where they are.
    fn write_model(path: &Path) {
        let numbers = (0..128 * 256u16).map(|n| f32::from(n % 251) - 125.0);
        let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
        let weight = TensorProto { raw_data: bytes.into(), ..onnx::floats("w", &[128, 256], &[]) };
        let nodes = ["p = MatMul(x, w)", "i = ArgMax(x)", "r = Gather(w, i)", "y = Add(p, r)"];
        let axis = |name: &str, axis| vec![onnx::int(name, axis)];
        let attributes = [Vec::new(), [axis("axis", 1), axis("keepdims", 0)].concat(), Vec::new(), Vec::new()];
        let nodes = nodes.iter().zip(attributes).map(|(text, attributes)| onnx::node(text, attributes)).collect();
        let graph = onnx::graph(vec![onnx::f32("x", "1,128")], vec![weight], nodes, &[]);
        let graph = GraphProto { output: vec![onnx::f32("y", "1,256")], ..graph };
        std::fs::write(path, onnx::model(17, graph).encode_to_vec()).unwrap();
    }

    /// What a model of [`write_model`] computes, and whether a file is mapped while it is loaded.
    fn computed(path: &Path, mapped: Option<u64>, file: &Path) -> (Vec<f32>, bool) {
        let loaded = library::load(&Search::of_process(&LIBRARY, None)).unwrap();
        let options = OrtOptions { fast_start: mapped.is_some(), ..OrtOptions::default() };
        let builder = configured(&loaded.environment, Provider::Cpu, 1, options, None).unwrap();
        let mut session = committed(builder, path, mapped).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let is_mapped = maps.lines().any(|line| line.ends_with(file.canonicalize().unwrap().to_str().unwrap()));
        let x = OrtValue::of(&Tensor::new(vec![1, 128], (0..128u8).map(f32::from).collect::<Vec<_>>()).unwrap());
        let outputs = session.run([SessionInputValue::from(x.unwrap().inner())].as_slice()).unwrap();
        (outputs["y"].try_extract_tensor::<f32>().unwrap().1.to_vec(), is_mapped)
    }

    /// Weights that stay in the file of the model give what those that are read with it give.
    #[test]
    fn mapped_weights_compute_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        write_model(&path);
        let (expected, is_mapped) = computed(&path, None, &path);
        assert!(!is_mapped);
        assert_eq!(computed(&path, Some(0), &path), (expected, true));
        // A file that is too small is read.
        assert!(!computed(&path, Some(1 << 20), &path).1);
    }

    /// As in the cache of the hub, where files are links to others that are named by their contents.
    #[test]
    fn weights_behind_a_link_are_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir(at("blobs")).unwrap();
        std::fs::create_dir_all(at("snapshots/main")).unwrap();
        write_model(&at("blobs/sha"));
        let link = at("snapshots/main/model.onnx");
        std::os::unix::fs::symlink("../../blobs/sha", &link).unwrap();
        let (expected, _) = computed(&link, None, &link);
        assert_eq!(computed(&link, Some(0), &link), (expected, true));
    }

    /// Products with dequantized weights, where ONNX Runtime rounds the other operand unless told otherwise.
    #[test]
    fn products_of_dequantized_weights_round_nothing_where_that_is_said() {
        let loaded = library::load(&Search::of_process(&LIBRARY, None)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        let codes: Vec<i32> = (0..64 * 8).map(|n| n * 37 % 128 - 64).collect();
        let expected: Vec<f32> =
            (0..8).map(|k| (0..64).map(|i| input(i) * codes[i * 8 + k] as f32 * 0.01).sum()).collect();
        let weight = TensorProto {
            name: "w".to_owned(),
            data_type: DataType::Int8.into(),
            dims: vec![64, 8],
            int32_data: codes,
            ..TensorProto::default()
        };
        let nodes =
            vec![onnx::node("d = DequantizeLinear(w, s)", Vec::new()), onnx::node("y = MatMul(x, d)", Vec::new())];
        let constants = vec![weight, onnx::floats("s", &[], &[0.01])];
        let graph = onnx::graph(vec![onnx::f32("x", "1,64")], constants, nodes, &[]);
        let graph = GraphProto { output: vec![onnx::f32("y", "1,8")], ..graph };
        std::fs::write(&path, onnx::model(21, graph).encode_to_vec()).unwrap();
        let worst = |unrounded_products| {
            let options = OrtOptions { unrounded_products, ..OrtOptions::default() };
            let builder = configured(&loaded.environment, Provider::Cpu, 1, options, None).unwrap();
            let mut session = committed(builder, &path, None).unwrap();
            let x = OrtValue::of(&Tensor::new(vec![1, 64], (0..64).map(input).collect::<Vec<f32>>()).unwrap());
            let outputs = session.run([SessionInputValue::from(x.unwrap().inner())].as_slice()).unwrap();
            let found = outputs["y"].try_extract_tensor::<f32>().unwrap().1.to_vec();
            found.iter().zip(&expected).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()))
        };
        assert!(worst(true) < 1e-5, "{}", worst(true));
        assert!(worst(false) > 1e-4, "{}", worst(false));
    }

    /// A number between -1 and 1 that is no multiple of a power of two.
    fn input(at: usize) -> f32 {
        (at as f32 * 0.7).sin()
    }

    #[test]
    fn a_compiled_graph_keeps_its_residual_additions() {
        assert!(fuses_residual(OrtOptions::default()));
        assert!(!fuses_residual(OrtOptions::compiled()));
    }
}
