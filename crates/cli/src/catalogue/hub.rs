//! Models of the Hugging Face hub by their repository: what a name means, and which of its files a model needs.
//!
//! Nothing here reaches the network: that is `fetch`, in builds with the feature `hf-hub`.

#[cfg(feature = "hf-hub")]
mod fetch;
#[cfg(feature = "hf-hub")]
mod files;

use super::Catalogue;

/// A repository, or one file of it: `org/name` or `org/name/file.gguf`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubName {
    /// `org/name`.
    pub(crate) repository: String,
    /// The one file, a GGUF file.
    pub(crate) file: Option<String>,
}

impl HubName {
    /// What a text means that is neither a path nor a name of the catalogue; `None` if it cannot be a repository.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let file = match parts[..] {
            [_, _] => None,
            [_, _, file] if is_gguf(file) => Some(file.to_owned()),
            _ => return None,
        };
        let [organisation, name] = *parts.first_chunk()?;
        // `models/tiny.gguf` is a path that does not exist.
        let known = [organisation, name].into_iter().all(is_part) && !name.ends_with(".gguf");
        known.then(|| Self { repository: format!("{organisation}/{name}"), file })
    }
}

impl std::fmt::Display for HubName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.repository)?;
        self.file.iter().try_for_each(|file| write!(f, "/{file}"))
    }
}

fn is_gguf(file: &str) -> bool {
    file.ends_with(".gguf")
}

/// The hub's own rule for the two parts of a repository's name.
fn is_part(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let borders = text.starts_with(['-', '.']) || text.ends_with(['-', '.']);
    (1..=96).contains(&text.len()) && text.chars().all(allowed) && !borders && !text.contains("..")
}

#[cfg(not(feature = "hf-hub"))]
impl Catalogue {
    /// Says how to get what this build cannot fetch.
    pub(crate) fn resolve_hub(&self, name: &HubName, _anew: bool) -> anyhow::Result<std::path::PathBuf> {
        anyhow::bail!(
            "{name} is neither a file nor the name of a model; to fetch it from the Hugging Face hub, use a build with \
             the feature hf-hub: cargo build --release --features hf-hub"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_and_their_gguf_files_are_told_from_paths() {
        let name = |repository: &str, file: Option<&str>| {
            Some(HubName { repository: repository.to_owned(), file: file.map(str::to_owned) })
        };
        assert_eq!(HubName::parse("HuggingFaceTB/SmolLM2-135M"), name("HuggingFaceTB/SmolLM2-135M", None));
        assert_eq!(HubName::parse("a/b-GGUF/b.Q4_0.gguf"), name("a/b-GGUF", Some("b.Q4_0.gguf")));
        assert_eq!(HubName::parse("a/b/c.gguf").unwrap().to_string(), "a/b/c.gguf");
        for path in [
            "",
            "model",
            "./model",
            "../model",
            "/model",
            "a/",
            "/a/b",
            "a//b",
            "a/b/c",
            "a/b/c/d.gguf",
            "a b/c",
            "models/tiny.gguf",
            "a/b..c",
            "~/model",
            "a/.b",
        ] {
            assert_eq!(HubName::parse(path), None, "{path:?}");
        }
    }
}
