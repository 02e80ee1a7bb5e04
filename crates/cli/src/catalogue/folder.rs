//! Where models are kept.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, bail};

/// Moves the models folder.
pub(crate) const FOLDER_VARIABLE: &str = "FORETOKEN_MODELS";

/// `FORETOKEN_MODELS`, else the system's place for a user's caches. `os` is one of [`std::env::consts::OS`].
pub(crate) fn models_folder(os: &str, variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    // An empty variable is as good as none: that is how shells and compose files unset one.
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = path(FOLDER_VARIABLE) {
        return Ok(folder);
    }
    let caches = match os {
        "macos" => path("HOME").map(|home| home.join("Library/Caches")),
        "windows" => path("LOCALAPPDATA"),
        // The XDG rules say to ignore a relative path.
        _ => path("XDG_CACHE_HOME")
            .filter(|folder| folder.is_absolute())
            .or_else(|| path("HOME").map(|home| home.join(".cache"))),
    };
    match caches {
        Some(caches) => Ok(caches.join("foretoken").join("models")),
        None => bail!(
            "no folder to keep models in: the home folder is not known; set {FOLDER_VARIABLE} to a folder"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(os: &str, variables: &[(&str, &str)]) -> Result<PathBuf> {
        models_folder(os, |name| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn each_system_has_its_place() {
        let home = ("HOME", "/home/ada");
        for (os, variables, expected) in [
            ("linux", vec![home], "/home/ada/.cache/foretoken/models"),
            ("linux", vec![home, ("XDG_CACHE_HOME", "/fast")], "/fast/foretoken/models"),
            ("linux", vec![home, ("XDG_CACHE_HOME", "fast")], "/home/ada/.cache/foretoken/models"),
            ("linux", vec![home, ("XDG_CACHE_HOME", "")], "/home/ada/.cache/foretoken/models"),
            ("macos", vec![home, ("XDG_CACHE_HOME", "/fast")], "/home/ada/Library/Caches/foretoken/models"),
            ("windows", vec![("LOCALAPPDATA", "/local")], "/local/foretoken/models"),
            ("linux", vec![home, ("FORETOKEN_MODELS", "/models")], "/models"),
            ("macos", vec![("FORETOKEN_MODELS", "models")], "models"),
        ] {
            assert_eq!(folder(os, &variables).unwrap(), PathBuf::from(expected), "{os} {variables:?}");
        }
    }

    #[test]
    fn without_a_home_the_variable_is_named() {
        let error = folder("linux", &[("HOME", "")]).unwrap_err().to_string();
        assert!(error.contains("set FORETOKEN_MODELS"), "{error}");
    }
}
