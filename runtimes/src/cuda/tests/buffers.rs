//! Buffers with allocations of their own, in which accesses after a buffer show.

use std::process::{Command, Output};
use std::sync::Arc;

use planish_ir::Graph;

use crate::cuda::buffers::{Buffers, are_separate};
use crate::cuda::check::{graph, inputs, session};
use crate::cuda::device::{Device, Grid};
use crate::cuda::emulator::{self, Emulator};
use crate::cuda::memory::{self, Interval};
use crate::cuda::program::{Argument, Base, Launch, Place, Program, Step, Style};
use crate::cuda::run::{Addresses, Prepared};
use crate::cuda::source::{File, Source};
use crate::cuda::weights::Weights;
use crate::{RuntimeError, Session};

/// Reads the 16 floats after the 16 of its operand.
const KERNEL: &str = "KERNEL after(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x + 16]; }
EXPORT(after)";

fn emulator() -> Arc<dyn Device> {
    Arc::new(Emulator::new(emulator::compiler().unwrap()))
}

/// A program of two buffers of 16 floats and one launch.
fn program() -> Program {
    let intervals = vec![Interval { bytes: 64, first: 0, last: 0 }; 2];
    let argument = |buffer| Argument::At(Place { base: Base::Buffer(buffer), offset: 0 });
    let grid = Grid { blocks: [1, 1, 1], threads: 16, shared: 0 };
    Program {
        kernels: vec![Source::new(File::of_test("after", KERNEL), "after")],
        steps: vec![Step::Launch(Launch { kernel: 0, grid, arguments: vec![argument(0), argument(1)] })],
        origins: Vec::new(),
        names: vec![String::new(); 2],
        memory: memory::plan(&intervals),
        intervals,
        outputs: Vec::new(),
        constants: Vec::new(),
        attentions: Vec::new(),
    }
}

/// The test below runs it with AddressSanitizer.
#[test]
#[ignore = "it reads memory that is not its own"]
fn reads_after_a_buffer() {
    let device = emulator();
    let program = program();
    let kernels = device.prepare(&program.kernels).unwrap();
    let buffers = match are_separate() {
        true => Buffers::separate(device.as_ref(), &program).unwrap(),
        // The arena of a program that needs more.
        false => Buffers::Arena(device.allocate(2 * program.memory.peak).unwrap()),
    };
    let prepared = Prepared { program, kernels, constants: None };
    let weights = Weights::load(device.as_ref(), &Graph::new("none"), false).unwrap();
    let addresses = Addresses {
        prepared: &prepared,
        weights: &weights,
        inputs: Vec::new(),
        outputs: Vec::new(),
        buffers: &buffers,
        packing: 0,
        words: 0,
    };
    addresses.run(device.as_ref()).unwrap();
}

#[test]
fn accesses_after_a_separate_buffer_show() {
    let compiler = Command::new("c++").arg("-print-file-name=libasan.so").output().unwrap();
    let library = String::from_utf8(compiler.stdout).unwrap();
    let run = |separate: &str| -> Output {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "cuda::tests::buffers::reads_after_a_buffer"])
            .env("LD_PRELOAD", library.trim())
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .env_remove("PLANISH_EMULATOR_RACES")
            .env("PLANISH_EMULATOR_FLAGS", "-fsanitize=address -g")
            .env("PLANISH_CUDA_SEPARATE_BUFFERS", separate)
            .output()
            .unwrap()
    };
    let error = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let in_arena = run("0");
    assert!(in_arena.status.success(), "{}", error(&in_arena));
    let separate = run("1");
    assert!(!separate.status.success());
    let error = error(&separate);
    assert!(error.contains("heap-buffer-overflow") && error.contains("after.cu"), "{error}");
}

#[test]
fn a_run_gives_the_same_in_separate_buffers() -> Result<(), RuntimeError> {
    let graph = graph(
        "input %x: f32[n, 24]
         %s = softmax(%x) : f32[n, 24]
         %t = mul(%s, %x) : f32[n, 24]
         %y = softmax(%t) : f32[n, 24]
         output y = %y",
    );
    let graph = graph.unwrap();
    let inputs = inputs(&graph, &[("n", 3)], 1).unwrap();
    let named: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let device = emulator();
    let results = [false, true].map(|separate| {
        let mut session = session(&graph, &device, Style::Fused)?;
        session.separate = separate;
        let once = session.run(&named)?;
        session.bind(&named)?;
        session.run_bound()?;
        Ok::<_, RuntimeError>(once)
    });
    let [together, apart] = results;
    assert_eq!(together?, apart?);
    Ok(())
}
