//! Jinja as the transformers library sets it up for chat templates.

use std::io;

use jiff::civil::DateTime;
use jiff::fmt::strtime;
use minijinja::formatting::{FormatStyle, format};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error, State, Value};
use minijinja_contrib::pycompat;

use super::python;
use super::tracking::as_scopes;

/// The name of the template in its environment and in errors.
pub(super) const NAME: &str = "chat_template.jinja";

/// Steps of a template at most: far more than one needs that ends.
const FUEL: u64 = 300_000;

/// The most digits of a width or precision in a format string.
const MOST_DIGITS: usize = 4;

/// An environment with a template.
///
/// # Errors
/// When the template is none.
pub(super) fn environment(template: &str, clock: fn() -> DateTime) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(|out, _, value| match value.is_undefined() {
        true => Ok(()),
        false => out.write_str(&python::text(value)?).map_err(Error::from),
    });
    environment.set_unknown_method_callback(method);
    environment.add_filter("tojson", |value: Value, ascii: Option<bool>, kwargs| python::tojson(&value, ascii, kwargs));
    environment.add_filter("indent", |value: Value, width, first, blank, kwargs| {
        python::indent(&value, width, first, blank, kwargs)
    });
    environment.add_filter("string", |value: Value| python::text(&value));
    environment.add_filter("format", |text: &str, mut args: Rest<Value>, named: Kwargs| {
        if named.args().next().is_some() {
            args.push(Value::from(named));
        }
        formatted(FormatStyle::Printf, text, &args)
    });
    // What has a length and items in Python, and what can be iterated over.
    let is_sequence = |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined)
    };
    environment.add_test("sequence", move |value: Value| is_sequence(&value));
    environment.add_test("iterable", move |value: Value| is_sequence(&value) || value.kind() == ValueKind::Iterable);
    environment.add_function("raise_exception", |message: Value| -> Result<String, Error> {
        Err(python::refused(python::text(&message)?))
    });
    environment.add_function("strftime_now", move |format: &str| {
        strtime::format(format, clock()).map_err(|e| python::refused(format!("strftime_now({format:?}): {e}")))
    });
    environment.add_template_owned(NAME, as_scopes(template))?;
    Ok(environment)
}

/// Methods of Python's strings and maps, which templates call.
fn method(state: &mut State<'_, '_>, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), method) {
        (Some(text), "format") => formatted(FormatStyle::StrFormat, text, args).map(Value::from),
        _ => pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// A format string with its values put in.
fn formatted(style: FormatStyle, text: &str, args: &[Value]) -> Result<String, Error> {
    let spec = |field: &str| match style {
        FormatStyle::StrFormat => {
            field.split('}').next().and_then(|field| field.split_once(':')).map(|(_, spec)| spec.to_owned())
        }
        _ => {
            let named = field.strip_prefix('(').and_then(|field| field.split_once(')'));
            let field = named.map_or(field, |(_, field)| field);
            field.split(|c: char| c.is_ascii_alphabetic()).next().map(str::to_owned)
        }
    };
    let fields = text.split(if matches!(style, FormatStyle::StrFormat) { '{' } else { '%' }).skip(1).filter_map(spec);
    for spec in fields {
        let mut numbers = spec.split(|c: char| !c.is_ascii_digit());
        if let Some(number) = numbers.find(|digits| digits.trim_start_matches('0').len() > MOST_DIGITS) {
            return Err(python::refused(format!("a format of {} is too wide", super::one_line(number))));
        }
    }
    let printed = |value: &Value| match value.kind() {
        ValueKind::None | ValueKind::Bool | ValueKind::Seq => Ok(Value::from(python::text(value)?)),
        _ => Ok(value.clone()),
    };
    format(style, text, &args.iter().map(printed).collect::<Result<Vec<_>, Error>>()?)
}

/// A text that is written up to a number of bytes.
pub(super) struct Limited {
    pub(super) text: Vec<u8>,
    most: usize,
}

impl Limited {
    pub(super) fn new(most: usize) -> Self {
        Self { text: Vec::new(), most }
    }
}

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.most - self.text.len() {
            return Err(io::Error::other(format!("the text gets longer than {} MB", self.most >> 20)));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
