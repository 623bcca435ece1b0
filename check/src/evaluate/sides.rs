//! The artifact and the reference, loaded: each runs all its parts on a batch.

use anyhow::{Context, Result, bail};
use planish_artifact::backend::{LOCAL, RuntimeSettings, TemporaryFiles};
use planish_artifact::chain::{Tensors, columns};
use planish_artifact::manifest::{Output, PaddedVocabulary, PartManifest};
use planish_artifact::{Artifact, interface_of, named, note_elsewhere};
use planish_compiler::compile::interface;
use planish_data::Writing;
use planish_eval::Tensor;
use planish_ir::interface::CacheKind;
use planish_ir::{InputRole, OutputRole, PartInterface, PartRole};
use planish_models::Loaded;
use planish_models::names::DECODER_INPUT_IDS;
use planish_passes::{Options, Pipeline};
use planish_runtimes::{Model, Runtime, Session, SessionOptions};

use crate::positions::Positions;
use crate::verify::per_token;

/// Names and tensors.
type Named = Vec<(String, Tensor)>;

/// A model whose parts are loaded.
pub(super) struct Side {
    parts: Vec<LoadedPart>,
    /// The files that the sessions read, while they live.
    _files: Option<TemporaryFiles>,
}

struct LoadedPart {
    manifest: PartManifest,
    session: Box<dyn Session>,
}

/// What a part gave on a batch.
pub(super) struct PartOutputs {
    pub(super) part: String,
    /// What its tensors are.
    pub(super) interface: PartInterface,
    pub(super) outputs: Named,
    /// Its vocabulary, where it gives logits for all rows of that.
    pub(super) vocabulary: Option<PaddedVocabulary>,
    /// The axis of tokens of the outputs that have something for each token, and which positions count.
    pub(super) tokens: Vec<(String, usize, Positions)>,
}

impl PartOutputs {
    /// The bytes of the outputs.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |tensor: &Tensor| tensor.shape().iter().product::<usize>() * tensor.dtype().bits().div_ceil(8);
        self.outputs.iter().map(|(_, tensor)| bytes(tensor)).sum()
    }
}

impl Side {
    /// The artifact on a runtime. `note` is told what that leaves to another device.
    pub(super) fn artifact(
        artifact: &Artifact,
        runtime: &dyn Runtime,
        options: SessionOptions,
        note: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        let part = |manifest: &PartManifest| {
            let session = artifact.load(manifest, runtime, options)?;
            note_elsewhere(session.as_ref(), note);
            Ok(LoadedPart { manifest: manifest.clone(), session })
        };
        Ok(Self { parts: artifact.manifest.parts.iter().map(part).collect::<Result<_>>()?, _files: None })
    }

    /// The model in float32, compiled for ONNX Runtime into temporary files.
    pub(super) fn reference(
        model: &Loaded,
        opset: u32,
        settings: &RuntimeSettings,
        options: SessionOptions,
    ) -> Result<Self> {
        let backend = LOCAL;
        let runtime = backend.runtime(settings);
        runtime.check()?;
        let files = TemporaryFiles::create("planish-evaluation")?;
        let mut parts = Vec::with_capacity(model.parts.len());
        for part in &model.parts {
            let mut graph = part.graph.clone();
            // The artifact shows whether numbers that are not finite matter: an output that has them is an error.
            let passes = Options { allow_non_finite: true, ..Options::new(backend.target, opset) };
            Pipeline::new(passes).run(&mut graph, &mut |_, _| {})?;
            let file = files.emit(backend, &graph, part.name, opset)?;
            let manifest = interface(part, &part.graph);
            let model = Model::file(backend.emitter.format(), &file).with(&part.graph.interface);
            let mut session = runtime.load(model, options)?;
            session.name_dimensions(&manifest.ports());
            parts.push(LoadedPart { manifest, session });
        }
        Ok(Self { parts, _files: Some(files) })
    }

    /// The texts that the decoder of an encoder-decoder writes of inputs, [rows, tokens]. The inputs have the first id of each.
    pub(super) fn write(&mut self, inputs: &[(String, Tensor)], writing: &Writing) -> Result<Tensor> {
        let mut known = Tensors::new(interface_of(self.parts.iter().map(|part| &part.manifest)));
        known.take_given(inputs);
        for part in &mut self.parts {
            if part.manifest.role != PartRole::FirstStep {
                let outputs = part.run(&part.inputs(&known)?)?;
                known.take_outputs(&part.manifest.name, &outputs);
                continue;
            }
            let rows = inputs.iter().find(|(name, _)| name == DECODER_INPUT_IDS);
            let rows = rows.and_then(|(_, ids)| ids.shape().first().copied()).unwrap_or(0);
            let logits = part.manifest.given(OutputRole::Logits)?.to_owned();
            let (ids, _) = writing.text(rows, &mut |ids| {
                known.take_given(&[(DECODER_INPUT_IDS.to_owned(), ids.clone())]);
                let outputs = part.run(&part.inputs(&known)?)?;
                let given = outputs.into_iter().find(|(name, _)| *name == logits).map(|(_, tensor)| tensor);
                given.with_context(|| format!("{} gives no `{logits}`", part.manifest.name))
            })?;
            return Ok(ids);
        }
        bail!("the model has no decoder of first tokens, which writes texts")
    }

    /// Runs the parts, one after another, each with what its own side gave before. The first decoder of an encoder-decoder
    /// takes the first half of the decoder's tokens, the one with a cache the rest. `pad` is the id of padding.
    pub(super) fn run(&mut self, inputs: &[(String, Tensor)], pad: Option<i64>) -> Result<Vec<PartOutputs>> {
        let mask = self.parts.iter().find_map(|part| part.manifest.input_of(InputRole::Mask));
        let mask = mask.and_then(|mask| inputs.iter().find(|(name, _)| *name == mask.value.name));
        let mask = mask.and_then(|(_, mask)| Positions::of_mask(mask));
        if let [part] = self.parts.as_mut_slice() {
            let outputs = part.run(inputs)?;
            let tokens = part.of_tokens(mask.as_ref());
            return Ok(vec![part.gave(outputs, tokens)]);
        }
        let decoder = inputs.iter().find(|(name, _)| name == DECODER_INPUT_IDS).map(|(_, ids)| ids);
        let ids = decoder.with_context(|| format!("the data gives no {DECODER_INPUT_IDS}"))?;
        let width = ids.shape().get(1).copied().unwrap_or(0);
        let (half, positions) = (width.div_ceil(2), Positions::of_decoder(ids, pad));
        let (mut known, mut all) =
            (Tensors::new(interface_of(self.parts.iter().map(|part| &part.manifest))), Vec::new());
        known.take_given(inputs);
        let mut of_encoder = mask.as_ref();
        for part in &mut self.parts {
            let continues = part.manifest.is_next_step();
            let (from, to) = if continues { (half, width) } else { (0, half) };
            if from == to {
                continue;
            }
            known.take_given(&[(DECODER_INPUT_IDS.to_owned(), columns(ids, from, to))]);
            let outputs = part.run(&part.inputs(&known)?)?;
            known.take_outputs(&part.manifest.name, &outputs);
            let tokens = match part.manifest.role {
                PartRole::Encoder => {
                    let tokens = part.of_tokens(mask.as_ref());
                    // A mask of a waveform has other positions than the frames that the encoder gives.
                    of_encoder = of_encoder.filter(|_| !tokens.is_empty());
                    tokens
                }
                _ => of_decoder(
                    &part.manifest,
                    of_encoder,
                    &if continues { positions.clone() } else { positions.first(half) },
                ),
            };
            all.push(part.gave(outputs, tokens));
        }
        Ok(all)
    }
}

impl LoadedPart {
    /// The inputs of the part, of what is known.
    fn inputs(&self, known: &Tensors) -> Result<Named> {
        let input = |name: &str| {
            let tensor = known.input(&self.manifest.name, name).cloned();
            let missing = || format!("nothing gives the input `{name}` of {}", self.manifest.name);
            Ok((name.to_owned(), tensor.with_context(missing)?))
        };
        self.manifest.inputs.iter().map(|input| input.value.name.as_str()).map(input).collect()
    }

    fn run(&mut self, inputs: &[(String, Tensor)]) -> Result<Named> {
        Ok(self.session.run(&named(self.session.as_ref(), inputs))?)
    }

    /// The outputs with something for each token of the mask.
    fn of_tokens(&self, mask: Option<&Positions>) -> Vec<(String, usize, Positions)> {
        let Some(mask) = mask else { return Vec::new() };
        per_token(self.session.as_ref(), &self.manifest.interface())
            .into_iter()
            .map(|(name, axis)| (name, axis, mask.clone()))
            .collect()
    }

    fn gave(&self, outputs: Named, tokens: Vec<(String, usize, Positions)>) -> PartOutputs {
        let vocabulary = self.manifest.padded_logits().cloned();
        PartOutputs {
            part: self.manifest.name.clone(),
            interface: self.manifest.interface(),
            outputs,
            vocabulary,
            tokens,
        }
    }
}

/// The outputs of a decoder after an encoder with something for each token: logits [batch, tokens, vocabulary], and keys and
/// values [batch, heads, tokens, size] of the decoder's tokens and the encoder's.
fn of_decoder(part: &PartManifest, mask: Option<&Positions>, own: &Positions) -> Vec<(String, usize, Positions)> {
    let of = |role: OutputRole| match role {
        OutputRole::Logits => Some((1, own)),
        OutputRole::Cache(entry) => match entry.kind {
            CacheKind::Growing { axis } => Some((axis, own)),
            CacheKind::Encoder => mask.map(|mask| (2, mask)),
            CacheKind::Window | CacheKind::Convolution | CacheKind::Recurrent => None,
        },
        _ => None,
    };
    let named = |output: &Output| of(output.role).map(|(axis, at)| (output.value.name.clone(), axis, at.clone()));
    part.outputs.iter().filter_map(named).collect()
}
