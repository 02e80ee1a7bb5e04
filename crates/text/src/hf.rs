//! A tokenizer from the files a Hugging Face model directory holds, handed over as bytes.
//!
//! `tokenizer.json` is used as it is. The other files add what it lacks: which tokens begin and end a text, and the chat
//! template.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::TextError;
use crate::parts::Parts;
use crate::vocabulary::Vocabulary;

/// The tokenizer files of a model directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HfFiles {
    /// `tokenizer.json`.
    pub tokenizer_json: Vec<u8>,
    /// `tokenizer_config.json`: special tokens and, in most models, the chat template.
    pub tokenizer_config_json: Option<Vec<u8>>,
    /// `generation_config.json`: the list of ids that end an answer.
    pub generation_config_json: Option<Vec<u8>>,
    /// `chat_template.jinja`: in newer models the template's own file; it wins over `tokenizer_config.json`.
    pub chat_template_jinja: Option<String>,
}

impl HfFiles {
    /// Reads all files and brings them into the common form.
    pub(crate) fn into_parts(self) -> Result<(Parts, Vocabulary), TextError> {
        let json: Box<RawValue> = read("tokenizer.json", &self.tokenizer_json)?;
        let config: TokenizerConfig =
            read_optional("tokenizer_config.json", self.tokenizer_config_json.as_deref())?;
        let generation: GenerationConfig =
            read_optional("generation_config.json", self.generation_config_json.as_deref())?;
        let post: PostProcessorFile =
            serde_json::from_str(json.get()).map_err(|error| TextError::file("tokenizer.json", error))?;
        let vocabulary = Vocabulary::read(&json)?;

        let id_of = |token: &Option<TokenName>| {
            token.as_ref().and_then(|name| vocabulary.ids.get(name.text())).copied()
        };
        let first = post.post_processor.as_ref().and_then(PostProcessor::first_token);
        let first = first.and_then(|name| vocabulary.ids.get(name)).copied();
        let bos = id_of(&config.bos_token)
            .or_else(|| generation.bos_token_id.as_ref().and_then(Ids::first))
            .or(first);
        let generation_eos = generation.eos_token_id.as_ref();
        let eos = id_of(&config.eos_token).or_else(|| generation_eos.and_then(Ids::first));

        let mut parts = Parts::new(json);
        // A model directory may name ids that this tokenizer lacks (padded vocabularies); such an id is never produced.
        let known = |id: &u32| vocabulary.ids.values().any(|known| known == id);
        parts.bos = bos.filter(known);
        parts.eos = eos.filter(known);
        parts.ends.extend(generation_eos.into_iter().flat_map(Ids::iter).filter(known));
        parts.complete_ends(&vocabulary);
        parts.add_bos = parts.bos.is_some()
            && (first == parts.bos || first.is_none() && config.add_bos_token == Some(true));
        parts.chat_template =
            self.chat_template_jinja.or_else(|| config.chat_template.and_then(Templates::pick));
        Ok((parts, vocabulary))
    }
}

fn read<T: DeserializeOwned>(file: &'static str, bytes: &[u8]) -> Result<T, TextError> {
    serde_json::from_slice(bytes).map_err(|error| TextError::file(file, error))
}

fn read_optional<T: DeserializeOwned + Default>(
    file: &'static str,
    bytes: Option<&[u8]>,
) -> Result<T, TextError> {
    bytes.map_or_else(|| Ok(T::default()), |bytes| read(file, bytes))
}

#[derive(Default, Deserialize)]
struct TokenizerConfig {
    bos_token: Option<TokenName>,
    eos_token: Option<TokenName>,
    add_bos_token: Option<bool>,
    chat_template: Option<Templates>,
}

/// A token is named by its text, or by an object that holds it.
#[derive(Deserialize)]
#[serde(untagged)]
enum TokenName {
    Text(String),
    Object { content: String },
}

impl TokenName {
    fn text(&self) -> &str {
        let (Self::Text(text) | Self::Object { content: text }) = self;
        text
    }
}

/// One template, or several under names, of which `default` is the one for plain conversations.
#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl Templates {
    fn pick(self) -> Option<String> {
        match self {
            Self::One(template) => Some(template),
            Self::Named(templates) => {
                templates.into_iter().find(|named| named.name == "default").map(|named| named.template)
            }
        }
    }
}

#[derive(Default, Deserialize)]
struct GenerationConfig {
    bos_token_id: Option<Ids>,
    eos_token_id: Option<Ids>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Many(Vec<u32>),
}

impl Ids {
    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let ids = match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        };
        ids.iter().copied()
    }

    fn first(&self) -> Option<u32> {
        self.iter().next()
    }
}

#[derive(Deserialize)]
struct PostProcessorFile {
    post_processor: Option<PostProcessor>,
}

/// Only the part that tells whether a text starts with a special token.
#[derive(Deserialize)]
struct PostProcessor {
    #[serde(default)]
    single: Vec<TemplatePiece>,
    #[serde(default)]
    processors: Vec<PostProcessor>,
}

#[derive(Deserialize)]
struct TemplatePiece {
    #[serde(rename = "SpecialToken")]
    special_token: Option<SpecialPiece>,
}

#[derive(Deserialize)]
struct SpecialPiece {
    id: String,
}

impl PostProcessor {
    fn first_token(&self) -> Option<&str> {
        let own =
            self.single.first().and_then(|piece| piece.special_token.as_ref()).map(|piece| piece.id.as_str());
        own.or_else(|| self.processors.iter().find_map(Self::first_token))
    }
}
