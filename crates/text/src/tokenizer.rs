//! The tokenizer itself: text to ids, ids to bytes, and what else a service asks of a vocabulary.

use std::fmt;
use std::sync::Arc;

use crate::chat::ChatTemplate;
use crate::detokenizer::Detokenizer;
use crate::error::TextError;
use crate::gguf::GgufVocab;
use crate::hf::HfFiles;
use crate::kind::Kind;
use crate::parts::Parts;
use crate::table::{TokenDifference, TokenTable};
use crate::vocabulary::Vocabulary;

/// A BPE tokenizer with its chat template; cheap to clone, shared between threads.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    bpe: tokenizers::Tokenizer,
    kind: Kind,
    table: TokenTable,
    parts: Parts,
    ends: Vec<u32>,
    chat: Option<ChatTemplate>,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("fingerprint", &self.fingerprint())
            .field("vocab_size", &self.vocab_size())
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Builds the tokenizer of a GGUF file.
    ///
    /// # Errors
    /// Another kind than byte-level or SentencePiece BPE, an unknown pre-tokenizer, or a vocabulary that contradicts itself.
    pub fn from_gguf(vocab: GgufVocab) -> Result<Self, TextError> {
        let (parts, vocabulary) = vocab.into_parts()?;
        Self::assemble(parts, &vocabulary)
    }

    /// Builds the tokenizer of a Hugging Face model directory.
    ///
    /// # Errors
    /// A file that does not parse, another kind than byte-level or SentencePiece BPE, or a vocabulary that contradicts itself.
    pub fn from_hf(files: HfFiles) -> Result<Self, TextError> {
        let (parts, vocabulary) = files.into_parts()?;
        Self::assemble(parts, &vocabulary)
    }

    /// Builds the tokenizer that [`Self::to_bundle`] wrote, in this process or another.
    ///
    /// # Errors
    /// Bytes that are no bundle of this version, or whose vocabulary contradicts itself.
    pub fn from_bundle(bytes: &[u8]) -> Result<Self, TextError> {
        let parts = Parts::from_bundle(bytes)?;
        let vocabulary = Vocabulary::read(&parts.tokenizer)?;
        Self::assemble(parts, &vocabulary)
    }

    /// One self-contained JSON document: `tokenizer.json`, chat template, and the ids that begin and end a text.
    #[must_use]
    pub fn to_bundle(&self) -> Vec<u8> {
        self.inner.parts.to_bundle()
    }

    fn assemble(parts: Parts, vocabulary: &Vocabulary) -> Result<Self, TextError> {
        let table = parts.table(vocabulary)?;
        let json_error = |error: tokenizers::Error| TextError::file("tokenizer.json", error);
        let mut bpe = tokenizers::Tokenizer::from_bytes(parts.tokenizer.get()).map_err(json_error)?;
        // Files of sentence-embedding models carry these; a prompt must be neither cut nor filled.
        bpe.with_truncation(None).map_err(json_error)?;
        bpe.with_padding(None);
        for token in &vocabulary.added {
            let given = bpe.token_to_id(&token.content);
            if !token.content.is_empty() && given != Some(token.id) {
                let detail =
                    format!("added token `{}` has id {}, but loads as {given:?}", token.content, token.id);
                return Err(TextError::vocabulary(detail));
            }
        }
        let literal = |id: u32| table.bytes(id).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let bos_text = parts.bos.and_then(literal).unwrap_or_default();
        let eos_text = parts.eos.and_then(literal).unwrap_or_default();
        let ends: Vec<u32> = parts.ends.iter().copied().collect();
        let chat = parts.chat_template.clone().map(|source| ChatTemplate::new(source, bos_text, eos_text));
        Ok(Self { inner: Arc::new(Inner { bpe, kind: vocabulary.kind, table, parts, ends, chat }) })
    }

    /// The ids of a text.
    ///
    /// Texts of special tokens become those tokens: chat templates are written that way, so text from strangers that must
    /// not be able to do this has to be checked before. With `add_special`, BOS comes first where the model wants one,
    /// unless the text already starts with it.
    ///
    /// Families with a normalizer (Qwen: NFC) apply it first. A byte the vocabulary has no token for (control characters,
    /// in some models) is dropped, as the models' own tokenizers do.
    ///
    /// # Errors
    /// Only if the tokenizer's own rules fail on the text.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TextError> {
        let encoding = self.inner.bpe.encode_fast(text, false);
        let encoding = encoding.map_err(|error| TextError::Encode { detail: error.to_string() })?;
        let ids = encoding.get_ids();
        let mut out = Vec::with_capacity(ids.len() + 1);
        if let Some(bos) =
            self.bos_id().filter(|bos| add_special && self.adds_bos() && ids.first() != Some(bos))
        {
            out.push(bos);
        }
        out.extend_from_slice(ids);
        Ok(out)
    }

    /// The raw bytes of a token, for a special token its literal text; `None` where the vocabulary has a hole.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.inner.table.bytes(id)
    }

    /// Whether the token steers the model instead of standing for text: it gives no text in the output.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.inner.table.is_special(id)
    }

    /// The ids that end an answer, ascending.
    #[must_use]
    pub fn eos_ids(&self) -> &[u32] {
        &self.inner.ends
    }

    /// The token that begins a text, if the model has one.
    #[must_use]
    pub fn bos_id(&self) -> Option<u32> {
        self.inner.parts.bos
    }

    /// Whether the model wants [`Self::bos_id`] before a text.
    #[must_use]
    pub fn adds_bos(&self) -> bool {
        self.inner.parts.add_bos
    }

    /// The highest id in use, plus one; a model's logits may have more rows.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.inner.table.len()
    }

    /// Lower-case hex SHA-256 over (id, length, bytes) of every token, ids and lengths as 32-bit little endian, ascending.
    ///
    /// Padding entries do not count, so the GGUF file and the `tokenizer.json` of one tokenizer agree.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        self.inner.table.fingerprint()
    }

    /// The lowest id whose bytes differ; `None` exactly when the fingerprints agree.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<TokenDifference> {
        self.inner.table.first_difference(&other.inner.table)
    }

    /// The model's chat template, if it ships one.
    #[must_use]
    pub fn chat(&self) -> Option<&ChatTemplate> {
        self.inner.chat.as_ref()
    }

    /// A fresh detokenizer for tokens that are a whole text.
    #[must_use]
    pub fn detokenizer(&self) -> Detokenizer {
        self.detokenizer_after(&[])
    }

    /// A fresh detokenizer for the text that follows these tokens, such as the answer to a prompt.
    ///
    /// It matters where the model puts a space in front of every text: the first space of what follows is the text's
    /// own, unless nothing before it gave any text.
    #[must_use]
    pub fn detokenizer_after(&self, before: &[u32]) -> Detokenizer {
        let gives_text =
            |id: u32| !self.is_special(id) && self.token_bytes(id).is_some_and(|b| !b.is_empty());
        let starts = !before.iter().any(|id| gives_text(*id));
        Detokenizer::new(self.clone(), starts && self.inner.kind.prefixed())
    }
}
