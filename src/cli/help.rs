//! The short help: what `-h` prints of each command, one screen.
//!
//! `--help` and the manual have all options with their whole descriptions ([`whole`]). `-h` lists the options of [`SHORT`], which are those that
//! a new user looks for, each on one line with its values and its default.

use clap::{Arg, ArgAction, Command};

/// A command by its words, and the options that its short help lists, each with its description. The short help of a command that is
/// not here lists the global option alone. Arguments without a dash are listed in any case.
const SHORT: &[(&str, &[(&str, &str)])] = &[
    (
        "compile",
        &[
            ("model", "A checkpoint folder, .safetensors, .gguf or .onnx file, artifact, or a name of the hub"),
            ("output", "The folder to write [default: NAME-TARGET-PRECISION in the current folder]"),
            ("target", "onnx, ort (ONNX Runtime), openvino, ort-cuda, trt or cuda [default: ort]"),
            ("task", "The task, such as text-classification [default: the task in config.json]"),
            ("shapes", "Fix the shape of an input of an ONNX graph; for trt the sizes of a profile"),
            ("opset", "The ONNX opset of the artifact [default: 20, and more where needed]"),
            ("calibrate", "Data of texts or tensors, or a table of `planish calibrate`"),
            ("field", "The member or the column of the data that is the text [default: text]"),
            ("precision", "fp16, bf16, int8, fp8, int4 or int8-weights [default: f32]"),
            ("fp16", "Store weights and compute in float16"),
            ("bf16", "Store weights and compute in bfloat16"),
            ("int8", "Quantize layers to 8 bits; with --calibrate by fixed scales"),
            ("fp8", "Quantize linear layers to E4M3; for targets onnx and trt"),
            ("int4", "Store weights in 4 bits with a scale for each block"),
            ("int8_weights", "Store weights in 8 bits with a scale for each block"),
            ("keep", "Keep another type where names match, such as lm_head=fp32"),
            ("recipe", "A file with rarer choices, a planish.json, or KEY=VALUE"),
            ("package", "The library that loads it, such as genai or sentence-transformers"),
            ("variants", "fp32, fp16, q8, q4, q4f16: several forms for transformers-js"),
            ("tensor_parallel", "Cut the model for N GPUs: a graph for each, target trt or onnx"),
            ("weights", "copy the weights, or link the checkpoint's files [default: copy]"),
            ("verify", "Compare the artifact with its source before it is written"),
            ("evaluate", "Evaluate the artifact on this data"),
            ("max_loss", "Give more precision until the artifact meets limits, such as cos=0.999"),
            ("tune", "Measure forms of the graph here, and write the fastest"),
            ("tune_time", "How long --tune may take [default: 60s]"),
            ("force", "Replace an output folder that planish did not write"),
            ("explain", "Say what was fused and why not (fusion), what became of weights (quantization)"),
            ("json", "Print the manifest as JSON"),
        ],
    ),
    (
        "build-engine",
        &[
            ("artifact", "The artifact's folder"),
            ("shapes", "The sizes of a profile, MIN:OPT:MAX [default: those of profiles.json]"),
            ("gpu", "The GPUs, such as sm89,sm120 [default: that of this machine, else all but sm75]"),
            ("workspace", "The most memory for temporary values of a layer, such as 4GiB"),
            ("keep_onnx", "Keep the ONNX files beside the engines"),
            ("json", "Print JSON"),
        ],
    ),
    (
        "calibrate",
        &[
            ("model", "A checkpoint folder, a .safetensors, .gguf or .onnx file"),
            ("data", "Texts (.txt, .jsonl, .csv, .parquet) or tensors (.npz, .safetensors)"),
            ("field", "The member or the column that is the text [default: text]"),
            ("samples", "The largest number of samples to run"),
            ("measure", "ranges (for half precision), inputs (for INT8) or all [default: all]"),
            ("shard", "Run shard K of N only"),
            ("merge", "Write the table of all data from the tables of all shards"),
            ("output", "The table to write [default: NAME-calibration.json]"),
            ("json", "Print the table as JSON"),
        ],
    ),
    (
        "inspect",
        &[
            ("model", "The folder of an artifact, a checkpoint, an .onnx file, or an .engine file"),
            ("svg", "Draw the graph in an SVG file"),
            ("html", "Write a page of HTML with the graph, weights and sizes"),
            ("show", "cost, memory, kernels, attention or fusion, such as cost,memory"),
            ("estimate", "With cost: memory=16G (the largest batch that fits), or training"),
            ("batch", "Rows [default: 1]"),
            ("seq", "Tokens of a row [default: 128]"),
            ("json", "Print JSON"),
        ],
    ),
    (
        "verify",
        &[
            ("artifact", "The artifact's folder"),
            ("reference", "The source [default: the recorded path, or near the artifact]"),
            ("max_length", "The longest sequence, in tokens"),
            ("data", "Evaluate on this data too"),
            ("require", "Limits on --data, such as cos=0.99"),
            ("name", "The runtime that runs the artifact [default: that of its target]"),
            ("threads", "The number of threads [default: one for each core]"),
            ("json", "Print JSON"),
        ],
    ),
    (
        "evaluate",
        &[
            ("artifact", "The artifact's folder"),
            ("data", "Texts (.txt, .jsonl, .csv, .parquet) or tensors (.npz, .safetensors)"),
            ("reference", "What to compare with [default: the source of the artifact]"),
            ("require", "Limits, such as cos=0.999,top1=98; exit with 3 if one is missed"),
            ("field", "The member or the column that is the text; two for pairs [default: text]"),
            ("label", "The member or the column that is the label: accuracy, F1, Spearman, NDCG"),
            ("held_out", "Read only the share that --calibrate leaves out"),
            ("samples", "The largest number of samples"),
            ("max_length", "The number of tokens after which a text is cut"),
            ("shard", "Run a part of the data: K/N, or auto"),
            ("merge", "Print the report of the files of all shards"),
            ("name", "The runtime that runs the artifact [default: that of its target]"),
            ("threads", "The number of threads [default: one for each core]"),
            ("json", "Print JSON"),
        ],
    ),
    (
        "predict",
        &[
            ("artifact", "The artifact's folder"),
            ("data", "Texts (.txt, .jsonl, .csv, .parquet), pictures or recordings, or folders of these"),
            ("output", "A .jsonl file; embeddings also .npy, .safetensors, .parquet"),
            ("field", "The member or the column that is the text; two for pairs [default: text]"),
            ("prompt_name", "The prompt in front of each text, of config_sentence_transformers.json"),
            ("samples", "The largest number of records [default: all]"),
            ("max_length", "The number of tokens after which a text is cut"),
            ("labels", "What pictures may show, for models such as CLIP"),
            ("threshold", "The score above which an object in a picture counts [default: 0.5]"),
            ("draw", "A folder for pictures with what is predicted drawn on them"),
            ("batch_tokens", "The most tokens of a batch, padding included"),
            ("name", "The runtime that runs the artifact [default: that of its target]"),
            ("threads", "The number of threads [default: one for each core]"),
            ("json", "Print JSON"),
        ],
    ),
    (
        "run",
        &[
            ("artifact", "The artifact's folder"),
            ("inputs", "A safetensors file with the inputs"),
            ("outputs", "The safetensors file to write"),
            ("part", "The part of a model of several parts"),
            ("name", "The runtime that runs the artifact [default: that of its target]"),
            ("threads", "The number of threads [default: one for each core]"),
        ],
    ),
    (
        "generate",
        &[
            ("artifact", "The artifact's folder"),
            ("prompt", "The text of a prompt; - reads standard input"),
            ("prompts", "Lines of JSON with a prompt each; prints a line of JSON for each"),
            ("chat", "Use the chat template; without a prompt, start a conversation"),
            ("tools", "A JSON list of functions that the model may call, for --chat"),
            ("system", "A system message for --chat"),
            ("ids", "The token ids of a prompt, such as 1,2,3"),
            ("image", "A picture for the text; may be given several times"),
            ("stop", "Stop a text where it has this string"),
            ("max_new_tokens", "The largest number of new tokens [default: that of the settings, else 64]"),
            ("greedy", "Choose the token with the highest score in each step"),
            ("temperature", "The temperature of sampling; 0 is greedy search"),
            ("top_k", "Sample from the N tokens with the highest scores"),
            ("top_p", "Sample from the likeliest tokens whose probabilities add up to P"),
            ("seed", "The seed of sampling [default: 0]"),
            ("beams", "Search with N beams"),
            ("set", "A rarer setting, such as min_p=0.05 or repetition_penalty=1.2"),
            ("name", "The runtime that runs the artifact [default: that of its target]"),
            ("threads", "The number of threads [default: one for each core]"),
            ("json", "Print JSON"),
        ],
    ),
    (
        "transcribe",
        &[
            ("artifact", "The artifact's folder"),
            ("audio", "Recordings: .wav, .flac, .mp3, .ogg, .m4a or .aac; - reads standard input"),
            ("output", "The folder to write [default: standard output]"),
            ("format", "txt, srt, vtt or json, several with commas [default: txt]"),
            ("language", "The language that is spoken, such as de [default: the model finds it]"),
            ("task", "transcribe, or translate into English"),
            ("temperature", "The temperatures at which doubtful windows are decoded again"),
            ("batch", "How many recordings run side by side [default: 1]"),
            ("set", "A rarer setting, such as no_speech_threshold=0.5"),
            ("name", "The runtime that runs the artifact [default: that of its target]"),
            ("threads", "The number of threads [default: one for each core]"),
            ("json", "Print JSON"),
        ],
    ),
    (
        "bench",
        &[
            ("named", "Artifacts, .onnx files or checkpoints [default: artifacts in the current folder]"),
            ("compare", "Compile the usual forms of a checkpoint, and compare them"),
            ("precision", "The forms of checkpoints: unfused, f32, fp16, bf16, int8, int4 and others"),
            ("data", "Compare the accuracy on this data too"),
            ("max_loss", "The limits that the recommended contestant keeps, such as cos=0.999"),
            ("batch", "The batch sizes, such as 1,8,32 [default: 1]"),
            ("seq", "The sequence lengths in tokens, such as 128,512 [default: 128]"),
            ("inputs", "Measure on the tensors of this safetensors file"),
            ("runtime", "The runtimes [default: that of each artifact's target]"),
            ("workload", "encode, generate, lengths or load: what a run is [default: encode]"),
            ("set", "Rarer settings, such as time=10 (seconds for a cell) or isolate"),
            ("threads", "The number of threads [default: one for each core]"),
            ("json", "Write all figures as JSON, to a file or in place of the table"),
            ("html", "Write a report as one page of HTML"),
            ("csv", "Write the figures as CSV"),
        ],
    ),
    ("bench diff", &[("threshold", "The slowdown above which the exit code is 3"), ("json", "Print JSON")]),
    (
        "bench merge",
        &[
            ("json", "Write or print all figures as JSON"),
            ("all_columns", "Show all columns"),
            ("html", "Write a page of HTML"),
            ("csv", "Write CSV"),
        ],
    ),
    ("bench report", &[("html", "Write a page of HTML"), ("csv", "Write CSV")]),
    (
        "sweep",
        &[
            ("plan", "The plan, a file of JSON"),
            ("output", "The folder of the results; jobs that are done there are not run again"),
            ("processes", "How many jobs run at once [default: 1]"),
            ("shard", "Run every Nth job, from job K on; auto for the task of an array"),
            ("job", "Run this job only"),
            ("failed", "Run jobs again that failed"),
            ("scheduler", "Print a program for ray, slurm or kubernetes"),
            ("tasks", "The tasks of an array"),
        ],
    ),
    ("sweep list", &[("output", "Say what is known of each job there"), ("json", "Print JSON")]),
    ("sweep merge", &[("tasks", "The tasks of the array that the jobs were dealt out to"), ("json", "Print JSON")]),
    (
        "profile",
        &[
            ("model", "The folder of an artifact, or an .onnx file"),
            ("batch", "Rows"),
            ("seq", "Tokens of a row"),
            ("inputs", "Run on the tensors of this safetensors file"),
            ("flame", "Write a flame graph as SVG"),
            ("trace", "Write a trace for Chrome and Perfetto"),
            ("name", "The runtime that runs the artifact [default: that of its target]"),
            ("threads", "The number of threads [default: one for each core]"),
            ("json", "Print JSON"),
        ],
    ),
    ("runtimes", &[("test_kernels", "Run the CUDA kernels and compare them"), ("json", "Print JSON")]),
];

/// The options that every short help lists.
const ALWAYS: &[&str] = &["quiet", "help", "version"];

/// The command with its short help, and so each of its commands.
pub(super) fn shortened(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(&name, |it| short(it, &name)))
}

/// The columns of a help.
const WIDTH: usize = 110;

/// The command with its whole help, and so each of its commands: an option beside its description, in lines of [`WIDTH`].
pub(super) fn whole(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |command, name| command.mut_subcommand(name, whole));
    let beside = |argument: &Arg| {
        let name = argument.get_long().map_or(argument.get_id().as_str().len(), |long| long.len() + 6);
        let takes_value = argument.get_action().takes_values() && !argument.is_positional();
        let values = argument.get_value_names().unwrap_or_default().iter().map(|value| value.len() + 3);
        name + values.filter(|_| takes_value).sum::<usize>() + 4
    };
    let column = command.get_arguments().map(beside).max().unwrap_or(0);
    let command = command.mut_args(|argument| {
        let Some(help) = argument.get_long_help().or(argument.get_help()) else { return argument };
        let (mut text, takes_value) = (help.to_string(), argument.get_action().takes_values());
        let values = if takes_value { argument.get_possible_values() } else { Vec::new() };
        let explained = values.iter().filter_map(|value| Some(format!("{}: {}", value.get_name(), value.get_help()?)));
        let explained: Vec<String> = explained.collect();
        let notes = [
            argument.get_default_values().first().map(|value| format!("default: {}", value.to_string_lossy())),
            (explained.is_empty() && !values.is_empty()).then(|| {
                let names: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
                format!("values: {}", names.join(", "))
            }),
        ];
        for note in notes.into_iter().flatten().filter(|_| takes_value) {
            text += &format!(" [{note}]");
        }
        for value in explained {
            text += &format!("\n{value}");
        }
        let text = wrapped(&text, WIDTH.saturating_sub(column), 2);
        argument.help(text).hide_default_value(takes_value).hide_possible_values(takes_value)
    });
    let rest = command.get_long_about().map(ToString::to_string);
    let rest = rest.as_deref().and_then(|about| about.split_once("\n\n")).map(|(_, rest)| rest.to_owned());
    let after = rest.into_iter().chain(command.get_after_help().map(ToString::to_string)).collect::<Vec<_>>();
    let help = Arg::new("help").short('h').long("help").action(ArgAction::HelpShort);
    let command =
        command.disable_help_flag(true).arg(help.help_heading(None::<&str>).help("Print help; -h prints a summary"));
    if after.is_empty() { command } else { command.after_help(wrapped(&after.join("\n\n"), WIDTH, 0)) }
}

/// A text in lines of so many columns. What goes on of a line, but of the first one, is `further` columns further in.
fn wrapped(text: &str, width: usize, further: usize) -> String {
    let mut lines = Vec::new();
    for (number, whole) in text.lines().enumerate() {
        let (mut line, mut columns) = (String::new(), 0);
        let indent = if number == 0 { 0 } else { further };
        for word in whole.split(' ') {
            let length = word.chars().count();
            if columns > indent && columns + 1 + length > width {
                lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
                columns = indent;
            } else if columns > 0 {
                line.push(' ');
                columns += 1;
            }
            line += word;
            columns += length;
        }
        lines.push(line);
    }
    lines.join("\n")
}

/// The command of these words with its short help.
fn short(command: Command, words: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |command, name| {
        let words = format!("{words} {name}");
        command.mut_subcommand(name, |it| short(it, &words))
    });
    let options = SHORT.iter().find(|(of, _)| *of == words).map_or(&[][..], |(_, options)| options);
    let all = command.get_arguments().filter(|argument| !argument.is_positional()).count();
    let command = command.mut_args(|argument| {
        let id = argument.get_id().as_str();
        match options.iter().find(|(name, _)| *name == id) {
            Some((_, text)) => {
                let takes_value = argument.get_action().takes_values();
                argument.help(*text).hide_possible_values(takes_value).hide_default_value(takes_value)
            }
            None if argument.is_positional() || ALWAYS.contains(&id) => argument,
            None => argument.hide(true),
        }
    });
    let shown = command.get_arguments().filter(|argument| !argument.is_positional() && !argument.is_hide_set()).count();
    if shown == all { command } else { command.after_help(format!("`planish {words} --help` has all options.")) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// Each command with a short help: its words and itself.
    fn commands(command: &Command, words: &str, found: &mut Vec<(String, Command)>) {
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            let words = format!("{words} {}", inner.get_name()).trim().to_owned();
            commands(inner, &words, found);
            found.push((words, inner.clone()));
        }
    }

    #[test]
    fn each_short_help_is_one_screen() {
        let (mut root, mut found) = (shortened(Cli::command()), Vec::new());
        root.build();
        commands(&root, "", &mut found);
        assert!(found.len() > 12);
        found.push((String::new(), root));
        for (words, mut command) in found {
            let text = command.render_help().to_string();
            let lines = text.lines().count();
            assert!(lines <= 50, "planish {words} -h has {lines} lines:\n{text}");
            // The help of all commands has sentences, which a terminal wraps.
            if ["", "help"].contains(&words.as_str()) {
                continue;
            }
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(widest <= 110, "planish {words} -h has a line of {widest} characters:\n{text}");
        }
    }

    #[test]
    fn the_short_help_names_options_that_are_there() {
        let (root, mut found) = (Cli::command(), Vec::new());
        commands(&root, "", &mut found);
        for (words, options) in SHORT {
            let (_, command) = found.iter().find(|(of, _)| of == words).expect(words);
            for (option, _) in *options {
                assert!(
                    command.get_arguments().any(|argument| argument.get_id() == option),
                    "planish {words}: {option}"
                );
            }
        }
    }

    /// What follows options with a heading would be below that heading too.
    #[test]
    fn headings_hold_their_own_options() {
        let mut found = Vec::new();
        commands(&Cli::command(), "", &mut found);
        for (words, command) in found {
            for (heading, own) in
                [("Runtimes", &["runtime-option"][..]), ("ONNX graphs", &["shapes", "inputs", "outputs"])]
            {
                for argument in command.get_arguments().filter(|it| it.get_help_heading() == Some(heading)) {
                    assert!(
                        own.contains(&argument.get_id().as_str()),
                        "planish {words}: {} below {heading}",
                        argument.get_id()
                    );
                }
            }
        }
    }
}
