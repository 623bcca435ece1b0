//! Options that there are no more, and what takes their places.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A command, an option that it does not have, and the sentence that follows the option.
const REMOVED: &[(&str, &str, &str)] = &[
    ("compile", "--runtime-package", "is now --package"),
    ("compile", "--keep-fp32", "is now --keep PATTERN=fp32"),
    ("compile", "--keep-float", "is now --keep PATTERN"),
    ("compile", "--bits-for", "is now --keep PATTERN=int4, PATTERN=int8 or PATTERN=float"),
    ("compile", "--quantize-head", "is now --keep @head=int4, @head=int8 or @head=float"),
    ("compile", "--quantize-table", "is now --keep @table=int4, @table=int8 or @table=float"),
    ("compile", "--attention-fp32", "is now --recipe attention-fp32=true"),
    ("compile", "--max-abs", "is now --recipe max-abs=X"),
    ("compile", "--keep-io", "is now --recipe io=half or io=f32"),
    ("compile", "--dynamic", "is now --recipe dynamic=true"),
    ("compile", "--split-columns", "is now --recipe split-columns=N"),
    ("compile", "--smooth", "is now --recipe smooth=off, smooth=auto or smooth=ALPHA"),
    ("compile", "--max-layer-loss", "is now --recipe max-layer-loss=X"),
    ("compile", "--range", "is now --recipe range=METHOD"),
    ("compile", "--weight-scales", "is now --recipe weight-scales=METHOD"),
    ("compile", "--rounding", "is now --weight-method gptq or nearest"),
    (
        "compile",
        "--bias-correction",
        "is gone, because it changed nothing beyond noise; --weight-method gptq lowers the error of layers",
    ),
    (
        "compile",
        "--quantize-attention",
        "is gone, because probabilities below 1/254 became 0; attention computes in floating point",
    ),
    ("compile", "--requantize", "is now --recipe requantize=true"),
    ("compile", "--explain-quantization", "is now --explain quantization"),
    ("compile", "--quantization-plan", "is gone, because planish.json has the plan, which --recipe plan=FILE takes"),
    ("compile", "--apply-quantization-plan", "is now --recipe plan=FILE, of a planish.json"),
    ("compile", "--zero-points", "is now --recipe zero-points=true"),
    ("compile", "--accuracy-level", "is now --recipe accuracy-level=int8 or accuracy-level=float"),
    ("compile", "--pad-vocab", "is now --recipe pad-vocab=N"),
    ("compile", "--logits", "is now --recipe logits=last,padded and the like"),
    ("compile", "--allow-non-finite", "is now --recipe allow-non-finite=true"),
    ("compile", "--explain-fusion", "is now --explain fusion"),
    ("compile", "--print-ir-after", "is now --debug print=PASS"),
    ("compile", "--stop-after", "is now --debug stop=N"),
    ("compile", "--verify-passes", "is now --debug verify"),
    ("compile", "--max-length", "is an option of `planish verify`"),
    ("compile", "--gpu", "is now --recipe engine.gpu=CAPABILITIES, and an option of `planish build-engine`"),
    ("compile", "--workspace", "is now --recipe engine.workspace=SIZE, and an option of `planish build-engine`"),
    (
        "compile",
        "--builder-optimization-level",
        "is now --recipe engine.builder-optimization-level=N, and an option of `planish build-engine`",
    ),
    ("compile", "--tf32", "is now --recipe engine.tf32=true, and an option of `planish build-engine`"),
    (
        "compile",
        "--sparse-weights",
        "is now --recipe engine.sparse-weights=true, and an option of `planish build-engine`",
    ),
    (
        "compile",
        "--version-compatible",
        "is now --recipe engine.version-compatible=true, and an option of `planish build-engine`",
    ),
    ("compile", "--refit", "is now --recipe engine.refit=true, and an option of `planish build-engine`"),
    (
        "compile",
        "--strip-weights",
        "is now --recipe engine.strip-weights=true, and an option of `planish build-engine`",
    ),
    (
        "compile",
        "--weight-streaming",
        "is now --recipe engine.weight-streaming=true, and an option of `planish build-engine`",
    ),
    (
        "compile",
        "--max-aux-streams",
        "is now --recipe engine.max-aux-streams=N, and an option of `planish build-engine`",
    ),
    ("compile", "--tiling", "is now --recipe engine.tiling=LEVEL, and an option of `planish build-engine`"),
    (
        "compile",
        "--hardware-compatibility",
        "is now --recipe engine.hardware-compatibility=LEVEL, and an option of `planish build-engine`",
    ),
    ("compile", "--trt-flags", "is now --recipe engine.trt-flags=A,B, and an option of `planish build-engine`"),
    ("compile", "--keep-onnx", "is now --recipe engine.keep-onnx=true, and an option of `planish build-engine`"),
    ("compile", "--print-trtexec", "is an option of `planish build-engine`"),
];

/// What takes the place of an option that a command does not have, as an error.
pub(super) fn replaced(command: &str, error: &clap::Error) -> Option<String> {
    let given = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => option,
        _ => return None,
    };
    let option = given.split_once('=').map_or(given.as_str(), |(option, _)| option);
    let found = REMOVED.iter().find(|(of, own, _)| *of == command && *own == option);
    found.map(|(_, option, sentence)| format!("{option} {sentence}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// The options of a command, without those that every command has.
    fn options(command: &str) -> Vec<String> {
        let (mut root, mut found) = (Cli::command(), Vec::new());
        root.build();
        let command = root.find_subcommand(command).expect(command);
        for argument in command.get_arguments() {
            found.extend(argument.get_long_and_visible_aliases().into_iter().flatten().map(|long| format!("--{long}")));
        }
        found.retain(|option| !["--help", "--version"].contains(&option.as_str()));
        found
    }

    #[test]
    fn the_error_of_each_removed_option_names_what_replaces_it() {
        for (command, option, sentence) in REMOVED {
            assert!(!options(command).iter().any(|own| own == option), "planish {command} has {option}");
            for word in [(*option).to_owned(), format!("{option}=1")] {
                let Err(error) = Cli::command().try_get_matches_from(["planish", command, "model", &word]) else {
                    panic!("planish {command} takes {word}");
                };
                assert_eq!(replaced(command, &error), Some(format!("{option} {sentence}")), "{word}");
                assert_eq!(crate::cli::run(["planish", command, "model", &word].map(Into::into)), 2, "{word}");
            }
        }
    }

    /// What a sentence names is there.
    #[test]
    fn replacements_are_options() {
        for (command, option, sentence) in REMOVED {
            let words = sentence.split([' ', ',', ';']).filter(|word| word.starts_with("--"));
            for word in words {
                assert!(options(command).iter().any(|own| own == word), "{option} of planish {command}: {word}");
            }
        }
    }

    /// Options that no command has are in no page. Those that another command has may be.
    #[test]
    fn pages_name_no_removed_option() {
        let commands: Vec<String> =
            Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        let there: Vec<String> = commands.iter().flat_map(|command| options(command)).collect();
        let gone: Vec<&str> = REMOVED
            .iter()
            .map(|(_, option, _)| *option)
            .filter(|option| !there.iter().any(|own| own == option))
            .collect();
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

    #[test]
    fn commands_have_no_more_options_than_a_user_can_read() {
        for (command, most) in [("compile", 36), ("bench", 37), ("generate", 32), ("inspect", 26)] {
            let own = options(command);
            assert!(own.len() <= most, "planish {command} has {} options: {own:?}", own.len());
        }
    }
}
