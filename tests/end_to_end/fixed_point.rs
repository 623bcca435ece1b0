//! Passes that are repeated until nothing changes leave what they gave alone, pass by pass.

use std::fs;
use std::path::{Path, PathBuf};

use planish_ir::{Graph, Op};
use planish_models::{Checkpoint, LoadOptions, load};
use planish_passes::fuse::FUSING;
use planish_passes::raise::{explain, misses};
use planish_passes::{CLEANING, CUDA, ONNX, Options, Pass, PassError, Pipeline, RAISING, TARGETS};

use crate::support::repository;

/// What a folder contains, in order.
fn list(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The graphs of every checkpoint and of every other exporter, by name.
fn graphs() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    let fixtures = repository().join("fixtures");
    for folder in list(&fixtures.join("goldens")).into_iter().filter(|path| path.is_dir()) {
        for part in load(&Checkpoint::open(&folder).unwrap(), LoadOptions::default()).unwrap().parts {
            graphs.push((format!("{} {}", folder.display(), part.name), part.graph));
        }
    }
    for file in list(&fixtures.join("graphs")).iter().filter(|path| path.is_dir()).flat_map(|folder| list(folder)) {
        graphs.push((file.display().to_string(), planish_onnx::import(&file).unwrap().graph));
    }
    graphs
}

/// Runs passes on what they gave: each reports that it changes nothing, and changes nothing.
fn changes(graph: &Graph, passes: &[&Pass], options: &Options) -> Vec<String> {
    let text = graph.to_string();
    let mut again = graph.clone();
    let mut changes = Vec::new();
    for pass in passes {
        let changed = pass.apply(&mut again, options).unwrap().changed;
        if changed > 0 || again.to_string() != text {
            changes.push(format!("`{}` reports {changed} changes, to\n{again}", pass.name));
            again = graph.clone();
        }
    }
    changes
}

#[test]
fn a_second_run_changes_nothing() {
    let graphs = graphs();
    assert_eq!(graphs.len(), 175);
    for (name, graph) in graphs {
        for (target, fusion) in TARGETS.iter().flat_map(|&target| [(target, true), (target, false)]) {
            let options = Options { fusion, explain: true, ..Options::new(target, 20) };
            let pipeline = Pipeline::new(options.clone());
            let mut graph = graph.clone();
            let mut stages = Vec::new();
            pipeline.raise(&mut graph, &mut stages, &mut |_, _| {}).unwrap();
            let rounds = stages.len() / RAISING.len();
            assert!(stages.len().is_multiple_of(RAISING.len()) && rounds <= 4, "{name}: {rounds} rounds");
            assert_eq!(changes(&graph, RAISING, &options), [""; 0], "{name}, {options:?}, raised");
            if *target == ONNX && fusion {
                assert_eq!(explain(&graph, &stages).misses, misses(&graph).unwrap(), "{name}");
            }

            pipeline.prepare(&mut graph, &mut stages, &mut |_, _| {}).unwrap();
            let has_no_kernel =
                graph.nodes().any(|(_, node)| matches!(node.op, Op::Foreign(_) | Op::Conv(_) | Op::Experts(_)));
            let recurs = graph.nodes().any(|(_, node)| matches!(node.op, Op::LinearAttention(_)));
            match pipeline.lower(&mut graph, &mut stages, &mut |_, _| {}) {
                Err(PassError::Unsupported { .. }) if *target == CUDA && has_no_kernel => continue,
                Err(PassError::Unsupported { .. }) if *target == CUDA && recurs => continue,
                lowered => lowered.unwrap(),
            }
            assert_eq!(changes(&graph, CLEANING, &options), [""; 0], "{name}, {options:?}, lowered");
            assert_eq!(changes(&graph, FUSING, &options), [""; 0], "{name}, {options:?}, fused");
        }
    }
}
