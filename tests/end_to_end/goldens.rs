//! Compiled models on ONNX Runtime against what the transformers library computed in float64, and
//! against the reference interpreter.

use std::ops::Range;
use std::path::Path;

use planish::artifact::chain::columns_of_coordinates;
use planish::compile::{CompileOptions, Compiled};
use planish_eval::{Tensor, evaluate};
use planish_ir::{DType, Graph};
use planish_models::Part;
use planish_passes::{ORT, ORT_CUDA, Options, TRT};
use planish_runtimes::ort::{OnnxRuntime, OrtOptions};
use planish_runtimes::{Model, Port, Runtime, Session};

use crate::support::{ONE_THREAD, ONNX_TARGETS, compiled, golden, numbered, options, repository, scratch, with_sizes};

/// The largest error that is allowed, relative to the largest value (at least 1).
pub(crate) const TOLERANCE: f64 = 1e-5;

/// The largest error at positions that the mask does not hide, relative to the largest value. The
/// mask is [batch, positions], and comes with the axis of positions.
#[track_caller]
pub(crate) fn worst_error(name: &str, expected: &Tensor, actual: &Tensor, mask: Option<(&Tensor, usize)>) -> f64 {
    assert_eq!(actual.shape(), expected.shape(), "{name}");
    let kept = seen(expected.shape(), mask);
    assert!(!kept.is_empty(), "{name} is not compared");
    let (expected, actual) = (expected.to_f64(), actual.to_f64());
    let largest = kept.iter().fold(1.0, |largest: f64, &at| largest.max(expected[at].abs()));
    // A NaN is an error: `max` would drop it.
    assert!(kept.iter().all(|&at| actual[at].is_finite()), "{name} is not finite");
    kept.iter().fold(0.0, |worst: f64, &at| worst.max((actual[at] - expected[at]).abs())) / largest
}

/// The elements of a tensor at positions that the mask does not hide.
pub(crate) fn seen(shape: &[usize], mask: Option<(&Tensor, usize)>) -> Vec<usize> {
    let size = |axis: usize| shape[axis + 1..].iter().product::<usize>();
    let mask = mask.filter(|(mask, axis)| shape.len() > *axis && [shape[0], shape[*axis]] == mask.shape());
    let mask = mask.map(|(mask, axis)| (mask.to_f64(), axis));
    let counts = |at: &usize| {
        mask.as_ref()
            .is_none_or(|(mask, axis)| mask[at / size(0) * shape[*axis] + at / size(*axis) % shape[*axis]] != 0.0)
    };
    (0..shape.iter().product()).filter(counts).collect()
}

/// Keys or values, [batch, heads, positions, size], at the last positions, if a reference has only these: the transformers
/// library keeps those of a window.
fn latest(cache: Tensor, shape: &[usize]) -> Tensor {
    let (&[batch, heads, positions, size], &[_, _, kept, _]) = (cache.shape(), shape) else { return cache };
    if kept >= positions {
        return cache;
    }
    let rows = cache.as_f32().unwrap().chunks(positions * size);
    let last = rows.flat_map(|row| &row[(positions - kept) * size..]).copied().collect::<Vec<f32>>();
    Tensor::new(vec![batch, heads, kept, size], last).unwrap()
}

/// A part of a compiled model on ONNX Runtime, and the graph that it was compiled from.
struct Pair<'a> {
    graph: &'a Graph,
    session: Box<dyn Session>,
    passes: Options,
}

type Named = Vec<(String, Tensor)>;

impl<'a> Pair<'a> {
    /// The parts of a model.
    fn all(compiled: &'a Compiled, options: &CompileOptions) -> Vec<Self> {
        let ort = match *options.passes.target == ORT {
            true => OrtOptions::compiled(),
            // Any runtime loads it as it is.
            false => OrtOptions::default(),
        };
        let runtime = OnnxRuntime::new(None).options(OrtOptions { spin: false, ..ort });
        let pair = |part: &'a Part| {
            let file = compiled.draft.folder().join(format!("{}.onnx", part.name));
            let session = runtime.load(Model::onnx(&file), ONE_THREAD).unwrap();
            Self { graph: &part.graph, session, passes: options.passes.clone() }
        };
        compiled.source.parts.iter().map(pair).collect()
    }

    /// A model of one part.
    #[track_caller]
    fn only(compiled: &'a Compiled, options: &CompileOptions) -> Self {
        let mut pairs = Self::all(compiled, options);
        assert_eq!(pairs.len(), 1);
        pairs.remove(0)
    }

    /// Runs both, compares what is expected with both, and both with each other; returns what ONNX
    /// Runtime gives.
    #[track_caller]
    fn agree(&mut self, inputs: &Named, expected: &Named) -> Named {
        let named: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
        let (actual, interpreted) = (self.session.run(&named).unwrap(), evaluate(self.graph, &named).unwrap());
        let mask = inputs.iter().find(|(name, _)| name == "attention_mask").map(|(_, mask)| mask);
        for (name, expected) in expected {
            let find = |outputs: &Named| outputs.iter().find(|(n, _)| n == name).unwrap().1.clone();
            let [actual, interpreted] = [find(&actual), find(&interpreted)].map(|own| latest(own, expected.shape()));
            let mask = mask.map(|mask| (mask, if name.starts_with("present.") { 2 } else { 1 }));
            for (what, want, got) in [
                ("ONNX Runtime against transformers", expected, &actual),
                ("ONNX Runtime against the interpreter", &interpreted, &actual),
                ("the interpreter against transformers", expected, &interpreted),
            ] {
                let error = worst_error(name, want, got, mask);
                assert!(error <= TOLERANCE, "{name}: {what}: error {error:.1e} with {:?}", self.passes);
            }
        }
        actual
    }
}

/// Compiles a model, runs it on the inputs of an `io.safetensors`, and compares all outputs.
#[track_caller]
fn agrees(model: &Path, io: &Path, options: &CompileOptions) {
    let folder = scratch();
    let compiled = compiled(model, &folder.path().join("out"), &with_sizes(model, options));
    let mut pair = Pair::only(&compiled, options);
    let expected = numbered(io, "out.");
    let actual = pair.agree(&numbered(io, "in."), &expected);
    // Not every reference has what a pooler gives, and none what a sentence model gives a second time or scores of texts for
    // images, which are those of images for texts.
    let is_extra = |name: &str| ["pooler_output", "last_hidden_state", "logits_per_text"].contains(&name);
    let unexpected =
        actual.iter().find(|(name, _)| !is_extra(name) && !expected.iter().any(|(known, _)| known == name));
    assert_eq!(unexpected.map(|(name, _)| name), None);
}

/// The same of a decoder: first from an empty cache, then one more token with the cache that gave.
#[track_caller]
fn decoder_agrees(model: &Path, io: &Path, options: &CompileOptions) {
    let folder = scratch();
    let compiled = compiled(model, &folder.path().join("out"), options);
    let mut pair = Pair::only(&compiled, options);
    let graph = pair.graph;
    // Not every decoder takes positions.
    let takes = |name: &str| graph.inputs().iter().any(|v| graph.value(*v).name == name);
    let mut inputs = numbered(io, "in.");
    inputs.retain(|(name, _)| takes(name));
    let batch = inputs[0].1.shape()[0];
    for value in graph.inputs().iter().skip(inputs.len()) {
        // Keys and values of no token, and states before the first one.
        let sizes = graph.ty(*value).shape[1..].iter().map(|d| d.as_constant().unwrap_or(0).try_into().unwrap());
        let shape: Vec<usize> = [batch].into_iter().chain(sizes).collect();
        inputs.push((graph.value(*value).name.clone(), Tensor::zeros(DType::F32, shape).unwrap()));
    }
    let expected: Named =
        numbered(io, "out.").into_iter().filter(|(name, _)| name == "logits" || name.starts_with("present.")).collect();
    let actual = pair.agree(&inputs, &expected);
    // References of models with states of a fixed size have none of these.
    let has_cache = expected.iter().any(|(name, _)| name.starts_with("present."));
    assert!(!has_cache || actual.len() == expected.len());

    let past = actual.into_iter().filter_map(|(name, tensor)| {
        let of_keys = name.strip_prefix("present.").map(|rest| format!("past_key_values.{rest}"));
        Some((of_keys.or_else(|| Some(format!("past_{}", name.strip_prefix("present_")?)))?, tensor))
    });
    let step: Named = numbered(io, "in.step.").into_iter().filter(|(name, _)| takes(name)).chain(past).collect();
    pair.agree(&step, &numbered(io, "out.step."));
}

/// The same of an encoder-decoder: the encoder, the decoder of the whole, the decoder of all tokens
/// but the last, and that one with the cache.
#[track_caller]
fn encoder_decoder_agrees(model: &Path, io: &Path, options: &CompileOptions) {
    let folder = scratch();
    let compiled = compiled(model, &folder.path().join("out"), options);
    let names: Vec<&str> = compiled.source.parts.iter().map(|part| part.name).collect();
    assert_eq!(names, ["encoder_model", "decoder_model", "decoder_with_past_model"]);
    let [mut encoder, mut decoder, mut continued] =
        <[Pair<'_>; 3]>::try_from(Pair::all(&compiled, options)).ok().unwrap();
    let (given, expected) = (numbered(io, "in."), numbered(io, "out."));
    let find = |named: &Named, name: &str| named.iter().find(|(n, _)| n == name).unwrap().1.clone();
    let tokens = find(&given, "decoder_input_ids");
    let (rows, width) = (tokens.shape()[0], tokens.shape()[1]);

    // Of images there is no mask.
    let takes = |name: &str| encoder.session.inputs().iter().any(|port| port.name == name);
    let inputs: Named = given.into_iter().filter(|(name, _)| takes(name)).collect();
    let mask = inputs.iter().find(|(name, _)| name == "attention_mask").map(|(_, mask)| mask.clone());
    let hidden = find(&expected, "encoder_last_hidden_state");
    let encoded = encoder.agree(&inputs, &vec![("last_hidden_state".to_owned(), hidden)]);

    // Columns of the decoder's tokens, and rows of the logits of each.
    let columns = |range: Range<usize>| {
        let ids = tokens.as_i64().unwrap();
        let ids: Vec<i64> = (0..rows).flat_map(|row| &ids[row * width..][range.clone()]).copied().collect();
        ("input_ids".to_owned(), Tensor::new(vec![rows, range.len()], ids).unwrap())
    };
    let logits = |range: Range<usize>| {
        let all = find(&expected, "logits");
        let (size, numbers) = (all.shape()[2], all.as_f32().unwrap());
        let part = (0..rows).flat_map(|row| &numbers[row * width * size..][range.start * size..range.end * size]);
        let shape = vec![rows, range.len(), size];
        vec![("logits".to_owned(), Tensor::new(shape, part.copied().collect::<Vec<f32>>()).unwrap())]
    };
    let encoder_mask = mask.map(|mask| ("encoder_attention_mask".to_owned(), mask));
    let states = ("encoder_hidden_states".to_owned(), find(&encoded, "last_hidden_state"));
    let decode = |range| encoder_mask.iter().cloned().chain([columns(range), states.clone()]).collect::<Vec<_>>();
    decoder.agree(&decode(0..width), &logits(0..width));
    // One token at a time and several are the same to a cache.
    for cached in [width - 1, 2] {
        let given = decoder.agree(&decode(0..cached), &logits(0..cached));
        let past = given
            .into_iter()
            .filter_map(|(name, tensor)| Some((format!("past_key_values.{}", name.strip_prefix("present.")?), tensor)));
        let step = encoder_mask.iter().cloned().chain([columns(cached..width)]).chain(past).collect();
        let presents = continued.agree(&step, &logits(cached..width));
        assert!(presents.iter().all(|(name, _)| !name.contains("encoder")), "what does not change is not an output");
    }
}

/// The same of a model of images and points in them: the vision encoder, and the mask decoder with what that gives.
#[track_caller]
fn masks_agree(model: &Path, io: &Path, options: &CompileOptions) {
    let folder = scratch();
    let compiled = compiled(model, &folder.path().join("out"), &with_sizes(model, options));
    let names: Vec<&str> = compiled.source.parts.iter().map(|part| part.name).collect();
    assert_eq!(names, ["vision_encoder", "prompt_encoder_mask_decoder"]);
    let [mut encoder, mut decoder] = <[Pair<'_>; 2]>::try_from(Pair::all(&compiled, options)).ok().unwrap();
    let [(pixels, mut prompts), (image, masks)] = ["in.", "out."].map(|prefix| {
        numbered(io, prefix).into_iter().partition(|(name, _)| name == "pixel_values" || name.contains("embeddings"))
    });
    assert_eq!([&pixels, &prompts, &image, &masks].map(Named::len), [1, 2, 2, 2]);
    prompts.extend(encoder.agree(&pixels, &image));
    decoder.agree(&prompts, &masks);
}

/// The same of a model that sees: images, vectors of tokens, and the decoder of both, at once and with a cache.
#[track_caller]
fn seen_agree(model: &Path, io: &Path, options: &CompileOptions) {
    let folder = scratch();
    let compiled = compiled(model, &folder.path().join("out"), options);
    let [mut vision, mut embed, mut decoder] = <[Pair<'_>; 3]>::try_from(Pair::all(&compiled, options)).ok().unwrap();
    let (inputs, expected) = (numbered(io, "in."), numbered(io, "out."));
    let find = |all: &Named, wanted: &str| all.iter().find(|(name, _)| name == wanted).unwrap().1.clone();
    let ids = find(&inputs, "input_ids");
    // Positions of three coordinates.
    let coordinates = inputs.iter().find(|(name, _)| name == "position_ids").map(|(_, tensor)| tensor.clone());
    let given = |port: &Port| {
        let name = &port.name;
        // The shapes of images that have any have another name in older models.
        (name.clone(), find(&inputs, if name == "grid_thw" { "image_grid_thw" } else { name }))
    };
    let seen: Named = vision.session.inputs().iter().map(given).collect();
    let features = find(&vision.agree(&seen, &Named::new()), "image_features");
    let vectors = find(&embed.agree(&vec![("input_ids".into(), ids.clone())], &Named::new()), "inputs_embeds");
    // The golden's id of places.
    let is_place: Vec<bool> = ids.to_f64().iter().map(|id| *id == 137.0).collect();
    let (&[rows, width], &[places, hidden]) = (ids.shape(), features.shape()) else {
        unreachable!("both are matrices")
    };
    assert_eq!((rows, is_place.iter().filter(|place| **place).count()), (1, places));
    let mut numbers = vectors.as_f32().unwrap().to_vec();
    let mut seen = features.as_f32().unwrap().chunks(hidden);
    for (at, _) in is_place.iter().enumerate().filter(|(_, place)| **place) {
        numbers[at * hidden..][..hidden].copy_from_slice(seen.next().unwrap());
    }
    let logits = find(&expected, "logits");
    let vocabulary = logits.shape()[2];
    let ports = decoder.session.inputs().to_vec();
    // Of PaliGemma these tell an answer from what is before it.
    let types = inputs.iter().find(|(name, _)| name == "token_type_ids").map(|(_, types)| types.clone());
    let takes_types = ports.iter().any(|port| port.name == "token_type_ids");
    let inputs = |columns: Range<usize>| {
        let matrix = |elements: Vec<i64>| Tensor::new(vec![1, elements.len()], elements).unwrap();
        let vectors = numbers[columns.start * hidden..columns.end * hidden].to_vec();
        let positions = match &coordinates {
            None => matrix((0i64..).take(columns.end).skip(columns.start).collect()),
            Some(all) => columns_of_coordinates(all, columns.start, columns.end),
        };
        let mut all = vec![
            ("inputs_embeds".to_owned(), Tensor::new(vec![1, columns.len(), hidden], vectors).unwrap()),
            ("attention_mask".to_owned(), matrix(vec![1; columns.end])),
            ("position_ids".to_owned(), positions),
        ];
        if takes_types {
            let types = match &types {
                Some(types) => types.as_i64().unwrap()[columns].to_vec(),
                None => is_place[columns].iter().map(|place| i64::from(*place)).collect(),
            };
            all.push(("token_type_ids".to_owned(), matrix(types)));
        }
        all
    };
    let scored = |columns: Range<usize>| {
        let numbers = logits.as_f32().unwrap()[columns.start * vocabulary..columns.end * vocabulary].to_vec();
        vec![("logits".to_owned(), Tensor::new(vec![1, columns.len(), vocabulary], numbers).unwrap())]
    };
    let empty = ports.iter().filter(|port| port.name.starts_with("past")).map(|port| {
        let size = |at: usize| usize::try_from(port.ty.shape[at].as_constant().unwrap()).unwrap();
        (port.name.clone(), Tensor::zeros(DType::F32, vec![1, size(1), 0, size(3)]).unwrap())
    });
    let empty: Named = empty.collect();
    decoder.agree(&[inputs(0..width), empty.clone()].concat(), &scored(0..width));
    let first = decoder.agree(&[inputs(0..width - 1), empty].concat(), &Named::new());
    let past = first
        .into_iter()
        .filter_map(|(name, tensor)| Some((format!("past_key_values{}", name.strip_prefix("present")?), tensor)));
    let step = inputs(width - 1..width).into_iter().chain(past).collect();
    decoder.agree(&step, &scored(width - 1..width));
}

fn everywhere(name: &str, agrees: fn(&Path, &Path, &CompileOptions)) {
    let (model, io) = (golden(name), golden(name).join("io.safetensors"));
    for target in ONNX_TARGETS {
        // The operators are standard ones, so that the CPU provider runs what is for CUDA; it lacks kernels for
        // the forms of later opsets.
        let opsets: &[u32] = if target == &ORT_CUDA { &[17, 20] } else { &[17, 20, 24] };
        for &opset in opsets {
            for fusion in [true, false] {
                let mut options = options(target);
                (options.passes.opset, options.passes.fusion) = (opset, fusion);
                agrees(&model, &io, &options);
            }
        }
    }
}

/// The folders of the goldens.
fn goldens() -> Vec<String> {
    let folders = crate::support::names(&repository().join("fixtures/goldens"));
    folders.into_iter().filter(|name| golden(name).is_dir()).collect()
}

/// The number of tests among which goldens are shared, so that they run at once.
const SHARDS: usize = 16;

/// Compares the goldens of a shard, each as what its reference has shows.
fn shard(number: usize) {
    for name in goldens().iter().skip(number).step_by(SHARDS) {
        // Where the comparison fails, the test's output ends with this.
        println!("golden {name}");
        let io = golden(name).join("io.safetensors");
        let has = |prefix: &str| !numbered(&io, prefix).is_empty();
        let agrees = match (has("in.decoder_"), has("in.step.")) {
            (true, _) => encoder_decoder_agrees,
            (_, true) => decoder_agrees,
            _ => agrees,
        };
        everywhere(name, agrees);
    }
}

macro_rules! shards {
    ($($name:ident = $number:literal),*) => {
        $(#[test]
        fn $name() {
            shard($number);
        })*

        #[test]
        fn every_shard_has_a_test() {
            assert_eq!([$($number),*], std::array::from_fn::<usize, SHARDS, _>(|i| i));
        }
    };
}

shards!(
    shard_0 = 0,
    shard_1 = 1,
    shard_2 = 2,
    shard_3 = 3,
    shard_4 = 4,
    shard_5 = 5,
    shard_6 = 6,
    shard_7 = 7,
    shard_8 = 8,
    shard_9 = 9,
    shard_10 = 10,
    shard_11 = 11,
    shard_12 = 12,
    shard_13 = 13,
    shard_14 = 14,
    shard_15 = 15
);

#[test]
fn sam() {
    let folder = repository().join("fixtures/sam");
    ONNX_TARGETS.iter().for_each(|&target| masks_agree(&folder, &folder.join("io.safetensors"), &options(target)));
}

/// A trained model: `make deps` fetches it.
#[test]
fn minilm() {
    let (model, io) = (repository().join(".deps/minilm"), repository().join("fixtures/minilm/io.safetensors"));
    assert!(model.is_dir(), "{} is missing: `make deps` fetches it", model.display());
    ONNX_TARGETS.iter().for_each(|&target| agrees(&model, &io, &options(target)));
}

/// An encoder of samples and a decoder after it.
#[test]
fn models_that_hear() {
    let folder = repository().join("fixtures/hearing/moonshine");
    // Engines need ranges of sizes.
    for target in ONNX_TARGETS.into_iter().filter(|target| *target != &TRT) {
        for fusion in [true, false] {
            let mut options = options(target);
            options.passes.fusion = fusion;
            encoder_decoder_agrees(&folder, &folder.join("io.safetensors"), &options);
        }
    }
}

#[test]
fn models_that_see() {
    for name in ["gemma3-vision", "idefics3", "llava", "paligemma", "qwen2-5-vl", "qwen2-vl", "qwen3-vl", "smolvlm"] {
        println!("golden {name}");
        let folder = repository().join("fixtures/seeing").join(name);
        // Engines need ranges of sizes.
        for target in ONNX_TARGETS.into_iter().filter(|target| *target != &TRT) {
            for fusion in [true, false] {
                let mut options = options(target);
                options.passes.fusion = fusion;
                seen_agree(&folder, &folder.join("io.safetensors"), &options);
            }
        }
    }
}
