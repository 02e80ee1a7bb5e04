//! Jinja as `transformers` sets it up for chat templates: the same whitespace rules, functions and filters.
//!
//! Everything is deterministic. What a template can reach is listed here and in [`crate::chat`].

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};

/// Wider indents add nothing for the model.
const MAX_INDENT: usize = 16;

/// An environment without templates; the caller bounds its fuel.
pub(crate) fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter("tojson", to_json);
    Ok(environment)
}

/// How a template refuses a conversation, in its own words.
fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()))
}

/// The date of every rendering is 26 Jul 2024, noon, a Friday: the one Llama's templates use where there is no clock.
/// The real date would make the same request give another prompt tomorrow.
fn strftime_now(format: &str) -> Result<String, Error> {
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        out.push_str(match characters.next() {
            Some('Y') => "2024",
            Some('y') => "24",
            Some('m') => "07",
            Some('b') => "Jul",
            Some('B') => "July",
            Some('d') => "26",
            Some('a') => "Fri",
            Some('A') => "Friday",
            Some('H' | 'I') => "12",
            Some('M' | 'S') => "00",
            Some('p') => "PM",
            Some('%') => "%",
            other => {
                let directive = other.map(String::from).unwrap_or_default();
                let message = format!("strftime_now: `%{directive}` is not supported");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        });
    }
    Ok(out)
}

/// JSON as Python writes it: no HTML escapes, a space after `,` and `:`.
#[expect(clippy::needless_pass_by_value, reason = "minijinja hands keyword arguments over by value only")]
fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    options.assert_all_used()?;
    let mut bytes = Vec::new();
    let written = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut bytes, PythonJson)),
        Some(width) => {
            let spaces = " ".repeat(width.min(MAX_INDENT));
            let pretty = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut bytes, pretty))
        }
    };
    let failed = |error: String| Error::new(ErrorKind::BadSerialization, error);
    written.map_err(|error| failed(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| failed(error.to_string()))
}

/// One line, with the separators of Python's `json.dumps`.
struct PythonJson;

impl PythonJson {
    fn separate<W: io::Write + ?Sized>(writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }
}

impl Formatter for PythonJson {
    fn begin_array_value<W: io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        Self::separate(writer, first)
    }

    fn begin_object_key<W: io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        Self::separate(writer, first)
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
