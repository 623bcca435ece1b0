//! Options of the form `KEY=VALUE,..`, which hold the rarer settings of a command.

use std::fmt::Display;
use std::ops::Deref;
use std::str::FromStr;

use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};

/// A key of an option.
pub(super) struct Key<T: 'static> {
    pub(super) name: &'static str,
    /// What stands for its value in the help; empty for a switch, which is `true` where it has no value.
    pub(super) value: &'static str,
    pub(super) help: &'static str,
    /// Takes the settings, the name of the key and its value.
    pub(super) set: fn(&mut T, &str, &str) -> Result<(), String>,
}

/// Settings that one option sets by keys.
pub(super) trait Keyed: Clone + Default + Send + Sync + 'static {
    /// The option, without dashes.
    const OPTION: &'static str;
    /// The group of the help that it is in.
    const HEADING: Option<&'static str> = None;
    /// What the help says in front of the keys.
    const HELP: &'static str;
    /// Names that are no keys, because they are options, with the options.
    const ELSEWHERE: &'static [(&'static str, &'static str)] = &[];
    /// Options that set a key: `--NAME VALUE`, or `--NAME` of a switch.
    const SHORTHANDS: &'static [(&'static str, &'static str)] = &[];
    /// The keys in the order of the help.
    const KEYS: &'static [Key<Self>];

    /// Reads what follows the option, each time that it is given.
    ///
    /// # Errors
    /// When a key is unknown, has no value or a wrong one, or is given twice.
    fn read<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let (mut settings, mut known) = (Self::default(), Vec::new());
        for text in texts {
            for pair in pairs(text, |word| Self::key(word).is_some_and(Key::is_switch)) {
                let (name, value) = pair.split_once('=').map_or((pair, None), |(name, value)| (name, Some(value)));
                let key = Self::key(name).ok_or_else(|| {
                    if let Some((_, option)) = Self::ELSEWHERE.iter().find(|(own, _)| is_same(own, name)) {
                        return format!("--{} has no key `{name}`: `{name}` is an option: {option}", Self::OPTION);
                    }
                    let all: Vec<String> = Self::KEYS.iter().map(Key::form).collect();
                    format!("--{} has no key `{name}`; its keys are {}", Self::OPTION, all.join(", "))
                })?;
                let value = match value {
                    None if key.is_switch() => "true",
                    Some(value) if key.is_switch() || !value.is_empty() => value,
                    _ => return Err(format!("--{} {name} has no value; write {}", Self::OPTION, key.form())),
                };
                if known.contains(&key.name) {
                    return Err(Self::twice(key.name));
                }
                known.push(key.name);
                (key.set)(&mut settings, key.name, value)
                    .map_err(|why| format!("--{} {}={value}: {why}", Self::OPTION, key.name))?;
            }
        }
        Ok(settings)
    }

    /// The error for a key that is given twice.
    fn twice(key: &str) -> String {
        format!("--{} has `{key}` twice", Self::OPTION)
    }

    /// The key of a name, in which `-` and `_` are the same.
    fn key(name: &str) -> Option<&'static Key<Self>> {
        Self::KEYS.iter().find(|key| is_same(key.name, name))
    }
}

/// Whether two names differ in nothing but dashes.
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.chars().zip(b.chars()).all(|(a, b)| a == b || is_dash(a) && is_dash(b))
}

fn is_dash(c: char) -> bool {
    ['-', '_'].contains(&c)
}

impl<T> Key<T> {
    fn is_switch(&self) -> bool {
        self.value.is_empty()
    }

    /// How it is written.
    fn form(&self) -> String {
        if self.is_switch() { self.name.to_owned() } else { format!("{}={}", self.name, self.value) }
    }
}

/// The pairs of a text. A comma ends a pair where a key with `=` or a switch follows it, so values may have commas.
fn pairs(text: &str, is_switch: impl Fn(&str) -> bool) -> Vec<&str> {
    let begins = |rest: &str| {
        let word = rest.split(',').next().unwrap_or_default();
        let is_name = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || is_dash(c))
        };
        is_switch(word) || word.split_once('=').is_some_and(|(name, _)| is_name(name))
    };
    let (mut found, mut start) = (Vec::new(), 0);
    for (at, _) in text.match_indices(',') {
        if begins(&text[at + 1..]) {
            found.push(&text[start..at]);
            start = at + 1;
        }
    }
    found.push(&text[start..]);
    found
}

/// A value that a type reads, for an optional setting.
pub(super) fn put<T: FromStr>(to: &mut Option<T>, text: &str) -> Result<(), String>
where
    T::Err: Display,
{
    *to = Some(text.parse().map_err(|error: T::Err| error.to_string())?);
    Ok(())
}

/// A switch: true or false.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "expected true or false".to_owned())
}

/// The option of some settings, as an argument of a command.
#[derive(Clone, Default)]
pub(super) struct KeyArguments<K>(K);

impl<K> Deref for KeyArguments<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K: Keyed> clap::Args for KeyArguments<K> {
    fn augment_args(command: Command) -> Command {
        let mut help = K::HELP.to_owned();
        for key in K::KEYS {
            help += &format!("\n{}: {}", key.form(), key.help);
        }
        let option = Arg::new(K::OPTION)
            .long(K::OPTION)
            .value_name("KEY=VALUE")
            .value_parser(ValueParser::string())
            .action(ArgAction::Append)
            .help(help)
            .help_heading(K::HEADING);
        let short = |(name, key): &(&'static str, &'static str)| {
            let (key, arg) = (K::key(key)?, Arg::new(*name).long(*name).help_heading(K::HEADING));
            let help = |form: String| format!("{}: the same as --{} {form}", in_front(key.help), K::OPTION);
            Some(match key.is_switch() {
                true => arg.action(ArgAction::SetTrue).help(help(key.form())),
                false => arg.value_name(key.value).allow_hyphen_values(true).help(help(key.form())),
            })
        };
        command.args(K::SHORTHANDS.iter().filter_map(short)).arg(option)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<K: Keyed> FromArgMatches for KeyArguments<K> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let short = |(name, key): &(&'static str, &'static str)| {
            let text = match K::key(key)?.is_switch() {
                true => matches.get_flag(name).then(|| (*key).to_owned()),
                false => matches.get_one::<String>(name).map(|value| format!("{key}={value}")),
            };
            Some((*name, *key, text?))
        };
        let short: Vec<_> = K::SHORTHANDS.iter().filter_map(short).collect();
        let error = |why: String| Error::raw(ErrorKind::ValueValidation, format!("{why}\n"));
        for (name, key, text) in &short {
            // The error names what was typed.
            let typed = |why: String| why.replacen(&format!("--{} {key}=", K::OPTION), &format!("--{name} "), 1);
            K::read([text.as_str()]).map_err(|why| error(typed(why)))?;
        }
        let texts = matches.get_many::<String>(K::OPTION).unwrap_or_default().map(String::as_str);
        let read = K::read(short.iter().map(|(_, _, text)| text.as_str()).chain(texts));
        read.map(Self).map_err(|why| {
            let twice = short.iter().find(|(_, key, _)| why == K::twice(key));
            error(twice.map_or(why.clone(), |(name, key, _)| {
                format!("--{name} and --{} {key} say the same; leave one of them out", K::OPTION)
            }))
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A text with a capital letter in front.
fn in_front(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Settings {
        time: Option<f64>,
        list: Option<String>,
        is_fast: bool,
    }

    impl Keyed for Settings {
        const OPTION: &'static str = "set";
        const HELP: &'static str = "Settings";
        const SHORTHANDS: &'static [(&'static str, &'static str)] = &[("list", "new_list"), ("fast", "fast")];
        const KEYS: &'static [Key<Self>] = &[
            Key { name: "time", value: "SECONDS", help: "", set: |it, _, text| put(&mut it.time, text) },
            Key { name: "new_list", value: "A,..", help: "", set: |it, _, text| put(&mut it.list, text) },
            Key { name: "fast", value: "", help: "", set: |it, _, text| switch(text).map(|value| it.is_fast = value) },
        ];
    }

    fn read(texts: &[&str]) -> Result<Settings, String> {
        Settings::read(texts.iter().copied())
    }

    #[test]
    fn pairs_stand_in_one_word_or_in_several() {
        let list = |list: &str| Some(list.to_owned());
        let all = Settings { time: Some(2.5), list: list("a,b"), is_fast: true };
        assert_eq!(read(&["time=2.5,new_list=a,b,fast"]).unwrap(), all);
        assert_eq!(read(&["fast", "new-list=a,b", "time=2.5"]).unwrap(), all);
        assert_eq!(read(&["fast=true,time=2.5,new-list=a,b"]).unwrap(), all);
        assert_eq!(read(&[]).unwrap(), Settings::default());
        assert_eq!(read(&["fast=false"]).unwrap(), Settings::default());
        let value = |text: &str| read(&[text]).unwrap().list;
        assert_eq!(value("new_list=[1,2],[3=4"), list("[1,2],[3=4"));
        assert_eq!(value("new_list=x=y"), list("x=y"));
    }

    #[test]
    fn options_of_their_own_set_keys() {
        let parse = |line: &str| {
            let command = <KeyArguments<Settings> as clap::Args>::augment_args(Command::new("run"));
            let matches = command.try_get_matches_from(line.split(' ')).expect(line);
            KeyArguments::<Settings>::from_arg_matches(&matches).map(|read| read.0).map_err(|error| error.to_string())
        };
        assert_eq!(parse("run --list a,b --fast"), read(&["new-list=a,b,fast"]));
        assert_eq!(parse("run --set time=1"), read(&["time=1"]));
        let error = |line: &str| parse(line).unwrap_err();
        assert!(error("run --fast --set fast").contains("--fast and --set fast say the same; leave one of them out"));
        assert!(error("run --set fast,fast").contains("--set has `fast` twice"));
        assert!(error("run --list a --set time=x").contains("--set time=x: "));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_there_is() {
        let wrong = |texts: &[&str]| read(texts).unwrap_err();
        assert_eq!(wrong(&["tima=1"]), "--set has no key `tima`; its keys are time=SECONDS, new_list=A,.., fast");
        assert!(wrong(&["time=1,slow=true"]).starts_with("--set has no key `slow`"));
        assert!(wrong(&[""]).starts_with("--set has no key ``"));
        assert_eq!(wrong(&["time"]), "--set time has no value; write time=SECONDS");
        assert_eq!(wrong(&["fast,new-list="]), "--set new-list has no value; write new_list=A,..");
        assert_eq!(wrong(&["fast="]), "--set fast=: expected true or false");
        assert_eq!(wrong(&["time=1,time=1"]), "--set has `time` twice");
        assert_eq!(wrong(&["new-list=1", "new_list=1"]), "--set has `new_list` twice");
        assert_eq!(wrong(&["time=soon"]), "--set time=soon: invalid float literal");
        assert_eq!(wrong(&["fast=yes"]), "--set fast=yes: expected true or false");
    }
}
