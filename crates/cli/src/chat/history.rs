//! What was said so far.

use foretoken_proto::v1::{ChatMessage, ChatPrompt};

/// The system prompt and the messages behind it, the user's and the model's by turns.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct History {
    system: Option<String>,
    messages: Vec<ChatMessage>,
}

impl History {
    /// Nothing said yet.
    pub(super) fn new(system: Option<String>) -> Self {
        Self { system, messages: Vec::new() }
    }

    /// Another system prompt, from the next answer on.
    pub(super) fn set_system(&mut self, system: Option<String>) {
        self.system = system;
    }

    /// Forgets all messages.
    pub(super) fn reset(&mut self) {
        self.messages.clear();
    }

    /// The whole conversation with the user's next message, for the model to answer.
    pub(super) fn ask(&self, message: &str) -> ChatPrompt {
        let system = self.system.as_deref().map(|system| said("system", system));
        let messages = system.into_iter().chain(self.messages.iter().cloned());
        ChatPrompt { messages: messages.chain([said("user", message)]).collect() }
    }

    /// The message was answered. An answer that was stopped counts as far as it came; one that never began leaves no
    /// trace, nor does its question.
    pub(super) fn answered(&mut self, message: &str, answer: &str) {
        if !answer.is_empty() {
            self.messages.push(said("user", message));
            self.messages.push(said("assistant", answer));
        }
    }
}

fn said(role: &str, content: &str) -> ChatMessage {
    ChatMessage { role: role.to_owned(), content: content.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(history: &History, message: &str) -> Vec<(String, String)> {
        history.ask(message).messages.into_iter().map(|said| (said.role, said.content)).collect()
    }

    fn pair(role: &str, content: &str) -> (String, String) {
        (role.to_owned(), content.to_owned())
    }

    #[test]
    fn the_whole_conversation_is_told() {
        let mut history = History::new(Some("Be brief.".to_owned()));
        history.answered("Hi", "Hello.");
        // Nothing came: as if it had not been asked.
        history.answered("And?", "");
        let all = [
            pair("system", "Be brief."),
            pair("user", "Hi"),
            pair("assistant", "Hello."),
            pair("user", "Bye"),
        ];
        assert_eq!(told(&history, "Bye"), all);
        history.set_system(None);
        assert_eq!(told(&history, "Bye"), all[1..]);
        history.reset();
        assert_eq!(told(&history, "Bye"), all[3..]);
    }
}
