//! Options that there are no more, and what takes their places.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands, and options that they do not have, each with the sentence that follows it.
type Removed = (&'static [&'static str], &'static [(&'static str, &'static str)]);

/// All options that there are no more.
const REMOVED: &[Removed] = &[
    (
        &["compile"],
        &[
            ("--runtime-package", "is now --package"),
            ("--no-card", "is now --recipe card=false"),
            ("--strict", "is now --debug strict"),
            ("--keep-fp32", "is now --keep PATTERN=fp32"),
            ("--keep-float", "is now --keep PATTERN"),
            ("--bits-for", "is now --keep PATTERN=int4, PATTERN=int8 or PATTERN=float"),
            ("--quantize-head", "is now --keep @head=int4, @head=int8 or @head=float"),
            ("--quantize-table", "is now --keep @table=int4, @table=int8 or @table=float"),
            ("--attention-fp32", "is now --recipe attention-fp32=true"),
            ("--max-abs", "is now --recipe max-abs=X"),
            ("--keep-io", "is now --recipe io=half or io=f32"),
            ("--dynamic", "is now --recipe dynamic=true"),
            ("--split-columns", "is now --recipe split-columns=N"),
            ("--smooth", "is now --recipe smooth=off, smooth=auto or smooth=ALPHA"),
            ("--max-layer-loss", "is now --recipe max-layer-loss=X"),
            ("--range", "is now --recipe range=METHOD"),
            ("--weight-scales", "is now --recipe weight-scales=METHOD"),
            ("--weight-method", "is now --recipe weight-method=METHOD"),
            ("--block-size", "is now --recipe block-size=N"),
            ("--rounding", "is now --recipe weight-method=gptq or weight-method=nearest"),
            (
                "--bias-correction",
                "is gone, because it changed nothing beyond noise; --recipe weight-method=gptq lowers the error of layers",
            ),
            (
                "--quantize-attention",
                "is gone, because probabilities below 1/254 became 0; attention computes in floating point",
            ),
            ("--revision", "is part of the name: OWNER/NAME@REV"),
            ("--requantize", "is now --recipe requantize=true"),
            ("--explain-quantization", "is now --explain quantization"),
            ("--quantization-plan", "is gone, because planish.json has the plan, which --recipe plan=FILE takes"),
            ("--apply-quantization-plan", "is now --recipe plan=FILE, of a planish.json"),
            ("--zero-points", "is now --recipe zero-points=true"),
            ("--accuracy-level", "is now --recipe accuracy-level=int8 or accuracy-level=float"),
            ("--cache", "is now --recipe cache=copy or cache=in-place"),
            ("--pooling", "is now --recipe pooling=MODE"),
            ("--image-size", "is --recipe image-size=HEIGHTxWIDTH"),
            ("--preprocessing", "is --recipe preprocessing=graph"),
            ("--pad-vocab", "is now --recipe pad-vocab=N"),
            ("--logits", "is now --recipe logits=last,padded and the like"),
            ("--allow-non-finite", "is now --recipe allow-non-finite=true"),
            ("--explain-fusion", "is now --explain fusion"),
            ("--print-ir-after", "is now --debug print=PASS"),
            ("--stop-after", "is now --debug stop=N"),
            ("--verify-passes", "is now --debug verify"),
            ("--max-length", "is an option of `planish verify`"),
            ("--gpu", "is now --recipe engine.gpu=CAPABILITIES, and an option of `planish build-engine`"),
            ("--workspace", "is now --recipe engine.workspace=SIZE, and an option of `planish build-engine`"),
            (
                "--builder-optimization-level",
                "is now --recipe engine.builder-optimization-level=N, and an option of `planish build-engine`",
            ),
            ("--tf32", "is now --recipe engine.tf32=true, and an option of `planish build-engine`"),
            ("--sparse-weights", "is now --recipe engine.sparse-weights=true, and an option of `planish build-engine`"),
            (
                "--version-compatible",
                "is now --recipe engine.version-compatible=true, and an option of `planish build-engine`",
            ),
            ("--refit", "is now --recipe engine.refit=true, and an option of `planish build-engine`"),
            ("--strip-weights", "is now --recipe engine.strip-weights=true, and an option of `planish build-engine`"),
            (
                "--weight-streaming",
                "is now --recipe engine.weight-streaming=true, and an option of `planish build-engine`",
            ),
            ("--max-aux-streams", "is now --recipe engine.max-aux-streams=N, and an option of `planish build-engine`"),
            ("--tiling", "is now --recipe engine.tiling=LEVEL, and an option of `planish build-engine`"),
            (
                "--hardware-compatibility",
                "is now --recipe engine.hardware-compatibility=LEVEL, and an option of `planish build-engine`",
            ),
            ("--trt-flags", "is now --recipe engine.trt-flags=A,B, and an option of `planish build-engine`"),
            ("--keep-onnx", "is now --recipe engine.keep-onnx=true, and an option of `planish build-engine`"),
            ("--print-trtexec", "is an option of `planish build-engine`"),
        ],
    ),
    (
        &[
            "compile",
            "build-engine",
            "refit-engine",
            "calibrate",
            "inspect",
            "verify",
            "evaluate",
            "run",
            "generate",
            "bench",
            "profile",
            "runtimes",
        ],
        &[("--ort-lib", "is now --runtime-option ort-lib=PATH"), ("--trt-lib", "is now --runtime-option trt-lib=PATH")],
    ),
    (
        &["bench diff", "bench merge", "bench report", "passes", "completions", "man"],
        &[("--ort-lib", "has no use here; leave it out"), ("--trt-lib", "has no use here; leave it out")],
    ),
    (
        &["verify", "evaluate", "run", "generate", "bench", "profile"],
        &[
            ("--no-cuda-graph", "is now --runtime-option cuda-graph=false"),
            ("--weight-streaming-budget", "is now --runtime-option weight-streaming-budget=BUDGET"),
            ("--kernel-specialization", "is now --runtime-option kernel-specialization=WHEN"),
        ],
    ),
    (&["run", "generate"], &[("--spin", "is now --runtime-option spin=MICROSECONDS")]),
    (
        &["bench"],
        &[
            ("--spin", "is now --runtime-option spin=true"),
            ("--time", "is now --set time=SECONDS"),
            ("--wide", "is now --set wide"),
            ("--interval", "is now --set interval=SHARE"),
            ("--iterations", "is now --set iterations=N"),
            ("--warmup", "is now --set warmup=SECONDS"),
            ("--seed", "is now --set seed=N"),
            ("--isolate", "is now --set isolate"),
            ("--operators", "is now --set operators"),
            ("--include-data-transfers", "is now --set transfers"),
            ("--no-peaks", "is now --set peaks=false"),
            ("--new-tokens", "is now --set new-tokens=N"),
            ("--uncached", "is now --set uncached"),
            ("--calibrate", "is now --set calibrate=FILE"),
            ("--samples", "is now --set samples=N"),
            ("--field", "is now --set field=NAME"),
            ("--shard", "is --set shard=K/N"),
            ("--merge", "is planish bench merge A.json..."),
        ],
    ),
    (
        &["generate"],
        &[
            ("--num-beams", "is now --beams N"),
            ("--length-penalty", "is now --set length_penalty=X"),
            ("--min-p", "is now --set min_p=P"),
            ("--repetition-penalty", "is now --set repetition_penalty=X"),
            ("--no-generation-config", "is now --set generation_config=false"),
            ("--prompt-lookup", "is now --set prompt_lookup_num_tokens=N"),
            ("--lookup-ngram", "is now --set max_matching_ngram_size=N"),
            ("--prompt-chunk", "is now --set prefill_chunk_size=N"),
            ("--no-cache", "is now --set use_cache=false"),
        ],
    ),
    (
        &["inspect"],
        &[
            ("--cost", "is now --show cost"),
            ("--kernels", "is now --show kernels"),
            ("--memory-plan", "is now --show memory"),
            ("--explain-attention", "is now --show attention"),
            ("--explain-fusion", "is now --show fusion"),
            ("--memory", "is now --estimate memory=SIZE"),
            ("--confirm", "is now --estimate confirm"),
            ("--training", "is now --estimate training"),
            ("--tokens", "is now --estimate tokens=N"),
            ("--machine-flops", "is now --estimate machine-flops=N"),
            ("--utilization", "is now --estimate utilization=SHARE"),
        ],
    ),
];

/// Each command, by its words, with an option that it does not have, and the sentence.
fn rows() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let of_commands = |(commands, rows): &'static Removed| {
        commands.iter().flat_map(|command| rows.iter().map(|(option, sentence)| (*command, *option, *sentence)))
    };
    REMOVED.iter().flat_map(of_commands)
}

/// The option of a word of a command line, without its value.
fn option_of(word: &str) -> &str {
    word.split_once('=').map_or(word, |(option, _)| option)
}

/// The words of the command that a command line is of, such as `bench diff`.
fn command_of(words: &[&str]) -> String {
    let mut named = words.iter().skip(1).skip_while(|word| word.starts_with('-'));
    match (named.next(), named.next()) {
        (Some(&"bench"), Some(inner @ (&"diff" | &"merge" | &"report"))) => format!("bench {inner}"),
        (command, _) => command.copied().unwrap_or_default().to_owned(),
    }
}

/// What takes the places of the options of a command line that its command does not have, a line each, as an error.
pub(super) fn replaced(words: &[OsString], error: &clap::Error) -> Option<String> {
    let given = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => option_of(option),
        _ => return None,
    };
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let command = command_of(&words);
    let row = |option: &str| rows().find(|(of, own, _)| *of == command && *own == option);
    row(given)?;
    let mut lines: Vec<String> = Vec::new();
    for (_, option, sentence) in words.iter().filter_map(|word| row(option_of(word))) {
        let line = format!("{option} {sentence}");
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    Some(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;
    use crate::cli::Cli;

    /// The command of some words.
    fn command(words: &str) -> Command {
        let mut root = Cli::command();
        root.build();
        let inner = |command: Command, word: &str| command.find_subcommand(word).expect(word).clone();
        words.split(' ').fold(root, inner)
    }

    /// The options of a command, without those that every command has.
    fn options(words: &str) -> Vec<String> {
        let (command, mut found) = (command(words), Vec::new());
        for argument in command.get_arguments() {
            found.extend(argument.get_long_and_visible_aliases().into_iter().flatten().map(|long| format!("--{long}")));
        }
        found.retain(|option| !["--help", "--version"].contains(&option.as_str()));
        found
    }

    #[test]
    fn the_error_of_each_removed_option_names_what_replaces_it() {
        for (command, option, sentence) in rows() {
            assert!(!options(command).iter().any(|own| own == option), "planish {command} has {option}");
            for word in [option.to_owned(), format!("{option}=1")] {
                let line = format!("planish {command} {word} model");
                let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
                let Err(error) = Cli::command().try_get_matches_from(&words) else { panic!("{line}") };
                assert_eq!(replaced(&words, &error), Some(format!("{option} {sentence}")), "{word}");
                assert_eq!(crate::cli::run(words), 2, "{word}");
            }
        }
    }

    #[test]
    fn one_error_names_all_options_of_a_line() {
        let replaced = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            Cli::command().try_get_matches_from(&words).err().and_then(|error| replaced(&words, &error))
        };
        let both = "--num-beams is now --beams N\n--spin is now --runtime-option spin=MICROSECONDS";
        assert_eq!(
            replaced("planish --quiet generate a --num-beams=2 --spin 1 --num-beams 3 -- --min-p").as_deref(),
            Some(both)
        );
        assert_eq!(replaced("planish generate a --unknown --num-beams 2"), None);
    }

    /// The keys, or the values, of an option.
    fn keys(words: &str, option: &str) -> Vec<String> {
        let command = command(words);
        let argument = command.get_arguments().find(|of| of.get_long() == Some(&option[2..])).expect(option);
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let keys = help.lines().skip(1).filter_map(|line| Some(line.split([':', '=']).next()?.to_owned()));
        keys.chain(argument.get_possible_values().iter().map(|value| value.get_name().to_owned())).collect()
    }

    /// What a sentence names is there.
    #[test]
    fn replacements_are_options() {
        let page = include_str!("../../docs/recipe.md");
        let mut checked = 0;
        for (command, option, sentence) in rows() {
            let mut words = sentence.split([' ', ',', ';']).peekable();
            while let Some(word) = words.next() {
                if !word.starts_with("--") {
                    continue;
                }
                assert!(options(command).iter().any(|own| own == word), "{option} of planish {command}: {word}");
                if word == "--recipe" {
                    let key = option_of(words.peek().expect(sentence));
                    let is_key = match key.strip_prefix("engine.") {
                        Some(of) => options("build-engine").contains(&format!("--{of}")),
                        None => page.contains(&format!("`{}`", key.replace('-', "_"))),
                    };
                    assert!(is_key, "{option} of planish {command}: {key}");
                }
                if ["--set", "--runtime-option", "--estimate", "--show"].contains(&word) {
                    let key = option_of(words.peek().expect(sentence));
                    assert!(
                        keys(command, word).iter().any(|own| own == key),
                        "{option} of planish {command}: {word} {key}"
                    );
                    checked += 1;
                }
            }
        }
        assert!(checked > 60, "{checked}");
    }

    /// Options that no command has are in no page. Those that another command has may be.
    #[test]
    fn pages_name_no_removed_option() {
        let commands: Vec<String> =
            Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        let there: Vec<String> = commands.iter().flat_map(|command| options(command)).collect();
        let gone: Vec<&str> =
            rows().map(|(_, option, _)| option).filter(|option| !there.iter().any(|own| own == option)).collect();
        assert!(gone.len() > 20, "{gone:?}");
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let pages = std::fs::read_dir(folder.join("docs")).unwrap().map(|entry| entry.unwrap().path());
        for page in pages.chain([folder.join("README.md")]).filter(|path| path.extension().is_some_and(|e| e == "md")) {
            for line in std::fs::read_to_string(&page).unwrap().lines() {
                let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
                let words = line.split(|c| !is_word(c));
                let named = words.clone().find(|word| gone.contains(word));
                assert!(named.is_none(), "{}: {line}", page.display());
            }
        }
    }

    /// As `--help` lists them.
    #[test]
    fn commands_have_no_more_options_than_a_user_can_read() {
        for (command, most) in [("compile", 39), ("bench", 20), ("generate", 24), ("inspect", 20)] {
            let (all, own) = (2, options(command));
            assert!(own.len() + all <= most, "planish {command} has {} options: {own:?}", own.len() + all);
        }
    }
}
