//! A document of `planish bench` that has everything that one can have: its times are made up, from a seed.

use std::collections::BTreeMap;

use planish::artifact::evaluation::{Embeddings, Evaluation, OutputFigures, Pooling};
use planish::artifact::manifest::File;
use planish::bench::{
    Accuracy, Batches, Cell, CellShape, Choice, Cpu, Document, Environment, Generation, Latency, Load, Memory, Meter,
    ModelId, Padding, Peaks, Recommendation, Refused, Roofline, SCHEMA, Status, Throughput, Tool, Warmup, Work,
    Workload,
};

/// A contestant: its name and precision, how fast it is, the bytes of its files, its cosine with float32 on data, and the
/// share of neighbours that it keeps.
struct Artifact {
    id: &'static str,
    precision: &'static str,
    speed: f64,
    bytes: u64,
    cosine: f64,
    neighbours: f64,
}

const ARTIFACTS: [Artifact; 4] = [
    Artifact { id: "minilm-unfused", precision: "f32", speed: 1.0, bytes: 90_900_000, cosine: 1.0, neighbours: 100.0 },
    Artifact {
        id: "minilm-ort",
        precision: "f32",
        speed: 1.38,
        bytes: 90_400_000,
        cosine: 0.999_999_9,
        neighbours: 100.0,
    },
    Artifact {
        id: "minilm-ort-fp16",
        precision: "fp16",
        speed: 0.93,
        bytes: 45_300_000,
        cosine: 0.999_98,
        neighbours: 99.5,
    },
    Artifact {
        id: "minilm-ort-int8",
        precision: "int8",
        speed: 2.05,
        bytes: 23_100_000,
        cosine: 0.9957,
        neighbours: 94.0,
    },
];

/// A runtime, and how fast it is.
const RUNTIMES: [(&str, f64); 2] = [("ort", 1.0), ("cuda-emulator", 0.62)];

const PEAKS: Peaks = Peaks {
    tflops: 0.138,
    int8_tops: 0.242,
    gb_s: 21.4,
    threads: 2,
    reached_tflops: None,
    reached_int8_tops: Some(0.251),
};

/// Times of `n` runs in nanoseconds that take about `ms`: they drift, and some are late.
pub(crate) fn times(random: &mut fastrand::Rng, ms: f64, n: usize) -> Vec<u64> {
    let mut drift = 0.0;
    let mut time = || {
        drift = drift * 0.95 + (random.f64() - 0.5) * 0.004;
        let noise = (0..4).map(|_| random.f64() - 0.5).sum::<f64>() * 0.012;
        let late = if random.f64() < 0.03 { random.f64().powi(3) * 0.6 } else { 0.0 };
        (ms * (1.0 + drift + noise + late) * 1e6).round() as u64
    };
    (0..n).map(|_| time()).collect()
}

fn measured(random: &mut fastrand::Rng, cell: Cell, ms: f64) -> Cell {
    let samples_ns = times(random, ms, (3000.0 / ms).clamp(50.0, 400.0) as usize);
    let visits: Vec<usize> = samples_ns.chunks(10).map(<[u64]>::len).collect();
    let latency_ms = Latency::of_visits(&samples_ns, &visits);
    let median = latency_ms.as_ref().unwrap().p50;
    let rows = cell.shape.batch as f64;
    let tokens = cell.shape.tokens.map(|tokens| rows * tokens as f64 / median * 1e3);
    Cell {
        throughput: Some(Throughput { inf_s: rows / median * 1e3, tok_s: tokens }),
        warmup: Warmup { n: 12, ms: 12.0 * ms },
        roofline: cell.work.map(|work| Roofline::of(work, median, PEAKS, cell.precision == "int8")),
        status: Status::Measured,
        samples_ns,
        visits,
        latency_ms,
        ..cell
    }
}

fn encode(random: &mut fastrand::Rng, of: &Artifact, (runtime, factor): (&str, f64), batch: usize, seq: usize) -> Cell {
    let tokens = (batch * seq) as f64;
    // 10.6 M parameters in linear layers, and attention of 6 layers with 384 features.
    let flops = tokens * (2.0 * 10.6e6 + 6.0 * 4.0 * 384.0 * seq as f64);
    // Larger products are closer to the peak.
    let rate = 9.2e10 * (tokens / (tokens + 90.0));
    let ms = flops / rate * 1e3 / of.speed / factor;
    let shape = CellShape { batch, seq: Some(seq), part: None, tokens: Some(seq), past: 0 };
    let model = ModelId { id: of.id.to_owned(), file_bytes: Some(of.bytes) };
    let all =
        [("MatMul", 0.62), ("FusedMatMul", 0.11), ("Attention", 0.09), ("LayerNormalization", 0.06), ("Gelu", 0.05)];
    let few = [("Add", 0.03), ("Softmax", 0.02), ("Transpose", 0.01), ("Gather", 0.006), ("Cast", 0.004)];
    let operators = all.into_iter().chain(few).map(|(name, share)| (name.to_owned(), share * ms)).collect();
    let output = |output: &str| OutputFigures {
        part: "model".to_owned(),
        output: output.to_owned(),
        is_cache: false,
        relative_error: 1.0 - of.cosine,
        cosine: of.cosine,
    };
    let cell = Cell {
        memory: Memory {
            load_rss: Some(of.bytes * 13 / 10),
            peak_rss: Some(of.bytes * 2 + (tokens * 40_000.0) as u64),
            repeated_rss: Some(of.bytes * 2 + (tokens * 90_000.0) as u64),
            weights: Some(of.bytes - 400_000),
        },
        load: Load { ms: of.bytes as f64 / 1e6, first_ms: Some(ms * 1.8), read_bytes: None },
        work: Some(Work { flops: flops as u64, bytes: of.bytes + (tokens * 1600.0) as u64 }),
        energy: (runtime == "ort").then_some(planish::bench::Energy { joules: ms * 0.03, meter: Meter::Rapl }),
        providers: Some(BTreeMap::from([("CPUExecutionProvider".to_owned(), 180)])),
        operators,
        accuracy: Some(Accuracy { max_abs: 1e-4, max_rel: 2e-5, cos: of.cosine.max(0.9999), top1: 1.0 }),
        evaluation: Some(Evaluation {
            data: File { name: "sentences.txt".to_owned(), bytes: 12_345, blake3: None },
            split: planish::artifact::split::Split::All,
            samples: 200,
            tokens: Some(5_120),
            runtime: runtime.to_owned(),
            embeddings: Some(Embeddings {
                pooling: Pooling::Mean,
                mean_cosine: of.cosine,
                mean_cosine_ci95: Some([of.cosine - 0.0002, of.cosine + 0.0002]),
                least_cosine: of.cosine - 0.001,
                neighbours_kept: Some(of.neighbours),
                count: 200,
                neighbours_kept_ci95: Some([of.neighbours - 3.0, (of.neighbours + 2.0).min(100.0)]),
            }),
            predictions: None,
            perplexity: None,
            read: None,
            labels: Vec::new(),
            scores: None,
            outputs: vec![output("last_hidden_state")],
        }),
        ..Cell::new(model, runtime, of.precision, Workload::Encode, shape)
    };
    measured(random, cell, ms)
}

/// Without what only a measured cell has.
fn without_speed(status: Status, reason: &str, cell: Cell) -> Cell {
    let mut bare = Cell::new(cell.model, &cell.backend, &cell.precision, cell.workload, cell.shape);
    bare.failure = (status != Status::Unfinished).then(|| reason.to_owned());
    Cell { status, ..bare }
}

fn generate(random: &mut fastrand::Rng, of: &Artifact, cache: bool, batch: usize) -> Cell {
    let tpot_ms = if cache { 2.4 } else { 19.0 } * (1.0 + 0.1 * batch as f64) / of.speed;
    let (ttft_ms, new_tokens) = (14.0 * batch as f64 / of.speed, 64);
    let ms = ttft_ms + tpot_ms * (new_tokens - 1) as f64;
    let tok_s = (batch * new_tokens) as f64 / ms * 1e3;
    let part = Some(if cache { "generate" } else { "generate without cache" }.to_owned());
    let shape = CellShape { batch, seq: Some(128), part, tokens: Some(new_tokens), past: 0 };
    let id = if cache { of.id } else { "minilm-unfused" };
    let model = ModelId { id: id.to_owned(), file_bytes: Some(of.bytes) };
    let generation = Some(Generation { new_tokens, cache, ttft_ms, tpot_ms, tok_s });
    measured(random, Cell { generation, ..Cell::new(model, "ort", of.precision, Workload::Generate, shape) }, ms)
}

fn lengths(random: &mut fastrand::Rng, of: &Artifact, batches: Batches) -> Cell {
    let padded = if batches == Batches::Arrival { 9_216 } else { 5_440 };
    let shape = CellShape { batch: 8, seq: None, part: None, tokens: None, past: 0 };
    let model = ModelId { id: of.id.to_owned(), file_bytes: Some(of.bytes) };
    let padding = Some(Padding { batches, count: 25, real: 5_120, padded });
    let cell = Cell { padding, ..Cell::new(model, "ort", of.precision, Workload::Lengths, shape) };
    let ms = padded as f64 * 0.2 / of.speed;
    let mut cell = measured(random, cell, ms);
    cell.throughput = cell.throughput.map(|of| Throughput { tok_s: Some(5_120.0 / ms * 1e3), ..of });
    cell
}

/// Four artifacts on two runtimes, three batch sizes and two lengths; cells that failed, a runtime that is not there, a cell
/// that was not finished; generation, texts of different lengths; and names that are HTML.
pub(crate) fn document(seed: u64) -> Document {
    let random = &mut fastrand::Rng::with_seed(seed);
    let mut cells = Vec::new();
    for seq in [128, 512] {
        for batch in [1, 8, 32] {
            for of in &ARTIFACTS {
                for (runtime, factor) in RUNTIMES {
                    let mut cell = encode(random, of, (runtime, factor), batch, seq);
                    let settled = batch < 32 || runtime == "ort";
                    if !settled {
                        cell.warnings.push("the times did not settle while warming up".to_owned());
                    }
                    let int8_emulated = of.precision == "int8" && runtime != "ort";
                    cells.push(match (int8_emulated, batch, seq) {
                        (true, 32, 512) => without_speed(Status::Unfinished, "", cell),
                        (true, _, 512) => without_speed(
                            Status::Failed,
                            "last_hidden_state: max relative error 0.31 is more than 0.05; cosine 0.91 is less than 0.99",
                            cell,
                        ),
                        _ => cell,
                    });
                }
            }
            let hostile = Artifact { id: "<script>alert(1)</script>", ..ARTIFACTS[1] };
            let cell = encode(random, &hostile, ("trt", 1.0), batch, seq);
            let reason = "TensorRT is not available: libnvinfer.so.11 & its parser <b>were not found</b>; give --runtime-option trt-lib=PATH";
            cells.push(without_speed(Status::Unavailable, reason, cell));
        }
    }
    for batch in [1, 4, 8] {
        cells.extend([true, false].map(|cache| generate(random, &ARTIFACTS[0], cache, batch)));
        cells.push(generate(random, &ARTIFACTS[1], true, batch));
    }
    for of in &ARTIFACTS[..2] {
        cells.extend([Batches::Arrival, Batches::Buckets].map(|batches| lengths(random, of, batches)));
    }
    let cpu = Cpu {
        model: "AMD EPYC 9R14".to_owned(),
        flags: ["avx2", "f16c", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16"].map(str::to_owned).into(),
        cores: 2,
        governor: Some("performance".to_owned()),
    };
    let runtimes = [("onnxruntime", "1.31.1"), ("cuda-emulator", "0.1.0")];
    let env = Environment {
        cpu,
        os: "Debian GNU/Linux 12 (bookworm) 6.1.0".to_owned(),
        runtimes: runtimes.map(|(name, version)| (name.to_owned(), version.to_owned())).into(),
        gpu: None,
        time: 1_790_000_000,
    };
    let args = "bench --compare minilm --batch 1,8,32 --seq 128,512 --data sentences.txt --html report.html";
    let tool = Tool { version: "0.1.0".to_owned(), args: args.split(' ').map(str::to_owned).collect() };
    let choice = Choice {
        id: "minilm-ort-int8".to_owned(),
        backend: "ort".to_owned(),
        base: "minilm-unfused".to_owned(),
        base_backend: "ort".to_owned(),
        speedup: 2.05,
        speedup_ci95: Some([2.01, 2.09]),
        shapes: 6,
        accuracy: Some("94.0 % of neighbours kept (95% 91.0 to 96.0 %; 200 samples)".to_owned()),
        file_bytes: Some(23_100_000),
        ties: vec!["minilm-ort-int8-dynamic".to_owned()],
        command: Some("planish compile minilm --int8 --calibrate sentences.txt".to_owned()),
    };
    let refused = Refused {
        id: "<script>alert(1)</script>".to_owned(),
        backend: "trt".to_owned(),
        speedup: Some(2.5),
        why: "neighbours is 61.0, at least 90 required".to_owned(),
    };
    let limits = Some("cos=0.99,neighbours=90".to_owned());
    let recommendations = vec![Recommendation { rounds: 0, choice: Some(choice), limits, refused: vec![refused] }];
    Document {
        schema: SCHEMA,
        tool,
        env,
        peak_rss: Some(1_420_000_000),
        peaks: Some(PEAKS),
        recommendations,
        shard: None,
        measured: Vec::new(),
        cells,
    }
}
