//! What a line of the user's means: a message, or a command that begins with a slash.

/// A line, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// Nothing.
    Empty,
    /// To the model.
    Message(String),
    /// Show all settings.
    Show,
    /// Change a setting, or take it back to its default.
    Set(String, Option<String>),
    /// Change the system prompt, or remove it.
    System(Option<String>),
    /// Forget what was said.
    Reset,
    /// List the commands.
    Help,
    /// End.
    Quit,
    /// A command there is not.
    Unknown(String),
}

/// The commands, for `/help`.
pub(super) const HELP: &str = "\
/set                 show how answers are sampled and drafted
/set NAME VALUE      change it: /set temperature 0.7, /set max_tokens 200, /set drafter none
/set NAME            back to its default
/system TEXT         another system prompt; without a text none
/reset               forget what was said, but not the system prompt
/help                this list
/quit                end, as Ctrl-D does
//TEXT               a message that begins with a slash
Ctrl-C stops an answer; once more, at the prompt, it ends.
";

impl Line {
    /// Understands a line.
    pub(super) fn parse(text: &str) -> Self {
        let text = text.trim();
        let Some(command) = text.strip_prefix('/') else {
            return if text.is_empty() { Self::Empty } else { Self::Message(text.to_owned()) };
        };
        if command.starts_with('/') {
            return Self::Message(command.to_owned());
        }
        let (name, rest) = first_word(command);
        match (name, rest) {
            ("set", None) => Self::Show,
            ("set", Some(rest)) => {
                let (name, value) = first_word(rest);
                Self::Set(name.to_owned(), value.map(str::to_owned))
            }
            ("system", text) => Self::System(text.map(str::to_owned)),
            ("reset", None) => Self::Reset,
            ("help", None) => Self::Help,
            ("quit" | "exit", None) => Self::Quit,
            _ => Self::Unknown(text.to_owned()),
        }
    }
}

/// The first word, and what follows it if anything does.
fn first_word(text: &str) -> (&str, Option<&str>) {
    match text.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, Some(rest.trim()).filter(|rest| !rest.is_empty())),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_and_commands() {
        let text = |text: &str| text.to_owned();
        for (line, right) in [
            ("", Line::Empty),
            ("  \t", Line::Empty),
            (" Hello there ", Line::Message(text("Hello there"))),
            ("//etc is a folder", Line::Message(text("/etc is a folder"))),
            ("/set", Line::Show),
            ("/set temperature 0.7", Line::Set(text("temperature"), Some(text("0.7")))),
            ("/set  stop  two words ", Line::Set(text("stop"), Some(text("two words")))),
            ("/set seed", Line::Set(text("seed"), None)),
            ("/system Be brief.", Line::System(Some(text("Be brief.")))),
            ("/system", Line::System(None)),
            ("/reset", Line::Reset),
            ("/help", Line::Help),
            ("/quit", Line::Quit),
            ("/reset now", Line::Unknown(text("/reset now"))),
            ("/sett", Line::Unknown(text("/sett"))),
            ("/", Line::Unknown(text("/"))),
        ] {
            assert_eq!(Line::parse(line), right, "{line:?}");
        }
    }
}
