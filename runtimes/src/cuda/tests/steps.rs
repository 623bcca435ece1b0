//! Steps after a cache: one program for all lengths, whose recording is replayed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use planish_eval::{Tensor, evaluate};
use planish_ir::{Bindings, Dim, Graph};

use crate::cuda::check::{graph, inputs, session};
use crate::cuda::device::Device;
use crate::cuda::emulator::{self, Emulator};
use crate::cuda::program::family::{Family, Shape};
use crate::cuda::program::{Caches, Program, Room, Style, Target};
use crate::cuda::session::GraphSession;
use crate::cuda::tensor::DeviceTensor;
use crate::value::Kept;
use crate::{RuntimeValue, Session};

/// A layer of a decoder: positions are counted in the mask, which hides padding, and keys are rotated in their cache.
const LAYER: &str = "input %ids: i64[b, s]
     input %mask: i64[b, p + s]
     input %pk: f32[b, 2, p, 8]
     input %pv: f32[b, 2, p, 8]
     input %table: f32[7, 32]
     input %angles: f32[200, 4]
     input %w: f32[32, 32]
     weight @zero = dense([0]) : i64[]
     weight @one = dense([1]) : i64[]
     %seen = cast(%mask) {to = bool} : bool[b, p + s]
     %count = cumsum(%mask) {axis = 1} : i64[b, p + s]
     %before = sub(%count, @one) : i64[b, p + s]
     %all = max(%before, @zero) : i64[b, p + s]
     %at = slice(%all) {axis = 1, start = p, end = p + s} : i64[b, s]
     %phase = embedding(%angles, %at) : f32[b, s, 4]
     %cos = cos(%phase) : f32[b, s, 4]
     %sin = sin(%phase) : f32[b, s, 4]
     %x = embedding(%table, %ids) : f32[b, s, 32]
     %q = linear(%x, %w) : f32[b, s, 32]
     %k = slice(%q) {axis = 2, start = 0, end = 16} : f32[b, s, 16]
     %turned = rotary(%k, %cos, %sin) {heads = 2, interleaved = false} : f32[b, s, 16]
     %v = slice(%q) {axis = 2, start = 16, end = 32} : f32[b, s, 16]
     %y, %key, %value = attention(%q, %turned, %v, mask: %seen, past_key: %pk, past_value: %pv) {heads = 4, kv_heads = 2, scale = 0.3, causal = true, present = true} : f32[b, s, 32], f32[b, 2, p + s, 8], f32[b, 2, p + s, 8]
     output y = %y
     output key = %key
     output value = %value";

fn emulated() -> Arc<dyn Device> {
    Arc::new(Emulator::new(emulator::compiler().unwrap()))
}

/// A session with a text and what the interpreter makes of it in one run.
struct Text {
    session: GraphSession,
    inputs: Vec<(String, Tensor)>,
    wanted: Vec<f64>,
    rows: usize,
    length: usize,
    /// The tokens that were read, and the cache.
    read: usize,
    cache: [RuntimeValue; 2],
    /// Whether ids are in the memory of the device, as a run before may leave them.
    ids_on_device: bool,
}

impl Text {
    fn new(rows: usize, length: usize) -> Self {
        let graph = graph(LAYER).unwrap();
        let session = session(&graph, &emulated(), Style::Fused).unwrap();
        let size = |n: usize| i64::try_from(n).unwrap();
        let mut inputs = inputs(&graph, &[("b", size(rows)), ("s", size(length)), ("p", 0)], 5).unwrap();
        // The last row begins with padding.
        let mask = (0..rows * length).map(|at| i64::from(rows == 1 || at < (rows - 1) * length || at % length >= 2));
        inputs[1].1 = Tensor::new(vec![rows, length], mask.collect::<Vec<i64>>()).unwrap();
        let named: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
        let wanted = evaluate(&graph, &named).unwrap()[0].1.to_f64();
        let cache = [2, 3].map(|at: usize| RuntimeValue::from(inputs[at].1.clone()));
        Self { session, inputs, wanted, rows, length, read: 0, cache, ids_on_device: false }
    }

    /// Columns of an input that has one for each token.
    fn columns(&self, at: usize, from: usize, to: usize) -> RuntimeValue {
        let all = self.inputs[at].1.to_f64();
        let columns = |row: usize| all[row * self.length..][from..to].to_vec();
        let elements: Vec<f64> = (0..self.rows).flat_map(columns).collect();
        Tensor::from_f64(self.inputs[at].1.dtype(), vec![self.rows, to - from], &elements).unwrap().into()
    }

    /// Reads tokens; returns the values of the step, and checks that they are those of the whole text.
    fn step(&mut self, tokens: usize) -> RuntimeValue {
        let end = self.read + tokens;
        let (mut ids, mask) = (self.columns(0, self.read, end), self.columns(1, 0, end));
        if self.ids_on_device {
            let copy = DeviceTensor::upload(self.session.device(), &ids.to_tensor().unwrap()).unwrap();
            ids = RuntimeValue(Kept::Cuda(copy));
        }
        let fixed: Vec<RuntimeValue> = (4..7).map(|at| self.inputs[at].1.clone().into()).collect();
        let values = [&ids, &mask, &self.cache[0], &self.cache[1], &fixed[0], &fixed[1], &fixed[2]];
        let given: Vec<(&str, &RuntimeValue)> = self.inputs.iter().map(|(name, _)| name.as_str()).zip(values).collect();
        let outputs = self.session.run_values(&given).unwrap();
        let [y, key, value] = <[_; 3]>::try_from(outputs.into_iter().map(|(_, value)| value).collect::<Vec<_>>())
            .unwrap_or_else(|_| panic!("three outputs"));
        self.cache = [key, value];
        let first = self.read;
        self.read = end;
        self.check(&y, first);
        y
    }

    /// Whether the values of a step are those of the whole text, where it has tokens.
    fn check(&self, y: &RuntimeValue, first: usize) {
        let (given, tokens) = (y.to_tensor().unwrap().to_f64(), y.shape()[1]);
        let mask = self.inputs[1].1.to_f64();
        for (row, at) in (0..self.rows).flat_map(|row| (0..tokens).map(move |at| (row, at))) {
            if mask[row * self.length + first + at] == 0.0 {
                continue;
            }
            let wanted = &self.wanted[(row * self.length + first + at) * 32..][..32];
            let own = &given[(row * tokens + at) * 32..][..32];
            let close = own.iter().zip(wanted).all(|(x, y)| (x - y).abs() < 1e-4);
            assert!(close, "token {} of row {row}: {own:?}, and not {wanted:?}", first + at);
        }
    }
}

#[test]
fn steps_of_all_lengths_are_one_recording() {
    let mut text = Text::new(1, 90);
    text.step(3);
    // The first step has a program of its own, the second one the family, and from the fourth one on a recording is
    // replayed.
    for _ in 0..40 {
        text.step(1);
    }
    let (planned, replayed, refused) = text.session.step_counts();
    assert_eq!((planned, replayed, refused), (2 + Family::PLANS, 37, 0));
    // The cache grows into other memory, with a family of its own.
    for _ in 40..87 {
        text.step(1);
    }
    let (planned, replayed, refused) = text.session.step_counts();
    assert!(planned <= 2 * (2 + Family::PLANS) && refused == 0, "{planned} {refused:?}");
    assert!(replayed > 75, "{replayed}");
}

#[test]
fn rows_and_several_tokens_are_steps_too() {
    let mut text = Text::new(3, 70);
    for tokens in [5, 1, 4, 1, 4, 1, 4, 1, 4, 4, 1] {
        text.step(tokens);
    }
    let (_, replayed, refused) = text.session.step_counts();
    assert_eq!((replayed, refused), (4, 0));
}

#[test]
fn inputs_may_be_on_the_device_first_and_on_the_host_later() {
    for first in [true, false] {
        let mut text = Text::new(1, 40);
        text.step(3);
        for step in 0..20 {
            text.ids_on_device = (step / 5 % 2 == 0) == first;
            text.step(1);
        }
        assert_eq!(text.session.step_counts().2, 0);
    }
}

#[test]
fn outputs_outlive_the_steps_after_them() {
    let mut text = Text::new(1, 40);
    text.step(3);
    let steps: Vec<(usize, RuntimeValue)> = (3..30).map(|at| (at, text.step(1))).collect();
    assert!(text.session.step_counts().1 > 20);
    steps.iter().for_each(|(at, y)| text.check(y, *at));
}

#[test]
fn beams_and_forgotten_tokens_go_on_elsewhere() {
    let mut text = Text::new(1, 60);
    text.step(5);
    for _ in 0..6 {
        text.step(1);
        // A beam takes its own row, in other memory.
        text.cache = text.cache.each_ref().map(|value| value.take_rows(&[0]).unwrap());
    }
    for _ in 0..6 {
        text.step(1);
    }
    // Tokens that were read ahead are forgotten, and read again.
    for _ in 0..3 {
        text.step(4);
        text.read -= 3;
        let [key, value] =
            std::mem::replace(&mut text.cache, [0, 0].map(|_| Tensor::new(vec![0], Vec::<f32>::new()).unwrap().into()));
        text.cache = [key, value].map(|value| value.first_keys(text.read).unwrap());
    }
    text.step(1);
    let (_, replayed, refused) = text.session.step_counts();
    assert!(replayed >= 4 && refused == 0, "{replayed} {refused:?}");
}

/// The shape of a step of a row and a token, of a graph whose caches have names that begin with `p`.
fn shape(graph: &Graph, capacity: usize) -> Shape {
    let symbol = |name: &str| Dim::symbol(name).as_symbol().cloned().unwrap();
    let bindings: Bindings = [(symbol("b"), 1), (symbol("s"), 1)].into_iter().collect();
    let room = |name: &str| name.starts_with('p').then_some(Room { capacity, free: true });
    let room = graph.inputs().iter().map(|input| room(&graph.value(*input).name)).collect();
    let caches = Caches { room, ..Caches::default() };
    Shape { bindings, length: symbol("p"), caches, added: 1 }
}

/// The family of [`LAYER`] with more statements.
fn family(rest: &str, capacity: usize) -> Result<Family, String> {
    let graph = graph(&format!("{LAYER}\n{rest}")).unwrap();
    Family::of(&graph, &shape(&graph, capacity), Target::usual(Style::Fused), 2)
}

#[test]
fn what_depends_on_the_length_otherwise_is_refused() {
    let refused = |reason: &str, rest: &str| {
        let given = family(rest, 100).unwrap_err();
        assert!(given.contains(reason), "{given}");
    };
    refused("the output `z`", "%z = exp(%key) : f32[b, 2, p + s, 8]\n output z = %z");
    refused(
        "product",
        "%t = transpose(%mask) {perm = [1, 0]} : i64[p + s, b]
         %f = cast(%t) {to = f32} : f32[p + s, b]
         %m = cast(%mask) {to = f32} : f32[b, p + s]
         %z = matmul(%m, %f) : f32[b, b]
         output z = %z",
    );
    refused(
        "linear",
        "%i = iota() {dtype = i64, length = p * p} : i64[p * p]
         %z = reduce_sum(%i) {axes = [0], keep = false} : i64[]
         output z = %z",
    );
}

#[test]
fn long_and_short_rows_are_of_one_family() {
    // Kernels of rows are others for rows of another length.
    let sum = "%z = reduce_sum(%mask) {axes = [1], keep = false} : i64[b]\n output z = %z";
    for capacity in [70, 600, 3000, 40_000] {
        let family = family(sum, capacity).unwrap();
        assert_eq!(family.lengths, 2..=capacity - 1);
    }
}

/// A decoder with the layers and sizes of Llama 1.1B.
fn llama() -> String {
    let mut text = String::from(
        "input %x0: f16[b, s, 2048]
         input %mask: i64[b, p + s]
         input %cos: f16[b, s, 32]
         input %sin: f16[b, s, 32]
         input %norm: f16[2048]
         input %wq: f16[2048, 2048]
         input %wk: f16[256, 2048]
         input %wu: f16[5632, 2048]
         input %wd: f16[2048, 5632]
         %seen = cast(%mask) {to = bool} : bool[b, p + s]
         %n0 = rms_norm(%x0, %norm) {eps = 1e-5} : f16[b, s, 2048]\n",
    );
    for at in 0..22 {
        let next = at + 1;
        text += &format!(
            "input %pk{at}: f16[b, 4, p, 64]
             input %pv{at}: f16[b, 4, p, 64]
             %q{at} = linear(%n{at}, %wq) : f16[b, s, 2048]
             %k{at} = linear(%n{at}, %wk) : f16[b, s, 256]
             %v{at} = linear(%n{at}, %wk) : f16[b, s, 256]
             %t{at}, %key{at}, %value{at} = rotary_append(%q{at}, %k{at}, %v{at}, %cos, %sin, past_key: %pk{at}, past_value: %pv{at}) {{heads = 32, kv_heads = 4}} : f16[b, s, 2048], f16[b, 4, p + s, 64], f16[b, 4, p + s, 64]
             %a{at} = attention(%t{at}, %key{at}, %value{at}, mask: %seen) {{heads = 32, kv_heads = 4, scale = 0.125, causal = true}} : f16[b, s, 2048]
             %o{at} = linear(%a{at}, %wq) : f16[b, s, 2048]
             %m{at}, %r{at} = add_norm(%o{at}, %x{at}, %norm) {{norm = rms, eps = 1e-5}} : f16[b, s, 2048], f16[b, s, 2048]
             %g{at} = linear(%m{at}, %wu) : f16[b, s, 5632]
             %u{at} = linear(%m{at}, %wu) : f16[b, s, 5632]
             %h{at} = gated(%g{at}, %u{at}) {{activation = silu}} : f16[b, s, 5632]
             %d{at} = linear(%h{at}, %wd) : f16[b, s, 2048]
             %n{next}, %x{next} = add_norm(%d{at}, %r{at}, %norm) {{norm = rms, eps = 1e-5}} : f16[b, s, 2048], f16[b, s, 2048]
             output key{at} = %key{at}
             output value{at} = %value{at}\n"
        );
    }
    text + "output y = %n22"
}

/// Prints how long the host takes to plan a step, and to write the words of a family.
#[test]
#[ignore = "it measures"]
fn planning_a_step_of_llama() {
    let graph = graph(&llama()).unwrap();
    let shape = shape(&graph, 1024);
    let target = Target::usual(Style::Fused);
    let median = |run: &mut dyn FnMut(usize)| {
        let mut times: Vec<Duration> = (0..21)
            .map(|at| {
                let start = Instant::now();
                run(at);
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    let family = Family::of(&graph, &shape, target, 2).unwrap();
    let (stored, all) = family.stored_launches();
    let planned = median(&mut |at| {
        Program::new(&graph, &shape.bindings(300 + at), target, &shape.caches).unwrap();
    });
    let written = median(&mut |at| {
        let words = family.words.iter().map(|word| word.at(1 << 40, 700 - at));
        assert!(words.fold(0, u64::wrapping_add) != 0);
    });
    let steps = family.program.steps.len();
    let ratio = planned.as_secs_f64() / written.as_secs_f64();
    println!("{steps} steps, of {all} launches {stored} with {} words from memory", family.words.len());
    println!("planned in {planned:?}, written in {written:?}: {ratio:.0} times");
    assert!(planned > 10 * written);
}
