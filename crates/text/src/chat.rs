//! The chat template a model ships: a conversation becomes the one text the model was trained on.
//!
//! Templates are programs in Jinja, written for Python and found inside downloaded files. They see what `transformers`
//! would show them, and nothing else: no files, no clock, no network. Steps and output are bounded; the memory that
//! intermediate values take is not, so templates from strangers should be read before they are run.

use std::io;

use minijinja::value::{Serde, Value};
use minijinja::{Error, context};
use serde::Serialize;

use crate::error::TextError;
use crate::jinja;

/// Steps any rendering may take, and more for each message: about a hundred times what known templates need.
const FUEL: u64 = 1_000_000;
const FUEL_PER_MESSAGE: u64 = 10_000;
/// Longer output is refused; it would exceed any context.
const MAX_OUTPUT_BYTES: usize = 64 << 20;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// Who speaks: `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// What was said.
    pub content: String,
}

impl ChatMessage {
    /// A message from its two parts.
    #[must_use]
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// A model's chat template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatTemplate {
    source: String,
    bos_token: String,
    eos_token: String,
}

impl ChatTemplate {
    pub(crate) fn new(source: String, bos_token: String, eos_token: String) -> Self {
        Self { source, bos_token, eos_token }
    }

    /// The template as the model ships it.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text of a conversation; with `add_generation_prompt` it ends where the model's answer begins.
    ///
    /// # Errors
    /// The template does not parse, refuses the messages (`raise_exception`), or runs past its bound.
    pub fn render(&self, messages: &[ChatMessage], add_generation_prompt: bool) -> Result<String, TextError> {
        let mut environment = jinja::environment().map_err(|error| explain(&error))?;
        environment.set_fuel(Some(FUEL + FUEL_PER_MESSAGE * messages.len() as u64));
        let template = environment
            .template_from_named_str("chat_template", &self.source)
            .map_err(|error| explain(&error))?;
        let values = context! {
            messages => Value::from(Serde(messages)),
            add_generation_prompt => add_generation_prompt,
            bos_token => &self.bos_token,
            eos_token => &self.eos_token,
            tools => Value::from(()),
            documents => Value::from(()),
        };
        let mut output = Bounded { bytes: Vec::new() };
        template.render_captured_to(values, &mut output).map_err(|error| explain(&error))?;
        String::from_utf8(output.bytes).map_err(|error| TextError::chat(error.to_string()))
    }
}

/// Where the template failed and why, in one line.
fn explain(error: &Error) -> TextError {
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    let detail = error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned);
    TextError::chat(format!("{detail}{line}"))
}

/// A growing buffer that refuses to grow past [`MAX_OUTPUT_BYTES`].
struct Bounded {
    bytes: Vec<u8>,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_OUTPUT_BYTES {
            return Err(io::Error::other(format!("output exceeds {MAX_OUTPUT_BYTES} bytes")));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
