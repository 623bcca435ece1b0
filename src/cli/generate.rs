//! `planish generate`.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Result;
use clap::ArgGroup;
use planish_artifact::Artifact;
use planish_generate::{
    Call, Continuation, GenerateOptions, Generated, GenerationConfig, LOOKUP, Lookups, Piece, Prompts, Stop, Tools,
};
use planish_runtimes::tensorrt::KernelSpecialization;
use serde_json::{Map, Value, json};

use super::generate_numbers::{count, nonempty, probability, seed, temperature, tokens};
use super::generate_settings::GenerateArguments;
use super::terminal::{print_made, progress};
use super::threads::ThreadArguments;
use super::typed::read_prompt;
use super::{RunOn, Usage, chat, generate_lines, print, print_json, warn};

/// Generate text with the artifact of a decoder or of an encoder-decoder
///
/// A decoder continues the prompt. An encoder-decoder answers the prompt.
///
/// The settings come from the artifact's generation_config.json, as in the transformers library: for example
/// `do_sample` (whether tokens are sampled) and `num_beams` (the number of beams). Without that file, the settings
/// come from config.json. Options of this command and --set override both. The default is greedy search with at most 64 new
/// tokens. A setting that planish does not support is an error.
///
/// Sampling starts from --seed, so the same command gives the same tokens. --prompt or --ids may be given several
/// times; the prompts then make a batch. The text of one prompt appears as it is generated.
///
/// --chat without a prompt is a conversation: each line of standard input is a message, and each answer follows from all that was
/// said. Keys and values stay from turn to turn, so only new tokens are computed. Ctrl-C stops an answer; between answers, Ctrl-C or
/// the end of input ends the conversation.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("given"))]
#[command(group = ArgGroup::new("sampling").multiple(true).conflicts_with("greedy"))]
pub(super) struct Arguments {
    /// The artifact's folder
    pub(super) artifact: PathBuf,
    /// The text of a prompt, which the artifact's tokenizer.json turns into token ids; `-` reads it from standard input,
    /// without the end of its last line. The output is text
    #[arg(long, value_name = "TEXT", group = "given", allow_hyphen_values = true)]
    prompt: Vec<String>,
    /// Lines of JSON with a prompt each; `-` reads them from standard input. A line has "prompt", "messages" (a list of messages for
    /// the chat template) or "ids", and may have "images" (a list of files, from the folder of FILE), "id", "max_new_tokens", "seed" and "stop" (a string or a list) of its own. A line of
    /// JSON is printed for each, in their order: "id" where it has one, "text" (not of "ids"), "ids", "stop" (end_token, max_new_tokens, context
    /// or stop_string), "prompt_tokens", "new_tokens"
    #[arg(long, value_name = "FILE", group = "given")]
    prompts: Option<PathBuf>,
    /// Put each --prompt as a user message into the artifact's chat template. Without a prompt: start a conversation
    #[arg(long, conflicts_with = "ids")]
    chat: bool,
    /// A JSON list of functions that the model may call, which the chat template describes to it: {"type": "function", "function": {"name",
    /// "description", "parameters"}}. Calls are left out of the text, and follow it as lines of JSON, or as "tool_calls" of
    /// --json: {"name", "arguments"}. In a conversation a line {"role": "tool", "content": "text"}, or a list of such messages, gives the
    /// results of calls
    #[arg(long, value_name = "FILE", conflicts_with = "ids")]
    tools: Option<PathBuf>,
    /// The text of a system message, which comes before the first message of --chat; of --prompts, where a line has `prompt`
    #[arg(long, value_name = "TEXT", requires = "chat", allow_hyphen_values = true)]
    system: Option<String>,
    /// The token ids of a prompt, such as 1,2,3. The output is token ids
    #[arg(long, value_name = "N,..", group = "given", allow_negative_numbers = true, value_parser = parse_ids)]
    ids: Vec<Ids>,
    /// A picture that the prompt is about, for models that read images; may be given several times for those that read several. The
    /// prompt may be left out where the encoder reads the picture: then the text begins with the start token of the decoder
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
    /// Stop a text where it has this string, which is left out; may be given several times. For text prompts
    #[arg(long, value_name = "STRING", conflicts_with = "ids", allow_hyphen_values = true, value_parser = nonempty)]
    stop: Vec<String>,
    /// The largest number of new tokens for each prompt [default: the number in the settings, else 64, and 1024 for each answer
    /// of a conversation]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = tokens)]
    max_new_tokens: Option<NonZeroUsize>,
    /// Choose the token with the highest score in each step
    #[arg(long)]
    greedy: bool,
    /// The temperature of sampling. The scores are divided by X before a token is sampled; 0 is greedy search [default when
    /// sampling: 1]
    #[arg(long, value_name = "X", group = "sampling", allow_negative_numbers = true, value_parser = temperature)]
    temperature: Option<f64>,
    /// Sample from the N tokens with the highest scores; 0 means all tokens [default when sampling: 50]
    #[arg(long, value_name = "N", group = "sampling", allow_negative_numbers = true, value_parser = count)]
    top_k: Option<usize>,
    /// Sample from the smallest set of tokens whose probabilities add up to P [default when sampling: 1]
    #[arg(long, value_name = "P", group = "sampling", allow_negative_numbers = true, value_parser = probability)]
    top_p: Option<f64>,
    /// The seed of sampling. The continuation (or the answer of a conversation) with number n, counted from 0 over all prompts, uses
    /// the seed N + n [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = seed)]
    seed: Option<u64>,
    /// Print JSON: {"ids": the new token ids}, and for text prompts also {"text": the new text}. With several
    /// continuations, both are lists: those of the first prompt, then those of the next one. {"speed"} has "loading_s", the time to load the model; "prompt_tokens", of which "cached_tokens"
    /// were computed in earlier turns; "first_token_s" and "total_s", times from the loaded model on; "prompt_tokens_per_s"; and
    /// "tokens_per_s", the speed of decoding, without the first tokens. A conversation has a document for each answer. With
    /// --set prompt_lookup_num_tokens=N also {"prompt_lookup": {"runs": how often the model ran, "candidates":
    /// the tokens that were read ahead, "accepted": those of them that were kept, "tokens_per_run"}}
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    set: GenerateArguments,
    #[command(flatten)]
    threads: ThreadArguments,
    #[command(flatten)]
    run_on: RunOn,
}

/// The ids of one prompt.
type Ids = std::sync::Arc<[i64]>;

fn parse_ids(text: &str) -> Result<Ids, String> {
    let id = |id: &str| id.trim().parse().map_err(|_| format!("`{id}` is not a token id"));
    text.split(',').map(id).collect()
}

pub(super) fn run(mut arguments: Arguments) -> Result<()> {
    let has_prompt = !arguments.prompt.is_empty() || !arguments.ids.is_empty() || arguments.prompts.is_some();
    let converses = arguments.chat && !has_prompt;
    let shows = !arguments.image.is_empty();
    if !has_prompt && !converses && !shows {
        let how = "give a prompt with --prompt TEXT or --ids N,.., a file of prompts with --prompts FILE, start a conversation \
                   with --chat, or give a picture with --image FILE where the model reads pictures";
        return Err(Usage(how.to_owned()).into());
    }
    if arguments.tools.is_some() && !arguments.chat && arguments.prompts.is_none() {
        return Err(Usage("--tools is for the chat template; add --chat".to_owned()).into());
    }
    arguments.check()?;
    let artifact = Artifact::open(&arguments.artifact)?;
    read_typed(&mut arguments.prompt)?;
    let (threads, mut runtime) = arguments.threads.settle(&arguments.run_on, &artifact);
    if arguments.run_on.options.kernel_specialization.is_none() {
        // A kernel for the shapes of a step would be compiled for one run.
        runtime.engines.kernel_specialization = KernelSpecialization::None;
    }
    let options = GenerateOptions {
        config: configured(&arguments)?,
        system: arguments.system.take(),
        images: std::mem::take(&mut arguments.image),
        tools: arguments.tools.as_deref().map(Tools::read).transpose()?,
        seed: arguments.seed.unwrap_or(0),
        caching: arguments.set.use_cache,
        prompt_chunk: arguments.set.prefill_chunk_size,
        threads,
        runtime,
    };
    if converses && shows {
        return Err(Usage("a conversation reads no pictures; give a message with --prompt".to_owned()).into());
    }
    if converses {
        return chat::converse(&artifact, options, arguments.json);
    }
    if let Some(file) = &arguments.prompts {
        return generate_lines::run(&artifact, file, &options, arguments.chat, arguments.set.batch);
    }
    if !has_prompt {
        arguments.prompt.push(String::new());
    }
    let is_one =
        arguments.prompt.len() + arguments.ids.len() == 1 && options.config.num_return_sequences == NonZeroUsize::MIN;
    // Calls are known when all of a text is there.
    let streams = !arguments.json && is_one && options.tools.is_none();
    let prompts = match (arguments.ids.is_empty(), arguments.chat) {
        (false, _) => Prompts::Ids(arguments.ids.iter().map(|ids| ids.to_vec()).collect()),
        (true, true) => Prompts::Messages(arguments.prompt),
        (true, false) => Prompts::Texts(arguments.prompt),
    };
    let (of_ids, mut separator) = (!arguments.ids.is_empty(), "");
    let mut show = |piece: Piece<'_>| {
        match piece.id.filter(|_| of_ids) {
            Some(id) => show(&format!("{}{id}", std::mem::replace(&mut separator, ",")))?,
            None => show(piece.text)?,
        }
        Ok(ControlFlow::Continue(()))
    };
    let generated =
        planish_generate::generate(&artifact, &prompts, &options, if streams { Some(&mut show) } else { None })?;
    match (arguments.json, streams) {
        (true, _) => print_json(&document(&generated, options.tools.is_some()))?,
        // All but the end of the line is there.
        (false, true) => print("\n")?,
        (false, false) => print_made(&generated.continuations.iter().map(line).collect::<String>())?,
    }
    warn_of_context(&generated, options.config.num_return_sequences);
    if arguments.json {
        return Ok(());
    }
    progress(&speed_text(&generated));
    if let Some(lookups) = &generated.lookups {
        let Lookups { runs, candidates, accepted } = lookups;
        progress(&format!(
            "{runs} runs: {:.2} tokens a run, {accepted} of {candidates} tokens read ahead were kept",
            generated.tokens() as f64 / *runs as f64
        ));
    }
    Ok(())
}

/// Reads the prompt that is `-` from standard input.
fn read_typed(prompts: &mut [String]) -> Result<()> {
    let mut typed = prompts.iter_mut().filter(|prompt| *prompt == "-");
    match (typed.next(), typed.next()) {
        (Some(_), Some(_)) => Err(Usage("--prompt - reads all of standard input; give it once".to_owned()).into()),
        (Some(prompt), None) => {
            *prompt = read_prompt()?;
            Ok(())
        }
        (None, _) => Ok(()),
    }
}

/// Writes a piece of text to standard output, at once.
pub(super) fn show(text: &str) -> Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    print_made(text)
}

/// How fast the prompt was read and tokens were generated.
pub(super) fn speed_text(generated: &Generated) -> String {
    let seconds = |time: std::time::Duration| time.as_secs_f64();
    let per_second = |speed: Option<f64>| speed.map(|speed| format!("{speed:.1} tokens/s"));
    let mut text = format!("{} tokens in {:.2} s", generated.tokens(), seconds(generated.total));
    text += &per_second(generated.tokens_per_second()).map_or_else(String::new, |speed| format!(": {speed}"));
    text += &format!(", time to first token {:.3} s (", seconds(generated.first_token));
    text += &match generated.cached_tokens {
        0 => format!("prompt of {} tokens", generated.prompt_tokens),
        cached => format!("prompt of {} tokens, {cached} of them kept", generated.prompt_tokens),
    };
    text += &per_second(generated.prompt_tokens_per_second()).map_or_else(String::new, |speed| format!(": {speed}"));
    text += ")";
    text + &generated.loading.map_or_else(String::new, |time| format!(", model loaded in {:.2} s", seconds(time)))
}

/// What says how tokens are chosen.
struct Chosen {
    samples: bool,
    beams: bool,
}

impl Arguments {
    fn chosen(&self) -> Chosen {
        let samples = [self.temperature, self.top_p].iter().any(Option::is_some) || self.top_k.is_some();
        Chosen { samples: samples || self.set.has("min_p"), beams: self.set.has("num_beams") }
    }

    /// Refuses options that contradict each other, and settings that are not what they should be.
    fn check(&self) -> Result<(), Usage> {
        let Chosen { samples, beams } = self.chosen();
        let refused = |why: &str| Err(Usage(why.to_owned()));
        if self.greedy && (beams || samples) {
            return refused(
                "--greedy excludes --beams and what samples (--temperature, --top-k, --top-p, --set min_p); leave it out",
            );
        }
        if self.set.has("do_sample") && (samples || self.greedy) {
            return refused(
                "--set do_sample contradicts or repeats the other options that choose tokens; leave it out",
            );
        }
        let named = [
            (beams, "--beams or --set num_beams"),
            (self.set.samples(), "do_sample"),
            (samples, "--temperature, --top-k, --top-p and --set min_p"),
        ];
        if let Some((_, name)) = named.iter().find(|(given, _)| *given && self.set.lookup().is_some()) {
            return refused(&format!("--set {LOOKUP} is for greedy search; leave out {name}, or {LOOKUP}"));
        }
        if self.max_new_tokens.is_some() && self.set.has("max_length") {
            return refused(
                "--max-new-tokens counts, and --set max_length has no effect beside it; leave one of them out",
            );
        }
        if self.set.has("min_length") && self.set.has("min_new_tokens") {
            return refused("--set min_length has no effect beside min_new_tokens; leave one of them out");
        }
        if self.set.batch.is_some() && self.prompts.is_none() {
            return refused("--set batch is for --prompts; other prompts are one batch; leave it out");
        }
        if self.set.batch.is_some() && self.set.lookup().is_some() {
            return refused(&format!("--set {LOOKUP} continues one prompt after the other; leave batch out"));
        }
        if let Some(why) = self.set.refused() {
            return refused(why);
        }
        let settings = GenerationConfig::default().overridden(self.set.members.clone());
        settings.map(drop).map_err(|error| Usage(format!("{error:#}")))
    }
}

/// The artifact's settings, and those that were given in their place.
fn configured(arguments: &Arguments) -> Result<GenerationConfig> {
    let (Chosen { samples, beams }, set) = (arguments.chosen(), &arguments.set);
    let (artifact, members) = (&arguments.artifact, set.members.clone());
    let mut config = match set.generation_config {
        true => GenerationConfig::read_with(artifact, members)?,
        false => GenerationConfig::read_tokens(artifact)?.overridden(members)?,
    };
    if !config.unknown.is_empty() {
        warn(&format!(
            "generation_config.json has keys that are not known, and not used: {}",
            config.unknown.join(", ")
        ));
    }
    if samples || beams || arguments.greedy {
        config.do_sample = samples || set.samples();
        config.num_beams = if beams { config.num_beams } else { NonZeroUsize::MIN };
    }
    config.prompt_lookup = set.lookup();
    config.max_new_tokens = arguments.max_new_tokens.or(config.max_new_tokens);
    config.temperature = arguments.temperature.unwrap_or(config.temperature);
    config.top_k = arguments.top_k.map_or(config.top_k, NonZeroUsize::new);
    config.top_p = arguments.top_p.unwrap_or(config.top_p);
    if !arguments.stop.is_empty() {
        config.stop_strings.clone_from(&arguments.stop);
    }
    if set.ignore_eos {
        config.ignore_end_tokens();
    }
    if arguments.seed.is_some() && !config.draws() {
        warn("--seed has no effect, because no tokens are sampled; sample with --temperature, --top-k or --top-p");
    }
    let of_beams = ["length_penalty", "early_stopping"].into_iter().find(|key| set.has(key));
    if let (Some(key), NonZeroUsize::MIN) = (of_beams, config.num_beams) {
        return Err(Usage(format!("--set {key} has no effect without a beam search; add --beams N")).into());
    }
    Ok(config)
}

/// The text of a continuation, or its ids, and its calls of tools.
pub(super) fn line(continuation: &Continuation) -> String {
    let ids = || continuation.ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let said = continuation.text.clone().unwrap_or_else(ids) + "\n";
    let calls: String = continuation.calls.iter().map(|call| format!("{}\n", call.document())).collect();
    // A text of calls alone has no line for what is said.
    if !calls.is_empty() && said.trim().is_empty() { calls } else { said + &calls }
}

/// The ids, texts and calls of continuations; of one there is no list around them.
pub(super) fn members(all: &[Continuation], has_tools: bool) -> Map<String, Value> {
    let list = |of: &dyn Fn(&Continuation) -> Value| match all {
        [one] => of(one),
        _ => all.iter().map(of).collect(),
    };
    let mut members = Map::from_iter([("ids".to_owned(), list(&|one| json!(one.ids)))]);
    if all.iter().any(|one| one.text.is_some()) {
        members.insert("text".to_owned(), list(&|one| json!(one.text)));
    }
    if has_tools {
        members.insert("tool_calls".to_owned(), list(&|one| one.calls.iter().map(Call::document).collect()));
    }
    members
}

/// One document.
pub(super) fn document(generated: &Generated, has_tools: bool) -> Value {
    let mut document = members(&generated.continuations, has_tools);
    if let Some(Lookups { runs, candidates, accepted }) = generated.lookups {
        let per_run = generated.tokens() as f64 / runs as f64;
        let lookup = json!({ "runs": runs, "candidates": candidates, "accepted": accepted, "tokens_per_run": per_run });
        document.insert("prompt_lookup".to_owned(), lookup);
    }
    let speed = json!({
        "loading_s": generated.loading.map(|time| time.as_secs_f64()),
        "prompt_tokens": generated.prompt_tokens,
        "cached_tokens": generated.cached_tokens,
        "first_token_s": generated.first_token.as_secs_f64(),
        "total_s": generated.total.as_secs_f64(),
        "prompt_tokens_per_s": generated.prompt_tokens_per_second(),
        "tokens_per_s": generated.tokens_per_second(),
    });
    document.insert("speed".to_owned(), speed);
    Value::Object(document)
}

fn warn_of_context(generated: &Generated, of_prompt: NonZeroUsize) {
    for (number, continuation) in generated.continuations.iter().enumerate() {
        if continuation.stop == Stop::Context {
            let tokens = continuation.ids.len();
            warn(&format!(
                "prompt {}: stopped after {tokens} tokens, because the text is then as long as the model takes",
                number / of_prompt + 1
            ));
        }
    }
}
