//! Which files of a repository a model needs.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{HubName, is_gguf};

pub(super) const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
/// Read beside `safetensors` weights; the first two must be there.
const BESIDE: [&str; 5] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
];
const NEEDED: usize = 2;

/// The files of a model, in the order in which they are fetched: what is last is there only if all is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Files {
    /// One GGUF file.
    Gguf(String),
    /// A folder with `safetensors` weights. If the last one is [`INDEX`], the shards it names follow.
    Folder(Vec<&'static str>),
}

/// The files of a model among those that a repository has.
pub(super) fn choose(name: &HubName, has: &[String]) -> Result<Files> {
    let holds = |file: &str| has.iter().any(|have| have == file);
    if let Some(file) = &name.file {
        if !holds(file) {
            bail!("{} has no file {file}; {}", name.repository, ggufs_of(has));
        }
        return Ok(Files::Gguf(file.clone()));
    }
    let weights = [SINGLE, INDEX].into_iter().find(|file| holds(file));
    if let Some(weights) = weights {
        if let Some(missing) = BESIDE[..NEEDED].iter().find(|file| !holds(file)) {
            bail!("{name} has no {missing}, which is read beside {weights}");
        }
        let beside = BESIDE.into_iter().filter(|file| holds(file));
        return Ok(Files::Folder(beside.chain([weights]).collect()));
    }
    let mut ggufs = has.iter().filter(|file| is_gguf(file) && !file.contains('/'));
    match (ggufs.next(), ggufs.next()) {
        (Some(only), None) => Ok(Files::Gguf(only.clone())),
        (Some(_), Some(_)) => {
            bail!("{name} has several GGUF files, give one as {name}/FILE; {}", ggufs_of(has))
        }
        (None, _) => bail!("{name} has neither {SINGLE} nor {INDEX} nor a GGUF file"),
    }
}

/// The shards that an index names.
pub(super) fn shards(index: &[u8]) -> Result<BTreeSet<String>> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: std::collections::BTreeMap<String, String>,
    }
    let index: Index = serde_json::from_slice(index).with_context(|| format!("{INDEX} is no index"))?;
    let shards: BTreeSet<String> = index.weight_map.into_values().collect();
    // A name with a slash could lead out of the folder.
    match shards.iter().find(|shard| !shard.ends_with(".safetensors") || shard.contains(['/', '\\'])) {
        Some(shard) => bail!("{INDEX} names {shard:?}, which is no file of weights"),
        None => Ok(shards),
    }
}

fn ggufs_of(has: &[String]) -> String {
    let ggufs: Vec<&str> = has.iter().map(String::as_str).filter(|file| is_gguf(file)).collect();
    if ggufs.is_empty() { "it has no GGUF file".to_owned() } else { format!("it has {}", ggufs.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(name: &str, has: &[&str]) -> Result<Files> {
        let has: Vec<String> = has.iter().map(|file| (*file).to_owned()).collect();
        choose(&HubName::parse(name).unwrap(), &has)
    }

    #[test]
    fn weights_come_last_and_safetensors_before_gguf() {
        let all = ["README.md", "a.gguf", "tokenizer.json", SINGLE, "config.json", "generation_config.json"];
        let folder = ["config.json", "tokenizer.json", "generation_config.json", SINGLE];
        assert_eq!(chosen("a/b", &all).unwrap(), Files::Folder(folder.to_vec()));
        let sharded = ["config.json", "tokenizer.json", INDEX, "model-00001-of-00002.safetensors"];
        assert_eq!(chosen("a/b", &sharded).unwrap(), Files::Folder(sharded[..3].to_vec()));
        assert_eq!(chosen("a/b", &["x.gguf", "README.md"]).unwrap(), Files::Gguf("x.gguf".into()));
        assert_eq!(chosen("a/b/x.gguf", &["x.gguf", "y.gguf"]).unwrap(), Files::Gguf("x.gguf".into()));
    }

    #[test]
    fn what_is_missing_or_unclear_is_named() {
        let refused = |name: &str, has: &[&str]| chosen(name, has).unwrap_err().to_string();
        assert!(refused("a/b", &["x.gguf", "y.gguf"]).contains("a/b/FILE; it has x.gguf, y.gguf"));
        assert!(refused("a/b/z.gguf", &["x.gguf"]).contains("a/b has no file z.gguf; it has x.gguf"));
        assert!(refused("a/b", &[SINGLE, "config.json"]).contains("no tokenizer.json"));
        assert!(refused("a/b", &["pytorch_model.bin"]).contains("nor a GGUF file"));
    }

    #[test]
    fn shards_are_files_of_the_folder() {
        let index =
            |file: &str| format!(r#"{{"weight_map": {{"a": "{file}", "b": "{file}"}}}}"#).into_bytes();
        assert_eq!(shards(&index("x.safetensors")).unwrap().len(), 1);
        for file in ["../x.safetensors", "/etc/passwd", "a/x.safetensors"] {
            assert!(shards(&index(file)).unwrap_err().to_string().contains(file));
        }
        assert!(shards(b"{}").unwrap_err().to_string().contains("no index"));
    }
}
